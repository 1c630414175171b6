//! Deadlock: requests that each wait for the next one's owner, round to the first.
//!
//! ```text
//!   session 1 owner 1 holds a, waits for b      1.1 --b--> 2.1
//!   session 2 owner 1 holds b, waits for a       ^----a-----+      the younger of the two requests is refused
//! ```
//!
//! A node is a waiting request. An edge leads to each request that stands before it in a queue, and to all requests of everybody who holds
//! what is in its way: any of them may be what keeps that lock from its end.
//!
//! A cycle is closed by a request that is queued, if somebody waits for what its owner holds or has asked for already; by one that is granted
//! before its turn ([`Action::Suspect`]); and by what turns an edge into others. Where an owner has several requests (threads that share
//! a process's fcntl locks), the edge to one of them leads to all others when it is granted; and who may overtake somebody, who waits for what
//! it holds, may not any more when that one waits for something else. All edges that an edge can turn into are a graph, too, in which the cycles to
//! come are: in the files of those, each change is looked at ([`Shard::suspect`]).
//!
//! (A program that lets several threads wait as one owner may be refused where another thread of it would have come to the rescue. The kernel does
//! the same to threads that share a process's fcntl locks.)
//!
//! A cycle in which somebody waits for nothing that is held, but only for its turn, is of our own making: without a queue it would be none.
//! That one is granted before its turn, and nobody is refused.
//!
//! The search is a pure function of edges, which may come from several shards. Ending one cycle can leave another,
//! so [`resolve`] searches until there is none.
//!
//! Not here: the edges themselves (`Shard::waits`).
//!
//! Source: Holt, *Some Deadlock Properties of Computer Systems*, ACM Computing Surveys 4(3), 1972; Tarjan, *Depth-first
//! search and linear graph algorithms*, 1972.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Write;
use std::ops::Range;

use crate::message::{FileName, LockId, Refusal, SessionId};
use crate::shard::{Action, Shard, WaitFor};
use crate::table::Party;

/// Owners of a cycle that an error names; a longer one is cut.
const NAMED_MAX: usize = 16;

/// A cycle, and the request that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The session of the youngest request in the cycle, or of the youngest that may pass.
    pub session: SessionId,
    /// That request.
    pub id: LockId,
    /// Of which file: a client may use a number again that waits for another one.
    pub file: FileName,
    /// Who waits for whom, and for what.
    pub cycle: String,
    /// It is granted before its turn; otherwise it is refused.
    pub passes: bool,
}

/// A cycle among the requests that wait, if there is one. `O(requests + edges)`.
///
/// ```
/// use elbow_lock::{FileName, LockMode, LockId, Owner, Party, SessionId, WaitFor, find_deadlock};
///
/// let party = |session| Party { session: SessionId(session), owner: Owner(1) };
/// let wait = |waiter, file: &[u8], blocker, since_ms| WaitFor {
///     waiter: party(waiter),
///     id: LockId(7),
///     file: FileName::new(file).unwrap(),
///     mode: LockMode::Exclusive,
///     bounds: 0..100,
///     since_ms,
///     number: since_ms,
///     blockers: vec![party(blocker)],
///     behind: Vec::new(),
///     overtaken: Vec::new(),
///     only_queued: false,
/// };
/// let mut waits = vec![wait(1, b"/b", 2, 10), wait(3, b"/a", 1, 12)];
/// assert_eq!(find_deadlock(&waits), None);
///
/// waits.push(wait(2, b"/a", 1, 11));
/// let found = find_deadlock(&waits).unwrap();
/// assert_eq!(found.session, SessionId(2));
/// assert_eq!(
///     found.cycle,
///     "session 2 owner 1 waits for exclusive 0..100 of /a behind session 1 owner 1, \
///      which waits for exclusive 0..100 of /b behind session 2 owner 1"
/// );
/// ```
#[must_use]
pub fn find_deadlock(waits: &[WaitFor]) -> Option<Deadlock> {
    let graph = Graph::new(waits);
    let cyclic = graph.cyclic_component()?;
    let youngest = |only_queued: bool| {
        let nodes = cyclic.iter().copied();
        nodes
            .filter(|&node| waits[node].only_queued || !only_queued)
            .max_by_key(|&node| age_order(&waits[node]))
    };
    let passer = youngest(true);
    let node = passer.or_else(|| youngest(false))?;
    let cycle = graph.cycle_through(node)?;
    Some(Deadlock {
        session: waits[node].waiter.session,
        id: waits[node].id,
        file: waits[node].file.clone(),
        cycle: describe(waits, &cycle),
        passes: passer.is_some(),
    })
}

