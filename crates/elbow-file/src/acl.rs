//! Access control lists as extended attributes: whom they name.
//!
//! A `u32` version, then entries of a tag and permissions (`u16` each) and an id (`u32`), all little-endian.
//!
//! Source: acl(5); Linux, include/uapi/linux/posix_acl_xattr.h.

use std::ffi::OsStr;

/// The extended attribute that holds the access control list of an object.
pub const ACCESS_ACL: &str = "system.posix_acl_access";
/// The extended attribute that holds what is made in a directory gets.
pub const DEFAULT_ACL: &str = "system.posix_acl_default";

const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;

/// Gives the users and groups that an access control list names other numbers; the value of another attribute stays as it is.
pub fn renumber_acl(key: &OsStr, value: &mut [u8], uid: impl Fn(u32) -> u32, gid: impl Fn(u32) -> u32) {
    if key != ACCESS_ACL && key != DEFAULT_ACL {
        return;
    }
    let Some(entries) = value.get_mut(HEADER_BYTES..) else {
        return;
    };
    for entry in entries.as_chunks_mut::<ENTRY_BYTES>().0 {
        let [tag_low, tag_high, _, _, id @ ..] = entry;
        let number = u32::from_le_bytes(*id);
        *id = match u16::from_le_bytes([*tag_low, *tag_high]) {
            USER => uid(number),
            GROUP => gid(number),
            _ => continue,
        }
        .to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `u::rwx, u:1000:rw-, u:7:r--, g::r-x, g:1000:r--, m::rwx, o::r--`
    fn list(user: u32, group: u32) -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        let entries = [
            (0x01, 7, NOBODY),
            (USER, 6, user),
            (USER, 4, 7),
            (0x04, 5, NOBODY),
            (GROUP, 4, group),
            (0x10, 7, NOBODY),
            (0x20, 4, NOBODY),
        ];
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(u16::to_le_bytes(tag));
            bytes.extend(u16::to_le_bytes(permissions));
            bytes.extend(u32::to_le_bytes(id));
        }
        bytes
    }

    #[test]
    fn users_and_groups_of_a_list_get_numbers_of_their_own() {
        let (uid, gid) = (
            |id| if id == 1000 { 5 } else { id },
            |id| if id == 1000 { 6 } else { id },
        );
        for key in [ACCESS_ACL, DEFAULT_ACL] {
            let mut value = list(1000, 1000);
            renumber_acl(OsStr::new(key), &mut value, uid, gid);
            assert_eq!(value, list(5, 6), "{key}");
        }
        let mut other = list(1000, 1000);
        renumber_acl(OsStr::new("user.acl"), &mut other, uid, gid);
        assert_eq!(other, list(1000, 1000));
    }

    #[test]
    fn what_is_no_list_stays_as_it_is_where_it_has_no_entries() {
        for bytes in [&b""[..], b"123", b"1234", b"12345678901"] {
            let mut value = bytes.to_vec();
            renumber_acl(OsStr::new(ACCESS_ACL), &mut value, |_| 0, |_| 0);
            assert_eq!(value, bytes);
        }
    }
}
