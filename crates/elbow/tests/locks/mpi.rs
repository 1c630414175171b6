//! `elbow lock mpi`: what the command gets, and a real MPI program under it. (What the library does on each MPI is tested in
//! `clients/mpi`.)

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::lockd::Lockd;
use crate::preload::{self, said};

fn library() -> Option<PathBuf> {
    preload::library("libelbow_mpi.so")
}

fn under_locks(server: &str, command: &[&str]) -> Output {
    let mut elbow = Command::new(env!("CARGO_BIN_EXE_elbow"));
    elbow
        .args(["lock", "mpi", "--server", server, "--"])
        .args(command)
        .env_remove("LD_PRELOAD")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    elbow.output().unwrap()
}

#[test]
fn the_command_gets_the_library_and_the_service() {
    let Some(library) = library() else { return };
    let lockd = Lockd::start(&[]);
    let server = lockd.addresses[0].to_string();
    let script = "echo $LD_PRELOAD $ELBOW_LOCKS $OMPI_MCA_fbtl_posix_write_datasieving; exit 7";
    let output = under_locks(&server, &["sh", "-c", script]);
    let library = library.canonicalize().unwrap();
    assert_eq!(said(&output), format!("{} {server} false\n", library.display()));
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn without_a_service_nothing_is_started() {
    if library().is_none() {
        return;
    }
    let output = under_locks("unix:/not/there", &["echo", "started"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("cannot reach the lock service"),
        "{}",
        said(&output)
    );
    assert!(!said(&output).contains("started"));
}

#[test]
fn a_program_is_atomic_under_each_mpi_of_debian() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/mpi/tests/c/overlap.c");
    for (mpi, options) in [("mpich", ["-n", "4", ""]), ("openmpi", ["--oversubscribe", "-n", "4"])] {
        let (compiler, launcher) = (format!("/usr/bin/mpicc.{mpi}"), format!("mpirun.{mpi}"));
        if !Path::new(&compiler).exists() {
            assert!(std::env::var_os("CI").is_none(), "{compiler} is not there");
            println!("SKIPPED: {compiler} is not there");
            continue;
        }
        let program = directory.path().join(mpi);
        let compiled = Command::new(&compiler).arg("-o").arg(&program).arg(&source).status();
        assert!(compiled.unwrap().success());
        let data = directory.path().join("data");
        let mut command = vec![launcher.as_str()];
        command.extend(options.iter().filter(|option| !option.is_empty()));
        command.extend([program.to_str().unwrap(), data.to_str().unwrap(), "write_at", "5"]);
        let output = under_locks(&lockd.addresses[0].to_string(), &command);
        assert!(
            said(&output).contains("write_at: torn 0 of 5 rounds, gaps lost in 0"),
            "{mpi}: {}",
            said(&output)
        );
    }
}
