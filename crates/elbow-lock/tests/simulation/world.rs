//! A world of nodes, connections and clocks in one thread: what happens next is decided by a seed.
//!
//! ```text
//!   node --- link: two ordered streams, each with its own delays --- node
//!     a cut loses what is under way; either end hears of it soon, late or never
//! ```
//!
//! A link is a stream of bytes as TCP has it, written and read by the shipped codec: what arrives, arrives in order and once, in pieces that are no
//! messages: part of one, or the end of one with the beginning of the next. A cut leaves half a frame at the other end. What was sent on an old link can
//! arrive after the hello of a new one. A node sees only its own clock. It can die, stand still, and have its clock set; then it
//! is the node's business what it still believes, and the world's to compare beliefs at one true instant.
//!
//! A node is anything that implements [`Node`]: a service, a client, a proxy between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use elbow_lock::{FileName, Token, wire};
use rand::Rng;
use rand::rngs::StdRng;

use crate::frame::{self, Message};
use crate::support::naive::{Want, conflict};

pub(crate) type NodeId = usize;
pub(crate) type LinkId = usize;

/// Who comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hello {
    /// It speaks for others, who may live on when it dies.
    pub(crate) is_proxy: bool,
    /// 0: its session lasts as long as its connection, whose end is always known.
    pub(crate) ttl_ms: u32,
}

/// How a link ended, as far as this end knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The other end is known to have ended it or to be dead: as on a Unix socket.
    KnownOverlaps,
    /// It is gone, and the other end may not know: as with TCP.
    Lost,
}

/// A lock that a node would do I/O under.
#[derive(Clone, Debug)]
pub(crate) struct AssumedLock {
    pub(crate) want: Want,
    pub(crate) token: Token,
}

/// Something with a clock of its own that sends and receives. All times are its own clock's.
pub(crate) trait Node {
    fn started(&mut self, now_ms: u64, out: &mut Out);
    /// A link is open; whether it was this node that asked for it.
    fn opened(&mut self, now_ms: u64, link: LinkId, is_own: bool, out: &mut Out);
    fn received(&mut self, now_ms: u64, link: LinkId, message: Message, out: &mut Out);
    fn ended(&mut self, now_ms: u64, link: LinkId, ending: Ending, out: &mut Out);
    /// Somebody breaks the locks of one of its clients, chosen by a number.
    fn breaks(&mut self, _now_ms: u64, _which: u64, _out: &mut Out) {}
    /// It is `deadline`, or later.
    fn woke(&mut self, now_ms: u64, out: &mut Out);
    fn deadline(&self) -> Option<u64>;
    /// What it would do I/O under at this time.
    fn assumed_locks(&self, _now_ms: u64) -> Vec<AssumedLock> {
        Vec::new()
    }
    /// For who looks for what is not done.
    fn describe(&self) -> String {
        String::new()
    }
    /// The link that it looks at before whatever it does, as a program looks at a Unix socket: it knows at once when the other
    /// end is closed.
    fn polls(&self) -> Option<LinkId> {
        None
    }
    /// Whether it has done what it wanted to do.
    fn is_done(&self) -> bool {
        true
    }
}

/// What a node does.
#[derive(Debug, Default)]
pub(crate) struct Out {
    commands: Vec<Command>,
}

#[derive(Debug)]
enum Command {
    Connect(NodeId),
    Send(LinkId, Message),
    Close(LinkId),
    Io(AssumedLock),
}

impl Out {
    pub(crate) fn connect(&mut self, to: NodeId) {
        self.commands.push(Command::Connect(to));
    }

    pub(crate) fn send(&mut self, link: LinkId, message: Message) {
        self.commands.push(Command::Send(link, message));
    }

    pub(crate) fn close(&mut self, link: LinkId) {
        self.commands.push(Command::Close(link));
    }

