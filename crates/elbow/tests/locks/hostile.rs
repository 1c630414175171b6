//! Bytes that no client of ours sends.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use elbow_lock::{
    Address, Client, FileName, Hold, LockId, LockMode, LockRequest, Owner, PosixRequest, Request, Wait, wire,
};
use elbow_ranges::Footprint;

use super::lockd::{Lockd, until};

/// A hello of version 1 with no lease, no name and a nonce of zeros.
fn hello() -> Vec<u8> {
    let mut payload = b"\x01ELBOWLCK\x01\x00\x00".to_vec();
    payload.extend([0; 16]);
    frame(&payload)
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    frame.extend(payload);
    frame
}

fn connect(lockd: &Lockd) -> UnixStream {
    let Address::Unix(path) = &lockd.addresses[0] else {
        panic!("a Unix socket")
    };
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// All that the service says before it closes.
fn last_words(mut stream: UnixStream) -> String {
    let mut said = Vec::new();
    // It may close while bytes of ours are under way.
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn whatever_is_no_protocol_ends_its_own_connection_and_no_other() {
    let lockd = Lockd::start(&[]);
    let client = lockd.client();
    let hold = client
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    let after_hello: [(&str, Vec<u8>, &str); 6] = [
        ("an empty frame", vec![0, 0, 0, 0], "a frame is empty"),
        ("a frame of 4 GiB", vec![0xff, 0xff, 0xff, 0xff], "longer than 16 MiB"),
        ("an unknown type", frame(&[0x7f]), "unknown type"),
        ("a reply", frame(&[0x90, 1, 1]), "unknown type"),
        // lock 1 of "f", a list of 2^60 patterns.
        ("a huge count", frame(b"\x10\x01\x00\x01f\x01\x00\x00\x12\x00\x80\x80\x80\x80\x80\x80\x80\x80\x10"), "truncated"),
        // lock 1 of "f", one pattern of 2^63 pieces 2^63 apart.
        (
            "strides past 2^64",
            frame(b"\x10\x01\x00\x01f\x01\x00\x00\x11\x00\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x01"),
            "",
        ),
    ];
    for (what, bytes, why) in after_hello {
        let mut stream = connect(&lockd);
        stream.write_all(&hello()).unwrap();
        stream.write_all(&bytes).unwrap();
        let said = last_words(stream);
        assert!(
            said.contains("no request that it understands") && said.contains(why),
            "{what}: {said:?}"
        );
    }
    for bytes in [
        frame(b"GET / HTTP/1.1\r\n\r\n"),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        frame(&[0x02; 33]),
    ] {
        let mut stream = connect(&lockd);
        stream.write_all(&bytes).unwrap();
        assert!(last_words(stream).len() < 300);
    }
    hold.finish().unwrap();
}

#[test]
fn a_queue_that_is_full_names_the_option_that_makes_it_longer() {
    let lockd = Lockd::start(&["--queue", "2"]);
    let client = lockd.client();
    let file = elbow_lock::FileName::new(b"/f").unwrap();
    let ask = |owner| {
        let owner = elbow_lock::Owner(owner);
        client
            .ask(
                owner,
                file.clone(),
                Footprint::whole(),
                LockMode::Exclusive,
                Wait::Forever,
            )
            .unwrap()
    };
    let held = ask(1).wait().unwrap();
    let waiting = [ask(2), ask(3)];
    let refused = ask(4).wait().unwrap_err().to_string();
    assert!(
        refused.contains("2 requests in the queue of one file; --queue of elbow lockd serve raises it"),
        "{refused}"
    );
    drop((waiting, held));
}

/// So many ranges in which no pattern is to be found.
pub(crate) fn irregular(count: u64) -> Footprint {
    let mixed = |n: u64| (n ^ (n >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let range = |n: u64| (n * 64 + mixed(n) % 31, 1 + mixed(n + count) % 29);
    Footprint::from_list((0..count).map(range)).unwrap()
}

#[test]
fn a_request_that_is_too_long_is_refused_alone() {
    let lockd = Lockd::start(&["--request", "64K"]);
    let client = lockd.client();
    let refused = client
        .lock("/f", irregular(100_000), LockMode::Exclusive, Wait::Try)
        .unwrap_err();
    assert!(refused.to_string().contains("--request"), "{refused}");
    let hold = client
        .lock("/f", irregular(100), LockMode::Exclusive, Wait::Try)
        .unwrap();
    hold.finish().unwrap();
}

/// Only its refusal was looked at, and an option that is named has to help.
#[test]
fn a_million_ranges_are_granted_where_requests_may_be_long() {
    const RANGES: u64 = 1_000_000;
    let lockd = Lockd::start(&["--request", "16M"]);
    let list = irregular(RANGES);
    assert!(
        list.segments() == RANGES && list.heap_bytes() as u64 >= 8 * RANGES,
        "there is a pattern in it: {} bytes",
        list.heap_bytes()
    );
    let client = lockd.client();
    let hold = client.lock("/f", list, LockMode::Exclusive, Wait::Try).unwrap();
    // To the byte: the last range, and the gap behind it.
    let last = irregular(RANGES).bounds().end;
    let others = lockd.client();
    let byte = |at: u64, wait| {
        let byte = Footprint::extent(at..at + 1).unwrap();
        others.lock("/f", byte, LockMode::Exclusive, wait)
    };
    let refused = byte(last - 1, Wait::Try).unwrap_err().to_string();
    assert!(refused.contains("somebody else holds it"), "{refused}");
    byte(last, Wait::Try).unwrap().finish().unwrap();
    until("it is given back", || lockd.total("holds") == 1); // Of an unlock there is no answer.
    hold.finish().unwrap();
    byte(last - 1, Wait::For(10_000)).unwrap().finish().unwrap();
}

/// The story: 10,000 clients could make the service take 100 MB each, and 814 MB stayed when they had gone.
#[test]
fn what_clients_took_goes_back_to_the_system_when_they_have_gone() {
    let lockd = Lockd::start(&[]);
    let taken_mb = || resident_kb(lockd.process()) >> 10;
    let before = taken_mb();
    let lists = irregular(100_000);
    let holds: Vec<_> = (0..8)
        .map(|n| {
            lockd
                .client()
                .lock(format!("/f{n}"), lists.clone(), LockMode::Exclusive, Wait::Try)
                .unwrap()
        })
        .collect();
    let with_clients = taken_mb();
    assert!(
        with_clients >= before + 8,
        "{before} MB, then {with_clients}: nothing was taken"
    );
    drop(holds);
    until("the memory is given back", || {
        taken_mb() < before + (with_clients - before) / 2
    });
}

fn resident_kb(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn half_a_frame_is_waited_for_and_forgotten_when_its_client_goes() {
    let lockd = Lockd::start(&[]);
    let mut stream = connect(&lockd);
    stream.write_all(&hello()).unwrap();
    stream.write_all(&[200, 0, 0, 0, 0x10, 1]).unwrap();
    drop(stream);
    lockd
        .client()
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
}

#[test]
fn a_client_that_reads_no_answers_is_cut_off() {
    let lockd = Lockd::start(&[]);
    let mut stream = connect(&lockd);
    stream.write_all(&hello()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    // Each status request is 6 bytes and brings hundreds.
    let requests: Vec<u8> = frame(&[0x18, 1]).repeat(10_000);
    let mut sent = 0;
    while sent < 100 && stream.write_all(&requests).is_ok() {
        sent += 1;
    }
    assert!(
        sent < 100,
        "the service took a million requests whose answers nobody reads"
    );
    lockd
        .client()
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
}

/// Frames of these requests.
fn frames(requests: &[Request]) -> Vec<u8> {
    let mut frames = Vec::new();
    requests
        .iter()
        .for_each(|request| wire::append_request(&mut frames, request));
    frames
}

/// The story: the service found a circle, took another request of the same number in another shard for the one that ends it, and aborted. Which shard a file is in
/// nobody knows from outside, so this is tried with many pairs of files, each with a session of its own.
#[test]
fn one_number_for_requests_of_two_files_harms_nobody() {
    let lockd = Lockd::start(&["--threads", "8"]);
    let others = lockd.client();
    let hold = others
        .lock("/g", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    for pair in 0..16 {
        let posix = |id, owner, file: &str, mode| {
            Request::Posix(PosixRequest {
                id: LockId(id),
                owner: Owner(owner),
                file: FileName::new(format!("/{file}{pair}").as_bytes()).unwrap(),
                start: 0,
                end: 10,
                mode: Some(mode),
                wait: Wait::Forever,
            })
        };
        let (shared, exclusive) = (LockMode::Shared, LockMode::Exclusive);
        let mut stream = connect(&lockd);
        stream.write_all(&hello()).unwrap();
        let requests = [
            posix(10, 1, "y", shared),
            posix(11, 3, "z", exclusive),
            posix(12, 5, "x", exclusive),
            posix(2, 2, "y", exclusive),
            posix(5, 3, "y", shared),
            posix(5, 4, "x", exclusive),
            posix(6, 1, "z", exclusive),
            Request::Status { seq: 77 },
        ];
        stream.write_all(&frames(&requests)).unwrap();
        read_until(&mut stream, b"busiest");
    }
    hold.check().expect("the service lives");
    hold.finish().unwrap();
}

/// Says hello and locks `/f`, as a client does.
fn hold_f(stream: &mut impl Write, others: &Client) {
    stream.write_all(&hello()).unwrap();
    let lock = frames(&[lock_of(b"/f", Footprint::whole())]);
    stream.write_all(&lock).unwrap();
    until("it holds", || !is_free(others, "/f"));
}

fn lock_of(file: &[u8], footprint: Footprint) -> Request {
    Request::Lock(LockRequest {
        id: LockId(1),
        owner: Owner(1),
        file: FileName::new(file).unwrap(),
        mode: LockMode::Exclusive,
        footprint,
        wait: Wait::Forever, // Whoever looks whether it is free has it for a moment.
        recall: false,
    })
}

/// Asks often for the status, with the many locks in it that are given back: more than a client may leave unread.
fn flood(others: &Client, stream: &mut impl Write) -> Vec<Hold> {
    let lock = |n| {
        others
            .lock(format!("/other{n}"), Footprint::whole(), LockMode::Shared, Wait::Try)
            .unwrap()
    };
    let many = (0..100).map(lock).collect();
    let _ = stream.write_all(&frame(&[0x18, 1]).repeat(10_000)); // It may not take all.
    many
}

fn is_free(client: &Client, file: &str) -> bool {
    client
        .lock(file, Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .is_ok()
}

/// The story: a client whose answers piled up lost its locks to others at that moment, and was not told.
#[test]
fn a_client_that_reads_no_answers_keeps_its_locks_until_it_goes() {
    let lockd = Lockd::start(&[]);
    let others = lockd.client();
    let mut stream = connect(&lockd);
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    hold_f(&mut stream, &others);
    let _in_the_status = flood(&others, &mut stream);
    assert!(!is_free(&others, "/f"), "it may be writing");
    let said = read_until(&mut stream, b"reads none of its answers");
    assert!(!is_free(&others, "/f"), "it was told this moment");
    drop((stream, said));
    until("it has gone", || is_free(&others, "/f"));
}

/// Reads until that was said.
fn read_until(stream: &mut impl Read, what: &[u8]) -> Vec<u8> {
    let (mut said, mut bytes) = (Vec::new(), vec![0; 1 << 20]);
    while !said.windows(what.len()).any(|window| window == what) {
        let got = stream.read(&mut bytes).unwrap();
        assert!(got > 0, "the connection ended before it said so");
        said.drain(..said.len().saturating_sub(what.len()));
        said.extend(&bytes[..got]);
    }
    said
}

/// Over TCP too, and no longer than its lease.
#[test]
fn a_client_with_a_lease_that_reads_no_answers_keeps_its_locks_as_long() {
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--ttl", "4s"]);
    let Address::Tcp(place) = &lockd.addresses[1] else {
        panic!("TCP")
    };
    let others = lockd.client();
    let mut stream = std::net::TcpStream::connect(place).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let begun = Instant::now();
    hold_f(&mut stream, &others);
    let _in_the_status = flood(&others, &mut stream);
    until("its lease is over", || is_free(&others, "/f"));
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    read_until(&mut stream, b"reads none of its answers");
}

/// The story: what followed of a request that was refused unread was taken for requests when the session had been broken meanwhile.
#[test]
fn a_broken_client_that_is_in_the_middle_of_a_request_keeps_its_locks_until_it_says_close() {
    let lockd = Lockd::start(&["--request", "64K"]);
    let others = lockd.client();
    let mut stream = connect(&lockd);
    hold_f(&mut stream, &others);
    // A lock that is too long, whose list looks like request after request to end the session.
    let close = frames(&[Request::Close]);
    let long: Vec<u8> = [b"\x10\x02\x01\x01g\x01\x01\x00".to_vec(), close.repeat(50_000)].concat();
    let long = frame(&long);
    let (begin, rest) = long.split_at(long.len() / 2);
    stream.write_all(begin).unwrap();
    read_until(&mut stream, b"--request");
    others.break_locks(&FileName::new(b"/f").unwrap(), None, false).unwrap();
    read_until(&mut stream, b"broke it");
    stream.write_all(rest).unwrap();
    // Half of one is none, and what is no close is none.
    stream.write_all(&frames(&[Request::Renew { seq: 1 }])).unwrap();
    stream.write_all(&close[..3]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(!is_free(&others, "/f"), "it has not said that it uses it no more");
    stream.write_all(&close[3..]).unwrap();
    until("it said close", || is_free(&others, "/f"));
}

#[test]
fn who_sends_what_nobody_understands_keeps_its_locks_until_it_goes() {
    let lockd = Lockd::start(&[]);
    let others = lockd.client();
    let mut stream = connect(&lockd);
    hold_f(&mut stream, &others);
    stream.write_all(&frame(&[0x7f])).unwrap();
    read_until(&mut stream, b"no request that it understands");
    stream.write_all(&frames(&[Request::Close]).repeat(3)).unwrap(); // Nobody knows what this belongs to.
    std::thread::sleep(Duration::from_millis(300));
    assert!(!is_free(&others, "/f"), "it may not have read yet what it was told");
    drop(stream);
    until("it has gone", || is_free(&others, "/f"));
}

/// A broken client on a machine that is gone takes no place for longer than its lease.
#[test]
fn a_broken_client_is_waited_for_as_long_as_its_lease() {
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--ttl", "4s", "--clients", "2"]);
    let Address::Tcp(place) = &lockd.addresses[1] else {
        panic!("TCP")
    };
    let others = lockd.client();
    let mut stream = std::net::TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    hold_f(&mut stream, &others);
    others.break_locks(&FileName::new(b"/f").unwrap(), None, false).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("the service closes it");
    assert!(is_free(&others, "/f"));
}

/// Before a client is known it may not have megabytes kept for it.
#[test]
fn no_hello_is_long() {
    let lockd = Lockd::start(&[]);
    let mut stream = connect(&lockd);
    stream.write_all(&[0, 0, 0x80, 0]).unwrap();
    let begun = Instant::now();
    assert!(last_words(stream).contains("begins with a hello"));
    assert!(begun.elapsed() < Duration::from_secs(9), "it waited for the rest");
}
