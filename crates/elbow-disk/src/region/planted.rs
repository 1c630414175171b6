//! Mistakes that the crash tests plant, to see that they are found. Outside of tests there are none.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Records are taken whatever their checksum says.
    NoChecksum,
    /// A record is taken whatever lies between its payload and the end of its sectors.
    PaddingUnchecked,
    /// The scan orders records by their sequence numbers alone.
    NoIncarnation,
    /// The scan takes records in the order of their places.
    NoSequence,
    /// A flush is acknowledged without one of the device.
    EarlyFlush,
    /// A place is free as soon as its content is superseded.
    EarlyReuse,
    /// The place of a record that was moved out of the way of a run is free before the moved one is durable.
    EarlyMove,
    /// The scan does not make durable what it found.
    NoFlushAfterScan,
    /// A flush of several copies waits for one.
    OneCopyFlushed,
    /// A copy that was away is taken for the newest.
    StaleCopy,
    /// Copies that went on without each other are taken for equal.
    TagIgnored,
    /// What is damaged in the first copy is written over what is whole in the others.
    DamageIsTruth,
    /// A log leaves behind its end what lay there after a crash.
    TailKept,
    /// A log appends over what it trimmed behind its end after a crash.
    TailWrittenOver,
    /// A zone is begun anew when its first sector is free.
    ZoneResetEarly,
    /// The zone with the older headers is begun anew while the newer ones may be lost.
    HeaderZoneResetEarly,
}

#[cfg(test)]
thread_local! {
    pub(crate) static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this mistake is planted.
#[cfg(test)]
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this mistake is planted: never.
#[cfg(not(test))]
pub(crate) const fn has(_: Bug) -> bool {
    false
}

/// Cases in which a planted mistake has to be found.
#[cfg(test)]
pub(crate) const CASES_PER_BUG: u64 = 40;

/// Runs cases with a mistake planted until one finds it. The same case has to pass without: else it found something else.
#[cfg(test)]
pub(crate) fn finds(bug: Bug, case: impl Fn(u64) -> Result<(), String>) -> bool {
    PLANTED.set(Some(bug));
    let found = (0..CASES_PER_BUG).find_map(|seed| case(seed).err().map(|finding| (seed, finding)));
    PLANTED.set(None);
    let Some((seed, finding)) = found else {
        return false;
    };
    println!("{bug:?}, seed {seed}: {finding}");
    case(seed).unwrap_or_else(|finding| panic!("seed {seed}, without {bug:?}: {finding}"));
    true
}
