//! Parameter files of DiskSim, written for these tests: what each parameter becomes, and what is said of those that become nothing.

use std::io;

use elbow_disk::{Arm, Drive, Lbn, Ps, SectorAddress, import};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;

const SPEC: &str = "disksim_disk TOY {
   Model = source toy.model,   # beside it
   Per-request overhead time = 0.0,
   Time scale for overheads = 1.0,
   Bulk sector transfer time = 0.05,
   Allow sneaky full read hits = 1,
   Allow read hits on write data = 0,
   Max queue length = 1,
   Scheduler = disksim_ioqueue { Scheduling policy = 1 },
   Number of buffer segments = 4,
   Maximum number of write segments = 2,
   Segment size (in blks) = 100,
   Use separate write segment = 1,
   High (read) water mark = 0.25,
   Enable caching in buffer = 1,
   Buffer continuous read = 3,
   Maximum read-ahead (blks) = 60,
   Read-ahead on idle hit = 1,
   Stop prefetch in sector = 1,
   Fast write level = 0,
   Read hit over. after read = 0.1,
   Read hit over. after write = 0.2,
   Read miss over. after read = 0.3,
   Read miss over. after write = 0.3,
   Write hit over. after read = 0.4,
   Write hit over. after write = 0.5,
   Write miss over. after read = 0.6,
   Write miss over. after write = 0.7,
   Read completion overhead = 0.01,
   Write completion overhead = 0.02,
   Data preparation overhead = 0.03,
   First reselect overhead = 0.04,
   Other reselect overhead = 0.05,
   Read disconnect afterread = 0.06,
   Read disconnect afterwrite = 0.07,
   Write disconnect overhead = 0.08,
   Extra write disconnect = 0,
   Minimum seek delay = 0.09
}
";

const MODEL: &str = "dm_disk TOY_model {
   Number of data surfaces = 2,
   Number of cylinders = 20,
   Block count = 400,
   Layout Model = dm_layout_g1 {
      LBN-to-PBN mapping scheme = 0,
      Sparing scheme used = 9,
      Rangesize for sparing = 1,
      Zones = [
         dm_layout_g1_zone { First cylinder number = 0, Last cylinder number = 4, Blocks per track = 20, Offset of first block = 3.0,
            Empty space at zone front = 0, Skew for track switch = 4.0, Skew for cylinder switch = 7.0, Number of spares = 5,
            slips = [ 30, 11 ], defects = [ 7, 7 ] },
         dm_layout_g1_zone { First cylinder number = 6, Last cylinder number = 19, Blocks per track = 10, Number of spares = 0 }
      ]
   },
   Mechanical Model = dm_mech_g1 {
      Access time type = trackSwitchPlusRotation,
      Seek type = extracted,
      Full seek curve = toy.seek,
      Add. write settling delay = -0.25,
      Head switch time = 0.5,
      Rotation speed (in rpms) = 6000,
      Percent error in rpms = 0.0
   }
}
";

const SEEK: &str = "Seek distances measured: 3\n1,\t1.0\n2, 0.75\n10,   3.0\n";

const PARV: &str = "disksim_bus OUTER { type = 1, Read block transfer time = 9.0, Write block transfer time = 9.0 }
disksim_bus INNER { type = 1, Arbitration time = 0.0, Read block transfer time = 0.02, Write block transfer time = 0.08 }
source toy.diskspecs
instantiate [ bus0 ] as OUTER
instantiate [ bus1 ] as INNER
instantiate [ disk0 ] as TOY
topology disksim_iodriver driver0 [ disksim_bus bus0 [ disksim_ctlr ctlr0 [ disksim_bus bus1 [ disksim_disk disk0 [] ] ] ] ]
";

/// Imports with some text replaced, in whichever file it is.
fn import_with(changes: &[(&str, &str)]) -> Result<import::Imported, String> {
    let changed = |text: &str| {
        changes
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replacen(from, to, 1))
    };
    for (from, _) in changes {
        assert!(
            [SPEC, MODEL, SEEK, PARV].iter().any(|text| text.contains(from)),
            "{from}"
        );
    }
    let mut read = |name: &str| match name {
        "toy.diskspecs" => Ok(changed(SPEC)),
        "toy.model" => Ok(changed(MODEL)),
        "toy.seek" => Ok(changed(SEEK)),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    import::disksim("toy.parv", &changed(PARV), None, &mut read).map_err(|error| error.to_string())
}

