//! A file in a job's own directory that is there whole or not at all.

use std::ffi::OsStr;
use std::io::IoSlice;

use elbow_file::{Errno, Handle, RenameMode, Storage};

use crate::job_files::{PRIVATE_FILE_MODE, RECORD_DRAFT};
use crate::lost_answers;
use crate::missing::{none_if_missing, sync_dir};

/// Writes a file that is whole and durable before it has its name, in a job's own directory.
pub(crate) fn write_sealed(storage: &dyn Storage, job: &Handle, name: &OsStr, bytes: &[u8]) -> Result<(), Errno> {
    let draft = OsStr::new(RECORD_DRAFT);
    none_if_missing(storage.unlink(job, draft))?;
    let file = storage.create(job, draft, PRIVATE_FILE_MODE)?;
    storage.write(&file, &[IoSlice::new(bytes)], 0)?;
    storage.sync(&file)?;
    lost_answers::rename(storage, (job, draft), (job, name), RenameMode::Replace)?;
    sync_dir(storage, job)
}
