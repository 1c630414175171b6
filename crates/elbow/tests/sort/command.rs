//! `elbow sort` as a command: files, messages, exit codes, temporary files, memory and disk space.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::stage::{ELBOW, Stage, lines, message, sorted, text};

#[test]
fn files_and_standard_input_are_sorted_together() {
    let stage = Stage::with(&[("one", b"pear\nfig"), ("two", b"apple\n\nzoo\n")]);
    assert_eq!(text(&stage.sort(&[], b"b\na\n\0c")), b"\0c\na\nb\n");
    assert_eq!(
        text(&stage.sort(&["one", "-", "two"], b"kiwi")),
        b"\napple\nfig\nkiwi\npear\nzoo\n"
    );
    assert_eq!(text(&stage.sort(&["-", "-"], b"b\na\n")), b"a\nb\n");
    assert_eq!(
        text(&stage.sort(&["one", "-r", "two", "-k1,1"], b"")),
        b"zoo\npear\nfig\napple\n\n"
    );
    assert_eq!(text(&stage.sort(&["-z"], b"b\na\0a\n")), b"a\n\0b\na\0");
    assert_eq!(text(&stage.sort(&["--", "one"], b"")), b"fig\npear\n");
    assert_eq!(text(&stage.sort(&[], b"")), b"");
}

#[test]
fn long_names_and_their_beginnings_are_understood() {
    let stage = Stage::new();
    let input = b"b 10\nA 9\na 9\n";
    for words in [
        &["--numeric-sort", "--key=2"][..],
        &["--numeric", "--key", "2"],
        &["--sort=numeric", "-k2"],
        &[
            "-n",
            "-n",
            "-k2",
            "--stable",
            "--stable",
            "--parallel=3",
            "--batch-size=2",
            "--buffer-size=10%",
        ],
    ] {
        assert_eq!(text(&stage.sort(words, input)), b"A 9\na 9\nb 10\n", "{words:?}");
    }
    assert_eq!(
        text(&stage.sort(
            &["--ignore-case", "--unique", "--key=1,1", "--field-separator= "],
            input
        )),
        b"A 9\nb 10\n"
    );
}

#[test]
fn the_output_may_be_an_input() {
    let stage = Stage::with(&[("file", b"c\nb\na\n"), ("low", b"a\nc\n"), ("high", b"b\nd\n")]);
    assert_eq!(text(&stage.sort(&["file", "-o", "file"], b"")), b"");
    assert_eq!(stage.read("file"), b"a\nb\nc\n");
    let large = lines(3000);
    std::fs::write(stage.path("large"), &large).expect("room");
    text(&stage.sort(&["-qS", "64K", "-o", "large", "large"], b""));
    assert_eq!(stage.read("large"), sorted(&large));
    // A merge writes while it reads: it keeps a copy.
    text(&stage.sort(&["-m", "-o", "low", "high", "low"], b""));
    assert_eq!(stage.read("low"), b"a\nb\nc\nd\n");
}

/// A file behind standard output is written at several places at once; what comes after the sort is not to be written over it.
#[test]
fn a_file_behind_standard_output_is_written_from_where_it_is_and_left_at_its_end() {
    let input = lines(10_000);
    let stage = Stage::with(&[("in", &input)]);
    for (script, expected) in [
        ("sort -S1M in; echo end", [&sorted(&input)[..], b"end\n"].concat()),
        ("sort -S64K in; echo end", [&sorted(&input)[..], b"end\n"].concat()),
        ("sort in; echo end", [&sorted(&input)[..], b"end\n"].concat()),
        (
            "man >/dev/null; echo begin; \"$ELBOW\" sort -S1M in",
            [b"begin\n", &sorted(&input)[..]].concat(),
        ),
    ] {
        for redirect in [">", ">>"] {
            let script = format!("rm -f out; {{ \"$ELBOW\" {script}; }} {redirect} out").replace("$ELBOW", ELBOW);
            let said = stage.run("sh", &["-c", &script], b"");
            assert!(said.status.success() && said.stderr.is_empty(), "{script}: {said:?}");
            assert!(stage.read("out") == expected, "{script}");
        }
    }
}

#[test]
fn a_longer_output_is_emptied_and_a_failing_sort_leaves_it_alone() {
    let stage = Stage::with(&[("out", b"what was there before\n"), ("in", b"b\na\n")]);
    text(&stage.sort(&["in", "-o", "out"], b""));
    assert_eq!(stage.read("out"), b"a\nb\n");
    assert_eq!(stage.sort(&["in", "missing", "-o", "out"], b"").status.code(), Some(2));
    assert_eq!(stage.sort(&["in", ".", "-o", "out"], b"").status.code(), Some(2));
    assert_eq!(stage.read("out"), b"a\nb\n");
}

