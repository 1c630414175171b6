//! What a finished action means for the model.

use elbow_file::{Errno, Handle};

use crate::abilities::Modes;
use crate::action::{Action, FillTarget};
use crate::api::Ino;
use crate::model::{Body, EntryKey, Fill, IN_TRANSIT, Inode, Inodes, Model, Staging, forget_handle};
use crate::report::is_out_of_space;
use crate::route::{DirSide, StorageName};

/// What an action gave besides success.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Descriptors opened on the way.
    pub(crate) directories: Vec<(DirSide, Handle)>,
    /// The file that was created or opened.
    pub(crate) file: Option<Handle>,
    /// The directory that was created.
    pub(crate) made: Option<Handle>,
    /// The object exists, whatever became of the rest of its creation.
    pub(crate) is_made: bool,
    /// The job's own directory, made with the root's staging directory.
    pub(crate) job_dir: Option<Handle>,
    /// Symbolic links have attributes of their own.
    pub(crate) link_attributes: bool,
    /// The staging directory that was made does not give the group on that it has inherited.
    pub(crate) loses_group: bool,
    /// What becomes of modes.
    pub(crate) modes: Option<Modes>,
    /// Modifying storage calls made.
    pub(crate) calls: u64,
}

impl Model {
    /// An action on an object succeeded. The object stays [`Work::Running`](crate::model::Work::Running) until it is
    /// planned again.
    pub(crate) fn complete(&mut self, ino: Ino, action: &Action, done: Done) {
        self.counts.storage_calls += done.calls;
        for (side, handle) in done.directories {
            self.inodes.keep_handle(side, handle);
        }
        if let Some(handle) = done.made {
            self.inodes.keep_handle(DirSide::Own(ino), handle);
        }
        match action {
            Action::Stage { .. } => {
                self.inodes.dir_at_mut(ino).loses_group = done.loses_group;
                self.staged(ino, done.job_dir);
            }
            Action::ProbeModes { .. } => self.traits.learn_modes(done.modes),
            Action::ProbeLinks { .. } => self.traits.learn_link_attributes(done.link_attributes),
            Action::Create { at, fill, .. } => self.created(ino, at, fill, done.file),
            Action::Move { from, to, clobbers } => self.moved(from, to, *clobbers),
            Action::Link { to, .. } => self.inodes.place(ino, &to.key),
            Action::Remove { at, .. } | Action::RemoveDir { at } => self.removed(at, done.file),
            Action::Fill { target, fill, .. } => self.filled(ino, target, fill, done.file),
            Action::SetAttributes { .. } => {}
        }
        self.space.note_change();
    }

    /// A directory is being created at the far end: what is made in it may follow, and is there after it.
    pub(crate) fn expect_directory(&mut self, ino: Ino, at: &StorageName, handle: Handle) {
        // Its answer may have come already.
        let is_under_way = self.graph.holder(&at.key) == Some(ino);
        if !is_under_way || !self.inodes.get(ino).is_ok_and(|inode| inode.placed().is_empty()) {
            return;
        }
        self.inodes.keep_handle(DirSide::Own(ino), handle);
        // By names it would be looked for before it is there.
        if self.inodes.dir_at(ino).handle.is_some() {
            arrive(&mut self.inodes, ino, at);
        }
    }

    /// An action failed: the attributes that it was to set are not set, and nobody knows how much it has written.
    pub(crate) fn not_done(&mut self, ino: Ino, action: &Action) {
        let (Action::Create { attrs, .. } | Action::Fill { attrs, .. } | Action::SetAttributes { attrs, .. }) = action
        else {
            return;
        };
        if let Action::Create { at, .. } = action
            && self.inodes.get(ino).is_ok_and(|inode| inode.placed().contains(&at.key))
        {
            // It was expected to come.
            displace(self, ino, &at.key);
            forget_handle(&mut self.inodes, ino);
        }
        let Ok(inode) = self.inodes.get_mut(ino) else { return };
        if let Action::Fill { fill, .. } = action
            && let Some(content) = inode.content_mut()
        {
            content.not_filled(fill);
        }
        inode.dirty.owner |= attrs.owner.is_some();
        inode.dirty.mode |= attrs.mode.is_some();
        inode.dirty.times |= attrs.times.is_some();
        let keys = attrs.xattrs.iter().map(|(key, _)| key.clone());
        inode.dirty_xattrs.extend(keys);
    }

