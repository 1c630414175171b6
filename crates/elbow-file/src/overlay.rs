//! Hard links on overlayfs: those of a lower layer are links only until one of the names is changed.
//!
//! The change copies the file to the upper layer under that name alone, unless the overlay keeps an index. Which layer a file is of no attribute says; the
//! handle of a file does, which overlayfs gives since Linux 6.6 to who does not want to open it by that (`AT_HANDLE_FID`). A file that was copied up and got another
//! name then has the handle of its lower file still, and is taken for one of those.
//!
//! Source: the kernel's Documentation/filesystems/overlayfs.rst ("Non-standard behavior", "Inode properties"), fs/overlayfs/overlayfs.h (`struct ovl_fb`), and
//! name_to_handle_at(2).

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::file_system_traits::{OVERLAYFS, identity, kind_of, mounts, options_of_mount};

/// For a handle that only tells objects apart.
const AT_HANDLE_FID: libc::c_int = 0x200;
/// The type of a handle of overlayfs.
const OVERLAY_HANDLE: libc::c_int = 0xF8;
/// In it, after padding, version, magic number and length: flags.
const FLAGS_AT: usize = 6;
/// The file is of the upper layer.
const OF_UPPER: u8 = 1 << 2;
const HANDLE_BYTES_MAX: usize = 128;

/// Mounts that keep an index, by their numbers.
static INDEXED: LazyLock<Mutex<HashMap<u64, bool>>> = LazyLock::new(Mutex::default);

/// Device numbers, and whether an overlay has them.
static OVERLAYS: LazyLock<Mutex<HashMap<u64, bool>>> = LazyLock::new(Mutex::default);

/// As the kernel fills it (open_by_handle_at(2)).
#[repr(C)]
struct FileHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; HANDLE_BYTES_MAX],
}

/// Whether a change of this object by this name leaves its other names as they are. The name is relative to the directory; an empty one is what is open.
/// `device` is that of the object.
pub(crate) fn breaks_links(dir: impl AsFd, name: &CStr, device: u64) -> bool {
    let dir = dir.as_fd();
    match handle_of(dir, name) {
        Some((found, mount)) => {
            let is_upper = found.handle[FLAGS_AT] & OF_UPPER != 0;
            found.kind == OVERLAY_HANDLE && !is_upper && !is_indexed(mount)
        }
        // An older kernel, or one that is kept from saying so: as many names as there may be are taken for such.
        None => is_of_overlay(device, dir) && !identity(dir).is_ok_and(|found| is_indexed(found.mount)),
    }
}

fn handle_of(dir: BorrowedFd<'_>, name: &CStr) -> Option<(FileHandle, u64)> {
    let mut found = FileHandle {
        bytes: HANDLE_BYTES_MAX as libc::c_uint,
        kind: 0,
        handle: [0; HANDLE_BYTES_MAX],
    };
    let mut mount: libc::c_int = 0;
    let flags = AT_HANDLE_FID | if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: the name ends with a zero, the handle is laid out as the kernel has it and says how long it is, and all three outlive the call.
    #[allow(unsafe_code)]
    let answer = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut found,
            &raw mut mount,
            flags,
        )
    };
    Some((found, u64::try_from(mount).ok()?)).filter(|_| answer == 0)
}

/// Asked once of each device: statfs(2) goes to the server of a network file system.
fn is_of_overlay(device: u64, dir: BorrowedFd<'_>) -> bool {
    let mut known = OVERLAYS.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(device).or_insert_with(|| is_on_overlay(dir))
}

fn is_on_overlay(file: BorrowedFd<'_>) -> bool {
    kind_of(file) == Ok(OVERLAYFS)
}

fn is_indexed(mount: u64) -> bool {
    let mut known = INDEXED.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(mount).or_insert_with(|| has_index(&mounts(), mount))
}

/// By the options of a mount, which name what is not usual.
fn has_index(table: &str, mount: u64) -> bool {
    let options = options_of_mount(table, mount).unwrap_or_default();
    match options.split(',').find_map(|option| option.strip_prefix("index=")) {
        Some(option) => option == "on",
        None => std::fs::read_to_string("/sys/module/overlay/parameters/index").is_ok_and(|usual| usual.trim() == "Y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_kept_where_the_options_say_so() {
        let table = "50 27 0:41 / /m rw,relatime - overlay none rw,lowerdir=l,upperdir=u,workdir=k,index=on\n\
                     51 27 0:42 / /n rw,relatime - overlay none rw,lowerdir=l,index=off,uuid=on";
        assert!(has_index(table, 50) && !has_index(table, 51));
        assert_eq!(has_index(table, 52), has_index("", 52), "as is usual here");
    }

    #[test]
    fn links_of_an_ordinary_file_system_are_links() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("a"), "x").expect("a file");
        std::fs::hard_link(place.path().join("a"), place.path().join("b")).expect("a link");
        let dir = std::fs::File::open(place.path()).expect("a directory");
        if !is_on_overlay(dir.as_fd()) {
            assert!(!breaks_links(&dir, c"a", 1) && !breaks_links(&dir, c"b", 1));
        }
        assert!(!breaks_links(&dir, c"missing", 1) || is_on_overlay(dir.as_fd()));
    }
}
