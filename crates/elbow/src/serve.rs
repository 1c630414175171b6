//! `elbow serve --stdio`: the far end of `elbow run --via`, which ssh(1) starts there.

use std::fs::File;
use std::io::BufReader;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, ValueHint};
use elbow_file::{Handle, RealStorage, ShowName, Storage};
use elbow_job::{FarJobs, RecoverAction};
use elbow_mount::{JobDirectory, PassedThrough};
use elbow_remote::{SwappedIds, greeted};

use crate::exit;
use crate::process_limits::prepare_process;
use crate::signals;

pub(crate) const EXAMPLES: &str = "\
Examples:
  What `elbow run --via ssh://HOST/project/alice` runs on HOST:
      elbow serve --stdio --root /project/alice

It serves one connection on its standard input and output, and ends with it. What a job of that connection has not committed by then is rolled back, and what it has \
committed is finished. Nothing outside PATH can be reached by it, and nothing that the user could not reach.";

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Serve the process at the other end of standard input and output.
    #[arg(long, required = true)]
    pub(crate) stdio: bool,
    /// The directory to serve; a relative path is below the current directory, which is the home directory of a log in by ssh.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) root: PathBuf,
}

/// Serves one connection.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    // Who ends the connection may end us, too: what is to be done then is done all the same.
    signals::block_all();
    let from = BufReader::with_capacity(READ_BYTES, File::from(std::io::stdin().as_fd().try_clone_to_owned()?));
    let to = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut connection = greeted(from, to)?;
    let root = match opened(args) {
        Ok(root) => root,
        Err(error) => {
            connection.refuse(&format!("{error:#}"))?;
            return Ok(ExitCode::from(exit::ELBOW_FAILED));
        }
    };
    let storage: Arc<dyn Storage> = Arc::new(SwappedIds::new(RealStorage, connection.near()));
    let jobs = FarJobs::new(Arc::new(RealStorage), root.clone()).seen_as(storage.clone());
    let served = connection.serve(&*storage, root, &jobs);
    let ended = jobs.end();
    served?;
    let is_ended = |action| {
        matches!(
            action,
            RecoverAction::RolledBack | RecoverAction::Finished | RecoverAction::Kept
        )
    };
    Ok(
        if ended.iter().flatten().all(|job| is_ended(job.action)) && ended.iter().all(Result::is_ok) {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(exit::ELBOW_FAILED)
        },
    )
}

fn opened(args: &ServeArgs) -> anyhow::Result<Handle> {
    let place = JobDirectory::check(&args.root, &PassedThrough::default())?;
    RealStorage::open_root(place.path()).with_context(|| format!("opening {}", place.path().shown()))
}
