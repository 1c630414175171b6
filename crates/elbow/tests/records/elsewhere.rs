//! Sorts that are not in place: into another file, the same one, a pipe, standard output.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::testbed::{ELBOW, ORDER, Said, Testbed, megabytes, records, sorted, wait_for};

fn stable<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&ORDER[..], &["-s"], words].concat()
}

#[test]
fn several_inputs_and_standard_input_are_sorted_together_in_their_order() {
    let testbed = Testbed::new();
    let parts: Vec<Vec<u8>> = (0..3).map(|seed| megabytes(2, seed)).collect();
    testbed.write("first", &parts[0]);
    testbed.write("last", &parts[2]);
    testbed.write("empty", b"");
    let words = stable(&["-o", "out", "first", "empty", "-", "last"]);
    let mut child = testbed.command(&words).stdin(Stdio::piped()).spawn().expect("a start");
    let mut input = child.stdin.take().expect("a pipe");
    // In pieces that are no whole records.
    parts[1]
        .chunks(10_001)
        .for_each(|piece| input.write_all(piece).expect("writing"));
    drop(input);
    Said::of_child(child).assert_code(0);
    assert!(testbed.read("out") == sorted(&parts.concat()));
    assert_eq!(testbed.names(), ["empty", "first", "last", "out"]);
}

/// It was opened to be looked at, closed, and opened again: who wrote to it had lost its reader by then.
#[test]
fn a_pipe_with_a_name_is_opened_once() {
    let testbed = Testbed::new();
    let input = megabytes(2, 7);
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        testbed.path("pipe"),
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .expect("a pipe");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs::write(testbed.path("pipe"), &input));
        testbed.sort(&stable(&["-o", "out", "pipe"])).assert_code(0);
        writer.join().expect("no panic").expect("a reader until the end");
    });
    assert!(testbed.read("out") == sorted(&input));
}

#[test]
fn the_output_may_be_an_input() {
    let input = megabytes(3, 1);
    let testbed = Testbed::with(&input);
    testbed.sort(&stable(&["-o", "data", "data"])).assert_code(0);
    assert!(testbed.read("data") == sorted(&input));
    assert_eq!(testbed.names(), ["data"]);
}

#[test]
fn standard_output_gets_the_records_and_nothing_else() {
    let input = megabytes(3, 2);
    let testbed = Testbed::with(&input);
    for words in [&["data"][..], &["-o", "/dev/stdout", "data"]] {
        let said = testbed.sort(&stable(words));
        assert!(said.code == 0 && said.out == sorted(&input), "{}", said.err);
    }
    for words in [&["data"][..], &["-o", "/dev/stdout", "data"]] {
        let out = File::create(testbed.path("out")).expect("a file");
        let before = testbed.identity("out").0;
        let ended = testbed.command(&stable(words)).stdout(out).status().expect("an end");
        assert!(ended.success() && testbed.read("out") == sorted(&input), "{words:?}");
        assert_eq!(
            (testbed.identity("out").0, testbed.names().len()),
            (before, 2),
            "{words:?}"
        );
    }
}

#[test]
fn devices_and_pipes_are_written_to_and_stay() {
    let input = megabytes(1, 3);
    let testbed = Testbed::with(&input);
    testbed.sort(&stable(&["-o", "/dev/null", "data"])).assert_code(0);
    assert!(
        !fs::metadata("/dev/null").expect("/dev/null").is_file(),
        "/dev/null was replaced"
    );
    let made = std::process::Command::new("mkfifo").arg(testbed.path("pipe")).status();
    assert!(made.expect("mkfifo").success());
    let child = testbed.start(&stable(&["-o", "pipe", "data"]));
    assert!(testbed.read("pipe") == sorted(&input));
    Said::of_child(child).assert_code(0);
    assert_eq!(testbed.names(), ["data", "pipe"]);
}

#[test]
fn who_does_not_read_to_the_end_ends_it_in_silence() {
    let testbed = Testbed::with(&megabytes(3, 4));
    let script = "{ \"$ELBOW\" sort --record 24 -S 8M data; echo $? >&2; } | head -c 24 > out";
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", script])
        .current_dir(&testbed.dir)
        .env("ELBOW", ELBOW);
    let said = Said::of(&command.output().expect("an end"));
    assert_eq!((said.err.as_str(), testbed.identity("out").1), ("141\n", 24));
}

