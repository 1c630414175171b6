//! Metrics as Prometheus reads them.
//!
//! One page, whatever is asked for; a client that does not ask within a second gets none.
//!
//! Source: Prometheus, *Exposition formats*, text format 0.0.4; RFC 9112 (HTTP/1.1).

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::service::Service;
use super::status;

const ANSWER_FOR: Duration = Duration::from_secs(1);
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Answers one after the other: whoever scrapes has time.
pub(super) async fn serve(listener: TcpListener, service: Arc<Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(timeout(ANSWER_FOR, answer(stream, &service)).await),
            Err(_) => tokio::time::sleep(ANSWER_FOR).await,
        }
    }
}

async fn answer(mut stream: TcpStream, service: &Service) -> std::io::Result<()> {
    let mut asked = Vec::new();
    while !asked.windows(4).any(|four| four == b"\r\n\r\n") && asked.len() < REQUEST_BYTES_MAX {
        if stream.read_buf(&mut asked).await? == 0 {
            return Ok(());
        }
    }
    let page = page(service);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}

/// Of the totals, what goes up and down; the others only grow.
const GAUGES: [&str; 3] = ["files", "holds", "queued"];

fn page(service: &Service) -> String {
    let counters = &service.counters;
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut page = String::new();
    let mut add = |name: &str, value: u64, is_gauge: bool| {
        let (end, kind) = if is_gauge { ("", "gauge") } else { ("_total", "counter") };
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "# TYPE elbow_lock_{name}{end} {kind}\nelbow_lock_{name}{end} {value}"
        );
    };
    add("epoch", u64::from(service.epoch), true);
    add("sessions", service.members().len() as u64, true);
    add("memory_bytes", service.memory.used_bytes() as u64, true);
    add("memory_bytes_max", service.memory.bytes_max() as u64, true);
    add("connections", of(&counters.connections), false);
    add("turned_away", of(&counters.turned_away), false);
    add("leases_lost", of(&counters.leases_lost), false);
    add("requests", of(&counters.requests), false);
    for (name, value) in status::totals(service) {
        add(name, value, GAUGES.contains(&name));
    }
    page
}
