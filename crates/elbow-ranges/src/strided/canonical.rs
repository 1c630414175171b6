//! The canonical form of vectors. The order of vectors has no meaning, so each step may look at any two.

use smallvec::SmallVec;

use super::{Dim, Level, Levels, Strided};
use crate::PatternError;

/// Vectors on their way to the canonical form: smallest stride first.
type Dims = SmallVec<[Dim; 4]>;

/// The length of a piece, the levels outermost first, and the extent of all of it.
pub(super) fn canonical(dims: &[Dim], len: u64) -> Result<(u64, Levels, u64), PatternError> {
    if len == 0 || dims.iter().any(|dim| dim.count == 0) {
        return Err(PatternError::Empty);
    }
    let mut dims: Dims = dims
        .iter()
        .copied()
        .filter(|dim| dim.count > 1 && dim.stride > 0)
        .collect();
    dims.sort_unstable_by_key(|dim| dim.stride);
    let len = absorb(&mut dims, len)?;
    join(&mut dims)?;
    let (levels, extent) = measure(&dims, len)?;
    Ok((len, levels, extent))
}

/// Makes one longer piece of pieces that touch or overlap.
fn absorb(dims: &mut Dims, mut len: u64) -> Result<u64, PatternError> {
    let mut absorbed = 0;
    while let Some(dim) = dims.get(absorbed).filter(|dim| dim.stride <= len) {
        len = extent(*dim, len)?;
        absorbed += 1;
    }
    dims.drain(..absorbed);
    Ok(len)
}

/// Makes one vector of two wherever the outer one only continues the inner one. `dims`: by stride, smallest first.
fn join(dims: &mut Dims) -> Result<(), PatternError> {
    let mut inner = 0;
    while inner < dims.len() {
        let Dim { count, stride } = dims[inner];
        let continues = |outer: &Dim| outer.stride.is_multiple_of(stride) && outer.stride / stride <= count;
        match dims[inner + 1..].iter().position(continues) {
            None => inner += 1,
            Some(distance) => {
                let outer = dims.remove(inner + 1 + distance);
                let steps = (outer.count - 1).checked_mul(outer.stride / stride);
                dims[inner].count = steps
                    .and_then(|steps| steps.checked_add(count))
                    .ok_or(PatternError::Overflow)?;
                inner = 0; // what did not continue the shorter vector may continue this one
            }
        }
    }
    Ok(())
}

/// The levels of vectors given smallest stride first, and their extent.
fn measure(dims: &[Dim], len: u64) -> Result<(Levels, u64), PatternError> {
    if dims.len() > Strided::DEPTH_MAX {
        return Err(PatternError::TooDeep { depth: dims.len() });
    }
    let mut levels = SmallVec::with_capacity(dims.len());
    let mut inner = len;
    let mut ways = 1_u64;
    for &dim in dims {
        let level = Level {
            count: dim.count,
            stride: dim.stride,
            inner,
        };
        inner = extent(dim, inner)?;
        ways = ways.saturating_mul(level.tangle());
        levels.push(level);
    }
    if ways > Strided::TANGLE_MAX {
        return Err(PatternError::Tangled { ways });
    }
    levels.reverse();
    Ok((levels, inner))
}

fn extent(dim: Dim, inner: u64) -> Result<u64, PatternError> {
    let last = (dim.count - 1).checked_mul(dim.stride);
    last.and_then(|last| last.checked_add(inner))
        .ok_or(PatternError::Overflow)
}
