//! One event of a trace: what is written on a line, and read from it.
//!
//! ```text
//!   cat        ph       pid    tid      what
//!   trace      i        1      1        the first: that it is a trace of ours, of which command; later: that nothing has happened for a while
//!   action     X        job    worker   an action on the storage
//!   wait       X        job    thread   an operation of the command that had to wait
//!   step       B, E     1, job 1        the command, a step of the end of a job
//!   job        i        job    1        the numbers of a job that has ended
//!   __metadata M                        names of jobs and threads, for who draws them
//! ```
//!
//! Times are microseconds since the trace was begun.

use serde::{Deserialize, Serialize};

use crate::names::CommandWords;

/// Grows when a field of an event goes or gets another meaning.
pub(super) const VERSION: u32 = 1;
/// The process of the command and of what belongs to all jobs; those of jobs follow.
pub(super) const RUN: u32 = 1;
/// The thread in which steps are shown.
pub(super) const STEPS: u32 = 1;
/// The step in which the command runs.
pub(super) const COMMAND: &str = "command";

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Category {
    Trace,
    Action,
    Wait,
    Step,
    Job,
    #[serde(rename = "__metadata")]
    Metadata,
}

/// How it lies in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// It has a beginning and a length.
    #[serde(rename = "X")]
    Complete,
    #[serde(rename = "B")]
    Begin,
    /// Of what began last in this thread.
    #[serde(rename = "E")]
    End,
    #[serde(rename = "i")]
    Instant,
    #[serde(rename = "M")]
    Metadata,
}

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) cat: Category,
    pub(super) ph: Phase,
    #[serde(default)]
    pub(super) ts: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dur: Option<f64>,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// How far an instant is drawn: over all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) s: Option<Scope>,
    #[serde(default)]
    pub(super) args: Args,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Scope {
    #[serde(rename = "g")]
    Global,
    #[serde(rename = "p")]
    Process,
}

/// What belongs to an event; each has some of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Args {
    /// Of an action or wait: below the directory of the job. What is not UTF-8 is U+FFFD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// Calls of the storage that change something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calls: Option<u64>,
    /// Operations of the command that were merged into this action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) merged: Option<u64>,
    /// When the object had something to be stored first, in microseconds as `ts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queued: Option<f64>,
    /// What the storage refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) errno: Option<i32>,
    /// Of a step: what was done in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) done: Option<u64>,
    /// Of metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) begin: Option<Begin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) counts: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What the first event tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) version: u32,
    pub(super) elbow: String,
    #[serde(flatten)]
    pub(super) command: CommandWords,
    pub(super) started_unix_seconds: f64,
}

impl Event {
    /// One that has no length and no arguments yet.
    pub(super) fn new(name: &str, cat: Category, ph: Phase, pid: u32, tid: u32, ts: f64) -> Self {
        Self {
            name: name.to_owned(),
            cat,
            ph,
            ts,
            dur: None,
            pid,
            tid,
            s: None,
            args: Args::default(),
        }
    }

    /// The name of a process or a thread.
    pub(super) fn naming(what: &str, pid: u32, tid: u32, name: String) -> Self {
        let mut event = Self::new(what, Category::Metadata, Phase::Metadata, pid, tid, 0.0);
        event.args.name = Some(name);
        event
    }

    /// When it is over.
    pub(super) fn end(&self) -> f64 {
        self.ts + self.dur.unwrap_or(0.0)
    }
}
