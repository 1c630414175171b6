//! What a shard promises beyond granting: its limits, its end, what it tells about itself.

use elbow_lock::{
    Action, FileName, Limits, LockId, LockMode, LockRequest, Memory, Owner, PosixRequest, Refusal, Reply, Request,
    SessionId, Shard, Token, Wait,
};
use elbow_ranges::Footprint;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);

fn shard(limits: Limits) -> Shard {
    let mut shard = Shard::new(1, 0, limits);
    shard.open(A);
    shard.open(B);
    shard
}

fn lock(id: u64, file: &str, footprint: Footprint, wait: Wait, recall: bool) -> Request {
    let file = FileName::new(file.as_bytes()).expect("a name");
    Request::Lock(LockRequest {
        id: LockId(id),
        owner: Owner(0),
        file,
        mode: LockMode::Exclusive,
        footprint,
        wait,
        recall,
    })
}

fn all(id: u64, file: &str) -> Request {
    lock(id, file, Footprint::whole(), Wait::Forever, false)
}

fn posix(id: u64, start: u64, end: u64, mode: Option<LockMode>) -> Request {
    let file = FileName::new(b"f").expect("a name");
    Request::Posix(PosixRequest {
        id: LockId(id),
        owner: Owner(0),
        file,
        start,
        end,
        mode,
        wait: Wait::Try,
    })
}

/// The replies, "granted" or the refusal's words.
fn ask(shard: &mut Shard, now_ms: u64, session: SessionId, request: Request) -> Vec<String> {
    let mut out = Vec::new();
    shard.handle(now_ms, session, request, &mut out);
    shard.check();
    words(out)
}

fn words(actions: Vec<Action>) -> Vec<String> {
    let word = |action| match action {
        Action::Reply(_, Reply::Granted { .. }) => Some("granted".to_owned()),
        Action::Reply(_, Reply::Refused { why, .. }) => Some(why.to_string()),
        Action::Reply(_, Reply::Recall { id }) => Some(format!("recall {}", id.0)),
        Action::Reply(_, reply) => Some(format!("{reply:?}")),
        Action::Queued { .. } | Action::Suspect => None,
    };
    actions.into_iter().filter_map(word).collect()
}

#[test]
fn each_limit_is_named_when_it_is_reached() {
    let limits = Limits {
        locks_per_session: 3,
        queue_per_file: 1,
        files: 2,
        list_bytes_per_session: 100,
        ..Limits::default()
    };
    let shard = &mut shard(limits);
    let many = Footprint::from_list([(0, 1), (10, 2), (30, 3), (70, 4), (150, 5), (1000, 1), (1100, 3)]).unwrap();
    let why = ask(shard, 0, A, lock(1, "f", many, Wait::Try, false));
    assert_eq!(
        why,
        [
            "the lock service is at its limit of 100 bytes of lists of one session; --client-memory of elbow lockd serve raises it"
        ]
    );
    assert!(shard.is_idle(), "a refused request leaves nothing");

    assert_eq!(ask(shard, 0, A, all(1, "f")), ["granted"]);
    assert_eq!(ask(shard, 0, A, all(2, "g")), ["granted"]);
    assert_eq!(
        ask(shard, 0, A, all(3, "h")),
        ["the lock service is at its limit of 2 files; --files of elbow lockd serve raises it"]
    );
    assert_eq!(ask(shard, 0, B, all(1, "f")), [""; 0]);
    let why = ask(shard, 0, B, all(2, "f"));
    assert_eq!(
        why,
        [
            "the lock service is at its limit of 1 requests in the queue of one file; --queue of elbow lockd serve raises it"
        ]
    );
    assert_eq!(
        ask(shard, 0, A, all(1, "g")),
        ["this session already has a lock of this number"]
    );
}

