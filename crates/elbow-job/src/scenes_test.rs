//! What is run again and again in the tests of deaths and refusals: an old tree, what a job does to it, and the storage that both are on.

#![allow(clippy::disallowed_methods, reason = "the tests make real directories")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use elbow_file::double::{AllSquash, Faulty, Interposed, LowerDirs, OwnerRights, Plan, Subvolumes};
use elbow_file::{RealStorage, RenameMode, Storage};

use crate::Job;
use crate::crash_test::begin;
use crate::options::Publish;
use crate::schedule_test::{InJob, Op, Snapshot, date_files};

pub(crate) fn old_tree(dir: &Path) {
    for sub in ["keep", "gone/deep", "moves", "onto", "lies"] {
        std::fs::create_dir_all(dir.join(sub)).unwrap();
    }
    for (name, content) in [
        ("keep/log", "old log"),
        ("keep/cut", "a long old content"),
        ("keep/replaced", "old"),
        ("gone/x", "x"),
        ("gone/deep/y", "y"),
        ("moves/in", "in"),
        ("one", "1"),
        ("two", "2"),
        ("dead", "dead"),
        ("onto/file", "file"),
        ("saved", "saved"),
    ] {
        std::fs::write(dir.join(name), content).unwrap();
    }
    std::fs::rename(dir.join("saved"), dir.join("gone/saved")).unwrap();
    date_files(dir);
}

/// A bit of everything that a commit has to do.
pub(crate) fn operations() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Mkdir(s("new")),
        Op::Create(s("new/a")),
        Op::Write(s("new/a"), 0, b"content of a".to_vec()),
        Op::Create(s("keep/fresh")),
        Op::Write(s("keep/log"), 7, b" and new".to_vec()),
        Op::Reserve(s("keep/log"), 3..9000, true),
        Op::Reserve(s("new/a"), 0..5000, true),
        Op::Truncate(s("keep/cut"), 6),
        Op::Write(s("keep/cut"), 3, b"CUT".to_vec()),
        Op::Create(s("keep/tmp")),
        Op::Write(s("keep/tmp"), 0, b"new".to_vec()),
        Op::Rename(s("keep/tmp"), s("keep/replaced"), RenameMode::Replace),
        Op::Rename(s("gone/saved"), s("new/saved"), RenameMode::Replace),
        Op::Unlink(s("gone/deep/y")),
        Op::Rmdir(s("gone/deep")),
        Op::Unlink(s("gone/x")),
        Op::Rmdir(s("gone")),
        Op::Rename(s("moves"), s("new/moved"), RenameMode::Replace),
        Op::Create(s("new/moved/more")),
        // What is a file before has something below it after.
        Op::Rename(s("onto/file"), s("lies/below"), RenameMode::Replace),
        Op::Rename(s("lies"), s("onto/file"), RenameMode::Replace),
        Op::Rename(s("one"), s("two"), RenameMode::Exchange),
        Op::Unlink(s("dead")),
        Op::Symlink(s("two"), s("dead")),
        Op::Link(s("two"), s("second")),
        Op::Chmod(s("one"), 0o600),
    ]
}

/// What a job is run on, and what it does.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) publish: Publish,
    pub(crate) old_tree: fn(&Path),
    pub(crate) operations: fn() -> Vec<Op>,
    /// Directories of mode 0755 meanwhile that they close.
    pub(crate) closes: &'static [&'static str],
    /// Old files that they change and that are closed to their owner, before and after.
    pub(crate) sealed: &'static [&'static str],
    /// Names that change after all others.
    pub(crate) late: &'static [&'static str],
}

impl Scene {
    pub(crate) fn usual(publish: Publish) -> Self {
        Self {
            storage: Arc::new(RealStorage),
            publish,
            old_tree,
            operations,
            closes: &[],
            sealed: &[],
            late: &[],
        }
    }

    /// What an ordinary user meets who changes names in directories of mode 0555, and files of mode 0444.
    pub(crate) fn closed(publish: Publish) -> Self {
        Self {
            old_tree: closed_tree,
            operations: operations_in_closed_dirs,
            closes: &["keep", "fold", "fold/in"],
            ..Self::sealed(publish)
        }
    }

    /// The same with files alone, and little else.
    pub(crate) fn sealed(publish: Publish) -> Self {
        Self {
            storage: Arc::new(Interposed::new(Arc::new(RealStorage), OwnerRights)),
            old_tree: sealed_files,
            operations: operations_on_sealed_files,
            sealed: &["sealed", "served", "shut"],
            ..Self::usual(publish)
        }
    }

