//! Others work in the directory of a job while it commits, and after it died: nothing of theirs or ours is lost in silence.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::double::{Delaying, Faulty, Gated, Interposed, Operation, Plan, StaleHandles, WholeSeconds};
use elbow_file::{Errno, RealStorage, RenameMode, Storage};
use parking_lot::Mutex;

use crate::crash_test::{begin, has_staging, recovered, seen_by_jobs};
use crate::options::Publish;
use crate::report::RecoverAction;
use crate::scenes_test::{old_tree, operations};
use crate::schedule_test::{InJob, Op, scratch};
use crate::staging::{MANIFEST_DRAFT, is_staging_name};
use crate::{Cause, Job, OnConflict, Outcome};

/// A storage that stalled for more than two seconds between the directory of a job and its manifest: a recovery took the job for dead, and removed what
/// it was just making.
#[test]
fn a_job_whose_storage_stalls_in_its_first_moment_is_not_taken_for_dead() {
    let temp = scratch();
    let gated =
        Gated::new(|call| call.operation == Operation::Create && call.name.is_some_and(|name| name == MANIFEST_DRAFT));
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), gated));
    storage.hook().close();
    let job = begin(storage.clone(), temp.path(), Publish::Staged);
    InJob(&job).run(&Op::Create("new".into())).unwrap();
    storage.hook().wait_for_held(1);
    let said = std::thread::scope(|scope| {
        let recovery = scope.spawn(|| {
            let root = RealStorage::open_root(temp.path()).unwrap();
            crate::recover(&(Arc::new(RealStorage) as Arc<dyn Storage>), &root, false).unwrap()
        });
        std::thread::sleep(Duration::from_secs(3));
        storage.hook().open();
        recovery.join().unwrap()
    });
    assert!(
        matches!(&said[..], [one] if one.action == RecoverAction::Running),
        "{said:?}"
    );
    let outcome = job.commit(&mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    assert!(temp.path().join("new").exists() && !has_staging(temp.path()));
}

/// Somebody replaces an old file before it gets the name that the command has given it: that was the name of the other file, with exit 0.
#[test]
fn what_others_have_put_in_its_place_gets_no_other_name() {
    for publish in [Publish::Staged, Publish::Eager] {
        for (replace, is_other) in [
            ("echo new > n; mv n f", true),
            ("rm f; ln -s /etc/passwd f", true),
            ("rm f; mkfifo f", true),
            ("echo more >> f", false),
            ("chmod 600 f", false),
        ] {
            let temp = scratch();
            std::fs::write(temp.path().join("f"), "old\n").unwrap();
            let job = begin(Arc::new(RealStorage), temp.path(), publish);
            job.by_hand(true);
            InJob(&job).run(&Op::Link("f".into(), "snap".into())).unwrap();
            let mut shell = std::process::Command::new("sh");
            let done = shell.args(["-ec", replace]).current_dir(temp.path()).status();
            assert!(done.unwrap().success());
            job.by_hand(false);
            let outcome = job.commit(&mut |_| {});
            let what = format!("{publish:?}, {replace}: {outcome:?}");
            match outcome {
                Ok(Outcome::RolledBack(_)) => assert!(is_other && !temp.path().join("snap").exists(), "{what}"),
                Ok(Outcome::Committed) => assert!(!is_other && temp.path().join("snap").exists(), "{what}"),
                _ => panic!("{what}"),
            }
            assert!(!has_staging(temp.path()), "{what}");
        }
    }
}

/// `git clean -ffdx`, `rsync --delete`: nothing is left to be rolled back, and the job was told as one that a recovery ends, which found none.
#[test]
fn a_job_whose_hidden_directory_somebody_has_removed_is_rolled_back() {
    for commits in [true, false] {
        let temp = scratch();
        std::fs::write(temp.path().join("old"), "old").unwrap();
        let ops = [
            Op::Create("new".into()),
            Op::Mkdir("dir".into()),
            Op::Create("dir/new".into()),
        ];
        let job = drained(temp.path(), &ops);
        assert!(has_staging(temp.path()));
        for entry in std::fs::read_dir(temp.path()).unwrap().map(Result::unwrap) {
            if is_staging_name(&entry.file_name()) {
                std::fs::remove_dir_all(entry.path()).unwrap();
            }
        }
        let ended = match commits {
            true => job.commit_or_keep(crate::Keep::Complete, &mut |_| {}),
            false => job.roll_back(false, &mut |_| {}),
        };
        assert!(matches!(ended, Ok(Outcome::RolledBack(_))), "{ended:?}");
        let names = std::fs::read_dir(temp.path()).unwrap().count();
        assert_eq!(names, 1, "the old file");
    }
}

