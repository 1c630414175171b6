//! Lines of text: the order of `LC_ALL=C sort`, and an external sort in it.
//!
//! ```text
//!   order     what comes first: keys, options, the last resort; prefixes that decide most comparisons
//!     key       which part of a line          number   -n -h -M      float   -g      version   -V
//!   engine    sorts, merges, checks; options divide the memory
//!     form      reader, sorter and writer over three chunks        merge    loser tree over chunks and runs
//!       chunk     lines and entries in one allocation                lines    out of a stream     sink   into one
//!       input     streams one after the other                        run      temporary files, freed as they are read
//!                                                                    compress the same through a program
//! ```

mod chunk;
mod compress;
mod engine;
mod error;
mod float;
mod form;
mod input;
mod key;
mod lines;
mod merge;
mod number;
mod options;
mod order;
mod run;
mod sink;
mod version;

pub use engine::{Disorder, Output, Summary, TextSort};
pub use error::TextError;
pub use input::Input;
pub use key::{KeyOptions, KeySpec};
pub use options::SortOptions;
pub use order::{OrderOptions, TextOrder};
