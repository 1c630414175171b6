//! Memory larger than its budget: content, budget, what the file takes, threads, and the refusal where it cannot be.
#![allow(clippy::unwrap_used)]

#[path = "../examples/pager_sort.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod pager_sort;
mod store_test_dir;

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elbow_extmem::pager::{CHUNK_BYTES, PagedMemory, PagerError};
use elbow_extmem::store::{BlockStore, Options, StoreError};
use elbow_file::double::{Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, RealStorage};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use store_test_dir::{TestDir, name};

/// The smallest budget.
const BUDGET: usize = 16 * CHUNK_BYTES;

/// Memory of four budgets; `None`, said aloud, where the kernel does not permit it.
fn memory(len: usize) -> Option<PagedMemory> {
    match PagedMemory::new(len, BUDGET) {
        Ok(memory) => Some(memory),
        Err(error @ PagerError::NotPermitted { .. }) => {
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "CI=true, and {error}"
            );
            // Not eprintln: the test runner would keep it to itself.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What the kernel says is resident of the memory.
#[allow(clippy::disallowed_methods, reason = "the kernel's own account")]
fn resident_bytes(memory: &PagedMemory) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", memory.as_ptr() as usize);
    let ours = maps.lines().skip_while(|line| !line.starts_with(&start));
    let resident = ours.skip(1).find(|line| line.starts_with("Rss:")).unwrap();
    resident.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn it_holds_what_was_written_and_keeps_its_budget() {
    for_each_seed(3, |rng| {
        let len = 4 * BUDGET + 12_345;
        let Some(mut memory) = memory(len) else { return };
        let mut model = vec![0_u8; len];
        for _ in 0..600 {
            let start = rng.random_range(0..len);
            let end = (start + rng.random_range(1..3 * CHUNK_BYTES)).min(len);
            match rng.random_range(0..5) {
                0..3 => {
                    let byte = rng.random();
                    memory[start..end].fill(byte);
                    model[start..end].fill(byte);
                }
                3 => assert!(memory[start..end] == model[start..end], "{start}..{end}"),
                _ => {
                    memory.discard(start..end).unwrap();
                    model[start..end].fill(0);
                }
            }
        }
        assert!(memory[..] == model[..]);
        let stats = memory.stats();
        assert!(stats.resident_bytes as usize <= BUDGET && stats.written_bytes > 0 && stats.read_bytes > 0);
        assert!(resident_bytes(&memory) <= BUDGET);
        assert_eq!(memory.failure(), None);
    });
}

#[test]
fn the_file_is_as_large_as_what_is_live() {
    let len = 8 * BUDGET;
    let Some(mut memory) = memory(len) else { return };
    memory.fill(7);
    let full = memory.stats().stored_bytes as usize;
    assert!(full >= len - BUDGET && full <= len, "{full}");
    assert!(memory.file_bytes().unwrap() as usize >= len - BUDGET);

    // Zeros take nothing, once they leave memory.
    memory[..len / 2].fill(0);
    memory[len / 2..]
        .iter_mut()
        .step_by(CHUNK_BYTES)
        .for_each(|byte| *byte = 8);
    assert!(memory.stats().stored_bytes as usize <= len / 2 + BUDGET);

    memory.discard(0..len).unwrap();
    let stats = memory.stats();
    assert_eq!((stats.resident_bytes, stats.stored_bytes), (0, 0));
    assert_eq!(resident_bytes(&memory), 0);
    // Less than 8 MiB may wait to be punched.
    assert!(memory.file_bytes().unwrap() < 8 << 20);
    assert!(memory.iter().step_by(4096).all(|&byte| byte == 0));
    assert_eq!(memory.stats().stored_bytes, 0, "looking at zeros writes nothing");
}

#[test]
fn reading_writes_nothing() {
    let Some(mut memory) = memory(4 * BUDGET) else { return };
    memory.fill(3);
    let sum = |memory: &PagedMemory| memory.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    assert_eq!(sum(&memory), 3 * 4 * BUDGET as u64);
    let written = memory.stats().written_bytes;
    assert_eq!(sum(&memory), 3 * 4 * BUDGET as u64);
    assert_eq!(
        memory.stats().written_bytes,
        written,
        "chunks that were only read are not written again"
    );
}

#[test]
fn threads_share_it() {
    let len = 4 * BUDGET;
    let Some(mut memory) = memory(len) else { return };
    std::thread::scope(|scope| {
        let parts: Vec<_> = memory.chunks_mut(len / 4).zip(1_u8..).collect();
        let threads: Vec<_> = parts
            .into_iter()
            .map(|(part, mark)| {
                scope.spawn(move || {
                    for round in 0..6 {
                        let byte = mark.wrapping_mul(16) + round;
                        part.iter_mut().for_each(|at| *at = byte);
                        assert!(part.iter().all(|&at| at == byte), "thread {mark}, round {round}");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(memory.stats().resident_bytes as usize <= BUDGET);
}

#[test]
fn the_example_sorts_an_array_of_four_budgets() {
    let Some(mut memory) = memory(4 * BUDGET) else { return };
    pager_sort::sort(&mut memory).unwrap(); // checks the order itself
    let stats = memory.stats();
    assert!(stats.read_bytes > 4 * BUDGET as u64);
    assert_eq!((stats.resident_bytes, stats.stored_bytes), (0, 0));
}

/// A chunk that leaves while it is being written must take the last write along.
#[test]
fn no_write_is_lost_while_a_chunk_leaves() {
    const CELLS: usize = 1 << 12;
    let Some(mut memory) = memory(4 * BUDGET) else { return };
    let (hot, cold) = memory.split_at_mut(CHUNK_BYTES);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let writer = scope.spawn(move || {
            let mut written = vec![0_u8; CELLS];
            for round in 0_usize.. {
                let (at, value) = (round.wrapping_mul(2_654_435_761) % CELLS, (round / CELLS) as u8);
                black_box(&mut *hot)[at] = value;
                written[at] = value;
                if round % CELLS == 0 {
                    assert!(black_box(&*hot)[..CELLS] == written[..], "round {round}");
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        for round in 0..40 {
            cold.iter_mut().step_by(4096).for_each(|at| *at = round);
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn system_calls_reach_it_where_that_is_permitted() {
    let Some(mut memory) = memory(4 * BUDGET) else { return };
    memory.fill(5);
    let mut pipe = std::io::pipe().unwrap();
    let result = pipe.1.write(&memory[..512]); // the first chunk left long ago
    match memory.serves_system_calls() {
        true => assert_eq!(result.unwrap(), 512),
        false => assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::FAULT.raw_os_error())),
    }
}

#[test]
fn what_cannot_be_written_stays_in_memory() {
    if memory(BUDGET).is_none() {
        return;
    }
    let test_dir = TestDir::new();
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let kind = Options {
        block_bytes: Some(CHUNK_BYTES as u64),
        ..Options::default()
    };
    let store = BlockStore::create(storage.clone(), &test_dir.root, name(), kind).unwrap();
    let mut memory = PagedMemory::in_store(store, 4 * BUDGET, BUDGET).unwrap();
    storage
        .hook()
        .arm(Plan::fail(Errno::NOSPC).on(Operation::Write).times(u64::MAX));
    memory[..2 * BUDGET].fill(9);
    assert!(storage.hook().fired() > 0);
    assert!(matches!(memory.failure(), Some(StoreError::NoSpace { .. })));
    assert_eq!(
        (memory.stats().resident_bytes, memory.stats().stored_bytes),
        (2 * BUDGET as u64, 0)
    );

    storage.hook().disarm();
    memory[2 * BUDGET..].fill(9);
    assert!(memory.iter().all(|&byte| byte == 9));
    assert_eq!(memory.failure(), None);
    assert!(
        memory.stats().resident_bytes <= BUDGET as u64,
        "within the budget again"
    );
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    for (len, resident) in [(0, BUDGET), (BUDGET, BUDGET - 1), (usize::MAX, BUDGET)] {
        let Err(error) = PagedMemory::new(len, resident) else {
            panic!("{len}")
        };
        assert!(matches!(error, PagerError::Sizes { .. }), "{error}");
    }
}

#[test]
fn where_it_is_not_permitted_that_is_said() {
    // A thread of its own: the filter stays.
    let error = std::thread::spawn(|| {
        forbid_userfaultfd();
        PagedMemory::new(4 * BUDGET, BUDGET).err()
    });
    let error = error.join().unwrap().expect("it is forbidden");
    assert_eq!(error, PagerError::NotPermitted { errno: Errno::PERM });
    assert!(
        error.to_string().starts_with("userfaultfd is not permitted here"),
        "{error}"
    );
}

/// Makes userfaultfd(2) fail with EPERM for this thread, as container runtimes do.
#[allow(unsafe_code)]
fn forbid_userfaultfd() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 0), // the number of the system call
        step(JUMP_IF_EQUAL, 0, 1, libc::SYS_userfaultfd as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: prctl copies the program, which is alive during the call; it concerns this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program, 0, 0), 0);
    }
}
