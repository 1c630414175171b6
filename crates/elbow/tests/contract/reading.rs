//! Reading old files of slow storage: several at once, and never anything but what the job should see.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use elbow_testkit::slowfs::{SlowFs, SlowOptions};

use crate::stage::{ELBOW, Said, Stage, word};

const FILES: usize = 120;

/// Reads all files in order, and changes some just before it comes to them: they have been read ahead by then.
const READ_AND_CHANGE: &str = "
import os
names = sorted(os.listdir('.'))
for i, name in enumerate(names):
    if os.path.exists(name): print(name, open(name).read())
    ahead = names[min(i + 3, len(names) - 1)]
    if i % 5 == 0 and os.path.exists(ahead): open(ahead, 'a').write(f'appended at {i}')
    if i % 7 == 0: open(ahead, 'w').write(f'rewritten at {i}')
    if i % 11 == 0 and os.path.exists(ahead): os.truncate(ahead, 7)
    if i % 13 == 0: os.rename(names[i - 1] if os.path.exists(names[i - 1]) else ahead, ahead)
    if i % 17 == 0 and os.path.exists(ahead): os.unlink(ahead)
";

fn fill(directory: &Path) {
    std::fs::create_dir(directory).expect("a directory");
    for i in 0..FILES {
        std::fs::write(directory.join(format!("{i:03}")), format!("file {i}\n").repeat(i + 1)).expect("a file");
    }
}

fn on_slow(stage: &Stage, latency: Duration) -> elbow_testkit::slowfs::Mounted {
    stage.make_dir("slow");
    let options = SlowOptions {
        latency,
        ..SlowOptions::default()
    };
    SlowFs::mount(&stage.path("below"), &stage.path("slow"), &options).expect("slow storage")
}

fn job(stage: &Stage, command: &[&str]) -> Said {
    let on = stage.path("slow");
    let mut job = Command::new(ELBOW);
    job.args(["run", "--quiet", "--on", word(&on), "--"]).args(command);
    stage.start(&mut job).finish()
}

#[test]
fn files_that_are_read_one_after_the_other_are_fetched_together() {
    let stage = Stage::new();
    fill(&stage.path("below"));
    let slow = on_slow(&stage, Duration::from_millis(30));
    job(&stage, &["sh", "-c", "cd ../slow; ls"]).assert_code(0);
    slow.reset_counters();
    let said = job(&stage, &["sh", "-c", "cd ../slow; for f in *; do cat $f; done"]);
    let expected: String = (0..FILES).map(|i| format!("file {i}\n").repeat(i + 1)).collect();
    assert_eq!(said.assert_code(0).out, expected);
    assert!(
        slow.counters().in_service_mean > 2.0,
        "read one at a time: {:?}",
        slow.counters()
    );
}

#[test]
fn what_was_read_ahead_is_not_seen_once_it_has_changed() {
    let stage = Stage::new();
    fill(&stage.path("below"));
    fill(&stage.path("native"));
    let mut native = Command::new("python3");
    native.args(["-c", &format!("import os; os.chdir('../native')\n{READ_AND_CHANGE}")]);
    let native = stage.start(&mut native).finish();
    let slow = on_slow(&stage, Duration::from_millis(1));
    let said = job(
        &stage,
        &[
            "python3",
            "-c",
            &format!("import os; os.chdir('../slow')\n{READ_AND_CHANGE}"),
        ],
    );
    assert_eq!(said.assert_code(0).out, native.assert_code(0).out);
    slow.unmount().expect("unmounting slow storage");
    let difference = Command::new("diff")
        .arg("-r")
        .args([stage.path("native"), stage.path("below")])
        .output();
    let difference = difference.expect("diff");
    assert!(
        difference.status.success(),
        "{}",
        String::from_utf8_lossy(&difference.stdout)
    );
}