    /// Reads or writes what a lock covers.
    pub(crate) fn io(&mut self, under: AssumedLock) {
        self.commands.push(Command::Io(under));
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// One of the links of a node breaks.
    Cut(NodeId),
    /// A node dies; a service is restarted after so many ms.
    Kill(NodeId, Option<u64>),
    /// A node stands still for so many ms.
    Pause(NodeId, u64),
    /// A clock is set.
    SetClock(NodeId, i64),
    /// Somebody breaks the locks of a client of a service, chosen by a number.
    Break(NodeId, u64),
}

struct Link {
    ends: [NodeId; 2],
    /// When the last message to each end arrives: the next is not earlier.
    arrives: [u64; 2],
    /// What arrives at an end later than this is lost.
    cut: [u64; 2],
    /// Whether an end has closed it or knows that it ended.
    is_closed: [bool; 2],
    /// Bytes to each end: those that go out with the next ones, or a little later.
    held: [Vec<u8>; 2],
    /// And those that have come there and are no whole frame yet.
    inbox: [Vec<u8>; 2],
}

enum Event {
    Opened(LinkId, usize),
    Arrives(LinkId, usize, Vec<u8>),
    /// What was held back goes out.
    Flush(LinkId, usize),
    Ended(LinkId, usize, Ending),
    Wake(NodeId, u64),
    Start(NodeId),
    Breaks(NodeId, u64),
    Fault(Fault),
}

struct Timed {
    at: u64,
    seq: u64,
    event: Event,
}

/// A clock: so many thousandths of a millisecond per true one.
struct Clock {
    rate: u64,
    from_true: u64,
    from: u64,
}

impl Clock {
    fn read(&self, true_ms: u64) -> u64 {
        self.from + (true_ms - self.from_true) * self.rate / 1000
    }

    /// The first true time at which it shows `local`.
    fn when(&self, local: u64) -> u64 {
        self.from_true + (local.saturating_sub(self.from) * 1000).div_ceil(self.rate)
    }

    fn set(&mut self, true_ms: u64, by: i64) {
        self.from = self.read(true_ms).saturating_add_signed(by);
        self.from_true = true_ms;
    }
}

struct Place {
    node: Option<Box<dyn Node>>,
    machine: usize,
    clock: Clock,
    stands_still_until: u64,
    /// When it wakes, and which of the wake events is that one.
    wakes: (u64, u64),
}

type MakeNode = Box<dyn FnMut(NodeId, u64) -> Box<dyn Node>>;

pub(crate) struct World {
    pub(crate) now: u64,
    seq: u64,
    events: BinaryHeap<Reverse<Timed>>,
    places: Vec<Place>,
    links: Vec<Link>,
    /// Makes a node anew when it is restarted.
    make_node: MakeNode,
    ios: Vec<AssumedLock>,
    pub(crate) counts: EventCounts,
}

/// What has happened, for tests that want to know that it did.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventCounts {
    pub(crate) events: u64,
    pub(crate) ios: u64,
    pub(crate) cuts: u64,
    /// Pieces that nobody got.
    pub(crate) lost_pieces: u64,
    /// Pieces that ended within a message.
    pub(crate) split: u64,
    /// Pieces with the end of one message and the beginning of another.
    pub(crate) joined: u64,
    /// Links that ended within a message.
    pub(crate) half_frames: u64,
    pub(crate) kills: u64,
    pub(crate) pauses: u64,
    pub(crate) clocks_set: u64,
}

impl World {
    pub(crate) fn new(make_node: MakeNode) -> Self {
        Self {
            now: 0,
            seq: 0,
            events: BinaryHeap::new(),
            places: Vec::new(),
            links: Vec::new(),
            make_node,
            ios: Vec::new(),
            counts: EventCounts::default(),
        }
    }

    /// A node that starts now, on a machine with a clock that starts at `clock` and counts `rate` thousandths of a ms
    /// per ms. Links within a machine are not cut, and both ends know when the other dies.
    pub(crate) fn add(&mut self, machine: usize, clock: u64, rate: u64) -> NodeId {
        let clock = Clock {
            rate,
            from_true: self.now,
            from: clock,
        };
        self.places.push(Place {
            node: None,
            machine,
            clock,
            stands_still_until: 0,
            wakes: (u64::MAX, 0),
        });
        let id = self.places.len() - 1;
        self.at(0, Event::Start(id));
        id
    }

    pub(crate) fn schedule(&mut self, at: u64, fault: Fault) {
        self.at(at, Event::Fault(fault));
    }

    pub(crate) fn is_done(&self) -> bool {
        self.places
            .iter()
            .all(|place| place.node.as_ref().is_none_or(|node| node.is_done()))
    }

    /// Nodes that are not done.
    pub(crate) fn undone(&self) -> String {
        let nodes = self.places.iter().enumerate();
        let undone = nodes.filter_map(|(id, place)| {
            let node = place.node.as_ref().filter(|node| !node.is_done())?;
            Some(format!("node {id}: {}", node.describe()))
        });
        undone.collect::<Vec<_>>().join("\n")
    }

