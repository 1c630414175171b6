//! What can be asked for.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use elbow_lock::server::Users;
use elbow_lock::{Address, Identity, LEASE_MS_MIN};

use crate::size;
use crate::size::SizeError;

pub(crate) const LOCK_EXAMPLES: &str = "\
Examples:
  The service that all of these talk to:
      export ELBOW_LOCKS=unix:/run/user/1000/locks

  One at a time:
      elbow lock hold results.db -- ./update results.db

  Only these bytes (offset:length):
      elbow lock hold grid --range 0:4096 --range 8192:4096 -- ./update grid

  The fcntl and flock locks of a program go to the service:
      elbow lock exec --prefix /mnt/share -- sqlite3 /mnt/share/results.db

  Who holds what, and who waits:
      elbow lock top";

pub(crate) const LOCKD_EXAMPLES: &str = "\
Examples:
  For this machine:
      elbow lockd serve --listen unix:/run/locks

  For a cluster:
      elbow lockd serve --listen tcp:0.0.0.0:7700 --key-file KEY";

const SERVE_EXAMPLES: &str = "\
Examples:
  For this machine:
      elbow lockd serve --listen unix:/run/locks

  For a cluster, with metrics:
      head -c 32 /dev/urandom | base64 > KEY && chmod 600 KEY
      elbow lockd serve --listen unix:/run/locks --listen tcp:0.0.0.0:7700 \\
          --key-file KEY --metrics 127.0.0.1:9100

It prints \"listening on ADDRESS\" for each address when it is ready. SIGTERM or Ctrl-C ends it: nothing new is \
granted, locks that are held may be given back for --drain, then it ends.

After a crash the next service grants nothing new for --ttl: those who held locks come back first and hold them \
again. It knows of the crash, and which fencing tokens were given, from the file --state.

Where that file is not there (the first time, or the address has moved to this machine), nothing is granted until \
all that may have been granted before is over: for up to a minute, and at least for --ttl. With --first, and with a Unix \
socket that was not there, there is nothing to wait for. Say --first by hand and once, never in a unit file.

Exit code:
  0 when nobody held anything at the end, 125 otherwise or when it could not begin.";

const PROXY_EXAMPLES: &str = "\
Examples:
  On each node of a cluster:
      elbow lockd proxy --listen unix:/run/locks --server tcp:head:7700 \\
          --key-file KEY

  A command there:
      export ELBOW_LOCKS=unix:/run/locks
      elbow lock hold /project/results.db -- ./update

The proxy renews the lease of all its clients together, knows at once when one of them dies, and keeps locks that \
were given back, so that the same lock again costs no round trip, until somebody else asks for them.";

const HOLD_EXAMPLES: &str = "\
Examples:
  One at a time:
      elbow lock hold results.db -- ./update results.db

  Two ranges, together with others who only read:
      elbow lock hold grid --range 0:4096 --range 8192:4096 --shared \\
          -- ./read grid

  Wait for ten seconds at most:
      elbow lock hold results.db --timeout 10s -- ./update results.db ||
          echo 'too busy, or it failed'

COMMAND finds the lock's fencing token in ELBOW_LOCK_TOKEN, and the service in ELBOW_LOCKS. If the lock is lost while COMMAND runs (the service is \
gone, or heard nothing from us for too long), COMMAND gets SIGTERM and the exit code is 125.

Exit code:
  That of COMMAND; --conflict-exit-code when there was no lock; 125, 126, 127 and 128+n as for `elbow run`.";

const EXEC_EXAMPLES: &str = "\
Examples:
  A database on shared storage:
      elbow lock exec --prefix /mnt/share -- sqlite3 /mnt/share/results.db

  Everything below the current directory, children included:
      elbow lock exec --prefix . -- make -j8

fcntl, lockf and flock locks of COMMAND and its children, on files below DIR, go to the lock service; all others \
to the kernel, as ever. The guide lock-exec says what is different.

Not reached are programs linked statically, for 32 bits or with musl, programs without LD_PRELOAD (env -i), \
set-user-ID programs, and programs that make system calls without libc (those written in Go).

