//! `elbow zero` and `elbow holes`: what they change, what they say, what they refuse.
//!
//! They run on a tmpfs of their own, so that it does not matter what the tests' directory lies on.

use serde_json::{Value, json};

use crate::stage::{Said, Stage};

/// A tmpfs as the current directory, and a file `f` of 4 MiB on it.
const GROUND: &str = "mkdir m; mount -t tmpfs none m; cd m; seq 1000000 | head -c 4194304 > f;";

fn on_tmpfs(script: &str) -> Said {
    Stage::new().apart(&format!("{GROUND} {script}"))
}

fn object(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_range_is_zeroed_and_its_blocks_are_free() {
    let said = on_tmpfs(
        "cp f expected; dd if=/dev/zero of=expected bs=1 seek=4095 count=8194 conv=notrunc status=none
        $ELBOW zero f 4095 8194
        cmp f expected; stat -c '%s %b' f; $ELBOW zero -q f 2M 1M; stat -c '%s %b' f; $ELBOW zero f 1M 0; stat -c %b f",
    );
    said.assert_code(0)
        .assert_says(&["f: 8.2 kB zeroed, 8.2 kB freed", "0 B zeroed"]);
    assert_eq!(said.out, "4194304 8176\n4194304 6128\n6128\n");
    assert_eq!(said.err.lines().count(), 2, "quiet: {said:#?}");
}

#[test]
fn a_whole_file_is_zeroed_without_being_told_where() {
    let said = on_tmpfs("$ELBOW zero f; stat -c '%s %b' f; cmp -n 4194304 f /dev/zero");
    assert_eq!(said.assert_code(0).out, "4194304 0\n");
}

#[test]
fn a_range_past_the_end_makes_the_file_longer() {
    let said = on_tmpfs("$ELBOW zero --json f 3M 1G; stat -c '%s %b' f");
    let (report, stat) = said.assert_code(0).out.split_once('\n').expect("two lines");
    let expected = json!({
        "schema": 1, "path": "f", "size_bytes": 1_076_887_552, "zeroed_bytes": 1 << 30, "freed_bytes": 1 << 20,
        "punched_bytes": 1 << 30, "written_bytes": 0, "deferred": []
    });
    assert_eq!(object(report), expected);
    assert_eq!((stat, said.err.as_str()), ("1076887552 6144\n", ""));
}

#[test]
fn a_list_of_ranges_comes_from_standard_input() {
    let said = on_tmpfs(
        "printf '1M 1M # the second\\n\\n0 4096\\n2M 4k\\n' | $ELBOW zero f --ranges -; stat -c %b f
        $ELBOW zero f --ranges - < /dev/null; stat -c %b f",
    );
    said.assert_code(0)
        .assert_says(&["1.1 MB zeroed, 1.1 MB freed", "0 B zeroed"]);
    assert_eq!(said.out, "6128\n6128\n");
}

#[test]
fn a_bad_line_is_named_and_nothing_is_changed() {
    let said = on_tmpfs(
        "cp -a f before; set +e
        printf '0 4096\\n\\n4096 lots\\n' | $ELBOW zero f --ranges -; echo $?
        printf '0 4096\\n0 8E\\n' | $ELBOW zero f --ranges -; echo $?
        cmp f before; [ f -nt before ] || echo unchanged",
    );
    said.assert_code(0);
    assert_eq!(said.out, "125\n125\nunchanged\n");
    said.assert_says(&[
        "line 3 of the list, `4096 lots`",
        "line 2 of the list, `0 8E`",
        "nothing was changed",
    ]);
}

#[test]
fn what_is_no_file_to_make_holes_in_is_refused() {
    let said = on_tmpfs(
        "set +e; mkfifo pipe
        for words in 'zero .' 'zero pipe' 'holes pipe' 'zero /dev/null 0 1' 'holes --dig nothing' 'zero f 1' 'holes -q f' \
            'zero f 0 99999999999999999999' 'zero f 9223372036854775807 1' 'zero f 1 1 --ranges -' 'zero f --ranges list'; do
            timeout 20 $ELBOW $words; echo $?
        done",
    );
    assert_eq!(said.assert_code(0).out, "125\n".repeat(11));
    said.assert_says(&[
        ".: a directory",
        "pipe: not a regular file",
        "/dev/null: not a regular file",
        "nothing: No such file",
        "<LENGTH>",
        "--dig",
        "out of range",
        "end beyond what a file can hold",
        "--ranges - < list",
    ]);
}

#[test]
fn a_file_that_may_not_be_written_is_left_alone() {
    let said = on_tmpfs(
        "chmod 444 f; chmod 777 .; set +e
        setpriv --reuid 1 --regid 1 --clear-groups --inh-caps=-all $ELBOW zero f 0 4096; echo $?; stat -c %b f",
    );
    assert_eq!(said.assert_code(0).out, "125\n8192\n");
    said.assert_says(&["f: Permission denied"]);
}

#[test]
fn the_map_is_told_to_people_and_programs() {
    let said = on_tmpfs("$ELBOW zero -q f 1M 2M; $ELBOW holes --json f; $ELBOW holes f");
    let (map, text) = said.assert_code(0).out.split_once('\n').expect("two answers");
    let expected = json!({
        "schema": 1, "path": "f", "size_bytes": 4 << 20, "allocated_bytes": 2 << 20, "data_bytes": 2 << 20, "hole_bytes": 2 << 20,
        "extents": [
            {"offset": 0, "length": 1 << 20, "kind": "data"},
            {"offset": 1 << 20, "length": 2 << 20, "kind": "hole"},
            {"offset": 3 << 20, "length": 1 << 20, "kind": "data"},
        ]
    });
    assert_eq!(object(map), expected);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "f: 4.2 MB, of which 2.1 MB data and 2.1 MB holes; takes 2.1 MB on the disk"
    );
    let words: Vec<Vec<&str>> = lines[1..]
        .iter()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(words[0], ["OFFSET", "LENGTH", "KIND"]);
    assert_eq!(
        words[2],
        ["1048576", "2097152", "hole"],
        "no picture where there is no terminal"
    );
    let empty = on_tmpfs(": > f; $ELBOW holes --json f");
    assert_eq!(object(&empty.assert_code(0).out)["extents"], json!([]));
}