    /// What others may see of a job of which something is left to be done: the old tree, or the new one, in which a mode that keeps us out
    /// comes last.
    pub(crate) fn may_be_seen(&self, seen: &Snapshot, [before, after]: [&Snapshot; 2]) -> bool {
        let seen = &self.closed_again(&self.sealed_again(seen, [before, after]), after);
        let is_late = |path: &Path| self.late.iter().any(|late| path.starts_with(late));
        let early = |tree: &Snapshot| -> Snapshot {
            let rest = tree.iter().filter(|(path, _)| !is_late(path));
            // A second name that is late waits under a hidden one.
            let is_of_links = |word: &&str| word.starts_with("n=") || word.starts_with("same=");
            let content = |line: &str| {
                line.split(' ')
                    .filter(|word| !is_of_links(word))
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            rest.map(|(path, line)| (path.clone(), content(line))).collect()
        };
        [before, after].contains(&seen) || !self.late.is_empty() && early(seen) == early(after)
    }

    /// A directory that they close and that is still open.
    fn closed_again(&self, seen: &Snapshot, after: &Snapshot) -> Snapshot {
        let mut seen = seen.clone();
        for path in self.closes.iter().map(Path::new) {
            let rest = |line: &str| line.split_once(' ').map(|(_, rest)| rest.to_owned());
            if let (Some(line), Some(closed)) = (seen.get_mut(path), after.get(path))
                && line.starts_with("40755 ")
                && rest(line) == rest(closed)
            {
                line.clone_from(closed);
            }
        }
        seen
    }

    /// A sealed file that is open to its owner, because the call that closes it was refused, as it will be.
    fn sealed_again(&self, seen: &Snapshot, trees: [&Snapshot; 2]) -> Snapshot {
        let mode = |line: &str| u32::from_str_radix(line.split(' ').next().unwrap(), 8).unwrap();
        let mut seen = seen.clone();
        for path in self.sealed.iter().map(Path::new) {
            let Some(line) = seen.get_mut(path) else { continue };
            let modes = trees.map(|tree| mode(&tree[path]));
            if let Some(closed) = modes.iter().find(|closed| **closed | 0o600 == mode(line)) {
                *line = line.replacen(&format!("{:o}", mode(line)), &format!("{closed:o}"), 1);
            }
        }
        seen
    }

    /// A container: directories that were there before cannot be renamed.
    pub(crate) fn lower_dirs() -> Self {
        let stay = LowerDirs { hidden: ".elbow-" };
        Self {
            storage: Arc::new(Interposed::new(Arc::new(RealStorage), stay)),
            operations: operations_with_late_names,
            late: &["gone", "moves"],
            ..Self::usual(Publish::Staged)
        }
    }

    /// A server to which we are somebody else, and where we have some of what is the host's changed.
    pub(crate) fn guest(publish: Publish) -> Self {
        Self {
            storage: Arc::new(Interposed::new(Arc::new(RealStorage), AllSquash)),
            old_tree: tree_of_a_host,
            operations: operations_of_a_guest,
            ..Self::usual(publish)
        }
    }

    /// A btrfs with subvolumes, one in another.
    pub(crate) fn subvolumes(publish: Publish) -> Self {
        Self {
            storage: Arc::new(Interposed::new(Arc::new(RealStorage), Subvolumes)),
            old_tree: tree_with_subvolumes,
            operations: operations_in_subvolumes,
            ..Self::usual(publish)
        }
    }

    /// Runs the operations and commits through a storage that stops at the `n`-th change. Returns how many
    /// changes there were, and whether the stop came.
    pub(crate) fn run(&self, dir: &Path, stop: Option<u64>) -> (u64, bool) {
        self.run_to_its_end(dir, stop, |job| drop(job.commit(&mut |_| {})))
    }

    pub(crate) fn run_to_its_end(&self, dir: &Path, stop: Option<u64>, end: impl Fn(&Job)) -> (u64, bool) {
        let faulty = Arc::new(Interposed::new(
            self.storage.clone(),
            Faulty::new(stop.map(Plan::stop_at_change)),
        ));
        let job = begin(faulty.clone(), dir, self.publish);
        for op in (self.operations)() {
            // After the stop the job refuses operations; before it they all succeed.
            let _ = InJob(&job).run(&op);
        }
        end(&job);
        (faulty.hook().changes_seen(), faulty.hook().fired() > 0)
    }
}

/// `rm -rf` of directories that cannot be renamed, whose names something else has afterwards: an old file, and a directory with new and old
/// objects; what is old is written to.
fn operations_with_late_names() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Write(s("keep/log"), 7, b" and new".to_vec()),
        Op::Rename(s("gone/saved"), s("aside"), RenameMode::Replace),
        Op::Unlink(s("gone/deep/y")),
        Op::Rmdir(s("gone/deep")),
        Op::Unlink(s("gone/x")),
        Op::Rmdir(s("gone")),
        Op::Mkdir(s("gone")),
        Op::Create(s("gone/x")),
        Op::Write(s("gone/x"), 0, b"another x".to_vec()),
        Op::Mkdir(s("gone/deep")),
        Op::Rename(s("aside"), s("gone/deep/saved"), RenameMode::Replace),
        Op::Chmod(s("gone/deep/saved"), 0o600),
        Op::Link(s("dead"), s("gone/second")),
        Op::Write(s("gone/deep/saved"), 2, b"VED, then written to".to_vec()),
        Op::Unlink(s("moves/in")),
        Op::Rmdir(s("moves")),
        Op::Truncate(s("one"), 5000),
        Op::Rename(s("one"), s("moves"), RenameMode::Replace),
        Op::Write(s("moves"), 0, b"an old file".to_vec()),
        Op::Write(s("dead"), 2, b"AD by its second name".to_vec()),
        Op::Unlink(s("two")),
    ]
}

