//! Ranks that a launcher starts without the library.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::implementations::{self, Mpi};
use crate::service::Service;
use crate::testbed::{Run, Testbed, library};

/// Starts its words without the library where the rank is one of `DROP`, as a launcher does that loses the environment of some.
const LAUNCHER: &str = "\
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}
for dropped in $DROP; do
    [ $dropped != \"$rank\" ] || unset LD_PRELOAD
done";

/// How many seconds a sign is waited for that does not come; where all come, nothing shortens it. On a busy machine others give theirs late: long enough
/// for them, and less where only who is silent is looked for.
const PATIENCE: &str = "ELBOW_MPI_PATIENCE";
const BESIDE_OTHERS: &str = "10";
const ALONE: &str = "2";

fn launcher(testbed: &Testbed) -> PathBuf {
    script(testbed, "launcher", LAUNCHER)
}

/// A script that does something, and then becomes its words.
fn script(testbed: &Testbed, name: &str, does: &str) -> PathBuf {
    let path = testbed.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{does}\nexec \"$@\"\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn words<'a>(launcher: &'a Path, program: &'a Path, file: &'a Path) -> [&'a std::ffi::OsStr; 3] {
    [launcher.as_os_str(), program.as_os_str(), file.as_os_str()]
}

/// 11 of 100 rounds were torn, and the exit code was 0. The last rank of the program has a file handle of its own: those of the others' communicator
/// would not notice that it is not one of them.
#[test]
fn ranks_without_the_library_are_named_and_end_the_program() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    let (launcher, file) = (launcher(&testbed), testbed.data());
    for mpi in implementations::installed() {
        let program = mpi.compile("c/overlap.c", testbed.path());
        for (dropped, named, seconds) in [
            ("DROP=2", "rank 2 ", BESIDE_OTHERS),
            ("DROP=0", "rank 0 ", ALONE), // The others look for this one alone.
            ("DROP=1 3", "ranks 1, 3 ", BESIDE_OTHERS),
        ] {
            let _ = std::fs::remove_file(&file);
            let output = start(
                &testbed,
                &mpi,
                &service,
                Some((PATIENCE, seconds)),
                dropped,
                &words(&launcher, &program, &file),
                &["write_at", "2"],
            );
            let is_named = output
                .printed
                .contains(&format!("of the 4 ranks of this program, {named}gave no sign"));
            assert!(
                is_named && !output.succeeded,
                "{} {dropped}: {}",
                mpi.name,
                output.printed
            );
            assert!(
                output.torn().is_empty() && !file.exists(),
                "{} {dropped}: {}",
                mpi.name,
                output.printed
            );
        }
        let output = start(
            &testbed,
            &mpi,
            &service,
            None,
            "DROP=",
            &words(&launcher, &program, &file),
            &["write_at", "2"],
        );
        assert!(
            output.succeeded && output.torn().len() == 1,
            "{}: {}",
            mpi.name,
            output.printed
        );
    }
}

fn start(
    testbed: &Testbed,
    mpi: &Mpi,
    service: &Service,
    variable: Option<(&str, &str)>,
    dropped: &str,
    words: &[&std::ffi::OsStr],
    more: &[&str],
) -> crate::testbed::Output {
    let how = Run {
        ranks: 4,
        service: Some(&service.url),
        variable,
        ..Run::default()
    };
    let dropped = std::ffi::OsString::from(dropped);
    let words: Vec<&std::ffi::OsStr> = ["env".as_ref(), dropped.as_os_str()]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    testbed.start(mpi, how, &words, more)
}

