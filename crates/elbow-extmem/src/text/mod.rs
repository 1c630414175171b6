//! Lines of text: the order of `LC_ALL=C sort`, and an external sort in it.
//!
//! ```text
//!   order     what comes first: keys, options, the last resort; prefixes that decide most comparisons
//!     csv       tables, whose rows are lines to the sort        tally    how often each line is there
//!     key       which part of a line          number   -n -h -M      float   -g      version   -V
//!   engine    sorts, merges, checks: text_sort, options             estimate what it will take: budget, plan
//!     form      reader, sorter and writer over three chunks        passes   merging, in lanes side by side
//!       chunk     lines and entries in one allocation                merge    the loser tree over lines
//!       input     streams one after the other                        lanes    runs cut by key
//!     run       temporary files, freed as they are read            blocks   read ahead          lines   out of blocks
//!       file, buffer   past the page cache                         sink     written behind      output  where to
//!       room      how much disk they take                          compress the same through a program
//! ```

mod blocks;
mod budget;
mod buffer;
mod chunk;
mod compress;
mod csv;
mod engine;
mod error;
mod estimate;
mod file;
mod float;
mod form;
mod input;
mod key;
mod lanes;
mod lines;
mod merge;
mod number;
mod options;
mod order;
mod output;
mod passes;
mod plan;
mod prefix;
mod run;
mod sink;
mod tally;
mod temp_space;
mod text_sort;
mod version;

pub use csv::{CsvError, CsvRows, Header, ROW_END};
pub use engine::{Disorder, Summary};
pub use error::TextError;
pub use estimate::SortEstimate;
pub use input::Input;
pub use key::{Fields, KeyOptions, KeySpec};
pub use options::{CountForm, OutputForm, SortOptions};
pub use order::{OrderOptions, TextOrder};
pub use output::Output;
pub use text_sort::TextSort;
