//! A case: who works on which old tree, how the job is run, and the calls in their order. It is a text that can be read, edited and replayed.
//!
//! ```text
//! # elbow differ 1
//! storage ext4                        where both trees lie
//! runner root                         who runs the job
//! ending commit                       how the command ends
//! option --mem 8M                     for `elbow run`
//! worker 1001 1001 2000               uid, gid, supplementary groups; the first one is worker 0
//! old file a 0644 1001 1001 100@7     the old tree, in the order in which it is made
//! call 0 chmod root a 0600 -          which worker does what
//! ```

use std::fmt::Write as _;

use super::call::Call;
use super::ground::Storage;
use super::old::Old;
use super::word::{AtFlags, Bits, Kind, Name, Which};

/// First line of a script; another number would be another format.
const HEADER: &str = "# elbow differ 1";

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// The name of its storage.
    pub storage: String,
    /// Who runs it.
    pub runner: Runner,
    /// How its command ends.
    pub ending: Ending,
    /// Options of `elbow run`, a line each.
    pub options: Vec<String>,
    /// Who does the calls.
    pub workers: Vec<WorkerIdentity>,
    /// What was there before.
    pub old: Vec<Old>,
    /// Which worker does what, in this order.
    pub steps: Vec<Step>,
}

/// One call of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the worker.
    pub worker: usize,
    /// What it does.
    pub call: Call,
}

/// Who runs the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runner {
    /// Root: workers become who they are.
    #[default]
    Root,
    /// An ordinary user, who is all workers.
    User,
}

/// How the command of the job ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Well: the job is committed.
    #[default]
    Commit,
    /// Not: the job is rolled back.
    Fail,
    /// Well, with workers left behind that still have files open and mapped.
    Leave,
    /// Not the first time, and well when it is run again.
    Retry,
    /// Not: what the job made is kept, and dropped then.
    Keep,
    /// Well, in a mount, which is committed.
    Mount,
    /// Not, in a mount, which is rolled back.
    MountFail,
}

/// Who a worker is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerIdentity {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
}

impl Runner {
    /// Reads how it is written in a script.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Root, Self::User]
            .into_iter()
            .find(|runner| runner.word() == word)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }
}

impl Ending {
    const ALL: [Self; 7] = [
        Self::Commit,
        Self::Fail,
        Self::Leave,
        Self::Retry,
        Self::Keep,
        Self::Mount,
        Self::MountFail,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Fail => "fail",
            Self::Leave => "leave",
            Self::Retry => "retry",
            Self::Keep => "keep",
            Self::Mount => "mount",
            Self::MountFail => "mount-fail",
        }
    }

    /// Whether the command fails, the last time that it is run.
    pub fn fails(self) -> bool {
        matches!(self, Self::Fail | Self::Keep | Self::MountFail)
    }

    /// Whether the command runs in a mount instead of `elbow run`.
    pub fn is_in_mount(self) -> bool {
        matches!(self, Self::Mount | Self::MountFail)
    }
}

impl Case {
    /// Whether something old lets its owner, who is not root, not read or search it.
    pub fn has_closed_objects(&self) -> bool {
        self.old.iter().any(|old| old.is_closed() && old.owner() != Some(0))
    }

    /// Whether somebody sets attributes of symbolic links themselves.
    pub fn sets_links(&self) -> bool {
        let is_of_link = |flags: AtFlags| flags.0 & libc::AT_SYMLINK_NOFOLLOW != 0;
        self.steps.iter().any(|step| match step.call {
            Call::Chown { flags, .. } | Call::Utimens { flags, .. } => is_of_link(flags),
            _ => false,
        })
    }

    /// Whether somebody makes a file empty by its name.
    pub fn empties(&self) -> bool {
        let empties = |call: &Call| matches!(call, Call::Truncate { length: 0, .. });
        self.steps.iter().any(|step| empties(&step.call))
    }

    /// Whether somebody takes a name from something after something was opened, which may be the same.
    pub fn unnames_while_open(&self) -> bool {
        let mut calls = self.steps.iter().map(|step| &step.call);
        calls.any(|call| matches!(call, Call::Open { .. }))
            && calls.any(|call| matches!(call, Call::Unlink { .. } | Call::Rename { .. }))
    }

    /// Whether somebody sets owners.
    pub fn sets_owners(&self) -> bool {
        let sets = |call: &Call| matches!(call, Call::Chown { .. } | Call::Fchown { .. });
        self.steps.iter().any(|step| sets(&step.call))
    }

