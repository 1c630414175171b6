//! Two machines that qemu emulates, the network between them, and commands in them.
//!
//! ```text
//!   test ──commands──> virtio console ──> /init ──> sh         what a command said and how it ended comes back the same way
//!   server: /dev/vda, which it exports ──eth0── datagrams of two sockets ──eth0── client
//! ```
//!
//! The processor is emulated, too: it needs no right, no module and no processor that this machine lends, and takes about ten times as long. A
//! machine goes with its test, however that ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::commands::unavailable;
use crate::image::Image;

const QEMU: &str = "qemu-system-x86_64";
/// After this a machine or a command in it is taken for hung.
const PATIENCE: Duration = Duration::from_secs(240);
/// Of what a machine that is gone said at last.
const LINES_SHOWN: usize = 20;
const MEMORY_MEGABYTES: &str = "512";
const DISK_BYTES: u64 = 256 << 20;

/// The first program: it gets its variables from the command line of the kernel, and commands from the test. A command is `KIND NUMBER
/// LENGTH` and a script of so many bytes; of `run` and of `finish` the answer is `CODE LENGTH` and what the script said.
pub(crate) const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/v4recovery
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
modprobe -a virtio_pci virtio_console virtio_net virtio_blk fuse nfsd nfs nfsv3 nfsv4 sch_netem
hostname "$machine"
echo "$identity" > /etc/machine-id
# A server of NFS 4 takes clients of one name for one client that was started anew, unless they have more than that.
echo "$identity" > /sys/module/nfs/parameters/nfs4_unique_id
ip link set lo up; ip addr add "$address/24" dev eth0; ip link set eth0 up
begin() { /bin/sh "/run/$1.sh" > "/run/$1.out" 2>&1 3>&- < /dev/null; echo $? > "/run/$1.code"; }
until set -- /dev/vport*p1; [ -e "$1" ]; do sleep 0.05; done
exec 3<>"$1"
while read -r kind number length <&3; do
    [ "$kind" = finish ] || dd bs="$length" count=1 iflag=fullblock <&3 > "/run/$number.sh" 2>/dev/null
    case $kind in
    start) begin "$number" & continue ;;
    run) begin "$number" ;;
    finish) until [ -s "/run/$number.code" ]; do sleep 0.05; done ;;
    esac
    echo "$(cat "/run/$number.code") $(stat -c %s "/run/$number.out")" >&3
    cat "/run/$number.out" >&3
done
poweroff -f
"#;

/// Where the server has what it exports.
pub(crate) const EXPORT: &str = "/export";

/// Exports its disk. What the dead have locked is kept for a lease: as short as goes where everything takes its time.
pub(crate) const SERVE: &str = r#"set -e
mkdir /export; mount -t ext4 /dev/vda /export
mount -t nfsd nfsd /proc/fs/nfsd; rpcbind
for name in nfsv4leasetime nfsv4gracetime; do echo 20 > /proc/fs/nfsd/$name; done
rpc.nfsd 4; rpc.mountd --port 20048
for name in nfsd/v4_end_grace lockd/nlm_end_grace; do echo Y > /proc/fs/$name; done
exportfs -a
"#;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }

    /// Its name, unless it is given another one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Server => 1,
            Self::Client => 2,
        }
    }

    /// Known to both.
    pub(crate) fn address(self) -> String {
        format!("10.9.9.{}", self.number())
    }

    fn machine_id(self) -> String {
        format!("{:032x}", self.number())
    }
}

/// Two machines at a time keep two processors busy.
static ALONE: Mutex<()> = Mutex::new(());

