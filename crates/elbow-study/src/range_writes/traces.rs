//! Table 2: traces of real programs on the ext2 model on the drive.
//!
//! *Range Writes* says of its cache that it is simple, and that writes are unordered and asynchronous, but not when
//! they are made. So one such cache is shown here beside that of Linux 2.6, and all others in [`plane`](super::plane).

use std::sync::Arc;

use super::claim::{Claim, NONE, SCATTER, Verdict, as_much, change};
use super::panel::{Column, Mean, Panel, PanelKind};
use super::plan::{Figure, Plan, StudyError, each};
use elbow_disk::device::Setup;
use elbow_disk::{Drive, Ps};
use elbow_ext2::{Andrew, Ext2, ModelledDisk, Options, Policy, Region, Run, Trace, Writeback};

/// Blocks of the file system: nearly all of the drive's.
const BLOCKS: u32 = 256_000;

/// When what was written goes to the disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cache {
    /// Data at once, but for a number of blocks that may be on their way, for which processes wait; all else each so many milliseconds.
    Behind {
        blocks: u64,
        each_ms: f64,
        /// Does an elevator make one request of neighbours that wait?
        merge: bool,
    },
    /// After 30 s, or when a tenth of the memory is dirty; neighbours are merged.
    Linux,
}

impl Cache {
    /// The smallest: as many blocks as the disk knows requests. For Figures 9 to 11.
    pub(super) const SMALL: Cache = Cache::Behind {
        blocks: 16,
        each_ms: 1000.0,
        merge: false,
    };
    /// One with which both gains of Table 2 come near those of *Range Writes*, for its seconds.
    pub(super) const SIMPLE: Cache = Cache::Behind {
        blocks: 64,
        each_ms: 100.0,
        merge: false,
    };
}

/// A file system of the study.
#[derive(Clone, Copy)]
pub(super) struct Files {
    pub(super) policy: Policy,
    pub(super) cache: Cache,
    pub(super) seed: u64,
}

impl Files {
    pub(super) fn system(&self) -> Result<Ext2, StudyError> {
        let linux = Options::new(BLOCKS);
        let (writeback, merge) = match self.cache {
            Cache::Linux => (linux.writeback, true),
            Cache::Behind { blocks, each_ms, merge } => (behind(blocks, each_ms), merge),
        };
        Ok(Ext2::new(Options {
            policy: self.policy,
            writeback,
            merge,
            seed: self.seed,
            ..linux
        })?)
    }

    /// Seconds of a trace until all was on the disk.
    pub(super) fn seconds(&self, drive: &Arc<Drive>, trace: &Trace) -> Result<f64, StudyError> {
        Ok(self
            .replay(ModelledDisk::new(drive, Setup::default()), self.system()?, trace)?
            .2
            .ms()
            / 1000.0)
    }

    /// The system and the disk afterwards, and how long it took until all was on the disk.
    pub(super) fn replay<'d>(
        &self,
        disk: ModelledDisk<'d>,
        fs: Ext2,
        trace: &Trace,
    ) -> Result<(Ext2, ModelledDisk<'d>, Ps), StudyError> {
        let mut run = Run::new(fs, disk);
        let report = run.replay(trace)?;
        let (fs, disk) = run.into_parts();
        Ok((fs, disk, report.elapsed))
    }
}

fn behind(blocks: u64, each_ms: f64) -> Writeback {
    Writeback {
        interval: Ps::from_ms(each_ms),
        age: Ps::ZERO,
        background_blocks: 0,
        limit_blocks: blocks,
    }
}

/// Classic allocation, and ranges within what ext2 would choose (the mini-group) or more (the group).
pub(super) const POLICIES: [(&str, Policy); 3] = [
    ("classic", Policy::Classic),
    ("range in the mini-group", Policy::Range(Region::MiniGroup)),
    ("range in the group", Policy::Range(Region::Group)),
];

/// The seconds of Table 2 of *Range Writes*, classic and with ranges.
pub(super) const PAPER: [(&str, f64, f64); 3] = [
    ("untar", 143.0, 123.1),
    ("PostMark", 29.9, 22.2),
    ("Andrew", 23.2, 23.4),
];

const CACHES: [(&str, Cache); 2] = [
    ("simple, unmerged: 64 blocks, the rest each 100 ms", Cache::SIMPLE),
    ("write-back of Linux 2.6", Cache::Linux),
];

