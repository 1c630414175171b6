//! A TCP proxy on loopback that delays each direction by a fixed time, and limits its throughput where that is asked for.
//!
//! ```text
//!   client ── reader ──(due, bytes)── writer ── server      and the same again for the other direction
//! ```
//!
//! A reader takes what has arrived and notes when it is due; the writer passes it on then. Any number of pieces are on
//! their way at once, so the throughput is that of loopback while every round trip costs twice the delay. What is on its
//! way is bounded by [`MAX_PIECES`], the size of a generous network buffer. With a rate the reader takes no more than that: who sends more waits.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes that are passed on as one piece.
const PIECE: usize = 64 * 1024;

/// The most pieces on their way in one direction of a connection: 64 MiB when they are full.
const MAX_PIECES: usize = 1024;

/// What a connection through a proxy is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    /// How late each direction is.
    pub one_way: Duration,
    /// How much each direction of a connection takes, in bytes a second.
    pub rate: Option<u64>,
}

impl From<Duration> for Line {
    /// As fast as loopback, and so late.
    fn from(one_way: Duration) -> Self {
        Self { one_way, rate: None }
    }
}

/// A running proxy; it accepts no more connections once it is dropped.
#[derive(Debug)]
pub struct DelayProxy {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl DelayProxy {
    /// Listens on a free port of loopback and passes connections on to `target`, by such a line.
    ///
    /// # Errors
    /// What binding the port or starting a thread says.
    pub fn start(target: SocketAddr, line: impl Into<Line>) -> io::Result<Self> {
        Self::listen((Ipv4Addr::LOCALHOST, 0).into(), target, line)
    }

    /// The same on a given address.
    ///
    /// # Errors
    /// What binding it or starting a thread says.
    pub fn listen(address: SocketAddr, target: SocketAddr, line: impl Into<Line>) -> io::Result<Self> {
        let line = line.into();
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopped);
        let passed = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&passed);
        let open = Arc::new(Mutex::new(Vec::new()));
        let opened = Arc::clone(&open);
        let accept = move || {
            for client in listener.incoming().take_while(|_| !flag.load(Ordering::SeqCst)) {
                if let Err(error) = client.and_then(|client| join(client, target, line, &counted, &opened)) {
                    eprintln!("delayproxy: {error}");
                }
            }
        };
        thread::Builder::new().name("delayproxy".to_owned()).spawn(accept)?;
        Ok(Self {
            address,
            stopped,
            passed,
            open,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many bytes it has taken so far, in both directions of all connections.
    pub fn passed_bytes(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

impl DelayProxy {
    /// Ends all connections that go through it, in the middle of whatever is on its way.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts; when nobody listens any more, it has ended already.
        let _ = TcpStream::connect(self.address);
    }
}

fn join(
    client: TcpStream,
    target: SocketAddr,
    line: Line,
    passed: &Arc<AtomicU64>,
    open: &Mutex<Vec<TcpStream>>,
) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        open.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(stream.try_clone()?);
    }
    delay(client.try_clone()?, server.try_clone()?, line, passed)?;
    delay(server, client, line, passed)
}

/// A piece and when it is due; an empty one is the end.
type Piece = (Instant, Vec<u8>);

fn delay(from: TcpStream, to: TcpStream, line: Line, passed: &Arc<AtomicU64>) -> io::Result<()> {
    let (sender, receiver) = sync_channel(MAX_PIECES);
    let passed = Arc::clone(passed);
    thread::Builder::new().spawn(move || read_pieces(from, &sender, line, &passed))?;
    thread::Builder::new().spawn(move || write_pieces(&to, &receiver))?;
    Ok(())
}

fn read_pieces(mut from: TcpStream, sender: &SyncSender<Piece>, line: Line, passed: &AtomicU64) {
    let mut buffer = vec![0; PIECE];
    let mut free_at = Instant::now();
    loop {
        let length = from.read(&mut buffer).unwrap_or(0); // A broken connection ends as a closed one does.
        passed.fetch_add(length as u64, Ordering::SeqCst);
        if let Some(rate) = line.rate {
            free_at = free_at.max(Instant::now()) + Duration::from_secs_f64(length as f64 / rate as f64);
            thread::sleep(free_at.saturating_duration_since(Instant::now()));
        }
        let sent = sender.send((Instant::now() + line.one_way, buffer[..length].to_vec()));
        if length == 0 || sent.is_err() {
            return;
        }
    }
}

fn write_pieces(mut to: &TcpStream, receiver: &Receiver<Piece>) {
    for (due, piece) in receiver {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if piece.is_empty() || to.write_all(&piece).is_err() {
            break;
        }
    }
    // The other side may have closed it already.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo_server() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
        });
        address
    }

    #[test]
    fn a_round_trip_takes_twice_the_delay_and_the_end_comes_through() {
        let proxy = DelayProxy::start(echo_server(), Duration::from_millis(30)).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let started = Instant::now();
        stream.write_all(b"ping").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
        assert!(
            started.elapsed() >= Duration::from_millis(60),
            "{:?}",
            started.elapsed()
        );
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut answer).unwrap(), 0);
    }

    #[test]
    fn a_line_with_a_rate_takes_no_more_and_what_passes_is_counted() {
        let line = Line {
            rate: Some(1 << 20),
            ..Line::default()
        };
        let proxy = DelayProxy::start(echo_server(), line).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let started = Instant::now();
        stream.write_all(&[7; 256 << 10]).unwrap();
        stream.read_exact(&mut [0; 256 << 10]).unwrap();
        assert!(
            started.elapsed() >= Duration::from_millis(250),
            "{:?}",
            started.elapsed()
        );
        assert_eq!(proxy.passed_bytes(), 512 << 10, "there and back");
    }

    #[test]
    fn what_is_cut_ends_at_once_and_who_comes_afterwards_is_let_through() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = DelayProxy::start(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        proxy.cut();
        for end in [&mut client, &mut server] {
            assert!(matches!(end.read(&mut [0]), Ok(0) | Err(_)));
        }
        client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"y").unwrap();
        listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn throughput_is_not_limited_by_the_delay() {
        const BYTES: usize = 16 << 20;
        let proxy = DelayProxy::start(echo_server(), Duration::from_millis(100)).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let started = Instant::now();
        let sender = thread::spawn(move || writer.write_all(&vec![7; BYTES]).unwrap());
        let mut data = vec![0; BYTES];
        stream.read_exact(&mut data).unwrap();
        sender.join().unwrap();
        assert!(data.iter().all(|byte| *byte == 7));
        // One piece at a time would take 256 round trips of 200 ms.
        assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
    }
}
