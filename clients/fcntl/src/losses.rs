//! Locks that were lost: the process learns of it, or ends.

use std::ffi::c_int;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use elbow_lock::FileName;

use crate::config;
use crate::errno::{warn, warn_within};
use crate::process::{Process, lock};
use crate::session::Session;

/// How long a process that is to end waits for standard error to take its last words: others wait for what it holds.
const LAST_WORDS_FOR: Duration = Duration::from_secs(1);
/// Exit code when locks were lost, as of `elbow` itself.
const LOST_EXIT: c_int = 125;

/// Tells of sessions that have ended, where the reader has not yet: what is done next takes the locks for held.
pub(crate) fn report_losses() {
    let process = unless_ending(lock());
    let descriptions = process.descriptions.iter().map(|description| &description.session);
    let sessions: Vec<Arc<Session>> = process.session.iter().chain(descriptions).cloned().collect();
    drop(process);
    sessions.iter().filter(|session| !session.is_good()).for_each(lost);
}

/// A session has ended: if anything was held over it, the process learns of it, or ends.
pub(crate) fn lost(session: &Arc<Session>) {
    let why = session.broken().map_or_else(String::new, |broken| broken.0);
    let mut process = unless_ending(lock());
    let (files, doubtful) = process.forget(session);
    let only_warns = config::get().is_some_and(|config| config.only_warns);
    process.is_ending = !files.is_empty() && !only_warns;
    let is_ending = process.is_ending;
    drop(process);
    if is_ending {
        warn_within(&report(&files, &why, "the process ends"), LAST_WORDS_FOR);
        end_process();
    }
    // What children took for us, or for themselves, is in use until the description is closed, or its next lock call has failed.
    if only_warns || doubtful.is_empty() {
        session.close();
    }
    if !doubtful.is_empty() {
        let files = list(&doubtful);
        warn(&format!(
            "flock locks on {files}, if children have taken any, were lost: {why}"
        ));
    }
    if !files.is_empty() {
        warn(&report(&files, &why, "the next lock call fails"));
    }
}

fn report(files: &[FileName], why: &str, then: &str) -> String {
    format!("locks on {} were lost: {why}; {then}", list(files))
}

fn list(files: &[FileName]) -> String {
    let names: Vec<String> = files.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Goes no further where another thread is about to end the process; ends it, should that thread not come to it.
pub(crate) fn unless_ending(process: MutexGuard<'static, Process>) -> MutexGuard<'static, Process> {
    if process.is_ending {
        drop(process);
        std::thread::sleep(2 * LAST_WORDS_FOR);
        end_process();
    }
    process
}

/// The kernel closes the sessions when the last thread is gone.
fn end_process() -> ! {
    #[allow(unsafe_code)]
    // SAFETY: ends the process.
    unsafe {
        libc::_exit(LOST_EXIT)
    }
}
