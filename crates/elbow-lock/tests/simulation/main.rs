//! The whole lock service in a simulation: clients, connections, clocks, deaths and restarts, in one thread and decided
//! by a seed.
//!
//! ```text
//!   clients, lease ---+                                        what goes wrong: connections are cut (each end hears of
//!   clients, none ----+-- links --> service (shards, leases)   it soon, late or never), clients and the proxy die, the
//!   clients - proxy --+                                        service dies and goes on as another, which may know nothing
//!                                                              of the one before; nodes and single threads stand still,
//!                                                              clocks run wrong and are set
//! ```
//!
//! What must be true, whatever happens:
//! - at no instant do two clients believe that they hold conflicting locks; nor does anybody do I/O under a lock after
//!   somebody did under a later one (`world`);
//! - the service grants, refuses and wakes as the definition of the table says, and its tokens grow (`checker`);
//! - so also when somebody breaks the locks of a client, without force;
//! - when things stop going wrong, everybody gets done, and the service holds nothing any more.
//!
//! The same simulation finds bugs that are planted in the service, the clients and the proxy. `SEED=n` repeats a case,
//! `ROUNDS=n` runs so many, `SOAK=1` a million.

#[path = "../support/mod.rs"]
mod support;

mod checker;
mod client;
mod frame;
mod proxy;
mod service;
mod world;

use std::cell::RefCell;
use std::rc::Rc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use checker::Checker;
use client::{Client, ClientFlaw};
use proxy::{Proxy, ProxyFlaw};
use service::{Locks, Service, Trust};
use support::naive::Flaw;
use support::{cases_to_fail, for_each_seed};
use world::{Fault, World};

/// The lease that everybody asks for, and the longest that a service gives.
pub(crate) const TTL_MS: u32 = 800;
/// What some services give at most: the margin of these has room for wrong clocks, too.
const TTL_MS_MIN: u32 = 400;
/// Nodes: the service, clients of its own, a proxy and its clients.
const SERVICE: usize = 0;
const CLIENTS: std::ops::RangeInclusive<usize> = 1..=2;
const PROXY: usize = 3;
const CLIENTS_OF_PROXY: std::ops::RangeInclusive<usize> = 4..=5;
/// On the service's machine, without a lease.
const LOCAL_CLIENTS: std::ops::RangeInclusive<usize> = 6..=7;
/// How long things go wrong.
const TROUBLE_MS: u64 = 2500;
/// How long everybody may take to get done afterwards.
const PATIENCE_MS: u64 = 60_000;

/// What is planted.
#[derive(Clone, Copy, Debug)]
struct Planted {
    table: Flaw,
    client: ClientFlaw,
    proxy: ProxyFlaw,
    service: Trust,
    /// A service that has lost its memory begins as if there had been none: a bug.
    assumes_first: bool,
    /// A service waits as long as its own leases are, not as long as those of the one before: a bug.
    forgets_leases: bool,
    /// A service lets hold again what any incarnation before has granted, not noting that others have granted since: a bug, in the real shard.
    notes_no_grants: bool,
}

const SOUND: Planted = Planted {
    table: Flaw::None,
    client: ClientFlaw::None,
    proxy: ProxyFlaw::None,
    service: Trust::Deaths,
    assumes_first: false,
    forgets_leases: false,
    notes_no_grants: false,
};

/// What happened in a case.
struct Outcome {
    world: world::EventCounts,
    service: checker::CheckCounts,
}

fn run(rng: &mut StdRng, fault_scope: FaultScope, planted: Planted) -> Outcome {
    let checker = Rc::new(RefCell::new(Checker::default()));
    let mut world = World::new(node_maker(rng, planted, Rc::clone(&checker)));
    // The service's clock may be 2 % wrong and those of clients 5 % slow or 10 % fast: together less than the margin.
    world.add(SERVICE, rng.random_range(0..1000), rng.random_range(980..=1020));
    for client in CLIENTS {
        world.add(client, rng.random_range(0..1_000_000), rng.random_range(950..=1100));
    }
    let (clock, rate) = (rng.random_range(0..1_000_000), rng.random_range(950..=1100));
    for _ in PROXY..=*CLIENTS_OF_PROXY.end() {
        world.add(PROXY, clock, rate);
    }
    for _ in LOCAL_CLIENTS {
        world.add(SERVICE, 0, 1000);
    }
    fault_scope.plan(rng, &mut world);
    while world.now < TROUBLE_MS + PATIENCE_MS && world.step(rng) {
        if world.now > TROUBLE_MS && world.is_done() {
            break;
        }
    }
    assert!(
        world.is_done(),
        "at {}: somebody waits for ever, or something is left in the service:\n{}",
        world.now,
        world.undone()
    );
    let service = checker.borrow().counts.clone();
    Outcome {
        world: world.counts,
        service,
    }
}

