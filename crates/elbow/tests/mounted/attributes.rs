//! Rights and extended attributes: what is on the storage after the commit is what a native run leaves.

use std::os::unix::fs::MetadataExt;

use crate::ordinary_user::{USER, ground_of};
use crate::test_dir::TestDir;

/// What carries every kind of attribute that programs copy: larger than what is written in one piece, and small.
const ATTRIBUTED: &str = "cd \"$OUT\"; mkdir tree; head -c 5242880 /dev/urandom > tree/large; head -c 300 /dev/urandom > tree/small
    mkdir tree/d tree/closed; printf x > tree/d/f; printf r > tree/closed/readable
    setfattr -n user.origin -v here tree/large tree/small tree/d tree/closed/readable; setfacl -m u:1234:rx,g:55:r tree/large tree/small
    setfacl -d -m u:77:rwx tree/d; setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 tree/large
    setfattr -n trusted.mark -v t tree/large tree/d; chmod 6755 tree/large; chmod 444 tree/closed/readable; chmod 555 tree/closed
    tar --xattrs --xattrs-include='*' --acls -cf tree.tar tree; find tree -exec touch -h -d '2019-05-06 07:08:09.123456789' {} +";

/// `cp -a` of a file of 5 MiB left its extended attributes and its access control list behind.
#[test]
fn attributes_of_large_files_are_kept_by_copying_and_archiving_programs() {
    let test_dir = TestDir::new(ATTRIBUTED);
    test_dir.assert_same_as_native(
        "cp -a \"$OUT/tree\" copied; rsync -aXA \"$OUT/tree/\" synced; rsync -aXA \"$OUT/tree/\" synced
         tar --xattrs --xattrs-include='*' --acls -xf \"$OUT/tree.tar\"; cp -a \"$OUT/tree/large\" over; cp -a \"$OUT/tree/large\" over
         for i in 1 2 3 4; do cp -a \"$OUT/tree/large\" large$i; done; getfattr -hdm - -- */large large* over > \"$OUT/xattrs\"",
    );
}

/// Attributes that are set while the file is open and more follows, or when its permissions forbid it by then.
const STEPWISE: &str = r#"
import os, struct, time
CAP = bytes.fromhex("0100000200040000000000000000000000000000")
MEBIBYTE = b"m" * (1 << 20)
def new(name, mode=0o644):
    fd = os.open(name, os.O_CREAT | os.O_RDWR, mode)
    for i in range(5):
        os.pwrite(fd, MEBIBYTE, i << 20)
    return fd
def rest():
    time.sleep(0.3)  # all of it goes to the storage
root = os.geteuid() == 0
# The size comes last, set-id bits and capabilities stay.
fd = new("sized"); rest(); os.ftruncate(fd, 6 << 20); os.fchmod(fd, 0o6755)
if root: os.setxattr(fd, "security.capability", CAP)
rest(); os.close(fd)
# A write after them takes them away, from a user at least.
fd = new("written"); os.fchmod(fd, 0o6755)
if root: os.setxattr(fd, "security.capability", CAP)
rest(); os.pwrite(fd, b"x", 7 << 20); rest(); os.close(fd)
# So does a cut.
fd = new("cut"); os.fchmod(fd, 0o4755)
if root: os.setxattr(fd, "security.capability", CAP)
rest(); os.ftruncate(fd, 1 << 20); os.close(fd)
# And here they are given again.
fd = new("again"); os.fchmod(fd, 0o4755); rest(); os.ftruncate(fd, 1 << 20); os.pwrite(fd, b"y", 0)
os.fchmod(fd, 0o4755)
if root: os.setxattr(fd, "security.capability", CAP)
os.close(fd)
# An attribute, then no right to set it.
fd = new("readable"); rest(); os.setxattr(fd, "user.a", b"1"); os.setxattr(fd, "user.b", b"2"); os.removexattr(fd, "user.b")
os.fchmod(fd, 0o444); os.close(fd)
fd = os.open("small", os.O_CREAT | os.O_RDWR, 0o644); os.setxattr(fd, "user.a", b"1"); os.fchmod(fd, 0o400); os.close(fd)
os.mkdir("dir"); os.setxattr("dir", "user.a", b"1"); os.chmod("dir", 0o755)
if root:
    os.chmod("dir", 0o555)
    fd = new("owned"); os.setxattr(fd, "security.capability", CAP); os.fchmod(fd, 0o6755); rest(); os.fchown(fd, 7, 8)
    os.close(fd)
    fd = new("given"); os.fchown(fd, 7, 8); os.fchmod(fd, 0o6755); os.setxattr(fd, "security.capability", CAP); os.close(fd)
    fd = os.open("old", os.O_RDWR); os.pwrite(fd, b"new", 0); os.close(fd)
    fd = os.open("old-and-set", os.O_RDWR); os.pwrite(fd, b"new", 0); os.setxattr(fd, "security.capability", CAP); os.close(fd)
