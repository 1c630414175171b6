//! `elbow_fuzz::frames::reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| elbow_fuzz::frames::reply(bytes));
