//! Programs that unpack and copy trees: tar, unzip, rsync, cp, rm.

use crate::test_dir::TestDir;

/// A tree with what archives hold: modes, old times, links of both kinds, empty and larger files, odd names.
const TREE: &str = r#"
    mkdir -p "$OUT/tree/dir/sub" "$OUT/tree/locked" "$OUT/tree/shared" "$OUT/tree/empty"
    cd "$OUT/tree"
    for i in $(seq 1 300); do mkdir -p src/$((i % 17)); seq $i $((i * 20)) > src/$((i % 17))/file$i; done
    : > empty-file; head -c 3000000 /dev/urandom > large
    printf '#!/bin/sh\necho hello\n' > script; chmod 755 script; chmod 400 src/1/file1; chmod 4755 large
    ln large dir/hard; ln -s ../large dir/soft; ln -s /nonexistent/target dangling; ln -s . dir/loop
    printf x > "a name with spaces, 'quotes' and \\backslashes"; printf x > "$(printf 'latin1-\351')"
    printf x > "$(printf 'n%.0s' $(seq 255))"
    printf x > locked/inside; chmod 555 locked; chmod 2775 shared
    find . -exec touch -h -d '2019-05-06 07:08:09.123456789' {} +
    cd "$WORK"
"#;

#[test]
fn tar_extracts_as_without_a_job() {
    let test_dir = TestDir::new(&format!(
        "{TREE} tar -C \"$OUT\" -cf \"$OUT/tree.tar\" --format=posix tree"
    ));
    test_dir.assert_same_as_native("tar xpf \"$OUT/tree.tar\"");
}

#[test]
fn tar_extracts_over_an_old_tree() {
    let test_dir = TestDir::new(&format!(
        "{TREE} tar -C \"$OUT\" -cf \"$OUT/tree.tar\" --format=posix tree; mkdir -p tree/src/1; printf old > tree/src/1/file1; printf mine > tree/mine; ln -s mine tree/large"
    ));
    test_dir.assert_same_as_native("tar xpf \"$OUT/tree.tar\"");
}

#[test]
fn tar_packs_what_the_job_has_just_made() {
    let test_dir = TestDir::new("seq 1 5000 > old");
    test_dir.assert_same_as_native(
        "mkdir d; for i in $(seq 50); do seq $i > d/$i; done; touch -d @1000000000 d/* d
         tar c --sort=name --mtime=@0 d old > t.tar; rm -r d; tar xf t.tar; cksum t.tar > seen",
    );
}

#[test]
fn unzip_extracts_with_symbolic_links() {
    let test_dir = TestDir::new(&format!("{TREE} cd \"$OUT\"; zip -qry tree.zip tree; cd \"$WORK\""));
    test_dir.assert_same_as_native("unzip -q \"$OUT/tree.zip\"");
}

#[test]
fn a_second_rsync_transfers_nothing() {
    let test_dir = TestDir::new(TREE);
    test_dir.assert_same_as_native(
        "rsync -aH \"$OUT/tree/\" copy; rsync -aHi \"$OUT/tree/\" copy > second; test ! -s second",
    );
    let after = test_dir.native("rsync -aHi \"$OUT/tree/\" copy");
    after.assert_code(0);
    assert_eq!(after.out, "", "after the commit rsync found something to do");
}

#[test]
fn cp_and_rm_work_on_whole_trees() {
    let test_dir = TestDir::new(&format!("{TREE} cp -a \"$OUT/tree\" old; cp -a \"$OUT/tree\" doomed"));
    test_dir
        .assert_same_as_native("cp -a old copy; rm -rf doomed; cp -al copy linked; rm -rf copy/src; mv old/dir moved");
}
