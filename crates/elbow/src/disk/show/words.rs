//! What is done when, as lines of text.

use elbow_disk::Ps;
use elbow_disk::timeline::{Step, Visit};

use super::scene::{Scene, name, of, op};

/// The drive, each step, and what each request took.
pub(super) fn lines(scene: &Scene<'_>) -> Vec<String> {
    let mut lines = heading(scene).to_vec();
    lines.push(String::new());
    lines.push("   from ms  request  what               ms     cylinder      head         degrees".to_owned());
    lines.extend(scene.steps().map(|(request, step)| row(scene, request, step)));
    lines.push(String::new());
    lines.push("request  op       lbn  sectors  overhead     seek  rotation  transfer  response ms".to_owned());
    lines.extend(scene.visits.iter().map(sum));
    lines.push(total(scene));
    lines
}

/// The drive, who picks, and where it begins.
pub(super) fn heading(scene: &Scene<'_>) -> [String; 2] {
    let (drive, plan) = (scene.drive, scene.plan);
    let known = match plan.depth {
        all if all >= scene.list.len() => "all that have come".to_owned(),
        depth => format!("{depth} at a time"),
    };
    [
        format!(
            "{}, a turn in {:.3} ms; mechanics only, {} picks among {known}",
            drive.name(),
            drive.rotation().ms(),
            plan.scheduler
        ),
        format!(
            "the arm starts at cylinder {}, head {}, the platter at {:.1} degrees",
            plan.arm.cylinder,
            plan.arm.head,
            scene.below(Ps::ZERO)
        ),
    ]
}

/// A request on a line.
pub(super) fn request(scene: &Scene<'_>, number: usize) -> String {
    let request = scene.list[number].request;
    let what = if request.write { "write" } else { "read" };
    let (first, last) = (request.lbn.0, request.lbn.0 + u64::from(request.sectors) - 1);
    format!("request {}: {what} sectors {first} to {last}", number + 1)
}

fn row(scene: &Scene<'_>, request: usize, step: &Step) -> String {
    let [cylinders, heads] = [step.arm.map(|arm| arm.cylinder), step.arm.map(|arm| arm.head)];
    let degrees = [step.from, step.to].map(|time| scene.below(time));
    format!(
        "{:>10.3}  {:>7}  {:<11} {:>8.3}  {:>11}  {:>8}  {:>5.1} > {:>5.1}",
        step.from.ms(),
        request + 1,
        name(step.doing),
        step.takes().ms(),
        change(cylinders),
        change(heads),
        degrees[0],
        degrees[1]
    )
}

fn change([from, to]: [u32; 2]) -> String {
    match from == to {
        true => to.to_string(),
        false => format!("{from} > {to}"),
    }
}

fn sum(visit: &Visit) -> String {
    let request = visit.listed.request;
    let response = visit.parts.end - visit.listed.arrival;
    format!(
        "{:>7}  {:>2}  {:>8}  {:>7}  {}  {:>11.3}",
        visit.number + 1,
        op(request.write),
        request.lbn.0,
        request.sectors,
        numbers(of(&visit.parts)),
        response.ms()
    )
}

/// The sums; the response of the last is the end of all.
fn total(scene: &Scene<'_>) -> String {
    format!("all {:>26}{}  {:>11.3}", "", numbers(scene.totals()), scene.end().ms())
}

fn numbers([overhead, seek, rotation, transfer]: [Ps; 4]) -> String {
    format!(
        "{:>8.3} {:>8.3}  {:>8.3}  {:>8.3}",
        overhead.ms(),
        seek.ms(),
        rotation.ms(),
        transfer.ms()
    )
}
