//! Who is let in, and what the service tells.

use std::io::{Read, Write};
use std::net::TcpStream;

use elbow_lock::{Address, Client, Credentials, LockError, LockMode, Options, Wait};
use elbow_ranges::Footprint;

use super::lockd::{Lockd, write_key};

fn enter(address: &Address, key: Option<&[u8]>) -> Result<Client, LockError> {
    let credentials = key.map(|key| Credentials::of_key(key).unwrap());
    let options = Options {
        ttl_ms: 1_000,
        credentials,
        ..Options::default()
    };
    Client::connect_with(address.clone(), options)
}

#[test]
fn over_tcp_only_those_with_the_key_come_in() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    write_key(&key_file, "0123456789abcdef0123\n");
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--key-file", key_file.to_str().unwrap()]);
    let [unix, tcp] = &lockd.addresses[..] else {
        panic!("two addresses")
    };

    let client = enter(tcp, Some(b"0123456789abcdef0123")).unwrap();
    client
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    for (key, why) in [
        (None, "asks for a key"),
        (Some(&b"0123456789abcdef0124"[..]), "it does not know our key"),
    ] {
        let error = enter(tcp, key).unwrap_err();
        assert!(
            matches!(&error, LockError::Rejected { .. }) && error.to_string().contains(why),
            "{error}"
        );
    }
    enter(unix, None).unwrap();
    // A service that asks for no key cannot be the one that we share a key with.
    assert!(matches!(
        enter(unix, Some(b"0123456789abcdef0123")),
        Err(LockError::Rejected { .. })
    ));
}

#[test]
fn metrics_are_read_by_http() {
    let place = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let lockd = Lockd::start(&["--metrics", &place]);
    let client = lockd.client();
    let _hold = client
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    let mut stream = TcpStream::connect(place).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for line in [
        "elbow_lock_holds 1",
        "# TYPE elbow_lock_grants_total counter",
        "elbow_lock_grants_total 1",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line:?} in {page}");
    }
}
