//! Renames and links whose answer was lost: a server that dies after the call and before its answer, a connection that breaks. The
//! call is reported as failed, and has been made.
//!
//! A look tells: the old name is gone, the new one there. Old names are hidden ones mostly, which nobody else uses.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};

use elbow_file::{Access, Errno, FileType, Handle, RenameMode, Stat, Storage};

/// A directory and a name in it.
pub(crate) type Name<'a> = (&'a Handle, &'a OsStr);

/// May a call that is answered so have been made?
pub(crate) fn may_be_made(errno: Errno) -> bool {
    const LOST: [Errno; 9] = [
        Errno::IO,
        Errno::TIMEDOUT,
        Errno::NOTCONN,
        Errno::CONNRESET,
        Errno::CONNABORTED,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::INTR,
        Errno::STALE,
    ];
    LOST.contains(&errno)
}

/// Renames; what was done without an answer is done. An exchange leaves both names, and is looked at by whoever makes it.
pub(crate) fn rename(storage: &dyn Storage, from: Name<'_>, to: Name<'_>, mode: RenameMode) -> Result<(), Errno> {
    match storage.rename(from.0, from.1, to.0, to.1, mode) {
        // A request that came to the server twice finds the name taken.
        Err(errno)
            if (may_be_made(errno) || mode == RenameMode::NoReplace && errno == Errno::EXIST)
                && has_moved(storage, from, to) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn has_moved(storage: &dyn Storage, from: Name<'_>, to: Name<'_>) -> bool {
    storage.stat(from.0, from.1) == Err(Errno::NOENT) && storage.stat(to.0, to.1).is_ok()
}

/// Gives an object a name that nobody has, where the storage cannot rename without replacing: a second name, of which the first is
/// taken away, so that it is the storage that says whether the name is free. Directories have no second name, and none replaces one that is not
/// empty. `made`: it has the new name, also if it could then not lose the old one.
///
/// # Errors
/// EEXIST: somebody else has the name. ENOENT: the object has not got its old one.
pub(crate) fn move_to_free(
    storage: &dyn Storage,
    from: Name<'_>,
    to: Name<'_>,
    made: &AtomicBool,
) -> Result<(), Errno> {
    match storage.link(from.0, from.1, to.0, to.1) {
        Ok(()) => {}
        // Made by a request before this one, or by who died after it.
        Err(errno) if (errno == Errno::EXIST || may_be_made(errno)) && are_one(storage, from, to)? => {}
        Err(Errno::EXIST) => return Err(Errno::EXIST),
        Err(_) => return move_if_free(storage, from, to),
    }
    made.store(true, Ordering::Release);
    let errno = match storage.unlink(from.0, from.1) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) if may_be_made(errno) && storage.stat(from.0, from.1) == Err(Errno::NOENT) => return Ok(()),
        Err(errno) => errno,
    };
    storage.unlink(to.0, to.1)?;
    made.store(false, Ordering::Release);
    Err(errno)
}

/// Renames to a name that nobody has, as well as the storage can: a second name for a moment would leave a hidden one of NFS behind where the file is open.
///
/// # Errors
/// EEXIST: somebody has it.
pub(crate) fn rename_to_free(storage: &dyn Storage, from: Name<'_>, to: Name<'_>) -> Result<(), Errno> {
    let renamed = match rename(storage, from, to, RenameMode::NoReplace) {
        Err(errno) if is_unsupported(errno) => move_if_free(storage, from, to),
        other => other,
    };
    match renamed {
        // Where the case of letters does not count it may be the same name.
        Err(Errno::EXIST) if is_same(storage, from, to)? => rename(storage, from, to, RenameMode::Replace),
        other => other,
    }
}

fn is_same(storage: &dyn Storage, a: Name<'_>, b: Name<'_>) -> Result<bool, Errno> {
    let found = look_at_both(storage, a, b)?;
    Ok(found.is_some_and(|(a, b)| (a.dev, a.ino) == (b.dev, b.ino) && a.nlink < 2))
}

/// Is this kind of rename one that the storage does not have?
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn move_if_free(storage: &dyn Storage, from: Name<'_>, to: Name<'_>) -> Result<(), Errno> {
    match storage.stat(to.0, to.1) {
        Err(Errno::NOENT) => {}
        // As rename(2) answers: what is gone has moved before, perhaps to this very name.
        Ok(_) if storage.stat(from.0, from.1) == Err(Errno::NOENT) => return Err(Errno::NOENT),
        found => return found.and(Err(Errno::EXIST)),
    }
    match storage.rename(from.0, from.1, to.0, to.1, RenameMode::Replace) {
        // A request that came to the server twice does not find the old name.
        Err(errno) if (errno == Errno::NOENT || may_be_made(errno)) && has_moved(storage, from, to) => Ok(()),
        other => other,
    }
}

/// Makes a hard link; what was done without an answer is done.
pub(crate) fn link(storage: &dyn Storage, from: Name<'_>, to: Name<'_>) -> Result<(), Errno> {
    match storage.link(from.0, from.1, to.0, to.1) {
        Err(errno) if (errno == Errno::EXIST || may_be_made(errno)) && are_one(storage, from, to)? => Ok(()),
        other => other,
    }
}

/// Are these two names of one object, as the storage tells?
pub(crate) fn are_one(storage: &dyn Storage, a: Name<'_>, b: Name<'_>) -> Result<bool, Errno> {
    let is_same = |a: Stat, b: Stat| a.dev == b.dev && a.ino == b.ino && a.nlink > 1;
    Ok(look_at_both(storage, a, b)?.is_some_and(|(a, b)| is_same(a, b)))
}

