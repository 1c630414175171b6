//! The first screen of the README: its commands print what it says they print.
//!
//! Times, and how many calls a job needed, differ from run to run: in the two lines of a committed job, and behind the size of
//! what was sorted, any number is as good as another.

use crate::ground::Ground;
use crate::page::Page;

const README: &str = include_str!("../../../../README.md");

/// What lies there before the first command.
const PREPARE: &str = "mkdir alice; cd alice
for part in $(seq 50); do echo \"part $part\" >part-$part; done
tar cf ../dataset.tar part-*; rm part-*
head -c 24000000 /dev/urandom >events.bin
seq 300000 >run.log
printf '#!/bin/sh\\necho half >converted\\nexit 3\\n' >convert; chmod +x convert";

/// The commands of a block, each with what it prints.
fn dialogue(block: &'static str) -> Vec<(&'static str, String)> {
    let said = |part: &'static str| {
        let (command, printed) = part.split_once('\n').unwrap_or((part, ""));
        (command, printed.to_owned())
    };
    let block = block.strip_prefix("$ ").expect("it begins with a command");
    block.split("\n$ ").map(said).collect()
}

/// With a `#` for each number of a line that tells of one run.
fn of_any_run(printed: &str) -> String {
    let mut lines = String::new();
    let is_progress = |line: &&str| line.starts_with("elbow: sorting"); // After five seconds.
    for line in printed.lines().filter(|line| !is_progress(line)) {
        let (fixed, varies) = match line.find(" in ").filter(|_| line.contains("sorted")) {
            Some(at) => line.split_at(at),
            None if line.contains("operations in") => ("", line),
            None => (line, ""),
        };
        let mut was_number = false;
        let mut general = String::new();
        for character in varies.chars() {
            let is_number = character.is_ascii_digit() || (was_number && character == '.');
            match is_number {
                true if was_number => {}
                true => general.push('#'),
                false => general.push(character),
            }
            was_number = is_number;
        }
        lines += &format!("{fixed}{general}\n");
    }
    lines
}

#[test]
fn the_first_commands_print_what_it_says() {
    let mut ground = Ground::new(&[]);
    // Where storing takes longer than five seconds, lines would tell of it.
    ground.set("ELBOW_PROGRESS", "never");
    ground.run(PREPARE).assert_code(0);
    let mut page = Page::new(README);
    assert!(
        page.next("make demo").contains("make test"),
        "the two commands to begin with"
    );
    let dialogue = dialogue(page.next("$ elbow run"));
    assert_eq!(dialogue.len(), 4);
    let place = ground.path("alice").display().to_string();
    for (number, (command, printed)) in dialogue.iter().enumerate() {
        let ended = ground.run(&format!("cd alice; {command}"));
        let said = ended.said.replace(&place, "/project/alice");
        assert_eq!(
            of_any_run(&said),
            of_any_run(&format!("{}\n", printed.trim_end())),
            "{command}:\n{said}"
        );
        ended.assert_code(if number == 1 { 3 } else { 0 });
    }
    let names = ground.names("alice");
    assert_eq!(names.iter().filter(|name| name.starts_with("part-")).count(), 50);
    assert!(
        !names.iter().any(|name| name == "converted"),
        "of the command that failed"
    );
    assert!(is_sorted(
        &std::fs::read(ground.path("alice/events.bin")).expect("the records")
    ));
}

/// Whether records of 24 bytes are in the order of their first eight.
fn is_sorted(records: &[u8]) -> bool {
    let keys = records
        .chunks_exact(24)
        .map(|record| u64::from_le_bytes(record[..8].try_into().expect("eight bytes")));
    keys.is_sorted()
}
