//! What the two ends of a job by ssh make of bytes: an error, and nothing else, whatever they are.
//!
//! Used twice: by the fuzz targets, which search for bytes, and by a test of `elbow-remote`, which takes random ones.

use std::ffi::OsStr;
use std::io::{self, Cursor, Write};

use elbow_file::{Errno, FarWorker, Handle, RealStorage, Storage, Worked};
use elbow_remote::{RemoteStorage, greeted};

const MAGIC: &[u8] = b"ELBOWVIA";
/// Version 2, user 0 and group 0 of the near end; version 2 and no refusal of the far end.
const GREETING: [u8; 3] = [2, 0, 0];
const WELCOME: [u8; 2] = [2, 0];

/// Gives back what it is told.
struct Echo;

impl FarWorker for Echo {
    fn work(&self, on: &[Handle], _: &[u8], content: Vec<u8>) -> Result<Worked, Errno> {
        Ok(Worked {
            made: on.iter().map(|handle| Some(handle.clone())).collect(),
            answer: content,
        })
    }
}

/// The beginning of a stream, and bytes after it.
fn stream(first: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut stream = MAGIC.to_vec();
    stream.extend((first.len() as u32).to_le_bytes());
    stream.extend([0; 12]);
    stream.extend_from_slice(first);
    stream.extend_from_slice(bytes);
    stream
}

/// Takes all that is said.
struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A far end that is told this ends, and has changed nothing outside of its directory. Gives the number of names that it has made there.
pub fn requests(bytes: &[u8]) -> usize {
    let place = tempfile::tempdir().expect("a directory");
    let served = place.path().join("served");
    std::fs::create_dir(&served).expect("a directory");
    let root = RealStorage::open_root(&served).expect("a directory");
    let connection = greeted(Cursor::new(stream(&GREETING, bytes)), Sink).expect("it is greeted");
    let _ = connection.serve(&RealStorage, root, &Echo);
    let beside = std::fs::read_dir(place.path()).expect("a directory").count();
    assert_eq!(beside, 1, "something came to be beside the directory that is served");
    std::fs::read_dir(&served).expect("a directory").count()
}

/// A near end that is told this answers all its callers.
pub fn replies(bytes: &[u8]) {
    let from = Cursor::new(stream(&WELCOME, bytes));
    let storage = RemoteStorage::connect("far", from, Sink).expect("it is welcome");
    let root = storage.root();
    let _ = storage.list(&root);
    let _ = storage.stat(&root, OsStr::new("name"));
    let _ = storage.read(&root, &mut [0; 100], 0);
    assert_eq!(
        storage.sync(&root),
        Err(Errno::NOTCONN),
        "the bytes have an end, and so has the connection"
    );
}
