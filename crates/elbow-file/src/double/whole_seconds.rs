//! A storage that keeps times in whole seconds.

use std::any::Any;

use super::{Call, Hook};
use crate::{Result, Stat};

/// Answers as SFTP does, and an ext2 with inodes of 128 bytes: of each time the whole seconds.
#[derive(Debug, Default)]
pub struct WholeSeconds;

impl Hook for WholeSeconds {
    fn around<T: 'static>(&self, _: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut answer = make()?;
        if let Some(stat) = (&mut answer as &mut dyn Any).downcast_mut::<Stat>() {
            for time in [&mut stat.atime, &mut stat.mtime, &mut stat.ctime] {
                time.nanoseconds = 0;
            }
        }
        Ok(answer)
    }
}