/// Makes a node whenever it is started; the service and the proxy are then their next incarnation.
fn node_maker(
    rng: &mut StdRng,
    planted: Planted,
    checker: Rc<RefCell<Checker>>,
) -> Box<dyn FnMut(usize, u64) -> Box<dyn world::Node>> {
    let seed: u64 = rng.random();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut memory = Memory::default();
    let mut incarnation = 0;
    Box::new(move |id, now_ms| match id {
        SERVICE => {
            let was_in_grace = checker.borrow().in_grace();
            let ttl_ms = if rng.random_bool(0.25) { TTL_MS_MIN } else { TTL_MS };
            let grace_ms = memory.begin(was_in_grace, rng.random_bool(0.2), ttl_ms, planted);
            let grace_until_ms = if memory.is_first {
                0
            } else {
                now_ms + u64::from(grace_ms)
            };
            let held_since = if planted.notes_no_grants { 0 } else { memory.held_since };
            let locks = Locks::new(planted.table, memory.epoch, grace_until_ms, held_since);
            let (trust, checker) = (planted.service, Rc::clone(&checker));
            Box::new(Service::new(
                locks,
                memory.epoch,
                ttl_ms,
                grace_until_ms,
                trust,
                checker,
            ))
        }
        PROXY => {
            incarnation += 1;
            Box::new(Proxy::new(SERVICE, incarnation, planted.proxy))
        }
        client => {
            let is_of_proxy = CLIENTS_OF_PROXY.contains(&client);
            let identity = client::Identity {
                number: client as u64,
                service: if is_of_proxy { PROXY } else { SERVICE },
                ttl_ms: if LOCAL_CLIENTS.contains(&client) { 0 } else { TTL_MS },
                flaw: planted.client,
            };
            Box::new(Client::new(identity, seed ^ client as u64, 3))
        }
    })
}

/// What a service knows of those before it.
#[derive(Debug, Default)]
struct Memory {
    epoch: u32,
    /// Locks of these and later epochs may be asserted.
    held_since: u32,
    is_first: bool,
    /// The longest lease of the last service.
    ttl_ms: u32,
    /// How long its grace period was: as long as any lease from before it or of its own.
    grace_ms: u32,
}

impl Memory {
    /// A service begins; with `is_lost`, on another machine, where it knows nothing and lets nobody assert anything.
    /// Returns how long its grace period is.
    fn begin(&mut self, was_in_grace: bool, is_lost: bool, ttl_ms: u32, planted: Planted) -> u32 {
        self.is_first = self.epoch == 0 || is_lost && planted.assumes_first;
        let before_ms = match (is_lost, was_in_grace) {
            _ if planted.forgets_leases => 0,
            (true, _) => TTL_MS, // As long as any of which nothing is known.
            (false, true) => self.grace_ms,
            (false, false) => self.ttl_ms,
        };
        (self.ttl_ms, self.grace_ms) = (ttl_ms, ttl_ms.max(before_ms));
        if self.is_first {
            (self.epoch, self.held_since) = (1, 0);
        } else if is_lost {
            self.epoch += 1_000; // From the clock, which is far ahead of any count.
            self.held_since = self.epoch;
        } else {
            if !was_in_grace {
                self.held_since = self.epoch;
            }
            self.epoch += 1;
        }
        self.grace_ms
    }
}

/// Where things go wrong, in a case.
#[derive(Clone, Copy, Debug)]
enum FaultScope {
    Anywhere,
    /// All of it at the proxy, which has few rivals otherwise.
    AtProxy,
    /// A client without a lease stands still while the service dies, grants to others, and dies again.
    UnseenIncarnations,
    /// A client with a lease stands still while the service dies, and goes on before that lease is over, when the grace period of one with shorter leases may be.
    SeenTooLate,
}

impl FaultScope {
    fn any(rng: &mut StdRng) -> Self {
        match rng.random_range(0..11) {
            0..5 => Self::Anywhere,
            5..8 => Self::AtProxy,
            8..10 => Self::UnseenIncarnations,
            _ => Self::SeenTooLate,
        }
    }