When one of them locks a file below DIR, the call fails with ENOLCK, the process is named, and the exit code is 125; \
--uncovered chooses otherwise. Unless you are root, sudo and its like run without their rights, but for \
--uncovered ignore.

Processes that a daemon starts (srun, ssh, containers) are not seen: put `elbow lock exec` behind such a launcher.

Exit code:
  That of COMMAND, 128 + n after signal n; 125 when the redirect cannot be set up, somebody locked past it, or locks \
were lost; 126 and 127 as for `elbow run`.";

const MPI_EXAMPLES: &str = "\
Examples:
  On this machine:
      elbow lock mpi --server unix:/run/locks -- mpirun -n 8 ./simulate

  On a cluster:
      elbow lock mpi --server tcp:head:7700 --key-file KEY -- srun ./simulate

From MPI_File_set_atomicity(file, 1) on each access locks exactly the bytes that it covers. MPICH 3.1 to 5, Open \
MPI 4 and 5 and the standard MPI ABI, in C, C++, Fortran and Python; programs that are linked statically are not \
reached.

When a rank runs without the library, because LD_PRELOAD was lost on the way or its program is linked statically, \
the others name it in MPI_Init and end the program, and the exit code is 125. It is 125 too when COMMAND succeeds \
and no MPI program had the library. --uncovered ignore allows both.

Exit code:
  That of COMMAND, 128 + n after signal n; 125 when there is no service or no library, or ranks ran without it; 126 \
and 127 as for `elbow run`.";

const STATUS_EXAMPLES: &str = "\
Examples:
  For people:
      elbow lock status --server unix:/run/locks

  Who holds this file, and who waits for it:
      elbow lock status results.db

  For programs:
      elbow lock status --server unix:/run/locks --json | jq .

With FILE each lock is told with its owner, its client (program, process, user or address), its fencing token and how long it \
has been held or waited for. A file that `elbow lock exec --identity inode` locks is called DIR//inode/NUMBER (--name).";

const BREAK_EXAMPLES: &str = "\
Examples:
  Who holds it, and an end to that:
      elbow lock status results.db
      elbow lock break results.db

  Only this one, whatever else it holds:
      elbow lock break results.db --session 17

  Its machine is known to be off:
      elbow lock break results.db --session 17 --force

The session that holds the lock ends, with all its locks, and its program is told at its next look at one of them. Others are granted \
them when that program uses them no more: when it has given them back, has ended, or its lease is over. A program that is stopped, and \
has no lease (Unix sockets without a proxy), keeps them until it goes on or ends.

To break a lock stops no program. With --force the lock is granted to others at once, and two programs may write under it, \
unless the first is known to be dead or the storage looks at fencing tokens: those of later grants are larger.

Root may break locks, the user who runs the service, and the user whose locks they are; over the service's Unix socket. The service \
tells on its standard error who broke what.

Exit code:
  0 when nothing of what was broken is held any more, or nobody held FILE; 1 when its holder was told and has not given it back within \
--wait; 125 when it could not be broken.";

const TOP_EXAMPLES: &str = "\
Examples:
  Look five times a second, until Ctrl-C:
      elbow lock top --server unix:/run/locks --interval 200ms";

/// What clients can do.
#[derive(Debug, Subcommand)]
pub(crate) enum LockArgs {
    /// Run a command whose fcntl, lockf and flock locks go to the lock service.
    #[command(after_help = EXEC_EXAMPLES, override_usage = "elbow lock exec [OPTIONS] --prefix DIR... -- COMMAND [ARGS]...")]
    Exec(ExecArgs),
    /// Run a command while holding a lock on a file, or on some bytes of it.
    #[command(after_help = HOLD_EXAMPLES, override_usage = "elbow lock hold [OPTIONS] FILE -- COMMAND [ARGS]...")]
    Hold(HoldArgs),
    /// Run an MPI program whose atomic mode of MPI-IO is true, on any file system.
    #[command(after_help = MPI_EXAMPLES, override_usage = "elbow lock mpi [OPTIONS] -- mpirun [ARGS]... PROGRAM [ARGS]...")]
    Mpi(MpiArgs),
    /// End the sessions that hold a file.
    #[command(after_help = BREAK_EXAMPLES)]
    Break(BreakArgs),
    /// Say what is held, and who waits for it.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Show live what is held, by whom, and who waits.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
}

