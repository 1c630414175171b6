//! `elbow_fuzz::ranges::footprint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| elbow_fuzz::ranges::footprint(bytes));
