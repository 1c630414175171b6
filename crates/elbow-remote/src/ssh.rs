//! The way to another machine: the user's own ssh(1), and `elbow serve` or an SFTP server at its end.
//!
//! Nothing listens anywhere, and nothing runs after the connection has ended. The near end is told that there is a far end by its first
//! bytes: a shell that prints something there before (a greeting in `.bashrc`) is told from it, and named.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use elbow_file::Errno;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use url::{ParseError, Url};

use crate::greet::{ConnectError, hail};
use crate::link::Link;
use crate::sftp::{Session, SftpStorage};
use crate::storage::RemoteStorage;

/// What ssh(1) ends with when there was no connection.
const SSH_FAILED: i32 = 255;
/// What a shell ends with when it has no such program.
const NOT_FOUND: i32 = 127;
/// So long the far end may take to end what it has begun, once the connection is closed: it may roll back a job.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// What scp(1) sets, too.
const LIKE_SCP: [&str; 4] = [
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
];
const GLANCE: Duration = Duration::from_millis(5);
const END_GLANCE: Duration = Duration::from_millis(200);

/// Where a directory is: `ssh://[USER@]HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshTarget {
    /// Who to log in as; else as ssh(1) is configured.
    pub user: Option<String>,
    /// The machine, as ssh(1) takes it.
    pub host: String,
    /// The port; else as ssh(1) is configured.
    pub port: Option<u16>,
    /// The directory there; `/~/` in front of it in an address stands for the home directory, to which it is relative then: an empty one is
    /// that itself. `None`: the address has no path.
    pub path: Option<PathBuf>,
}

/// A target that is none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}; a target is ssh://[USER@]HOST[:PORT][/PATH]")]
pub struct BadTarget(String);

impl FromStr for SshTarget {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let bad = |why: &str| BadTarget(format!("{text}: {why}"));
        let no_address = || match as_address(text) {
            Some(address) => bad(&format!("this is how scp(1) writes {address}")),
            None => bad("not an ssh:// address"),
        };
        let url = Url::parse(text).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => no_address(),
            error => bad(&error.to_string()),
        })?;
        if url.scheme() != "ssh" {
            return Err(no_address());
        }
        if url.password().is_some() {
            return Err(bad(
                "a password does not belong into an address; ssh asks for it, or use a key",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad(
                "? and # have no meaning in it; write %3F and %23 where they belong to a path",
            ));
        }
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let decoded = |part: &str| percent_decode_str(part).collect::<Vec<u8>>();
        let user = String::from_utf8(decoded(url.username())).map_err(|_| bad("the user is not UTF-8"))?;
        // What begins like an option would be one to ssh(1).
        if host.is_empty() || host.starts_with('-') || user.starts_with('-') {
            return Err(bad("no name of a machine or user"));
        }
        if let Some(why) = misunderstood(text) {
            return Err(bad(why));
        }
        let path = decoded(url.path());
        let path = match &path[..] {
            b"" => None,
            b"/~" => Some(&b""[..]),
            path => Some(path.strip_prefix(b"/~/").unwrap_or(path)),
        };
        let is_below_home = url.path().starts_with("/~/");
        if path.is_some_and(|path| is_below_home && path.starts_with(b"/")) {
            return Err(bad("there is nothing between two slashes of its path"));
        }
        let path = path.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        Ok(Self {
            user: Some(user).filter(|user| !user.is_empty()),
            host: host.to_owned(),
            port: url.port(),
            path,
        })
    }
}

/// The address for `[USER@]HOST:[PATH]`, where PATH begins in the home directory unless it begins with `/`.
fn as_address(text: &str) -> Option<String> {
    let (host, path) = text
        .split_once(':')
        .filter(|(host, _)| !host.is_empty() && !host.contains('/'))?;
    match path.starts_with('/') {
        // Of another scheme.
        true if path.starts_with("//") => None,
        true => Some(format!("ssh://{host}{path}")),
        false => Some(format!("ssh://{host}/~/{path}")),
    }
}

