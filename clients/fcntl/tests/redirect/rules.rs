//! One rule of fcntl(2), flock(2) and their like at a time: a Python program says what it sees, with the kernel's locks and
//! with the service's.

use crate::test_dir::{TestDir, complained, said};

/// What all programs begin with: `tries(code)` runs code in a fresh process, and says whether it got its lock.
const BEGIN: &str = r#"
import fcntl, os, sys, time, struct, signal, socket, threading, subprocess, errno, re
F = os.path.abspath("f")
open(F, "a").close()
def fresh(code):
    code = "import fcntl, os\nf = open(%r, 'r+')\n%s" % (F, code)
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0
def lockf_is_free(): return fresh("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)")
def flock_is_free(): return fresh("fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)")
def soon(what):
    # The end of a session whose sockets others had reaches the service a moment later.
    for _ in range(500):
        if what(): return True
        time.sleep(0.02)
    return False
def waiting():
    # How many wait for a lock of the file: by the kernel's list, or by the status for which the service is asked after a hello.
    if "ELBOW_LOCKS" not in os.environ:
        inode = ":%d " % os.stat(F).st_ino
        return sum("->" in line and inode in line for line in open("/proc/locks"))
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(os.environ["ELBOW_LOCKS"][len("unix:"):])
        for payload in (b"\1ELBOWLCK\1\0\0" + bytes(16), b"\x18\1"):
            service.sendall(struct.pack("<I", len(payload)) + payload)
        said, queued = b"", None
        while not queued:
            said += service.recv(65536); queued = re.search(rb'"queued":(\d+)[,}]', said)
    return int(queued[1])
def ofd(f, l_type, command=None):
    # Linux: F_OFD_SETLK 37
    return fcntl.fcntl(f, command or 37, struct.pack("hhqqi4x", l_type, 0, 0, 0, 0))
def fails(what):
    try: what(); return None
    except OSError as error: return errno.errorcode[error.errno]
"#;

/// Runs it in both worlds: the same output, which is `expected`, and no complaints.
fn same(program: &str, expected: &str) {
    let program = format!("{BEGIN}\n{program}");
    for test_dir in [TestDir::native(), TestDir::redirected()] {
        let output = test_dir.python(&program);
        let world = if test_dir.is_redirected() {
            "redirected"
        } else {
            "native"
        };
        assert_eq!(complained(&output), "", "{world}");
        assert_eq!(said(&output), expected, "{world}");
    }
}

/// The close of a descriptor that only stands for a path gave up the locks of its file.
#[test]
fn a_descriptor_that_stands_for_a_path_has_no_part_in_locks() {
    same(
        "
f = open(F, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)
os.close(os.open(F, os.O_PATH)); print(lockf_is_free())
os.close(os.open(F, os.O_RDONLY)); print(lockf_is_free())
fcntl.flock(f, fcntl.LOCK_EX)
os.close(os.open(F, os.O_PATH)); print(flock_is_free())",
        "False\nTrue\nFalse\n",
    );
}

#[test]
fn any_close_releases_fcntls_locks_and_only_those_of_the_file() {
    same(
        r#"
f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX); print(lockf_is_free())
open("other", "w").close(); print(lockf_is_free())
os.close(os.open(F, os.O_RDONLY)); print(lockf_is_free())
fcntl.lockf(f, fcntl.LOCK_EX); g = os.fdopen(os.dup(f.fileno())); g.close(); print(lockf_is_free())
fcntl.lockf(f, fcntl.LOCK_EX); n = os.open("other", os.O_RDWR); os.dup2(n, os.open(F, os.O_RDWR)); print(lockf_is_free())
fcntl.lockf(f, fcntl.LOCK_EX); os.closerange(f.fileno(), f.fileno() + 1); print(lockf_is_free())
sys.stdout.flush(); os._exit(0) # Python's end of a file whose descriptor is closed complains from 3.13 on.
"#,
        "False\nFalse\nTrue\nTrue\nTrue\nTrue\n",
    );
}

#[test]
fn children_do_not_inherit_fcntls_locks_and_do_not_release_them() {
    same(
        r#"
f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX)
child = os.fork()
if child == 0:
    print(fails(lambda: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)), flush=True)
    f.close()
    os._exit(0)
os.waitpid(child, 0)
print(lockf_is_free())
child = os.fork()
if child == 0:
    time.sleep(60)