#[test]
fn an_output_that_is_there_keeps_its_mode_and_a_link_to_it_stays_one() {
    let input = megabytes(1, 5);
    let testbed = Testbed::with(&input);
    for mode in [0o600, 0o666, 0o751] {
        testbed.write("out", b"old");
        fs::set_permissions(testbed.path("out"), fs::Permissions::from_mode(mode)).expect("a mode");
        testbed.sort(&stable(&["-o", "out", "data"])).assert_code(0);
        let found = testbed.path("out").metadata().expect("the output");
        assert_eq!(found.mode() & 0o7777, mode);
        assert!(testbed.read("out") == sorted(&input));
    }
    std::os::unix::fs::symlink("out", testbed.path("link")).expect("a link");
    testbed.write("out", b"old");
    testbed.sort(&stable(&["-o", "link", "data"])).assert_code(0);
    assert!(testbed.path("link").is_symlink() && testbed.read("out") == sorted(&input));
    assert_eq!(testbed.names(), ["data", "link", "out"]);
}

#[test]
fn a_new_output_has_the_mode_that_the_umask_leaves() {
    let testbed = Testbed::with(&records(10, 6));
    let script = "umask 027; \"$ELBOW\" sort --record 24 -S 8M -o out data";
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", script])
        .current_dir(&testbed.dir)
        .env("ELBOW", ELBOW);
    Said::of(&command.output().expect("an end")).assert_code(0);
    assert_eq!(
        testbed.path("out").metadata().expect("the output").mode() & 0o7777,
        0o640
    );
}

#[test]
fn a_failure_leaves_the_old_output_and_no_draft() {
    let testbed = Testbed::new();
    testbed.write("whole", &megabytes(3, 7));
    testbed.write("out", b"old");
    let words = stable(&["-o", "out", "whole", "-"]);
    let mut child = testbed.command(&words).stdin(Stdio::piped()).spawn().expect("a start");
    let mut input = child.stdin.take().expect("a pipe");
    wait_for("the draft", || testbed.names().len() == 3);
    input.write_all(&[1; 25]).expect("writing");
    drop(input);
    Said::of_child(child).assert_code(2);
    assert_eq!(
        (testbed.read("out"), testbed.names()),
        (b"old".to_vec(), vec!["out".into(), "whole".into()])
    );
}

/// The old output is whole, and what may be left has a name that says whose it was.
#[test]
fn a_kill_leaves_the_old_output_and_at_most_a_draft() {
    let testbed = Testbed::new();
    testbed.write("out", b"old");
    let mut child = testbed
        .command(&stable(&["-o", "out", "-"]))
        .stdin(Stdio::piped())
        .spawn()
        .expect("a start");
    let draft = format!(".out.elbow-draft-{}-0", child.id());
    wait_for("the draft", || testbed.path(&draft).exists());
    child.kill().expect("its end");
    child.wait().expect("its end");
    assert_eq!(
        (testbed.read("out"), testbed.names()),
        (b"old".to_vec(), vec![draft, "out".into()])
    );
}

#[test]
fn records_of_the_sort_benchmark_are_sorted_by_their_first_ten_bytes() {
    let mut rng = StdRng::seed_from_u64(8);
    let mut input = vec![0; 100 * 40_000];
    rng.fill(&mut input[..]);
    // Keys that differ in their last bytes only, and equal ones.
    for record in input.chunks_mut(100) {
        let few = record[9] % 2;
        record[..9].fill(few);
    }
    let mut expected: Vec<&[u8]> = input.chunks(100).collect();
    expected.sort_by_key(|record| &record[..10]);
    let testbed = Testbed::with(&input);
    testbed
        .sort(&["--gensort", "-s", "-S", "8M", "-o", "out", "data"])
        .assert_code(0);
    assert!(testbed.read("out") == expected.concat());
    let said = testbed.sort(&["--gensort", "-s", "-S", "8M", "--in-place", "data"]);
    assert!(said.code == 0 && testbed.read("data") == expected.concat(), "{said:?}");
}

