//! Table 2: traces of real programs on the ext2 model on the drive.
//!
//! *Range Writes* says of its cache that it is simple, and that writes are unordered and asynchronous, but not when
//! they are made. Two caches are compared here: one that writes behind the processes at once, and that of Linux 2.6.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::claim::{SCATTER, as_much, change};
use super::{Claim, Figure, Panel, PanelKind, Plan, StudyError, each};
use elbow_disk::device::Setup;
use elbow_disk::{Drive, Ps};
use elbow_ext2::{Andrew, Ext2, ModelledDisk, Options, Policy, PostMark, Region, Run, Trace, Writeback};

/// Blocks of the file system: nearly all of the drive's.
const BLOCKS: u32 = 256_000;

/// When what was written goes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// Data at once, but for as many blocks as the disk knows requests, for which processes wait; the rest each second.
    Behind,
    /// After 30 s, or when a tenth of the memory is dirty.
    Linux,
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
        let behind = Writeback {
            interval: Ps::from_ms(1000.0),
            age: Ps::ZERO,
            background_blocks: 0,
            limit_blocks: Setup::default().depth as u64,
        };
        Ok(Ext2::new(Options {
            policy: self.policy,
            writeback: match self.cache {
                Cache::Behind => behind,
                Cache::Linux => linux.writeback,
            },
            seed: self.seed,
            ..linux
        })?)
    }

    /// The system and the disk afterwards, and how long it took until all was on the disk.
    pub(super) fn replay<'d>(
        &self,
        drive: &'d Arc<Drive>,
        fs: Ext2,
        trace: &Trace,
    ) -> Result<(Ext2, ModelledDisk<'d>, Ps), StudyError> {
        let mut run = Run::new(fs, ModelledDisk::new(drive, Setup::default()));
        let report = run.replay(trace)?;
        let (fs, disk) = run.into_parts();
        Ok((fs, disk, report.elapsed))
    }
}

/// Classic allocation, and ranges within what ext2 would choose (the mini-group) or more (the group).
pub(super) const POLICIES: [(&str, Policy); 3] = [
    ("classic", Policy::Classic),
    ("range in the mini-group", Policy::Range(Region::MiniGroup)),
    ("range in the group", Policy::Range(Region::Group)),
];

/// The seconds of Table 2 of *Range Writes*, classic and with ranges.
const PAPER: [(&str, f64, f64); 3] = [
    ("untar", 143.0, 123.1),
    ("PostMark", 29.9, 22.2),
    ("Andrew", 23.2, 23.4),
];

/// Table 2.
pub(super) fn table(plan: &Plan) -> Result<Figure, StudyError> {
    let traces = [plan.untar()?, plan.postmark()?, Andrew::default().trace("/andrew")];
    let caches = [
        ("written behind at once", Cache::Behind),
        ("write-back of Linux 2.6", Cache::Linux),
    ];
    let runs: Vec<(Cache, Policy, &Trace)> = caches
        .iter()
        .flat_map(|&(_, cache)| POLICIES.iter().map(move |&(_, policy)| (cache, policy)))
        .flat_map(|(cache, policy)| traces.iter().map(move |trace| (cache, policy, trace)))
        .collect();
    let seconds = each(&runs, |&(cache, policy, trace)| {
        let files = Files {
            policy,
            cache,
            seed: plan.seed,
        };
        Ok(files.replay(&plan.drive, files.system()?, trace)?.2.ms() / 1000.0)
    })?;
    let of = |cache: usize, policy: usize| {
        seconds[(cache * POLICIES.len() + policy) * traces.len()..][..traces.len()].to_vec()
    };
    let panel = |(at, (title, _)): (usize, &(&str, Cache))| Panel {
        title: (*title).into(),
        kind: PanelKind::Bars,
        x: ("workload", PAPER.iter().map(|row| row.0.to_owned()).collect()),
        y: "seconds",
        columns: POLICIES
            .iter()
            .enumerate()
            .map(|(policy, (name, _))| ((*name).to_owned(), of(at, policy)))
            .collect(),
    };
    let mut panels: Vec<Panel> = caches.iter().enumerate().map(panel).collect();
    panels[0]
        .columns
        .push(("paper, classic".into(), PAPER.iter().map(|row| row.1).collect()));
    panels[0]
        .columns
        .push(("paper, range".into(), PAPER.iter().map(|row| row.2).collect()));
    Ok(Figure {
        name: "table2",
        title: "Workloads",
        caption: format!(
            "{} {} A depth of 16, 1.07 ms before each request.",
            plan.tree(),
            plan.mail()
        ),
        claims: claims(plan, &[0, 1].map(|cache| [0, 1, 2].map(|policy| of(cache, policy)))),
        panels,
    })
}