/// Where a directory was in which a job has published something at once, there is a file: the job could be ended by nobody.
#[test]
fn a_directory_in_whose_place_others_put_something_else_holds_up_no_end() {
    for (replace, commits) in ["rm -r d; echo file > d", "rm -r d; ln -s /etc d"]
        .into_iter()
        .flat_map(|replace| [(replace, true), (replace, false)])
    {
        let temp = scratch();
        std::fs::create_dir(temp.path().join("d")).unwrap();
        let job = begin(Arc::new(RealStorage), temp.path(), Publish::Eager);
        InJob(&job).run(&Op::Create("d/n".into())).unwrap();
        job.shared.drain(&mut |_| {}).unwrap();
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-ec", replace]).current_dir(temp.path()).status();
        assert!(done.unwrap().success());
        let ended = match commits {
            true => job.commit(&mut |_| {}),
            false => job.roll_back(false, &mut |_| {}),
        };
        assert!(ended.is_ok(), "{replace}: {ended:?}");
        assert!(!has_staging(temp.path()), "{replace}");
    }
}

fn drained(dir: &Path, operations: &[Op]) -> Job {
    let job = begin(Arc::new(RealStorage), dir, Publish::Staged);
    for op in operations {
        InJob(&job).run(op).unwrap();
    }
    job.shared.drain(&mut |_| {}).unwrap();
    job
}

/// `rm -rf build; mkdir build`, `git clean`, a link in the place of the directory: what the job had staged there was gone, and the job
/// said that it was committed.
#[test]
fn results_that_somebody_took_away_fail_the_job() {
    let s = str::to_owned;
    type Interfere = fn(&Path);
    let others: [(&str, Interfere); 4] = [
        ("removed and made again", |dir| {
            std::fs::remove_dir_all(dir.join("keep")).unwrap();
            std::fs::create_dir(dir.join("keep")).unwrap();
        }),
        ("removed", |dir| std::fs::remove_dir_all(dir.join("keep")).unwrap()),
        ("a link in its place", |dir| {
            std::fs::rename(dir.join("keep"), dir.join("moves/kept")).unwrap();
            std::os::unix::fs::symlink("moves/kept", dir.join("keep")).unwrap();
        }),
        ("cleaned", |dir| {
            for entry in std::fs::read_dir(dir.join("keep")).unwrap().map(Result::unwrap) {
                if is_staging_name(&entry.file_name()) {
                    std::fs::remove_dir_all(entry.path()).unwrap();
                }
            }
        }),
    ];
    for (what, interfere) in others {
        for names in [vec!["keep/fresh"], vec!["keep/fresh", "top"]] {
            let temp = scratch();
            old_tree(temp.path());
            let create = |name: &&str| Op::Create(s(name));
            let job = drained(temp.path(), &names.iter().map(create).collect::<Vec<_>>());
            interfere(temp.path());
            let before = seen_by_jobs(temp.path());
            let outcome = job.commit(&mut |_| {});
            assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{what}: {outcome:?}");
            assert_eq!(seen_by_jobs(temp.path()), before, "{what}");
            assert!(!has_staging(temp.path()), "{what}");
        }
    }
}

