//! The names of the system's errors (errno(3)), for programs: `ENOSPC` reads the same on every machine.

macro_rules! names {
    ($number:expr, $($name:ident),* $(,)?) => {
        match $number {
            $(libc::$name => Some(stringify!($name)),)*
            _ => None,
        }
    };
}

/// The name of an error that a file system may give; none for a number that is not one of Linux.
pub(crate) fn of(errno: i32) -> Option<&'static str> {
    names!(
        errno,
        EPERM,
        ENOENT,
        ESRCH,
        EINTR,
        EIO,
        ENXIO,
        E2BIG,
        ENOEXEC,
        EBADF,
        ECHILD,
        EAGAIN,
        ENOMEM,
        EACCES,
        EFAULT,
        ENOTBLK,
        EBUSY,
        EEXIST,
        EXDEV,
        ENODEV,
        ENOTDIR,
        EISDIR,
        EINVAL,
        ENFILE,
        EMFILE,
        ENOTTY,
        ETXTBSY,
        EFBIG,
        ENOSPC,
        ESPIPE,
        EROFS,
        EMLINK,
        EPIPE,
        EDOM,
        ERANGE,
        EDEADLK,
        ENAMETOOLONG,
        ENOLCK,
        ENOSYS,
        ENOTEMPTY,
        ELOOP,
        ENODATA,
        ETIME,
        EREMOTE,
        ENOLINK,
        EPROTO,
        EMULTIHOP,
        EBADMSG,
        EOVERFLOW,
        EILSEQ,
        EUSERS,
        EOPNOTSUPP,
        ENETDOWN,
        ENETUNREACH,
        ENETRESET,
        ECONNABORTED,
        ECONNRESET,
        ENOBUFS,
        ENOTCONN,
        ESHUTDOWN,
        ETIMEDOUT,
        ECONNREFUSED,
        EHOSTDOWN,
        EHOSTUNREACH,
        EALREADY,
        EINPROGRESS,
        ESTALE,
        EUCLEAN,
        EREMOTEIO,
        EDQUOT,
        ENOMEDIUM,
        EMEDIUMTYPE,
        ECANCELED,
        ENOKEY,
        EKEYEXPIRED,
        EKEYREVOKED,
        EKEYREJECTED,
        EOWNERDEAD,
        ENOTRECOVERABLE,
        ERFKILL,
        EHWPOISON,
        ECOMM,
        ENOSTR,
        ENOSR
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_storage_have_their_names() {
        for (errno, name) in [
            (5, "EIO"),
            (28, "ENOSPC"),
            (122, "EDQUOT"),
            (13, "EACCES"),
            (116, "ESTALE"),
        ] {
            assert_eq!(of(errno), Some(name));
        }
        assert_eq!(of(9999), None);
    }
}
