//! The guide to GNU parallel.

use crate::ground::{Ground, is_there, unavailable, until};
use crate::page::Page;

const GUIDE: &str = include_str!("../../../../docs/src/guide/parallel.md");

/// Writes half of its result at once, and the rest when it may: it fails where `stop-NAME` is, and waits while `wait` is there.
const CONVERT: &str = "#!/bin/sh
set -e
echo half >\"$2\"
[ ! -e \"stop-${1##*/}\" ] || exit 3
while [ -e wait ]; do sleep 0.05; done
cat \"$1\" >\"$2\"
";

/// Four pictures, and the program that the guide calls `./convert`.
fn ground() -> Option<Ground> {
    if !is_there("parallel") {
        unavailable("GNU parallel");
        return None;
    }
    let ground = Ground::new(&[]);
    ground.write_program("convert", CONVERT);
    for number in 1..=4 {
        ground.write(&format!("scans/{number}.tif"), &format!("picture {number}\n"));
    }
    ground.empty("results");
    Some(ground)
}

const ALL: [&str; 4] = ["1.png", "2.png", "3.png", "4.png"];

fn assert_all_are_whole(ground: &Ground) {
    assert_eq!(ground.names("results"), ALL);
    for number in 1..=4 {
        assert_eq!(
            ground.read(&format!("results/{number}.png")),
            format!("picture {number}\n")
        );
    }
}

/// The two ways of the guide: each command a job, and all of them one.
fn ways() -> (&'static str, &'static str) {
    let mut page = Page::new(GUIDE);
    let each = page.next("--joblog");
    page.next("--resume-failed");
    (each, page.next("--halt"))
}

#[test]
fn commands_that_fail_leave_nothing_and_are_run_again() {
    let Some(ground) = ground() else { return };
    let mut page = Page::new(GUIDE);
    ground.write("stop-2.tif", "");
    ground.run(page.next("--joblog")).assert_code(1);
    assert_eq!(ground.names("results"), ["1.png", "3.png", "4.png"]);
    let log = ground.read("convert.log");
    assert_eq!(
        log.lines().filter(|line| line.contains("\t3\t0\telbow run")).count(),
        1,
        "{log}"
    );

    ground.remove("stop-2.tif");
    ground.run(page.next("--resume-failed")).assert_code(0);
    assert_all_are_whole(&ground);
    assert_eq!(
        ground.read("convert.log").matches("elbow run").count(),
        5,
        "only one ran again"
    );

    ground.empty("results");
    ground.write("stop-2.tif", "");
    let all = page.next("--halt");
    ground.run(all).assert_code(3);
    assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));
    ground.remove("stop-2.tif");
    ground.run(all).assert_code(0);
    assert_all_are_whole(&ground);
    page.finish();
}

#[test]
fn a_signal_ends_them_as_the_table_says() {
    let Some(ground) = ground() else { return };
    let (each, all) = ways();
    for (way, jobs) in [(each, 4), (all, 1)] {
        ground.empty("results");
        ground.write("wait", "");
        // `exec`, so that the signal is for `parallel`, or for the job around it.
        let running = ground.start(&format!("rm -f convert.log; exec {way}"));
        until("running jobs", || ground.jobs("results") == jobs);
        running.signal("TERM");
        let ended = running.finish();
        assert_ne!(ended.code, 0, "{}", ended.said);
        assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));
    }
    ground.remove("wait");
}

#[test]
fn it_begins_nothing_after_a_hangup_and_waits_for_the_rest() {
    let Some(ground) = ground() else { return };
    ground.write("wait", "");
    let (each, _) = ways();
    let running = ground.start(&format!("exec {}", each.replace("--jobs 4", "--jobs 2")));
    until("two jobs", || ground.jobs("results") == 2);
    running.signal("HUP");
    until("its answer", || running.said().contains("No new jobs"));
    ground.remove("wait");
    running.finish();
    assert_eq!(ground.names("results").len(), 2, "{:?}", ground.names("results"));
}

#[test]
fn what_runs_when_it_is_killed_is_stored() {
    let Some(ground) = ground() else { return };
    let (each, _) = ways();
    ground.write("wait", "");
    let running = ground.start(&format!("exec {each}"));
    until("running jobs", || ground.jobs("results") == 4);
    running.signal("KILL");
    running.finish().assert_code(137);
    assert_eq!(ground.names("results").len(), 4, "jobs that run on");
    ground.remove("wait");
    until("all results", || ground.names("results") == ALL);
    assert_all_are_whole(&ground);
}

#[test]
fn two_that_change_one_old_file_are_in_conflict() {
    let Some(ground) = ground() else { return };
    ground.write("results/list", "old\n");
    ground.write("wait", "");
    let add = "#!/bin/sh\necho $1 >>results/list\n: >wrote-$1\nwhile [ -e wait ]; do sleep 0.05; done\n";
    ground.write_program("add", add);
    let running = ground.start("parallel --joblog log elbow run --quiet --on results -- ./add ::: 1 2");
    until("both have written", || {
        [1, 2]
            .iter()
            .all(|number| ground.path(&format!("wrote-{number}")).exists())
    });
    ground.remove("wait");
    running.finish().assert_code(1);
    let log = ground.read("log");
    assert_eq!(log.lines().filter(|line| line.contains("\t125\t")).count(), 1, "{log}");
    assert_eq!(ground.read("results/list").lines().count(), 2);
}
