//! What a command reads besides its arguments: variables of the environment, files, and the pages of others.
//!
//! A line is for the commands that it names; one that ends in `-*` is for all below it.

use clap_mangen::roff::{Roff, bold, roman};
use elbow_lock::{ADDRESS_VARIABLE, KEY_VARIABLE};

/// A name, what it is for, and the pages that have it.
type Entry = (&'static str, &'static str, &'static [&'static str]);

const ASKED: &[&str] = &[
    "elbow-run",
    "elbow-mount",
    "elbow-jobs",
    "elbow-status",
    "elbow-diff",
    "elbow-commit",
    "elbow-rollback",
];
const JOBS: &[&str] = &["elbow-run", "elbow-mount"];
const REACHED: &[&str] = &["elbow-run", "elbow-recover", "elbow-resume", "elbow-doctor"];
const SCRATCH: &[&str] = &["elbow-run", "elbow-mount", "elbow-resume", "elbow-recover"];
const SORT: &[&str] = &["elbow-sort"];
/// Commands with options that can be set in files.
const SET: &[&str] = &[
    "elbow-run",
    "elbow-mount",
    "elbow-resume",
    "elbow-recover",
    "elbow-sort",
    "elbow-lock-hold",
    "elbow-lock-exec",
    "elbow-lock-mpi",
    "elbow-config",
    "elbow-config-show",
];
const DOCTOR: &[&str] = &["elbow-doctor"];
const CLIENTS: &[&str] = &["elbow-lock-*", "elbow-lockd-proxy"];
const REDIRECTED: &[&str] = &["elbow-lock-exec"];
const MPI: &[&str] = &["elbow-lock-mpi"];
const PRELOADED: &[&str] = &["elbow-lock-exec", "elbow-lock-mpi"];
const SERVE: &[&str] = &["elbow-lockd-serve"];

const LOGGED: &[&str] = &[
    "elbow",
    "elbow-run",
    "elbow-mount",
    "elbow-recover",
    "elbow-sort",
    "elbow-lockd-*",
];

