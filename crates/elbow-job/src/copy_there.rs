//! Bytes of an old file are copied on the storage: what is left of copy_file_range(2) when it is carried out.

use std::io::IoSlice;
use std::ops::Range;

use elbow_file::{Access, Errno, Handle, Stat, Storage};

use crate::model::CopyPiece;
use crate::route::open_route;

/// So much is read and written at once where the storage does not copy by itself: little, for many threads do it.
const PART_BYTES: u64 = 128 << 10;

/// Copies bytes of an old file as the job saw it. Where somebody else has changed, replaced or removed it since, they are nowhere any more: ESTALE.
///
/// It is looked at after each part: if it is then as it was seen, it was so in between, whatever was found by its name.
pub(crate) fn copy_from(
    storage: &dyn Storage,
    copy: &CopyPiece,
    file: &Handle,
    range: &Range<u64>,
) -> Result<(), Errno> {
    let source = open_source(storage, copy)?;
    let (mut from, mut to) = (copy.offset, range.start);
    while to < range.end {
        let most = range.end - to;
        let (copied, now) = match storage.copy_and_look(&source, from, file, to, most) {
            Err(Errno::OPNOTSUPP) => copy_through_memory(storage, (&source, from), (file, to), most)?,
            answer => answer?,
        };
        if copied == 0 || !copy.source.version.is_still(&now) {
            return Err(Errno::STALE);
        }
        (from, to) = (from + copied, to + copied);
    }
    Ok(())
}

/// Opens what a copy is made of. Where it is not any more: ESTALE.
pub(crate) fn open_source(storage: &dyn Storage, copy: &CopyPiece) -> Result<Handle, Errno> {
    let open = || {
        storage.open(
            &open_route(storage, &copy.source.route)?,
            &copy.source.name,
            Access::Read,
        )
    };
    open().map_err(|errno| if errno == Errno::NOENT { Errno::STALE } else { errno })
}

