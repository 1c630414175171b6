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

/// A target directory after `make build`: the binary, and small libraries under the names of ours.
fn built() -> tempfile::TempDir {
    let target = tempfile::tempdir().expect("a directory");
    let release = target.path().join("release");
    std::fs::create_dir(&release).expect("a directory");
    std::os::unix::fs::symlink(ELBOW, release.join("elbow")).expect("the binary");
    std::fs::write(target.path().join("small.c"), "int small(void) { return 7; }\n").expect("room");
    for name in LIBRARIES {
        let how: &[&str] = if name.ends_with(".so") {
            &["-shared", "-fPIC"]
        } else {
            &["-c"]
        };
        let made = target.path().join("made");
        run(Command::new("cc")
            .args(["-g", "-Wl,--build-id"])
            .args(how)
            .arg("-o")
            .args([&made, &target.path().join("small.c")]));
        match name.ends_with(".so") {
            true => std::fs::rename(&made, release.join(name)).expect("a library"),
            false => run(Command::new("ar").arg("rcs").arg(release.join(name)).arg(&made)),
        }
    }
    target
}

fn run(command: &mut Command) {
    assert!(command.status().is_ok_and(|status| status.success()), "{command:?}");
}

/// The names of the sections of a file, as readelf(1) has them.
fn sections(file: &Path) -> String {
    let said = Command::new("readelf")
        .args(["-SW", word(file)])
        .output()
        .expect("readelf");
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// Where Rust is not to be found, and a call of cargo fails.
fn install(what: &str, target: &Path, destination: &Path) -> Said {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new("make");
    make.args(["--silent", "-C", word(&checkout), what, "CARGO=false", "PREFIX=/opt"]);
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
    install("install", target.path(), destination.path()).assert_code(0);
    let at = |name: &str| -> PathBuf { destination.path().join("opt").join(name) };
    let version = |program: &Path| Command::new(program).arg("--version").output().expect("it runs").stdout;
    assert_eq!(version(&at("bin/elbow")), version(Path::new(ELBOW)));
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

/// What was installed took 201 MB, most of it for debuggers.
#[test]
fn debug_information_is_installed_apart() {
    let (target, destination) = (built(), tempfile::tempdir().expect("a directory"));
    install("install", target.path(), destination.path()).assert_code(0);
    let at = |name: &str| destination.path().join(name);
    for name in [
        "bin/elbow",
        "lib/libba.so",
        "lib/libba.a",
        "lib/libelbow_lock.a",
        "lib/elbow/libelbow_mpi.so",
    ] {
        let found = sections(&at("opt").join(name));
        assert!(
            found.contains(".text") && !found.contains(".debug_line"),
            "{name}: {found}"
        );
    }
    assert!(sections(&target.path().join("release/libba.so")).contains(".debug_line"));
    install("install-debug", target.path(), destination.path()).assert_code(0);
    let installed = Command::new("find")
        .arg(at("usr/lib/debug/.build-id"))
        .args(["-name", "*.debug"])
        .output();
    let installed = String::from_utf8(installed.expect("find").stdout).expect("names");
    assert!(installed.lines().count() >= 2, "{installed}"); // of elbow, and of libraries that are the same
    for file in installed.lines() {
        assert!(sections(Path::new(file)).contains(".debug_line"), "{file}");
    }
}

#[test]
fn what_was_not_built_is_named_with_the_command_that_builds_it() {
    let (target, destination) = (built(), tempfile::tempdir().expect("a directory"));
    let missing = target.path().join("release/libba.so");
    std::fs::remove_file(&missing).expect("a library");
    let said = install("install", target.path(), destination.path());
    assert_eq!(said.code, 2, "{said:#?}");
    said.assert_says(&[&format!("{} is missing: run \"make build\" first", word(&missing))]);
    let installed = std::fs::read_dir(destination.path()).expect("the directory").count();
    assert_eq!(installed, 0, "nothing is installed by halves");
}

/// systemd puts variables into ExecStart, and nothing into Environment: the key of a cluster was looked for at `${CREDENTIALS_DIRECTORY}/key`.
#[test]
fn the_units_name_credentials_where_systemd_finds_them() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for unit in ["elbow-lockd.service", "elbow-lockd-proxy.service"] {
        let text = std::fs::read_to_string(packaging.join(unit)).expect("a unit");
        let mut lines = text
            .lines()
            .filter(|line| line.contains("${CREDENTIALS_DIRECTORY}"))
            .peekable();
        assert!(lines.peek().is_some(), "{unit}: no key");
        for line in lines {
            let setting = line.trim_start_matches(['#', ' ']);
            assert!(setting.starts_with("ExecStart=/usr/bin/elbow lockd "), "{unit}: {line}");
        }
    }
}
