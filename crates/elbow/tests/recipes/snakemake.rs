//! The guide to Snakemake.

use crate::ground::{Ground, fixture, is_there, unavailable, until};
use crate::page::Page;

const GUIDE: &str = include_str!("../../../../docs/src/guide/snakemake.md");

/// Writes half of its result and a file beside it at once; it fails where `stop-NAME` is, and waits while `wait` is there.
const COUNT: &str = "#!/bin/sh
set -e
echo half >\"$2\"
echo beside >\"$2.beside\"
echo \"counting $1\" >&2
[ ! -e \"stop-${1##*/}\" ] || exit 3
while [ -e wait ]; do sleep 0.05; done
wc -l <\"$1\" >\"$2\"
rm \"$2.beside\"
";

/// The guide's workflow, with lines to count.
fn ground() -> Option<(Ground, Page)> {
    let programs = fixture("snakemake/bin");
    if !programs.join("snakemake").is_file() && !is_there("snakemake") {
        unavailable("Snakemake");
        return None;
    }
    let mut ground = Ground::new(&[&programs]);
    ground.set("XDG_CACHE_HOME", ground.path("cache").display().to_string());
    let page = Page::new(GUIDE);
    for (name, text) in page.files() {
        ground.write(name, text);
    }
    ground.write_program("count", COUNT);
    ground.write("data/a.txt", "1\n2\n");
    ground.write("data/b.txt", "1\n2\n3\n");
    Some((ground, page))
}

fn assert_all_are_whole(ground: &Ground) {
    assert_eq!(ground.names("results"), ["a.count", "b.count"]);
    let counts = ["a", "b"].map(|name| ground.read(&format!("results/{name}.count")));
    assert_eq!(counts, ["2\n", "3\n"]);
}

#[test]
fn rules_that_fail_or_are_killed_leave_nothing_and_are_run_again() {
    let Some((ground, mut page)) = ground() else { return };
    ground.write("stop-a.txt", "");
    let ended = ground.run(page.next("--keep-going"));
    ended.assert_code(1);
    assert!(ended.said.contains("non-zero exit status 3"), "{}", ended.said);
    assert_eq!(ground.names("results"), ["b.count"]);
    assert_eq!(
        ground.read("logs/a.log"),
        "counting data/a.txt\n",
        "logs outlive the job"
    );

    ground.remove("stop-a.txt");
    let ended = ground.run(page.next("--cores 2"));
    ended.assert_code(0);
    assert_all_are_whole(&ground);
    assert!(!ended.said.contains("input: data/b.txt"), "done again:\n{}", ended.said);

    ground.empty("results");
    ground.write("wait", "");
    let running = ground.start("snakemake --cores 2");
    until("two rules", || ground.jobs("results") == 2);
    running.signal_group("KILL");
    running.finish().assert_code(137);
    let left = ground.names("results");
    assert!(left.iter().all(|name| name.starts_with(".elbow-")), "{left:?}");
    ground.remove("wait");
    ground.run("snakemake --cores 2").assert_code(1); // Its own lock.
    ground.run(page.next("--unlock")).assert_code(0);
    assert_all_are_whole(&ground);
    page.finish();
}

#[test]
fn sigterm_ends_it_as_the_guide_says() {
    let Some((ground, _)) = ground() else { return };
    ground.run("chmod +x in-a-job").assert_code(0);
    ground.write("wait", "");
    let running = ground.start("exec snakemake --cores 1");
    until("a rule", || ground.jobs("results") == 1);
    running.signal("TERM");
    until("its answer", || running.said().contains("Will exit after finishing"));
    ground.remove("wait");
    running.finish().assert_code(1);
    assert_eq!(
        ground.names("results").len(),
        1,
        "the rule that ran is stored, and no other"
    );

    ground.run("rm -r results").assert_code(0);
    ground.write("wait", "");
    let running = ground.start("exec snakemake --cores 2");
    until("two rules", || ground.jobs("results") == 2);
    running.signal_group("TERM");
    running.finish().assert_code(1);
    assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));
}
