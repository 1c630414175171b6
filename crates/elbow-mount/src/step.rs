//! The steps to a mount or a namespace, each of which may be refused.

use std::fmt;

/// One thing that is done to get a mount or a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Step {
    /// Reading the mount table.
    ReadMounts,
    /// Making the FUSE mount.
    Mount,
    /// Opening its root.
    OpenRoot,
    /// Entering new namespaces.
    Unshare,
    /// Keeping the own uid and gid in them.
    MapIds,
    /// Cutting the mounts off from those outside.
    Separate,
    /// Laying the mount over its directory.
    Attach,
    /// Taking hold of a directory that is passed through.
    TakePassed,
    /// Laying it over its place in the job.
    LayPassed,
    /// Entering the current directory again.
    ChangeDirectory,
    /// Giving the command the limits, umask and signals that we were started with.
    Restore,
}

/// All steps, by number.
pub(crate) const STEPS: [Step; 11] = [
    Step::ReadMounts,
    Step::Mount,
    Step::OpenRoot,
    Step::Unshare,
    Step::MapIds,
    Step::Separate,
    Step::Attach,
    Step::TakePassed,
    Step::LayPassed,
    Step::ChangeDirectory,
    Step::Restore,
];

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::ReadMounts => "cannot read /proc/self/mountinfo",
            Step::Mount => "cannot make a FUSE mount",
            Step::OpenRoot => "cannot open the new mount",
            Step::Unshare => "cannot enter a new mount namespace",
            Step::MapIds => "cannot keep the user and group in a new user namespace",
            Step::Separate => "cannot make the mounts private",
            Step::Attach => "cannot lay the mount over its directory",
            Step::TakePassed => "cannot take hold of a directory that is passed through",
            Step::LayPassed => "cannot lay a directory that is passed through over its place in the job",
            Step::ChangeDirectory => "cannot enter the current directory inside the mount",
            Step::Restore => "cannot restore limits, umask or signals for the command",
        })
    }
}
