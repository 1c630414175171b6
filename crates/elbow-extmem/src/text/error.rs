//! What can go wrong with lines of text.

/// Why lines cannot be sorted as asked. Messages are those of sort(1), where it has one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A key is not described as `-k` wants it.
    #[error("{problem}: invalid field specification '{spec}'")]
    FieldSpec {
        /// What is wrong.
        problem: &'static str,
        /// The whole description.
        spec: String,
    },
    /// A number is missing in the description of a key.
    #[error("{problem}: invalid count at start of '{rest}'")]
    Count {
        /// What is wrong.
        problem: &'static str,
        /// What stands where the number is due.
        rest: String,
    },
    /// Ordering options that contradict each other.
    #[error("options '-{0}' are incompatible")]
    Incompatible(String),
    /// A letter that is no ordering option.
    #[error("'{0}' is no ordering option; there are b, d, f, g, h, i, M, n, r and V")]
    UnknownOption(char),
    /// `-R`.
    #[error("a random order (-R) is not available; shuf(1) gives one")]
    RandomOrder,
}
