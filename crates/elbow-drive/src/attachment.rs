//! The ways to a drive: a file, a block device over such a file, or NBD.

use std::io;
use std::path::{Path, PathBuf};

use crate::block_device::Link;
use crate::fuse::MountedFile;
use crate::loop_device::LoopDevice;
use crate::nbd::{NbdAddress, NbdServer};

/// Where a drive is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentKind {
    /// A file at a path.
    File(PathBuf),
    /// A block device, whose file is mounted at a path that nobody else needs to know.
    Loop(PathBuf),
    /// A network block device.
    Nbd(NbdAddress),
}

/// A way to a drive. Dropping it closes it, whoever uses it.
#[derive(Debug)]
pub struct Attachment(Kind);

#[derive(Debug)]
enum Kind {
    // The device goes before its file.
    Loop(LoopDevice, MountedFile),
    File(MountedFile),
    Nbd(NbdServer),
}

impl Attachment {
    /// Opens it.
    ///
    /// # Errors
    /// The file cannot be mounted, there is no free loop device, or nobody may listen there.
    pub fn open(kind: &AttachmentKind, link: Link) -> io::Result<Self> {
        Ok(Self(match kind {
            AttachmentKind::File(path) => Kind::File(MountedFile::at(path, link)?),
            AttachmentKind::Loop(path) => {
                let file = MountedFile::at(path, link)?;
                Kind::Loop(LoopDevice::over(file.path())?, file)
            }
            AttachmentKind::Nbd(address) => Kind::Nbd(NbdServer::start(address, link)?),
        }))
    }

    /// What it is called: a path, or the address of NBD.
    #[must_use]
    pub fn name(&self) -> String {
        let shown = |path: &Path| path.display().to_string();
        match &self.0 {
            Kind::File(file) => shown(file.path()),
            Kind::Loop(device, _) => shown(device.path()),
            Kind::Nbd(server) => server.address().to_string(),
        }
    }

    /// After a power cut: who had it open has lost it, what was mounted from it is not any more, and who opens it now gets the
    /// drive as it is after power on.
    ///
    /// # Errors
    /// A process uses a file of a file system that was mounted from the device.
    pub fn replug(&mut self, link: Link) -> io::Result<()> {
        match &mut self.0 {
            Kind::File(file) => file.replace(link),
            Kind::Loop(device, file) => {
                device.tear_off()?;
                file.replace(link)?;
                device.set_file(file.path())
            }
            Kind::Nbd(server) => {
                server.replace(link);
                Ok(())
            }
        }
    }

    /// Closes it; clients of NBD are disconnected.
    ///
    /// # Errors
    /// The file is open, the device in use, or what the system has of it cannot be stored: then it stays.
    pub fn close(&mut self) -> io::Result<()> {
        self.close_storing(true)
    }

    /// The same of a device that takes nothing more: what the system has of it is lost.
    ///
    /// # Errors
    /// The file is open, or the device in use: then it stays.
    pub fn close_failed(&mut self) -> io::Result<()> {
        self.close_storing(false)
    }

    fn close_storing(&mut self, stores: bool) -> io::Result<()> {
        match &mut self.0 {
            Kind::File(file) => file.close(),
            Kind::Loop(device, file) => {
                device.release(stores)?;
                file.close()
            }
            Kind::Nbd(_) => Ok(()),
        }
    }
}