    /// Lets the next thing happen. False when nothing ever will.
    pub(crate) fn step(&mut self, rng: &mut StdRng) -> bool {
        let Some(Reverse(Timed { at, seq, event })) = self.events.pop() else {
            return false;
        };
        self.now = at;
        self.counts.events += 1;
        if let Some(id) = self.who(&event)
            && self.places[id].stands_still_until > at
        {
            // With its number, so that it stays before what was sent after it.
            let at = self.places[id].stands_still_until;
            self.events.push(Reverse(Timed { at, seq, event }));
            return true;
        }
        match event {
            Event::Fault(fault) => self.suffer(fault, rng),
            Event::Start(id) => {
                let now = self.local(id);
                self.places[id].node = Some((self.make_node)(id, now));
                self.with(id, rng, |node, now, out| node.started(now, out));
            }
            Event::Wake(id, which) if self.places[id].wakes.1 == which => {
                self.places[id].wakes = (u64::MAX, 0);
                self.with(id, rng, |node, now, out| node.woke(now, out));
            }
            Event::Wake(..) => {}
            Event::Breaks(id, which) => self.with(id, rng, |node, now, out| node.breaks(now, which, out)),
            Event::Opened(link, end) => {
                if !self.links[link].is_closed[end] {
                    self.with(self.links[link].ends[end], rng, |node, now, out| {
                        node.opened(now, link, end == 0, out);
                    });
                }
            }
            Event::Arrives(link, end, bytes) => {
                if at <= self.links[link].cut[end] && !self.links[link].is_closed[end] {
                    self.arrives(link, end, &bytes, rng);
                } else {
                    self.counts.lost_pieces += 1;
                }
            }
            Event::Flush(link, to) => self.flush(link, to, rng),
            Event::Ended(link, end, ending) => {
                if !std::mem::replace(&mut self.links[link].is_closed[end], true) {
                    self.counts.half_frames += u64::from(!self.links[link].inbox[end].is_empty());
                    self.with(self.links[link].ends[end], rng, |node, now, out| {
                        node.ended(now, link, ending, out);
                    });
                }
            }
        }
        self.compare_beliefs();
        true
    }

    /// To which node an event comes. Faults and starts come to paused nodes, too.
    fn who(&self, event: &Event) -> Option<NodeId> {
        match *event {
            Event::Opened(link, end) | Event::Arrives(link, end, _) | Event::Ended(link, end, _) => {
                Some(self.links[link].ends[end])
            }
            Event::Wake(id, _) | Event::Breaks(id, _) => Some(id),
            Event::Flush(..) | Event::Start(_) | Event::Fault(_) => None,
        }
    }

    /// Bytes come to an end of a link, which takes the messages that are all there: one after the other, as long as it does not close the link.
    fn arrives(&mut self, link: LinkId, end: usize, bytes: &[u8], rng: &mut StdRng) {
        let had_some = !self.links[link].inbox[end].is_empty();
        self.links[link].inbox[end].extend_from_slice(bytes);
        let mut messages = 0;
        while !self.links[link].is_closed[end]
            && let Some(length) = wire::frame_length(&self.links[link].inbox[end]).expect("frames of ours")
        {
            let frame: Vec<u8> = self.links[link].inbox[end].drain(..length).collect();
            let message = frame::decode(&frame[wire::LENGTH_BYTES..], end);
            messages += 1;
            self.with(self.links[link].ends[end], rng, |node, now, out| {
                node.received(now, link, message, out);
            });
        }
        let is_split = !self.links[link].inbox[end].is_empty();
        self.counts.split += u64::from(is_split);
        self.counts.joined += u64::from(messages > 0 && (is_split || had_some && messages > 1));
    }

    fn local(&self, id: NodeId) -> u64 {
        self.places[id].clock.read(self.now)
    }

    fn at(&mut self, at: u64, event: Event) {
        self.seq += 1;
        self.events.push(Reverse(Timed {
            at,
            seq: self.seq,
            event,
        }));
    }

    fn with(&mut self, id: NodeId, rng: &mut StdRng, act: impl FnOnce(&mut dyn Node, u64, &mut Out)) {
        let now = self.local(id);
        let mut out = Out::default();
        let ended = self.polled_end(id);
        let Some(node) = self.places[id].node.as_deref_mut() else {
            return;
        };
        if let Some(link) = ended {
            let end = usize::from(self.links[link].ends[0] != id);
            self.links[link].is_closed[end] = true;
            node.ended(now, link, Ending::KnownOverlaps, &mut out);
        }
        act(node, now, &mut out);
        for command in out.commands {
            self.carry_out(id, command, rng);
        }
        self.set_alarm(id, rng);
    }

