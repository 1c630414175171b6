//! Every order of events of a small world: one lock, three clients (over a Unix socket, over TCP, behind a proxy), three incarnations of the service.
//!
//! The simulation runs the shipped code on random orders; this is a model of the protocol, in which no order within its bounds is left out.
//! It says of the *rules* (whose lease ends first, what may be asserted again, whose word is believed) that they are enough, and by leaving
//! one out that it would be missed.
//!
//! ```text
//!   client 0 ---- Unix ----.
//!   client 1 ---- TCP ------ service (incarnations 1, 2, 3)
//!   client 2 - Unix - proxy -'
//! ```
//!
//! There is no clock. That a lease ends first at the client is a rule of the model: the service ends a session, and a grace period, only
//! when those who relied on it know that their lease is over. A process that is stopped is one that takes no step. A request under way is one that is not
//! sent yet, and changes nothing; an answer under way may come late, over a link that has been replaced.
//!
//! *Believes* is what `Hold::check` says at that instant: the link is not seen to be broken, the lease is not over, and nothing that came says otherwise.
//!
//! Not in it: bytes, kinds and queues of several files (the table's own model), what a proxy keeps, deaths of clients (the dead believe nothing).

#![allow(clippy::unwrap_used)] // of what is asserted

mod client;
mod service;
mod world;

use stateright::{Checker, HasDiscoveries, Model};

use self::world::{Rule, World};

#[test]
fn in_no_order_of_events_do_two_believe_to_hold() {
    let checker = World { broken: None }.checker().spawn_bfs().join();
    println!("{} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Without any of the rules two believe to hold, or tokens do not grow.
#[test]
fn each_rule_is_missed_when_it_is_broken() {
    for rule in Rule::ALL {
        let world = World { broken: Some(rule) };
        let checker = world
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let states = checker.unique_state_count();
        let found = checker.discovery("nothing is wrong");
        let path = found.unwrap_or_else(|| panic!("{rule:?} is not missed in {states} states"));
        println!("{rule:?}, {states} states: {:?}", path.into_actions());
    }
}
