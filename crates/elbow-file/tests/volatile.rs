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

struct Fixture {
    _dir: TempDir,
    root: Handle,
    storage: Volatile,
}

impl Fixture {
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
        } else if RealStorage.stat(dir, &entry.name).unwrap().kind == FileType::Symlink {
            let target = RealStorage.readlink(dir, &entry.name).unwrap();
            lines.push(format!("{name}->{}", target.to_str().unwrap()));
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
    let fixture = Fixture::after(|root| {
        RealStorage.mkdir(root, n("d"), 0o755).unwrap();
        let dir = RealStorage.open_dir(root, n("d")).unwrap();
        let file = RealStorage.create(&dir, n("f"), 0o644).unwrap();
        RealStorage.write(&file, &[IoSlice::new(b"old")], 0).unwrap();
    });
    assert_eq!(fixture.crash().pending(), 0);
    assert_eq!(trees(&fixture.crash()), set(&["d/ d/f:old"]));
}

#[test]
fn changes_of_content_survive_in_any_subset_until_the_file_is_synced() {
    let fixture = Fixture::new();
    let (f, g) = (fixture.file("f", b"...."), fixture.file("g", b"-"));
    fixture.write(&f, b"a", 0);
    fixture.write(&f, b"b", 1);
    fixture.write(&g, b"x", 0);
    fixture.storage.sync(&g).unwrap();
    let moment = fixture.storage.now();
    let expected = ["....", "a...", ".b..", "ab.."].map(|f| format!("f:{f} g:x"));
    assert_eq!(trees(&fixture.crash()), expected.into_iter().collect());

    fixture.storage.sync(&f).unwrap();
    fixture.storage.truncate(&f, 2).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["f:ab.. g:x", "f:ab g:x"]));
    assert_eq!(
        fixture.storage.crash_at(moment).pending(),
        2,
        "earlier moments can still be asked for"
    );
}

#[test]
fn names_survive_in_their_order_until_their_directory_is_synced() {
    let fixture = Fixture::new();
    let file = fixture.storage.create(&fixture.root, n("new"), 0o644).unwrap();
    fixture.write(&file, b"x", 0);
    fixture.storage.sync(&file).unwrap();
    fixture
        .storage
        .rename(&fixture.root, n("new"), &fixture.root, n("f"), RenameMode::Replace)
        .unwrap();
    assert_eq!(
        trees(&fixture.crash()),
        set(&["", "new:x", "f:x"]),
        "syncing the file does not sync its name"
    );
    fixture.storage.sync(&fixture.root).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["f:x"]));
    fixture.storage.unlink(&fixture.root, n("f")).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["f:x", ""]));
}

#[test]
fn an_inode_number_used_again_is_another_file() {
    let fixture = Fixture::new();
    drop(fixture.file("a", b"first"));
    fixture.storage.unlink(&fixture.root, n("a")).unwrap();
    let b = fixture.storage.create(&fixture.root, n("b"), 0o644).unwrap();
    fixture.write(&b, b"second", 0);
    fixture.storage.sync(&b).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["a:first", "", "b:second"]));
}

#[test]
fn a_write_is_torn_at_sectors_only() {
    let fixture = Fixture::new();
    let file = fixture.file("f", &[b'.'; 2048]);
    fixture.write(&file, &[b'x'; 1536], 256);
    let whole: Vec<Vec<u8>> = trees(&fixture.crash())
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
    let fixture = Fixture::new();
    let file = fixture.file("f", &[1; 16384]);
    fixture.storage.punch(&file, 4096, 8192).unwrap();
    fixture.storage.sync(&file).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    fixture
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
    let fixture = Fixture::new();
    let file = fixture.file("f", &[b'.'; 40]);
    for offset in 0..40 {
        fixture.write(&file, b"x", offset);
    }
    assert_eq!(fixture.crash().pending(), 40);
    let trees = trees(&fixture.crash());
    assert!(trees.len() > 250, "{}", trees.len());
    assert!(trees.contains(&format!("f:{}", "x".repeat(40))));
    assert!(trees.contains(&format!("f:{}", ".".repeat(40))));
}

#[test]
fn names_of_one_file_survive_each_for_itself_and_have_one_content() {
    let fixture = Fixture::new();
    let (root, storage) = (&fixture.root, &fixture.storage);
    let file = fixture.file("a", b"old");
    storage.link(root, n("a"), root, n("b")).unwrap();
    // Of two names of one file rename(2) takes none.
    storage.rename(root, n("a"), root, n("b"), RenameMode::Replace).unwrap();
    fixture.write(&file, b"new", 0);
    storage.sync(&file).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["a:new", "a:new b:new"]));
    storage.unlink(root, n("a")).unwrap();
    storage.sync(root).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["b:new"]));
}

#[test]
fn names_that_stood_there_are_of_one_file() {
    let fixture = Fixture::after(|root| {
        let file = RealStorage.create(root, n("a"), 0o644).unwrap();
        RealStorage.write(&file, &[IoSlice::new(b"old")], 0).unwrap();
        RealStorage.link(root, n("a"), root, n("b")).unwrap();
        RealStorage.symlink(n("a"), root, n("s")).unwrap();
    });
    let file = fixture.storage.open(&fixture.root, n("a"), Access::Write).unwrap();
    fixture.write(&file, b"new", 0);
    fixture.storage.sync(&file).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["a:new b:new s->a"]));
    for image in fixture.crash().images(7) {
        let dir = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(dir.path()).unwrap();
        image.write_to(&RealStorage, &root).unwrap();
        assert_eq!(RealStorage.stat(&root, n("b")).unwrap().nlink, 2, "{image}");
    }
}

#[test]
fn a_symbolic_link_survives_with_its_target_or_not_at_all() {
    let fixture = Fixture::new();
    fixture.storage.symlink(n("to"), &fixture.root, n("s")).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["", "s->to"]));
    fixture.storage.sync(&fixture.root).unwrap();
    assert_eq!(trees(&fixture.crash()), set(&["s->to"]));
}

#[test]
fn what_cannot_be_kept_apart_is_refused() {
    let fixture = Fixture::new();
    let made = fixture.storage.mknod(&fixture.root, n("p"), FileType::Fifo, 0o644, 0);
    assert_eq!(made, Err(Errno::OPNOTSUPP));
}

#[test]
fn a_refused_call_changes_nothing() {
    let fixture = Fixture::new();
    let before = fixture.storage.now();
    assert_eq!(fixture.storage.unlink(&fixture.root, n("none")), Err(Errno::NOENT));
    assert_eq!(fixture.storage.now(), before);
}
