//! `elbow lock mpi`: what the command gets, and a real MPI program under it. (What the library does on each MPI is tested in
//! `clients/mpi`.)

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use crate::lockd::Lockd;
use crate::preload::{self, said};

/// The processes of one program are more than there are processors.
static ALONE: Mutex<()> = Mutex::new(());

fn library() -> Option<PathBuf> {
    preload::library("libelbow_mpi.so")
}

fn under_locks(server: &str, command: &[&str]) -> Output {
    under_locks_with(server, &[], command)
}

fn under_locks_with(server: &str, options: &[&str], command: &[&str]) -> Output {
    let mut elbow = Command::new(env!("CARGO_BIN_EXE_elbow"));
    elbow
        .args(["lock", "mpi", "--server", server])
        .args(options)
        .arg("--")
        .args(command)
        .env_remove("LD_PRELOAD")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The MPIs of Debian: name, and the launcher with its options.
fn each_mpi_of_debian(compiled: &Path, mut run: impl FnMut(&str, &[&str], &Path)) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/mpi/tests/c/overlap.c");
    let launchers: [(&str, &[&str]); 2] = [
        ("mpich", &["mpirun.mpich", "-n", "4"]),
        ("openmpi", &["mpirun.openmpi", "--oversubscribe", "-n", "4"]),
    ];
    for (mpi, launcher) in launchers {
        let compiler = format!("/usr/bin/mpicc.{mpi}");
        if !Path::new(&compiler).exists() {
            assert!(std::env::var_os("CI").is_none(), "{compiler} is not there");
            println!("SKIPPED: {compiler} is not there");
            continue;
        }
        let program = compiled.join(mpi);
        let status = Command::new(&compiler).arg("-o").arg(&program).arg(&source).status();
        assert!(status.unwrap().success());
        run(mpi, launcher, &program);
    }
}

#[test]
fn a_program_is_atomic_under_each_mpi_of_debian() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    each_mpi_of_debian(directory.path(), |mpi, launcher, program| {
        let words = [program.to_str().unwrap(), data.to_str().unwrap(), "write_at", "5"];
        let output = under_locks(&lockd.addresses[0].to_string(), &[launcher, &words].concat());
        assert!(
            said(&output).contains("write_at: torn 0 of 5 rounds, gaps lost in 0"),
            "{mpi}: {}",
            said(&output)
        );
        assert_eq!(output.status.code(), Some(0), "{mpi}: {}", said(&output));
    });
}

/// It succeeded, with torn files.
#[test]
fn a_run_with_ranks_without_the_library_fails_and_names_them() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let server = lockd.addresses[0].to_string();
    let directory = tempfile::tempdir().unwrap();
    let (data, bare) = (directory.path().join("data"), directory.path().join("bare"));
    let script = "#!/bin/sh\nrank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\ncase $1 in *$rank*) unset LD_PRELOAD ;; esac\nshift\nexec \"$@\"\n";
    std::fs::write(&bare, script).unwrap();
    std::fs::set_permissions(&bare, std::fs::Permissions::from_mode(0o755)).unwrap();
    each_mpi_of_debian(directory.path(), |mpi, launcher, program| {
        let run = |options: &[&str], dropped: &str| {
            let program = [program.to_str().unwrap(), data.to_str().unwrap(), "write_at", "1"];
            // Short, since somebody is waited for in vain, and long enough for the others.
            let start = ["env", "ELBOW_MPI_PATIENCE=10", bare.to_str().unwrap(), dropped];
            let words = [launcher, &start, &program].concat();
            let output = under_locks_with(&server, options, &words);
            (output.status.code(), format!("{mpi} {dropped}: {}", said(&output)))
        };
        let (code, printed) = run(&[], "1");
        assert!(
            code == Some(125) && printed.contains("rank 1 gave no sign"),
            "{printed}"
        );
        assert!(printed.contains("ranks ran without libelbow_mpi.so"), "{printed}");
        let (code, printed) = run(&[], "0123");
        assert!(
            code == Some(125) && printed.contains("no MPI program had libelbow_mpi.so"),
            "{printed}"
        );
        let (code, printed) = run(&["--uncovered", "ignore"], "0123");
        assert!(code == Some(0) && !printed.contains("elbow:"), "{printed}");
    });
}

/// The ranks reach the service through the proxies of their nodes, and elbow directly: each hears the other.
#[test]
fn ranks_behind_a_proxy_are_heard() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let near = format!("unix:{}", directory.path().join("near").display());
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_elbow"));
    proxy.args([
        "lockd",
        "proxy",
        "--listen",
        &near,
        "--server",
        &lockd.addresses[0].to_string(),
    ]);
    let mut proxy = proxy.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(proxy.stdout.as_mut().unwrap()), &mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    each_mpi_of_debian(directory.path(), |mpi, launcher, program| {
        let locks = format!("ELBOW_LOCKS={near}");
        let words = [program.to_str().unwrap(), data.to_str().unwrap(), "write_at", "1"];
        let words = [launcher, &["env", &locks], &words].concat();
        let output = under_locks(&lockd.addresses[0].to_string(), &words);
        assert_eq!(output.status.code(), Some(0), "{mpi}: {}", said(&output));
    });
    proxy.kill().unwrap();
    proxy.wait().unwrap();
}
