//! Lock calls that reach the kernel, as the kernel tells of them: a seccomp filter with a listener.
//!
//! ```text
//!   command, and all that it starts -- flock, fcntl(F_SETLK...) --> kernel --> listener    which refuses the call, or lets it go on
//!                                  `-- all other calls ----------> kernel                  as ever
//! ```
//!
//! The filter looks at the number of a call, and at the command of fcntl; of 32-bit and x32 programs too. It lies in the process from before
//! its first instruction, goes to all its children, and cannot be taken off. Calls of what the listener left behind when it died
//! fail with `ENOSYS`.
//!
//! What the listener reads of a call may have changed when the kernel looks again (another thread puts another file under the
//! descriptor): this finds mistakes, and is no wall against who wants to lock past the service.
//!
//! By hand, because `seccompiler` neither has the action "tell the listener" nor lets calls of another word size pass, and
//! libseccomp is a library in C.
//!
//! Source: seccomp(2), seccomp_unotify(2), Linux `include/uapi/linux/{seccomp,filter,audit}.h`.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One way to call the kernel.
struct Abi {
    /// As seccomp names it (`AUDIT_ARCH_*`).
    audit: u32,
    /// What of the number of a call tells the call.
    mask: u32,
    flock: u32,
    fcntl: &'static [u32],
}

