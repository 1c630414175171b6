//! `elbow_fuzz::frames::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| elbow_fuzz::frames::request(bytes));
