//! What is below a directory, as a value that two places can be compared by.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Everything below a directory, the directory itself included (as the empty path).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// What is where.
    pub entries: BTreeMap<PathBuf, Entry>,
}

/// One file of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `char` or `block`.
    pub kind: &'static str,
    /// The permission bits, set-id and sticky included.
    pub mode: u32,
    /// Who owns it.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes; 0 for directories, whose size means nothing.
    pub size: u64,
    /// The time of its last change, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Where a symbolic link leads.
    pub target: Option<PathBuf>,
    /// The number of names of anything but a directory.
    pub links: u64,
    /// The first path in the tree that is the same file, where there is more than one.
    pub same_as: Option<PathBuf>,
    /// Device number of a device.
    pub device: u64,
    /// Extended attributes that may be read.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// A 64-bit hash of the content of a file; for tests, not against adversaries.
    pub content: u64,
}

impl Tree {
    /// Reads everything below `root`, without following symbolic links. Where `ELBOW_TEST_WHOLE_SECONDS` is set times are, for a storage that has no
    /// others (SFTP).
    ///
    /// # Errors
    /// The first error met, with the path it was met on.
    pub fn snapshot(root: &Path) -> io::Result<Self> {
        let mut reader = Reader {
            root,
            entries: BTreeMap::new(),
            first_names: HashMap::new(),
        };
        reader.add(Path::new(""))?;
        let tree = Self {
            entries: reader.entries,
        };
        Ok(match std::env::var_os("ELBOW_TEST_WHOLE_SECONDS") {
            Some(_) => tree.with_each(|_, entry| entry.mtime_ns -= entry.mtime_ns.rem_euclid(1_000_000_000)),
            None => tree,
        })
    }

    /// The same without times, for what was made at another time.
    #[must_use]
    pub fn without_times(self) -> Self {
        self.with_each(|_, entry| entry.mtime_ns = 0)
    }

    /// The same without owners, for what was made by somebody else.
    #[must_use]
    pub fn without_owners(self) -> Self {
        self.with_each(|_, entry| (entry.uid, entry.gid) = (0, 0))
    }

    /// The same without the attributes of the root itself, for what was put into an existing directory.
    #[must_use]
    pub fn without_root(mut self) -> Self {
        self.entries.remove(Path::new(""));
        self
    }

    /// Each difference to what was `expected` on a line of its own; `None` when there is none.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let mut text = String::new();
        for (path, entry) in &expected.entries {
            match self.entries.get(path) {
                None => line(&mut text, path, "missing"),
                Some(found) => found.describe_difference(entry, path, &mut text),
            }
        }
        for path in self.entries.keys().filter(|path| !expected.entries.contains_key(*path)) {
            line(&mut text, path, "not expected");
        }
        (!text.is_empty()).then_some(text)
    }

    /// Fails the test, naming each difference, unless this tree is the `expected` one.
    ///
    /// # Panics
    /// When they differ.
    #[track_caller]
    pub fn assert_equals(&self, expected: &Self) {
        if let Some(difference) = self.difference(expected) {
            panic!("the trees differ:\n{difference}");
        }
    }

    fn with_each(mut self, change: impl Fn(&Path, &mut Entry)) -> Self {
        for (path, entry) in &mut self.entries {
            change(path, entry);
        }
        self
    }
}

impl Entry {
    fn describe_difference(&self, expected: &Self, path: &Path, text: &mut String) {
        macro_rules! compare {
            ($($field:ident $format:literal),*) => {$(
                if self.$field != expected.$field {
                    let said = format!(concat!("{} is ", $format, ", expected ", $format),
                        stringify!($field), self.$field, expected.$field);
                    line(text, path, &said);
                }
            )*};
        }
        compare!(kind "{}", mode "{:04o}", uid "{}", gid "{}", size "{}", mtime_ns "{}", target "{:?}", links "{}");
        compare!(same_as "{:?}", device "{:#x}", xattrs "{:?}", content "{:016x}");
    }
}