/// With `ELBOW_MPI_UNCOVERED=ignore` nobody looks, and nothing is sent to ranks that would not take it.
#[test]
fn ranks_without_the_library_are_let_go_on_if_that_is_wanted() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    let launcher = launcher(&testbed);
    for mpi in implementations::installed() {
        let program = mpi.compile("c/overlap.c", testbed.path());
        let file = testbed.data();
        let how = Run {
            ranks: 4,
            service: Some(&service.url),
            variable: Some(("ELBOW_MPI_UNCOVERED", "ignore")),
            ..Run::default()
        };
        // The last rank opens the file alone.
        let words = [
            "env".as_ref(),
            "DROP=3".as_ref(),
            launcher.as_os_str(),
            program.as_os_str(),
            file.as_os_str(),
        ];
        let output = testbed.start(&mpi, how, &words, &["write_at", "2"]);
        assert!(
            output.succeeded && output.torn().len() == 1,
            "{}: {}",
            mpi.name,
            output.printed
        );
    }
}

/// What was started later writes the same file, and is in no communicator that the first processes could have looked at.
#[test]
fn processes_that_a_program_starts_without_the_library_end_it() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    let bare = script(&testbed, "bare", "unset LD_PRELOAD");
    // Open MPI starts them in the environment of its daemon.
    let with_library = format!(
        "export LD_PRELOAD={} ELBOW_LOCKS={}\nexport OMPI_MCA_fbtl_posix_write_datasieving=false",
        library().display(),
        service.url
    );
    let covered = script(&testbed, "covered", &with_library);
    let in_vain = script(
        &testbed,
        "in-vain",
        &format!("export {PATIENCE}={ALONE}\n{with_library}"),
    );
    for mpi in implementations::installed() {
        let program = mpi.compile("c/spawn.c", testbed.path());
        let run = |how, script: &Path| {
            testbed.run(
                &mpi,
                how,
                &program,
                &[script, &program].map(|path| path.to_str().unwrap()),
            )
        };
        let without = Run {
            ranks: 2,
            ..Run::default()
        };
        if !run(without, &bare).succeeded {
            assert_eq!(mpi.name, "mpich 4", "it starts processes elsewhere");
            println!("SKIPPED: {} starts no processes from within a program here", mpi.name);
            continue;
        }
        let how = Run {
            service: Some(&service.url),
            ..without
        };
        let output = run(how, &covered);
        assert!(
            output.succeeded && output.printed.contains("all wrote"),
            "{}: {}",
            mpi.name,
            output.printed
        );
        let impatient = Run {
            variable: Some((PATIENCE, BESIDE_OTHERS)), // Of each other, at first.
            ..how
        };
        let output = run(impatient, &bare);
        let is_named = output
            .printed
            .contains("that were started by MPI_Comm_spawn gave no sign");
        assert!(is_named && !output.succeeded, "{}: {}", mpi.name, output.printed);
        assert!(
            !output.printed.contains("all wrote"),
            "{}: {}",
            mpi.name,
            output.printed
        );
        // The other way round: the processes that were started look for those that started them.
        let output = run(without, &in_vain);
        let is_named = output.printed.contains("that started this program gave no sign");
        assert!(is_named && !output.succeeded, "{}: {}", mpi.name, output.printed);
    }
}

/// Neither has been in one `MPI_Init` with the other, or in any.
#[test]
fn processes_that_meet_later_look_for_each_other() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        let program = mpi.compile("c/meet.c", testbed.path());
        for (way, named) in [
            ("connect", "at the other end of the connection gave no sign"),
            ("session", "rank 1 gave no sign"),
        ] {
            let without = Run {
                ranks: 2,
                ..Run::default()
            };
            if !testbed.run(&mpi, without, &program, &[way]).printed.contains("all met") {
                println!("SKIPPED: {} does not {way} here", mpi.name);
                continue;
            }
            let how = Run {
                service: Some(&service.url),
                ..without
            };
            let output = testbed.run(&mpi, how, &program, &[way]);
            assert!(
                output.succeeded && output.printed.contains("all met"),
                "{} {way}: {}",
                mpi.name,
                output.printed
            );
            let output = testbed.run(&mpi, how, &program, &[way, "silent"]);
            let is_named = output.printed.contains(named) && !output.printed.contains("all met");
            assert!(is_named && !output.succeeded, "{} {way}: {}", mpi.name, output.printed);
        }
    }
}
