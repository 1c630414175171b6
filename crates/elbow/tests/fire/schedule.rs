//! What happens to whom, and when: drawn from a seed, and nothing but that.
//!
//! Each service, proxy and client has a lane of its own, in which one fault follows another; lanes do not look at each other. A lane begins with each
//! kind of fault once, in an order that is drawn, so that no seed is a schedule that lacks one.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

pub(crate) const PROXIES: usize = 2;
pub(crate) const CLIENTS: usize = 12;
/// Longest lease that the service gives, and its grace period.
pub(crate) const TTL_MS: u64 = 1_000;
/// Each incarnation of a service has the next epoch, and a service without its memory begins so few above the minutes since 2026.
const LIVES_MAX: usize = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Service,
    Proxy(usize),
    Client(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Killed, and started again later.
    Kill,
    /// Stopped, and continued later.
    Stop,
    /// Killed; later another one begins at its address with a copy of its state file.
    Move,
}

/// A fault and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) at_ms: u64,
    pub(crate) target: Target,
    pub(crate) fault: Fault,
    pub(crate) for_ms: u64,
}

/// The faults of so many milliseconds, in order of time.
pub(crate) fn draw(seed: u64, length_ms: u64) -> Vec<Event> {
    let mut rng = StdRng::seed_from_u64(seed);
    let proxies = (0..PROXIES).map(Target::Proxy);
    let clients = (0..CLIENTS).map(Target::Client);
    let targets = std::iter::once(Target::Service).chain(proxies).chain(clients);
    let mut events: Vec<Event> = targets.flat_map(|target| lane(&mut rng, target, length_ms)).collect();
    events.sort_unstable();
    events
}

fn lane(rng: &mut StdRng, target: Target, length_ms: u64) -> Vec<Event> {
    let mut firsts = kinds(target).to_vec();
    firsts.shuffle(rng);
    let (mut lane, mut at_ms) = (Vec::new(), rng.random_range(500..3_000));
    while at_ms < length_ms && (target != Target::Service || lane.len() < LIVES_MAX) {
        let fault = firsts.pop().unwrap_or_else(|| any_fault(rng, target));
        let (lasts, pause) = times(rng, target, fault);
        let for_ms = rng.random_range(lasts);
        lane.push(Event {
            at_ms,
            target,
            fault,
            for_ms,
        });
        at_ms += for_ms + rng.random_range(pause);
    }
    lane
}

fn kinds(target: Target) -> &'static [Fault] {
    match target {
        Target::Service => &[Fault::Kill, Fault::Move, Fault::Stop],
        Target::Proxy(_) | Target::Client(_) => &[Fault::Kill, Fault::Stop],
    }
}

fn any_fault(rng: &mut StdRng, target: Target) -> Fault {
    match (target, rng.random_range(0..10)) {
        (Target::Service | Target::Proxy(_), 0..4) | (Target::Client(_), 0..3) => Fault::Kill,
        (Target::Service, 4..6) => Fault::Move,
        _ => Fault::Stop,
    }
}

/// How long a fault lasts, and how long there is none after it.
fn times(rng: &mut StdRng, target: Target, fault: Fault) -> (Range<u64>, Range<u64>) {
    // Shorter than a lease, or longer.
    let stop = match rng.random_bool(0.5) {
        true => 50..TTL_MS / 2,
        false => TTL_MS * 5 / 4..TTL_MS * 5 / 2,
    };
    match (target, fault) {
        (Target::Service, Fault::Stop) => (stop, 700..3_000),
        (Target::Service, _) => (0..600, 1_700..4_000),
        (_, Fault::Stop) => (stop, 500..4_000),
        (Target::Proxy(_), _) => (0..600, 1_000..5_000),
        (Target::Client(_), _) => (0..300, 500..5_000),
    }
}

#[test]
fn each_seed_is_a_schedule_with_every_fault() {
    assert_eq!(draw(7, 45_000), draw(7, 45_000));
    assert_ne!(draw(7, 45_000), draw(8, 45_000));
    for seed in 0..1_000 {
        let schedule = draw(seed, 45_000);
        let targets = std::iter::once(Target::Service)
            .chain((0..PROXIES).map(Target::Proxy))
            .chain((0..CLIENTS).map(Target::Client));
        for (target, fault) in targets.flat_map(|target| kinds(target).iter().map(move |&fault| (target, fault))) {
            let has = schedule
                .iter()
                .any(|event| event.fault == fault && event.target == target);
            assert!(has, "seed {seed}: no {fault:?} of {target:?}");
        }
        let stops = || schedule.iter().filter(|event| event.fault == Fault::Stop);
        assert!(stops().any(|stop| stop.for_ms < TTL_MS) && stops().any(|stop| stop.for_ms > TTL_MS));
    }
}
