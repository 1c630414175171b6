//! Subordinate ids (subuid(5), subgid(5)) in the user namespace of an ordinary user's command: each is mapped to itself, so that
//! owners and groups there read as they do outside.
//!
//! ```text
//!   child    unshare ── its number ──>                                        <── what is mapped ── own ids where nothing is
//!   thread                             newuidmap(1) and newgidmap(1), at once
//! ```
//!
//! Only these two may write such a map, because they are setuid root, and only from outside of the namespace. Where they are missing or refuse, the
//! user's own ids are mapped, as without this. Files alone are read: ids that a directory service gives out are not seen.
//!
//! An administrator can make project groups readable in this way, too: `alice:1998:1` in `/etc/subgid`.

#![allow(clippy::disallowed_methods)] // files of the system, not the storage of a job

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use elbow_file::Errno;
use nix::unistd::{Uid, User};
use rustix::event::{PollFd, PollFlags, Timespec};

/// The kernel takes so many ranges in one map.
const RANGES_MAX: usize = 340;
/// Longer than any directory service takes to say who a user is; then the command starts with its own ids alone.
const ANSWER_SECONDS: i64 = 10;
const PROGRAMS: [&str; 2] = ["newuidmap", "newgidmap"];

/// Whether this process's user has subordinate ids and the programs to map them, so that owners and groups in a job read as they do outside.
#[must_use]
pub fn has_subordinate_ids() -> bool {
    SubordinateIds::of_this_user().is_some()
}

/// What is to be mapped beside a user's own ids.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SubordinateIds {
    programs: [PathBuf; 2],
    users: Vec<Range<u32>>,
    groups: Vec<Range<u32>>,
}

impl SubordinateIds {
    /// Those of this process's user, if there are any and the programs to map them.
    pub(crate) fn of_this_user() -> Option<Self> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let [users, groups] =
            ["/etc/subuid", "/etc/subgid"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
        if users.is_empty() && groups.is_empty() {
            return None;
        }
        let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
        let ids = |file: &str, own| ranges(file, name.as_deref(), uid, own);
        let (users, groups) = (ids(&users, uid), ids(&groups, gid));
        let [of_users, of_groups] = PROGRAMS.map(find);
        let programs = [of_users?, of_groups?];
        (!users.is_empty() || !groups.is_empty()).then_some(Self {
            programs,
            users,
            groups,
        })
    }

    /// Begins to wait for a child that asks for its maps.
    pub(crate) fn offer(self) -> io::Result<Request> {
        let (ours, childs) = UnixStream::pair()?;
        let serve = move || self.serve(ours);
        std::thread::Builder::new().name("elbow-ids".into()).spawn(serve)?;
        Ok(Request(childs.into()))
    }

    /// Ends without an answer when there is no child any more.
    fn serve(&self, mut socket: UnixStream) {
        let mut number = [0; 4];
        if socket.read_exact(&mut number).is_ok() {
            let answer = self.map(u32::from_ne_bytes(number));
            let _ = socket.write_all(&answer.map(u8::from));
        }
    }

    /// Maps users and groups of a process; which of them are mapped then.
    fn map(&self, process: u32) -> [bool; 2] {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let [of_users, of_groups] = &self.programs;
        let mappers = [
            start(of_users, process, uid, &self.users),
            start(of_groups, process, gid, &self.groups),
        ];
        for mapper in mappers.into_iter().flatten() {
            let _: io::Result<_> = { mapper }.wait();
        }
        // Whatever they have said of it.
        ["uid_map", "gid_map"].map(|map| {
            let map = std::fs::read_to_string(format!("/proc/{process}/{map}"));
            map.is_ok_and(|map| !map.trim().is_empty())
        })
    }
}

fn start(program: &Path, process: u32, own: u32, ranges: &[Range<u32>]) -> Option<Child> {
    if ranges.is_empty() {
        return None;
    }
    let mut command = Command::new(program);
    command.arg(process.to_string());
    for range in [&(own..own + 1)].into_iter().chain(ranges) {
        let (first, length) = (range.start.to_string(), (range.end - range.start).to_string());
        command.args([&first, &first, &length]);
    }
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.spawn().ok()
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin".into(), "/bin".into()]);
    places.map(|place| place.join(program)).find(|found| found.is_file())
}

