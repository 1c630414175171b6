//! What becomes of Table 2's gains with other caches.
//!
//! ```text
//!                     each 10 ms   30   100   300   1000   3000      one panel for untar and one for PostMark, merged and not:
//!   64 blocks           -17 %     ...                                gain of ranges in the mini-group over classic
//!   32 blocks            ...
//! ```
//!
//! *Range Writes* says of its cache that it is simple, and that writes are unordered and asynchronous. So its size, the time after which
//! metadata is written, and whether neighbours are merged in the queue are open, and its claims are judged by the range of what comes
//! out, not by one setting. An unmerged cache is what it describes; the merged one is beside it as a statement of ours.

use super::claim::{Claim, TOLERANCE, change, near, over};
use super::panel::{Column, Panel, PanelKind, Scale};
use super::plan::{Figure, Plan, StudyError, each};
use super::traces::{Cache, Files, PAPER, POLICIES};
use elbow_ext2::Trace;

const MERGING: [(&str, bool); 2] = [("unmerged", false), ("neighbours merged", true)];

/// The settings.
struct Settings {
    blocks: Vec<u64>,
    each_ms: Vec<u32>,
}

impl Settings {
    fn of(plan: &Plan) -> Settings {
        match plan.is_quick() {
            true => Settings {
                blocks: vec![16, 64],
                each_ms: vec![100, 1000],
            },
            false => Settings {
                blocks: vec![4, 8, 16, 32, 64, 128, 256],
                each_ms: vec![10, 30, 100, 300, 1000, 3000],
            },
        }
    }

    fn count(&self) -> usize {
        self.blocks.len() * self.each_ms.len()
    }

    /// All of them, by size and then by time.
    fn all(&self, merge: bool) -> Vec<Cache> {
        let of_size = |&blocks: &u64| {
            let cache = move |&each_ms: &u32| Cache::Behind {
                blocks,
                each_ms: each_ms.into(),
                merge,
            };
            self.each_ms.iter().map(cache)
        };
        self.blocks.iter().flat_map(of_size).collect()
    }
}

/// Gains in percent, by merging and workload, in the order of [`Settings::all`].
type Gains = [[Vec<f64>; 2]; 2];

/// The figure.
pub(super) fn plane(plan: &Plan) -> Result<Figure, StudyError> {
    let settings = Settings::of(plan);
    let gains = gains(plan, &settings)?;
    let mut panels = Vec::new();
    for (merge, (merged, _)) in MERGING.iter().enumerate() {
        for (workload, row) in PAPER[..2].iter().enumerate() {
            let title = format!("{}, {merged}", row.0);
            panels.push(cells(&settings, title, &gains[merge][workload], paper(workload)));
        }
    }
    panels.insert(2, points(&gains)); // above it the unmerged, below the merged
    Ok(Figure {
        name: "plane",
        title: "Table 2's gains with other caches",
        caption: format!(
            "Change of the time with ranges in the mini-group, in percent. {} {} Data goes to the disk at once; processes wait while so many blocks are on their way; metadata \
             is written each so many ms. Cells within {:.0} % of the paper's number are framed. The last panel has all settings, and the \
             paper's point. A depth of 16, 1.07 ms before each request; one seed, on which untar depends by 3 %.",
            plan.tree_part(),
            plan.mail(),
            TOLERANCE * 100.0
        ),
        claims: plan.with_sources(claims(&gains)),
        panels,
    })
}

/// The change in percent that *Range Writes* has.
fn paper(workload: usize) -> f64 {
    change(PAPER[workload].1, PAPER[workload].2)
}

fn gains(plan: &Plan, settings: &Settings) -> Result<Gains, StudyError> {
    let traces = [plan.untar_part()?, plan.postmark()?];
    let of = |trace, cache| POLICIES[..2].iter().map(move |&(_, policy)| (policy, cache, trace));
    let runs: Vec<_> = MERGING
        .iter()
        .flat_map(|&(_, merge)| traces.iter().map(move |trace| (trace, merge)))
        .flat_map(|(trace, merge)| settings.all(merge).into_iter().flat_map(move |cache| of(trace, cache)))
        .collect();
    let seconds = each(&runs, |&(policy, cache, trace): &(_, _, &Trace)| {
        let seed = plan.seed;
        Files { policy, cache, seed }.seconds(&plan.drive, trace)
    })?;
    let all: Vec<f64> = seconds.chunks(2).map(|pair| change(pair[0], pair[1])).collect();
    let at = |merge: usize, workload: usize| {
        let first = (merge * traces.len() + workload) * settings.count();
        all[first..first + settings.count()].to_vec()
    };
    Ok([0, 1].map(|merge| [0, 1].map(|workload| at(merge, workload))))
}

