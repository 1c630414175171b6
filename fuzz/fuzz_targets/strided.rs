//! `elbow_fuzz::ranges::strided`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| elbow_fuzz::ranges::strided(bytes));
