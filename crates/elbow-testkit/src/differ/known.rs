//! Differences that are known: limits, which SEMANTICS.md states and this table repeats, and bugs that wait, in a file of the corpus.
//!
//! Both are counted wherever they are met. The call that meets one is taken out of the case, which is run again without it, so that nothing hides behind it.

use std::fs;
use std::io;
use std::path::Path;

use super::case::Case;
use super::compare::Finding;
use super::ground::Storage;

/// A difference that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name of its storage, in which `*` is any text.
    pub storage: String,
    /// Its signature, in which `*` is any text.
    pub signature: String,
    /// Why it is known: the limit, or the issue.
    pub why: String,
}

/// What SEMANTICS.md says under "Limits": storage, signature, and the beginning of what it says there.
const LIMITS: [(&str, &str, &str); 196] = [
    ("*", "answer *chown E*/EINVAL (user)", GROUPS),
    ("*", "answer *chown ok/EINVAL (user)", GROUPS),
    ("*", "answer setacl */EINVAL (user)", GROUPS),
    (
        "*",
        "not-rolled-back after * mtime is now (user, others)",
        TIMES_OF_OTHERS,
    ),
    (
        "*",
        "wrong-after-0 after * mtime is now (user, others)",
        TIMES_OF_OTHERS,
    ),
    (
        "*",
        "wrong-after-0 after * atime is now (user, others)",
        TIMES_OF_OTHERS,
    ),
    (
        "*",
        "wrong-after-0 after * atime is not now (user, others)",
        TIMES_OF_OTHERS,
    ),
    (
        "*",
        "answer *stat ok/ok mtime (others' directories again)",
        TIMES_OF_OTHERS,
    ),
    (
        "*",
        "seen-inside inside dir mtime is now (others' directories again)",
        TIMES_OF_OTHERS,
    ),
    ("*", "wrong-after-0 after fifo mtime*", TIMES_OF_PIPES),
    ("*", "seen-inside inside fifo mtime*", TIMES_OF_PIPES),
    ("*", "answer *stat ok/ok *time (pipes)", TIMES_OF_PIPES),
    ("*", "answer *chown EPERM/ok", "chown(2) to nobody"),
    ("*", "answer *chown EPERM/ok (user)", "chown(2) to nobody"),
    ("*", "answer link ok/EPERM (user)", SET_ID_LINKS),
    ("*", "answer link EACCES/EPERM", SET_ID_LINKS),
    ("*", "answer link EACCES/EPERM (user)", SET_ID_LINKS),
    ("*", "answer link ok/EPERM (set-ids)", SET_ID_LINKS),
    ("*", "answer link ENOENT/EPERM (set-ids)", SET_ID_LINKS),
    ("*", "wrong-after-0 after file mode (mapped set-ids)", SET_ID_BITS),
    ("*", "seen-inside inside file mtime is not now (maps)", TIMES_OF_MAPS),
    ("*", "answer *stat ok/ok mtime (maps)", TIMES_OF_MAPS),
    ("*", "answer *stat ok/ok mtime (empties)", EMPTY_FILES),
    ("*", "seen-inside inside file mtime is now (empties)", EMPTY_FILES),
    ("*", "wrong-after-0 after file mtime is now (empties)", EMPTY_FILES),
    ("xfs", "seen-inside inside file mode (empties)", EMPTY_FILES),
    ("xfs", "wrong-after-0 after file mode (empties)", EMPTY_FILES),
    ("xfs", "answer *stat ok/ok mode* (empties)", EMPTY_FILES),
    ("xfs", "answer link EPERM/ok (empties)", EMPTY_FILES),
    (
        "btrfs",
        "not-rolled-back 125/0 elbow move Operation not permitted (user)",
        "Subvolumes in a job",
    ),
    (
        "btrfs",
        "seen-inside inside file mtime is now (punches)",
        HOLES_OF_NOTHING,
    ),
    (
        "btrfs",
        "wrong-after-0 after file mtime is now (punches)",
        HOLES_OF_NOTHING,
    ),
    ("*", "answer read EINVAL/EISDIR*", POSITIONS),
    ("*", "answer open ok/EOPNOTSUPP*", TEMPORARY_FILES),
    ("*", "answer open EPERM/EOPNOTSUPP*", TEMPORARY_FILES),
    ("*", "answer fallocate EINVAL/EOPNOTSUPP*", SHIFTED_RANGES),
    ("*", "answer fallocate ok/EOPNOTSUPP*", SHIFTED_RANGES),
    ("*", "answer rmdir ENOTEMPTY/EACCES (user)", CLOSED_DIRS),
    ("*", "answer rmdir ok/EACCES (user)", CLOSED_DIRS),
    ("*", "wrong-after-0 after dir mode (closed in groups)", CLOSED_DIRS),
    ("btrfs", "seen-inside inside file mode (punches)", HOLES_OF_NOTHING),
    ("btrfs", "wrong-after-0 after file mode (punches)", HOLES_OF_NOTHING),
    ("btrfs", "answer *stat ok/ok mtime (punches)", HOLES_OF_NOTHING),
    ("btrfs", "answer *stat ok/ok mode (punches)", HOLES_OF_NOTHING),
    ("btrfs", "answer *stat ok/ok mode,mtime (punches)", HOLES_OF_NOTHING),
    ("*", "answer rename ENOTEMPTY/EACCES (user)", CLOSED_DIRS),
    ("*", "answer rename ok/EACCES (user)", CLOSED_DIRS),
    ("xfs", "answer rename EEXIST/EACCES (user)", CLOSED_DIRS),
    ("*", "answer * */EACCES (user, closed)", OWN_CLOSED),
    ("*", "answer map* ok/EFAULT (user, closed)", OWN_CLOSED),
    ("*", "answer *read ok/ok less (user, closed)", OWN_CLOSED),
    ("*", "answer copy ok/ok * (user, closed)", OWN_CLOSED),
    (
        "*",
        "not-rolled-back 125/0 elbow * Operation not permitted (lost groups)",
        LOST_GROUPS,
    ),
    (
        "*",
        "not-rolled-back 125/0 elbow create Operation not permitted (others' groups)",
        GROUPS_OF_OTHERS,
    ),
    (
        "*",
        "refused 125/0 elbow create Operation not permitted (others' groups)",
        GROUPS_OF_OTHERS,
    ),
    ("*", "answer * ok/EPERM (others' groups)", GROUPS_OF_OTHERS),
    ("tmpfs", "answer *stat ok/ok mode,gid (lists in groups)", SET_ID_BITS),
    ("*", "seen-inside inside EACCES * (user, closed)", OWN_CLOSED),
    ("*", "seen-inside inside * names (user, closed)", OWN_CLOSED),
    ("*", "seen-inside inside * xattrs (user, closed)", OWN_CLOSED),
    ("*", "seen-inside inside * x (user, closed)", OWN_CLOSED),
    ("*", "seen-inside inside * x:user.* (user, closed)", OWN_CLOSED),
    ("*", "seen-inside inside * missing (user, closed)", OWN_CLOSED),
    ("*", "seen-inside inside * same (user, closed)", OWN_CLOSED),
    ("*", "seen-inside inside file content (user, closed)", OWN_CLOSED),
    ("overlayfs", "answer rename EXDEV/ok (user)", LOWER_DIRS),
    ("overlayfs", "answer rename EXDEV/ENOTEMPTY (user)", LOWER_DIRS),
    ("overlayfs", "answer rename EXDEV/EACCES (unreadable)", CLOSED_DIRS),
    (
        "overlayfs",
        "refused 125/0 elbow rolled back background operation failed* (user)",
        LOWER_DIRS,
    ),
    ("overlayfs", "answer *removexattr ENODATA/ok*", LOWER_ACLS),
    ("overlayfs", "answer *setxattr ENODATA/ok*", LOWER_ACLS),
    ("overlayfs", "answer f* EEXIST/ok*", REPLACED_WHILE_OPEN),
    (
        "overlayfs",
        "answer f*xattr EEXIST/ENODATA (taken names)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer fstat ok/ok links* (taken names)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer *ch* ENOTDIR/ok (taken directories)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer futimens ENOTDIR/ok (taken directories)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer *setxattr ENOTDIR/ok (taken directories)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer setacl ENOTDIR/ok (taken directories)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer mapread ok/ok* (changed content)",
        REPLACED_WHILE_OPEN,
    ),
    ("overlayfs", "answer mapread ok/ok* (maps)", REPLACED_WHILE_OPEN),
    (
        "overlayfs",
        "answer mapwrite ok/ok* (changed content)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer map* EFAULT/ok (changed content)",
        REPLACED_WHILE_OPEN,
    ),
    (
        "overlayfs",
        "answer map* ok/EFAULT (changed content)",
        REPLACED_WHILE_OPEN,
    ),
    ("overlayfs", "answer *lock ok/EAGAIN (locked maps)", REPLACED_WHILE_OPEN),
    ("slowfs", "answer *stat ok/ok mode* (rights)", SET_ID_BITS),
    ("slowfs", "answer *stat ok/ok gid* (rights)", SET_ID_BITS),
    ("slowfs", "seen-inside inside * mode (rights)", SET_ID_BITS),
    ("slowfs", "seen-inside inside * gid (rights)", SET_ID_BITS),
    ("slowfs", "wrong-after-0 after * mode (rights)", SET_ID_BITS),
    ("slowfs", "wrong-after-0 after * gid (rights)", SET_ID_BITS),
    ("btrfs", "answer *listxattr ok/ok* (trusted)", TRUSTED_NAMES),
    ("slowfs", "wrong-after-0 after file mode (allocates)", SET_ID_BITS),
    ("slowfs", "seen-inside inside file mode (allocates)", SET_ID_BITS),
    ("slowfs", "answer *stat ok/ok mode (allocates)", SET_ID_BITS),
    ("*tmpfs", "answer fallocate EOPNOTSUPP/ok*", MORE_THAN_TMPFS),
    ("*tmpfs", "answer *stat ok/ok mode (no lists)", MORE_THAN_TMPFS),
    ("*tmpfs", "seen-inside inside * mode (no lists)", MORE_THAN_TMPFS),
    ("*tmpfs", "wrong-after-0 after * mode (no lists)", MORE_THAN_TMPFS),
    ("*tmpfs", "answer *stat ok/ok gid (no lists)", MORE_THAN_TMPFS),
    ("*tmpfs", "seen-inside inside * gid (no lists)", MORE_THAN_TMPFS),
    ("*tmpfs", "wrong-after-0 after * gid (no lists)", MORE_THAN_TMPFS),
    ("*tmpfs", "seen-inside inside file mtime is now (maps)", MORE_THAN_TMPFS),
    (
        "*tmpfs",
        "wrong-after-0 after file mtime is now (maps)",
        MORE_THAN_TMPFS,
    ),
    ("overlayfs", "answer *stat ok/ok mode (no lists)", MORE_THAN_TMPFS),
    ("overlayfs", "seen-inside inside * mode (no lists)", MORE_THAN_TMPFS),
    ("overlayfs", "wrong-after-0 after * mode (no lists)", MORE_THAN_TMPFS),
    ("overlayfs", "answer *stat ok/ok gid (no lists)", MORE_THAN_TMPFS),
    ("overlayfs", "seen-inside inside * gid (no lists)", MORE_THAN_TMPFS),
    ("overlayfs", "wrong-after-0 after * gid (no lists)", MORE_THAN_TMPFS),
    ("xfs", "answer copy ok/ok*", WHOLE_COPIES),
    ("btrfs", "answer copy ok/ok*", WHOLE_COPIES),
    ("sshfs-other", "answer * E/ok*", RIGHTS_OF_SERVERS),
    ("sshfs-other", "answer * ok/E*", RIGHTS_OF_SERVERS),
    ("sshfs-other", "answer * ok/ok*", RIGHTS_OF_SERVERS),
    ("sshfs-other", "seen-inside inside *", RIGHTS_OF_SERVERS),
    ("sshfs-other", "wrong-after-0 after * mode", RIGHTS_OF_SERVERS),
    (
        "sshfs-other",
        "refused 125/0 elbow * Permission denied",
        RIGHTS_OF_SERVERS,
    ),
    (
        "sshfs-other",
        "not-rolled-back 125/0 elbow * Permission denied",
        RIGHTS_OF_SERVERS,
    ),
    ("sshfs-user", "answer * ok/E (user)", RIGHTS_OF_SERVERS),
    ("sshfs-user", "answer * E/ok (user)", RIGHTS_OF_SERVERS),
    (
        "sshfs-user",
        "not-rolled-back 125/0 elbow * Permission denied (user)",
        RIGHTS_OF_SERVERS,
    ),
    ("sshfs-user", "seen-inside inside * mode (owners)", RIGHTS_OF_SERVERS),
    ("sshfs-user", "wrong-after-0 after * mode (owners)", RIGHTS_OF_SERVERS),
    (
        "sshfs-user",
        "answer *stat ok/ok mode (owners of set-ids)",
        RIGHTS_OF_SERVERS,
    ),
    (
        "sshfs-user",
        "wrong-after-0 after file too many (user)",
        RIGHTS_OF_SERVERS,
    ),
    (
        "sshfs-user",
        "seen-inside inside file too many (user)",
        RIGHTS_OF_SERVERS,
    ),
    ("sshfs-user", "seen-inside inside dir * (user)", RIGHTS_OF_SERVERS),
    ("sshfs-user", "seen-inside inside EACCES * (user)", RIGHTS_OF_SERVERS),
    ("sshfs", "answer access ok/E", RIGHTS_OF_SERVERS),
    (
        "sshfs*",
        "wrong-after-0 after file mtime is not now (others' files)",
        RIGHTS_OF_SERVERS,
    ),
    ("sshfs-other", "not-rolled-back after * mtime is now", TIMES_OF_OTHERS),
    ("sshfs*", "answer chown E/ok (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "answer *stat ok/ok *id (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "answer *stat ok/ok *time (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "wrong-after-0 after symlink mtime*", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "wrong-after-0 after symlink atime*", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "seen-inside inside * uid (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "seen-inside inside * gid (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "seen-inside inside * atime* (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "seen-inside inside * mtime* (links)", ATTRIBUTES_OF_LINKS),
    (
        "sshfs*",
        "wrong-after-0 after symlink gid (new groups)",
        ATTRIBUTES_OF_LINKS,
    ),
    ("sshfs*", "wrong-after-0 after * uid (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "wrong-after-0 after * gid (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "wrong-after-0 after * atime* (links)", ATTRIBUTES_OF_LINKS),
    ("sshfs*", "wrong-after-0 after * mtime* (links)", ATTRIBUTES_OF_LINKS),
    (
        "sshfs*",
        "seen-inside inside file mode (owners of links)",
        ATTRIBUTES_OF_LINKS,
    ),
    (
        "sshfs*",
        "wrong-after-0 after file mode (owners of links)",
        ATTRIBUTES_OF_LINKS,
    ),
    (
        "sshfs*",
        "answer *stat ok/ok mode (owners of links)",
        ATTRIBUTES_OF_LINKS,
    ),
    (
        "sshfs*",
        "seen-inside inside file content (appended maps)",
        MORE_THAN_SSHFS,
    ),
    (
        "sshfs*",
        "seen-inside inside file size (appended maps)",
        MORE_THAN_SSHFS,
    ),
    (
        "sshfs*",
        "wrong-after-0 after file content (appended maps)",
        MORE_THAN_SSHFS,
    ),
    (
        "sshfs*",
        "wrong-after-0 after file size (appended maps)",
        MORE_THAN_SSHFS,
    ),
    ("sshfs*", "answer holes ok/ok  (appended maps)", MORE_THAN_SSHFS),
    ("sshfs*", "answer seek ok/ok  (appended maps)", MORE_THAN_SSHFS),
    ("sshfs*", "answer *read ok/ok  (appended maps)", MORE_THAN_SSHFS),
    ("sshfs*", "answer *read ok/ok less (appended maps)", MORE_THAN_SSHFS),
    ("sshfs*", "seen-inside inside file mtime is now (maps)", TIMES_OF_MAPS),
    ("slowfs", "seen-inside inside file mtime is now (maps)", TIMES_OF_MAPS),
    ("slowfs", "answer holes ok/ok  (maps)", HOLES_OF_MAPS),
    (
        "slowfs",
        "wrong-after-0 after file mtime is not now (maps)",
        TIMES_OF_MAPS,
    ),
    (
        "sshfs*",
        "wrong-after-0 after file mtime is not now (maps)",
        TIMES_OF_MAPS,
    ),
    ("sshfs*", "answer *stat ok/ok size (appended maps)", MORE_THAN_SSHFS),
    (
        "sshfs*",
        "wrong-after-0 after dir mtime is not now (taken names)",
        MORE_THAN_SSHFS,
    ),
    ("sshfs*", "answer *stat ok/ok mtime (hidden names)", MORE_THAN_SSHFS),
    (
        "sshfs*",
        "seen-inside inside dir mtime is not now (hidden names)",
        MORE_THAN_SSHFS,
    ),
    (
        "sshfs*",
        "wrong-after-0 after dir mtime is not now (hidden names)",
        MORE_THAN_SSHFS,
    ),
    ("sshfs*", "answer rename E/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "answer rmdir E/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "answer list ok/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "answer flist ok/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "seen-inside inside * mode (umask)", MORE_THAN_SSHFS),
    ("sshfs*", "wrong-after-0 after * mode (umask)", MORE_THAN_SSHFS),
    ("sshfs*", "answer *stat ok/ok mode (umask)", MORE_THAN_SSHFS),
    ("sshfs*", "answer fallocate E/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "answer *xattr E/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "answer utimens E/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "answer link E/ok*", MORE_THAN_SSHFS),
    ("sshfs*", "answer fstat E/ok (path descriptors)", MORE_THAN_SSHFS),
    ("sshfs*", "answer dup E/ok (path descriptors)", MORE_THAN_SSHFS),
    ("sshfs*", "answer dup E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer *stat E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer holes E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer list E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer access E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer open E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer seek E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer *ch* E/ok (taken directories)", MORE_THAN_SSHFS),
    ("sshfs*", "answer futimens E/ok (taken directories)", MORE_THAN_SSHFS),
    (
        "sftp*",
        "not-rolled-back 125/0 elbow * Permission denied (set-ids)",
        RIGHTS_OF_SERVERS,
    ),
    (
        "sftp*",
        "wrong-after-0 after file mtime is not now (others' files)",
        LESS_OVER_SFTP,
    ),
    ("sftp*", "answer mknod ok/EPERM*", LESS_OVER_SFTP),
    ("sftp*", "answer *setxattr */EOPNOTSUPP*", LESS_OVER_SFTP),
    ("sftp*", "answer *removexattr */EOPNOTSUPP*", LESS_OVER_SFTP),
    ("sftp*", "answer setacl */EOPNOTSUPP*", LESS_OVER_SFTP),
    ("sftp*", "answer holes ok/ok*", LESS_OVER_SFTP),
    ("sftp*", "answer seek ok/ok*", LESS_OVER_SFTP),
];

const GROUPS: &str = "Groups in an ordinary user's job";
const TIMES_OF_OTHERS: &str = "Times of what belongs to somebody else";
const TIMES_OF_MAPS: &str = "Times of files that are written in memory";
const HOLES_OF_MAPS: &str = "Holes of files that are written in memory";
const WHOLE_COPIES: &str = "Copies of parts of files";
const SET_ID_LINKS: &str = "Links to what had set-id bits";
const TIMES_OF_PIPES: &str = "Times of pipes and devices";
const EMPTY_FILES: &str = "Truncating an empty file by its name";
const HOLES_OF_NOTHING: &str = "Holes where there is nothing";
const RIGHTS_OF_SERVERS: &str = "Rights that a server checks";
const ATTRIBUTES_OF_LINKS: &str = "Attributes of symbolic links on sshfs";
const POSITIONS: &str = "Positions in directories";
const TEMPORARY_FILES: &str = "Files that begin without a name";
const SHIFTED_RANGES: &str = "Ranges that are cut out or inserted";
const CLOSED_DIRS: &str = "Directories without all rights";
const LOST_GROUPS: &str = "Groups below default ACLs that take rights";
const GROUPS_OF_OTHERS: &str = "Groups of others that are taken along";
const OWN_CLOSED: &str = "What its owner may not read or search";
const LOWER_DIRS: &str = "What a commit cannot take back";
const LOWER_ACLS: &str = "Lists of rights that are not there";
const SET_ID_BITS: &str = "Set-id bits of somebody else's file";
const TRUSTED_NAMES: &str = "Names of trusted attributes";
const REPLACED_WHILE_OPEN: &str = "Files of a lower layer that lost their name while they are open";
const MORE_THAN_TMPFS: &str = "More than tmpfs";
const MORE_THAN_SSHFS: &str = "More than sshfs";
const LESS_OVER_SFTP: &str = "Less over SFTP";

/// What is so of a case.
type CasePredicate = fn(&Case) -> bool;

/// How the end of the signature begins of what is known of an ordinary user's cases alone; the others are of everybody's.
const OF_USERS: &str = " (user, ";
/// Those of what is known only of cases of which something is so.
const OF_CASES: [(&str, CasePredicate); 32] = [
    (" (user, closed)", Case::has_closed_objects),
    (" (user, others)", Case::has_objects_of_others),
    (" (links)", Case::sets_links),
    (" (empties)", Case::empties),
    (" (umask)", Case::sets_umask),
    (" (owners)", Case::sets_owners),
    (" (punches)", Case::punches),
    (" (maps)", Case::writes_in_memory),
    (" (appended maps)", Case::appends_in_memory),
    (" (no lists)", Case::removes_lists),
    (" (allocates)", Case::allocates_in_set_ids),
    (" (set-ids)", Case::has_set_ids),
    (" (mapped set-ids)", Case::writes_set_ids_in_memory),
    (" (taken directories)", Case::takes_dirs),
    (" (owners of links)", Case::sets_owners_of_links),
    (" (owners of set-ids)", Case::sets_owners_of_set_ids),
    (" (new groups)", Case::links_in_new_groups),
    (" (closed in groups)", Case::makes_closed_dirs_in_set_group_ids),
    (" (rights)", Case::sets_rights_in_set_group_ids),
    (" (trusted)", Case::sets_trusted),
    (" (unreadable)", Case::has_unreadable_dirs),
    (" (others' files)", Case::has_files_of_others),
    (" (lost groups)", Case::loses_groups),
    (" (others' groups)", Case::moves_from_groups_of_others),
    (" (lists in groups)", Case::removes_lists_in_set_group_ids),
    (" (changed content)", Case::changes_content),
    (" (pipes)", Case::has_pipes),
    (" (locked maps)", Case::locks_mapped_files),
    (" (taken names)", Case::takes_names),
    (" (path descriptors)", Case::opens_paths),
    (" (hidden names)", Case::unnames_while_open),
    (" (others' directories again)", Case::is_run_again_among_others),
];

impl Known {
    fn covers(&self, storage: Storage, case: &Case, finding: &Finding) -> bool {
        let rest = |suffix: &str| self.signature.strip_suffix(suffix);
        let mut of_cases = OF_CASES.iter();
        let of_case = of_cases.find_map(|(suffix, is_so)| Some((suffix, rest(suffix).filter(|_| is_so(case))?)));
        let patterns = match of_case {
            Some((suffix, rest)) if suffix.starts_with(OF_USERS) => vec![format!("{rest} (user)")],
            Some((_, rest)) => vec![rest.to_owned(), format!("{rest} (user)")],
            None => vec![self.signature.clone()],
        };
        let mut patterns = patterns.iter();
        patterns.any(|pattern| matches(pattern, &finding.signature)) && matches(&self.storage, storage.name())
    }
}

/// All that is known.
#[derive(Clone, Debug, Default)]
pub struct KnownList(Vec<Known>);

impl KnownList {
    /// The limits alone.
    pub fn limits() -> Self {
        let known = |(storage, signature, why): &(&str, &str, &str)| Known {
            storage: (*storage).to_owned(),
            signature: (*signature).to_owned(),
            why: (*why).to_owned(),
        };
        Self(LIMITS.iter().map(known).collect())
    }

    /// The limits, and the bugs of a file: lines like `ext4 | answer rename EXDEV/ok | issue 12: ...`.
    ///
    /// # Errors
    /// What reading says, or the line that is none.
    pub fn with_file(path: &Path) -> io::Result<Self> {
        let mut list = Self::limits();
        for line in fs::read_to_string(path)?.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let [storage, signature, why] = parts[..] else {
                return Err(io::Error::other(format!(
                    "{}: \"{line}\" is no `storage | signature | why`",
                    path.display()
                )));
            };
            list.0.push(Known {
                storage: storage.to_owned(),
                signature: signature.to_owned(),
                why: why.to_owned(),
            });
        }
        Ok(list)
    }

    /// What is known about a finding.
    pub fn of(&self, storage: Storage, case: &Case, finding: &Finding) -> Option<&Known> {
        // What comes after a call is not the cause of its answer.
        let until = finding.step.map(|step| case.until(step));
        let case = until.as_ref().unwrap_or(case);
        self.0.iter().find(|known| known.covers(storage, case, finding))
    }
}

/// Whether a text is one of a pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    (0..=text.len()).any(|skipped| text.is_char_boundary(skipped) && matches(rest, &text[skipped..]))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::super::compare::Class;
    use super::*;

    #[test]
    fn each_limit_stands_in_the_semantics() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SEMANTICS.md");
        let semantics = fs::read_to_string(path).expect("SEMANTICS.md");
        let limits = semantics.split_once("## Limits").expect("its limits").1;
        for (_, signature, limit) in LIMITS {
            assert!(
                limits.contains(&format!("- **{limit}")),
                "\"{signature}\" is no limit: {limit}"
            );
        }
    }

    #[test]
    fn what_is_closed_is_known_where_something_is_closed() {
        let known = Known {
            storage: "*".to_owned(),
            signature: "answer * */EACCES (user, closed)".to_owned(),
            why: String::new(),
        };
        let finding = Finding {
            class: Class::Answer,
            signature: "answer open ok/EACCES (user)".to_owned(),
            detail: String::new(),
            step: None,
        };
        let case = |old: &str| Case::decode(&format!("# elbow differ 1\nworker 1 1 1\n{old}\n")).expect("a case");
        let covers = |old: &str| known.covers(Storage::Tmpfs, &case(old), &finding);
        assert!(covers("old dir a 0055 1 1") && covers("old file a 0311 1 1 0@1"));
        assert!(covers("old dir a 0755 1 1\nold acl a access u::r--,g::r--,o::---"));
        assert!(!covers("old dir a 0711 0 0") && !covers("old file a 0400 1 1 0@1"));
    }

    #[test]
    fn times_are_known_where_something_is_somebody_elses() {
        const OWN_TOP: &str = "old dir . 0755 1 1\n";
        let covers = |top: &str, old: &str, ending: &str| {
            let text = format!("# elbow differ 1\nrunner user\nworker 1 1\n{top}{old}\n");
            let finding = Finding {
                class: Class::Wrong,
                signature: format!("wrong-after-0 after file mtime is now{ending}"),
                detail: String::new(),
                step: None,
            };
            let case = Case::decode(&text).expect("a case");
            KnownList::limits().of(Storage::Tmpfs, &case, &finding).is_some()
        };
        for others in ["old dir a 0777 2 1", "old file a 0666 2 1 0@1", "old symlink a b 2 1"] {
            assert!(
                covers(OWN_TOP, others, " (user)") && !covers(OWN_TOP, others, ""),
                "{others}"
            );
        }
        for own in ["old dir a 0777 1 1", "old file a 0666 1 2 0@1", "old symlink a b 1 1"] {
            assert!(!covers(OWN_TOP, own, " (user)"), "{own}");
            assert!(covers("", own, " (user)"), "the directory of the job is root's: {own}");
        }
    }

    #[test]
    fn what_comes_later_is_no_cause_of_an_answer() {
        let text =
            "# elbow differ 1\nworker 0 0\ncall 0 stat root a -\ncall 0 mapwrite m0 0 1@1\ncall 0 stat root a -\n";
        let case = Case::decode(text).expect("a case");
        let known = |step| {
            let finding = Finding {
                class: Class::Answer,
                signature: "answer stat ok/ok mtime".to_owned(),
                detail: String::new(),
                step: Some(step),
            };
            KnownList::limits().of(Storage::Tmpfs, &case, &finding).is_some()
        };
        assert!(!known(0) && known(2));
    }

    #[test]
    fn a_star_is_any_text() {
        assert!(matches("answer * */EACCES (user)", "answer open ok/EACCES (user)"));
        assert!(!matches("answer * */EACCES (user)", "answer open ok/EACCES"));
        assert!(matches("a", "a") && matches("*", "") && !matches("a*b", "abc"));
    }
}