/// The memory of a service is one bound for all its clients, whatever they do: what is beyond it is refused, with the option's name, and what was
/// taken comes back.
#[test]
fn memory_is_bounded_in_sum_and_comes_back() {
    let memory = Memory::new(100_000);
    let limits = || Limits {
        memory_bytes: 100_000,
        ..Limits::default()
    };
    let open = |session| {
        let mut shard = Shard::new(1, 0, limits()).within(memory.clone());
        shard.open(session);
        shard
    };
    let (mut one, mut other) = (open(A), open(B));
    let odd =
        |id: u64| Footprint::from_list((0..1000).map(|n| (n * 10_000 + id * 100 + n * n % 89, 1 + n % 7))).unwrap();
    let grants = |shard: &mut Shard, session| -> Vec<String> {
        let request = |id| lock(id, "f", odd(id), Wait::Forever, false);
        (0..20).flat_map(|id| ask(shard, 0, session, request(id))).collect()
    };
    let said = grants(&mut one, A);
    let full = "the lock service is at its limit of 100000 bytes of memory for all locks and requests; --memory of elbow lockd serve raises it";
    let granted = said.iter().filter(|words| *words == "granted").count();
    assert!((3..7).contains(&granted), "{granted} lists of 16,000 bytes: {said:?}");
    assert!(said[granted..].iter().all(|words| words == full), "{said:?}");
    assert!(memory.used_bytes() <= memory.bytes_max());
    assert_eq!(grants(&mut other, B), [full; 20], "the shards share it");
    // Who waits takes as much.
    let waits = lock(30, "f", odd(0), Wait::Forever, false);
    assert_eq!(ask(&mut one, 0, A, waits.clone()), [full]);
    ask(&mut one, 0, A, Request::Unlock { id: LockId(1) });
    assert_eq!(ask(&mut one, 0, A, waits), [""; 0]);

    one.close(0, A, &mut Vec::new());
    assert_eq!(memory.used_bytes(), 0);
    assert_eq!(grants(&mut other, B)[0], "granted");
    other.disconnect(0, B, &mut Vec::new());
    assert!(memory.used_bytes() > 0, "what is held stays");
    drop(other);
    assert_eq!(memory.used_bytes(), 0);
}

/// Files without number, each with a small lock: they are memory too.
#[test]
fn names_of_files_are_memory() {
    let shard = &mut shard(Limits {
        memory_bytes: 1 << 20,
        ..Limits::default()
    });
    let name = |id: u64| format!("{id:04000}");
    let granted = (0..1000)
        .take_while(|&id| ask(shard, 0, A, all(id, &name(id))) == ["granted"])
        .count();
    assert!(
        (100..200).contains(&granted),
        "{granted} files with names of 4,000 bytes in 1 MiB"
    );
    for id in 0..1000 {
        ask(shard, 0, A, Request::Unlock { id: LockId(id) });
    }
    assert_eq!(shard.memory().used_bytes(), 0);
}

/// One lock punched full of holes is as many locks as it has pieces.
#[test]
fn pieces_of_a_posix_lock_are_counted() {
    let shard = &mut shard(Limits {
        locks_per_session: 3,
        ..Limits::default()
    });
    assert_eq!(
        ask(shard, 0, A, posix(1, 0, 100, Some(LockMode::Exclusive))),
        ["granted"]
    );
    assert_eq!(ask(shard, 0, A, posix(1, 10, 11, None)), ["granted"]);
    assert_eq!(ask(shard, 0, A, posix(1, 20, 21, None)), ["granted"]);
    let why = ask(shard, 0, A, posix(1, 30, 31, None));
    assert_eq!(
        why,
        ["the lock service is at its limit of 3 locks of one session; --client-locks of elbow lockd serve raises it"]
    );
    assert_eq!(
        ask(shard, 0, A, posix(1, 5, 25, Some(LockMode::Exclusive))),
        ["granted"],
        "which merges them"
    );
    assert_eq!(ask(shard, 0, A, posix(1, 30, 31, None)), ["granted"]);
    assert_eq!(
        ask(shard, 0, A, posix(1, 7, 7, None)),
        ["bad request: the range 7..7 is empty"]
    );
}

#[test]
fn a_try_waits_for_what_might_be_given_back() {
    let shard = &mut shard(Limits {
        recall_ms: 50,
        ..Limits::default()
    });
    let wanted = || lock(9, "f", Footprint::whole(), Wait::Try, false);
    assert_eq!(
        ask(shard, 0, A, lock(1, "f", Footprint::whole(), Wait::Try, true)),
        ["granted"]
    );
    assert_eq!(ask(shard, 10, B, wanted()), ["recall 1"]);
    assert_eq!(shard.deadline(), Some(60));
    assert_eq!(ask(shard, 20, A, Request::Unlock { id: LockId(1) }), ["granted"]);
    assert_eq!(ask(shard, 20, B, Request::Unlock { id: LockId(9) }), [""; 0]);

    // In use: once told, it is not told again, and the try comes to its end.
    assert_eq!(
        ask(shard, 30, A, lock(1, "f", Footprint::whole(), Wait::Try, true)),
        ["granted"]
    );
    assert_eq!(ask(shard, 30, B, wanted()), ["recall 1"]);
    let mut out = Vec::new();
    shard.tick(80, &mut out);
    assert_eq!(words(out), [Refusal::WouldBlock.to_string()]);
    assert_eq!(ask(shard, 90, B, wanted()), [""; 0]);
}

