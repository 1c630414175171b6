//! The text that `blkparse` prints: `8,0 1 5 0.000123456 697 Q WS 223490 + 8 [kjournald]`.

use super::LineError;
use super::line::{Line, whole};
use super::record::{Arrival, Parsed, Reader};
use crate::drive::Ps;

const SECOND_MS: f64 = 1000.0;

/// Takes what was queued (`Q`), and of it reads and writes; all else of a request's life is the old drive's.
#[derive(Default)]
pub(super) struct Blktrace {
    /// The summary at the end has begun.
    over: bool,
    device: Option<String>,
    last: Ps,
}

impl Reader for Blktrace {
    fn record(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, LineError> {
        let mut words = line.words();
        self.over |= line.text.starts_with("CPU") || line.text.starts_with("Total");
        if self.over || line.is_blank() {
            return Ok(None);
        }
        let device = words.word("device")?;
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !device
            .split_once(',')
            .is_some_and(|(major, minor)| is_number(major) && is_number(minor))
        {
            return Err(LineError::NotADevice(device.to_owned()));
        }
        words.whole("processor")?;
        words.whole("sequence number")?;
        let time = words.time("time in s", SECOND_MS)?;
        words.whole("process")?;
        let (action, what) = (words.word("action")?, words.word("kind of request")?);
        let write = what.contains('W');
        if action != "Q" || what.contains('D') || !(write || what.contains('R')) {
            return Ok(None);
        }
        if self.device.get_or_insert_with(|| device.to_owned()) != device {
            return Err(LineError::SeveralDevices(device.to_owned()));
        }
        let first = words.word("block")?;
        if first.starts_with('[') {
            // A flush has no sectors, and its process comes at once.
            return Ok(None);
        }
        let lbn = whole(first, "block")?;
        if words.word("+")? != "+" {
            return Err(LineError::NoPlus);
        }
        let sectors = words.whole("number of sectors")?;
        // Processors' lines are merged by time, but not to the last nanosecond.
        self.last = self.last.max(time);
        Ok((sectors > 0).then_some(Parsed {
            arrival: Arrival::At(self.last),
            lbn,
            sectors,
            write,
            kind: None,
            measured: None,
        }))
    }
}