/// The ranges of a user in such a file, without what is the user's own or there twice.
fn ranges(file: &str, name: Option<&str>, uid: u32, own: u32) -> Vec<Range<u32>> {
    let mut found: Vec<Range<u32>> = file.lines().filter_map(|line| range(line, name, uid)).collect();
    found.sort_by_key(|range| range.start);
    let mut free = 0;
    let parts = found.into_iter().flat_map(|range| {
        let start = range.start.max(free);
        free = free.max(range.end);
        // Around what is the user's own, if that is in it.
        let (before, after) = (start..range.end.min(own), start.max(own.saturating_add(1))..range.end);
        if (start..range.end).contains(&own) {
            [before, after]
        } else {
            [start..range.end, 0..0]
        }
    });
    parts.filter(|range| !range.is_empty()).take(RANGES_MAX - 1).collect()
}

/// `user:first:count`, if it is of the user, by name or number.
fn range(line: &str, name: Option<&str>, uid: u32) -> Option<Range<u32>> {
    let mut fields = line.trim().split(':');
    let user = fields.next()?;
    if Some(user) != name && user.parse() != Ok(uid) {
        return None;
    }
    let (first, count) = (fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?);
    // The last number is no id.
    (fields.next().is_none()).then(|| first..first.saturating_add(count))
}

/// A child's side.
pub(crate) struct Request(OwnedFd);

impl Request {
    /// Asks for the maps of this process, between fork and exec: which of users and groups are mapped then.
    pub(crate) fn ask(&self) -> [bool; 2] {
        let number = rustix::process::getpid().as_raw_nonzero().get() as u32;
        match self.exchange(number.to_ne_bytes()) {
            Ok(answer) => answer.map(|mapped| mapped != 0),
            Err(_) => [false; 2],
        }
    }

    fn exchange(&self, number: [u8; 4]) -> Result<[u8; 2], Errno> {
        rustix::io::write(&self.0, &number)?;
        let timeout = Timespec {
            tv_sec: ANSWER_SECONDS,
            tv_nsec: 0,
        };
        let mut answer = [0; 2];
        let mut ready = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, Some(&timeout)))?;
        if ready[0].revents().is_empty() {
            return Err(Errno::TIMEDOUT);
        }
        match rustix::io::read(&self.0, &mut answer)? {
            2 => Ok(answer),
            _ => Err(Errno::PIPE),
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "ranges are what is compared")]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_of_a_user_are_found_by_name_and_number() {
        let file =
            "alice:100000:65536\nbob:165536:65536\n# alice:1:1\n1000:300000:10\nalice:7\nalice:x:1\nalice:5:1:1\n";
        assert_eq!(
            ranges(file, Some("alice"), 1000, 1000),
            [100_000..165_536, 300_000..300_010]
        );
        assert_eq!(ranges(file, Some("bob"), 1001, 1001), vec![165_536..231_072]);
        assert_eq!(ranges(file, None, 7, 7), []);
    }

    /// The kernel refuses a map in which a number is twice.
    #[test]
    fn no_number_is_in_two_ranges() {
        assert_eq!(ranges("a:10:10\na:15:10\na:12:3\n", Some("a"), 1, 1), [10..20, 20..25]);
        assert_eq!(ranges("a:10:10\n", Some("a"), 15, 15), [10..15, 16..20]);
        assert_eq!(ranges("a:10:2\n", Some("a"), 10, 10), vec![11..12]);
        assert_eq!(
            ranges("a:0:4294967295\na:4294967290:100\n", Some("a"), 7, 7),
            [0..7, 8..u32::MAX]
        );
        let many: String = (0..1000).map(|n| format!("a:{}:1\n", n * 2 + 100)).collect();
        assert_eq!(ranges(&many, Some("a"), 1, 1).len(), RANGES_MAX - 1);
    }
}