/// A record as a tuple that compares as its keys do.
type Compare = fn(&[u8], &[u8]) -> std::cmp::Ordering;

fn at<const N: usize>(record: &[u8], offset: usize) -> [u8; N] {
    record[offset..offset + N].try_into().expect("inside the record")
}

/// Keys of every type, and what the test itself makes of them. Bytes 0..8 of a record are random, of few different
/// values where a second key is to decide.
const ORDERS: [(&[&str], Compare); 12] = [
    (&["3:1:u8", "8:8:u64le"], |a, b| {
        a[3].cmp(&b[3])
            .then(u64::from_le_bytes(at(a, 8)).cmp(&u64::from_le_bytes(at(b, 8))))
    }),
    (&["3:1:i8:desc"], |a, b| (b[3] as i8).cmp(&(a[3] as i8))),
    (&["1:2:u16be"], |a, b| {
        u16::from_be_bytes(at(a, 1)).cmp(&u16::from_be_bytes(at(b, 1)))
    }),
    (&["1:2:i16le"], |a, b| {
        i16::from_le_bytes(at(a, 1)).cmp(&i16::from_le_bytes(at(b, 1)))
    }),
    (&["12:4:i32be"], |a, b| {
        i32::from_be_bytes(at(a, 12)).cmp(&i32::from_be_bytes(at(b, 12)))
    }),
    (&["12:4:u32le:desc"], |a, b| {
        u32::from_le_bytes(at(b, 12)).cmp(&u32::from_le_bytes(at(a, 12)))
    }),
    (&["12:8:i64le"], |a, b| {
        i64::from_le_bytes(at(a, 12)).cmp(&i64::from_le_bytes(at(b, 12)))
    }),
    (&["12:8:u64be"], |a, b| {
        u64::from_be_bytes(at(a, 12)).cmp(&u64::from_be_bytes(at(b, 12)))
    }),
    (&["13:4:f32le"], |a, b| {
        f32::from_le_bytes(at(a, 13)).total_cmp(&f32::from_le_bytes(at(b, 13)))
    }),
    (&["13:8:f64be:desc"], |a, b| {
        f64::from_be_bytes(at(b, 13)).total_cmp(&f64::from_be_bytes(at(a, 13)))
    }),
    (&["9:11:bytes"], |a, b| a[9..20].cmp(&b[9..20])),
    (&["0:2:bytes:desc", "2:1:u8", "12:8:i64be:desc"], |a, b| {
        (b[..2].cmp(&a[..2]))
            .then(a[2].cmp(&b[2]))
            .then(i64::from_be_bytes(at(b, 12)).cmp(&i64::from_be_bytes(at(a, 12))))
    }),
];

#[test]
fn every_type_of_key_gives_the_order_of_a_stable_sort() {
    let seed = elbow_testkit::cases::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    for (keys, compare) in ORDERS {
        let bytes = 24;
        let mut input = vec![0_u8; bytes * 90_000];
        rng.fill(&mut input[..]);
        let few: [u8; 5] = [0, 1, 127, 128, 255];
        input.chunks_mut(bytes).for_each(|record| {
            record[..8]
                .iter_mut()
                .for_each(|byte| *byte = few[usize::from(*byte) % few.len()]);
        });
        let mut expected: Vec<&[u8]> = input.chunks(bytes).collect();
        expected.sort_by(|a, b| compare(a, b));
        let expected = expected.concat();
        let testbed = Testbed::with(&input);
        let order: Vec<&str> = keys.iter().flat_map(|key| ["--key", key]).collect();
        let words = [&["--record", "24", "-s", "-S", "8M"], &order[..]].concat();
        testbed
            .sort(&[&words[..], &["-o", "out", "data"]].concat())
            .assert_code(0);
        assert!(testbed.read("out") == expected, "{keys:?}");
        testbed
            .sort(&[&words[..], &["--in-place", "data"]].concat())
            .assert_code(0);
        assert!(testbed.read("data") == expected, "{keys:?} in place");
    }
}
