//! Jobs from options: checked, recovered, begun.

#![allow(clippy::disallowed_methods)] // limits are read from /proc

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use elbow_file::{Errno, Handle, RealStorage, ShowName, Storage};
use elbow_job::{
    Abandoned, Cause, Elsewhere, Job, JobError, Kept, Options, Outcome, RecoverAction, Recovered, SavedJob,
    UnfinishedJob,
};
use elbow_mount::{JobDirectory, MountError, PassedThrough};
use elbow_remote::Ssh;

use crate::cli::{self, JobArgs, ViaArgs};
use crate::job_end::BY_SOMEBODY_ELSE;
use crate::output::{few, strerror};
use crate::process_limits::THREADS_LEAST;
use crate::shown_at::ShownAt;
use crate::via::{Connected, Far, Reached};
use crate::{size, system_memory};

/// Memory for written data, if not said otherwise: this part of RAM, and at most so much.
const MEMORY_SHARE: u64 = 4;
const MEMORY_MAX_BYTES: u64 = 2 << 30;
/// Most bytes of spilled data; the scratch file system sets the real limit.
const SCRATCH_MAX_BYTES: u64 = 1 << 40;

/// Where written data is spilled to: a directory where that works. One that was named has to; without the usual one
/// the job works in memory alone, and there is a sentence that says so.
pub(crate) fn scratch(args: &JobArgs) -> anyhow::Result<(Option<PathBuf>, Option<String>)> {
    let directory = args.scratch.clone().unwrap_or_else(default_scratch);
    let Err(error) = elbow_job::check_scratch(&directory) else {
        return Ok((Some(directory), None));
    };
    let (shown, why) = (
        directory.shown(),
        error.raw_os_error().map_or_else(|| error.to_string(), strerror),
    );
    if args.scratch.is_some() {
        bail!("--scratch {shown}: {why}; name a directory on a local disk where you may write");
    }
    let note = format!(
        "{shown}: {why}; written data stays in memory, and writers wait when that is full (--scratch DIR names a directory \
         for more)"
    );
    Ok((None, Some(note)))
}

/// What is said of less memory than a job can do with.
pub(crate) fn memory_note(args: &JobArgs) -> Option<String> {
    let (asked, least) = (args.mem?, elbow_job::MEMORY_MIN_BYTES);
    let note = || {
        format!(
            "--mem {}: raised to {}, the least that a job works with",
            size::show(asked),
            size::show(least)
        )
    };
    (asked < least).then(note)
}

/// The options of a job.
pub(crate) fn options(args: &JobArgs, scratch: Option<PathBuf>, command: &[OsString]) -> Options {
    Options {
        publish: match args.publish {
            cli::Publish::Staged => elbow_job::Publish::Staged,
            cli::Publish::Eager => elbow_job::Publish::Eager,
        },
        on_conflict: args.on_conflict.into(),
        in_flight: args.in_flight.and_then(|n| usize::try_from(n).ok()),
        memory_bytes: args.mem.unwrap_or_else(default_memory),
        scratch,
        scratch_bytes: SCRATCH_MAX_BYTES,
        save: save_places(args.scratch.as_deref()),
        elsewhere: None,
        durable: args.durable,
        command: command.to_vec(),
        recorder: None,
    }
}

impl From<cli::OnConflict> for elbow_job::OnConflict {
    fn from(asked: cli::OnConflict) -> Self {
        match asked {
            cli::OnConflict::Rollback => Self::RollBack,
            cli::OnConflict::Overwrite => Self::Overwrite,
        }
    }
}

fn default_memory() -> u64 {
    let share = (system_memory::bytes() / MEMORY_SHARE).min(MEMORY_MAX_BYTES);
    share.min(system_memory::most_by_limits(THREADS_LEAST))
}

/// Where results are saved that the storage does not take. Not in $TMPDIR: batch systems remove that when the job has ended.
pub(crate) const SAVE_PLACE: &str = "/var/tmp";

