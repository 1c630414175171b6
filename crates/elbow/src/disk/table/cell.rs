//! Columns and values of a table.

use elbow_disk::Ps;

/// What a column holds.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk) enum ColumnType {
    Whole,
    Milliseconds,
    /// Not of every row.
    MaybeMilliseconds,
    Letter,
}

/// One value of a row.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk) enum Cell {
    Whole(u64),
    Time(Ps),
    MaybeTime(Option<Ps>),
    Letter(char),
}
