//! Machines of user-mode-linux, and commands in them.
//!
//! ```text
//!   fixtures/machine        their root, shared, a directory of this machine (hostfs)
//!   .../elbow/init.sh       the first program: network, then what is asked
//!   SHARED/MACHINE/n.sh     what is to be run there, in its order
//!   SHARED/MACHINE/n.out    what it said;  n.code: it has ended
//! ```

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::commands::unavailable;

/// After this a machine or a command in it is taken for hung.
const PATIENCE: Duration = Duration::from_secs(180);
const GLANCE: Duration = Duration::from_millis(5);
const MEMORY: &str = "mem=300M";

const INIT: &str = r#"#!/bin/sh
# The first and only program of the machine; its variables come from the command line of the kernel.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /mnt && mount -t tmpfs tmpfs /var/lib/nfs && mkdir -p /var/lib/nfs/sm /var/lib/nfs/v4recovery /run/rpcbind /run/asked
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t hostfs hostfs /run/asked -o "$asked"
modprobe -a fuse nfsd nfs nfsv3 nfsv4 sch_netem
hostname "$machine"
ip link set lo up; ip addr add "$address/24" dev eth0; ip link set eth0 up
n=1
while :; do
    if [ -e "/run/asked/$machine/$n.sh" ]; then
        (. "/run/asked/$machine/$n.sh") > "/run/asked/$machine/$n.out" 2>&1
        echo $? > "/run/asked/$machine/$n.partial" && mv "/run/asked/$machine/$n.partial" "/run/asked/$machine/$n.code"
        n=$((n + 1))
    else
        sleep 0.05
    fi
done
"#;

/// Exports the directory `$export`. A lease of ten seconds, because what the dead have locked is kept for so long.
pub(crate) const SERVE: &str = r#"mkdir -p $export; mount -t nfsd nfsd /proc/fs/nfsd; rpcbind
for name in nfsv4leasetime nfsv4gracetime; do echo 10 > /proc/fs/nfsd/$name; done
rpc.nfsd 4 && rpc.mountd && echo Y > /proc/fs/nfsd/v4_end_grace
exportfs -o rw,sync,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$export""#;

/// Where machines are started, and the network that joins them.
pub(crate) struct Lab {
    root: PathBuf,
    asked: TempDir,
}

impl Lab {
    /// `None`, said aloud, where there is no user-mode-linux or no Debian for it.
    pub(crate) fn new() -> Option<Self> {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
        let fixtures = std::env::var_os("ELBOW_FIXTURES").map_or(fixtures, PathBuf::from);
        let root = fixtures.join("machine");
        let has_kernel = Command::new("linux.uml").arg("--version").output().is_ok();
        if !has_kernel || !root.join("usr/sbin/rpc.nfsd").exists() {
            unavailable("user-mode-linux with a Debian for it (scripts/setup.sh soak)");
            return None;
        }
        let own = root.join("elbow");
        fs::create_dir_all(&own).expect("a directory for our programs");
        fs::write(own.join("init.sh"), INIT).expect("the first program");
        fs::copy(env!("CARGO_BIN_EXE_elbow"), own.join("elbow")).expect("a copy of elbow");
        for name in ["init.sh", "elbow"] {
            fs::set_permissions(own.join(name), Permissions::from_mode(0o755)).expect("a program");
        }
        Some(Self {
            root: root.canonicalize().expect("its path"),
            asked: tempfile::tempdir().expect("a directory"),
        })
    }

    /// Known to both.
    pub(crate) fn address(&self, machine: &str) -> &'static str {
        if machine == "server" { "10.9.9.1" } else { "10.9.9.2" }
    }

    /// Switches a machine on.
    pub(crate) fn boot(&self, name: &'static str) -> Machine {
        let asked = self.asked.path().join(name);
        let _ = fs::remove_dir_all(&asked);
        fs::create_dir(&asked).expect("a directory");
        let address = self.address(name);
        // A network of this process alone, without any right to make one.
        let network = 20_000 + std::process::id() % 20_000;
        let last = address.rsplit('.').next().expect("an address");
        let console = fs::File::create(self.asked.path().join(format!("{name}.console"))).expect("a console");
        let mut command = Command::new("linux.uml");
        command
            .args([
                MEMORY,
                "root=/dev/root",
                "rootfstype=hostfs",
                "rw",
                "init=/elbow/init.sh",
                "con=null",
                "con0=null,fd:1",
            ])
            .arg(format!("rootflags={}", self.root.display()))
            .arg(format!("asked={}", self.asked.path().display()))
            .arg(format!("eth0=mcast,fe:fd:00:00:00:0{last},239.192.168.1,{network},0"))
            .args([format!("machine={name}"), format!("address={address}")])
            .stdin(Stdio::null())
            .stdout(console.try_clone().expect("a console"))
            .stderr(console)
            .process_group(0);
        if Path::new("/dev/shm").is_dir() {
            command.env("TMPDIR", "/dev/shm"); // Where its memory lies.
        }
        let process = command.spawn().expect("user-mode-linux");
        let mut machine = Machine {
            name,
            process,
            asked,
            commands: 0,
        };
        machine.run("true");
        machine
    }
}

/// One that is running; switched off when dropped.
pub(crate) struct Machine {
    name: &'static str,
    process: Child,
    asked: PathBuf,
    commands: u32,
}

impl Machine {
    /// Starts a command, without waiting for its end.
    pub(crate) fn start(&mut self, script: &str) {
        self.commands += 1;
        let draft = self.asked.join("draft");
        fs::write(&draft, script).expect("a script");
        fs::rename(draft, self.asked.join(format!("{}.sh", self.commands))).expect("a script");
    }

    /// Runs a command, which has to end well; what it says.
    pub(crate) fn run(&mut self, script: &str) -> String {
        self.start(script);
        let file = |kind: &str| self.asked.join(format!("{}.{kind}", self.commands));
        let deadline = Instant::now() + PATIENCE;
        while !file("code").exists() {
            assert!(
                Instant::now() < deadline,
                "{} hangs in: {script}\n{}",
                self.name,
                self.console()
            );
            std::thread::sleep(GLANCE);
        }
        let said = fs::read_to_string(file("out")).expect("what it said");
        let code = fs::read_to_string(file("code")).expect("its code");
        assert_eq!(code.trim(), "0", "{}: {script}\n{said}", self.name);
        said
    }

    /// Switches it off as a power cut does: nothing of it runs on, and nothing is told to anybody.
    pub(crate) fn kill(mut self) {
        self.switch_off();
    }

    fn switch_off(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }

    fn console(&self) -> String {
        let console = self.asked.with_extension("console");
        String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.switch_off();
    }
}