/// A job died after its record, somebody wrote files by hand, and the next job carried the record out over them.
#[test]
fn a_recovery_overwrites_nothing_that_was_written_since() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let (mut kept, mut finished) = (0, 0);
    let dir = temp.path().join("died");
    for n in 1.. {
        // What has its name now, old or new; `dead` is to be replaced, `two` exchanged.
        let mut edited = vec!["two", "keep/replaced"];
        let edit = |dir: &Path| {
            edited.retain(|name| dir.join(name).is_file());
            for name in &edited {
                std::fs::write(dir.join(name), format!("{name} written by hand")).unwrap();
            }
            true
        };
        let Some(action) = recovered_after(&dir, n, edit) else {
            break;
        };
        kept += u64::from(action == Some(RecoverAction::Kept));
        finished += u64::from(action == Some(RecoverAction::Finished));
        for name in edited {
            let wanted = format!("{name} written by hand");
            assert!(holds(&dir, &wanted), "stop at change {n}, {action:?}: {name} is lost");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(kept > 5 && finished > 5, "{kept} {finished}");
}

/// A job that dies at a change of its commit, somebody who then does something, and a recovery: what it did, or `None` beyond the last
/// change. Whoever has nothing to do there leaves it alone.
fn recovered_after(dir: &Path, n: u64, interfere: impl FnOnce(&Path) -> bool) -> Option<Option<RecoverAction>> {
    std::fs::create_dir(dir).unwrap();
    old_tree(dir);
    let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let job = begin(faulty.clone(), dir, Publish::Staged);
    for op in operations() {
        InJob(&job).run(&op).unwrap();
    }
    job.shared.drain(&mut |_| {}).unwrap();
    faulty.hook().arm(Plan::stop_at_change(n));
    let _ = job.commit(&mut |_| {});
    if faulty.hook().fired() == 0 {
        return None;
    }
    drop(job);
    if !interfere(dir) {
        return Some(None);
    }
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    Some(Some(recovered(dir, &real).unwrap_or_else(|error| {
        panic!("stop at change {n}: {error}");
    })))
}

/// What is made in a directory that the job removes, and what is appended to a file that it appends to, is there after the recovery.
#[test]
fn a_recovery_deletes_nothing_that_was_made_since() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let dir = temp.path().join("died");
    let by_hand = |path: &Path| -> bool {
        let open = std::fs::OpenOptions::new().append(true).create(true).open(path);
        open.is_ok_and(|mut file| std::io::Write::write_all(&mut file, b"made by hand").is_ok())
    };
    for name in ["gone/thesis", "gone/deep/thesis", "keep/log"] {
        let (mut kept, mut finished) = (0, 0);
        for n in 1.. {
            let Some(action) = recovered_after(&dir, n, |dir| by_hand(&dir.join(name))) else {
                break;
            };
            let Some(action) = action else {
                std::fs::remove_dir_all(&dir).unwrap();
                continue;
            };
            kept += u64::from(action == RecoverAction::Kept);
            finished += u64::from(action == RecoverAction::Finished);
            assert!(
                holds(&dir, "made by hand"),
                "stop at change {n}, {action:?}: {name} is lost"
            );
            std::fs::remove_dir_all(&dir).unwrap();
        }
        assert!(kept > 1, "{name}: {kept} {finished}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Somebody removes what the job had published, so that the recovery cannot finish: it does not stop half-way either.
#[test]
fn a_recovery_that_finds_results_taken_away_leaves_no_mixture() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let (dir, untouched) = (temp.path().join("died"), temp.path().join("untouched"));
    std::fs::create_dir(&untouched).unwrap();
    old_tree(&untouched);
    let before = seen_by_jobs(&untouched);
    let (mut old, mut new) = (0, 0);
    let mut after = None;
    for n in 1.. {
        let taken_away = |dir: &Path| std::fs::remove_file(dir.join("keep/fresh")).is_ok();
        let Some(action) = recovered_after(&dir, n, taken_away) else {
            let mut whole = seen_by_jobs(&dir);
            whole.remove(Path::new("keep/fresh"));
            assert_eq!(after.get_or_insert(whole.clone()), &whole);
            break;
        };
        if action.is_some() {
            let found = seen_by_jobs(&dir);
            if found == before {
                old += 1;
            } else {
                new += 1;
                assert_eq!(
                    after.get_or_insert(found.clone()),
                    &found,
                    "stop at change {n}: {action:?}"
                );
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(old > 3 && new > 3, "{old} {new}");
}

/// A directory that cannot be renamed (a lower layer of overlayfs) is removed in the end, whenever the job died, and not with what somebody
/// has made in it meanwhile.
#[test]
fn a_directory_that_cannot_be_renamed_is_removed_by_the_recovery_of_its_job() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let dir = temp.path().join("died");
    let immovable = || {
        let plan = Plan::fail(Errno::XDEV).on(Operation::Rename).times(u64::MAX);
        plan.when(|call| call.name.is_some_and(|name| name == "gone") && call.path().is_dir())
    };
    for adds in [false, true] {
        let (mut removed, mut left) = (0, 0);
        for n in 1.. {
            std::fs::create_dir(&dir).unwrap();
            old_tree(&dir);
            let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([immovable()])));
            let job = begin(faulty.clone(), &dir, Publish::Staged);
            for op in operations() {
                InJob(&job).run(&op).unwrap();
            }
            job.shared.drain(&mut |_| {}).unwrap();
            let refused = faulty.hook().fired();
            faulty.hook().arm(Plan::stop_at_change(n));
            let ended = job.commit(&mut |_| {});
            drop(job);
            let is_made =
                adds && dir.join("gone").is_dir() && std::fs::write(dir.join("gone/thesis"), "by hand").is_ok();
            let storage: Arc<dyn Storage> =
                Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([immovable()])));
            let action = recovered(&dir, &storage);
            match dir.join("gone").exists() {
                true => left += 1,
                false => removed += 1,
            }
            let is_old = dir.join("moves").exists();
            let whole = is_old == dir.join("gone/x").exists() && is_old != dir.join("new/moved").exists();
            assert!(whole || is_made, "stop at change {n}: {action:?}");
            assert!(!is_made || holds(&dir, "by hand"), "stop at change {n}: {action:?}");
            std::fs::remove_dir_all(&dir).unwrap();
            if matches!(ended, Ok(Outcome::Committed)) {
                assert!(faulty.hook().fired() > refused, "nothing was refused");
                break;
            }
        }
        assert!(removed > 3 && left > 3, "{removed} {left}");
    }
}

