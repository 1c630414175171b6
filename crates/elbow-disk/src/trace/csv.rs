//! Comma-separated values: numbers and single letters only, so nothing is ever quoted.

use super::LineError;
use super::line::{Line, time, whole};
use super::record::{Arrival, Parsed, Reader, Row};
use crate::drive::Ps;

/// The names a column can have; all others are passed over.
const COLUMNS: [&str; 6] = ["lbn", "sectors", "op", "arrival_ms", "think_ms", "response_ms"];

#[derive(Default)]
pub(super) struct Csv {
    /// For each of [`COLUMNS`] where it is.
    header: Option<[Option<usize>; COLUMNS.len()]>,
    last: Ps,
}

impl Reader for Csv {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError> {
        if line.is_blank() {
            return Ok(Row::Nothing);
        }
        let fields: Vec<&str> = line.text.split(',').map(str::trim).collect();
        let Some(header) = self.header else {
            self.header = Some(header(&fields)?);
            return Ok(Row::Nothing);
        };
        let field = |column: usize| match header[column] {
            None => Ok(None),
            Some(at) => fields
                .get(at)
                .copied()
                .map(Some)
                .ok_or(LineError::EndsBeforeColumn(COLUMNS[column])),
        };
        let needed = |column: usize| field(column).map(|field| field.unwrap_or(""));
        let (lbn, sectors) = (whole(needed(0)?, "lbn")?, whole(needed(1)?, "number of sectors")?);
        let write = match needed(2)? {
            "R" | "r" | "read" => false,
            "W" | "w" | "write" => true,
            other => return Err(LineError::NotAnOp(other.to_owned())),
        };
        let measured = field(5)?.map(|word| time(word, "response in ms", 1.0)).transpose()?;
        let arrival = match (field(3)?, field(4)?) {
            (Some(at), _) => self.arrival(time(at, "arrival in ms", 1.0)?)?,
            (None, Some(think)) => Arrival::After(time(think, "think time in ms", 1.0)?),
            (None, None) => Arrival::After(Ps::ZERO),
        };
        Ok(Row::Request(Parsed {
            measured,
            ..Parsed::new(arrival, lbn, sectors, write)
        }))
    }
}

impl Csv {
    fn arrival(&mut self, at: Ps) -> Result<Arrival, LineError> {
        if at < self.last {
            return Err(LineError::Backwards { at, last: self.last });
        }
        self.last = at;
        Ok(Arrival::At(at))
    }
}

fn header(fields: &[&str]) -> Result<[Option<usize>; COLUMNS.len()], LineError> {
    let found = COLUMNS.map(|name| fields.iter().position(|&field| field == name));
    match COLUMNS.iter().zip(found).take(3).find(|(_, at)| at.is_none()) {
        Some((missing, _)) => Err(LineError::NoColumn(missing)),
        None => Ok(found),
    }
}
