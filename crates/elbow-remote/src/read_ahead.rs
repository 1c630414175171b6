//! Parts of files that were read ahead, until somebody reads them.
//!
//! Nothing else keeps what has come over a connection: what is read ahead through a mount stays in the page cache of its file system.
//!
//! ```text
//!   file 7   [ asked for ][ asked for ][ here ]        a read takes what is here, waits for what is asked for,
//!                 read:      [=======]                 and asks for the rest
//! ```
//!
//! What was read to its end goes; so does what nobody has read for [`KEPT_FOR`] since it came, because others may change the file, and the oldest where
//! there is more than [`KEPT_BYTES_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elbow_file::{Errno, Result};
use parking_lot::{Condvar, Mutex};

use crate::message::Id;

/// What all parts together may have.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// How long a part is taken for what the file has: much less than a mount by sshfs does (20 s).
const KEPT_FOR: Duration = Duration::from_secs(2);

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct KeptReads {
    /// The oldest first.
    parts: Mutex<VecDeque<Arc<Part>>>,
}

/// A part of a file that was asked for.
#[derive(Debug)]
pub(crate) struct Part {
    id: Id,
    offset: u64,
    length: usize,
    content: Mutex<Option<Arrived>>,
    has_come: Condvar,
}

/// What has come of a part, or why nothing has.
#[derive(Debug)]
struct Arrived {
    at: Instant,
    content: Result<Vec<u8>>,
}

impl Part {
    fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    /// It has come, or it does not.
    pub(crate) fn set(&self, content: Result<Vec<u8>>) {
        let at = Instant::now();
        *self.content.lock() = Some(Arrived { at, content });
        self.has_come.notify_all();
    }

    /// Copies what it has from an offset on, once it is here; how much that is.
    fn copy(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        let mut content = self.content.lock();
        while content.is_none() {
            self.has_come.wait(&mut content);
        }
        let arrived = content.as_ref().ok_or(Errno::IO)?;
        let content = arrived.content.as_ref().map_err(|errno| *errno)?;
        let from = content.get((offset - self.offset) as usize..).unwrap_or_default();
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    /// The file may be another by now. What is still on its way never is: over a slow line all of it would be asked for twice.
    fn is_old(&self) -> bool {
        let content = self.content.lock();
        content.as_ref().is_some_and(|arrived| arrived.at.elapsed() > KEPT_FOR)
    }
}

impl KeptReads {
    /// Notes that a part is asked for, which whoever asks sets when it has come; `None` where that is done already.
    pub(crate) fn begin(&self, id: Id, offset: u64, length: usize) -> Option<Arc<Part>> {
        let part = Arc::new(Part {
            id,
            offset,
            length,
            content: Mutex::new(None),
            has_come: Condvar::new(),
        });
        let mut parts = self.parts.lock();
        if parts.iter().any(|part| part.id == id && part.offset == offset) {
            return None;
        }
        parts.push_back(Arc::clone(&part));
        while parts.iter().map(|part| part.length).sum::<usize>() > KEPT_BYTES_MAX {
            parts.pop_front();
        }
        Some(part)
    }

    /// Reads ahead by `read`, unless that is done already.
    pub(crate) fn ask(&self, id: Id, offset: u64, length: usize, read: impl FnOnce(&mut [u8]) -> Result<usize>) {
        let Some(part) = self.begin(id, offset, length) else {
            return;
        };
        let mut content = vec![0; length];
        part.set(read(&mut content).map(|read| {
            content.truncate(read);
            content
        }));
    }

