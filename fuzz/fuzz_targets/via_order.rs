//! `elbow_fuzz::orders::order`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| elbow_fuzz::orders::order(bytes));
