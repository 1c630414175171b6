//! A tree like that of Linux 2.6.20, drawn at random.
//!
//! Known of the real one are how many files and directories it has, how large they are (17 quantiles each), how deep directories lie, and
//! how many each of the largest top directories holds; all else is chance. It is written directory by directory, as tar does.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What the figures call it.
pub(super) const NAME: &str = "a tree drawn at random with the sizes of Linux 2.6.20 (--listing: a real one)";
/// Files, and directories that hold some.
const FILES: usize = 21_278;
const DIRECTORIES: usize = 1_238;
/// Parts of all, in thousandths, up to which sizes of files and numbers of files of a directory go.
const PARTS: [f64; 17] = [
    0.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 950.0, 980.0, 990.0, 995.0, 999.0, 1000.0,
];
const BYTES: [f64; 17] = [
    6.0, 159.0, 390.0, 960.0, 1_724.0, 2_758.0, 4_057.0, 6_014.0, 9_077.0, 14_272.0, 26_127.0, 43_057.0, 71_459.0,
    97_228.0, 129_748.0, 315_821.0, 873_603.0,
];
const FILES_EACH: [f64; 17] = [
    1.0, 1.0, 2.0, 3.0, 5.0, 6.0, 8.0, 11.0, 15.0, 21.0, 39.0, 65.0, 107.0, 141.0, 164.0, 256.0, 745.0,
];
/// Directories in each of the top ones: documentation, architectures, drivers, file systems, headers, networks, sound, and small ones.
const TOP: [usize; 10] = [82, 494, 264, 69, 183, 52, 65, 9, 10, 10];
/// How many of ten directories below a top one lie directly in it; the others lie in one of those.
const DIRECT_OF_TEN: u32 = 3;

/// Lines of size TAB path.
pub(super) fn listing(seed: u64) -> String {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut sizes = drawn(&BYTES, FILES, &mut random);
    let mut each = drawn(&FILES_EACH, DIRECTORIES, &mut random);
    let largest = (0..each.len()).max_by_key(|&at| each[at]).expect("there are some");
    each[largest] = each[largest] + FILES - each.iter().sum::<usize>();
    let paths = directories(&mut random);
    let files = paths
        .iter()
        .zip(each)
        .flat_map(|(path, files)| std::iter::repeat_n(path, files));
    // As long as the names of the real one on average.
    let line = |(number, path): (usize, &String)| format!("{}\t{path}/{number:010}\n", sizes.pop().unwrap_or(1));
    files.enumerate().map(line).collect()
}

/// So many numbers with these quantiles, each part of the distribution once, in any order.
fn drawn(quantiles: &[f64; 17], count: usize, random: &mut Xoshiro256PlusPlus) -> Vec<usize> {
    let at = |number: usize| {
        let part = (number as f64 + 0.5) * 1000.0 / count as f64;
        let next = PARTS.partition_point(|&bound| bound <= part).min(PARTS.len() - 1);
        let within = (part - PARTS[next - 1]) / (PARTS[next] - PARTS[next - 1]);
        let (low, high) = (quantiles[next - 1].ln(), quantiles[next].ln());
        (low + within * (high - low)).exp().round() as usize
    };
    let mut numbers: Vec<usize> = (0..count).map(at).collect();
    numbers.shuffle(random);
    numbers
}

/// Paths, each behind the one that it lies in.
fn directories(random: &mut Xoshiro256PlusPlus) -> Vec<String> {
    let mut paths = Vec::new();
    for (top, count) in TOP.into_iter().enumerate() {
        let first = paths.len();
        paths.push(format!("d{top}"));
        for number in 1..count {
            let direct = number == 1 || random.random_range(0..10) < DIRECT_OF_TEN;
            let parent = if direct {
                first
            } else {
                random.random_range(first + 1..paths.len())
            };
            paths.push(format!("{}/d{number}", paths[parent]));
        }
        paths[first..].sort();
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree whose directories all had as many files took a third longer to unpack than the real one.
    #[test]
    fn it_is_as_large_as_the_real_one_and_its_directories_differ() {
        let listing = listing(1);
        let sizes = listing
            .lines()
            .map(|line| line.split('\t').next().unwrap().parse::<u64>().unwrap());
        assert_eq!(listing.lines().count(), FILES);
        let megabytes = sizes.sum::<u64>() as f64 / 1e6;
        assert!((megabytes / 233.6 - 1.0).abs() < 0.05, "{megabytes}");
        let mut files = std::collections::HashMap::new();
        for line in listing.lines() {
            *files
                .entry(line.rsplit_once('/').unwrap().0.split('\t').nth(1).unwrap())
                .or_insert(0) += 1;
        }
        assert_eq!(files.len(), DIRECTORIES);
        assert!(files.values().any(|&count| count == 1) && files.values().any(|&count| count > 300));
        assert_eq!(listing, super::listing(1));
        assert_ne!(listing, super::listing(2));
    }
}
