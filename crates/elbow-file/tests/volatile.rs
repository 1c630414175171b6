//! The double that keeps what is durable apart: its images are those that a crash may leave, and no others.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::Arc;

use elbow_file::double::{Crash, Volatile};
use elbow_file::{Access, Errno, FileType, Handle, RealStorage, RenameMode, Storage};
use tempfile::TempDir;

fn n(name: &str) -> &OsStr {
    OsStr::new(name)
}

struct Bench {
    _dir: TempDir,
    root: Handle,
    storage: Volatile,
}

impl Bench {
    fn new() -> Self {
        Self::after(|_| ())
    }

    /// A root in which something stands before the double is made.
    fn after(make: impl FnOnce(&Handle)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(dir.path()).unwrap();
        make(&root);
        let storage = Volatile::new(Arc::new(RealStorage), &root).unwrap();
        Self {
            _dir: dir,
            root,
            storage,
        }
    }

    /// A durable file.
    fn file(&self, name: &str, content: &[u8]) -> Handle {
        let file = self.storage.create(&self.root, n(name), 0o644).unwrap();
        self.write(&file, content, 0);
        self.storage.sync_all(&self.root).unwrap();
        file
    }

    fn write(&self, file: &Handle, content: &[u8], offset: u64) {
        self.storage.write(file, &[IoSlice::new(content)], offset).unwrap();
    }

    fn crash(&self) -> Crash {
        self.storage.crash_at(self.storage.now())
    }
}

/// The different trees that a crash can leave, each as lines `name: content`.
fn trees(crash: &Crash) -> BTreeSet<String> {
    crash
        .images(7)
        .map(|image| {
            let dir = tempfile::tempdir().unwrap();
            let root = RealStorage::open_root(dir.path()).unwrap();
            image.write_to(&RealStorage, &root).unwrap();
            tree(&root).join(" ")
        })
        .collect()
}

fn tree(dir: &Handle) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in RealStorage.list(dir).unwrap() {
        let name = entry.name.to_str().unwrap();
        if RealStorage.stat(dir, &entry.name).unwrap().kind == FileType::Dir {
            lines.push(format!("{name}/"));
            let below = tree(&RealStorage.open_dir(dir, &entry.name).unwrap());
            lines.extend(below.iter().map(|line| format!("{name}/{line}")));
        } else {
            let content = content(dir, name);
            lines.push(format!("{name}:{}", String::from_utf8_lossy(&content)));
        }
    }
    lines.sort();
    lines
}

