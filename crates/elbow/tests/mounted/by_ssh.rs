//! All other tests of this program, with jobs that go by ssh to this machine: in `make soak`.
//!
//! They ask for `elbow run` as always; `ELBOW_VIA` in their environment sends the jobs by ssh. What SFTP, or a connection, does not have stands in
//! `by_ssh.txt`, a line for each test that does not hold there, with its reason. A test that fails and is not there is an error; one that is there
//! and holds is told, for some depend on who comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use elbow_testkit::cases::is_soak;

use crate::test_dir::ssh_server;
use crate::via::write_script;

const EXCEPTIONS: &str = include_str!("by_ssh.txt");
/// They choose themselves how their jobs go, or are these.
const NOT_REPEATED: [&str; 5] = ["by_ssh::", "connection::", "via::", "via_around::", "via_sftp::"];

/// root goes by a real sshd; other users, who may not read its key, are themselves on the machine there.
const SSH: &str = r#"if [ "$(id -u)" = 0 ]; then exec ssh OPTIONS "$@"; fi
for last; do :; done
cd /
if [ "$last" = sftp ]; then exec /usr/lib/openssh/sftp-server; fi
exec sh -c "$last""#;

#[test]
fn what_holds_in_a_job_holds_by_ssh() {
    all_but_the_exceptions("elbow", &[("ELBOW_VIA_PROGRAM", env!("CARGO_BIN_EXE_elbow"))]);
}

#[test]
fn what_holds_in_a_job_holds_over_sftp_but_what_that_does_not_have() {
    // SFTP tells times in whole seconds.
    all_but_the_exceptions("sftp", &[("ELBOW_VIA_PROGRAM", ""), ("ELBOW_TEST_WHOLE_SECONDS", "1")]);
}

#[test]
fn each_exception_has_a_reason() {
    for line in EXCEPTIONS.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let &[way, test, reason] = words.as_slice() else {
            panic!("way, test and reason: {line}");
        };
        assert!(
            ["elbow", "sftp"].contains(&way) && test.contains("::") && reason.len() > 10,
            "{line}"
        );
    }
}

/// The tests that cannot hold there.
fn exceptions(way: &str) -> BTreeSet<&'static str> {
    let of_way = |line: &'static str| line.strip_prefix(way)?.trim_start().split(' ').next();
    EXCEPTIONS.lines().filter_map(of_way).collect()
}

fn all_but_the_exceptions(way: &str, variables: &[(&str, &str)]) {
    if !is_soak(&format!("all tests by ssh ({way})")) {
        return;
    }
    let Some((dir, bed)) = ssh_server(&[], std::time::Duration::ZERO) else {
        return;
    };
    let access = bed.access();
    let quoted: Vec<String> = access.options.iter().map(|option| format!("'{option}'")).collect();
    let ssh = dir.path().join("via");
    write_script(&ssh, &SSH.replace("OPTIONS", &quoted.join(" ")));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a directory of ours");
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    tests
        .args(NOT_REPEATED.map(|module| ["--skip", module]).as_flattened())
        .env("ELBOW_SSH", &ssh)
        .env("ELBOW_VIA", format!("ssh://{}", access.host))
        .envs(variables.iter().copied())
        .env_remove("SOAK")
        .stdin(Stdio::null());
    let output = tests.output().expect("this program");
    let printed = String::from_utf8_lossy(&output.stdout);
    let (held, failed) = ends(&printed);
    assert!(held.len() > 100, "only {} tests held: {printed}", held.len());
    let known = exceptions(way);
    let new: Vec<_> = failed.iter().filter(|test| !known.contains(**test)).collect();
    assert!(new.is_empty(), "by ssh ({way}) these do not hold: {new:#?}\n{printed}");
    let over: Vec<_> = known.iter().filter(|test| held.contains(**test)).collect();
    println!(
        "by ssh ({way}): {} hold, {} do not; of those in by_ssh.txt these hold: {over:?}",
        held.len(),
        failed.len()
    );
}

/// The names of the tests that held, and of those that did not, of what the test program prints.
fn ends(printed: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let by_end: BTreeMap<&str, &str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
        .collect();
    let of = |end: &str| {
        by_end
            .iter()
            .filter(|(_, found)| **found == end)
            .map(|(test, _)| *test)
            .collect()
    };
    (of("ok"), of("FAILED"))
}
