//! A row for each read and write that a drive has answered: a trace, as `elbow disk replay --format csv` reads it.
//!
//! ```text
//!   the drive's thread ──> begin: a number   answered, or not ──> channel ──> a thread writes rows by number
//! ```
//!
//! A trace is in the order in which requests came, and they end in another; and whoever answers in real time does not wait for a file.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use elbow_disk::Ps;

const HEADER: &str = "arrival_ms,op,lbn,sectors,response_ms,late_us";

/// What was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredRequest {
    /// Since the drive was attached.
    pub(crate) arrival: Ps,
    pub(crate) is_write: bool,
    pub(crate) lbn: u64,
    pub(crate) sectors: u32,
    pub(crate) response: Ps,
    pub(crate) late: Ps,
}

/// The end of a request by its number; no row for one that failed.
type Ended = (u64, Option<AnsweredRequest>);

/// The log of one drive.
#[derive(Debug)]
pub(crate) struct RequestLog {
    ended: Option<Sender<Ended>>,
    begun: u64,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl RequestLog {
    /// Writes the line of names at once.
    ///
    /// # Errors
    /// It cannot be written, or no thread be started.
    pub(crate) fn start(mut file: Box<dyn Write + Send>) -> io::Result<Self> {
        writeln!(file, "{HEADER}")?;
        let (ended, of) = mpsc::channel();
        let lost = Arc::new(AtomicU64::new(0));
        let losses = Arc::clone(&lost);
        let thread = std::thread::Builder::new()
            .name("elbow-drive-log".into())
            .spawn(move || write_rows(&of, BufWriter::new(file), &losses))?;
        Ok(Self {
            ended: Some(ended),
            begun: 0,
            lost,
            thread: Some(thread),
        })
    }

    /// A request has come; each is to be ended.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun - 1
    }

    /// A request was answered, or failed.
    pub(crate) fn end(&self, number: u64, answered: Option<AnsweredRequest>) {
        if let Some(ended) = &self.ended {
            let _ = ended.send((number, answered)); // the thread ends after this is gone
        }
    }

    /// Rows that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes all that was answered.
    pub(crate) fn finish(&mut self) {
        self.ended = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it panics nowhere
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        self.finish();
    }
}

fn write_rows(ended: &Receiver<Ended>, mut file: impl Write, lost: &AtomicU64) {
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    while let Ok(first) = ended.recv() {
        // Whoever looks at the file finds what has ended: it is flushed where there is nothing more to write.
        waiting.extend([first].into_iter().chain(ended.try_iter()));
        let mut rows = 0;
        let mut written = Ok(());
        while let Some(answered) = waiting.remove(&next) {
            next += 1;
            let Some(answered) = answered else { continue };
            rows += 1;
            written = written.and_then(|()| writeln!(file, "{}", row(&answered)));
        }
        if written.and_then(|()| file.flush()).is_err() {
            lost.fetch_add(rows, Ordering::Relaxed);
        }
    }
}

fn row(answered: &AnsweredRequest) -> String {
    let op = if answered.is_write { "W" } else { "R" };
    format!(
        "{},{op},{},{},{},{:.3}",
        exact_ms(answered.arrival),
        answered.lbn,
        answered.sectors,
        exact_ms(answered.response),
        answered.late.ms() * 1e3
    )
}

/// In milliseconds, to the picosecond: a replay is to find the platter where it was.
fn exact_ms(time: Ps) -> String {
    const PS_PER_MS: u64 = 1_000_000_000;
    format!("{}.{:09}", time.0 / PS_PER_MS, time.0 % PS_PER_MS)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A file of so many bytes at most.
    #[derive(Clone)]
    struct Sink(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.lock().unwrap();
            if written.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            written.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answered(lbn: u64) -> Option<AnsweredRequest> {
        Some(AnsweredRequest {
            arrival: Ps::from_ms(lbn as f64),
            is_write: lbn.is_multiple_of(2),
            lbn,
            sectors: 8,
            response: Ps(12_000_000_001),
            late: Ps::from_ms(0.05),
        })
    }

    #[test]
    fn rows_are_in_the_order_in_which_requests_came() {
        let sink = Sink(Arc::default(), usize::MAX);
        let mut log = RequestLog::start(Box::new(sink.clone())).unwrap();
        let [first, failed, last] = [0; 3].map(|_: u32| log.begin());
        log.end(last, answered(2));
        log.end(failed, None);
        log.end(first, answered(1));
        log.finish();
        let written = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            written,
            format!("{HEADER}\n1.000000000,R,1,8,12.000000001,50.000\n2.000000000,W,2,8,12.000000001,50.000\n")
        );
        assert_eq!(log.lost(), 0);
    }

    #[test]
    fn rows_that_find_no_room_are_counted() {
        let mut log = RequestLog::start(Box::new(Sink(Arc::default(), HEADER.len() + 40))).unwrap();
        for number in 0..5 {
            assert_eq!(log.begin(), number);
            log.end(number, answered(number));
        }
        log.finish();
        assert!((1..=5).contains(&log.lost()), "{}", log.lost());
    }
}