fn content(dir: &Handle, name: &str) -> Vec<u8> {
    let file = RealStorage.open(dir, n(name), Access::Read).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let length = RealStorage.read(&file, &mut buffer, 0).unwrap();
    buffer.truncate(length);
    buffer
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

#[test]
fn what_stood_there_is_durable() {
    let bench = Bench::after(|root| {
        RealStorage.mkdir(root, n("d"), 0o755).unwrap();
        let dir = RealStorage.open_dir(root, n("d")).unwrap();
        let file = RealStorage.create(&dir, n("f"), 0o644).unwrap();
        RealStorage.write(&file, &[IoSlice::new(b"old")], 0).unwrap();
    });
    assert_eq!(bench.crash().pending(), 0);
    assert_eq!(trees(&bench.crash()), set(&["d/ d/f:old"]));
}

#[test]
fn changes_of_content_survive_in_any_subset_until_the_file_is_synced() {
    let bench = Bench::new();
    let (f, g) = (bench.file("f", b"...."), bench.file("g", b"-"));
    bench.write(&f, b"a", 0);
    bench.write(&f, b"b", 1);
    bench.write(&g, b"x", 0);
    bench.storage.sync(&g).unwrap();
    let moment = bench.storage.now();
    let expected = ["....", "a...", ".b..", "ab.."].map(|f| format!("f:{f} g:x"));
    assert_eq!(trees(&bench.crash()), expected.into_iter().collect());

    bench.storage.sync(&f).unwrap();
    bench.storage.truncate(&f, 2).unwrap();
    assert_eq!(trees(&bench.crash()), set(&["f:ab.. g:x", "f:ab g:x"]));
    assert_eq!(
        bench.storage.crash_at(moment).pending(),
        2,
        "earlier moments can still be asked for"
    );
}

#[test]
fn names_survive_in_their_order_until_their_directory_is_synced() {
    let bench = Bench::new();
    let file = bench.storage.create(&bench.root, n("new"), 0o644).unwrap();
    bench.write(&file, b"x", 0);
    bench.storage.sync(&file).unwrap();
    bench
        .storage
        .rename(&bench.root, n("new"), &bench.root, n("f"), RenameMode::Replace)
        .unwrap();
    assert_eq!(
        trees(&bench.crash()),
        set(&["", "new:x", "f:x"]),
        "syncing the file does not sync its name"
    );
    bench.storage.sync(&bench.root).unwrap();
    assert_eq!(trees(&bench.crash()), set(&["f:x"]));
    bench.storage.unlink(&bench.root, n("f")).unwrap();
    assert_eq!(trees(&bench.crash()), set(&["f:x", ""]));
}

#[test]
fn an_inode_number_used_again_is_another_file() {
    let bench = Bench::new();
    drop(bench.file("a", b"first"));
    bench.storage.unlink(&bench.root, n("a")).unwrap();
    let b = bench.storage.create(&bench.root, n("b"), 0o644).unwrap();
    bench.write(&b, b"second", 0);
    bench.storage.sync(&b).unwrap();
    assert_eq!(trees(&bench.crash()), set(&["a:first", "", "b:second"]));
}

#[test]
fn a_write_is_torn_at_sectors_only() {
    let bench = Bench::new();
    let file = bench.file("f", &[b'.'; 2048]);
    bench.write(&file, &[b'x'; 1536], 256);
    let whole: Vec<Vec<u8>> = trees(&bench.crash())
        .into_iter()
        .map(|tree| tree.as_bytes()["f:".len()..].to_vec())
        .collect();
    assert!(whole.len() > 4, "only {} images of 16", whole.len());
    for image in whole {
        let sectors = [256..512, 512..1024, 1024..1536, 1536..1792];
        for sector in sectors {
            let first = image[sector.start];
            assert!(
                image[sector.clone()].iter().all(|&byte| byte == first),
                "torn inside {sector:?}"
            );
        }
        assert!(image[..256].iter().chain(&image[1792..]).all(|&byte| byte == b'.'));
    }
}

#[test]
fn punched_pages_are_holes_in_the_image() {
    let bench = Bench::new();
    let file = bench.file("f", &[1; 16384]);
    bench.storage.punch(&file, 4096, 8192).unwrap();
    bench.storage.sync(&file).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    bench
        .crash()
        .images(1)
        .next()
        .unwrap()
        .write_to(&RealStorage, &root)
        .unwrap();
    let image = RealStorage.open(&root, n("f"), Access::Read).unwrap();
    assert_eq!(RealStorage.next_data(&image, 4096).unwrap(), Some((12288, 16384)));
    assert_eq!(content(&root, "f")[..12288], [[1; 4096], [0; 4096], [0; 4096]].concat());
}

#[test]
fn many_changes_give_many_images_with_all_and_none() {
    let bench = Bench::new();
    let file = bench.file("f", &[b'.'; 40]);
    for offset in 0..40 {
        bench.write(&file, b"x", offset);
    }
    assert_eq!(bench.crash().pending(), 40);
    let trees = trees(&bench.crash());
    assert!(trees.len() > 250, "{}", trees.len());
    assert!(trees.contains(&format!("f:{}", "x".repeat(40))));
    assert!(trees.contains(&format!("f:{}", ".".repeat(40))));
}

#[test]
fn what_cannot_be_kept_apart_is_refused() {
    let bench = Bench::new();
    let root = &bench.root;
    bench.file("f", b"");
    assert_eq!(bench.storage.symlink(n("f"), root, n("s")), Err(Errno::OPNOTSUPP));
    assert_eq!(bench.storage.link(root, n("f"), root, n("g")), Err(Errno::OPNOTSUPP));
}

#[test]
fn a_refused_call_changes_nothing() {
    let bench = Bench::new();
    let before = bench.storage.now();
    assert_eq!(bench.storage.unlink(&bench.root, n("none")), Err(Errno::NOENT));
    assert_eq!(bench.storage.now(), before);
}
