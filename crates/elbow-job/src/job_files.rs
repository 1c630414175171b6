//! The names of the files in a job's own directory that say how far it is, and how long one that is only made is looked at.

use std::time::Duration;

/// The record of a job that is committed.
pub(crate) const RECORD: &str = "commit";
/// The record of a kept job that has made all that it should.
pub(crate) const RESUME: &str = "resume";
/// A record that is being written.
pub(crate) const RECORD_DRAFT: &str = "commit.draft";
/// What leaves its name has left it.
pub(crate) const DEPARTED: &str = "departed";
/// All names are as they shall be; contents and attributes of old objects may have begun to change.
pub(crate) const NAMED: &str = "named";
/// Something gets its name only after `done`: a dead directory that cannot be renamed has it until then.
pub(crate) const LATE: &str = "late";
/// The record, when all is in its place.
pub(crate) const DONE: &str = "done";
/// Of the files, in octal: only their owner reads and writes them.
pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;
/// Of the directories: nobody outside looks into a staging directory.
pub(crate) const STAGING_MODE: u32 = 0o700;
/// A directory of a job may be a moment old, or about to go: it is looked at so often, for two seconds in all.
pub(crate) const BIRTH_LOOKS: usize = 40;
/// Between two looks.
pub(crate) const BIRTH_PAUSE: Duration = Duration::from_millis(50);
/// The names of a record that is taken back, in their order.
pub(crate) const UNDO: [&str; 3] = ["undo", "undo.names", "undo.olds"];

/// How far the taking back of a commit has come: an index into [`UNDO`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UndoPhase(pub(crate) usize);

/// Longest text of why a job was kept, in bytes.
pub(crate) const WHY_BYTES_MAX: usize = 4096;
