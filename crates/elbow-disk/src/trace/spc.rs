//! Traces of the Storage Performance Council: `unit,block,bytes,R|W,seconds`, and more fields that are passed over.
//!
//! The unit is an application's (ASU), its blocks have 512 bytes, the time is since the trace began. The best-known ones are
//! *Financial* and *WebSearch* of the University of Massachusetts.
//!
//! Source: Storage Performance Council, *Trace File Format Specification*, revision 1.0.1 (2002).

use super::LineError;
use super::line::{Line, time};
use super::record::{Order, Parsed, Reader, Row};
use crate::drive::SECTOR_BYTES;

const SECOND_MS: f64 = 1000.0;

#[derive(Default)]
pub(super) struct Spc {
    unit: Option<u64>,
    order: Order,
}

impl Reader for Spc {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError> {
        if line.is_blank() {
            return Ok(Row::Nothing);
        }
        let mut fields = line.fields();
        let unit = fields.whole("unit (ASU)")?;
        let before = *self.unit.get_or_insert(unit);
        if before != unit {
            return Err(LineError::SeveralUnits { unit, before });
        }
        let (block, bytes) = (fields.whole("block")?, fields.whole("number of bytes")?);
        let write = match fields.word("R or W")? {
            "R" | "r" => false,
            "W" | "w" => true,
            other => return Err(LineError::NeitherReadNorWrite(other.to_owned())),
        };
        let at = time(fields.word("time in s")?, "time in s", SECOND_MS)?;
        if bytes == 0 {
            // The specification leaves to the storage what it does then.
            return Ok(Row::Other);
        }
        let (arrival, is_late) = self.order.at(at);
        let offset = block.saturating_mul(SECTOR_BYTES);
        let mut parsed = Parsed::in_bytes(arrival, offset - offset % SECTOR_BYTES, bytes, write)?;
        parsed.lbn = block;
        Ok(Row::Request(Parsed { is_late, ..parsed }))
    }
}
