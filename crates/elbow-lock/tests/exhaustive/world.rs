//! All of it, and what can happen next.

use stateright::{Model, Property};

use super::client::{Client, Link, Phase};
use super::service::{Party, Reply, Service, Token};

const CLIENTS: usize = 3;
const UNIX: usize = 0;
const TCP: usize = 1;
const BEHIND: usize = 2;
const INCARNATIONS: u8 = 3;
/// Connections of each client, and of the proxy.
const LINKS: [u8; CLIENTS] = [3, 2, 2];
const PROXY_LINKS: u8 = 2;
/// An epoch that is taken from a clock.
const BY_CLOCK: u8 = 100;

/// What holds, and may be left out to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    OnlyTheLastIncarnationThatGranted,
    RepliesAreOfTheirLink,
    AGrantIsLookedAtWhenItIsTaken,
    WithoutMemoryNothingIsGranted,
    EpochsWithoutMemoryAreNew,
    TheLeaseBehindAProxyEndsFirst,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] = [
        Self::OnlyTheLastIncarnationThatGranted,
        Self::RepliesAreOfTheirLink,
        Self::AGrantIsLookedAtWhenItIsTaken,
        Self::WithoutMemoryNothingIsGranted,
        Self::EpochsWithoutMemoryAreNew,
        Self::TheLeaseBehindAProxyEndsFirst,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) broken: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    incarnations: u8,
    service: Service,
    has_moved: bool,
    clients: [Client; CLIENTS],
    /// The proxy's link to the service; how many it has had.
    proxy: Link,
    proxy_links: u8,
    /// The largest token of a grant that was no assertion, and the incarnation that gave it.
    largest: (Token, u8),
    wrong: Option<Wrong>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    /// A thread was told that it is alone while another one was, too.
    ToldTooLate,
    TokenNotLarger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// And asserts, or asks.
    Connect(usize),
    /// A thread reads, and says it later.
    Read,
    Say,
    /// The wait returns.
    Return(usize),
    Release(usize),
    LeaseOver(usize),
    ProxyLeaseOver,
    /// It is killed, or sees that its connection has ended: there is another one.
    ProxyAgain,
    /// A session with a lease.
    Expire(Party),
    GraceEnds,
    /// The service is killed, and there is another one. Between the two nothing can happen that cannot after them.
    Restart,
    /// The same, and that one has not the memory.
    Move,
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let service = Service::first(1);
        vec![State {
            incarnations: 1,
            proxy: Link::new((1, service.epoch)),
            service,
            has_moved: false,
            clients: std::array::from_fn(|_| Client::new()),
            proxy_links: 1,
            largest: (0, 0),
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for number in 0..CLIENTS {
            state.of_client(number, actions);
        }
        state.of_proxy(self, actions);
        state.of_service(actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.happen(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is wrong", |_, state: &State| {
                state.wrong.is_none() && state.believers() < 2
            }),
            Property::always("what nobody holds is granted", |_, state: &State| {
                let is_left = |it: &Service| !it.is_grace && it.holder.is_none() && !it.waits.is_empty();
                !is_left(&state.service)
            }),
            Property::sometimes("all have had it", |_, state: &State| {
                state.largest == (1, 1) && state.clients.iter().all(|client| client.phase == Phase::Done)
            }),
            Property::sometimes("it is held over two restarts", |_, state: &State| {
                state.incarnations == INCARNATIONS && state.largest.1 == 1 && state.believers() == 1
            }),
            Property::sometimes(
                "the one behind the proxy gets it from the last incarnation",
                |_, state: &State| state.largest.1 == INCARNATIONS && state.clients[BEHIND].believes(),
            ),
        ]
    }
}

impl World {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn looks(&self) -> bool {
        self.keeps(Rule::AGrantIsLookedAtWhenItIsTaken)
    }
}

/// What can happen.
impl State {
    fn believers(&self) -> usize {
        self.clients.iter().filter(|client| client.believes()).count()
    }

