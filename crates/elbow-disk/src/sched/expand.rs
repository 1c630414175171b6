//! Expand and cancel: places of ranges are estimated one by one, as requests of their own.
//!
//! It asks the drive itself, not the tables and bitmaps of the walk, so that the two check each other.

use super::arms::ArmState;
use super::best::Best;
use super::targets::Targets;
use super::tracks::Row;
use super::walk::OutwardCylinders;
use crate::drive::{Arm, Lbn};

/// Improves `best` to the best of all places; returns the number of estimates.
pub(super) fn all(targets: &Targets, from: &ArmState<'_>, best: &mut Option<Best>, whose: Best) -> u64 {
    estimate(targets.iter(), from, best, whose)
}

/// The same for at most `places` of them.
pub(super) fn some(targets: &Targets, places: u32, from: &ArmState<'_>, best: &mut Option<Best>, whose: Best) -> u64 {
    estimate(spaced(targets, places, from.arm).into_iter(), from, best, whose)
}

fn estimate(places: impl Iterator<Item = Lbn>, from: &ArmState<'_>, best: &mut Option<Best>, whose: Best) -> u64 {
    let mut estimates = 0;
    for lbn in places {
        let cost = from.cost(lbn, true);
        Best { cost, lbn, ..whose }.improve(best);
        estimates += 1;
    }
    estimates
}

/// So many places, spaced evenly over the free ones of the nearest track; where it has fewer, all of them, and the rest on
/// the next nearest.
fn spaced(targets: &Targets, wanted: u32, arm: Arm) -> Vec<Lbn> {
    let mut places = Vec::new();
    for cylinder in OutwardCylinders::new(&targets.cylinders, arm.cylinder) {
        let rows = &targets.rows[cylinder.first as usize..cylinder.end as usize];
        // Of a cylinder the track under the arm's own head is nearest: the others cost a head switch.
        let same_head = |row: &&Row| row.arm.head == arm.head;
        for row in rows
            .iter()
            .filter(same_head)
            .chain(rows.iter().filter(|row| !same_head(row)))
        {
            let left = wanted - places.len() as u32;
            let lbn = |start: u32| Lbn(row.first + u64::from(start) * u64::from(targets.align));
            places.extend(every(row.places(&targets.bits), row.free, left).map(lbn));
            if places.len() as u32 == wanted {
                return places;
            }
        }
    }
    places
}

/// `wanted` of `count` items, evenly; all where there are no more.
fn every<T>(items: impl Iterator<Item = T>, count: u32, wanted: u32) -> impl Iterator<Item = T> {
    let wanted = wanted.min(count);
    let is_any = wanted > 0;
    // Item i is taken when i * wanted / count steps up to a new whole number.
    let steps = move |item: u32| u64::from(item) * u64::from(wanted) / u64::from(count);
    let is_taken = move |item: u32| is_any && (item == 0 || steps(item) > steps(item - 1));
    (0..count)
        .zip(items)
        .filter(move |&(item, _)| is_taken(item))
        .map(|(_, item)| item)
}

#[cfg(test)]
mod tests {
    use super::every;

    #[test]
    fn so_many_are_taken_evenly() {
        for count in 1..40 {
            for wanted in 0..50 {
                let taken: Vec<u32> = every(0..count, count, wanted).collect();
                assert_eq!(taken.len() as u32, wanted.min(count), "{wanted} of {count}");
                let gaps: Vec<u32> = taken.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let (least, most) = (gaps.iter().min(), gaps.iter().max());
                assert!(
                    least.zip(most).is_none_or(|(least, most)| most - least <= 1),
                    "{taken:?}"
                );
            }
        }
    }
}
