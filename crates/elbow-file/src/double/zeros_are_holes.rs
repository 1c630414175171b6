//! A storage that does not store zeros.

#![allow(clippy::disallowed_methods, reason = "looks at what the storage below has")]

use std::any::Any;

use super::{Call, Hook, Operation};
use crate::{Handle, Result};

const BLOCK_BYTES: u64 = 4096;

/// Says that blocks of zeros are holes, whoever has written them, as ZFS does where it compresses (OpenZFS, `zfsprops(7)`,
/// `compression`).
#[derive(Debug, Default)]
pub struct ZerosAreHoles;

impl Hook for ZerosAreHoles {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut answer = make()?;
        if call.operation == Operation::NextData
            && let Some(data) = (&mut answer as &mut dyn Any).downcast_mut::<Option<(u64, u64)>>()
        {
            *data = next_data(call.handle, call.offset);
        }
        Ok(answer)
    }
}

fn next_data(file: &Handle, offset: u64) -> Option<(u64, u64)> {
    let blocks = || (offset / BLOCK_BYTES..).map_while(|block| Some((block * BLOCK_BYTES, has_data(file, block)?)));
    let (start, _) = blocks().find(|(_, has_data)| *has_data)?;
    let data = blocks().skip_while(|(block, has_data)| *block < start || *has_data);
    let end = data.map(|(block, _)| block).next();
    Some((start.max(offset), end.unwrap_or_else(|| length_of(file))))
}

/// None behind the end.
fn has_data(file: &Handle, block: u64) -> Option<bool> {
    let mut bytes = [0; BLOCK_BYTES as usize];
    let read = rustix::io::pread(file, &mut bytes, block * BLOCK_BYTES).unwrap_or(0);
    (read > 0).then(|| bytes[..read].iter().any(|byte| *byte != 0))
}

fn length_of(file: &Handle) -> u64 {
    rustix::fs::fstat(file).map_or(0, |stat| stat.st_size.unsigned_abs())
}
