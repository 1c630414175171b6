//! What the two ends of a job by ssh make of bytes: an error, and nothing else, whatever they are.
//!
//! Used twice: by the fuzz targets, which search for bytes, and by a test of `elbow-remote`, which takes random ones.

use std::ffi::OsStr;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use elbow_file::{Access, Errno, FarWorker, Handle, RealStorage, Storage, Worked};
use elbow_remote::{RemoteStorage, SftpStorage, greeted};

const MAGIC: &[u8] = b"ELBOWVIA";
/// Version 9, user 0 and group 0 of the near end; version 9 and no refusal of the far end.
const GREETING: [u8; 3] = [9, 0, 0];
const WELCOME: [u8; 2] = [9, 0];

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

/// A packet of SFTP.
pub fn sftp_packet(kind: u8, number: u32, fields: &[u8]) -> Vec<u8> {
    let length = (fields.len() + 5) as u32;
    [&length.to_be_bytes()[..], &[kind], &number.to_be_bytes(), fields].concat()
}

/// Counts what was asked.
#[derive(Clone, Default)]
struct Asked(Arc<(Mutex<usize>, Condvar)>);

impl Write for Asked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.0.0.lock().expect("nobody panics") += 1;
        self.0.1.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// After so many requests come the bytes that are tried.
const BEGINS_AT: usize = 5;
const MOMENT: Duration = Duration::from_millis(30);
const FOR_EVER: Duration = Duration::from_secs(60);

/// Each answer, when so much was asked.
struct Answers {
    asked: Asked,
    left: std::vec::IntoIter<(usize, Vec<u8>)>,
    now: Cursor<Vec<u8>>,
    patience: Duration,
}

impl Read for Answers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (self.now.read(buffer)?, buffer.is_empty()) {
                (0, false) => {}
                (read, _) => return Ok(read),
            }
            let Some((after, answer)) = self.left.next() else {
                return Ok(0);
            };
            let (count, changed) = &*self.asked.0;
            let count = count.lock().expect("nobody panics");
            // An answer to nothing is not waited for by whoever asks next: then the others come at once.
            let patience = if after < BEGINS_AT { FOR_EVER } else { self.patience };
            let waited = changed.wait_timeout_while(count, patience, |count| *count < after);
            if waited.expect("nobody panics").1.timed_out() {
                self.patience = Duration::ZERO;
            }
            self.now = Cursor::new(answer);
        }
    }
}

/// Whoever asks an SFTP server that answers this gets an answer or an error. Gives the number of names that were believed.
pub fn sftp(bytes: &[u8]) -> usize {
    const DIRECTORY: [u8; 8] = [0, 0, 0, 4, 0, 0, 0o100, 0];
    let root = [&[0, 0, 0, 1, 0, 0, 0, 2][..], b"/r", &[0; 8]].concat();
    // The version is where others have their number. Then come the path of the root, and the attributes of the home directory and of the root.
    let mut answers = vec![
        (1, sftp_packet(2, 3, &[])),
        (2, sftp_packet(104, 1, &root)),
        (3, sftp_packet(105, 2, &DIRECTORY)),
        (4, sftp_packet(105, 3, &DIRECTORY)),
    ];
    let mut rest = bytes;
    while let Some((length, _)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (packet, others) = rest.split_at(rest.len().min(length.saturating_add(4)));
        answers.push((answers.len() + 1, packet.to_vec()));
        rest = others;
    }
    let asked = Asked::default();
    let from = Answers {
        asked: asked.clone(),
        left: answers.into_iter(),
        now: Cursor::default(),
        patience: MOMENT,
    };
    let storage = SftpStorage::connect("far", Path::new("r"), from, asked).expect("it is a server");
    let (root, name) = (storage.root(), OsStr::new("name"));
    let listed = storage.list(&root).unwrap_or_default();
    assert!(listed.iter().all(|entry| entry.is_sound()), "a name leads elsewhere");
    let _ = storage.stat(&root, name);
    if let Ok(file) = storage.open(&root, name, Access::ReadWrite) {
        let _ = storage.read(&file, &mut [0; 100], 0);
        let _ = storage.write(&file, &[io::IoSlice::new(b"written")], 0);
        let _ = storage.close(&file);
    }
    let _ = storage.readlink(&root, name);
    let _ = storage.rmdir(&root, name);
    // The bytes have an end, and so has the connection.
    while storage.space(&root).is_ok() && storage.stat_uncached(&root, name) != Err(Errno::NOTCONN) {}
    listed.len()
}
