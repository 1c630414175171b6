//! What makes two files the same: their path, or their inode number.

use crate::test_dir::{TestDir, complained, said};

/// Locks what it is told, in a process of its own, and says what came of it.
const TRIES: &str = r#"
import fcntl, os, struct, subprocess, sys
def ofd(file, kind): fcntl.fcntl(file, 37, struct.pack("hhqqi4x", kind, 0, 0, 0, 0))
ways = {
    "posix": (lambda f: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda f: fcntl.lockf(f, fcntl.LOCK_UN)),
    "ofd": (lambda f: ofd(f, fcntl.F_WRLCK), lambda f: ofd(f, fcntl.F_UNLCK)),
    "flock": (lambda f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda f: fcntl.flock(f, fcntl.LOCK_UN)),
}
def elsewhere(way, name, **more):
    ran = subprocess.run([sys.executable, "-c", SOURCE, way, name], env=dict(os.environ, **more), capture_output=True, text=True)
    return ran.stdout.strip() or ran.stderr
"#;
const ONE: &str = r#"
file = open(sys.argv[2], "a")
try: ways[sys.argv[1]][0](file); print("free")
except OSError as error: print(os.strerror(error.errno))
"#;

fn run(test_dir: &TestDir, program: &str) -> String {
    let source = format!("SOURCE = {:?}\n{TRIES}{program}", format!("{TRIES}{ONE}"));
    let output = test_dir.python(&source);
    format!("{}{}", said(&output), complained(&output))
}

/// The unlock went to the file's new name, at which there was nothing, so that the lock stayed until the file was closed.
#[test]
fn a_lock_is_given_back_after_its_file_was_renamed() {
    for identity in ["path", "inode"] {
        let mut test_dir = TestDir::redirected();
        test_dir.set("ELBOW_FCNTL_IDENTITY", identity);
        let program = r#"
for way, (lock, unlock) in ways.items():
    file = open("a", "w"); lock(file)
    held = elsewhere(way, "a")
    os.rename("a", "b"); unlock(file)
    print(way, held, "|", elsewhere(way, "a"), "|", elsewhere(way, "b"))
    # What is locked now has the new name.
    lock(file); print(elsewhere(way, "b")); file.close(); print(elsewhere(way, "b"))
"#;
        let busy = "Resource temporarily unavailable";
        let expected = |way| format!("{way} {busy} | free | free\n{busy}\nfree\n");
        let all: String = ["posix", "ofd", "flock"].map(expected).concat();
        assert_eq!(run(&test_dir, program), all, "{identity}");
    }
}

#[test]
fn by_inode_all_names_of_a_file_are_one_and_a_file_in_its_place_is_another() {
    let mut test_dir = TestDir::redirected();
    test_dir.set("ELBOW_FCNTL_IDENTITY", "inode");
    let program = r#"
for way, (lock, unlock) in ways.items():
    file = open("a", "w"); lock(file)
    os.link("a", "b"); os.rename("a", "c")
    print(elsewhere(way, "b") == elsewhere(way, "c") == "Resource temporarily unavailable", elsewhere(way, "a"))
    os.unlink("b"); os.unlink("c"); file.close()
"#;
    assert_eq!(run(&test_dir, program), "True free\n".repeat(3));
}

#[test]
fn by_path_a_file_with_hard_links_is_told_of_once() {
    let mut test_dir = TestDir::redirected();
    let program = "import fcntl, os\nfor name in 'abc': open(name, 'w').close()\nos.link('a', 'other'); os.link('b', 'another')\n\
                   for name in 'cab': fcntl.flock(open(name), fcntl.LOCK_EX)";
    for (identity, told) in [("path", 1), ("inode", 0)] {
        test_dir.set("ELBOW_FCNTL_IDENTITY", identity);
        let complaint = complained(&test_dir.python(program));
        assert_eq!(complaint.matches("/a has other names too").count(), told, "{complaint}");
        assert_eq!(complaint.lines().count(), told, "{complaint}");
        for name in ["other", "another"] {
            std::fs::remove_file(test_dir.data.join(name)).unwrap();
        }
    }
}

/// The prefix was part of the name: two runs, one for a directory and one for another below it, each had locks of its own.
#[test]
fn by_inode_a_file_has_one_name_below_whatever_prefix() {
    let mut test_dir = TestDir::redirected();
    test_dir.set("ELBOW_FCNTL_IDENTITY", "inode");
    let program = r#"
os.mkdir("sub")
for way, (lock, unlock) in ways.items():
    file = open("sub/a", "w"); lock(file)
    print(elsewhere(way, "sub/a", ELBOW_FCNTL_PREFIXES=os.path.realpath("sub")))
"#;
    assert_eq!(run(&test_dir, program), "Resource temporarily unavailable\n".repeat(3));
}

#[test]
fn an_identity_that_there_is_not_ends_the_program() {
    let mut test_dir = TestDir::redirected();
    test_dir.set("ELBOW_FCNTL_IDENTITY", "device");
    let output = test_dir.command("true").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        complained(&output).contains("none of path, inode and auto"),
        "{}",
        complained(&output)
    );
}

/// The story: it was said at each call, and a program that polls filled its log.
#[test]
fn that_a_file_has_no_name_is_said_once_in_a_process() {
    let mut test_dir = TestDir::redirected();
    test_dir.set("ELBOW_FCNTL_IDENTITY", "inode");
    // Without a descriptor to read the table of mounts by, it cannot be told which file system the number is of.
    let program = r#"
import resource
file = open("a", "w")
resource.setrlimit(resource.RLIMIT_NOFILE, (file.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for lock, unlock in list(ways.values()) * 3:
    try: lock(file); print("free")
    except OSError as error: print(os.strerror(error.errno))
"#;
    let told = run(&test_dir, program);
    assert_eq!(told.matches("No locks available\n").count(), 9, "{told}");
    assert_eq!(told.matches("has no name").count(), 1, "{told}");
}
