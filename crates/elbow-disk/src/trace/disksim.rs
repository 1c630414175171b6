//! DiskSim's two text formats.

use super::LineError;
use super::line::Line;
use super::record::{Arrival, Parsed, Reader, RecordKind, Row};
use crate::drive::Ps;

/// `arrival_ms device lbn sectors flags`
#[derive(Default)]
pub(super) struct Ascii {
    device: Option<u64>,
    last: Ps,
}

/// DiskSim's flag of a read.
const READ: u64 = 1;

impl Reader for Ascii {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError> {
        if line.is_blank() {
            return Ok(Row::Nothing);
        }
        let mut words = line.words();
        let arrival = words.time("arrival in ms", 1.0)?;
        let device = words.whole("device")?;
        let (lbn, sectors) = (words.whole("block")?, words.whole("number of sectors")?);
        let flags = words.word("flags")?;
        words.end()?;
        let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16)
            .map_err(|_| LineError::NotFlags(flags.to_owned()))?;
        let before = *self.device.get_or_insert(device);
        if before != device {
            return Err(LineError::SeveralDrives { device, before });
        }
        if arrival < self.last {
            return Err(LineError::Backwards {
                at: arrival,
                last: self.last,
            });
        }
        self.last = arrival;
        let (arrival, write) = (Arrival::At(arrival), flags & READ == 0);
        Ok(Parsed::new(arrival, lbn, sectors, write).into())
    }
}

/// `R|W kind lbn sectors response_us think_us`
#[derive(Default)]
pub(super) struct Validate {
    /// From the end of the last request until the next.
    think: Ps,
}

impl Reader for Validate {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError> {
        if line.is_blank() {
            return Ok(Row::Nothing);
        }
        let mut words = line.words();
        let (op, tag) = (words.word("R or W")?, words.word("kind")?);
        let (lbn, sectors) = (words.whole("block")?, words.whole("number of sectors")?);
        let measured = Some(words.time("response time in us", 1e-3)?);
        let think = words.time("time to the next request in us", 1e-3)?;
        words.end()?;
        let kind = match (op, tag) {
            ("W", _) => Some(RecordKind::Write),
            ("R", "Hit") => Some(RecordKind::Hit),
            ("R", "Miss" | "Doub" | "Trip") => Some(RecordKind::Read),
            ("R", _) => None,
            _ => return Err(LineError::NeitherReadNorWrite(op.to_owned())),
        };
        let arrival = Arrival::After(std::mem::replace(&mut self.think, think));
        Ok(Row::Request(Parsed {
            kind,
            measured,
            is_of_unknown_kind: kind.is_none(),
            ..Parsed::new(arrival, lbn, sectors, op == "W")
        }))
    }
}
