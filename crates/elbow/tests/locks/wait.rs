//! Locks that are asked for first and waited for later, and waits that another thread ends.

use std::thread;
use std::time::{Duration, Instant};

use elbow_lock::{Client, LockError, LockMode, Owner, PendingLock, Refusal, Wait, file_name};
use elbow_ranges::Footprint;

use super::lockd::{Lockd, until};
use super::proxy::Proxy;

fn ask(client: &Client, owner: u64, mode: LockMode, wait: Wait) -> PendingLock {
    let file = file_name("/f".as_ref()).unwrap();
    let all = Footprint::extent(0..100).unwrap();
    client.ask(Owner(owner), file, all, mode, wait).unwrap()
}

fn why(error: &LockError) -> &Refusal {
    match error {
        LockError::Refused { why, .. } => why,
        other => panic!("{other}"),
    }
}

/// Runs a test on a service, and on another one through a proxy.
fn directly_and_through_a_proxy(test: impl Fn(&Lockd, &Client)) {
    let lockd = Lockd::start(&[]);
    test(&lockd, &lockd.client());
    let lockd = Lockd::start(&[]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    test(&lockd, &proxy.client());
}

#[test]
fn a_wait_that_is_cancelled_leaves_the_queue() {
    directly_and_through_a_proxy(|lockd, client| {
        let other = lockd.client();
        let reader = ask(&other, 1, LockMode::Shared, Wait::Forever).wait().unwrap();
        let writer = ask(client, 2, LockMode::Exclusive, Wait::Forever);
        until("the writer waits", || lockd.total("queued") == 1);
        // First come, first served: a reader that comes later waits behind the writer.
        let late = ask(&other, 3, LockMode::Shared, Wait::Try).wait().unwrap_err();
        assert_eq!(*why(&late), Refusal::WouldBlock);
        let canceller = writer.canceller();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| writer.wait().unwrap_err());
            thread::sleep(Duration::from_millis(20)); // So that it is likely to wait; it must work otherwise, too.
            canceller.cancel();
            assert_eq!(*why(&waiting.join().unwrap()), Refusal::Cancelled);
        });
        until("the writer has gone", || lockd.total("queued") == 0);
        let late = ask(&other, 3, LockMode::Shared, Wait::Try).wait().unwrap();
        canceller.cancel(); // Says nothing of anything any more.
        reader.finish().unwrap();
        late.finish().unwrap();
    });
}

#[test]
fn a_lock_that_is_asked_for_and_dropped_is_given_up() {
    directly_and_through_a_proxy(|lockd, client| {
        drop(ask(client, 1, LockMode::Exclusive, Wait::Forever));
        let held = ask(&lockd.client(), 2, LockMode::Exclusive, Wait::Forever)
            .wait()
            .unwrap();
        drop(ask(client, 1, LockMode::Exclusive, Wait::Forever));
        until("it has left the queue", || lockd.total("queued") == 0);
        held.finish().unwrap();
    });
}

#[test]
fn several_are_asked_for_by_one_thread() {
    directly_and_through_a_proxy(|_, client| {
        let asked: Vec<PendingLock> = (0..10)
            .map(|_| ask(client, 1, LockMode::Shared, Wait::Forever))
            .collect();
        let tokens: Vec<_> = asked
            .into_iter()
            .rev()
            .map(|asked| asked.wait().unwrap().token())
            .collect();
        assert!(tokens.windows(2).all(|pair| pair[0] > pair[1]), "{tokens:?}");
    });
}

/// The grant and the cancellation cross: the lock is held or it is free, and the waiting thread knows which.
#[test]
fn a_cancellation_at_any_moment_leaves_a_lock_or_none() {
    directly_and_through_a_proxy(|lockd, client| {
        let other = lockd.client();
        let (mut granted, mut cancelled) = (0, 0);
        let mut pause = Duration::from_micros(50); // Adapts to the machine: about half of them come too late.
        let began = Instant::now();
        while (granted < 50 || cancelled < 50) && began.elapsed() < Duration::from_secs(60) {
            let held = ask(&other, 1, LockMode::Exclusive, Wait::Forever).wait().unwrap();
            let asked = ask(client, 2, LockMode::Exclusive, Wait::Forever);
            let canceller = asked.canceller();
            let answer = thread::scope(|scope| {
                let waiting = scope.spawn(|| asked.wait());
                held.release();
                thread::sleep(pause);
                canceller.cancel();
                waiting.join().unwrap()
            });
            match answer {
                Ok(hold) => {
                    hold.finish().unwrap();
                    granted += 1;
                    pause = pause * 9 / 10;
                }
                Err(error) => {
                    assert_eq!(*why(&error), Refusal::Cancelled);
                    cancelled += 1;
                    pause = pause * 11 / 10 + Duration::from_nanos(100);
                }
            }
        }
        assert!(
            granted >= 50 && cancelled >= 50,
            "{granted} granted, {cancelled} cancelled"
        );
        let free = ask(&other, 3, LockMode::Exclusive, Wait::For(10_000)).wait().unwrap();
        free.finish().unwrap();
    });
}

#[test]
fn a_wait_is_cancelled_while_the_service_is_away() {
    let mut lockd = Lockd::start(&[]);
    let held = ask(&lockd.client(), 1, LockMode::Exclusive, Wait::Forever)
        .wait()
        .unwrap();
    let asked = ask(&lockd.client(), 2, LockMode::Exclusive, Wait::Forever);
    let canceller = asked.canceller();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| asked.wait().unwrap_err());
        lockd.kill_and_start_again();
        canceller.cancel();
        assert_eq!(*why(&waiting.join().unwrap()), Refusal::Cancelled);
    });
    held.check().unwrap();
    until("nobody waits", || lockd.total("queued") == 0);
}
