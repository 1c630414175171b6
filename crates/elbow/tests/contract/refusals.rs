//! Each bad situation gets a clear message with a way out, exit code 125, and changes nothing.

use crate::stage::{Stage, word};

/// Becomes an ordinary user with a name (fusermount3 wants one) and an open `/dev/fuse`.
const AS_USER: &str = "mknod -m 666 ../fuse c 10 229; mount --bind ../fuse /dev/fuse
    user() { setpriv --reuid 1 --regid 1 --clear-groups --inh-caps=-all env TMPDIR=\"$PWD/..\" \"$@\"; }";
const NAMELESS: &str = "setpriv --reuid 12345 --regid 12345 --clear-groups --inh-caps=-all env TMPDIR=\"$PWD/..\"";

#[test]
fn a_missing_directory() {
    let stage = Stage::new();
    let said = stage.elbow(&["run", "--on", "nowhere", "--", "true"]);
    said.assert_code(125)
        .assert_says(&["nowhere: No such file or directory", "--on"]);
}

#[test]
fn a_file_instead_of_a_directory() {
    let stage = Stage::new();
    std::fs::write(stage.path("work/file"), "x").expect("a file");
    let said = stage.elbow(&["run", "--on", "file", "--", "true"]);
    said.assert_code(125).assert_says(&["file: not a directory"]);
}

#[test]
fn mounts_inside_the_directory() {
    let stage = Stage::new();
    let said = stage.apart("mkdir -p deep/inner; mount -t tmpfs none deep/inner; $ELBOW run -- touch touched");
    said.assert_code(125).assert_says(&["deep/inner", "unmount", "--on"]);
    assert_eq!(stage.names(), ["deep"]);
}

#[test]
fn a_read_only_file_system() {
    let stage = Stage::new();
    let said = stage.apart("mkdir ro; mount -t tmpfs -o ro none ro; $ELBOW run --on ro -- true");
    said.assert_code(125).assert_says(&["read-only file system", "remount"]);
}

#[test]
fn a_directory_inside_another() {
    let stage = Stage::new();
    stage.make_dir("work/inner");
    let said = stage.elbow(&["run", "--on", ".", "--on", "inner", "--", "true"]);
    said.assert_code(125)
        .assert_says(&["inner is inside", "only the outer one"]);
}

/// A job over the same directory as one around it or one below is fine; what holds another mount of a job is not.
#[test]
fn a_job_around_the_directory_of_another() {
    let stage = Stage::new();
    stage.make_dir("work/inner");
    let said = stage.apart("$ELBOW run --on inner -- sh -c 'exec $ELBOW run -- touch touched'");
    said.assert_code(125)
        .assert_says(&["other file systems are mounted inside it", "work/inner"]);
    assert_eq!(stage.names(), ["inner"]);
}

#[test]
fn no_device() {
    let stage = Stage::new();
    let said = stage.apart("mount -t tmpfs none /dev; $ELBOW run -- true");
    said.assert_code(125)
        .assert_says(&["/dev/fuse: No such file or directory", "modprobe fuse"]);
}

#[test]
fn root_without_the_right_to_mount() {
    let stage = Stage::new();
    let said = stage.apart("exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin $ELBOW run -- true");
    said.assert_code(125).assert_says(&["CAP_SYS_ADMIN"]);
}

#[test]
fn a_directory_that_the_user_may_not_write() {
    let stage = Stage::open_to_all();
    stage.make_dir("work/closed");
    let said = stage.apart(&format!("{AS_USER}; user $ELBOW run --on closed -- true"));
    said.assert_code(125)
        .assert_says(&["closed: you may not write there", "write permission"]);
}

#[test]
fn a_device_that_the_user_may_not_open() {
    let stage = Stage::open_to_all();
    let said = stage.apart(&format!("{AS_USER}; chmod 600 /dev/fuse; user $ELBOW run -- true"));
    said.assert_code(125)
        .assert_says(&["/dev/fuse: Permission denied", "chmod 666 /dev/fuse"]);
}

#[test]
fn no_helper_to_mount_for_the_user() {
    let stage = Stage::open_to_all();
    let said = stage.apart(&format!(
        "{AS_USER}; mkdir bin; user env PATH=\"$PWD/bin\" $ELBOW run -- true"
    ));
    said.assert_code(125)
        .assert_says(&["fusermount3 was not found", "apt install fuse3"]);
}

#[test]
fn a_directory_that_the_user_may_not_reach() {
    let stage = Stage::open_to_all();
    let said = stage.apart(&format!(
        "{AS_USER}; mkdir -p closed/work; chmod 700 closed; user $ELBOW run --on closed/work -- true"
    ));
    said.assert_code(125)
        .assert_says(&["closed/work: Permission denied", "get the right to enter it"]);
}

/// As `docker run --user 12345` has it.
#[test]
fn a_user_without_a_name() {
    let stage = Stage::open_to_all();
    let said = stage.apart(&format!("{AS_USER}; chown 12345 .; {NAMELESS} $ELBOW run -- true"));
    said.assert_code(125)
        .assert_says(&["could not determine username", "/etc/passwd", "unshare -Urm"]);
}

/// Without a thread that answers, the job waited for its own mount, and nothing but SIGKILL ended it.
#[test]
fn too_few_threads_and_processes() {
    for most in [5, 8, 12] {
        let stage = Stage::open_to_all();
        let limited = format!("{NAMELESS} prlimit --nproc={most} $ELBOW run -- true");
        let said = stage.apart(&format!("{AS_USER}; chown 12345 .; {limited}"));
        said.assert_code(125)
            .assert_says(&["a job needs 14 threads and processes", "ulimit -u"]);
    }
}

#[test]
fn a_helper_that_may_not_mount() {
    let stage = Stage::open_to_all();
    let said = stage.apart(&format!("{AS_USER}; user setpriv --no-new-privs $ELBOW run -- true"));
    said.assert_code(125)
        .assert_says(&["fusermount3 refused", "no_new_privs"]);
}

/// What a user has mounted for nobody else is closed to root, and so to the helper: nothing is mounted in there.
#[test]
fn a_mount_point_that_only_its_user_may_enter() {
    let stage = Stage::open_to_all();
    let said = stage.apart(&format!(
        "{AS_USER}; cd ..; user mkdir -p old/inner mine other; user $ELBOW mount old mine
        user $ELBOW mount other mine/inner && code=0 || code=$?; user $ELBOW rollback mine; exit $code"
    ));
    said.assert_code(125)
        .assert_says(&["fusermount3 refused", "Permission denied", "allow_other", "elsewhere"]);
}

/// The kernel gives no user namespace to a process in a chroot: a way to be refused one on any machine.
#[test]
fn no_user_namespaces() {
    let stage = Stage::open_to_all();
    stage.make_dir("root");
    let script = format!(
        "{AS_USER}; mount --rbind / ../root
        chroot ../root setpriv --reuid 1 --regid 1 --clear-groups --inh-caps=-all \
            env TMPDIR={} $ELBOW run --on {} -- touch touched",
        word(&stage.path("")),
        word(&stage.work())
    );
    let said = stage.apart(&script);
    said.assert_code(125)
        .assert_says(&["private mount namespace", "user.max_user_namespaces", "elbow mount"]);
    assert!(stage.names().is_empty(), "{:?}", stage.names());
}

#[test]
fn what_is_no_mount_has_no_status() {
    let stage = Stage::new();
    for subcommand in ["status", "diff", "commit", "rollback"] {
        let said = stage.elbow(&[subcommand, "."]);
        said.assert_code(125).assert_says(&["not a mount of elbow"]);
    }
}

#[test]
fn a_mount_point_inside_the_source() {
    let stage = Stage::new();
    stage.make_dir("work/inner");
    let said = stage.elbow(&["mount", ".", "inner"]);
    said.assert_code(125).assert_says(&["inner is inside"]);
}

#[test]
fn a_missing_mount_point() {
    let stage = Stage::new();
    let said = stage.elbow(&["mount", ".", "../nowhere"]);
    said.assert_code(125).assert_says(&["nowhere", "create it first"]);
}

#[test]
fn mistakes_on_the_command_line_are_not_the_commands_fault() {
    let stage = Stage::new();
    for words in [
        &["run"][..],
        &["run", "--mem", "lots", "--", "true"],
        &["frobnicate"],
        &[],
    ] {
        let said = stage.elbow(words);
        said.assert_code(125);
        assert!(said.err.contains("Usage") || said.err.contains("--help"), "{said:#?}");
    }
    stage.elbow(&["run", "--help"]).assert_code(0);
}

/// fusermount3 was said to refuse it, with advice about what fusermount3 needs.
#[test]
fn a_mount_point_that_has_a_job() {
    let stage = Stage::new();
    stage.make_dir("mnt");
    let said = stage.elbow(&["mount", ".", "../mnt"]);
    said.assert_code(0);
    let again = stage.elbow(&["mount", ".", "../mnt"]);
    let ended = stage.elbow(&["rollback", "../mnt"]);
    again
        .assert_code(125)
        .assert_says(&["mnt: a job is mounted there already (`elbow status ", "mnt`"]);
    assert!(!again.err.contains("fusermount"), "{}", again.err);
    ended.assert_code(0);
}

#[test]
fn what_is_no_file_for_a_trace() {
    let stage = Stage::new();
    let said = stage.elbow(&["run", "--trace", "-", "--", "touch", "../begun"]);
    said.assert_code(125).assert_says(&["--trace -", "./-"]);
    assert!(stage.names().is_empty() && !stage.path("begun").exists());
    let said = stage.elbow(&["explain", "."]);
    said.assert_code(125).assert_says(&[".: ", "elbow run --trace"]);
    assert!(!said.err.contains("line 1"), "{}", said.err);
}
