//! What can be done without a job can be done in one, where the storage lets a user do just that and no more; and what cannot be
//! done is undone, with the path and the reason.
//!
//! A commit used to take ways that need more rights than what it stands for (another directory, another mode), and was
//! refused there after its record was written: a mixture, and a directory that no later job could use.

use std::process::Command;

use crate::loop_disk::LoopDisk;
use crate::ordinary_user::{USER, as_user};
use crate::test_dir::{TestDir, unavailable, wait_for};

/// A ground of the user's own, in which root then does something.
fn own_ground(seed: &str, then: &str) -> TestDir {
    as_user(TestDir::new(&format!(
        "{seed}\ncd \"$WORK\"; chown -R {USER}:{USER} .; chmod 755 .; {then}"
    )))
}

/// An ordinary user does the same with and without a job, and the next job works.
fn assert_same(seed: &str, then: &str, script: &str) {
    let test_dir = own_ground(seed, then);
    test_dir.assert_same_as_native(script);
    test_dir.assert_no_staging();
    test_dir.job(&[], "touch of-the-next-job").assert_code(0);
}

#[test]
fn a_new_directory_that_its_owner_may_not_write() {
    let script = "set -e; mkdir -p ro/sub; echo x > ro/f; chmod 555 ro/sub ro; echo new > old";
    assert_same("echo old > old", "true", script);
    let script = "set -e; mkdir -p a/b; mv old a/b/; chmod 555 a/b; chmod 500 a; mkdir -m 0 none; mkdir -m 300 blind";
    assert_same("echo old > old", "true", script);
}

#[test]
fn an_old_directory_that_its_owner_may_not_write() {
    let seed = "mkdir -p d/e empty full; echo x > full/f; chmod 555 empty full d/e";
    assert_same(seed, "true", "set -e; rmdir empty d/e; mv full moved");
    assert_same(seed, "true", "set -e; mv empty x; mv full empty; mv x full");
    assert_same(
        seed,
        "true",
        "set -e; chmod 755 full; mv full d/; chmod 555 d/full; rm -rf empty",
    );
    assert_same(seed, "true", "set -e; mv d a; chmod 555 a");
}

#[test]
fn directories_and_files_of_somebody_else() {
    let theirs = "mkdir -m 755 theirs; printf secret > log; chmod 222 log; printf r > readable; chmod 444 readable
        printf s > setid; chmod 6777 setid; printf x > tagged; chmod 666 tagged";
    assert_same("mkdir d", theirs, "set -e; mv theirs d2; mv log d/; mv readable r2");
    // The times of a file of somebody else are those of the commit: only its owner may set them.
    let test_dir = own_ground("mkdir d", theirs);
    let script = "set -e; rmdir theirs; printf more >> log; rm -f readable; mkdir m; printf x >> setid
        setfattr -n user.a -v 1 tagged";
    test_dir.job(&[], script).assert_code(0);
    test_dir.assert_no_staging();
    let mode = std::os::unix::fs::MetadataExt::mode(&test_dir.metadata("setid"));
    assert_eq!(mode & 0o7777, 0o777);
    assert_eq!(test_dir.content("log"), b"secretmore");
    assert_eq!(test_dir.content("setid"), b"sx");
}

#[test]
fn rights_that_the_command_gives_itself_first() {
    let seed = "printf x > f; setfattr -n user.a -v 1 f; chmod 444 f; mkdir d; chmod 500 d";
    assert_same(
        seed,
        "true",
        "set -e; chmod u+w f; setfattr -n user.a -v 2 f; setfattr -n user.b -v 3 f",
    );
    assert_same(seed, "true", "set -e; chmod u+w f; setfattr -x user.a f; chmod 400 f");
    assert_same(seed, "true", "set -e; chmod 600 f; printf y >> f; chmod 0 f");
}

#[test]
fn the_last_right_to_the_directory_itself() {
    let test_dir = own_ground("printf x > f; mkdir d", "true");
    test_dir.job(&[], "printf y > g; rm f; chmod 000 .").assert_code(0);
    let mode = std::os::unix::fs::MetadataExt::mode(&test_dir.metadata(""));
    assert_eq!(mode & 0o7777, 0);
    assert_eq!(test_dir.content("g"), b"y");
    assert!(!test_dir.work("f").exists());
}

