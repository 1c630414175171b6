//! What programs may ask of a file system: links, attributes, holes, maps, pipes, locks, and every error.

use std::os::unix::fs::MetadataExt;

use crate::loop_disk::LoopDisk;
use crate::test_dir::TestDir;

/// Runs a Python program both ways and compares the trees.
fn assert_python_same(seed: &str, program: &str) -> TestDir {
    let test_dir = TestDir::new(seed);
    test_dir.assert_same_as_native(&format!(
        "/usr/bin/python3 - <<'PYTHON'\nimport os, errno\n{program}\nPYTHON"
    ));
    test_dir
}

#[test]
fn hard_links_share_content_and_attributes() {
    let test_dir = TestDir::new("printf old > old; mkdir d; ln old d/second");
    test_dir.assert_same_as_native(
        "printf a > new; ln new d/new2; printf b >> d/new2; chmod 600 new; stat -c '%h %a %s' new d/new2 > seen
         ln old third; printf more >> third; chmod 640 d/second; rm old; stat -c '%h %a %s' third d/second >> seen
         ln new gone; rm gone; ln d/second e; mv e f; test f -ef third",
    );
}

#[test]
fn symbolic_links_are_kept_as_they_are() {
    let test_dir = TestDir::new("mkdir d; printf x > d/f; ln -s d/f old");
    test_dir.assert_same_as_native(
        "ln -s d/f new; cat new old > seen; ln -sfn d old; cat old/f >> seen; ln -s nowhere dangling
         printf y > old/g; ln -s loop loop; cat loop 2>> seen || true; touch -h -d @1234567890.5 new; ln -s \"$PWD/d\" absolute",
    );
}

#[test]
fn extended_attributes_are_kept() {
    let test_dir =
        TestDir::new("printf x > old; setfattr -n user.kept -v 1 old; setfattr -n user.lost -v 2 old; mkdir od");
    test_dir.assert_same_as_native(
        "setfattr -n user.a -v new old; setfattr -x user.lost old; setfattr -n user.kept -v 3 old
         printf y > new; setfattr -n user.b -v 0x000102ff new; setfattr -n user.empty new; mkdir nd; setfattr -n user.d -v d nd od
         cp --preserve=all new copy; mv new moved; getfattr -d -m user -e hex old moved copy nd od > seen
         setfattr -x user.none moved 2>> seen || true",
    );
}

#[test]
fn access_control_lists_are_kept_and_inherited() {
    let test_dir = TestDir::new("mkdir d; setfacl -m d:u:1234:rwx,u:1234:rx d; printf x > old");
    test_dir.assert_same_as_native(
        "printf y > d/f; mkdir d/sub; printf z > d/sub/f; setfacl -m u:77:r old; mkdir n; setfacl -m d:g:55:rwx n; printf w > n/f
         getfacl -n d d/f d/sub d/sub/f old n n/f > seen",
    );
}

#[test]
fn owners_modes_and_inherited_groups_are_kept() {
    let test_dir = TestDir::new("mkdir shared; chown 0:1234 shared; chmod 2775 shared; printf x > old");
    test_dir.assert_same_as_native(
        "printf a > shared/f; mkdir shared/d; printf b > shared/d/g; chown 77:88 old; printf c > n; chown 1:2 n; chmod 4711 n
         mkdir sticky; chmod 1777 sticky; umask 077; printf d > private; mkdir private.d; umask 0; printf e > open; mkdir open.d",
    );
}

#[test]
fn sparse_files_stay_sparse() {
    let test_dir =
        TestDir::new("truncate -s 100M old; printf tail >> old; printf head | dd of=old conv=notrunc status=none");
    test_dir.assert_same_as_native(
        "truncate -s 200M new; printf x | dd of=new bs=1 seek=150000000 conv=notrunc status=none
         cp --sparse=always old copy; printf y | dd of=old bs=1 seek=50000000 conv=notrunc status=none
         tail -c 10 old | cksum > seen; dd if=new bs=1 skip=149999990 count=20 status=none | cksum >> seen",
    );
    for (name, size) in [("new", 200 << 20), ("old", (100 << 20) + 4), ("copy", (100 << 20) + 4)] {
        let metadata = test_dir.metadata(name);
        assert_eq!(metadata.size(), size, "{name}");
        let allocated_bytes = metadata.blocks() * 512;
        assert!(
            allocated_bytes < 4 << 20,
            "{name} takes {allocated_bytes} bytes on the storage"
        );
    }
}

