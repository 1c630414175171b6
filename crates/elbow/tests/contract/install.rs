//! `make install` installs what `make build` built, and builds nothing.
//!
//! It called cargo: as root, who has no Rust, it failed, or it left files in the target directory that their owner could not
//! write any more.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::{ELBOW, Said, word};

const LIBRARIES: [&str; 6] = [
    "libelbow_mpi.so",
    "libelbow_fcntl.so",
    "libba.so",
    "libba.a",
    "libelbow_lock_c.so",
    "libelbow_lock_c.a",
];

/// A target directory after `make build`: the binary, and something under the names of the libraries.
fn built() -> tempfile::TempDir {
    let target = tempfile::tempdir().expect("a directory");
    let release = target.path().join("release");
    std::fs::create_dir(&release).expect("a directory");
    std::os::unix::fs::symlink(ELBOW, release.join("elbow")).expect("the binary");
    for name in LIBRARIES {
        std::fs::write(release.join(name), name).expect("a library");
    }
    target
}

/// Where Rust is not to be found, and a call of cargo fails.
fn install(target: &Path, destination: &Path) -> Said {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new("make");
    make.args([
        "--silent",
        "-C",
        word(&checkout),
        "install",
        "CARGO=false",
        "PREFIX=/opt",
    ]);
    make.arg(format!("DESTDIR={}", word(destination)));
    make.env("CARGO_TARGET_DIR", target).env("PATH", "/usr/bin:/bin");
    for name in ["MAKEFLAGS", "LIBBA", "LIBLOCK", "LIBDIR"] {
        make.env_remove(name);
    }
    Said::of(&make.output().expect("make"))
}

#[test]
fn everything_is_installed_without_rust() {
    let (target, destination) = (built(), tempfile::tempdir().expect("a directory"));
    install(target.path(), destination.path()).assert_code(0);
    let at = |name: &str| -> PathBuf { destination.path().join("opt").join(name) };
    assert_eq!(
        std::fs::read(at("bin/elbow")).expect("it"),
        std::fs::read(ELBOW).expect("it")
    );
    for name in [
        "lib/elbow/libelbow_mpi.so",
        "lib/elbow/libelbow_fcntl.so",
        "lib/libba.so",
        "lib/libba.a",
        "lib/libelbow_lock.so",
        "lib/libelbow_lock.a",
        "include/ba.h",
        "include/elbow_lock.h",
        "share/man/man1/elbow.1",
        "share/bash-completion/completions/elbow",
    ] {
        assert!(at(name).metadata().is_ok_and(|found| found.len() > 0), "{name}");
    }
}

#[test]
fn what_was_not_built_is_named_with_the_command_that_builds_it() {
    let (target, destination) = (built(), tempfile::tempdir().expect("a directory"));
    let missing = target.path().join("release/libba.so");
    std::fs::remove_file(&missing).expect("a library");
    let said = install(target.path(), destination.path());
    assert_eq!(said.code, 2, "{said:#?}");
    said.assert_says(&[&format!("{} is missing: run \"make build\" first", word(&missing))]);
    let installed = std::fs::read_dir(destination.path()).expect("the directory").count();
    assert_eq!(installed, 0, "nothing is installed by halves");
}
