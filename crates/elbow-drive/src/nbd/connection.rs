//! One client: the negotiation, then its requests.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use elbow_disk::SECTOR_BYTES;

use super::room::{Room, SharedRoom};
use super::stream::Stream;
use super::wire::{self, Command, Export, OptionHeader, Request, option, option_reply};
use crate::block_device::{Answer, Ask, DriveFault, Link};

/// A client that has not chosen an export by then never will.
const OPTIONS_MAX: usize = 64;
/// Nor one that has not come to it in this time.
const NEGOTIATION_PATIENCE: Duration = Duration::from_secs(10);
/// A client that stops in the middle of a request, or takes no answers, for so long has gone: what it has taken of the room is others'.
const TRANSFER_PATIENCE: Duration = Duration::from_secs(60);
/// File systems and databases write in these.
const PREFERRED_BYTES: u32 = 4096;

/// Serves a client until it goes.
///
/// # Errors
/// It has gone without a word, or does not keep to the protocol.
pub(super) fn serve(stream: Stream, link: &Link, shared: Arc<SharedRoom>) -> io::Result<()> {
    let mut writing = stream.try_clone()?;
    stream.set_write_patience(Some(TRANSFER_PATIENCE))?;
    let mut from = WithDeadline::after(&stream, NEGOTIATION_PATIENCE);
    let export = Export {
        bytes: link.bytes(),
        is_rotational: link.is_rotational(),
    };
    if !negotiate(&mut from, &mut writing, export)? {
        return Ok(());
    }
    stream.set_read_patience(None)?;
    let room = Arc::new(Room::within(shared));
    let (tell, told) = mpsc::channel();
    let given = Arc::clone(&room);
    let writer = std::thread::Builder::new()
        .name("elbow-nbd-write".into())
        .spawn(move || write_replies(writing, &told, &given))?;
    let mut requests = Requests { stream, link, room };
    let ended = loop {
        match requests.next() {
            Ok(Some((request, ask))) => {
                let tell = tell.clone();
                let reply = move |answer| drop(tell.send(Reply { request, answer }));
                match ask {
                    Ok(ask) => link.submit(ask, reply),
                    Err(fault) => reply(Err(fault)),
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // Answers under way still hold a sender: the writer ends after the last.
    drop(tell);
    let _ = writer.join();
    ended
}

/// What comes from a client until a moment; then it is an error.
struct WithDeadline<'s> {
    stream: &'s Stream,
    end: Instant,
}

impl<'s> WithDeadline<'s> {
    fn after(stream: &'s Stream, patience: Duration) -> Self {
        let end = Instant::now() + patience;
        Self { stream, end }
    }
}

impl Read for WithDeadline<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_patience(Some(left))?;
        (&*self.stream).read(into)
    }
}

/// Lets the client choose; `false` where it does not want to go on.
fn negotiate(from: &mut impl Read, to: &mut impl Write, export: Export) -> io::Result<bool> {
    to.write_all(&wire::GREETING)?;
    let flags = u32::from_be_bytes(take(from)?);
    if flags & !(wire::FIXED_NEWSTYLE | wire::NO_ZEROES) != 0 || flags & wire::FIXED_NEWSTYLE == 0 {
        return Err(ErrorKind::InvalidData.into());
    }
    for _ in 0..OPTIONS_MAX {
        let header = OptionHeader::decode(&take(from)?).ok_or(ErrorKind::InvalidData)?;
        let mut data = vec![0; header.bytes as usize];
        from.read_exact(&mut data)?;
        let mut say = |kind, data: &[u8]| to.write_all(&wire::option_reply(header.option, kind, data));
        match header.option {
            option::EXPORT_NAME if data.is_empty() => {
                to.write_all(&wire::export(export))?;
                let zeros: &[u8] = if flags & wire::NO_ZEROES == 0 { &[0; 124] } else { &[] };
                to.write_all(zeros)?;
                return Ok(true);
            }
            option::EXPORT_NAME => return Ok(false), // There is no way to refuse a name here but this.
            option::ABORT => {
                say(option_reply::ACK, &[])?;
                return Ok(false);
            }
            option::LIST if data.is_empty() => {
                say(option_reply::SERVER, &[0; 4])?;
                say(option_reply::ACK, &[])?;
            }
            option::INFO | option::GO => match wire::named_export(&data) {
                Some([]) => {
                    say(option_reply::INFO, &wire::export_info(export))?;
                    say(
                        option_reply::INFO,
                        &wire::block_info(SECTOR_BYTES as u32, PREFERRED_BYTES),
                    )?;
                    say(option_reply::ACK, &[])?;
                    if header.option == option::GO {
                        return Ok(true);
                    }
                }
                Some(_) => say(option_reply::UNKNOWN, b"the only export has no name")?,
                None => say(option_reply::INVALID, &[])?,
            },
            option::LIST => say(option_reply::INVALID, &[])?,
            _ => say(option_reply::UNSUPPORTED, &[])?,
        }
    }
    Err(ErrorKind::InvalidData.into())
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

struct Requests<'l> {
    stream: Stream,
    link: &'l Link,
    room: Arc<Room>,
}

impl Requests<'_> {
    /// The next one, with what the drive is to be asked or why it is not; `None` when the client takes its leave.
    fn next(&mut self) -> io::Result<Option<(Request, Result<Ask, DriveFault>)>> {
        let request = Request::decode(&take(&mut self.stream)?).ok_or(ErrorKind::InvalidData)?;
        if request.command == Command::Disconnect {
            return Ok(None);
        }
        self.room.take(carried(&request));
        let mut data = Vec::new();
        if request.command == Command::Write {
            data = vec![0; request.bytes as usize];
            self.stream.set_read_patience(Some(TRANSFER_PATIENCE))?;
            self.stream.read_exact(&mut data)?;
            self.stream.set_read_patience(None)?;
        }
        Ok(Some((request, ask(&request, data, self.link.bytes()))))
    }
}

