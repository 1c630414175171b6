//! Two machines and one NFS export: their jobs run side by side, and when one of them dies with its machine, the other machine ends it.
//!
//! The machines are emulated by qemu, with kernels of their own. `server` exports a disk and mounts that from itself; `client` mounts it
//! over a network between the two, and is killed as a machine is by a power cut. Neither knows the other but by the export.
//!
//! A machine alone has a zoned device (`zoned`).
//!
//! They need no root, and what `scripts/setup.sh test` brings: qemu, and a kernel, its modules and NFS below `target/fixtures/machine`. Under
//! `SOAK=1` there are more moments at which a machine dies, and NFS 3.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

#[allow(dead_code)] // what other tests need of it
#[path = "../mounted/commands.rs"]
mod commands;
mod image;
mod machine;
mod zoned;

use elbow_testkit::cases::is_soak;
use machine::{EXPORT, Ended, Lab, Machine, SERVE, Side, Started};

/// The old tree, and what a job makes of it: enough steps for a moment among them.
const OLD: &str = "mkdir -p d gone/deep moves; for i in 1 2 3 4 5 6 7 8; do echo old $i > d/$i; echo $i > gone/$i; echo $i > gone/deep/$i; done
    echo in > moves/in; echo log > log; echo old > replaced; echo 1 > one";
const JOB: &str = "mkdir new; for i in 1 2 3 4 5 6 7 8; do echo $i > new/$i; echo more >> d/$i; done; echo fresh > d/fresh; echo more >> log
    echo new > tmp; mv tmp replaced; rm -r gone; mv moves new/moved; mv one two; chmod 600 d/1";
/// What another job makes beside that one, of other names of the same directories.
const BESIDE: &str =
    "mkdir beside; for i in 1 2 3 4 5 6 7 8; do echo $i > beside/$i; echo $i > d/beside$i; done; mv beside/8 eight";
/// What is where, without times.
const LIST: &str = "find . -mindepth 1 -printf '%P %y %m %l\\n' | sort; find . -type f | sort | xargs sha1sum";
/// The same without jobs' own directories.
const LIST_VISIBLE: &str = "find . -mindepth 1 -name '.elbow-*' -prune -o -mindepth 1 -printf '%P %y %m %l\\n' | sort
    find . -name '.elbow-*' -prune -o -type f -print | sort | xargs sha1sum";

/// Takes the server off the network: IFF_UP is gone from the flags of its card. A program would have to be started first.
const CUT_OFF: &str = "echo 0x1002 > /sys/class/net/eth0/flags";

/// Kills that came too late for their moment are repeated so many times at most.
const TRIES: usize = 4;

/// Seen to be enough for a commit over another one where the check asked no server.
const ROUNDS_ON_ONE_FILE: usize = 4;

/// When the client is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Run,
    /// The record of the commit is there.
    Record,
    /// Some steps of the commit are done, and some are not.
    Steps,
    Cleaning,
}

impl Moment {
    /// What is then in the job's own directory.
    fn file(self) -> &'static str {
        match self {
            Self::Run => "job",
            Self::Record | Self::Steps => "commit",
            Self::Cleaning => "done",
        }
    }

    /// A condition of the shell, in the export.
    fn condition(self) -> String {
        match self {
            Self::Steps => "[ -e new ] || [ -e two ] || [ ! -e gone ] || [ ! -e moves ]".into(),
            _ => format!("set -- .elbow-*/{}; [ -e \"$1\" ]", self.file()),
        }
    }
}

/// What ends the job of the machine that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Recover,
    NextJob,
}

/// How both mount the export.
struct Mount {
    options: &'static str,
    /// The export has another name in version 3.
    path: &'static str,
    /// Others see the locks of a machine.
    carries_locks: bool,
}

const VERSION_4: Mount = Mount {
    options: "vers=4.2,proto=tcp",
    path: "/",
    carries_locks: true,
};
const VERSION_3: Mount = Mount {
    options: "vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=20048,nolock",
    path: EXPORT,
    carries_locks: false,
};

impl Mount {
    fn command(&self, host: &str) -> String {
        format!(
            "mkdir -p /mnt/nfs; mount.nfs {host}:{} /mnt/nfs -o {}",
            self.path, self.options
        )
    }
}

