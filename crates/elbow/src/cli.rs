//! What can be asked for on the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::holes_args;
use crate::report_file::ReportTarget;
use crate::size;
use crate::via::{Far, Via};

const EXAMPLES: &str = "\
Examples:
  Unpack into the current directory, all or nothing:
      elbow run -- tar xf dataset.tar

  Only what happens below results/ is the transaction:
      elbow run --on results -- ./simulate

  The same as an ordinary mount, for several commands; `elbow commit` ends it:
      elbow mount /project/alice ~/job

  After a crash, finish what was committed and undo the rest:
      elbow recover /project/alice

  Look for a fault: each request, action and phase in a file:
      ELBOW_LOG=debug ELBOW_LOG_FILE=/tmp/elbow.log elbow run -- make

  What was this built from, and with which libraries?
      elbow --version --verbose";

const RUN_EXAMPLES: &str = "\
Examples:
  Unpack into the current directory; if it fails half-way, nothing is left behind:
      elbow run -- tar xf dataset.tar

  A pipeline, a `cd` or several commands need a shell, as with env(1) or sudo(8):
      elbow run -- sh -c './configure && make -j8 && make check'

  Another directory, or several (each one a transaction; committed in this order):
      elbow run --on /project/in --on /scratch/out -- ./convert

  Follow a log while the job runs; it is still taken back if the job fails:
      elbow run --publish eager -- ./simulate &
      tail -F run.log

  Checkpoints and logs that are to stay whatever becomes of the job:
      elbow run --pass-through checkpoints --pass-through logs -- ./simulate

  In a batch script: start over up to twice, and spill to the node's own disk:
      elbow run --retry 2 --scratch \"$TMPDIR\" --on \"$RESULTS\" -- ./flaky.sh

Exit code:
  That of COMMAND; 125 when Elbowroom failed, or could not store the results of a COMMAND that had succeeded; 126 when COMMAND \
  cannot be run, 127 when it was not found, 128+n when signal n ended it.

Signals:
  Ctrl-C reaches COMMAND as always; when that ends it, the job is rolled back. Any other signal that is sent to elbow alone is \
  passed on to COMMAND, also what batch systems send before the end, SIGABRT and SIGTSTP; one \
  that the whole process group got is not passed on a second time. While results are being stored, SIGINT, SIGTERM and SIGHUP \
  roll the job back, and the others change nothing.

  Not passed on are SIGKILL and SIGSTOP, those of a mistake of elbow itself (SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, \
  SIGTRAP), SIGPIPE, SIGCHLD, SIGTTIN and SIGTTOU.

COMMAND sees its own changes at once. The rest of the machine sees them when `elbow run` returns, or never.";

const MOUNT_EXAMPLES: &str = "\
Examples:
  Work in it with any commands:
      elbow mount /project/alice ~/job
      cd ~/job && make && ./test

  What is going on, and what a commit would change:
      elbow status ~/job
      elbow diff ~/job

  Store all of it and unmount, or forget all of it:
      cd && elbow commit ~/job
      cd && elbow rollback ~/job

The mount stays until one of the last two: a plain umount answers that it is busy, so that nothing is lost by \
accident. After `umount -l` (lazy or forced) everything is committed.";

const COMMIT_EXAMPLES: &str = "\
Examples:
  Go on only when all of it is on the storage:
      elbow commit ~/job && echo 'all of it is on the storage'

Returns when everything is on the storage and the mount is gone. A job of `elbow run` commits when its command has ended with 0, \
and not before.

Exit code:
  0; 125 when that was not possible, and the job is kept for elbow-resume(1) or rolled back. Each error is named with its path.";

const RECOVER_EXAMPLES: &str = "\
Examples:
  What has any job left here, and why? Nothing is changed:
      elbow recover --show /project/alice

  End the dead jobs of this machine:
      elbow recover /project/alice

  Also those of other machines of which nobody can tell; make sure that they are dead:
      elbow recover --force /project/alice

  Try one again that could not be finished, when the cause is gone:
      elbow recover . --retry .elbow-1f2e3d4c5b6a7988-1763807484.000000005

  Give up one that can be neither finished nor taken back:
      elbow recover . --abandon .elbow-1f2e3d4c5b6a7988-1763807484.000000005

  Remove a kept job, by its name as it is listed:
      elbow recover . --drop .elbow-1f2e3d4c5b6a7988-1763807484.000000005

