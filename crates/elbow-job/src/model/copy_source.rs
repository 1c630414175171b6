//! Where bytes are that are copied on the storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::{FileType, Stat, Time};
use serde::{Deserialize, Serialize};

use super::config::Name;
use crate::route::Route;

/// What a part of a copy takes of the memory for written data: more than its names, so that a far end that copies slowly is not asked for
/// any number of files.
pub(super) const CHARGE_BYTES: u64 = 16 << 10;

/// What tells one version of an old file from another.
///
/// As for conflicts the inode number is none of it: some network and FUSE file systems make it up, and the time of the inode changes with every
/// replacement anyway. The job itself changes nothing of old files before the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceVersion {
    size: u64,
    mtime: Time,
    ctime: Time,
}

impl SourceVersion {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            size: stat.size,
            mtime: stat.mtime,
            ctime: stat.ctime,
        }
    }

    /// Nobody has replaced or changed it.
    pub(crate) fn is_still(&self, now: &Stat) -> bool {
        now.kind == FileType::File && *self == Self::of(now)
    }
}

/// The old file that a copy is made of, by its name on the storage.
#[derive(Debug)]
pub(crate) struct CopySource {
    pub(crate) route: Route,
    pub(crate) name: Name,
    /// As the job saw it: the bytes of no other version are copied.
    pub(crate) version: SourceVersion,
    /// What it counts in.
    gauge: Option<Arc<AtomicU64>>,
}

impl CopySource {
    pub(super) fn counted(route: Route, name: Name, version: SourceVersion, gauge: &Arc<AtomicU64>) -> Arc<Self> {
        gauge.fetch_add(CHARGE_BYTES, Ordering::Relaxed);
        Arc::new(Self {
            route,
            name,
            version,
            gauge: Some(gauge.clone()),
        })
    }
}

impl Drop for CopySource {
    fn drop(&mut self) {
        if let Some(gauge) = &self.gauge {
            gauge.fetch_sub(CHARGE_BYTES, Ordering::Relaxed);
        }
    }
}

/// Bytes of an old file, from an offset of it on.
#[derive(Clone, Debug)]
pub(crate) struct CopyPiece {
    pub(crate) source: Arc<CopySource>,
    pub(crate) offset: u64,
}

impl CopyPiece {
    /// One that came from elsewhere, and that no budget counts.
    pub(crate) fn uncounted(route: Route, name: Name, version: SourceVersion, offset: u64) -> Self {
        let source = CopySource {
            route,
            name,
            version,
            gauge: None,
        };
        Self {
            source: Arc::new(source),
            offset,
        }
    }

    pub(super) fn from(&self, start: u64) -> Self {
        Self {
            source: self.source.clone(),
            offset: self.offset + start,
        }
    }

    pub(super) fn same_call(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
    }
}
