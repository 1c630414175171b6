//! What is below a directory, with all that can be seen of it, whoever looks: what may not be read is its error.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hasher};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self as sys, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::act;
use super::answer::{attributes, errno_name, is_own_xattr, xattr};
use super::word::{Name, Word, spell};

/// What is seen of one file of any kind, by the name of each part.
pub type FileView = BTreeMap<String, String>;
/// What is seen below a directory, by path; the directory itself is `.`.
pub type View = BTreeMap<Name, FileView>;

/// Content is compared in blocks of this size, those of zeros left out, so that holes and written zeros are the same.
const BLOCK_BYTES: usize = 4096;
/// From this size on, holes are not read.
const LARGE_BYTES: u64 = 64 << 20;

/// Looks at everything below a directory, without following symbolic links.
pub fn look(root: &Path) -> View {
    let mut looking = Looking {
        root,
        view: View::new(),
        first_names: HashMap::new(),
    };
    looking.add(Path::new("."));
    looking.view
}

struct Looking<'a> {
    root: &'a Path,
    view: View,
    first_names: HashMap<(u64, u64), String>,
}

impl Looking<'_> {
    fn add(&mut self, relative: &Path) {
        let (path, name) = (self.root.join(relative), Name(relative.as_os_str().as_bytes().to_vec()));
        let stat = match sys::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => {
                self.view
                    .insert(name, FileView::from([("kind".to_owned(), errno_name(errno))]));
                return;
            }
        };
        let mut seen = look_at(&path, &stat);
        let is_dir = seen.get("kind").is_some_and(|kind| kind == "dir");
        if !is_dir {
            let shown = spell(&name);
            let first = self
                .first_names
                .entry((stat.st_dev, stat.st_ino))
                .or_insert_with(|| shown.clone());
            if *first != shown {
                seen.insert("same".to_owned(), first.clone());
            }
        }
        let inside = is_dir.then(|| names(&path));
        if let Some(Err(errno)) = inside {
            seen.insert("names".to_owned(), errno_name(errno));
        }
        self.view.insert(name, seen);
        for name in inside.and_then(Result::ok).into_iter().flatten() {
            let below = if relative == Path::new(".") {
                PathBuf::from(name)
            } else {
                relative.join(name)
            };
            self.add(&below);
        }
    }
}

fn look_at(path: &Path, stat: &Stat) -> FileView {
    let mut seen: FileView = attributes(stat)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let content = content(path, stat.st_size.cast_unsigned());
            seen.insert("content".to_owned(), content.unwrap_or_else(errno_name));
        }
        FileType::Symlink => {
            let target = sys::readlinkat(CWD, path, Vec::new()).map(|target| spell(&Name(target.into_bytes())));
            seen.insert("target".to_owned(), target.unwrap_or_else(errno_name));
        }
        _ => {}
    }
    match xattrs(path) {
        Ok(found) => seen.extend(found),
        Err(errno) => drop(seen.insert("xattrs".to_owned(), errno_name(errno))),
    }
    seen
}

/// Names, sorted, so that the first name of a file with several is always the same.
fn names(path: &Path) -> Result<Vec<OsString>, Errno> {
    let dir = sys::openat(
        CWD,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut names = Vec::new();
    for entry in Dir::new(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn xattrs(path: &Path) -> Result<FileView, Errno> {
    let mut buffer = vec![0; 1 << 16];
    let length = match sys::llistxattr(path, &mut buffer[..]) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        length => length?,
    };
    let keys = act::split(&buffer[..length])
        .into_iter()
        .filter(|key| is_own_xattr(key));
    let mut value = vec![0; 1 << 16];
    let read = keys.map(|key| {
        let said = sys::lgetxattr(path, &key[..], &mut value[..]);
        let said = said.map_or_else(errno_name, |length| xattr(&key, &value[..length]));
        (format!("x:{}", spell(&Name(key))), said)
    });
    Ok(read.collect())
}

/// A hash of all blocks that are not zeros, and where they are.
fn content(path: &Path, size: u64) -> Result<String, Errno> {
    let file = sys::openat(
        CWD,
        path,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let (mut hasher, mut block, mut offset) = (DefaultHasher::new(), vec![0; 64 * BLOCK_BYTES], 0);
    while offset < size {
        if size > LARGE_BYTES {
            offset = match sys::seek(&file, SeekFrom::Data(offset)) {
                Err(Errno::NXIO) => break,
                found => found? / BLOCK_BYTES as u64 * BLOCK_BYTES as u64,
            };
        }
        let read = read_full(&file, &mut block, offset)?;
        for (piece, number) in block[..read].chunks(BLOCK_BYTES).zip(offset / BLOCK_BYTES as u64..) {
            if piece.iter().any(|byte| *byte != 0) {
                hasher.write_u64(number);
                hasher.write(piece);
            }
        }
        if read < block.len() {
            break;
        }
        offset += read as u64;
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn read_full(file: &impl AsFd, block: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < block.len() {
        match rustix::io::pread(file, &mut block[done..], offset + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// A view as lines, a path each.
pub fn encode_view(view: &View) -> String {
    let line = |(name, seen): (&Name, &FileView)| {
        let parts = seen
            .iter()
            .map(|(part, value)| format!(" {part}={}", spell(&Name::of(value))));
        format!("{}{}\n", spell(name), parts.collect::<String>())
    };
    view.iter().map(line).collect()
}

/// Reads what [`encode_view`] wrote; lines that are none are left out.
pub fn decode_view<'a>(lines: impl Iterator<Item = &'a str>) -> View {
    let read = |line: &str| {
        let mut words = line.split(' ');
        let name = Name::take(words.next()?)?;
        let part = |word: &str| {
            let (part, value) = word.split_once('=')?;
            Some((part.to_owned(), String::from_utf8(Name::take(value)?.0).ok()?))
        };
        Some((name, words.map(part).collect::<Option<FileView>>()?))
    };
    lines.filter_map(read).collect()
}

/// The path of a name below a root.
pub fn below(root: &Path, name: &Name) -> PathBuf {
    root.join(OsStr::from_bytes(&name.0))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_view_reads_back_and_knows_second_names() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("a b"), "x").expect("a file");
        std::fs::hard_link(dir.path().join("a b"), dir.path().join("c")).expect("a second name");
        let view = look(dir.path());
        assert_eq!(decode_view(encode_view(&view).lines()), view);
        assert_eq!(view[&Name::of("c")]["same"], "a%20b");
    }

    #[test]
    fn zeros_and_holes_are_the_same_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, vec![0; 3 * BLOCK_BYTES]).expect("zeros");
        std::fs::File::create(&b)
            .and_then(|file| file.set_len(3 * BLOCK_BYTES as u64))
            .expect("a hole");
        assert_eq!(content(&a, 3 * 4096), content(&b, 3 * 4096));
        std::fs::write(&b, vec![1; 3 * BLOCK_BYTES]).expect("no zeros");
        assert_ne!(content(&a, 3 * 4096), content(&b, 3 * 4096));
    }
}
