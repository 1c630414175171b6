//! What a job finds around its directory: repositories that begin above it, directories that may be entered and not be read.

use crate::ordinary_user::{USER, as_user, ground_of};
use crate::test_dir::TestDir;

const REPOSITORY: &str = "export HOME=\"$OUT\"; git config --global user.name t; git config --global user.email t@example.org
    git config --global init.defaultBranch main; mkdir -p sub/deep; echo 1 > sub/f; echo 2 > top; git init -q .; git add -A
    git commit -qm one; rm -rf .git/hooks; chmod -R a+rX \"$OUT\"";

/// In a job over `sub` it was "not a git repository": git stops where another file system begins.
#[test]
fn git_finds_the_repository_above_the_directory_of_the_job() {
    for test_dir in [TestDir::new(REPOSITORY), ground_of(USER, REPOSITORY)] {
        let script = "set -e; export HOME=\"$OUT\"; cd sub; echo more >> f; git status --porcelain; git commit -qam two
            cd deep; git rev-parse --show-prefix; git status --porcelain; git log --format=%s";
        test_dir.restore();
        test_dir.native("chown -R $(id -u) . || true").assert_code(0);
        let sub = test_dir.work("sub");
        let run = test_dir.job(&["--on", sub.to_str().expect("UTF-8")], script);
        run.assert_code(0);
        assert_eq!(run.out, " M sub/f\nsub/deep/\ntwo\none\n");
        assert_eq!(test_dir.content("sub/f"), b"1\nmore\n");
        let after = test_dir.native("export HOME=\"$OUT\"; git status --porcelain; git fsck --strict 2>&1");
        after.assert_code(0);
        assert_eq!(after.out, "");
    }
}

/// It is not told where there is no repository, nor where the user has decided.
#[test]
fn git_is_told_to_go_on_only_where_there_is_something() {
    let test_dir = TestDir::new("mkdir sub");
    test_dir.restore();
    let sub = test_dir.work("sub");
    let said = |script: &str| test_dir.job(&["--on", sub.to_str().expect("UTF-8")], script).out;
    assert_eq!(said("env | grep GIT_DISC; true"), "");
    std::fs::create_dir(test_dir.work(".git")).expect("a directory");
    assert_eq!(said("env | grep GIT_DISC"), "GIT_DISCOVERY_ACROSS_FILESYSTEM=1\n");
}

/// A tree of the user's below and above directories of root's that may be entered and not be read.
fn closed_ground() -> TestDir {
    let test_dir = ground_of(
        USER,
        "mkdir -p closed/in/deep box; echo 1 > closed/f; echo 2 > closed/in/g; ln -s f closed/link",
    );
    for (name, mode) in [("closed", 0o711), ("box", 0o733)] {
        std::os::unix::fs::chown(test_dir.work(name), Some(0), Some(0)).expect("chown");
        std::fs::set_permissions(test_dir.work(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .expect("chmod");
    }
    for name in ["closed/f", "closed/in/g"] {
        std::fs::set_permissions(test_dir.work(name), std::os::unix::fs::PermissionsExt::from_mode(0o664))
            .expect("chmod");
    }
    test_dir
}

/// All of it was refused, because a job lists a directory before it knows anything in it.
#[test]
fn directories_that_may_be_entered_and_not_be_read_are_passed() {
    let script = "cat closed/f closed/link closed/in/g; cat closed/none || echo none; ls closed || echo shut
        echo more >> closed/f; echo new > closed/in/new; rm closed/in/g; cd closed/in; mkdir made; mv deep made/; ls; cd ../..
        echo put > box/put; cat box/put; mv box/put box/moved; test ! -e box/put; cat box/moved; ls box || echo shut
        touch closed/not || echo refused; cat closed/not || echo none; rm closed/f || echo refused";
    let native = {
        let test_dir = closed_ground();
        let run = test_dir.native(script);
        run.assert_code(0);
        (run.out, test_dir.snapshot())
    };
    let test_dir = closed_ground();
    let run = test_dir.job(&[], script);
    run.assert_code(0);
    assert_eq!(run.out, native.0, "{}", run.err);
    let names = |tree: &elbow_testkit::tree::Tree| {
        let all = tree.entries.iter();
        all.map(|(path, entry)| (path.clone(), entry.size, entry.mode))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&test_dir.snapshot()), names(&native.1));
    test_dir.assert_no_staging();
}

#[test]
fn a_job_runs_below_a_directory_that_may_be_entered_and_not_be_read() {
    let test_dir = closed_ground();
    let before = test_dir.snapshot();
    let on = test_dir.work("closed/in");
    let on = on.to_str().expect("UTF-8");
    test_dir
        .job(&["--on", on], "cd closed/in; echo x > new; rm g; exit 3")
        .assert_code(3);
    test_dir.assert_equals(&before);
    test_dir
        .job(&["--on", on], "cd closed/in; pwd; echo x > new; rm g")
        .assert_code(0);
    assert_eq!(test_dir.content("closed/in/new"), b"x\n");
    assert!(!test_dir.work("closed/in/g").exists());
}

/// A user's own directory, closed to everybody by the job itself.
#[test]
fn a_job_may_close_its_own_directory() {
    let test_dir = ground_of(USER, "mkdir d; echo old > d/f");
    test_dir.native("chmod 755 .").assert_code(0);
    test_dir
        .job(&[], "echo x > new; echo more >> d/f; chmod 000 .")
        .assert_code(0);
    assert_eq!(test_dir.content("d/f"), b"old\nmore\n");
    assert_eq!(test_dir.content("new"), b"x\n");
    let mode = std::os::unix::fs::MetadataExt::mode(&test_dir.metadata("."));
    assert_eq!(mode & 0o777, 0);
    test_dir.assert_no_staging();
}

/// "Bad owner or permissions": what root owns belongs to nobody in a user's job, and ssh believes nobody.
#[test]
fn ssh_reads_its_configuration_in_a_users_job() {
    let script = "ssh -G somewhere | grep -E '^(port|user|connecttimeout) ' | sort";
    let lay = "mount -t tmpfs none /etc/ssh/ssh_config.d; echo 'Port 2022' > /etc/ssh/ssh_config.d/1.conf
        printf 'Include /etc/ssh/ssh_config.d/more\\nUser somebody\\n' > /etc/ssh/ssh_config.d/2.conf
        echo 'ConnectTimeout 7' > /etc/ssh/ssh_config.d/more; exec \"$@\"";
    let elbow = elbow_testkit::reachable::Reachable::new(std::path::Path::new(env!("CARGO_BIN_EXE_elbow")));
    let elbow = elbow.expect("the binary for all");
    let job = format!(
        "{} run -q -- sh -ec \"{script}; $ELBOW run -q -- sh -ec \\\"{script}\\\"\"",
        elbow.path().display()
    );
    let job = job.replace("$ELBOW", &elbow.path().display().to_string());
    let test_dir = TestDir::new(&format!("echo old > f; chown -R {USER} ."))
        .behind(&["unshare", "--mount", "sh", "-e", "-c", lay, "sh"]);
    let test_dir = as_user(test_dir);
    let run = test_dir.native(&job);
    run.assert_code(0);
    assert_eq!(
        run.out,
        "connecttimeout 7\nport 2022\nuser somebody\n".repeat(2),
        "{}",
        run.err
    );
}