/// Reads a part and writes it; gives how long it was, and what the source is like then.
fn copy_through_memory(
    storage: &dyn Storage,
    (source, from): (&Handle, u64),
    (file, to): (&Handle, u64),
    most: u64,
) -> Result<(u64, Stat), Errno> {
    let mut bytes = vec![0; most.min(PART_BYTES) as usize];
    let length = storage.read(source, &mut bytes, from)?;
    let now = storage.stat_handle(source)?;
    storage.write(file, &[IoSlice::new(&bytes[..length])], to)?;
    Ok((length as u64, now))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::sync::Arc;
    use std::time::Duration;

    use elbow_file::double::{Counting, Faulty, Interposed, Operation, Plan};
    use elbow_file::{RealStorage, RenameMode};

    use super::*;
    use crate::api::Ino;
    use crate::model::{Name, SourceVersion};
    use crate::route::{DirSide, Route};

    fn piece(root: &Handle, name: &str, offset: u64) -> CopyPiece {
        let route = Route {
            base: root.clone(),
            names: Vec::new(),
            owner: DirSide::Own(Ino::ROOT),
        };
        let name = OsStr::new(name);
        let looks = RealStorage.stat(root, name).or_else(|_| RealStorage.stat_handle(root));
        let version = SourceVersion::of(&looks.expect("a look"));
        CopyPiece::uncounted(route, Name::from(name), version, offset)
    }

    /// A file of these bytes, a copy of a part of it at 10, and the answer.
    fn copied(
        storage: &dyn Storage,
        root: &Handle,
        source: &[u8],
        (offset, range): (u64, Range<u64>),
    ) -> Result<Vec<u8>, Errno> {
        let file = RealStorage.create(root, OsStr::new("source"), 0o600)?;
        RealStorage.write(&file, &[IoSlice::new(source)], 0)?;
        let copy = RealStorage.create(root, OsStr::new("copy"), 0o600)?;
        let answer = copy_from(storage, &piece(root, "source", offset), &copy, &range);
        let mut bytes = vec![0; range.end as usize];
        RealStorage.read(&copy, &mut bytes, 0)?;
        for name in ["source", "copy"] {
            RealStorage.unlink(root, OsStr::new(name))?;
        }
        answer.map(|()| bytes.split_off(range.start as usize))
    }

    #[test]
    fn a_part_is_copied_with_and_without_the_help_of_the_storage() {
        let place = tempfile::tempdir().expect("a directory");
        let root = RealStorage::open_root(place.path()).expect("a root");
        let source: Vec<u8> = (0..700_001u32).map(|number| (number / 3) as u8).collect();
        let part = source[5..700_001].to_vec();
        let counting = Interposed::new(Arc::new(RealStorage), Counting::default());
        assert_eq!(copied(&counting, &root, &source, (5, 10..700_006)), Ok(part.clone()));
        assert!(counting.hook().count(Operation::CopyAndLook) > 0);
        let plan = Plan::fail(Errno::OPNOTSUPP).on(Operation::CopyAndLook);
        let unable = Interposed::new(Arc::new(RealStorage), Faulty::new([plan]));
        assert_eq!(copied(&unable, &root, &source, (5, 10..700_006)), Ok(part));
        assert!(unable.hook().fired() > 0);
    }

    /// By another file of the same length and time of content, in place, and with the time of content put back.
    #[test]
    fn what_others_have_put_in_its_place_is_not_copied() {
        let place = tempfile::tempdir().expect("a directory");
        let root = RealStorage::open_root(place.path()).expect("a root");
        let (source, other, copy) = (OsStr::new("source"), OsStr::new("other"), OsStr::new("copy"));
        let write = |name: &OsStr, bytes: &[u8]| {
            let file = RealStorage.open(&root, name, Access::Write).expect("a file");
            RealStorage.write(&file, &[IoSlice::new(bytes)], 0).expect("a write");
        };
        let replaces = || {
            RealStorage
                .rename(&root, other, &root, source, RenameMode::Replace)
                .expect("a rename");
        };
        let (overwrites, hides) = (
            || write(source, b"67890"),
            || {
                let mtime = RealStorage.stat(&root, source).expect("a look").mtime;
                write(source, b"67890");
                RealStorage.set_times(&root, source, None, Some(mtime)).expect("times");
            },
        );
        let changes: [&dyn Fn(); 3] = [&replaces, &overwrites, &hides];
        let plan = || Plan::fail(Errno::OPNOTSUPP).on(Operation::CopyAndLook);
        for (number, change) in changes.iter().enumerate() {
            for plans in [vec![], vec![plan()]] {
                for name in [source, other, copy] {
                    RealStorage.create(&root, name, 0o600).expect("a file");
                }
                write(source, b"12345");
                write(other, b"67890");
                let mtime = Some(RealStorage.stat(&root, source).expect("a look").mtime);
                RealStorage.set_times(&root, other, None, mtime).expect("times");
                let piece = piece(&root, "source", 0);
                // Times of files go on in steps.
                std::thread::sleep(Duration::from_millis(20));
                change();
                let storage = Interposed::new(Arc::new(RealStorage), Faulty::new(plans));
                let file = RealStorage.open(&root, copy, Access::Write).expect("a file");
                let answer = copy_from(&storage, &piece, &file, &(0..5));
                assert_eq!(answer, Err(Errno::STALE), "change {number}");
                for name in [source, other, copy] {
                    let _ = RealStorage.unlink(&root, name);
                }
            }
        }
    }

    #[test]
    fn what_is_not_there_any_more_cannot_be_copied() {
        let place = tempfile::tempdir().expect("a directory");
        let root = RealStorage::open_root(place.path()).expect("a root");
        assert_eq!(
            copied(&RealStorage, &root, b"12345", (2, 10..14)),
            Err(Errno::STALE),
            "it is too short"
        );
        let copy = RealStorage.create(&root, OsStr::new("copy"), 0o600).expect("a file");
        assert_eq!(
            copy_from(&RealStorage, &piece(&root, "missing", 0), &copy, &(0..1)),
            Err(Errno::STALE)
        );
        RealStorage
            .symlink(OsStr::new("copy"), &root, OsStr::new("link"))
            .expect("a link");
        assert_eq!(
            copy_from(&RealStorage, &piece(&root, "link", 0), &copy, &(0..1)),
            Err(Errno::LOOP)
        );
        RealStorage.mkdir(&root, OsStr::new("dir"), 0o700).expect("a directory");
        assert!(copy_from(&RealStorage, &piece(&root, "dir", 0), &copy, &(0..1)).is_err());
        assert!(copy_from(&RealStorage, &piece(&root, "../x", 0), &copy, &(0..1)).is_err());
    }
}
