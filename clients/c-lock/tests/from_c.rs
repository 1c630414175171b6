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

const SOURCE: &str = include_str!("../src/lib.rs");
const HEADER: &str = include_str!("../include/elbow_lock.h");
const PAGE: &str = include_str!("../man/elbow_lock.3");
const PROGRAM: &str = include_str!("every_function.c");

/// A directory with the libraries that were built with this test, under the names that they are installed with.
fn install(directory: &Path) {
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
    let built: PathBuf = built.max().expect("the libraries beside the test").1;
    for (from, to) in [("so", "so"), ("so", "so.0.1"), ("a", "a")] {
        let from = built.join(format!("libelbow_lock_c.{from}"));
        std::os::unix::fs::symlink(from, directory.join(format!("libelbow_lock.{to}"))).unwrap();
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
        key: None,
        ttl_ms_max: 1000,
        memory: directory.join("state"),
        metrics: None,
        shards: 1,
        clients_max: 100,
        limits: Limits::default(),
        drain_ms_max: 0,
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
    let functions = SOURCE.split("#[unsafe(no_mangle)]").skip(1);
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
    assert_eq!(declarations.len(), 7);
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
        ("ELBOW_LOCK_TRY", elbow_lock_c::ELBOW_LOCK_TRY.to_string()),
        ("ELBOW_LOCK_FOREVER", format!("({})", elbow_lock_c::ELBOW_LOCK_FOREVER)),
    ] {
        assert!(HEADER.contains(&format!("#define {name} {value}")), "{name}");
        assert!(PAGE.contains(name), "{name}");
    }
}

/// Compiles the program with all warnings and checks, and runs it.
fn compile_and_run(linked: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (program, data) = (dir.path().join("program"), dir.path().join("data"));
    install(dir.path());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    succeed(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
            .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
            .arg("-I")
            .arg(here.join("include"))
            .arg(here.join("tests/every_function.c"))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(dir.path())
            .args(linked),
    );
    fs::create_dir(&data).unwrap();
    let url = serve(dir.path());
    let mut run = Command::new(&program);
    run.arg(url).arg(&data).env("LD_LIBRARY_PATH", dir.path());
    assert_eq!(succeed(&mut run), "every function was used\n");
}

#[test]
fn a_c_program_works_with_the_shared_library() {
    compile_and_run(&["-lelbow_lock", "-lpthread"]);
}

#[test]
fn a_c_program_works_with_the_static_library() {
    compile_and_run(&["-l:libelbow_lock.a", "-lgcc_s", "-lpthread", "-lm", "-ldl"]);
}

#[test]
fn the_header_is_good_for_cpp_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("program.cc");
    fs::write(
        &source,
        "#include <elbow_lock.h>\nint main() { return elbow_lock_release(nullptr) == -1 ? 0 : 1; }\n",
    )
    .unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    succeed(
        Command::new("c++")
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
            .arg(include)
            .arg(source),
    );
}

#[test]
fn pkg_config_leads_to_header_and_library() {
    let dir = tempfile::tempdir().unwrap();
    let file = include_str!("../elbow_lock.pc.in")
        .replace("@PREFIX@", "/opt/elbow")
        .replace("@LIBDIR@", "/opt/elbow/lib")
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    assert!(!file.contains('@'), "{file}");
    fs::write(dir.path().join("elbow_lock.pc"), file).unwrap();
    let found = succeed(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "elbow_lock"])
            .env("PKG_CONFIG_PATH", dir.path()),
    );
    let found: Vec<_> = found.split_whitespace().collect();
    assert_eq!(found, ["-I/opt/elbow/include", "-L/opt/elbow/lib", "-lelbow_lock"]);
}

#[test]
fn the_man_page_has_no_warnings() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/elbow_lock.3");
    succeed(Command::new("groff").args(["-man", "-ww", "-z"]).arg(page));
}
