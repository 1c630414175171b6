//! The clients of other languages, as a build of the workspace left them, put where programs find them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// libelbow_lock, the library for fcntl(2), and what is native in the package for Python; cargo calls them so.
pub(crate) const LIBRARIES: [&str; 3] = ["libelbow_lock_c.so", "libelbow_fcntl.so", "libelbowroom_native.so"];

/// Where they are: a build puts them in one of two places, and the newer one counts. None where one is not built, which is an error where CI is set.
pub(crate) fn libraries() -> Option<[PathBuf; 3]> {
    let directory = Path::new(env!("CARGO_BIN_EXE_elbow")).parent().unwrap();
    let newest = |name: &str| {
        let places = [directory.join(name), directory.join("deps").join(name)];
        let built = places
            .into_iter()
            .filter_map(|place| Some((place.metadata().ok()?.modified().ok()?, place)));
        built.max().map(|(_, place)| place)
    };
    if let [Some(lock), Some(fcntl), Some(python)] = LIBRARIES.map(newest) {
        return Some([lock, fcntl, python]);
    }
    let how = "cargo build -p elbow-c-lock -p elbow-fcntl -p elbow-python";
    assert!(
        std::env::var_os("CI").is_none(),
        "{LIBRARIES:?} are not all built: {how}"
    );
    println!("SKIPPED: {LIBRARIES:?} are not all built: {how}");
    None
}

/// Compiles a C program to `program`. With libelbow_lock it has that beside it, where `LD_LIBRARY_PATH` has to lead.
pub(crate) fn compile(source: &Path, program: &Path, libelbow_lock: Option<&Path>) {
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(program)
        .arg(source)
        .args([
            "-I",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/c-lock/include"),
        ]);
    if let Some(library) = libelbow_lock {
        // The name by which the program asks for it is another than that of the file that cargo made.
        let asked_for = program.with_file_name(concat!(
            "libelbow_lock.so.",
            env!("CARGO_PKG_VERSION_MAJOR"),
            ".",
            env!("CARGO_PKG_VERSION_MINOR")
        ));
        std::os::unix::fs::symlink(library, asked_for).unwrap();
        command.arg(library);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Puts the package for Python below `root`, as a wheel would have it.
pub(crate) fn install_python(root: &Path, native: &Path) {
    let package = root.join("elbowroom");
    let information = root.join("elbowroom-0.dist-info");
    for place in [&package, &information] {
        std::fs::create_dir_all(place).unwrap();
    }
    std::fs::write(
        information.join("METADATA"),
        "Metadata-Version: 2.1\nName: elbowroom\nVersion: 0\n",
    )
    .unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/python/elbowroom");
    for entry in std::fs::read_dir(sources).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), package.join(entry.file_name())).unwrap();
        }
    }
    std::os::unix::fs::symlink(native, package.join("_native.abi3.so")).unwrap();
}