const WHOLE: u32 = u32::MAX;
#[cfg(target_arch = "x86_64")]
const ABIS: &[Abi] = &[
    Abi {
        audit: 0xc000_003e,
        mask: !0x4000_0000, // of x32
        flock: 73,
        fcntl: &[72],
    },
    Abi {
        audit: 0x4000_0003,
        mask: WHOLE,
        flock: 143,
        fcntl: &[55, 221],
    },
];
#[cfg(target_arch = "aarch64")]
const ABIS: &[Abi] = &[
    Abi {
        audit: 0xc000_00b7,
        mask: WHOLE,
        flock: 32,
        fcntl: &[25],
    },
    Abi {
        audit: 0x4000_0028,
        mask: WHOLE,
        flock: 143,
        fcntl: &[55, 221],
    },
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ABIS: &[Abi] = &[];

/// `F_GETLK`, `F_SETLK`, `F_SETLKW`, the same with 64 bits for 32-bit programs, and the three of open file descriptions.
const COMMANDS: [u32; 9] = [5, 6, 7, 12, 13, 14, 36, 37, 38];

/// Where the parts of `struct seccomp_data` are that the filter looks at.
const NUMBER_AT: u32 = 0;
const ABI_AT: u32 = 4;
/// The half that counts of the second argument.
const COMMAND_AT: u32 = if cfg!(target_endian = "little") { 24 } else { 28 };

/// A filter, made before the fork: memory is not to be had after it.
pub(super) struct Filter(Vec<libc::sock_filter>);

impl Filter {
    pub(super) fn new() -> Self {
        let mut program = Vec::new();
        for abi in ABIS {
            let block = block(abi);
            program.push(load(ABI_AT));
            program.push(unless_equal(abi.audit, block.len()));
            program.extend(block);
        }
        program.push(end_with(libc::SECCOMP_RET_ALLOW));
        Self(program)
    }

    /// Puts it before all further calls of this thread, and of all that it starts. Only system calls.
    ///
    /// Without the right to filter programs of other users' rights (`CAP_SYS_ADMIN`), there will be none: set-user-ID programs run with the
    /// rights of their caller. That is so only where the filter is installed: a child tries it first.
    ///
    /// # Errors
    /// `EBUSY`: there is a listener already, to whom such calls go. `ENOSYS`, `EINVAL`, `EPERM`: kernel or container do not let us.
    #[allow(unsafe_code)]
    pub(super) fn install(&self) -> io::Result<OwnedFd> {
        let program = libc::sock_fprog {
            len: u16::try_from(self.0.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: self.0.as_ptr().cast_mut(),
        };
        match install(&program) {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                try_in_a_child(&program)?;
                install_without_rights(&program)
            }
            installed => installed,
        }
    }
}

#[allow(unsafe_code)]
fn install(program: &libc::sock_fprog) -> io::Result<OwnedFd> {
    let with = |flags: libc::c_ulong| {
        // SAFETY: the kernel reads the program, which is as long as it says, and gives a new descriptor.
        unsafe {
            let listener = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags | libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const *program,
            );
            match i32::try_from(listener) {
                Ok(listener) if listener >= 0 => Ok(OwnedFd::from_raw_fd(listener)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    };
    // A signal would else end a lock call that never waits with EINTR, on any file. Linux 5.19 has it.
    match with(libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => with(0),
        installed => installed,
    }
}

/// For good: nothing that this thread starts gets more rights than it has.
#[allow(unsafe_code)]
fn install_without_rights(program: &libc::sock_fprog) -> io::Result<OwnedFd> {
    // SAFETY: numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == -1 {
        return Err(io::Error::last_os_error());
    }
    install(program)
}

/// Whether it can be installed without rights, found out by a process that ends then. Only system calls.
#[allow(unsafe_code)]
fn try_in_a_child(program: &libc::sock_fprog) -> io::Result<()> {
    // SAFETY: as fork(2), without what libc would do besides; the child makes system calls and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match libc::pid_t::try_from(child) {
        Ok(0) => {
            let errno = match install_without_rights(program) {
                Ok(_) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
            };
            // SAFETY: ends the child. No errno of these is over 255.
            unsafe { libc::_exit(errno) }
        }
        Ok(child) if child > 0 => wait_for(child),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(unsafe_code)]
fn wait_for(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: there is room for the status.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
    match libc::WIFEXITED(status) {
        true if libc::WEXITSTATUS(status) == 0 => Ok(()),
        true => Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(status))),
        false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Why there is no looking here, as far as that is known beforehand.
pub(super) fn why_not() -> Option<String> {
    /// The first whose listeners hear of the end of the last process (`POLLHUP`).
    const LINUX: (u32, u32) = (5, 9);
    if ABIS.is_empty() {
        return Some("the numbers of its system calls are not known".into());
    }
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= LINUX => None,
        _ => Some(format!(
            "Linux {}.{} or later is needed, and this is {release}",
            LINUX.0, LINUX.1
        )),
    }
}

/// For one way of calling: tells the listener of lock calls, and allows all others.
fn block(abi: &Abi) -> Vec<libc::sock_filter> {
    let fcntl_at = 2 + 1 + abi.fcntl.len() + 1;
    let told_at = fcntl_at + 1 + COMMANDS.len() + 1;
    let mut block = vec![load(NUMBER_AT), and(abi.mask)];
    let jump = |block: &mut Vec<_>, number, to: usize| block.push(if_equal(number, to - block.len() - 1));
    jump(&mut block, abi.flock, told_at);
    abi.fcntl.iter().for_each(|number| jump(&mut block, *number, fcntl_at));
    block.push(end_with(libc::SECCOMP_RET_ALLOW));
    block.push(load(COMMAND_AT));
    COMMANDS.iter().for_each(|command| jump(&mut block, *command, told_at));
    block.push(end_with(libc::SECCOMP_RET_ALLOW));
    block.push(end_with(libc::SECCOMP_RET_USER_NOTIF));
    block
}

fn instruction(code: u32, k: u32, jt: usize, jf: usize) -> libc::sock_filter {
    // The program is a few dozen instructions long.
    let near = |distance: usize| u8::try_from(distance).unwrap_or(u8::MAX);
    libc::sock_filter {
        code: code as u16,
        jt: near(jt),
        jf: near(jf),
        k,
    }
}

fn load(at: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

fn and(mask: u32) -> libc::sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask, 0, 0)
}

