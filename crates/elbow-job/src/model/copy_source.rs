//! Where bytes are that are copied on the storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::Name;
use crate::route::Route;

/// What a part of a copy takes of the memory for written data: more than its names, so that a far end that copies slowly is not asked for
/// any number of files.
pub(super) const CHARGE_BYTES: u64 = 16 << 10;

/// The old file that a copy is made of, by its name on the storage.
#[derive(Debug)]
pub(crate) struct CopySource {
    pub(crate) route: Route,
    pub(crate) name: Name,
    /// What it counts in.
    gauge: Option<Arc<AtomicU64>>,
}

impl CopySource {
    pub(super) fn counted(route: Route, name: Name, gauge: &Arc<AtomicU64>) -> Arc<Self> {
        gauge.fetch_add(CHARGE_BYTES, Ordering::Relaxed);
        Arc::new(Self {
            route,
            name,
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
    pub(crate) fn uncounted(route: Route, name: Name, offset: u64) -> Self {
        let gauge = None;
        Self {
            source: Arc::new(CopySource { route, name, gauge }),
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