/// Some file below the directory has this in it.
fn holds(dir: &Path, content: &str) -> bool {
    std::fs::read_dir(dir).unwrap().map(Result::unwrap).any(|entry| {
        let path = entry.path();
        match path.is_dir() && !path.is_symlink() {
            true => holds(&path, content),
            false => std::fs::read_to_string(path).is_ok_and(|found| found.contains(content)),
        }
    })
}

/// What two jobs do that are begun on the same tree and committed at the same moment, and what each order of them leaves.
fn pairs() -> Vec<[Vec<Op>; 2]> {
    let s = str::to_owned;
    let append = |byte: u8| vec![Op::Write(s("keep/log"), 7, vec![byte; 3])];
    let rewrite = |byte: u8| {
        vec![
            Op::Truncate(s("keep/log"), 0),
            Op::Write(s("keep/log"), 0, vec![byte; 9]),
        ]
    };
    let replace = |byte: u8| {
        vec![
            Op::Create(s("keep/tmp")),
            Op::Write(s("keep/tmp"), 0, vec![byte; 5]),
            Op::Rename(s("keep/tmp"), s("keep/replaced"), elbow_file::RenameMode::Replace),
        ]
    };
    let remove = vec![
        Op::Unlink(s("gone/deep/y")),
        Op::Rmdir(s("gone/deep")),
        Op::Unlink(s("gone/x")),
        Op::Unlink(s("gone/saved")),
        Op::Rmdir(s("gone")),
    ];
    let same_name = |byte: u8| vec![Op::Create(s("new")), Op::Write(s("new"), 0, vec![byte; 4])];
    vec![
        [append(b'1'), append(b'2')],
        [rewrite(b'1'), rewrite(b'2')],
        [append(b'1'), rewrite(b'2')],
        [replace(b'1'), replace(b'2')],
        [same_name(b'1'), same_name(b'2')],
        [vec![Op::Mkdir(s("new"))], vec![Op::Mkdir(s("new"))]],
        [remove.clone(), vec![Op::Create(s("gone/new"))]],
        [remove, vec![Op::Write(s("gone/x"), 0, b"written".to_vec())]],
        [vec![Op::Chmod(s("one"), 0o600)], vec![Op::Unlink(s("one"))]],
        [
            vec![Op::Create(s("mine"))],
            vec![Op::Create(s("yours")), Op::Unlink(s("dead"))],
        ],
    ]
}

fn after(place: &Path, name: &str, jobs: &[&Vec<Op>]) -> std::collections::BTreeMap<std::path::PathBuf, String> {
    let dir = place.join(name);
    std::fs::create_dir(&dir).unwrap();
    old_tree(&dir);
    for job in jobs {
        let job = drained(&dir, job);
        assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    }
    let tree = seen_by_jobs(&dir);
    std::fs::remove_dir_all(&dir).unwrap();
    tree
}

/// Both said that they were committed, and one of the two was lost: the check came before the sync, and the change after it.
#[test]
fn of_two_jobs_at_once_none_is_lost_in_silence() {
    commit_all_at_once(&|| Arc::new(RealStorage));
}