/// Where machines are started, and the network that joins them.
pub(crate) struct Lab {
    image: Image,
    place: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    /// `None`, said aloud, where there is no qemu, or nothing for it to boot.
    pub(crate) fn new() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = tempfile::tempdir().expect("a directory");
        let has_qemu = Command::new(QEMU).arg("--version").output().is_ok();
        let image = has_qemu.then(|| Image::make(place.path())).flatten();
        let Some(image) = image else {
            unavailable("qemu-system-x86 and what it boots (scripts/setup.sh test)");
            return None;
        };
        let lab = Self {
            image,
            place,
            _alone: alone,
        };
        lab.make_disk();
        Some(lab)
    }

    fn make_disk(&self) {
        let disk = self.disk();
        File::create(&disk)
            .expect("a disk")
            .set_len(DISK_BYTES)
            .expect("a disk");
        let mut command = Command::new("mkfs.ext4");
        let path = std::env::var("PATH").unwrap_or_default();
        let made = command
            .arg("-qF")
            .arg(disk)
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .status();
        assert!(made.expect("mkfs.ext4").success());
    }

    fn disk(&self) -> PathBuf {
        self.place.path().join("disk")
    }

    /// Switches a machine on. It takes its time to boot; what it is asked meanwhile waits.
    pub(crate) fn boot(&self, side: Side, name: &str) -> Machine {
        self.boot_as(side, name, |command| {
            command.arg("-no-reboot");
        })
    }

    /// One with a zoned NVMe device, `/dev/nvme0n1`, which begins anew after a crash and keeps that device, as it is: the emulator forgets its zones when
    /// it ends.
    pub(crate) fn boot_zoned(&self, zone_bytes: u64, capacity_bytes: u64, zones: u64) -> Machine {
        let disk = self.place.path().join("zones");
        let made = File::create(&disk).and_then(|file| file.set_len(zone_bytes * zones));
        made.expect("a disk");
        let zoned = format!(
            "nvme-ns,drive=zones,zoned=true,logical_block_size=4096,physical_block_size=4096,zoned.zone_size={zone_bytes},\
             zoned.zone_capacity={capacity_bytes},zoned.max_open=2,zoned.max_active=2"
        );
        self.boot_as(Side::Client, Side::Client.name(), |command| {
            let drive = format!("file={},id=zones,if=none,format=raw,cache=unsafe", disk.display());
            command.args(["-drive", &drive, "-device", "nvme,serial=zones", "-device", &zoned]);
        })
    }

    fn boot_as(&self, side: Side, name: &str, more: impl FnOnce(&mut Command)) -> Machine {
        let console = self.place.path().join(format!("{}.console", side.name()));
        let (talk, theirs) = UnixStream::pair().expect("sockets");
        talk.set_read_timeout(Some(PATIENCE)).expect("a bound");
        let mut emulator = self.emulator(side, name, &console);
        more(&mut emulator);
        let process = emulator
            .stdin(OwnedFd::from(theirs.try_clone().expect("a socket")))
            .stdout(OwnedFd::from(theirs))
            .stderr(File::create(console.with_extension("qemu")).expect("a file"))
            .spawn()
            .expect("qemu");
        Machine {
            side,
            process,
            talk: BufReader::new(talk),
            console,
            commands: 0,
        }
    }

    /// It talks with the machine by its standard input and output.
    fn emulator(&self, side: Side, name: &str, console: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", QEMU])
            .args(["-accel", "tcg", "-cpu", "max", "-m", MEMORY_MEGABYTES])
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .arg("-kernel")
            .arg(&self.image.kernel)
            .arg("-initrd")
            .arg(&self.image.initrd)
            .args(["-append", &kernel_options(side, name)])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-chardev", "stdio,id=talk,signal=off", "-device", "virtio-serial-pci"])
            .args(["-device", "virtserialport,chardev=talk"])
            .args(["-netdev", &self.wire(side), "-device", &card(side)]);
        if side == Side::Server {
            let disk = format!("file={},if=virtio,format=raw,cache=unsafe", self.disk().display());
            command.args(["-drive", &disk]);
        }
        command
    }

    fn wire(&self, side: Side) -> String {
        let end = |side: Side| self.place.path().join(format!("{}.wire", side.name()));
        let (here, there) = (end(side), end(side.other()));
        format!(
            "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            here.display(),
            there.display()
        )
    }
}

/// A machine that panics is switched off, which its test sees at once. Whether its timer ticks as fast as its clock runs is not asked: that fails where
/// this machine is busy.
fn kernel_options(side: Side, name: &str) -> String {
    format!(
        "console=ttyS0 panic=-1 no_timer_check mitigations=off random.trust_cpu=on machine={name} address={} identity={}",
        side.address(),
        side.machine_id()
    )
}

