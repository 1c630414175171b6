//! What the directory of a job can be known by, when it is looked at again later or does not answer any more.

use std::path::{Path, PathBuf};

use elbow_file::{Handle, Storage, Time, what_is_mounted};

/// Where a directory of another machine is, as whoever connects to it says: what it is called here tells nothing, as any directory can be shown
/// under any name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The machine, and who logs in there: what one user may see at a path is not what another may.
    pub machine: String,
    /// The directory there.
    pub path: PathBuf,
}

/// What the directory of a job can be known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootId {
    /// Its name here.
    pub(crate) path: PathBuf,
    /// Where it is, if it is not here.
    pub(crate) elsewhere: Option<Elsewhere>,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// When it was made, where that is kept.
    pub(crate) born: Option<Time>,
    /// What is mounted there, as the table of mounts says: there is often nothing else to tell network file systems apart that are mounted at one
    /// place, one after the other.
    pub(crate) mounted: Option<String>,
}

impl RootId {
    /// Of an open directory with this path, which may be elsewhere.
    pub(crate) fn of(storage: &dyn Storage, root: &Handle, path: &Path, elsewhere: Option<&Elsewhere>) -> Self {
        let stat = storage.stat_handle(root);
        let (dev, ino) = stat.map_or((0, 0), |stat| (stat.dev, stat.ino));
        let identity = storage.identity(root).ok();
        let untold = identity.filter(|identity| elsewhere.is_none() && identity.born.is_none());
        Self {
            mounted: untold.and_then(|identity| what_is_mounted(identity.mount)),
            ..Self::new(path, elsewhere, (dev, ino), identity.and_then(|identity| identity.born))
        }
    }

    /// Of a directory with this path that was looked at.
    #[allow(
        clippy::disallowed_methods,
        reason = "its name for people and later runs, not what is in it"
    )]
    pub(crate) fn new(path: &Path, elsewhere: Option<&Elsewhere>, (dev, ino): (u64, u64), born: Option<Time>) -> Self {
        Self {
            mounted: None,
            path: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            elsewhere: elsewhere.cloned(),
            dev,
            ino,
            born,
        }
    }

    /// The same directory? One that was moved has another path, a file system that was mounted again another device number, and one that was made
    /// since may have all the numbers of one that is gone, but not its time.
    pub(crate) fn is(&self, now: &Self) -> bool {
        let is_there = match (&self.elsewhere, &now.elsewhere) {
            (None, None) => {
                let is_mounted = self.mounted.is_none() || now.mounted.is_none() || self.mounted == now.mounted;
                is_mounted && (self.path == now.path || (self.dev, self.ino) == (now.dev, now.ino))
            }
            // Machines that were copied from one have directories with the same numbers and times.
            (Some(then), Some(there)) if then.machine != there.machine => return false,
            (Some(then), Some(there)) => then.path == there.path && self.ino == now.ino,
            _ => return false,
        };
        match (self.born, now.born) {
            (Some(then), Some(now_born)) => then == now_born && self.ino == now.ino,
            (None, None) => is_there,
            // A file system has this for all or for none: what was mounted there is not.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job whose results were all saved here was resumed into whatever network file system was mounted at its directory then.
    #[test]
    fn another_file_system_that_is_mounted_at_one_place_is_another_directory() {
        let mounted = |what: Option<&str>| RootId {
            mounted: what.map(str::to_owned),
            ..id("/nowhere/near", None, 1, None)
        };
        let kept = mounted(Some("one:/x /"));
        assert!(kept.is(&kept) && kept.is(&mounted(None)) && mounted(None).is(&kept));
        assert!(!kept.is(&mounted(Some("two:/x /"))) && !kept.is(&mounted(Some("one:/x /below"))));
    }

    fn id(path: &str, elsewhere: Option<(&str, &str)>, ino: u64, born: Option<i64>) -> RootId {
        let elsewhere = elsewhere.map(|(machine, path)| Elsewhere {
            machine: machine.into(),
            path: path.into(),
        });
        let born = born.map(|seconds| Time {
            seconds,
            nanoseconds: 0,
        });
        RootId::new(Path::new(path), elsewhere.as_ref(), (7, ino), born)
    }

    /// A job over SFTP was resumed into whatever was shown at the same directory of this machine.
    #[test]
    fn a_directory_of_another_machine_is_not_known_by_its_name_here() {
        let kept = id("/nowhere/near", Some(("ssh://a", "/data")), 1, None);
        assert!(kept.is(&kept));
        assert!(kept.is(&id("/nowhere/other", Some(("ssh://a", "/data")), 1, None)));
        for other in [
            id("/nowhere/near", Some(("ssh://a", "/other")), 1, None),
            id("/nowhere/near", Some(("ssh://a", "/data")), 2, None),
            id("/nowhere/near", Some(("ssh://b", "/data")), 1, None),
            id("/nowhere/near", None, 1, None),
        ] {
            assert!(!kept.is(&other) && !other.is(&kept), "{other:?}");
        }
    }

    #[test]
    fn a_directory_with_a_time_is_known_by_that_on_one_machine() {
        let kept = id("/nowhere/near", Some(("ssh://a", "/data")), 1, Some(5));
        assert!(kept.is(&id("/nowhere/near", Some(("ssh://a", "/moved")), 1, Some(5))));
        for other in [
            id("/nowhere/near", Some(("ssh://a", "/data")), 1, Some(6)),
            id("/nowhere/near", Some(("ssh://a", "/data")), 1, None),
            id("/nowhere/near", Some(("ssh://copy-of-a", "/data")), 1, Some(5)),
            id("/nowhere/near", None, 1, Some(5)),
        ] {
            assert!(!kept.is(&other), "{other:?}");
        }
        let here = id("/nowhere/near", None, 1, None);
        assert!(here.is(&id("/nowhere/near", None, 2, None)) && here.is(&id("/nowhere/moved", None, 1, None)));
    }
}
