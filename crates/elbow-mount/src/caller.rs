//! Who makes a request, beyond what the request says.

#![allow(clippy::disallowed_methods)] // /proc: not the storage of a job

use fuser::Request;

/// A user, a group, and a thread that waits for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerIds {
    pub(crate) user: u32,
    group: u32,
    thread: u32,
}

impl CallerIds {
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            user: request.uid(),
            group: request.gid(),
            thread: request.pid(),
        }
    }

    /// Whether it is in a group: of supplementary groups FUSE says nothing, proc_pid_status(5) does. Where it does not either
    /// (another PID namespace), the answer is no.
    pub(crate) fn is_in(self, group: u32) -> bool {
        let status = || std::fs::read_to_string(format!("/proc/{}/status", self.thread)).unwrap_or_default();
        self.group == group || groups_of(&status()).any(|other| other == group)
    }
}

fn groups_of(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default()
        .split_whitespace()
        .filter_map(|group| group.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supplementary_groups_are_those_of_the_status() {
        let status = "Name:\tx\nUid:\t1\t1\t1\t1\nGroups:\t4 24 1000 \nNStgid:\t7\n";
        assert_eq!(groups_of(status).collect::<Vec<_>>(), [4, 24, 1000]);
        assert_eq!(groups_of("Groups:\t \n").count(), 0);
    }
}