/// chattr(1): a commit that meets an immutable file is taken back; an append-only one is appended to.
#[test]
fn immutable_and_append_only_files() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let seed = "mkdir d; printf old > d/fixed; printf line > log; printf x > other";
    let test_dir = TestDir::at(&disk.path(), seed);
    let mark = |flag: &str, names: &[&str]| {
        let paths = names.iter().map(|name| test_dir.work(name));
        let marked = Command::new("chattr").arg(flag).args(paths).status();
        assert!(marked.expect("chattr").success());
    };
    mark("+i", &["d/fixed"]);
    mark("+a", &["log"]);
    let before = test_dir.snapshot();
    for script in [
        "printf new > other; mkdir n; rm -f d/fixed; rm -rf d; rm other",
        "printf new > other; mv d/fixed elsewhere",
        "printf new > other; chmod 600 d/fixed",
        "printf new > other; printf more >> d/fixed",
        "printf new > other; rm -f log",
        "printf new > other; printf replaced > log",
    ] {
        let run = test_dir.job(&[], &format!("{script} || true"));
        if run.code == 0 {
            // The command was told, as natively, and went on.
            assert!(
                test_dir.content("d/fixed") == b"old" && test_dir.content("log") == b"line",
                "{script}"
            );
            test_dir.job(&[], "printf x > other; rm -rf n").assert_code(0);
            continue;
        }
        run.assert_code(125);
        assert!(
            run.err.contains("d/fixed") || run.err.contains("log") || run.err.contains("d:"),
            "{}",
            run.err
        );
        assert!(run.err.contains("not permitted"), "{}", run.err);
        test_dir.assert_equals(&before);
    }
    test_dir.job(&[], "printf more >> log; printf y > other").assert_code(0);
    assert_eq!(test_dir.content("log"), b"linemore");
    mark("-i", &["d/fixed"]);
    mark("-a", &["log"]);
}

/// What a job stages in an append-only directory (chattr +a) can never be taken out of it. Every job that made something in one was committed, and then "1 of its
/// steps failed", for ever: no recovery could end it.
#[test]
fn append_only_directories() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), "mkdir -p s/in; printf old > s/log; printf x > top");
    let mark = |flag: &str, path: &str| {
        let marked = Command::new("chattr").arg(flag).arg(test_dir.work(path)).status();
        assert!(marked.expect("chattr").success());
    };
    mark("+a", "s");
    let before = test_dir.snapshot();
    for script in [
        "echo x > s/n",
        "mkdir s/n",
        "ln -s x s/n",
        "ln top s/n",
        "mv top s/n",
        "mkfifo s/n",
        "rm s/log",
    ] {
        let run = test_dir.job(&[], &format!("({script}) 2>&1; true"));
        run.assert_code(0);
        assert!(run.out.contains("not permitted"), "{script}: {}", run.out);
        test_dir.assert_equals(&before);
    }
    // What is in it is nobody's concern.
    test_dir
        .job(&[], "set -e; printf more >> s/log; printf y > s/in/f; printf z > top")
        .assert_code(0);
    assert_eq!(test_dir.content("s/log"), b"oldmore");
    test_dir.assert_no_staging();
    // It became so while the job ran.
    mark("-a", "s");
    let script = "echo x > s/n; : > \"$OUT/made\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = test_dir.start_job(&["--no-keep"], script);
    wait_for("staging in s", || {
        let mut names = std::fs::read_dir(test_dir.work("s")).expect("a directory").flatten();
        names.any(|entry| entry.file_name().as_encoded_bytes().starts_with(b".elbow-"))
    });
    mark("+a", "s");
    test_dir.touch_outside("go");
    let run = job.finish();
    run.assert_code(125);
    assert!(
        run.err.contains("not permitted") && !run.err.contains("is committed"),
        "{}",
        run.err
    );
    assert!(!test_dir.work("s/n").exists());
    mark("-a", "s");
    test_dir.elbow(&["recover", "."]).assert_code(0);
    test_dir.assert_no_staging();
    for flag in ["a", "i"] {
        mark(&format!("+{flag}"), "");
        let run = test_dir.job(&[], "touch \"$OUT/ran\"");
        mark(&format!("-{flag}"), "");
        run.assert_code(125);
        // access(2) says so of what is immutable already.
        let words = if flag == "a" {
            "append-only (chattr"
        } else {
            "you may not write there"
        };
        assert!(run.err.contains(words), "{}", run.err);
        assert!(!test_dir.outside("ran").exists(), "COMMAND ran");
        test_dir.assert_no_staging();
    }
}

