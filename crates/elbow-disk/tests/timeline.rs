//! A list moment by moment, beside a replay of the same list and beside the mechanics.

use std::fmt::Write;
use std::sync::Arc;

use elbow_disk::timeline::{DriveActivity, Listed, Plan, Visit};
use elbow_disk::trace::{Format, Trace};
use elbow_disk::workload::Overheads;
use elbow_disk::{Arm, Drive, Lbn, Ps, QueuedReplay, Request};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

fn random_list(random: &mut StdRng, drive: &Drive) -> Vec<Listed> {
    let mut arrival = Ps::ZERO;
    let count = random.random_range(1..30);
    let mut listed = || {
        let sectors = random.random_range(1..300);
        arrival += Ps(random.random_range(0..3) * random.random_range(0..20_000_000_000));
        let request = Request {
            lbn: Lbn(random.random_range(0..drive.sectors() - u64::from(sectors))),
            sectors,
            write: random.random(),
        };
        Listed { arrival, request }
    };
    (0..count).map(|_| listed()).collect()
}

fn assert_is_whole(plan: &Plan, visits: &[Visit]) {
    let (mut now, mut arm) = (Ps::ZERO, plan.arm);
    for visit in visits {
        let mut of = [Ps::ZERO; 4];
        for step in &visit.steps {
            assert_eq!(
                (step.from, step.arm[0]),
                (now, arm),
                "{step:?} goes on from the one before"
            );
            assert!(step.to > step.from, "{step:?} takes time");
            assert!(step.arm[0] == step.arm[1] || matches!(step.doing, DriveActivity::Seek | DriveActivity::NextTrack));
            let part = match step.doing {
                DriveActivity::Idle => None,
                DriveActivity::Overhead => Some(0),
                DriveActivity::Seek => Some(1),
                DriveActivity::Rotation => Some(2),
                DriveActivity::Transfer | DriveActivity::NextTrack | DriveActivity::NextSector => Some(3),
            };
            if let Some(part) = part {
                of[part] += step.takes();
            }
            (now, arm) = (step.to, step.arm[1]);
        }
        let parts = &visit.parts;
        assert_eq!(of, [parts.overhead, parts.seek, parts.rotation, parts.transfer]);
        assert_eq!(now, parts.end);
    }
}

#[test]
fn its_times_are_those_of_a_replay() {
    for_each_seed(60, |random| {
        let drive = Arc::new(Drive::named("hp-c2247a").expect("built in"));
        let list = random_list(random, &drive);
        let plan = Plan {
            scheduler: ["fcfs", "sstf", "sptf", "scan", "c-look", "asptf"][random.random_range(0..6)]
                .parse()
                .expect("a scheduler"),
            depth: random.random_range(2..8),
            overhead: [Ps::ZERO, Ps::from_ms(1.07)][random.random_range(0..2)],
            arm: Arm::default(),
            angle: Ps::ZERO,
        };
        let visits = plan.serve(&drive, &list);
        assert_is_whole(&plan, &visits);
        let mut text = String::from("lbn,sectors,op,arrival_ms\n");
        for Listed { arrival, request } in &list {
            let op = if request.write { 'W' } else { 'R' };
            writeln!(text, "{},{},{op},{:.9}", request.lbn, request.sectors, arrival.ms()).expect("memory");
        }
        let queued = QueuedReplay {
            scheduler: plan.scheduler,
            depth: plan.depth as u32,
            overheads: Overheads::Fixed(plan.overhead),
        };
        let trace = Trace::new("t", Format::Csv, text.as_bytes(), drive.sectors());
        let mut replayed = Vec::new();
        queued
            .run(&drive, trace, |record, _, served| {
                replayed.push((record.line as usize - 2, served.end));
            })
            .expect("a sound trace");
        let ours: Vec<_> = visits.iter().map(|visit| (visit.number, visit.parts.end)).collect();
        assert_eq!(ours, replayed);
    });
}

#[test]
fn it_begins_where_it_is_told_to() {
    for_each_seed(60, |random| {
        let drive = Arc::new(Drive::named("atlas10k").expect("built in"));
        let list = [Listed {
            arrival: Ps::ZERO,
            ..random_list(random, &drive)[0]
        }];
        let plan = Plan {
            scheduler: "sptf".parse().expect("a scheduler"),
            depth: 1,
            overhead: Ps::ZERO,
            arm: Arm {
                cylinder: random.random_range(0..drive.cylinders()),
                head: random.random_range(0..drive.heads()),
            },
            angle: Ps(random.random_range(0..drive.rotation().0)),
        };
        let visits = plan.serve(&drive, &list);
        assert_is_whole(&plan, &visits);
        let Request { lbn, sectors, write } = list[0].request;
        let service = drive.service(plan.arm, plan.angle, lbn, sectors, write);
        assert_eq!(visits[0].parts.end, service.total());
        assert_eq!(visits[0].steps.last().map(|step| step.arm[1]), Some(service.end));
    });
}
