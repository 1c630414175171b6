//! Which options can be set: those that say how something is done, and none that say what is done.

use std::ffi::OsString;

/// How the value of an option is written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text or a number.
    Text,
    /// true or false.
    Flag,
    /// A path; a relative one begins at the directory of the file.
    Path,
    /// Several of these.
    Paths,
}

/// A command that has an option: the words that name it, and more that it cannot do without.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: &'static [&'static str],
    pub(super) rest: &'static [&'static str],
}

/// An option that can be set.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(super) kind: Kind,
    /// The variable of the environment that says the same.
    pub(crate) variable: &'static str,
    pub(super) commands: &'static [Target],
    /// Of an option that the command line takes as any text: what the command makes of it, or why it cannot.
    pub(super) parser: Option<fn(&str) -> anyhow::Result<()>>,
}

impl Key {
    const fn parsed_by(self, parser: fn(&str) -> anyhow::Result<()>) -> Self {
        let parser = Some(parser);
        Self { parser, ..self }
    }

    /// One of the commands that have the option.
    pub(crate) fn command<'a>(&self, root: &'a clap::Command) -> Option<&'a clap::Command> {
        let mut path = self.commands[0].path.iter();
        path.try_fold(root, |command, word| command.find_subcommand(word))
    }

    /// What the option is given, from the text of its value: paths are joined by colons there, as in a variable.
    pub(super) fn words(&self, value: &str) -> Vec<OsString> {
        match self.kind {
            Kind::Paths => std::env::split_paths(value)
                .filter(|path| !path.as_os_str().is_empty())
                .map(OsString::from)
                .collect(),
            Kind::Text | Kind::Flag | Kind::Path => vec![value.into()],
        }
    }

    /// Whether its value is a list.
    pub(crate) fn is_list(&self) -> bool {
        self.kind == Kind::Paths
    }

    /// What clap calls the option.
    pub(super) fn id(&self) -> String {
        self.name.replace('-', "_")
    }
}

const fn target(path: &'static [&'static str], rest: &'static [&'static str]) -> Target {
    Target { path, rest }
}

const RUN: Target = target(&["run"], &["--", "true"]);
const MOUNT: Target = target(&["mount"], &[".", "."]);
const RESUME: Target = target(&["resume"], &[]);
const RECOVER: Target = target(&["recover"], &["."]);
const DOCTOR: Target = target(&["doctor"], &[]);
const HOLD: Target = target(&["lock", "hold"], &[".", "--", "true"]);
const EXEC: Target = target(&["lock", "exec"], &["--prefix", ".", "--", "true"]);
const MPI: Target = target(&["lock", "mpi"], &["--", "true"]);

const JOBS: &[Target] = &[RUN, MOUNT];
const ONLY_RUN: &[Target] = &[RUN];
const REACHED: &[Target] = &[RUN, RESUME, RECOVER, DOCTOR];
const SCRATCH: &[Target] = &[RUN, MOUNT, RESUME, RECOVER];
const SORT: &[Target] = &[target(&["sort"], &[])];
const CLIENTS: &[Target] = &[
    HOLD,
    EXEC,
    MPI,
    target(&["lock", "status"], &[]),
    target(&["lock", "top"], &[]),
    target(&["lock", "break"], &["."]),
];
const BY_IDENTITY: &[Target] = &[HOLD, EXEC];

const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    variable: &'static str,
    commands: &'static [Target],
) -> Key {
    Key {
        section,
        name,
        kind,
        variable,
        commands,
        parser: None,
    }
}

/// All of them, in the order in which they are shown.
pub(crate) const KEYS: [Key; 18] = [
    key("job", "publish", Kind::Text, "ELBOW_PUBLISH", JOBS),
    key("job", "on-conflict", Kind::Text, "ELBOW_ON_CONFLICT", JOBS),
    key("job", "mem", Kind::Text, "ELBOW_MEM", JOBS),
    key("job", "scratch", Kind::Path, "ELBOW_SCRATCH", SCRATCH),
    key("job", "in-flight", Kind::Text, "ELBOW_IN_FLIGHT", JOBS),
    key("job", "durable", Kind::Flag, "ELBOW_DURABLE", JOBS),
    key("job", "via", Kind::Text, "ELBOW_VIA", REACHED),
    key("job", "compress", Kind::Text, "ELBOW_COMPRESS", REACHED),
    key("run", "pass-through", Kind::Paths, "ELBOW_PASS_THROUGH", ONLY_RUN),
    key("run", "retry", Kind::Text, "ELBOW_RETRY", ONLY_RUN),
    key("run", "quiet", Kind::Flag, "ELBOW_QUIET", ONLY_RUN),
    key("run", "progress", Kind::Text, "ELBOW_PROGRESS", ONLY_RUN),
    key("lock", "server", Kind::Text, elbow_lock::ADDRESS_VARIABLE, CLIENTS),
    key("lock", "key-file", Kind::Path, elbow_lock::KEY_VARIABLE, CLIENTS),
    key("lock", "identity", Kind::Text, "ELBOW_LOCK_IDENTITY", BY_IDENTITY),
    key("sort", "buffer-size", Kind::Text, "ELBOW_SORT_BUFFER_SIZE", SORT).parsed_by(crate::sort::check_buffer_size),
    key(
        "sort",
        "temporary-directory",
        Kind::Path,
        "ELBOW_SORT_TEMPORARY_DIRECTORY",
        SORT,
    ),
    key("sort", "parallel", Kind::Text, "ELBOW_SORT_PARALLEL", SORT).parsed_by(crate::sort::check_parallel),
];

/// Those of a command.
pub(super) fn of(path: &[&str]) -> impl Iterator<Item = &'static Key> {
    KEYS.iter()
        .filter(move |key| key.commands.iter().any(|target| target.path == path))
}
