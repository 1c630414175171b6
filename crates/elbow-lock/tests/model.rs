//! The shard against the naive one: random requests, timeouts, lost connections, deadlocks and restarts, and after every
//! event the same answers to the same sessions, granted in the same order.

mod support;

use std::collections::{BTreeMap, HashMap};

use elbow_lock::{
    Action, FileName, KnownOverlaps, Limits, LockId, LockMode, LockRequest, Owner, PosixRequest, QueryRequest,
    ReassertRequest, Refusal, Reply, Request, SessionId, Shard, Token, Wait, find_deadlock, resolve_after,
};
use elbow_ranges::{BlockBitmap, Dim, Footprint, PatternError, Strided};
use rand::Rng;
use rand::rngs::StdRng;
use support::naive::{Flaw, Naive, wanted};
use support::{cases_to_fail, for_each_seed};

const EVENTS: usize = 120;
const RECALL_MS: u32 = 5;

/// Both, fed with the same events.
struct Pair {
    real: Shard,
    naive: Naive,
    now_ms: u64,
    /// Of each file, the largest token granted.
    tokens: BTreeMap<FileName, Token>,
    /// What each name of a session was last used for.
    files: HashMap<(SessionId, LockId), FileName>,
    next_id: u64,
}

/// What is seen of some actions: everything but tokens and words; and who was granted what, file by file.
type Seen = (Vec<String>, BTreeMap<FileName, Vec<(SessionId, LockId)>>);

impl Pair {
    fn new(flaw: Flaw, grace_until_ms: u64) -> Self {
        let limits = Limits {
            recall_ms: RECALL_MS,
            ..Limits::default()
        };
        Self {
            real: Shard::new(3, grace_until_ms, limits),
            naive: Naive::new(flaw, 3, grace_until_ms, u64::from(RECALL_MS)),
            now_ms: 0,
            tokens: BTreeMap::new(),
            files: HashMap::new(),
            next_id: 0,
        }
    }

    fn step(&mut self, rng: &mut StdRng) {
        let session = SessionId(rng.random_range(1..=3));
        let (mut real, mut naive) = (Vec::new(), Vec::new());
        let is_gone = !self.naive.is_connected(session);
        match rng.random_range(0..60) {
            0 => {
                self.real.close(self.now_ms, session, &mut real);
                self.naive.close(self.now_ms, session, &mut naive);
            }
            1 => {
                self.real.disconnect(self.now_ms, session, &mut real);
                self.naive.disconnect(self.now_ms, session, &mut naive);
            }
            2..6 => {
                self.now_ms += rng.random_range(0..8);
                assert_eq!(self.real.deadline(), self.naive.deadline());
                self.real.tick(self.now_ms, &mut real);
                self.naive.tick(self.now_ms, &mut naive);
            }
            _ if is_gone && rng.random_bool(0.5) => {
                // A session that ended begins again, under a name that is free now.
                self.real.close(self.now_ms, session, &mut real);
                self.naive.close(self.now_ms, session, &mut naive);
                self.real.open(session);
                self.naive.open(session);
            }
            _ => {
                let request = self.request(rng, session);
                let known = self.known(rng, session, &request);
                self.real
                    .handle_with_overlaps(self.now_ms, session, request.clone(), known, &mut real);
                self.naive.handle(self.now_ms, session, &request, &mut naive);
                self.compare_answer(session, &request, &mut real, &mut naive);
            }
        }
        self.compare(&real, &naive);
        self.break_deadlocks(&real);
        self.real.check();
    }