#[test]
fn a_disorder_is_described_and_exits_with_1() {
    let stage = Stage::with(&[("file", b"a\nc\nb \xff\nd\n"), ("twice", b"a\na\n")]);
    let loud = stage.sort(&["-c", "file"], b"");
    assert_eq!(
        (loud.status.code(), &loud.stderr[..]),
        (Some(1), &b"elbow: file:3: disorder: b \xff\n"[..])
    );
    for words in [
        &["-C", "file"][..],
        &["--check=quiet", "file"],
        &["--check=silent", "file"],
    ] {
        let quiet = stage.sort(words, b"");
        assert_eq!((quiet.status.code(), quiet.stderr.len()), (Some(1), 0), "{words:?}");
    }
    assert_eq!(message(&stage.sort(&["--check"], b"2\n1")), "elbow: -:2: disorder: 1\n");
    assert_eq!(stage.sort(&["-c", "twice"], b"").status.code(), Some(0));
    assert_eq!(
        message(&stage.sort(&["-cu", "twice"], b"")),
        "elbow: twice:2: disorder: a\n"
    );
    assert_eq!(stage.sort(&["-crn", "-"], b"10\n9\n9\n").status.code(), Some(0));
}

#[test]
fn mistakes_are_named_and_exit_with_2() {
    let stage = Stage::with(&[("list", b"a\0\0"), ("empty", b""), ("dash", b"-\0")]);
    let missing = stage.path("missing/x");
    let missing = missing.to_str().expect("a plain name");
    for (words, expected) in [
        (
            &["-k", "0"][..],
            "elbow: field number is zero: invalid field specification '0'",
        ),
        (
            &["-k", "1,1x"],
            "elbow: stray character in field spec: invalid field specification '1,1x'",
        ),
        (&["-dn"], "elbow: options '-dn' are incompatible"),
        (&["-k1,1gM"], "elbow: options '-gM' are incompatible"),
        (&["-t", "ab"], "elbow: multi-character tab 'ab'"),
        (&["-t", ""], "elbow: empty tab"),
        (&["-t", "a", "-t", "b"], "elbow: incompatible tabs"),
        (&["-S", "x"], "elbow: invalid -S argument 'x'"),
        (&["--parallel=0"], "elbow: number in parallel must be nonzero"),
        (
            &["--batch-size=1"],
            "elbow: invalid --batch-size argument '1': minimum --batch-size argument is '2'",
        ),
        (&["-c", "a", "b"], "elbow: extra operand 'b' not allowed with -c"),
        (&["-C", "-o", "x"], "elbow: options '-Co' are incompatible"),
        (&["-cC"], "elbow: options '-cC' are incompatible"),
        (&["-o", "a", "-o", "b"], "elbow: multiple output files specified"),
        (&["-o", missing, "empty"], "elbow: open failed: "),
        (&["nosuch"], "elbow: cannot read: nosuch: No such file or directory"),
        (
            &["-c", "nosuch"],
            "elbow: open failed: nosuch: No such file or directory",
        ),
        (
            &["+1"],
            "elbow: cannot read: +1: No such file or directory; a key is written as -k FIELD",
        ),
        (&["."], "elbow: read failed: .: Is a directory"),
        (&["-R"], "elbow: a random order (-R) is not available"),
        (&["-k1R"], "elbow: a random order (-R) is not available"),
        (&["--sort=random"], "elbow: a random order (-R) is not available"),
        (&["--sort=size"], "elbow: invalid argument 'size' for '--sort'"),
        (&["--check=often"], "elbow: invalid argument 'often' for '--check'"),
        (&["--files0-from=list"], "elbow: list:2: invalid zero-length file name"),
        (&["--files0-from=empty"], "elbow: no input from 'empty'"),
        (
            &["--files0-from=list", "b"],
            "elbow: extra operand 'b': file operands cannot be combined with --files0-from",
        ),
        (&["--frobnicate"], "error: unexpected argument '--frobnicate'"),
    ] {
        let output = stage.sort(words, b"");
        // That of sort(1) for a word that it does not know.
        let code = if expected.contains("invalid argument '") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{words:?} {output:?}");
        assert!(
            message(&output).starts_with(expected),
            "{words:?}: {}",
            message(&output)
        );
        assert!(
            !message(&output).contains("os error"),
            "{words:?}: {}",
            message(&output)
        );
    }
    let output = stage.sort(&["--files0-from=-"], b"-\0");
    assert!(message(&output).contains("no file name of '-' allowed"), "{output:?}");
    assert!(!stage.path("x").exists(), "an output of a check is not made");
}

