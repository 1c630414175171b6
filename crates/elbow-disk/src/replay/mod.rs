//! A trace against a drive: what was measured beside what is simulated.
//!
//! The *demerit* of a simulation is the root mean square horizontal distance between two distributions of response times: the
//! distance between the i-th shortest measured and the i-th shortest simulated, not between the two times of one request.
//!
//! Source: Ruemmler and Wilkes, *An Introduction to Disk Drive Modeling* (IEEE Computer 27:3, 1994).

mod counters;
mod queued;
mod report;

use crate::controller::{Controller, Served};
use crate::drive::{CLOCK_MAX, Ps};
use crate::trace::{Arrival, LineError, Record, Trace, TraceError};

use counters::ReplayCounters;
pub use queued::QueuedReplay;
pub use report::{Figures, Report};

/// Serves a whole trace, first come first served, one request in the drive at a time.
///
/// Memory is bounded by the number of different response times, a million or so, whatever the number of requests.
///
/// # Errors
/// [`TraceError`] where the trace has one, or its clock runs over.
///
/// ```
/// use elbow_disk::trace::{Format, Trace};
/// use elbow_disk::{Controller, Drive, replay};
/// let drive = Drive::named("hp-c2247a")?;
/// let trace = Trace::new("t", Format::Validate, "R Miss 564347 2 14095.37 13876.27\n".as_bytes(), drive.sectors());
/// let report = replay(trace, Controller::new(&drive), |_, _, _| ())?;
/// assert_eq!(report.all.requests, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replay(
    mut trace: Trace<'_>,
    mut controller: Controller<'_>,
    mut each: impl FnMut(&Record, Ps, &Served),
) -> Result<Report, TraceError> {
    let mut counters = ReplayCounters::default();
    let mut now = Ps::ZERO;
    while let Some(record) = trace.next().transpose()? {
        let arrival = match record.arrival {
            Arrival::At(at) => at,
            Arrival::After(think) => now + think,
        };
        if arrival > CLOCK_MAX || now > CLOCK_MAX {
            return Err(trace.wrong_at(record.line, LineError::ClockRunsOver));
        }
        let served = controller.serve(now.max(arrival), record.request);
        each(&record, arrival, &served);
        counters.add(&record, served.end - arrival, &served);
        now = served.end;
    }
    Ok(counters.report(now, trace.lost()))
}
