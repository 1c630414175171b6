//! A disk that takes the first place of a range, the simplest that understands range writes: *Range Writes* ("Range-aware
//! Scheduling") expects it to be no worse than one without them. Its small files are those of Figures 9 and 11.

use super::claim::{Claim, NONE, Verdict, change};
use super::panel::{Column, Mean, Panel, PanelKind, Scale};
use super::plan::{Figure, Plan, StudyError};
use super::small_files::{CAPTION, Case, FILLS};
use super::traces::POLICIES;
use elbow_ext2::Policy;

/// Who picks, and whether it takes the first place.
const DISKS: [(&str, Policy, bool); 3] = [
    ("classic", POLICIES[0].1, false),
    ("range, first choice", POLICIES[1].1, true),
    ("range, nearest", POLICIES[1].1, false),
];
const PROCESSES: [u32; 5] = [1, 2, 4, 8, 16];
const FULL: [u32; 10] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90];

/// The figure.
pub(super) fn first_choice(plan: &Plan) -> Result<Figure, StudyError> {
    let empty = times(plan, &PROCESSES, |case, &processes| Case { processes, ..case })?;
    let [single, _, runs] = FILLS;
    let filled = |(_, run_blocks)| {
        times(plan, &FULL, |case, &full| Case {
            full,
            run_blocks,
            ..case
        })
    };
    let [single_times, runs_times] = [filled(single)?, filled(runs)?];
    let unit = "time per write (ms)";
    let in_group = |name: &str, times: &[Vec<Mean>]| Panel {
        scale: Scale::Linear,
        ..Panel::new(
            format!("1 process, group filled by {name}"),
            PanelKind::Lines,
            ("group in use before (%)", &FULL),
            unit,
        )
        .with(columns(times))
    };
    let by_processes = Panel {
        scale: Scale::Log,
        ..Panel::new("empty group", PanelKind::Lines, ("processes", &PROCESSES), unit).with(columns(&empty))
    };
    Ok(Figure {
        name: "first-choice",
        title: "A disk that takes the first place of a range",
        caption: CAPTION.into(),
        claims: vec![claim(&[&empty, &single_times, &runs_times])],
        panels: vec![
            by_processes,
            in_group(single.0, &single_times),
            in_group(runs.0, &runs_times),
        ],
    })
}

/// Of each disk, at each place.
fn times<T>(plan: &Plan, places: &[T], case: impl Fn(Case, &T) -> Case) -> Result<Vec<Vec<Mean>>, StudyError> {
    let of = |policy, first_choice| Case {
        first_choice,
        ..plan.case(policy, 1)
    };
    let cases: Vec<Case> = DISKS
        .iter()
        .flat_map(|&(_, policy, first_choice)| places.iter().map(move |place| (of(policy, first_choice), place)))
        .map(|(of, place)| case(of, place))
        .collect();
    let means: Vec<Mean> = plan.write_times(&cases)?.iter().map(|times| times.write()).collect();
    Ok(means.chunks(places.len()).map(<[Mean]>::to_vec).collect())
}

fn columns(times: &[Vec<Mean>]) -> Vec<Column> {
    let column = |((name, ..), of): (&(&str, Policy, bool), &Vec<Mean>)| Column::of(*name, of.iter().copied());
    DISKS.iter().zip(times).map(column).collect()
}

/// Is a time no more than another, but for the interval of the two?
fn no_worse(is: Mean, than: Mean) -> bool {
    change(than.mean, is.mean) <= NONE || is.mean - than.mean <= is.half_width + than.half_width
}

fn claim(panels: &[&Vec<Vec<Mean>>]) -> Claim {
    let pairs = || panels.iter().flat_map(|times| times[0].iter().zip(&times[1]));
    let held = pairs().filter(|&(&classic, &first)| no_worse(first, classic)).count();
    let changes: Vec<f64> = pairs()
        .map(|(classic, first)| change(classic.mean, first.mean))
        .collect();
    let [best, worst] = [f64::min, f64::max].map(|pick| changes.iter().copied().reduce(pick).expect("points"));
    Claim::new(
        "A disk that takes the first choice is no worse than one without range writes",
        "should be no worse (\"Range-aware Scheduling\")",
        format!(
            "{best:+.0} to {worst:+.0} % of time; no worse in {held} of {} cases",
            changes.len()
        ),
        Verdict::together(pairs().map(|(&classic, &first)| no_worse(first, classic).into())),
        [
            "The first free block is most often next to the last one. Where many processes share a group, or what is in use is torn apart, ext2's own choice may be nearer",
            "The first free block is further away than ext2's own choice",
        ],
    )
}
