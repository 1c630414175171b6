//! The FUSE front end of a job and the private mount namespace that it is seen in (floor 3).
//!
//! ```text
//!   command ── system call ──> kernel ── /dev/fuse ──> Front ── operation ──> elbow_job::Job
//!      │                                                  (fuser's one reader thread, or a pool when it has to wait)
//!      └─ lives in a mount namespace of its own, where DIR is the FUSE mount; everybody else sees DIR as it is
//! ```
//!
//! - [`Front`] turns kernel requests into operations of the job and answers back. It has no policy.
//! - [`Connection`] is a FUSE mount: attached nowhere yet, or at a path; [`Session`] serves it.
//! - [`NamespaceEntry`] puts a child process into a namespace in which connections lie over their directories.
//! - [`Watcher`] takes mounts away, and ends what lives in a namespace, when this process is killed.
//! - [`PassedThrough`] are directories in them that are no part of the job.
//! - [`JobDirectory`] checks a directory before anything is started and says what is wrong with it.
//!
//! This crate decides nothing about commits, exit codes or output.
//!
//! ```no_run
//! use std::{path::Path, process::Command, sync::Arc};
//! use elbow_file::RealStorage;
//! use elbow_job::{Job, Options};
//! use elbow_mount::{ChildState, Connection, NamespaceEntry, Front, FrontOptions, JobDirectory, PassedThrough, Watcher};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let watcher = Watcher::start()?; // before there is a second thread
//! let passed = PassedThrough::default();
//! let place = JobDirectory::check(Path::new("/project/alice"), &passed)?;
//! let root = RealStorage::open_root(place.path())?;
//! let job = Job::begin(Arc::new(RealStorage), root, place.path(), Options::default())?;
//! let mut connection = Connection::private(&place, &watcher)?;
//! let _session = connection.serve(Front::new(job.clone(), FrontOptions::default()))?;
//!
//! let mut command = Command::new("make");
//! NamespaceEntry::new(&[(&connection, &place)], &passed, None, ChildState::current())?.on_exec(&mut command)?;
//! let status = command.status()?; // it sees the job; nobody else does
//! if status.success() {
//!     job.commit(&mut |_| {})?;
//! }
//! # Ok(()) }
//! ```

mod anchor;
mod caller;
mod connection;
mod convert;
mod copies;
mod directory_readahead;
mod dispatch;
mod front;
mod fuse;
mod id_maps;
mod job_directory;
mod last_files;
mod mappable;
mod mount_error;
mod mount_table;
mod namesakes;
mod namespace;
mod nodes;
mod open_dirs;
mod options;
mod passed;
mod pending_reply;
mod pool;
mod prefetch;
mod readahead;
mod real_path;
mod reply;
mod runtime;
mod session;
mod step;
mod subordinate;
mod user_namespace;
mod watcher;

pub use anchor::Anchor;
pub use connection::Connection;
pub use front::{CONTROL_XATTR, Front};
pub use fuse::unmount;
pub use job_directory::JobDirectory;
pub use mount_error::MountError;
pub use mount_table::{MountedFileSystem, file_system_of, job_mounts, nested_mounts, sshfs_source};
pub use namespace::{ChildState, NamespaceEntry, Report};
pub use options::FrontOptions;
pub use passed::PassedThrough;
pub use runtime::runtime_parents;
pub use session::{Session, WrittenBack};
pub use step::Step;
pub use subordinate::has_subordinate_ids;
pub use watcher::{Watcher, end_connection};
