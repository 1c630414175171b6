//! Random operations, from many processes, under disks that put range writes anywhere.

use elbow_disk::Ps;
use elbow_ext2::{Action, Ext2Error, Options, Policy, Purpose, Region, Writeback};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

use crate::judges;
use crate::observed::{ObservedRun, PathState, Tree};

const POLICIES: [Policy; 3] = [
    Policy::Classic,
    Policy::Range(Region::MiniGroup),
    Policy::Range(Region::Group),
];

/// A small file system whose memory is small too, so that everything happens.
fn options(rng: &mut StdRng, policy: Policy) -> Options {
    let memory_blocks = rng.random_range(50..2000);
    let blocks = [3_000, 34_000, 70_000][rng.random_range(0..3)];
    Options {
        policy,
        inode_bytes: [128, 256][rng.random_range(0..2)],
        inodes_per_group: rng.random_range(64..2000),
        preallocation: [0, 1, 8][rng.random_range(0..3)],
        request_blocks_max: rng.random_range(1..140),
        merge: rng.random(),
        in_flight_max: rng.random_range(1..130),
        writeback: Writeback {
            interval: Ps::from_ms(5_000.0),
            age: Ps::from_ms(30_000.0),
            background_blocks: memory_blocks / 10,
            limit_blocks: memory_blocks * 2 / 5,
        },
        memory_blocks,
        seed: rng.random(),
        ..Options::new(blocks)
    }
}

/// The same is possible and impossible as in the naive tree, apart from what space and inodes end.
fn work(disk: &mut ObservedRun, tree: &mut Tree, rng: &mut StdRng, steps: u32, bytes_max: u64) -> u32 {
    let mut full = 0;
    for _ in 0..steps {
        let action = tree.random_action(rng, bytes_max);
        let mut after = tree.clone();
        let expected = after.apply(&action);
        match disk.apply(rng.random_range(0..20), &action) {
            Err(Ext2Error::NoSpace { .. } | Ext2Error::NoInodes(_)) => full += 1,
            result => {
                assert_eq!(result.is_ok(), expected, "{action:?} gave {result:?}");
                *tree = after;
            }
        }
        if rng.random_bool(0.1) {
            disk.pass(Ps(rng.random_range(0..20_000_000_000_000)));
        }
    }
    full
}

#[test]
fn random_work_leaves_what_e2fsck_and_debugfs_accept() {
    if !judges::are_there() {
        return;
    }
    for policy in POLICIES {
        for_each_seed(8, |rng| {
            let mut disk = ObservedRun::new(options(rng, policy), rng.random());
            let mut tree = Tree::new();
            let bytes_max = [9_000, 200_000][rng.random_range(0..2)];
            for _ in 0..2 {
                work(&mut disk, &mut tree, rng, 300, bytes_max);
                disk.apply(1, &Action::Sync).unwrap();
                judges::judge(&mut disk.fs, &tree);
            }
        });
    }
}

/// A read of more than the memory holds never ended: what had come first was forgotten before the last had come.
#[test]
fn a_file_that_is_larger_than_the_memory_is_read() {
    for policy in POLICIES {
        for_each_seed(5, |rng| {
            let blocks = rng.random_range(20..60);
            let options = Options {
                memory_blocks: blocks / 2,
                ..options(rng, policy)
            };
            let mut disk = ObservedRun::new(options, rng.random());
            let file = || "/large".to_owned();
            let bytes = blocks * 4096;
            let whole = |write: bool| match write {
                true => Action::Write {
                    path: file(),
                    offset: 0,
                    bytes,
                },
                false => Action::Read {
                    path: file(),
                    offset: 0,
                    bytes,
                },
            };
            disk.apply(1, &Action::Create(file())).unwrap();
            disk.apply(1, &whole(true)).unwrap();
            disk.apply(1, &Action::Sync).unwrap();
            for _ in 0..2 {
                disk.apply(1, &whole(false)).unwrap();
            }
        });
    }
}

