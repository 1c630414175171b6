//! What cannot be sorted is refused: with a message that says why, exit code 2, and nothing changed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use elbow_testkit::reachable::Reachable;

use crate::testbed::{ELBOW, ORDER, Said, Testbed, megabytes, records, sorted};

/// An ordinary user who is on every machine.
const DAEMON: u32 = 1;
const MEGABYTES: usize = 12;

/// A few records, and a refusal that leaves them alone.
fn refuse(words: &[&str], lines: &[&str]) {
    let input = records(100, 1);
    let testbed = Testbed::with(&input);
    let said = testbed.sort(words);
    assert_eq!(
        (testbed.read("data") == input, testbed.names()),
        (true, vec!["data".to_owned()]),
        "{words:?}: {said:?}"
    );
    let here = testbed.dir.to_str().expect("a plain name");
    let lines: Vec<String> = lines.iter().map(|line| line.replace("DIR", here)).collect();
    said.assert_refused(&lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_truncated_last_record_is_refused() {
    for (words, name) in [(&["--in-place"][..], "DIR/data"), (&["-o", "out"], "data")] {
        let testbed = Testbed::with(&records(100, 1)[..2399]);
        let said = testbed.sort(&[&ORDER[..], words, &["data"]].concat());
        let name = name.replace("DIR", testbed.dir.to_str().expect("a plain name"));
        said.assert_refused(&[&format!(
            "{name}: 2399 bytes are not a whole number of 24-byte records: the last one, at byte 2376, has only 23"
        )]);
        assert_eq!(
            (testbed.identity("data").1, testbed.names()),
            (2399, vec!["data".to_owned()])
        );
    }
}

#[test]
fn a_truncated_last_record_of_standard_input_is_refused_and_the_old_output_kept() {
    let testbed = Testbed::with(&records(100, 1)[..2399]);
    testbed.write("out", b"old");
    let mut command = testbed.command(&[&ORDER[..], &["-o", "out", "-"]].concat());
    let said = command
        .stdin(fs::File::open(testbed.path("data")).expect("the file"))
        .output();
    Said::of(&said.expect("an end")).assert_refused(&[
        "-: 2399 bytes are not a whole number of 24-byte records: the last one, at byte 2376, has only 23",
    ]);
    assert_eq!(
        (testbed.read("out"), testbed.names()),
        (b"old".to_vec(), vec!["data".to_owned(), "out".to_owned()])
    );
}

#[test]
fn a_key_that_makes_no_sense_is_refused() {
    const WRITE: &str = "; write OFFSET:WIDTH:TYPE[:desc], as in 0:4:u32le";
    const TYPES: &str = "is no type (u8, u16le, i32be, f64le, bytes and the like)";
    for (key, message) in [
        (
            "22:4:u32le",
            "key 22:4:u32le ends at byte 26, but a record has 24 bytes".to_owned(),
        ),
        (
            "24:1:bytes",
            "key 24:1:bytes ends at byte 25, but a record has 24 bytes".to_owned(),
        ),
        ("0:4:u33le", format!("key `0:4:u33le`: `u33le` {TYPES}{WRITE}")),
        ("0:4", format!("key `0:4`: `` {TYPES}{WRITE}")),
        (
            "0:3:u32le",
            format!("key `0:3:u32le`: this type has 4 bytes, not 3{WRITE}"),
        ),
        (
            "0:0:bytes",
            format!("key `0:0:bytes`: this type has at least 1 byte, not 0{WRITE}"),
        ),
        ("2,2n", format!("key `2,2n`: `2,2n` is no offset{WRITE}")),
    ] {
        refuse(&["--record", "24", "--key", key, "--in-place", "data"], &[&message]);
    }
    let message = "a record of 0 bytes: the size must be between 1 and 1048576";
    refuse(&["--record", "0", "--in-place", "data"], &[message]);
}

#[test]
fn what_cannot_be_sorted_in_place_is_refused() {
    let words = |name| [&ORDER[..], &["--in-place", name]].concat();
    refuse(&words("-"), &["standard input cannot be sorted in place; name a file"]);
    refuse(&words("nothing"), &["nothing: No such file or directory"]);
    refuse(
        &words("."),
        &["DIR: cannot be sorted in place: it is not a regular file"],
    );
    refuse(
        &ORDER.iter().copied().chain(["--in-place"]).collect::<Vec<_>>(),
        &["which file? A sort in place needs one"],
    );
    refuse(
        &[&words("data")[..], &["data"]].concat(),
        &["a sort in place takes one file, not 2"],
    );
    refuse(
        &[&words("data")[..], &["-o", "out"]].concat(),
        &["-o cannot be used with a sort in place: the file itself is sorted"],
    );
    refuse(
        &words("/dev/null"),
        &["/dev/null: cannot be sorted in place: it is not a regular file"],
    );
}

/// Opening a pipe would wait for somebody at its other end.
#[test]
fn a_pipe_is_refused_in_place_at_once() {
    let testbed = Testbed::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        testbed.path("data"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    let message = format!(
        "{}: cannot be sorted in place: it is not a regular file",
        testbed.path("data").display()
    );
    testbed.sort_in_place(&[]).assert_refused(&[&message]);
    assert_eq!(testbed.names(), ["data"]);
}

#[test]
fn options_that_are_for_text_are_refused() {
    for (option, shown) in [
        (&["-c"][..], "-c"),
        (&["-C"], "-c"),
        (&["--check"], "-c"),
        (&["-m"], "-m"),
        (&["-u"], "-u"),
        (&["-n"], "-n"),
        (&["-g"], "-g"),
        (&["-h"], "-h"),
        (&["-M"], "-M"),
        (&["-V"], "-V"),
        (&["-R"], "-R"),
        (&["--sort=numeric"], "--sort"),
        (&["-d"], "-d"),
        (&["-f"], "-f"),
        (&["-b"], "-b"),
        (&["-i"], "-i"),
        (&["-z"], "-z"),
        (&["-r"], "-r (write :desc behind a key)"),
        (&["-t", ","], "-t"),
        (&["--files0-from", "data"], "--files0-from"),
        (&["--compress-program", "gzip"], "--compress-program"),
        (&["--batch-size", "7"], "--batch-size"),
    ] {
        let message = format!("{shown} is for lines of text, not for records");
        refuse(&[&ORDER[..], option, &["--in-place", "data"]].concat(), &[&message]);
        refuse(&[option, &["--resume", "data"]].concat(), &[&message]);
    }
}

#[test]
fn too_little_memory_is_refused() {
    let words = ["--record", "24", "--key", "0:4:u32le", "-S", "1M", "--in-place", "data"];
    let message = "1048576 bytes of memory are too few to sort 24-byte records: at least 8388608 are needed";
    refuse(&words, &[message]);
    refuse(&[&words[..], &["--dry-run"]].concat(), &[message]);
}

#[test]
fn there_is_nothing_to_resume_before_a_sort_and_after_it() {
    let message = "DIR/data: no sort in place of this file was begun (DIR/data.elbow-sort/manifest is not there)";
    refuse(&["--resume", "data"], &[message]);
    let testbed = Testbed::with(&records(100, 1));
    testbed.sort_in_place(&[]).assert_code(0);
    testbed
        .resume()
        .assert_refused(&[&message.replace("DIR", testbed.dir.to_str().expect("a plain name"))]);
}

/// A sort that was killed in the middle: some of the input is freed.
fn killed() -> (Testbed, Vec<u8>) {
    let input = megabytes(MEGABYTES, 2);
    let testbed = Testbed::new();
    let held = testbed.start_and_hold(&input);
    drop(held); // by SIGKILL
    assert!(testbed.is_begun());
    (testbed, input)
}

/// What is there can still be resumed, and comes to the right end.
fn assert_is_resumed(testbed: &Testbed, input: &[u8]) {
    testbed.resume().assert_code(0);
    let output = testbed.read("data");
    crate::testbed::assert_in_order(24, &output);
    assert!(sorted(&output) == output && crate::testbed::Content::of(&output) == crate::testbed::Content::of(input));
}

#[test]
fn an_unfinished_sort_is_not_begun_again() {
    let (testbed, input) = killed();
    let name = testbed.path("data").display().to_string();
    testbed.sort_in_place(&[]).assert_refused(&[&format!(
        "{name}: a sort in place of this file was begun and is not finished; `elbow sort --resume` continues it; \
         if the file was written anew since, remove {name}.elbow-sort to give that sort up"
    )]);
    assert_is_resumed(&testbed, &input);
}

#[test]
fn a_dry_run_of_a_resume_is_refused() {
    let (testbed, input) = killed();
    let said = testbed.sort(&["--resume", "--dry-run", "data"]);
    said.assert_code(2);
    assert!(
        said.err.contains("cannot be used with") && testbed.is_begun(),
        "{said:?}"
    );
    assert_is_resumed(&testbed, &input);
}

#[test]
fn of_two_that_sort_or_resume_at_once_one_is_refused() {
    let input = megabytes(40, 3);
    let testbed = Testbed::new();
    // It keeps its lock while it is stopped.
    let first = testbed.start_and_hold(&input);
    let message = format!(
        "{}: another process is sorting this file",
        testbed.path("data").display()
    );
    let said = [testbed.resume(), testbed.sort_in_place(&[])];
    first.go_on().assert_code(0);
    for said in said {
        said.assert_refused(&[&message]);
    }
    let output = testbed.read("data");
    assert!(sorted(&output) == output && crate::testbed::Content::of(&output) == crate::testbed::Content::of(&input));
}

#[test]
fn a_manifest_with_both_copies_damaged_is_refused() {
    let (testbed, input) = killed();
    let manifest = "data.elbow-sort/manifest";
    let good = testbed.read(manifest);
    let half = good.len() / 2;
    let damage = |from: usize| {
        let mut bad = good.clone();
        for at in [from, from + 20, from + 40] {
            bad[at] ^= 0x5a;
        }
        bad
    };
    let mut both = damage(0);
    both[half..half + 40].fill(0x77);
    for bad in [both.clone(), Vec::new(), good[..7].to_vec(), vec![0; good.len()]] {
        testbed.write(manifest, &bad);
        let before = testbed.read("data");
        for said in [testbed.resume(), testbed.sort_in_place(&[])] {
            said.assert_code(2);
            let expected = format!(
                "elbow: {}: the manifest cannot be read, neither of its copies: ",
                testbed.path(manifest).display()
            );
            assert!(said.err.starts_with(&expected), "{said:?}");
        }
        assert!(
            testbed.read("data") == before && testbed.read(manifest) == bad,
            "something was changed"
        );
    }
    testbed.write(manifest, &good);
    assert_is_resumed(&testbed, &input);
}

/// Whoever made it could take the runs away, and with them records.
#[test]
fn a_directory_for_runs_that_somebody_else_has_made_is_not_used() {
    const STRANGER: u32 = 4711;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root gives directories away");
        return;
    }
    let input = records(100, 3);
    let testbed = Testbed::with(&input);
    let side = testbed.path("data.elbow-sort");
    fs::create_dir(&side).expect("a directory");
    chown(&side, Some(STRANGER), Some(STRANGER)).expect("root");
    let refused = [&format!(
        "{}: is somebody else's, who could take away what is put there",
        side.display()
    )[..]];
    testbed.sort_in_place(&[]).assert_refused(&refused);
    testbed.resume().assert_refused(&refused);
    assert!(testbed.read("data") == input);
    // Nor does it keep anybody from reading the file.
    testbed
        .sort(&[&ORDER[..], &["-o", "out", "data"]].concat())
        .assert_code(0);
    assert!(testbed.read("out") == crate::testbed::sorted(&input));
}

/// Whoever may write to a file may sort it in place: what a colleague has left of that is as unfinished as one's own.
#[test]
fn what_somebody_else_has_begun_to_sort_is_not_read_by_others() {
    const COLLEAGUE: u32 = 4711;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root gives directories away");
        return;
    }
    let (testbed, input) = killed();
    let (file, side) = (testbed.path("data"), testbed.path("data.elbow-sort"));
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    let left = testbed.read("data");
    let whole = [&ORDER[..], &["-o", "out", "data"]].concat();
    let over_itself = [&ORDER[..], &["-o", "data", "data"]].concat();
    chown(&side, Some(COLLEAGUE), None).expect("root");
    chown(&file, Some(DAEMON), None).expect("root");
    set_mode(&testbed.dir, 0o777);
    // The last may have been closed to the colleague since.
    for mode in [0o664, 0o600] {
        set_mode(&file, mode);
        for words in [&whole, &over_itself] {
            let message = "data: a sort in place of this file ";
            let (root, owner) = (testbed.sort(words), sort_as_user(&testbed, words));
            for (said, more) in [(root, "was begun and is not finished"), (owner, "may be unfinished")] {
                let message = format!("{message}{more}");
                assert!(said.code == 2 && said.err.contains(&message), "{mode:o}: {said:?}");
            }
            assert!(testbed.read("data") == left && !testbed.path("out").exists());
        }
    }
    // Where anybody can make such a directory, that of one who cannot have sorted the file says nothing.
    set_mode(&testbed.dir, 0o1777);
    sort_as_user(&testbed, &whole).assert_code(0);
    chown(&side, Some(0), None).expect("root");
    assert_is_resumed(&testbed, &input);
}

#[test]
fn the_manifest_of_another_file_is_refused() {
    let (testbed, input) = killed();
    let (inode, size) = testbed.identity("data");
    fs::rename(testbed.path("data"), testbed.path("kept")).expect("renaming");
    testbed.write("data", &records(100, 9));
    let (other, _) = testbed.identity("data");
    let file = testbed.path("data").display().to_string();
    testbed.resume().assert_refused(&[&format!(
        "{file}.elbow-sort/manifest: the manifest is of another file: {file} has inode {other} and 2400 bytes, \
         the file that was being sorted had inode {inode} and {size} bytes"
    )]);
    assert!(testbed.read("data") == records(100, 9));
    fs::rename(testbed.path("kept"), testbed.path("data")).expect("renaming");
    assert_is_resumed(&testbed, &input);
}

/// It has its inode and its size still: the next export was written over it.
#[test]
fn a_file_that_was_written_anew_is_refused_until_the_old_sort_is_given_up() {
    let (testbed, input) = killed();
    let before = testbed.identity("data");
    let new = megabytes(MEGABYTES, 7);
    testbed.write("data", &new);
    assert_eq!((testbed.identity("data"), new.len()), (before, input.len()));
    let said = testbed.resume();
    said.assert_code(2);
    let name = testbed.path("data").display().to_string();
    let (begin, end) = (
        format!("elbow: {name}.elbow-sort/manifest: the manifest is of another file: {name} "),
        format!("; to give the old sort up, remove {name}.elbow-sort\n"),
    );
    assert!(said.err.starts_with(&begin) && said.err.ends_with(&end), "{said:?}");
    assert!(testbed.read("data") == new, "it was changed");
    fs::remove_dir_all(testbed.path("data.elbow-sort")).expect("the old sort");
    testbed.sort_in_place(&[]).assert_code(0);
    let output = testbed.read("data");
    assert!(sorted(&output) == output && crate::testbed::Content::of(&output) == crate::testbed::Content::of(&new));
}

#[test]
fn a_sort_whose_runs_are_gone_is_refused_until_they_are_back() {
    let (testbed, input) = killed();
    let (runs, before) = ("data.elbow-sort/runs-1", testbed.read("data"));
    let path = testbed.path(runs).display().to_string();
    let whole = fs::File::options().write(true).open(testbed.path(runs)).expect("runs");
    let length = whole.metadata().expect("runs").len();
    fs::rename(testbed.path(runs), testbed.path("kept")).expect("renaming");
    let advice = "put it back to resume the sort";
    testbed.resume().assert_refused(&[&format!(
        "{path}: records of the sort were in this file, and it is not there; {advice}"
    )]);
    testbed.write(runs, b"half");
    testbed.resume().assert_refused(&[&format!(
        "{path}: records of the sort were in this file, and it has 4 bytes, not {length}; {advice}"
    )]);
    assert!(testbed.read("data") == before, "it was changed");
    fs::rename(testbed.path("kept"), testbed.path(runs)).expect("renaming");
    assert_is_resumed(&testbed, &input);
}

/// As an ordinary user: the one who runs the tests, or another one, whom root lets see the directory and the binary.
fn sort_as_user(testbed: &Testbed, words: &[&str]) -> Said {
    let binary = Reachable::new(Path::new(ELBOW)).expect("the binary for all");
    let mut command = testbed.command_of(binary.path(), words);
    if rustix::process::geteuid().is_root() {
        command.uid(DAEMON).gid(DAEMON);
    }
    Said::of(&command.output().expect("an end"))
}

/// A place of records in which the user of [`sort_as_user`] has no more rights than these, given in octal.
fn place_with_rights(directory: u32, data: u32) -> Testbed {
    let testbed = Testbed::new();
    testbed.write("data", &records(100, 1));
    fs::set_permissions(testbed.path("data"), Permissions::from_mode(data)).expect("permissions");
    fs::set_permissions(&testbed.dir, Permissions::from_mode(directory)).expect("permissions");
    testbed
}

#[test]
fn a_file_that_may_not_be_written_is_refused_in_place() {
    let testbed = place_with_rights(0o777, 0o444);
    let said = sort_as_user(&testbed, &[&ORDER[..], &["--in-place", "data"]].concat());
    let name = testbed.path("data").display().to_string();
    said.assert_refused(&[&format!("opening {name}: Permission denied")]);
    assert!(testbed.read("data") == records(100, 1) && testbed.names() == ["data"]);
}

#[test]
fn a_directory_that_may_not_be_written_is_refused_in_place() {
    let testbed = place_with_rights(0o555, 0o666);
    let words = [&ORDER[..], &["--in-place", "data"]].concat();
    let name = testbed.path("data").display().to_string();
    sort_as_user(&testbed, &words).assert_refused(&[&format!("making {name}.elbow-sort: Permission denied")]);
    sort_as_user(&testbed, &[&ORDER[..], &["-o", "out", "data"]].concat())
        .assert_refused(&["creating the output out: Permission denied"]);
    fs::set_permissions(&testbed.dir, Permissions::from_mode(0o755)).expect("rights to remove it");
    assert!(testbed.read("data") == records(100, 1) && testbed.names() == ["data"]);
}

#[test]
fn a_read_only_file_system_is_refused_in_place() {
    let Some(disk) = crate::disk::Disk::new("tmpfs") else {
        return;
    };
    let testbed = Testbed::on(&disk.root());
    testbed.write("data", &records(100, 1));
    let remount = |how: &str| {
        let mut command = std::process::Command::new("mount");
        command.args(["-o", how]).arg(&testbed.dir).stdout(Stdio::null());
        assert!(command.status().expect("mount").success());
    };
    remount("remount,ro");
    let name = testbed.path("data").display().to_string();
    testbed
        .sort_in_place(&[])
        .assert_refused(&[&format!("opening {name}: Read-only file system")]);
    assert!(testbed.read("data") == records(100, 1) && testbed.names() == ["data"]);
}
