//! Which of the pieces are merged first where they are too many, and what that costs.
//!
//! Only neighbours are merged, so that a stable sort is stable over all passes.

/// Which neighbours to merge first, of pieces that are too many to merge at once: as few bytes as possible.
pub(super) fn smallest_neighbours(sizes: &[u64], fan_in: usize) -> Option<std::ops::Range<usize>> {
    let width = (sizes.len() + 1)
        .checked_sub(fan_in)
        .filter(|width| *width > 1)?
        .min(fan_in);
    let bytes = |at: &usize| sizes[*at..*at + width].iter().sum::<u64>();
    let at = (0..=sizes.len() - width).min_by_key(bytes)?;
    Some(at..at + width)
}

/// Bytes that all merges together write, the last among them, and the number of the others.
pub(super) fn planned(mut sizes: Vec<u64>, fan_in: usize) -> (u64, u64) {
    let all: u64 = sizes.iter().sum();
    let (mut bytes, mut merges) = (all, 0);
    while let Some(neighbours) = smallest_neighbours(&sizes, fan_in) {
        let merged = sizes[neighbours.clone()].iter().sum();
        sizes.splice(neighbours, [merged]);
        bytes += merged;
        merges += 1;
    }
    (bytes, merges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_merged_until_the_rest_can_be_merged_at_once() {
        assert_eq!(smallest_neighbours(&[1, 1], 2), None);
        assert_eq!(smallest_neighbours(&[9, 1, 2, 9], 3), Some(1..3));
        assert_eq!(smallest_neighbours(&[1; 100], 3), Some(0..3));
        assert_eq!(planned(vec![9, 1, 2, 9], 3), (21 + 3, 1));
        assert_eq!(planned(vec![5, 5], 2), (10, 0));
        assert_eq!(planned(Vec::new(), 2), (0, 0));
    }
}