#[test]
fn a_full_file_system_stays_whole_and_what_is_freed_is_used_again() {
    if !judges::are_there() {
        return;
    }
    for policy in POLICIES {
        for_each_seed(3, |rng| {
            let options = Options {
                blocks: 3_000,
                inodes_per_group: 1_000,
                ..options(rng, policy)
            };
            let mut disk = ObservedRun::new(options, rng.random());
            let free_at_first = disk.fs.free_blocks();
            for _ in 0..3 {
                let mut tree = Tree::new();
                fill(&mut disk, &mut tree, rng);
                assert!(
                    disk.fs.free_blocks() < 30,
                    "{} blocks are free still",
                    disk.fs.free_blocks()
                );
                disk.apply(1, &Action::Sync).unwrap();
                judges::judge(&mut disk.fs, &tree);
                for path in tree
                    .0
                    .iter()
                    .filter(|(_, there)| **there != PathState::Directory)
                    .map(|(path, _)| path)
                {
                    disk.apply(1, &Action::Unlink(path.clone())).unwrap();
                }
                disk.apply(1, &Action::Sync).unwrap();
                assert!(
                    disk.fs.free_blocks() >= free_at_first - 8,
                    "but for blocks of the root, all is free again"
                );
            }
        });
    }
}

/// Writes files until three in a row do not fit.
fn fill(disk: &mut ObservedRun, tree: &mut Tree, rng: &mut StdRng) {
    let mut refused = 0;
    for number in 0.. {
        let path = format!("/file-{number}");
        let (pid, bytes) = (rng.random_range(0..20), rng.random_range(1..60_000));
        let create = Action::Create(path.clone());
        let write = Action::Write { path, offset: 0, bytes };
        for action in [create, write] {
            match disk.apply(pid, &action) {
                Ok(()) => assert!(tree.apply(&action)),
                Err(Ext2Error::NoSpace { .. }) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        if refused >= 30 {
            return;
        }
    }
}

#[test]
fn pointers_are_written_after_their_places_are_known() {
    for policy in [Policy::Range(Region::MiniGroup), Policy::Range(Region::Group)] {
        for_each_seed(4, |rng| {
            let mut disk = ObservedRun::new(options(rng, policy), rng.random());
            work(&mut disk, &mut Tree::new(), rng, 400, 200_000);
            disk.apply(1, &Action::Sync).unwrap();
            assert!(
                disk.pointers_seen > 100,
                "{} pointers were looked at",
                disk.pointers_seen
            );
        });
    }
}

#[test]
fn no_block_has_two_owners() {
    for policy in POLICIES {
        for_each_seed(6, |rng| {
            let mut disk = ObservedRun::new(options(rng, policy), rng.random());
            let mut tree = Tree::new();
            work(&mut disk, &mut tree, rng, 300, 100_000);
            disk.apply(1, &Action::Sync).unwrap();
            let mut owned = std::collections::BTreeMap::new();
            for (path, there) in &tree.0 {
                if *there == PathState::Directory {
                    continue;
                }
                for place in disk.fs.places(path).unwrap().into_iter().flatten() {
                    let before = owned.insert(place, path);
                    assert_eq!(before, None, "block {place} is in {path} too");
                }
            }
        });
    }
}

#[test]
fn a_file_of_many_indirect_blocks_is_accepted() {
    if !judges::are_there() {
        return;
    }
    for policy in POLICIES {
        let options = Options {
            policy,
            ..Options::new(60_000)
        };
        let mut disk = ObservedRun::new(options, 1);
        let mut tree = Tree::new();
        for action in [
            Action::Create("/large".into()),
            Action::Write {
                path: "/large".into(),
                offset: 0,
                bytes: 30 << 20,
            },
            Action::Sync,
            Action::Create("/sparse".into()),
            Action::Write {
                path: "/sparse".into(),
                offset: 2 << 30,
                bytes: 5_000_000,
            },
            Action::Sync,
            Action::Truncate {
                path: "/large".into(),
                bytes: 5 << 20,
            },
            Action::Sync,
        ] {
            disk.apply(1, &action).unwrap();
            assert!(tree.apply(&action));
        }
        judges::judge(&mut disk.fs, &tree);
        let places: Vec<u32> = disk.fs.places("/large").unwrap().into_iter().flatten().collect();
        assert_eq!(places.len(), 1280);
        let breaks = places.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!(
            breaks <= 4,
            "{policy:?}: mostly contiguous, but for indirect blocks: {breaks} breaks"
        );
    }
}

#[test]
fn fsync_has_one_file_written_and_no_other() {
    for policy in POLICIES {
        let mut disk = ObservedRun::new(
            Options {
                policy,
                ..Options::new(40_000)
            },
            1,
        );
        for file in ["/a", "/b"] {
            disk.apply(3, &Action::Create(file.into())).unwrap();
            let write = Action::Write {
                path: file.into(),
                offset: 0,
                bytes: 100_000,
            };
            disk.apply(3, &write).unwrap();
        }
        disk.apply(3, &Action::Fsync("/a".into())).unwrap();
        let written = disk.fs.statistics().blocks_written();
        // 25 blocks, an indirect one (a range write takes it along, and it is written again), the inodes.
        assert!((27..=28).contains(&written), "{policy:?}: {written}");
    }
}

#[test]
fn what_is_old_is_written_without_being_asked() {
    let mut disk = ObservedRun::new(Options::new(40_000), 1);
    disk.apply(1, &Action::Create("/a".into())).unwrap();
    disk.apply(
        1,
        &Action::Append {
            path: "/a".into(),
            bytes: 4096,
        },
    )
    .unwrap();
    disk.pass(Ps::from_ms(29_000.0));
    assert_eq!(disk.fs.statistics().requests_written(), 0);
    disk.pass(Ps::from_ms(2_000.0));
    disk.pass(Ps::from_ms(5_000.0));
    let statistics = disk.fs.statistics().clone();
    // Superblock, descriptors, bitmaps and the first inodes lie side by side.
    let expected = [
        (Purpose::Data, (1, 1)),
        (Purpose::Directory, (1, 1)),
        (Purpose::Super, (1, 5)),
    ];
    assert_eq!(statistics.writes.into_iter().collect::<Vec<_>>(), expected);
    disk.pass(Ps::from_ms(100_000.0));
    let later = disk.fs.statistics().requests_written();
    disk.pass(Ps::from_ms(100_000.0));
    assert_eq!(disk.fs.statistics().requests_written(), later, "then there is peace");
}

#[test]
fn a_file_that_is_removed_soon_is_never_written() {
    let mut disk = ObservedRun::new(
        Options {
            policy: Policy::Range(Region::Group),
            ..Options::new(40_000)
        },
        1,
    );
    for number in 0..50 {
        let path = format!("/{number}");
        disk.apply(1, &Action::Create(path.clone())).unwrap();
        disk.apply(
            1,
            &Action::Append {
                path: path.clone(),
                bytes: 50_000,
            },
        )
        .unwrap();
        disk.apply(1, &Action::Unlink(path)).unwrap();
    }
    disk.apply(1, &Action::Sync).unwrap();
    let data = disk.fs.statistics().writes.get(&Purpose::Data);
    assert_eq!(data, None);
}

#[test]
fn what_was_evicted_is_read_again() {
    let mut disk = ObservedRun::new(
        Options {
            memory_blocks: 20,
            ..Options::new(40_000)
        },
        1,
    );
    for file in ["/a", "/b"] {
        disk.apply(1, &Action::Create(file.into())).unwrap();
        disk.apply(
            1,
            &Action::Append {
                path: file.into(),
                bytes: 15 * 4096,
            },
        )
        .unwrap();
        disk.apply(1, &Action::Sync).unwrap();
    }
    for file in ["/b", "/a", "/a"] {
        disk.apply(
            1,
            &Action::Read {
                path: file.into(),
                offset: 0,
                bytes: 1 << 20,
            },
        )
        .unwrap();
    }
    let statistics = disk.fs.statistics();
    // 15 blocks with the indirect block behind the first 12.
    assert_eq!(
        (statistics.reads, statistics.blocks_read),
        (2, 15),
        "/b was in memory, /a was not, and then was"
    );
}