/// Both machines; the server has mounted the export.
struct Pair<'a> {
    lab: &'a Lab,
    mount: &'a Mount,
    server: Machine,
    client: Machine,
}

impl<'a> Pair<'a> {
    fn boot(lab: &'a Lab, mount: &'a Mount) -> Self {
        Self::boot_as(lab, mount, Side::Server.name(), Side::Client.name())
    }

    fn boot_as(lab: &'a Lab, mount: &'a Mount, server: &str, client: &str) -> Self {
        let mut pair = Self {
            lab,
            mount,
            server: lab.boot(Side::Server, server),
            client: lab.boot(Side::Client, client),
        };
        pair.server.run(SERVE);
        pair.server.run(&mount.command("127.0.0.1"));
        pair
    }

    fn mount_client(&mut self) {
        self.client.run(&self.mount.command(&Side::Server.address()));
    }

    /// Kills the client; another machine takes its place.
    fn replace_client(&mut self) {
        self.client.kill();
        self.client = self.lab.boot(Side::Client, Side::Client.name());
    }

    fn restore(&mut self) {
        self.server
            .run(&format!("cd {EXPORT} && find . -mindepth 1 -delete && {OLD}"));
    }

    /// So many jobs are on the export; what a command has done is told to the storage a moment later.
    #[track_caller]
    fn await_jobs(&mut self, count: usize) {
        let are_there = format!("[ $(ls -d .elbow-*/job | wc -l) = {count} ]");
        self.server.run(&format!(
            "cd {EXPORT} && for i in $(seq 400); do {are_there} && exit; sleep 0.05; done; ls -lA . .elbow-*; exit 1"
        ));
    }

    fn tree(&mut self) -> String {
        self.server.run(&format!("cd {EXPORT} && {LIST}"))
    }

    /// What a directory of the server's own is after these commands.
    fn tree_of(&mut self, make: &str) -> String {
        self.server.run(&format!(
            "rm -rf /tmp/tree; mkdir /tmp/tree; cd /tmp/tree && {make} && {LIST}"
        ))
    }
}

/// A job that has changed what it changes, and ends when its machine is told to.
fn waiting_job(script: &str) -> String {
    format!(
        "cd /mnt/nfs && elbow run -- sh -ec '{script}\n: > /run/changed; until [ -e /run/go ]; do sleep 0.05; done'"
    )
}

#[track_caller]
fn start_waiting(machine: &mut Machine, script: &str) -> Started {
    // Before it starts: the wait below would take an earlier job's for its own.
    machine.run("rm -f /run/changed /run/go");
    let job = machine.start(&waiting_job(script));
    machine.wait_during(job, "[ -e /run/changed ]");
    job
}

#[track_caller]
fn assert_committed(ended: &Ended) {
    assert_eq!(ended.code, 0, "{}", ended.said);
}

fn assert_jobs_side_by_side(mount: &Mount) {
    let Some(lab) = Lab::new() else { return };
    let mut pair = Pair::boot(&lab, mount);
    pair.restore();
    pair.mount_client();
    let of_server = start_waiting(&mut pair.server, BESIDE);
    let of_client = start_waiting(&mut pair.client, JOB);
    pair.await_jobs(2);
    pair.server.run(": > /run/go");
    pair.client.run(": > /run/go");
    assert_committed(&pair.server.finish(of_server));
    assert_committed(&pair.client.finish(of_client));
    let expected = pair.tree_of(&format!("{OLD} && {{ {JOB}; }} && {{ {BESIDE}; }}"));
    assert_eq!(pair.tree(), expected);
}

