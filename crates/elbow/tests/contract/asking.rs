//! Asking a job of `elbow run`: from inside, from outside, and who may.
//!
//! `status`, `diff`, `commit` and `rollback` knew mounts only; a running job could be looked at and ended by signals alone.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::stage::{ELBOW, Said, Stage, Started, wait_for, word};

/// A job that has changed something and goes on until `go` is there.
const SCRIPT: &str =
    "echo x > new; mv old renamed; mkdir -p below; : > ../ready; while [ ! -e ../go ]; do sleep 0.02; done";

/// Begins a script that asks the job around it, which can be asked once its command has run for a moment.
const ONCE_ANSWERED: &str = "until $ELBOW status > /dev/null 2>&1; do sleep 0.02; done";

fn start(stage: &Stage, options: &[&str], script: &str) -> Started {
    fs::write(stage.path("work/old"), "old").expect("a file");
    let mut command = Command::new(ELBOW);
    command.arg("run").args(options).args(["--", "sh", "-c", script]);
    let child = stage.start(&mut command);
    wait_for("the command", || stage.path("ready").exists());
    // It can be asked once its command has run for a moment.
    wait_for("the job", || stage.elbow(&["status", "."]).code == 0);
    child
}

fn finish(stage: &Stage, child: Started) -> Said {
    fs::write(stage.path("go"), "").expect("a file");
    child.finish()
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.assert_code(0).out).expect("JSON")
}

/// The jobs over the directory of a stage; others run meanwhile.
fn jobs_of(stage: &Stage) -> Vec<Value> {
    let all = json(&stage.elbow(&["jobs", "--json"]));
    let jobs = all["jobs"].as_array().expect("a list").clone();
    let work = stage.work();
    let is_here = |job: &Value| job["directory"].as_str() == work.to_str();
    jobs.into_iter().filter(is_here).collect()
}

#[test]
fn a_running_job_is_asked_from_outside() {
    let stage = Stage::new();
    let child = start(&stage, &[], SCRIPT);
    wait_for("the job in the list", || jobs_of(&stage).len() == 1);
    for path in [".", "./", "below/..", word(&stage.work())]
        .iter()
        .filter(|path| stage.path("work").join(path).exists())
    {
        let status = json(&stage.asks(&["status", path, "--json"]));
        assert_eq!(
            (&status["kind"], &status["phase"]),
            (&"run".into(), &"running".into()),
            "{path}"
        );
        assert_eq!(status["pid"], child.id());
        assert_eq!(status["command"][0], "sh");
        assert!(status["command_pid"].as_u64().is_some_and(|pid| pid > 1));
    }
    let listed = &jobs_of(&stage)[0];
    assert_eq!((&listed["pid"], &listed["kind"]), (&child.id().into(), &"run".into()));
    let name = listed["job"].as_str().expect("a name");
    let mut lines: Vec<String> = stage
        .elbow(&["diff", name])
        .assert_code(0)
        .out
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].starts_with("A") && lines[0].ends_with("below") && lines[2].ends_with("old -> renamed"),
        "{lines:?}"
    );
    stage
        .asks(&["commit", "."])
        .assert_code(125)
        .assert_says(&["stored when its command ends with 0", "elbow rollback"]);
    finish(&stage, child).assert_code(0);
    assert_eq!(stage.names(), ["below", "new", "renamed"]);
    assert!(jobs_of(&stage).is_empty());
}

#[test]
fn a_running_job_is_asked_from_inside() {
    let stage = Stage::new();
    let script = format!(
        "{ONCE_ANSWERED}; echo x > new; $ELBOW status --json > ../status; mkdir d; cd d; $ELBOW diff > ../../diff; cd /
        $ELBOW status --json > $OLDPWD/../../far; $ELBOW commit 2> $OLDPWD/../../refused || echo $? > $OLDPWD/../../code"
    );
    let said = stage.elbow(&["run", "--", "sh", "-ec", &script]);
    said.assert_code(0);
    let read = |name: &str| fs::read_to_string(stage.path(name)).expect(name);
    for name in ["status", "far"] {
        let status: Value = serde_json::from_str(&read(name)).expect("JSON");
        assert_eq!(status["source"].as_str(), stage.work().to_str(), "{name}");
    }
    assert!(
        read("diff")
            .lines()
            .any(|line| line.starts_with('A') && line.ends_with(" new")),
        "{}",
        read("diff")
    );
    assert!(read("refused").contains("stored when its command ends") && read("code") == "125\n");
}