fn cells(settings: &Settings, title: String, gains: &[f64], paper: f64) -> Panel {
    let rows = settings.blocks.iter().zip(gains.chunks(settings.each_ms.len()));
    Panel {
        paper: Some(paper),
        ..Panel::new(
            title,
            PanelKind::Cells,
            ("metadata is written each (ms)", &settings.each_ms),
            "cache (blocks of 4 KiB)",
        )
        .with(
            rows.map(|(blocks, gains)| Column::exact(blocks.to_string(), gains.to_vec()))
                .collect(),
        )
    }
}

/// All settings: untar across, PostMark up.
fn points(gains: &Gains) -> Panel {
    let [untar, postmark] = [0, 1].map(|workload| {
        let all = gains.iter().flat_map(|of| of[workload].iter().copied());
        all.chain([paper(workload)]).collect::<Vec<f64>>()
    });
    let places: Vec<String> = untar.iter().map(|gain| format!("{gain:.3}")).collect();
    let part = gains[0][0].len();
    let only = |from: usize, to: usize| {
        let kept = postmark.iter().enumerate();
        kept.map(|(at, &gain)| if (from..to).contains(&at) { gain } else { f64::NAN })
            .collect()
    };
    Panel {
        scale: Scale::Linear,
        ..Panel::new(
            "all settings",
            PanelKind::Points,
            ("change of untar (%)", &places),
            "change of PostMark (%)",
        )
        .with(vec![
            Column::exact(MERGING[0].0, only(0, part)),
            Column::exact(MERGING[1].0, only(part, 2 * part)),
            Column::exact("paper", only(2 * part, 2 * part + 1)),
        ])
    }
}

fn extent(gains: &[f64]) -> String {
    let [most, least] = [f64::min, f64::max].map(|pick| gains.iter().copied().reduce(pick).expect("settings"));
    format!("{least:+.1} to {most:+.1} %")
}

fn claims(gains: &Gains) -> Vec<Claim> {
    let [simple, merged] = gains;
    let meet = |workload: usize, gain: f64| near(gain, paper(workload), TOLERANCE);
    let met = |of: &[Vec<f64>; 2], workload: usize| of[workload].iter().filter(|&&gain| meet(workload, gain)).count();
    let ours = |workload: usize| {
        let (is, all) = (met(simple, workload), simple[workload].len());
        format!(
            "{}; {is} of {all} settings are within 15 % of {:.1} %",
            extent(&simple[workload]),
            paper(workload)
        )
    };
    let both = |of: &[Vec<f64>; 2]| {
        of[0]
            .iter()
            .zip(&of[1])
            .filter(|&(&a, &b)| meet(0, a) && meet(1, b))
            .count()
    };
    vec![
        Claim::new(
            "Unpacking the Linux tree is faster with ranges",
            "143.0 -> 123.1 s, a speedup of 16 %: -13.9 % of the time (Table 2)",
            ours(0),
            over(&simple[0], paper(0)),
            [
                "One rotation per file goes; the files themselves are as long as before. How much that is depends on the cache",
                "No setting of a simple cache gives it",
            ],
        ),
        Claim::new(
            "PostMark is faster with ranges",
            "29.9 -> 22.2 s, a speedup of roughly 35 %: -25.8 % of the time (Table 2)",
            ours(1),
            over(&simple[1], paper(1)),
            [
                "Files of one or two blocks, of which positioning is most; how many are removed before they are written depends on the cache",
                "No setting of a simple cache gives it",
            ],
        ),
        Claim::ours(
            "One and the same unmerged cache gives both gains",
            format!("{} of {} settings", both(simple), simple[0].len()),
            both(simple) > 0,
            [
                "Framed in both panels",
                "None does, though some come near both: the frames of the two panels lie beside each other. With the whole tree, 64 blocks and 100 ms give -15 and -23 %",
            ],
        ),
        Claim::ours(
            "An elevator that merges neighbours takes a part of the gains away",
            format!("untar {}, PostMark {}", extent(&merged[0]), extent(&merged[1])),
            merged[0].iter().sum::<f64>() > simple[0].iter().sum(),
            [
                "It makes one request of small files that lie side by side, which ranges of single files cannot match; the larger the cache, the more",
                "Not with so few settings",
            ],
        ),
    ]
}
