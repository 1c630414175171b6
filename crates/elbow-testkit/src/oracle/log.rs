//! What a client writes down, a line at a time and each by one call of write(2), so that a death loses nothing but the line that was not begun:
//!
//! ```text
//!   ask T FILE x|s START:END[,START:END..]   about to ask for a lock, exclusive or shared
//!   got T TOKEN|-                            it was granted
//!   not T WHY                                it was not
//!   ours T T                                 a check said that it is ours: before the call, after it
//!   lost T T                                 it said that it is lost
//!   back T                                   about to give it back
//!   done T ours|lost|unknown                 given back, and what was said of it
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use super::{Holding, Mode};

/// Whose log it is, and what was done to it.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// For people.
    pub name: String,
    /// Whether it speaks with the service itself.
    pub is_direct: bool,
    /// How long its session lasts without a word from it at most, where it speaks with the service itself and that is known.
    pub lease: Option<u64>,
    /// When it certainly did not run.
    pub stops: Vec<Range<u64>>,
}

/// What is in a log.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Each lock that was granted.
    pub holdings: Vec<Holding>,
    /// Requests.
    pub asked: usize,
    /// Checks and releases that said that a lock is lost.
    pub lost: usize,
    /// Why requests were not granted.
    pub refused: BTreeMap<String, usize>,
}

/// A request that is not granted yet, or what became of it.
struct Open {
    holding: Holding,
    is_granted: bool,
    is_lost: bool,
    back: Option<u64>,
}

/// Reads a log. What a killed client did not finish writing is left out.
///
/// # Errors
/// A line that is none, or comes in the wrong place.
pub fn read(client: &Client, text: &str) -> Result<History> {
    let mut history = History::default();
    let mut open: Option<Open> = None;
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    for (number, line) in whole.enumerate() {
        step(client, line, &mut open, &mut history)
            .with_context(|| format!("{}, line {}: {line:?}", client.name, number + 1))?;
    }
    finish(open, &mut history);
    Ok(history)
}

fn step(client: &Client, line: &str, open: &mut Option<Open>, history: &mut History) -> Result<()> {
    let words: Vec<&str> = line.split(' ').collect();
    if let ["ask", at, file, mode, ranges] = words[..] {
        ensure!(
            open.as_ref().is_none_or(|open| open.is_granted),
            "the last request has no end"
        );
        finish(open.take(), history);
        history.asked += 1;
        *open = Some(begin(client, number(at)?, file, mode, ranges)?);
        return Ok(());
    }
    let Some(now) = open else {
        bail!("nothing was asked for")
    };
    match words[..] {
        ["got", at, token] if !now.is_granted => now.granted(number(at)?, token)?,
        ["not", _, why] if !now.is_granted => {
            *history.refused.entry(why.to_owned()).or_default() += 1;
            *open = None;
        }
        ["ours", before, after] if now.is_granted && now.back.is_none() => now.ours(number(before)?, number(after)?)?,
        ["lost", _, at] if now.is_granted && now.back.is_none() => now.lost(number(at)?, history),
        ["back", at] if now.is_granted => now.back = Some(number(at)?),
        ["done", at, said] => {
            let Some(back) = now.back else {
                bail!("it was not given back")
            };
            match said {
                "ours" => now.ours(back, number(at)?)?,
                "lost" => now.lost(number(at)?, history),
                "unknown" => {}
                _ => bail!("neither ours nor lost"),
            }
            finish(open.take(), history);
        }
        _ => bail!("no such line here"),
    }
    Ok(())
}

impl Open {
    fn granted(&mut self, at: u64, token: &str) -> Result<()> {
        self.is_granted = true;
        self.holding.granted = at;
        self.holding.token = (token != "-").then(|| number(token)).transpose()?;
        let asked = self.holding.asked;
        self.holding.stops.retain(|stop| stop.start < at && stop.end > asked);
        ensure!(asked <= at, "granted before it was asked for");
        Ok(())
    }

    fn ours(&mut self, before: u64, after: u64) -> Result<()> {
        ensure!(self.holding.granted <= before && before <= after, "times go back");
        self.holding.was_found_again |= self.is_lost;
        self.holding.ours = Some(before);
        Ok(())
    }

    fn lost(&mut self, at: u64, history: &mut History) {
        if self.holding.ours.is_none() && !self.is_lost {
            self.holding.lost_at_once = Some(at);
        }
        history.lost += usize::from(!self.is_lost);
        self.is_lost = true;
    }
}

