//! The whole lock service in a simulation: clients, connections, clocks, deaths and restarts, in one thread and decided
//! by a seed.
//!
//! ```text
//!   client -----------+                                        what goes wrong: connections are cut (each end hears of
//!   client -----------+-- links --> service (shards, leases)   it soon, late or never), clients and the proxy die, the
//!   client -- proxy --+                                        service dies and begins its next life, nodes stand still,
//!   client ----'                                               clocks run wrong and are set
//! ```
//!
//! What must be true, whatever happens:
//! - at no instant do two clients believe that they hold conflicting locks; nor does anybody do I/O under a lock after
//!   somebody did under a later one (`world`);
//! - the service grants, refuses and wakes as the definition of the table says, and its tokens grow (`witness`);
//! - when things stop going wrong, everybody gets done, and the service holds nothing any more.
//!
//! The same simulation finds bugs that are planted in the service, the clients and the proxy. `SEED=n` repeats a case,
//! `ROUNDS=n` runs so many, `SOAK=1` a million.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod proxy;
mod service;
mod witness;
mod world;

use std::cell::RefCell;
use std::rc::Rc;

use rand::Rng;
use rand::rngs::StdRng;

use client::{Client, ClientFlaw};
use proxy::{Proxy, ProxyFlaw};
use service::{Locks, Service, Trust};
use support::naive::Flaw;
use support::{cases_to_fail, for_each_seed};
use witness::Witness;
use world::{Fault, World};

/// The lease of every session.
pub(crate) const TTL_MS: u32 = 800;
/// Nodes: the service, clients of its own, a proxy and its clients.
const SERVICE: usize = 0;
const CLIENTS: std::ops::RangeInclusive<usize> = 1..=2;
const PROXY: usize = 3;
const CLIENTS_OF_PROXY: std::ops::RangeInclusive<usize> = 4..=5;
/// How long things go wrong.
const TROUBLE_MS: u64 = 1500;
/// How long everybody may take to get done afterwards.
const PATIENCE_MS: u64 = 60_000;

/// What is planted.
#[derive(Clone, Copy, Debug)]
struct Planted {
    table: Flaw,
    client: ClientFlaw,
    proxy: ProxyFlaw,
    service: Trust,
}

const SOUND: Planted = Planted {
    table: Flaw::None,
    client: ClientFlaw::None,
    proxy: ProxyFlaw::None,
    service: Trust::Deaths,
};

/// What happened in a case.
struct Outcome {
    world: world::Told,
    service: witness::Told,
}

fn run(rng: &mut StdRng, planted: Planted) -> Outcome {
    let witness = Rc::new(RefCell::new(Witness::default()));
    let mut world = World::new(birth(rng, planted, Rc::clone(&witness)));
    // The service's clock may be 2 % wrong and those of clients 5 % slow or 10 % fast: together less than the margin.
    world.add(SERVICE, rng.random_range(0..1000), rng.random_range(980..=1020));
    for client in CLIENTS {
        world.add(client, rng.random_range(0..1_000_000), rng.random_range(950..=1100));
    }
    let (clock, rate) = (rng.random_range(0..1_000_000), rng.random_range(950..=1100));
    for _ in PROXY..=*CLIENTS_OF_PROXY.end() {
        world.add(PROXY, clock, rate);
    }
    trouble(rng, &mut world);
    while world.now < TROUBLE_MS + PATIENCE_MS && world.step(rng) {
        if world.now > TROUBLE_MS && world.is_done() {
            break;
        }
    }
    assert!(
        world.is_done(),
        "at {}: somebody waits for ever, or something is left in the service",
        world.now
    );
    let service = witness.borrow().told.clone();
    Outcome {
        world: world.told,
        service,
    }
}

/// The service and the proxy are in their next life whenever they are born.
fn birth(
    rng: &mut StdRng,
    planted: Planted,
    witness: Rc<RefCell<Witness>>,
) -> Box<dyn FnMut(usize, u64) -> Box<dyn world::Node>> {
    let seed: u64 = rng.random();
    let (mut epoch, mut held_since, mut life) = (0, 0, 0);
    Box::new(move |id, now_ms| match id {
        SERVICE => {
            if !witness.borrow().in_grace() {
                held_since = epoch;
            }
            epoch += 1;
            let grace_until_ms = if epoch == 1 { 0 } else { now_ms + u64::from(TTL_MS) };
            let locks = Locks::new(planted.table, epoch, grace_until_ms, held_since);
            let trust = planted.service;
            Box::new(Service::new(locks, epoch, grace_until_ms, trust, Rc::clone(&witness)))
        }
        PROXY => {
            life += 1;
            Box::new(Proxy::new(SERVICE, life, planted.proxy))
        }
        client => {
            let service = if CLIENTS.contains(&client) { SERVICE } else { PROXY };
            Box::new(Client::new(service, seed ^ client as u64, 3, planted.client))
        }
    })
}