fn if_equal(to: u32, skip: usize) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to, skip, 0)
}

fn unless_equal(to: u32, skip: usize) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to, 0, skip)
}

fn end_with(action: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

/// A lock call that waits for us.
pub(super) struct Call {
    id: u64,
    /// Of the thread.
    pub(super) thread: u32,
    pub(super) descriptor: i32,
}

/// What becomes of it.
pub(super) enum Answer {
    /// As if nobody had looked.
    GoOn,
    /// It fails with this errno.
    Fail(i32),
}

/// Where the kernel tells of calls.
pub(super) struct Listener(OwnedFd);

/// The kernel writes as much as it knows of, which is 80 bytes in Linux 6.18.
const ROOM: usize = 256;

#[repr(C)]
union Notice {
    call: libc::seccomp_notif,
    room: [u8; ROOM],
}

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// The next call; none if its process has ended meanwhile, or has been interrupted.
    #[allow(unsafe_code)]
    pub(super) fn next(&self) -> io::Result<Option<Call>> {
        const { assert!(size_of::<libc::seccomp_notif>() <= ROOM) };
        let mut notice = Notice { room: [0; ROOM] };
        // SAFETY: there is room for what the kernel writes, zeroed as it wants it.
        let got = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) };
        if got == -1 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: numbers, all of which are valid ones; written by the call, or zero.
        let call = unsafe { notice.call };
        Ok(Some(Call {
            id: call.id,
            thread: call.pid,
            descriptor: call.data.args[0] as i32,
        }))
    }

    /// Whether what was read of the process was that of this call, and not of the next one with its number.
    #[allow(unsafe_code)]
    pub(super) fn still_waits(&self, call: &Call) -> bool {
        // SAFETY: the kernel reads one number.
        unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const call.id,
            ) == 0
        }
    }

    /// Answers a call; says whether it was still there.
    #[allow(unsafe_code)]
    pub(super) fn answer(&self, call: &Call, answer: &Answer) -> bool {
        let (error, flags) = match answer {
            Answer::GoOn => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Fail(errno) => (-errno, 0),
        };
        let response = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error,
            flags,
        };
        // SAFETY: the kernel reads the response.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) == 0 }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel does: the instructions that ours is made of.
    fn verdict(audit: u32, number: u32, command: u32) -> u32 {
        let program = Filter::new().0;
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match u32::from(step.code) & 7 {
                libc::BPF_LD => {
                    accumulator = match step.k {
                        NUMBER_AT => number,
                        ABI_AT => audit,
                        COMMAND_AT => command,
                        other => panic!("reads at {other}"),
                    }
                }
                libc::BPF_ALU => accumulator &= step.k,
                libc::BPF_JMP if accumulator == step.k => at += usize::from(step.jt),
                libc::BPF_JMP => at += usize::from(step.jf),
                libc::BPF_RET => return step.k,
                other => panic!("class {other}"),
            }
        }
    }

    #[test]
    fn lock_calls_of_each_way_to_call_are_told_and_no_others() {
        let (told, allowed) = (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
        for abi in ABIS {
            assert_eq!(verdict(abi.audit, abi.flock, 0), told);
            assert_eq!(verdict(abi.audit, abi.flock | !abi.mask, 0), told);
            for fcntl in abi.fcntl {
                for command in 0..64 {
                    let expected = if COMMANDS.contains(&command) { told } else { allowed };
                    assert_eq!(verdict(abi.audit, *fcntl, command), expected, "{command}");
                }
            }
            let ours = |number: &u32| *number == abi.flock || abi.fcntl.contains(number);
            for number in (0..600).filter(|number| !ours(number)) {
                assert_eq!(verdict(abi.audit, number, libc::F_SETLK as u32), allowed, "{number}");
            }
        }
        assert_eq!(verdict(0x1234, 73, 6), allowed);
        assert!(!ABIS.is_empty());
    }
}