#[test]
fn names_come_from_a_list() {
    let stage = Stage::with(&[
        ("one", b"b\n"),
        ("t w\no", b"a\n"),
        ("list", b"one\0t w\no\0"),
        ("open", b"one\0t w\no"),
    ]);
    for list in ["--files0-from=list", "--files0-from=open"] {
        assert_eq!(text(&stage.sort(&[list], b"")), b"a\nb\n", "{list}");
    }
    assert_eq!(text(&stage.sort(&["--files0-from=-"], b"one\0")), b"b\n");
}

#[test]
fn an_output_that_nobody_reads_and_one_that_is_full() {
    let stage = Stage::with(&[("large", &lines(5000))]);
    let said = stage.run(
        "sh",
        &["-c", &format!("{{ {ELBOW} sort large; echo $? >&2; }} | head -n 1")],
        b"",
    );
    assert_eq!(message(&said), "141\n");
    let said = stage.run("sh", &["-c", &format!("{ELBOW} sort large > /dev/full")], b"");
    assert_eq!(
        (said.status.code(), &*message(&said)),
        (
            Some(2),
            "elbow: write failed: standard output: No space left on device\n"
        )
    );
}

#[test]
fn temporary_files_are_packed_if_asked_for() {
    let stage = Stage::new();
    let input = lines(5000);
    for words in [
        &["-S64K", "--compress-program=gzip"][..],
        &["-S64K", "--compress-program=gzip", "--batch-size=3"],
    ] {
        assert!(text(&stage.sort(words, &input)) == sorted(&input), "{words:?}");
    }
    let failed = stage.sort(&["-S64K", "--compress-program=false"], &input);
    assert_eq!(failed.status.code(), Some(2));
    assert!(
        message(&failed).contains("'false' terminated abnormally: exit status: 1"),
        "{}",
        message(&failed)
    );
    // It packs well, and unpacks badly.
    std::fs::write(
        stage.path("bad"),
        "#!/bin/sh\n[ \"$1\" = -d ] || exec cat\nhead -c 100\nexit 3\n",
    )
    .expect("room");
    text(&stage.run("chmod", &["+x", "bad"], b""));
    let failed = stage.sort(&["-S64K", "--compress-program=./bad"], &input);
    assert_eq!(failed.status.code(), Some(2), "{failed:?}");
    assert!(
        message(&failed).contains("'./bad -d' terminated abnormally: exit status: 3"),
        "{}",
        message(&failed)
    );
    let missing = stage.sort(&["-S64K", "--compress-program=./nosuch"], &input);
    assert_eq!(
        message(&missing),
        "elbow: couldn't execute compress program './nosuch': No such file or directory\n"
    );
}

#[test]
fn a_directory_for_temporary_files_is_needed_only_when_there_are_any() {
    let stage = Stage::new();
    text(&stage.sort(&["-T", "nosuch"], b"b\na\n"));
    let failed = stage.sort(&["-S64K", "-T", "nosuch"], &lines(5000));
    assert_eq!(failed.status.code(), Some(2));
    assert_eq!(
        message(&failed),
        "elbow: cannot create temporary file in 'nosuch': No such file or directory\n"
    );
}

#[test]
fn a_killed_sort_leaves_nothing() {
    let stage = Stage::new();
    for name in ["first", "second"] {
        std::fs::create_dir(stage.path(name)).expect("a directory");
    }
    let mut child = stage.start(ELBOW, &["sort", "-S64K", "-T", "first", "-T", "second"]);
    child
        .stdin
        .as_mut()
        .expect("a pipe")
        .write_all(&lines(20_000))
        .expect("a reader");
    let open_in = |name: &str| {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("a process");
        let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(stage.path(name))).count()
    };
    assert!(
        open_in("first") > 0 && open_in("second") > 0,
        "both directories are used in turn"
    );
    let is_empty = |name: &str| std::fs::read_dir(stage.path(name)).expect("it").next().is_none();
    assert!(is_empty("first") && is_empty("second"), "temporary files have no names");
    child.kill().expect("a process");
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
    assert!(is_empty("first") && is_empty("second"));
}

