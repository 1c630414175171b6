//! libelbow_lock as C programs see it: header, library, pkg-config file and man page say the same, and every function works.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "this is what a C program's build does"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use elbow_lock::Limits;
use elbow_lock::server::{Server, Settings, Users};

const SOURCE: &str = concat!(
    include_str!("../src/lib.rs"),
    include_str!("../src/requests.rs"),
    include_str!("../src/status.rs")
);
const HEADER: &str = include_str!("../include/elbow_lock.h");
const PAGE: &str = include_str!("../man/elbow_lock.3");
const PROGRAM: &str = concat!(
    include_str!("every_function.c"),
    include_str!("patterns_and_requests.c")
);

/// Where the libraries are that were built with this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().skip(1).take(2).filter_map(|place| {
        let made = fs::metadata(place.join("libelbow_lock_c.so"))
            .and_then(|it| it.modified())
            .ok()?;
        place
            .join("libelbow_lock_c.a")
            .exists()
            .then(|| (made, place.to_owned()))
    });
    built.max().expect("the libraries beside the test").1
}

/// What `make install` puts below a directory of a package, of the libraries that were built with this test.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        succeed(
            Command::new("make")
                .args(["-s", "-C"])
                .arg(root)
                .arg("install-liblock")
                .arg(format!("DESTDIR={}", dir.path().display()))
                .arg("PREFIX=/opt/elbow")
                .arg(format!("LIBLOCK={}", libraries().display()))
                .env_remove("LIBDIR")
                .env_remove("MAKEFLAGS"),
        );
        Self(dir)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join("opt/elbow").join(below)
    }

    /// What pkg-config says, for a package that is not where it will be.
    fn flags(&self, wanted: &[&str]) -> Vec<String> {
        let said = succeed(
            Command::new("pkg-config")
                .args(wanted)
                .arg("elbow_lock")
                .env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"))
                .env("PKG_CONFIG_SYSROOT_DIR", self.0.path()),
        );
        said.split_whitespace().map(str::to_owned).collect()
    }
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    assert!(said.is_empty(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A lock service in this process.
fn serve(directory: &Path) -> String {
    let address: elbow_lock::Address = format!("unix:{}", directory.join("socket").display()).parse().unwrap();
    let settings = Settings {
        listen: vec![address.clone()],
        users: Users::Same,
        credentials: None,
        ttl_ms_max: 1000,
        memory: directory.join("state"),
        first: true,
        metrics: None,
        shards: 1,
        clients_max: 100,
        limits: Limits::default(),
        drain_ms_max: 0,
        warn: |_| {},
        give_back: || {},
    };
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async move {
            let server = Server::open(settings).await.unwrap();
            ready.send(()).unwrap();
            server.run(std::future::pending()).await
        })
    });
    is_ready.recv().unwrap();
    address.to_string()
}

/// The declarations of the exported functions, as C has them.
fn declarations() -> Vec<String> {
    let functions = SOURCE.split("\n#[unsafe(no_mangle)]").skip(1);
    functions
        .map(|function| {
            let signature = &function[function.find("fn ").unwrap() + 3..function.find(" {").unwrap()];
            let signature = signature.split_whitespace().collect::<Vec<_>>().join(" ");
            let (name, rest) = signature.split_once('(').unwrap();
            let (arguments, result) = rest.split_once(") -> ").unwrap();
            let arguments: Vec<_> = arguments
                .split(',')
                .filter_map(|argument| argument.trim().split_once(": "))
                .map(|(name, of)| declare(of, name))
                .collect();
            let arguments = if arguments.is_empty() {
                "void".to_owned()
            } else {
                arguments.join(", ")
            };
            format!("{}({arguments});", declare(result, name))
        })
        .collect()
}

/// A C declaration of something of a type of Rust's.
fn declare(of: &str, name: &str) -> String {
    let of = match of {
        "*mut Client" => "elbow_lock_client_t *",
        "*mut PendingLock" => "elbow_lock_asked_t *",
        "*const Request" => "const elbow_lock_request_t *",
        "*mut Status" => "elbow_lock_status_t *",
        "*const Status" => "const elbow_lock_status_t *",
        "*mut LockEntry" => "elbow_lock_seen_t *",
        "*mut Hold" => "elbow_lock_hold_t *",
        "*const Hold" => "const elbow_lock_hold_t *",
        "*const Range" => "const elbow_lock_range_t *",
        "*const c_char" => "const char *",
        "c_int" => "int ",
        "c_uint" => "unsigned int ",
        "usize" => "size_t ",
        "u64" => "uint64_t ",
        other => panic!("{other} has no name in C"),
    };
    format!("{of}{name}")
}

#[test]
fn header_page_and_program_know_every_function() {
    let declarations = declarations();
    assert_eq!(declarations.len(), 14);
    let words = |text: &str| text.replace([' ', '"', '\n'], "").replace(".BI", "").replace(".B", "");
    let page = words(PAGE);
    for declaration in &declarations {
        assert!(
            HEADER.lines().any(|line| line == declaration),
            "elbow_lock.h lacks {declaration}"
        );
        assert!(page.contains(&words(declaration)), "elbow_lock.3 lacks {declaration}");
        let name = declaration
            .split(['(', ' ', '*'])
            .find(|word| word.starts_with("elbow_lock_") && !word.ends_with("_t"));
        assert!(PROGRAM.contains(&format!("{}(", name.unwrap())), "{name:?} is not used");
    }
    let declared = HEADER.lines().filter(|line| line.ends_with(");")).count();
    assert_eq!(declared, declarations.len(), "elbow_lock.h declares no others");
}

