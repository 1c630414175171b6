//! One case, natively and as a job, each on its own copy of the old tree.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::actor::{ActorInput, BROKEN_CODE, last_run, make_log};
use super::case::{Case, Ending, Runner};
use super::compare::{Finding, Run, compare};
use super::draw::ordinary;
use super::ground::{Place, StorageHost, write_script};
use super::look::{decode_view, look};
use super::old;
use super::plant::Bug;
use crate::reachable::Reachable;

/// After this a run is taken for lost: several times what the slowest one takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The programs of a trial, where every user can start them.
#[derive(Clone, Debug)]
pub struct Programs {
    elbow: Arc<Reachable>,
    actor: Arc<Reachable>,
    arguments: Vec<String>,
    /// A bug to plant in the job's workers.
    pub bug: Option<Bug>,
    /// Variables of the environment of all that is started.
    environment: Vec<(&'static str, OsString)>,
}

impl Programs {
    /// The `elbow` under test, and what plays a case when its environment has orders: a program and its arguments.
    ///
    /// # Errors
    /// What putting them where everybody can start them says.
    pub fn new(elbow: &Path, actor: &Path, arguments: &[&str]) -> io::Result<Self> {
        Ok(Self {
            elbow: Arc::new(Reachable::new(elbow)?),
            actor: Arc::new(Reachable::new(actor)?),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            bug: None,
            environment: Vec::new(),
        })
    }

    /// Lets `elbow run` reach its directory by ssh. A script stands for that, which is put at a path where everybody may run it: what is run as the far
    /// end is on this machine, and has the same directory.
    ///
    /// # Errors
    /// What writing the script says.
    pub fn by_ssh(&mut self, script: &Path) -> io::Result<()> {
        write_script(script, "for last; do :; done\ncd / && exec sh -c \"$last\"")?;
        self.environment = vec![
            ("ELBOW_VIA", "ssh://here".into()),
            ("ELBOW_SSH", script.into()),
            ("ELBOW_VIA_PROGRAM", self.elbow.path().into()),
        ];
        Ok(())
    }
}

/// Both runs of a case.
#[derive(Debug)]
pub struct Trial {
    /// Without a job.
    pub native: Run,
    /// In a job.
    pub job: Run,
}

impl Trial {
    /// Runs a case on the storage of a lab; `name` is that of no other trial under way there.
    ///
    /// # Errors
    /// What the lab says; [`io::ErrorKind::Unsupported`] when the case cannot be played (a worker may not enter the tree). What the job
    /// does wrong is no error.
    pub fn run(case: &Case, test_storage: &StorageHost, programs: &Programs, name: &str) -> io::Result<Self> {
        let stage = Stage::begin(case, test_storage, programs, name)?;
        let native = stage.run(None)?;
        if native.code == Some(BROKEN_CODE) {
            fs::remove_dir_all(&stage.dir)?;
            let why = format!("the case cannot be played: {}", native.said.trim());
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let trial = Ok(Self {
            native,
            job: stage.run(programs.bug.map_or(Some(None), |bug| Some(Some(bug))))?,
        });
        fs::remove_dir_all(&stage.dir)?;
        trial
    }

    /// The same job beside another native run: what the two then no longer differ in, the native system itself does not answer the same twice.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn beside_another(
        self,
        case: &Case,
        test_storage: &StorageHost,
        programs: &Programs,
        name: &str,
    ) -> io::Result<Self> {
        let stage = Stage::begin(case, test_storage, programs, name)?;
        let native = stage.run(None)?;
        fs::remove_dir_all(&stage.dir)?;
        Ok(Self { native, ..self })
    }

    /// What differs.
    pub fn findings(&self, case: &Case) -> Vec<Finding> {
        compare(case, &self.native, &self.job)
    }
}

struct Stage<'a> {
    case: &'a Case,
    programs: &'a Programs,
    test_storage: &'a StorageHost,
    dir: PathBuf,
}

impl<'a> Stage<'a> {
    fn begin(case: &'a Case, test_storage: &'a StorageHost, programs: &'a Programs, name: &str) -> io::Result<Self> {
        let dir = test_storage.path(name);
        fs::create_dir(&dir)?;
        fs::write(dir.join("script"), case.encode())?;
        Ok(Self {
            case,
            programs,
            test_storage,
            dir,
        })
    }

    /// A native run, or a job with a bug or none.
    fn run(&self, job: Option<Option<Bug>>) -> io::Result<Run> {
        let place = self
            .test_storage
            .place(|root| old::make(root, &self.case.old, self.test_storage.storage().nanoseconds()))?;
        let before = look(&place.stored);
        let kind = if job.is_some() { "job" } else { "native" };
        let (log, said) = (self.dir.join(kind), self.dir.join(format!("{kind}-said")));
        make_log(&log)?;
        let root = self.root(&place, job.is_some())?;
        let actor_input = ActorInput {
            script: self.dir.join("script"),
            root: root.clone(),
            log: log.clone(),
            bug: job.flatten(),
            fails_first: job.is_some() && self.case.ending == Ending::Retry,
        };
        let mut command = self.command(&self.words(&place, &root, job.is_some()));
        command
            .envs(actor_input.to_environment())
            .env("TMPDIR", self.test_storage.path("scratch"));
        let code = self.finish(&mut command, &said)?;
        if job.is_some() && self.case.ending == Ending::Keep {
            self.drop_kept(&place)?;
        }
        let log = fs::read_to_string(&log)?;
        let log = last_run(&log);
        Ok(Run {
            answers: log
                .lines()
                .filter(|line| !line.starts_with("= "))
                .filter_map(answer)
                .collect(),
            inside: decode_view(log.lines().filter_map(|line| line.strip_prefix("= "))),
            before,
            after: look(&place.stored),
            code,
            said: fs::read_to_string(&said)?,
        })
    }