fn look_at_both(storage: &dyn Storage, a: Name<'_>, b: Name<'_>) -> Result<Option<(Stat, Stat)>, Errno> {
    let look = |(dir, name): Name<'_>| match storage.stat(dir, name) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    };
    Ok(look(a)?.zip(look(b)?))
}

/// Can two objects that have no names below them be told apart by nothing but their names? What may not be read can.
pub(crate) fn are_alike(storage: &dyn Storage, a: Name<'_>, b: Name<'_>) -> Result<bool, Errno> {
    let Some((one, other)) = look_at_both(storage, a, b)? else {
        return Ok(false);
    };
    let key = |stat: &Stat| {
        (
            stat.kind, stat.mode, stat.uid, stat.gid, stat.rdev, stat.size, stat.mtime,
        )
    };
    if key(&one) != key(&other) {
        return Ok(false);
    }
    let contents = match one.kind {
        FileType::File => have_same_content(storage, a, b),
        FileType::Symlink => read_links(storage, a, b),
        FileType::Dir => Ok(false),
        _ => Ok(true),
    };
    match contents {
        Err(Errno::ACCESS) => Ok(false),
        other => other,
    }
}

fn read_links(storage: &dyn Storage, a: Name<'_>, b: Name<'_>) -> Result<bool, Errno> {
    Ok(storage.readlink(a.0, a.1)? == storage.readlink(b.0, b.1)?)
}

fn have_same_content(storage: &dyn Storage, a: Name<'_>, b: Name<'_>) -> Result<bool, Errno> {
    const PIECE_BYTES: usize = 1 << 20;
    let files = [a, b].map(|(dir, name)| storage.open(dir, name, Access::Read));
    let [a, b] = files;
    let (a, b) = (a?, b?);
    let mut buffers = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
    let mut offset = 0;
    loop {
        let [one, other] = &mut buffers;
        let read = [
            read_piece(storage, &a, one, offset)?,
            read_piece(storage, &b, other, offset)?,
        ];
        if read[0] != read[1] || one[..read[0]] != other[..read[0]] {
            return Ok(false);
        }
        if read[0] < PIECE_BYTES {
            return Ok(true);
        }
        offset += PIECE_BYTES as u64;
    }
}

/// As much as there is.
fn read_piece(storage: &dyn Storage, file: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match storage.read(file, &mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]
mod tests {
    use elbow_file::RealStorage;

    use super::*;

    /// The story: a recovery after a second death said that somebody else had what the attempt before had put there, on storage whose renames always
    /// replace, where another thread had found that out a moment earlier.
    #[test]
    fn what_has_moved_before_is_gone_and_its_name_not_another_s() {
        let temp = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(temp.path()).unwrap();
        std::fs::write(temp.path().join("moved"), "it is there").unwrap();
        let (from, to) = ((&root, "directory".as_ref()), (&root, "moved".as_ref()));
        let moved = move_to_free(&RealStorage, from, to, &AtomicBool::default());
        assert_eq!(moved, Err(Errno::NOENT));
        std::fs::create_dir(temp.path().join("directory")).unwrap();
        let moved = move_to_free(&RealStorage, from, to, &AtomicBool::default());
        assert_eq!(moved, Err(Errno::EXIST));
    }

    /// Of many who give their file the same name at once one succeeds, and no other's is lost.
    #[test]
    fn one_of_many_gets_a_free_name() {
        let temp = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(temp.path()).unwrap();
        for round in 0..200 {
            let target = format!("target{round}");
            let moved = std::thread::scope(|scope| {
                let movers: Vec<_> = (0..4)
                    .map(|n| {
                        let source = format!("source{n}");
                        std::fs::write(temp.path().join(&source), &source).unwrap();
                        let (root, target) = (&root, &target);
                        scope.spawn(move || {
                            move_to_free(
                                &RealStorage,
                                (root, source.as_ref()),
                                (root, target.as_ref()),
                                &AtomicBool::default(),
                            )
                            .map(|()| source)
                        })
                    })
                    .collect();
                movers
                    .into_iter()
                    .map(|mover| mover.join().unwrap())
                    .collect::<Vec<_>>()
            });
            let winners: Vec<_> = moved.iter().flatten().collect();
            assert_eq!(winners.len(), 1, "{moved:?}");
            assert_eq!(std::fs::read_to_string(temp.path().join(&target)).unwrap(), *winners[0]);
            assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), round + 1 + 3);
        }
    }

    #[test]
    fn who_died_between_two_names_is_gone_on_with_and_a_directory_is_moved() {
        let temp = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(temp.path()).unwrap();
        let name = |name: &'static str| (&root, OsStr::new(name));
        let made = AtomicBool::default();
        std::fs::write(temp.path().join("source"), "").unwrap();
        std::fs::hard_link(temp.path().join("source"), temp.path().join("target")).unwrap();
        assert_eq!(
            move_to_free(&RealStorage, name("source"), name("target"), &made),
            Ok(())
        );
        assert!(!temp.path().join("source").exists() && temp.path().join("target").exists());
        std::fs::create_dir(temp.path().join("dir")).unwrap();
        assert_eq!(move_to_free(&RealStorage, name("dir"), name("moved"), &made), Ok(()));
        assert!(temp.path().join("moved").is_dir());
        std::fs::create_dir(temp.path().join("dir")).unwrap();
        assert_eq!(
            move_to_free(&RealStorage, name("dir"), name("target"), &made),
            Err(Errno::EXIST)
        );
    }
}