fn drive_with(changes: &[(&str, &str)]) -> Drive {
    let imported = import_with(changes).unwrap_or_else(|error| panic!("{changes:?}: {error}"));
    Drive::parse("toy", &imported.toml).unwrap_or_else(|error| panic!("{error}\n{}", imported.toml))
}

/// The lines of the description that come with a change, and those that go.
fn difference(changes: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let lines = |imported: import::Imported| imported.toml.lines().map(str::to_owned).collect::<Vec<_>>();
    let (before, after) = (
        lines(import_with(&[]).expect("sound")),
        lines(import_with(changes).expect("sound")),
    );
    let only =
        |these: &[String], others: &[String]| these.iter().filter(|line| !others.contains(line)).cloned().collect();
    (only(&after, &before), only(&before, &after))
}

#[test]
fn a_drive_is_taken_over_whole() {
    let imported = import_with(&[]).expect("sound");
    assert_eq!(imported.notes, [] as [&str; 0]);
    for line in [
        "name = \"TOY\"",
        "rotation_ms = 10",
        "write_settle_ms = -0.25",
        "read_hit_ms = 0.1",
        "read_hit_after_write_ms = 0.2",
        "read_miss_ms = 0.3",
        "write_ms = 0.6",
        "write_after_write_ms = 0.7",
        "reselect_ms = 0.04",
        "read_disconnect_after_write_ms = 0.07",
        "write_seek_min_ms = 0.09",
        "read_sector_ms = 0.05",
        "write_sector_ms = 0.08",
        "segments = 4",
        "write_segments = 1",
        "read_water_mark = 0.25",
        "read_ahead_sectors = 60",
        "gap_cylinders = 1",
    ] {
        assert!(
            imported.toml.lines().any(|other| other == line),
            "{line}\n{}",
            imported.toml
        );
    }
    let drive = drive_with(&[]);
    assert_eq!((drive.heads(), drive.cylinders(), drive.sectors()), (2, 20, 195 + 280));
    let seek = |to: u32, write| drive.arm_time(Arm::default(), Arm { cylinder: to, head: 0 }, write);
    assert_eq!(
        (seek(1, false), seek(2, false), seek(6, true)),
        (Ps::from_ms(1.0), Ps::from_ms(0.75), Ps::from_ms(1.875 - 0.25))
    );
}

/// Slipped sectors take the place of spares, and the head finds each where it is.
#[test]
fn sectors_lie_around_what_is_slipped() {
    let drive = drive_with(&[]);
    let place = |lbn: u64| {
        let SectorAddress { arm, sector } = drive.locate(Lbn(lbn));
        (arm.cylinder, arm.head, sector)
    };
    assert_eq!(
        [place(0), place(10), place(11), place(18), place(19)],
        [(0, 0, 0), (0, 0, 10), (0, 0, 12), (0, 0, 19), (0, 1, 0)]
    );
    assert_eq!(
        [place(28), place(29), place(194), place(195)],
        [(0, 1, 9), (0, 1, 11), (4, 1, 16), (6, 0, 0)]
    );
    let turned = |lbn: u64| drive.angle(drive.locate(Lbn(lbn))).ms();
    assert_eq!(
        (turned(0), turned(11), turned(19)),
        (1.5, 7.5, 3.5),
        "offset 3, then 12 sectors, then a skew of 4"
    );
    for lbn in 0..drive.sectors() {
        assert_eq!(drive.lbn_at(drive.locate(Lbn(lbn))), Some(Lbn(lbn)));
    }
    let slipped = SectorAddress {
        arm: Arm { cylinder: 0, head: 0 },
        sector: 11,
    };
    assert_eq!(drive.lbn_at(slipped), None);
    // Reading across it takes the time in which it passes.
    let time = |lbn, sectors| {
        drive
            .service(Arm::default(), Ps::ZERO, Lbn(lbn), sectors, false)
            .transfer
            .ms()
    };
    assert_eq!((time(8, 3), time(8, 4), time(9, 3)), (1.5, 2.5, 2.0));
}

