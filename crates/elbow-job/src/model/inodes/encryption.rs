//! Encrypted directories (fscrypt) below a directory that is not encrypted.
//!
//! ```text
//!   DIR             plain: so is the job's own directory, with all that is staged in it
//!   DIR/a           encrypted, and all below it
//!   DIR/b           encrypted by another key
//! ```
//!
//! Nothing that is plain, or encrypted by another key, is renamed or linked into such a directory (EXDEV); what leaves it stays encrypted. Keys
//! are not compared: two such directories count as of two keys. What is made in one is staged in it, and encrypted.
//!
//! Where the directory of the job is encrypted itself all is, by the same key, and nothing of this matters.

use elbow_file::Stat;

use super::Inodes;
use crate::api::Ino;

impl Inodes {
    /// Something was found on the storage.
    pub(crate) fn note_encryption(&mut self, stat: &Stat) {
        self.has_encrypted |= stat.is_encrypted && !self.is_home_encrypted;
    }

    /// It was encrypted before the job, and what is staged in the job's own directory is not.
    pub(crate) fn is_more_secret_than_the_job(&self, ino: Ino) -> bool {
        let is_encrypted = |stat: &Stat| stat.is_encrypted;
        self.has_encrypted
            && self
                .get(ino)
                .ok()
                .and_then(super::Inode::seen)
                .is_some_and(is_encrypted)
    }

    /// Whether the storage gives an object a name in a directory, as far as encryption goes.
    pub(crate) fn is_let_in(&self, ino: Ino, dir: Ino) -> bool {
        let wanted = self.encryption(dir);
        wanted.is_none() || self.encryption(ino) == wanted
    }

    /// The highest encrypted directory that was above an object before the job, or is above one that the job made; `None` for what is plain.
    fn encryption(&self, ino: Ino) -> Option<Ino> {
        let (mut at, mut highest) = (ino, None);
        while self.has_encrypted && at != Ino::ROOT {
            let inode = self.get(at).ok()?;
            let key = match inode.seen() {
                Some(seen) if !seen.is_encrypted => break,
                Some(_) => {
                    highest = Some(at);
                    inode.old_name()
                }
                None => inode.names().first().or(inode.placed().first()),
            };
            at = key?.dir;
        }
        highest
    }
}