A job that had reached its commit point is finished, any other is undone; running jobs, kept ones and those of other \
users are left alone. \
The next `elbow run` on the directory does the same by itself.

A commit that the storage refuses half-way is taken back. Where even that is refused, the job is stuck: it blocks nobody, and each recovery tries it again. \
--abandon takes back what can be, names each path that stays as the job made it, and keeps what there was before in the staging directory.";

/// Run any command as one transaction on slow or shared storage.
///
/// Its file operations are answered from memory and carried out in the background, many at a time. When the command
/// succeeds, all its changes appear in the directory; when it fails, none does. Besides: sort a file within its own
/// disk space, free parts of files, lock bytes of files, simulate a disk.
#[derive(Debug, Parser)]
#[command(name = "elbow", version, disable_version_flag = true, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print the version; with --verbose behind it also commit, compiler and libraries, with --json the same for programs.
    #[arg(long, short = 'V', action = ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command whose changes to a directory all appear when it succeeds, and none when it fails.
    #[command(after_help = RUN_EXAMPLES, override_usage = "elbow run [OPTIONS] -- COMMAND [ARGS]...")]
    Run(RunArgs),
    /// Mount a directory so that all that any commands do there is one transaction, until `elbow commit` or `rollback`.
    #[command(after_help = MOUNT_EXAMPLES)]
    Mount(MountArgs),
    /// List the jobs of this user on this machine, running and kept.
    #[command(after_help = crate::jobs::EXAMPLES)]
    Jobs(JobsArgs),
    /// Say what a job is doing.
    #[command(after_help = crate::status::EXAMPLES)]
    Status(StatusArgs),
    /// Say what a job waited for, from the trace of `elbow run --trace`.
    #[command(after_help = crate::trace::explain::EXAMPLES)]
    Explain(ExplainArgs),
    /// Store everything that was done in a mount, and unmount it.
    #[command(after_help = COMMIT_EXAMPLES)]
    Commit(EndArgs),
    /// Forget everything that was done in a job, and end it; or remove a kept job.
    #[command(after_help = crate::rollback::EXAMPLES)]
    Rollback(RollbackArgs),
    /// List what a commit of a job would change.
    #[command(after_help = crate::diff::EXAMPLES)]
    Diff(DiffArgs),
    /// Commit kept jobs whose command had succeeded and whose results could not be stored then.
    #[command(after_help = crate::resume::EXAMPLES)]
    Resume(ResumeArgs),
    /// After a crash: finish the jobs of a directory that were being committed, undo the others.
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover(RecoverArgs),
    /// Serve a directory to `elbow run --via` on another machine, over standard input and output.
    #[command(after_help = crate::serve::EXAMPLES)]
    Serve(crate::serve::ServeArgs),
    /// Sort lines of text as sort(1) does, or records of one size, within memory and little disk space.
    #[command(after_help = crate::sort::EXAMPLES, override_usage = "elbow sort [OPTIONS] [FILE]...")]
    Sort(Box<crate::sort::SortArgs>),
    /// Zero a file or ranges of it, and free the blocks behind them.
    #[command(after_help = holes_args::ZERO_EXAMPLES, override_usage = "elbow zero [OPTIONS] FILE [OFFSET LENGTH | --ranges -]")]
    Zero(holes_args::ZeroArgs),
    /// Show where a file has data and where it has holes, or make holes of its zeros.
    #[command(after_help = holes_args::HOLES_EXAMPLES)]
    Holes(holes_args::HolesArgs),
    /// Give a file to a pipe, and free what its reader has finished.
    #[command(after_help = crate::consume::EXAMPLES, override_usage = "elbow consume [OPTIONS] FILE | COMMAND")]
    Consume(crate::consume::ConsumeArgs),
    /// Run the applications of the paper "A Holesome File System" on files that free what was read, and check the results.
    #[command(subcommand, after_help = crate::bench::EXAMPLES)]
    Bench(crate::bench::BenchArgs),
    /// Run commands under locks on bytes of files, and see who holds which.
    #[command(subcommand, after_help = crate::lock::LOCK_EXAMPLES)]
    Lock(crate::lock::LockArgs),
    /// Serve the locks that `elbow lock` takes, for one machine or many.
    #[command(subcommand, after_help = crate::lock::LOCKD_EXAMPLES)]
    Lockd(crate::lock::LockdArgs),
    /// Simulate a rotating disk: how long requests take on it, and why.
    #[command(subcommand, after_help = crate::disk::EXAMPLES)]
    Disk(crate::disk::DiskArgs),
    /// Keep a journal or log in a region whose writes go where the device is quickest.
    #[command(subcommand, after_help = crate::bark::EXAMPLES)]
    Bark(crate::bark::BarkArgs),
    /// Say what works on this machine and on the storage of a directory, and what to do about the rest.
    #[command(after_help = crate::doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show what options are set to by files and variables.
    #[command(subcommand, after_help = crate::config::EXAMPLES)]
    Config(ConfigArgs),
    /// Print shell completions.
    #[command(after_help = crate::completions::EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write all of them to a directory.
    #[command(after_help = crate::man::EXAMPLES)]
    Man(ManArgs),
}

