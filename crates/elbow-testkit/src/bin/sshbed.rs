//! `sshbed DIR --one-way TIME`: a private ssh server that is far away, for the benches.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use elbow_testkit::delayproxy::Line;
use elbow_testkit::duration::parse_duration;
use elbow_testkit::signals::Signals;
use elbow_testkit::sshbed::SshTestbed;

/// Runs a private ssh server behind a delay until SIGINT or SIGTERM.
///
/// Prints one JSON object when it is ready: `host`, and `options` that go before it for ssh and after it for sshfs.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// An empty directory for keys, configuration and log
    dir: PathBuf,
    /// How late each direction is, as in 5ms
    #[arg(long, value_parser = parse_duration)]
    one_way: Duration,
    /// How many bytes a second each direction takes [default: as many as loopback]
    #[arg(long)]
    rate: Option<u64>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let signals = Signals::block();
    let testbed = SshTestbed::start(
        &arguments.dir,
        Line {
            one_way: arguments.one_way,
            rate: arguments.rate,
        },
    )?;
    writeln!(io::stdout(), "{}", serde_json::to_string(testbed.access())?)?;
    signals.wait_for_end();
    Ok(())
}