    /// Reads by what is here or asked for, and the rest by `read`, at an offset.
    pub(crate) fn read(
        &self,
        id: Id,
        buffer: &mut [u8],
        offset: u64,
        mut read: impl FnMut(&mut [u8], u64) -> Result<usize>,
    ) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            let Some(part) = self.part_at(id, at) else {
                return Ok(filled + read(&mut buffer[filled..], at)?);
            };
            // Whoever read it ahead has no way to say what went wrong; reading it again has.
            let Ok(copied) = part.copy(&mut buffer[filled..], at) else {
                self.remove(&part);
                continue;
            };
            filled += copied;
            let is_read = at + copied as u64 == part.end();
            let is_at_end = copied == 0 || (!is_read && filled < buffer.len());
            if is_read || is_at_end {
                self.remove(&part);
            }
            if is_at_end {
                return Ok(filled);
            }
        }
        Ok(filled)
    }

    /// Parts of these files may be something else by now.
    pub(crate) fn forget(&self, ids: &[Id]) {
        let mut parts = self.parts.lock();
        if !parts.is_empty() {
            parts.retain(|part| !ids.contains(&part.id));
        }
    }

    fn part_at(&self, id: Id, offset: u64) -> Option<Arc<Part>> {
        let mut parts = self.parts.lock();
        parts.retain(|part| !part.is_old());
        let has = |part: &&Arc<Part>| part.id == id && (part.offset..part.end()).contains(&offset);
        parts.iter().find(has).cloned()
    }

    fn remove(&self, part: &Arc<Part>) {
        self.parts.lock().retain(|other| !Arc::ptr_eq(other, part));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const FILE: Id = 7;

    fn file() -> Vec<u8> {
        (0..1000_u32).map(|at| (at % 251) as u8).collect()
    }

    fn read_at(buffer: &mut [u8], offset: u64) -> Result<usize> {
        let file = file();
        let from = file.get(offset as usize..).unwrap_or_default();
        let length = from.len().min(buffer.len());
        buffer[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn ahead(kept: &KeptReads, offset: u64, length: usize) {
        kept.ask(FILE, offset, length, |buffer| read_at(buffer, offset));
    }

    /// What a read gives, and which parts of it were asked for.
    fn read(kept: &KeptReads, offset: u64, length: usize) -> (Vec<u8>, Vec<(u64, usize)>) {
        let (mut buffer, mut asked) = (vec![0; length], Vec::new());
        let read = kept.read(FILE, &mut buffer, offset, |buffer, at| {
            asked.push((at, buffer.len()));
            read_at(buffer, at)
        });
        buffer.truncate(read.unwrap());
        (buffer, asked)
    }

    #[test]
    fn what_was_read_ahead_is_not_asked_for_again_and_read_once() {
        let kept = KeptReads::default();
        ahead(&kept, 100, 100);
        ahead(&kept, 200, 100);
        assert_eq!(read(&kept, 150, 100), (file()[150..250].to_vec(), vec![]));
        assert_eq!(
            read(&kept, 100, 50).1,
            [(100, 50)],
            "it was read to its end, and is gone"
        );
        assert_eq!(read(&kept, 250, 100), (file()[250..350].to_vec(), vec![(300, 50)]));
        assert!(kept.parts.lock().is_empty());
    }

    #[test]
    fn the_end_of_the_file_is_the_end() {
        let kept = KeptReads::default();
        ahead(&kept, 900, 200);
        assert_eq!(read(&kept, 950, 200), (file()[950..].to_vec(), vec![]));
        ahead(&kept, 900, 200);
        assert_eq!(read(&kept, 1000, 10), (vec![], vec![]));
    }

    #[test]
    fn what_is_on_its_way_is_waited_for() {
        let kept = KeptReads::default();
        let (go, went) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        std::thread::scope(|threads| {
            let kept = &kept;
            threads.spawn(move || {
                kept.ask(FILE, 0, 500, |buffer| {
                    begun.send(()).unwrap();
                    went.recv().unwrap();
                    read_at(buffer, 0)
                });
            });
            begins.recv().unwrap();
            let reader = threads.spawn(|| read(kept, 0, 500));
            go.send(()).unwrap();
            assert_eq!(reader.join().unwrap(), (file()[..500].to_vec(), vec![]));
        });
    }

    #[test]
    fn what_failed_is_asked_for_again() {
        let kept = KeptReads::default();
        kept.ask(FILE, 0, 100, |_| Err(Errno::IO));
        assert_eq!(read(&kept, 0, 100), (file()[..100].to_vec(), vec![(0, 100)]));
    }

    #[test]
    fn what_may_have_changed_is_forgotten_and_the_rest_is_bounded() {
        let kept = KeptReads::default();
        ahead(&kept, 0, 100);
        kept.forget(&[FILE + 1]);
        assert_eq!(kept.parts.lock().len(), 1);
        kept.forget(&[FILE]);
        assert_eq!(read(&kept, 0, 100).1, [(0, 100)]);
        for number in 0..5 {
            kept.ask(number, 0, KEPT_BYTES_MAX / 4, |_| Ok(0));
        }
        let ids: Vec<Id> = kept.parts.lock().iter().map(|part| part.id).collect();
        assert_eq!(ids, [1, 2, 3, 4], "the oldest has gone");
    }
}
