//! A lock that goes from hand to hand within one session, as through a proxy.
//!
//! Found through a proxy: a request that had waited, was granted, and was then released did not let the next one in.

use elbow_lock::{
    Action, FileName, Limits, LockId, LockMode, LockRequest, Owner, Reply, Request, SessionId, Shard, Wait,
};
use elbow_ranges::Footprint;

fn lock(id: u64, owner: u64) -> Request {
    Request::Lock(LockRequest {
        id: LockId(id),
        owner: Owner(owner),
        file: FileName::new(b"f").expect("a name"),
        mode: LockMode::Exclusive,
        footprint: Footprint::whole(),
        wait: Wait::For(5_000),
        recall: true,
    })
}

fn granted(out: &mut Vec<Action>) -> Vec<(SessionId, LockId)> {
    let granted = out.drain(..).filter_map(|action| match action {
        Action::Reply(session, Reply::Granted { id, .. }) => Some((session, id)),
        _ => None,
    });
    granted.collect()
}

#[test]
fn each_release_lets_the_next_one_in() {
    let (proxy, other) = (SessionId(1), SessionId(2));
    let mut shard = Shard::new(1, 0, Limits::default());
    let mut out = Vec::new();
    shard.open(proxy);
    shard.open(other);
    shard.handle(0, proxy, lock(1, 2), &mut out);
    assert_eq!(granted(&mut out), [(proxy, LockId(1))]);
    shard.handle(1, other, lock(1, 1), &mut out);
    shard.handle(2, proxy, Request::Unlock { id: LockId(1) }, &mut out);
    assert_eq!(granted(&mut out), [(other, LockId(1))]);
    shard.handle(3, proxy, lock(102, 2), &mut out);
    shard.handle(4, other, Request::Unlock { id: LockId(1) }, &mut out);
    assert_eq!(granted(&mut out), [(proxy, LockId(102))]);
    shard.handle(5, proxy, lock(103, 104), &mut out);
    shard.handle(6, proxy, Request::Unlock { id: LockId(102) }, &mut out);
    assert_eq!(granted(&mut out), [(proxy, LockId(103))]);
}
