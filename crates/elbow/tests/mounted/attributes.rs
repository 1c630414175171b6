//! Rights and extended attributes: what is on the storage after the commit is what a native run leaves.

use crate::ground::Ground;
use crate::ordinary_user::{USER, ground_of};

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
    let ground = Ground::new(ATTRIBUTED);
    ground.assert_same_as_native(
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
    Ground::new(&seed).assert_same_as_native("python3 \"$OUT/steps.py\"");
}

#[test]
fn set_id_bits_are_kept_and_taken_away_as_natively_by_a_user() {
    let seed = format!("cat > \"$OUT/steps.py\" <<'END'\n{STEPWISE}\nEND\nchmod a+r \"$OUT/steps.py\"");
    ground_of(USER, &seed).assert_same_as_native("python3 \"$OUT/steps.py\"");
}
