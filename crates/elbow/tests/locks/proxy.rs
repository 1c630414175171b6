//! A proxy between clients and their service.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use elbow_lock::{Client, Hold, LockError, LockMode, Owner, Wait, file_name};
use elbow_ranges::Footprint;
use rustix::process::{Pid, Signal, kill_process};

use super::crash::{fight_while, holders_are_killed_and_waited_for};
use super::hostile::irregular;
use super::lockd::{Lockd, until};

/// A proxy that dies with the test.
pub(crate) struct Proxy {
    child: Child,
    said: BufReader<ChildStdout>,
    address: String,
}

impl Proxy {
    pub(crate) fn start(lockd: &Lockd, service: &str) -> Self {
        Self::start_with(lockd, service, &[])
    }

    fn start_with(lockd: &Lockd, service: &str, options: &[&str]) -> Self {
        let address = format!("unix:{}/proxy", lockd.directory.path().display());
        let words = ["lockd", "proxy", "--listen", &address, "--server", service];
        let words = [&words, options].concat();
        let mut child = lockd.elbow(&words).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut proxy = Self { child, said, address };
        proxy.listens();
        proxy
    }

    /// Waits until it says that it listens (again).
    fn listens(&mut self) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), format!("listening on {}", self.address));
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn piece(number: u64) -> Footprint {
    Footprint::from_list((0..10).map(|i| (i * 1000 + number * 100, 100))).unwrap()
}

