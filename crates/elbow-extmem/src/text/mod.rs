//! Lines of text: the order of `LC_ALL=C sort`.
//!
//! ```text
//!   order     what comes first: keys, options, the last resort; prefixes that decide most comparisons
//!     key       which part of a line          number   -n -h -M      float   -g      version   -V
//! ```

mod error;
mod float;
mod key;
mod number;
mod order;
mod version;

pub use error::TextError;
pub use key::{KeyOptions, KeySpec};
pub use order::{OrderOptions, TextOrder};
