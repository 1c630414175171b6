//! The guide to Slurm, in a real one.

use crate::ground::until;
use crate::page::Page;
use crate::slurm_cluster::Cluster;

const GUIDE: &str = include_str!("../../../../docs/src/guide/slurm.md");

/// Makes a directory with two files in it; it fails, having made one, where `stop-NUMBER` is, and waits where `wait` is.
const SIMULATE: &str = "#!/bin/sh
set -e
mkdir \"$2\"
echo \"half of $1\" >\"$2/half\"
[ ! -e \"stop-$1\" ] || exit 3
while [ -e wait ]; do sleep 0.05; done
echo \"all of $1\" >\"$2/all\"
";

/// A cluster, and the guide with its scripts written down there.
fn cluster() -> Option<(Cluster, Page)> {
    let cluster = Cluster::start()?;
    let page = Page::new(GUIDE);
    for (name, text) in page.files() {
        cluster.ground.write(name, text);
    }
    cluster.ground.write_program("simulate", SIMULATE);
    Some((cluster, page))
}

fn assert_is_whole(cluster: &Cluster, name: &str) {
    let all = cluster.ground.read(&format!("results/{name}/all"));
    assert_eq!(all, format!("all of {name}\n"));
}

#[test]
fn an_array_whose_tasks_fail_are_ended_and_run_again() {
    let Some((cluster, mut page)) = cluster() else { return };
    let ground = &cluster.ground;
    ground.write("stop-3", "");
    ground.run(page.next("sbatch simulate.sbatch")).assert_code(0);
    cluster.wait_for_all();
    assert_eq!(ground.names("results"), ["1", "2", "4"]);
    let log = ground.read("simulate-3.log");
    assert!(log.contains("rolled back") && log.contains("exited with 3"), "{log}");
    assert!(cluster.show("1_3").contains("ExitCode=3:0"), "{}", cluster.show("1_3"));

    ground.remove("stop-3");
    ground.run(page.next("--array=3")).assert_code(0);
    cluster.wait_for_all();
    for name in ["1", "2", "3", "4"] {
        assert_is_whole(&cluster, name);
    }

    ground.empty("results");
    ground.write("wait", "");
    ground.run("sbatch simulate.sbatch").assert_code(0);
    until("four jobs", || ground.jobs("results") == 4);
    ground.run(page.next("scancel")).assert_code(0);
    cluster.wait_for_all();
    assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));

    ground.remove("wait");
    ground.run(page.next("single.sbatch")).assert_code(0);
    cluster.wait_for_all();
    assert_is_whole(&cluster, "single");
    page.finish();
}

#[test]
fn a_signal_before_the_end_reaches_a_script_without_srun() {
    let Some((cluster, _)) = cluster() else { return };
    let ground = &cluster.ground;
    ground.empty("results");
    ground.write("wait", "");
    ground.run("sbatch single.sbatch").assert_code(0);
    until("a job", || ground.jobs("results") == 1);
    ground.run("scancel --batch --signal=TERM --name=single").assert_code(0);
    cluster.wait_for_all();
    assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));
    let log = ground.read("single.log");
    assert!(log.contains("rolled back"), "{log}");
}

#[test]
fn a_task_that_saves_its_state_at_sigterm_is_stored() {
    let Some((cluster, _)) = cluster() else { return };
    let ground = &cluster.ground;
    ground.empty("results");
    let saves = "#!/bin/sh\ntrap 'echo saved >results/state; exit 0' TERM\n: >begun\nwhile :; do sleep 0.05; done\n";
    ground.write_program("simulate", saves);
    ground.run("sbatch --array=1 simulate.sbatch").assert_code(0);
    until("the command", || ground.path("begun").exists());
    ground.run("scancel --signal=TERM --name=simulate").assert_code(0);
    cluster.wait_for_all();
    assert_eq!(ground.names("results"), ["state"], "{}", ground.read("simulate-1.log"));
}

