//! The job: a command's operations over a directory as one transaction (floor 2).
//!
//! ```text
//!   front end (FUSE, tests)          operations, answered at once
//!        v
//!   model     what the tree will be  (pure; `model/`)           <-  `fetch`: what it has to ask first
//!        v    difference of desired and placed
//!   graph     objects with work left (pure; `graph`, `plan`, `routes`, `complete`)
//!        v    actions
//!   pool      threads that execute   (`pool`, `execute`, `shared`)  ->  elbow_file::Storage
//!        v
//!   commit    record, apply, clean   (`commit/`), `recover` (`found`, `ownership`, `liveness`), `kept`, `resume`
//! ```
//!
//! Invariants: before commit the storage changes only inside staging directories (`staging`); nothing is
//! acknowledged that can be known to fail; a failed background action makes the job unable to commit and is
//! reported once. Not here: FUSE, processes, terminals.
//!
//! Source: Nettelblad & Nettelblad, *Opportunistically Maximizing I/O Throughput Exploiting the
//! Transactional Nature of Batch-Mode Data Processing* (CannyFS).

mod abandon;
mod abilities;
#[cfg(test)]
mod abilities_test;
mod action;
mod action_span;
mod api;
#[cfg(test)]
mod attributes_test;
mod behaviours;
#[cfg(test)]
mod beside_test;
#[cfg(test)]
mod bounds_test;
mod clock;
mod closed;
#[cfg(test)]
mod closing_test;
mod commit;
mod complete;
mod concurrency;
mod copy_there;
#[cfg(test)]
mod crash_test;
mod descriptors;
mod execute;
mod far_jobs;
mod far_list;
mod far_orders;
mod far_send;
mod fetch;
mod found;
mod graph;
#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod inherit_test;
mod job;
mod job_files;
mod kept;
#[cfg(test)]
mod left_test;
mod liveness;
mod look;
mod lost_answers;
mod meter;
mod missing;
mod model;
#[cfg(test)]
mod no_room_test;
mod options;
mod orphans;
mod os_path;
#[cfg(test)]
mod own_jobs_test;
mod ownership;
#[cfg(test)]
mod pairs_test;
mod parallel;
mod patch_files;
#[cfg(test)]
mod pieces_test;
mod plan;
#[cfg(test)]
mod planted_test;
mod pool;
#[cfg(test)]
mod power_test;
mod prelist;
#[cfg(test)]
mod progress_test;
#[cfg(test)]
mod reading_test;
mod recorder;
#[cfg(test)]
mod recorder_test;
mod recording;
mod recover;
#[cfg(test)]
mod refusal_test;
mod removal;
#[cfg(test)]
mod removal_test;
mod report;
mod restore;
mod resume;
#[cfg(test)]
mod resume_test;
#[cfg(test)]
mod rights_beside_test;
#[cfg(test)]
mod room_test;
mod root_id;
mod route;
mod routes;
#[cfg(test)]
mod saved_test;
#[cfg(test)]
mod scenes_test;
#[cfg(test)]
mod schedule_test;
mod seek;
#[cfg(test)]
mod server_test;
mod shared;
mod show;
mod spill;
mod staging;
mod step_counter;
#[cfg(test)]
mod stuck_test;
mod tally;
#[cfg(test)]
mod turn_test;
mod watches;
#[cfg(test)]
mod won_test;

pub use abandon::{Abandoned, abandon};
pub use abilities::Ability;
pub use api::{Answer, Attr, Caller, Fetch, Ino, Listed, Numbered, OpError, SetAttr, SetIds, SetTime, XattrMode};
pub use behaviours::Behaviour;
pub use commit::{Ended, StagedWork};
pub use far_jobs::FarJobs;
pub use job::{Job, MEMORY_MIN_BYTES};
pub use kept::drop_kept;
pub use options::{OnConflict, Options, Publish};
pub use orphans::recover_orphans;
pub use ownership::try_writing;
pub use recorder::{ActionRecord, EndStep, Recorder, WaitReason, WaitRecord, Worker};
pub use recover::recover;
pub use report::{
    Cause, Change, ChangeKind, Counts, DeferredError, JobError, Keep, Kept, NOT_WON, Outcome, Phase, Progress,
    RecoverAction, Recovered, Steps, StorageProgress,
};
pub use restore::{SavedJob, drop_saved, restore, save_places, saved_by_other_versions, saved_jobs};
pub use resume::{resume, retry};
pub use root_id::Elsewhere;
pub use seek::Seek;
pub use show::{JobState, UnfinishedJob, show};
pub use spill::check_scratch;
pub use staging::is_staging_name;
