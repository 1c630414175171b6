//! Figures 9 to 11: files of 4 KiB made in one directory, by the ext2 model on the drive.

use std::sync::Arc;

use super::claim::{SCATTER, Verdict, as_much, change};
use super::traces::{Cache, Files, POLICIES};
use super::{Claim, Figure, Panel, PanelKind, Plan, StudyError, each, labels};
use elbow_disk::Drive;
use elbow_ext2::{Action, BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, Ext2, MINI_GROUPS, Policy, Purpose, SmallFiles};

const DIRECTORY: &str = "/small";
const FILES: u32 = 1000;
const BYTES: u64 = 4096;

/// One run of the benchmark.
#[derive(Clone, Copy)]
struct Case {
    policy: Policy,
    processes: u32,
    /// Part of the group in use before, in percent, and in runs of how many blocks.
    full: u32,
    run_blocks: u32,
    seed: u64,
}

/// What came of it.
struct Made {
    /// Time per write of a file's data.
    write_ms: f64,
    /// Files by mini-group.
    places: Vec<f64>,
}

impl Case {
    fn files(&self) -> Files {
        Files {
            policy: self.policy,
            cache: Cache::Behind,
            seed: self.seed,
        }
    }

    fn run(&self, drive: &Arc<Drive>) -> Result<Made, StudyError> {
        let mut fs = self.files().system()?;
        fs.apply(0, &Action::Mkdir(DIRECTORY.into()))?;
        let group = fs.group_of(DIRECTORY)?;
        if self.full > 0 {
            fs.occupy(group, f64::from(self.full) / 100.0, self.run_blocks)?;
        }
        let small = SmallFiles {
            files: FILES,
            bytes: BYTES,
            processes: self.processes,
        };
        let (fs, disk, _) = self.files().replay(drive, fs, &small.trace(DIRECTORY))?;
        let data = disk.writes(Purpose::Data);
        Ok(Made {
            write_ms: data.time().ms() / data.requests as f64,
            places: by_mini_group(&fs)?,
        })
    }
}

fn by_mini_group(fs: &Ext2) -> Result<Vec<f64>, StudyError> {
    let mut files = vec![0.0; MINI_GROUPS as usize];
    for file in 0..FILES {
        if let Some(&Some(place)) = fs.places(&format!("{DIRECTORY}/{file}"))?.first() {
            files[(place % BLOCKS_PER_GROUP / BLOCKS_PER_MINI_GROUP) as usize] += 1.0;
        }
    }
    Ok(files)
}

impl Plan {
    /// Means over some seeds: which blocks are in use is chance.
    fn write_ms(&self, cases: &[Case]) -> Result<Vec<f64>, StudyError> {
        let seeds = if self.quick { 1 } else { 8 };
        let runs: Vec<Case> = cases
            .iter()
            .flat_map(|&case| {
                (0..seeds).map(move |step| Case {
                    seed: self.seed + step,
                    ..case
                })
            })
            .collect();
        let times = each(&runs, |case| Ok(case.run(&self.drive)?.write_ms))?;
        Ok(times
            .chunks(seeds as usize)
            .map(|times| times.iter().sum::<f64>() / times.len() as f64)
            .collect())
    }

    fn case(&self, policy: Policy, processes: u32) -> Case {
        Case {
            policy,
            processes,
            full: 0,
            run_blocks: 1,
            seed: self.seed,
        }
    }
}

const CAPTION: &str = "1000 files of 4 KiB in one directory, a depth of 16, 1.07 ms before each request; data is written as soon as it is \
    in the cache, which holds 16 blocks, the rest each second. Time per write of data.";

/// Figure 9.
pub(super) fn creation(plan: &Plan) -> Result<Figure, StudyError> {
    let processes = [1, 2, 4, 8, 16];
    let cases: Vec<Case> = POLICIES
        .iter()
        .flat_map(|&(_, policy)| processes.map(|count| plan.case(policy, count)))
        .collect();
    let times = plan.write_ms(&cases)?;
    let of = |policy: usize| &times[policy * processes.len()..][..processes.len()];
    let gain = |policy: usize, at: usize| change(of(0)[at], of(policy)[at]);
    let claims = vec![
        Claim::new(
            "One process gains hardly anything",
            "about 0",
            format!("{:.2} -> {:.2} ms ({:+.1} %)", of(0)[0], of(1)[0], gain(1, 0)),
            gain(1, 0).abs() < 8.0,
            [
                "Its files lie one behind the other, and of 16 neighbours in the queue one is as near as the nearest free place",
                SCATTER,
            ],
        ),
        Claim::new(
            "Many processes gain a lot",
            "seek and rotation much shorter",
            format!(
                "{:.2} -> {:.2} ms ({:+.0} %) in mini-groups, {:.2} ({:+.0} %) in the group, 16 processes",
                of(0)[4],
                of(1)[4],
                gain(1, 4),
                of(2)[4],
                gain(2, 4)
            ),
            gain(1, 4) < -25.0,
            [
                "The queue holds one file of each mini-group: without ranges each costs a seek and a rotation",
                SCATTER,
            ],
        ),
    ];
    Ok(Figure {
        name: "9",
        title: "Small files in an empty group",
        caption: format!(
            "{CAPTION} The paper has one and many processes; how many is not said where we could read it."
        ),
        panels: vec![Panel {
            title: "empty group".into(),
            kind: PanelKind::Bars,
            x: ("processes", labels(&processes)),
            y: "ms per write",
            columns: POLICIES
                .iter()
                .enumerate()
                .map(|(at, (name, _))| ((*name).to_owned(), of(at).to_vec()))
                .collect(),
        }],
        claims,
    })
}