/// What is wrong with the path of an address. A parser of addresses takes `..` for the directory above, without asking that machine, where a link may
/// lead elsewhere.
fn misunderstood(text: &str) -> Option<&'static str> {
    // It leaves these out, too.
    if text.contains(['\t', '\n', '\r']) {
        return Some("tabs and newlines in it are left out by what reads addresses; write %09, %0A and %0D");
    }
    let (_, rest) = text.trim_matches(|sign| sign <= ' ').split_once("://")?;
    let (_, path) = rest.split_once('/')?;
    let mut parts = path
        .split('/')
        .map(|part| percent_decode_str(part).collect::<Vec<u8>>());
    parts.find_map(|part| match &part[..] {
        b"." | b".." => Some("a path with . or .. in it; write it without"),
        part if part.contains(&0) => Some("a path cannot have a zero byte"),
        _ => None,
    })
}

/// What means something else in an address, or to a shell.
const WRITTEN_OUT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

impl SshTarget {
    /// The address, as [`FromStr`] takes it and a shell does.
    #[must_use]
    pub fn address(&self) -> String {
        let user = self
            .user
            .as_ref()
            .map(|user| format!("{}@", utf8_percent_encode(user, WRITTEN_OUT)));
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let port = self.port.map(|port| format!(":{port}"));
        let path = self.path.as_ref().map(|path| {
            let below_home = if path.is_absolute() { "" } else { "/~/" };
            let path = percent_encode(path.as_os_str().as_bytes(), WRITTEN_OUT);
            format!("{below_home}{path}")
        });
        let part = Option::unwrap_or_default;
        format!("ssh://{}{host}{}{}", part(user), part(port), part(path))
    }
}

impl std::fmt::Display for SshTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user}@{}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// How the far end is reached.
#[derive(Clone, Debug)]
pub struct Login {
    /// The program that is run as ssh(1).
    pub ssh: OsString,
    /// `elbow` at the far end.
    pub elbow: OsString,
    /// Nobody is there to be asked for a password.
    pub is_batch: bool,
    /// Whether content is compressed, unless the line is fast.
    pub compresses: bool,
    /// Whether the end is asked for, while nobody has answered yet.
    pub is_ended: fn() -> bool,
}

impl Default for Login {
    fn default() -> Self {
        Self {
            ssh: "ssh".into(),
            elbow: "elbow".into(),
            is_batch: false,
            compresses: true,
            is_ended: || false,
        }
    }
}

/// The connection: ssh(1), which ends with it.
#[derive(Debug)]
pub struct Ssh {
    child: Child,
    line: Option<Line>,
}

/// Who can end what is said.
#[derive(Debug)]
enum Line {
    Elbow(Arc<Link>),
    Sftp(Arc<Session>),
}

impl Ssh {
    /// Connects to `elbow serve` for a directory of another machine.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(target: &SshTarget, root: &Path, login: &Login) -> Result<(RemoteStorage, Self), ConnectError> {
        let (mut ssh, from, mut to) = Self::start(elbow_command(target, root, login), login)?;
        // Where an account is for SFTP alone, its server says nothing before it hears something, which ends it here.
        let _ = hail(&mut to);
        ssh.wait_for(&from, target, login)?;
        match ssh.unless_ended(login, || RemoteStorage::of_hailed(&target.to_string(), from, to)) {
            Ok(storage) => {
                if login.compresses {
                    storage.link().compress();
                }
                ssh.line = Some(Line::Elbow(storage.link()));
                Ok((storage, ssh))
            }
            Err(error) => Err(ssh.explained(error, target, login)),
        }
    }

    /// Connects to the SFTP server of another machine, which every sshd(8) has, for a directory there.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect_sftp(target: &SshTarget, root: &Path, login: &Login) -> Result<(SftpStorage, Self), ConnectError> {
        let (mut ssh, from, mut to) = Self::start(sftp_command(target, login), login)?;
        // It says nothing before it is greeted. What cannot be said is told by who has ended.
        let _ = Session::greet(&mut to);
        ssh.wait_for(&from, target, login)?;
        match ssh.unless_ended(login, || SftpStorage::of_greeted(&target.to_string(), root, from, to)) {
            Ok(storage) => {
                ssh.line = Some(Line::Sftp(storage.session()));
                Ok((storage, ssh))
            }
            Err(error) => Err(ssh.explained(error, target, login)),
        }
    }

    fn start(mut command: Command, login: &Login) -> Result<(Self, ChildStdout, ChildStdin), ConnectError> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| ConnectError::NotStarted {
            program: login.ssh.clone().into(),
            error,
        })?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (to, from) = to.zip(from).expect("both are pipes");
        Ok((Self { child, line: None }, from, to))
    }

    /// Waits for the first words of the far end, or its end.
    fn wait_for(&mut self, from: &ChildStdout, target: &SshTarget, login: &Login) -> Result<(), ConnectError> {
        if waited_for(from, login) {
            return Ok(());
        }
        let _ = self.child.kill();
        Err(interrupted(target))
    }

    /// Does what waits for more words of the far end, and ends the connection when the end is asked for meanwhile.
    fn unless_ended<T>(&self, login: &Login, connect: impl FnOnce() -> T) -> T {
        let (is_done, done) = mpsc::channel::<()>();
        let watch = move || {
            while done.recv_timeout(END_GLANCE) == Err(RecvTimeoutError::Timeout) {
                if (login.is_ended)() {
                    return self.hang_up();
                }
            }
        };
        std::thread::scope(|scope| {
            // Without the thread it waits as long as the far end lets it.
            let _ = std::thread::Builder::new().spawn_scoped(scope, watch);
            let connected = connect();
            drop(is_done);
            connected
        })
    }

    /// Who ended first knows why.
    fn explained(mut self, error: ConnectError, target: &SshTarget, login: &Login) -> ConnectError {
        if (login.is_ended)() {
            // Ctrl-C ends ssh(1) as well, which may be seen first.
            return interrupted(target);
        }
        let ended = matches!(error, ConnectError::Broken { .. }).then(|| self.wait(END_PATIENCE));
        let host = target.to_string();
        match ended.flatten().and_then(|status| status.code()) {
            Some(SSH_FAILED) => ConnectError::NoLogin { host },
            Some(NOT_FOUND) => ConnectError::NoProgram {
                host,
                program: login.elbow.display().to_string(),
            },
            _ => error,
        }
    }

    /// Ends the connection at once, whatever is under way: for who waits for an answer that does not come.
    pub fn hang_up(&self) {
        // It was not waited for: its number is its own. One that has ended already does not mind.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::KILL,
        );
    }

    /// Waits until the far end is done with what the end of the connection makes it do; `None` when it is not within that time.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(GLANCE),
                _ => return None,
            }
        }
    }
}