    fn plan(self, rng: &mut StdRng, world: &mut World) {
        match self {
            Self::Anywhere | Self::AtProxy => plan_random(rng, world, self),
            Self::UnseenIncarnations => plan_unseen_incarnations(rng, world),
            Self::SeenTooLate => plan_seen_too_late(rng, world),
        }
        for _ in 0..rng.random_range(0..3) {
            let at = rng.random_range(0..TROUBLE_MS);
            world.schedule(at, Fault::Break(SERVICE, rng.random_range(0..6)));
        }
    }
}

fn plan_random(rng: &mut StdRng, world: &mut World, fault_scope: FaultScope) {
    let mut set_back = [false; *LOCAL_CLIENTS.end() + 1];
    for _ in 0..rng.random_range(0..8) {
        let at = rng.random_range(0..1500);
        let node = match fault_scope {
            FaultScope::AtProxy => PROXY,
            _ => rng.random_range(1..set_back.len()),
        };
        let machine = match node {
            node if LOCAL_CLIENTS.contains(&node) => SERVICE,
            node => node.min(PROXY),
        };
        let fault = match rng.random_range(0..16) {
            0..5 => Fault::Cut(node),
            5 | 6 => Fault::Kill(SERVICE, Some(rng.random_range(0..300))),
            7 => Fault::Kill(node, (node == PROXY).then(|| rng.random_range(0..300))),
            8..11 => Fault::Pause(node, rng.random_range(0..2000)),
            11 | 12 => Fault::Pause(SERVICE, rng.random_range(0..1000)),
            // A service's clock is one that nobody sets.
            13.. if machine == SERVICE => Fault::Pause(node, rng.random_range(0..2000)),
            // Back by what the margin has room for, once; ahead as far as it likes.
            13 if !std::mem::replace(&mut set_back[machine], true) => {
                Fault::SetClock(node, -rng.random_range(0..=i64::from(TTL_MS) / 50))
            }
            _ => Fault::SetClock(node, rng.random_range(0..2000)),
        };
        world.schedule(at, fault);
    }
}

fn plan_unseen_incarnations(rng: &mut StdRng, world: &mut World) {
    let stops = rng.random_range(100..600);
    let first_death = stops + rng.random_range(1..200);
    let restarted_after = rng.random_range(0..50);
    let second_death = first_death + restarted_after + u64::from(TTL_MS) + rng.random_range(1..150);
    let client = rng.random_range(LOCAL_CLIENTS);
    world.schedule(
        stops,
        Fault::Pause(client, second_death - stops + rng.random_range(0..200)),
    );
    world.schedule(first_death, Fault::Kill(SERVICE, Some(restarted_after)));
    world.schedule(second_death, Fault::Kill(SERVICE, Some(rng.random_range(0..50))));
}

fn plan_seen_too_late(rng: &mut StdRng, world: &mut World) {
    let stops = rng.random_range(100..1_500);
    let client = rng.random_range(CLIENTS);
    let longest = u64::from(TTL_MS);
    world.schedule(stops, Fault::Pause(client, rng.random_range(longest / 2..longest)));
    let death = stops + rng.random_range(0..longest / 8);
    world.schedule(death, Fault::Kill(SERVICE, Some(rng.random_range(0..20))));
}

#[test]
fn no_two_believe_to_hold_and_everybody_gets_done() {
    let totals = std::sync::Mutex::new((world::EventCounts::default(), checker::CheckCounts::default(), 0));
    for_each_seed(10_000, |rng| {
        let fault_scope = FaultScope::any(rng);
        let outcome = run(rng, fault_scope, SOUND);
        let (world, service, cases) = &mut *totals.lock().unwrap();
        add_world(world, &outcome.world);
        add_service(service, &outcome.service);
        *cases += 1;
    });
    let (world, service, cases) = totals.into_inner().unwrap();
    println!("{cases} cases: {world:?}, {service:?}");
    if cases >= 1000 {
        assert!(world.cuts > 0 && world.kills > 0 && world.pauses > 0 && world.clocks_set > 0);
        assert!(world.lost_pieces > 0 && world.split > 0 && world.joined > 0 && world.half_frames > 0);
        assert!(service.reasserted > 0 && service.disconnected > 0 && service.restarts > cases && service.recalls > 0);
        assert!(service.passed > 0, "nobody ever passed a queue");
        assert!(service.broken > 0, "nobody's locks were ever broken");
        for what in ["would block", "timed out", "cancelled", "deadlock", "grace"] {
            assert!(service.refused.contains_key(what), "nobody was ever refused: {what}");
        }
    }
}

