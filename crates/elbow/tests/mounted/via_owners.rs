//! Jobs by ssh where the user has another number at the far end: a script becomes that user, and is what `elbow` runs for ssh.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use tempfile::TempDir;

use crate::test_dir::staging_below;
use crate::via::{start, write_script};

/// A directory on a machine where the far end runs as another user, number 1: a script becomes that one. And what names it.
fn machine_of_another_user() -> (TempDir, String) {
    let dir = tempfile::Builder::new()
        .prefix("elbow-via-")
        .tempdir()
        .expect("a directory");
    let path = |name: &str| dir.path().join(name);
    for name in ["far", "out"] {
        fs::create_dir(path(name)).expect("a directory");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_elbow"))
        .arg(path("elbow"))
        .status();
    assert!(copied.expect("cp").success(), "a copy of the program that all may run");
    let daemon = "exec setpriv --reuid=1 --regid=1 --clear-groups --inh-caps=-all sh -c";
    let program = path("elbow").display().to_string();
    write_script(
        &path("via"),
        &format!("for last; do :; done; cd /; {daemon} \"{program} ${{last#* }}\""),
    );
    fs::write(path("far/old"), "old").expect("a file");
    for name in ["far", "far/old"] {
        std::os::unix::fs::chown(path(name), Some(1), Some(1)).expect("root");
    }
    let target = format!("ssh://box{}", path("far").display());
    (dir, target)
}

/// It waits with the numbers that users have there, and not with those of who has brought it.
#[test]
fn what_could_not_be_committed_is_gone_on_with_there_as_well_as_here() {
    let (dir, target) = machine_of_another_user();
    let path = |name: &str| dir.path().join(name);
    for is_there in [true, false] {
        fs::write(path("far/mine"), "mine").expect("a file");
        std::os::unix::fs::chown(path("far/mine"), Some(1), Some(1)).expect("root");
        let script = "set -e; cd near; chmod 640 mine; setfacl -m u:0:rw mine; mkdir kept; echo x > kept/x
            until ls -d \"$FAR\"/.elbow-*/*; do sleep 0.05; done; chattr +i \"$FAR\"";
        let script = format!("FAR={}; {script}", path("far").display());
        let run = start(dir.path(), &["--via", &target], &script).finish();
        let freed = Command::new("chattr").arg("-i").arg(path("far")).status();
        assert!(freed.expect("chattr").success());
        assert!(run.err.contains("kept"), "{}", run.err);
        let program = if is_there {
            path("elbow")
        } else {
            env!("CARGO_BIN_EXE_elbow").into()
        };
        let mut resume = match is_there {
            true => Command::new("setpriv"),
            false => Command::new(&program),
        };
        match is_there {
            true => resume
                .args(["--reuid=1", "--regid=1", "--clear-groups", "--inh-caps=-all"])
                .arg(&program)
                .arg("resume")
                .arg(path("far")),
            false => resume
                .env("ELBOW_SSH", path("via"))
                .arg("resume")
                .args(["--via", &target])
                .arg(path("near")),
        };
        let resumed = resume.current_dir("/").output().expect("an end");
        let said = String::from_utf8_lossy(&resumed.stderr);
        assert!(resumed.status.success(), "there: {is_there}: {said}");
        let owner = |name: &str| {
            path(name)
                .metadata()
                .map(|found| (found.uid(), found.gid()))
                .expect("it is there")
        };
        assert_eq!(
            (owner("far/mine"), owner("far/kept/x")),
            ((1, 1), (1, 1)),
            "there: {is_there}"
        );
        let listed = Command::new("getfacl")
            .arg("-cn")
            .arg(path("far/mine"))
            .output()
            .expect("getfacl");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(
            listed.contains("user:1:rw-\n") && !listed.contains("user:0:"),
            "there: {is_there}: {listed}"
        );
        fs::remove_dir_all(path("far/kept")).expect("it is there");
        fs::remove_file(path("far/mine")).expect("it is there");
    }
}

#[test]
fn another_users_machine_shows_the_users_files_as_own() {
    let (dir, target) = machine_of_another_user();
    let path = |name: &str| dir.path().join(name);
    let script = "set -e; cd near; stat -c '%u %g' old > \"$OUT/seen\"; echo more >> old; mkdir new; echo x > new/x; stat -c '%u %g' new/x >> \"$OUT/seen\"";
    let run = start(dir.path(), &["--via", &target], script).finish();
    run.assert_code(0);
    assert_eq!(
        fs::read_to_string(path("out/seen")).expect("what was seen"),
        "0 0\n0 0\n"
    );
    for name in ["far/old", "far/new", "far/new/x"] {
        let metadata = path(name).metadata().expect("it is there");
        assert_eq!((metadata.uid(), metadata.gid()), (1, 1), "{name}");
    }
    assert_eq!(fs::read(path("far/old")).expect("a file"), b"oldmore\n");
    // Whom lists of rights name: of an old object, of a new one, and of one that is made in a directory with a default.
    let script =
        "set -e; cd near; setfacl -m u:0:rw,u:7:r,g:0:r old; mkdir lists; setfacl -d -m u:0:rw lists; echo x > lists/x
        getfacl -cn old | grep : > \"$OUT/list\"";
    start(dir.path(), &["--via", &target], script).finish().assert_code(0);
    let here = fs::read_to_string(path("out/list")).expect("what was seen");
    assert!(
        here.contains("user:0:rw-\nuser:7:r--\n") && here.contains("group:0:r--\n"),
        "{here}"
    );
    let lists = ["old", "lists/x"].map(|name| {
        let listed = Command::new("getfacl")
            .arg("-cn")
            .arg(path("far").join(name))
            .output()
            .expect("getfacl");
        String::from_utf8_lossy(&listed.stdout).into_owned()
    });
    assert!(
        lists[0].contains("user:1:rw-\nuser:7:r--\n") && lists[0].contains("group:1:r--\n"),
        "{lists:?}"
    );
    assert!(lists[1].contains("user:1:rw-\n"), "{lists:?}");
    // What is expected of old directories is compared with the numbers that they have there.
    let script = "set -e; cd near; chmod 750 lists; setfacl -m u:0:r,u:8:rw lists; rm -r new";
    start(dir.path(), &["--via", &target], script).finish().assert_code(0);
    assert!(!path("far/new").exists());
    // What is the user's own may be changed whatever its mode is, as there: the machine there has to know whose it is.
    let script = "set -e; cd near; chmod 444 old; printf end > \"$OUT/end\"";
    start(dir.path(), &["--via", &target], script).finish().assert_code(0);
    let script = "set -e; cd near; chmod u+w old; echo again >> old; chmod u-w old";
    start(dir.path(), &["--via", &target], script).finish().assert_code(0);
    assert_eq!(fs::read(path("far/old")).expect("a file"), b"oldmore\nagain\n");
    assert_eq!(path("far/old").metadata().expect("a file").mode() & 0o777, 0o444);
    // What that user may not do there is no different by way of root here.
    fs::create_dir(path("far/closed")).expect("a directory of root's");
    let run = start(dir.path(), &["--no-keep", "--via", &target], "echo x > near/closed/x").finish();
    run.assert_code(125);
    assert!(run.err.contains("closed"), "{}", run.err);
    assert_eq!(staging_below(&path("far")), 0);
}
