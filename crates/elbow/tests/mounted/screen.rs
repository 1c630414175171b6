//! What a person sees: the real binary in a real terminal, tmux(1), whose screen is looked at while a job runs.
//!
//! The storage is slow enough that there is something to see for some seconds. Nothing here asserts how long anything
//! takes: the screen is looked at until the job is over, and what was seen has to be right and enough.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use elbow_testkit::slowfs::SlowOptions;
use tempfile::TempDir;

use crate::commands::wait_for;
use crate::slow_storage::SlowStorage;

const ROWS: usize = 24;
/// How often the screen is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// What the archive holds: many small files and a few large ones, at 1 MB/s some seconds.
const ARCHIVE: &str = "mkdir data; for i in $(seq 150); do head -c 3000 /dev/zero > data/small-$i; done
    for i in 1 2 3; do head -c 1500000 /dev/zero > data/large-$i; done
    tar cf \"$OUT/data.tar\" data; rm -r data";

/// Storage that takes its time.
fn slow_storage() -> SlowStorage {
    let options = SlowOptions {
        latency: Duration::from_millis(5),
        bandwidth: Some(1_000_000),
        ..SlowOptions::default()
    };
    SlowStorage::new(ARCHIVE, &options)
}

/// A shell in a terminal of its own.
struct Screen {
    dir: TempDir,
    columns: usize,
}

impl Screen {
    fn new(test_dir: &SlowStorage, columns: usize) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let screen = Self { dir, columns };
        let (size, rows) = (columns.to_string(), ROWS.to_string());
        let variables = [
            format!("ELBOW={}", env!("CARGO_BIN_EXE_elbow")),
            format!("OUT={}", test_dir.outside().display()),
            "PS1=$ ".to_owned(),
        ];
        let variables: Vec<&str> = variables.iter().flat_map(|variable| ["-e", variable]).collect();
        let work = test_dir.work();
        let start = ["-x", &size, "-y", &rows, "-c", text(&work)];
        let shell = ["bash", "--norc", "--noprofile"];
        screen.tmux(
            &[
                &["-f", "/dev/null", "new-session", "-d"][..],
                &start,
                &variables,
                &shell,
            ]
            .concat(),
        );
        wait_for("a prompt", || screen.rows().iter().any(|row| row.starts_with('$')));
        screen
    }

    fn tmux(&self, words: &[&str]) -> String {
        let socket = self.dir.path().join("socket");
        let said = Command::new("tmux")
            .args(["-S", text(&socket)])
            .args(words)
            .env_remove("TMUX")
            .output()
            .expect("tmux; scripts/setup.sh test installs it");
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn enter(&self, line: &str) {
        self.keys(&["-l", line]);
        self.keys(&["Enter"]);
    }

    /// What is on the screen, row by row.
    fn rows(&self) -> Vec<String> {
        self.tmux(&["capture-pane", "-p"]).lines().map(str::to_owned).collect()
    }

    /// All that ever was, lines that wrapped joined.
    fn all(&self) -> Vec<String> {
        let all = self.tmux(&["capture-pane", "-pJ", "-S", "-"]);
        all.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// The screen again and again until a line says that the command is over, for which `echo over` is to follow it.
    fn until_over(&self) -> Vec<Vec<String>> {
        let mut seen = Vec::new();
        wait_for("the end of a job", || {
            seen.push(self.rows());
            sleep(GLANCE);
            self.rows().iter().any(|row| row.starts_with("over"))
        });
        seen
    }

    /// The terminal scrolls as a whole again.
    fn assert_whole(&self) {
        let region = self.tmux(&["display", "-p", "#{scroll_region_upper} #{scroll_region_lower}"]);
        assert_eq!(region.trim(), format!("0 {}", ROWS - 1), "{:#?}", self.rows());
        let left_over: Vec<_> = self.all().into_iter().filter(|line| is_bar(line)).collect();
        assert!(left_over.is_empty(), "{left_over:#?}");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let socket = self.dir.path().join("socket");
        let _ = Command::new("tmux").args(["-S", text(&socket), "kill-server"]).output();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

/// A row that tells how far the job is.
fn is_bar(row: &str) -> bool {
    percent(row).is_some()
}

/// Of how much it tells that it is done.
fn total(row: &str) -> Option<&str> {
    let (before, _) = row.split_once(" MB")?;
    before.rsplit_once(" of ").map(|(_, total)| total)
}

fn percent(row: &str) -> Option<u64> {
    let (before, _) = row.split_once("% ")?;
    before.rsplit([' ', '[']).next()?.parse().ok()
}

/// The bars that were seen; never more than one, in the last row, and not wider than the screen.
fn bars<'s>(screen: &Screen, seen: &'s [Vec<String>]) -> Vec<&'s str> {
    let mut bars = Vec::new();
    for rows in seen {
        let found: Vec<_> = rows.iter().enumerate().filter(|(_, row)| is_bar(row)).collect();
        assert!(found.len() <= 1, "{rows:#?}");
        if let [(at, row)] = found[..] {
            assert_eq!(at, ROWS - 1, "{rows:#?}");
            assert!(row.len() < screen.columns, "{rows:#?}");
            bars.push(row.as_str());
        }
    }
    bars
}

/// It got on, step by step and only forward, while no more work came.
fn assert_grows(bars: &[&str]) {
    // A machine may be so busy that the command is seen at work: that is of less, or behind. What is done at the end, by names, begins anew.
    let all = bars.iter().rev().find_map(|bar| total(bar));
    let storing = bars
        .iter()
        .filter(|bar| bar.contains(" MB") && !bar.contains("behind") && total(bar) == all);
    let percents: Vec<u64> = storing.filter_map(|bar| percent(bar)).collect();
    assert!(percents.is_sorted(), "{bars:#?}");
    let mut between: Vec<u64> = percents
        .into_iter()
        .filter(|percent| (1..100).contains(percent))
        .collect();
    between.dedup();
    assert!(between.len() >= 3, "{bars:#?}");
}

#[test]
fn storing_an_archive_shows_how_far_it_is() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 80);
    screen.enter("\"$ELBOW\" run -- tar xf \"$OUT/data.tar\"; echo over");
    let seen = screen.until_over();
    let bars = bars(&screen, &seen);
    assert_grows(&bars);
    let full = bars.iter().filter(|bar| {
        bar.starts_with('[')
            && bar.contains(" MB, ")
            && bar.contains("objects, ")
            && bar.contains("B/s, ")
            && bar.ends_with("left")
    });
    assert!(full.count() >= 3, "bytes, objects, rate and time left: {bars:#?}");
    screen.assert_whole();
    assert!(
        screen.all().iter().any(|line| line.starts_with("elbow: committed ")),
        "{:#?}",
        screen.all()
    );
    assert_eq!(fs::read_dir(test_dir.below("data")).expect("the result").count(), 153);
}

