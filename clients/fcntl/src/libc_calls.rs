//! The functions of the next library, which ours stand before.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that is looked up once; at load, so that no signal handler and no child of vfork has to.
pub(crate) struct Next {
    /// Ends with a zero.
    name: &'static str,
    at: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static str) -> Self {
        let at = AtomicPtr::new(std::ptr::null_mut());
        Self { name, at }
    }

    fn find(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        #[allow(unsafe_code)]
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! next_functions {
    ($($name:ident($($argument:ident: $of:ty),*) -> $result:ty = $failed:expr;)*) => {
        /// One for each.
        #[allow(non_upper_case_globals)]
        mod found {
            $(pub(super) static $name: super::Next = super::Next::new(concat!(stringify!($name), "\0"));)*
        }

        $(
            /// As libc's.
            pub(crate) fn $name($($argument: $of),*) -> $result {
                let found = found::$name.find();
                if found.is_null() {
                    crate::errno::set(libc::ENOSYS);
                    return $failed;
                }
                #[allow(unsafe_code)]
                // SAFETY: libc's function of this name has this type; variadic ones take their arguments in the same
                // registers on 64-bit Linux. What the pointers point to is between our caller and libc.
                unsafe {
                    let function: unsafe extern "C" fn($($of),*) -> $result = std::mem::transmute(found);
                    function($($argument),*)
                }
            }
        )*

        /// Looks all of them up.
        pub(crate) fn find_all() {
            $(found::$name.find();)*
        }
    };
}

next_functions! {
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = -1;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = -1;
    lockf(fd: c_int, command: c_int, length: libc::off_t) -> c_int = -1;
    flock(fd: c_int, operation: c_int) -> c_int = -1;
    close(fd: c_int) -> c_int = -1;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = -1;
    dup2(from: c_int, to: c_int) -> c_int = -1;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int = -1;
    fclose(file: *mut libc::FILE) -> c_int = -1;
    freopen(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE = std::ptr::null_mut();
    freopen64(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE = std::ptr::null_mut();
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = -1;
    execv(path: *const c_char, argv: *const *const c_char) -> c_int = -1;
    execvp(file: *const c_char, argv: *const *const c_char) -> c_int = -1;
    execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = -1;
    fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int = -1;
}
