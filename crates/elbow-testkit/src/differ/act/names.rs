//! Calls about names: what makes, moves and lists them.

use rustix::fs::{self as sys, Dir, FileType, Mode, OFlags};

use super::super::answer::{self, Answer};
use super::super::word::{At, AtFlags, Bits, Kind, Name, RenameFlags, Slot, spell};
use super::{Worker, done, mode};

/// A device that is everywhere and does nothing: `/dev/null`.
const NULL_DEVICE: (u32, u32) = (1, 3);

/// Flags as rustix has them.
pub(super) fn at_flags(flags: AtFlags) -> sys::AtFlags {
    sys::AtFlags::from_bits_retain(flags.0.cast_unsigned())
}

impl Worker {
    pub(super) fn mknod(&self, at: At, name: &Name, kind: Kind, bits: Bits) -> Answer {
        let device = match kind {
            Kind::Char | Kind::Block => sys::makedev(NULL_DEVICE.0, NULL_DEVICE.1),
            Kind::Fifo | Kind::Socket | Kind::File => 0,
        };
        let kind = FileType::from_raw_mode(kind.value().cast_unsigned());
        done(sys::mknodat(self.at(at)?, &name.0[..], kind, mode(bits), device))
    }

    pub(super) fn link(&self, from: (At, &Name), to: (At, &Name), flags: AtFlags) -> Answer {
        let (old, new) = (self.at(from.0)?, self.at(to.0)?);
        done(sys::linkat(old, &from.1.0[..], new, &to.1.0[..], at_flags(flags)))
    }

    pub(super) fn rename(&self, from: (At, &Name), to: (At, &Name), flags: RenameFlags) -> Answer {
        let (old, new) = (self.at(from.0)?, self.at(to.0)?);
        let flags = sys::RenameFlags::from_bits_retain(flags.0.cast_unsigned());
        done(sys::renameat_with(old, &from.1.0[..], new, &to.1.0[..], flags))
    }

    pub(super) fn list(&self, at: At, name: &Name) -> Answer {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = sys::openat(self.at(at)?, &name.0[..], flags, Mode::empty())?;
        listed(&mut Dir::new(dir)?)
    }

    pub(super) fn flist(&self, slot: Slot) -> Answer {
        let mut dir = Dir::new(rustix::io::dup(self.fd(slot)?)?)?;
        dir.rewind();
        listed(&mut dir)
    }
}

fn listed(dir: &mut Dir) -> Answer {
    let mut names = Vec::new();
    for entry in dir {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(
                [
                    spell(&Name(name.to_vec())).as_bytes(),
                    b"=",
                    answer::kind(entry.file_type()).as_bytes(),
                ]
                .concat(),
            );
        }
    }
    Ok(answer::names(names))
}
