//! What is said over TCP by those who know each other: nobody between them reads, changes or adds anything; and who is taken for whom.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use elbow_lock::{Address, Client, Credentials, Hold, LockError, LockId, LockMode, Options, Request, Wait, wire};
use elbow_ranges::Footprint;

use crate::lockd::{Lockd, until, write_key};
use crate::preload::{self, said};

const KEY: &str = "0123456789abcdef0123";
const FILE: &str = "/a-name-that-would-be-seen";
const TTL_MS: u32 = 1_500;

fn enter(address: &Address, credentials: &Credentials) -> Result<Client, LockError> {
    let options = Options {
        ttl_ms: TTL_MS,
        credentials: Some(credentials.clone()),
        ..Options::default()
    };
    Client::connect_with(address.clone(), options)
}

fn lock(client: &Client) -> Result<Hold, LockError> {
    client.lock(FILE, Footprint::whole(), LockMode::Exclusive, Wait::Try)
}

/// A service over TCP that asks for what `path` has, and its address there.
fn serve(path: &str) -> (Lockd, Address) {
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--key-file", path, "--ttl", "1500ms"]);
    let address = lockd.addresses[1].clone();
    (lockd, address)
}

fn port(address: &Address) -> &str {
    let Address::Tcp(place) = address else {
        panic!("{address} is not TCP")
    };
    place.rsplit_once(':').unwrap().1
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    ToService,
    ToClient,
}

/// Somebody between a client and the service.
struct Between {
    address: Address,
    /// All that was said.
    heard: Arc<Mutex<Vec<u8>>>,
    sockets: Arc<Mutex<Vec<(Way, TcpStream)>>>,
    /// What the next bytes on their way to the client have one bit of changed in.
    changes: Arc<Mutex<bool>>,
}

impl Between {
    fn sit(service: &Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = Self {
            address: Address::Tcp(listener.local_addr().unwrap().to_string()),
            heard: Arc::default(),
            sockets: Arc::default(),
            changes: Arc::default(),
        };
        let place = format!("127.0.0.1:{}", port(service));
        let (heard, sockets, changes) = (
            Arc::clone(&between.heard),
            Arc::clone(&between.sockets),
            Arc::clone(&between.changes),
        );
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, service) = (client.unwrap(), TcpStream::connect(&place).unwrap());
                for (way, from, to) in [(Way::ToService, &client, &service), (Way::ToClient, &service, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    sockets.lock().unwrap().push((way, to.try_clone().unwrap()));
                    let (heard, changes) = (Arc::clone(&heard), Arc::clone(&changes));
                    std::thread::spawn(move || pass(way, from, to, &heard, &changes));
                }
            }
        });
        between
    }

    /// Says something of its own on the connections that there are.
    fn slip_in(&self, way: Way, bytes: &[u8]) {
        for (_, socket) in self.sockets.lock().unwrap().iter_mut().filter(|(to, _)| *to == way) {
            drop(socket.write_all(bytes)); // Some are over.
        }
    }
}