/// A directory in a tree that the job removes is protected, or somebody else's, by the end: it cannot be removed any more. The rest was committed, and a step failed
/// for ever.
#[test]
fn a_directory_that_is_given_away_while_it_is_removed_stops_the_commit() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), "mkdir -p rm/s/in; printf x > rm/s/x; printf y > other");
    let before = test_dir.snapshot();
    let own = |program: &str, what: &str, name: &str| {
        let done = Command::new(program).arg(what).arg(test_dir.work(name)).status();
        assert!(done.expect(program).success());
    };
    type Way<'a> = (&'a str, &'a str, &'a str, &'a str, &'a [&'a str], &'a str);
    let ways: [Way<'_>; 4] = [
        ("chattr", "+i", "-i", "rm/s", &[], "not permitted"),
        (
            "chattr",
            "+i",
            "-i",
            "rm/s/in",
            &["--on-conflict", "overwrite"],
            "not permitted",
        ),
        (
            "chattr",
            "+a",
            "-a",
            "rm/s",
            &["--on-conflict", "overwrite"],
            "not permitted",
        ),
        ("chown", "1234", "0", "rm/s", &[], "owner or mode"),
    ];
    for (program, give, take, name, options, words) in ways {
        let script = "rm -r rm; echo n > other; : > \"$OUT/made\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
        let options = [&["--no-keep"], options].concat();
        let job = test_dir.start_job(&options, script);
        wait_for("the removal", || test_dir.outside("made").exists());
        own(program, give, name);
        test_dir.touch_outside("go");
        let run = job.finish();
        own(program, take, name);
        run.assert_code(125);
        let is_told = run.err.contains(words) && run.err.contains("rm/s") && !run.err.contains("is committed");
        assert!(is_told, "{give} {name}: {}", run.err);
        test_dir.assert_equals(&before);
        test_dir.assert_no_staging();
        for name in ["made", "go"] {
            std::fs::remove_file(test_dir.outside(name)).expect("a file");
        }
    }
}

/// The kernel opens a file that it swaps to, and refuses what is written. The job was committed but for that, and could not be taken back.
#[test]
fn an_active_swap_file_is_refused_before_the_commit() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), "mkdir gone; printf x > gone/x; printf old > old");
    let swap = test_dir.work("swap");
    std::fs::write(&swap, vec![0; 2 << 20]).expect("a file");
    let call = |program: &str| {
        let called = Command::new(program).arg(&swap).output().expect(program);
        called.status.success()
    };
    let opened = std::fs::File::open(&swap).and_then(|file| file.sync_all());
    opened.expect("it has its blocks");
    if !call("mkswap") || !call("swapon") {
        return unavailable("swap files");
    }
    let before = test_dir.snapshot();
    let script = "printf z | dd of=swap conv=notrunc status=none; rm -r gone; echo n > old; echo n > new";
    let run = test_dir.job(&["--no-keep"], script);
    let now = test_dir.snapshot();
    assert!(call("swapoff"));
    run.assert_code(125);
    assert!(
        run.err.contains("Text file busy") && !run.err.contains("is committed"),
        "{}",
        run.err
    );
    now.assert_equals(&before);
    test_dir.assert_no_staging();
    test_dir.job(&[], script).assert_code(0);
    assert_eq!(std::fs::read(&swap).expect("a file")[0], b'z');
}

