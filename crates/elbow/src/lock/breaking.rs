//! `elbow lock break FILE`: ends the sessions that hold it, and waits until they use it no more.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use elbow_lock::{Client, FileName, LockError, LockInfo, SessionId};

use super::args::BreakArgs;
use super::look::name_of;
use super::service;
use crate::output::{answer, print_message};

/// Between two looks at what is still held.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Exit code when a holder was told and still holds.
const STILL_HELD: u8 = 1;

/// Breaks what is held of a file.
pub(super) fn run(args: &BreakArgs) -> Result<ExitCode> {
    let name = format!("elbow lock break, process {}", std::process::id());
    let client = service::connect(&args.service, name)?;
    let file = name_of(&args.file, args.name)?;
    let before = client.look(&file)?.locks;
    let sessions = client.break_locks(&file, args.session.map(SessionId), args.force)?;
    if sessions.is_empty() {
        answer(format_args!("{file}: nobody holds a lock on it"))?;
        return Ok(ExitCode::SUCCESS);
    }
    for session in &sessions {
        let known = before.iter().find(|lock| lock.session == *session);
        let known = known.map_or(String::new(), |lock| format!(" ({})", lock.client));
        answer(format_args!(
            "{file}: session {}{known} is told that its locks are lost",
            session.0
        ))?;
    }
    let left = wait_for_end(&client, &file, &sessions, Duration::from_millis(u64::from(args.wait)))?;
    for lock in &left {
        print_message(format_args!(
            "{file}: session {} ({}) has not given back {}, token {}: others get it when it does, ends, or its lease is over; \
             --force would grant it to them at once",
            lock.session.0,
            lock.client,
            lock.pattern,
            lock.token.map_or(0, |token| token.0),
        ));
    }
    Ok(ExitCode::from(if left.is_empty() { 0 } else { STILL_HELD }))
}

/// What they still hold after so long.
fn wait_for_end(
    client: &Client,
    file: &FileName,
    sessions: &[SessionId],
    patience: Duration,
) -> Result<Vec<LockInfo>, LockError> {
    let since = Instant::now();
    loop {
        let mut left = client.look(file)?.locks;
        left.retain(|lock| lock.token.is_some() && sessions.contains(&lock.session));
        if left.is_empty() || since.elapsed() >= patience {
            return Ok(left);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