#[test]
fn memory_stays_within_what_was_given() {
    const MIB: u64 = 1 << 20;
    let stage = Stage::new();
    let input = lines(400_000); // 42 MB
    std::fs::write(stage.path("in"), &input).expect("room");
    let mut child = stage.start(ELBOW, &["sort", "-qS16M", "-o", "out", "in"]);
    let mut peak = 0;
    while child.try_wait().expect("a process").is_none() {
        peak = peak.max(memory_bytes(child.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().expect("an end").success());
    assert!(stage.read("out") == sorted(&input));
    assert!(peak > 8 * MIB && peak < 16 * MIB * 105 / 100, "{peak}");
}

/// The memory that a process has, in bytes, without what is mapped from files: code that was not optimized is large, and so is what the linker
/// writes into it (pages of the program that count as anonymous).
fn memory_bytes(pid: u32) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let (mut kibibytes, mut is_file) = (0, false);
    for line in maps.lines() {
        match line.strip_prefix("Anonymous:") {
            Some(_) if is_file => {}
            Some(size) => kibibytes += size.trim().strip_suffix(" kB")?.parse::<u64>().ok()?,
            // "address-address rights offset device inode path"; other lines begin with a capital.
            None if line.starts_with(|first: char| first.is_ascii_hexdigit() && !first.is_uppercase()) => {
                is_file = line.contains('/');
            }
            None => {}
        }
    }
    Some(kibibytes << 10)
}

/// Runs and result share a file system that has little more room than the input has bytes; GNU sort needs twice that.
#[test]
fn runs_and_result_together_take_the_space_of_the_input_once() {
    let stage = Stage::new();
    let input = lines(200_000);
    let room = input.len() * 125 / 100;
    std::fs::write(stage.path("in"), &input).expect("room");
    std::fs::create_dir(stage.path("small")).expect("a directory");
    let script = format!(
        "mount -t tmpfs -o size={room} none small || exit 77
        {ELBOW} sort -S2M -T small -o small/out in && sort -c small/out && wc -c < small/out"
    );
    let said = run_with_own_mounts(&stage, &script);
    if !is_ground_prepared(&said) {
        return;
    }
    assert!(said.status.success(), "{said:?}");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), input.len().to_string());
}

#[test]
fn a_full_disk_is_named_with_a_way_out() {
    let stage = Stage::with(&[("in", &lines(50_000))]);
    std::fs::create_dir(stage.path("small")).expect("a directory");
    let script = format!("mount -t tmpfs -o size=1M none small || exit 77; {ELBOW} sort -S1M -T small -o out in");
    let said = run_with_own_mounts(&stage, &script);
    if !is_ground_prepared(&said) {
        return;
    }
    assert_eq!(said.status.code(), Some(2));
    assert_eq!(
        message(&said),
        "elbow: cannot write to temporary file in 'small': No space left on device; another directory (-T) or \
         --compress-program may help\n"
    );
}

/// Runs a script that may mount: an ordinary user is root for it, in a user namespace.
fn run_with_own_mounts(stage: &Stage, script: &str) -> Output {
    let root = rustix::process::geteuid().is_root();
    let how = if root { "--mount" } else { "--map-root-user" };
    stage.run("unshare", &[how, "--mount", "sh", "-c", script], b"")
}

/// Whether a file system could be mounted; where it has to be possible, it is an error if not.
fn is_ground_prepared(said: &Output) -> bool {
    let may_mount = said.status.code() != Some(77) && !message(said).starts_with("unshare:");
    if !may_mount {
        assert!(
            std::env::var_os("CI").is_none(),
            "root is needed to mount a file system: {said:?}"
        );
        // Not println: the test runner would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no right to mount a file system");
    }
    may_mount
}