/// The same, after the directory that was named.
fn save_places(scratch: Option<&Path>) -> Vec<PathBuf> {
    // Told, and used by a daemon, which has another current directory.
    let scratch = scratch.map(|scratch| std::path::absolute(scratch).unwrap_or_else(|_| scratch.to_owned()));
    let mut places: Vec<PathBuf> = scratch.into_iter().chain([SAVE_PLACE.into()]).collect();
    places.dedup();
    places
}

fn default_scratch() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// What a conflict may be, too, where two names of one file are two files to a job.
const OR_BY_ANOTHER_NAME: &str = ", or by another name of the same file in this job";

/// A directory that a job can be begun on, again and again.
pub(crate) struct Site {
    pub(crate) place: JobDirectory,
    storage: Arc<dyn Storage>,
    root: Handle,
    pub(crate) reached: Reached,
    /// Where it is, if not here.
    elsewhere: Option<Elsewhere>,
    /// What `--via` has to say to get there again.
    via: Option<String>,
    /// The connection to the storage; it ends before the directory goes that it is shown at.
    connection: Option<Ssh>,
    _shown_at: Option<ShownAt>,
}

/// Whether a mount shows what a storage has: the directory, as far as it can be told by its names and its time.
fn shows_the_same(directory: &Path, far: &Connected) -> bool {
    let here = || {
        let modified = std::fs::metadata(directory).ok()?.mtime();
        let names = std::fs::read_dir(directory).ok()?;
        let names: std::io::Result<BTreeSet<OsString>> = names.map(|entry| Ok(entry?.file_name())).collect();
        Some((modified, names.ok()?))
    };
    let there = || {
        let modified = far.storage.stat_handle(&far.root).ok()?.mtime.seconds;
        let names = far.storage.list(&far.root).ok()?.into_iter().map(|entry| entry.name);
        Some((modified, names.collect::<BTreeSet<OsString>>()))
    };
    here().is_some_and(|here| there() == Some(here))
}

impl Site {
    /// Opens checked directories. This has to happen before anything is mounted over them.
    pub(crate) fn open_all(directories: &[PathBuf]) -> Result<Vec<Self>, MountError> {
        JobDirectory::check_all(directories)?
            .into_iter()
            .map(Self::open)
            .collect()
    }

    /// Opens one directory, which may be reached by ssh.
    pub(crate) fn open_one(directory: &Path, by: &ViaArgs) -> anyhow::Result<Self> {
        let (sites, _) = Self::open_via(&[directory.to_owned()], by, &PassedThrough::default())?;
        sites.into_iter().next().context("no directory")
    }

    /// Opens directories that may be reached by ssh. Gives also what is worth knowing of how.
    pub(crate) fn open_via(
        directories: &[PathBuf],
        by: &ViaArgs,
        passed: &PassedThrough,
    ) -> anyhow::Result<(Vec<Self>, Vec<String>)> {
        let (mut sites, mut notes) = (Vec::new(), Vec::new());
        for (directory, far) in directories.iter().zip(by.of_each(directories)?) {
            let optional = far.as_ref().is_some_and(|far| far.is_optional);
            let through_the_mount =
                |directory: &PathBuf| Ok::<_, anyhow::Error>(Self::open(JobDirectory::check(directory, passed)?)?);
            let Some(far) = far else {
                sites.push(through_the_mount(directory)?);
                continue;
            };
            match Self::connect(directory, &far, by.compresses()) {
                Ok((site, _)) if !optional && passed.within(site.path()).next().is_some() => bail!(
                    "{}: what is passed through goes by the mount, and the job does not; leave out --via, or --pass-through",
                    site.path().shown()
                ),
                Ok((site, how)) => {
                    notes.push(format!("{} is stored {how}", directory.shown()));
                    sites.push(site);
                }
                Err(error) if optional => {
                    notes.push(format!("{} is stored through its mount ({error:#})", directory.shown()));
                    sites.push(through_the_mount(directory)?);
                }
                Err(error) => return Err(error),
            }
        }
        let places: Vec<JobDirectory> = sites.iter().map(|site| site.place.clone()).collect();
        JobDirectory::lie_apart(&places)?;
        Ok((sites, notes))
    }