fn sealed_files(dir: &Path) {
    for (path, content, mode) in [
        ("sealed", "what is sealed", 0o444),
        ("served", "served", 0o440),
        ("shut", "shut", 0o400),
    ] {
        std::fs::write(dir.join(path), content).unwrap();
        std::fs::set_permissions(dir.join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    date_files(dir);
}

/// `chmod u+w` around a write, as an ordinary user: of a file that has its mode again, and of one that gets another. And a write without, by a
/// command that is root where it runs and not to the server.
fn operations_on_sealed_files() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Chmod(s("sealed"), 0o644),
        Op::Write(s("sealed"), 5, b"WAS".to_vec()),
        Op::Chmod(s("sealed"), 0o444),
        Op::Write(s("served"), 0, b"SE".to_vec()),
        Op::Chmod(s("shut"), 0o600),
        Op::Write(s("shut"), 4, b" no more".to_vec()),
        Op::Chmod(s("shut"), 0o440),
    ]
}

pub(crate) fn tree_with_subvolumes(dir: &Path) {
    for sub in ["sub/a/deep", "sub/b/c", "sub/z", "sub/inner/d", "void", "outer"] {
        std::fs::create_dir_all(dir.join(sub)).unwrap();
    }
    for file in [
        "sub/f",
        "sub/g",
        "sub/a/f",
        "sub/a/deep/h",
        "sub/b/f",
        "sub/b/g",
        "sub/b/c/k",
        "sub/z/stays",
    ] {
        std::fs::write(dir.join(file), format!("old {file}")).unwrap();
    }
    for file in ["sub/inner/f", "sub/inner/g", "sub/inner/d/f", "outer/o"] {
        std::fs::write(dir.join(file), format!("old {file}")).unwrap();
    }
    date_files(dir);
    for root in ["sub", "sub/inner", "void"] {
        let mode = PermissionsExt::from_mode(0o755 | Subvolumes::MODE);
        std::fs::set_permissions(dir.join(root), mode).unwrap();
    }
}

/// Moves within subvolumes, by way of each kind of directory to wait in; a subvolume that moves, one that goes.
pub(crate) fn operations_in_subvolumes() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Rename(s("sub/b/f"), s("sub/f"), RenameMode::Replace),
        Op::Mkdir(s("sub/new")),
        Op::Create(s("sub/new/n")),
        Op::Rename(s("sub/a/deep/h"), s("sub/new/h"), RenameMode::Replace),
        Op::Rename(s("sub/b/c"), s("sub/z/c"), RenameMode::Replace),
        Op::Rename(s("sub/b/g"), s("sub/a/g"), RenameMode::Replace),
        Op::Rename(s("sub/a/f"), s("sub/b/f2"), RenameMode::Replace),
        Op::Rename(s("sub/z/stays"), s("sub/new/stays"), RenameMode::Replace),
        Op::Rename(s("sub/a"), s("sub/new/a"), RenameMode::Replace),
        Op::Rename(s("sub/b"), s("sub/new/a/b"), RenameMode::Replace),
        Op::Create(s("sub/m")),
        Op::Write(s("sub/m"), 0, b"new".to_vec()),
        Op::Link(s("sub/f"), s("sub/new/second")),
        Op::Write(s("sub/f"), 4, b"written".to_vec()),
        Op::Rename(s("sub/inner"), s("outer/inner"), RenameMode::Replace),
        Op::Rename(s("outer/inner/f"), s("outer/inner/d/f"), RenameMode::Replace),
        Op::Unlink(s("outer/inner/g")),
        Op::Rmdir(s("void")),
        Op::Create(s("void")),
        Op::Chmod(s("sub/g"), 0o600),
    ]
}