/// How a job works; the same for `run` and `mount`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobArgs {
    /// When new files appear under their own names: at commit, or at once (still taken back on failure).
    #[arg(long, value_enum, default_value_t = Publish::Staged)]
    pub(crate) publish: Publish,
    /// What to do when somebody else changed an old file that the job changed too.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnConflict::Rollback)]
    pub(crate) on_conflict: OnConflict,
    /// Memory for written data, at least 8M [default: a quarter of RAM, at most 2G].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) mem: Option<u64>,
    /// Local directory for written data beyond that, and for results that the storage does not take [default: $TMPDIR or /var/tmp; results: /var/tmp].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) scratch: Option<PathBuf>,
    /// Storage operations under way at once [default: by the measured latency].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) in_flight: Option<u64>,
    /// Make fsync(2) wait until the data is on the storage.
    #[arg(long)]
    pub(crate) durable: bool,
}

fn report_target() -> impl TypedValueParser<Value = ReportTarget> {
    OsStringValueParser::new().try_map(ReportTarget::parse)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Publish {
    /// At commit.
    Staged,
    /// At once.
    Eager,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnConflict {
    /// Commit nothing of it, and name the path.
    Rollback,
    /// Overwrite the other change.
    Overwrite,
}

/// Whether progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal whenever much is left to store; in a pipe or a file after COMMAND has ended.
    Auto,
    /// In a pipe or a file also while COMMAND runs.
    Always,
    /// Not at all.
    Never,
}

/// Whether what goes by ssh is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compress {
    /// Where it makes content shorter, unless the connection takes 250 MB/s.
    #[default]
    Auto,
    /// Not here; ssh may be told to (`Compression yes`).
    Never,
}

/// How a directory is reached.
#[derive(Args, Debug, Default)]
pub(crate) struct ViaArgs {
    /// Reach DIR by ssh instead of through its mount, which need not be there: `ssh://[USER@]HOST[:PORT][/PATH]`; `auto` does so for what sshfs has mounted. By elbow there, or its SFTP server.
    #[arg(long, value_name = "ssh://HOST/PATH|auto", env = "ELBOW_VIA", hide_env = true)]
    via: Option<Via>,

    /// Whether what goes by ssh is compressed.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", requires = "via")]
    compress: Compress,
}

impl ViaArgs {
    /// Where the directories are to be reached, each; `None`: through the mount.
    pub(crate) fn of_each(&self, directories: &[PathBuf]) -> anyhow::Result<Vec<Option<Far>>> {
        self.via.as_ref().unwrap_or(&Via::Mount).of_each(directories)
    }