#[test]
fn a_narrow_terminal_shows_what_fits() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 40);
    screen.enter("\"$ELBOW\" run -- tar xf \"$OUT/data.tar\"; echo over");
    let seen = screen.until_over();
    let bars = bars(&screen, &seen);
    assert_grows(&bars);
    screen.assert_whole();
}

/// The row is there while the command runs, and what the command writes meanwhile is whole.
#[test]
fn a_command_that_writes_to_the_terminal_keeps_its_output_whole() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 80);
    let script = "tar xf \"$OUT/data.tar\"; while [ ! -e \"$OUT/go\" ]; do sleep 0.1; done; mkdir b; tar xvf \"$OUT/data.tar\" -C b; sleep 1";
    screen.enter(&format!("\"$ELBOW\" run -- sh -c '{script}'; echo over"));
    // At first it has no rate yet.
    wait_for("a bar while the command runs that tells how far behind it is", || {
        let rows = screen.rows();
        let is_told = |row: &String| is_bar(row) && (row.ends_with("behind") || row.ends_with("/s"));
        rows.last().is_some_and(is_told)
    });
    fs::write(test_dir.outside().join("go"), "").expect("a file");
    bars(&screen, &screen.until_over());
    screen.assert_whole();
    let listed = listed(&test_dir.outside().join("data.tar"));
    let all = screen.all();
    let at = all
        .iter()
        .position(|line| line == "data/")
        .expect("the first line of tar");
    assert_eq!(all[at..at + listed.len()], listed, "what tar wrote");
}

#[test]
fn a_full_screen_program_has_the_screen_for_itself() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 80);
    let script =
        "tar xf \"$OUT/data.tar\"; while [ ! -e \"$OUT/go\" ]; do sleep 0.1; done; seq 100 > lines; less lines";
    screen.enter(&format!("\"$ELBOW\" run -- sh -c '{script}'; echo over"));
    wait_for("a bar while the command runs", || {
        screen.rows().last().is_some_and(|row| is_bar(row))
    });
    fs::write(test_dir.outside().join("go"), "").expect("a file");
    let page: Vec<String> = (1..ROWS).map(|n| n.to_string()).collect();
    let without_prompt = || screen.rows()[..ROWS - 1].to_vec();
    wait_for("the first page", || without_prompt() == page);
    for _ in 0..10 {
        sleep(GLANCE);
        assert_eq!(without_prompt(), page, "nothing is drawn over it");
        assert!(!is_bar(&screen.rows()[ROWS - 1]), "nor below it");
    }
    screen.keys(&["q"]);
    bars(&screen, &screen.until_over());
    screen.assert_whole();
}

