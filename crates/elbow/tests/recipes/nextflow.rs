//! The guide to Nextflow, where there is one: it is in no package of Debian, and `scripts/setup.sh` brings it only where Maven is.

use crate::ground::{Ground, fixture, is_there, skipped, until};
use crate::page::Page;

const GUIDE: &str = include_str!("../../../../docs/src/guide/nextflow.md");

/// Writes half of its result at once, and the rest when it may: it fails where `stop-NAME` is, and waits while `wait-NAME` is there.
const COUNT: &str = "#!/bin/sh
set -e
echo half >\"$2\"
[ ! -e \"$GROUND/stop-$1\" ] || exit 3
while [ -e \"$GROUND/wait-$1\" ]; do sleep 0.1; done
wc -l <\"$1\" >\"$2\"
";

/// The staging directories of tasks.
const JOBS: &str = "find work -name '.elbow-*' -prune";

/// SIGTERM to each process of the one task that runs, as Slurm sends it.
const END_TASK: &str = "task=$(realpath $(dirname $(find work -name '.elbow-*' -prune)))
for process in /proc/[0-9]*; do
    [ \"$(readlink $process/cwd)\" != \"$task\" ] || kill -s TERM ${process#/proc/} || true
done";

fn ground() -> Option<(Ground, Page)> {
    let programs = fixture("nextflow");
    if !programs.join("nextflow").is_file() && !is_there("nextflow") {
        skipped("Nextflow: its guide is not played");
        return None;
    }
    let mut ground = Ground::new(&[&programs]);
    ground.set("GROUND", ground.path("").display().to_string());
    ground.set("NXF_HOME", ground.path("home").display().to_string());
    ground.set("NXF_OFFLINE", "true");
    ground.set("NXF_ANSI_LOG", "false");
    let page = Page::new(GUIDE);
    for (name, text) in page.files() {
        ground.write(name, text);
    }
    ground.write_program("bin/count", COUNT);
    ground.write("data/a.txt", "1\n2\n");
    ground.write("data/b.txt", "1\n2\n3\n");
    Some((ground, page))
}

/// What tasks have left in their directories, as `CONTENT of NAME`; not what Nextflow keeps there, nor what is staged.
fn left_by_tasks(ground: &Ground) -> Vec<String> {
    let find = "find work -name '.elbow-*' -prune -o -type f -name '[!.]*' -exec sh -c 'for file; do echo \"$(cat \"$file\") of ${file##*/}\"; done' sh {} +";
    let mut left: Vec<String> = ground.run(find).said.lines().map(str::to_owned).collect();
    left.sort();
    left
}

#[test]
fn tasks_that_fail_leave_nothing_and_results_appear_at_once() {
    let Some((ground, mut page)) = ground() else { return };
    ground.write("stop-a.txt", "");
    let ended = ground.run(page.next("nextflow run main.nf"));
    ended.assert_code(1);
    assert_eq!(left_by_tasks(&ground), ["3 of b.count"], "{}", ended.said);

    ground.remove("stop-a.txt");
    ground.write("wait-a.txt", "");
    let running = ground.start(page.next("-resume"));
    until("a task's job", || !ground.run(JOBS).said.is_empty());
    ground.run(END_TASK).assert_code(0);
    let retried = "(143) -- Execution is retried (1)";
    until("another try", || running.said().contains(retried));
    assert_eq!(left_by_tasks(&ground), ["3 of b.count"]);
    ground.remove("wait-a.txt");
    let ended = running.finish();
    ended.assert_code(0);
    assert!(ended.said.contains("Cached process > count_lines"), "{}", ended.said);
    assert_eq!(left_by_tasks(&ground), ["2 of a.count", "3 of b.count"]);
    assert_eq!(ground.names("results"), ["a.count", "b.count"]);

    ground.run("rm -r results").assert_code(0);
    let at_once = page.next("elbow run --on results");
    ground.write("data/c.txt", "1\n");
    ground.write("stop-c.txt", "");
    ground.run(at_once).assert_code(1);
    assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));
    ground.remove("stop-c.txt");
    ground.run(at_once).assert_code(0);
    assert_eq!(ground.names("results"), ["a.count", "b.count", "c.count"]);
    page.finish();
}