#[test]
fn every_scheme_of_sparing_holds_as_many_sectors_as_in_disksim() {
    // Of zone 0 (10 tracks of 20, 5 spares, 2 slips) by DiskSim's own sums; zone 1 has 280 and, in schemes without a count, no spares.
    let cases = [
        (0, 200),
        (2, 200 - 25),
        (3, 200 - 50),
        (4, 200 - 25 - 2),
        (5, 200 - 25),
        (7, 200 - 2),
        (8, 200 - 25),
        (9, 195),
        (10, 193),
    ];
    for (scheme, sectors) in cases {
        let wanted = format!("Sparing scheme used = {scheme}");
        let imported = import_with(&[("Sparing scheme used = 9", &wanted)]).expect("sound");
        let drive = Drive::parse("toy", &imported.toml).expect("sound");
        let slipped = if scheme == 0 { 2 } else { 0 };
        assert_eq!(drive.sectors(), sectors - slipped + 280, "{scheme}");
        assert_eq!(
            imported.notes.iter().any(|note| note.contains("slips turn")),
            (2..=6).contains(&scheme),
            "{scheme}"
        );
    }
    let ranges = drive_with(&[
        ("Sparing scheme used = 9", "Sparing scheme used = 8"),
        ("Rangesize for sparing = 1", "Rangesize for sparing = 2"),
    ]);
    assert_eq!(
        ranges.sectors(),
        200 - 2 * 5 + 280,
        "the last cylinder is no whole range"
    );
    let tracks = drive_with(&[
        ("Sparing scheme used = 9", "Sparing scheme used = 1"),
        ("slips = [ 30, 11 ]", "slips = [ 3 ]"),
        ("Empty space at zone front = 0", "Empty space at zone front = 40"),
    ]);
    assert_eq!(tracks.sectors(), 20 * (10 - 5 - 2) + 280);
}

#[test]
fn a_serpentine_turns_back_on_every_other_cylinder() {
    for (mapping, turned) in [(0, [0, 0]), (1, [0, 1]), (2, [0, 1])] {
        let drive = drive_with(&[
            ("mapping scheme = 0", &format!("mapping scheme = {mapping}")),
            ("Sparing scheme used = 9", "Sparing scheme used = 0"),
            ("slips = [ 30, 11 ]", "slips = []"),
        ]);
        let head = |lbn: u64| drive.locate(Lbn(lbn)).arm.head;
        assert_eq!([head(0), head(40)], turned, "{mapping}");
        // The angle follows the order of the sectors, not the head.
        let plain = drive_with(&[
            ("Sparing scheme used = 9", "Sparing scheme used = 0"),
            ("slips = [ 30, 11 ]", "slips = []"),
        ]);
        for lbn in [0, 40, 60, 85, 250] {
            let angle = |drive: &Drive| drive.angle(drive.locate(Lbn(lbn)));
            assert_eq!(angle(&drive), angle(&plain), "{mapping}, {lbn}");
        }
    }
}

