//! Ranks that a launcher starts without the library.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::bed::{Bed, Run, library};
use crate::implementations::{self, Mpi};
use crate::service::Service;

/// Starts its words without the library where the rank is one of `DROP`, as a launcher does that loses the environment of some.
const LAUNCHER: &str = "\
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}
for dropped in $DROP; do
    [ $dropped != \"$rank\" ] || unset LD_PRELOAD
done";

fn launcher(bed: &Bed) -> PathBuf {
    script(bed, "launcher", LAUNCHER)
}

/// A script that does something, and then becomes its words.
fn script(bed: &Bed, name: &str, does: &str) -> PathBuf {
    let path = bed.path().join(name);
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
    let bed = Bed::new();
    let service = Service::start(bed.path());
    let (launcher, file) = (launcher(&bed), bed.path().join("data"));
    for mpi in implementations::installed() {
        let program = mpi.compile("c/overlap.c", bed.path());
        for (dropped, named) in [
            ("DROP=2", "rank 2 "),
            ("DROP=0", "rank 0 "),
            ("DROP=1 3", "ranks 1, 3 "),
        ] {
            let _ = std::fs::remove_file(&file);
            let ran = start(
                &bed,
                &mpi,
                &service,
                dropped,
                &words(&launcher, &program, &file),
                &["write_at", "2"],
            );
            let is_named = ran
                .printed
                .contains(&format!("of the 4 ranks of this program, {named}gave no sign"));
            assert!(is_named && !ran.succeeded, "{} {dropped}: {}", mpi.name, ran.printed);
            assert!(
                ran.torn().is_empty() && !file.exists(),
                "{} {dropped}: {}",
                mpi.name,
                ran.printed
            );
        }
        let ran = start(
            &bed,
            &mpi,
            &service,
            "DROP=",
            &words(&launcher, &program, &file),
            &["write_at", "2"],
        );
        assert!(ran.succeeded && ran.torn().len() == 1, "{}: {}", mpi.name, ran.printed);
    }
}

fn start(
    bed: &Bed,
    mpi: &Mpi,
    service: &Service,
    dropped: &str,
    words: &[&std::ffi::OsStr],
    more: &[&str],
) -> crate::bed::Ran {
    let how = Run {
        ranks: 4,
        service: Some(&service.url),
        variable: Some(("ELBOW_MPI_PATIENCE", "2")),
        ..Run::default()
    };
    let dropped = std::ffi::OsString::from(dropped);
    let words: Vec<&std::ffi::OsStr> = ["env".as_ref(), dropped.as_os_str()]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    bed.start(mpi, how, &words, more)
}

/// With `ELBOW_MPI_UNCOVERED=ignore` nobody looks, and nothing is sent to ranks that would not take it.
#[test]
fn ranks_without_the_library_are_let_go_on_if_that_is_wanted() {
    let bed = Bed::new();
    let service = Service::start(bed.path());
    let launcher = launcher(&bed);
    for mpi in implementations::installed() {
        let program = mpi.compile("c/overlap.c", bed.path());
        let file = bed.path().join("data");
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
        let ran = bed.start(&mpi, how, &words, &["write_at", "2"]);
        assert!(ran.succeeded && ran.torn().len() == 1, "{}: {}", mpi.name, ran.printed);
    }
}

/// What was started later writes the same file, and is in no communicator that the first processes could have looked at.
#[test]
fn processes_that_a_program_starts_without_the_library_end_it() {
    let bed = Bed::new();
    let service = Service::start(bed.path());
    let bare = script(&bed, "bare", "unset LD_PRELOAD");
    // Open MPI starts them in the environment of its daemon.
    let covered = format!(
        "export ELBOW_MPI_PATIENCE=5 LD_PRELOAD={} ELBOW_LOCKS={}\nexport OMPI_MCA_fbtl_posix_write_datasieving=false",
        library().display(),
        service.url
    );
    let covered = script(&bed, "covered", &covered);
    for mpi in implementations::installed() {
        let program = mpi.compile("c/spawn.c", bed.path());
        let run = |how, script: &Path| {
            bed.run(
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
            variable: Some(("ELBOW_MPI_PATIENCE", "5")),
            ..without
        };
        let ran = run(how, &covered);
        assert!(
            ran.succeeded && ran.printed.contains("all wrote"),
            "{}: {}",
            mpi.name,
            ran.printed
        );
        let ran = run(how, &bare);
        let is_named = ran.printed.contains("that were started by MPI_Comm_spawn gave no sign");
        assert!(is_named && !ran.succeeded, "{}: {}", mpi.name, ran.printed);
        assert!(!ran.printed.contains("all wrote"), "{}: {}", mpi.name, ran.printed);
        // The other way round: the processes that were started look for those that started them.
        let ran = run(
            Run {
                variable: None,
                ..without
            },
            &covered,
        );
        let is_named = ran.printed.contains("that started this program gave no sign");
        assert!(is_named && !ran.succeeded, "{}: {}", mpi.name, ran.printed);
    }
}

/// Neither has been in one `MPI_Init` with the other, or in any.
#[test]
fn processes_that_meet_later_look_for_each_other() {
    let bed = Bed::new();
    let service = Service::start(bed.path());
    for mpi in implementations::installed() {
        let program = mpi.compile("c/meet.c", bed.path());
        for (way, named) in [
            ("connect", "at the other end of the connection gave no sign"),
            ("session", "rank 1 gave no sign"),
        ] {
            let without = Run {
                ranks: 2,
                ..Run::default()
            };
            if !bed.run(&mpi, without, &program, &[way]).printed.contains("all met") {
                println!("SKIPPED: {} does not {way} here", mpi.name);
                continue;
            }
            let how = Run {
                service: Some(&service.url),
                variable: Some(("ELBOW_MPI_PATIENCE", "2")),
                ..without
            };
            let ran = bed.run(&mpi, how, &program, &[way]);
            assert!(
                ran.succeeded && ran.printed.contains("all met"),
                "{} {way}: {}",
                mpi.name,
                ran.printed
            );
            let ran = bed.run(&mpi, how, &program, &[way, "silent"]);
            let is_named = ran.printed.contains(named) && !ran.printed.contains("all met");
            assert!(is_named && !ran.succeeded, "{} {way}: {}", mpi.name, ran.printed);
        }
    }
}
