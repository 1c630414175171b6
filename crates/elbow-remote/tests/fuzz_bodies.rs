//! The bodies of the fuzz targets on random bytes: noise, and messages of the right form that say anything.
#![allow(clippy::disallowed_methods)] // a test looks at directories itself

#[allow(unreachable_pub)] // the fuzz crate exports it
#[path = "../../../fuzz/src/connection.rs"]
mod bodies;

use std::sync::atomic::{AtomicUsize, Ordering};

use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

/// Numbers of calls in the protocol.
const OPEN_DIR: u8 = 0;
const CREATE: u8 = 1;
const MKDIR: u8 = 4;
const RENAME: u8 = 8;
const UNLINK: u8 = 9;

fn byte(rng: &mut StdRng) -> u8 {
    rng.random::<u8>() >> rng.random_range(0..8) // mostly small, or no count would ever be right
}

fn noise(rng: &mut StdRng, length: usize) -> Vec<u8> {
    (0..length).map(|_| byte(rng)).collect()
}

/// A frame whose lengths are right.
fn frame(rng: &mut StdRng, number: u64, message: &[u8]) -> Vec<u8> {
    let content = rng.random_range(0..20u32);
    let mut frame = (message.len() as u32).to_le_bytes().to_vec();
    // Some contents say that they are packed.
    let packed = u32::from(rng.random_bool(0.2)) << 31;
    frame.extend((content | packed).to_le_bytes());
    frame.extend(number.to_le_bytes());
    frame.extend_from_slice(message);
    frame.extend(noise(rng, content as usize));
    frame
}

/// A request about the root or some other object, that opens one or none: a call that is whole, or any number of a call with anything after it.
fn request(rng: &mut StdRng) -> Vec<u8> {
    let on = if rng.random_bool(0.7) {
        0
    } else {
        rng.random_range(1..4)
    };
    let mut message = vec![1, on];
    match rng.random_range(0..2) {
        0 => message.push(0),
        _ => message.extend([1, rng.random_range(1..5)]),
    }
    message.push(0);
    // The name of a file as postcard has it.
    let name = [0, 1, rng.random_range(b'a'..=b'c')];
    let mode = [rng.random_range(0..128)];
    match rng.random_range(0..6) {
        0 => message.extend([&[OPEN_DIR][..], &name].concat()),
        1 => message.extend([&[CREATE][..], &name, &mode].concat()),
        2 => message.extend([&[MKDIR][..], &name, &mode].concat()),
        3 => message.extend([&[UNLINK][..], &name].concat()),
        4 => message.extend([&[RENAME][..], &name, &name, &[rng.random_range(0..3)]].concat()),
        _ => {
            let more = rng.random_range(0..8);
            message.push(rng.random_range(0..48));
            message.extend(noise(rng, more));
        }
    }
    message
}

#[test]
fn no_bytes_break_a_body() {
    for_each_seed(300, |rng| {
        let length = rng.random_range(0..200);
        let bytes = noise(rng, length);
        bodies::requests(&bytes);
        bodies::replies(&bytes);
    });
}

#[test]
fn no_messages_break_a_body() {
    let made = AtomicUsize::new(0);
    for_each_seed(1_500, |rng| {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for number in 1..rng.random_range(2..20) {
            let message = request(rng);
            requests.extend(frame(rng, number, &message));
            let length = rng.random_range(1..40);
            let message = noise(rng, length);
            replies.extend(frame(rng, number, &message));
        }
        made.fetch_add(bodies::requests(&requests), Ordering::Relaxed);
        bodies::replies(&replies);
    });
    let made = made.into_inner();
    assert!(made > 100, "only {made} names were made: no request meant anything");
}