#[test]
fn every_parameter_of_the_electronics_has_its_key() {
    let on = |key: &str, from: &str, to: &str| (format!("{key} = {from}"), format!("{key} = {to}"));
    let cases: [((String, String), &[&str]); 13] = [
        (
            on("Fast write level", "0", "2"),
            &[
                "[write_cache]",
                "segments = 1",
                "command_ms = 0.4",
                "command_after_write_ms = 0.5",
            ],
        ),
        (
            on("Allow sneaky full read hits", "1", "0"),
            &["hits_wait_for_writes = true"],
        ),
        (
            on("Buffer continuous read", "3", "1"),
            &["read_ahead_until = \"track\""],
        ),
        (
            on("Buffer continuous read", "3", "2"),
            &["read_ahead_until = \"cylinder\""],
        ),
        (
            on("Buffer continuous read", "3", "4"),
            &["read_ahead_until = \"next-track\""],
        ),
        (on("Read-ahead on idle hit", "1", "0"), &["resume_on_hit = false"]),
        (on("Stop prefetch in sector", "1", "0"), &["stop_in_sector = false"]),
        (
            on("Minimum seek delay", "0.09", "0.09, Read any free blocks = 1"),
            &["keep_passing = true"],
        ),
        (
            on("Minimum seek delay", "0.09", "0.09, Immediate buffer read = 1"),
            &["immediate_read = true"],
        ),
        (
            on("Minimum seek delay", "0.09", "0.09, Immediate buffer write = 1"),
            &["immediate_write = true"],
        ),
        (
            on("Time scale for overheads", "1.0", "2.0"),
            &["read_miss_ms = 0.6", "write_after_write_ms = 1.4", "reselect_ms = 0.08"],
        ),
        (
            on("Maximum read-ahead (blks)", "60", "0"),
            &["read_ahead_sectors = 100"],
        ),
        (
            on("Extra write disconnect", "0", "1, Extradisc command overhead = 0.77"),
            &[
                "[command.scattered_write]",
                "command_ms = 0.77",
                "last_reselect_ms = 0.05",
                "write_start_sectors = 10",
                "long_write_sectors = 45",
            ],
        ),
    ];
    for ((from, to), expected) in cases {
        let (came, _) = difference(&[(&from, &to)]);
        for line in expected {
            // A line that another table has, too, is none of the difference.
            assert!(
                came.iter().any(|other| other == line) || line.starts_with("segments"),
                "{to}: {line} is not in {came:#?}"
            );
        }
    }
    let (_, gone) = difference(&[("Enable caching in buffer = 1", "Enable caching in buffer = 0")]);
    assert!(gone.contains(&"[cache]".to_owned()));
    let (_, gone) = difference(&[(
        "Extra write disconnect = 0",
        "Extra write disconnect = 0, Never disconnect = 1",
    )]);
    assert!(gone.contains(&"reselect_ms = 0.04".to_owned()) && gone.contains(&"write_disconnect_ms = 0.08".to_owned()));
    let shared = [
        ("Use separate write segment = 1", "Use separate write segment = 0"),
        ("read hits on write data = 0", "read hits on write data = 1"),
        (
            "Fast write level = 0",
            "Fast write level = 1, Combine seq writes = 0, Allow write prebuffering = 1",
        ),
    ];
    let (came, gone) = difference(&shared);
    for line in [
        "keep_written = true",
        "segments = 2",
        "append = false",
        "take_while_busy = true",
    ] {
        assert!(came.contains(&line.to_owned()), "{line}: {came:?}");
    }
    assert!(gone.contains(&"write_segments = 1".to_owned()));
}

#[test]
fn every_kind_of_seek_is_known() {
    let of = |kind: &str| {
        drive_with(&[(
            "Seek type = extracted",
            &format!(
                "Seek type = {kind}, Single cylinder seek time = 1.0, Average seek time = 4.0, Full strobe seek time = 9.0, HPL seek equation values = [ 5, 1.0, 0.5, 2.0, 0.125, 0.75 ], First ten seek times = [ 1, 2, 3 ]"
            ),
        )])
    };
    let seek = |kind: &str, to: u32| {
        of(kind)
            .arm_time(Arm::default(), Arm { cylinder: to, head: 0 }, false)
            .ms()
    };
    assert_eq!([seek("constant", 1), seek("constant", 19)], [4.0, 4.0]);
    assert_eq!(
        [seek("linear", 1), seek("linear", 6), seek("linear", 19)],
        [1.0, 4.0, 9.0]
    );
    assert_eq!([seek("hpl", 1), seek("hpl", 4), seek("hpl", 8)], [0.75, 2.0, 3.0]);
    assert_eq!(
        [seek("hplplus10", 1), seek("hplplus10", 3), seek("hplplus10", 4)],
        [1.0, 3.0, 2.0]
    );
    // Lee and Katz's curve has the mean, as good as 20 cylinders allow.
    let curve = of("curve");
    assert!(
        (curve.summary().seek_mean_ms - 4.0).abs() < 0.8,
        "{}",
        curve.summary().seek_mean_ms
    );
    assert_eq!(seek("curve", 1), 1.0);
}

