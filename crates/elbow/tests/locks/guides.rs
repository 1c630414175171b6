//! Every command of the guides to the locks that is a shell's, run as it stands there.
//!
//! The guides name ports, hosts and directories of a cluster. So each guide is run in a network of its own, in which the host
//! `head` is this one, with empty directories where it names some, and whose processes end with the guide. An ordinary user is
//! root there, by a user namespace.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::preload::{library, said};

/// Before the commands: the cluster.
const CLUSTER: &str = "set -e
ip link set lo up
echo 127.0.0.1 localhost head >hosts.cluster
mount --bind hosts.cluster /etc/hosts
for place in /run /mnt /var/lib; do mount -t tmpfs none $place; done
mkdir -p /run/user/1000 /mnt/share /var/lib/elbow
";

/// The commands of a guide, each service waited for as a reader does before the next command.
fn commands(guide: &str) -> String {
    let blocks = guide.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|rest| rest.split("```").next().unwrap().lines());
    lines.fold(String::new(), |script, line| {
        let looks = if line == "elbow lock top" { " --looks 2" } else { "" }; // Else it ends with Ctrl-C.
        script + line + looks + "\n" + &wait_for_service(line)
    })
}

/// For a line that starts a service in the background: waits until it answers.
fn wait_for_service(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    if !line.starts_with("elbow lockd ") || words.last() != Some(&"&") {
        return String::new();
    }
    let after = |option: &str| words.iter().skip_while(|word| **word != option).nth(1);
    let server = after("--listen").expect("a service says where it listens");
    let server = server.replace("0.0.0.0", "head"); // As its certificate calls it.
    let key = match after("--key-file").or_else(|| after("--certificates")) {
        Some(file) if server.starts_with("tcp:") => format!(" --key-file {file}"),
        _ => String::new(),
    };
    format!("until elbow lock status --server {server}{key} >status 2>&1; do sleep 0.1; done\n")
}

/// Runs a guide in a directory with the programs that its reader has, and shows `check` that directory and what was printed.
fn run(guide: &str, programs: &[(&str, &str)], check: impl FnOnce(&Path, &str)) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in programs {
        let place = directory.path().join(name);
        std::fs::write(&place, text).unwrap();
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let elbow = Path::new(env!("CARGO_BIN_EXE_elbow")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!(
        "{}:{}:{path}:/usr/sbin:/sbin",
        directory.path().display(),
        elbow.display()
    );
    let mut shell = Command::new("timeout");
    shell.args(["120", "unshare"]);
    if !rustix::process::geteuid().is_root() {
        shell.arg("--map-root-user");
    }
    shell
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", &(CLUSTER.to_owned() + &commands(guide))])
        .env("PATH", path)
        .env("HOME", directory.path()) // No service finds there what another one left.
        .env_remove("XDG_STATE_HOME")
        .env_remove("LD_PRELOAD")
        .env_remove("ELBOW_LOCKS")
        .current_dir(&directory);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    check(directory.path(), &said(&output));
}

#[test]
fn locks_on_bytes_of_files() {
    let programs = [
        ("update", "#!/bin/sh\necho updated >$1 && echo the update ran\n"),
        ("read", "#!/bin/sh\necho the reader ran\n"),
    ];
    run(
        include_str!("../../../../docs/src/guide/lock.md"),
        &programs,
        |_, told| {
            assert_eq!(told.matches("the update ran").count(), 2, "{told}");
            assert_eq!(told.matches("the reader ran").count(), 1, "{told}");
            assert!(!told.contains("too busy") && told.contains("\"grants\""), "{told}");
        },
    );
}

#[test]
fn my_mount_has_no_locks() {
    if library("libelbow_fcntl.so").is_none() {
        return;
    }
    run(
        include_str!("../../../../docs/src/guide/lock-exec.md"),
        &[],
        |directory, told| {
            assert!(told.contains("one at a time") && told.contains("by number"), "{told}");
            assert!(told.contains("mine until I close 9"), "{told}");
            assert_eq!(std::fs::read_to_string(directory.join("share/data")).unwrap(), "locked");
        },
    );
}

#[test]
fn my_mpi_io_program() {
    if library("libelbow_mpi.so").is_none() {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/mpi/tests/c/overlap.c");
    let built = tempfile::tempdir().unwrap();
    let overlap = built.path().join("overlap");
    let compiled = Command::new("mpicc.mpich").arg("-o").arg(&overlap).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "mpicc.mpich does not work");
        println!("SKIPPED: mpicc.mpich does not work");
        return;
    }
    let simulate = format!("#!/bin/sh\nexec {} data write_at 5\n", overlap.display());
    let programs = [
        ("simulate", simulate.as_str()),
        ("mpirun", "#!/bin/sh\nexec mpirun.mpich \"$@\"\n"),
        ("hosts", "localhost:4\n"),
    ];
    run(
        include_str!("../../../../docs/src/guide/mpi.md"),
        &programs,
        |_, told| {
            let whole = told.matches("write_at: torn 0 of 5 rounds, gaps lost in 0").count();
            assert_eq!(whole, 2, "{told}");
        },
    );
}

#[test]
fn locks_over_a_network_by_certificates() {
    run(
        include_str!("../../../../docs/src/guide/lock-certificates.md"),
        &[("update", "#!/bin/sh\necho updated >$1 && echo the update ran\n")],
        |_, told| assert_eq!(told.matches("the update ran").count(), 2, "{told}"),
    );
}

#[test]
fn locks_and_late_writes() {
    run(
        include_str!("../../../../docs/src/guide/lock-fencing.md"),
        &[],
        |_, told| {
            // Rows that were changed, and what is there in the end.
            let lines: Vec<&str> = told.lines().filter(|line| !line.starts_with("listening")).collect();
            assert!(lines.join("\n").contains("1\n0\nof the second"), "{told}");
        },
    );
}
