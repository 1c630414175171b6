//! What a program points to, read and written as the kernel does: a bad address is an error, and no SIGSEGV.

use std::mem::MaybeUninit;

use crate::errno::{self, Errno};

/// Reads the value that a program has put at `address`, as the kernel reads arguments.
///
/// # Errors
/// EFAULT.
pub(crate) fn read(address: *const libc::flock) -> Result<libc::flock, Errno> {
    let mut value = MaybeUninit::<libc::flock>::uninit();
    copy(libc::SYS_process_vm_readv, value.as_mut_ptr(), address.cast_mut())?;
    #[allow(unsafe_code)]
    // SAFETY: all of it was copied, and any bytes are a struct of numbers.
    Ok(unsafe { value.assume_init() })
}

/// Writes a value to where a program wants it.
///
/// # Errors
/// EFAULT.
pub(crate) fn write(address: *mut libc::flock, value: &libc::flock) -> Result<(), Errno> {
    copy(
        libc::SYS_process_vm_writev,
        std::ptr::from_ref(value).cast_mut(),
        address,
    )
}

/// Copies between our value and the program's address, which may be anything, by process_vm_readv(2) or its counterpart on this process itself.
fn copy(call: libc::c_long, own: *mut libc::flock, address: *mut libc::flock) -> Result<(), Errno> {
    let whole = size_of::<libc::flock>();
    let piece = |base: *mut libc::flock| libc::iovec {
        iov_base: base.cast(),
        iov_len: whole,
    };
    let (local, remote) = (piece(own), piece(address));
    // As wide as registers: of a narrower argument the rest is whatever is there.
    let (ours, one, flags) = (libc::c_long::from(std::process::id()), 1_usize, 0_usize);
    #[allow(unsafe_code)]
    // SAFETY: our side is one value that is there; the kernel checks the other side, as any address.
    let copied = unsafe { libc::syscall(call, ours, &raw const local, one, &raw const remote, one, flags) };
    match copied {
        -1 if matches!(errno::get(), libc::ENOSYS | libc::EPERM) => trust(call, own, address),
        bytes if usize::try_from(bytes) == Ok(whole) => Ok(()),
        _ => Err(Errno(libc::EFAULT)),
    }
}

/// Where a sandbox forbids those calls, the address is believed; but null.
fn trust(call: libc::c_long, own: *mut libc::flock, address: *mut libc::flock) -> Result<(), Errno> {
    if address.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let (to, from) = match call {
        libc::SYS_process_vm_readv => (own, address),
        _ => (address, own),
    };
    #[allow(unsafe_code)]
    // SAFETY: fcntl(2) takes a pointer to a struct flock, which need not be aligned.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), size_of::<libc::flock>());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_and_written_and_a_bad_address_is_an_error() {
        #[allow(unsafe_code)]
        // SAFETY: numbers.
        let mut value: libc::flock = unsafe { std::mem::zeroed() };
        value.l_len = 7;
        let mut there = value;
        there.l_len = 0;
        write(&raw mut there, &value).unwrap();
        assert_eq!(read(&raw const there).unwrap().l_len, 7);
        for bad in [0_usize, 1, usize::MAX - 4] {
            assert_eq!(read(bad as *const libc::flock).err(), Some(Errno(libc::EFAULT)));
            assert_eq!(write(bad as *mut libc::flock, &value), Err(Errno(libc::EFAULT)));
        }
    }
}
