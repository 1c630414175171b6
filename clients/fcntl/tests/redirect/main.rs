//! The redirect under real programs: each does the same with it as without, and the kernel sees no lock.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "these tests are what a user's shell does"
)]

mod differential;
mod identity;
mod loss;
mod programs;
mod rules;
mod test_dir;
