//! The formats of traces by name.

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// DiskSim's default.
    DiskSim,
    /// DiskSim's format of measured requests.
    Validate,
    /// The text that `blkparse` prints.
    Blktrace,
    /// An I/O log or a latency log of fio.
    Fio,
    /// Of Microsoft Research Cambridge.
    Msr,
    /// Of the Storage Performance Council, and the University of Massachusetts.
    Spc,
    /// Comma-separated, with a line of names.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 7] = [
        Format::DiskSim,
        Format::Validate,
        Format::Blktrace,
        Format::Fio,
        Format::Msr,
        Format::Spc,
        Format::Csv,
    ];

    /// What commands call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::DiskSim => "disksim",
            Format::Validate => "validate",
            Format::Blktrace => "blktrace",
            Format::Fio => "fio",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Csv => "csv",
        }
    }
}