#[test]
fn the_same_lock_again_costs_the_service_nothing_and_others_get_it_when_they_ask() {
    let lockd = Lockd::start(&[]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    let client = proxy.client();
    for _ in 0..100 {
        client
            .lock("/f", piece(0), LockMode::Exclusive, Wait::Forever)
            .unwrap()
            .finish()
            .unwrap();
    }
    assert_eq!(lockd.total("lock_requests"), 1);
    assert_eq!(lockd.total("holds"), 1, "kept");
    // A client of the service itself, and another one of the proxy.
    lockd
        .client()
        .lock("/f", piece(0), LockMode::Exclusive, Wait::For(5_000))
        .unwrap()
        .finish()
        .unwrap();
    client
        .lock("/f", piece(0), LockMode::Exclusive, Wait::Forever)
        .unwrap()
        .finish()
        .unwrap();
    proxy
        .client()
        .lock("/f", piece(0), LockMode::Exclusive, Wait::For(5_000))
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(lockd.total("recalls"), 2);
}

#[test]
fn clients_of_one_proxy_exclude_each_other_and_share_its_session() {
    let lockd = Lockd::start(&[]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    let (one, two) = (proxy.client(), proxy.client());
    let _held = one.lock("/f", piece(0), LockMode::Exclusive, Wait::Try).unwrap();
    let _beside = two.lock("/f", piece(1), LockMode::Exclusive, Wait::Try).unwrap();
    assert!(matches!(
        two.lock("/f", piece(0), LockMode::Shared, Wait::Try),
        Err(LockError::Refused { .. })
    ));
    let status: serde_json::Value = serde_json::from_str(&two.status().unwrap()).unwrap();
    assert_eq!(status["sessions"], 1, "{status}");
}

#[test]
fn a_killed_client_of_a_proxy_leaves_its_locks_at_once() {
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0"]);
    let tcp = lockd.addresses[1].to_string();
    let proxy = Proxy::start(&lockd, &tcp);
    let words = ["lock", "hold", "f", "--server", &proxy.address, "--", "sleep", "60"];
    let mut holder = lockd.elbow(&words).spawn().unwrap();
    until("it holds", || lockd.total("holds") == 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let file = lockd.directory.path().join("f");
    proxy
        .client()
        .lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::For(2_000))
        .unwrap();
}

/// The service cannot see that a proxy's client is dead, and refused who tried for its lock before the proxy had read of it.
#[test]
fn through_a_proxy_a_lock_is_free_when_its_process_has_been_waited_for() {
    let lockd = Lockd::start(&[]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    let client = proxy.client();
    holders_are_killed_and_waited_for(&lockd, &proxy.address, &client, |signal| proxy.signal(signal));
}

/// All of a file for the only owner of a client.
fn take(client: &Client, file: &str, wait: Wait) -> Result<Hold, LockError> {
    let file = file_name(file.as_ref()).unwrap();
    client.lock_as(Owner(1), file, Footprint::whole(), LockMode::Exclusive, wait)
}

#[test]
fn what_the_proxy_keeps_makes_no_deadlock() {
    let lockd = Lockd::start(&[]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    let (one, two) = (proxy.client(), lockd.client());
    take(&one, "/a", Wait::Try).unwrap().finish().unwrap();
    assert_eq!(lockd.total("holds"), 1, "kept");
    let held_by_two = take(&two, "/b", Wait::Try).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| take(&one, "/b", Wait::Forever).map(Hold::release));
        until("one waits", || lockd.total("queued") == 1);
        take(&two, "/a", Wait::For(5_000)).unwrap().release();
        held_by_two.release();
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn a_deadlock_through_a_proxy_is_found() {
    let lockd = Lockd::start(&[]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    let (one, two) = (proxy.client(), lockd.client());
    let held_by_one = take(&one, "/a", Wait::Try).unwrap();
    let held_by_two = take(&two, "/b", Wait::Try).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| take(&two, "/a", Wait::Forever).map(Hold::release));
        until("two waits", || lockd.total("queued") == 1);
        // Of two files, whose shards count for themselves, the younger request is the one of a later millisecond.
        std::thread::sleep(Duration::from_millis(20));
        let error = take(&one, "/b", Wait::Forever).unwrap_err();
        assert!(error.to_string().contains("deadlock"), "{error}");
        held_by_one.release();
        waits.join().unwrap().unwrap();
        held_by_two.release();
    });
}

#[test]
fn no_two_clients_of_a_proxy_work_on_the_same_bytes_while_the_service_is_killed() {
    let mut lockd = Lockd::start(&["--ttl", "2s"]);
    let mut proxy = Proxy::start(&lockd, &lockd.address());
    let address = proxy.address.clone();
    let reasserted = fight_while(
        || Client::connect(&address).unwrap(),
        3,
        || {
            lockd.kill_and_start_again();
            proxy.listens();
            until("the grace period is over", || lockd.grace_left_ms() == 0);
            lockd.total("reasserted")
        },
    );
    assert!(
        reasserted > 0,
        "no lock was held when the service died: the test has tested nothing"
    );
}

#[test]
fn a_stopped_proxy_loses_its_clients_locks_before_others_get_them() {
    // Long enough for all three processes to be given a processor in time.
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--ttl", "4s"]);
    let proxy = Proxy::start(&lockd, &lockd.addresses[1].to_string());
    let client = proxy.client();
    let hold = client.lock("/f", piece(0), LockMode::Exclusive, Wait::Try).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    hold.check().unwrap(); // Renewed through the proxy.
    proxy.signal(Signal::STOP);
    let other = lockd
        .client()
        .lock("/f", piece(0), LockMode::Exclusive, Wait::For(30_000))
        .unwrap();
    assert!(matches!(hold.check(), Err(LockError::Lost { .. })));
    other.finish().unwrap();
    proxy.signal(Signal::CONT);
}

/// The story: the service, on a Unix socket, saw the proxy die and gave its clients' locks away at once, while they still
/// wrote under them.
#[test]
fn the_locks_of_a_killed_proxys_clients_are_kept_for_a_lease() {
    let lockd = Lockd::start(&["--ttl", "5s"]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    let (client, other) = (proxy.client(), lockd.client());
    let hold = client.lock("/f", piece(0), LockMode::Exclusive, Wait::Try).unwrap();
    // What it waits for is taken back when the service sees it die.
    let in_the_way = other.lock("/f", piece(1), LockMode::Exclusive, Wait::Try).unwrap();
    let name = file_name("/f".as_ref()).unwrap();
    let _waits = client
        .ask(Owner(1), name, piece(1), LockMode::Exclusive, Wait::Forever)
        .unwrap();
    until("the proxy waits", || lockd.total("queued") == 1);
    hold.check().unwrap();
    proxy.signal(Signal::KILL);
    until("the service has seen it", || lockd.total("queued") == 0);
    let at_once = other.lock("/f", piece(0), LockMode::Exclusive, Wait::Try);
    assert!(matches!(at_once, Err(LockError::Refused { .. })), "{at_once:?}");
    assert!(matches!(
        hold.check(),
        Err(LockError::Lost { .. } | LockError::Unreachable { .. })
    ));
    other
        .lock("/f", piece(0), LockMode::Exclusive, Wait::For(30_000))
        .unwrap()
        .finish()
        .unwrap();
    in_the_way.finish().unwrap();
}

/// The story: a proxy kept whatever its clients made it keep.
#[test]
fn what_a_proxy_keeps_is_bounded_and_comes_back() {
    let lockd = Lockd::start(&["--request", "16M"]);
    let proxy = Proxy::start_with(&lockd, &lockd.address(), &["--memory", "2M"]);
    let client = proxy.client();
    let list = irregular(20_000); // 320,000 bytes, and as many less of them on the way
    let take = |number: u64| client.lock(format!("/f{number}"), list.clone(), LockMode::Exclusive, Wait::Try);
    let named = "2097152 bytes of memory in the lock proxy of this node; --memory of elbow lockd proxy raises it";
    let refused_after = || {
        let mut holds = Vec::new();
        loop {
            match take(holds.len() as u64) {
                Ok(hold) => holds.push(hold),
                Err(error) => return (holds.len(), error.to_string()),
            }
        }
    };
    let (first, why) = refused_after();
    assert!((3..=6).contains(&first) && why.contains(named), "{first}: {why}");
    // Who has little to ask for is refused as little as the others are: but idle locks are no reason to refuse anything.
    for number in 0..100 {
        take(number % 10).unwrap().finish().unwrap();
    }
    let (again, why) = refused_after();
    assert!(again == first && why.contains(named), "{again} after {first}: {why}");
    // Refused while it comes in, by its length alone.
    let refused = client
        .lock("/long", irregular(400_000), LockMode::Exclusive, Wait::Try)
        .unwrap_err();
    assert!(refused.to_string().contains(named), "{refused}");
    take(0).unwrap().finish().unwrap();
}

/// Requests that wait are kept as well, and give back what they take when their client goes.
#[test]
fn requests_that_wait_in_a_proxy_are_memory() {
    let lockd = Lockd::start(&[]);
    let proxy = Proxy::start_with(&lockd, &lockd.address(), &["--memory", "100K"]);
    let whole = lockd
        .client()
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    let client = proxy.client();
    let name = file_name("/f".as_ref()).unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        assert!(waiting.len() < 1000, "nothing is refused");
        let asked = client.ask(
            Owner(waiting.len() as u64),
            name.clone(),
            piece(0),
            LockMode::Exclusive,
            Wait::Forever,
        );
        let asked = asked.unwrap();
        match asked.wait_for(Duration::from_millis(20)) {
            Ok(None) => waiting.push(asked),
            Ok(Some(_)) => panic!("somebody else holds it"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("--memory of elbow lockd proxy"), "{refused}");
    assert!((50..130).contains(&waiting.len()), "{}", waiting.len());
    drop((waiting, client));
    whole.finish().unwrap();
    // The proxy learns that its client has gone when it reads from that connection, which may be after it hears from the next one.
    let next = proxy.client();
    until("what the client took is given back", || {
        match next.lock("/f", piece(0), LockMode::Exclusive, Wait::For(5_000)) {
            Ok(hold) => hold.finish().is_ok(),
            Err(refused) if refused.to_string().contains("--memory of elbow lockd proxy") => false,
            Err(other) => panic!("{other}"),
        }
    });
}
