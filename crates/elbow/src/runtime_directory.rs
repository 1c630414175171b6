//! A directory of the user's own for sockets and what lies beside them.
//!
//! It can be entered by its owner alone, and nothing is believed of one that is not such. It is the same whatever the environment says.

#![allow(clippy::disallowed_methods)] // sockets of ours, not storage

use std::collections::HashSet;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use elbow_mount::runtime_parents;

/// Where things of this user can be, whatever the environment says, and then what it says.
pub(crate) fn candidates() -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let fixed = [
        format!("/run/user/{own}"),
        "/run".into(),
        "/tmp".into(),
        "/var/tmp".into(),
    ]
    .map(PathBuf::from);
    let mut all: Vec<PathBuf> = fixed.into_iter().chain(runtime_parents()).collect();
    let mut seen = HashSet::new();
    all.retain(|parent| seen.insert(parent.clone()));
    all.iter().map(|parent| parent.join(format!("elbow-{own}"))).collect()
}

/// A directory of the user's own that nobody else can enter.
pub(crate) fn runtime_directory(apart_from: &[&Path]) -> anyhow::Result<PathBuf> {
    let is_apart = |directory: &PathBuf| apart_from.iter().all(|other| !directory.starts_with(other));
    let made = candidates().into_iter().filter(is_apart).find(|directory| {
        let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
        made.is_ok() || is_private(directory)
    });
    made.context("no directory for a control socket; set XDG_RUNTIME_DIR or TMPDIR to a directory of yours")
}

pub(crate) fn is_private(directory: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(directory)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own && metadata.mode() & 0o077 == 0)
}
