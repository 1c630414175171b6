//! fio's logs: what it replays (`write_iolog`, versions 2 and 3) and what it measured (`write_lat_log` with `log_offset=1`).
//!
//! ```text
//!   fio version 2 iolog          fio version 3 iolog              (latency log)
//!   /dev/sdb write 4096 8192     1250 /dev/sdb write 4096 8192    time ms, latency ns, 0|1, bytes, offset[, ...]
//!   /dev/sdb wait 500 0          (time in us)                     (the time is that of the end)
//! ```

use super::LineError;
use super::line::{Line, Words, time, whole};
use super::record::{Arrival, Parsed, Reader};
use crate::drive::Ps;

const MICROSECOND_MS: f64 = 1e-3;
const NANOSECOND_MS: f64 = 1e-6;
const SECTOR_BYTES: u64 = 512;

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
    last: Ps,
}

impl Reader for Fio {
    fn record(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, LineError> {
        if line.is_blank() {
            return Ok(None);
        }
        let Some(log) = self.log else {
            let (log, is_header) = log_of(line.text)?;
            self.log = Some(log);
            return if is_header { Ok(None) } else { self.record(line) };
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
    fn action(&mut self, mut words: Words<'_>, at: Option<Ps>) -> Result<Option<Parsed>, LineError> {
        words.word("file")?;
        let write = match words.word("action")? {
            "add" | "open" | "close" | "unlink" => return Ok(None),
            "wait" => {
                let until = words.time("wait in us", MICROSECOND_MS)?;
                self.wait = self.wait.max(until);
                return Ok(None);
            }
            "sync" | "datasync" | "sync_file_range" | "trim" => return Ok(None),
            "read" => false,
            "write" => true,
            other => return Err(LineError::NotAnAction(other.to_owned())),
        };
        let (offset, bytes) = (words.whole("offset")?, words.whole("length")?);
        words.end()?;
        let arrival = match at {
            Some(at) => self.arrival(at),
            None => Arrival::After(std::mem::take(&mut self.wait)),
        };
        parsed(arrival, offset, bytes, write, None)
    }

    fn latency(&mut self, line: &str) -> Result<Option<Parsed>, LineError> {
        let mut fields = line.split(',').map(str::trim);
        let mut field = |what| fields.next().ok_or(LineError::EndsBefore(what));
        let ended = time(field("time in ms")?, "time in ms", 1.0)?;
        let took = time(field("latency in ns")?, "latency in ns", NANOSECOND_MS)?;
        let write = match field("direction")? {
            "0" => false,
            "1" => true,
            "2" => return Ok(None),
            other => return Err(LineError::NotADirection(other.to_owned())),
        };
        let bytes = whole(field("number of bytes")?, "number of bytes")?;
        let offset = whole(field("offset (log with log_offset=1)")?, "offset")?;
        let arrival = self.arrival(ended.saturating_sub(took));
        parsed(arrival, offset, bytes, write, Some(took))
    }

    /// Jobs and queues end requests out of order; they are served as if they had come in the order of the log.
    fn arrival(&mut self, at: Ps) -> Arrival {
        self.last = self.last.max(at);
        Arrival::At(self.last)
    }
}

fn parsed(
    arrival: Arrival,
    offset: u64,
    bytes: u64,
    write: bool,
    measured: Option<Ps>,
) -> Result<Option<Parsed>, LineError> {
    if !offset.is_multiple_of(SECTOR_BYTES) || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(LineError::NotSectors {
            bytes,
            offset,
            sector_bytes: SECTOR_BYTES,
        });
    }
    let (lbn, sectors) = (offset / SECTOR_BYTES, bytes / SECTOR_BYTES);
    Ok(Some(Parsed {
        arrival,
        lbn,
        sectors,
        write,
        kind: None,
        measured,
    }))
}