/// What a request has in memory.
fn carried(request: &Request) -> u64 {
    match request.command {
        Command::Read | Command::Write => u64::from(request.bytes.min(wire::PAYLOAD_BYTES_MAX)),
        _ => 0,
    }
}

fn ask(request: &Request, data: Vec<u8>, bytes: u64) -> Result<Ask, DriveFault> {
    let each = SECTOR_BYTES;
    let end = request.offset.checked_add(u64::from(request.bytes));
    let is_whole = request.offset.is_multiple_of(each) && u64::from(request.bytes).is_multiple_of(each);
    let is_there = is_whole && end.is_some_and(|end| end <= bytes);
    let (at, sectors) = (request.offset / each, (u64::from(request.bytes) / each) as u32);
    let through = request.through;
    match request.command {
        Command::Flush => Ok(Ask::Flush),
        _ if !is_there => Err(DriveFault::NoSuchSectors),
        Command::Read if request.bytes <= wire::PAYLOAD_BYTES_MAX => Ok(Ask::Read { at, sectors }),
        Command::Write => Ok(Ask::Write { at, data, through }),
        Command::Trim => Ok(Ask::Trim { at, sectors, through }),
        Command::WriteZeroes => Ok(Ask::WriteZeros { at, sectors, through }),
        Command::Read | Command::Other | Command::Disconnect => Err(DriveFault::NoSuchSectors),
    }
}

struct Reply {
    request: Request,
    answer: Answer,
}

/// Until the last sender is gone. A client that does not read loses its answers, not those of others.
fn write_replies(mut to: Stream, replies: &Receiver<Reply>, room: &Room) {
    let mut is_there = true;
    for Reply { request, answer } in replies {
        let bytes = match &answer {
            Ok(data) => wire::reply(request.cookie, 0, data),
            Err(fault) => wire::reply(request.cookie, error(*fault), &[]),
        };
        is_there = is_there && to.write_all(&bytes).is_ok();
        if !is_there {
            to.shut_down(); // It may have a part of an answer, and nothing that follows could be understood.
        }
        room.give_back(carried(&request));
    }
}

