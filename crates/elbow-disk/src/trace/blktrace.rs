//! The text that `blkparse` prints: `8,0 1 5 0.000123456 697 Q WS 223490 + 8 [kjournald]`.

use super::LineError;
use super::line::{Line, whole};
use super::record::{Order, Parsed, Reader, Row};

const SECOND_MS: f64 = 1000.0;

/// Takes what was queued (`Q`), and of it reads and writes; all else of a request's life is the old drive's.
#[derive(Default)]
pub(super) struct Blktrace {
    /// The summary at the end has begun.
    over: bool,
    device: Option<String>,
    order: Order,
}

impl Reader for Blktrace {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError> {
        let mut words = line.words();
        self.over |= line.text.starts_with("CPU") || line.text.starts_with("Total");
        if self.over || line.is_blank() {
            return Ok(Row::Nothing);
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
        if action != "Q" {
            return Ok(Row::Nothing);
        }
        // RWBS: D a discard, W or R what it does; F and N are without sectors, and some kernels print `DS` for a synchronous discard.
        let write = what.contains('W');
        if what.contains('D') {
            return Ok(Row::Discard);
        }
        if !(write || what.contains('R')) {
            return Ok(Row::Other);
        }
        if self.device.get_or_insert_with(|| device.to_owned()) != device {
            return Err(LineError::SeveralDevices(device.to_owned()));
        }
        let first = words.word("block")?;
        if first.starts_with('[') {
            // A flush has no sectors, and its process comes at once.
            return Ok(Row::Other);
        }
        let lbn = whole(first, "block")?;
        if words.word("+")? != "+" {
            return Err(LineError::NoPlus);
        }
        let sectors = words.whole("number of sectors")?;
        if sectors == 0 {
            return Ok(Row::Other);
        }
        // Processors' lines are merged by time, but not to the last nanosecond.
        let (arrival, is_late) = self.order.at(time);
        Ok(Row::Request(Parsed {
            is_late,
            ..Parsed::new(arrival, lbn, sectors, write)
        }))
    }
}
