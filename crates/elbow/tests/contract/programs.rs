//! What programs are told: `--report`, and the objects of `--json`, with the fields that `docs/src/reference/json.md` has.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::stage::{ELBOW, Said, Stage, wait_for};

/// The one object in a text.
#[track_caller]
fn object(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.ends_with('\n'), "{text}");
    let object: Value = serde_json::from_str(text).expect(text);
    assert_eq!(object["schema"], 1, "{text}");
    object
}

#[track_caller]
fn report(stage: &Stage, name: &str) -> Value {
    object(&fs::read_to_string(stage.path(name)).expect(name))
}

const NOISE: &str = "echo '{}'; echo '{}' >&2; printf 'no newline' >&2";

#[test]
fn a_report_is_one_object_whatever_the_command_prints() {
    let stage = Stage::new();
    let script = format!("printf 12345 > new; {NOISE}");
    let said = stage.elbow(&["run", "--report", "../r.json", "--", "sh", "-c", &script]);
    said.assert_code(0).assert_says(&["{}", "elbow: committed"]);
    assert_eq!(said.out, "{}\n");
    let told = report(&stage, "r.json");
    assert_eq!((&told["outcome"], &told["attempts"]), (&"committed".into(), &1.into()));
    assert_eq!(told["command"][2], script.as_str());
    assert_eq!(
        told["directories"][0]["directory"],
        stage.work().to_str().expect("plain names")
    );
    assert!(
        told["directories"][0]["job"]
            .as_str()
            .is_some_and(|job| job.starts_with(".elbow-")),
        "{told}"
    );
    assert_eq!(stage.names(), ["new"]);
}

/// A descriptor is the caller's: the command cannot write to it, whether it was given as a number or as a path.
#[test]
fn a_report_goes_to_a_descriptor_that_the_command_does_not_get() {
    let stage = Stage::new();
    let look = format!("{NOISE}; ls /proc/self/fd; (echo x >&7) 2> /dev/null || exit 3");
    fs::write(stage.path("look"), look).expect("a script");
    for name in ["7", "/dev/fd/7"] {
        let said = stage.apart(&format!("exec 7> ../r.json; $ELBOW run --report {name} -- sh ../look"));
        said.assert_code(3);
        assert!(!said.out.lines().any(|fd| fd == "7"), "{said:#?}");
        assert_eq!(report(&stage, "r.json")["exit_code"], 3);
    }
    let said = stage.apart("$ELBOW run --quiet --report /dev/stdout -- true | cat");
    assert_eq!(object(&said.assert_code(0).out)["outcome"], "committed");
    let said = stage.apart("mkfifo ../p; cat ../p > ../r.json & $ELBOW run --quiet --report ../p -- false || wait");
    said.assert_code(0);
    assert_eq!(report(&stage, "r.json")["exit_code"], 1);
}

/// A file below an `--on` directory belongs to the world outside: a job neither sees it being written nor takes it back.
#[test]
fn a_report_may_lie_in_the_directory_of_the_job() {
    let stage = Stage::new();
    fs::write(stage.path("work/old"), "old").expect("a file");
    for (script, code, outcome) in [
        ("ls -A > ../seen; echo more >> old; exit 4", 4, "rolled_back"),
        ("ls -A > ../seen; echo more >> old; echo mine > r.json", 0, "committed"),
        ("ls -A > ../seen; rm -rf * ; echo new > old", 0, "committed"),
    ] {
        let said = stage.elbow(&["run", "--retry", "1", "--report", "r.json", "--", "sh", "-c", script]);
        said.assert_code(code);
        let told = report(&stage, "work/r.json");
        assert_eq!(told["outcome"], outcome, "{said:#?}");
        assert_eq!(told["conflicts"], Value::Array(Vec::new()));
        assert_eq!(stage.names(), ["old", "r.json"]);
        let seen = fs::read_to_string(stage.path("seen")).expect("what the job saw");
        assert!(["old\n", "old\nr.json\n"].contains(&seen.as_str()), "{seen}");
    }
    assert_eq!(fs::read(stage.path("work/old")).expect("the file"), b"new\n");
}

/// It was run again as long as nothing was stored, and what it does outside of the directory was done as often.
#[test]
fn a_command_that_has_nothing_to_store_is_not_run_again() {
    let stage = Stage::new();
    fs::create_dir(stage.path("other")).expect("a directory");
    for on in [&[][..], &["--on", ".", "--on", "../other"]] {
        let words = [
            &["run"],
            on,
            &["--retry", "3", "--", "sh", "-c", "echo run >> ../count"],
        ]
        .concat();
        stage.elbow(&words).assert_code(0);
        let count = fs::read_to_string(stage.path("count")).expect("a count");
        assert_eq!(count, "run\n", "{on:?}");
        fs::remove_file(stage.path("count")).expect("a count");
    }
}

