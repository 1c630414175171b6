//! A storage that does not answer any more, when a job is to end.
//!
//! Calls to it cannot be taken back, so that neither a command that waits for one can end, nor a job be rolled back. Who has asked
//! for the end is not kept waiting for ever: when nothing has come back for [`STALL_MAX`] although something is waited for, the job is left as
//! it is, as if we were killed, and the next recovery ends it.
//!
//! A process that ends closes its files, and FUSE asks the server about each (FUSE_FLUSH) and waits. So the table of descriptors is left to a process that
//! is of no use otherwise ([`leave_files`]): it shares the table, which is not closed with us then, and ends when the server answers.
//!
//! Not here: a call that the server of a FUSE file system has taken and does not answer. The kernel lets nobody who made one end before the
//! server does, whatever we do.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elbow_job::{Job, Progress};

/// What a batch system waits between SIGTERM and SIGKILL (Slurm's KillWait).
pub(crate) const STALL_MAX: Duration = Duration::from_secs(30);
/// The same for a job by ssh whose end was asked for twice: its connection can be closed, and the other end ends the job, or the next recovery.
pub(crate) const HURRIED_STALL_MAX: Duration = Duration::from_secs(3);
/// How often is listened.
pub(crate) const GLANCE: Duration = Duration::from_secs(1);

/// Nobody who listens leaves so much time between two looks.
const AWAY: Duration = Duration::from_secs(5);

/// Since when nothing has come back.
#[derive(Debug)]
pub(crate) struct StallClock {
    heard: u64,
    since: Instant,
    looked: Instant,
}

impl StallClock {
    pub(crate) fn began(now: Instant) -> Self {
        Self {
            heard: 0,
            since: now,
            looked: now,
        }
    }

    /// Whether it lasts longer than that. `heard` is another number whenever something has come back.
    pub(crate) fn is_longer(&mut self, most: Duration, heard: u64, is_waiting: bool, now: Instant) -> bool {
        // Who did not look was stopped, or asleep with the whole machine, and heard nothing of what came meanwhile.
        let was_away = now.saturating_duration_since(self.looked) > AWAY;
        self.looked = now;
        if heard != self.heard || !is_waiting || was_away {
            (self.heard, self.since) = (heard, now);
        }
        now.saturating_duration_since(self.since) >= most
    }
}

/// How far the end of the jobs is, for who listens in another thread.
#[derive(Debug, Default)]
pub(crate) struct Steps(AtomicU64);

impl Steps {
    pub(crate) fn see(&self, Progress { phase, steps, .. }: &Progress) {
        let mut hasher = DefaultHasher::new();
        (*phase as u8, steps.done, steps.bytes_done).hash(&mut hasher);
        self.0.store(hasher.finish(), Ordering::Relaxed);
    }

    /// What has come back to jobs and to the end of them, as one number; and whether jobs wait for something.
    pub(crate) fn listen<'j>(&self, jobs: impl Iterator<Item = &'j Job>) -> (u64, bool) {
        let mut hasher = DefaultHasher::new();
        self.0.load(Ordering::Relaxed).hash(&mut hasher);
        let mut is_waiting = false;
        for pulse in jobs.map(Job::pulse) {
            pulse.answers.hash(&mut hasher);
            is_waiting |= pulse.is_waiting;
        }
        (hasher.finish(), is_waiting)
    }
}

/// Leaves the descriptors of this process, which is about to end, to another one. That closes all at once but those of the same file
/// systems as these.
#[allow(unsafe_code)]
pub(crate) fn leave_files<'d>(silent: impl Iterator<Item = BorrowedFd<'d>>) {
    let devices: Vec<_> = silent.filter_map(device).collect();
    let is_silent = |number: &RawFd| {
        // SAFETY: it is only asked about, and one that is closed meanwhile is no file of the storage.
        let open = unsafe { BorrowedFd::borrow_raw(*number) };
        device(open).is_some_and(|device| devices.contains(&device))
    };
    let mut kept: Vec<RawFd> = descriptors().filter(is_silent).collect();
    kept.sort_unstable();
    let others = gaps(&kept);
    let us = rustix::process::getpid().as_raw_nonzero().get();
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: as fork(2), but for the table of descriptors. The child has a copy of our memory, makes system calls only, and never returns.
    unsafe {
        if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
            outlive(us, &others);
        }
    }
}

/// All that the child does.
#[allow(unsafe_code)]
fn outlive(parent: libc::pid_t, others: &[(RawFd, RawFd)]) -> ! {
    const PAUSE_MICROSECONDS: libc::useconds_t = 10_000;
    // SAFETY: all of these are system calls without memory of ours.
    unsafe {
        libc::setsid();
        while libc::getppid() == parent {
            libc::usleep(PAUSE_MICROSECONDS);
        }
        for (first, last) in others {
            libc::syscall(libc::SYS_close_range, *first, *last, 0);
        }
        libc::_exit(0)
    }
}

/// The file system of something open, as the kernel knows it: it is not asked.
#[allow(clippy::disallowed_methods, reason = "no storage is called")]
fn device(open: impl AsFd) -> Option<(u32, u32)> {
    let flags = rustix::fs::AtFlags::EMPTY_PATH | rustix::fs::AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(open, "", flags, rustix::fs::StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

#[allow(clippy::disallowed_methods, reason = "procfs, not the storage of a job")]
fn descriptors() -> impl Iterator<Item = RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What is between these, before and behind them.
fn gaps(kept: &[RawFd]) -> Vec<(RawFd, RawFd)> {
    let before = [-1].into_iter().chain(kept.iter().copied());
    let after = kept.iter().copied().chain([RawFd::MAX]);
    let between = before.zip(after).map(|(before, after)| (before + 1, after - 1));
    between.filter(|(first, last)| first <= last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_descriptors_but_those_that_are_kept_are_in_gaps() {
        let last = RawFd::MAX - 1;
        assert_eq!(gaps(&[]), [(0, last)]);
        assert_eq!(gaps(&[0, 3, 4, 9]), [(1, 2), (5, 8), (10, last)]);
    }

    #[test]
    fn silence_is_too_long_only_where_something_is_waited_for_and_nothing_comes() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut silence = StallClock::began(began);
        let mut is_longer = |most, heard, is_waiting, seconds: std::ops::RangeInclusive<u64>| {
            let looks = seconds.map(|second| silence.is_longer(most, heard, is_waiting, at(second)));
            looks.fold(None, |_, longer| Some(longer)).expect("a look")
        };
        assert!(!is_longer(STALL_MAX, 7, true, 1..=30));
        assert!(!is_longer(STALL_MAX, 8, true, 31..=31), "something came back");
        assert!(!is_longer(STALL_MAX, 8, false, 32..=100), "nothing is waited for");
        assert!(!is_longer(STALL_MAX, 8, true, 101..=129));
        assert!(is_longer(STALL_MAX, 8, true, 130..=130));
        assert!(!is_longer(HURRIED_STALL_MAX, 9, true, 131..=133));
        assert!(is_longer(HURRIED_STALL_MAX, 9, true, 134..=134));
    }

    /// A job that was stopped (Ctrl-Z, a suspended batch job) was given up as soon as it went on, on a storage that had answered.
    #[test]
    fn who_was_stopped_listens_anew() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut silence = StallClock::began(began);
        assert!(!silence.is_longer(STALL_MAX, 7, true, at(1)));
        assert!(!silence.is_longer(STALL_MAX, 7, true, at(100)));
        assert!((101..130).all(|second| !silence.is_longer(STALL_MAX, 7, true, at(second))));
        assert!(silence.is_longer(STALL_MAX, 7, true, at(130)));
    }
}
