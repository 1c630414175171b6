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
        bodies::sftp(&bytes);
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

/// A packet of a kind that is an answer, with a number that may have been asked by, and fields of which some are right.
fn sftp_answer(rng: &mut StdRng, number: u32) -> Vec<u8> {
    let kinds = [101, 102, 103, 104, 105, 201];
    let kind = kinds[rng.random_range(0..kinds.len())];
    let text = |rng: &mut StdRng| {
        let length = rng.random_range(0..4);
        let text: Vec<u8> = (0..length)
            .map(|_| b"abcdefgh\xff\x80\n./\0"[rng.random_range(0..14)])
            .collect();
        [&(length as u32).to_be_bytes()[..], &text].concat()
    };
    let attrs = |rng: &mut StdRng| {
        let kind = [0o100_000u32, 0o040_000, 0o120_000][rng.random_range(0..3)];
        [4u32.to_be_bytes(), (kind | 0o644).to_be_bytes()].concat()
    };
    let mut fields = match kind {
        101 => rng.random_range(0..10u32).to_be_bytes().to_vec(),
        102 | 103 => text(rng),
        104 => {
            let count = rng.random_range(0..4u32);
            let names = (0..count).flat_map(|_| [text(rng), text(rng), attrs(rng)].concat());
            let names: Vec<u8> = names.collect();
            [&count.to_be_bytes()[..], &names].concat()
        }
        105 => attrs(rng),
        _ => noise(rng, 88),
    };
    if rng.random_bool(0.05) {
        fields = noise(rng, fields.len());
    }
    bodies::sftp_packet(kind, number, &fields)
}

#[test]
fn no_answers_of_an_sftp_server_break_a_body() {
    let listed = AtomicUsize::new(0);
    for_each_seed(1_000, |rng| {
        // A listing that has an end first, so that something is believed sometimes.
        let (mut answers, mut first) = (Vec::new(), 4);
        if rng.random_bool(0.5) {
            answers.extend(bodies::sftp_packet(102, 4, &[0, 0, 0, 1, b'h']));
            answers.extend(sftp_answer(rng, 5));
            answers.extend(bodies::sftp_packet(101, 6, &[0, 0, 0, 1]));
            first = 7;
        }
        for number in first..first + rng.random_range(2..25) {
            answers.extend(sftp_answer(rng, number));
        }
        listed.fetch_add(bodies::sftp(&answers), Ordering::Relaxed);
    });
    let listed = listed.into_inner();
    assert!(listed > 10, "only {listed} names were listed: no answer meant anything");
}