#[test]
fn draining_refuses_who_waits_and_lets_holders_finish() {
    let shard = &mut shard(Limits::default());
    ask(shard, 0, A, all(1, "f"));
    ask(shard, 0, B, all(2, "f"));
    let mut out = Vec::new();
    shard.drain(5, &mut out);
    assert_eq!(words(out), ["the lock service is shutting down"]);
    assert_eq!(ask(shard, 6, B, all(3, "g")), ["the lock service is shutting down"]);
    assert!(!shard.is_idle());
    ask(shard, 7, A, Request::Unlock { id: LockId(1) });
    assert!(shard.is_idle());
}

#[test]
fn who_has_no_session_is_told_so_and_holds_nothing() {
    let shard = &mut shard(Limits::default());
    let mut out = Vec::new();
    shard.close(0, A, &mut out);
    assert!(ask(shard, 1, A, all(1, "f"))[0].starts_with("Lost"));
    assert!(shard.is_idle());
}

/// A file that nobody uses takes no memory, and its next token is larger all the same.
#[test]
fn tokens_grow_over_the_end_of_a_file() {
    let shard = &mut shard(Limits::default());
    let mut before = None;
    for id in 1..100 {
        let mut out = Vec::new();
        shard.handle(0, A, all(id, "f"), &mut out);
        let Action::Reply(_, Reply::Granted { token, .. }) = out[0] else {
            panic!("{out:?}");
        };
        assert!(before < Some(token) && token >= Token::first_of(1));
        before = Some(token);
        ask(shard, 0, A, Request::Unlock { id: LockId(id) });
        assert!(shard.is_idle());
    }
}

#[test]
fn the_status_names_holders_and_queue_with_their_ages() {
    let shard = &mut shard(Limits::default());
    ask(
        shard,
        100,
        A,
        lock(1, "quiet", Footprint::extent(0..4096).unwrap(), Wait::Try, false),
    );
    ask(
        shard,
        200,
        A,
        lock(2, "busy", Footprint::extent(5..10).unwrap(), Wait::Try, false),
    );
    ask(shard, 300, B, all(3, "busy"));
    let status = shard.status(1000, 1, 10);
    let [busy] = &status[..] else { panic!("{status:?}") };
    assert_eq!(
        (busy.name.to_string().as_str(), busy.holds, busy.queued),
        ("busy", 1, 1)
    );
    let (holder, waiter) = (&busy.holders[0], &busy.queue[0]);
    assert_eq!(
        (holder.who.session, holder.age_ms, holder.pattern.as_str()),
        (A, 800, "5..10")
    );
    assert_eq!(
        (waiter.who.session, waiter.age_ms, waiter.pattern.as_str(), waiter.token),
        (B, 700, "all", None)
    );
    let totals = shard.totals();
    assert_eq!(
        (totals.files, totals.holds, totals.queued, totals.grants, totals.waits),
        (2, 2, 1, 2, 1)
    );
    assert!(totals.named().contains(&("lock_requests", 3)));
}

/// A reader that came after a writer, and for whom the one that the writer waits for waits: with the writer before it there would be a circle, of
/// which no lock is a part. One of them was refused, where fcntl(2) grants.
#[test]
fn a_circle_that_only_a_queue_makes_is_none() {
    const C: SessionId = SessionId(3);
    let mut shard = shard(Limits::default());
    shard.open(C);
    let mut ask = |session, id, file: &str, mode| {
        let mut request = all(id, file);
        if let Request::Lock(LockRequest { mode: asked, .. }) = &mut request {
            *asked = mode;
        }
        let mut out = Vec::new();
        shard.handle(0, session, request, &mut out);
        let did = out.clone();
        elbow_lock::resolve_after(0, &did, &mut [&mut shard], &mut out);
        shard.check();
        words(out)
    };
    assert_eq!(ask(A, 1, "f", LockMode::Exclusive), ["granted"]);
    assert_eq!(ask(B, 1, "g", LockMode::Shared), ["granted"]);
    assert!(ask(C, 1, "g", LockMode::Exclusive).is_empty());
    assert!(ask(B, 2, "f", LockMode::Exclusive).is_empty());
    assert_eq!(ask(A, 2, "g", LockMode::Shared), ["granted"]);
}
