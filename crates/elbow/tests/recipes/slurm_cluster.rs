//! A real Slurm of one node, started for a test in a directory: munged, slurmctld and slurmd, without systemd and without being
//! installed. Its partition `high` takes the node from jobs in `low`, which are requeued.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::ground::{Ground, fixture, unavailable, until};

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
        ground.write("slurm.conf", &configuration(&ground, &plugins));
        for place in ["state", "spool"] {
            fs::create_dir(ground.path(place)).expect("a directory");
        }
        let mut cluster = Self {
            ground,
            daemons: Vec::new(),
        };
        cluster.start_daemons(&root);
        Some(cluster)
    }

    fn start_daemons(&mut self, root: &Path) {
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
        self.start_daemon(&daemon(root, "slurmctld"), &["-D"]);
        let steps = daemon(root, "slurmstepd").display().to_string();
        self.start_daemon(&daemon(root, "slurmd"), &["-D", "-d", &steps]);
        until("a node that is idle", || {
            self.ground
                .run("sinfo --noheader --format %T || true")
                .said
                .contains("idle")
        });
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
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
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
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
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
