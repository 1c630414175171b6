//! The hierarchical-range scheduler picks what full expand-and-cancel picks: on random drives, with seek curves that rise and
//! fall, random ranges, queues and leads. The two share no code for the estimate: one walks bitmaps, the other asks the drive.

mod support;

use std::fmt::Write;
use std::sync::Arc;

use elbow_disk::sched::{CommandLead, Pick, Queue, QueueRequest, RegionId, Targets};
use elbow_disk::{Arm, Drive, Lbn, Ps};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

const CASES: u64 = 300;
const PICKS: u64 = 12;

/// A small drive with zones, skews, slips and a seek curve without order.
fn random_drive(random: &mut StdRng) -> Drive {
    let heads = random.random_range(1..=5_u32);
    let mut text = format!(
        "name = 'random'\nheads = {heads}\nrotation_ms = {}\n[seek]\n",
        random.random_range(2.0..15.0)
    );
    let short: Vec<f64> = (0..random.random_range(0..30))
        .map(|_| random.random_range(0.3..6.0))
        .collect();
    let (switch, settle) = (random.random_range(0.0..2.0), random.random_range(0.0..1.5));
    writeln!(
        text,
        "head_switch_ms = {switch}\nwrite_settle_ms = {settle}\nshort_ms = {short:?}"
    )
    .expect("to memory");
    writeln!(text, "sqrt_below = 20\nsqrt_ms = [1.0, 0.3]\nlinear_ms = [2.0, 0.01]").expect("to memory");
    let mut cylinder = 0;
    for _ in 0..random.random_range(1..=3) {
        let last = cylinder + random.random_range(4..30);
        let sectors = random.random_range(8..200_u32);
        writeln!(
            text,
            "[[zone]]\ncylinders = [{cylinder}, {last}]\nsectors_per_track = {sectors}"
        )
        .expect("to memory");
        let mut below =
            |key: &str, max: u32| writeln!(text, "{key} = {}", random.random_range(0..max)).expect("to memory");
        below("offset", sectors);
        below("track_skew", sectors);
        below("cylinder_skew", sectors);
        below("front_tracks", heads * 2);
        cylinder = last + 1;
    }
    Drive::parse("random.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn random_ranges(random: &mut StdRng, drive: &Drive) -> RangeSet {
    let sectors = drive.sectors();
    let largest = if random.random_bool(0.3) {
        sectors
    } else {
        400.min(sectors)
    };
    let ranges = (0..random.random_range(1..20)).map(|_| {
        let start = random.random_range(0..sectors);
        (start, random.random_range(1..=largest).min(sectors - start))
    });
    RangeSet::from_unsorted(ranges.collect::<Vec<_>>()).expect("a small disk")
}

/// The places by their definition.
fn places(free: &RangeSet, drive: &Drive, sectors: u32, align: u32) -> Vec<Lbn> {
    let starts = (0..drive.sectors()).step_by(align as usize);
    starts
        .filter(|&start| free.covers(start, start + u64::from(sectors)))
        .map(Lbn)
        .collect()
}

#[test]
fn a_region_holds_the_aligned_free_places_and_no_others() {
    for_each_seed(CASES, |random| {
        let drive = random_drive(random);
        let mut free = random_ranges(random, &drive);
        let (sectors, align) = (random.random_range(1..30), random.random_range(1..20));
        let Ok(mut targets) = Targets::new(&drive, &free, sectors, align) else {
            assert_eq!(places(&free, &drive, sectors, align), []);
            return;
        };
        let all: Vec<_> = free.iter().collect();
        for _ in 0..10 {
            assert_eq!(
                targets.iter().collect::<Vec<_>>(),
                places(&free, &drive, sectors, align)
            );
            assert_eq!(targets.places(), targets.iter().count() as u64);
            let within = &all[random.random_range(0..all.len())];
            let start = random.random_range(within.start..within.end);
            let end = random.random_range(start..within.end) + 1;
            if random.random_bool(0.7) {
                free.remove(start, end);
                targets.take(start, end);
            } else {
                free.insert(start, end);
                targets.give(start, end);
            }
        }
    });
}

/// Queues with the same requests and one scheduler each.
struct Testbed {
    drive: Arc<Drive>,
    queues: Vec<Queue>,
    regions: Vec<RegionId>,
    pushed: u64,
}

impl Testbed {
    fn new(random: &mut StdRng, schedulers: &[&str]) -> Testbed {
        let drive = Arc::new(random_drive(random));
        let new = |name: &&str| Queue::new(Arc::clone(&drive), name.parse().expect("a scheduler"));
        let mut testbed = Testbed {
            queues: schedulers.iter().map(new).collect(),
            drive,
            regions: Vec::new(),
            pushed: 0,
        };
        for _ in 0..random.random_range(1..4) {
            let free = random_ranges(random, &testbed.drive);
            let (sectors, align) = (random.random_range(1..12), random.random_range(1..10));
            if let Ok(targets) = Targets::new(&testbed.drive, &free, sectors, align) {
                // Queues that were treated alike give the same id.
                let ids: Vec<_> = testbed
                    .queues
                    .iter_mut()
                    .map(|queue| queue.add_region(targets.clone()))
                    .collect();
                assert!(ids.iter().all(|id| *id == ids[0]));
                testbed.regions.push(ids[0]);
            }
        }
        testbed
    }

    fn push(&mut self, random: &mut StdRng) {
        let sectors = random.random_range(1..8_u32);
        let lbn = Lbn(random.random_range(0..self.drive.sectors() - u64::from(sectors)));
        let ask = match self.regions.as_slice() {
            regions if !regions.is_empty() && random.random_bool(0.7) => {
                QueueRequest::Anywhere(regions[random.random_range(0..regions.len())])
            }
            _ => QueueRequest::At {
                lbn,
                sectors,
                write: random.random_bool(0.5),
            },
        };
        self.queues.iter_mut().for_each(|queue| queue.push(self.pushed, ask));
        self.pushed += 1;
    }

    /// What each would pick.
    fn pick(&mut self, arm: Arm, now: Ps, read: CommandLead, write: CommandLead) -> Vec<Option<Pick>> {
        self.queues
            .iter_mut()
            .map(|queue| queue.pick_with(arm, now, read, write))
            .collect()
    }

    fn take(&mut self, pick: &Pick) {
        for queue in &mut self.queues {
            if let Some(region) = pick.region {
                queue
                    .region_mut(region)
                    .take(pick.lbn.0, pick.lbn.0 + u64::from(pick.sectors));
            }
        }
    }
}

fn random_lead(random: &mut StdRng) -> CommandLead {
    let mut ms = || Ps::from_ms(random.random_range(0.0..6.0));
    CommandLead { arm: ms(), data: ms() }
}

#[test]
fn it_picks_what_full_expansion_picks() {
    for_each_seed(CASES, |random| {
        let mut testbed = Testbed::new(random, &["ecs", "hrs", "hrs:whole"]);
        let (mut arm, mut now) = (Arm::default(), Ps(random.random_range(0..1 << 40)));
        (0..random.random_range(1..20)).for_each(|_| testbed.push(random));
        for _ in 0..PICKS {
            let has_leads = random.random_bool(0.5);
            let mut lead = || {
                if has_leads {
                    random_lead(random)
                } else {
                    CommandLead::default()
                }
            };
            let (read, write) = (lead(), lead());
            let picks = testbed.pick(arm, now, read, write);
            assert_eq!(
                picks[0], picks[1],
                "hrs against ecs at {arm:?}, {now:?}, leads {read:?} {write:?}"
            );
            assert_eq!(picks[0], picks[2], "hrs:whole against ecs");
            let Some(pick) = picks[0] else { break };
            testbed.take(&pick);
            let service = testbed.drive.service(arm, now, pick.lbn, pick.sectors, pick.write);
            (arm, now) = (service.end, now + service.total());
            testbed.push(random);
        }
        let [ecs, hrs, whole] = [0, 1, 2].map(|queue: usize| testbed.queues[queue].estimations());
        assert!(hrs <= whole && whole <= ecs, "{hrs} {whole} {ecs}");
    });
}

#[test]
fn without_leads_the_estimate_is_what_the_drive_then_takes() {
    for_each_seed(CASES, |random| {
        for scheduler in ["fcfs", "sstf", "sptf", "ecs", "ecs:5", "hrs"] {
            let mut testbed = Testbed::new(random, &[scheduler]);
            (0..5).for_each(|_| testbed.push(random));
            let (arm, now) = (Arm::default(), Ps(random.random_range(0..1 << 40)));
            let Some(pick) = testbed.queues[0].pick(arm, now) else {
                continue;
            };
            let service = testbed.drive.service(arm, now, pick.lbn, pick.sectors, pick.write);
            assert_eq!(
                (pick.reach.seek, pick.reach.rotation),
                (service.seek, service.rotation),
                "{scheduler}"
            );
        }
    });
}

#[test]
fn requests_for_one_region_are_served_in_order_and_share_a_walk() {
    let drive = Arc::new(Drive::named("hp-c2247a").expect("built in"));
    let mut queue = Queue::new(Arc::clone(&drive), "hrs".parse().expect("a scheduler"));
    let group = RangeSet::from_unsorted([(0, 32_768)]).expect("few");
    let region = queue.add_region(Targets::new(&drive, &group, 8, 8).expect("there is room"));
    (0..50).for_each(|id| queue.push(id, QueueRequest::Anywhere(region)));
    let (mut arm, mut now) = (drive.locate(Lbn(0)).arm, Ps::ZERO);
    for id in 0..50 {
        let pick = queue.pick(arm, now).expect("somebody waits");
        assert_eq!(pick.id, id);
        queue.region_mut(region).take(pick.lbn.0, pick.lbn.0 + 8);
        let service = drive.service(arm, now, pick.lbn, 8, true);
        (arm, now) = (service.end, now + service.total());
    }
    // One walk looks at the head's own track and those of the cylinder that a switch reaches in time, not at 50 times 342 tracks.
    assert!(queue.estimations() < 50 * 15, "{}", queue.estimations());
    assert!(queue.is_empty());
}

#[test]
fn who_waits_for_a_full_region_waits_until_it_has_room() {
    let drive = Arc::new(Drive::named("hp-c2247a").expect("built in"));
    for scheduler in ["fcfs", "sstf", "sptf", "ecs", "ecs:2", "hrs", "hrs:whole"] {
        let mut queue = Queue::new(Arc::clone(&drive), scheduler.parse().expect("a scheduler"));
        let two = RangeSet::from_unsorted([(80, 16)]).expect("few");
        let region = queue.add_region(Targets::new(&drive, &two, 8, 8).expect("there is room"));
        queue.region_mut(region).take(80, 96);
        queue.push(7, QueueRequest::Anywhere(region));
        assert_eq!(queue.pick(Arm::default(), Ps::ZERO), None, "{scheduler}");
        assert_eq!((queue.len(), queue.decisions()), (1, 0));
        queue.region_mut(region).give(90, 96); // no aligned place yet: 88 and 89 are in use
        assert_eq!(queue.pick(Arm::default(), Ps::ZERO), None, "{scheduler}");
        queue.region_mut(region).give(88, 90);
        let pick = queue.pick(Arm::default(), Ps::ZERO).expect("there is room");
        assert_eq!((pick.id, pick.lbn), (7, Lbn(88)), "{scheduler}");
    }
}

#[test]
fn a_write_with_no_aligned_place_is_refused_with_the_reason() {
    let drive = Drive::named("hp-c2247a").expect("built in");
    let free = RangeSet::from_unsorted([(1, 14), (100, 3)]).expect("few");
    let said = Targets::new(&drive, &free, 8, 8)
        .expect_err("sectors 8 to 16 are not all free")
        .to_string();
    assert!(said.contains("8 sectors") && said.contains("largest has 14"), "{said}");
}
