//! What the threads of a job share: those that answer, those that store, and the one that ends it.
//!
//! Whatever changes is behind one lock ([`SharedState`]), which nobody holds while the storage is asked for something.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::{Handle, Storage, Time};
use parking_lot::{Condvar, Mutex};

use crate::api::Ino;
use crate::clock::clock;
use crate::concurrency::Pool;
use crate::execute::Journal;
use crate::far_orders::StagingContext;
use crate::far_send::PulseCounts;
use crate::liveness::Lock;
use crate::model::{Model, Name};
use crate::options::Options;
use crate::recording::Recording;
use crate::report::{Counts, DeferredError};
use crate::root_id::RootId;
use crate::spill::SpillFile;
use crate::staging::{JobHome, Manifest};

/// What the threads of a job share.
pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) root: Handle,
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) staging_name: Name,
    pub(crate) part_name: Name,
    pub(crate) root_times: (Time, Time),
    /// What the directory can be known by, when it does not answer any more.
    pub(crate) home: RootId,
    pub(crate) state: Mutex<SharedState>,
    /// Work may be ready.
    pub(crate) work: Condvar,
    /// Memory came free, or a visit ended.
    pub(crate) progress: Condvar,
    /// Bytes of written data held in memory.
    pub(crate) gauge: Arc<AtomicU64>,
    /// Bytes that actions under way have written so far.
    pub(crate) arriving: AtomicU64,
    /// Where written data beyond the memory goes, if there is such a place.
    pub(crate) spill: Option<Arc<SpillFile>>,
    pub(crate) journal: Mutex<Option<Journal>>,
    /// Of the manifest.
    pub(crate) lock: Lock,
    /// Questions of operations to the storage that have begun, and those of them that are answered.
    pub(crate) asked: Arc<AtomicU64>,
    pub(crate) answered: Arc<AtomicU64>,
    /// Where it is told what the job does, if somebody wants to know.
    pub(crate) recording: Recording,
}

/// What a lock protects.
pub(crate) struct SharedState {
    pub(crate) model: Model,
    pub(crate) pool: Pool,
    pub(crate) errors: Vec<DeferredError>,
    /// What was refused and could be done at the end.
    pub(crate) overcome: Vec<DeferredError>,
    /// The storage has taken something and told later that it could not store it, or may have told so: that is not in hand any more.
    pub(crate) is_lost: bool,
    /// The job's end has closed the files of the storage: none is kept open from now on.
    pub(crate) files_are_closed: bool,
    /// The end of a job that is being committed was asked for.
    pub(crate) is_interrupted: bool,
    /// Directories that somebody is listing now.
    pub(crate) listing: HashSet<Ino>,
    /// Writers that wait for memory.
    pub(crate) waiting_for_room: usize,
}

impl Shared {
    pub(crate) fn counts(&self, state: &mut SharedState) -> Counts {
        let mut counts = state.model.counts;
        counts.objects_left = state.model.objects_left();
        let left = state.model.bytes_left();
        let arrived = self.arriving.load(Ordering::Relaxed).min(left);
        counts.bytes_written += arrived;
        counts.bytes_left = left - arrived;
        counts.queued = state.model.graph.left() as u64;
        counts.in_flight = state.model.graph.running as u64;
        counts.memory_bytes = self.gauge.load(Ordering::Relaxed);
        state.pool.meter.report(state.model.graph.left(), &mut counts);
        counts
    }

    pub(crate) fn pulse_counts(&self) -> PulseCounts {
        PulseCounts {
            asked: self.asked.clone(),
            answered: self.answered.clone(),
        }
    }

    /// The same for the far end of a connection, which makes it there.
    pub(crate) fn staging_context(&self) -> StagingContext {
        StagingContext {
            staging_name: self.staging_name.to_os_string(),
            part_name: self.part_name.to_os_string(),
            root_times: self.root_times,
            command: self.options.command.clone(),
        }
    }

    pub(crate) fn manifest(&self, home: JobHome) -> Manifest {
        Manifest {
            save: self.options.save.clone(),
            ..Manifest::of_this_process(clock(), self.root_times, &self.options.command, home)
        }
    }
}
