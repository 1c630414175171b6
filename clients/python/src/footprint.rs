//! Which bytes a lock covers, as Python says it.

use elbow_ranges::{Dim, Footprint as Ranges, Strided};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::bad_pattern;

/// Bytes of one `(offset, length)` pair of an array.
const PAIR_BYTES: usize = 16;

/// Start; count and stride of each vector, from the outermost to the innermost; length.
type Pattern = (u64, Vec<(u64, u64)>, u64);

/// The bytes that a lock covers.
#[pyclass(frozen, module = "elbowroom._native")]
pub(crate) struct Footprint(pub(crate) Ranges);

#[pymethods]
impl Footprint {
    /// All bytes of a file, those that are not there yet included.
    #[staticmethod]
    fn whole() -> Self {
        Self(Ranges::whole())
    }

    /// Pairs of offset and length.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value, reason = "that is how arguments come")]
    fn pairs(pairs: Vec<(u64, u64)>) -> PyResult<Self> {
        from_pairs(pairs.into_iter())
    }

    /// Pairs of offset and length, as 64-bit integers in the machine's order.
    #[staticmethod]
    fn packed(bytes: &[u8]) -> PyResult<Self> {
        if !bytes.len().is_multiple_of(PAIR_BYTES) {
            return Err(PyValueError::new_err("an array of ranges has pairs of 64-bit integers"));
        }
        let number = |bytes: &[u8]| u64::from_ne_bytes(std::array::from_fn(|at| bytes[at]));
        let pairs = bytes.chunks_exact(PAIR_BYTES);
        from_pairs(pairs.map(|pair| (number(&pair[..8]), number(&pair[8..]))))
    }

    /// Any of some patterns: start, (count, stride) from the outermost to the innermost, length.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value, reason = "that is how arguments come")]
    fn patterns(patterns: Vec<Pattern>) -> PyResult<Self> {
        let strided = patterns.iter().map(|(start, dims, length)| {
            let dims: Vec<Dim> = dims.iter().map(|&(count, stride)| Dim { count, stride }).collect();
            Strided::new(*start, &dims, *length)
        });
        let strided = strided
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| bad_pattern(&error))?;
        Ranges::from_patterns(strided)
            .map(Self)
            .map_err(|error| bad_pattern(&error))
    }

    /// What either covers.
    fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0))
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// What pairs cover; an empty one covers nothing.
fn from_pairs(pairs: impl Iterator<Item = (u64, u64)>) -> PyResult<Footprint> {
    let list = Ranges::from_list(pairs.filter(|&(_, length)| length > 0));
    list.map(Footprint).map_err(|error| bad_pattern(&error))
}
