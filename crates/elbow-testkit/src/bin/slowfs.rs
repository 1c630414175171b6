//! `slowfs SOURCE MOUNTPOINT`: the slow storage of the tests and benches as a command.

#![allow(clippy::disallowed_methods)] // See the library: here is the storage itself.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use elbow_testkit::duration::parse_duration;
use elbow_testkit::signals::Signals;
use elbow_testkit::slowfs::{BENCH_CONCURRENT, Fault, Mounted, SlowFs, SlowOptions};

/// Shows SOURCE at MOUNTPOINT as slow storage would.
///
/// Every operation of the kernel takes --latency and is then done on SOURCE. Runs in the foreground, prints a line when
/// it is mounted, and ends when it is unmounted or gets SIGINT or SIGTERM. While it runs,
/// `getfattr -n user.slowfs.stats --only-values MOUNTPOINT` prints what has reached it; that costs no operation.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example: slowfs --latency 2ms --concurrent 64 /srv/data /mnt/slow"
)]
struct Arguments {
    /// The directory to show
    source: PathBuf,
    /// Where to show it
    mountpoint: PathBuf,
    /// The time that every operation takes, as in 2ms, 500us or 1s
    #[arg(long, default_value = "0", value_parser = parse_duration)]
    latency: Duration,
    /// Bytes per second, reads and writes together [default: no limit]
    #[arg(long)]
    bandwidth: Option<u64>,
    /// How many operations are served at once; 0 for no limit
    #[arg(long, default_value_t = BENCH_CONCURRENT)]
    concurrent: usize,
    /// How long the kernel may believe a name and its attributes
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    ttl: Duration,
    /// Make operations fail: `OPERATION:ERRNO[:after=N][:count=N][:name=GLOB]`; repeatable
    #[arg(long)]
    fault: Vec<Fault>,
    /// Write what reached the storage to this file, as JSON, at the end and on SIGUSR1
    #[arg(long)]
    stats: Option<PathBuf>,
    /// Keep the names of removed files while they are open, under other names, as NFS and sshfs do
    #[arg(long)]
    hide_open: bool,
    /// Let other users use the mount
    #[arg(long)]
    allow_other: bool,
    /// Refuse all fcntl and flock locks, as mounts without locks do
    #[arg(long)]
    without_locks: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let signals = Signals::block(); // Before any thread starts, so that all of them inherit it.
    let options = SlowOptions {
        latency: arguments.latency,
        bandwidth: arguments.bandwidth,
        concurrent: arguments.concurrent,
        faults: arguments.fault.clone(),
        ttl: arguments.ttl,
        hide_open: arguments.hide_open,
        allow_other: arguments.allow_other,
        without_locks: arguments.without_locks,
    };
    let mounted = SlowFs::mount(&arguments.source, &arguments.mountpoint, &options).with_context(|| {
        format!(
            "mounting {} on {}",
            arguments.source.display(),
            arguments.mountpoint.display()
        )
    })?;
    writeln!(
        io::stdout(),
        "slowfs: {} is mounted on {}",
        arguments.source.display(),
        mounted.path().display()
    )?;
    serve(mounted, &signals, &arguments)
}

/// Until the mount is gone or somebody ends us.
fn serve(mounted: Mounted, signals: &Signals, arguments: &Arguments) -> anyhow::Result<()> {
    /// How often the end of the mount is looked for.
    const POLL: Duration = Duration::from_millis(100);
    loop {
        match signals.wait(POLL) {
            Some(libc::SIGUSR1) => write_stats(&mounted, arguments)?,
            Some(_) => break,
            None if mounted.has_ended() => break,
            None => {}
        }
    }
    write_stats(&mounted, arguments)?;
    Ok(mounted.unmount()?)
}

/// Replaces the file of counters in one step.
fn write_stats(mounted: &Mounted, arguments: &Arguments) -> anyhow::Result<()> {
    let Some(path) = &arguments.stats else { return Ok(()) };
    let partial = path.with_extension("partial");
    std::fs::write(&partial, serde_json::to_vec_pretty(&mounted.counters())?)?;
    std::fs::rename(&partial, path).with_context(|| format!("writing {}", path.display()))
}