impl LockArgs {
    /// The words that name the command.
    pub(crate) fn path(&self) -> &'static [&'static str] {
        match self {
            Self::Exec(_) => &["lock", "exec"],
            Self::Hold(_) => &["lock", "hold"],
            Self::Mpi(_) => &["lock", "mpi"],
            Self::Break(_) => &["lock", "break"],
            Self::Status(_) => &["lock", "status"],
            Self::Top(_) => &["lock", "top"],
        }
    }
}

/// Parts of the service.
#[derive(Debug, Subcommand)]
pub(crate) enum LockdArgs {
    /// Serve locks on this machine, or to others.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Serve the processes of one node over one connection to the service.
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(ProxyArgs),
}

/// Which service.
#[derive(Args, Debug)]
pub(crate) struct ServiceArgs {
    /// The lock service: unix:PATH or tcp:HOST:PORT.
    #[arg(long, value_name = "URL", env = elbow_lock::ADDRESS_VARIABLE)]
    pub(super) server: Option<Address>,
    /// What a service on TCP and we know each other by: a file with a key that both have, or a directory with certificates.
    #[arg(long, visible_alias = "certificates", value_name = "PATH", env = elbow_lock::KEY_VARIABLE, value_hint = ValueHint::AnyPath)]
    pub(super) key_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// How long locks outlive our last message [default: 10s over TCP; as long as the connection over Unix].
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub(super) ttl: Option<u32>,
    /// The file; it need not exist.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Bytes of it, as OFFSET:LENGTH; may be repeated [default: all].
    #[arg(long = "range", value_name = "OFFSET:LENGTH", value_parser = range)]
    pub(super) ranges: Vec<Range<u64>>,
    /// Let others hold it too, as long as they only share it.
    #[arg(long)]
    pub(super) shared: bool,
    /// Do not wait.
    #[arg(short = 'n', long = "try", conflicts_with = "timeout")]
    pub(super) without_waiting: bool,
    /// Wait so long at most: 500ms, 10s, 5m.
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub(super) timeout: Option<u32>,
    /// What makes two files the same, for all that lock them. By inode, FILE must exist.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = WhatIsSame::Path)]
    pub(super) identity: WhatIsSame,
    /// The exit code when there was no lock in time.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    pub(super) conflict_exit_code: u8,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Files below it are redirected; may be repeated.
    #[arg(long = "prefix", value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    pub(super) prefixes: Vec<PathBuf>,
    /// What happens to a process whose locks were lost, because the service is gone or the network was.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnLoss::End)]
    pub(super) on_loss: OnLoss,
    /// What makes two files the same, for all that lock them.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = WhatIsSame::Path)]
    pub(super) identity: WhatIsSame,
    /// What happens when a process that the redirect does not reach locks a file below DIR [default: fail, where that can be seen].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) uncovered: Option<Uncovered>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

/// What happens when somebody locks past the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Uncovered {
    /// The call fails with ENOLCK, the process is told of, and the exit code is 125.
    Fail,
    /// The process is told of, and gets a lock of the kernel.
    Warn,
    /// Nobody looks.
    Ignore,
}

/// What happens when ranks of an MPI program run without the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UncoveredRanks {
    /// The program ends in MPI_Init, the ranks are told of, and the exit code is 125.
    Fail,
    /// Nobody looks.
    Ignore,
}

/// What happens to a process whose locks were lost.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnLoss {
    /// It ends at once, with exit code 125.
    End,
    /// It goes on; its next lock call fails with ENOLCK.
    Warn,
}

/// What makes two files the same.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WhatIsSame {
    /// Their path: the same on all machines that mount the file system at the same place, and for the clients of all languages.
    Path,
    /// Their inode number: sees through hard links and renames, where the file system's numbers are the same for all (local
    /// ones, NFS, Lustre; not sshfs).
    Inode,
    /// By inode where the type of the file system says that its numbers are the same for all, else by path.
    Auto,
}