/// By cache, policy and workload.
fn claims(plan: &Plan, seconds: &[[Vec<f64>; 3]; 2]) -> Vec<Claim> {
    let [behind, linux] = seconds;
    let gain = |at: usize| change(behind[0][at], behind[1][at]);
    let ours = |at: usize| format!("{:.1} -> {:.1} s ({:+.1} %)", behind[0][at], behind[1][at], gain(at));
    let as_paper = |at: usize| as_much(gain(at), change(PAPER[at].1, PAPER[at].2));
    let late = |at: usize| change(linux[0][at], linux[1][at]);
    vec![
        Claim::new(
            "Unpacking a Linux tree is 14 % faster",
            "143.0 -> 123.1 s",
            ours(0),
            as_paper(0),
            [
                "One rotation per file goes; the files themselves are as long as before",
                "The tree is not that of Linux 2.6.20, or it was cut short",
            ],
        ),
        Claim::new(
            "PostMark is 26 % faster",
            "29.9 -> 22.2 s",
            ours(1),
            as_paper(1),
            [
                "Files of one or two blocks, of which positioning is most; how many are removed before they are written depends on the cache",
                SCATTER,
            ],
        ),
        Claim::new(
            "Andrew is not faster",
            "23.2 -> 23.4 s",
            ours(2),
            gain(2).abs() < 2.0,
            ["It computes while the disk writes", SCATTER],
        ),
        Claim::new(
            "The seconds themselves, within a fifth",
            "143.0, 29.9, 23.2 s",
            format!("{:.1}, {:.1}, {:.1} s", behind[0][0], behind[0][1], behind[0][2]),
            (0..3).all(|at| (behind[0][at] / PAPER[at].1 - 1.0).abs() < 0.2),
            [
                "-",
                "They follow from what the paper does not say: the tree, the cache's size, when it is written and what is merged",
            ],
        ),
        Claim::new(
            "The gains hold with the write-back of Linux 2.6, too (not claimed by the paper)",
            "-",
            format!("untar {:+.0} %, PostMark {:.2} s in both", late(0), linux[0][1]),
            late(0) < -5.0 && !plan.quick,
            [
                "-",
                "After 30 s the elevator has merged neighbouring files into requests of half a megabyte, which range writes of single files cannot match; and PostMark's files are gone before they are written",
            ],
        ),
    ]
}

impl Plan {
    fn untar(&self) -> Result<Trace, StudyError> {
        let files = if self.quick { 300 } else { usize::MAX };
        let (name, text) = match &self.listing {
            Some((name, text)) => (name.as_str(), text.clone()),
            None => ("synthetic", self.synthetic_tree()),
        };
        let text: String = text.lines().take(files).map(|line| format!("{line}\n")).collect();
        Ok(Trace::untar(name, &text)?)
    }

    fn tree(&self) -> String {
        match &self.listing {
            Some((name, _)) => format!("untar unpacks the tree of {name}."),
            None => {
                "untar unpacks a synthetic tree with the sizes of Linux 2.6.20 (--listing takes a real one).".into()
            }
        }
    }

    fn postmark(&self) -> Result<Trace, StudyError> {
        match &self.postmark {
            Some((name, calls, directory)) => Ok(Trace::parse_strace(name, calls, directory)?),
            None => Ok(PostMark::default().trace("/mail")),
        }
    }

    fn mail(&self) -> &'static str {
        match self.postmark {
            Some(_) => "PostMark is its real calls.",
            None => "PostMark is a generator with its default settings.",
        }
    }

    /// As many directories, files and bytes as Linux 2.6.20 has, and sizes drawn from its distribution.
    fn synthetic_tree(&self) -> String {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut listing = String::new();
        for file in 0..TREE_FILES {
            let directory = file * TREE_DIRECTORIES / TREE_FILES;
            listing.push_str(&format!(
                "{}\t{}/{directory}/{file}\n",
                tree_size(random.random()),
                directory % TOP_DIRECTORIES
            ));
        }
        listing
    }
}

const TREE_FILES: u32 = 21_278;
const TREE_DIRECTORIES: u32 = 1_238;
const TOP_DIRECTORIES: u32 = 18;

/// Share of files up to a size, of the listing of linux-2.6.20.tar.
const SIZES: [(f64, f64); 18] = [
    (0.0, 6.0),
    (0.01, 37.0),
    (0.02, 83.0),
    (0.05, 159.0),
    (0.1, 390.0),
    (0.2, 960.0),
    (0.3, 1_724.0),
    (0.4, 2_758.0),
    (0.5, 4_058.0),
    (0.6, 6_014.0),
    (0.7, 9_077.0),
    (0.8, 14_272.0),
    (0.9, 26_147.0),
    (0.95, 43_065.0),
    (0.98, 71_492.0),
    (0.99, 97_247.0),
    (0.999, 315_821.0),
    (1.0, 873_603.0),
];

/// The size of the file at this part of all files, from the smallest to the largest.
fn tree_size(part: f64) -> u64 {
    let steps = SIZES.windows(2).map(|pair| (pair[0], pair[1]));
    let step = steps.rev().find(|&((from, _), _)| from <= part);
    let ((from, low), (to, high)) = step.expect("0 is the first");
    (low * (high / low).powf((part - from) / (to - from))).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_synthetic_tree_is_as_large_as_the_real_one() {
        let tree = Plan::new(1, false).unwrap().untar().unwrap().summary();
        assert_eq!(tree.creates, u64::from(TREE_FILES));
        // 233.6 MB in 1,238 directories with files.
        let megabytes = tree.bytes_written as f64 / 1e6;
        assert!((225.0..255.0).contains(&megabytes), "{megabytes}");
        assert_eq!(tree_size(0.0), 6);
        assert_eq!(tree_size(0.5), 4_058);
        assert_eq!(tree_size(1.0), 873_603);
    }
}
