//! What a job finds around its directory: repositories that begin above it, directories that may be entered and not be read.

use crate::ground::Ground;
use crate::ordinary_user::{USER, ground_of};

const REPOSITORY: &str = "export HOME=\"$OUT\"; git config --global user.name t; git config --global user.email t@example.org
    git config --global init.defaultBranch main; mkdir -p sub/deep; echo 1 > sub/f; echo 2 > top; git init -q .; git add -A
    git commit -qm one; rm -rf .git/hooks; chmod -R a+rX \"$OUT\"";

/// In a job over `sub` it was "not a git repository": git stops where another file system begins.
#[test]
fn git_finds_the_repository_above_the_directory_of_the_job() {
    for ground in [Ground::new(REPOSITORY), ground_of(USER, REPOSITORY)] {
        let script = "set -e; export HOME=\"$OUT\"; cd sub; echo more >> f; git status --porcelain; git commit -qam two
            cd deep; git rev-parse --show-prefix; git status --porcelain; git log --format=%s";
        ground.restore();
        ground.native("chown -R $(id -u) . || true").assert_code(0);
        let sub = ground.work("sub");
        let run = ground.job(&["--on", sub.to_str().expect("UTF-8")], script);
        run.assert_code(0);
        assert_eq!(run.out, " M sub/f\nsub/deep/\ntwo\none\n");
        assert_eq!(ground.content("sub/f"), b"1\nmore\n");
        let after = ground.native("export HOME=\"$OUT\"; git status --porcelain; git fsck --strict 2>&1");
        after.assert_code(0);
        assert_eq!(after.out, "");
    }
}

/// It is not told where there is no repository, nor where the user has decided.
#[test]
fn git_is_told_to_go_on_only_where_there_is_something() {
    let ground = Ground::new("mkdir sub");
    ground.restore();
    let sub = ground.work("sub");
    let said = |script: &str| ground.job(&["--on", sub.to_str().expect("UTF-8")], script).out;
    assert_eq!(said("env | grep GIT_DISC; true"), "");
    std::fs::create_dir(ground.work(".git")).expect("a directory");
    assert_eq!(said("env | grep GIT_DISC"), "GIT_DISCOVERY_ACROSS_FILESYSTEM=1\n");
}
