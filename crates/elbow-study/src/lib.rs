//! The experiments of three papers (floor 4), repeated with the crates of Elbowroom.
//!
//! | module | paper | experiment |
//! |---|---|---|
//! | [`range_writes`] | Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008) | Figures 4 to 13, Tables 2 and 3 |
//! | [`ep`], [`s24`] | Vengroff & Kotz, *A Holesome File System* | its two applications, section 5 |
//! | [`access_patterns`] | Aarestad et al., *Scalable Approaches for Supporting MPI-IO Atomicity* | its three workloads, section 4 |
//!
//! Nothing that ships as a library depends on this crate: the `elbow` command shows its results (`elbow bench`, `elbow
//! disk figure`), and the benches take their inputs from it.

pub mod access_patterns;
pub mod ep;
pub mod range_writes;
pub mod s24;