/// A job said that a file which is one hole takes all its blocks, so cp(1) and tar(1) did not look for holes and read 40 GB of zeros.
#[test]
fn holes_count_as_no_blocks() {
    let test_dir = TestDir::new("truncate -s 100M old; head -c 3000000 /dev/urandom > dense");
    test_dir.restore();
    let script = "printf y | dd of=old bs=1 seek=50000000 conv=notrunc status=none
        printf z | dd of=dense bs=1 seek=5000 conv=notrunc status=none
        truncate -s 100M new; printf x >> new; head -c 2000000 /dev/urandom > full; fallocate -l 1000000 reserved
        look() { stat -c '%n %b' old new dense full reserved; }
        look; cp old copy; sync full; look; rm copy";
    let run = test_dir.job(&[], script);
    run.assert_code(0);
    let looks: Vec<(&str, u64)> = run
        .out
        .lines()
        .map(|line| line.split_once(' ').expect("a name and a number"))
        .map(|(name, blocks)| (name, blocks.parse::<u64>().expect("a number") * 512))
        .collect();
    assert_eq!(looks.len(), 10, "{looks:?}");
    for (name, bytes) in looks {
        let expected = match name {
            "dense" => 3_000_000..3_100_000,
            "full" => 2_000_000..2_100_000,
            "reserved" => 1_000_000..1_100_000,
            _ => 1..1_000_000,
        };
        assert!(expected.contains(&bytes), "{name}: {bytes}");
    }
}

#[test]
fn fallocate_reserves_extends_and_punches() {
    let test_dir = TestDir::new("seq 1 200000 > old; seq 1 200000 > old2");
    test_dir.assert_same_as_native(
        "fallocate -l 1000000 a; printf x >> a; fallocate -n -l 3000000 a; fallocate -o 500000 -l 1000000 a
         seq 1 200000 > new; fallocate -p -o 5000 -l 300000 new; fallocate -p -o 5000 -l 300000 old
         fallocate -z -o 100 -l 70000 new; fallocate -z -o 100 -l 70000 old2; cksum a new old old2 > seen",
    );
}

/// What was preallocated was checked and counted, and nothing was reserved on the storage: a program that had made sure of its room had none. New and
/// old files, at once and when the storage has had its share already; what is cut and punched is given back.
#[test]
fn what_is_preallocated_is_reserved_after_the_commit() {
    let Some(disk) = LoopDisk::new(128 << 20) else { return };
    let test_dir = TestDir::at(
        &disk.path(),
        "for p in 0 0.4; do for n in length keep written cut same punched regrown appended zeroed; do head -c 294912 /dev/urandom > old-$n-$p; done
         for n in filled beyond; do truncate -s 1M sparse-$n-$p; printf tail >> sparse-$n-$p; done; done",
    );
    let script = "for p in 0 0.4; do for o in new old; do f() { echo $o-$1-$p; }
         fallocate -l 1M $(f length); : >> $(f keep); fallocate -n -o 1M -l 1M $(f keep)
         fallocate -l 1M $(f written); sleep $p; head -c 65536 /dev/urandom | dd of=$(f written) bs=64K seek=2 conv=notrunc status=none
         fallocate -l 1M $(f cut); sleep $p; truncate -s 256K $(f cut)
         printf x >> $(f same); fallocate -n -o 1M -l 2M $(f same); sleep $p; truncate -s $(stat -c %s $(f same)) $(f same)
         fallocate -l 1M $(f punched); sleep $p; fallocate -p -o 256K -l 256K $(f punched)
         fallocate -l 1M $(f regrown); sleep $p; truncate -s 256K $(f regrown); sleep $p; truncate -s 2M $(f regrown)
         head -c 65536 /dev/urandom >> $(f appended); fallocate -n -l 2M $(f appended); sleep $p; head -c 65536 /dev/urandom >> $(f appended)
         head -c 262144 /dev/urandom >> $(f zeroed); sleep $p; fallocate -z -o 64K -l 128K $(f zeroed)
         done; fallocate -l 512K sparse-filled-$p; fallocate -n -l 3M sparse-beyond-$p; done; sync -f .";
    let look = || {
        let mut files: Vec<_> = std::fs::read_dir(test_dir.work(""))
            .expect("listing")
            .flatten()
            .collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        let seen = files.iter().map(|file| {
            let metadata = file.metadata().expect("a file");
            (file.file_name(), metadata.size(), metadata.blocks())
        });
        seen.collect::<Vec<_>>()
    };
    test_dir.native(script).assert_code(0);
    let expected = look();
    test_dir.restore();
    let before = look();
    test_dir.job(&[], script).assert_code(0);
    let found = look();
    assert_eq!(expected.len(), 40);
    let differ: Vec<_> = expected.iter().zip(&found).filter(|(a, b)| a != b).collect();
    assert!(differ.is_empty(), "natively, and in a job: {differ:#?}");
    assert!(
        before.iter().all(|file| !expected.contains(file)),
        "each file has changed"
    );
}

