//! Sizes and counts as sort(1) has them, and how much memory to take.

#![allow(
    clippy::disallowed_methods,
    reason = "what the kernel says about memory is no file of the user's"
)]

use anyhow::{Context, Result, anyhow, bail};

use crate::process_limits::expect_threads;
use crate::system_memory;

/// Without -S, this part of RAM at most, and this part of what is available.
const RAM_SHARE: u64 = 4;
const AVAILABLE_SHARE: u64 = 2;
/// Less is not worth saving.
const DEFAULT_BYTES_MIN: u64 = 32 << 20;
/// Where limits leave less, nothing is begun.
const LIMITED_BYTES_MIN: u64 = 1 << 20;
/// Runs and result that together take less than twice this part of what is available go through the page cache. The
/// kernel lets writers wait when a fifth of it is dirty (vm.dirty_ratio).
const CACHED_SHARE: u64 = 16;
/// More is quicker past it.
const CACHED_BYTES_MAX: u64 = 1 << 30;

/// The memory to use: the largest size that was given.
pub(super) fn bytes(sizes: &[String]) -> Result<u64> {
    let given = sizes.iter().map(|size| parse(size)).collect::<Result<Vec<u64>>>()?;
    Ok(given.into_iter().max().unwrap_or_else(default_bytes))
}

/// Memory and threads, not more than the limits of the process let it have, as sort(1) does.
///
/// # Errors
/// Too little even for one thread.
pub(super) fn within_limits(bytes: u64, mut threads: usize) -> Result<(usize, usize)> {
    loop {
        // Each has one that merges and one that reads for it, and there are three more.
        let started = threads.saturating_mul(3).saturating_add(3);
        let most = system_memory::most_by_limits(started);
        let granted = if most < LIMITED_BYTES_MIN {
            Err(anyhow!(
                "the limits of the process (`ulimit -d`, `ulimit -v`) leave too little memory to sort in: it needs 18 MiB"
            ))
        } else {
            expect_threads("sorting", started)
        };
        match granted {
            Ok(()) => return Ok((usize::try_from(bytes.min(most)).unwrap_or(usize::MAX), threads)),
            Err(error) if threads == 1 => return Err(error),
            Err(_) => threads = threads.div_ceil(2),
        }
    }
}

fn parse(text: &str) -> Result<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        bail!("invalid -S argument '{text}'");
    }
    let too_large = || format!("-S argument '{text}' too large");
    let number: u64 = number.parse().ok().with_context(too_large)?;
    let power = match unit {
        "%" => return percentage(number).with_context(too_large),
        "b" => 0,
        "" | "K" | "k" => 1,
        "M" | "m" => 2,
        "G" | "g" => 3,
        "T" | "t" => 4,
        "P" => 5,
        "E" => 6,
        "Z" | "Y" => bail!(too_large()),
        _ => bail!("invalid suffix in -S argument '{text}'"),
    };
    number.checked_mul(1 << (10 * power)).with_context(too_large)
}

fn percentage(number: u64) -> Option<u64> {
    u64::try_from(u128::from(system_memory::bytes()) * u128::from(number) / 100).ok()
}

fn default_bytes() -> u64 {
    let most = system_memory::bytes() / RAM_SHARE;
    let available = available_bytes().map_or(most, |available| available / AVAILABLE_SHARE);
    most.min(available).max(DEFAULT_BYTES_MIN)
}

/// What may lie in the page cache, dirty, without anybody noticing: a small part of what is available, in runs and
/// in the result each.
pub(super) fn cached_bytes() -> u64 {
    let available = available_bytes().unwrap_or(0).min(system_memory::bytes());
    (available / CACHED_SHARE).min(CACHED_BYTES_MAX)
}

/// What programs can take before the system gets slow.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

/// A number of threads.
pub(super) fn threads(given: Option<&str>) -> Result<usize> {
    const DEFAULT_MAX: usize = 8;
    const MAX: usize = 256;
    match given {
        None => Ok(std::thread::available_parallelism().map_or(1, |threads| threads.get().min(DEFAULT_MAX))),
        Some(text) => match count("parallel", text)? {
            0 => bail!("number in parallel must be nonzero"),
            number => Ok(number.min(MAX)),
        },
    }
}

/// A number of sources that are merged at once.
pub(super) fn batch_size(text: &str) -> Result<usize> {
    match count("batch-size", text)? {
        0 | 1 => bail!("invalid --batch-size argument '{text}': minimum --batch-size argument is '2'"),
        number => Ok(number),
    }
}

fn count(option: &str, text: &str) -> Result<usize> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        bail!("invalid --{option} argument '{text}'");
    }
    Ok(text.parse().unwrap_or(usize::MAX)) // more than anybody has is cut down anyway
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_sort() {
        for (text, bytes) in [
            ("1", 1 << 10),
            ("1b", 1),
            ("2K", 2 << 10),
            ("2k", 2 << 10),
            ("3M", 3 << 20),
            ("1G", 1 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse(text).expect(text), bytes, "{text}");
        }
        assert_eq!(parse("50%").expect("a share"), system_memory::bytes() / 2);
        assert_eq!(bytes(&["1K".into(), "3K".into(), "2K".into()]).expect("sizes"), 3 << 10);
    }

    #[test]
    fn mistakes_get_the_words_of_sort() {
        for (text, message) in [
            ("x", "invalid -S argument 'x'"),
            ("-1", "invalid -S argument '-1'"),
            ("5X", "invalid suffix in -S argument '5X'"),
            ("5Kb", "invalid suffix in -S argument '5Kb'"),
            (
                "99999999999999999999999",
                "-S argument '99999999999999999999999' too large",
            ),
            ("99999999999P", "-S argument '99999999999P' too large"),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), message);
        }
        assert_eq!(
            threads(Some("0")).expect_err("none").to_string(),
            "number in parallel must be nonzero"
        );
        assert_eq!(
            threads(Some("x")).expect_err("none").to_string(),
            "invalid --parallel argument 'x'"
        );
        assert!(batch_size("1").expect_err("too few").to_string().contains("minimum"));
    }

    #[test]
    fn the_default_is_within_what_is_there() {
        let bytes = default_bytes();
        assert!(bytes >= DEFAULT_BYTES_MIN && bytes <= system_memory::bytes().max(DEFAULT_BYTES_MIN));
    }
}
