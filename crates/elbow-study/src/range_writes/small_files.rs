//! Figures 9 to 11: files of 4 KiB made in one directory, by the ext2 model on the drive.

use std::sync::Arc;

use super::claim::{Claim, LITTLE, SCATTER, Verdict, as_much, change};
use super::panel::{Column, Mean, Panel, PanelKind, Scale};
use super::plan::{Figure, Plan, StudyError, each};
use super::traces::{Cache, Files, POLICIES};
use elbow_disk::device::Setup;
use elbow_disk::{Drive, Ps};
use elbow_ext2::{
    Action, BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, Ext2, MINI_GROUPS, ModelledDisk, Policy, Purpose, SmallFiles, Work,
};

const DIRECTORY: &str = "/small";
const FILES: u32 = 1000;
const BYTES: u64 = 4096;

/// One run of the benchmark.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) policy: Policy,
    pub(super) processes: u32,
    /// Part of the group in use before, in percent, and in runs of how many blocks.
    pub(super) full: u32,
    pub(super) run_blocks: u32,
    /// Does the disk take the first place of a range?
    pub(super) first_choice: bool,
    pub(super) seed: u64,
}

/// What came of it.
struct Made {
    /// What writes of the files' data took.
    data: Work,
    /// Files by mini-group.
    places: Vec<f64>,
}

