//! The body of the fuzz target of orders on random bytes.
#![allow(clippy::disallowed_methods)] // a test looks at directories itself

#[allow(unreachable_pub)] // the fuzz crate exports it
#[path = "../../../fuzz/src/orders.rs"]
mod bodies;

use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

/// The kinds of orders, and one that there is not.
const KINDS: u8 = 8;

fn byte(rng: &mut StdRng) -> u8 {
    rng.random::<u8>() >> rng.random_range(0..8) // mostly small, or no count would ever be right
}

#[test]
fn no_bytes_break_a_body() {
    for_each_seed(4_000, |rng| {
        let mut order = vec![rng.random_range(0..KINDS)];
        let length = rng.random_range(0..60);
        order.extend((0..length).map(|_| byte(rng)));
        bodies::order(&order);
    });
}
