//! A real sshfs through a delay.

#![allow(clippy::disallowed_methods)] // See the library: here is the storage itself.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use elbow_testkit::sshbed::SshTestbed;

#[test]
fn what_is_written_through_sshfs_is_on_the_server_and_takes_its_time() {
    if let Some(sentence) = SshTestbed::missing() {
        return eprintln!("skipped: {sentence}");
    }
    let dir = tempfile::tempdir().unwrap();
    let [keys, source, mount] = ["keys", "source", "mount"].map(|name| dir.path().join(name));
    for path in [&keys, &source, &mount] {
        fs::create_dir(path).unwrap();
    }
    let testbed = SshTestbed::start(&keys, Duration::from_millis(20)).unwrap();
    let mounted = testbed.mount(&source, &mount).unwrap();
    let started = Instant::now();
    fs::write(mounted.path().join("file"), "content").unwrap();
    assert!(
        started.elapsed() >= Duration::from_millis(80),
        "{:?} is less than two round trips",
        started.elapsed()
    );
    assert_eq!(fs::read_to_string(source.join("file")).unwrap(), "content");
    let access = testbed.access();
    let said = Command::new("ssh")
        .args(&access.options)
        .arg(&access.host)
        .arg("echo there")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "there\n",
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
}
