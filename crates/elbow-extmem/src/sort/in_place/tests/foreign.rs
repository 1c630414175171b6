//! What a sort in place left is not what it was: the file was written anew under the same inode number, or runs are gone.
//!
//! The story: a manifest was taken for that of a file by inode number and size alone. So `--resume` punched and overwrote the next export of the
//! same length, and ended well. And a file of runs that was gone was made anew, so that zeros were merged as records.

use std::collections::BTreeMap;

use elbow_file::double::Operation;

use super::*;

const RECORDS: usize = 5 * UNIT_RECORDS + 100;
const OPTIONS: Options = Options {
    memory_bytes: 8 << 20,
    threads: 2,
    stable: true,
};

/// In memory, where there is such a file system: nothing of this is about what was not synced, and there are many syncs.
fn scratch() -> TempDir {
    let quick = tempfile::tempdir_in("/dev/shm");
    quick.or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// A sort that ends at a changing call, on storage that punches or does not; `None` when it came to its end before.
fn begun(death: u64, punches: bool) -> Option<Testbed> {
    begun_in(scratch(), death, punches)
}

fn begun_in(root: TempDir, death: u64, punches: bool) -> Option<Testbed> {
    let testbed = Testbed::on(root, RECORDS, 8);
    // What is written anew within the same tick of the clock would have its time.
    let data = std::fs::File::options()
        .write(true)
        .open(testbed.root.path().join("data"));
    let data = data.expect("the data");
    data.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
        .expect("its owner");
    let dies = Plan::stop_at_change(death);
    let plans = match punches {
        true => vec![dies],
        false => vec![dies, Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch).times(u64::MAX)],
    };
    let faulty = Interposed::new(Arc::new(RealStorage), Faulty::new(plans));
    testbed.begin(&faulty, &Meter::default()).is_err().then_some(testbed)
}

fn is_begun(root: &Path) -> bool {
    side_directory(&root.join("data")).join(manifest::NAME).exists()
}

/// Other records, without a block of zeros.
fn anew(bytes: usize) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(9);
    (0..bytes).map(|_| rng.random_range(1..=u8::MAX)).collect()
}

fn in_order(records: &[u8]) -> Vec<u8> {
    let mut all: Vec<&[u8]> = records.chunks(RECORD_BYTES).collect();
    all.sort_unstable();
    all.concat()
}

/// Gives how many were refused: all but those of which nothing was begun, or nothing is left to do.
fn written_anew(root: impl Fn() -> TempDir, step: usize, punches: bool, write: impl Fn(&Path, &[u8])) -> usize {
    let mut refused = 0;
    for death in (1..).step_by(step) {
        let Some(testbed) = begun_in(root(), death, punches) else {
            break;
        };
        let (root, data) = (testbed.root.path(), testbed.root.path().join("data"));
        if !is_begun(root) {
            continue;
        }
        let new = anew(testbed.input.len());
        write(&data, &new);
        let resumed = resume(&RealStorage, &target(root), &OPTIONS, &Meter::default());
        let found = std::fs::read(&data).expect("the data");
        match resumed {
            Err(SortError::ForeignManifest { .. }) => {
                assert!(found == new, "death at call {death}: refused, and changed");
                refused += 1;
            }
            Err(error) => panic!("death at call {death}: {error}"),
            Ok(_) => assert!(
                in_order(&found) == in_order(&new),
                "death at call {death}: records were lost"
            ),
        }
    }
    refused
}

fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("room");
}

#[test]
fn a_file_that_was_written_anew_is_not_sorted_on() {
    let refused = written_anew(scratch, 1, true, overwrite);
    assert!(refused > 80, "{refused} were refused");
}

#[test]
fn a_file_that_was_written_anew_is_not_sorted_on_where_holes_cannot_be() {
    let refused = written_anew(scratch, 1, false, overwrite);
    assert!(refused > 80, "{refused} were refused");
}

/// On a disk, as most file systems there give the inode number of a file that is gone to the next one.
#[test]
fn a_file_that_was_made_anew_is_not_sorted_on() {
    const STEP: usize = 7;
    let root = || tempfile::tempdir().expect("a directory");
    let refused = written_anew(root, STEP, true, |path, bytes| {
        std::fs::remove_file(path).expect("a file");
        overwrite(path, bytes);
    });
    assert!(refused > 80 / STEP, "{refused} were refused");
}

/// The content of all that is there.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = |path: &Path| {
        let entries = std::fs::read_dir(path).expect("a directory");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let (dirs, mut files): (Vec<_>, Vec<_>) = entries(root).into_iter().partition(|path| path.is_dir());
    dirs.iter().for_each(|dir| files.extend(entries(dir)));
    let read = |path: PathBuf| {
        let content = std::fs::read(&path).expect("a file");
        (path.strip_prefix(root).expect("below").to_owned(), content)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn runs_that_are_gone_or_shorter_are_missed_before_anything_is_freed() {
    let (mut missed, mut gone_on) = ([0, 0], 0);
    for death in 1.. {
        let Some(testbed) = begun(death, true) else {
            break;
        };
        if !is_begun(testbed.root.path()) {
            continue;
        }
        let whole = snapshot(testbed.root.path());
        for (run, is_removed) in [(1, true), (1, false), (2, true), (2, false)] {
            let name = PathBuf::from("data.elbow-sort").join(run_file_name(run));
            if !whole.contains_key(&name) {
                continue;
            }
            let copy = scratch();
            std::fs::create_dir(copy.path().join("data.elbow-sort")).expect("a directory");
            for (path, content) in &whole {
                std::fs::write(copy.path().join(path), content).expect("room");
            }
            let runs = copy.path().join(&name);
            match is_removed {
                true => std::fs::remove_file(&runs).expect("a file"),
                false => std::fs::write(&runs, &whole[&name][..whole[&name].len() / 2]).expect("room"),
            }
            let before = snapshot(copy.path());
            let what = format!("death at call {death}, {}, removed: {is_removed}", name.display());
            match testbed.go_on(&RealStorage, copy.path()) {
                Ok(_) => {
                    assert_eq!(testbed.content(copy.path()), "sorted", "{what}");
                    gone_on += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains(&format!("runs-{run}")) && text.contains("records of the sort"),
                        "{what}: {text}"
                    );
                    assert!(snapshot(copy.path()) == before, "{what}: something was changed");
                    missed[usize::from(run) - 1] += 1;
                }
            }
        }
    }
    assert!(
        missed.iter().all(|missed| *missed > 20) && gone_on > 0,
        "{missed:?} missed, {gone_on} gone on"
    );
}

/// What it does not say cannot be checked.
#[test]
fn a_manifest_of_another_version_says_so() {
    let testbed = begun(60, true).expect("a sort that is killed");
    let root = testbed.root.path();
    let path = side_directory(&root.join("data")).join(manifest::NAME);
    let mut bytes = std::fs::read(&path).expect("a manifest");
    let slot = bytes.len() / 2;
    let other = elbow_ranges::encoding::seal(*b"ELBSORT\0", 1, b"whatever it said");
    for at in [0, slot] {
        bytes[at..][..other.len()].copy_from_slice(&other);
    }
    std::fs::write(&path, &bytes).expect("room");
    let before = snapshot(root);
    let resumed = resume(&RealStorage, &target(root), &OPTIONS, &Meter::default());
    assert!(
        matches!(resumed, Err(SortError::OtherVersion { found: 1, .. })),
        "{resumed:?}"
    );
    assert!(snapshot(root) == before, "something was changed");
}
