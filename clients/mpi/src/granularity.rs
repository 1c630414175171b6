//! How finely accesses are locked.
//!
//! Exactly, unless `ELBOW_MPI_LOCKS` says `extent` (from the first byte of an access to its last) or `file`: what other
//! services lock, to be measured beside (`bench/mpi.py`). Every grain covers what the access touches, so processes with
//! different ones exclude each other as they must.

use elbow_ranges::{Footprint, Mode};

use crate::error::MpiError;

const VARIABLE: &str = "ELBOW_MPI_LOCKS";

/// No byte of a file lies at this offset or after it, for `MPI_Offset` has a sign.
pub(crate) const FILE_END: u64 = 1 << 63;

/// What the environment says.
///
/// # Errors
/// It says something that is none.
pub(crate) fn from_environment() -> Result<Mode, MpiError> {
    match std::env::var(VARIABLE) {
        Err(std::env::VarError::NotPresent) => Ok(Mode::List),
        Ok(text) => granularity(&text),
        Err(error) => Err(MpiError::Unsupported(format!("{VARIABLE}: {error}"))),
    }
}

fn granularity(text: &str) -> Result<Mode, MpiError> {
    match text {
        "list" => Ok(Mode::List),
        "extent" => Ok(Mode::Extent),
        "file" => Ok(Mode::File),
        other => Err(MpiError::Unsupported(format!(
            "{VARIABLE} is `{other}`; it may be list, extent or file"
        ))),
    }
}

/// What is locked for an access: all of the file ends before the byte that stands for the shared pointer, which may be
/// locked already.
pub(crate) fn coarsened(footprint: Footprint, granularity: Mode) -> Footprint {
    match granularity {
        Mode::List => footprint,
        Mode::File => Footprint::extent(0..FILE_END).unwrap_or(footprint),
        coarser => footprint.coarsen(coarser),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grain_is_one_of_three_words() {
        assert_eq!(granularity("list").unwrap(), Mode::List);
        assert_eq!(granularity("extent").unwrap(), Mode::Extent);
        assert_eq!(granularity("file").unwrap(), Mode::File);
        assert!(
            granularity("blocks")
                .unwrap_err()
                .to_string()
                .contains("list, extent or file")
        );
    }

    #[test]
    fn each_grain_covers_the_access_and_none_the_shared_pointer() {
        let access = Footprint::from_list([(100, 10), (200, 10)]).unwrap();
        let pointer = Footprint::extent(FILE_END..FILE_END + 1).unwrap();
        for (granularity, locked) in [
            (Mode::List, access.clone()),
            (Mode::Extent, Footprint::extent(100..210).unwrap()),
            (Mode::File, Footprint::extent(0..FILE_END).unwrap()),
        ] {
            let found = coarsened(access.clone(), granularity);
            assert_eq!(found, locked);
            assert!(!found.overlaps(&pointer));
        }
    }
}
