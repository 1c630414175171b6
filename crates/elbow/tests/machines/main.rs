//! Two machines and one NFS export: a job on one of them dies with its machine, and the other one ends it.
//!
//! The machines are user-mode-linux: processes of ours with a kernel of their own. `server` exports a directory of its memory and mounts it from
//! itself; `client` mounts it over a network between the two, on which everything takes its time, and is killed as a machine is by a power cut. Neither knows the other but by the export.
//!
//! They run under `SOAK=1` only, need root, and what `scripts/setup.sh soak` brings: user-mode-linux, and a small Debian below `target/fixtures/machine`.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

#[allow(dead_code)] // what other tests need of it
#[path = "../mounted/commands.rs"]
mod commands;
mod machine;

use elbow_testkit::cases::is_soak;
use machine::{Lab, Machine};

/// The old tree, and what a job makes of it: enough steps for a moment among them.
const OLD: &str = "mkdir -p d gone/deep moves; for i in 1 2 3 4 5 6 7 8; do echo old $i > d/$i; echo $i > gone/$i; echo $i > gone/deep/$i; done
    echo in > moves/in; echo log > log; echo old > replaced; echo 1 > one";
const JOB: &str = "mkdir new; for i in 1 2 3 4 5 6 7 8; do echo $i > new/$i; echo more >> d/$i; done; echo fresh > d/fresh; echo more >> log
    echo new > tmp; mv tmp replaced; rm -r gone; mv moves new/moved; mv one two; chmod 600 d/1";
/// What is where, without times.
const LIST: &str = "find . -mindepth 1 -printf '%P %y %m %l\\n' | sort; find . -type f | sort | xargs sha1sum";

const EXPORT: &str = "/dev/shm/export";
/// Kills that came too late for their moment are repeated so many times at most.
const TRIES: usize = 4;

/// When the client is killed: when there is a file of this name in the job's own directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Run,
    Commit,
    Cleaning,
}

impl Moment {
    fn file(self) -> &'static str {
        match self {
            Self::Run => "job",
            Self::Commit => "commit",
            Self::Cleaning => "done",
        }
    }
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
    options: "vers=3,proto=tcp,mountproto=tcp,nolock",
    path: EXPORT,
    carries_locks: false,
};

impl Mount {
    fn command(&self, host: &str) -> String {
        format!(
            "mkdir -p /mnt/nfs; mount -t nfs -o {} {host}:{} /mnt/nfs",
            self.options, self.path
        )
    }
}

/// Kills a client at a moment of its job; the server says afterwards what the tree is, after `recover` there.
fn kill_and_recover(lab: &Lab, server: &mut Machine, mount: &Mount, moment: Moment) -> String {
    for _ in 0..TRIES {
        server.run(&format!("cd {EXPORT} && find . -mindepth 1 -delete && {OLD}"));
        let mut client = lab.boot("client");
        // Half of the round trip is on the client's side.
        client.run("tc qdisc add dev eth0 root netem delay 20ms limit 10000");
        client.run(&mount.command(lab.address("server")));
        let script = format!("{JOB}; sleep 2");
        client.start(&format!("cd /mnt/nfs && /elbow/elbow run -- sh -ec '{script}'"));
        let file = moment.file();
        let wait = format!("until set -- {EXPORT}/.elbow-*/{file}; [ -e \"$1\" ]; do :; done");
        server.run(&wait);
        client.kill();
        let found = server.run(&format!("cd {EXPORT} && ls -A . .elbow-*/"));
        if found.lines().any(|line| line == file) {
            recover(server, mount);
            return server.run(&format!("cd {EXPORT} && {LIST}"));
        }
    }
    panic!("{moment:?} was missed {TRIES} times");
}

/// `elbow recover` on the other machine, until it ends the job.
fn recover(server: &mut Machine, mount: &Mount) {
    let recover = "cd /mnt/nfs && /elbow/elbow recover . 2>&1 || echo failed";
    let said = server.run(recover);
    if !mount.carries_locks {
        assert!(said.contains("--force"), "of another machine, and no locks: {said}");
        let said = server.run("cd /mnt/nfs && /elbow/elbow recover --force . 2>&1");
        assert!(!said.contains("failed"), "{said}");
        return;
    }
    // The server keeps the locks of a machine until its lease is over: nobody can tell a dead one from one that is cut off.
    assert!(said.contains("client is still running"), "{said}");
    let said = server.run(&format!(
        "for i in $(seq 120); do said=$({recover}); case $said in *'still running'*) sleep 0.5 ;; *) break ;; esac; done; echo \"$said\""
    ));
    assert!(!said.contains("failed") && !said.contains("still running"), "{said}");
}

fn assert_old_or_new(mount: &Mount, moments: &[Moment]) {
    let Some(lab) = Lab::new() else { return };
    let mut server = lab.boot("server");
    server.run(&format!("export={EXPORT}; {}", machine::SERVE));
    server.run(&mount.command("127.0.0.1"));
    let tree = |server: &mut Machine, make: &str| {
        server.run(&format!(
            "rm -rf /tmp/tree; mkdir /tmp/tree; cd /tmp/tree && {make} && {LIST}"
        ))
    };
    let before = tree(&mut server, OLD);
    let after = tree(&mut server, &format!("{OLD} && {{ {JOB}; }}"));
    assert_ne!(before, after);
    for moment in moments {
        let found = kill_and_recover(&lab, &mut server, mount, *moment);
        let expected = if *moment == Moment::Run { &before } else { &after };
        assert_eq!(&found, expected, "killed at {moment:?}");
    }
}

#[test]
fn a_job_whose_machine_died_is_ended_by_another_one() {
    if is_soak("two machines over NFS 4.2") {
        assert_old_or_new(
            &VERSION_4,
            &[Moment::Run, Moment::Commit, Moment::Cleaning, Moment::Commit],
        );
    }
}

#[test]
fn where_there_are_no_locks_a_job_of_another_machine_is_ended_with_force_only() {
    if is_soak("two machines over NFS 3") {
        assert_old_or_new(&VERSION_3, &[Moment::Commit, Moment::Run]);
    }
}