    /// The link that a node would see the end of if it ran now.
    fn polled_end(&self, id: NodeId) -> Option<LinkId> {
        let link = self.places[id].node.as_ref()?.polls()?;
        let end = self.end_of(link, id);
        let is_closed = &self.links[link].is_closed;
        (is_closed[1 - end] && !is_closed[end]).then_some(link)
    }

    /// A node is woken at its deadline or a little later.
    fn set_alarm(&mut self, id: NodeId, rng: &mut StdRng) {
        let place = &self.places[id];
        let Some(deadline) = place.node.as_ref().and_then(|node| node.deadline()) else {
            return;
        };
        let late = if rng.random_bool(0.1) {
            rng.random_range(0..20)
        } else {
            0
        };
        let at = place.clock.when(deadline).max(self.now + 1);
        if at < place.wakes.0 || place.wakes.0 < self.now {
            let which = self.seq + 1;
            self.places[id].wakes = (at + late, which);
            self.at(at + late, Event::Wake(id, which));
        }
    }

    fn carry_out(&mut self, id: NodeId, command: Command, rng: &mut StdRng) {
        match command {
            Command::Connect(to) => self.connect(id, to, rng),
            Command::Send(link, message) => {
                let from = self.end_of(link, id);
                if !self.links[link].is_closed[from] {
                    frame::append(&mut self.links[link].held[1 - from], &message);
                    self.let_out(link, 1 - from, rng);
                }
            }
            Command::Close(link) => {
                let from = self.end_of(link, id);
                self.flush(link, 1 - from, rng);
                self.links[link].is_closed[from] = true;
                // Comes after what was sent before, and gets lost like it.
                let at = (self.now + delay(rng)).max(self.links[link].arrives[1 - from]);
                if at <= self.links[link].cut[1 - from] {
                    let ending = match self.is_local(link) {
                        true => Ending::KnownOverlaps,
                        false => Ending::Lost,
                    };
                    self.at(at, Event::Ended(link, 1 - from, ending));
                }
            }
            Command::Io(assumed_lock) => self.io(assumed_lock),
        }
    }

    /// Lets bytes out that wait to go to an end: all of them, or the first ones, and the rest a little later or with what comes next.
    fn let_out(&mut self, link: LinkId, to: usize, rng: &mut StdRng) {
        let waiting = self.links[link].held[to].len();
        if rng.random_range(0..4) > 0 {
            return self.flush(link, to, rng);
        }
        let rest = self.links[link].held[to].split_off(rng.random_range(0..waiting));
        let first = std::mem::replace(&mut self.links[link].held[to], rest);
        self.deliver(link, to, first, rng);
        self.at(self.now + delay(rng), Event::Flush(link, to));
    }

    fn flush(&mut self, link: LinkId, to: usize, rng: &mut StdRng) {
        let bytes = std::mem::take(&mut self.links[link].held[to]);
        self.deliver(link, to, bytes, rng);
    }

    /// After what was sent before.
    fn deliver(&mut self, link: LinkId, to: usize, bytes: Vec<u8>, rng: &mut StdRng) {
        if !bytes.is_empty() {
            let at = (self.now + delay(rng)).max(self.links[link].arrives[to]);
            self.links[link].arrives[to] = at;
            self.at(at, Event::Arrives(link, to, bytes));
        }
    }

    fn connect(&mut self, from: NodeId, to: NodeId, rng: &mut StdRng) {
        let is_there = self.places[to].node.is_some();
        self.links.push(Link {
            ends: [from, to],
            arrives: [0; 2],
            cut: [u64::MAX; 2],
            is_closed: [false, !is_there],
            held: Default::default(),
            inbox: Default::default(),
        });
        let link = self.links.len() - 1;
        let at = self.now + 1 + delay(rng);
        if is_there {
            self.at(at, Event::Opened(link, 0));
            self.at(at, Event::Opened(link, 1));
            self.links[link].arrives = [at; 2];
        } else {
            self.at(at, Event::Ended(link, 0, Ending::Lost));
        }
    }

    fn end_of(&self, link: LinkId, id: NodeId) -> usize {
        usize::from(self.links[link].ends[0] != id)
    }