const ENVIRONMENT: &[Entry] = &[
    (
        "ELBOW_LOG",
        "What to log, to look for a fault: off (also when it is not set), error, warn, info, debug or trace, for all or, with commas between \
      them, for parts: elbow_job=debug,elbow_mount=trace.",
        LOGGED,
    ),
    (
        "ELBOW_LOG_FILE",
        "The file that the log is appended to; standard error when it is not set.",
        LOGGED,
    ),
    (
        "TMPDIR",
        "Where written data goes that memory does not hold, without --scratch; /var/tmp when it is not set. \
      Also a place for the hidden mount point.",
        JOBS,
    ),
    (
        "TMPDIR",
        "Where temporary files go, without -T; /var/tmp when it is not set.",
        &["elbow-sort", "elbow-bench-*"],
    ),
    (
        "XDG_RUNTIME_DIR",
        "Where hidden mount points are made, and the sockets of jobs where there is no other place; /run, /tmp, /var/tmp and \
      /dev/shm when that cannot be.",
        JOBS,
    ),
    (
        "TMPDIR",
        "Where memory is paged to in a trial, and a job is tried over a directory that is reached by ssh.",
        DOCTOR,
    ),
    ("HOME", "Replaced in a bundle, as all that names somebody.", DOCTOR),
    ("USER", "The same; LOGNAME too.", DOCTOR),
    ("LOGNAME", "The same.", DOCTOR),
    (
        "ELBOW_PUBLISH",
        "As --publish, without it; before any file of settings.",
        JOBS,
    ),
    ("ELBOW_ON_CONFLICT", "The same for --on-conflict.", JOBS),
    ("ELBOW_MEM", "The same for --mem.", JOBS),
    ("ELBOW_SCRATCH", "The same for --scratch.", SCRATCH),
    ("ELBOW_IN_FLIGHT", "The same for --in-flight.", JOBS),
    ("ELBOW_DURABLE", "true or false: the same for --durable.", JOBS),
    ("ELBOW_COMPRESS", "The same for --compress.", REACHED),
    (
        "ELBOW_PASS_THROUGH",
        "As --pass-through, without it: directories, with colons between them.",
        &["elbow-run"],
    ),
    ("ELBOW_RETRY", "The same for --retry.", &["elbow-run"]),
    ("ELBOW_QUIET", "true or false: the same for --quiet.", &["elbow-run"]),
    ("ELBOW_PROGRESS", "The same for --progress.", &["elbow-run"]),
    (
        "ELBOW_LOCK_IDENTITY",
        "As --identity, without it.",
        &["elbow-lock-hold", "elbow-lock-exec"],
    ),
    ("ELBOW_SORT_BUFFER_SIZE", "As --buffer-size, without it.", SORT),
    (
        "ELBOW_SORT_TEMPORARY_DIRECTORY",
        "As --temporary-directory, without it.",
        SORT,
    ),
    ("ELBOW_SORT_PARALLEL", "As --parallel, without it.", SORT),
    (
        "XDG_CONFIG_HOME",
        "Where the directory elbow with the user's file of settings is; ~/.config when it is not set.",
        SET,
    ),
    ("HOME", "What ~ stands for there.", SET),
    ("ELBOW_VIA", "How DIR is reached, without --via.", REACHED),
    ("ELBOW_SSH", "The program that is run as ssh, for --via.", REACHED),
    (
        "ELBOW_VIA_PROGRAM",
        "Where elbow is at the far end, for --via; elbow in the search path there when it is not set. Empty: it is not looked for, and SFTP is used.",
        REACHED,
    ),
    (
        ADDRESS_VARIABLE,
        "The lock service, unix:PATH or tcp:HOST:PORT, without --server.",
        CLIENTS,
    ),
    (
        KEY_VARIABLE,
        "The file with the key that is shared with a service on TCP, without --key-file.",
        CLIENTS,
    ),
    (
        "ELBOW_LOCK_TOKEN",
        "Set for COMMAND: the fencing token of its lock, a number that grows with every lock that is \
      granted.",
        &["elbow-lock-hold"],
    ),
    (
        "ELBOW_FCNTL_LIB",
        "Where libelbow_fcntl.so is, when it is not beside this program or in ../lib/elbow.",
        REDIRECTED,
    ),
    (
        "ELBOW_FCNTL_PREFIXES",
        "Set for COMMAND: the directories below which locks are redirected, with colons between \
      them.",
        REDIRECTED,
    ),
    (
        "ELBOW_FCNTL_ON_LOSS",
        "Set for COMMAND, from --on-loss: end or warn.",
        REDIRECTED,
    ),
    (
        "ELBOW_FCNTL_IDENTITY",
        "Set for COMMAND, from --identity: path, inode or auto.",
        REDIRECTED,
    ),
    (
        "ELBOW_FCNTL_WATCHED",
        "Set for COMMAND: the directories below which programs that the redirect does not reach are \
      found already.",
        REDIRECTED,
    ),
    (
        "ELBOW_MPI_LIB",
        "Where libelbow_mpi.so is, when it is not beside this program or in ../lib/elbow.",
        MPI,
    ),
    (
        "ELBOW_MPI_LOCKS",
        "What an access locks: list (exactly its bytes; the default), extent (from its first byte to its \
      last) or file. To measure beside other services.",
        MPI,
    ),
    (
        "ELBOW_MPI_SIEVING",
        "Whether small pieces are written with the bytes between them, which are locked, too: never (the default), \
      automatic (where that is quicker) or always. Not where others write into the file without these locks.",
        MPI,
    ),
    (
        "ELBOW_MPI_GATHERED",
        "How many bytes the ranks may need to say what one collective access of all of them covers; one that needs more is refused on \
      all ranks. 2147483647 when it is not set.",
        MPI,
    ),
    (
        "ELBOW_MPI_PATIENCE",
        "How many seconds MPI_Init waits for a sign of the other ranks that they have the library; 30 when it is not set.",
        MPI,
    ),
    (
        "ELBOW_MPI_UNCOVERED",
        "Set for COMMAND, from --uncovered: fail or ignore.",
        MPI,
    ),
    (
        "ELBOW_MPI_RUN",
        "Set for COMMAND: the name by which its ranks tell `elbow lock mpi` through the lock service that all have the \
      library.",
        MPI,
    ),
    (
        "OMPI_MCA_fbtl_posix_write_datasieving",
        "Set to false for COMMAND: Open MPI then writes no bytes between those that \
      are locked.",
        MPI,
    ),
    (
        "LD_PRELOAD",
        "What is in it already stays, behind our library.",
        PRELOADED,
    ),
    (
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "Set to 1 for COMMAND where DIR lies in a git repository that begins above it, unless it is set already: git \
      would stop at DIR, which is a mount point in the job.",
        &["elbow-run"],
    ),
    (
        "PATH",
        "Where COMMAND is looked for.",
        &["elbow-run", "elbow-lock-hold", "elbow-lock-exec", "elbow-lock-mpi"],
    ),
    (
        "TERM",
        "On a terminal that is dumb, or says nothing of itself, no progress is drawn.",
        SHOWN,
    ),
    (
        "XDG_STATE_HOME",
        "Where the epoch is remembered without --state and without a Unix socket: in elbow/ below \
      it.",
        SERVE,
    ),
    (
        "HOME",
        "Its .local/state stands in for XDG_STATE_HOME when that is not set.",
        SERVE,
    ),
    (
        "LC_ALL",
        "With LC_CTYPE and LANG, in this order: whether the picture of a file may have signs of UTF-8.",
        HOLES,
    ),
    ("LC_CTYPE", "See LC_ALL.", HOLES),
    ("LANG", "See LC_ALL.", HOLES),
];

