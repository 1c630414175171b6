//! What reached the storage, by operation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

macro_rules! operations {
    ($($variant:ident $name:literal $meaning:literal,)*) => {
        /// The operations that the kernel asks of a file system.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Op { $(#[doc = $meaning] $variant,)* }

        impl Op {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Op] = &[$(Op::$variant,)*];

            /// The name under which it is counted and can be made to fail.
            pub fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }
        }
    };
}

operations! {
    Lookup "lookup" "Look up a name.",
    Getattr "getattr" "Read attributes.",
    Setattr "setattr" "Change mode, owner, size or times.",
    Readlink "readlink" "Read a symbolic link.",
    Mknod "mknod" "Make a file, a fifo, a socket or a device.",
    Mkdir "mkdir" "Make a directory.",
    Unlink "unlink" "Remove a file.",
    Rmdir "rmdir" "Remove a directory.",
    Symlink "symlink" "Make a symbolic link.",
    Rename "rename" "Rename.",
    Link "link" "Make a hard link.",
    Open "open" "Open a file.",
    Create "create" "Create and open a file.",
    Read "read" "Read data.",
    Write "write" "Write data.",
    Flush "flush" "Close a descriptor.",
    Release "release" "Close an open file.",
    Fsync "fsync" "Sync a file.",
    Opendir "opendir" "Open a directory.",
    Readdir "readdir" "List a directory.",
    Readdirplus "readdirplus" "List a directory with attributes.",
    Releasedir "releasedir" "Close a directory.",
    Fsyncdir "fsyncdir" "Sync a directory.",
    Statfs "statfs" "Ask for free space.",
    Setxattr "setxattr" "Set an extended attribute.",
    Getxattr "getxattr" "Read an extended attribute.",
    Listxattr "listxattr" "List extended attributes.",
    Removexattr "removexattr" "Remove an extended attribute.",
    Fallocate "fallocate" "Allocate or punch.",
    Lseek "lseek" "Find data or a hole.",
    CopyFileRange "copy_file_range" "Copy between files.",
}

impl Op {
    /// The operation of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }
}

/// What has reached the storage up to one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// How often each operation was asked for; those that never were are absent.
    pub operations: BTreeMap<&'static str, u64>,
    /// All of them together.
    pub total: u64,
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Bytes that writes stored.
    pub bytes_written: u64,
    /// Operations in service now.
    pub in_service: u64,
    /// The most that were ever in service at once.
    pub in_service_max: u64,
    /// The mean number in service over the time in which at least one was.
    pub in_service_mean: f64,
    /// How often each fault fired.
    pub faults: Vec<FaultCount>,
}

impl Counters {
    /// How often `op` was asked for.
    pub fn of(&self, op: Op) -> u64 {
        self.operations.get(op.name()).copied().unwrap_or(0)
    }
}

/// A fault and how often it fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultCount {
    /// The fault as it was written.
    pub fault: String,
    /// How often it fired.
    pub fired: u64,
}

/// The running counts; the owner guards it and tells it the time.
#[derive(Debug)]
pub(super) struct RunningCounters {
    operations: [u64; Op::ALL.len()],
    bytes_read: u64,
    bytes_written: u64,
    in_service: u64,
    in_service_max: u64,
    busy: Duration,
    area_seconds: f64,
    changed: Instant,
}

impl RunningCounters {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            operations: [0; Op::ALL.len()],
            bytes_read: 0,
            bytes_written: 0,
            in_service: 0,
            in_service_max: 0,
            busy: Duration::ZERO,
            area_seconds: 0.0,
            changed: now,
        }
    }

    pub(super) fn begin(&mut self, op: Op, now: Instant) {
        self.pass_time(now);
        self.operations[op as usize] += 1;
        self.in_service += 1;
        self.in_service_max = self.in_service_max.max(self.in_service);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.pass_time(now);
        self.in_service -= 1;
    }

    pub(super) fn moved(&mut self, op: Op, bytes: u64) {
        match op {
            Op::Read => self.bytes_read += bytes,
            _ => self.bytes_written += bytes,
        }
    }

    /// Starts again, keeping what is in service.
    pub(super) fn reset(&mut self, now: Instant) {
        let in_service = self.in_service;
        *self = Self {
            in_service,
            in_service_max: in_service,
            ..Self::new(now)
        };
    }

    pub(super) fn snapshot(&mut self, now: Instant, faults: Vec<FaultCount>) -> Counters {
        self.pass_time(now);
        let counted = |op: &Op| Some((op.name(), self.operations[*op as usize])).filter(|(_, count)| *count > 0);
        let busy = self.busy.as_secs_f64();
        Counters {
            operations: Op::ALL.iter().filter_map(counted).collect(),
            total: self.operations.iter().sum(),
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            in_service: self.in_service,
            in_service_max: self.in_service_max,
            in_service_mean: if busy > 0.0 { self.area_seconds / busy } else { 0.0 },
            faults,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn pass_time(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.changed);
        if self.in_service > 0 {
            self.busy += passed;
            self.area_seconds += passed.as_secs_f64() * self.in_service as f64;
        }
        self.changed = self.changed.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_own_name() {
        for op in Op::ALL {
            assert_eq!(Op::from_name(op.name()), Some(*op));
        }
    }

    #[test]
    fn the_mean_is_over_busy_time_only() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut counters_now = RunningCounters::new(start);
        counters_now.begin(Op::Write, at(10));
        counters_now.begin(Op::Write, at(20));
        counters_now.end(at(30));
        counters_now.end(at(40));
        let counters = counters_now.snapshot(at(100), Vec::new());
        assert_eq!(
            (counters.of(Op::Write), counters.total, counters.in_service_max),
            (2, 2, 2)
        );
        assert!(
            (counters.in_service_mean - 4.0 / 3.0).abs() < 1e-6,
            "{}",
            counters.in_service_mean
        );
    }
}
