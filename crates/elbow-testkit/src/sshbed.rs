//! Real sshfs on a real network file server, far away: a private sshd, a [`DelayProxy`] before it, an sshfs mount.
//!
//! The server has its own keys and configuration in a directory of its own and listens on loopback only; nothing of the
//! user's or the machine's ssh configuration is read. The mount has sshfs's default options, as users mount it.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::delayproxy::{DelayProxy, Line};

/// A running sshd behind a delay; dropping it ends both.
#[derive(Debug)]
pub struct SshTestbed {
    dir: PathBuf,
    access: Access,
    /// Where the server itself listens.
    direct: SocketAddr,
    server: Child,
    proxy: DelayProxy,
}

/// How to reach the server.
#[derive(Clone, Debug, Serialize)]
pub struct Access {
    /// `user@address`.
    pub host: String,
    /// Arguments for ssh before the host; sshfs takes the same `-o` and `-p`.
    pub options: Vec<String>,
}

/// The programs that it needs and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 4] = [
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("sshfs", "sshfs"),
];

/// How long the server and the mount may take to appear.
const PATIENCE: Duration = Duration::from_secs(120);

impl SshTestbed {
    /// What has to be installed before this can work, as a sentence; `None` when nothing.
    pub fn missing() -> Option<String> {
        let absent = |(program, _): &&(&str, &str)| find_program(program).is_none();
        let mut packages: Vec<&str> = PROGRAMS.iter().filter(absent).map(|(_, package)| *package).collect();
        packages.dedup();
        (!packages.is_empty()).then(|| format!("sshfs needs packages that are not installed: {}", packages.join(" ")))
    }

    /// Starts the server with its files in `dir`, which must exist and be empty, at the end of such a line.
    ///
    /// # Errors
    /// `NotFound` with [`SshTestbed::missing`]'s sentence, or what ssh-keygen and sshd say.
    pub fn start(dir: &Path, line: impl Into<Line>) -> io::Result<Self> {
        if let Some(sentence) = Self::missing() {
            return Err(io::Error::new(io::ErrorKind::NotFound, sentence));
        }
        for name in ["host_key", "user_key"] {
            make_key(&dir.join(name))?;
        }
        fs::copy(dir.join("user_key.pub"), dir.join("authorized_keys"))?;
        let (direct, server) = start_somewhere(dir)?;
        let proxy = DelayProxy::start(direct, line)?;
        let access = access(dir, proxy.address());
        Ok(Self {
            dir: dir.to_owned(),
            access,
            direct,
            server,
            proxy,
        })
    }

    /// Starts the server again with these lines of sshd_config(5) besides. Sessions that are open go on.
    ///
    /// # Errors
    /// What sshd says.
    pub fn restart_with(&mut self, settings: &str) -> io::Result<()> {
        self.server.kill()?;
        self.server.wait()?;
        self.server = start_server(&self.dir, self.direct, settings)?;
        Ok(())
    }

    /// How to reach it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Whether the server has sessions, or one that ended with its connection has left an SFTP server that works on what had come.
    ///
    /// # Errors
    /// What procfs says.
    pub fn has_sessions(&self) -> io::Result<bool> {
        Ok(!children_of(self.server.id())?.is_empty())
    }

    /// The processes of its sessions, and what they have left behind.
    ///
    /// # Errors
    /// What procfs says.
    pub fn session_processes(&self) -> io::Result<Vec<u32>> {
        let mut found = children_of(self.server.id())?;
        let mut next = 0;
        while let Some(&parent) = found.get(next) {
            found.extend(children_of(parent).unwrap_or_default()); // it may have ended
            next += 1;
        }
        Ok(found)
    }

    /// How many bytes have gone over the line so far, in both directions.
    pub fn passed_bytes(&self) -> u64 {
        self.proxy.passed_bytes()
    }

    /// Ends all connections to it, as a network does.
    pub fn cut(&self) {
        self.proxy.cut();
    }

    /// Mounts `source` on `mountpoint` through the delay.
    ///
    /// What is changed in `source` directly while it is mounted is seen late, as sshfs keeps what it has listed for
    /// 20 seconds: mount again after such a change.
    ///
    /// # Errors
    /// What sshfs says.
    pub fn mount(&self, source: &Path, mountpoint: &Path) -> io::Result<SshMount> {
        self.mount_by(&mut Command::new("sshfs"), source, mountpoint)
    }

    /// The same by a command, which may have further options of sshfs.
    ///
    /// # Errors
    /// What sshfs says.
    pub fn mount_by(&self, sshfs: &mut Command, source: &Path, mountpoint: &Path) -> io::Result<SshMount> {
        self.mount_with(sshfs, &self.access.host, source, mountpoint)
    }

    /// The same as that user of the server, who needs no password there and no shell. `sshfs` runs it: as another user of this machine, too.
    ///
    /// # Errors
    /// What sshfs says.
    pub fn mount_as(&self, user: &str, sshfs: &mut Command, source: &Path, mountpoint: &Path) -> io::Result<SshMount> {
        let address = self.access.host.rsplit('@').next().unwrap_or_default();
        // The server reads as that user who may come in, and the client as its own user where the key is.
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o755))?;
        fs::set_permissions(self.dir.join("authorized_keys"), fs::Permissions::from_mode(0o644))?;
        self.mount_with(sshfs, &format!("{user}@{address}"), source, mountpoint)
    }

    /// Lets a user of this machine use the server's key; the server's other files stay ours.
    ///
    /// # Errors
    /// What changing modes and owners says: it needs root.
    pub fn let_in(&self, uid: u32) -> io::Result<()> {
        std::os::unix::fs::chown(self.dir.join("user_key"), Some(uid), None)
    }

    fn mount_with(&self, command: &mut Command, host: &str, source: &Path, mountpoint: &Path) -> io::Result<SshMount> {
        command
            .arg(format!("{host}:{}", source.canonicalize()?.display()))
            .arg(mountpoint);
        let mountpoint = mountpoint.canonicalize()?; // Afterwards only who mounted it may look.
        check(command.args(&self.access.options))?;
        Ok(SshMount { mountpoint })
    }
}