#[test]
fn constants_are_the_same_on_both_sides() {
    for (name, value) in [
        (
            "ELBOW_LOCK_EXCLUSIVE",
            format!("{}u", elbow_lock_c::ELBOW_LOCK_EXCLUSIVE),
        ),
        ("ELBOW_LOCK_SHARED", format!("{}u", elbow_lock_c::ELBOW_LOCK_SHARED)),
        ("ELBOW_LOCK_POSIX", format!("{}u", elbow_lock_c::ELBOW_LOCK_POSIX)),
        ("ELBOW_LOCK_BROKEN", format!("{}u", elbow_lock_c::ELBOW_LOCK_BROKEN)),
        ("ELBOW_LOCK_TRY", elbow_lock_c::ELBOW_LOCK_TRY.to_string()),
        ("ELBOW_LOCK_FOREVER", format!("({})", elbow_lock_c::ELBOW_LOCK_FOREVER)),
    ] {
        assert!(HEADER.contains(&format!("#define {name} {value}")), "{name}");
        assert!(PAGE.contains(name), "{name}");
    }
}

/// Compiles the program with all warnings and checks, and runs it.
fn compile_and_run(installed: &Installed, source: &str, flags: &[String]) {
    let (program, data) = (installed.path("program"), installed.path("data"));
    // The structures are as large for the program as for the library.
    let sizes = [
        ("REQUEST_BYTES", size_of::<elbow_lock_c::Request>()),
        ("PATTERN_BYTES", size_of::<elbow_lock_c::Pattern>()),
        ("SEEN_BYTES", size_of::<elbow_lock_c::LockEntry>()),
    ];
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    succeed(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
            .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
            .args(sizes.map(|(name, bytes)| format!("-D{name}={bytes}")))
            .arg(here.join("tests").join(source))
            .arg("-o")
            .arg(&program)
            .args(flags)
            .arg("-lpthread"),
    );
    fs::create_dir(&data).unwrap();
    let url = serve(installed.0.path());
    let mut run = Command::new(&program);
    run.arg(url).arg(&data).env("LD_LIBRARY_PATH", installed.path("lib"));
    assert_eq!(succeed(&mut run), "every function was used\n");
}

#[test]
fn a_c_program_works_with_the_installed_shared_library() {
    let installed = Installed::new();
    compile_and_run(
        &installed,
        "every_function.c",
        &installed.flags(&["--cflags", "--libs"]),
    );
}

/// The paper's `lock_datatype`: patterns, names that are no files', locks that are asked for and waited for, and who holds what.
#[test]
fn a_c_program_locks_patterns_asks_without_waiting_and_looks() {
    let installed = Installed::new();
    let flags = installed.flags(&["--cflags", "--libs"]);
    compile_and_run(&installed, "patterns_and_requests.c", &flags);
}

/// With the libraries that pkg-config names for it, and no others.
#[test]
fn a_c_program_works_with_the_installed_static_library() {
    let installed = Installed::new();
    let mut flags = installed.flags(&["--cflags", "--libs", "--static"]);
    let ours = flags.iter_mut().find(|flag| *flag == "-lelbow_lock").unwrap();
    "-l:libelbow_lock.a".clone_into(ours);
    compile_and_run(&installed, "every_function.c", &flags);
    let linked = succeed(Command::new("readelf").arg("-dW").arg(installed.path("program")));
    assert!(!linked.contains("libelbow_lock"), "{linked}");
}

#[test]
fn header_and_man_page_are_installed() {
    let installed = Installed::new();
    assert_eq!(
        fs::read_to_string(installed.path("include/elbow_lock.h")).unwrap(),
        HEADER
    );
    assert_eq!(
        fs::read_to_string(installed.path("share/man/man3/elbow_lock.3")).unwrap(),
        PAGE
    );
}

#[test]
fn the_header_is_good_for_c99_and_cpp_too() {
    for (compiler, standard, null) in [("cc", "-std=c99", "NULL"), ("c++", "-std=c++11", "nullptr")] {
        let dir = tempfile::tempdir().unwrap();
        let source = dir
            .path()
            .join(if compiler == "cc" { "program.c" } else { "program.cc" });
        let program =
            format!("#include <elbow_lock.h>\nint main(void) {{ return elbow_lock_release({null}) == -1 ? 0 : 1; }}\n");
        fs::write(&source, program).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        succeed(
            Command::new(compiler)
                .args([
                    standard,
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-pedantic",
                    "-fsyntax-only",
                    "-I",
                ])
                .arg(include)
                .arg(source),
        );
    }
}

#[test]
fn pkg_config_leads_to_header_and_library() {
    let installed = Installed::new();
    let file = fs::read_to_string(installed.path("lib/pkgconfig/elbow_lock.pc")).unwrap();
    assert!(!file.contains('@'), "{file}");
    let dir = installed.0.path().display();
    let expected = [
        format!("-I{dir}/opt/elbow/include"),
        format!("-L{dir}/opt/elbow/lib"),
        "-lelbow_lock".to_owned(),
    ];
    assert_eq!(installed.flags(&["--cflags", "--libs"]), expected);
    assert_eq!(
        installed.flags(&["--modversion"]),
        [env!("CARGO_PKG_VERSION").to_owned()]
    );
}

#[test]
fn the_man_page_has_no_warnings() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/elbow_lock.3");
    succeed(Command::new("groff").args(["-man", "-ww", "-z"]).arg(page));
}