os.kill(child, 9); os.waitpid(child, 0)
print(lockf_is_free())
"#,
        "EAGAIN\nFalse\nFalse\n",
    );
}

#[test]
fn a_parent_killed_frees_its_locks_though_its_child_lives() {
    same(
        r#"
r, w = os.pipe()
parent = os.fork()
if parent == 0:
    f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        os.write(w, b"%d\n" % os.getpid()); time.sleep(600)
    time.sleep(600)
child = int(os.read(r, 100))
print(lockf_is_free())
os.kill(parent, 9); os.waitpid(parent, 0)
print(soon(lockf_is_free))
os.kill(child, 9)
"#,
        "False\nTrue\n",
    );
}

#[test]
fn exec_keeps_fcntls_locks_unless_it_closes_the_file() {
    same(
        r#"
def held_over_exec(inheritable):
    r, w = os.pipe(); a, b = os.pipe()
    os.set_inheritable(w, True); os.set_inheritable(a, True)
    child = os.fork()
    if child == 0:
        fd = os.open(F, os.O_RDWR); os.set_inheritable(fd, inheritable)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        code = "import os, fcntl; os.write(%d, b'x'); os.read(%d, 1)\nif %d: os.close(%d)\nos.write(%d, b'x'); os.read(%d, 1)"
        os.execv(sys.executable, [sys.executable, "-c", code % (w, a, inheritable, fd, w, a)])
    os.read(r, 1); print(lockf_is_free())
    os.write(b, b"x"); os.read(r, 1); print(lockf_is_free())
    os.write(b, b"x"); os.waitpid(child, 0)
held_over_exec(True); held_over_exec(False)
"#,
        "False\nTrue\nTrue\nTrue\n",
    );
}

#[test]
fn a_deadlock_is_found() {
    same(
        r#"
f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)
r, w = os.pipe()
child = os.fork()
if child == 0:
    f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX, 1, 1); os.write(w, b"x")
    fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)
    os._exit(0)
os.read(r, 1); print(soon(lambda: waiting() == 1))
print(fails(lambda: fcntl.lockf(f, fcntl.LOCK_EX, 1, 1)))
f.close(); os.waitpid(child, 0)
"#,
        "True\nEDEADLOCK\n",
    );
}

/// Threads of one process lock with `lock(file, command, type, start, length)`, and a process of its own waits for all of the file.
const MIXED: &str = r#"
SETLK, SETLKW, OFD_SETLK, OFD_SETLKW = 6, 7, 37, 38
W, U = fcntl.F_WRLCK, fcntl.F_UNLCK
def lock(f, command, kind, start, length):
    fcntl.fcntl(f, command, struct.pack("hhqqi4x", kind, 0, start, length, 0))
f, g = open(F, "r+"), open(F, "r+")
r, w = os.pipe()
def waiter(start, length):
    child = os.fork()
    if child == 0:
        h = open(F, "r+"); os.write(w, b"w")
        why = fails(lambda: lock(h, SETLKW, W, start, length)); os.write(w, b"e" if why else b"g")
        os._exit(0)
    assert os.read(r, 1) == b"w"; time.sleep(0.5)
    return child
"#;

/// LTP's fcntl36 was told of deadlocks that were none: who waits only in a queue behind somebody was taken for one who waits for what that somebody holds.
#[test]
fn posix_and_description_locks_of_one_process_behind_one_who_waits_are_no_deadlock() {
    let program = r#"
lock(f, SETLK, W, 0, 10); lock(g, OFD_SETLK, W, 20, 10)
child = waiter(0, 40) # for both
print(fails(lambda: lock(f, SETLKW, W, 12, 3)), fails(lambda: lock(g, OFD_SETLKW, W, 15, 5)))
# A thread waits for what another one holds by the other kind, behind the process that waits for both.
done = []
def wait(*what): done.append(fails(lambda: lock(*what)))
t = threading.Thread(target=wait, args=(g, OFD_SETLKW, W, 5, 2)); t.start(); time.sleep(0.5)
print(done)
lock(f, SETLKW, W, 30, 10)
lock(f, SETLK, U, 5, 2); t.join(); print(done)
t = threading.Thread(target=wait, args=(f, SETLKW, W, 15, 1)); t.start(); time.sleep(0.5)
print(done)
lock(g, OFD_SETLK, U, 15, 1); t.join(); print(done)
os.set_blocking(r, False)
try: print(os.read(r, 1))
except BlockingIOError: print("it waits")
os.set_blocking(r, True)
lock(g, OFD_SETLK, U, 0, 0); lock(f, SETLK, U, 0, 0); print(os.read(r, 1)); os.waitpid(child, 0)
"#;
    let expected = "None None\n[]\n[None]\n[None]\n[None, None]\nit waits\nb'g'\n";
    same(&format!("{MIXED}\n{program}"), expected);
}

