//! Real MPI programs on every MPI of this machine: torn without the library, whole with it.
//!
//! `MPI=mpich` runs only those whose name begins so; `ROUNDS=n` and `SEED=n` are for the random tests.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "this is what a program's build does"
)]

mod implementations;
mod ranks;
mod service;
mod sieving;
mod testbed;

use std::path::Path;

use elbow_testkit::cases::{rounds, seed};
use implementations::Mpi;
use service::Service;
use testbed::{Output, Run, Testbed};

/// Rounds of each method, and random datatypes, in the gate.
const ROUNDS: u64 = 3;
const TYPES: u64 = 300;
/// A slow storage, which tears what can tear.
const SLOW: Run<'_> = Run {
    ranks: 5,
    service: None,
    without_service: false,
    write_delay_us: 200,
    no_locks: false,
    variable: None,
};

#[test]
fn what_is_locked_is_what_mpi_writes() {
    let testbed = Testbed::new();
    let seed = seed().to_string();
    for mpi in implementations::installed() {
        let program = mpi.compile("c/types.c", testbed.path());
        let how = Run {
            ranks: 1,
            without_service: true,
            ..Run::default()
        };
        let output = run_types(&testbed, &mpi, how, &program, &seed);
        let agree = output
            .printed
            .lines()
            .find(|line| line.contains("cases agree"))
            .unwrap_or_else(|| panic!("{}: {}", mpi.name, output.printed));
        println!("{}: {agree}", mpi.name);
        // ROMIO of MPICH 4.0 places some types elsewhere than MPI says; they are refused.
        let refused: u64 = agree
            .split(", ")
            .nth(1)
            .and_then(|part| part.split(' ').next())
            .unwrap()
            .parse()
            .unwrap();
        assert!(
            refused == 0 || mpi.name == "mpich 4",
            "{}: {}",
            mpi.name,
            output.printed
        );
    }
}

/// Runs all cases but those at which the MPI library ends the program itself: an assertion in how MPICH 5.0 takes a file type to pieces, about
/// one in ten thousand types.
fn run_types(testbed: &Testbed, mpi: &Mpi, how: Run<'_>, program: &Path, seed: &str) -> Output {
    let mut arguments = vec![rounds(TYPES).to_string(), seed.to_owned()];
    loop {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = testbed.run(mpi, how, program, &words);
        let is_its_own = output.printed.contains("romio/adio/common/flatten.c") && output.printed.contains("Assertion");
        let mut lines = output.printed.lines();
        let case = lines.find_map(|line| line.strip_prefix("aborted in case "));
        let Some(case) = case.filter(|_| is_its_own && mpi.name.starts_with("mpich 5")) else {
            return output;
        };
        println!("{}: its own assertion ends case {case}", mpi.name);
        arguments.push(case.to_owned());
        assert!(arguments.len() < 2 + 4, "{}: {}", mpi.name, output.printed);
    }
}

#[test]
fn every_access_is_whole_with_the_library() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    let seed = seed().to_string();
    for mpi in implementations::installed() {
        let program = mpi.compile("c/overlap.c", testbed.path());
        let how = Run {
            service: Some(&service.url),
            ..SLOW
        };
        let output = testbed.run(&mpi, how, &program, &["all", &rounds(ROUNDS).to_string(), &seed]);
        assert!(output.succeeded, "{}: {}", mpi.name, output.printed);
        assert_eq!(output.torn().len(), 14, "{}: {}", mpi.name, output.printed);
        for line in output.torn() {
            assert!(
                line.contains("torn 0 of") && line.ends_with("gaps lost in 0"),
                "{}: {line}",
                mpi.name
            );
        }
    }
}