/// Ends all circles: of each, the youngest request that only stands behind others in a queue is granted before its turn; where there is none, the
/// youngest is refused. Call it with all shards of a service, locked. Returns how many were refused. In the grace period nothing is done: more may
/// be held again with each request, and at its end all who wait are looked at.
pub fn resolve(now_ms: u64, shards: &mut [&mut Shard], out: &mut Vec<Action>) -> usize {
    let mut refused = 0;
    if shards.iter().any(|shard| shard.is_in_grace()) {
        return refused;
    }
    loop {
        let waits: Vec<WaitFor> = shards.iter().flat_map(|shard| shard.waits()).collect();
        // Nothing can be in a cycle that is not in one to come.
        let to_come = Graph::to_come(&waits).cyclic_nodes();
        let found = if to_come.is_empty() {
            None
        } else {
            find_deadlock(&waits)
        };
        let Some(found) = found else {
            let files: BTreeSet<&FileName> = to_come.iter().map(|&node| &waits[node].file).collect();
            shards.iter_mut().for_each(|shard| shard.suspect(files.iter().copied()));
            return refused;
        };
        let (session, id) = (found.session, found.id);
        let why = Refusal::Deadlock { cycle: found.cycle };
        // One shard has the file, and a number names one request in a shard.
        let shard = shards.iter_mut().find(|shard| shard.has(&found.file));
        let is_ended = shard.is_some_and(|shard| match found.passes {
            true => shard.pass(now_ms, session, id, out),
            false => shard.refuse(now_ms, session, id, why, out),
        });
        assert!(is_ended, "a request that waits can be granted or refused");
        refused += usize::from(!found.passes);
    }
}

/// As [`resolve`], if what a shard did tells that there may be a circle: a request was queued for whose owner somebody waits, or
/// [`Action::Suspect`].
pub fn resolve_after(now_ms: u64, did: &[Action], shards: &mut [&mut Shard], out: &mut Vec<Action>) -> usize {
    let may_close = |action: &Action| match *action {
        Action::Queued { session, owner, .. } => shards.iter().any(|shard| shard.is_waited_for(session, owner)),
        Action::Suspect => true,
        Action::Reply(..) => false,
    };
    if did.iter().any(may_close) {
        resolve(now_ms, shards, out)
    } else {
        0
    }
}

fn age_order(wait: &WaitFor) -> (u64, u64, Party, LockId) {
    (wait.since_ms, wait.number, wait.waiter, wait.id)
}

/// Requests by index, and the requests that each waits for.
struct Graph {
    edges: Vec<Vec<usize>>,
}

impl Graph {
    fn new(waits: &[WaitFor]) -> Self {
        let of_party = by_party(waits);
        let files = numbered(waits.iter().map(|wait| &wait.file));
        let named = waits.iter().zip(&files).enumerate();
        let named: HashMap<(SessionId, LockId, usize), usize> = named
            .map(|(node, (wait, file))| ((wait.waiter.session, wait.id, *file), node))
            .collect();
        let edges = waits.iter().zip(&files).map(|(wait, file)| {
            let held = wait.blockers.iter().flat_map(|party| nodes_of(&of_party, party));
            let queued = wait.behind.iter();
            let queued = queued.filter_map(|(party, id)| named.get(&(party.session, *id, *file)).copied());
            held.chain(queued).collect()
        });
        Self { edges: edges.collect() }
    }

