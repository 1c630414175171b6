//! A storage that does not tell which names are of one object.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Call, Hook};
use crate::{Result, Stat};

/// Answers that each object has one name, and an inode number made of that: as SFTP does, which has neither (sshfs).
#[derive(Debug, Default)]
pub struct SyntheticInodes;

impl Hook for SyntheticInodes {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut answer = make()?;
        if let Some(stat) = (&mut answer as &mut dyn Any).downcast_mut::<Stat>() {
            let mut hasher = DefaultHasher::new();
            call.path().hash(&mut hasher);
            (stat.ino, stat.nlink) = (hasher.finish(), 1);
        }
        Ok(answer)
    }
}