    /// Whether somebody sets a umask.
    pub fn sets_umask(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.call, Call::Umask { .. }))
    }

    /// Whether somebody makes holes.
    pub fn punches(&self) -> bool {
        let punches =
            |call: &Call| matches!(call, Call::Fallocate { flags, .. } if flags.0 & libc::FALLOC_FL_PUNCH_HOLE != 0);
        self.steps.iter().any(|step| punches(&step.call))
    }

    /// Whether somebody writes to a mapped file.
    pub fn writes_in_memory(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.call, Call::Mapwrite { .. }))
    }

    /// Whether there is a pipe.
    pub fn has_pipes(&self) -> bool {
        let makes = |call: &Call| matches!(call, Call::Mknod { kind: Kind::Fifo, .. });
        let is_pipe = |old: &Old| matches!(old, Old::Fifo { .. });
        self.old.iter().any(is_pipe) || self.steps.iter().any(|step| makes(&step.call))
    }

    /// Whether a file has set-id bits.
    pub fn has_set_ids(&self) -> bool {
        let set = |mode: Bits| mode.0 & 0o6000 != 0;
        let is_set = |old: &Old| matches!(old, Old::File { mode, .. } if set(*mode));
        let sets = |call: &Call| match call {
            Call::Open { mode, .. }
            | Call::Mknod { mode, .. }
            | Call::Chmod { mode, .. }
            | Call::Fchmod { mode, .. } => set(*mode),
            _ => false,
        };
        self.old.iter().any(is_set) || self.steps.iter().any(|step| sets(&step.call))
    }

    /// Whether a file has set-id bits, and somebody sets the owner or the group of something.
    pub fn sets_owners_of_set_ids(&self) -> bool {
        self.has_set_ids() && self.sets_owners()
    }

    /// Whether a file has set-id bits in a job of an ordinary user, and somebody writes to mapped memory.
    pub fn writes_set_ids_in_memory(&self) -> bool {
        self.runner != Runner::Root && self.has_set_ids() && self.writes_in_memory()
    }

    /// Whether a file has set-id bits, and somebody allocates room in one, or makes holes.
    pub fn allocates_in_set_ids(&self) -> bool {
        let allocates = |call: &Call| matches!(call, Call::Fallocate { .. });
        self.has_set_ids() && self.steps.iter().any(|step| allocates(&step.call))
    }

    /// Whether somebody changes what a file holds.
    pub fn changes_content(&self) -> bool {
        let changes = |call: &Call| match call {
            Call::Open { flags, .. } => flags.0 & libc::O_TRUNC != 0,
            Call::Write { .. } | Call::Pwrite { .. } | Call::Writev { .. } | Call::Copy { .. } => true,
            Call::Truncate { .. } | Call::Ftruncate { .. } | Call::Fallocate { .. } => true,
            _ => false,
        };
        self.steps.iter().any(|step| changes(&step.call))
    }

    /// Whether somebody maps files, and locks files by what is open (flock(2), OFD locks).
    pub fn locks_mapped_files(&self) -> bool {
        let has = |is_it: fn(&Call) -> bool| self.steps.iter().any(|step| is_it(&step.call));
        let locks = |call: &Call| matches!(call, Call::Flock { .. } | Call::Ofdlock { .. });
        has(|call| matches!(call, Call::Map { .. })) && has(locks)
    }

    /// Whether somebody takes a name from a file.
    pub fn takes_names(&self) -> bool {
        let takes = |call: &Call| matches!(call, Call::Unlink { .. } | Call::Rename { .. });
        self.steps.iter().any(|step| takes(&step.call))
    }

    /// Whether somebody takes the name from a directory.
    pub fn takes_dirs(&self) -> bool {
        let takes = |call: &Call| matches!(call, Call::Rmdir { .. } | Call::Rename { .. });
        self.steps.iter().any(|step| takes(&step.call))
    }

    /// Whether somebody sets the owner of a symbolic link itself.
    pub fn sets_owners_of_links(&self) -> bool {
        let sets = |call: &Call| matches!(call, Call::Chown { flags, .. } if flags.0 & libc::AT_SYMLINK_NOFOLLOW != 0);
        self.steps.iter().any(|step| sets(&step.call))
    }

    /// Whether somebody gives a directory another group, and makes symbolic links.
    pub fn links_in_new_groups(&self) -> bool {
        let sets = |call: &Call| matches!(call, Call::Chown { gid, .. } | Call::Fchown { gid, .. } if *gid >= 0);
        let makes = |call: &Call| matches!(call, Call::Symlink { .. });
        let does = |is_so: fn(&Call) -> bool| self.steps.iter().any(|step| is_so(&step.call));
        does(sets) && does(makes)
    }

    /// Whether somebody gives an object a list of rights, and one has set-group-id.
    pub fn sets_rights_in_set_group_ids(&self) -> bool {
        let is_set = |old: &Old| match old {
            Old::Dir { mode, .. } | Old::File { mode, .. } | Old::Fifo { mode, .. } => mode.0 & 0o2000 != 0,
            _ => false,
        };
        let sets = |call: &Call| match call {
            Call::Mkdir { mode, .. } | Call::Mknod { mode, .. } => mode.0 & 0o2000 != 0,
            Call::Chmod { mode, .. } | Call::Fchmod { mode, .. } => mode.0 & 0o2000 != 0,
            _ => false,
        };
        let has_set = self.old.iter().any(is_set) || self.steps.iter().any(|step| sets(&step.call));
        let gives = |call: &Call| {
            let access = Which::Access;
            matches!(call, Call::Setacl { which, .. } if *which == access)
        };
        has_set && self.steps.iter().any(|step| gives(&step.call))
    }

    /// Whether somebody makes a directory that its owner may not fill, where an old one gives set-group-id to what is made in it.
    pub fn makes_closed_dirs_in_set_group_ids(&self) -> bool {
        let gives = |old: &Old| matches!(old, Old::Dir { mode, .. } if mode.0 & 0o2000 != 0);
        let makes = |call: &Call| matches!(call, Call::Mkdir { mode, .. } if mode.0 & 0o700 != 0o700);
        self.old.iter().any(gives) && self.steps.iter().any(|step| makes(&step.call))
    }

    /// Whether somebody sets a trusted attribute.
    pub fn sets_trusted(&self) -> bool {
        self.steps.iter().any(|step| match &step.call {
            Call::Setxattr { key, .. } | Call::Fsetxattr { key, .. } => key.0.starts_with(b"trusted."),
            _ => false,
        })
    }

    /// Whether an old directory may not be read by everybody.
    pub fn has_unreadable_dirs(&self) -> bool {
        let is_unreadable = |old: &Old| matches!(old, Old::Dir { mode, .. } if mode.0 & 0o444 != 0o444);
        self.old.iter().any(is_unreadable)
    }

    /// Whether an old file belongs to somebody else than to whom works on the server, who is not root.
    pub fn has_files_of_others(&self) -> bool {
        let server = Storage::of_name(&self.storage).and_then(|storage| match storage.is_by_sftp() {
            // The server of SFTP is started by who runs the job, as whom the workers of an ordinary user work, too.
            true => self
                .workers
                .first()
                .filter(|_| self.runner == Runner::User)
                .map(|worker| worker.uid),
            false => storage.server_ids().map(|(uid, _)| uid),
        });
        let Some(server) = server.filter(|uid| *uid != 0) else {
            return false;
        };
        let is_of_others = |old: &Old| matches!(old, Old::File { uid, .. } if *uid != server);
        self.old.iter().any(is_of_others)
    }

    /// Whether a directory that gives its group to what is made in it takes rights from the owner of that by a default ACL.
    pub fn loses_groups(&self) -> bool {
        let gives = |old: &Old| matches!(old, Old::Dir { mode, .. } if mode.0 & 0o2000 != 0);
        let takes = |old: &Old| match old {
            Old::Acl {
                which: Which::Default,
                entries,
                ..
            } => !entries.0.starts_with(b"u::rwx"),
            _ => false,
        };
        self.old.iter().any(gives) && self.old.iter().any(takes)
    }

    /// Whether an ordinary user's command finds a directory that gives its group to what is made in it, which is none of its groups, and moves things.
    pub fn moves_from_groups_of_others(&self) -> bool {
        let has = |group: u32| {
            let mut workers = self.workers.iter();
            workers.any(|worker| worker.gid == group || worker.groups.contains(&group))
        };
        let gives = |old: &Old| matches!(old, Old::Dir { mode, gid, .. } if mode.0 & 0o2000 != 0 && !has(*gid));
        let moves = |call: &Call| matches!(call, Call::Rename { .. });
        self.runner == Runner::User && self.old.iter().any(gives) && self.steps.iter().any(|step| moves(&step.call))
    }

    /// Whether somebody removes a list of rights where a directory gives its group to what is made in it.
    pub fn removes_lists_in_set_group_ids(&self) -> bool {
        let gives = |old: &Old| matches!(old, Old::Dir { mode, .. } if mode.0 & 0o2000 != 0);
        self.removes_lists() && self.old.iter().any(gives)
    }

    /// The case up to a call, and with it.
    pub fn until(&self, step: usize) -> Self {
        let mut case = self.clone();
        case.steps.truncate(step + 1);
        case
    }

    /// Whether somebody writes to a mapped file, and opens one to append to.
    pub fn appends_in_memory(&self) -> bool {
        let appends = |call: &Call| matches!(call, Call::Open { flags, .. } if flags.0 & libc::O_APPEND != 0);
        self.writes_in_memory() && self.steps.iter().any(|step| appends(&step.call))
    }

    /// Whether somebody takes a name from a file, and has descriptors that only stand for a path (`O_PATH`).
    pub fn opens_paths(&self) -> bool {
        let is_path = |call: &Call| matches!(call, Call::Open { flags, .. } if flags.0 & libc::O_PATH != 0);
        self.takes_names() && self.steps.iter().any(|step| is_path(&step.call))
    }

    /// Whether somebody removes a list of rights, by name or by an empty one.
    pub fn removes_lists(&self) -> bool {
        let is_list = |key: &Name| *key == Name::of("system.posix_acl_access");
        self.steps.iter().any(|step| match &step.call {
            Call::Removexattr { key, .. } | Call::Fremovexattr { key, .. } => is_list(key),
            Call::Setxattr { key, value, .. } | Call::Fsetxattr { key, value, .. } => is_list(key) && value.length == 0,
            _ => false,
        })
    }

    /// Whether something old belongs to somebody else than to the first who works.
    pub fn has_objects_of_others(&self) -> bool {
        let own = self.workers.first().map(|worker| worker.uid);
        let is_of_others = |old: &Old| old.owner().is_some_and(|uid| Some(uid) != own);
        // The directory of the job is root's where the case does not say otherwise.
        let names_top = |old: &Old| old.owner().is_some() && old.name().0 == b".";
        self.old.iter().any(is_of_others) || own != Some(0) && !self.old.iter().any(names_top)
    }

    /// Whether an ordinary user's command is run once more after it was rolled back, and an old directory is somebody else's.
    pub fn is_run_again_among_others(&self) -> bool {
        let own = self.workers.first().map(|worker| worker.uid);
        let is_of_others = |old: &Old| matches!(old, Old::Dir { uid, .. } if Some(*uid) != own);
        self.runner == Runner::User && self.ending == Ending::Retry && self.old.iter().any(is_of_others)
    }

    /// The case as a script.
    pub fn encode(&self) -> String {
        let mut text = format!("{HEADER}\nstorage {}\n", self.storage);
        let _ = writeln!(text, "runner {}\nending {}", self.runner.word(), self.ending.word());
        for option in &self.options {
            let _ = writeln!(text, "option {option}");
        }
        for worker in &self.workers {
            let _ = write!(text, "worker {} {}", worker.uid, worker.gid);
            for group in &worker.groups {
                let _ = write!(text, " {group}");
            }
            text.push('\n');
        }
        for old in &self.old {
            let _ = writeln!(text, "old {}", old.encode());
        }
        for step in &self.steps {
            let _ = writeln!(text, "call {} {}", step.worker, step.call.encode());
        }
        text
    }

    /// Reads a script; empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// The first line that is none of a script, with its number.
    pub fn decode(text: &str) -> Result<Self, String> {
        if text.lines().next() != Some(HEADER) {
            return Err(format!("line 1: a script begins with \"{HEADER}\""));
        }
        let mut case = Self::default();
        for (line, number) in text.lines().zip(1..) {
            if !line.is_empty() && !line.starts_with('#') {
                case.take(line)
                    .ok_or_else(|| format!("line {number}: \"{line}\" is none of a script"))?;
            }
        }
        let known = case.workers.len();
        match case.steps.iter().find(|step| step.worker >= known) {
            Some(step) => Err(format!(
                "\"{}\": there is no worker {}",
                step.call.encode(),
                step.worker
            )),
            None => Ok(case),
        }
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "storage" => rest.clone_into(&mut self.storage),
            "runner" => self.runner = Runner::of_word(rest)?,
            "ending" => {
                self.ending = Ending::ALL.into_iter().find(|ending| ending.word() == rest)?;
            }
            "option" => self.options.push(rest.to_owned()),
            "worker" => {
                let numbers: Option<Vec<u32>> = rest.split(' ').map(|number| number.parse().ok()).collect();
                let [uid, gid, groups @ ..] = &numbers?[..] else {
                    return None;
                };
                self.workers.push(WorkerIdentity {
                    uid: *uid,
                    gid: *gid,
                    groups: groups.to_vec(),
                });
            }
            "old" => self.old.push(Old::decode(rest)?),
            "call" => {
                let (worker, call) = rest.split_once(' ')?;
                self.steps.push(Step {
                    worker: worker.parse().ok()?,
                    call: Call::decode(call)?,
                });
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_back_as_the_case() {
        let text = "# elbow differ 1\nstorage ext4\nrunner user\nending leave\noption --mem 8M\nworker 1001 1001 2000\n\
                    old dir . 0755 0 0\nold file a 0644 1001 1001 100@7\ncall 0 chmod root a 0600 -\n";
        assert_eq!(Case::decode(text).map(|case| case.encode()).as_deref(), Ok(text));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let said = |text: &str| Case::decode(text).expect_err("none of a script");
        assert!(said("storage ext4\n").starts_with("line 1:"));
        assert!(said("# elbow differ 1\n\ncall 0 fly\n").starts_with("line 3:"));
        assert!(said("# elbow differ 1\ncall 0 getcwd\n").contains("no worker 0"));
    }
}