impl Case {
    fn files(&self) -> Files {
        Files {
            policy: self.policy,
            cache: Cache::SMALL,
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
        let mut disk = ModelledDisk::new(drive, Setup::default());
        disk.first_choice = self.first_choice;
        let (fs, disk, _) = self.files().replay(disk, fs, &small.trace(DIRECTORY))?;
        Ok(Made {
            data: disk.writes(Purpose::Data),
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

/// Time per write of data, with some seeds.
#[derive(Debug)]
pub(super) struct Times(Vec<Work>);

impl Times {
    fn over(&self, part: fn(&Work) -> Ps) -> Mean {
        let of = |work: &Work| part(work).ms() / work.requests as f64;
        Mean::of(&self.0.iter().map(of).collect::<Vec<_>>())
    }

    pub(super) fn write(&self) -> Mean {
        self.over(Work::time)
    }

    fn ms(&self) -> f64 {
        self.write().mean
    }

    fn positioning(&self) -> f64 {
        self.over(|work| work.seek + work.rotation).mean
    }
}

/// A part of the time, and its name.
type Part = (&'static str, fn(&Work) -> Ps);
const PARTS: [Part; 4] = [
    ("seek", |work| work.seek),
    ("rotation", |work| work.rotation),
    ("transfer", |work| work.transfer),
    ("overhead", |work| work.overhead),
];

impl Plan {
    /// Times of cases: which blocks are in use is chance, so each has some seeds.
    pub(super) fn write_times(&self, cases: &[Case]) -> Result<Vec<Times>, StudyError> {
        let runs: Vec<Case> = cases
            .iter()
            .flat_map(|&case| self.seeds().map(move |seed| Case { seed, ..case }))
            .collect();
        let works = each(&runs, |case| Ok(case.run(&self.drive)?.data))?;
        Ok(works
            .chunks(self.seeds().count())
            .map(|works| Times(works.to_vec()))
            .collect())
    }

    pub(super) fn case(&self, policy: Policy, processes: u32) -> Case {
        Case {
            policy,
            processes,
            full: 0,
            run_blocks: 1,
            first_choice: false,
            seed: self.seed,
        }
    }
}

pub(super) const CAPTION: &str = "1000 files of 4 KiB in one directory, a depth of 16, 1.07 ms before each request; data is written as soon as it is \
    in the cache, which holds 16 blocks, the rest each second; nothing is merged. Time per write of data.";

/// Figure 9.
pub(super) fn creation(plan: &Plan) -> Result<Figure, StudyError> {
    let processes = [1, 2, 4, 8, 16];
    let cases: Vec<Case> = POLICIES
        .iter()
        .flat_map(|&(_, policy)| processes.map(|count| plan.case(policy, count)))
        .collect();
    let times = plan.write_times(&cases)?;
    let of = |policy: usize| &times[policy * processes.len()..][..processes.len()];
    let ms = |policy: usize, at: usize| of(policy)[at].ms();
    let gain = |policy: usize, at: usize| change(ms(0, at), ms(policy, at));
    let positioning = |policy: usize| of(policy)[4].positioning();
    let panel = |(policy, (name, _)): (usize, &(&str, Policy))| {
        Panel::new(
            *name,
            PanelKind::Stacked,
            ("processes", &processes),
            "time per write (ms)",
        )
        .with(parts(of(policy)))
    };
    let claims = vec![
        Claim::new(
            "One process gains hardly anything",
            "does not help much (Figure 9)",
            format!("{:.2} -> {:.2} ms ({:+.1} %)", ms(0, 0), ms(1, 0), gain(1, 0)),
            gain(1, 0).abs() < LITTLE,
            [
                "Its files lie one behind the other, and of 16 neighbours in the queue one is as near as the nearest free place",
                SCATTER,
            ],
        ),
        Claim::new(
            "Many processes gain a lot",
            "seek and rotation reduced substantially (Figure 9)",
            format!(
                "{:.2} -> {:.2} ms ({:+.0} %) in mini-groups, of which seek and rotation {:.2} -> {:.2}; {:.2} ({:+.0} %) in the group, 16 processes",
                ms(0, 4),
                ms(1, 4),
                gain(1, 4),
                positioning(0),
                positioning(1),
                ms(2, 4),
                gain(2, 4)
            ),
            gain(1, 4) < -25.0 && change(positioning(0), positioning(1)) < -25.0,
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
        panels: POLICIES.iter().enumerate().map(panel).collect(),
        claims,
    })
}

/// The parts of the time, one on the other.
fn parts(of: &[Times]) -> Vec<Column> {
    let column = |(name, part): Part| Column::of(name, of.iter().map(|of| of.over(part)));
    let mut columns: Vec<Column> = PARTS.into_iter().map(column).collect();
    columns[3].intervals = of.iter().map(|of| of.write().half_width).collect();
    columns
}

/// Figure 10.
pub(super) fn placement(plan: &Plan) -> Result<Figure, StudyError> {
    let cases: Vec<Case> = [1, 16]
        .iter()
        .flat_map(|&count| POLICIES[..2].iter().map(move |&(_, policy)| plan.case(policy, count)))
        .collect();
    let made = each(&cases, |case| Ok(case.run(&plan.drive)?.places))?;
    let mini_groups: Vec<u32> = (0..MINI_GROUPS).collect();
    let panel = |(title, at): (&str, usize)| {
        let columns = (0..2).map(|policy| Column::exact(POLICIES[policy].0, made[at + policy].clone()));
        Panel::new(title, PanelKind::Bars, ("mini-group", &mini_groups), "files").with(columns.collect())
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
        "closely follow (Figure 10)",
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
        caption: "The files of Figure 9, by the mini-group of their block; one seed.".into(),
        panels: vec![panel(("1 process", 0)), panel(("16 processes", 2))],
        claims,
    })
}

/// In how long runs a group was filled; *Range Writes* does not say.
pub(super) const FILLS: [(&str, u32); 3] = [("single blocks", 1), ("runs of 4 blocks", 4), ("runs of 8 blocks", 8)];

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
    let times = plan.write_times(&cases)?;
    let of = |fill: usize, policy: usize| &times[(fill * 2 + policy) * full.len()..][..full.len()];
    let ms = |fill: usize, policy: usize, at: usize| of(fill, policy)[at].ms();
    let panel = |title: String, unit: &'static str, columns: Vec<Column>| Panel {
        scale: Scale::Linear,
        ..Panel::new(title, PanelKind::Lines, ("group in use before (%)", &full), unit).with(columns)
    };
    let whole = |(fill, (title, _)): (usize, &(&str, u32))| {
        let column = |policy: usize| Column::of(POLICIES[policy].0, of(fill, policy).iter().map(Times::write));
        panel(
            format!("filled by {title}"),
            "time per write (ms)",
            [0, 1].map(column).to_vec(),
        )
    };
    let split = |(fill, (title, _)): (usize, &(&str, u32))| {
        let column = |policy: usize, (name, part): Part| {
            let name = format!("{name}, {}", ["classic", "range"][policy]);
            Column::of(name, of(fill, policy).iter().map(|of| of.over(part)))
        };
        let columns = [0, 1].map(|policy| [0, 1].map(|part| column(policy, PARTS[part])));
        panel(
            format!("filled by {title}: seek and rotation"),
            "part of that time (ms)",
            columns.concat(),
        )
    };
    let fills = || FILLS.iter().enumerate();
    let gain = |fill: usize, at: usize| -change(ms(fill, 0, at), ms(fill, 1, at));
    let slower = |fill: usize| change(ms(fill, 1, 0), ms(fill, 1, 9));
    let rises = |fill: usize, policy: usize| rises(&(0..10).map(|at| ms(fill, policy, at)).collect::<Vec<_>>());
    let each_fill = |of: &dyn Fn(usize) -> String| (0..FILLS.len()).map(of).collect::<Vec<_>>().join(", ");
    let mean = |fill: usize| (5..10).map(|at| gain(fill, at)).sum::<f64>() / 5.0;
    let within = |fill: usize| {
        let gains: Vec<f64> = (5..10).map(|at| gain(fill, at)).collect();
        [f64::min, f64::max].map(|pick| gains.iter().copied().reduce(pick).expect("five"))
    };
    let is_20 = |gains: &[f64]| Verdict::together(gains.iter().map(|&gain| as_much(gain, 20.0)));
    let half = [0, 1, 2].map(|fill| gain(fill, 5));
    let from_half = |fill: usize| (5..10).map(|at| gain(fill, at)).collect::<Vec<_>>();
    let claims = vec![
        Claim::new(
            "By the time the group is half full, ranges are about 20 % faster",
            "roughly 20 % (section 4.3, Figure 11)",
            format!(
                "{} %, by single blocks, runs of 4, of 8; {} % on average from there on",
                each_fill(&|fill| format!("{:.0}", gain(fill, 5))),
                each_fill(&|fill| format!("{:.0}", mean(fill)))
            ),
            is_20(&half),
            [
                "A mini-group that is half full has no room for 1000 files, and the nearest free place is no neighbour any more",
                SCATTER,
            ],
        ),
        Claim::new(
            "The gain stays about constant as the group fills",
            "roughly constant (section 4.3, Figure 11)",
            format!(
                "within {} %",
                each_fill(&|fill| format!("{:.0}-{:.0}", within(fill)[0], within(fill)[1]))
            ),
            Verdict::together((0..FILLS.len()).map(|fill| is_20(&from_half(fill)))),
            [
                "It depends on how the group was filled: by single blocks it falls, since a track then has hardly a place to choose from, by runs of 8 it rises",
                "It depends on how the group was filled: by single blocks it falls, by longer runs it rises",
            ],
        ),
        Claim::new(
            "The average write time of both increases as the group fills",
            "increases (section 4.3, Figure 11)",
            format!(
                "from empty to 90 % full: classic {} ms, ranges {} ms",
                each_fill(&|fill| format!("{:.1} -> {:.1}", ms(fill, 0, 0), ms(fill, 0, 9))),
                each_fill(&|fill| format!("{:.1} -> {:.1}", ms(fill, 1, 0), ms(fill, 1, 9)))
            ),
            Verdict::together((0..FILLS.len()).flat_map(|fill| [0, 1].map(|policy| rises(fill, policy).into()))),
            [
                "Where it was filled by single blocks classic writes are slowest before the group is half full: their places are torn apart soonest there",
                "They do not rise from step to step",
            ],
        ),
        Claim::new(
            "Ranges are about 70 % slower in a full group than in an empty one",
            "roughly 70 % (section 4.3, Figure 11)",
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
            "{CAPTION} One process. What fills the group before lies at random; the paper does not say in what pieces, which matters. Below: where the time goes, but for transfer and overhead."
        ),
        panels: fills().map(whole).chain(fills().map(split)).collect(),
        claims,
    })
}

/// Does a time go up, step by step but for little?
fn rises(of: &[f64]) -> bool {
    let steps = of.windows(2).all(|pair| change(pair[0], pair[1]) > -LITTLE);
    steps && of.last() > of.first()
}

#[cfg(test)]
mod tests {
    use super::rises;

    #[test]
    fn what_rises_may_fall_a_little_on_the_way() {
        assert!(rises(&[2.0, 3.0, 2.9, 4.0]));
        assert!(!rises(&[2.0, 5.9, 4.5, 4.8]), "its top is on the way");
        assert!(!rises(&[2.0, 1.95, 1.9]));
    }
}