    fn of_client(&self, number: usize, actions: &mut Vec<Action>) {
        let client = &self.clients[number];
        let is_possible = match number {
            BEHIND => !client.is_good() && self.proxy.is_good(),
            // It sees that its session has ended, and connects.
            TCP => !client.is_good() || !self.service.parties().any(|party| party == self.party(TCP)),
            _ => !client.is_good(),
        };
        if is_possible && client.links < LINKS[number] && client.phase != Phase::Done {
            actions.push(Action::Connect(number));
        }
        match client.phase {
            Phase::Granted(_) | Phase::Stale => actions.push(Action::Return(number)),
            Phase::Ours(_) => actions.push(Action::Release(number)),
            _ => {}
        }
        if number != UNIX && client.link.is_some_and(|link| !link.is_over) {
            actions.push(Action::LeaseOver(number));
        }
        if number == TCP {
            self.of_tcp(client, actions);
        }
    }

    fn of_tcp(&self, client: &Client, actions: &mut Vec<Action>) {
        if client.late.is_some() {
            actions.push(Action::Say);
        }
        if client.late.is_none() && !client.replies.is_empty() {
            actions.push(Action::Read);
        }
    }

    fn of_proxy(&self, world: &World, actions: &mut Vec<Action>) {
        // What it promised its client ends before what it was promised.
        let may_end = !self.clients[BEHIND].is_good() || !world.keeps(Rule::TheLeaseBehindAProxyEndsFirst);
        if self.proxy.is_good() && may_end {
            actions.push(Action::ProxyLeaseOver);
        }
        if self.proxy_links < PROXY_LINKS {
            actions.push(Action::ProxyAgain);
        }
    }

    fn of_service(&self, actions: &mut Vec<Action>) {
        let over = self.service.parties().filter(|party| !self.relies_on(party));
        actions.extend(over.map(Action::Expire));
        let relies = |link: &Link| link.is_good() && link.incarnation != self.incarnations;
        if self.service.is_grace && !relies(&self.proxy) && !self.clients[TCP].link.as_ref().is_some_and(relies) {
            actions.push(Action::GraceEnds);
        }
        if self.incarnations < INCARNATIONS {
            actions.push(Action::Restart);
            if !self.has_moved {
                actions.push(Action::Move);
            }
        }
    }

    /// Whether somebody still counts on a session's lease.
    fn relies_on(&self, party: &Party) -> bool {
        let client = &self.clients[party.client];
        match party.client {
            UNIX => client.links == party.link && client.link.is_some_and(|link| !link.is_broken),
            TCP => client.links == party.link && client.link.is_some_and(|link| !link.is_over),
            _ => self.proxy_links == party.proxy_link && !self.proxy.is_over,
        }
    }

    fn party(&self, client: usize) -> Party {
        Party {
            client,
            link: self.clients[client].links,
            proxy_link: if client == BEHIND { self.proxy_links } else { 0 },
        }
    }
}

/// What comes of it.
impl State {
    fn happen(&mut self, world: &World, action: Action) {
        match action {
            Action::Connect(number) => self.connect(number, world.looks()),
            Action::Read => {
                let client = &mut self.clients[TCP];
                client.late = Some((client.links, client.replies.remove(0)));
            }
            Action::Say => {
                let late = self.clients[TCP].late.take();
                let is_current = |link| link == self.clients[TCP].links;
                if let Some((link, reply)) = late
                    && (is_current(link) || !world.keeps(Rule::RepliesAreOfTheirLink))
                {
                    self.receive(TCP, reply, world.looks());
                }
            }
            Action::Return(number) => self.wait_returns(number, world.looks()),
            Action::Release(number) => {
                let party = self.party(number);
                let hears = self.clients[number].is_good();
                if hears {
                    self.service.forget(|other| *other == party);
                }
                self.clients[number].end();
                self.settle();
            }
            Action::LeaseOver(number) => self.clients[number]
                .link
                .iter_mut()
                .for_each(|link| link.is_over = true),
            Action::ProxyLeaseOver => self.proxy.is_over = true,
            Action::ProxyAgain => {
                self.proxy_links += 1;
                self.proxy = Link::new((self.incarnations, self.service.epoch));
                self.breaks(BEHIND);
            }
            Action::Expire(party) => {
                self.service.forget(|other| *other == party);
                self.settle();
            }
            Action::GraceEnds => {
                self.service.is_grace = false;
                self.settle();
            }
            Action::Restart => {
                let any_incarnation = !world.keeps(Rule::OnlyTheLastIncarnationThatGranted);
                self.begin(Service::after(self.service.memory(), any_incarnation));
            }
            Action::Move => self.move_without_memory(world),
        }
        for client in self.clients.iter_mut().filter(|client| client.phase == Phase::Done) {
            client.end();
        }
    }