impl Drop for SshTestbed {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// An sshfs mount; dropping it unmounts it.
#[derive(Debug)]
pub struct SshMount {
    mountpoint: PathBuf,
}

impl SshMount {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }
}

impl Drop for SshMount {
    fn drop(&mut self) {
        if let Err(error) = check(Command::new("fusermount3").arg("-u").arg(&self.mountpoint)) {
            eprintln!("sshbed: unmounting {}: {error}", self.mountpoint.display());
        }
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]); // sshd is a daemon.
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

fn make_key(path: &Path) -> io::Result<()> {
    check(
        Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(path),
    )
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// At another address when somebody else has taken the one that was free.
fn start_somewhere(dir: &Path) -> io::Result<(SocketAddr, Child)> {
    const TRIES: u32 = 5;
    let mut tries = 1;
    loop {
        let address = free_address()?;
        match start_server(dir, address, "") {
            Err(error) if tries < TRIES && error.to_string().contains("in use") => tries += 1,
            started => return started.map(|server| (address, server)),
        }
    }
}

/// Where sshd separates its privileges; gone after a boot without it. It must be nobody else's to write, whatever our umask is.
fn make_separation_directory() -> io::Result<()> {
    const DIRECTORY: &str = "/run/sshd";
    match fs::DirBuilder::new().mode(0o700).create(DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| fs::set_permissions(DIRECTORY, fs::Permissions::from_mode(0o755))),
    }
}

fn start_server(dir: &Path, address: SocketAddr, settings: &str) -> io::Result<Child> {
    fs::write(dir.join("sshd_config"), server_config(dir, address) + settings)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    if rustix::process::geteuid().is_root() {
        make_separation_directory()?;
    }
    let program = find_program("sshd").ok_or(io::ErrorKind::NotFound)?;
    let _ = fs::remove_file(dir.join(PID_FILE)); // of the one before
    let log = fs::File::create(dir.join("sshd.log"))?;
    let mut command = Command::new(program);
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
    adopt_orphans(&mut command);
    let mut server = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    wait_for_server(&mut server, dir)?;
    Ok(server)
}

fn children_of(pid: u32) -> io::Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Makes the process that is started the parent of what its children leave behind: an SFTP server goes on with the requests that have come after
/// the session that it belongs to has ended with its connection.
#[allow(unsafe_code)]
fn adopt_orphans(command: &mut Command) {
    let adopt = || rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from);
    // SAFETY: between fork and exec this makes two system calls, and takes no memory and no lock.
    unsafe { command.pre_exec(adopt) };
}

fn server_config(dir: &Path, address: SocketAddr) -> String {
    let dir = dir.display();
    format!(
        "ListenAddress {address}\nHostKey {dir}/host_key\nAuthorizedKeysFile {dir}/authorized_keys\nPidFile {dir}/{PID_FILE}\n\
         UsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n\
         MaxStartups 100\nMaxSessions 100\nSubsystem sftp internal-sftp\nLogLevel ERROR\n"
    )
}

/// Written when it listens. That somebody answers there is no sign of it: it may be another one, who has taken the port meanwhile.
const PID_FILE: &str = "sshd.pid";

fn wait_for_server(server: &mut Child, dir: &Path) -> io::Result<()> {
    let started = Instant::now();
    while !dir.join(PID_FILE).exists() {
        if server.try_wait()?.is_some() || started.elapsed() > PATIENCE {
            let log = fs::read_to_string(dir.join("sshd.log")).unwrap_or_default();
            return Err(io::Error::other(format!("sshd does not listen: {}", log.trim())));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn access(dir: &Path, address: SocketAddr) -> Access {
    let user = rustix::process::geteuid().as_raw();
    let name = passwd_name(user).unwrap_or_else(|| "root".to_owned());
    let option = |text: String| ["-o".to_owned(), text];
    let settings = [
        format!("Port={}", address.port()),
        format!("IdentityFile={}", dir.join("user_key").display()),
        format!("UserKnownHostsFile={}", dir.join("known_hosts").display()),
        "IdentitiesOnly=yes".to_owned(),
        "StrictHostKeyChecking=no".to_owned(),
        "BatchMode=yes".to_owned(),
        "LogLevel=ERROR".to_owned(),
    ];
    let options = ["-F".to_owned(), "/dev/null".to_owned()]
        .into_iter()
        .chain(settings.into_iter().flat_map(option));
    Access {
        host: format!("{name}@{}", address.ip()),
        options: options.collect(),
    }
}

/// The name of a user, read from the file that sshd reads it from.
fn passwd_name(user: u32) -> Option<String> {
    let table = fs::read_to_string("/etc/passwd").ok()?;
    let fields = table.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let own = |fields: &Vec<&str>| fields.get(2).and_then(|id| id.parse().ok()) == Some(user);
    fields.into_iter().find(own).map(|fields| fields[0].to_owned())
}

fn check(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    Err(io::Error::other(format!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}