    /// All edges that there are, and those that they can turn into before anything else is queued.
    fn to_come(waits: &[WaitFor]) -> Self {
        let of_party = by_party(waits);
        let edges = waits.iter().map(|wait| {
            let queued = wait.behind.iter().map(|(party, _)| party);
            let parties: BTreeSet<&Party> = wait.blockers.iter().chain(queued).chain(&wait.overtaken).collect();
            parties
                .into_iter()
                .flat_map(|party| nodes_of(&of_party, party))
                .collect()
        });
        Self { edges: edges.collect() }
    }

    /// The nodes of one strongly connected component that has a cycle.
    fn cyclic_component(&self) -> Option<Vec<usize>> {
        self.cyclic_components().next()
    }

    /// All nodes of cycles.
    fn cyclic_nodes(&self) -> Vec<usize> {
        self.cyclic_components().flatten().collect()
    }

    /// The strongly connected components that have a cycle: Tarjan's algorithm, without recursion.
    fn cyclic_components(&self) -> impl Iterator<Item = Vec<usize>> {
        let mut search = Search::new(self.edges.len());
        std::iter::from_fn(move || search.next_cyclic(&self.edges))
    }

    /// A shortest cycle through a node: breadth first.
    fn cycle_through(&self, node: usize) -> Option<Vec<usize>> {
        let mut came_from = vec![None; self.edges.len()];
        let mut next = VecDeque::from([node]);
        while let Some(at) = next.pop_front() {
            for &to in &self.edges[at] {
                if to == node {
                    let back = std::iter::successors(Some(at), |&at| came_from[at].filter(|_| at != node));
                    let mut cycle: Vec<usize> = back.collect();
                    cycle.reverse();
                    return Some(cycle);
                }
                if came_from[to].is_none() {
                    came_from[to] = Some(at);
                    next.push_back(to);
                }
            }
        }
        None
    }
}

/// A number for each file, the same wherever it is named: names are long, and there are many edges.
fn numbered<'a>(files: impl Iterator<Item = &'a FileName>) -> Vec<usize> {
    let mut numbers = HashMap::new();
    let number = |file| {
        let next = numbers.len();
        *numbers.entry(file).or_insert(next)
    };
    files.map(number).collect()
}

/// The requests of each owner.
fn by_party(waits: &[WaitFor]) -> HashMap<Party, Vec<usize>> {
    let mut of_party: HashMap<Party, Vec<usize>> = HashMap::new();
    for (node, wait) in waits.iter().enumerate() {
        of_party.entry(wait.waiter).or_default().push(node);
    }
    of_party
}

fn nodes_of<'a>(of_party: &'a HashMap<Party, Vec<usize>>, party: &Party) -> impl Iterator<Item = usize> + 'a {
    of_party.get(party).into_iter().flatten().copied()
}

/// The state of Tarjan's algorithm.
struct Search {
    count: usize,
    /// So many of the first nodes have all been seen.
    roots: usize,
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    /// Nodes on the path, and how many of their edges were followed.
    path: Vec<(usize, usize)>,
}

impl Search {
    fn new(nodes: usize) -> Self {
        Self {
            count: 0,
            roots: 0,
            order: vec![None; nodes],
            low: vec![0; nodes],
            is_open: vec![false; nodes],
            open: Vec::new(),
            path: Vec::new(),
        }
    }

    fn next_cyclic(&mut self, edges: &[Vec<usize>]) -> Option<Vec<usize>> {
        loop {
            if self.path.is_empty() {
                let unseen = self.order[self.roots..].iter().position(Option::is_none)?;
                self.roots += unseen;
                self.enter(self.roots);
            }
            let component = self.next_component(edges);
            if component.len() > 1 || component.iter().any(|&only| edges[only].contains(&only)) {
                return Some(component);
            }
        }
    }

