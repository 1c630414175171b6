//! What `elbow sort` can be asked for about records.

use clap::Args;

/// The options for records.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// The input is records of so many bytes each; --key is then OFFSET:WIDTH:TYPE (and :desc, for the greatest
    /// first), TYPE one of u8, i8, u16le, i32be, u64le, f32le, f64be (and the like), bytes; without one, the whole record.
    #[arg(long, value_name = "BYTES", help_heading = "Records")]
    pub(crate) record: Option<usize>,
    /// Records of the sort benchmark: 100 bytes, the first ten are the key.
    #[arg(long, conflicts_with = "record", help_heading = "Records")]
    pub(crate) gensort: bool,
    /// Sort the file itself, within the disk space that it has (and about a quarter of the memory); it can be resumed.
    #[arg(long, help_heading = "Records")]
    pub(crate) in_place: bool,
    /// Continue a sort in place that ended early: the order is known, give only the file.
    #[arg(long, conflicts_with_all = ["record", "gensort", "in_place", "key", "dry_run"], help_heading = "Records")]
    pub(crate) resume: bool,
}

impl RecordArgs {
    /// Are records to be sorted, not lines?
    pub(crate) fn are_meant(&self) -> bool {
        self.record.is_some() || self.gensort || self.in_place || self.resume
    }
}
