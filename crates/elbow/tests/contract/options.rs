//! Options that mean nothing, or not what they seem to, are refused.

use crate::stage::{Stage, word};

/// `elbow run --jsn --on a -- true` ran `--jsn` as a command over the current directory: 127.
#[test]
fn an_unknown_option_before_the_command_is_an_error() {
    let stage = Stage::new();
    for words in [
        &["run", "--jsn", "--on", ".", "--", "touch", "new"][..],
        &["run", "--frob", "touch", "new"],
        &["run", "-x", "--", "touch", "new"],
        &["run", "--on", ".", "--"],
        &["lock", "hold", "--shred", "f", "--", "touch", "new"],
        &["lock", "hold", "f", "touch", "new"],
        &["lock", "exec", "--prefix", ".", "--frob", "--", "touch", "new"],
        &["lock", "mpi", "--frob", "--", "touch", "new"],
        &["lock", "mpi", "touch", "new"],
    ] {
        let said = stage.elbow(words);
        said.assert_code(125).assert_says(&["error: ", "Usage: elbow"]);
        assert!(stage.names().is_empty(), "{words:?}");
    }
    stage.elbow(&["run", "touch", "--", "-x"]).assert_code(0);
    assert_eq!(stage.names(), ["-x"]);
}

/// `lockd serve --threads 0` panicked, and `--clients 0` served nobody.
#[test]
fn none_is_no_number_of_threads_or_clients() {
    let stage = Stage::new();
    for option in ["--threads", "--clients"] {
        let said = stage.elbow(&["lockd", "serve", "--listen", "unix:socket", option, "0"]);
        said.assert_code(125).assert_says(&["invalid value '0'", option]);
    }
    let said = stage.elbow(&["run", "--on", ".", "--on", "../work", "--", "true"]);
    said.assert_code(125).assert_says(&["is named twice"]);
}

/// Spilling was silently off.
#[test]
fn a_scratch_directory_that_does_not_work_is_refused() {
    let stage = Stage::new();
    std::fs::write(stage.path("file"), "x").expect("a file");
    for scratch in ["../nowhere", "../file", "/proc"] {
        let said = stage.elbow(&["run", "--scratch", scratch, "--", "touch", "new"]);
        said.assert_code(125)
            .assert_says(&["--scratch ", scratch, "local disk"]);
        assert!(stage.names().is_empty(), "{scratch}");
        stage.make_dir("job");
        let said = stage.elbow(&["mount", "--scratch", scratch, ".", "../job"]);
        said.assert_code(125).assert_says(&["--scratch "]);
        std::fs::remove_dir(stage.path("job")).expect("not mounted");
    }
    let said = stage.apart("mkdir ro; mount -t tmpfs -o ro none ro; mkdir on; $ELBOW run --on on --scratch ro -- true");
    said.assert_code(125).assert_says(&["--scratch ro", "Read-only"]);
}

/// The usual one is no condition, but that it is missing is said.
#[test]
fn a_missing_temporary_directory_is_said_once() {
    let stage = Stage::new();
    let said = stage.apart("TMPDIR=/nowhere XDG_RUNTIME_DIR=/tmp $ELBOW run --retry 1 -- false || true");
    assert_eq!(said.err.matches("/nowhere").count(), 1, "{said:#?}");
    said.assert_says(&["writers wait", "--scratch DIR"]);
    let said = stage.apart("TMPDIR=/nowhere XDG_RUNTIME_DIR=/tmp $ELBOW run --json -- true");
    assert_eq!(said.assert_code(0).err.lines().count(), 1, "{said:#?}");
    said.assert_says(&["\"notes\":[\"/nowhere"]);
}

/// `elbow zero q 1.5 10` zeroed from byte 1 on.
#[test]
fn half_a_byte_is_refused() {
    let stage = Stage::new();
    std::fs::write(stage.path("work/f"), "0123456789").expect("a file");
    for range in [["1.5", "10"], ["0", "2.5"], ["0", "0.3K"], ["1.", "1"]] {
        stage.elbow(&[&["zero", "f"], &range[..]].concat()).assert_code(125);
    }
    stage
        .apart("! printf '0 1\\n1.5 3\\n' | $ELBOW zero f --ranges -")
        .assert_code(0);
    assert_eq!(std::fs::read(stage.path("work/f")).expect("the file"), b"0123456789");
    for mem in ["1.5", "0", "-1", "1e9", ""] {
        stage.elbow(&["run", "--mem", mem, "--", "true"]).assert_code(125);
    }
    stage.elbow(&["run", "--mem", "8.25M", "--", "true"]).assert_code(0);
}

/// Such files are switches and views; a job over them failed in the background, or worked on nothing.
#[test]
fn file_systems_that_the_kernel_makes_up_are_refused() {
    let stage = Stage::new();
    for directory in ["/proc", "/proc/sys", "/sys", "/dev/pts"] {
        let said = stage.elbow(&["run", "--on", directory, "--", "true"]);
        said.assert_code(125)
            .assert_says(&[directory, "which the kernel makes up", "--on DIR"]);
    }
    let said = stage.apart("mkdir m on; mount -t mqueue none m; $ELBOW mount m on");
    said.assert_code(125).assert_says(&["on mqueue"]);
    let said = stage.apart("mkdir t; mount -t tmpfs none t; $ELBOW run --on t -- touch t/new; ls t");
    assert_eq!(said.assert_code(0).out, "new\n");
}

#[test]
fn a_message_advises_nothing_that_the_command_does_not_have() {
    let stage = Stage::new();
    let nowhere = stage.path("nowhere");
    for words in [["recover", word(&nowhere)].as_slice(), &["mount", word(&nowhere), "."]] {
        let said = stage.elbow(words);
        said.assert_code(125).assert_says(&["`elbow run --on DIR`"]);
    }
}