    /// Goes on until a node is left that ends a component, or the path ends; nothing in the latter case.
    fn next_component(&mut self, edges: &[Vec<usize>]) -> Vec<usize> {
        while let Some((node, followed)) = self.path.last_mut() {
            let node = *node;
            match edges[node].get(*followed) {
                Some(&to) => {
                    *followed += 1;
                    match self.order[to] {
                        None => self.enter(to),
                        Some(order) if self.is_open[to] => self.low[node] = self.low[node].min(order),
                        Some(_) => {}
                    }
                }
                None => {
                    let component = self.leave(node);
                    if !component.is_empty() {
                        return component;
                    }
                }
            }
        }
        Vec::new()
    }

    fn enter(&mut self, node: usize) {
        self.order[node] = Some(self.count);
        self.low[node] = self.count;
        self.count += 1;
        self.is_open[node] = true;
        self.open.push(node);
        self.path.push((node, 0));
    }

    /// Ends a node; returns its component if it is the first of it, else nothing.
    fn leave(&mut self, node: usize) -> Vec<usize> {
        self.path.pop();
        if let Some(&(parent, _)) = self.path.last() {
            self.low[parent] = self.low[parent].min(self.low[node]);
        }
        if Some(self.low[node]) != self.order[node] {
            return Vec::new();
        }
        let first = self.open.iter().rposition(|&open| open == node).unwrap_or(0);
        let component = self.open.split_off(first);
        component.iter().for_each(|&node| self.is_open[node] = false);
        component
    }
}

fn describe(waits: &[WaitFor], cycle: &[usize]) -> String {
    let mut text = String::new();
    for (place, &node) in cycle.iter().enumerate() {
        let WaitFor {
            waiter,
            file,
            mode,
            bounds,
            ..
        } = &waits[node];
        let mode = mode.name();
        let behind = waits[cycle[(place + 1) % cycle.len()]].waiter;
        if place == NAMED_MAX {
            let more = cycle.len() - place;
            append(
                &mut text,
                format_args!(", and {more} more until {}", waits[cycle[0]].waiter),
            );
            break;
        }
        match place {
            0 => append(&mut text, format_args!("{waiter}")),
            _ => append(&mut text, format_args!(", which")),
        }
        let Range { start, end } = bounds;
        append(
            &mut text,
            format_args!(" waits for {mode} {start}..{end} of {file} behind {behind}"),
        );
    }
    text
}