#[test]
fn a_preempted_task_leaves_nothing_and_begins_again() {
    let Some((cluster, _)) = cluster() else { return };
    let ground = &cluster.ground;
    ground.empty("results");
    ground.write("wait", "");
    ground
        .run("sbatch --array=1 --partition=low simulate.sbatch")
        .assert_code(0);
    until("a job", || ground.jobs("results") == 1);
    let urgent = "sbatch --partition=high --exclusive --output=urgent.log --wrap 'ls -A results; rm wait'";
    ground.run(urgent).assert_code(0);
    until("a requeue", || {
        cluster.jobs("PENDING") == 1 && !ground.path("wait").exists()
    });
    assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));
    assert_eq!(ground.read("urgent.log"), "", "what the job that took the node saw");
    let log = ground.read("simulate-1.log");
    assert!(log.contains("PREEMPTION") && log.contains("rolled back"), "{log}");
    // Slurm lets two minutes go by before it starts it again.
    ground.run("scontrol update JobId=1 StartTime=now").assert_code(0);
    cluster.wait_for_all();
    assert_is_whole(&cluster, "1");
}

#[test]
fn what_a_killed_task_left_is_removed_by_the_next() {
    let Some((cluster, _)) = cluster() else { return };
    let ground = &cluster.ground;
    ground.empty("results");
    ground.write("wait", "");
    ground.run("sbatch --array=1 simulate.sbatch").assert_code(0);
    until("a job", || ground.jobs("results") == 1);
    // As the kernel does where memory is out: `scancel --signal=KILL` sends SIGTERM first. Stopped before, or one would see another die and end by itself.
    let kill = "pids=$(scontrol listpids 1.0 | awk 'NR > 1 { print $1 }')
kill -s STOP $pids || true
kill -s KILL $pids || true";
    ground.run(kill).assert_code(0);
    cluster.wait_for_all();
    let left = ground.names("results");
    assert!(
        left.iter().all(|name| name.starts_with(".elbow-")) && !left.is_empty(),
        "{left:?}\n{}",
        ground.read("simulate-1.log")
    );
    ground.remove("wait");
    ground.run("sbatch --array=1 simulate.sbatch").assert_code(0);
    cluster.wait_for_all();
    assert_eq!(ground.names("results"), ["1"]);
    assert_is_whole(&cluster, "1");
    let log = ground.read("simulate-1.log");
    assert!(log.contains("it had not committed"), "{log}");
}

/// What the guide warns of.
#[test]
fn what_srun_starts_within_a_job_is_not_in_it() {
    let Some((cluster, _)) = cluster() else { return };
    let ground = &cluster.ground;
    ground.empty("results");
    let script = "#!/bin/sh\nexec elbow run --on results -- sh -c 'echo 1 >results/in; srun ./step; exit 3'\n";
    ground.write("wrong.sbatch", script);
    ground.write_program("step", "#!/bin/sh\necho 2 >results/out\nls results >seen\n");
    ground.run("sbatch --wait wrong.sbatch").assert_code(3);
    assert_eq!(ground.names("results"), ["out"], "what is not taken back");
    assert_eq!(ground.read("seen"), "out\n", "what the step saw");
}

/// A minute long: Slurm has no shorter time limits.
#[test]
fn the_signal_before_the_time_is_over_rolls_back() {
    if std::env::var_os("SOAK").is_none() {
        return;
    }
    let Some((cluster, _)) = cluster() else { return };
    let ground = &cluster.ground;
    ground.empty("results");
    ground.write("wait", "");
    let limited = "sbatch --wait --array=1 --time=1 --signal=TERM@5 --no-requeue simulate.sbatch";
    assert_ne!(ground.run(limited).code, 0);
    assert!(ground.names("results").is_empty(), "{:?}", ground.names("results"));
    let log = ground.read("simulate-1.log");
    assert!(log.contains("rolled back"), "{log}");
}