/// Without locks in the file system, which ROMIO's own atomic mode needs; its shared file pointer needs them still.
#[test]
fn every_access_is_whole_where_there_are_no_locks() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        let program = mpi.compile("c/overlap.c", testbed.path());
        for method in ["write_at", "iwrite_at_all"] {
            let how = Run {
                service: Some(&service.url),
                no_locks: true,
                ..SLOW
            };
            let output = testbed.run(&mpi, how, &program, &[method, "2"]);
            assert!(
                output.succeeded && output.torn().iter().all(|line| line.contains("torn 0 of")),
                "{}: {}",
                mpi.name,
                output.printed
            );
        }
    }
}

/// The test above can fail: each library's own atomic mode tears, loses bytes in gaps, or ends the program.
#[test]
fn the_libraries_own_atomic_mode_fails_where_there_are_no_locks() {
    let testbed = Testbed::new();
    for mpi in implementations::installed()
        .into_iter()
        .filter(|mpi| mpi.abi != "standard")
    {
        let program = mpi.compile("c/overlap.c", testbed.path());
        for method in [
            "write_at",
            "write_at_all",
            "iwrite_at",
            "iwrite_at_all",
            "write_ordered",
        ] {
            let output = testbed.run(
                &mpi,
                Run { no_locks: true, ..SLOW },
                &program,
                &[method, "300", "1", "until-torn"],
            );
            let whole = output.succeeded
                && output
                    .torn()
                    .iter()
                    .all(|line| line.contains("torn 0 of") && line.ends_with("gaps lost in 0"));
            println!(
                "{} {method}: {}",
                mpi.name,
                output.torn().first().unwrap_or(&"the program was ended")
            );
            assert!(
                !whole,
                "{} {method} is whole without the library: {}",
                mpi.name, output.printed
            );
        }
    }
}

#[test]
fn fortran_programs_are_whole_too() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    for mpi in implementations::installed()
        .into_iter()
        .filter(|mpi| mpi.fortran.is_some())
    {
        for source in ["fortran/overlap.f90", "fortran/overlap_mpi.f90"] {
            let program = mpi.compile(source, testbed.path());
            let without = testbed.run(&mpi, Run { no_locks: true, ..SLOW }, &program, &["8"]);
            assert!(
                !without.succeeded || without.torn() != ["torn 0 of 8 rounds"],
                "{} {source} without: {}",
                mpi.name,
                without.printed
            );
            let how = Run {
                service: Some(&service.url),
                no_locks: true,
                ..SLOW
            };
            let with = testbed.run(&mpi, how, &program, &["8"]);
            assert_eq!(
                with.torn(),
                ["torn 0 of 8 rounds"],
                "{} {source}: {}",
                mpi.name,
                with.printed
            );
        }
    }
}

/// Runs a Python program without the library, where it must tear or end, and with it.
fn python_program_is_whole(mpi: &implementations::Mpi, python: &Path, source: &str, without_locks: Option<bool>) {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(source);
    let file = testbed.data();
    let program = [python.as_os_str(), script.as_os_str(), file.as_os_str()];
    if let Some(no_locks) = without_locks {
        let without = testbed.start(
            mpi,
            Run {
                ranks: 4,
                no_locks,
                ..SLOW
            },
            &program,
            &["8"],
        );
        assert!(
            without.torn() != ["torn 0 of 8 rounds"],
            "{} {source} without: {}",
            mpi.name,
            without.printed
        );
        let is_broken = [
            "TypeError",
            "NameError",
            "SyntaxError",
            "ImportError",
            "ModuleNotFoundError",
        ];
        assert!(
            !is_broken.iter().any(|error| without.printed.contains(error)),
            "{source}: {}",
            without.printed
        );
    }
    let how = Run {
        ranks: 4,
        service: Some(&service.url),
        ..SLOW
    };
    let with = testbed.start(mpi, how, &program, &["8"]);
    assert_eq!(
        with.torn(),
        ["torn 0 of 8 rounds"],
        "{} {source}: {}",
        mpi.name,
        with.printed
    );
}

#[test]
fn python_programs_are_whole_too() {
    for mpi in implementations::installed() {
        let python = mpi.compiler.with_file_name("python");
        if python.exists() && mpi.abi != "standard" {
            python_program_is_whole(&mpi, &python, "overlap.py", Some(true));
        }
    }
}