/// A container's overlayfs does not rename a directory of its lower layer: it is removed where it is.
#[test]
fn directories_of_a_lower_layer_are_removed() {
    let place = tempfile::tempdir().expect("temporary directory");
    let Some(overlay) = Overlay::over(
        place.path(),
        "mkdir -p old/sub empty; printf x > old/f; printf y > old/sub/g; printf z > file",
    ) else {
        return;
    };
    let run = |script: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_elbow"))
            .args(["run", "--on"])
            .arg(overlay.work())
            .args(["--", "sh", "-ec", script])
            .current_dir(overlay.work())
            .output()
            .expect("elbow run");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, err) = run("printf n > new; rm -rf old; printf longer > file");
    assert_eq!(code, Some(0), "{err}");
    assert!(!overlay.work().join("old").exists());
    let (code, err) = run("rmdir empty; mv file moved");
    assert_eq!(code, Some(0), "{err}");
    let names = std::fs::read_dir(overlay.work()).expect("the directory");
    let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["moved", "new"]);
}

/// Each is looked at before any is committed, and to look copied what is written from the lower layer: so the second look took it for changed.
#[test]
fn files_of_a_lower_layer_are_written_in_two_directories_at_once() {
    let place = tempfile::tempdir().expect("temporary directory");
    let Some(overlay) = Overlay::over(place.path(), "mkdir a b; for d in a b; do printf old > $d/f; done") else {
        return;
    };
    let run = Command::new(env!("CARGO_BIN_EXE_elbow"))
        .args(["run", "--on", "a", "--on", "b", "--", "sh", "-ec"])
        .arg("for d in a b; do printf new >> $d/f; chmod 640 $d/f; done")
        .current_dir(overlay.work())
        .output()
        .expect("elbow run");
    let err = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{err}");
    for name in ["a/f", "b/f"] {
        assert_eq!(
            std::fs::read(overlay.work().join(name)).expect("a file"),
            b"oldnew",
            "{err}"
        );
    }
}

/// Of a lower layer, natively a change by one name leaves the other names as they are, but where the overlay has an index; links of the upper layer are links. What the
/// job wrote by one name was stored under another.
#[test]
fn links_of_a_lower_layer_are_what_they_are_without_a_job() {
    const SEED: &str = "mkdir d; echo 1 > d/f; ln d/f hl; ln d/f d/other; echo 2 > a; ln a z";
    const SEEN: &str = "for f in d/f hl d/other a z up up2 moved c/f said; do [ -e $f ] && echo $f $(cat $f) $(stat -c '%a %u' $f); done
        one() { ! [ $1 -ef $2 ] || echo $1 is $2; }; one d/f hl; one hl d/other; one d/f d/other; one a z; one up up2; one c/f c/other; true";
    for index in ["off", "on"] {
        for change in [
            "echo x >> d/f",
            "echo x >> hl",
            "echo x >> d/f; echo y >> hl",
            "chmod 600 d/f; chown 5 d/other",
            "truncate -s 0 a",
            ": > z; touch -d @1 a",
            "mv d/f moved; echo x >> hl; echo y >> moved",
            "rm hl; echo x >> d/other",
            "ln d/f d/new; echo x >> d/new",
            "echo x >> up; chmod 600 up2",
            "for f in d/f hl d/other a z up; do echo x >> $f; done",
            "cp -a d c",
            "echo x >> d/f; cp -a d c; tar c d hl | tar tv | grep -c ' link to ' > said || true",
        ] {
            let ended = [false, true].map(|in_job| {
                let place = tempfile::tempdir().expect("temporary directory");
                let overlay = Overlay::with(place.path(), SEED, &format!(",index={index}"))?;
                let shell = |words: &[&str], script: &str| {
                    let run = Command::new(words[0])
                        .args(&words[1..])
                        .arg(script)
                        .current_dir(overlay.work())
                        .output();
                    let run = run.expect("a command");
                    let said = String::from_utf8_lossy(&run.stderr).into_owned();
                    assert!(run.status.success(), "index={index}, {change}: {said}");
                    String::from_utf8_lossy(&run.stdout).into_owned()
                };
                shell(&["sh", "-ec"], "echo 3 > up; ln up up2");
                let job = [env!("CARGO_BIN_EXE_elbow"), "run", "-q", "--", "sh", "-ec"];
                let words = if in_job { &job[..] } else { &["sh", "-ec"] };
                // Some look at all of it first.
                let inside = shell(words, &format!("{SEEN} > /dev/null; {change}; {SEEN}"));
                Some((inside, shell(&["sh", "-ec"], SEEN)))
            });
            let [Some(native), Some(job)] = ended else { return };
            assert_eq!(job, native, "index={index}, {change}");
        }
    }
}