fn pass(way: Way, mut from: TcpStream, mut to: TcpStream, heard: &Mutex<Vec<u8>>, changes: &Mutex<bool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(got @ 1..) = from.read(&mut bytes) {
        heard.lock().unwrap().extend(&bytes[..got]);
        if way == Way::ToClient && std::mem::take(&mut *changes.lock().unwrap()) {
            bytes[got - 1] ^= 1;
        }
        if to.write_all(&bytes[..got]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn has(heard: &[u8], what: &str) -> bool {
    heard.windows(what.len()).any(|window| window == what.as_bytes())
}

/// The story: a frame that somebody slipped in gave away a lock that was held.
#[test]
fn what_is_slipped_in_on_the_way_gives_no_lock_away() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    write_key(&key, KEY);
    let credentials = Credentials::read(&key).unwrap();
    let (lockd, address) = serve(key.to_str().unwrap());
    let between = Between::sit(&address);
    // As it was, and as it is without a key: the frame is taken for the client's.
    let open = Lockd::start(&["--listen", "tcp:127.0.0.1:0"]);
    let in_the_open = Between::sit(&open.addresses[1]);

    let plain = Client::connect_with(
        in_the_open.address.clone(),
        Options {
            ttl_ms: TTL_MS,
            ..Options::default()
        },
    );
    let (plain, sealed) = (plain.unwrap(), enter(&between.address, &credentials).unwrap());
    let (held_in_the_open, held) = (lock(&plain).unwrap(), lock(&sealed).unwrap());
    assert!(has(&in_the_open.heard.lock().unwrap(), FILE));
    assert!(
        !has(&between.heard.lock().unwrap(), FILE),
        "somebody between can read it"
    );

    let mut unlock = Vec::new();
    (0..100).for_each(|id| wire::append_request(&mut unlock, &Request::Unlock { id: LockId(id) }));
    in_the_open.slip_in(Way::ToService, &unlock);
    between.slip_in(Way::ToService, &unlock);
    let others = open.client();
    let give_up = Instant::now() + Duration::from_secs(20);
    while lock(&others).is_err() {
        assert!(
            Instant::now() < give_up,
            "the frame did not come through: this test shows nothing"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    held_in_the_open.check().unwrap(); // It does not know.

    // Sealed, it ends the connection; the lock is the client's as long as its lease, and it asserts it over the next connection or says that it is lost.
    let others = lockd.client();
    let begun = Instant::now();
    loop {
        match lock(&others) {
            Ok(_) => {
                assert!(held.check().is_err(), "two hold it");
                break;
            }
            Err(_) if begun.elapsed() > Duration::from_millis(u64::from(2 * TTL_MS)) => {
                held.check().unwrap();
                break;
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn what_was_changed_on_the_way_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    write_key(&key, KEY);
    let (lockd, address) = serve(key.to_str().unwrap());
    let between = Between::sit(&address);
    let client = enter(&between.address, &Credentials::read(&key).unwrap()).unwrap();
    let mine = lockd.client();
    let held = lock(&mine).unwrap();
    // The refusal is the next thing that comes: changed, it ends the connection, and the client asks again over the next.
    *between.changes.lock().unwrap() = true;
    let refused = lock(&client).map(drop).unwrap_err();
    assert!(matches!(refused, LockError::Refused { .. }), "{refused}");
    assert!(!*between.changes.lock().unwrap(), "nothing was changed");
    let opened = between
        .sockets
        .lock()
        .unwrap()
        .iter()
        .filter(|(way, _)| *way == Way::ToService)
        .count();
    assert!(opened > 1, "the first connection went on");
    held.finish().unwrap();
    until("it is given back", || lock(&client).is_ok());
}

/// Certificates as OpenSSL makes them.
struct Authority<'a> {
    place: &'a Path,
    name: &'static str,
}

impl<'a> Authority<'a> {
    fn new(place: &'a Path, name: &'static str) -> Self {
        let authority = Self { place, name };
        authority.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
        authority
    }

    fn openssl(&self, words: &str) {
        let output = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(self.place)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "openssl {words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// A directory with a certificate for `names`, by this authority, and the authority that its owner trusts.
    fn signs(&self, who: &str, names: &str, days: i32, trusted: &Self) -> PathBuf {
        let directory = self.place.join(who);
        std::fs::create_dir(&directory).unwrap();
        let name = self.name;
        self.openssl(&format!(
            "req -new -newkey ed25519 -noenc -subj /CN={who} -addext subjectAltName={names} -keyout {who}/key.pem -out {who}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {who}.csr -CA {name}.pem -CAkey {name}.key -copy_extensions copy -days {days} -out {who}/cert.pem"
        ));
        std::fs::copy(
            self.place.join(format!("{}.pem", trusted.name)),
            directory.join("ca.pem"),
        )
        .unwrap();
        directory
    }
}

#[test]
fn by_certificates_those_come_in_whom_the_authority_has_signed() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (
        Authority::new(directory.path(), "ours"),
        Authority::new(directory.path(), "theirs"),
    );
    let service = ours.signs("head", "DNS:localhost,IP:127.0.0.1", 2, &ours);
    let (lockd, address) = serve(service.to_str().unwrap());
    let node = ours.signs("node", "DNS:node", 2, &ours);
    let client = enter(&address, &Credentials::read(&node).unwrap()).unwrap();
    lock(&client).unwrap().finish().unwrap();
    // By its name in the address.
    let by_name = Address::Tcp(format!("localhost:{}", port(&address)));
    enter(&by_name, &Credentials::read(&node).unwrap()).unwrap();

    let expired = ours.signs("expired", "DNS:node", -1, &ours);
    let stranger = theirs.signs("stranger", "DNS:node", 2, &ours);
    let trusts_others = ours.signs("misled", "DNS:node", 2, &theirs);
    for (path, why) in [
        (&expired, "does not take our key or certificate"),
        (&stranger, "does not take our key or certificate"),
        (&trusts_others, "its certificate is not good"),
    ] {
        let error = enter(&address, &Credentials::read(path).unwrap()).unwrap_err();
        assert!(
            matches!(&error, LockError::Rejected { .. }) && error.to_string().contains(why),
            "{}: {error}",
            path.display()
        );
    }
    // Somebody with a certificate of the same authority, at another's address.
    let (_other, elsewhere) = serve(node.to_str().unwrap());
    let error = enter(&elsewhere, &Credentials::read(&node).unwrap()).unwrap_err();
    assert!(error.to_string().contains("its certificate is not good"), "{error}");

    let key = Credentials::of_key(KEY.as_bytes()).unwrap();
    let error = enter(&address, &key).unwrap_err();
    assert!(matches!(error, LockError::Rejected { .. }), "{error}");
    drop(lockd);
}

/// Every program finds them where it finds a key.
#[test]
fn certificates_do_for_every_client_what_a_key_does() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Authority::new(directory.path(), "ours");
    let service = ours.signs("head", "IP:127.0.0.1", 2, &ours);
    let node = ours.signs("node", "DNS:node", 2, &ours);
    let (lockd, address) = serve(service.to_str().unwrap());
    let elbow = |words: &[&str]| {
        let mut command = lockd.elbow(words);
        command
            .env("ELBOW_LOCKS", address.to_string())
            .env("ELBOW_LOCKS_KEY", &node);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    };
    elbow(&["lock", "hold", "f", "--", "true"]);
    elbow(&["lock", "status"]);
    if preload::library("libelbow_fcntl.so").is_some() {
        elbow(&["lock", "exec", "--prefix", ".", "--", "flock", "f", "true"]);
    }
    assert!(lockd.total("grants") >= 1);

    let proxy = lockd.directory.path().join("proxy");
    let mut proxied = lockd
        .elbow(&["lockd", "proxy", "--listen", &format!("unix:{}", proxy.display())])
        .args(["--server", &address.to_string(), "--certificates"])
        .arg(&node)
        .spawn()
        .unwrap();
    let give_up = Instant::now() + Duration::from_secs(20);
    let through = loop {
        match Client::connect(&format!("unix:{}", proxy.display())) {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < give_up, "{error}"),
        }
    };
    let held = lock(&through).unwrap();
    assert!(lock(&lockd.client()).is_err());
    held.finish().unwrap();
    proxied.kill().unwrap();
    proxied.wait().unwrap();
}

#[test]
fn what_is_no_key_and_no_directory_of_certificates_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let ours = Authority::new(place, "ours");
    let node = ours.signs("node", "DNS:node", 2, &ours);
    let other = ours.signs("other", "DNS:other", 2, &ours);
    let said_of = |path: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_elbow"))
            .args(["lockd", "serve", "--listen", "tcp:127.0.0.1:0", "--first", "--key-file"])
            .arg(path)
            .args(["--state"])
            .arg(place.join("state"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8(output.stderr).unwrap()
    };
    let short = place.join("short");
    std::fs::write(&short, "secret\n").unwrap();
    assert!(said_of(&short).contains("fewer than 16 bytes"));
    assert!(said_of(&place.join("nowhere")).contains("nowhere"));
    std::fs::copy(other.join("key.pem"), node.join("key.pem")).unwrap();
    assert!(said_of(&node).contains("node"), "{}", said_of(&node));
    for name in ["key.pem", "cert.pem", "ca.pem"] {
        std::fs::write(node.join(name), "no PEM\n").unwrap();
        let error = said_of(&node);
        assert!(error.contains(name), "{error}");
    }
    std::fs::remove_file(node.join("ca.pem")).unwrap();
    assert!(said_of(&node).contains("ca.pem"));
}

/// With the umask of most, a key that is made by hand can be read by all users of the machine.
#[test]
fn a_key_that_everybody_may_read_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, KEY).unwrap();
    let begin = |mode| {
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        // An address that is no address of this machine: it does not begin in any case.
        let mut elbow = Command::new(env!("CARGO_BIN_EXE_elbow"));
        elbow.args(["lockd", "serve", "--listen", "tcp:192.0.2.1:7700", "--key-file"]);
        let output = elbow
            .arg(&key)
            .arg("--state")
            .arg(directory.path().join("state"))
            .output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    for mode in [0o644, 0o604, 0o602] {
        let said = begin(mode);
        assert!(
            said.contains(&format!("mode is {mode:04o}); chmod 600 {}", key.display())),
            "{said}"
        );
    }
    for mode in [0o600, 0o400, 0o640] {
        let said = begin(mode);
        assert!(said.contains("192.0.2.1:7700: ") && !said.contains("chmod"), "{said}");
    }
}

/// What does not speak TLS to a service that does, and the other way round, is told so at once.
#[test]
fn who_speaks_no_tls_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    write_key(&key, KEY);
    let (_lockd, address) = serve(key.to_str().unwrap());
    let without = Client::connect_with(
        address,
        Options {
            ttl_ms: TTL_MS,
            ..Options::default()
        },
    );
    assert!(without.unwrap_err().to_string().contains("it asks for a key"));

    let open = Lockd::start(&["--listen", "tcp:127.0.0.1:0"]);
    let error = enter(&open.addresses[1], &Credentials::read(&key).unwrap()).unwrap_err();
    assert!(error.to_string().contains("asks for no key"), "{error}");

    // One that goes away without a word is not there, and may come back: it is no stranger.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = gone.local_addr().unwrap().to_string();
    drop(std::thread::spawn(move || drop(gone.accept())));
    let error = enter(&Address::Tcp(place), &Credentials::read(&key).unwrap()).unwrap_err();
    let LockError::Unreachable { source, .. } = &error else {
        panic!("{error}")
    };
    assert_ne!(source.kind(), ErrorKind::InvalidData, "{error}");
}
