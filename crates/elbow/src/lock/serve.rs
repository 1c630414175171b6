//! `elbow lockd serve`.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use elbow_file::ShowName;
use elbow_lock::server::{Server, Settings};
use elbow_lock::{Address, Credentials, Limits};
use tokio::signal::unix::{SignalKind, signal};

use super::args::ServeArgs;
use super::look::age;
use super::service::credentials;
use crate::exit;
use crate::output::{answer, print_message};

/// The bits of a mode that are neither the owner's nor the group's: those who share a key may be a group.
const EVERYBODY: u32 = 0o007;

/// Serves until told to end.
pub(super) fn run(args: &ServeArgs) -> Result<ExitCode> {
    crate::process_limits::raise_open_files(); // two for each client
    crate::allocator::return_large_pieces();
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("threads for the service")?;
    let settings = settings(args, threads)?;
    runtime.block_on(serve(settings))
}

fn settings(args: &ServeArgs, threads: usize) -> Result<Settings> {
    let credentials = args.key_file.as_deref().map(secret).transpose()?;
    Ok(Settings {
        listen: args.listen.clone(),
        users: args.users.into(),
        credentials,
        ttl_ms_max: args.ttl,
        memory: memory(args)?,
        first: args.first,
        metrics: args.metrics.clone(),
        shards: threads,
        clients_max: args.clients,
        limits: limits(args),
        drain_ms_max: args.drain,
        warn: |trouble| print_message(format_args!("{trouble}")),
        give_back: crate::allocator::give_back,
    })
}

/// What clients and the service know each other by, unless everybody on this machine knows it too.
#[allow(
    clippy::disallowed_methods,
    reason = "the service's own key, not storage of the user's"
)]
fn secret(path: &Path) -> Result<Credentials> {
    let key = match path.is_dir() {
        true => path.join("key.pem"),
        false => path.to_owned(),
    };
    let credentials = credentials(path)?;
    if let Ok(found) = key.metadata()
        && found.is_file()
        && found.mode() & EVERYBODY != 0
    {
        let (shown, mode) = (key.display(), found.mode() & 0o7777);
        bail!("key {shown}: everybody on this machine may use it (its mode is {mode:04o}); chmod 600 {shown}");
    }
    Ok(credentials)
}

fn limits(args: &ServeArgs) -> Limits {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Limits {
        locks_per_session: args.client_locks,
        list_bytes_per_session: bytes(args.client_memory),
        queue_per_file: args.queue,
        files: args.files,
        memory_bytes: bytes(args.memory),
        request_bytes: bytes(args.request),
        ..Limits::default()
    }
}

async fn serve(settings: Settings) -> Result<ExitCode> {
    let memory = settings.memory.clone();
    // Before anything is written beside it.
    settings.listen.iter().try_for_each(may_be_listened_at)?;
    let server = Server::open(settings).await.context("the lock service cannot begin")?;
    let told = told_to_end()?;
    match server.grace_left_ms() {
        0 => {}
        wait if server.has_no_memory() => print_message(format_args!(
            "{} was not there: for {} nothing is granted, since a service before may have granted it (--first: there was none)",
            memory.display(),
            age(wait.into())
        )),
        wait => print_message(format_args!(
            "the last service here crashed: for {} only those who held locks are let in",
            age(wait.into())
        )),
    }
    for address in server.addresses()? {
        answer(format_args!("listening on {address}"))?;
    }
    match server.run(told).await? {
        0 => Ok(ExitCode::SUCCESS),
        left => {
            print_message(format_args!(
                "{left} clients were still there with locks held; the next service waits for them"
            ));
            Ok(ExitCode::from(exit::ELBOW_FAILED))
        }
    }
}

/// Fails where something else is than the socket of a service.
#[allow(
    clippy::disallowed_methods,
    reason = "the service's own socket, not storage of the user's"
)]
fn may_be_listened_at(address: &Address) -> Result<()> {
    let Address::Unix(path) = address else { return Ok(()) };
    match path.metadata() {
        Ok(found) if !found.file_type().is_socket() => bail!(
            "cannot listen on unix:{}: it is there, and no socket; name another path, or remove it",
            path.shown()
        ),
        _ => Ok(()),
    }
}

/// Ends when a signal says so.
pub(super) fn told_to_end() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Where the epoch is remembered.
fn memory(args: &ServeArgs) -> Result<PathBuf> {
    if let Some(path) = &args.state {
        return Ok(path.clone());
    }
    let unix = args.listen.iter().find_map(|address| match address {
        Address::Unix(path) => Some(path),
        Address::Tcp(_) => None,
    });
    if let Some(path) = unix {
        let mut path = path.clone().into_os_string();
        path.push(".state");
        return Ok(path.into());
    }
    in_state_directory(&args.listen[0])
}

#[allow(
    clippy::disallowed_methods,
    reason = "the service's own memory, not storage of the user's"
)]
fn in_state_directory(address: &Address) -> Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    let Some(home) = home else {
        bail!("where to remember the epoch? name a file with --state");
    };
    let directory = home.join("elbow");
    std::fs::create_dir_all(&directory).with_context(|| format!("{}", directory.display()))?;
    let name = address.to_string().replace(['/', ':'], "-");
    if name.ends_with("-0") {
        return Err(anyhow!(
            "a port that the system chooses has no memory of its own: name a file with --state"
        ));
    }
    Ok(directory.join(format!("lockd-{name}.state")))
}