/// A disk that is too full for what is to be reserved is told of before the commit, or takes it back with all that was reserved.
#[test]
fn what_cannot_be_preallocated_fails_the_job_and_leaves_nothing_reserved() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), "truncate -s 8M old; printf x > other");
    let taken = || -> u64 {
        ["old", "other"]
            .iter()
            .map(|name| test_dir.metadata(name).blocks())
            .sum()
    };
    let (before, blocks) = (test_dir.snapshot(), taken());
    /// Where ext4 has noted that the file was in many pieces.
    const OF_THE_FILE_SYSTEM: u64 = 2;
    for script in [
        // What is open is not stored yet: none of them takes the room of another before all have asked.
        "exec 3> new 4> more 5> most; fallocate -l 25M new; fallocate -l 25M more; fallocate -l 25M most",
        "fallocate -n -l 25M old; fallocate -n -l 45M other",
    ] {
        let run = test_dir.job(&["--no-keep"], script);
        run.assert_code(125);
        assert!(run.err.contains("No space left"), "{}", run.err);
        test_dir.assert_equals(&before);
        test_dir.assert_no_staging();
        let left = taken();
        assert!(
            (blocks..=blocks + OF_THE_FILE_SYSTEM).contains(&left),
            "{left} blocks after {script}, not {blocks}"
        );
    }
}

#[test]
fn holes_are_found() {
    assert_python_same(
        "truncate -s 1M old; printf x | dd of=old bs=1 seek=600000 conv=notrunc status=none",
        "f = os.open('new', os.O_RDWR | os.O_CREAT)
os.pwrite(f, b'd' * 65536, 1 << 20); os.ftruncate(f, 4 << 20)
o = os.open('old', os.O_RDWR)
with open('seen', 'w') as seen:
    print(os.lseek(f, 0, os.SEEK_DATA), os.lseek(f, 1 << 20, os.SEEK_HOLE), file=seen)
    print(os.lseek(o, 0, os.SEEK_DATA) // 65536, os.lseek(o, 0, os.SEEK_HOLE), file=seen)
    for fd, at in ((f, 4 << 20), (f, 3 << 20), (o, 1 << 20)):
        try: print(os.lseek(fd, at, os.SEEK_DATA), file=seen)
        except OSError as e: print(errno.errorcode[e.errno], file=seen)",
    );
}

#[test]
fn shared_memory_maps_are_written_back() {
    let test_dir = assert_python_same(
        "head -c 300000 /dev/zero > old; head -c 300000 /dev/zero > unsynced",
        "import mmap
for name in ('old', 'unsynced', 'new'):
    with open(name, 'r+b' if os.path.exists(name) else 'w+b') as f:
        if name == 'new': f.truncate(300000)
        m = mmap.mmap(f.fileno(), 300000)
        for at in range(0, 300000, 1000): m[at:at + 4] = b'abcd'
        if name != 'unsynced': m.flush()
        m.close()
with open('old', 'rb') as f, open('copy', 'wb') as g:
    g.write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])",
    );
    assert_eq!(&test_dir.content("unsynced")[299_000..299_004], b"abcd");
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    assert_python_same(
        "printf 'old content' > old; mkdir d; printf replaced > victim",
        "seen = open('seen', 'w')
for name in ('new', 'old'):
    f = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(f, b'12345'); os.unlink(name)
    os.write(f, b'678'); os.fchmod(f, 0o600)
    print(name, os.pread(f, 100, 0), os.fstat(f).st_nlink, os.fstat(f).st_size, os.path.exists(name), file=seen)
    g = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL); os.write(g, b'another'); os.close(g)
    print(os.pread(f, 100, 0), file=seen); os.close(f)
