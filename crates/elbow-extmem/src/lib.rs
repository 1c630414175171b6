//! External memory (floor 2): data larger than memory, in no more disk space than it has bytes.
//!
//! Whoever has read data for the last time frees it at once (makes a hole of it in its file), so that a
//! sort needs the space of its input once, and a block store shrinks as blocks are freed.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*.

mod loser_tree;
pub mod pager;
pub mod sort;
pub mod store;
pub mod stream;
pub mod text;
mod uncached;
