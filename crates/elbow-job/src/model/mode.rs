//! Bits of a mode that mean more than who may do what.

/// Set-user-id.
pub(crate) const SETUID: u32 = 0o4000;
/// Set-group-id; on a directory: new entries take its group.
pub(crate) const SETGID: u32 = 0o2000;
/// The group may execute it.
pub(crate) const GROUP_EXECUTE: u32 = 0o0010;

/// Whether a file runs as its owner, or as its group.
pub(crate) fn has_set_id(mode: u32) -> bool {
    mode & SETUID != 0 || mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE
}