fn trouble(rng: &mut StdRng, world: &mut World) {
    let troubles = rng.random_range(0..8);
    // In some cases it all happens to the proxy, which has few rivals otherwise.
    let only_proxy = rng.random_bool(0.4);
    let mut set_back = [false; *CLIENTS_OF_PROXY.end() + 1];
    for _ in 0..troubles {
        let at = rng.random_range(0..TROUBLE_MS);
        let node = if only_proxy {
            PROXY
        } else {
            rng.random_range(1..set_back.len())
        };
        let machine = node.min(PROXY);
        let fault = match rng.random_range(0..16) {
            0..5 => Fault::Cut(node),
            5 | 6 => Fault::Kill(SERVICE, Some(rng.random_range(0..300))),
            7 => Fault::Kill(node, (node == PROXY).then(|| rng.random_range(0..300))),
            8..11 => Fault::Pause(node, rng.random_range(0..2000)),
            11 | 12 => Fault::Pause(SERVICE, rng.random_range(0..1000)),
            // Back by what the margin has room for, once; ahead as far as it likes.
            13 if !std::mem::replace(&mut set_back[machine], true) => {
                Fault::SetClock(node, -rng.random_range(0..=i64::from(TTL_MS) / 50))
            }
            _ => Fault::SetClock(node, rng.random_range(0..2000)),
        };
        world.schedule(at, fault);
    }
}

#[test]
fn no_two_believe_to_hold_and_everybody_gets_done() {
    let totals = std::sync::Mutex::new((world::Told::default(), witness::Told::default(), 0));
    for_each_seed(10_000, |rng| {
        let outcome = run(rng, SOUND);
        let (world, service, cases) = &mut *totals.lock().unwrap();
        add_world(world, &outcome.world);
        add_service(service, &outcome.service);
        *cases += 1;
    });
    let (world, service, cases) = totals.into_inner().unwrap();
    println!("{cases} cases: {world:?}, {service:?}");
    if cases >= 1000 {
        assert!(
            world.cuts > 0 && world.kills > 0 && world.pauses > 0 && world.clocks_set > 0 && world.lost_messages > 0
        );
        assert!(service.reasserted > 0 && service.disconnected > 0 && service.restarts > cases && service.recalls > 0);
        assert!(service.passed > 0, "nobody ever passed a queue");
        for what in ["would block", "timed out", "cancelled", "deadlock", "grace"] {
            assert!(service.refused.contains_key(what), "nobody was ever refused: {what}");
        }
    }
}

/// The simulation is worth what it finds.
#[test]
fn the_simulation_finds_planted_bugs() {
    let table = |table| Planted { table, ..SOUND };
    let client = |client| Planted { client, ..SOUND };
    let proxy = |proxy| Planted { proxy, ..SOUND };
    let service = |service| Planted { service, ..SOUND };
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
        service(Trust::DeathsOfProxies),
        service(Trust::Everything),
    ];
    for planted in planted {
        let cases = cases_to_fail(20_000, |rng| drop(run(rng, planted)));
        println!("found after {cases:?} cases: {planted:?}");
        assert!(cases.is_some(), "not found: {planted:?}");
    }
}

fn add_world(sum: &mut world::Told, told: &world::Told) {
    sum.events += told.events;
    sum.ios += told.ios;
    sum.cuts += told.cuts;
    sum.lost_messages += told.lost_messages;
    sum.kills += told.kills;
    sum.pauses += told.pauses;
    sum.clocks_set += told.clocks_set;
}

fn add_service(sum: &mut witness::Told, told: &witness::Told) {
    sum.grants += told.grants;
    sum.reasserted += told.reasserted;
    sum.restarts += told.restarts;
    sum.disconnected += told.disconnected;
    sum.recalls += told.recalls;
    sum.passed += told.passed;
    for (&what, count) in &told.refused {
        *sum.refused.entry(what).or_default() += count;
    }
}
