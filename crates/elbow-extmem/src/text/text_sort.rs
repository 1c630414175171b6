//! One sort of text: its order, its options, and what it counts. What it does is in [`engine`](super::engine).

use std::sync::Arc;

use elbow_file::{RealStorage, Storage};

use super::budget::Memory;
use super::options::{CountForm, SortOptions};
use super::order::TextOrder;
use super::sink::OutputFlow;
use crate::sort::Meter;

/// Where merged lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Run,
    Output,
}

/// Sorts, merges and checks text in one order.
///
/// ```
/// use elbow_extmem::text::{Input, OrderOptions, Output, SortOptions, TextOrder, TextSort};
///
/// let sort = TextSort::new(TextOrder::new(&OrderOptions::default())?, SortOptions::default());
/// let inputs = vec![Input::new("one", || Ok(&b"pear\napple"[..])), Input::new("two", || Ok(&b"fig\n"[..]))];
/// let (sorted, summary) = sort.sort(inputs, Output::new("memory", || Ok(Vec::new())))?;
/// assert_eq!(sorted, b"apple\nfig\npear\n");
/// assert_eq!(summary.runs, 0); // it fitted into memory
/// # Ok::<(), elbow_extmem::text::TextError>(())
/// ```
pub struct TextSort {
    order: TextOrder,
    options: SortOptions,
    storage: Arc<dyn Storage>,
    meter: Arc<Meter>,
}

impl TextSort {
    /// A sort in this order.
    #[must_use]
    pub fn new(order: TextOrder, options: SortOptions) -> Self {
        Self::on_storage(order, options, Arc::new(RealStorage))
    }

    /// The same, with another way to read, write and punch files: for tests.
    #[must_use]
    pub fn on_storage(order: TextOrder, options: SortOptions, storage: Arc<dyn Storage>) -> Self {
        Self {
            order,
            options,
            storage,
            meter: Arc::default(),
        }
    }

    /// Counts what the sort reads and writes, for another thread to look at: each byte once in each pass. The bytes of
    /// all passes together are an estimate while the inputs are read, and 0 where their sizes are not known.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(super) fn order(&self) -> &TextOrder {
        &self.order
    }

    pub(super) fn options(&self) -> &SortOptions {
        &self.options
    }

    pub(super) fn pool(&self) -> Option<rayon::ThreadPool> {
        // Where no threads are to be had, one has to do.
        let pool = || {
            rayon::ThreadPoolBuilder::new()
                .num_threads(self.options.threads)
                .build()
                .ok()
        };
        (self.options.threads > 1).then(pool).flatten()
    }

    pub(super) fn memory(&self) -> Memory {
        Memory::divide(&self.options)
    }

    /// How lines are written to a goal.
    pub(super) fn flow_to(&self, goal: Goal) -> OutputFlow {
        let mut flow = self.flow();
        if let (Goal::Output, Some(terminator)) = (goal, self.options.form.terminator) {
            flow.terminator = terminator;
        }
        flow
    }

    /// How lines are counted on the way to a goal, if they are.
    pub(super) fn counted(&self, goal: Goal) -> Option<CountForm> {
        self.options.form.count.filter(|_| goal == Goal::Output)
    }

    pub(super) fn flow(&self) -> OutputFlow {
        OutputFlow {
            terminator: self.options.terminator,
            buffer_bytes: self.memory().buffer_bytes,
            meter: self.meter.clone(),
        }
    }

    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }
}
