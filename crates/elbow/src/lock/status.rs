//! `elbow lock status`: what is held, and who waits. Of one file: `look`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use elbow_lock::Client;
use serde::Deserialize;

use super::args::StatusArgs;
use super::look::{age, name_of};
use super::service;
use crate::json;
use crate::output::answer;

/// What a service says of itself; the part that people read.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    epoch: u32,
    uptime_ms: u64,
    grace_left_ms: u32,
    is_draining: bool,
    sessions: usize,
    pub(super) totals: Totals,
    clients: Vec<Session>,
    busiest: Vec<File>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Totals {
    files: usize,
    holds: usize,
    queued: usize,
    pub(super) grants: u64,
    waits: u64,
    refused_deadlock: u64,
}

#[derive(Debug, Deserialize)]
struct Session {
    session: u64,
    name: String,
}

#[derive(Debug, Deserialize)]
struct File {
    name: String,
    held: usize,
    waiting: usize,
    holders: Vec<Lock>,
    queue: Vec<Lock>,
}

#[derive(Debug, Deserialize)]
struct Lock {
    session: u64,
    exclusive: bool,
    pattern: String,
    token: Option<u64>,
    age_ms: u64,
}

/// Prints it once.
pub(super) fn run(args: &StatusArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, args.file.as_deref(), tell(args))
}

fn tell(args: &StatusArgs) -> Result<ExitCode> {
    let client = service::connect(
        &args.service,
        format!("elbow lock status, process {}", std::process::id()),
    )?;
    if let Some(file) = &args.file {
        super::look::tell(&client, &name_of(file, args.name)?, args.json)?;
    } else if args.json {
        let status: serde_json::Value = serde_json::from_str(&client.status()?)?;
        answer(json::line(&status)?)?;
    } else {
        let lines = ask(&client)?.lines(usize::MAX);
        answer(lines.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn ask(client: &Client) -> Result<Status> {
    serde_json::from_str(&client.status()?)
        .context("the lock service is of another version: it describes itself otherwise")
}

impl Status {
    /// For people, at most so many lines.
    pub(super) fn lines(&self, most: usize) -> Vec<String> {
        let mut lines = vec![self.head(), self.sums()];
        for file in &self.busiest {
            let (held, waiting) = (file.held, file.waiting);
            lines.push(format!("{}: {held} held, {waiting} waiting", file.name));
            lines.extend(file.holders.iter().chain(&file.queue).map(|lock| self.lock(lock)));
            let hidden = (held + waiting).saturating_sub(file.holders.len() + file.queue.len());
            if hidden > 0 {
                lines.push(format!("  and {hidden} more"));
            }
        }
        if self.busiest.len() < self.totals.files {
            lines.push(format!("and {} more files", self.totals.files - self.busiest.len()));
        }
        lines.truncate(most);
        lines
    }

    fn head(&self) -> String {
        let state = match (self.is_draining, self.grace_left_ms) {
            (true, _) => ", shutting down".to_owned(),
            (_, 0) => String::new(),
            (_, left) => format!(", after a crash: only former holders for {}", age(left.into())),
        };
        format!("lock service, epoch {}, up {}{state}", self.epoch, age(self.uptime_ms))
    }

    fn sums(&self) -> String {
        let Totals {
            files,
            holds,
            queued,
            grants,
            waits,
            refused_deadlock,
        } = &self.totals;
        format!(
            "{} clients, {files} files, {holds} locks held, {queued} waiting; {grants} granted so far, {waits} requests had to wait, \
             {refused_deadlock} deadlocks",
            self.sessions
        )
    }

    fn lock(&self, lock: &Lock) -> String {
        let kind = if lock.exclusive { "exclusive" } else { "shared" };
        let state = if lock.token.is_some() { "held" } else { "waits" };
        let client = self.clients.iter().find(|client| client.session == lock.session);
        let name = client.map_or_else(|| format!("session {}", lock.session), |client| client.name.clone());
        format!("  {state:5} {kind:9} {:>7}  {}  {name}", age(lock.age_ms), lock.pattern)
    }
}
