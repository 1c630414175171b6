//! The bodies of the fuzz targets on random bytes: pure noise, and frames of every kind with some of it.
#![allow(clippy::unwrap_used)]

#[allow(unreachable_pub)] // the fuzz crate exports it
#[path = "../../../fuzz/src/frames.rs"]
mod bodies;

use elbow_lock::wire::{append_reply, append_request, decode_reply, decode_request};
use elbow_lock::{
    Blocker, FileLocks, FileName, LockId, LockInfo, LockMode, LockRequest, Owner, PosixRequest, QueryRequest,
    ReassertRequest, Refusal, Reply, Request, SessionId, Token, Wait,
};
use elbow_ranges::{Dim, Footprint, Strided};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

const TRIES: usize = 100;

fn requests() -> Vec<Request> {
    let (id, owner, file) = (LockId(7), Owner(300), FileName::new(b"/data/grid").unwrap());
    let dims = [(50, 40_000), (50, 400)].map(|(count, stride)| Dim { count, stride });
    let footprint = Footprint::from(Strided::new(200, &dims, 200).unwrap());
    let list = Footprint::from_list([(0, 1), (5, 9), (1 << 40, 3)]).unwrap();
    let (mode, wait, recall) = (LockMode::Exclusive, Wait::For(70_000), true);
    vec![
        Request::Lock(LockRequest {
            id,
            owner,
            file: file.clone(),
            mode,
            footprint,
            wait,
            recall,
        }),
        Request::Lock(LockRequest {
            id,
            owner,
            file: file.clone(),
            mode: LockMode::Shared,
            footprint: list.clone(),
            wait: Wait::Try,
            recall: false,
        }),
        Request::Unlock { id },
        Request::Cancel { id },
        Request::Posix(PosixRequest {
            id,
            owner,
            file: file.clone(),
            start: 5,
            end: u64::MAX,
            mode: None,
            wait: Wait::Forever,
        }),
        Request::PosixRelease { owner, file: None },
        Request::PosixRelease {
            owner,
            file: Some(file.clone()),
        },
        Request::Query(QueryRequest {
            id,
            owner,
            file: file.clone(),
            mode,
            start: 0,
            end: 9,
        }),
        Request::Reassert(ReassertRequest {
            id,
            owner,
            file,
            mode,
            footprint: list,
            token: Token(1 << 50),
            recall,
        }),
        Request::Renew { seq: 1 },
        Request::Status { seq: u64::MAX },
        Request::Look {
            seq: 1,
            file: FileName::new(b"dataset/7").unwrap(),
        },
        Request::Break {
            seq: 2,
            file: FileName::new(b"dataset/7").unwrap(),
            session: Some(SessionId(300)),
            force: true,
        },
        Request::Close,
    ]
}

fn seen() -> FileLocks {
    let lock = LockInfo {
        session: SessionId(2),
        owner: Owner(1 << 63),
        client: "process 7 (uid 0 pid 7)".into(),
        mode: LockMode::Exclusive,
        is_posix: true,
        is_ending: false,
        token: Some(Token(1 << 50)),
        age_ms: 70_000,
        start: 0,
        end: u64::MAX,
        pattern: "all".into(),
        elsewhere: 3,
    };
    let waits = LockInfo {
        token: None,
        ..lock.clone()
    };
    FileLocks {
        holds: 1,
        queued: 1,
        locks: vec![lock, waits],
    }
}

fn replies() -> Vec<Reply> {
    let id = LockId(1 << 33);
    let blocker = Blocker {
        mode: LockMode::Shared,
        start: 3,
        end: 8,
        session: SessionId(2),
        owner: Owner(1),
    };
    let refusals = [
        Refusal::WouldBlock,
        Refusal::TimedOut,
        Refusal::Cancelled,
        Refusal::Deadlock {
            cycle: "a waits for b".into(),
        },
        Refusal::Full {
            limit: "1000 locks".into(),
        },
        Refusal::Duplicate,
        Refusal::NotReasserted,
        Refusal::Grace { wait_ms: 2000 },
        Refusal::Draining,
        Refusal::Bad {
            what: "an empty range".into(),
        },
    ];
    let refused = refusals.map(|why| Reply::Refused { id, why });
    let others = [
        Reply::Granted { id, token: Token(9) },
        Reply::Recall { id },
        Reply::FileLocks { seq: 1, seen: seen() },
        Reply::Broken {
            seq: 2,
            sessions: vec![SessionId(1), SessionId(1 << 40)],
        },
        Reply::Denied {
            seq: 3,
            why: "not yours".into(),
        },
        Reply::Answer { id, blocker: None },
        Reply::Answer {
            id,
            blocker: Some(blocker),
        },
        Reply::Renewed { seq: 4 },
        Reply::Status {
            seq: 4,
            json: "{}".into(),
        },
        Reply::Lost { why: "expired".into() },
    ];
    refused.into_iter().chain(others).collect()
}

/// The payloads of all kinds of messages.
fn payloads() -> Vec<Vec<u8>> {
    let requests = requests().into_iter().map(|request| {
        let mut frame = Vec::new();
        append_request(&mut frame, &request);
        assert_eq!(decode_request(&frame[4..]), Ok(request));
        frame.split_off(4)
    });
    let replies = replies().into_iter().map(|reply| {
        let mut frame = Vec::new();
        append_reply(&mut frame, &reply);
        assert_eq!(decode_reply(&frame[4..]), Ok(reply));
        frame.split_off(4)
    });
    requests.chain(replies).collect()
}

fn check(payload: &[u8]) {
    bodies::request(payload);
    bodies::reply(payload);
}

fn byte(rng: &mut StdRng) -> u8 {
    rng.random::<u8>() >> rng.random_range(0..8) // mostly small, or no count would ever be right
}

#[test]
fn no_bytes_break_a_body() {
    let kinds: Vec<u8> = payloads().iter().map(|payload| payload[0]).collect();
    for_each_seed(400, |rng| {
        for _ in 0..TRIES {
            let mut payload: Vec<u8> = (0..rng.random_range(1..40)).map(|_| byte(rng)).collect();
            payload[0] = kinds[rng.random_range(0..kinds.len())];
            check(&payload);
        }
    });
}

#[test]
fn no_damage_breaks_a_body() {
    let payloads = payloads();
    for_each_seed(400, |rng| {
        for payload in &payloads {
            let mut damaged = payload.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..damaged.len());
                damaged[at] = byte(rng);
            }
            check(&damaged);
            check(&payload[..rng.random_range(0..payload.len())]);
        }
    });
}
