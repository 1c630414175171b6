//! A log on a zoned NVMe device, which qemu emulates, with the kernel's own driver and `elbow bark log`.
//!
//! Here and in no double: what the kernel reports of zones, what it makes of writes at a write pointer, of resets and of finished zones, and how many
//! zones the device lets be written in part. The machine crashes while entries are appended, and finds them when it has booted again. (The emulator keeps
//! what was written, so that what an early power cut loses is tried on the double alone.) Under `SOAK=1` also on the kernel's own double, null_blk.

use elbow_testkit::cases::is_soak;

use crate::machine::{Lab, Machine};

const ZONE: u64 = 1 << 20;
const CAPACITY: u64 = 3 << 18;
const ZONES: u64 = 12;
/// Bytes of the entries with which the zones are filled.
const ENTRY: usize = 200_000;

/// Numbers of entries that were durable, of one append after the other.
fn numbers(said: &str) -> Vec<u64> {
    let number = |line: &str| line.split('\t').next().and_then(|number| number.parse().ok());
    said.lines()
        .map(|line| number(line).unwrap_or_else(|| panic!("{line:?}")))
        .collect()
}

/// What is in the log: numbers, and the first bytes of entries.
fn entries(machine: &mut Machine) -> Vec<(u64, String)> {
    let said = machine.run("elbow bark log /dev/nvme0n1 | cut -c1-40");
    let entry = |line: &str| {
        let (number, text) = line.split_once('\t').unwrap_or_else(|| panic!("{line:?}"));
        (number.parse().expect("a number"), text.to_owned())
    };
    said.lines().map(entry).collect()
}

fn refused(machine: &mut Machine, command: &str, why: &str) {
    let ended = machine.try_run(&format!("{command} 2>&1"));
    assert!(
        ended.code != 0 && ended.said.contains(why),
        "{command}: {} {}",
        ended.code,
        ended.said
    );
}

#[test]
fn a_log_on_zones_is_found_after_its_machine_crashed() {
    let Some(lab) = Lab::new() else { return };
    let mut machine = lab.boot_zoned(ZONE, CAPACITY, ZONES);
    let queue = machine.run("cd /sys/block/nvme0n1/queue && cat zoned max_active_zones nr_zones");
    assert_eq!(
        queue.split_whitespace().collect::<Vec<_>>(),
        ["host-managed", "2", "12"]
    );
    refused(
        &mut machine,
        "elbow bark log /dev/nvme0n1",
        "no region is on this device",
    );
    refused(
        &mut machine,
        "elbow bark format /dev/nvme0n1 --size 1M",
        "elbow bark log",
    );
    machine.run("elbow bark log /dev/nvme0n1 --format");
    crash_while_appending(&mut machine);
    refused(
        &mut machine,
        "elbow bark log /dev/nvme0n1 --format",
        "something lies there",
    );
    refused(&mut machine, "elbow bark profile /dev/nvme0n1", "it is zoned");
    fill_and_free(&mut machine);
    if is_soak("a log on zones of null_blk") {
        with_a_conventional_zone(&mut machine);
    }
}

/// The kernel's own double, of which the first zone is conventional and one may be written in part: the headers are written in their place.
fn with_a_conventional_zone(machine: &mut Machine) {
    machine.run("modprobe null_blk memory_backed=1 gb=1 bs=4096 zoned=1 zone_size=4 zone_capacity=3 zone_nr_conv=1 zone_max_active=1 zone_max_open=1");
    let log = "elbow bark log /dev/nullb0";
    machine.run(&format!("{log} --format"));
    let line = "head -c 100000 /dev/zero | tr '\\0' x; echo";
    for round in 1..=2 {
        let told = machine.run(&format!(
            "i=0; while [ $i -lt 20 ]; do i=$((i + 1)); {line}; done | {log} --append"
        ));
        assert_eq!(numbers(&told).len(), 20);
        let found = machine.run(&format!("{log} | cut -f1"));
        assert!(
            found.ends_with(&told) && numbers(&found).len() == 20 * round,
            "round {round}: {found}"
        );
    }
    let zones = machine.run("cat /sys/block/nullb0/queue/max_active_zones");
    assert_eq!(zones.trim(), "1");
}

/// All that was told to be durable is there, in order and without a gap, and nothing that was not appended.
fn crash_while_appending(machine: &mut Machine) {
    let appending = machine.start(
        "i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); echo entry $i; done | elbow bark log /dev/nvme0n1 --append > /run/told",
    );
    machine.wait_during(appending, "[ $(cat /run/told 2>/dev/null | wc -l) -ge 20 ]");
    let told = numbers(&machine.run("cat /run/told"));
    machine.crash();
    let found = entries(machine);
    assert!(
        told.len() >= 20 && found.len() >= told.len() && found.len() < 5000,
        "{} of {}",
        found.len(),
        told.len()
    );
    for (index, (number, text)) in found.iter().enumerate() {
        assert_eq!(*text, format!("entry {}", index + 1));
        assert!(told.get(index).is_none_or(|told| told == number), "{number}");
    }
    let boots = machine.run("cut -d' ' -f1 /proc/uptime; ls /run");
    assert!(!boots.contains("told"), "it has booted again: {boots}");
}

/// Round and round: a full log is refused, truncated, and goes on in zones that were reset.
fn fill_and_free(machine: &mut Machine) {
    let line = format!("head -c {ENTRY} /dev/zero | tr '\\0' x; echo");
    let fill = format!(
        "i=0; while [ $i -lt 60 ]; do i=$((i + 1)); {line}; done | elbow bark log /dev/nvme0n1 --append 2>/run/why"
    );
    let mut all = 0;
    for _ in 0..3 {
        let ended = machine.try_run(&format!("{fill}; code=$?; cat /run/why >&2; exit $code"));
        assert!(
            ended.code != 0 && ended.said.contains("the log is full"),
            "{}: {}",
            ended.code,
            ended.said
        );
        let written: Vec<u64> = ended.said.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(written.len() > 10, "{}", ended.said);
        all += written.len();
        let kept = written[written.len() - 3];
        machine.run(&format!("elbow bark log /dev/nvme0n1 --truncate {kept}"));
        let left: Vec<u64> = entries(machine).into_iter().map(|(number, _)| number).collect();
        assert_eq!(left, written[written.len() - 3..]);
    }
    assert!(
        all * ENTRY > (ZONES * CAPACITY) as usize,
        "{all} entries: zones were written again"
    );
    machine.crash();
    assert_eq!(entries(machine).len(), 3);
}
