//! Test number one, and its relatives: a file written under one name and moved to another at once.
//!
//! An eager file system that forgets what is queued under the old name loses the content and says nothing.

use crate::test_dir::TestDir;

#[test]
fn a_file_moved_and_copied_at_once_keeps_its_content() {
    let test_dir = TestDir::new("");
    test_dir.assert_same_as_native("printf x > r.tmp; mv r.tmp r; cp r r2");
    assert_eq!(test_dir.content("r2"), b"x");
}

#[test]
fn a_lock_file_replaces_an_old_file_as_git_does() {
    let test_dir = TestDir::new("printf old > config");
    test_dir
        .assert_same_as_native("printf new > config.lock; mv config.lock config; cat config > seen; cp config copy");
    assert_eq!(test_dir.content("seen"), b"new");
    assert_eq!(test_dir.content("config"), b"new");
}

#[test]
fn an_old_file_is_copied_then_replaced() {
    let test_dir = TestDir::new("printf old > a");
    test_dir.assert_same_as_native("cp -p a a.bak; printf new > a.tmp; mv a.tmp a; mv a.bak b; ln b c; rm b");
}

#[test]
fn names_are_swapped_through_a_third() {
    let test_dir = TestDir::new("printf 1 > a; printf 2 > b; mkdir d; printf 3 > d/x");
    test_dir.assert_same_as_native("mv a t; mv b a; mv t b; mv d e; mkdir d; mv e/x d/y; mv b d/b");
}

#[test]
fn the_same_name_is_made_and_removed_many_times() {
    let test_dir = TestDir::new("printf old > n; mkdir -p o; printf keep > o/k");
    test_dir.assert_same_as_native(
        "for i in 1 2 3 4 5 6 7 8 9; do rm n; mkdir n; printf $i > n/f; rm -r n; ln -s $i n; rm n; printf $i > n; done
         rm -r o; mkdir o; printf new > o/k",
    );
}

#[test]
fn an_old_file_is_appended_to_edited_and_truncated() {
    let test_dir = TestDir::new("seq 1 100000 > log; cp log edited; cp log short; cp log emptied; cp log regrown");
    test_dir.assert_same_as_native(
        "echo end >> log
         printf XYZ | dd of=edited bs=1 seek=300000 conv=notrunc status=none
         truncate -s 1000 short; printf tail >> short
         : > emptied
         truncate -s 10 regrown; truncate -s 70000 regrown
         cksum log edited short emptied regrown > seen",
    );
}

#[test]
fn a_job_sees_what_an_earlier_job_committed() {
    let test_dir = TestDir::new("");
    test_dir.job(&[], "mkdir d; printf one > d/f").assert_code(0);
    test_dir
        .job(&[], "printf two >> d/f; mv d e; cat e/f > seen")
        .assert_code(0);
    assert_eq!(test_dir.content("e/f"), b"onetwo");
    assert_eq!(test_dir.content("seen"), b"onetwo");
}
