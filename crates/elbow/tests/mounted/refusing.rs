//! Storages that refuse kinds of things: programs in a job end and leave what they do without a job on the same storage.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use elbow_testkit::sshbed::SshTestbed;
use elbow_testkit::tree::Tree;
use tempfile::TempDir;

use crate::commands::{Place, wait_for};
use crate::test_dir::{make_old_tree, snapshot_of, ssh_server, staging_below};

/// Commands that keep attributes, make all kinds of objects, and move things here from another file system. `try` says how each
/// ends. No times of symbolic links: sshfs sets those of what they point to, natively with errors.
const COMMANDS: &str = r#"
try() { "$@" > /dev/null 2>&1 && code=0 || code=$?; echo "$code $*" >> "$OUT/codes"; }
cp -a "$OUT/source" "$OUT/local"; cd "$OUT/local"; chmod 700 .; chmod 711 "$OUT"
export OUT; cd "$WORK"
try cp -p "$OUT/local/f" kept; try install -m 640 "$OUT/local/f" installed; try cp -a "$OUT/local/tree" copied
try cp --preserve=all "$OUT/local/f" all; try mv "$OUT/local/moved" .; try mv "$OUT/local/dir" .; try tar xf "$OUT/local/tar"
try tar --xattrs --acls -xf "$OUT/local/tar" --one-top-level=with; try rsync -aXA "$OUT/local/tree/" synced/; try rsync -a "$OUT/local/tree/" plain/
try mkfifo pipe; try mknod null c 1 3; try ln kept hard; try ln -s kept soft; try setfattr -n user.a -v 1 kept; try setfacl -m u:77:r kept
try chmod 4755 kept; try chmod 600 old; try touch a:b 'c"d' 'e?'; try truncate -s 5G large; try rm large
try setfattr -n user.a -v 1 old; try setfacl -m u:77:r old; try chown 7:8 old; try mkdir -m 1777 open; try cp -a /dev/null device
try python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')"; ls "$OUT/local" > "$OUT/left"; rm -rf "$OUT/local"
"#;

const SOURCE: &str = "mkdir source source/tree source/tree/d source/dir; cd source; seq 100 > f; seq 200 > moved; seq 300 > tree/a; seq 10 > tree/d/b
    seq 5 > dir/x; ln tree/a tree/hard; setfacl -m u:77:rw f moved tree/a dir/x; setfacl -d -m u:77:rwx tree/d
    setfattr -n user.origin -v here f moved tree/a tree/d; chmod 4755 tree/d/b; tar --xattrs --acls -cf tar tree";

/// Directories on a server, and what is next to them here.
struct Testbed {
    dir: TempDir,
    server: SshTestbed,
}

impl Testbed {
    fn new() -> Option<Self> {
        let (dir, server) = ssh_server(&["out", "native", "job", "at"], Duration::from_micros(200))?;
        let out = dir.path().join("out");
        let place = Place { work: &out, out: &out };
        place.shell(SOURCE).assert_code(0);
        for name in ["native", "job"] {
            make_old_tree(&dir.path().join(name), &out, "seq 10 > old; mkdir d; seq 20 > d/f");
        }
        Some(Self { dir, server })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounts a directory of the server at the same place, and works there.
    fn at<R>(&self, name: &str, work: impl FnOnce(&Path) -> R) -> R {
        let mount = self
            .server
            .mount(&self.path(name), &self.path("at"))
            .expect("an sshfs mount");
        work(mount.path())
    }

    /// What is on the server now, but for times.
    fn tree(&self, name: &str) -> Tree {
        assert_eq!(
            staging_below(&self.path(name)),
            0,
            "staging directories are left behind"
        );
        snapshot_of(&self.path(name)).without_times()
    }

    fn take(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path("out").join(name)).expect("what the script wrote");
        fs::remove_file(self.path("out").join(name)).expect("removing it");
        text
    }
}

/// cp -p and install failed each time, and what was moved from a local disk was lost.
#[test]
fn programs_on_sshfs_end_and_leave_what_they_do_without_a_job() {
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    let native = testbed.at("native", |work| Place { work, out: &out }.shell(COMMANDS));
    native.assert_code(0);
    let (codes, left) = (testbed.take("codes"), testbed.take("left"));
    assert!(
        codes.contains("1 mkfifo pipe") && codes.contains("0 mv"),
        "sshfs refuses something:\n{codes}"
    );
    let run = testbed.at("job", |work| {
        Place { work, out: &out }.start_job(&[], &[], COMMANDS).finish()
    });
    run.assert_code(0);
    assert_eq!(
        (testbed.take("codes"), testbed.take("left")),
        (codes, left),
        "{}",
        run.err
    );
    testbed.tree("job").assert_equals(&testbed.tree("native"));
}