/// Directories and files of the host's: `free` is open to all, what is in `sticky` is ours, and `closed` and a part of `mixed` to nobody else.
pub(crate) fn tree_of_a_host(dir: &Path) {
    old_tree(dir);
    for sub in ["free/deep", "sticky", "pool", "closed", "mixed"] {
        std::fs::create_dir_all(dir.join(sub)).unwrap();
    }
    for file in [
        "free/x",
        "free/y",
        "free/deep/z",
        "sticky/mine",
        "pool/old",
        "closed/x",
        "mixed/mine",
        "mixed/theirs",
        "shared",
    ] {
        std::fs::write(dir.join(file), format!("old {file}")).unwrap();
    }
    for (path, mode) in [
        ("free/y", 0o606),
        ("free/deep/z", 0o606),
        ("free/deep", 0o707),
        ("free", 0o707),
        ("sticky", 0o1707),
        ("pool", 0o707),
        ("closed", 0o705),
        ("mixed/theirs", 0o606),
        ("mixed", 0o1707),
        ("shared", 0o606),
    ] {
        let mode = PermissionsExt::from_mode(mode | AllSquash::HOSTS);
        std::fs::set_permissions(dir.join(path), mode).unwrap();
    }
}

/// `rm -r` of directories of the host's, names and content that change in what is the host's, and a time of what is ours.
pub(crate) fn operations_of_a_guest() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Mkdir(s("new")),
        Op::Create(s("new/a")),
        Op::Write(s("new/a"), 0, b"content of a".to_vec()),
        Op::Write(s("keep/log"), 7, b" and new".to_vec()),
        Op::Unlink(s("free/deep/z")),
        Op::Rmdir(s("free/deep")),
        Op::Unlink(s("free/x")),
        Op::Unlink(s("free/y")),
        Op::Rmdir(s("free")),
        Op::Unlink(s("sticky/mine")),
        Op::Rmdir(s("sticky")),
        Op::Create(s("pool/new")),
        Op::Write(s("pool/new"), 0, b"new".to_vec()),
        Op::Unlink(s("pool/old")),
        Op::Write(s("shared"), 4, b"SHARED".to_vec()),
        Op::Rename(s("moves"), s("new/moved"), RenameMode::Replace),
        Op::Rename(s("one"), s("two"), RenameMode::Exchange),
        Op::Unlink(s("dead")),
        Op::Chmod(s("one"), 0o600),
        Op::Date(s("two"), 1_000_000_000),
    ]
}

fn closed_tree(dir: &Path) {
    old_tree(dir);
    sealed_files(dir);
    for (path, mode) in [("gone", 0o555), ("keep", 0o555), ("moves", 0o500)] {
        std::fs::set_permissions(dir.join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
}

/// What `chmod -R u+w` comes before, as an ordinary user: names come, go and change in directories that were closed, of which one is closed
/// again, one moves and one goes. New ones that old files are put into are closed, too.
fn operations_in_closed_dirs() -> Vec<Op> {
    let s = str::to_owned;
    let in_dirs = [
        Op::Chmod(s("keep"), 0o755),
        Op::Mkdir(s("keep/new")),
        Op::Create(s("keep/new/a")),
        Op::Create(s("keep/fresh")),
        Op::Write(s("keep/fresh"), 0, b"fresh".to_vec()),
        Op::Write(s("keep/log"), 7, b" and new".to_vec()),
        Op::Unlink(s("keep/cut")),
        Op::Create(s("keep/tmp")),
        Op::Rename(s("keep/tmp"), s("keep/replaced"), RenameMode::Replace),
        Op::Rename(s("one"), s("keep/one"), RenameMode::Replace),
        Op::Link(s("two"), s("keep/second")),
        Op::Chmod(s("keep"), 0o555),
        Op::Chmod(s("gone"), 0o755),
        Op::Unlink(s("gone/deep/y")),
        Op::Rmdir(s("gone/deep")),
        Op::Rename(s("gone/saved"), s("saved"), RenameMode::Replace),
        Op::Unlink(s("gone/x")),
        Op::Rmdir(s("gone")),
        Op::Chmod(s("moves"), 0o700),
        Op::Unlink(s("moves/in")),
        Op::Rename(s("moves"), s("moved"), RenameMode::Replace),
        Op::Create(s("moved/other")),
        Op::Mkdir(s("fold")),
        Op::Mkdir(s("fold/in")),
        Op::Rename(s("dead"), s("fold/in/dead"), RenameMode::Replace),
        Op::Link(s("two"), s("fold/in/third")),
        Op::Chmod(s("fold/in"), 0o055),
        Op::Chmod(s("fold"), 0o055),
    ];
    in_dirs.into_iter().chain(operations_on_sealed_files()).collect()
}