/// Figure 10.
pub(super) fn placement(plan: &Plan) -> Result<Figure, StudyError> {
    let cases: Vec<Case> = [1, 16]
        .iter()
        .flat_map(|&count| POLICIES[..2].iter().map(move |&(_, policy)| plan.case(policy, count)))
        .collect();
    let made = each(&cases, |case| Ok(case.run(&plan.drive)?.places))?;
    let panel = |(title, at): (&str, usize)| Panel {
        title: title.into(),
        kind: PanelKind::Bars,
        x: ("mini-group", labels(&(0..MINI_GROUPS).collect::<Vec<_>>())),
        y: "files",
        columns: (0..2)
            .map(|policy| (POLICIES[policy].0.to_owned(), made[at + policy].clone()))
            .collect(),
    };
    let moved = |at: usize| {
        made[at]
            .iter()
            .zip(&made[at + 1])
            .map(|(classic, range)| (classic - range).abs())
            .sum::<f64>()
            / 2.0
    };
    let claims = vec![Claim::new(
        "Ranges leave files in the mini-groups in which ext2 puts them",
        "closely",
        format!(
            "{:.0} of 1000 files in another with one process, {:.0} with 16",
            moved(0),
            moved(2)
        ),
        moved(0) < 50.0 && moved(2) < 50.0,
        [
            "The targets are the free blocks of the mini-group of the process",
            SCATTER,
        ],
    )];
    Ok(Figure {
        name: "10",
        title: "Where small files lie",
        caption: "The files of Figure 9, by the mini-group of their block.".into(),
        panels: vec![panel(("1 process", 0)), panel(("16 processes", 2))],
        claims,
    })
}

/// In how long runs a group was filled; *Range Writes* does not say.
const FILLS: [(&str, u32); 3] = [("single blocks", 1), ("runs of 4 blocks", 4), ("runs of 8 blocks", 8)];

/// Figure 11.
pub(super) fn fullness(plan: &Plan) -> Result<Figure, StudyError> {
    let full: Vec<u32> = (0..10).map(|tenth| tenth * 10).collect();
    let case = |run_blocks, policy, &full: &u32| Case {
        full,
        run_blocks,
        ..plan.case(policy, 1)
    };
    let cases: Vec<Case> = FILLS
        .iter()
        .flat_map(|&(_, run)| POLICIES[..2].iter().map(move |&(_, policy)| (run, policy)))
        .flat_map(|(run, policy)| full.iter().map(move |full| case(run, policy, full)))
        .collect();
    let times = plan.write_ms(&cases)?;
    let of = |fill: usize, policy: usize| &times[(fill * 2 + policy) * full.len()..][..full.len()];
    let panel = |(fill, (title, _)): (usize, &(&str, u32))| Panel {
        title: format!("filled by {title}"),
        kind: PanelKind::Lines,
        x: ("percent full", labels(&full)),
        y: "ms per write",
        columns: (0..2)
            .map(|policy| (POLICIES[policy].0.to_owned(), of(fill, policy).to_vec()))
            .collect(),
    };
    let gain = |fill: usize, at: usize| -change(of(fill, 0)[at], of(fill, 1)[at]);
    let slower = |fill: usize| change(of(fill, 1)[0], of(fill, 1)[9]);
    let each_fill = |of: &dyn Fn(usize) -> String| (0..FILLS.len()).map(of).collect::<Vec<_>>().join(", ");
    let mean = |fill: usize| (5..10).map(|at| gain(fill, at)).sum::<f64>() / 5.0;
    let within = |fill: usize| {
        let gains: Vec<f64> = (5..10).map(|at| gain(fill, at)).collect();
        [f64::min, f64::max].map(|pick| gains.iter().copied().reduce(pick).expect("five"))
    };
    let constant = |fill: usize| within(fill)[0] > 14.0 && within(fill)[1] < 30.0;
    let claims = vec![
        Claim::new(
            "From half full on, ranges are about 20 % faster",
            "20 %",
            format!(
                "{} %, by single blocks, runs of 4, of 8; {} % on average from there on",
                each_fill(&|fill| format!("{:.0}", gain(fill, 5))),
                each_fill(&|fill| format!("{:.0}", mean(fill)))
            ),
            (0..FILLS.len()).all(|fill| (14.0..27.0).contains(&gain(fill, 5)))
                && (0..FILLS.len()).all(|fill| (14.0..27.0).contains(&mean(fill))),
            [
                "A mini-group that is half full has no room for 1000 files, and the nearest free place is no neighbour any more",
                SCATTER,
            ],
        ),
        Claim::new(
            "The gain stays about constant as the group fills",
            "20 %",
            format!(
                "within {} %",
                each_fill(&|fill| format!("{:.0}-{:.0}", within(fill)[0], within(fill)[1]))
            ),
            Verdict::together((0..FILLS.len()).map(|fill| constant(fill).into())),
            [
                "It depends on how the group was filled: by single blocks it falls, since a track then has hardly a place to choose from, by runs of 8 it rises",
                "It depends on how the group was filled: by single blocks it falls, by longer runs it rises",
            ],
        ),
        Claim::new(
            "Ranges are about 70 % slower in a full group than in an empty one",
            "70 %",
            format!("{} %, at 90 %", each_fill(&|fill| format!("{:.0}", slower(fill)))),
            Verdict::together((0..FILLS.len()).map(|fill| as_much(slower(fill), 70.0))),
            [
                "Where it was filled by single blocks: fewer places, further away. With longer runs several are left side by side, and it is less",
                SCATTER,
            ],
        ),
    ];
    Ok(Figure {
        name: "11",
        title: "Small files in a fuller group",
        caption: format!(
            "{CAPTION} One process. What fills the group before lies at random; the paper does not say in what pieces, which matters."
        ),
        panels: FILLS.iter().enumerate().map(panel).collect(),
        claims,
    })
}