impl Drop for Ssh {
    /// Closes the connection, and waits for the far end, which may have a job to end.
    fn drop(&mut self) {
        match self.line.take() {
            Some(Line::Elbow(link)) => link.close(),
            Some(Line::Sftp(session)) => session.close(),
            None => {}
        }
        if self.wait(END_PATIENCE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn interrupted(target: &SshTarget) -> ConnectError {
    ConnectError::Interrupted {
        host: target.to_string(),
    }
}

/// Waits until somebody says something, or nobody is going to; `false` when the end is asked for before.
fn waited_for(from: &ChildStdout, login: &Login) -> bool {
    let glance = Timespec::try_from(END_GLANCE).ok();
    loop {
        let mut ready = [PollFd::new(from, PollFlags::IN)];
        match poll(&mut ready, glance.as_ref()) {
            Ok(0) | Err(Errno::INTR) if (login.is_ended)() => return false,
            Ok(0) | Err(Errno::INTR) => {}
            // What cannot be waited for says so when it is read.
            _ => return true,
        }
    }
}

/// ssh(1) with all but what is to be run.
fn ssh_command(target: &SshTarget, login: &Login) -> Command {
    let mut command = Command::new(&login.ssh);
    if login.is_batch {
        command.args(["-o", "BatchMode=yes"]);
    }
    if let Some(port) = target.port {
        command.arg("-p").arg(port.to_string());
    }
    if let Some(user) = &target.user {
        command.arg("-l").arg(user);
    }
    // No terminal, no agent and no window is needed there.
    command.args(["-T", "-a", "-x"]);
    // What is configured for people who log in is not meant, as with scp(1): it runs something else, or fails where a port is taken.
    for option in LIKE_SCP {
        command.args(["-o", option]);
    }
    command
}

fn sftp_command(target: &SshTarget, login: &Login) -> Command {
    let mut command = ssh_command(target, login);
    command.args(["-s", "--", &target.host, "sftp"]);
    command
}

fn elbow_command(target: &SshTarget, root: &Path, login: &Login) -> Command {
    let mut command = ssh_command(target, login);
    command.args(["--", &target.host]);
    let mut rooted = OsString::from("--root=");
    // It begins in the home directory.
    rooted.push(if root.as_os_str().is_empty() {
        Path::new(".")
    } else {
        root
    });
    let mut words = Vec::new();
    for word in [
        login.elbow.as_os_str(),
        OsStr::new("serve"),
        OsStr::new("--stdio"),
        // In one word: a path may begin like an option.
        &rooted,
    ] {
        words.extend_from_slice(if words.is_empty() { b"" } else { b" " });
        // A word with a zero byte is none to any shell, and no path.
        let quoted = shlex::bytes::try_quote(word.as_bytes()).unwrap_or_default();
        words.extend_from_slice(&quoted);
    }
    command.arg(OsStr::from_bytes(&words));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<SshTarget, BadTarget> {
        text.parse()
    }

    fn plain(host: &str) -> SshTarget {
        SshTarget {
            user: None,
            host: host.into(),
            port: None,
            path: None,
        }
    }

    #[test]
    fn an_address_has_a_machine_and_what_else_is_said() {
        assert_eq!(target("ssh://box"), Ok(plain("box")));
        let all = SshTarget {
            user: Some("alice".into()),
            port: Some(2222),
            path: Some("/home/my files".into()),
            ..plain("fe80::1")
        };
        assert_eq!(target("ssh://alice@[fe80::1]:2222/home/my%20files"), Ok(all));
        let path = |text| target(text).unwrap().path;
        assert_eq!(path("ssh://box/"), Some("/".into()));
        assert_eq!(
            path("ssh://box/~/results"),
            Some("results".into()),
            "below the home directory"
        );
        assert_eq!(path("ssh://box/~/"), Some("".into()), "the home directory itself");
        assert_eq!(path("ssh://box/~"), Some("".into()), "the same");
        assert_eq!(path("ssh://box/~x/..y/.z/..."), Some("/~x/..y/.z/...".into()));
        for address in [
            "ssh://box",
            "ssh://alice@[fe80::1]:2222/home/my%20files",
            "ssh://box/",
            "ssh://box/~/",
            "ssh://box/~/a-b/c%27d%FF",
        ] {
            assert_eq!(target(address).unwrap().address(), address);
        }
    }

    #[test]
    fn what_is_no_address_says_what_one_is() {
        for bad in [
            "box",
            "sftp://box/x",
            "ssh:///x",
            "ssh://-oProxyCommand=x/y",
            "ssh://-l@box/",
            "ssh://alice:secret@box/",
            "ssh://box/a?b",
            "ssh://box:99999/",
            "ssh://box/~/../x",
            "ssh://box/~//x",
            "ssh://box/~//",
            "ssh://box/a/./b",
            "ssh://box/a/%2e%2E",
            "ssh://box/..",
            "ssh://box/.. ",
            "ssh://box/.\t./x",
            "ssh://box/a%00b",
        ] {
            let error = target(bad).expect_err(bad).to_string();
            assert!(error.contains("ssh://[USER@]HOST[:PORT][/PATH]"), "{error}");
            assert!(!bad.contains("secret") || error.contains("password"), "{error}");
        }
    }

    #[test]
    fn who_writes_as_for_scp_is_told_the_address() {
        for (text, address) in [
            ("alice@box:/data/x", Some("ssh://alice@box/data/x")),
            ("box:/data", Some("ssh://box/data")),
            ("box:results", Some("ssh://box/~/results")),
            ("box:", Some("ssh://box/~/")),
            ("sftp://box/x", None),
            ("/data:x", None),
            ("box", None),
        ] {
            assert_eq!(as_address(text).as_deref(), address);
            let error = target(text).expect_err(text).to_string();
            assert!(error.contains(address.unwrap_or("not an ssh:// address")), "{error}");
        }
    }

    #[test]
    fn what_goes_through_a_shell_is_quoted() {
        let all = SshTarget {
            user: Some("alice".into()),
            port: Some(2222),
            ..plain("box")
        };
        let command = elbow_command(&all, Path::new("/it's; rm -rf $HOME"), &Login::default());
        let words: Vec<&OsStr> = command.get_args().collect();
        assert_eq!(words[..7], ["-p", "2222", "-l", "alice", "-T", "-a", "-x"]);
        let options: Vec<&str> = LIKE_SCP.iter().flat_map(|option| ["-o", option]).collect();
        assert_eq!(words[7..15], options);
        assert_eq!(words[15..17], ["--", "box"]);
        let told = shlex::split(words[17].to_str().unwrap()).unwrap();
        assert_eq!(told, ["elbow", "serve", "--stdio", "--root=/it's; rm -rf $HOME"]);
    }
}
