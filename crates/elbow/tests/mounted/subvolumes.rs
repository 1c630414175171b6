//! Subvolumes of btrfs below the directory of a job: each is a device of its own, of which nothing is renamed or linked to another.
//!
//! A job used to know nothing of that. What it moved within a subvolume departed to its own directory, which is on another device, and the
//! commit was refused there; what storage refuses at once (rename(2) and link(2) between subvolumes) was answered and refused in the end.

use crate::loop_disk::LoopDisk;
use crate::ordinary_user::{USER, as_user};
use crate::test_dir::TestDir;

/// A subvolume with things, one in it, an empty one, and what is outside of them.
const SEED: &str = "mkdir -p sub/a/deep sub/b/c sub/inner/x outer empty
    for f in f sub/f sub/g sub/a/f sub/a/deep/h sub/b/f sub/b/c/k sub/inner/f sub/inner/x/y outer/o; do
        printf 'old %s' $f > $f
    done
    ln sub/f sub/b/second; ln f outer/second; mkdir sub/closed; printf x > sub/closed/x; chmod 555 sub/closed";
const SUBVOLUMES: &[&str] = &["sub", "sub/inner", "empty"];

/// Says why rename(2), link(2) and renameat2(2) with RENAME_EXCHANGE refuse something, in a file that is compared.
const SAY: &str = r#"rn() { perl -e 'print rename($ARGV[0], $ARGV[1]) ? "ok" : "$!", "\n"' "$@" >> said; }
    ln_() { perl -e 'print link($ARGV[0], $ARGV[1]) ? "ok" : "$!", "\n"' "$@" >> said; }
    swap() { perl -e 'print syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2) == 0 ? "ok" : "$!", "\n"' "$@" >> said; }
"#;

/// Each script does the same with a job as without one, and the next job works.
fn assert_same(scripts: &[&str]) {
    let Some(disk) = LoopDisk::btrfs() else { return };
    let test_dir = TestDir::at(&disk.path(), SEED).with_subvolumes(SUBVOLUMES);
    for script in scripts {
        println!("{script}");
        test_dir.assert_same_as_native(&format!("{SAY}{script}"));
        test_dir.job(&[], "touch of-the-next-job").assert_code(0);
    }
}

#[test]
fn what_moves_within_a_subvolume_is_moved() {
    assert_same(&[
        "mv sub/a/f sub/b/g",
        "mv -f sub/a/f sub/b/f",
        "mv sub/a sub/b/; rm sub/b/a/f",
        "mv sub/inner/f sub/inner/x/f; mv sub/inner/x/y sub/inner/y",
        "mv sub/a/f sub/b/g; mv sub/a sub/b/c/; mv sub/b sub/z",
        "mv sub/a/f sub/g2; mv sub/b/f sub/a/f; rm -r sub/b",
        "mv sub/b/c sub/c2; mv sub/a sub/c2/; mv sub/b sub/c2/a/deep/",
        "mv sub/closed/x sub/x; mv sub/closed sub/a/",
        "mkdir sub/new; mv sub/a sub/new/; mv sub/b/f sub/new/a/deep/f",
    ]);
}

#[test]
fn new_things_in_a_subvolume_change_places() {
    assert_same(&[
        "mkdir sub/n sub/m; echo 1 > sub/n/1; echo 2 > sub/m/2; sleep 0.3; swap sub/n sub/m",
        "echo 1 > sub/n; echo 2 > sub/m; sleep 0.3; mv sub/n sub/t; mv sub/m sub/n; mv sub/t sub/m",
        "mkdir -p sub/n/n; echo 1 > sub/n/n/1; sleep 0.3; mv sub/n/n sub/t; mv sub/n sub/t/; mv sub/t sub/n",
        "echo 1 > sub/n; sleep 0.3; mv sub/n sub/f; ln sub/f sub/a/f2",
    ]);
}

#[test]
fn names_across_subvolumes_are_refused_at_once_as_natively() {
    assert_same(&[
        "rn sub/f f2; rn f sub/f2; rn sub/a a; rn sub/f outer/o; rn sub/inner/f sub/f; rn sub/a outer; rn sub/a f",
        "ln_ sub/f f2; ln_ f sub/f2; ln_ sub/inner/f sub/f2; ln_ sub/f sub/a/f2; ln_ sub/f f",
        "swap sub/f f; swap sub/a outer; swap sub/inner outer; swap sub/inner sub/a; swap sub/inner empty; swap sub/f sub/a/f",
        "mkdir n; echo n > n/n; rn n sub/n; rn n/n sub/n; ln_ n/n sub/n; mkdir sub/n; rn sub/n n/n2; echo n > sub/n/1; rn sub/n/1 n/1",
        "echo n > o; sleep 0.3; rn o sub/o; rn o sub/f; ln_ o sub/o2",
        "rn outer empty; rn sub/inner empty; rn sub/a empty; mkdir n; rn n empty; rn empty n; mkdir m; rn m n; ls > said2",
    ]);
}

#[test]
fn mv_copies_across_subvolumes() {
    assert_same(&[
        "mv sub/f .; mv outer sub/",
        "mv sub/f f; mv sub/inner/x .",
        "mkdir -p n/m; echo x > n/m/x; mv n sub/; mv sub/n/m .",
        "cp -a sub copy; cp -a outer sub/a/; cp -a sub/inner/x sub/",
    ]);
}

