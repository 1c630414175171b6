//! Parts of arrays: `MPI_Type_create_subarray` and `MPI_Type_create_darray`, one dimension after the other, beginning with
//! the one whose neighbours lie next to each other. Source: MPI 4.0, sections 5.1.3 and 5.1.4.

use std::ffi::c_int;

use super::numbers::{Element, Numbers, count, product, short};
use crate::error::MpiError;
use crate::layout::Layout;
use crate::native::Native;

/// Dimensions of an array from the one whose neighbours lie next to each other to the outermost.
fn fastest_first(native: &Native, dimensions: usize, order: i64) -> Vec<usize> {
    if order == i64::from(native.abi.order_c) {
        (0..dimensions).rev().collect()
    } else {
        (0..dimensions).collect()
    }
}

/// One process's part of an array: a box in it.
pub(super) fn part(native: &Native, mut element: Element, numbers: &Numbers<'_>) -> Result<Layout, MpiError> {
    let (sizes, part_sizes, starts) = (numbers.array(1, 0)?, numbers.array(1, 1)?, numbers.array(1, 2)?);
    for dimension in fastest_first(native, sizes.len(), numbers.at(1 + 3 * sizes.len())?) {
        let part = element.block(count(part_sizes[dimension])?)?;
        element.layout = Layout::sequence([(product(starts[dimension], element.extent)?, part)])?;
        element.extent = product(element.extent, sizes[dimension])?;
    }
    Ok(element.layout)
}

/// One process's share of an array that is dealt out over a grid of processes.
pub(super) fn share(native: &Native, mut element: Element, numbers: &Numbers<'_>) -> Result<Layout, MpiError> {
    let tail = Numbers(numbers.0.get(2..).ok_or_else(short)?); // the number of dimensions comes first
    let (sizes, kinds, arguments, grid) = (
        tail.array(1, 0)?,
        tail.array(1, 1)?,
        tail.array(1, 2)?,
        tail.array(1, 3)?,
    );
    let coordinates = grid_coordinates(numbers.at(1)?, grid)?;
    for dimension in fastest_first(native, sizes.len(), tail.at(1 + 4 * sizes.len())?) {
        let dealt = Share {
            size: count(sizes[dimension])?,
            ranks: count(grid[dimension])?.max(1),
            rank: coordinates[dimension],
        };
        element.layout = dealt.of(native, kinds[dimension], arguments[dimension], &element)?;
        element.extent = product(element.extent, sizes[dimension])?;
    }
    Ok(element.layout)
}

/// Where a rank stands in the grid of processes, which is always in C order.
fn grid_coordinates(rank: i64, grid: &[i64]) -> Result<Vec<u64>, MpiError> {
    let mut rest = count(rank)?;
    let mut coordinates = vec![0; grid.len()];
    for (coordinate, ranks) in coordinates.iter_mut().zip(grid).rev() {
        let ranks = count(*ranks)?.max(1);
        (*coordinate, rest) = (rest % ranks, rest / ranks);
    }
    Ok(coordinates)
}

/// One rank's share of one dimension of a distributed array.
struct Share {
    size: u64,
    ranks: u64,
    rank: u64,
}

impl Share {
    fn of(&self, native: &Native, kind: i64, argument: i64, element: &Element) -> Result<Layout, MpiError> {
        let abi = native.abi;
        let chosen = (argument != i64::from(abi.distribute_default))
            .then_some(argument)
            .map(count)
            .transpose()?;
        match c_int::try_from(kind) {
            Ok(kind) if kind == abi.distribute_none => element.block(self.size),
            Ok(kind) if kind == abi.distribute_block => {
                self.cyclic(chosen.unwrap_or(self.size.div_ceil(self.ranks)), element)
            }
            Ok(kind) if kind == abi.distribute_cyclic => self.cyclic(chosen.unwrap_or(1), element),
            _ => Err(MpiError::Datatype(format!(
                "it is distributed in a way that is not known here ({kind})"
            ))),
        }
    }

    /// Blocks of `length` dealt out in turn; a block distribution is one whose first round deals out all.
    fn cyclic(&self, length: u64, element: &Element) -> Result<Layout, MpiError> {
        let length = length.max(1);
        let round = length.saturating_mul(self.ranks);
        let first = length.saturating_mul(self.rank);
        let left = self.size.saturating_sub(first);
        let (whole, rest) = (left / round, left % round);
        let (whole, partial) = if rest >= length { (whole + 1, 0) } else { (whole, rest) };
        let place = |index: u64| {
            i64::try_from(index)
                .map_err(|_| short())
                .and_then(|index| product(index, element.extent))
        };
        let blocks = element.vector(whole, length, place(round)?)?;
        let last = element.block(partial)?;
        Ok(Layout::sequence([
            (place(first)?, blocks),
            (place(first.saturating_add(whole.saturating_mul(round)))?, last),
        ])?)
    }
}