def caps(name):
    try: return os.getxattr(name, "security.capability").hex()
    except OSError as e: return e.errno
with open("seen", "w") as out:
    for name in sorted(os.listdir(".")):
        print(name, oct(os.stat(name).st_mode), caps(name), file=out)
"#;

#[test]
fn set_id_bits_and_capabilities_are_kept_and_taken_away_as_natively() {
    let seed = format!(
        "cat > \"$OUT/steps.py\" <<'END'\n{STEPWISE}\nEND\nfor f in old old-and-set; do seq 100 > $f; chmod 4755 $f
         setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 $f; done"
    );
    TestDir::new(&seed).assert_same_as_native("python3 \"$OUT/steps.py\"");
}

#[test]
fn set_id_bits_are_kept_and_taken_away_as_natively_by_a_user() {
    let seed = format!("cat > \"$OUT/steps.py\" <<'END'\n{STEPWISE}\nEND\nchmod a+r \"$OUT/steps.py\"");
    ground_of(USER, &seed).assert_same_as_native("python3 \"$OUT/steps.py\"");
}

/// Directories that make others of what is put into them, and ones that do not. Root and a stranger write there.
const HEIRS: &str = "mkdir acl share plain; chmod 777 . acl plain; chgrp 55 share; chmod 2777 share
    setfacl -d -m u:1000:rwx,g:55:r,o::rwx acl";

/// What is moved before the storage creates it, what is made where it stays, and what root and a stranger make.
const INHERITING: &str = r#"
umask 027
echo secret > plain/f; mv plain/f acl/; mkdir -p plain/t/u; echo x > plain/t/u/f; mv plain/t acl/t; mkdir plain/g; mv plain/g share/
mkdir -m 0 acl/none acl/n2; mkdir -m 700 share/own; mkdir acl/d; echo y > acl/d/f; mv acl/d plain/; mkfifo acl/p; mv acl/p share/
echo z > share/group; mv share/group plain/; ln -s nowhere share/link; mv share/link plain/; ln plain/group acl/hard
cp /bin/true acl/true; chmod 4755 acl/true; mv acl/true plain/; install -d -m 1777 acl/tmp; mv acl/tmp share/
mkdir new; setfacl -d -m u:77:rwx new; chmod 2775 new; mkdir new/a; echo a > new/a/f; mv new/a share/; setfacl -k acl; mkdir acl/plain
echo b > acl/late; setfacl -d -m u:88:r plain; mkdir plain/heir; echo c > plain/heir/f; mv plain/heir acl/heir; echo d > share/e; mv share/e acl/
"#;