/// Table 2.
pub(super) fn table(plan: &Plan) -> Result<Figure, StudyError> {
    let traces = [plan.untar()?, plan.postmark()?, Andrew::default().trace("/andrew")];
    let runs: Vec<(Files, &Trace)> = CACHES
        .iter()
        .flat_map(|&(_, cache)| POLICIES.iter().map(move |&(_, policy)| (cache, policy)))
        .flat_map(|(cache, policy)| traces.iter().map(move |trace| (cache, policy, trace)))
        .flat_map(|(cache, policy, trace)| plan.seeds().map(move |seed| (Files { policy, cache, seed }, trace)))
        .collect();
    let seconds = each(&runs, |(files, trace)| files.seconds(&plan.drive, trace))?;
    let means: Vec<Mean> = seconds.chunks(plan.seeds().count()).map(Mean::of).collect();
    let of = |cache: usize, policy: usize| &means[(cache * POLICIES.len() + policy) * traces.len()..][..traces.len()];
    let panels = CACHES.iter().enumerate().map(|(cache, (title, _))| {
        let columns = POLICIES.iter().enumerate();
        let columns = columns.map(|(policy, (name, _))| Column::of(*name, of(cache, policy).iter().copied()));
        Panel::new(
            *title,
            PanelKind::Bars,
            ("workload", &PAPER.map(|row| row.0)),
            "time (s)",
        )
        .with(columns.collect())
    });
    let mut panels: Vec<Panel> = panels.collect();
    let paper = [
        ("paper, classic", PAPER.map(|row| row.1)),
        ("paper, range", PAPER.map(|row| row.2)),
    ];
    panels[0]
        .columns
        .extend(paper.map(|(name, seconds)| Column::exact(name, seconds.to_vec())));
    Ok(Figure {
        name: "table2",
        title: "Workloads",
        caption: format!(
            "{} {} The cache decides these seconds, and the paper only calls it simple, with unordered and asynchronous writes. Left: nothing is \
             merged, data goes to the disk at once and processes wait while 64 blocks are on their way, metadata is written each 100 ms; \
             chosen since both gains come near the paper's, all others are in the figure \"plane\". Right: data is 30 s old before it is \
             written, and an elevator merges neighbours. A depth of 16, 1.07 ms before each request.",
            plan.tree(),
            plan.mail()
        ),
        claims: plan.with_sources(claims(
            &[0, 1].map(|cache| [0, 1, 2].map(|policy| of(cache, policy).iter().map(|of| of.mean).collect())),
        )),
        panels,
    })
}

/// By cache, policy and workload. What becomes of the gains is claimed with the [`plane`](super::plane).
fn claims(seconds: &[[Vec<f64>; 3]; 2]) -> Vec<Claim> {
    let [simple, linux] = seconds;
    let gain = |of: &[Vec<f64>; 3], at: usize| change(of[0][at], of[1][at]);
    vec![
        Claim::new(
            "Ranges do not make much difference to Andrew",
            "23.2 -> 23.4 s (Table 2)",
            format!(
                "{:.1} -> {:.1} s ({:+.1} %)",
                simple[0][2],
                simple[1][2],
                gain(simple, 2)
            ),
            gain(simple, 2).abs() <= NONE,
            ["It computes while the disk writes", SCATTER],
        ),
        Claim::new(
            "The seconds of ext2 themselves",
            "143.0, 29.9, 23.2 s (Table 2)",
            format!("{:.1}, {:.1}, {:.1} s", simple[0][0], simple[0][1], simple[0][2]),
            Verdict::together((0..3).map(|at| as_much(simple[0][at], PAPER[at].1))),
            [
                "They follow from what the paper does not say: the tree, the cache's size, when it is written",
                "They follow from what the paper does not say: the tree, the cache's size, when it is written",
            ],
        ),
        Claim::ours(
            "With the write-back of Linux 2.6 ranges lose",
            format!(
                "untar {:+.0} %, PostMark {:.2} -> {:.2} s",
                gain(linux, 0),
                linux[0][1],
                linux[1][1]
            ),
            gain(linux, 0) > 0.0,
            [
                "After 30 s the elevator has merged neighbouring files into requests of half a megabyte, which range writes of single files cannot match; and PostMark's files are gone before they are written",
                SCATTER,
            ],
        ),
    ]
}