/// Both give one file another content: the content is that of the job that committed, and the other one says whose it was.
fn assert_one_of_two_on_one_file(pair: &mut Pair) {
    // What a machine remembers of the file from before is older than this.
    for machine in [&mut pair.server, &mut pair.client] {
        machine.run("sleep 4; cat /mnt/nfs/log");
    }
    let of_server = start_waiting(&mut pair.server, "echo server > log");
    let of_client = start_waiting(&mut pair.client, "echo client > log");
    pair.await_jobs(2);
    pair.client.run(": > /run/go");
    pair.server.run(": > /run/go");
    let ends = [pair.server.finish(of_server), pair.client.finish(of_client)];
    let log = pair.server.run(&format!("cat {EXPORT}/log"));
    let said = format!("{log}--- server\n{}--- client\n{}", ends[0].said, ends[1].said);
    for (ended, name) in ends.iter().zip(["server", "client"]) {
        let is_committed = ended.code == 0;
        assert_eq!(is_committed, log.trim() == name, "{said}");
        assert!(is_committed || ended.said.contains("while the job ran: log"), "{said}");
    }
    let left = pair.server.run(&format!("cd {EXPORT} && ls -A"));
    assert!(!left.contains(".elbow-"), "{left}");
}

/// A client of NFS answered from what it had seen before the other machine's commit, and both jobs committed.
#[test]
fn of_two_machines_that_change_one_file_one_is_told() {
    let Some(lab) = Lab::new() else { return };
    let mut pair = Pair::boot(&lab, &VERSION_4);
    pair.restore();
    pair.mount_client();
    for _ in 0..ROUNDS_ON_ONE_FILE {
        assert_one_of_two_on_one_file(&mut pair);
    }
}

#[test]
fn two_machines_run_jobs_in_one_directory_at_once() {
    assert_jobs_side_by_side(&VERSION_4);
}

#[test]
fn two_machines_without_locks_run_jobs_in_one_directory_at_once() {
    if is_soak("jobs of two machines over NFS 3") {
        assert_jobs_side_by_side(&VERSION_3);
    }
}

/// A job of a machine of the same name, looked at from the other one: it is not taken for dead, and commits.
fn assert_left_alone(mount: &Mount) {
    let Some(lab) = Lab::new() else { return };
    let mut pair = Pair::boot_as(&lab, mount, "node", "node");
    pair.restore();
    pair.mount_client();
    let job = start_waiting(&mut pair.client, JOB);
    pair.await_jobs(1);
    let said = pair
        .server
        .try_run("hostname; cd /mnt/nfs && elbow recover . 2>&1")
        .said;
    assert!(said.starts_with("node\n"), "{said}");
    if mount.carries_locks {
        assert!(said.contains("on node is still running"), "{said}");
        let said = pair.server.try_run("cd /mnt/nfs && elbow recover --force . 2>&1").said;
        assert!(said.contains("on node is still running"), "{said}");
    } else {
        assert!(
            said.contains("it was started on node") && said.contains("--force"),
            "{said}"
        );
    }
    pair.server
        .run(&format!("cd /mnt/nfs && elbow run -- sh -ec '{BESIDE}'"));
    pair.client.run(": > /run/go");
    let ended = pair.client.finish(job);
    assert_committed(&ended);
    let expected = pair.tree_of(&format!("{OLD} && {{ {JOB}; }} && {{ {BESIDE}; }}"));
    assert_eq!(pair.tree(), expected);
}

#[test]
fn a_live_job_on_a_machine_of_the_same_name_is_left_alone() {
    assert_left_alone(&VERSION_4);
}

#[test]
fn where_there_are_no_locks_a_live_job_on_a_machine_of_the_same_name_is_left_alone() {
    if is_soak("machines of one name over NFS 3") {
        assert_left_alone(&VERSION_3);
    }
}

/// What a job may leave behind.
struct Trees {
    before: String,
    after: String,
}

impl Trees {
    fn of_job(pair: &mut Pair) -> Self {
        let trees = Self {
            before: pair.tree_of(OLD),
            after: pair.tree_of(&format!("{OLD} && {{ {JOB}; }}")),
        };
        assert_ne!(trees.before, trees.after);
        trees
    }

    /// Is this a tree in which a commit is under way?
    fn may_be_at(&self, moment: Moment, tree: &str) -> bool {
        match moment {
            Moment::Run => tree == self.before,
            Moment::Record => tree != self.after,
            Moment::Steps => tree != self.before && tree != self.after,
            Moment::Cleaning => true,
        }
    }
}