v = os.open('victim', os.O_RDONLY); open('w', 'w').write('winner'); os.rename('w', 'victim')
print(os.read(v, 100), open('victim').read(), file=seen)
d = os.open('d', os.O_RDONLY); os.rmdir('d'); print(os.listdir(d), file=seen)
try: os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=d)
except OSError as e: print(errno.errorcode[e.errno], file=seen)",
    );
}

#[test]
fn directories_are_renamed_with_all_below_them() {
    let test_dir = TestDir::new(
        "mkdir -p old/a/b other empty; for i in 1 2 3; do seq $i 99 > old/a/b/$i; done; printf x > other/f",
    );
    test_dir.assert_same_as_native(
        "mkdir -p new/x/y; printf 1 > new/x/y/f; mv new renamed; printf 2 > renamed/x/y/g; mv renamed/x x; mv x/y/f x/f
         mv old moved; printf changed >> moved/a/b/1; rm moved/a/b/2; printf new > moved/a/b/4; mv moved/a/b other/b; mv other/b/3 .
         mv -T renamed empty; mkdir old; printf again > old/f; cd other/b; mv ../../other ../../last; pwd -P > \"$OUT/pwd\"; printf y > z",
    );
}

#[test]
fn renames_exchange_and_refuse_as_asked() {
    assert_python_same(
        "printf old > o; mkdir od; printf x > od/f",
        "import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def rename(a, b, flags):
    r = libc.renameat2(-100, a.encode(), -100, b.encode(), flags)
    return 'ok' if r == 0 else errno.errorcode[ctypes.get_errno()]
open('n', 'w').write('new'); os.mkdir('nd'); open('nd/g', 'w').write('y')
with open('seen', 'w') as seen:
    for a, b, flags in (('n', 'o', 1), ('o', 'fresh', 1), ('n', 'fresh', 2), ('od', 'nd', 2), ('nd', 'n', 2), ('none', 'n', 2),
                        ('n', 'none', 2), ('od', 'od/inside', 2), ('n', 'fresh', 3)):
        print(a, b, flags, rename(a, b, flags), file=seen)",
    );
}

/// It was: `O_RDONLY | O_TRUNC` was refused with ETXTBSY, and the file was empty and the program died.
#[test]
fn a_running_program_is_neither_written_nor_cut() {
    assert_python_same(
        "cp /usr/bin/sleep old",
        "import shutil, subprocess, time
shutil.copy('/usr/bin/sleep', 'new')
with open('seen', 'w') as seen:
    for name in ('old', 'new'):
        program = subprocess.Popen(['./' + name, '60'])
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_RDONLY):
            try:
                answer = 'ok %d' % (os.open(name, flags) > 0)
            except OSError as error:
                answer = errno.errorcode[error.errno]
            print(name, flags, answer, os.stat(name).st_size, file=seen)
        time.sleep(0.1)
        print('runs:', program.poll(), file=seen)
        program.kill(); program.wait()",
    );
}