    /// The directory that the case is played in. A user's own sshfs lets nobody else in, root among them, and so not fusermount3: what is mounted
    /// there gets another place.
    fn root(&self, place: &Place, is_job: bool) -> io::Result<PathBuf> {
        if !is_job || !self.case.ending.is_in_mount() || !self.test_storage.storage().is_far() {
            return Ok(place.work.clone());
        }
        let root = self.dir.join("mount");
        fs::create_dir(&root)?;
        if self.case.runner == Runner::User {
            let person = ordinary();
            std::os::unix::fs::chown(&root, Some(person.uid), Some(person.gid))?;
        }
        Ok(root)
    }

    /// What plays the case, natively or as a job.
    fn words(&self, place: &Place, root: &Path, is_job: bool) -> Vec<String> {
        let mut actor = vec![text(self.programs.actor.path())];
        actor.extend(self.programs.arguments.iter().cloned());
        let elbow = text(self.programs.elbow.path());
        let work = text(&place.work);
        // What is saved of results that the storage refuses goes with the lab.
        let mut options = vec!["--scratch".to_owned(), text(&self.test_storage.path("scratch"))];
        let drawn = self.case.options.iter().flat_map(|option| option.split(' '));
        options.extend(drawn.map(str::to_owned));
        match self.case.ending {
            _ if !is_job => actor,
            ending if ending.is_in_mount() => {
                // None of the words has blanks.
                let (options, actor, root) = (options.join(" "), actor.join(" "), text(root));
                let script = format!(
                    "{elbow} mount {options} {work} {root} || exit
                    {actor} && exec {elbow} commit {root}
                    code=$?; {elbow} rollback {root} && exit $code"
                );
                vec!["sh".to_owned(), "-c".to_owned(), script]
            }
            ending => {
                options.extend(match ending {
                    Ending::Retry => vec!["--retry".to_owned(), "1".to_owned()],
                    Ending::Keep => vec!["--keep".to_owned()],
                    _ => Vec::new(),
                });
                let run = [elbow, "run".to_owned(), "--on".to_owned(), work];
                [&run, &options[..], &["--".to_owned()], &actor].concat()
            }
        }
    }

    /// Removes what a job has kept.
    fn drop_kept(&self, place: &Place) -> io::Result<()> {
        // A user's own sshfs lets nobody else look.
        let names = fs::read_dir(&place.stored)?
            .filter_map(Result::ok)
            .map(|entry| entry.file_name());
        for name in names.filter(|name| name.to_string_lossy().starts_with(".elbow-")) {
            let drop = [
                text(self.programs.elbow.path()),
                "recover".to_owned(),
                text(&place.work),
                "--drop".to_owned(),
                name.to_string_lossy().into_owned(),
            ];
            // What is refused is seen by what is left.
            self.command(&drop).output()?;
        }
        Ok(())
    }

    /// A command of whoever runs the case.
    fn command(&self, words: &[String]) -> Command {
        let mut who: Vec<String> = Vec::new();
        if self.case.runner == Runner::User {
            let person = ordinary();
            let groups: Vec<String> = person.groups.iter().map(u32::to_string).collect();
            let (uid, gid, groups) = (person.uid.to_string(), person.gid.to_string(), groups.join(","));
            let setpriv = [
                "setpriv",
                "--reuid",
                &uid,
                "--regid",
                &gid,
                "--groups",
                &groups,
                "--inh-caps=-all",
            ];
            who.extend(setpriv.map(str::to_owned));
        }
        who.extend_from_slice(words);
        let mut command = Command::new(&who[0]);
        command
            .args(&who[1..])
            .envs(self.programs.environment.iter().map(|(name, value)| (name, value)))
            .envs(self.test_storage.environment())
            .current_dir("/"); // Whoever it is may go there.
        command
    }

    /// Runs a command to its end; `None` when it does not come to it.
    fn finish(&self, command: &mut Command, said: &Path) -> io::Result<Option<i32>> {
        use std::os::unix::process::{CommandExt, ExitStatusExt};
        let (input, keep_open) = io::pipe()?;
        let (all_ended, output) = io::pipe()?;
        let said = File::create(said)?;
        let mut child = command
            .stdin(input)
            .stdout(output)
            .stderr(said)
            .process_group(0)
            .spawn()?;
        // It has the other ends of the pipes, too.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let ended = wait(&mut child)?;
        // Workers that were left behind end when they see this. What they have written in memory is stored at the latest when they have ended.
        drop::<PipeWriter>(keep_open);
        let ended = match ended {
            Some(status) if closes(&all_ended)? => Some(status),
            _ => None,
        };
        let code = |status: ExitStatus| {
            status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
        };
        Ok(ended.map(code))
    }
}

/// The answer in a line of a log.
fn answer(line: &str) -> Option<String> {
    line.split_once(' ').map(|(_, said)| said.to_owned())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Waits, but not for ever.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    if happens(&fd, PollFlags::IN)? {
        return child.wait().map(Some);
    }
    child.kill()?;
    let _ = kill_process_group(pid, Signal::KILL);
    child.wait()?;
    Ok(None)
}

/// Waits until nobody has the other end of a pipe any more, but not for ever.
fn closes(pipe: &PipeReader) -> io::Result<bool> {
    happens(pipe, PollFlags::empty())
}

fn happens(fd: &impl AsFd, what: PollFlags) -> io::Result<bool> {
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    Ok(poll(&mut [PollFd::new(fd, what)], Some(&patience))? > 0)
}