/// Versions of the same size and second: who has seen any of them but the last has not seen the last. By size and time alone two of three
/// jobs were lost.
#[test]
fn of_versions_of_one_second_each_is_another() {
    let s = str::to_owned;
    type Change = fn(&str) -> Vec<Op>;
    let ways: [(&str, &str, Change); 4] = [
        ("top", "overwritten", |version| {
            vec![Op::Write("top".into(), 0, version.into())]
        }),
        ("top", "replaced", |version| {
            let written = Op::Write("draft".into(), 0, version.into());
            vec![
                Op::Create("draft".into()),
                written,
                Op::Rename("draft".into(), "top".into(), RenameMode::Replace),
            ]
        }),
        ("top", "removed and made again", |version| {
            let written = Op::Write("top".into(), 0, version.into());
            vec![Op::Unlink("top".into()), Op::Create("top".into()), written]
        }),
        ("sub/top", "removed with its directory", |version| {
            let written = Op::Write("sub/top".into(), 0, version.into());
            vec![
                Op::Unlink("sub/top".into()),
                Op::Rmdir("sub".into()),
                Op::Mkdir("sub".into()),
                Op::Create("sub/top".into()),
                written,
            ]
        }),
    ];
    for (name, what, change) in ways {
        let temp = scratch();
        let storage: Arc<dyn Storage> = Arc::new(Interposed::new(Arc::new(RealStorage), WholeSeconds));
        let begin = || begin(storage.clone(), temp.path(), Publish::Staged);
        let run = |job: &Job, ops: &[Op]| ops.iter().for_each(|op| drop(InJob(job).run(op).unwrap()));
        std::fs::create_dir(temp.path().join("sub")).unwrap();
        for old in ["top", "sub/top"] {
            std::fs::write(temp.path().join(old), "0").unwrap();
        }
        let first = begin();
        run(&first, &[Op::Read(s(name))]);
        let mut seen = vec![first];
        for version in ["1", "2", "3"] {
            let next = begin();
            run(&next, &[Op::Read(s(name))]);
            run(&next, &change(version));
            let outcome = next.commit(&mut |_| {}).unwrap();
            assert!(
                matches!(outcome, Outcome::Committed),
                "{what} by {version}: {outcome:?}"
            );
            let reader = begin();
            run(&reader, &[Op::Read(s(name))]);
            seen.push(reader);
        }
        let last = seen.pop().expect("who has seen the last version");
        for (version, late) in seen.into_iter().enumerate() {
            run(&late, &[Op::Write(s(name), 0, b"9".into())]);
            let outcome = late.commit(&mut |_| {}).unwrap();
            let is_conflict = matches!(&outcome, Outcome::RolledBack(Cause::Conflict(paths)) if paths.len() == 1);
            assert!(is_conflict, "{what}, version {version}: {outcome:?}");
        }
        run(&last, &[Op::Write(s(name), 0, b"9".into())]);
        let outcome = last.commit(&mut |_| {}).unwrap();
        assert!(matches!(outcome, Outcome::Committed), "{what}: {outcome:?}");
    }
}

/// The same on two machines: what one has removed is stale for the other.
#[test]
fn of_two_jobs_on_two_machines_at_once_none_is_lost_in_silence() {
    let machines = Mutex::new(Vec::new());
    commit_all_at_once(&|| {
        let machine = Arc::new(Interposed::new(Arc::new(RealStorage), StaleHandles::default()));
        machines.lock().push(machine.clone());
        machine
    });
    let answered: u64 = machines.lock().iter().map(|machine| machine.hook().answered()).sum();
    assert!(answered > 0, "nothing was stale");
}

/// Makes the storage of a job.
type MakeStorage<'a> = dyn Fn() -> Arc<dyn Storage> + Sync + 'a;

fn commit_all_at_once(storage: &MakeStorage<'_>) {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let (place, rounds) = (temp.path(), elbow_testkit::cases::rounds(30));
    // Nearly all of their time is delay.
    let counts = std::thread::scope(|scope| {
        let ends: Vec<_> = (0..pairs().len())
            .map(|number| scope.spawn(move || commit_at_once(place, number, rounds, storage)))
            .collect();
        ends.into_iter().map(|end| end.join().unwrap()).collect::<Vec<_>>()
    });
    let (both, one) = counts
        .iter()
        .fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    assert!(both >= rounds && one > rounds, "{both} {one}");
}