impl From<WhatIsSame> for Identity {
    fn from(what: WhatIsSame) -> Self {
        match what {
            WhatIsSame::Path => Self::Path,
            WhatIsSame::Inode => Self::Inode,
            WhatIsSame::Auto => Self::Auto,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct MpiArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// What happens when ranks run without the library, past the locks.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = UncoveredRanks::Fail)]
    pub(super) uncovered: UncoveredRanks,
    /// The launcher, and what it starts.
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// The file; it need not exist.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// FILE is no path but a name, as it was given to the service: s3://bucket/key, dataset/7.
    #[arg(long)]
    pub(super) name: bool,
    /// Only this session, as `elbow lock status FILE` numbers it [default: all that hold nothing but FILE].
    #[arg(long, alias = "owner", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) session: Option<u64>,
    /// Grant what is broken to others at once, whatever its holder does with it.
    #[arg(long)]
    pub(super) force: bool,
    /// How long to wait until holders have given it back.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, default_value = "15s")]
    pub(super) wait: u32,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// A file, which need not exist: who holds it and who waits for it [default: all that is held].
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) file: Option<PathBuf>,
    /// FILE is no path but a name, as it was given to the service: s3://bucket/key, dataset/7.
    #[arg(long, requires = "file")]
    pub(super) name: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, default_value = "1s")]
    pub(super) interval: u32,
    /// End after so many looks [default: when interrupted].
    #[arg(long, value_name = "N")]
    pub(super) looks: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen: unix:PATH or tcp:HOST:PORT; may be repeated.
    #[arg(long, value_name = "URL", required = true)]
    pub(super) listen: Vec<Address>,
    /// Longest time that locks outlive their client's last message, 100ms or more; also the grace period after a crash, which is longer if that of the
    /// service before was.
    #[arg(long, value_name = "TIME", value_parser = lease, default_value = "10s")]
    pub(super) ttl: u32,
    /// What clients over TCP and the service know each other by, needed wherever other machines can come: a file with a key that all
    /// have, or a directory with certificates: the authority's in ca.pem, the service's own in cert.pem, its private key in key.pem.
    #[arg(long, visible_alias = "certificates", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(super) key_file: Option<PathBuf>,
    /// Whose processes may use a Unix socket.
    #[arg(long, value_enum, default_value_t = WhichUsers::Same)]
    pub(super) users: WhichUsers,
    /// Where to remember the epoch [default: PATH.state beside the first Unix socket, else in ~/.local/state/elbow].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) state: Option<PathBuf>,
    /// There was no service at this address before, so that nothing can be held: begin at once, where --state is not there.
    #[arg(long)]
    pub(super) first: bool,
    /// Answer with metrics for Prometheus there.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) metrics: Option<String>,
    /// When told to end, how long to wait for locks to be given back.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, default_value = "5s")]
    pub(super) drain: u32,
    /// Most clients at a time.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one())]
    pub(super) clients: usize,
    /// Memory for the locks and requests of all clients together; beyond it requests are refused.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_exact, default_value = "1G")]
    pub(super) memory: u64,
    /// Memory for the lists of the locks of one client.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_exact, default_value = "64M")]
    pub(super) client_memory: u64,
    /// Locks of one client, held and waiting; a proxy is one client.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = at_least_one())]
    pub(super) client_locks: usize,
    /// Requests that may wait for one file.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = at_least_one())]
    pub(super) queue: usize,
    /// Files with locks at a time.
    #[arg(long, value_name = "N", default_value_t = 1_048_576, value_parser = at_least_one())]
    pub(super) files: usize,
    /// Longest request, up to 16M: about 4 bytes for each range of a list that has no pattern.
    #[arg(long, value_name = "SIZE", value_parser = request_size, default_value = "1M")]
    pub(super) request: u64,
    /// Threads [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(super) threads: Option<usize>,
}

#[derive(Args, Debug)]
pub(crate) struct ProxyArgs {
    /// Where to listen: unix:PATH.
    #[arg(long, value_name = "URL")]
    pub(super) listen: Address,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// How long locks outlive the proxy's last message, 100ms or more [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub(super) ttl: Option<u32>,
    /// Whose processes may use the socket.
    #[arg(long, value_enum, default_value_t = WhichUsers::Same)]
    pub(super) users: WhichUsers,
    /// Most clients at a time.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one())]
    pub(super) clients: usize,
    /// Memory for the locks and requests of all clients together; beyond it requests are refused.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_exact, default_value = "1G")]
    pub(super) memory: u64,
}