fn append(text: &mut String, words: std::fmt::Arguments<'_>) {
    #[expect(clippy::expect_used, reason = "a String takes what is written")]
    text.write_fmt(words).expect("writing to a String");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{LockMode, Owner};

    fn party(session: u64) -> Party {
        Party {
            session: SessionId(session),
            owner: Owner(0),
        }
    }

    fn waits(edges: &[(u64, &[u64])]) -> Vec<WaitFor> {
        let wait = |(since_ms, (waiter, blockers)): (usize, &(u64, &[u64]))| WaitFor {
            waiter: party(*waiter),
            id: LockId(*waiter),
            file: FileName::new(b"f").unwrap(),
            mode: LockMode::Shared,
            bounds: 0..1,
            since_ms: since_ms as u64,
            number: 0,
            blockers: blockers.iter().map(|&blocker| party(blocker)).collect(),
            behind: Vec::new(),
            overtaken: Vec::new(),
            only_queued: false,
        };
        edges.iter().enumerate().map(wait).collect()
    }

    #[test]
    fn a_tree_is_no_deadlock() {
        assert_eq!(
            find_deadlock(&waits(&[(1, &[2, 3]), (2, &[3, 4]), (3, &[4]), (5, &[1, 2, 3])])),
            None
        );
        assert_eq!(find_deadlock(&[]), None);
    }

    #[test]
    fn who_waits_for_itself_is_in_a_deadlock() {
        let found = find_deadlock(&waits(&[(2, &[1]), (1, &[1])])).unwrap();
        assert_eq!((found.session, found.id), (SessionId(1), LockId(1)));
        assert_eq!(
            found.cycle,
            "session 1 owner 0 waits for shared 0..1 of f behind session 1 owner 0"
        );
    }

    #[test]
    fn the_youngest_of_the_circle_goes_not_the_youngest_of_all() {
        let found = find_deadlock(&waits(&[(1, &[2]), (2, &[3]), (3, &[1]), (4, &[1, 3]), (5, &[4])])).unwrap();
        assert_eq!(found.session, SessionId(3));
        assert_eq!(found.cycle.matches("waits for").count(), 3);
    }

    #[test]
    fn who_only_stands_in_a_queue_passes_and_nobody_is_refused() {
        let mut waits = waits(&[(1, &[2]), (2, &[3]), (3, &[1]), (4, &[1])]);
        for queued in [1, 3] {
            waits[queued].only_queued = true;
        }
        let found = find_deadlock(&waits).unwrap();
        assert_eq!((found.session, found.passes), (SessionId(2), true));
    }

    /// Two threads of one owner wait for what a third party holds, and another session's request stands between them in the queue: before the second, behind the
    /// first. The first was taken for the second, and one of the threads told of a deadlock (LTP's fcntl36 does this).
    #[test]
    fn who_stands_before_a_thread_waits_for_that_request_and_not_for_all_of_its_owner() {
        let mut waits = waits(&[(1, &[9]), (2, &[9]), (1, &[9])]);
        waits[2].id = LockId(100);
        waits[1].behind = vec![(party(1), LockId(1))];
        waits[2].behind = vec![(party(2), LockId(2))];
        assert_eq!(find_deadlock(&waits), None);
        // A circle of requests is one, and so is one by what its owner holds.
        waits[0].behind = vec![(party(1), LockId(100))];
        assert!(find_deadlock(&waits).is_some());
        waits[0].behind.clear();
        waits[1].behind.clear();
        waits[1].blockers = vec![party(1)];
        assert!(find_deadlock(&waits).is_some());
    }

    #[test]
    fn a_long_circle_is_found_and_named_in_part() {
        let blockers: Vec<[u64; 1]> = (0..100_000).map(|node| [(node + 1) % 100_000]).collect();
        let edges: Vec<(u64, &[u64])> = blockers
            .iter()
            .enumerate()
            .map(|(node, next)| (node as u64, &next[..]))
            .collect();
        let found = find_deadlock(&waits(&edges)).unwrap();
        assert_eq!(found.session, SessionId(99_999));
        assert!(
            found.cycle.ends_with("and 99984 more until session 99999 owner 0"),
            "{}",
            found.cycle
        );
    }

    /// Against the definition: a set of requests that can never all be granted, whoever goes first.
    #[test]
    fn finds_a_deadlock_exactly_when_some_can_never_go() {
        for bits in 0u64..1 << 12 {
            // Four requests, each with any subset of the three others as blockers.
            let others = |node: u64| (0..4).filter(move |&other| other != node);
            let blockers = |node: u64| -> Vec<u64> {
                others(node)
                    .enumerate()
                    .filter(|(bit, _)| bits >> (node * 3 + *bit as u64) & 1 == 1)
                    .map(|(_, o)| o)
                    .collect()
            };
            let lists: Vec<Vec<u64>> = (0..4).map(blockers).collect();
            let edges: Vec<(u64, &[u64])> = lists
                .iter()
                .enumerate()
                .map(|(node, list)| (node as u64, &list[..]))
                .collect();
            let mut stuck: Vec<u64> = (0..4).collect();
            while let Some(free) = stuck
                .iter()
                .position(|&node| lists[node as usize].iter().all(|b| !stuck.contains(b)))
            {
                stuck.remove(free);
            }
            let found = find_deadlock(&waits(&edges));
            assert_eq!(found.is_some(), !stuck.is_empty(), "{lists:?}");
            assert!(found.is_none_or(|found| stuck.contains(&found.session.0)));
        }
    }
}