/// The simulation is worth what it finds, in so many cases at most.
#[test]
fn the_simulation_finds_planted_bugs() {
    let at = |fault_scope, planted| (20_000, Some(fault_scope), planted);
    let table = |table| at(FaultScope::Anywhere, Planted { table, ..SOUND });
    let client = |client| at(FaultScope::Anywhere, Planted { client, ..SOUND });
    let proxy = |proxy| at(FaultScope::AtProxy, Planted { proxy, ..SOUND });
    let service = |fault_scope, service| at(fault_scope, Planted { service, ..SOUND });
    // Bugs that clients of a real service have acted on: an old incarnation's locks, an old link's words, an old grant, a service without a memory. They are found
    // where they are looked for, and by the cases of the gate too.
    let real = |fault_scope, planted| (1_000, Some(fault_scope), planted);
    let in_the_gate = |planted| (1_000, None, planted);
    let revived = Planted {
        table: Flaw::RevivesAnyEpoch,
        ..SOUND
    };
    let revived_by_shards = Planted {
        notes_no_grants: true,
        ..SOUND
    };
    let believed = Planted {
        client: ClientFlaw::BelievesOldLinks,
        ..SOUND
    };
    let old_grants = Planted {
        client: ClientFlaw::ActsOnOldGrants,
        ..SOUND
    };
    let forgetful = Planted {
        assumes_first: true,
        ..SOUND
    };
    let impatient = Planted {
        forgets_leases: true,
        ..SOUND
    };
    let planted = [
        table(Flaw::IgnoresQueue),
        table(Flaw::ForgetsToWakeOnCancel),
        table(Flaw::GrantsToTheDisconnected),
        table(Flaw::ComparesFirstRanges),
        table(Flaw::TokensStartAgain),
        table(Flaw::NoGrace),
        table(Flaw::NoDeadlockDetection),
        client(ClientFlaw::NeverChecksLease),
        client(ClientFlaw::CountsFromAnswers),
        client(ClientFlaw::KeepsLocksOfOldSession),
        proxy(ProxyFlaw::PromisesWholeLease),
        proxy(ProxyFlaw::RenewsItself),
        service(FaultScope::AtProxy, Trust::DeathsOfProxies),
        service(FaultScope::Anywhere, Trust::Everything),
        service(FaultScope::Anywhere, Trust::TheBroken),
        real(FaultScope::UnseenIncarnations, revived),
        real(FaultScope::Anywhere, believed),
        real(FaultScope::Anywhere, old_grants),
        real(FaultScope::Anywhere, forgetful),
        real(FaultScope::SeenTooLate, impatient),
        real(FaultScope::UnseenIncarnations, revived_by_shards),
        in_the_gate(revived),
        in_the_gate(revived_by_shards),
        in_the_gate(believed),
        in_the_gate(old_grants),
        in_the_gate(forgetful),
    ];
    for (at_most, fault_scope, planted) in planted {
        let cases = cases_to_fail(at_most, |rng| {
            let fault_scope = fault_scope.unwrap_or_else(|| FaultScope::any(rng));
            drop(run(rng, fault_scope, planted));
        });
        println!("found after {cases:?} cases: {fault_scope:?}, {planted:?}");
        assert!(cases.is_some(), "not found: {fault_scope:?}, {planted:?}");
    }
}

fn add_world(sum: &mut world::EventCounts, counts: &world::EventCounts) {
    sum.events += counts.events;
    sum.ios += counts.ios;
    sum.cuts += counts.cuts;
    sum.lost_pieces += counts.lost_pieces;
    sum.split += counts.split;
    sum.joined += counts.joined;
    sum.half_frames += counts.half_frames;
    sum.kills += counts.kills;
    sum.pauses += counts.pauses;
    sum.clocks_set += counts.clocks_set;
}

fn add_service(sum: &mut checker::CheckCounts, counts: &checker::CheckCounts) {
    sum.grants += counts.grants;
    sum.reasserted += counts.reasserted;
    sum.restarts += counts.restarts;
    sum.disconnected += counts.disconnected;
    sum.broken += counts.broken;
    sum.recalls += counts.recalls;
    sum.passed += counts.passed;
    for (&what, count) in &counts.refused {
        *sum.refused.entry(what).or_default() += count;
    }
}