#[test]
fn without_a_job_around_there_is_nothing_to_ask() {
    let stage = Stage::new();
    for command in ["status", "diff", "commit", "rollback"] {
        stage.elbow(&[command]).assert_code(125).assert_says(&["elbow jobs"]);
    }
}

#[test]
fn rollback_ends_the_command_and_the_job() {
    let stage = Stage::new();
    for script in [SCRIPT.to_owned(), format!("trap 'exit 0' TERM; {SCRIPT}")] {
        let child = start(&stage, &["--retry", "3"], &script);
        let said = stage.asks(&["rollback", "."]);
        said.assert_code(0).assert_says(&["rolled back", "elbow rollback"]);
        assert_eq!(stage.names(), ["old"]);
        let ended = child.finish();
        assert!([125, 143].contains(&ended.code), "{ended:?}");
        fs::remove_file(stage.path("ready")).expect("the mark of the command");
    }
}

/// By the command itself, which waits for it.
#[test]
fn a_command_rolls_its_own_job_back() {
    let stage = Stage::new();
    let script = format!("{ONCE_ANSWERED}; echo x > new; $ELBOW rollback; echo never > ../never");
    let said = stage.elbow(&["run", "--", "sh", "-c", &script]);
    assert!([125, 143].contains(&said.code), "{said:?}");
    assert!(
        stage.names().is_empty() && said.err.contains("elbow rollback"),
        "{said:?}"
    );
}

#[test]
fn a_kept_job_is_listed_until_it_is_dropped() {
    let stage = Stage::new();
    stage
        .elbow(&["run", "--keep", "--", "sh", "-c", "echo x > new; sleep 0.3; exit 1"])
        .assert_code(1);
    let jobs = jobs_of(&stage);
    assert_eq!((jobs.len(), &jobs[0]["kind"]), (1, &"kept".into()), "{jobs:?}");
    let name = jobs[0]["job"].as_str().expect("a name");
    stage.elbow(&["rollback", name]).assert_code(0);
    assert!(jobs_of(&stage).is_empty());
}

/// Its directory was that of the outer job when it was kept: what it is on was never mounted again, and it stayed in the list.
#[test]
fn a_job_that_was_kept_in_a_job_is_listed_no_more_when_it_is_dropped() {
    let stage = Stage::new();
    let said = stage.apart(
        "mkdir -p b/sub
         inner=\"$ELBOW run -q --keep -- sh -c 'touch n; exit 9'\"
         $ELBOW run -q --on b -- sh -c \"cd b/sub; $inner; [ \\$? = 9 ]\"
         name=$(ls -A b/sub); $ELBOW jobs | grep -c \"$PWD/b/sub\"
         $ELBOW recover b/sub --drop $name > /dev/null; $ELBOW jobs | grep -c \"$PWD/b/sub\" || true",
    );
    assert_eq!(said.assert_code(0).out, "1\n0\n", "{said:?}");
}

/// A kept job on a disk that was unplugged was forgotten by the first `elbow jobs`: its results were there, and nothing told of them.
#[test]
fn a_kept_job_is_listed_while_its_directory_is_not_mounted() {
    let stage = Stage::new();
    let said = stage.apart(
        "mkdir m disk; mount -t tmpfs none disk; mount --bind disk m; mkdir m/work; cd m/work
         $ELBOW run --keep -- sh -c 'echo x > new; exit 1' 2> /dev/null || true; cd ../..; here=$PWD
         jobs() { $ELBOW jobs | grep -A 1 \"^$here/m/work\" || echo none; }
         jobs; umount m; jobs; mount --bind disk m; jobs; rm -r m/work; jobs",
    );
    let lines: Vec<&str> = said
        .out
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('/'))
        .collect();
    let kept = "phase       kept";
    let away = "phase       kept, on a file system that is not mounted now";
    assert_eq!(lines, [kept, away, kept, "none"], "{said:?}");
}