#[test]
fn a_subvolume_is_emptied_removed_and_renamed() {
    assert_same(&[
        "rm -rf sub/a sub/b/* sub/inner/*",
        "rmdir empty; rm -rf sub",
        "rm -rf sub; mkdir sub; echo new > sub/f",
        "rm -rf sub/inner; mkdir sub/inner; mv sub/a sub/inner/",
        "mv sub sub2; mv sub2/a/f sub2/b/g; echo new > sub2/n",
        "mv sub sub2; mv sub2/a/f sub2/b/g",
        "mv empty outer/; touch outer/empty/n; mv sub/inner .; mv inner/f inner/g",
        "mv sub outer/; mv outer/sub/a/f outer/sub/b/g; mv outer/sub/b outer/sub/a/; mv outer o2",
        "mv empty sub/a/; mv sub/inner sub/a/empty/; mv sub/a/f sub/f2; mv sub/a/empty/inner/x sub/a/empty/inner/z",
        "rn empty outer; rm -r outer; rn empty outer; rn sub/inner outer/i",
        "echo more >> sub/f; chmod 600 sub/a/f; truncate -s 3 sub/inner/f; rm sub/b/second; touch sub/b",
        "exec 3>> sub/b/f; rm sub/b/f; echo x >&3; rm -r sub/b",
    ]);
}

/// What was changed in one was answered, and refused after the record: an `rm -rf` left a mixture behind for ever, and what was to be created a
/// job that could not even be rolled back.
#[test]
fn what_is_in_a_read_only_snapshot_is_refused_at_once_as_natively() {
    let Some(disk) = LoopDisk::btrfs() else { return };
    let test_dir = TestDir::at(&disk.path(), SEED).with_subvolumes(&["sub"]);
    let test_dir = test_dir.after("for s in ro r2; do btrfs -q subvolume snapshot -r sub $s; done");
    let try_all = "try() { \"$@\" 2>> said || echo $? >> said; }; ";
    for script in [
        "try touch ro/n ro/f; try mkdir ro/n; try rm -rf ro/a; try sh -c 'echo x >> ro/f'; try truncate -s 0 ro/f; try chmod 600 ro/f ro",
        "try mv ro/f ro/f2; try mv ro/f f2; try mv f ro/f2; try ln ro/f ro/f2; try ln ro/f f3; try ln f ro/f3; try rmdir ro/inner",
        "try setfattr -n user.a -v b ro/f; try touch -d 2001-01-01 ro/f; try chown 1 ro/a; try fallocate -l 9 ro/f; try mv ro/a ro/b/c/",
        "mv ro snap; try mv snap outer/; try mv r2 sub/; try mkdir -p snap/a/b/c; rn snap f; rn snap r2; swap snap r2; swap snap outer",
    ] {
        println!("{script}");
        test_dir.assert_same_as_native(&format!("{SAY}{try_all}{script}"));
    }
}

/// In a snapshot there is an empty directory where a subvolume was, which can be removed, and not even be renamed.
#[test]
fn what_stands_for_a_subvolume_in_a_snapshot_is_removed() {
    let Some(disk) = LoopDisk::btrfs() else { return };
    let test_dir = TestDir::at(&disk.path(), SEED).with_subvolumes(SUBVOLUMES);
    let test_dir = test_dir.after("btrfs -q subvolume snapshot sub rw; btrfs -q subvolume snapshot sub gone");
    let script = "rmdir rw/inner; rm -rf rw/a gone; mkdir rw/inner; touch rw/inner/n; mv rw/b rw/inner/";
    test_dir.assert_same_as_native(script);
}

/// What moves waits where the command may rename, not in the root of the subvolume, which is somebody else's.
#[test]
fn a_user_who_may_not_write_to_the_root_of_a_subvolume_moves_what_is_in_it() {
    let Some(disk) = LoopDisk::btrfs() else { return };
    let seed = format!(
        "mkdir -p sub/mine/a sub/mine/b sub/too own; printf 1 > sub/mine/a/f; printf 2 > sub/mine/b/g
        chown -R {USER} .; chown root sub; chmod 755 sub"
    );
    let test_dir = as_user(TestDir::at(&disk.path(), &seed).with_subvolumes(&["sub", "own"]));
    for script in [
        "mv sub/mine/a/f sub/too/f; mkdir sub/mine/n; mv sub/mine/b/g sub/mine/n/",
        "mv sub/mine/b/g sub/mine/g; mv sub/mine/a sub/too/; mv sub/too/a/f sub/mine/b/f",
        "ln sub/mine/a/f own/f 2>> said || mv sub/mine/a/f own/f; rm -r sub/mine/b",
        "mv own own2; echo n > own2/n; mv sub/mine/a/f sub/mine/b/g; rmdir sub/mine/a",
        "rmdir own",
    ] {
        test_dir.assert_same_as_native(script);
    }
}

/// The root of a btrfs has the inode number 256, as each subvolume has: a directory in which there is one of the same number looks like a loop.
#[test]
fn what_has_one_inode_number_in_two_subvolumes_are_two_things() {
    let Some(disk) = LoopDisk::btrfs() else { return };
    let test_dir = TestDir::at(
        &disk.path(),
        "mkdir -p sub/inner; printf 1 > f; ln f g; printf 2 > sub/f; ln sub/f sub/g; touch sub/inner/x",
    );
    let test_dir = test_dir.with_subvolumes(&["", "sub", "sub/inner"]);
    let number = |name| std::os::unix::fs::MetadataExt::ino(&test_dir.metadata(name));
    assert_eq!(
        (number(""), number("f")),
        (number("sub"), number("sub/f")),
        "the test is about nothing"
    );
    test_dir.assert_same_as_native(
        "find . > \"$OUT/found\"; printf 3 >> sub/g; rm f; cp -a . \"$OUT/copy\"; mv \"$OUT/copy\" copy",
    );
    test_dir.assert_same_as_native("rm -rf sub/inner; mv sub/f sub/h");
}
