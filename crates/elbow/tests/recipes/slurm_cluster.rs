//! A real Slurm of one node, started for a test in a directory: munged, slurmctld and slurmd, without systemd and without being
//! installed. Its partition `high` takes the node from jobs in `low`, which are requeued.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::ground::{Ground, fixture, unavailable, until};

/// So often it is begun with other ports at most.
const TRIES: usize = 5;
/// Directories of Slurm's, which are empty when it begins.
const PLACES: [&str; 3] = ["state", "spool", "log"];

/// See the module's header.
pub(crate) struct Cluster {
    /// Where its users are.
    pub(crate) ground: Ground,
    daemons: Vec<Child>,
}

impl Cluster {
    /// A cluster that has started; none, with a word, where Slurm is not to be had.
    pub(crate) fn start() -> Option<Self> {
        let root = fixture("slurm/usr");
        let Some(plugins) = plugins(&root) else {
            unavailable("Slurm");
            return None;
        };
        let root = root.canonicalize().expect("a directory that is there");
        let mut ground = Ground::new(&[&root.join("bin"), &root.join("sbin")]);
        ground.set(
            "LD_LIBRARY_PATH",
            format!(
                "{}:{}",
                plugins.parent().expect("a directory").display(),
                plugins.display()
            ),
        );
        ground.set("SLURM_CONF", ground.path("slurm.conf").display().to_string());
        let mut cluster = Self {
            ground,
            daemons: Vec::new(),
        };
        cluster.start_munge(&root);
        for _ in 0..TRIES {
            let configuration = configuration(&cluster.ground, &plugins);
            cluster.ground.write("slurm.conf", &configuration);
            for place in PLACES {
                cluster.ground.empty(place);
            }
            if cluster.start_slurm(&root) {
                return Some(cluster);
            }
            // But munge, which has no port.
            cluster.kill_daemons(1);
        }
        panic!("somebody else took one of its ports {TRIES} times");
    }

    fn start_munge(&mut self, root: &Path) {
        self.ground
            .run("head -c 1024 /dev/urandom >munge.key; chmod 600 munge.key")
            .assert_code(0);
        let own = ["socket", "key-file", "pid-file", "log-file", "seed-file"];
        let own = own.map(|what| {
            let name = what.strip_suffix("-file").unwrap_or(what);
            format!("--{what}={}", self.ground.path(&format!("munge.{name}")).display())
        });
        // Forced, because it will not have its socket below a directory that all may write to.
        self.start_daemon(
            &root.join("sbin/munged"),
            &[&["--foreground", "--force"][..], &own.each_ref().map(String::as_str)].concat(),
        );
        until("munge", || self.ground.path("munge.socket").exists());
    }

    /// Whether its daemons have started: no, where somebody else has taken a port meanwhile.
    fn start_slurm(&mut self, root: &Path) -> bool {
        self.start_daemon(&daemon(root, "slurmctld"), &["-D"]);
        let steps = daemon(root, "slurmstepd").display().to_string();
        self.start_daemon(&daemon(root, "slurmd"), &["-D", "-d", &steps]);
        let mut is_idle = false;
        until("a node that is idle", || {
            let nodes = self.ground.run("sinfo --noheader --format %T || true");
            is_idle = nodes.said.contains("idle");
            is_idle || self.lacks_a_port()
        });
        is_idle
    }

    /// Whether a daemon has ended because somebody else has its port.
    fn lacks_a_port(&mut self) -> bool {
        let has_ended = |daemon: &mut Child| daemon.try_wait().expect("its state").is_some();
        let said = ["log/slurmctld", "log/slurmd"].map(|name| self.ground.read(name));
        self.daemons.iter_mut().any(has_ended) && said.concat().contains("Address already in use")
    }

    /// From this one on, in the order in which they were started.
    fn kill_daemons(&mut self, first: usize) {
        for mut daemon in self.daemons.drain(first..).rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    fn start_daemon(&mut self, program: &Path, options: &[&str]) {
        let name = program.file_name().expect("a name").to_string_lossy();
        let said = fs::File::create(self.ground.path(&format!("{name}.said"))).expect("a file");
        let mut command = Command::new(program);
        command
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        self.daemons.push(self.ground.spawn(&mut command));
    }

    /// Waits until no job waits or runs.
    pub(crate) fn wait_for_all(&self) {
        until("the end of all jobs", || {
            let queue = self.ground.run("squeue --noheader");
            queue.code == 0 && queue.said.trim().is_empty()
        });
    }

    /// How many jobs have a state.
    pub(crate) fn jobs(&self, state: &str) -> usize {
        let queue = self.ground.run(&format!("squeue --noheader --array --states {state}"));
        queue.said.lines().count()
    }

    /// What `scontrol show job` says of a job.
    pub(crate) fn show(&self, job: &str) -> String {
        self.ground.run(&format!("scontrol show job {job}")).said
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self
            .ground
            .run("rm -f wait; scancel --user \"$(id -un)\"; for i in $(seq 50); do [ -n \"$(squeue --noheader)\" ] || break; sleep 0.1; done");
        self.kill_daemons(0);
    }
}

/// A program of Slurm's own, which Debian 12 gives another name.
fn daemon(root: &Path, name: &str) -> PathBuf {
    let renamed = root.join(format!("sbin/{name}-wlm"));
    if renamed.is_file() {
        renamed
    } else {
        root.join("sbin").join(name)
    }
}

/// The directory of Slurm's plugins, below that of libraries.
fn plugins(root: &Path) -> Option<PathBuf> {
    let libraries = fs::read_dir(root.join("lib")).ok()?.flatten();
    let mut plugins = libraries.map(|entry| entry.path().join("slurm-wlm"));
    let found = plugins.find(|place| place.is_dir())?;
    found.canonicalize().ok()
}

fn configuration(ground: &Ground, plugins: &Path) -> String {
    let host = ground.run("hostname -s").said;
    let user = ground.run("id -un").said;
    let (host, user) = (host.trim(), user.trim());
    let place = ground.path("").display().to_string();
    let place = place.trim_end_matches('/');
    let [control, node] = free_ports();
    format!(
        "ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={control}
SlurmdPort={node}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/log/slurmctld
SlurmdLogFile={place}/log/slurmd
PluginDir={}
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MailProg=/bin/true
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 State=UP
PartitionName=high Nodes=ALL PriorityTier=2 State=UP
",
        plugins.display()
    )
}

/// Ports of this machine that nobody had a moment ago.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}
