//! The bodies of the fuzz targets on random bytes: pure noise, and encodings with some of it.
#![allow(clippy::unwrap_used)]

#[allow(unreachable_pub)] // the fuzz crate exports it
#[path = "../../../fuzz/src/ranges.rs"]
mod bodies;
mod support;

use elbow_ranges::encoding::Writer;
use elbow_ranges::{BlockBitmap, Dim, Footprint, Strided};
use rand::Rng;
use rand::rngs::StdRng;
use support::for_each_seed;

const TRIES: usize = 100;

fn noise(rng: &mut StdRng) -> Vec<u8> {
    // Mostly small numbers, or no count would ever be right.
    (0..rng.random_range(0..40))
        .map(|_| rng.random::<u8>() >> rng.random_range(0..8))
        .collect()
}

fn footprint(rng: &mut StdRng) -> Vec<u8> {
    let mut pattern = || {
        let dims: Vec<Dim> = (0..rng.random_range(0..4))
            .map(|_| Dim {
                count: rng.random_range(1..6),
                stride: rng.random::<u64>() >> rng.random_range(40..64),
            })
            .collect();
        Strided::new(rng.random_range(0..500), &dims, rng.random_range(1..9)).unwrap()
    };
    let footprint = match pattern().piece_bytes() % 3 {
        0 => {
            let mut blocks = BlockBitmap::new(3).unwrap();
            pattern().iter().for_each(|range| blocks.insert(range).unwrap());
            Footprint::from_blocks(blocks)
        }
        1 => Footprint::from_patterns([pattern(), pattern(), pattern()]),
        _ => Ok(pattern().into()),
    };
    let mut writer = Writer::new();
    footprint.unwrap().encode(&mut writer);
    writer.finish()
}

fn damage(rng: &mut StdRng, bytes: &mut [u8]) {
    for _ in 0..rng.random_range(0..3) {
        if let Some(byte) = bytes.get_mut(rng.random_range(0..bytes.len().max(1))) {
            *byte = rng.random::<u8>() >> rng.random_range(0..8);
        }
    }
}

#[test]
fn no_bytes_break_a_body() {
    for_each_seed(|rng| {
        for _ in 0..TRIES {
            let bytes = noise(rng);
            bodies::footprint(&bytes);
            bodies::overlap(&bytes);
            bodies::strided(&bytes);
            bodies::compression(&bytes);
            bodies::blocks(&bytes);
        }
    });
}

#[test]
fn no_damage_breaks_a_body() {
    for_each_seed(|rng| {
        for _ in 0..TRIES / 2 {
            let (mut a, mut b) = (footprint(rng), footprint(rng));
            damage(rng, &mut a);
            damage(rng, &mut b);
            bodies::footprint(&a);
            bodies::blocks(&a[1..]);
            if let Ok(length) = u8::try_from(a.len()) {
                bodies::overlap(&[&[length][..], &a, &b].concat());
            }
        }
    });
}
