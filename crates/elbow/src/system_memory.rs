//! How much memory this process may use: that of the machine, of its control groups, and of its limits.

#![allow(
    clippy::disallowed_methods,
    reason = "what the kernel says about memory is no file of the user's"
)]

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::process_limits::STACK_BYTES;

/// Where control groups are mounted, by cgroups(7).
const GROUPS: &str = "/sys/fs/cgroup";
/// Of what a process may have, this part is for what it does with it: the same in sort(1).
const LIMIT_SHARE: u64 = 2;
/// Beside the stacks of its threads, and what else it has.
const OTHER_BYTES: u64 = 4 << 20;

/// RAM, or less where a control group of this process has a limit: that of a container, or of a job of a batch system.
pub(crate) fn bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let ram = info.totalram.saturating_mul(u64::from(info.mem_unit));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = limit_files(Path::new(GROUPS), &groups);
    files.iter().filter_map(|file| limit(file)).fold(ram, u64::min)
}

/// So much at most fits the limits of the process (`ulimit -v`, `ulimit -d`), beside so many threads.
pub(crate) fn most_by_limits(threads: usize) -> u64 {
    let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    let least = limit(Resource::As).min(limit(Resource::Data));
    let stacks = threads.saturating_mul(STACK_BYTES) as u64;
    least.saturating_sub(stacks.saturating_add(OTHER_BYTES)) / LIMIT_SHARE
}

/// The files with the limits of all groups that the process is in, given /proc/self/cgroup: each group has those of the groups above it, too, and
/// in a container the path may be one that is not seen there.
fn limit_files(mounted: &Path, groups: &str) -> Vec<PathBuf> {
    let files_of = |line| {
        let mut parts = str::splitn(line, 3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (top, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let above = Path::new(path.trim_start_matches('/')).ancestors();
        Some(above.map(move |group| top.join(group).join(file)))
    };
    groups.lines().filter_map(files_of).flatten().collect()
}

/// `None` where there is none: `max`.
fn limit(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_above_holds() {
        let mounted = tempfile::tempdir().expect("a directory");
        let files = |groups: &str| -> Vec<String> {
            let of = |file: PathBuf| file.strip_prefix(mounted.path()).expect("below").display().to_string();
            limit_files(mounted.path(), groups).into_iter().map(of).collect()
        };
        assert_eq!(
            files("0::/system.slice/slurm/job_7\n"),
            [
                "system.slice/slurm/job_7/memory.max",
                "system.slice/slurm/memory.max",
                "system.slice/memory.max",
                "memory.max"
            ]
        );
        assert_eq!(files("0::/\n"), ["memory.max"]);
        assert_eq!(
            files("9:name=systemd:/x\n4:memory,hugetlb:/slurm/a:b\n3:cpuset:/\n"),
            [
                "memory/slurm/a:b/memory.limit_in_bytes",
                "memory/slurm/memory.limit_in_bytes",
                "memory/memory.limit_in_bytes"
            ]
        );
        assert_eq!(files("nonsense\n"), [""; 0]);
    }

    #[test]
    fn max_is_no_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let said = |text: &str| {
            std::fs::write(dir.path().join("memory.max"), text).expect("room");
            limit(&dir.path().join("memory.max"))
        };
        assert_eq!((said("max\n"), said("1073741824\n")), (None, Some(1 << 30)));
        assert_eq!(limit(Path::new("/nothing/memory.max")), None);
    }
}
