//! fio's logs: what it replays (`write_iolog`, versions 2 and 3) and what it measured (`write_lat_log` with `log_offset=1`).
//!
//! ```text
//!   fio version 2 iolog          fio version 3 iolog              (latency log)
//!   /dev/sdb write 4096 8192     1250 /dev/sdb write 4096 8192    time ms, latency ns, 0|1, bytes, offset[, ...]
//!   /dev/sdb wait 500 0          (time in us)                     (the time is that of the end)
//! ```

use super::LineError;
use super::line::{Line, Words, time, whole};
use super::record::{Arrival, Order, Parsed, Reader, Row};
use crate::drive::Ps;

const MICROSECOND_MS: f64 = 1e-3;
const NANOSECOND_MS: f64 = 1e-6;

/// Which of the three logs it is; the first line tells.
#[derive(Clone, Copy)]
enum Log {
    Waits,
    Times,
    Latencies,
}

#[derive(Default)]
pub(super) struct Fio {
    log: Option<Log>,
    /// What a version 2 log waits before its next request.
    wait: Ps,
    order: Order,
}

impl Reader for Fio {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError> {
        if line.is_blank() {
            return Ok(Row::Nothing);
        }
        let Some(log) = self.log else {
            let (log, is_header) = log_of(line.text)?;
            self.log = Some(log);
            return if is_header { Ok(Row::Nothing) } else { self.row(line) };
        };
        match log {
            Log::Waits => self.action(line.words(), None),
            Log::Times => {
                let mut words = line.words();
                let at = words.time("time in us", MICROSECOND_MS)?;
                self.action(words, Some(at))
            }
            Log::Latencies => self.latency(line.text),
        }
    }
}

fn log_of(first: &str) -> Result<(Log, bool), LineError> {
    match first.trim_end() {
        "fio version 2 iolog" => Ok((Log::Waits, true)),
        "fio version 3 iolog" => Ok((Log::Times, true)),
        other if other.starts_with("fio version") => Err(LineError::UnknownVersion(other.to_owned())),
        _ => Ok((Log::Latencies, false)),
    }
}

impl Fio {
    fn action(&mut self, mut words: Words<'_>, at: Option<Ps>) -> Result<Row, LineError> {
        words.word("file")?;
        let write = match words.word("action")? {
            "add" | "open" | "close" | "unlink" => return Ok(Row::Nothing),
            "wait" => {
                let until = words.time("wait in us", MICROSECOND_MS)?;
                self.wait = self.wait.max(until);
                return Ok(Row::Nothing);
            }
            "sync" | "datasync" | "sync_file_range" => return Ok(Row::Other),
            "trim" => return Ok(Row::Discard),
            "read" => false,
            "write" => true,
            other => return Err(LineError::NotAnAction(other.to_owned())),
        };
        let (offset, bytes) = (words.whole("offset")?, words.whole("length")?);
        words.end()?;
        let (arrival, is_late) = match at {
            Some(at) => self.order.at(at),
            None => (Arrival::After(std::mem::take(&mut self.wait)), false),
        };
        Ok(Row::Request(Parsed {
            is_late,
            ..Parsed::in_bytes(arrival, offset, bytes, write)?
        }))
    }

    fn latency(&mut self, line: &str) -> Result<Row, LineError> {
        let mut fields = line.split(',').map(str::trim);
        let mut field = |what| fields.next().ok_or(LineError::EndsBefore(what));
        let ended = time(field("time in ms")?, "time in ms", 1.0)?;
        let took = time(field("latency in ns")?, "latency in ns", NANOSECOND_MS)?;
        let write = match field("direction")? {
            "0" => false,
            "1" => true,
            "2" => return Ok(Row::Discard),
            other => return Err(LineError::NotADirection(other.to_owned())),
        };
        let bytes = whole(field("number of bytes")?, "number of bytes")?;
        let offset = whole(field("offset (log with log_offset=1)")?, "offset")?;
        // Jobs and queues end requests out of order; they are served as if they had come in the order of the log.
        let (arrival, is_late) = self.order.at(ended.saturating_sub(took));
        Ok(Row::Request(Parsed {
            is_late,
            measured: Some(took),
            ..Parsed::in_bytes(arrival, offset, bytes, write)?
        }))
    }
}