    fn request(&mut self, rng: &mut StdRng, session: SessionId) -> Request {
        let owner = Owner(rng.random_range(0..2));
        let file = FileName::new([&b"a"[..], b"b"][rng.random_range(0..2)]).expect("a name");
        let mode = if rng.random_bool(0.5) {
            LockMode::Shared
        } else {
            LockMode::Exclusive
        };
        let wait = match rng.random_range(0..4) {
            0 => Wait::Try,
            1 => Wait::For(rng.random_range(0..20)),
            _ => Wait::Forever,
        };
        let recall = rng.random_bool(0.2);
        let (start, end) = posix_range(rng);
        self.next_id += 1;
        let known = self.known_id(rng, session);
        let is_repeated = rng.random_bool(0.02);
        let id = if is_repeated { known } else { LockId(self.next_id) };
        let request = match rng.random_range(0..24) {
            0..8 => Request::Lock(LockRequest {
                id,
                owner,
                file,
                mode,
                footprint: footprint(rng).expect("a pattern"),
                wait,
                recall,
            }),
            8..13 => Request::Unlock { id: known },
            13 => Request::Cancel { id: known },
            14..19 => Request::Posix(PosixRequest {
                id,
                owner,
                file,
                start,
                end,
                mode: Some(mode),
                wait,
            }),
            19 | 20 => Request::Posix(PosixRequest {
                id,
                owner,
                file,
                start,
                end,
                mode: None,
                wait: Wait::Try,
            }),
            21 => Request::PosixRelease {
                owner,
                file: Some(file).filter(|_| rng.random_bool(0.7)),
            },
            22 => Request::Query(QueryRequest {
                id,
                owner,
                file,
                mode,
                start,
                end,
            }),
            _ => {
                let token = Token(Token::first_of(rng.random_range(1..=3)).0 + 7);
                Request::Reassert(ReassertRequest {
                    id,
                    owner,
                    file,
                    mode,
                    footprint: footprint(rng).expect("a pattern"),
                    token,
                    recall,
                })
            }
        };
        if let Some(want) = wanted(session, &request).filter(|want| !self.naive.has(session, want.id)) {
            self.files.insert((session, want.id), want.file);
        }
        request
    }

    /// Of half of the requests all is known before that can be: nothing may follow from it.
    fn known(&self, rng: &mut StdRng, session: SessionId, request: &Request) -> KnownOverlaps {
        let mut known = KnownOverlaps::default();
        if let Request::Lock(LockRequest { footprint, .. }) | Request::Reassert(ReassertRequest { footprint, .. }) =
            request
            && rng.random_bool(0.5)
        {
            known.learn(footprint, &self.real.long_comparisons(session, request, &known, 0));
            assert!(self.real.long_comparisons(session, request, &known, 0).is_empty());
        }
        known
    }

    /// A name that the session holds or waits by; now and then one that it does not.
    fn known_id(&self, rng: &mut StdRng, session: SessionId) -> LockId {
        let wants = self.naive.held.iter().map(|hold| &hold.want);
        let wants = wants.chain(self.naive.queue.iter().map(|waiter| &waiter.want));
        let mine: Vec<LockId> = wants
            .filter(|want| want.who.session == session)
            .map(|want| want.id)
            .collect();
        match mine.len() {
            0 => LockId(0),
            _ if rng.random_bool(0.05) => LockId(rng.random_range(0..=self.next_id)),
            len => mine[rng.random_range(0..len)],
        }
    }

    /// Of several locks in the way that begin at one byte, any may be named.
    fn compare_answer(
        &mut self,
        session: SessionId,
        request: &Request,
        real: &mut Vec<Action>,
        naive: &mut Vec<Action>,
    ) {
        let [
            Action::Reply(
                _,
                Reply::Answer {
                    blocker: Some(blocker), ..
                },
            ),
        ] = real[..]
        else {
            return;
        };
        let want = wanted(session, request).expect("a query");
        assert!(
            self.naive.in_the_way(&want).contains(&blocker),
            "{request:?} -> {blocker:?}"
        );
        assert!(matches!(
            naive[..],
            [Action::Reply(_, Reply::Answer { blocker: Some(_), .. })]
        ));
        real.clear();
        naive.clear();
    }

    fn compare(&mut self, real: &[Action], naive: &[Action]) {
        let (seen, expected) = (self.seen(real), self.seen(naive));
        assert_eq!(seen, expected, "real (left), naive (right)");
        for action in real {
            if let Action::Reply(session, Reply::Granted { id, token }) = action {
                let file = self.files[&(*session, *id)].clone();
                let before = self.tokens.insert(file, *token);
                assert!(before < Some(*token), "token {token:?} after {before:?}");
            }
        }
    }

    fn seen(&self, actions: &[Action]) -> Seen {
        let mut texts = Vec::new();
        let mut grants: BTreeMap<FileName, Vec<(Token, SessionId, LockId)>> = BTreeMap::new();
        for action in actions {
            texts.push(match action {
                Action::Suspect => continue,
                Action::Reply(session, Reply::Granted { id, token }) => {
                    let file = self.files[&(*session, *id)].clone();
                    grants.entry(file).or_default().push((*token, *session, *id));
                    format!("{session:?} granted {id:?}")
                }
                Action::Reply(
                    session,
                    Reply::Refused {
                        id,
                        why: Refusal::Deadlock { .. },
                    },
                ) => {
                    format!("{session:?} deadlock {id:?}")
                }
                Action::Reply(session, Reply::Lost { .. }) => format!("{session:?} lost"),
                action => format!("{action:?}"),
            });
        }
        texts.sort();
        grants.values_mut().for_each(|grants| grants.sort());
        let without_token =
            |grants: Vec<(Token, SessionId, LockId)>| grants.into_iter().map(|(_, s, id)| (s, id)).collect();
        (
            texts,
            grants
                .into_iter()
                .map(|(file, grants)| (file, without_token(grants)))
                .collect(),
        )
    }