/// Whose processes may use a Unix socket.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WhichUsers {
    /// Ours, and root's.
    Same,
    /// Everybody's on this machine. Nobody checks who may open a file: each of them may lock any name, and keep others waiting.
    Any,
}

impl From<WhichUsers> for Users {
    fn from(which: WhichUsers) -> Self {
        match which {
            WhichUsers::Same => Self::Same,
            WhichUsers::Any => Self::Any,
        }
    }
}

/// Why the text of an argument is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ArgError {
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("`{0}` is no range; write OFFSET:LENGTH, such as 8192:4096 or 1M:64K")]
    NoRange(String),
    #[error("`{0}` has no bytes")]
    EmptyRange(String),
    #[error("a request of `{0}` cannot be; write 8K to 16M")]
    RequestSize(String),
    #[error("`{0}` is no time; write 500ms, 10s, 5m or 1h")]
    NoTime(String),
    #[error(
        "locks that outlive a client's last message by `{0}` are lost while it is alive; write {LEASE_MS_MIN}ms or more"
    )]
    ShortLease(String),
    #[error("`{0}` is too long")]
    TooLong(String),
}

/// `OFFSET:LENGTH`, either with a unit.
fn range(text: &str) -> Result<Range<u64>, ArgError> {
    let wrong = || ArgError::NoRange(text.to_owned());
    let (offset, length) = text.split_once(':').ok_or_else(wrong)?;
    let (offset, length) = (size::parse_exact(offset)?, size::parse_exact(length)?);
    if length == 0 {
        return Err(ArgError::EmptyRange(text.to_owned()));
    }
    offset.checked_add(length).map(|end| offset..end).ok_or_else(wrong)
}

/// A length that a frame of the protocol can have.
fn request_size(text: &str) -> Result<u64, ArgError> {
    const LONGEST: u64 = elbow_lock::wire::FRAME_BYTES_MAX as u64;
    match size::parse_exact(text)? {
        bytes @ 8192..=LONGEST => Ok(bytes),
        _ => Err(ArgError::RequestSize(text.to_owned())),
    }
}

/// A number of things of which there has to be one.
fn at_least_one() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u32).range(1..).map(|number| number as usize)
}

/// A time for which a client that is alive is heard in any case.
fn lease(text: &str) -> Result<u32, ArgError> {
    match milliseconds(text)? {
        ..LEASE_MS_MIN => Err(ArgError::ShortLease(text.to_owned())),
        time_ms => Ok(time_ms),
    }
}

/// A time with its unit.
fn milliseconds(text: &str) -> Result<u32, ArgError> {
    let no_time = || ArgError::NoTime(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let each = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(no_time()),
    };
    let number: u32 = number.parse().map_err(|_| no_time())?;
    number
        .checked_mul(each)
        .ok_or_else(|| ArgError::TooLong(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_offset_and_length() {
        assert_eq!(range("0:4096"), Ok(0..4096));
        assert_eq!(range("1M:64K"), Ok(1 << 20..(1 << 20) + (64 << 10)));
        assert!(range("4096").is_err());
        assert!(range("0:0").is_err());
        assert!(range("1.5:10").is_err());
        assert!(range("-1:5").is_err());
    }

    /// `--ttl 0s` was taken: all that a client over TCP had locked was others' at once.
    #[test]
    fn leases_are_long_enough_to_be_renewed() {
        assert_eq!(lease("100ms"), Ok(100));
        assert_eq!(lease("10s"), Ok(10_000));
        for short in ["0s", "0ms", "99ms"] {
            let error = lease(short).unwrap_err().to_string();
            assert!(error.contains(short) && error.contains("100ms or more"), "{error}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(milliseconds("500ms"), Ok(500));
        assert_eq!(milliseconds("5m"), Ok(300_000));
        assert!(milliseconds("10").is_err());
        assert!(milliseconds("9999999h").is_err());
    }
}