#[test]
fn a_terminal_gets_a_picture() {
    let said = on_tmpfs("$ELBOW zero -q f 1M 2M; script -qc 'stty cols 34; $ELBOW holes f' /dev/null");
    let lines: Vec<&str> = said.assert_code(0).out.lines().collect();
    assert_eq!(lines[1], "[########................########]", "{said:#?}");
}

#[test]
fn only_the_owner_keeps_others_out() {
    let said = on_tmpfs(
        "head -c 1M /dev/zero > f; chmod 666 f; chmod 755 .; set +e
        user() { setpriv --reuid 1 --regid 1 --clear-groups --inh-caps=-all \"$@\"; }
        user $ELBOW holes --dig f; echo $?; user $ELBOW holes --dig -q --assume-no-writers f; echo $?; stat -c %b f
        head -c 1M /dev/zero > f; user $ELBOW zero -q f; echo $?; stat -c %b f",
    );
    assert_eq!(said.assert_code(0).out, "125\n0\n0\n0\n0\n");
    said.assert_says(&["f: only its owner", "--assume-no-writers"]);
}

#[test]
fn zeros_are_dug_and_the_content_stays() {
    let said = on_tmpfs(
        "head -c 3M /dev/zero | dd of=f bs=1M oflag=append conv=notrunc status=none; cp f before; touch -d 2001-02-03 f
        $ELBOW holes --dig --json f; $ELBOW holes --dig f; cmp f before; stat -c '%b %y' f",
    );
    let (report, stat) = said.assert_code(0).out.split_once('\n').expect("two lines");
    let report = object(report);
    assert_eq!(report["dug_bytes"], 3 << 20);
    assert_eq!(
        (&report["allocated_bytes_before"], &report["allocated_bytes"]),
        (&json!(7 << 20), &json!(4 << 20))
    );
    assert_eq!((&report["finished"], &report["means"]), (&json!(true), &json!("lease")));
    assert!(stat.starts_with("8192 2001-02-03"), "{stat}");
    said.assert_says(&["f: 0 B of zeros are holes now"]);
}

#[test]
fn a_file_in_use_is_not_dug_unless_nobody_writes() {
    let said = on_tmpfs(
        "head -c 1M /dev/zero > f; exec 3< f; set +e
        $ELBOW holes --dig f; echo $?; stat -c %b f; $ELBOW holes --dig --assume-no-writers f; echo $?; stat -c %b f",
    );
    assert_eq!(said.assert_code(0).out, "125\n2048\n0\n0\n");
    said.assert_says(&["f: somebody else has it open", "fuser", "--assume-no-writers"]);
}

/// A file that cannot become longer: what is left is named, and the exit code is 125.
#[test]
fn a_full_disk_is_told_with_what_is_left() {
    let stage = Stage::new();
    let said = stage.apart(
        "mkdir m; mount -t tmpfs -o size=64k none m; cd m; head -c 64k /dev/urandom > f; cp f ../before; set +e
        $ELBOW zero f 65000 100000; echo $?; $ELBOW zero --json f 65536 100000; echo $?; stat -c %s f; cat f > ../after",
    );
    assert_eq!(said.code, 0, "{said:#?}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!((lines[0], lines[2], lines[3]), ("125", "125", "65536"), "{said:#?}");
    assert_eq!(
        object(lines[1])["deferred"],
        json!([{"offset": 65_536, "length": 100_000}])
    );
    said.assert_says(&["too full", "65536 99464", "make room"]);
    let (before, after) = (stage.work().join("before"), stage.work().join("after"));
    let read = |path| std::fs::read(path).expect("a copy");
    let (before, after) = (read(before), read(after));
    assert!(before[..65_000] == after[..65_000] && after[65_000..].iter().all(|&byte| byte == 0));
}

/// A hint at lsattr(1) was given where a file would be too long, and none where that shows the reason.
#[test]
fn lsattr_is_named_where_it_shows_something() {
    let said = on_tmpfs("set +e; $ELBOW zero f 9223372036854775000 1; echo $?");
    assert!(!said.err.contains("lsattr"), "{said:#?}");
    let stage = Stage::new();
    let said = stage.apart(
        "echo x > f; chattr +a f 2> /dev/null || exit 77; set +e; $ELBOW zero f; code=$?; chattr -a f; exit $code",
    );
    if said.code != 77 {
        said.assert_code(125)
            .assert_says(&["f: Operation not permitted", "lsattr(1)"]);
    }
}
