//! Which requests are shown.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use elbow_disk::sched::Scheduler;
use elbow_disk::timeline::Listed;
use elbow_disk::trace::{Arrival, LineError, Record, Trace};
use elbow_disk::workload::{Overheads, Workload, simulate};
use elbow_disk::{Drive, Lbn, Ps, Request};

use super::super::input;

/// Nobody follows more than that, and each is an element of the picture.
const REQUESTS_MAX: usize = 100;

/// Requests of one size for these sectors on, all there at once.
pub(super) fn of_lbns(drive: &Drive, lbns: &[u64], load: &Workload) -> Result<Vec<Listed>> {
    ensure!(
        load.reads == 0.0 || load.reads == 1.0,
        "--reads is {}: the requests of --lbns are writes (0) or reads (1); a trace has both",
        load.reads
    );
    ensure!(load.request_sectors > 0, "--sectors is 0: a request has at least one");
    check_count(lbns.len())?;
    lbns.iter().map(|&lbn| of_lbn(drive, lbn, load)).collect()
}

fn of_lbn(drive: &Drive, lbn: u64, load: &Workload) -> Result<Listed> {
    let last = lbn.saturating_add(u64::from(load.request_sectors) - 1);
    let sectors = drive.sectors();
    if last >= sectors {
        let first = lbn;
        bail!("--lbns: {}", LineError::NotOnTheDrive { first, last, sectors });
    }
    Ok(at_once(Request {
        lbn: Lbn(lbn),
        sectors: load.request_sectors,
        write: load.reads == 0.0,
    }))
}

fn at_once(request: Request) -> Listed {
    Listed {
        arrival: Ps::ZERO,
        request,
    }
}

/// The first requests of a random load, all there at once.
pub(super) fn random(drive: &Arc<Drive>, load: &Workload) -> Result<Vec<Listed>> {
    check_count(usize::try_from(load.requests)?)?;
    let load = Workload {
        arrivals: Workload::default().arrivals,
        overheads: Overheads::None,
        warm_up: 0,
        ..*load
    };
    let mut list = Vec::new();
    simulate(drive, Scheduler::Fcfs, &load, |served| {
        list.push(at_once(Request {
            lbn: served.lbn,
            sectors: served.sectors,
            write: served.write,
        }));
    })?;
    Ok(list)
}

/// The requests of a trace.
pub(super) fn of_trace(drive: &Drive, path: &Path) -> Result<Vec<Listed>> {
    let name = path.display().to_string();
    let trace = Trace::detect(&name, input::open(path)?, drive.sectors())?;
    let records: Vec<Record> = trace.take(REQUESTS_MAX + 1).collect::<Result<_, _>>()?;
    ensure!(!records.is_empty(), "{name}: the trace has no requests");
    ensure!(
        records.len() <= REQUESTS_MAX,
        "{name} has more than {REQUESTS_MAX} requests: show some of them, as with `head -n {REQUESTS_MAX}`"
    );
    records.iter().map(|record| timed(&name, record)).collect()
}

fn timed(name: &str, record: &Record) -> Result<Listed> {
    match record.arrival {
        Arrival::At(arrival) => Ok(Listed {
            arrival,
            request: record.request,
        }),
        Arrival::After(Ps::ZERO) => Ok(at_once(record.request)),
        Arrival::After(_) => bail!(
            "{name}:{}: a request that waits for the end of another is not shown: write when it comes (as csv with arrival_ms)",
            record.line
        ),
    }
}

fn check_count(requests: usize) -> Result<()> {
    ensure!(
        requests <= REQUESTS_MAX,
        "{requests} requests are too many to follow: show {REQUESTS_MAX} or fewer"
    );
    Ok(())
}