#[test]
fn a_report_is_written_however_the_run_ends() {
    let stage = Stage::new();
    let run = |words: &[&str]| stage.elbow(&[&["run", "--report", "../r.json"], words].concat());
    for (words, code, attempts) in [
        (&["--retry", "2", "--", "false"][..], 1, 3),
        (&["--", "no-such-command"], 127, 1),
        (&["--on", "nowhere", "--", "true"], 125, 0),
        (&["--json", "--scratch", "nowhere", "--", "true"], 125, 0),
    ] {
        run(words).assert_code(code);
        let told = report(&stage, "r.json");
        assert_eq!(
            (&told["exit_code"], &told["attempts"]),
            (&code.into(), &attempts.into()),
            "{told}"
        );
        assert_eq!(told["error"].is_null(), code != 125, "{told}");
    }
    assert_eq!(run(&["--on", "nowhere", "--", "true"]).code, 125);
    assert_eq!(report(&stage, "r.json")["error"]["errno_name"], "ENOENT");

    fs::remove_file(stage.path("r.json")).expect("the report");
    let mut command = Command::new(ELBOW);
    command.args([
        "run",
        "--report",
        "../r.json",
        "--",
        "sh",
        "-c",
        "touch ../begun; exec sleep 60",
    ]);
    let child = stage.start(&mut command);
    wait_for("the command", || stage.path("begun").exists());
    assert!(!stage.path("r.json").exists(), "nothing is written before the end");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    child.finish().assert_code(143);
    assert_eq!(report(&stage, "r.json")["outcome"], "rolled_back");
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_starts() {
    let stage = Stage::new();
    for (name, words) in [
        ("nowhere/r.json", "nowhere: No such file"),
        ("../work", "is a directory"),
        ("77", "no such descriptor"),
        ("0", "for reading only"),
        ("", "--report"),
        ("-", "./-"),
    ] {
        let said = stage.elbow(&["run", "--report", name, "--", "touch", "../begun"]);
        said.assert_code(125).assert_says(&[words]);
        assert!(!stage.path("begun").exists(), "{name}");
    }
    let said = stage.elbow(&["run", "--json", "--report", "2", "--", "touch", "../begun"]);
    said.assert_code(125);
    assert!(
        object(&said.err)["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("--json writes"))
    );
    assert!(!stage.path("begun").exists() && stage.names().is_empty());
}

/// A full disk at the end changes nothing about what has happened.
#[test]
fn a_report_that_cannot_be_written_at_the_end_is_said_and_changes_no_exit_code() {
    let stage = Stage::new();
    let said = stage.elbow(&["run", "--quiet", "--report", "/dev/full", "--", "touch", "new"]);
    said.assert_code(0)
        .assert_says(&["the report cannot be written", "No space left"]);
    assert_eq!(stage.names(), ["new"]);
}

#[test]
fn a_report_replaces_a_file_with_its_mode_and_a_new_one_has_that_of_the_umask() {
    let stage = Stage::new();
    let mode = || {
        fs::metadata(stage.path("r.json"))
            .expect("the report")
            .permissions()
            .mode()
            & 0o777
    };
    stage
        .apart("umask 027; $ELBOW run --report ../r.json -- true")
        .assert_code(0);
    assert_eq!(mode(), 0o640);
    fs::set_permissions(stage.path("r.json"), PermissionsExt::from_mode(0o604)).expect("a mode");
    stage
        .apart("ln -s r.json ../link; $ELBOW run --report ../link -- true")
        .assert_code(0);
    assert_eq!(mode(), 0o604);
    assert!(fs::symlink_metadata(stage.path("link")).expect("the link").is_symlink());
}

#[test]
fn the_end_of_a_mount_is_reported_too() {
    let stage = Stage::new();
    stage.make_dir("job");
    for (end, outcome) in [("commit", "committed"), ("rollback", "rolled_back")] {
        stage.elbow(&["mount", ".", "../job"]).assert_code(0);
        fs::write(stage.path("job").join(OsStr::from_bytes(b"no text\xff")), "x").expect("writing in the job");
        let diff = object(&stage.elbow(&["diff", "--json", "../job"]).assert_code(0).out);
        let change = &diff["changes"][0];
        assert_eq!(change["path"], "no text\u{fffd}");
        assert_eq!(change["path_bytes"], "6e6f2074657874ff");
        let said = stage.elbow(&[end, "../job", "--report", "../job/r.json"]);
        said.assert_code(125).assert_says(&["which is about to end"]);
        stage
            .elbow(&[end, "../job", "--quiet", "--report", "../r.json"])
            .assert_code(0);
        let told = report(&stage, "r.json");
        assert_eq!(
            (&told["outcome"], &told["command"]),
            (&outcome.into(), &Value::Array(Vec::new()))
        );
        for name in stage.names() {
            fs::remove_file(stage.work().join(OsStr::from_bytes(b"no text\xff"))).expect(&name);
        }
    }
    stage
        .elbow(&["commit", "../job", "--report", "../r.json"])
        .assert_code(125);
    assert!(
        report(&stage, "r.json")["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("not a mount"))
    );
}

#[test]
fn errors_are_objects_where_the_answer_would_have_been() {
    let stage = Stage::new();
    for words in [
        &["status", "nowhere"][..],
        &["diff", "nowhere"],
        &["recover", "nowhere"],
        &["zero", "nowhere"],
        &["holes", "nowhere"],
        &["explain", "nowhere"],
        &["holes", "--dig", "nowhere"],
        &["commit", "nowhere"],
        &["rollback", "nowhere"],
    ] {
        let said = stage.elbow(&[words, &["--json"]].concat());
        said.assert_code(125);
        let (answer, silent) = match words[0] {
            "commit" | "rollback" => (&said.err, &said.out),
            _ => (&said.out, &said.err),
        };
        let told = object(answer);
        assert_eq!(silent, "", "{words:?}");
        assert_eq!(fields(&told), fields(&documented("## Errors")), "{words:?}");
        let error = &told["error"];
        assert_eq!(
            (&error["errno_name"], &error["path"]),
            (&"ENOENT".into(), &"nowhere".into()),
            "{told}"
        );
    }
    let said = stage.elbow(&["recover", "--json", "/proc"]);
    assert_eq!(object(&said.assert_code(125).out)["error"]["path"], "/proc");
    let said = stage.elbow(&["zero", "--json", "."]);
    assert_eq!(object(&said.assert_code(125).out)["error"]["errno_name"], "EISDIR");
}

/// Wrong options are found before it is known that JSON was wanted.
#[test]
fn wrong_options_are_told_in_words() {
    let said = Stage::new().elbow(&["run", "--json", "--frob", "--", "true"]);
    said.assert_code(125).assert_says(&["unexpected argument '--frob'"]);
}

#[test]
fn the_documented_objects_have_the_fields_of_real_ones() {
    let stage = Stage::new();
    stage.make_dir("job");
    fs::write(stage.path("work/old"), "old").expect("a file");
    stage.elbow(&["mount", ".", "../job"]).assert_code(0);
    fs::write(stage.path("job/new"), "new").expect("writing in the job");
    let same = |section: &str, said: &Said| {
        let real = if said.out.is_empty() { &said.err } else { &said.out };
        assert_eq!(fields(&documented(section)), fields(&object(real)), "{section}");
    };
    same("## `elbow jobs`", &stage.elbow(&["jobs", "--json"]));
    same("## `elbow status`", &stage.elbow(&["status", "--json", "../job"]));
    same("## `elbow diff`", &stage.elbow(&["diff", "--json", "../job"]));
    stage.elbow(&["rollback", "-q", "../job"]).assert_code(0);

    let trace = ["run", "--trace", "../trace", "--", "sh", "-c", "cat old > new"];
    stage.elbow(&trace).assert_code(0);
    same("## `elbow explain`", &stage.elbow(&["explain", "--json", "../trace"]));
    fs::remove_file(stage.path("work/new")).expect("it was made");

    stage.apart("$ELBOW run --keep -- sh -c 'echo x > new; sleep 0.3; exit 1' || true");
    same("## `elbow recover`", &stage.elbow(&["recover", "--json", "."]));
    same(
        "## `elbow recover --show`",
        &stage.elbow(&["recover", "--show", "--json", "."]),
    );

    let full = "mkdir -p m; mount -t tmpfs -o size=1m none m; cd m; truncate -s 1M f; yes | head -c 8192 | dd of=f conv=notrunc status=none";
    same(
        "## `elbow holes`",
        &stage.apart(&format!("{full}; $ELBOW holes --json f")),
    );
    same(
        "## `elbow holes --dig`",
        &stage.apart(&format!("{full}; $ELBOW holes --dig --assume-no-writers --json f")),
    );
    let zeroed = stage.apart(&format!("{full}; $ELBOW zero --json f"));
    // There is nothing in `deferred` unless the disk is full.
    let mut example = documented("## `elbow zero`");
    example["deferred"] = Value::Array(Vec::new());
    assert_eq!(fields(&example), fields(&object(&zeroed.assert_code(0).out)));
    same("## `elbow sort`", &stage.elbow(&["sort", "--json", "nowhere"]));
    same("## `elbow --version`", &stage.elbow(&["--version", "--json"]));
}

/// The example in a section of the document.
fn documented(section: &str) -> Value {
    let document = include_str!("../../../../docs/src/reference/json.md");
    let at = format!("\n{section}\n");
    let (_, rest) = document
        .split_once(&at)
        .unwrap_or_else(|| panic!("no section {section}"));
    let (_, rest) = rest.split_once("```json\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    serde_json::from_str(example).expect(section)
}

/// The paths of all fields.
fn fields(value: &Value) -> BTreeSet<String> {
    let below = |name: &str, value| {
        let fields = fields(value).into_iter();
        fields.map(|field| format!("{name}.{field}")).collect::<Vec<_>>()
    };
    match value {
        Value::Object(object) => object
            .iter()
            .flat_map(|(name, value)| [vec![name.clone()], below(name, value)].concat())
            .collect(),
        Value::Array(values) => values.iter().flat_map(|value| below("[]", value)).collect(),
        _ => BTreeSet::new(),
    }
}