#[test]
fn pipes_sockets_and_devices_are_made() {
    let test_dir = TestDir::new("mkfifo old.fifo");
    test_dir.assert_same_as_native(
        "mkfifo -m 640 p; (cat p > out) & echo through > p; wait; (cat old.fifo > out2) & echo again > old.fifo; wait
         mknod null c 1 3; mv p q; /usr/bin/python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"sock\")'
         stat -c '%F %a %t %T' q null sock old.fifo > seen; touch -d @9 q old.fifo",
    );
    assert_eq!(test_dir.content("out"), b"through\n");
}

#[test]
fn locks_hold_between_the_processes_of_a_job() {
    let test_dir = TestDir::new("printf x > old");
    test_dir.assert_same_as_native(
        "for f in old new; do flock $f sh -c \"flock -n $f true; echo \\$?\" >> seen; done
         printf 0 > n; for p in 1 2 3; do (for i in $(seq 20); do flock lock sh -c 'echo $(($(cat n) + 1)) > n'; done) & done; wait",
    );
    assert_eq!(test_dir.content("n"), b"60\n");
    assert_python_same(
        "",
        "import fcntl
f = open('f', 'w+'); fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
if os.fork() == 0:
    g = open('f', 'r+'); r = []
    for start in (5, 10):
        try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start); r.append('granted')
        except OSError as e: r.append(errno.errorcode[e.errno].replace('EACCES', 'EAGAIN'))
    open('seen', 'w').write(repr(r)); os._exit(0)
os.wait()",
    );
}

#[test]
fn processes_append_to_one_file_without_losing_lines() {
    let test_dir = TestDir::new("printf 'old\\n' > log");
    let script = "for p in 1 2 3 4; do (for i in $(seq 200); do echo line-$p-$i >> log; done) & done; wait; sort log > s; mv s log";
    test_dir.assert_same_as_native(script);
    assert_eq!(
        test_dir.content("log").iter().filter(|byte| **byte == b'\n').count(),
        801
    );
}

#[test]
fn times_are_what_was_set_and_seen() {
    assert_python_same(
        "printf x > old; printf y > read; mkdir d; printf z > d/f",
        "def ns(p): s = os.stat(p); return (s.st_atime_ns, s.st_mtime_ns)
open('new', 'w').write('x'); os.utime('new', ns=(1, 2_000_000_003)); os.utime('old', ns=(10**18 + 7, 10**18 + 9))
os.utime('d', ns=(5, 6_000_000_007)); os.mkdir('e'); open('e/f', 'w').close(); os.utime('e', ns=(7, 8))
os.utime('e/f', ns=(-10**9 * 3600, 4 * 10**18)); os.rename('new', 'e/g'); os.utime('e', ns=(7, 9))
with open('seen', 'w') as seen:
    for p in ('e/g', 'old', 'd', 'e', 'e/f'): print(p, ns(p), file=seen)
before = os.stat('e').st_mtime_ns; open('e/f', 'a').write('more'); assert os.stat('e').st_mtime_ns == before
before = os.stat('d').st_mtime_ns; os.unlink('d/f'); assert os.stat('d').st_mtime_ns > before
c = os.stat('old').st_ctime_ns; os.chmod('old', 0o600); assert os.stat('old').st_ctime_ns > c",
    );
}