/// A file that was copied up and got another name then is taken for two, and both were written at the same time, each as if the other was not: one of the
/// lines was lost, with exit 0.
#[test]
fn no_file_is_written_by_two_names_that_are_taken_for_two_files() {
    let place = tempfile::tempdir().expect("temporary directory");
    let Some(overlay) = Overlay::over(place.path(), "for f in low 1 2 3 4 5 6; do echo old > $f; done") else {
        return;
    };
    let work = overlay.work();
    let shell = |words: &[&str]| {
        let run = Command::new(words[0]).args(&words[1..]).current_dir(&work).output();
        run.expect("a command")
    };
    let linked = shell(&["sh", "-ec", "echo new >> low; ln low low2"]);
    assert!(linked.status.success());
    let job = [
        env!("CARGO_BIN_EXE_elbow"),
        "run",
        "--no-keep",
        "--",
        "sh",
        "-ec",
        "for f in low low2 1 2 3 4 5 6; do echo x >> $f; done",
    ];
    for _ in 0..10 {
        let run = shell(&job);
        assert_eq!(run.status.code(), Some(125), "{}", String::from_utf8_lossy(&run.stderr));
        for name in ["low", "low2"] {
            assert_eq!(std::fs::read(work.join(name)).expect("a file"), b"old\nnew\n");
        }
    }
}

/// Its inode number is that of the name, whoever has written to it: a snapshot by `ln` of a log that others write was refused in a container.
#[test]
fn what_others_write_to_a_file_of_a_lower_layer_keeps_nobody_from_linking_it() {
    let place = tempfile::tempdir().expect("temporary directory");
    let Some(overlay) = Overlay::over(place.path(), "echo 1 > log; echo 1 > old") else {
        return;
    };
    let script = format!(
        "echo 2 >> log
         {} run -- sh -ec 'ln log snap; ln old other; : > ../at; until [ -e ../go ]; do sleep 0.02; done' &
         until [ -e ../at ]; do sleep 0.02; done; echo 3 >> log; : > ../go; wait $!; cat log snap other",
        env!("CARGO_BIN_EXE_elbow")
    );
    let run = Command::new("sh")
        .args(["-ec", &script])
        .current_dir(overlay.work())
        .output();
    let run = run.expect("a shell");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "1\n2\n3\n1\n2\n3\n1\n", "{said}");
}

/// An overlayfs whose lower layer is an old tree.
struct Overlay {
    place: std::path::PathBuf,
}

impl Overlay {
    fn over(place: &std::path::Path, seed: &str) -> Option<Self> {
        Self::with(place, seed, "")
    }

    fn with(place: &std::path::Path, seed: &str, options: &str) -> Option<Self> {
        let script = format!(
            "mount -t tmpfs none '{0}'; cd '{0}'; mkdir lower upper inner merged; cd lower; {seed}; cd ..
             mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=inner{options} merged",
            place.display()
        );
        let overlay = Self {
            place: place.to_owned(),
        };
        let made = Command::new("sh").args(["-ec", &script]).output().expect("a shell");
        if !made.status.success() {
            unavailable(&format!("overlayfs ({})", String::from_utf8_lossy(&made.stderr)));
            return None;
        }
        Some(overlay)
    }

    fn work(&self) -> std::path::PathBuf {
        self.place.join("merged")
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        for path in [self.work(), self.place.clone()] {
            let _ = Command::new("umount").arg(path).output();
        }
    }
}