/// As the protocol numbers errors.
fn error(fault: DriveFault) -> u32 {
    match fault {
        DriveFault::NoSuchSectors => 22,
        DriveFault::NoPower => 108,
        DriveFault::Backing(libc::ENOSPC) => 28,
        DriveFault::Backing(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const EXPORT: Export = Export {
        bytes: 4096,
        is_rotational: true,
    };

    fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn negotiated(client: &[u8]) -> (io::Result<bool>, Vec<u8>) {
        let mut said = Vec::new();
        let ended = negotiate(&mut &*client, &mut said, EXPORT);
        (ended, said)
    }

    #[test]
    fn a_client_lists_asks_and_goes() {
        let mut client = 3_u32.to_be_bytes().to_vec();
        client.extend(option_bytes(8, &[])); // structured replies
        client.extend(option_bytes(option::LIST, &[]));
        client.extend(option_bytes(option::GO, &[0, 0, 0, 1, b'x', 0, 0]));
        client.extend(option_bytes(option::GO, &[0; 6]));
        let (ended, said) = negotiated(&client);
        assert!(ended.expect("it goes on"));
        let has = |data: &[u8]| said.windows(data.len()).any(|part| part == data);
        assert!(has(&wire::export_info(EXPORT)) && has(b"has no name"));
        assert!(has(&wire::option_reply(8, option_reply::UNSUPPORTED, &[])));
    }

    #[test]
    fn the_old_way_of_naming_an_export_still_goes() {
        let mut client = 1_u32.to_be_bytes().to_vec();
        client.extend(option_bytes(option::EXPORT_NAME, &[]));
        let (ended, said) = negotiated(&client);
        assert!(ended.expect("it goes on"));
        assert_eq!(said.len(), wire::GREETING.len() + 10 + 124);
    }

    #[test]
    fn a_client_that_only_talks_is_left() {
        let mut client = 3_u32.to_be_bytes().to_vec();
        (0..=OPTIONS_MAX).for_each(|_| client.extend(option_bytes(99, &[1, 2])));
        assert!(negotiated(&client).0.is_err());
        assert!(negotiated(&8_u32.to_be_bytes()).0.is_err(), "flags that nobody knows");
    }

    #[test]
    fn no_client_breaks_the_negotiation() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        for _ in 0..2000 {
            let mut client = random.random_range(0..4_u32).to_be_bytes().to_vec();
            for _ in 0..random.random_range(0..6) {
                let data: Vec<u8> = (0..random.random_range(0..12))
                    .map(|_| random.random_range(0..3))
                    .collect();
                client.extend(option_bytes(random.random_range(0..10), &data));
            }
            client.truncate(random.random_range(0..=client.len()));
            let (ended, said) = negotiated(&client);
            assert!(said.starts_with(&wire::GREETING));
            drop(ended);
        }
    }

    #[test]
    fn a_client_that_says_nothing_is_left() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let ours = Stream::Unix(ours);
        let mut from = WithDeadline::after(&ours, Duration::from_millis(20));
        let ended = negotiate(&mut from, &mut Vec::new(), EXPORT);
        let kind = ended.expect_err("there is no end else").kind();
        assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind}");
    }

    #[test]
    fn sectors_that_are_not_there_are_refused() {
        let request = |offset, bytes| Request {
            command: Command::Read,
            through: false,
            cookie: 1,
            offset,
            bytes,
        };
        for (offset, bytes) in [(0, 100), (1, 512), (4096, 512), (u64::MAX, 512), (0, 8192)] {
            assert_eq!(
                ask(&request(offset, bytes), Vec::new(), 4096),
                Err(DriveFault::NoSuchSectors)
            );
        }
        assert_eq!(
            ask(&request(512, 1024), Vec::new(), 4096),
            Ok(Ask::Read { at: 1, sectors: 2 })
        );
    }
}