/// Every error that can be known is the one that the file system below gives.
#[test]
fn errors_are_those_of_the_file_system_below() {
    let test_dir = assert_python_same(
        "mkdir -p od/sub; printf x > of; ln -s loop loop; ln -s of osl; mkdir full; printf x > full/f",
        "def call(name, *a, **k):
    try: r = getattr(os, name)(*a, **k); print(name, a, 'ok', file=seen); return r
    except OSError as e: print(name, [str(x)[:20] for x in a], errno.errorcode[e.errno], file=seen)
seen = open('seen', 'w'); long = 'n' * 256; fits = 'n' * 255
os.mkdir('nd'); os.mkdir('nd/sub'); open('nf', 'w').write('x'); os.mkdir('nfull'); open('nfull/f', 'w').close(); os.symlink('nloop', 'nloop')
for d, f, full, loop in (('od', 'of', 'full', 'loop'), ('nd', 'nf', 'nfull', 'nloop')):
    for p in ('none', d, f, f + '/x', loop, loop + '/x', long, fits, 'none/x', d + '/.', d + '/..', ''):
        call('stat', p); call('mkdir', p); call('unlink', p); call('readlink', p); call('listdir', p)
        call('open', p, os.O_RDONLY | os.O_DIRECTORY); call('open', p, os.O_WRONLY); call('open', p, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        call('open', p, os.O_RDONLY | os.O_NOFOLLOW)
        if p not in (d, d + '/..', d + '/.', ''): call('rmdir', p); call('link', f, p); call('symlink', 't', p); call('mkfifo', p)
        call('truncate', p, 10); call('truncate', p, -1)
    for a, b in ((d, d + '/in'), (d, f), (f, d), (f, f), (d, d), (d, full), (f, long), ('none', 'x'), (f, 'none/x'),
                 (d + '/sub', f + '/x'), (f, full), (loop, 'renamed-' + loop), (full, full + '/f/x')):
        call('rename', a, b)
    call('rename', d + '/sub', d + '/sub2'); call('mkdir', d + '/into'); call('rename', full, d + '/into'); call('rename', d + '/into', full)
    call('rmdir', full); call('rmdir', d); call('rmdir', '.'); call('unlink', full); call('link', full, 'lfull'); call('chmod', 'none', 0)
    for key, flags in (('user.a', os.XATTR_REPLACE), ('user.a', os.XATTR_CREATE), ('user.a', os.XATTR_CREATE), ('bogus', 0), ('user.', 0), ('user.' + 'k' * 251, 0)):
        call('setxattr', full, key, b'v', flags)
    call('getxattr', full, 'user.none'); call('removexattr', full, 'user.none')
    r = os.open(full + '/f', os.O_RDONLY); call('write', r, b'x'); call('ftruncate', r, 1); call('pread', r, 1, -1); os.close(r)
    call('symlink', 't' * 4096, 'toolong'); call('symlink', '', 'emptytarget')",
    );
    let seen = String::from_utf8(test_dir.content("seen")).expect("text");
    for errno in [
        "ENOENT",
        "EEXIST",
        "ENOTDIR",
        "EISDIR",
        "ENOTEMPTY",
        "ENAMETOOLONG",
        "ELOOP",
        "EINVAL",
        "ENODATA",
        "EBADF",
    ] {
        assert!(seen.contains(errno), "the list of calls provokes no {errno}:\n{seen}");
    }
}

#[test]
fn a_directory_is_listed_while_it_changes() {
    assert_python_same(
        "mkdir old; cd old; seq 1 3000 | xargs touch; cd ..",
        "def sweep(d):
    n = 0
    with os.scandir(d) as entries:
        for e in entries:
            assert e.is_file(), e; os.unlink(e.path); n += 1
    return n
os.mkdir('new')
for i in range(3000): open(f'new/{i}', 'w').close()
assert sorted(os.listdir('new')) == sorted(str(i) for i in range(3000))
print(sweep('old'), sweep('new'), len(os.listdir('old')), len(os.listdir('new')), file=open('seen', 'w'))
os.rmdir('old')",
    );
}

#[test]
fn programs_that_were_just_built_run() {
    let test_dir = TestDir::new("printf '#!/bin/sh\\necho old\\n' > old.sh; chmod 755 old.sh");
    test_dir.assert_same_as_native(
        "printf 'int puts(const char*);int main(void){puts(\"built\");return 0;}' > p.c; cc -o p p.c; ./p > seen; ./old.sh >> seen
         printf '#!/bin/sh\\necho new\\n' > new.sh; chmod +x new.sh; ./new.sh >> seen; cp p q; rm p; ./q >> seen; mv q r; ./r >> seen",
    );
}
