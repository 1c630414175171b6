//! `elbow lock status FILE`: who holds one file, and who waits for it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use elbow_lock::{Client, FileLocks, FileName, LockError, LockInfo, LockMode, file_name};
use serde::Serialize;

use crate::json;
use crate::output::answer;

/// What is told to programs.
#[derive(Serialize)]
struct FileLocksJson {
    file: String,
    held: u64,
    waiting: u64,
    locks: Vec<LockJson>,
}

#[derive(Serialize)]
struct LockJson {
    state: &'static str,
    session: u64,
    owner: u64,
    client: String,
    exclusive: bool,
    posix: bool,
    start: u64,
    end: u64,
    pattern: String,
    token: Option<u64>,
    age_ms: u64,
    since_unix_ms: u64,
    elsewhere: u64,
}

/// The name of a file as clients name it; or a name that is taken as it is.
pub(super) fn name_of(file: &Path, is_name: bool) -> Result<FileName, LockError> {
    if !is_name {
        return file_name(file);
    }
    let name = file.as_os_str().as_encoded_bytes();
    FileName::new(name).ok_or(LockError::BadName { bytes: name.len() })
}

/// Says who holds a file and who waits for it.
pub(super) fn tell(client: &Client, file: &FileName, as_json: bool) -> Result<()> {
    let seen = client.look(file)?;
    if as_json {
        answer(json::line(&FileLocksJson::new(file, &seen))?)?;
    } else {
        answer(lines(file, &seen).join("\n"))?;
    }
    Ok(())
}

fn lines(file: &FileName, seen: &FileLocks) -> Vec<String> {
    let FileLocks { holds, queued, locks } = seen;
    if locks.is_empty() {
        return vec![format!("{file}: nobody holds a lock on it, and nobody waits for one")];
    }
    let mut lines = vec![format!("{file}: {holds} held, {queued} waiting")];
    lines.extend(locks.iter().map(line));
    let hidden = (holds + queued).saturating_sub(locks.len() as u64);
    if hidden > 0 {
        lines.push(format!("  and {hidden} more"));
    }
    lines
}

fn line(lock: &LockInfo) -> String {
    let mode = lock.mode.name();
    let token = lock.token.map_or(String::new(), |token| format!(", token {}", token.0));
    let elsewhere = match lock.elsewhere {
        0 => String::new(),
        others => format!(", holds {others} of other files"),
    };
    format!(
        "  {:6} {mode:9} {:>7}  {}  {}, session {} owner {}{token}{elsewhere}",
        state(lock),
        age(lock.age_ms),
        lock.pattern,
        lock.client,
        lock.session.0,
        lock.owner.0
    )
}

/// `broken`: its holder was told, and has not given it back.
fn state(lock: &LockInfo) -> &'static str {
    match lock.token {
        None => "waits",
        Some(_) if lock.is_ending => "broken",
        Some(_) => "held",
    }
}

impl FileLocksJson {
    fn new(file: &FileName, seen: &FileLocks) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Self {
            file: file.to_string(),
            held: seen.holds,
            waiting: seen.queued,
            locks: seen.locks.iter().map(|lock| LockJson::new(lock, now_ms)).collect(),
        }
    }
}

impl LockJson {
    fn new(lock: &LockInfo, now_ms: u64) -> Self {
        Self {
            state: state(lock),
            session: lock.session.0,
            owner: lock.owner.0,
            client: lock.client.clone(),
            exclusive: lock.mode == LockMode::Exclusive,
            posix: lock.is_posix,
            start: lock.start,
            end: lock.end,
            pattern: lock.pattern.clone(),
            token: lock.token.map(|token| token.0),
            age_ms: lock.age_ms,
            since_unix_ms: now_ms.saturating_sub(lock.age_ms),
            elsewhere: lock.elsewhere,
        }
    }
}

/// A time for people.
pub(super) fn age(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..600_000 => format!("{} s", ms / 1000),
        600_000..36_000_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}