/// As LTP's fcntl36 does it: each thread locks one range at a time, and gives it back.
#[test]
fn threads_that_lock_by_both_kinds_beside_another_process_all_get_their_turns() {
    let program = r#"
errors, turns, THREADS, TURNS = [], [], 3, 60
def work(command, own, number):
    for turn in range(TURNS):
        start, length = (7 * number + 3 * turn) % 25, 5 + turn % 11
        why = fails(lambda: lock(own, command, W, start, length))
        if why: errors.append((command, why)); continue
        time.sleep(0.0005)
        lock(own, command - 1, U, start, length); turns.append(command)
others = []
for number in range(2):
    child = os.fork()
    if child == 0:
        f = open(F, "r+"); work(SETLKW, f, number)
        os._exit(len(errors))
    others.append(child)
threads = [threading.Thread(target=work, args=(SETLKW, f, n)) for n in range(THREADS)]
threads += [threading.Thread(target=work, args=(OFD_SETLKW, open(F, "r+"), n)) for n in range(THREADS)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(errors, len(turns) == 2 * THREADS * TURNS, [os.waitpid(child, 0)[1] for child in others])
"#;
    same(&format!("{MIXED}\n{program}"), "[] True [0, 0]\n");
}

#[test]
fn signals_end_a_wait_as_the_handler_wants() {
    same(
        r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
r, w = os.pipe(); signals, caught = os.pipe(); os.set_blocking(caught, False)
child = os.fork()
if child == 0:
    os.close(caught)
    f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX); os.write(w, b"x")
    for _ in range(5): os.read(signals, 1)
    os._exit(0)
os.read(r, 1)
f = open(F, "r+"); flock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
def wait(restart):
    signal.signal(signal.SIGALRM, lambda *a: None); signal.siginterrupt(signal.SIGALRM, not restart)
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.05) # Again and again: the first may come before it waits.
    answer = libc.fcntl(f.fileno(), fcntl.F_SETLKW, ctypes.c_char_p(flock)), errno.errorcode.get(ctypes.get_errno())
    signal.setitimer(signal.ITIMER_REAL, 0); return answer
print(wait(False)); ctypes.set_errno(0)
signal.set_wakeup_fd(caught, warn_on_full_buffer=False); print(wait(True)) # The child holds it until so many have come.
"#,
        "(-1, 'EINTR')\n(0, None)\n",
    );
}

#[test]
fn a_thread_may_unlock_and_close_while_another_waits() {
    same(
        r#"
f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX, 1, 5)
r, w = os.pipe(); a, b = os.pipe()
child = os.fork()
if child == 0:
    f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); os.write(w, b"x"); os.read(a, 1); os._exit(0)
os.read(r, 1)
done = []
t = threading.Thread(target=lambda: done.append(fcntl.lockf(f, fcntl.LOCK_EX, 1, 0))); t.start()
time.sleep(0.3)
print(fresh("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)"))
fcntl.lockf(f, fcntl.LOCK_UN, 1, 5)
print(fresh("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)"), done)
os.write(b, b"x"); os.waitpid(child, 0); t.join()
print(done, fresh("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"))
"#,
        "False\nTrue []\n[None] False\n",
    );
}

#[test]
fn dup_and_fork_share_a_description_and_open_does_not() {
    same(
        r#"
f = open(F, "r+"); fcntl.flock(f, fcntl.LOCK_EX); print(flock_is_free(), lockf_is_free())
g = os.dup(f.fileno()); f.close(); print(flock_is_free())
h = open(F, "r+"); print(fails(lambda: fcntl.flock(h, fcntl.LOCK_SH | fcntl.LOCK_NB))); h.close(); print(flock_is_free())
os.close(g); print(soon(flock_is_free))
f = open(F, "r+"); ofd(f, fcntl.F_WRLCK); print(lockf_is_free(), flock_is_free())
print(fails(lambda: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)))
open(F).close(); print(lockf_is_free())
f.close(); print(soon(lockf_is_free))
"#,
        "False True\nFalse\nEAGAIN\nFalse\nTrue\nFalse True\nEAGAIN\nFalse\nTrue\n",
    );
}

