//! A sort in place that goes on with less memory, and one whose disk is too full to say what is free.

use elbow_file::double::Operation;

use super::*;

/// More runs at once than little memory has buffers for.
const RUNS: usize = 9;

fn begin_and_die(testbed: &Testbed, change: u64) -> Result<Summary> {
    let memory = Memory::tiny(&testbed.format, 2 * RUNS, 2);
    let faulty = dies_at(change);
    let ended = begin(
        &faulty,
        &target(testbed.root.path()),
        &testbed.format,
        true,
        memory,
        &Meter::default(),
    );
    assert!(faulty.hook().fired() > 0 || ended.is_ok());
    ended
}

fn go_on_with(testbed: &Testbed, units: usize) -> Result<Summary> {
    let memory = Memory::tiny(&testbed.format, 4, 2).with_units(units);
    let target = target(testbed.root.path());
    go_on(
        &RealStorage,
        &target,
        &|_| Ok(memory),
        |_, _, _, _, _| Ok(()),
        &Meter::default(),
    )
}

/// The story: a resumed sort merged as many runs at once as had been merged before, whatever memory it was given.
#[test]
fn too_little_memory_to_go_on_with_is_refused_with_what_is_needed() {
    let (mut forming, mut merging) = (0, 0);
    for change in (20..160).step_by(4) {
        let testbed = Testbed::new(RUNS * UNIT_RECORDS, 3);
        if begin_and_die(&testbed, change).is_ok() {
            break;
        }
        let is_merging = match go_on_with(&testbed, 1) {
            Err(SortError::Refused(text)) => {
                assert!(text.contains("to go on with a sort that was begun with more"), "{text}");
                let needed = text.split(' ').rev().find_map(|word| word.parse().ok());
                let budget: usize = needed.expect("a number");
                // One unit for each run twice, and three for output: in one lane or two.
                budget - Memory::tiny(&testbed.format, 4, 2).with_units(0).budget_bytes() > (3 + 2 * RUNS) * 4096 * 3
            }
            Ok(_) => continue, // only the end was left to do
            other => panic!("{other:?}"),
        };
        *(if is_merging { &mut merging } else { &mut forming }) += 1;
        assert_eq!(
            go_on_with(&testbed, 64).expect("enough").bytes,
            testbed.input.len() as u64
        );
        assert_eq!(testbed.content(testbed.root.path()), "sorted", "death at call {change}");
    }
    assert!(forming > 0 && merging > 0, "{forming} forming, {merging} merging");
}

/// The story: what could not be freed when its run was written was freed when the sort was resumed, and not before.
#[test]
fn input_that_a_full_disk_does_not_free_is_freed_with_the_next_run() {
    let testbed = Testbed::new(RUNS * UNIT_RECORDS, 5);
    // At first, and once more after a sync.
    let plan = Plan::fail(Errno::NOSPC).on(Operation::Punch).nth(2).times(2);
    let full = Interposed::new(Arc::new(RealStorage), Faulty::new([plan]));
    let meter = Meter::default();
    testbed.begin(&full, &meter).expect("a sort");
    assert_eq!(full.hook().fired(), 2);
    let without = Testbed::new(RUNS * UNIT_RECORDS, 5);
    let expected = Meter::default();
    without.begin(&RealStorage, &expected).expect("a sort");
    assert_eq!(meter.freed_bytes(), expected.freed_bytes());
    assert_eq!(testbed.content(testbed.root.path()), "sorted");
}