    /// Gives also how it is reached, in words.
    fn connect(directory: &Path, far: &Far, compresses: bool) -> anyhow::Result<(Self, String)> {
        let shown_at = ShownAt::claim(directory)?;
        let place = JobDirectory::of_elsewhere(directory)?;
        let connected = far.connect(compresses)?;
        if far.is_optional && !shows_the_same(directory, &connected) {
            // The mount may go by another port, or to another machine of that name.
            bail!("{}: what is there is not what the mount shows", far.target);
        }
        let site = Self {
            place,
            root: connected.root,
            storage: connected.storage,
            reached: connected.reached,
            elsewhere: Some(connected.elsewhere),
            via: Some(far.address()),
            connection: Some(connected.connection),
            _shown_at: Some(shown_at),
        };
        Ok((site, connected.note))
    }

    fn open(place: JobDirectory) -> Result<Self, MountError> {
        let root = RealStorage::open_root(place.path()).map_err(|errno| MountError::Unreachable {
            path: place.path().to_owned(),
            errno,
        })?;
        Ok(Self {
            place,
            storage: Arc::new(RealStorage),
            root,
            reached: Reached::Mount,
            elsewhere: None,
            via: None,
            connection: None,
            _shown_at: None,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Ends the connection at once, whatever is under way.
    pub(crate) fn hang_up(&self) {
        self.connection.iter().for_each(Ssh::hang_up);
    }

    /// Says why nothing can be stored there, where nobody has looked at it yet: an SFTP server knows only when it is asked to.
    pub(crate) fn check_writable(&self) -> anyhow::Result<()> {
        let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| self.reached == Reached::Sftp) else {
            return Ok(());
        };
        let path = Path::new(&elsewhere.machine).join(elsewhere.path.strip_prefix("/").unwrap_or(&elsewhere.path));
        match elbow_job::try_writing(&*self.storage, &self.root) {
            Err(Errno::ROFS) => Err(MountError::ReadOnly(path).into()),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(MountError::Unwritable { path, errno }.into()),
            // It is not said that a job cannot do better: there may be room later.
            _ => Ok(()),
        }
    }

    /// A text in which commands go the way that this one went.
    pub(crate) fn told(&self, text: &str) -> String {
        let Some(via) = &self.via else {
            return text.to_owned();
        };
        let (shown, quoted) = (self.path().shown().to_string(), quoted(self.path()));
        let tell = |text: String, command: &str| {
            let plain = format!("{command} {quoted}");
            let text = text.replace(&format!("{command} {shown}"), &plain);
            text.replace(&plain, &format!("{plain} --via {via}"))
        };
        let text = match self.reached {
            // Which names are those of one file is not said there.
            Reached::Sftp if !text.contains(OR_BY_ANOTHER_NAME) => {
                text.replace(BY_SOMEBODY_ELSE, &format!("{BY_SOMEBODY_ELSE}{OR_BY_ANOTHER_NAME}"))
            }
            _ => text.to_owned(),
        };
        ["elbow recover", "elbow resume"]
            .iter()
            .fold(text, |text, command| tell(text, command))
    }

    /// Its storage, and the directory there.
    pub(crate) fn storage(&self) -> (&Arc<dyn Storage>, &Handle) {
        (&self.storage, &self.root)
    }

    /// Something open on its storage, where that is here.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (self.reached == Reached::Mount).then(|| self.root.as_fd())
    }

    /// Ends dead jobs of the directory.
    pub(crate) fn recover(&self, force: bool) -> anyhow::Result<Vec<Recovered>> {
        let found = elbow_job::recover(&self.storage, &self.root, force);
        let found = found.map_err(|error| located(error, self.path()));
        let mut found = found.with_context(|| format!("{}: cannot look for dead jobs", self.path().shown()))?;
        found
            .iter_mut()
            .for_each(|job| job.message = self.told(&named(&job.message, self.path())));
        Ok(found)
    }

    /// Removes what dead jobs left below the directory in directories that were moved meanwhile.
    pub(crate) fn recover_orphans(&self, force: bool) -> anyhow::Result<Vec<Recovered>> {
        // Elsewhere nothing above is to be seen.
        let is_here = self.reached == Reached::Mount;
        let above = self.path().ancestors().skip(1).filter(|_| is_here);
        let above: Vec<_> = above.filter_map(|dir| RealStorage::open_root(dir).ok()).collect();
        elbow_job::recover_orphans(&self.storage, &self.root, &above, force)
            .map_err(|error| located(error, self.path()))
            .with_context(|| format!("{}: cannot search for what dead jobs left", self.path().shown()))
    }

    /// Removes kept jobs of the directory, and what was saved of them; each is named as it is listed, or by the path of its staging directory.
    pub(crate) fn drop_kept(&self, jobs: &[PathBuf], scratch: Option<&Path>) -> anyhow::Result<Vec<Recovered>> {
        let names = jobs
            .iter()
            .map(|job| self.name_of(job, "dropped"))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let saved = self
            .saved(scratch)
            .into_iter()
            .filter(|saved| names.contains(&saved.job));
        let saved: Vec<SavedJob> = saved.collect();
        if saved.iter().any(|saved| saved.is_left) {
            // One that could not be marked as kept is, from here on.
            self.recover(false)?;
        }
        // Where the directory is: its name here may be that of an empty directory.
        let is_only_saved = |name: &OsString| {
            let is_gone = || self.storage.stat(&self.root, name).err() == Some(Errno::NOENT);
            saved.iter().any(|saved| saved.job == *name) && is_gone()
        };
        let (only_saved, kept): (Vec<_>, Vec<_>) = names.into_iter().partition(is_only_saved);
        let dropped =
            elbow_job::drop_kept(&self.storage, &self.root, &kept).map_err(|error| located(error, self.path()));
        let mut dropped = dropped.with_context(|| format!("{}: cannot drop kept jobs", self.path().shown()))?;
        for saved in &saved {
            elbow_job::drop_saved(&saved.path)?;
        }
        let saved = saved.into_iter().filter(|saved| only_saved.contains(&saved.job));
        dropped.extend(saved.map(|saved| Recovered {
            job: saved.job.to_string_lossy().into_owned(),
            action: RecoverAction::Dropped,
            command: saved.command,
            message: "it had been kept, and was dropped: nothing of it is left".into(),
        }));
        Ok(dropped)
    }

    /// What was saved elsewhere of jobs of the directory, because the storage did not take it: in the directory that is named, the usual one, or where the
    /// jobs say.
    pub(crate) fn saved(&self, scratch: Option<&Path>) -> Vec<SavedJob> {
        let (places, elsewhere) = (self.places(scratch), self.elsewhere.as_ref());
        elbow_job::saved_jobs(&self.storage, &self.root, self.path(), elsewhere, &places)
    }

    /// Where other versions have saved something in these places, of this directory or others.
    pub(crate) fn saved_by_other_versions(&self, scratch: Option<&Path>) -> Vec<PathBuf> {
        elbow_job::saved_by_other_versions(&self.places(scratch))
    }

    fn places(&self, scratch: Option<&Path>) -> Vec<PathBuf> {
        let mut places = save_places(scratch);
        places.extend(elbow_job::save_places(&self.storage, &self.root));
        places.sort();
        places.dedup();
        places
    }

    /// Brings what was saved of a job back; how the job is if that cannot be done.
    pub(crate) fn restore(&self, saved: &SavedJob) -> Result<(), Result<Outcome, JobError>> {
        let restored = elbow_job::restore(
            &self.storage,
            &self.root,
            self.path(),
            self.elsewhere.as_ref(),
            &saved.path,
        );
        restored.map(drop).map_err(|error| match located(error, self.path()) {
            // It is as it was, and can be tried again.
            error @ JobError::Storage { .. } => {
                let is_there = self.storage.stat(&self.root, &saved.job).is_ok();
                let kept = Kept {
                    path: self.path().join(&saved.job),
                    is_whole: true,
                    is_all_saved: saved.is_all && !is_there,
                    missing: Vec::new(),
                    saved: Some(saved.path.clone()),
                };
                Ok(Outcome::Kept(Cause::Storage(error.to_string()), kept))
            }
            error => Err(error),
        })
    }

    /// Looks at all that jobs have left in the directory.
    pub(crate) fn show(&self) -> anyhow::Result<Vec<UnfinishedJob>> {
        let found = elbow_job::show(&self.storage, &self.root).map_err(|error| located(error, self.path()));
        found.with_context(|| format!("{}: cannot look for jobs", self.path().shown()))
    }

    /// Commits a kept job.
    pub(crate) fn resume(&self, job: &OsStr, on_conflict: cli::OnConflict) -> Result<Outcome, JobError> {
        let ended = elbow_job::resume(&self.storage, &self.root, job, on_conflict.into());
        match ended.map_err(|error| located(error, self.path()))? {
            Outcome::Kept(cause, kept) => {
                let path = self.path().join(&kept.path);
                Ok(Outcome::Kept(cause, Kept { path, ..kept }))
            }
            other => Ok(other),
        }
    }

    /// Tries jobs again, one by one.
    pub(crate) fn retry(&self, jobs: &[PathBuf], force: bool) -> anyhow::Result<Vec<Recovered>> {
        let retry = |job: &PathBuf| {
            let found = elbow_job::retry(&self.storage, &self.root, &self.name_of(job, "changed")?, force);
            let found = found.map_err(|error| located(error, self.path()));
            let mut found = found.with_context(|| format!("{}: cannot try a job again", self.path().shown()))?;
            found.message = self.told(&named(&found.message, self.path()));
            Ok(found)
        };
        jobs.iter().map(retry).collect()
    }

    /// Gives jobs up, one by one.
    pub(crate) fn abandon(&self, jobs: &[PathBuf]) -> anyhow::Result<Vec<Abandoned>> {
        let abandon = |job: &PathBuf| {
            let found = elbow_job::abandon(&self.storage, &self.root, &self.name_of(job, "changed")?);
            let found = found.map_err(|error| located(error, self.path()));
            found.with_context(|| format!("{}: cannot give up a job", self.path().shown()))
        };
        jobs.iter().map(abandon).collect()
    }

    /// The name of a job that is named by that or by its path; what was not `done` if it is elsewhere.
    pub(crate) fn name_of(&self, job: &Path, done: &str) -> anyhow::Result<OsString> {
        let name = job
            .file_name()
            .with_context(|| format!("{}: no name of a job", job.shown()))?;
        let above = job.parent().filter(|above| !above.as_os_str().is_empty());
        if let Some(above) = above
            && above.canonicalize().ok().as_deref() != Some(self.path())
        {
            bail!("{}: not in {}; nothing was {done}", job.shown(), self.path().shown());
        }
        Ok(name.to_owned())
    }

    /// Begins a job.
    pub(crate) fn begin(&self, options: Options) -> anyhow::Result<Job> {
        let options = Options {
            elsewhere: self.elsewhere.clone(),
            ..options
        };
        Ok(Job::begin(
            self.storage.clone(),
            self.root.clone(),
            self.path(),
            options,
        )?)
    }
}

/// Recovery knows the directory as `.`, and what is in it by paths below that; people and programs know it by its own.
fn located(error: JobError, directory: &Path) -> JobError {
    let below = |path: PathBuf| match path.strip_prefix(".") {
        Ok(rest) if rest.as_os_str().is_empty() => directory.to_owned(),
        Ok(rest) => directory.join(rest),
        Err(_) => directory.join(path),
    };
    match error {
        JobError::Storage { tried, path, errno } => JobError::Storage {
            tried,
            path: below(path),
            errno,
        },
        JobError::Damaged { path, found } => JobError::Damaged {
            path: below(path),
            found,
        },
        JobError::Unfinished {
            failed,
            first,
            directory: path,
        } => JobError::Unfinished {
            failed,
            first,
            directory: below(path),
        },
        other => other,
    }
}

/// The same in what it has said of a job.
fn named(message: &str, directory: &Path) -> String {
    let told = |command: &str| {
        (
            format!("`elbow {command} .`"),
            format!("`elbow {command} {}`", quoted(directory)),
        )
    };
    let (recover, resume) = (told("recover"), told("resume"));
    message
        .replace(" .: ", &format!(" {}: ", directory.shown()))
        .replace(&recover.0, &recover.1)
        .replace(&resume.0, &resume.1)
}

/// What is said of dead jobs before a new one begins: running ones and those of others are nobody's concern, kept ones are
/// told in one line.
pub(crate) fn recovered_lines(site: &Site, found: &[Recovered]) -> Vec<String> {
    let is_silent = |action| {
        matches!(
            action,
            RecoverAction::Running | RecoverAction::Kept | RecoverAction::NotOurs
        )
    };
    let is_told = |job: &&Recovered| !is_silent(job.action);
    let ended = found.iter().filter(is_told);
    ended
        .map(|job| format!("{}: {}", name_of(site, job), job.message))
        .collect()
}

/// What a job is called in what is said of it. One that could not be ended is a path, for somebody will have to look at it.
pub(crate) fn name_of(site: &Site, job: &Recovered) -> String {
    match job.action {
        RecoverAction::Failed => site.path().join(&job.job).shown().to_string(),
        _ => job.job.clone(),
    }
}

/// What is said of kept jobs before a new one begins, if there are any.
pub(crate) fn kept_line(site: &Site, found: &[Recovered]) -> Option<String> {
    /// More than these make a line unreadable.
    const SHOWN: usize = 4;
    let kept = found.iter().filter(|job| job.action == RecoverAction::Kept);
    let kept: Vec<&str> = kept.map(|job| job.job.as_str()).collect();
    let names = few(kept.iter().map(ToString::to_string), SHOWN);
    let directory = quoted(site.path());
    let line = format!(
        "kept since earlier: {names}; why, and what goes on: elbow recover {directory} --show; to remove one: elbow recover {directory} --drop NAME"
    );
    (!kept.is_empty()).then(|| site.told(&line))
}

/// What goes on with the kept jobs of a directory, to be typed as it is.
pub(crate) fn resume_command(directory: &Path, saved: Option<&Path>) -> String {
    format!("elbow resume {}{}", quoted(directory), scratch_option(saved))
}

/// What removes a kept job, to be typed as it is.
pub(crate) fn drop_command(directory: &Path, name: &str, saved: Option<&Path>) -> String {
    format!(
        "elbow recover {} --drop {name}{}",
        quoted(directory),
        scratch_option(saved)
    )
}

/// The option that names the directory in which something was saved, where that is not the usual one.
fn scratch_option(saved: Option<&Path>) -> String {
    let place = saved
        .and_then(Path::parent)
        .filter(|place| *place != Path::new(SAVE_PLACE));
    place
        .map(|place| format!(" --scratch {}", quoted(place)))
        .unwrap_or_default()
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let plain = path.to_str().filter(|path| !path.contains(char::is_control));
    let quoted = plain.and_then(|path| shlex::try_quote(path).ok());
    // As bash(1), ksh and POSIX of 2024 have it.
    quoted.map_or_else(
        || format!("$'{}'", path.shown().to_string().replace('\'', "\\'")),
        Into::into,
    )
}