/// Kills a client at a moment of its job, and lets the other machine end that; what the tree is then.
fn kill_and_end(pair: &mut Pair, trees: &Trees, moment: Moment, ending: Ending) -> String {
    for _ in 0..TRIES {
        pair.restore();
        kill_at(pair, moment);
        let found = pair.server.run(&format!("cd {EXPORT} && ls -A . .elbow-*/"));
        let tree = pair.server.run(&format!("cd {EXPORT} && {LIST_VISIBLE}"));
        if found.lines().any(|line| line == moment.file()) && trees.may_be_at(moment, &tree) {
            match ending {
                Ending::Recover => recover(&mut pair.server, pair.mount),
                Ending::NextJob => run_next_job(&mut pair.server),
            }
            return pair.tree();
        }
        eprintln!("{moment:?} was missed:\n{found}\n{tree}");
    }
    panic!("{moment:?} was missed {TRIES} times");
}

fn kill_at(pair: &mut Pair, moment: Moment) {
    // Half of the round trip is on the client's side.
    pair.client
        .run("tc qdisc add dev eth0 root netem delay 20ms limit 10000");
    pair.mount_client();
    pair.client
        .start(&format!("cd /mnt/nfs && elbow run -- sh -ec '{JOB}; sleep 2'"));
    // Until it is killed the client would do more, so that the server hears nothing of it from that moment on.
    let wait = format!("cd {EXPORT}; until {}; do :; done; {CUT_OFF}", moment.condition());
    pair.server.run(&wait);
    pair.replace_client();
    pair.server.run("ip link set eth0 up");
}

/// `elbow recover` on the other machine, until it ends the job.
fn recover(server: &mut Machine, mount: &Mount) {
    let recover = "cd /mnt/nfs && elbow recover . 2>&1 || echo failed";
    let said = server.run(recover);
    if !mount.carries_locks {
        assert!(said.contains("--force"), "of another machine, and no locks: {said}");
        let said = server.run("cd /mnt/nfs && elbow recover --force . 2>&1");
        assert!(!said.contains("failed"), "{said}");
        return;
    }
    // The server keeps the locks of a machine until its lease is over: nobody can tell a dead one from one that is cut off.
    assert!(said.contains("client is still running"), "{said}");
    let said = server.run(&format!(
        "for i in $(seq 240); do said=$({recover}); case $said in *'still running'*) sleep 0.5 ;; *) break ;; esac; done; echo \"$said\""
    ));
    assert!(!said.contains("failed") && !said.contains("still running"), "{said}");
}

/// Jobs of the other machine, until one of them has found the dead one's lock free and ended that first.
fn run_next_job(server: &mut Machine) {
    let said = server.run(
        "cd /mnt/nfs; for i in $(seq 60); do elbow run -- true 2>&1; ls -d .elbow-* >/dev/null 2>&1 || exit 0; sleep 1; done; exit 1",
    );
    assert!(said.contains("committed"), "{said}");
}

fn assert_old_or_new(mount: &Mount, kills: &[(Moment, Ending)]) {
    let Some(lab) = Lab::new() else { return };
    let mut pair = Pair::boot(&lab, mount);
    let trees = Trees::of_job(&mut pair);
    for (moment, ending) in kills {
        let found = kill_and_end(&mut pair, &trees, *moment, *ending);
        let expected = if *moment == Moment::Run {
            &trees.before
        } else {
            &trees.after
        };
        assert_eq!(&found, expected, "killed at {moment:?}, ended by {ending:?}");
    }
}

#[test]
fn a_job_whose_machine_died_is_ended_by_another_one() {
    assert_old_or_new(&VERSION_4, &[(Moment::Steps, Ending::Recover)]);
}

#[test]
fn a_job_whose_machine_died_at_another_moment_is_ended_by_another_one() {
    if is_soak("machines that die at other moments") {
        assert_old_or_new(
            &VERSION_4,
            &[
                (Moment::Run, Ending::Recover),
                (Moment::Record, Ending::Recover),
                (Moment::Steps, Ending::NextJob),
                (Moment::Cleaning, Ending::Recover),
            ],
        );
    }
}

#[test]
fn where_there_are_no_locks_a_job_of_another_machine_is_ended_with_force_only() {
    if is_soak("a machine that dies over NFS 3") {
        assert_old_or_new(
            &VERSION_3,
            &[(Moment::Steps, Ending::Recover), (Moment::Run, Ending::Recover)],
        );
    }
}