const SHOWN: &[&str] = &[
    "elbow-run",
    "elbow-commit",
    "elbow-rollback",
    "elbow-sort",
    "elbow-holes",
];
const HOLES: &[&str] = &["elbow-holes"];

const FILES: &[Entry] = &[
    (
        ".elbow-HOST-TIME",
        "In the directory of a job: its staging directory, hidden from COMMAND, with what is not \
      published yet and the record of the commit. Gone when the job has ended; after a crash elbow-recover(1) ends it.",
        &["elbow-run", "elbow-mount", "elbow-recover", "elbow-resume"],
    ),
    (
        ".elbow.toml",
        "In DIR or above it, ~/.config/elbow/config.toml and /etc/elbow/config.toml: what options are when nobody names them; elbow-config(1) shows it. Only files \
      of root and of the user count.",
        SET,
    ),
    (
        "/dev/fuse",
        "The device of the kernel's FUSE; has to be readable and writable.",
        JOBS,
    ),
    (
        "/run/user/UID/elbow-UID",
        "Or elbow-UID in /run, /tmp or /var/tmp: the sockets at which running jobs are asked, and which jobs were kept. It can be \
      entered by its owner alone.",
        ASKED,
    ),
    (
        "/var/tmp",
        "Written data that memory does not hold, in files without names.",
        JOBS,
    ),
    (
        "/var/tmp",
        "Temporary files without names, when there is neither -T nor TMPDIR.",
        &["elbow-sort", "elbow-bench-*"],
    ),
    (
        "FILE.elbow-sort",
        "Beside a file that is sorted in place: how far it is, for --resume. Gone when it is \
      sorted.",
        &["elbow-sort"],
    ),
    (
        "PATH.state",
        "Beside the Unix socket unix:PATH: the epoch of the service and which fencing tokens were \
      given.",
        SERVE,
    ),
    (
        "~/.local/state/elbow/lockd-*.state",
        "The same of a service without a Unix socket.",
        SERVE,
    ),
    (
        "PREFIX/lib/elbow/libelbow_fcntl.so",
        "What COMMAND loads first.",
        REDIRECTED,
    ),
    ("PREFIX/lib/elbow/libelbow_mpi.so", "What COMMAND loads first.", MPI),
];

/// Pages of others that help to understand this one.
const RELATED: &[(&str, &[&str])] = &[
    ("env(1)", &["elbow-run"]),
    ("fuse(4)", JOBS),
    ("fusermount3(1)", JOBS),
    ("sort(1)", &["elbow-sort"]),
    ("fallocate(2)", &["elbow-zero", "elbow-holes", "elbow-consume"]),
    ("mkfifo(1)", &["elbow-consume"]),
    ("ba(3)", &["elbow", "elbow-holes"]),
    (
        "elbow_lock(3)",
        &[
            "elbow",
            "elbow-lock",
            "elbow-lockd",
            "elbow-lock-hold",
            "elbow-lockd-serve",
        ],
    ),
    ("flock(1)", &["elbow-lock-hold"]),
    ("fcntl(2)", REDIRECTED),
    ("seccomp_unotify(2)", REDIRECTED),
    ("mpirun(1)", MPI),
    ("blkparse(1)", &["elbow-disk-replay"]),
];

/// The sections `ENVIRONMENT` and `FILES` of a page, where there is something to say.
pub(super) fn render(roff: &mut Roff, page: &str) {
    for (heading, entries) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)] {
        let mut entries = entries.iter().filter(|(_, _, pages)| concern(pages, page)).peekable();
        if entries.peek().is_some() {
            roff.control("SH", [heading]);
        }
        for (name, words, _) in entries {
            roff.control("TP", []).text([bold(*name)]).text([roman(*words)]);
        }
    }
}

/// Pages of others for `SEE ALSO`.
pub(super) fn related(page: &str) -> impl Iterator<Item = &'static str> {
    RELATED
        .iter()
        .filter(move |(_, pages)| concern(pages, page))
        .map(|(other, _)| *other)
}

fn concern(pages: &[&str], page: &str) -> bool {
    pages.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => page.starts_with(beginning),
        None => page == *pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_for_all_below() {
        assert!(concern(&["elbow-lock-*"], "elbow-lock-hold"));
        assert!(!concern(&["elbow-lock-*"], "elbow-lock"));
        assert!(!concern(&["elbow-lock-*"], "elbow-lockd-serve"));
        assert!(concern(&["elbow-run"], "elbow-run"));
    }
}