/// The whole job is stopped from the keyboard, the terminal is the shell's, and everything goes on where it was.
#[test]
fn a_stopped_job_gives_the_terminal_back() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 80);
    screen.enter(
        "\"$ELBOW\" run -- sh -c 'tar xf \"$OUT/data.tar\"; while [ ! -e \"$OUT/go\" ]; do sleep 0.1; done'; echo left",
    );
    wait_for("a bar while the command runs", || {
        screen.rows().last().is_some_and(|row| is_bar(row))
    });
    screen.keys(&["C-z"]);
    wait_for("the shell", || screen.rows().iter().any(|row| row.contains("Stopped")));
    screen.assert_whole();
    fs::write(test_dir.outside().join("go"), "").expect("a file");
    screen.enter("fg; echo over");
    bars(&screen, &screen.until_over());
    screen.assert_whole();
    assert_eq!(fs::read_dir(test_dir.below("data")).expect("the result").count(), 153);
}

/// Ctrl-S stops whoever writes to the terminal: that must not be the one who stores.
#[test]
fn a_terminal_that_is_stopped_does_not_stop_the_job() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 80);
    screen.enter("\"$ELBOW\" run -- tar xf \"$OUT/data.tar\"; echo over");
    wait_for("a bar", || screen.rows().last().is_some_and(|row| is_bar(row)));
    test_dir.pause();
    screen.keys(&["C-s"]);
    let stopped_at = screen.rows();
    assert!(!test_dir.below("data").exists(), "not committed yet: {stopped_at:#?}");
    test_dir.go_on();
    wait_for("the commit", || {
        test_dir.below("data").exists() && test_dir.staging() == 0
    });
    screen.keys(&["C-q"]);
    screen.until_over();
    screen.assert_whole();
}

#[test]
fn a_resized_terminal_has_one_bar_at_its_bottom() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 80);
    screen.enter("\"$ELBOW\" run -- tar xf \"$OUT/data.tar\"; echo over");
    wait_for("a bar", || screen.rows().last().is_some_and(|row| is_bar(row)));
    test_dir.pause();
    for (columns, rows) in [(50, 15), (100, 30), (80, ROWS)] {
        screen.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
        wait_for("one bar at the bottom", || {
            let now = screen.rows();
            let found: Vec<usize> = (0..now.len()).filter(|at| is_bar(&now[*at])).collect();
            found == [rows - 1] && now.len() == rows && now[rows - 1].len() < columns
        });
    }
    test_dir.go_on();
    screen.until_over();
    screen.assert_whole();
}

/// At 1 MB/s there are eight seconds for a line every five.
#[test]
fn a_pipe_gets_a_line_now_and_then() {
    let test_dir = slow_storage();
    let run = test_dir.job(&[], "head -c 8000000 /dev/zero > large");
    run.assert_code(0);
    let is_told = |line: &str| {
        line.starts_with("elbow: storing: ") && is_bar(&line.replace("%,", "% ")) && line.contains(" of 8.0 MB, ")
    };
    assert!(run.err.lines().any(is_told), "{}", run.err);
    let run = test_dir.job(&["--quiet"], "head -c 8000000 /dev/zero > large");
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

/// `elbow commit` waits for another process, and shows the same.
#[test]
fn the_commit_of_a_mount_shows_how_far_it_is() {
    let test_dir = slow_storage();
    let mount = test_dir.elbow_mount();
    let screen = Screen::new(&test_dir, 80);
    mount.shell("tar xf \"$OUT/data.tar\"").assert_code(0);
    screen.enter(&format!("\"$ELBOW\" commit {}; echo over", mount.path().display()));
    let seen = screen.until_over();
    let bars: Vec<&str> = seen
        .iter()
        .flatten()
        .filter(|row| is_bar(row))
        .map(String::as_str)
        .collect();
    assert_grows(&bars);
    screen.assert_whole();
}

/// Nothing is drawn where nobody wants it.
#[test]
fn progress_never_means_never() {
    let test_dir = slow_storage();
    let screen = Screen::new(&test_dir, 80);
    for option in ["--progress never", "--quiet"] {
        screen.enter(&format!(
            "\"$ELBOW\" run {option} -- tar xf \"$OUT/data.tar\"; echo over"
        ));
        let seen = screen.until_over();
        assert!(bars(&screen, &seen).is_empty(), "{option}: {seen:#?}");
        screen.tmux(&["send-keys", "-l", "clear"]);
        screen.keys(&["Enter"]);
        wait_for("an empty screen", || {
            !screen.rows().iter().any(|row| row.starts_with("over"))
        });
    }
}

/// The names in an archive, as tar lists them.
fn listed(archive: &Path) -> Vec<String> {
    let said = Command::new("tar").args(["tf", text(archive)]).output().expect("tar");
    let names = String::from_utf8_lossy(&said.stdout).into_owned();
    names.lines().map(str::to_owned).collect()
}
