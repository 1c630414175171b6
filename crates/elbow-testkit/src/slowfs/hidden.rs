//! Removed names of open files on storage that knows of no open files.
//!
//! A client of such storage gives a file that is removed while it is open another name in the same directory, and removes
//! that when the file is closed for the last time ("silly rename"). It is seen by whoever lists the directory, and the
//! directory cannot be removed before.
//!
//! Sources: Linux, fs/nfs/unlink.c; libfuse, lib/fuse.c, `hide_node`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;

use rustix::fs::{AtFlags, renameat, unlinkat};
use rustix::io::Result;

use super::tree::Node;

/// How the other name begins.
const PREFIX: &str = ".slowfs-hidden-";

/// How often each node is open, and the names that wait for its last close.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    open: HashMap<u64, Open>,
    next_name: u64,
}

#[derive(Debug, Default)]
struct Open {
    times: u64,
    names: Vec<(Arc<Node>, String)>,
}

impl Hidden {
    pub(super) fn opened(&mut self, node: u64) {
        self.open.entry(node).or_default().times += 1;
    }

    /// Removes what was hidden when this was the last close.
    pub(super) fn closed(&mut self, node: u64) {
        let Some(open) = self.open.get_mut(&node) else { return };
        open.times -= 1;
        if open.times > 0 {
            return;
        }
        for (dir, name) in self.open.remove(&node).map(|open| open.names).unwrap_or_default() {
            if let Err(errno) = unlinkat(&dir.fd, &name, AtFlags::empty()) {
                eprintln!("slowfs: removing {name}: {errno}");
            }
        }
    }

    /// Gives an open file another name; whether it did.
    pub(super) fn hide(&mut self, node: u64, dir: &Arc<Node>, name: &OsStr) -> Result<bool> {
        let Some(open) = self.open.get_mut(&node) else {
            return Ok(false);
        };
        let other = format!("{PREFIX}{node:x}-{}", self.next_name);
        renameat(&dir.fd, name, &dir.fd, &other)?;
        self.next_name += 1;
        open.names.push((Arc::clone(dir), other));
        Ok(true)
    }
}
