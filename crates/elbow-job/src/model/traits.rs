//! What this storage cannot do, or does in its own way, as far as that is known by now.
//!
//! ```text
//!   able, behaviour, file_system_traits    known: the answer;  unknown: what to fetch (`OpError::NeedsStorage`)
//!   learn..., note...       what a trial on the storage gave
//! ```
//!
//! Invariants: what was learned holds for the whole job, so that the same operation gets the same answer at its
//! beginning and at its end; nothing is refused because of what is not known.
//!
//! Not here: the trials themselves ([`crate::abilities`], [`crate::behaviours`]), and room ([`super::SpaceLedger`]).

use elbow_file::{Errno, FileSystemTraits, Stat};

use crate::abilities::{Abilities, Ability, Modes, SIZE_EVERYWHERE, Trial};
use crate::api::{Answer, Fetch, OpError};
use crate::behaviours::Behaviour;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct StorageTraits {
    abilities: Abilities,
    file_system_traits: Option<FileSystemTraits>,
    /// Symbolic links have attributes of their own.
    link_attributes: Option<bool>,
    has_no_xattrs: bool,
    has_no_acls: bool,
    /// Directory link counts are kept (not so on btrfs and some FUSE file systems).
    counts_subdirs: bool,
    /// An object is to be created as soon as it is known what becomes of modes.
    wants_modes: bool,
}

impl StorageTraits {
    /// By the attributes of the directory that the job is over.
    pub(crate) fn new(root: &Stat) -> Self {
        // A directory has a name and its own `.`; where it has one link only, none are counted.
        const LINKS_OF_A_DIRECTORY: u32 = 2;
        Self {
            abilities: Abilities::default(),
            file_system_traits: None,
            link_attributes: None,
            has_no_xattrs: false,
            has_no_acls: false,
            counts_subdirs: root.nlink >= LINKS_OF_A_DIRECTORY,
            wants_modes: false,
        }
    }

    /// Can the storage do that? The answer, if it is known.
    pub(crate) fn able(&self, ability: &Ability) -> Answer<()> {
        match self.abilities.ask(ability) {
            Ok(answer) => answer.map_err(OpError::from),
            Err(unknown) => Err(OpError::NeedsStorage(Fetch::Ability(unknown))),
        }
    }

    /// Does the storage have files of this size?
    pub(crate) fn able_size(&self, size: u64) -> Answer<()> {
        if size <= SIZE_EVERYWHERE {
            return Ok(());
        }
        self.able(&Ability::Size(size))
    }

    /// In which of two ways does the storage do that?
    pub(crate) fn behaviour(&self, behaviour: Behaviour) -> Answer<bool> {
        let unknown = || OpError::NeedsStorage(Fetch::Ability(Ability::Behaviour(behaviour)));
        self.abilities.behaviour(behaviour).ok_or_else(unknown)
    }

    /// What a trial gave. An error that may pass is not remembered, but given back.
    pub(crate) fn learn(&mut self, ability: &Ability, trial: Trial) -> Result<(), Errno> {
        self.abilities.learn(ability, trial)
    }

    pub(crate) fn file_system_traits(&self) -> Answer<FileSystemTraits> {
        self.file_system_traits
            .ok_or(OpError::NeedsStorage(Fetch::FileSystemTraits))
    }

    pub(crate) fn learn_file_system_traits(&mut self, file_system_traits: FileSystemTraits) {
        self.file_system_traits = Some(file_system_traits);
    }

    /// The user ids on the storage are those of this machine, as far as is known.
    pub(crate) fn has_own_ids(&self) -> bool {
        self.file_system_traits
            .is_none_or(|file_system_traits| file_system_traits.own_ids)
    }

    /// What becomes of the modes of what is created; `None`: not known yet.
    pub(crate) fn modes(&self) -> Option<Modes> {
        self.abilities.modes
    }

    /// A mode that is set stays as it is, as far as is known.
    pub(crate) fn keeps_modes(&self) -> bool {
        self.abilities.modes.is_none_or(|modes| modes.kept)
    }

    /// Nothing can be created before it is known what becomes of modes.
    pub(crate) fn want_modes(&mut self) {
        self.wants_modes = true;
    }

    pub(crate) fn wants_modes(&self) -> bool {
        self.wants_modes
    }

    /// What a trial of modes gave, if it gave anything: it is not done again either way.
    pub(crate) fn learn_modes(&mut self, modes: Option<Modes>) {
        self.wants_modes = false;
        self.abilities.modes = self.abilities.modes.or(modes);
    }

    /// Whether symbolic links have attributes of their own; `None`: not known yet.
    pub(crate) fn link_attributes(&self) -> Option<bool> {
        self.link_attributes
    }

    pub(crate) fn learn_link_attributes(&mut self, are_there: bool) {
        self.link_attributes = Some(are_there);
    }

    /// Symbolic links are known to have no attributes of their own.
    pub(crate) fn has_no_link_attributes(&self) -> bool {
        self.link_attributes == Some(false)
    }

    pub(crate) fn note_no_xattrs(&mut self) {
        self.has_no_xattrs = true;
    }

    /// What the storage said when it was asked for a default ACL.
    pub(crate) fn note_default_acl(&mut self, answer: &Result<Vec<u8>, Errno>) {
        self.has_no_acls |= *answer == Err(Errno::OPNOTSUPP);
    }

    /// The storage is known to have no extended attributes.
    pub(crate) fn has_no_xattrs(&self) -> bool {
        self.has_no_xattrs
    }

    /// The storage is known to have no POSIX ACLs.
    pub(crate) fn has_no_acls(&self) -> bool {
        self.has_no_acls
    }

    /// The directories in a directory are counted as links to it.
    pub(crate) fn counts_subdirs(&self) -> bool {
        self.counts_subdirs
    }
}
