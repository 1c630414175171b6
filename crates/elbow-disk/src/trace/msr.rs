//! The traces of Microsoft Research Cambridge: `timestamp,host,disk,Read|Write,offset,size,response`.
//!
//! Timestamp and response are in ticks of Windows, 100 ns, the timestamp since 1601; offset and size are bytes. A file is of one disk.
//!
//! Source: Narayanan, Donnelly, Rowstron, *Write Off-Loading: Practical Power Management for Enterprise Storage* (FAST 2008); the
//! description that is with its traces in the SNIA IOTTA repository.

use super::LineError;
use super::line::{Line, TIME_MS_MAX, time, whole};
use super::record::{Order, Parsed, Reader, Row};
use crate::drive::Ps;

const TICK_MS: f64 = 1e-4;
const TICK: u64 = 100_000;

#[derive(Default)]
pub(super) struct Msr {
    /// Time 0 is that of the first request.
    first: Option<u64>,
    disk: Option<String>,
    order: Order,
}

impl Reader for Msr {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError> {
        // Some copies have a line of names.
        if line.is_blank() || self.first.is_none() && line.text.starts_with("Timestamp,") {
            return Ok(Row::Nothing);
        }
        let mut fields = line.fields();
        let at = self.since_first(fields.word("timestamp in ticks of 100 ns")?)?;
        let disk = format!("{},{}", fields.word("host")?, fields.word("number of the disk")?);
        if *self.disk.get_or_insert_with(|| disk.clone()) != disk {
            return Err(LineError::SeveralDisks(disk));
        }
        let write = match fields.word("type")? {
            "Read" => false,
            "Write" => true,
            other => return Err(LineError::NotAnOp(other.to_owned())),
        };
        let (offset, bytes) = (fields.whole("offset")?, fields.whole("size")?);
        let took = time(
            fields.word("response in ticks of 100 ns")?,
            "response in ticks",
            TICK_MS,
        )?;
        fields.end()?;
        let (arrival, is_late) = self.order.at(at);
        Ok(Row::Request(Parsed {
            is_late,
            measured: Some(took),
            ..Parsed::in_bytes(arrival, offset, bytes, write)?
        }))
    }
}

impl Msr {
    fn since_first(&mut self, word: &str) -> Result<Ps, LineError> {
        let ticks = whole(word, "timestamp")?;
        let first = *self.first.get_or_insert(ticks);
        let since = ticks.saturating_sub(first);
        let is_within = since as f64 * TICK_MS <= TIME_MS_MAX;
        is_within.then(|| Ps(since * TICK)).ok_or_else(|| LineError::NotATime {
            word: word.to_owned(),
            what: "timestamp in ticks",
            most: first as f64 + TIME_MS_MAX / TICK_MS,
        })
    }
}