#[test]
fn a_child_keeps_the_description_locked_and_may_unlock_it() {
    same(
        r#"
r, w = os.pipe(); a, b = os.pipe()
parent = os.fork()
if parent == 0:
    f = open(F, "r+"); fcntl.flock(f, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        os.write(w, b"x"); os.read(a, 1); fcntl.flock(f, fcntl.LOCK_UN); os.write(w, b"x"); time.sleep(600)
    os.write(w, b"%d\n" % child); time.sleep(600)
text = b""
while b"x" not in text or b"\n" not in text: text += os.read(r, 100)
child = int(text.replace(b"x", b""))
os.kill(parent, 9); os.waitpid(parent, 0); time.sleep(0.3)
print(flock_is_free())
os.write(b, b"x"); os.read(r, 1); print(flock_is_free()); os.kill(child, 9)
"#,
        "False\nTrue\n",
    );
}

#[test]
fn closing_everything_does_not_close_the_client() {
    same(
        r#"
f = open(F, "r+"); fcntl.lockf(f, fcntl.LOCK_EX)
os.closerange(f.fileno() + 1, 4096)
for fd in range(f.fileno() + 1, 4096):
    try: os.close(fd)
    except OSError: pass
print(lockf_is_free()); fcntl.lockf(f, fcntl.LOCK_UN); print(lockf_is_free())
"#,
        "False\nTrue\n",
    );
}

#[test]
fn files_elsewhere_keep_the_kernels_locks() {
    let test_dir = TestDir::redirected();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("f");
    let program = format!(
        "import fcntl, os\nf = open({path:?}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_EX)\n\
         print(sum(':%d ' % os.fstat(f.fileno()).st_ino in line for line in open('/proc/locks')))"
    );
    assert_eq!(said(&test_dir.python(&program)), "2\n");
}

/// What cannot be done as the kernel does it is refused, and said.
#[test]
fn a_description_of_a_stranger_is_refused() {
    let test_dir = TestDir::redirected();
    // An environment without the library between two with it: nobody could open a session for the descriptor.
    let program = r#"
import os, subprocess, sys
fd = os.open("f", os.O_RDWR | os.O_CREAT); os.set_inheritable(fd, True)
code = "import fcntl, os\nfcntl.flock(%d, fcntl.LOCK_EX)" % fd
os.environ.update(LD_PRELOAD=sys.argv[1]) if len(sys.argv) > 1 else None
os.execve(sys.executable, [sys.executable, "-c", code], os.environ)
"#;
    let output = test_dir
        .command("python3")
        .env_remove("LD_PRELOAD")
        .args(["-c", program])
        .arg(crate::test_dir::library())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let complaint = complained(&output);
    assert!(complaint.contains("was opened by another process"), "{complaint}");
    assert!(complaint.contains("No locks available"), "{complaint}");
}

/// A bad pointer is an error, before and after the lock is asked for, and no SIGSEGV.
#[test]
fn an_address_that_is_none_is_efault() {
    same(
        r#"
import ctypes, errno, mmap, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fcntl.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
read_only = libc.mmap(None, 8192, 3, 0x22, -1, 0)
ctypes.memmove(read_only, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0), 32)
libc.mprotect(read_only, 4096, 1)
f = open(F, "r+")
def ask(command, address):
    if libc.fcntl(f.fileno(), command, address) == 0: return "ok"
    return errno.errorcode[ctypes.get_errno()]
for address in (None, 1, read_only + 4096 - 8, read_only):
    libc.mprotect(read_only + 4096, 4096, 0)
    print([ask(command, address) for command in (fcntl.F_SETLK, fcntl.F_GETLK, 36, 37)])
"#,
        "['EFAULT', 'EFAULT', 'EFAULT', 'EFAULT']\n\
         ['EFAULT', 'EFAULT', 'EFAULT', 'EFAULT']\n\
         ['EFAULT', 'EFAULT', 'EFAULT', 'EFAULT']\n\
         ['ok', 'EFAULT', 'EFAULT', 'EAGAIN']\n",
    );
}
