//! Names the shared library for those who link to it: `libelbow_lock.so.0.1`, as long as a minor version may change what it offers.

fn main() {
    let version = |part: &str| std::env::var(format!("CARGO_PKG_VERSION_{part}")).unwrap_or_default();
    let (major, minor) = (version("MAJOR"), version("MINOR"));
    let abi = if major == "0" { format!("0.{minor}") } else { major };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libelbow_lock.so.{abi}");
    println!("cargo::rerun-if-changed=build.rs");
}
