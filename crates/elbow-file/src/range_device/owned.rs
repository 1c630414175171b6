//! A request that is kept until its turn comes.

use elbow_ranges::RangeSet;

use super::Request;

/// A [`Request`] with data and targets of its own.
#[derive(Clone, Debug)]
pub(super) enum OwnedRequest {
    Read {
        at: u64,
        sectors: u64,
    },
    Write {
        at: u64,
        data: Vec<u8>,
    },
    WriteRange {
        targets: RangeSet,
        alignment: u64,
        data: Vec<u8>,
    },
    Barrier,
    Flush,
}

impl From<Request<'_>> for OwnedRequest {
    fn from(request: Request<'_>) -> Self {
        match request {
            Request::Read { at, sectors } => Self::Read { at, sectors },
            Request::Write { at, data } => Self::Write {
                at,
                data: data.to_vec(),
            },
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => Self::WriteRange {
                targets: targets.clone(),
                alignment,
                data: data.to_vec(),
            },
            Request::Barrier => Self::Barrier,
            Request::Flush => Self::Flush,
        }
    }
}
