//! The same done to many things, by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// To start a thread for less costs more than it saves.
pub(crate) const ITEMS_PER_THREAD: usize = 4;
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// Applies a function to all items from several threads; results in the order of the items.
pub(crate) fn parallel<T: Sync, R: Send>(items: &[T], threads: usize, apply: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        while let Some((at, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
        {
            let result = apply(item);
            results.lock().push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len().div_ceil(ITEMS_PER_THREAD)) {
            // Fewer threads are only slower.
            let _ = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, run);
        }
        run();
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
