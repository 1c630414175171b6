//! Where to cut sorted runs so that exactly so many records come before the cuts.
//!
//! Several lanes can then merge one group of runs, each into a range of the output that is known beforehand.
//!
//! All records are in one order: by key, then by run, then by place in the run. An unread stretch is kept for each
//! run; the middle record of the longest one is ranked among all runs by binary search, which halves that stretch,
//! until all are empty. About `runs * log2(records)^2` single records are read.
//!
//! Source: Varman, Scheufler, Iyer, Ricard, *Merging multiple lists on hierarchical-memory multiprocessors* (1991).

use std::cmp::Ordering;
use std::ops::Range;

use super::RecordFormat;
use super::error::Result;

/// Reads one record at an offset of the file that holds the runs.
pub(super) type ReadRecord<'a> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'a;

/// Cuts `runs` (ranges of a file, in bytes) so that `before` bytes of records come before the cuts.
///
/// # Panics
/// When `before` is more than there is.
pub(super) fn cut(
    runs: &[Range<u64>],
    before: u64,
    format: &RecordFormat,
    read: &mut ReadRecord<'_>,
) -> Result<Vec<u64>> {
    let bytes = format.bytes() as u64;
    let records = |run: &Range<u64>| (run.end - run.start) / bytes;
    let wanted = before / bytes;
    assert!(wanted <= runs.iter().map(records).sum(), "a cut behind the end");
    // In records: those before `low` come before the cut, those from `high` on do not.
    let mut low = vec![0; runs.len()];
    let mut high: Vec<u64> = runs.iter().map(records).collect();
    let (mut pivot, mut other) = (vec![0; format.bytes()], vec![0; format.bytes()]);
    loop {
        let longest = (0..runs.len()).max_by_key(|run| high[*run] - low[*run]);
        let Some(run) = longest.filter(|run| high[*run] > low[*run]) else {
            break;
        };
        let middle = low[run] + (high[run] - low[run]) / 2;
        read(runs[run].start + middle * bytes, &mut pivot)?;
        let mut rank = Vec::with_capacity(runs.len());
        for at in 0..runs.len() {
            let equal_is_before = at < run;
            rank.push(if at == run {
                middle
            } else {
                partition(low[at]..high[at], |place| {
                    read(runs[at].start + place * bytes, &mut other)?;
                    Ok(match format.compare(&other, &pivot) {
                        Ordering::Less => true,
                        Ordering::Equal => equal_is_before,
                        Ordering::Greater => false,
                    })
                })?
            });
        }
        if rank.iter().sum::<u64>() < wanted {
            low = rank;
            low[run] = middle + 1;
        } else {
            high = rank;
        }
    }
    Ok(low
        .iter()
        .zip(runs)
        .map(|(records, run)| run.start + records * bytes)
        .collect())
}

/// The first place of a range for which `is_before` is not true, when it is true for those before and no other.
fn partition(mut range: Range<u64>, mut is_before: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    while range.start < range.end {
        let middle = range.start + (range.end - range.start) / 2;
        if is_before(middle)? {
            range.start = middle + 1;
        } else {
            range.end = middle;
        }
    }
    Ok(range.start)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn every_rank_is_cut_where_a_stable_merge_would_be() {
        let mut rng = StdRng::seed_from_u64(11);
        let format = RecordFormat::new(2, vec!["0:1:u8".parse().expect("a key")]).expect("a format");
        for _ in 0..60 {
            let (mut file, mut runs) = (Vec::new(), Vec::new());
            for _ in 0..rng.random_range(1..6) {
                let mut run: Vec<[u8; 2]> = (0..rng.random_range(0..9))
                    .map(|i| [rng.random_range(0..4), i])
                    .collect();
                run.sort_by_key(|record| record[0]);
                let start = file.len() as u64;
                file.extend(run.concat());
                runs.push(start..file.len() as u64);
            }
            let all = runs
                .iter()
                .enumerate()
                .flat_map(|(run, range)| range.clone().step_by(2).map(move |at| (run, at)));
            let mut order: Vec<(u8, usize, u64)> = all.map(|(run, at)| (file[at as usize], run, at)).collect();
            order.sort_unstable();
            for wanted in 0..=order.len() {
                let mut read = |at: u64, into: &mut [u8]| {
                    into.copy_from_slice(&file[at as usize..][..2]);
                    Ok(())
                };
                let cuts = cut(&runs, 2 * wanted as u64, &format, &mut read).expect("reads do not fail");
                for (run, range) in runs.iter().enumerate() {
                    let before = order[..wanted].iter().filter(|(_, of, _)| *of == run).count() as u64;
                    assert_eq!(
                        cuts[run],
                        range.start + 2 * before,
                        "rank {wanted} in run {run} of {order:?}"
                    );
                }
            }
        }
    }
}