/// The umask of the server took bits that the job had seen: 664 was stored as 644.
#[test]
fn modes_on_sshfs_are_those_that_the_job_saw() {
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    let script = "umask 002; touch f; mkdir -p n/e; echo x > n/f; printf 'y' > n/e/g; chmod 666 f; mkdir -m 777 open; (umask 0; touch all; mkdir any)
        cp -a \"$OUT/source/tree\" .; chmod -R g+w tree; mkdir -m 2775 share; install -m 664 n/f installed; zip -qr \"$OUT/tree.zip\" tree; mkdir u
        cd u; unzip -q \"$OUT/tree.zip\"; cd ..; find . -not -type l -printf '%P %m\\n' | sort > \"$OUT/seen\"";
    testbed
        .at("job", |work| {
            Place { work, out: &out }.start_job(&[], &[], script).finish()
        })
        .assert_code(0);
    let seen = testbed.take("seen");
    let mode = |path: &str| {
        let found =
            fs::symlink_metadata(testbed.path("job").join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        found.permissions().mode() & 0o7777
    };
    for line in seen.lines() {
        let (path, expected) = line.rsplit_once(' ').expect("a path and a mode");
        assert_eq!(format!("{:o}", mode(path)), expected, "{path}");
    }
    assert_eq!(
        (mode("n/f"), mode("n/e"), mode("all"), mode("any")),
        (0o664, 0o775, 0o666, 0o777)
    );
}

/// Of a file system that does not say when its directories were made, the one that is mounted at a place next looks the same: what was saved of a job was stored there.
#[test]
fn what_was_saved_is_not_stored_in_what_is_mounted_next_at_its_place() {
    let Some(testbed) = Testbed::new() else { return };
    let (out, saved) = (testbed.path("out"), testbed.path("out/saved"));
    fs::create_dir(&saved).expect("a directory");
    let place = format!("TMPDIR={}", saved.display());
    let (ready, go) = (out.join("ready"), out.join("go"));
    let immutable = |flag: &str| {
        let job = testbed.path("job");
        Place { work: &out, out: &out }
            .shell(&format!("chattr {flag} {}", job.display()))
            .assert_code(0);
    };
    testbed.at("job", |work| {
        let script = ": > $OUT/ready; until [ -e $OUT/go ]; do sleep 0.02; done; echo result > result";
        let job =
            Place { work, out: &out }.start_job(&["env", &place], &["--scratch", &saved.display().to_string()], script);
        wait_for("the command", || ready.exists());
        immutable("+i");
        fs::write(&go, "").expect("a file");
        job.finish().assert_code(125);
    });
    immutable("-i");
    let resume = |name: &str| {
        testbed.at(name, |work| {
            let words = [
                "env",
                &place,
                env!("CARGO_BIN_EXE_elbow"),
                "resume",
                "--scratch",
                &saved.display().to_string(),
                ".",
            ];
            Place { work, out: &out }.start(&words).finish()
        })
    };
    let run = resume("native");
    assert!(run.code != 0, "{}", run.out);
    assert!(!testbed.path("native/result").exists());
    resume("job").assert_code(0);
    assert_eq!(fs::read(testbed.path("job/result")).expect("a result"), b"result\n");
}

/// Where there are no ACLs, modes alone say who may do what, inside the job too: the kernel asks for an ACL first.
#[test]
fn other_users_are_let_in_by_modes_where_there_are_no_acls() {
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    fs::set_permissions(testbed.dir.path(), fs::Permissions::from_mode(0o755)).expect("open to all");
    let script = "as() { id=$1; shift; setpriv --reuid $id --regid $id --clear-groups \"$@\" 2>&1 || true; }
        chgrp 1000 old d; chmod 640 old; chmod 750 d; cp -p old new; chmod 755 .
        { as 1000 head -n 1 old; as 1000 head -n 1 new; as 1000 ls d; as 1001 cat old; as 1001 cat new; as 1001 ls d; } > \"$OUT/said\"";
    testbed
        .at("job", |work| {
            Place { work, out: &out }.start_job(&[], &[], script).finish()
        })
        .assert_code(0);
    let said = testbed.take("said");
    assert_eq!(said.matches("Permission denied").count(), 3, "{said}");
    assert!(said.starts_with("1\n1\nf\n"), "{said}");
}

/// What is in each directory below; the server's user is `bin`.
const OF_TWO_USERS: &str = "seq 10 > old; seq 20 > roots; seq 30 > shared; seq 40 > roots_log; mkdir d d/e closed open; seq 50 > d/f; seq 60 > d/e/g
    seq 70 > closed/f; seq 80 > open/f; chown -R bin:bin old d; chown bin:bin .; chmod 666 shared; chmod 622 roots_log; chmod 777 open";

/// A command, and whether root may do it natively by way of a server that takes it for `bin`. Where it may, a job does the same, and where it may not, the
/// job changes nothing.
const AS_ANOTHER: [(&str, bool); 24] = [
    ("echo new > made", true),
    ("echo more >> old", true),
    ("echo more > roots", false),
    ("echo more >> shared", true),
    ("echo more >> roots_log", true),
    ("mkdir -p a/b && echo x > a/b/c", true),
    ("rm old", true),
    ("rm roots", true),
    ("mv old renamed", true),
    ("mv old roots", true),
    ("mv roots d/f", true),
    ("chmod 600 old", true),
    ("chmod 600 roots", false),
    ("touch -d 2001-01-01 old", true),
    ("touch -d 2001-01-01 roots", false),
    ("mkdir closed/new", false),
    ("echo x > open/new", true),
    ("rm open/f", true),
    ("rm -r d", true),
    ("rm -r closed", false),
    ("mv closed moved", true),
    ("cp -p old copy", true),
    ("ln -s old link", true),
    ("chown root roots d/f", false),
];

/// Ten of thirteen commands failed after the commit point, and left a mixture and a directory that no later job could use.
#[test]
fn what_a_server_refuses_another_user_is_refused_before_the_commit() {
    let Some((dir, server)) = ssh_server(&["out", "native", "job", "at"], Duration::ZERO) else {
        return;
    };
    let (out, at) = (dir.path().join("out"), dir.path().join("at"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("open to all");
    for tree in ["native", "job"] {
        for number in 0..AS_ANOTHER.len() {
            let tree = dir.path().join(format!("{tree}/{number}"));
            fs::create_dir(&tree).expect("a directory");
            make_old_tree(&tree, &out, OF_TWO_USERS);
        }
        Place {
            work: dir.path(),
            out: &out,
        }
        .shell(&format!("chown bin:bin {tree}"))
        .assert_code(0);
    }
    let before = snapshot_of(&dir.path().join("native/0"));
    let run = |tree: &str, run: &dyn Fn(Place<'_>, &str) -> crate::commands::Run| {
        let mounted = server.mount_as("bin", &mut Command::new("sshfs"), &dir.path().join(tree), &at);
        let mounted = mounted.expect("an sshfs mount");
        let work = |number: usize| mounted.path().join(number.to_string());
        let commands = AS_ANOTHER.iter().enumerate();
        commands
            .map(|(number, (command, _))| {
                run(
                    Place {
                        work: &work(number),
                        out: &out,
                    },
                    command,
                )
            })
            .collect::<Vec<_>>()
    };
    let native = run("native", &|place, command| place.shell(command));
    let jobs = run("job", &|place, command| {
        place.start_job(&[], &["--no-keep"], command).finish()
    });
    let tree = |tree: &str, number: usize| snapshot_of(&dir.path().join(format!("{tree}/{number}"))).without_times();
    for (number, (command, may)) in AS_ANOTHER.iter().enumerate() {
        let (native, job) = (&native[number], &jobs[number]);
        assert_eq!(native.code == 0, *may, "{command}: {native:?}");
        assert_eq!(job.code == 0, *may, "{command}: {job:?}");
        assert!(!job.err.contains("is committed"), "{command}: {job:?}");
        let expected = if *may {
            tree("native", number)
        } else {
            before.clone().without_times()
        };
        tree("job", number).assert_equals(&expected);
        assert_eq!(
            staging_below(&dir.path().join(format!("job/{number}"))),
            0,
            "{command}: {job:?}"
        );
    }
}