#[test]
fn help_teaches() {
    let stage = Stage::new();
    let help = stage.sort(&["--help"], b"");
    let help: Vec<String> = String::from_utf8_lossy(text(&help))
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let help = help.join(" ");
    for word in [
        "Examples:",
        "-k 2,2nr",
        "Exit code:",
        "LC_ALL=C",
        "--files0-from",
        "Keys:",
        "Lines:",
        "Order of lines:",
        "Records:",
        "What is said:",
        "A key of lines is",
        "A key of records is",
        "records: it is replaced when the result is complete",
        "elbow sort --record 24",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn names_of_files_are_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = Stage::new();
    let name = std::ffi::OsStr::from_bytes(b"na\xffme");
    std::fs::write(stage.0.path().join(Path::new(name)), "b\na\n").expect("room");
    let output = Command::new(ELBOW)
        .arg("sort")
        .arg(name)
        .current_dir(stage.0.path())
        .output()
        .expect("an end");
    assert_eq!(text(&output), b"a\nb\n");
}

#[test]
fn a_log_tells_the_runs_and_the_merges() {
    let stage = Stage::with(&[("lines", &lines(200_000))]);
    let words = ["ELBOW_LOG=debug", ELBOW, "sort", "-S1M", "lines", "-o", "out"];
    let output = stage.run("env", &words, b"");
    assert!(output.status.success());
    let log = String::from_utf8(output.stderr).expect("text");
    for told in [
        "begins step=Forming",
        "a run is formed",
        "begins step=Merging",
        "merges into the output",
    ] {
        assert!(log.contains(told), "not {told:?}: {log}");
    }
    let refused = stage.run("env", &["ELBOW_LOG=loud", ELBOW, "sort", "lines"], b"");
    assert_eq!(refused.status.code(), Some(2), "as for any wrong use of sort");
}

/// It was short for --version-sort, and waited for lines.
#[test]
fn the_version_is_told() {
    let stage = Stage::new();
    let said = stage.sort(&["--version"], b"b\na\n");
    assert_eq!(
        text(&said),
        concat!("elbow ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()
    );
    assert_eq!(text(&stage.sort(&["--version-sort"], b"f10\nf9\n")), b"f9\nf10\n");
}

/// The runtime opens /dev/null in their places, into which everything was written with exit code 0.
#[test]
fn closed_streams_are_no_output_and_no_input() {
    let stage = Stage::with(&[("in", b"b\na\n"), ("records", b"baba")]);
    for (script, code) in [
        ("sort in >&-", 2),
        ("sort <&-", 2),
        ("sort --record 2 records >&-", 2),
        ("sort --record 2 - <&- > out", 2),
        ("sort -o out in >&- <&-", 0),
        ("sort in > /dev/null", 0),
        ("sort < /dev/null > out", 0),
    ] {
        let words = script.replace("sort", &format!("{ELBOW} sort"));
        let said = stage.run("sh", &["-c", &words], b"");
        assert_eq!(said.status.code(), Some(code), "{script}: {said:?}");
        let is_told = String::from_utf8_lossy(&said.stderr).contains("Bad file descriptor");
        assert_eq!(is_told, code == 2, "{script}: {said:?}");
    }
}

/// A limit of a batch system or a shell is met by taking less, as sort(1) does.
#[test]
fn little_memory_and_few_descriptors_are_enough() {
    let input = lines(20_000);
    let stage = Stage::with(&[("in", &input)]);
    let shell = |script: &str| {
        let script = script.replace("sort", &format!("{ELBOW} sort"));
        stage.run("sh", &["-c", &script], b"")
    };
    for script in [
        "ulimit -v 1000000; sort in",
        "ulimit -v 1000000; sort -S 64G in",
        "ulimit -d 400000; sort -S 64G --parallel 1 in",
        "ulimit -d 30000; sort in",
        "ulimit -d 65536; sort --parallel 12 -S 1G in",
        "ulimit -d 40000; sort --parallel 12 in",
        "ulimit -n 32; sort -S 64K in",
        "ulimit -n 32; split -l 400 in part.; for part in part.*; do sort -o $part $part; done; sort -m part.*",
    ] {
        assert!(text(&shell(script)) == sorted(&input), "{script}");
    }
    assert!(std::fs::read_dir(stage.path("")).expect("the directory").count() > 32);
    // It hung, without a thread that was to read.
    for most in ["5000", "8000", "12000"] {
        let said = shell(&format!("ulimit -d {most}; sort in"));
        let told = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(
            said.status.code() == Some(2) && told.contains("ulimit -d"),
            "{most}: {told}"
        );
    }
}

/// What others wrote to the file that standard output is while the inputs were read was overwritten: it was looked at once, before that.
#[test]
fn what_others_write_to_standard_output_before_the_result_stays() {
    let stage = Stage::new();
    let script = "{ mkfifo in; elbow sort in & exec 3> in; echo early; echo b >&3; exec 3>&-; wait; } > out
        { mkfifo one; elbow sort one & exec 3> one; echo a | elbow sort; echo b >&3; exec 3>&-; wait; } > two";
    let script = script.replace("elbow sort", &format!("{ELBOW} sort"));
    let run = stage.run("sh", &["-ec", &script], b"");
    assert!(run.status.success(), "{}", message(&run));
    assert_eq!(stage.read("out"), b"early\nb\n");
    assert_eq!(stage.read("two"), b"a\nb\n");
}