    /// Whether what is sent may be compressed.
    pub(crate) fn compresses(&self) -> bool {
        self.compress == Compress::Auto
    }
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Directory of the transaction; may be repeated [default: the current directory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) on: Vec<PathBuf>,
    /// Directory in DIR that is no part of the transaction: what COMMAND does there is done at once, and stays; may be repeated.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) pass_through: Vec<PathBuf>,
    /// Whether these are from settings, which may be for other directories too.
    #[arg(skip)]
    pub(crate) pass_through_is_set: bool,
    #[command(flatten)]
    pub(crate) by: ViaArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Run the command up to N times more when it fails, or others have changed what it changes; results that only the storage refused are kept, and not made again.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retry: u32,
    /// When the job fails, keep what it wrote in its staging directory, and say where; it stays until `elbow recover --drop`.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Keep nothing, even if COMMAND succeeded and only the storage refused its results [default: these are kept for `elbow resume`].
    #[arg(long, conflicts_with = "keep")]
    pub(crate) no_keep: bool,
    /// Print one JSON object as the last line of standard error, after all that COMMAND prints there.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write one JSON object to FILE, or to the open descriptor of this number, however the run ends.
    #[arg(long, value_name = "FILE|FD", value_parser = report_target(), value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<ReportTarget>,
    /// Write to FILE what is done and waited for, and when; for `elbow explain` and Perfetto. Better not a file in DIR.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,
    /// Print errors only.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Show what is stored so far: on a terminal in its last row, elsewhere a line every five seconds.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = When::Auto)]
    pub(crate) progress: When,
    /// The command and its arguments.
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct MountArgs {
    /// The directory of the transaction.
    #[arg(value_name = "SRC", value_hint = ValueHint::DirPath)]
    pub(crate) source: PathBuf,
    /// Where to mount it; an existing directory (SRC itself is allowed).
    #[arg(value_name = "MNT", value_hint = ValueHint::DirPath)]
    pub(crate) mount_point: PathBuf,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Stay in the foreground.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Where the daemon tells its parent that the mount is ready (internal).
    #[arg(long, hide = true, value_name = "FD")]
    pub(crate) ready_fd: Option<i32>,
}

/// What can be asked about settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigArgs {
    /// Show what holds for a directory, in the form of a file.
    #[command(after_help = crate::config::EXAMPLES)]
    Show(ConfigShowArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ConfigShowArgs {
    /// The directory whose settings are shown.
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Say behind each value where it is from.
    #[arg(long)]
    pub(crate) origin: bool,
    /// Print one JSON object, with the origins and the files that were looked at.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// The directory whose storage is tried.
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) by: ViaArgs,
    /// Print a JSON array of objects instead: `check`, `state`, `found` and `hint`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write all of it to FILE too, with the system's version and limits; names of users, machines and directories are left out.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) bundle: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct JobsArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// The mount, or the directory of a running job [default: the job around; with --metrics: all jobs].
    #[arg(value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) path: Option<PathBuf>,
    /// Look again once a second until the job has ended; elsewhere than on a terminal, a line each time.
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Print metrics of running jobs as text for Prometheus.
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    pub(crate) metrics: bool,
    /// Print one JSON object; with --watch, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The trace.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EndArgs {
    /// The mount [default: the job around].
    #[arg(value_name = "MNT", value_hint = ValueHint::DirPath)]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) told: EndReportArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RollbackArgs {
    /// The mount, the directory of a running job, or the staging directory of a running or kept one [default: the job around].
    #[arg(value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) told: EndReportArgs,
}

/// How it is told that a job has ended.
#[derive(Args, Debug)]
pub(crate) struct EndReportArgs {
    /// Print one JSON object on standard error, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write one JSON object to FILE, or to the open descriptor of this number, however it ends.
    #[arg(long, value_name = "FILE|FD", value_parser = report_target(), value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<ReportTarget>,
    /// Print errors only.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The mount, or the directory of a running job [default: the job around].
    #[arg(value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) path: Option<PathBuf>,
    /// Also the size and the time of last change of what is there.
    #[arg(long, short)]
    pub(crate) long: bool,
    /// End letters and names with a zero byte each, and show names as they are: LETTER PATH, or R OLD NEW.
    #[arg(long, short = '0', conflicts_with_all = ["long", "json"])]
    pub(crate) null: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// The directory of the jobs, or the staging directory of one.
    #[arg(value_name = "PATH", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) path: PathBuf,
    /// What to do when somebody else changed an old file that the job changed too: leave the job kept, or overwrite the other change.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnConflict::Rollback)]
    pub(crate) on_conflict: OnConflict,
    /// The --scratch of the job, where results are that the storage did not take [default: /var/tmp, and where the jobs say].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) scratch: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) by: ViaArgs,
    #[command(flatten)]
    pub(crate) told: EndReportArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    /// The directory that jobs were run on [default with --show: the current directory].
    #[arg(value_name = "DIR", required_unless_present = "show", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Only list the jobs that left something: how each is, since when, how much it holds, and why.
    #[arg(long, group = "what", conflicts_with = "force")]
    pub(crate) show: bool,
    /// Also end jobs of other hosts, which cannot be seen to be dead from here.
    #[arg(long)]
    pub(crate) force: bool,
    /// Only try this job again: one that could not be finished, or a kept one as `elbow resume` does; may be repeated.
    #[arg(long, value_name = "NAME", group = "what", value_hint = ValueHint::DirPath)]
    pub(crate) retry: Vec<PathBuf>,
    /// Only give up this job, which can be neither finished nor taken back; may be repeated.
    #[arg(long, value_name = "NAME", group = "what", conflicts_with = "force", value_hint = ValueHint::DirPath)]
    pub(crate) abandon: Vec<PathBuf>,
    /// Only remove this kept job: its name as listed, or the path of its staging directory; may be repeated.
    #[arg(long, value_name = "NAME", group = "what", conflicts_with = "force", value_hint = ValueHint::DirPath)]
    pub(crate) drop: Vec<PathBuf>,
    /// The --scratch of kept jobs, where results are that the storage did not take [default: /var/tmp, and where the jobs say].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) scratch: Option<PathBuf>,
    /// Also search all directories below DIR for what dead jobs left in directories that somebody moved meanwhile.
    #[arg(long, conflicts_with = "drop")]
    pub(crate) search: bool,
    #[command(flatten)]
    pub(crate) by: ViaArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

impl RecoverArgs {
    /// The directory.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.as_deref().unwrap_or(std::path::Path::new("."))
    }
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for each subcommand there.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn run_args(words: &[&str]) -> RunArgs {
        match Cli::try_parse_from([&["elbow", "run"], words].concat()).map(|cli| cli.command) {
            Ok(Command::Run(args)) => args,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_the_command_are_left_to_it() {
        let args = run_args(&["--on", "a", "--on=b", "--", "rm", "-rf", "--", "x"]);
        assert_eq!(args.on, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!(args.command, ["rm", "-rf", "--", "x"]);
        assert_eq!(run_args(&["make", "--json", "-j8"]).command, ["make", "--json", "-j8"]);
        assert!(!run_args(&["make", "--json"]).json);
    }

    /// `elbow run --jsn --on a -- true` ran the command `--jsn`, and that over the current directory.
    #[test]
    fn an_unknown_option_is_not_the_command() {
        for words in [
            &["--jsn", "--on", "a", "--", "true"][..],
            &["--on", "a", "-x", "true"],
            &["--keep", "--on"],
            &["-5", "true"],
            &["--"],
            &["--on", "", "--", "true"],
            &["--scratch", "", "--", "true"],
            &["--mem", "0", "--", "true"],
            &["--mem", "1.5", "--", "true"],
            &["--in-flight", "5000", "--", "true"],
            &["--retry", "-1", "--", "true"],
            &["--retry", "1.5", "--", "true"],
            &["--json", "--json", "--", "true"],
            &["--mem", "1G", "--mem", "2G", "--", "true"],
        ] {
            let ended = Cli::try_parse_from([&["elbow", "run"], words].concat());
            assert!(ended.is_err_and(|error| error.use_stderr()), "{words:?}");
        }
        assert_eq!(run_args(&["--", "--jsn", "-x"]).command, ["--jsn", "-x"]);
    }

    #[test]
    fn everything_has_a_default() {
        let args = run_args(&["--", "true"]);
        assert_eq!(
            (args.job.publish, args.job.on_conflict),
            (Publish::Staged, OnConflict::Rollback)
        );
        assert_eq!(
            (args.retry, args.keep, args.job.mem, args.job.in_flight),
            (0, false, None, None)
        );
    }

    #[test]
    fn mistakes_are_usage_errors() {
        for words in [
            &["run"][..],
            &["run", "--mem", "12X", "--", "true"],
            &["run", "--in-flight", "0", "--", "true"],
            &["frob"],
        ] {
            let error = Cli::try_parse_from([&["elbow"], words].concat()).expect_err("a mistake");
            assert!(error.use_stderr(), "{words:?}");
        }
    }
}
