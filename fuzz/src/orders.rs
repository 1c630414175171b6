//! What the far end of a job by ssh makes of an order to do something of a job: an error, or what was ordered, whatever the bytes are.
//!
//! Used twice: by the fuzz targets, which search for bytes, and by a test of `elbow-job`, which takes random ones.

use std::sync::Arc;

use elbow_file::{FarWorker, RealStorage};
use elbow_job::FarJobs;

/// An order that is this, with some content, does not end the program, nor anything outside of the directory.
pub fn order(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a directory");
    let served = place.path().join("served");
    std::fs::create_dir(&served).expect("a directory");
    let root = RealStorage::open_root(&served).expect("a directory");
    let jobs = FarJobs::new(Arc::new(RealStorage), root.clone());
    let _ = jobs.work(&[root.clone(), root], bytes, bytes.to_vec());
    drop(jobs.end());
    let beside = std::fs::read_dir(place.path()).expect("a directory").count();
    assert_eq!(beside, 1, "something came to be beside the directory that is served");
}
