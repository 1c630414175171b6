//! `elbow_fuzz::disk::trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| elbow_fuzz::disk::trace(bytes));
