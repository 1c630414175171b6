//! `elbow_fuzz::disk::drive`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| elbow_fuzz::disk::drive(bytes));
