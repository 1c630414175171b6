//! What people use today: locks of the kernel, Redis, etcd.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Client, Load, SEGMENT_BYTES, segments};

/// Longer than any cycle.
const EXPIRY_MS: u64 = 10_000;

/// fcntl(2) locks of an open file description: a call for each segment, and one to unlock each.
#[allow(unsafe_code)]
pub(super) fn ofd(load: &Load, rank: u64) -> Client {
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&load.address)
        .unwrap();
    let offsets: Vec<u64> = segments(load, rank).collect();
    Box::new(move || {
        for kind in [libc::F_WRLCK, libc::F_UNLCK] {
            for offset in &offsets {
                // SAFETY: a zeroed flock is a valid one.
                let mut lock: libc::flock = unsafe { std::mem::zeroed() };
                lock.l_type = kind as i16;
                lock.l_start = *offset as i64;
                lock.l_len = SEGMENT_BYTES as i64;
                // SAFETY: the descriptor is open, and the kernel reads `lock` during the call only.
                let failed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
                assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
            }
        }
        1
    })
}

/// One key for each segment, set together if none is there, and deleted if they are still ours: SET NX for one segment,
/// MSETNX (with one expiry for all, in one script) for more.
pub(super) fn redis(load: &Load, rank: u64) -> Client {
    let mut connection = redis::Client::open(load.address.as_str())
        .unwrap()
        .get_connection()
        .unwrap();
    let keys: Vec<String> = segments(load, rank).map(|offset| format!("grid:{offset}")).collect();
    let take = redis::Script::new(
        "local set = {} for i, key in ipairs(KEYS) do set[2 * i - 1] = key set[2 * i] = ARGV[1] end
         if redis.call('MSETNX', unpack(set)) == 0 then return 0 end
         for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end return 1",
    );
    let give = redis::Script::new(
        "for _, key in ipairs(KEYS) do if redis.call('GET', key) ~= ARGV[1] then return 0 end end
         redis.call('UNLINK', unpack(KEYS)) return 1",
    );
    Box::new(move || {
        let taken: i64 = if let [key] = &keys[..] {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(rank).arg("NX").arg("PX").arg(EXPIRY_MS);
            let answer: Option<String> = set.query(&mut connection).unwrap();
            i64::from(answer.is_some())
        } else {
            take.prepare_invoke()
                .key(&keys[..])
                .arg(rank)
                .arg(EXPIRY_MS)
                .invoke(&mut connection)
                .unwrap()
        };
        assert_eq!(taken, 1, "somebody else has a key of ours");
        let given: i64 = give
            .prepare_invoke()
            .key(&keys[..])
            .arg(rank)
            .invoke(&mut connection)
            .unwrap();
        assert_eq!(given, 1, "somebody took a key of ours");
        1
    })
}

/// etcd's own lock service through its JSON gateway: a name for each rank, since a transaction has at most 128 keys.
pub(super) fn etcd(load: &Load, rank: u64) -> Client {
    assert_eq!(load.segments, 1, "etcd locks names, not ranges");
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into();
    let base = load.address.clone();
    let ask = move |path: &str, body: Value| -> Value {
        let answer = agent.post(format!("{base}/v3/{path}")).send(body.to_string()).unwrap();
        serde_json::from_str(&answer.into_body().read_to_string().unwrap()).unwrap()
    };
    let lease = ask("lease/grant", json!({ "TTL": "60" }))["ID"].clone();
    // Base64 of "rank" and two letters.
    let name = format!(
        "cmFuaw{}{}",
        char::from(b'A' + (rank / 26) as u8),
        char::from(b'A' + (rank % 26) as u8)
    );
    Box::new(move || {
        let held = ask("lock/lock", json!({ "name": name, "lease": lease }));
        ask("lock/unlock", json!({ "key": held["key"] }));
        1
    })
}
