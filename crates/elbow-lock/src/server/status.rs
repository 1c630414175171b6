//! The state of a service as one JSON object: the sums over its shards, and the busiest files.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::service::Service;
use crate::message::LockMode;
use crate::shard::{FileStatus, LockStatus, Shard};

/// Files named, and locks of each; the rest is counted. So a status fits a frame.
const FILES_MAX: usize = 64;
const LOCKS_MAX: usize = 32;
const SESSIONS_MAX: usize = 256;

impl Service {
    /// What `elbow lock status --json` prints, described in `docs/src/reference/lock-protocol.md`.
    pub(super) fn report(&self) -> Value {
        let now = self.now_ms();
        let members = self.members();
        let clients = members.iter().take(SESSIONS_MAX).map(
            |member| json!({ "session": member.id.0, "name": member.name, "age_ms": now.saturating_sub(member.opened_ms) }),
        );
        json!({
            "epoch": self.epoch,
            "uptime_ms": now,
            "grace_left_ms": self.grace_left_ms(),
            "is_draining": self.is_draining(),
            "sessions": members.len(),
            "memory_bytes": self.memory.used_bytes(),
            "memory_bytes_max": self.memory.bytes_max(),
            "totals": totals(self),
            "clients": clients.collect::<Vec<_>>(),
            "busiest": busiest(self, now),
        })
    }
}

/// The sums over shards, by name. Sessions are in every shard, and so in none of these.
pub(super) fn totals(service: &Service) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for totals in service.each_shard(Shard::totals) {
        for (name, value) in totals.named().into_iter().filter(|(name, _)| *name != "sessions") {
            *sums.entry(name).or_default() += value;
        }
    }
    sums
}

fn busiest(service: &Service, now: u64) -> Vec<Value> {
    let shards = service.each_shard(|shard| shard.status(now, FILES_MAX, LOCKS_MAX));
    let mut files: Vec<_> = shards.into_iter().flatten().collect();
    files.sort_by_key(|file| std::cmp::Reverse((file.queued, file.holds)));
    files.iter().take(FILES_MAX).map(file_json).collect()
}

fn file_json(file: &FileStatus) -> Value {
    let of = |locks: &[LockStatus]| locks.iter().map(lock_json).collect::<Vec<_>>();
    json!({
        "name": file.name.to_string(),
        "held": file.holds,
        "waiting": file.queued,
        "holders": of(&file.holders),
        "queue": of(&file.queue),
    })
}

fn lock_json(lock: &LockStatus) -> Value {
    json!({
        "session": lock.who.session.0,
        "owner": lock.who.owner.0,
        "id": lock.id.0,
        "exclusive": lock.mode == LockMode::Exclusive,
        "posix": lock.is_posix,
        "pattern": lock.pattern,
        "token": lock.token.map(|token| token.0),
        "age_ms": lock.age_ms,
    })
}
