//! Figure 8 and the equations: how many choices a scheduler needs, and what they cost it.

use super::claim::{Claim, SCATTER};
use super::disk::{OVERHEAD_MS, Point};
use super::panel::{Column, Mean, Panel, PanelKind, Scale};
use super::plan::{Figure, Plan, StudyError, each};
use elbow_disk::workload::{Arrivals, GROUP_SECTORS, Moment, Overheads, RangeSize, Span, Workload, simulate};
use elbow_disk::{Lbn, Ps};

/// Figure 8.
pub(super) fn spaced(plan: &Plan) -> Result<Figure, StudyError> {
    // A whole track, and requests of one of its sectors: what *Range Writes* calls a block.
    let track = plan.drive.track(Lbn(0));
    let (turn, sectors) = (plan.drive.rotation().ms(), f64::from(track.sectors));
    let choices: Vec<u32> = (1..=16).chain([20, 24, 32, 48, 64, track.sectors]).collect();
    let load = Workload {
        span: Span::Sectors(track.first.0, track.first.0 + u64::from(track.sectors)),
        request_sectors: 1,
        align_sectors: 1,
        range: RangeSize::Track,
        overheads: Overheads::Fixed(Ps::from_ms(OVERHEAD_MS)),
        requests: 2_000,
        ..plan.load()
    };
    let simulated = each(&choices, |choices| {
        let scheduler = format!("ecs:{choices}").parse().expect("a scheduler");
        Ok(simulate(&plan.drive, scheduler, &load, |_| {})?.service_ms.mean)
    })?;
    let busy = turn / sectors + OVERHEAD_MS;
    let closed_form = |&k: &u32| turn / f64::from(k) * (busy * f64::from(k) / turn).ceil();
    let of = |k: u32| simulated[choices.iter().position(|&choice| choice == k).expect("one of them")];
    let [one, eight, ten, all] = [1, 8, 10, track.sectors].map(of);
    let exact: Vec<f64> = choices.iter().map(closed_form).collect();
    // Where a turn is no whole number of sectors per choice, the choices are not spaced quite evenly.
    let worst = choices
        .iter()
        .zip(&simulated)
        .zip(&exact)
        .filter(|((choice, _), _)| track.sectors.is_multiple_of(**choice));
    let worst = worst.map(|((_, is), form)| (is / form - 1.0).abs()).fold(0.0, f64::max);
    let claims = vec![
        Claim::new(
            "Few choices do most of what all of them do: 2, 4 or 8",
            "2 or 4 or 8 (Figure 8)",
            format!(
                "{one:.2} ms with 1, {:.2} with 2, {:.2} with 4, {eight:.2} with 8, {all:.2} with all {}",
                of(2),
                of(4),
                track.sectors
            ),
            one - eight > 0.95 * (one - all),
            [
                "The next choice passes in an eighth of a turn, just longer than the 1.19 ms that a request takes",
                SCATTER,
            ],
        ),
        Claim::ours(
            "More choices may be worse: it is not monotone",
            format!("{eight:.2} ms with 8, {ten:.2} with 10"),
            ten > eight,
            [
                "With 10 the next one has just passed when the request before is over, so every other is used: the time is (T/k)*ceil((x+o)k/T)",
                SCATTER,
            ],
        ),
        Claim::ours(
            "The time is (T/k)*ceil((x+o)k/T)",
            format!("at most {:.4} % from it, for k that divide the track", worst * 100.0),
            worst < 1e-4,
            ["One request after the other, x to transfer it and o before it", SCATTER],
        ),
    ];
    Ok(Figure {
        name: "8",
        title: "Choices around one track",
        caption: format!(
            "One sector (the paper's block) is written again and again to the first track; expand-and-cancel with k choices; {OVERHEAD_MS} ms before each. Nothing is left to chance here, so there are no intervals."
        ),
        panels: vec![Panel {
            scale: Scale::Log,
            ..Panel::new(
                "one track",
                PanelKind::Lines,
                ("choices", &choices),
                "time per write (ms)",
            )
            .with(vec![
                Column::exact("simulated", simulated),
                Column::exact("closed form", exact),
            ])
        }],
        claims,
    })
}

/// What a decision costs: equations (1) and (2).
pub(super) fn work(plan: &Plan) -> Result<Figure, StudyError> {
    let depths = [1, 2, 4, 8, 16];
    let schedulers = [
        ("ecs", "expand-and-cancel"),
        ("hrs:whole", "hierarchical-range"),
        ("ecs:8", "expand-and-cancel, 8 choices"),
        ("hrs", "hierarchical-range, pruned"),
    ];
    let point = |scheduler, depth| Point {
        scheduler,
        load: Workload {
            range: RangeSize::Sectors(GROUP_SECTORS),
            arrivals: Arrivals::Closed {
                depth,
                pick: Moment::After,
            },
            requests: if plan.is_quick() { 20 } else { 200 },
            warm_up: 10,
            ..plan.load()
        },
    };
    let points: Vec<Point> = schedulers
        .iter()
        .flat_map(|&(scheduler, _)| depths.map(|depth| point(scheduler, depth)))
        .collect();
    let all: Vec<Mean> = plan
        .simulate(&points)?
        .iter()
        .map(|runs| runs.over(|of| of.estimations_per_request))
        .collect();
    let means = |scheduler: usize| all.chunks(depths.len()).nth(scheduler).expect("one of them").to_vec();
    let of = |scheduler: usize| means(scheduler).iter().map(|mean| mean.mean).collect::<Vec<_>>();
    let (places, per_track) = (4096.0_f64, 12.0);
    let is = |scheduler: usize, each: f64| {
        of(scheduler)
            .iter()
            .zip(depths)
            .all(|(&is, depth)| is == each * f64::from(depth))
    };
    let last = |scheduler: usize| of(scheduler)[depths.len() - 1];
    let claims = vec![Claim::new(
        "Expand-and-cancel makes W = S*Q estimates for a decision, hierarchical-range at most ceil(S/T)*Q",
        "W = S*Q and W = ceil(S/T)*Q (equations 1 and 2)",
        format!(
            "{} and {} for Q = 16, {places} places on {per_track} a track; pruned, {:.0}",
            last(0),
            last(1),
            last(3)
        ),
        is(0, places) && is(1, (places / per_track).ceil()) && last(3) <= last(1),
        [
            "Counted while scheduling, and equal to what the equations give for S = 4096 places in the group, T = 12 on a track",
            SCATTER,
        ],
    )];
    Ok(Figure {
        name: "work",
        title: "Estimates per decision",
        caption: "Group-sized ranges. The paper gives the equations (1) and (2) and no figure.".into(),
        panels: vec![Panel {
            scale: Scale::Log,
            unit_scale: Scale::Log,
            ..Panel::new(
                "block group",
                PanelKind::Lines,
                ("outstanding requests", &depths),
                "estimates per decision",
            )
            .with(
                schedulers
                    .iter()
                    .enumerate()
                    .map(|(at, (_, name))| Column::of(*name, means(at)))
                    .collect(),
            )
        }],
        claims,
    })
}
