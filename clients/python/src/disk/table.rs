//! Columns of numbers for Python: bytes in the machine's order, which NumPy and Arrow use as they are.

use elbow_disk::Ps;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// Name of a column, and its type as in Python's `struct`.
pub(super) type Name = (&'static str, &'static str);

/// Name, type, values.
pub(super) type Columns<'py> = Vec<(&'static str, &'static str, Bound<'py, PyByteArray>)>;

/// One value.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    Int(i64),
    Float(f64),
    Flag(bool),
}

impl From<u32> for Cell {
    fn from(value: u32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<u64> for Cell {
    /// Sectors and counts, all far below 2^63.
    fn from(value: u64) -> Cell {
        Cell::Int(value as i64)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Flag(value)
    }
}

impl From<Ps> for Cell {
    fn from(time: Ps) -> Cell {
        Cell::Float(time.ms())
    }
}

/// Rows that come one by one.
pub(super) struct Table<const N: usize> {
    names: &'static [Name; N],
    columns: [Vec<u8>; N],
}

impl<const N: usize> Table<N> {
    pub(super) fn new(names: &'static [Name; N]) -> Self {
        Self {
            names,
            columns: std::array::from_fn(|_| Vec::new()),
        }
    }

    /// Adds one, of the types that were named.
    #[inline]
    pub(super) fn row(&mut self, cells: [Cell; N]) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match cell {
                Cell::Int(value) => column.extend_from_slice(&value.to_ne_bytes()),
                Cell::Float(value) => column.extend_from_slice(&value.to_ne_bytes()),
                Cell::Flag(value) => column.push(value.into()),
            }
        }
    }

    /// Column by column, so that no more than one is there twice.
    pub(super) fn into_python(self, py: Python<'_>) -> PyResult<Columns<'_>> {
        let columns = self.names.iter().zip(self.columns);
        columns
            .map(|(&(name, code), bytes)| {
                let array = PyByteArray::new_with(py, bytes.len(), |array| {
                    array.copy_from_slice(&bytes);
                    Ok(())
                })?;
                Ok((name, code, array))
            })
            .collect()
    }
}