#[test]
fn collective_writes_of_parallel_hdf5_are_whole() {
    hdf5_is_whole("collective_h5.py");
}

/// Each was many accesses, and so only its rows were whole: 6 of 20 rounds were torn with the library, 8 and 12 without it.
#[test]
fn independent_transfers_of_parallel_hdf5_are_whole() {
    hdf5_is_whole("independent_h5.py");
}

fn hdf5_is_whole(source: &str) {
    let python = Path::new("/usr/bin/python3");
    let has_h5py = std::process::Command::new(python)
        .args(["-c", "import mpi4py, h5py._debian_h5py_mpi, h5py; h5py.File"])
        .output();
    if !has_h5py.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "not installed: python3-h5py-mpi; scripts/setup.sh test installs it"
        );
        println!("SKIPPED: Debian's python3-h5py-mpi is not installed");
        return;
    }
    for mpi in implementations::installed()
        .into_iter()
        .filter(|mpi| mpi.name == "open mpi 4")
    {
        python_program_is_whole(&mpi, python, source, Some(false));
    }
}

#[test]
fn what_cannot_be_locked_is_refused() {
    let testbed = Testbed::new();
    for mpi in implementations::installed() {
        let program = mpi.compile("c/refusals.c", testbed.path());
        let how = Run {
            ranks: 3,
            without_service: true,
            ..Run::default()
        };
        let output = testbed.run(&mpi, how, &program, &["without-service"]);
        assert!(
            output.printed.contains("refused as it should be"),
            "{}: {}",
            mpi.name,
            output.printed
        );
        let service = Service::start(testbed.path());
        let how = Run {
            ranks: 3,
            service: Some(&service.url),
            ..Run::default()
        };
        let output = testbed.run(&mpi, how, &program, &["with-service"]);
        assert!(
            output.printed.contains("refused as it should be"),
            "{}: {}",
            mpi.name,
            output.printed
        );
        let output = testbed.run(&mpi, how, &program, &["started-past"]);
        assert!(
            output.printed.contains("refused as it should be")
                && output.printed.contains("MPI was started past this library"),
            "{}: {}",
            mpi.name,
            output.printed
        );
    }
}

/// Rank 0 alone knew that more had to be said than one message can: it returned, and the others waited for it in `MPI_Gatherv` for ever.
#[test]
fn what_is_too_long_to_be_said_is_refused_on_all_ranks() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        let program = mpi.compile("c/refusals.c", testbed.path());
        let how = Run {
            ranks: 3,
            service: Some(&service.url),
            variable: Some(("ELBOW_MPI_GATHERED", "200")),
            ..Run::default()
        };
        let output = testbed.run(&mpi, how, &program, &["long-description"]);
        let is_told = output.printed.contains("bytes, which are more than 200");
        assert!(
            is_told && output.printed.contains("refused as it should be"),
            "{}: {}",
            mpi.name,
            output.printed
        );
    }
}

/// A process whose lock service is gone gets an error before its next I/O, and so do those that are with it in a collective access.
#[test]
fn no_byte_is_written_when_the_service_is_gone() {
    let testbed = Testbed::new();
    for mpi in implementations::installed().into_iter().take(1) {
        let program = mpi.compile("c/refusals.c", testbed.path());
        let service = Service::start(testbed.path());
        let url = service.url.clone();
        let how = Run {
            ranks: 3,
            service: Some(&url),
            ..Run::default()
        };
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !testbed.data().with_added_extension("ready").exists() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                drop(service);
                std::fs::write(testbed.data().with_added_extension("gone"), "").unwrap();
            });
            testbed.run(&mpi, how, &program, &["service-gone"])
        });
        assert!(
            output.printed.contains("refused as it should be"),
            "{}: {}",
            mpi.name,
            output.printed
        );
    }
}