/// Commits the jobs of a pair at the same moment, so many times; how many times both were committed, and how many times one at most.
fn commit_at_once(place: &Path, number: usize, rounds: u64, storage: &MakeStorage<'_>) -> (u64, u64) {
    let (mut both, mut one) = (0, 0);
    let pair = &pairs()[number];
    let place = &place.join(number.to_string());
    std::fs::create_dir(place).unwrap();
    let only = [0, 1].map(|which| after(place, "only", &[&pair[which]]));
    let neither = after(place, "neither", &[]);
    for round in 0..rounds {
        let dir = place.join(format!("pair{number}-{round}"));
        std::fs::create_dir(&dir).unwrap();
        old_tree(&dir);
        let jobs = [0, 1].map(|which| {
            // Calls take as long as on slow storage, each round another time.
            let slow = Delaying::new(Duration::from_millis((round * 3 + which * 2) % 7), 8);
            let job = begin(Arc::new(Interposed::new(storage(), slow)), &dir, Publish::Staged);
            for op in &pair[which as usize] {
                InJob(&job).run(op).unwrap();
            }
            job
        });
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let ends = jobs
                .each_ref()
                .map(|job| scope.spawn(|| job.commit(&mut |_| {}).unwrap()));
            ends.map(|end| end.join().unwrap()).into()
        });
        let committed: Vec<bool> = outcomes
            .iter()
            .map(|outcome| matches!(outcome, Outcome::Committed))
            .collect();
        let found = seen_by_jobs(&dir);
        let what = format!("pair {number}, round {round}: {outcomes:?}, {found:#?}");
        match committed[..] {
            [true, true] => {
                both += 1;
                let names = |tree: &std::collections::BTreeMap<_, _>| tree.keys().cloned().collect::<Vec<_>>();
                // Only what does not meet can be done by both from the same beginning.
                let meets = number + 1 < pairs().len();
                assert!(!meets, "{what}");
                assert!(
                    names(&only[0])
                        .iter()
                        .filter(|name| !neither.contains_key(*name))
                        .all(|name| found.contains_key(name))
                );
            }
            [first, second] => {
                one += 1;
                assert!(first || second || conflicts(&outcomes), "{what}");
                let expected = if first {
                    &only[0]
                } else if second {
                    &only[1]
                } else {
                    &neither
                };
                assert_eq!(&found, expected, "{what}");
                assert!(
                    outcomes
                        .iter()
                        .all(|outcome| matches!(outcome, Outcome::Committed | Outcome::RolledBack(_))),
                    "{what}"
                );
            }
            _ => unreachable!("two jobs"),
        }
        assert!(!has_staging(&dir), "{what}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
    (both, one)
}

fn conflicts(outcomes: &[Outcome]) -> bool {
    let is_conflict =
        |outcome: &Outcome| matches!(outcome, Outcome::RolledBack(Cause::Conflict(_) | Cause::OtherJobs(_)));
    outcomes.iter().all(is_conflict)
}

/// Who asks to win conflicts does, also over what came at the last moment.
#[test]
fn who_is_to_win_wins() {
    let s = str::to_owned;
    let temp = scratch();
    old_tree(temp.path());
    let root = RealStorage::open_root(temp.path()).unwrap();
    let options = crate::Options {
        on_conflict: OnConflict::Overwrite,
        ..crate::Options::default()
    };
    let job = Job::begin(Arc::new(RealStorage), root, temp.path(), options).unwrap();
    for op in [
        Op::Create(s("fresh")),
        Op::Write(s("fresh"), 0, b"of the job".to_vec()),
        Op::Write(s("two"), 0, b"of the job".to_vec()),
        Op::Unlink(s("dead")),
        Op::Create(s("keep/tmp")),
        Op::Write(s("keep/tmp"), 0, b"of the job".to_vec()),
        Op::Rename(s("keep/tmp"), s("keep/replaced"), elbow_file::RenameMode::Replace),
        Op::Unlink(s("gone/deep/y")),
        Op::Rmdir(s("gone/deep")),
    ] {
        InJob(&job).run(&op).unwrap();
    }
    std::fs::write(temp.path().join("gone/deep/added"), "of somebody else").unwrap();
    for name in ["fresh", "two", "dead", "keep/replaced"] {
        std::fs::write(temp.path().join(name), "of somebody else, and longer").unwrap();
    }
    let outcome = job.commit(&mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    for name in ["fresh", "keep/replaced"] {
        assert_eq!(std::fs::read(temp.path().join(name)).unwrap(), b"of the job", "{name}");
    }
    assert!(
        std::fs::read(temp.path().join("two"))
            .unwrap()
            .starts_with(b"of the job")
    );
    assert!(!temp.path().join("dead").exists() && !temp.path().join("gone/deep").exists());
    assert!(!has_staging(temp.path()));
}