fn line(text: &mut String, path: &Path, said: &str) {
    let shown = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {}: {said}", shown.display());
}

struct Reader<'a> {
    root: &'a Path,
    entries: BTreeMap<PathBuf, Entry>,
    first_names: HashMap<(u64, u64), PathBuf>,
}

impl Reader<'_> {
    fn add(&mut self, relative: &Path) -> io::Result<()> {
        let path = if relative.as_os_str().is_empty() {
            self.root.to_owned()
        } else {
            self.root.join(relative)
        };
        let entry = self.read(&path, relative).map_err(|error| at(&path, &error))?;
        let is_directory = entry.kind == "directory";
        self.entries.insert(relative.to_owned(), entry);
        if is_directory {
            for name in sorted_names(&path).map_err(|error| at(&path, &error))? {
                self.add(&relative.join(name))?;
            }
        }
        Ok(())
    }

    fn read(&mut self, path: &Path, relative: &Path) -> io::Result<Entry> {
        let found = fs::symlink_metadata(path)?;
        let kind = kind(&found);
        let directory = kind == "directory";
        let target = if kind == "symlink" {
            Some(fs::read_link(path)?)
        } else {
            None
        };
        Ok(Entry {
            kind,
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            size: if directory { 0 } else { found.size() },
            mtime_ns: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
            target,
            links: if directory { 1 } else { found.nlink() },
            same_as: if directory {
                None
            } else {
                self.first_name(&found, relative)
            },
            device: found.rdev(),
            xattrs: xattrs(path)?,
            content: if kind == "file" { hash_content(path)? } else { 0 },
        })
    }

    fn first_name(&mut self, found: &Metadata, relative: &Path) -> Option<PathBuf> {
        let first = self
            .first_names
            .entry((found.dev(), found.ino()))
            .or_insert_with(|| relative.to_owned());
        (first != relative).then(|| first.clone())
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn sorted_names(path: &Path) -> io::Result<Vec<OsString>> {
    let mut names = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable(); // So that the first name of a file with several is always the same one.
    Ok(names)
}

fn kind(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "char",
        () if kind.is_block_device() => "block",
        () => "file",
    }
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    let mut names = vec![0; 64 * 1024];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| Ok((OsString::from_vec(name.to_vec()), xattr(path, name)?)))
        .collect()
}

fn xattr(path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = vec![0; 64 * 1024];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn hash_content(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; 256 * 1024];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            length => hasher.write(&piece[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn sample() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/a"), "content").unwrap();
        fs::hard_link(root.join("sub/a"), root.join("b")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
        (dir, root)
    }

    #[test]
    fn a_tree_equals_itself_and_knows_hard_links() {
        let (_dir, root) = sample();
        let tree = Tree::snapshot(&root).unwrap();
        assert_eq!(tree.difference(&Tree::snapshot(&root).unwrap()), None);
        assert_eq!(
            tree.entries[Path::new("sub/a")].same_as.as_deref(),
            Some(Path::new("b"))
        );
        assert_eq!(
            tree.entries[Path::new("link")].target.as_deref(),
            Some(Path::new("nowhere"))
        );
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let (_dir, root) = sample();
        // Long ago: some kernels give all that is written within 10 ms one time.
        let file = File::options().write(true).open(root.join("sub/a")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let before = Tree::snapshot(&root).unwrap();
        fs::write(root.join("sub/a"), "CONTENT").unwrap();
        fs::remove_file(root.join("link")).unwrap();
        fs::create_dir(root.join("new")).unwrap();
        let said = Tree::snapshot(&root).unwrap().difference(&before).unwrap();
        for part in [
            "sub/a: content is",
            "sub/a: mtime_ns is",
            "link: missing",
            "new: not expected",
        ] {
            assert!(said.contains(part), "no '{part}' in:\n{said}");
        }
    }
}