fn card(side: Side) -> String {
    format!("virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0{}", side.number())
}

fn last_lines(path: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let skipped = text.lines().count().saturating_sub(LINES_SHOWN);
    text.lines().skip(skipped).collect::<Vec<_>>().join("\n")
}

/// A command that was started in a machine.
#[derive(Clone, Copy)]
pub(crate) struct Started(u32);

/// How a command ended, and what it said.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) said: String,
}

/// One that is running; switched off when dropped.
pub(crate) struct Machine {
    side: Side,
    process: Child,
    talk: BufReader<UnixStream>,
    console: PathBuf,
    commands: u32,
}

impl Machine {
    /// Starts a command, without waiting for its end.
    pub(crate) fn start(&mut self, script: &str) -> Started {
        self.commands += 1;
        self.ask("start", self.commands, script);
        Started(self.commands)
    }

    /// Waits for the end of one.
    pub(crate) fn finish(&mut self, command: Started) -> Ended {
        self.ask("finish", command.0, "");
        self.answer("a command that was started")
    }

    /// Waits until something is so while a command runs; that it ends before is a failure.
    #[track_caller]
    pub(crate) fn wait_during(&mut self, command: Started, condition: &str) {
        let (code, said) = (format!("/run/{}.code", command.0), format!("/run/{}.out", command.0));
        self.run(&format!(
            "until {condition}; do [ ! -s {code} ] || {{ cat {said} {code}; exit 1; }}; sleep 0.05; done"
        ));
    }

    /// Runs a command to its end.
    pub(crate) fn try_run(&mut self, script: &str) -> Ended {
        self.commands += 1;
        self.ask("run", self.commands, script);
        self.answer(script)
    }

    /// Runs a command, which has to end well; what it says.
    #[track_caller]
    pub(crate) fn run(&mut self, script: &str) -> String {
        let ended = self.try_run(script);
        assert_eq!(ended.code, 0, "{}: {script}\n{}", self.side.name(), ended.said);
        ended.said
    }

    /// Lets the machine begin anew at once, as a crash of its kernel does: nothing of it runs on. Returns when the kernel has booted again: what it was asked
    /// before would be lost with the old one.
    pub(crate) fn crash(&mut self) {
        let before = self.boots();
        self.commands += 1;
        self.ask("start", self.commands, "echo b > /proc/sysrq-trigger");
        let begun = Instant::now();
        while self.boots() == before {
            if begun.elapsed() > PATIENCE {
                self.gone("a crash", &std::io::Error::other("it does not boot"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// How often its first program was started.
    fn boots(&self) -> usize {
        let console = fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&console)
            .matches("Run /init as init process")
            .count()
    }

    fn ask(&mut self, kind: &str, number: u32, script: &str) {
        let asked = format!("{kind} {number} {}\n{script}", script.len());
        let sent = self.talk.get_mut().write_all(asked.as_bytes());
        sent.unwrap_or_else(|error| self.gone(kind, &error));
    }

    fn answer(&mut self, script: &str) -> Ended {
        self.try_answer().unwrap_or_else(|error| self.gone(script, &error))
    }

    fn try_answer(&mut self) -> std::io::Result<Ended> {
        let mut line = String::new();
        self.talk.read_line(&mut line)?;
        let words: Vec<usize> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [code, length] = words[..] else {
            return Err(std::io::Error::other(format!("it answers {line:?}")));
        };
        let mut said = vec![0; length];
        self.talk.read_exact(&mut said)?;
        Ok(Ended {
            code: i32::try_from(code).expect("an exit code"),
            said: String::from_utf8_lossy(&said).into_owned(),
        })
    }

    fn gone(&self, script: &str, error: &std::io::Error) -> ! {
        let (console, qemu) = (
            last_lines(&self.console),
            last_lines(&self.console.with_extension("qemu")),
        );
        panic!(
            "{} hangs or is gone ({error}) in: {script}\n{qemu}\n{console}",
            self.side.name()
        );
    }

    /// Switches it off as a power cut does: nothing of it runs on, and nothing is told to anybody.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}