#[test]
fn what_is_left_out_is_noted() {
    let cases = [
        (
            "Max queue length = 1",
            "Max queue length = 8",
            "`Max queue length` = 8: the drive gets one request at a time",
        ),
        (
            "Per-request overhead time = 0.0",
            "Per-request overhead time = 1.5",
            "`Per-request overhead time` = 1.5",
        ),
        (
            "Fast write level = 0",
            "Fast write level = 0, Preseeking level = 2",
            "`Preseeking level` = 2",
        ),
        (
            "Fast write level = 0",
            "Fast write level = 0, No such thing = 2",
            "`No such thing` (toy.diskspecs:20) is not known here",
        ),
        (
            "defects = [ 7, 7 ]",
            "defects = [ 7, 190, 8, 8 ]",
            "`defects` of the zone from cylinder 0 on: 1 remapped sectors",
        ),
        (
            "Skew for track switch = 4.0",
            "Skew for track switch = 4.4",
            "`Skew for track switch` = 4.4 of zone 0 to 4: taken as 4 sectors",
        ),
        (
            "Percent error in rpms = 0.0",
            "Percent error in rpms = 0.5",
            "`Percent error in rpms` = 0.5",
        ),
        (
            "instantiate [ disk0 ] as TOY",
            "instantiate [ disk1 ] as TOY",
            "no bus that the disk hangs on",
        ),
    ];
    for (from, to, expected) in cases {
        let imported = import_with(&[(from, to)]).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(
            imported.notes.iter().any(|note| note.starts_with(expected)),
            "{to}: {:?}",
            imported.notes
        );
        assert!(
            imported.toml.contains(&format!("# Left out: {expected}")),
            "{}",
            imported.toml
        );
    }
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_key() {
    let cases = [
        (
            "Blocks per track = 20",
            "Blocks per track = many",
            "toy.model:10: key `Blocks per track`: expected a number",
        ),
        (
            "First cylinder number = 6",
            "First cylinder number = 3",
            "toy.model:13: key `First cylinder number`: 3 is among",
        ),
        (
            "Sparing scheme used = 9",
            "Sparing scheme used = 77",
            "toy.model:11: key `Number of spares`: sparing scheme 77 is not known",
        ),
        (
            "dm_layout_g1 {",
            "dm_layout_g4 {",
            "toy.model:5: a layout of kind `dm_layout_g4`",
        ),
        (
            "Seek type = extracted",
            "Seek type = magic",
            "toy.model:18: key `Seek type`: `magic` is not known",
        ),
        (
            "Full seek curve = toy.seek",
            "Full seek curve = no.seek",
            "toy.model:19: cannot read `no.seek`",
        ),
        (
            "Full seek curve = toy.seek",
            "Full seek curve = ../../etc/passwd",
            "toy.model:19: `../../etc/passwd` is not beside this file",
        ),
        (
            "source toy.diskspecs",
            "source /etc/passwd",
            "toy.parv:3: `/etc/passwd` is not beside this file",
        ),
        ("2, 0.75", "2; 0.75", "toy.seek:3: expected `distance, time in ms`"),
        (
            "Rotation speed (in rpms) = 6000",
            "Rotation speed (in rpms) = 0",
            "toy.model:22: key `Rotation speed (in rpms)`: 0 turns",
        ),
        (
            "Number of data surfaces = 2",
            "Number of data surfaces = 2.5",
            "toy.model:2: key `Number of data surfaces`: 2.5 is no whole number",
        ),
        ("source toy.diskspecs", "", "toy.parv:1: there is no `disksim_disk`"),
        (
            "source toy.diskspecs",
            "source toy.diskspecs source toy.diskspecs",
            "toy.parv:1: name one of the disks there: TOY, TOY",
        ),
        // What the description's own check refuses, with its key.
        (
            "Last cylinder number = 19",
            "Last cylinder number = 99999999",
            "toy.parv, taken over:",
        ),
        ("1,\t1.0", "1, 2000.0", "toy.parv, taken over:"),
    ];
    for (from, to, expected) in cases {
        let error = import_with(&[(from, to)]).expect_err(to);
        assert!(error.starts_with(expected), "{to}: {error}");
    }
    // A file that names itself does not go on for ever.
    let error = import::disksim("a", "source a", None, &mut |_| Ok("source a".to_owned())).expect_err("endless");
    assert!(error.to_string().contains("more than 64 files"), "{error}");
}

#[test]
fn no_bytes_break_the_import() {
    for_each_seed(500, |random| {
        let texts = [PARV, SPEC, MODEL, SEEK].map(|text| {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..random.random_range(0..3) {
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..4) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes[at] = random.random(),
                    2 => drop(bytes.splice(at..at, b"9[{=,"[..random.random_range(1..5)].iter().copied())),
                    _ => drop(bytes.splice(at..(at + 4).min(bytes.len()), [])),
                }
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut read = |name: &str| match name {
            "toy.diskspecs" => Ok(texts[1].clone()),
            "toy.model" => Ok(texts[2].clone()),
            "toy.seek" => Ok(texts[3].clone()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        if let Ok(imported) = import::disksim("toy.parv", &texts[0], None, &mut read) {
            assert!(Drive::parse("toy", &imported.toml).is_ok());
        }
    });
}