/// Another user could read what was moved into a directory with a default ACL; 755 became 2755; 0 became 700.
#[test]
fn what_is_moved_keeps_its_rights_and_inherits_nothing() {
    let stranger = "setpriv --reuid 1000 --regid 1000 --clear-groups sh -ec";
    let script = format!(
        "{INHERITING}\n{stranger} 'umask 022; echo s > share/stranger; mkdir acl/strange plain/strange; echo t > acl/strange/f
             mv acl/strange plain/moved; mv share/stranger plain/'
         # Times aside, each user may read and write inside what they may outside.
         {stranger} 'for f in */* */*/*; do test -r $f && echo r $f; test -w $f && echo w $f; done; true' > may"
    );
    let test_dir = TestDir::new(HEIRS);
    std::fs::set_permissions(test_dir.root(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("open to all");
    let test_dir = test_dir.ignoring(&["may"]);
    test_dir.assert_same_as_native(&script);
    let may = format!(
        "cd \"$WORK\"; {stranger} 'for f in */* */*/*; do test -r $f && echo r $f; test -w $f && echo w $f; done; true'"
    );
    assert_eq!(
        test_dir.native(&may).out.as_bytes(),
        test_dir.content("may"),
        "what a stranger may do after the commit and inside of the job"
    );
    test_dir
        .with_options(&["--publish", "eager"])
        .assert_same_as_native(INHERITING);
}

/// A user's job failed where the default ACL gave a directory less to its owner than the job did in the end.
#[test]
fn a_directory_that_inherits_too_little_for_its_owner_can_be_opened_and_filled() {
    const LITTLE: &str = "setfacl -d -m u::r-x,u:77:rwx,g::r-x,o::---";
    let test_dir = ground_of(USER, &format!("mkdir plain acl; echo old > acl/old; {LITTLE} acl"));
    test_dir.assert_same_as_native(
        "mkdir acl/d; chmod u+w acl/d; mkdir acl/d/e; chmod u+w acl/d/e; echo x > acl/d/e/f; echo y > acl/d/g
         mkdir plain/h; echo z > plain/h/f; mv plain/h acl/; mkdir -p plain/j/k; chmod 755 plain/j; chmod 0 plain/j/k; sleep 0.3
         mkdir plain/j/l; chmod 700 plain/j/k",
    );
    // The same of the directory of the job itself.
    let test_dir = ground_of(USER, &format!("echo old > old; mkdir d; {LITTLE} ."));
    test_dir.assert_same_as_native(
        "mkdir e; chmod u+w e; echo x > e/f; echo y > g; for i in 1 2 3; do echo more >> old; sleep 0.2; done; mv old d/
         ln -s g h; ln g i",
    );
}

/// Through root's mount everybody could read what lies in a directory of mode 700.
#[test]
fn a_mount_shows_nobody_what_they_cannot_reach_below_it() {
    let test_dir = TestDir::new("echo x > f; mkdir d; echo y > d/f; chmod -R a+rX .");
    let stranger = |path: &std::path::Path| {
        let path = path.to_str().expect("UTF-8");
        test_dir.native(&format!(
            "setpriv --reuid 1000 --regid 1000 --clear-groups cat {path}/d/f 2>&1 || true"
        ))
    };
    let open = |path: std::path::PathBuf, mode: u32| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("chmod");
    };
    // Somewhere else than below the root of the ground, which may be closed.
    let elsewhere = tempfile::tempdir().expect("temporary directory");
    open(elsewhere.path().to_owned(), 0o755);
    let (work, mount) = (test_dir.work(""), elsewhere.path());
    let words = ["mount", work.to_str().expect("UTF-8"), mount.to_str().expect("UTF-8")];
    for (mode, sees) in [
        (0o700, false),
        (0o750, false),
        (0o701, false),
        (0o711, true),
        (0o755, true),
    ] {
        open(test_dir.root(), mode);
        let said = test_dir.elbow(&words);
        said.assert_code(0);
        assert_eq!(
            said.err.contains("only root can use the mount"),
            !sees,
            "{mode:o}: {}",
            said.err
        );
        assert_eq!(std::fs::read(mount.join("d/f")).expect("root reads"), b"y\n");
        let cat = stranger(mount);
        assert_eq!(cat.out == "y\n", sees, "{mode:o}: {}", cat.out);
        test_dir.elbow(&["rollback", words[2]]).assert_code(0);
    }
    // Over itself there is the same way to it as before.
    for (mode, sees) in [(0o700, false), (0o755, true)] {
        open(test_dir.root(), mode);
        test_dir.elbow(&["mount", words[1], words[1]]).assert_code(0);
        let cat = stranger(&work);
        assert_eq!(cat.out == "y\n", sees, "{mode:o}: {}", cat.out);
        test_dir.elbow(&["rollback", words[1]]).assert_code(0);
    }
}

/// Maps a file into memory, changes it there, and leaves a process behind that still has it.
const MAPPED: &str = r#"
import mmap, os, sys, time
fd = os.open("mapped", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 16 << 20)
old = os.open("old", os.O_RDWR); size = os.fstat(old).st_size
said, say = os.pipe()
if os.fork() == 0:
    new, changed = mmap.mmap(fd, 16 << 20), mmap.mmap(old, size)
    for at in range(0, 16 << 20, 4096): new[at:at + 4096] = b"n" * 4096
    for at in range(0, size, 4096): changed[at] = ord("c")
    os.close(fd); os.close(old); os.write(say, b"!")
    if sys.argv[1] == "stays":
        for fd in range(3): os.close(fd)
        time.sleep(20)
    os._exit(0)
os.read(said, 1)
"#;

/// Of what a process that the command left behind had written to mapped memory, nothing was stored in 19 of 25 jobs.
#[test]
fn what_processes_left_behind_have_written_to_mapped_memory_is_stored() {
    let test_dir = TestDir::new(&format!(
        "cat > \"$OUT/map.py\" <<'END'\n{MAPPED}\nEND\nhead -c 4194304 /dev/zero > old"
    ));
    for round in 0..12 {
        test_dir.restore();
        let way = if round % 3 == 0 { "ends" } else { "stays" };
        test_dir
            .job(&[], &format!("python3 \"$OUT/map.py\" {way}"))
            .assert_code(0);
        let new = test_dir.content("mapped");
        assert_eq!(new.len(), 16 << 20);
        let lost = new.chunks(4096).filter(|page| page[0] != b'n').count();
        let old = test_dir.content("old");
        let unchanged = old.chunks(4096).filter(|page| page[0] != b'c').count();
        assert_eq!(
            (lost, unchanged),
            (0, 0),
            "pages lost of a process that {way}, round {round}"
        );
    }
}

/// What was written in memory before a time was set was stored after it: the file got the time of its storing.
#[test]
fn a_time_that_is_set_after_a_write_in_memory_stays() {
    let script = r#"
import mmap, os
for name, by_name in ("by-descriptor", False), ("by-name", True), ("new", True):
    fd = os.open(name, os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 65536)
    mapped = mmap.mmap(fd, 65536)
    mapped[4096] = 1
    if by_name: os.close(fd)
    os.utime(name if by_name else fd, (1100000000, 1200000000))
    print(int(os.stat(name).st_mtime), mapped[4096])
"#;
    let test_dir = TestDir::new(&format!(
        "cat > \"$OUT/map.py\" <<'END'\n{script}\nEND\nhead -c 65536 /dev/zero > by-descriptor; cp by-descriptor by-name"
    ));
    let told = test_dir.job(&[], "python3 \"$OUT/map.py\"");
    told.assert_code(0);
    assert_eq!(told.out.trim(), ["1200000000 1"; 3].join("\n"));
    for name in ["by-descriptor", "by-name", "new"] {
        assert_eq!(test_dir.content(name)[4096], 1, "{name}");
        let stored = std::fs::metadata(test_dir.work(name)).expect("what was written to");
        assert_eq!(stored.mtime(), 1_200_000_000, "{name}");
    }
}

/// An object of ext4 has room for 4 kB of them: what was beyond was accepted, and the job rolled back.
#[test]
fn extended_attributes_beyond_the_room_for_them_are_refused_as_natively() {
    let script = "for size in 100 900 2000 3900 5000 30000; do printf x > f$size
            if setfattr -n user.a -v \"$(head -c $size /dev/zero | tr '\\0' v)\" f$size 2> err$size; then echo $size; fi; done > had
        touch many; for n in $(seq 60); do if setfattr -n user.name$n -v \"$(head -c 100 /dev/zero | tr '\\0' w)\" many 2>/dev/null; then echo $n; fi
        done > numbers; setfattr -x user.name1 many; setfattr -n user.again -v short many
        setfattr -n user.a -v \"$(head -c 5000 /dev/zero | tr '\\0' v)\" old 2> err-old || echo refused > old-refused";
    let test_dir = TestDir::new("printf x > old; setfattr -n user.old -v 1 old");
    test_dir.restore();
    test_dir.native(script).assert_code(0);
    let numbers = test_dir.content("numbers");
    if numbers.ends_with(b"60\n") {
        return crate::test_dir::unavailable(
            "a file system with little room for extended attributes below the temporary directory",
        );
    }
    test_dir.ignoring(&["numbers"]).assert_same_as_native(script);
}

/// The same for a user's job, and for a mount that is committed while a process has it mapped.
#[test]
fn mapped_memory_is_stored_of_a_users_job_and_of_a_mount() {
    let seed = format!(
        "cat > \"$OUT/map.py\" <<'END'\n{MAPPED}\nEND\nhead -c 4194304 /dev/zero > old; chmod a+r \"$OUT/map.py\"; mkdir \"$OUT/mount\""
    );
    let assert_stored = |test_dir: &TestDir, note: &str| {
        let first_bytes = |name: &str| {
            test_dir
                .content(name)
                .chunks(4096)
                .map(|page| page[0])
                .collect::<Vec<_>>()
        };
        assert_eq!(first_bytes("mapped"), vec![b'n'; 4096], "{note}");
        assert_eq!(first_bytes("old"), vec![b'c'; 1024], "{note}");
        // What is written in memory takes no rights away; the job's own writing to the old file would.
        let old = std::fs::metadata(test_dir.work("old")).expect("what was written to");
        assert_eq!(old.mode() & 0o7777, 0o6755, "{note}");
    };
    let test_dir = ground_of(USER, &seed);
    for _ in 0..4 {
        test_dir.native("chmod 6755 old").assert_code(0);
        test_dir
            .job(&[], "rm -f mapped; python3 \"$OUT/map.py\" stays")
            .assert_code(0);
        assert_stored(&test_dir, "a user's job");
    }
    let test_dir = TestDir::new(&seed);
    for _ in 0..4 {
        test_dir.restore();
        let script = format!(
            "chmod 6755 old; \"{elbow}\" mount \"$WORK\" \"$OUT/mount\"; cd \"$OUT/mount\"; python3 \"$OUT/map.py\" stays; cd /
             \"{elbow}\" commit \"$OUT/mount\"",
            elbow = env!("CARGO_BIN_EXE_elbow")
        );
        test_dir.native(&script).assert_code(0);
        assert_stored(&test_dir, "a mount");
    }
}
