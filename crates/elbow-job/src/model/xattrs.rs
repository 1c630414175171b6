//! Extended attributes that mean something to a job: access control lists, and file capabilities.
//!
//! Source: acl(5), capabilities(7); the layout is that of `posix_acl_xattr.h`.

pub(crate) use elbow_file::{ACCESS_ACL, DEFAULT_ACL};

/// The extended attribute that holds file capabilities, which every change of content, size or owner takes away.
pub(crate) const CAPABILITY: &str = "security.capability";

// POSIX ACLs as extended attributes: a u32 version (2), then entries of tag u16, permissions u16, id u32,
// all little-endian (linux/posix_acl_xattr.h).
const ACL_HEADER_BYTES: usize = 4;
const ACL_ENTRY_BYTES: usize = 8;
const ACL_USER_OBJ: u16 = 0x01;
const ACL_GROUP_OBJ: u16 = 0x04;
const ACL_MASK: u16 = 0x10;
const ACL_OTHER: u16 = 0x20;

fn acl_permissions(acl: &[u8], tag: u16) -> Option<u32> {
    let entries = acl.get(ACL_HEADER_BYTES..)?.chunks_exact(ACL_ENTRY_BYTES);
    entries
        .map(|entry| {
            (
                u16::from_le_bytes([entry[0], entry[1]]),
                u16::from_le_bytes([entry[2], entry[3]]),
            )
        })
        .find(|(t, _)| *t == tag)
        .map(|(_, permissions)| u32::from(permissions) & 7)
}

/// The mode of a new object under a default ACL (acl(5), "Object creation and default ACLs").
pub(crate) fn inherited_mode(mode: u32, acl: &[u8]) -> u32 {
    let user = acl_permissions(acl, ACL_USER_OBJ).unwrap_or(7);
    let group = acl_permissions(acl, ACL_MASK)
        .or_else(|| acl_permissions(acl, ACL_GROUP_OBJ))
        .unwrap_or(7);
    let other = acl_permissions(acl, ACL_OTHER).unwrap_or(7);
    mode & (0o7000 | user << 6 | group << 3 | other)
}

/// The access ACL of a new object of that mode under a default ACL; `None` where the mode says it all.
pub(crate) fn inherited_acl(acl: &[u8], mode: u32) -> Option<Vec<u8>> {
    let mut access = acl.to_vec();
    apply_mode(&mut access, mode);
    (!acl_is_mode(acl)).then_some(access)
}

/// An access ACL without entries for other users or groups, and without a mask.
pub(crate) fn acl_is_mode(acl: &[u8]) -> bool {
    const ENTRIES_OF_A_MODE: usize = 3;
    acl.len() <= ACL_HEADER_BYTES + ENTRIES_OF_A_MODE * ACL_ENTRY_BYTES
}

/// The permission bits that an access ACL stands for.
pub(crate) fn acl_mode(acl: &[u8]) -> Option<u32> {
    let user = acl_permissions(acl, ACL_USER_OBJ)?;
    let group = acl_permissions(acl, ACL_MASK).or_else(|| acl_permissions(acl, ACL_GROUP_OBJ))?;
    Some(user << 6 | group << 3 | acl_permissions(acl, ACL_OTHER)?)
}

/// chmod on an object with an access ACL: the entries that the mode stands for follow it.
pub(crate) fn apply_mode(acl: &mut [u8], mode: u32) {
    let has_mask = acl_permissions(acl, ACL_MASK).is_some();
    let group_tag = if has_mask { ACL_MASK } else { ACL_GROUP_OBJ };
    let Some(entries) = acl.get_mut(ACL_HEADER_BYTES..) else {
        return;
    };
    for entry in entries.chunks_exact_mut(ACL_ENTRY_BYTES) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let shift = match tag {
            ACL_USER_OBJ => 6,
            tag if tag == group_tag => 3,
            ACL_OTHER => 0,
            _ => continue,
        };
        entry[2] = (mode >> shift & 7) as u8;
    }
}