fn begin(client: &Client, asked: u64, file: &str, mode: &str, ranges: &str) -> Result<Open> {
    let mode = match mode {
        "x" => Mode::Exclusive,
        "s" => Mode::Shared,
        _ => bail!("neither x nor s"),
    };
    let ranges: Vec<Range<u64>> = ranges.split(',').map(range).collect::<Result<_>>()?;
    Ok(Open {
        holding: Holding {
            client: client.name.clone(),
            is_direct: client.is_direct,
            file: file.to_owned(),
            ranges,
            mode,
            token: None,
            asked,
            granted: asked,
            ours: None,
            lost_at_once: None,
            lease: client.lease,
            stops: client.stops.clone(),
            was_found_again: false,
        },
        is_granted: false,
        is_lost: false,
        back: None,
    })
}

fn finish(open: Option<Open>, history: &mut History) {
    history
        .holdings
        .extend(open.filter(|open| open.is_granted).map(|open| open.holding));
}

fn range(text: &str) -> Result<Range<u64>> {
    let (start, end) = text.split_once(':').context("no START:END")?;
    let range = number(start)?..number(end)?;
    ensure!(!range.is_empty(), "no bytes");
    Ok(range)
}

fn number(text: &str) -> Result<u64> {
    u64::from_str(text).with_context(|| format!("{text:?} is no number"))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is a list of ranges, too")]
mod tests {
    use super::*;

    fn told(text: &str) -> History {
        let client = Client {
            name: "c".to_owned(),
            stops: vec![5..15, 30..40],
            ..Client::default()
        };
        read(&client, text).expect("a log")
    }

    #[test]
    fn a_lock_is_its_clients_from_the_return_of_the_grant_to_the_beginning_of_the_last_answer() {
        let history = told("ask 10 f x 0:10,20:30\ngot 20 7\nours 21 22\nours 31 45\nlost 50 51\n");
        let [held] = &history.holdings[..] else {
            panic!("{history:?}")
        };
        assert_eq!((held.sure(), held.token, history.lost), (Some((20, 31)), Some(7), 1));
        assert_eq!(held.ranges, [0..10, 20..30]);
        assert_eq!(held.stops, [5..15], "the others have nothing to do with the grant");
        assert!(!held.was_found_again && held.lost_at_once.is_none());
    }

    #[test]
    fn a_release_that_says_to_the_end_is_an_answer_and_one_that_does_not_is_none() {
        let sure = |end: &str| told(&format!("ask 1 f s 0:1\ngot 2 -\nback 5\ndone 6 {end}\n")).holdings[0].sure();
        assert_eq!(sure("ours"), Some((2, 5)));
        assert_eq!((sure("unknown"), sure("lost")), (None, None));
    }

    #[test]
    fn a_log_may_end_anywhere() {
        assert_eq!(told("ask 1 f x 0:1\n").holdings.len(), 0);
        assert_eq!(
            told("ask 1 f x 0:1\nnot 2 EAGAIN\nask 3 f x 0:1\ngot 4 1\nask 5 f x")
                .holdings
                .len(),
            1
        );
        assert_eq!(
            told("ask 1 f x 0:1\ngot 2 1\nours 3 4\nours 5").holdings[0].ours,
            Some(3)
        );
    }

    #[test]
    fn a_lock_that_is_found_again_is_noted() {
        assert!(told("ask 1 f x 0:1\ngot 2 1\nlost 3 4\nours 5 6\n").holdings[0].was_found_again);
        let again = told("ask 1 f x 0:1\ngot 2 1\nlost 3 4\nback 5\ndone 6 ours\n");
        assert!(again.holdings[0].was_found_again && again.holdings[0].lost_at_once == Some(4));
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let client = Client::default();
        for wrong in [
            "got 1 1\n",
            "ask 1 f x 0:1\nask 2 f x 0:1\n",
            "ask 1 f x 0:0\n",
            "ask 1 f y 0:1\n",
            "ask 9 f x 0:1\ngot 1 1\n",
            "ask 1 f x 0:1\nours 2 3\n",
            "ask 1 f x 0:1\ngot 2 1\ndone 3 ours\n",
            "hello\n",
        ] {
            assert!(read(&client, wrong).is_err(), "{wrong:?}");
        }
    }
}