/// What is left when the watcher is killed as well goes with the next job.
#[test]
fn a_killed_job_leaves_no_socket() {
    let stage = Stage::new();
    // In a /run of its own: whoever asks for jobs removes what is left of the dead, and other tests do.
    let said = stage.apart(
        "mount -t tmpfs none /run
         $ELBOW run -- sh -c 'until [ -e ../go ]; do sleep 0.02; done' & job=$!
         left() { ls /run/elbow-0 | grep -c \"^$job-\" || true; }
         until $ELBOW status . > /dev/null 2>&1; do sleep 0.02; done; stat -c %a /run/elbow-0; left
         for process in $(cat /proc/$job/task/$job/children); do
             [ $(cat /proc/$process/comm) != elbow-watcher ] || kill -KILL $process
         done
         kill -KILL $job; wait $job || true; left
         $ELBOW run -q -- sh -c 'until [ -S /run/elbow-0/$PPID-0.sock ]; do sleep 0.02; done'; left",
    );
    let lines: Vec<&str> = said.assert_code(0).out.lines().collect();
    // Nobody is left to remove it in between.
    assert_eq!(lines, ["700", "1", "1", "0"], "{said:?}");
}

/// Another user finds no job of ours, and is not answered.
#[test]
fn only_the_owner_and_root_are_answered() {
    let stage = Stage::open_to_all();
    let child = start(&stage, &[], SCRIPT);
    wait_for("the job in the list", || jobs_of(&stage).len() == 1);
    let other = "exec setpriv --reuid 1 --regid 1 --clear-groups $ELBOW";
    for words in ["status .", "diff .", "rollback ."] {
        let said = stage.apart(&format!("{other} {words}"));
        said.assert_code(125).assert_says(&["no job of yours"]);
    }
    let said = stage.apart(&format!("{other} jobs --json"));
    assert!(!said.assert_code(0).out.contains(word(&stage.work())), "{said:?}");
    finish(&stage, child).assert_code(0);
    stage
        .elbow(&["status", "."])
        .assert_code(125)
        .assert_says(&["no job of yours", "asked as that user"]);
}

/// It was "not a mount of elbow, and no job of yours runs there", though `elbow jobs` listed it.
#[test]
fn who_asks_a_kept_job_hears_that_it_is_kept_and_what_can_be_done() {
    let stage = Stage::new();
    stage
        .elbow(&["run", "--keep", "--", "sh", "-c", "echo x > new; sleep 0.3; exit 1"])
        .assert_code(1);
    let name = jobs_of(&stage)[0]["job"].as_str().expect("a name").to_owned();
    let by_name = stage.path("work").join(&name);
    for subcommand in ["status", "diff", "commit", "rollback"] {
        for path in [".", word(&by_name)] {
            if (subcommand, path) == ("rollback", word(&by_name)) {
                continue; // removes it
            }
            let said = stage.elbow(&[subcommand, path]);
            said.assert_code(125).assert_says(&[
                &format!("{name} is kept"),
                &format!("`elbow recover {} --show` says why", word(&stage.work())),
                &format!("`elbow resume {}`", word(&stage.work())),
                &format!("--drop {name}`"),
            ]);
        }
    }
    assert_eq!(jobs_of(&stage).len(), 1, "nothing was done to it");
    // One that runs there is meant before it.
    let child = start(&stage, &[], SCRIPT);
    assert_eq!(json(&stage.elbow(&["status", ".", "--json"]))["phase"], "running");
    finish(&stage, child).assert_code(0);
    stage.elbow(&["recover", ".", "--drop", &name]).assert_code(0);
    stage
        .elbow(&["status", "."])
        .assert_code(125)
        .assert_says(&["no job of yours runs there"]);
}

/// It was what had been typed.
#[test]
fn changes_say_where_their_job_is_mounted() {
    let stage = Stage::new();
    let child = start(&stage, &[], SCRIPT);
    for path in [".", "./below/.."]
        .iter()
        .filter(|path| stage.path("work").join(path).exists())
    {
        let changes = json(&stage.elbow(&["diff", path, "--json"]));
        assert_eq!(changes["mount_point"], word(&stage.work()), "{path}");
    }
    finish(&stage, child).assert_code(0);
}

#[test]
fn metrics_of_what_is_not_there_say_of_what() {
    let stage = Stage::new();
    let said = stage.elbow(&["status", "--metrics", "nowhere"]);
    said.assert_code(125)
        .assert_says(&["elbow: nowhere: No such file or directory"]);
}