    fn breaks(&mut self, number: usize) {
        self.clients[number]
            .link
            .iter_mut()
            .for_each(|link| link.is_broken = true);
    }

    fn connect(&mut self, number: usize, looks: bool) {
        let service = &mut self.service;
        let link = match number {
            BEHIND => (self.proxy.incarnation, self.proxy.epoch),
            _ => (self.incarnations, service.epoch),
        };
        if number == BEHIND {
            // The proxy gives up what its client wanted over the link before.
            let proxy_link = self.proxy_links;
            service.forget(|party| party.client == BEHIND && party.proxy_link == proxy_link);
        }
        let is_grace = service.is_grace && link.0 == self.incarnations;
        self.clients[number].connect(link, is_grace, number != UNIX, looks);
        self.settle();
        self.ask(number, link.0, looks);
    }

    /// Asks for what it has not, or asserts what it has; nobody answers for an incarnation that is over.
    fn ask(&mut self, number: usize, incarnation: u8, looks: bool) {
        let party = self.party(number);
        let phase = self.clients[number].phase;
        if incarnation != self.incarnations {
            return;
        }
        let service = &mut self.service;
        match phase {
            Phase::PendingLock => {
                service.ask(party);
                self.settle();
            }
            Phase::Reasserting(token, _) => {
                let reply = match service.reassert(party, token) {
                    true => Reply::Granted(service.epoch),
                    false => Reply::Refused,
                };
                self.deliver(party, reply, looks);
            }
            _ => {}
        }
    }

    fn settle(&mut self) {
        let token = self.service.epoch;
        let Some(party) = self.service.settle() else { return };
        let (largest, incarnation) = self.largest;
        if token < largest || (token == largest && incarnation != self.incarnations) {
            self.wrong = Some(Wrong::TokenNotLarger);
        }
        self.largest = self.largest.max((token, self.incarnations));
        self.deliver(party, Reply::Granted(token), true);
    }

    /// Over TCP an answer is under way for a while; elsewhere that changes nothing.
    fn deliver(&mut self, party: Party, reply: Reply, looks: bool) {
        let Party { client, .. } = party;
        if self.party(client) != party {
            return;
        }
        match client {
            TCP => self.clients[TCP].replies.push(reply),
            _ if self.clients[client].link.is_some_and(|link| !link.is_broken) => self.receive(client, reply, looks),
            _ => {}
        }
    }

    fn receive(&mut self, number: usize, reply: Reply, looks: bool) {
        let incarnation = self.clients[number].link.map(|link| link.incarnation);
        if self.clients[number].receive(reply, looks)
            && let Some(incarnation) = incarnation
        {
            self.ask(number, incarnation, looks);
        }
    }

    fn wait_returns(&mut self, number: usize, looks: bool) {
        // It finds that the lease is over or the link broken, and connects.
        if looks && !self.clients[number].is_good() {
            return;
        }
        if self.believers() > 0 {
            self.wrong = Some(Wrong::ToldTooLate);
        }
        self.clients[number].phase = match self.clients[number].phase {
            Phase::Granted(token) => Phase::Ours(token),
            _ => Phase::Done,
        };
    }

    fn move_without_memory(&mut self, world: &World) {
        self.has_moved = true;
        let epoch = if world.keeps(Rule::EpochsWithoutMemoryAreNew) {
            BY_CLOCK
        } else {
            1
        };
        self.begin(match world.keeps(Rule::WithoutMemoryNothingIsGranted) {
            true => Service::without_memory(epoch),
            false => Service::first(epoch),
        });
    }

    fn begin(&mut self, service: Service) {
        self.incarnations += 1;
        self.service = service;
        self.breaks(UNIX);
    }
}
