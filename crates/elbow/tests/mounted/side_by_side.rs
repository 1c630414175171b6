//! Jobs side by side in one directory, each with files of its own: all commit.
//!
//! They were refused with 125 while another began or ended (13 of 200 on ext4, 22 of 60 on slow storage, 10 of 24 on sshfs; two of
//! those had committed): a staging directory that goes while it is looked at was an error, and a manifest that somebody reads is a
//! file under another name on FUSE when it is removed, which kept the directory from being removed.
//!
//! `ROUNDS=n` runs so many rounds, `SOAK=1` a hundred times as many.

use std::fs;
use std::path::Path;
use std::time::Duration;

use elbow_testkit::cases::rounds;
use elbow_testkit::slowfs::SlowOptions;

use crate::commands::Place;
use crate::ground::{Ground, ssh_server, staging_below};
use crate::slow_ground::SlowGround;

const QUEUES: usize = 8;

/// So many queues of jobs, each with one job after the other; one kind changes nothing, one fails. They begin and end at all moments of
/// the others.
fn run_queues(work: &Path, out: &Path, rounds: u64) {
    std::thread::scope(|scope| {
        for queue in 0..QUEUES {
            scope.spawn(move || (0..rounds).for_each(|round| run_one(Place { work, out }, queue, round)));
        }
    });
    for queue in 2..QUEUES {
        let log = fs::read(work.join(format!("log{queue}"))).expect("a log");
        assert_eq!(log.len() as u64, rounds, "queue {queue}");
    }
}

fn run_one(place: Place<'_>, queue: usize, round: u64) {
    let script = match queue {
        0 => "true".into(),
        1 => format!("printf x > {round}-{queue}; exit 3"),
        _ => format!(
            "printf x > {round}-{queue}; mkdir -p d{queue}; printf y > d{queue}/{round}; printf z >> log{queue}"
        ),
    };
    let run = place.start_job(&[], &[], &script).finish();
    let code = if queue == 1 { 3 } else { 0 };
    assert_eq!(run.code, code, "queue {queue}, round {round}:\n{}", run.err);
    assert!(
        !run.err.contains(".elbow-"),
        "queue {queue}, round {round}:\n{}",
        run.err
    );
}

#[test]
fn jobs_side_by_side_on_a_local_file_system() {
    let ground = Ground::new("");
    ground.restore();
    run_queues(&ground.work(""), &ground.outside(""), rounds(25));
    ground.assert_no_staging();
}

#[test]
fn jobs_side_by_side_on_slow_storage() {
    let options = SlowOptions {
        latency: Duration::from_millis(2),
        ..SlowOptions::default()
    };
    let ground = SlowGround::new("", &options);
    run_queues(&ground.work(), &ground.outside(), rounds(8));
    ground.assert_no_staging();
}

#[test]
fn jobs_side_by_side_on_sshfs() {
    let Some((dir, bed)) = ssh_server(&["below", "work", "out"], Duration::from_millis(1)) else {
        return;
    };
    let path = |name| dir.path().join(name);
    let mount = bed.mount(&path("below"), &path("work")).expect("an sshfs mount");
    run_queues(mount.path(), &path("out"), rounds(5));
    assert_eq!(staging_below(&path("below")), 0, "staging directories are left behind");
}