    /// The shard looks when it has told that there may be a circle; the naive one always, but in the grace period.
    fn break_deadlocks(&mut self, actions: &[Action]) {
        let (mut real, mut naive) = (Vec::new(), Vec::new());
        resolve_after(self.now_ms, actions, &mut [&mut self.real], &mut real);
        while !self.naive.in_grace()
            && let Some(found) = find_deadlock(&self.naive.waits())
        {
            assert!(self.naive.end_circle(self.now_ms, found, &mut naive));
        }
        self.compare(&real, &naive);
    }
}

/// Of few bytes, so that they meet.
fn footprint(rng: &mut StdRng) -> Result<Footprint, PatternError> {
    let start = rng.random_range(0..40);
    match rng.random_range(0..12) {
        0 => Ok(Footprint::whole()),
        1..5 => Footprint::extent(start..start + rng.random_range(1..12)),
        5..9 => {
            let inner = rng.random_range(1..4);
            let dims = [
                Dim {
                    count: rng.random_range(1..4),
                    stride: rng.random_range(12..30),
                },
                Dim {
                    count: rng.random_range(1..4),
                    stride: rng.random_range(inner..6),
                },
            ];
            Strided::new(start, &dims, inner).map(Footprint::from)
        }
        9 | 10 => {
            let pieces = rng.random_range(1..6);
            Footprint::from_list((0..pieces).map(|_| (rng.random_range(0..60), rng.random_range(1..4))))
        }
        _ => {
            let mut blocks = BlockBitmap::new(8)?;
            blocks.insert(start..start + rng.random_range(1..9))?;
            blocks.insert(start + 20..start + 20 + rng.random_range(1..9))?;
            Footprint::from_blocks(blocks)
        }
    }
}

fn posix_range(rng: &mut StdRng) -> (u64, u64) {
    let start = rng.random_range(0..40);
    let to_the_end = rng.random_bool(0.05);
    (
        start,
        if to_the_end {
            u64::MAX
        } else {
            start + rng.random_range(1..16)
        },
    )
}

/// One case. Now and then it begins in a grace period.
fn run(rng: &mut StdRng, flaw: Flaw) {
    let grace_until_ms = if rng.random_bool(0.2) { 40 } else { 0 };
    let mut pair = Pair::new(flaw, grace_until_ms);
    for session in 1..=3 {
        pair.real.open(SessionId(session));
        pair.naive.open(SessionId(session));
    }
    (0..EVENTS).for_each(|_| pair.step(rng));
    let (mut real, mut naive) = (Vec::new(), Vec::new());
    for session in 1..=3 {
        pair.real.close(pair.now_ms, SessionId(session), &mut real);
        pair.naive.close(pair.now_ms, SessionId(session), &mut naive);
    }
    pair.compare(&real, &naive);
    pair.real.check();
    assert!(pair.real.is_idle(), "something is left of no session");
    assert_eq!(pair.real.memory().used_bytes(), 0, "memory is taken by nobody");
}

#[test]
fn the_table_answers_as_its_definition_says() {
    for_each_seed(1000, |rng| run(rng, Flaw::None));
}

/// The same comparison finds each of these in the other side: so it would find them in the table.
#[test]
fn the_comparison_finds_planted_bugs() {
    let flaws = [
        Flaw::IgnoresQueue,
        Flaw::ForgetsToWakeOnCancel,
        Flaw::GrantsToTheDisconnected,
        Flaw::ComparesFirstRanges,
        Flaw::NoGrace,
        Flaw::RevivesAnyEpoch,
        Flaw::NoDeadlockDetection,
    ];
    for flaw in flaws {
        let cases = cases_to_fail(1000, |rng| run(rng, flaw));
        println!("{flaw:?} is found after {cases:?} cases");
        assert!(cases.is_some(), "{flaw:?} is not found");
    }
}
