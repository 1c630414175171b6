//! The bodies of the fuzz targets.
//!
//! `cargo +nightly fuzz run footprint` searches for bytes that break one (`cargo install cargo-fuzz` first); the tests of
//! the crates run the same bodies on random bytes, so `make test` needs neither nightly nor libFuzzer.

pub mod connection;
pub mod disk;
pub mod frames;
pub mod orders;
pub mod ranges;