    /// A storage that takes data and stores it later may answer a write with what became of one before (NFS), which counts as stored. Want of room is
    /// told by close(2) and syncfs(2), too.
    pub(crate) fn casts_doubt(&self, ino: Ino, action: &Action, errno: Errno) -> bool {
        let Action::Fill { fill, .. } = action else {
            return false;
        };
        let content = self.inodes.get(ino).ok().and_then(Inode::content);
        let has_stored = content.is_some_and(|content| content.counted() > 0 || !content.written.is_empty());
        fill.changes_file() && has_stored && !is_out_of_space(errno)
    }

    fn staged(&mut self, ino: Ino, job_dir: Option<Handle>) {
        if let Some(handle) = job_dir {
            self.inodes.dir_at_mut(IN_TRANSIT).handle = Some(handle);
        }
        self.inodes.dir_at_mut(ino).staging = Staging::Made;
    }

    fn created(&mut self, ino: Ino, at: &StorageName, fill: &Fill, file: Option<Handle>) {
        if !self.inodes.at(ino).placed().contains(&at.key) {
            arrive(&mut self.inodes, ino, at);
        }
        self.space.took_object();
        self.wrote(ino, fill);
        if let Some(content) = self.inodes.at_mut(ino).content_mut() {
            content.target = file;
        }
        if self.inodes.at(ino).opens == 0 {
            self.close_content(ino);
        }
    }

    fn moved(&mut self, from: &StorageName, to: &StorageName, clobbers: Option<Ino>) {
        if let Some(other) = clobbers {
            displace(self, other, &to.key);
            self.drop_if_dead(other);
        }
        // The object under the old name need not be the one that was planned for: an occupant is moved away
        // on behalf of another.
        let Some(ino) = self.inodes.placed_at(&from.key) else {
            return;
        };
        displace(self, ino, &from.key);
        self.inodes.place(ino, &to.key);
        self.scheduler().queue(ino);
    }

    fn removed(&mut self, at: &StorageName, file: Option<Handle>) {
        let key = &at.key;
        let Some(ino) = self.inodes.placed_at(key) else {
            return;
        };
        displace(self, ino, key);
        if let (Some(handle), Some(content)) = (file, self.inodes.at_mut(ino).content_mut()) {
            content.target = Some(handle);
        }
        if !self.inodes.at(ino).names().is_empty() {
            self.scheduler().queue(ino);
        }
        // A dead directory may have waited for its container to become empty.
        if !self.inodes.is_alive(key.dir) {
            self.scheduler().queue(key.dir);
        }
        self.drop_if_dead(ino);
    }

    fn filled(&mut self, ino: Ino, target: &FillTarget, fill: &Fill, file: Option<Handle>) {
        self.wrote(ino, fill);
        let inode = self.inodes.at_mut(ino);
        let open = inode.opens > 0;
        let Body::File(content) = &mut inode.body else { return };
        content.patch_made |= matches!(target, FillTarget::Patch(..) | FillTarget::NewPatch(..));
        let more = !content.dirty.is_empty();
        content.target = file.or(content.target.take());
        if !open && !more {
            self.close_content(ino);
        }
    }

    fn wrote(&mut self, ino: Ino, fill: &Fill) {
        let bytes = fill.bytes();
        self.counts.bytes_written += bytes;
        self.space.took_bytes(bytes + fill.reserve.total_bytes());
        if let Some(content) = self.inodes.at_mut(ino).content_mut() {
            let clean = content.filled(fill);
            self.space.unreserve(clean, 0);
        }
    }

    /// The object needs nothing now: whoever waited for it is asked again.
    pub(crate) fn settle(&mut self, ino: Ino) {
        self.scheduler().rest(ino);
        self.scheduler().wake_waiters(ino);
        self.drop_if_dead(ino);
    }
}

/// The storage has an object under a name no more.
fn displace(model: &mut Model, ino: Ino, key: &EntryKey) {
    model.inodes.unplace(ino, key);
    model.graph.watches.note_moved(ino);
}

/// The object has its first name on the storage, or is going to have it.
fn arrive(inodes: &mut Inodes, ino: Ino, at: &StorageName) {
    inodes.place(ino, &at.key);
    let gives = inodes.gives(at.key.dir);
    if let Body::Dir(dir) = &mut inodes.at_mut(ino).body {
        dir.gives = gives;
    }
}
