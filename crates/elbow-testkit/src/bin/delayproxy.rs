//! `delayproxy LISTEN TARGET --one-way TIME`: a TCP proxy that is far away.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use elbow_testkit::delayproxy::DelayProxy;
use elbow_testkit::duration::parse_duration;
use elbow_testkit::signals::Signals;

/// Passes TCP connections on, each direction late by a fixed time, with no limit to their throughput.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example: delayproxy 127.0.0.1:2222 127.0.0.1:22 --one-way 5ms"
)]
struct Arguments {
    /// Where to listen; port 0 for any free one
    listen: SocketAddr,
    /// Where to pass connections on to
    target: SocketAddr,
    /// How late each direction is, as in 5ms
    #[arg(long, value_parser = parse_duration)]
    one_way: Duration,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let signals = Signals::block();
    let proxy = DelayProxy::listen(arguments.listen, arguments.target, arguments.one_way)?;
    writeln!(io::stdout(), "{}", proxy.address())?;
    signals.wait_for_end();
    Ok(())
}
