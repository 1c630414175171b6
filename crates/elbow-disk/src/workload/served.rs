//! A request that a drive has served.

use crate::drive::{Lbn, Ps};

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// In the order of arrival, from 0.
    pub number: u64,
    /// Whether it wrote.
    pub write: bool,
    /// First sector of the place where it was served.
    pub lbn: Lbn,
    /// Sectors from there on.
    pub sectors: u32,
    /// Time of its arrival in the queue.
    pub arrived: Ps,
    /// When it was picked.
    pub started: Ps,
    /// When it was done.
    pub ended: Ps,
    /// Time to move the arm.
    pub seek: Ps,
    /// Time until the first sector passed.
    pub rotation: Ps,
    /// Time until the last sector had passed.
    pub transfer: Ps,
    /// Commands and the bus.
    pub overhead: Ps,
    /// Requests that still waited when it was picked.
    pub waiting: u32,
}

impl Served {
    /// From pick to completion.
    #[must_use]
    pub fn service(&self) -> Ps {
        self.ended - self.started
    }
}
