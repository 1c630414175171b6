//! libba as C programs see it: header, library, pkg-config file and man page say the same, and every function works.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "this is what a C program's build does"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../src/lib.rs");
const HEADER: &str = include_str!("../include/ba.h");
const PAGE: &str = include_str!("../man/ba.3");
const PROGRAM: &str = include_str!("every_function.c");

/// Where the libraries are that were built with this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let dirs = test.ancestors().skip(1).take(2);
    let newest = dirs
        .filter_map(|dir| {
            let made = fs::metadata(dir.join("libba.so")).and_then(|it| it.modified()).ok()?;
            dir.join("libba.a").exists().then(|| (made, dir.to_owned()))
        })
        .max();
    newest.expect("libba.so and libba.a beside the test").1
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    assert!(said.is_empty(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The declarations of the exported functions, as C has them.
fn declarations() -> Vec<String> {
    let functions = SOURCE.split("#[unsafe(no_mangle)]").skip(1);
    functions
        .map(|function| {
            let signature = &function[function.find("fn ").unwrap() + 3..function.find(" {").unwrap()];
            let (name, rest) = signature.split_once('(').unwrap();
            let (arguments, result) = rest.split_once(") -> ").unwrap();
            let arguments: Vec<_> = arguments
                .split(", ")
                .filter_map(|argument| argument.split_once(": "))
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
        "*mut Ba" => "ba_t *",
        "*const Ba" => "const ba_t *",
        "*const c_char" => "const char *",
        "*mut c_void" => "void *",
        "*const c_void" => "const void *",
        "c_int" => "int ",
        "c_uint" => "unsigned int ",
        "usize" => "size_t ",
        "isize" => "ssize_t ",
        "i64" => "int64_t ",
        other => panic!("{other} has no name in C"),
    };
    format!("{of}{name}")
}

#[test]
fn header_page_and_program_know_every_function() {
    let declarations = declarations();
    assert_eq!(declarations.len(), 10);
    for declaration in &declarations {
        assert!(
            HEADER.lines().any(|line| line == declaration),
            "ba.h lacks {declaration}"
        );
        let page = PAGE.replace("\" ", "").replace(" \"", "").replace('"', "");
        let words = |text: &str| text.replace([' ', '"'], "");
        assert!(words(&page).contains(&words(declaration)), "ba.3 lacks {declaration}");
        let name = declaration
            .split(['(', ' ', '*'])
            .find(|word| word.starts_with("ba_") && *word != "ba_t");
        assert!(PROGRAM.contains(&format!("{}(", name.unwrap())), "{name:?} is not used");
    }
    let declared = HEADER.lines().filter(|line| line.ends_with(");")).count();
    assert_eq!(declared, declarations.len(), "ba.h declares no others");
}

#[test]
fn flags_are_the_same_on_both_sides() {
    let flags = [
        ("BA_HOLES", ba::BA_HOLES),
        ("BA_BITMAP", ba::BA_BITMAP),
        ("BA_CHECKSUMS", ba::BA_CHECKSUMS),
    ];
    for (name, value) in flags {
        assert!(HEADER.contains(&format!("#define {name} {value}u")), "{name}");
        assert!(PAGE.contains(&format!(".B {name}\n")), "{name}");
    }
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
                .arg("install-libba")
                .arg(format!("DESTDIR={}", dir.path().display()))
                .arg("PREFIX=/opt/elbow")
                .arg(format!("LIBBA={}", libraries().display()))
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
                .arg("ba")
                .env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"))
                .env("PKG_CONFIG_SYSROOT_DIR", self.0.path()),
        );
        said.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles the program with all warnings and checks, and runs it.
    fn compile_and_run(&self, flags: &[String]) -> PathBuf {
        let program = self.0.path().join("program");
        succeed(
            Command::new("cc")
                .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
                .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/every_function.c"))
                .arg("-o")
                .arg(&program)
                .args(flags)
                .arg("-lpthread"),
        );
        let data = self.0.path().join("data");
        fs::create_dir(&data).unwrap();
        let said = succeed(
            Command::new(&program)
                .arg(&data)
                .env("LD_LIBRARY_PATH", self.path("lib")),
        );
        assert_eq!(said, "every function was used\n");
        program
    }
}

/// What a program or library asks of the dynamic linker.
fn dynamic(file: &Path) -> String {
    succeed(Command::new("readelf").arg("-dW").arg(file))
}

#[test]
fn a_c_program_works_with_the_installed_shared_library() {
    let installed = Installed::new();
    let program = installed.compile_and_run(&installed.flags(&["--cflags", "--libs"]));
    let version = env!("CARGO_PKG_VERSION");
    let abi = if version.starts_with("0.") {
        version.rfind('.')
    } else {
        version.find('.')
    };
    let name = format!("libba.so.{}", &version[..abi.unwrap()]);
    let library = installed.path(&format!("lib/libba.so.{version}"));
    assert!(dynamic(&library).contains(&format!("Library soname: [{name}]")));
    assert!(dynamic(&program).contains(&format!("Shared library: [{name}]")));
    assert_eq!(
        installed.path("lib").join(name).canonicalize().unwrap(),
        library.canonicalize().unwrap()
    );
}

#[test]
fn a_c_program_works_with_the_installed_static_library() {
    let installed = Installed::new();
    let mut flags = installed.flags(&["--cflags", "--libs", "--static"]);
    let ours = flags.iter_mut().find(|flag| *flag == "-lba").unwrap();
    "-l:libba.a".clone_into(ours);
    let program = installed.compile_and_run(&flags);
    assert!(!dynamic(&program).contains("libba"));
}

#[test]
fn header_and_man_page_are_installed() {
    let installed = Installed::new();
    assert_eq!(fs::read_to_string(installed.path("include/ba.h")).unwrap(), HEADER);
    assert_eq!(fs::read_to_string(installed.path("share/man/man3/ba.3")).unwrap(), PAGE);
}

#[test]
fn the_header_is_good_for_c99_and_cpp_too() {
    for (compiler, standard, null) in [("cc", "-std=c99", "NULL"), ("c++", "-std=c++11", "nullptr")] {
        let dir = tempfile::tempdir().unwrap();
        let source = dir
            .path()
            .join(if compiler == "cc" { "program.c" } else { "program.cc" });
        let program = format!("#include <ba.h>\nint main(void) {{ return ba_sync({null}) == -1 ? 0 : 1; }}\n");
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
    let file = fs::read_to_string(installed.path("lib/pkgconfig/ba.pc")).unwrap();
    assert!(!file.contains('@'), "{file}");
    let dir = installed.0.path().display();
    let found = installed.flags(&["--cflags", "--libs"]);
    let expected = [
        format!("-I{dir}/opt/elbow/include"),
        format!("-L{dir}/opt/elbow/lib"),
        "-lba".to_owned(),
    ];
    assert_eq!(found, expected);
    assert_eq!(
        installed.flags(&["--modversion"]),
        [env!("CARGO_PKG_VERSION").to_owned()]
    );
}

#[test]
fn the_man_page_has_no_warnings() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/ba.3");
    succeed(Command::new("groff").args(["-man", "-ww", "-z"]).arg(page));
}