    fn suffer(&mut self, fault: Fault, rng: &mut StdRng) {
        match fault {
            Fault::Cut(id) => {
                let mine = |link: &Link| link.ends.contains(&id) && link.is_closed != [true; 2];
                let links: Vec<LinkId> = (0..self.links.len())
                    .filter(|&link| mine(&self.links[link]) && !self.is_local(link))
                    .collect();
                if !links.is_empty() {
                    self.counts.cuts += 1;
                    self.cut(links[rng.random_range(0..links.len())], Ending::Lost, rng);
                }
            }
            Fault::Kill(id, restarted_after) => {
                if self.places[id].node.take().is_some() {
                    self.counts.kills += 1;
                    let is_known = rng.random_bool(0.5);
                    for link in 0..self.links.len() {
                        if self.links[link].ends.contains(&id) && self.links[link].is_closed != [true; 2] {
                            let end = self.end_of(link, id);
                            self.links[link].is_closed[end] = true;
                            self.links[link].held[1 - end].clear(); // It died while it wrote.
                            let ending = match is_known || self.is_local(link) {
                                true => Ending::KnownOverlaps,
                                false => Ending::Lost,
                            };
                            self.cut(link, ending, rng);
                        }
                    }
                    if let Some(after) = restarted_after {
                        self.at(self.now + after, Event::Start(id));
                    }
                }
            }
            Fault::Pause(id, ms) => {
                self.counts.pauses += 1;
                let until = &mut self.places[id].stands_still_until;
                *until = (*until).max(self.now + ms);
            }
            Fault::Break(id, which) => self.at(self.now, Event::Breaks(id, which)),
            Fault::SetClock(id, by) => {
                self.counts.clocks_set += 1;
                let now = self.now;
                let machine = self.places[id].machine;
                for id in (0..self.places.len())
                    .filter(|&id| self.places[id].machine == machine)
                    .collect::<Vec<_>>()
                {
                    self.places[id].clock.set(now, by);
                    self.places[id].wakes = (u64::MAX, 0);
                    self.set_alarm(id, rng);
                }
            }
        }
    }

    fn is_local(&self, link: LinkId) -> bool {
        let [a, b] = self.links[link].ends;
        self.places[a].machine == self.places[b].machine
    }

    /// Loses what arrives from about now on, each way. Each end hears of it soon, late or never; soon within a machine.
    fn cut(&mut self, link: LinkId, ending: Ending, rng: &mut StdRng) {
        let is_local = self.is_local(link);
        for end in 0..2 {
            self.links[link].cut[end] = self.links[link].cut[end].min(self.now + rng.random_range(0..3));
            let heard = match rng.random_range(0..10) {
                _ if is_local => rng.random_range(3..10),
                0..5 => rng.random_range(3..30),
                5..8 => rng.random_range(30..800),
                _ => continue,
            };
            self.at(self.now + heard, Event::Ended(link, end, ending));
        }
    }

    /// The storage: whoever touches bytes after a holder of a later lock did is stale.
    fn io(&mut self, assumed_lock: AssumedLock) {
        self.counts.ios += 1;
        let is_later = |io: &AssumedLock| io.token > assumed_lock.token && conflict(&io.want, &assumed_lock.want);
        if let Some(later) = self.ios.iter().find(|io| is_later(io)) {
            panic!("at {}: I/O under {assumed_lock:?} after I/O under {later:?}", self.now);
        }
        self.ios.push(assumed_lock);
    }

    /// No two nodes would do conflicting I/O now, and no two owners of one.
    fn compare_beliefs(&self) {
        let mut all: Vec<AssumedLock> = Vec::new();
        for (id, place) in self.places.iter().enumerate() {
            if self.polled_end(id).is_some() {
                continue;
            }
            let assumed_locks = place
                .node
                .as_ref()
                .map(|node| node.assumed_locks(self.local(id)))
                .unwrap_or_default();
            for assumed_lock in assumed_locks {
                if let Some(other) = all.iter().find(|other| conflict(&other.want, &assumed_lock.want)) {
                    panic!("at {}: two believe to hold:\n{other:?}\n{assumed_lock:?}", self.now);
                }
                all.push(assumed_lock);
            }
        }
    }
}

/// Mostly quick.
fn delay(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..20) {
        0 => rng.random_range(0..200),
        1..4 => rng.random_range(0..20),
        _ => rng.random_range(0..3),
    }
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// The files of the simulation.
pub(crate) fn file(number: u64) -> FileName {
    FileName::new(format!("file {number}").as_bytes()).expect("a name")
}
