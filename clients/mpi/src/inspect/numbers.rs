//! The numbers that a datatype was made from, and the type that it is made of.

use crate::error::MpiError;
use crate::layout::Layout;

/// The numbers a type was made from.
pub(crate) struct Numbers<'a>(pub(super) &'a [i64]);

impl<'a> Numbers<'a> {
    pub(super) fn at(&self, index: usize) -> Result<i64, MpiError> {
        self.0.get(index).copied().ok_or_else(short)
    }

    pub(super) fn count(&self, index: usize) -> Result<u64, MpiError> {
        count(self.at(index)?)
    }

    /// The `which`-th array of as many numbers as the first number says; the first array begins at `from`.
    pub(super) fn array(&self, from: usize, which: usize) -> Result<&'a [i64], MpiError> {
        let length = usize::try_from(self.at(0)?).map_err(|_| short())?;
        let begin = length
            .checked_mul(which)
            .and_then(|skipped| skipped.checked_add(from))
            .ok_or_else(short)?;
        self.0
            .get(begin..)
            .and_then(|rest| rest.get(..length))
            .ok_or_else(short)
    }
}

pub(crate) fn short() -> MpiError {
    MpiError::Datatype("its description is shorter than it should be".into())
}

pub(crate) fn count(number: i64) -> Result<u64, MpiError> {
    u64::try_from(number).map_err(|_| MpiError::Datatype(format!("its description has the count {number}")))
}

pub(crate) fn product(a: i64, b: i64) -> Result<i64, MpiError> {
    a.checked_mul(b)
        .ok_or_else(|| MpiError::Datatype("it spans more than 2^63 bytes".into()))
}

/// What a type is made of copies of.
#[derive(Clone)]
pub(crate) struct Element {
    pub(super) layout: Layout,
    pub(super) extent: i64,
}

impl Element {
    pub(super) fn block(&self, count: u64) -> Result<Layout, MpiError> {
        Ok(Layout::repeat(count, self.extent, self.layout.clone())?)
    }

    pub(super) fn vector(&self, count: u64, length: u64, stride: i64) -> Result<Layout, MpiError> {
        Ok(Layout::repeat(count, stride, self.block(length)?)?)
    }

    pub(super) fn indexed(&self, lengths: &[i64], displacements: &[i64], unit: i64) -> Result<Layout, MpiError> {
        let mut parts = Vec::with_capacity(lengths.len());
        for (length, at) in lengths.iter().zip(displacements) {
            parts.push((product(*at, unit)?, self.block(count(*length)?)?));
        }
        Ok(Layout::sequence(parts)?)
    }
}
