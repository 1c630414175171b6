//! The far end of a connection: requests are begun in the order in which they come, and carried out by many threads.
//!
//! What is held for the near end is bounded: requests that nobody has begun, by number and by the bytes that came with them
//! ([`QUEUED_MAX`], [`QUEUED_BYTES_MAX`]); beyond that nothing more is read, and the near end's writes wait.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use elbow_file::{Errno, FarWorker, Handle, Result, Storage};
use parking_lot::{Condvar, Mutex};
use thiserror::Error;

use crate::call::{Answer, Call, Carrier, Given};
use crate::frame::{self, Content, Frame};
use crate::message::{Greeting, MAGIC, Reply, Request, UNANSWERED, VERSION, Welcome};
use crate::objects::{Object, Objects};
use crate::packing::Packing;

/// Requests that have come and are not begun.
const QUEUED_MAX: usize = 4096;
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Objects that one request may name, or open.
const NAMED_MAX: usize = 512;
/// Threads that carry requests out. A disk of this machine is busy with far fewer; one that is itself behind a network is not.
const THREADS_MAX: usize = 64;
const STACK_BYTES: usize = 512 << 10;

/// Why a connection is not served, or not any longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// What came is not what `elbow run --via` says.
    #[error("what came is not the protocol of `elbow run --via`: {0}")]
    Protocol(String),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Connection(#[source] io::Error),
}

/// Who the near end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearUser {
    /// The user that it runs as.
    pub uid: u32,
    /// The group that it runs as.
    pub gid: u32,
}

impl NearUser {
    /// The user of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// A connection whose near end has greeted.
#[derive(Debug)]
pub struct Greeted<R, W> {
    from: R,
    to: W,
    near: NearUser,
}

/// Takes the greeting of the near end.
///
/// # Errors
/// The connection failed, or there is no `elbow` of a version like this one at the near end.
pub fn greeted<R: Read, W: Write>(mut from: R, mut to: W) -> std::result::Result<Greeted<R, W>, ServeError> {
    let connection = ServeError::Connection;
    to.write_all(&MAGIC).and_then(|()| to.flush()).map_err(connection)?;
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(connection)?;
    if magic != MAGIC {
        return Err(ServeError::Protocol(format!("{:?}", magic.escape_ascii().to_string())));
    }
    let frame = frame::read(&mut from).map_err(connection)?;
    let frame = frame.ok_or_else(|| ServeError::Protocol("no greeting".into()))?;
    let greeting: Greeting = frame
        .decode()
        .map_err(|error| ServeError::Protocol(error.to_string()))?;
    let mut greeted = Greeted {
        from,
        to,
        near: NearUser {
            uid: greeting.uid,
            gid: greeting.gid,
        },
    };
    if greeting.version != VERSION {
        let why = format!(
            "the near end speaks version {} of the protocol, this one {VERSION}",
            greeting.version
        );
        greeted.refuse(&why)?;
        return Err(ServeError::Protocol(why));
    }
    Ok(greeted)
}

impl<R: Read, W: Write> Greeted<R, W> {
    /// Who the near end is.
    pub fn near(&self) -> NearUser {
        self.near
    }

    /// Tells the near end why nothing can be done here.
    ///
    /// # Errors
    /// The connection failed.
    pub fn refuse(&mut self, why: &str) -> std::result::Result<(), ServeError> {
        self.welcome(Some(why.into()))
    }

    fn welcome(&mut self, refusal: Option<String>) -> std::result::Result<(), ServeError> {
        let welcome = Welcome {
            version: VERSION,
            refusal,
        };
        let written = frame::encode(&welcome, &Content::NONE)
            .and_then(|encoded| encoded.write(&mut self.to, UNANSWERED, &Content::NONE));
        written.map_err(ServeError::Connection)
    }
}

impl<R: Read, W: Write + Send> Greeted<R, W> {
    /// Serves a directory until the near end closes the connection. All that was under way then is over when this returns, and nothing
    /// is open any more.
    ///
    /// # Errors
    /// The connection failed, or what came is no request.
    pub fn serve(
        mut self,
        storage: &dyn Storage,
        root: Handle,
        worker: &dyn FarWorker,
    ) -> std::result::Result<(), ServeError> {
        self.welcome(None)?;
        let server = Server {
            carrier: Carrier { storage, worker },
            to: Mutex::new(self.to),
            packing: Packing::default(),
            queue: Mutex::default(),
            has_request: Condvar::new(),
            has_room: Condvar::new(),
        };
        let mut from = self.from;
        std::thread::scope(|threads| {
            let ended = server.read(&mut from, Objects::new(root), threads);
            worker.disconnected();
            server.queue.lock().is_over = true;
            server.has_request.notify_all();
            ended
        })
    }
}

/// A request with the objects that it names.
struct Task {
    number: u64,
    on: Vec<Arc<Object>>,
    makes: Vec<Arc<Object>>,
    call: Call,
    content: Vec<u8>,
    /// What it has taken of the connection.
    bytes: usize,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    bytes: usize,
    threads: usize,
    idle: usize,
    is_over: bool,
}

struct Server<'a, W> {
    carrier: Carrier<'a>,
    to: Mutex<W>,
    packing: Packing,
    queue: Mutex<Queue>,
    has_request: Condvar,
    has_room: Condvar,
}

impl<'a, W: Write + Send> Server<'a, W> {
    fn read<'s>(
        &'s self,
        from: &mut impl Read,
        mut objects: Objects,
        threads: &'s std::thread::Scope<'s, '_>,
    ) -> std::result::Result<(), ServeError>
    where
        'a: 's,
    {
        while let Some(frame) = frame::read(from).map_err(ServeError::Connection)? {
            let request = frame
                .decode()
                .map_err(|error| ServeError::Protocol(error.to_string()))?;
            match task(&mut objects, request, frame) {
                Ok(task) => self.queue(task, threads),
                Err((number, errno)) => self.reply(number, Err(errno)),
            }
        }
        Ok(())
    }

    fn queue<'s>(&'s self, task: Task, threads: &'s std::thread::Scope<'s, '_>) {
        let mut queue = self.queue.lock();
        while queue.tasks.len() >= QUEUED_MAX || queue.bytes >= QUEUED_BYTES_MAX {
            self.has_room.wait(&mut queue);
        }
        queue.bytes += task.bytes;
        queue.tasks.push_back(task);
        // Those that were woken are idle until they have the lock.
        if queue.idle >= queue.tasks.len() {
            self.has_request.notify_one();
        } else if queue.threads < THREADS_MAX {
            let thread = std::thread::Builder::new()
                .name("elbow-serve".into())
                .stack_size(STACK_BYTES);
            let started = thread.spawn_scoped(threads, || self.work());
            queue.threads += usize::from(started.is_ok());
            assert!(queue.threads > 0, "not even one thread could be started");
        }
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                queue.bytes -= task.bytes;
                self.has_room.notify_one();
                parking_lot::MutexGuard::unlocked(&mut queue, || self.carry_out(task));
                continue;
            }
            if queue.is_over {
                return;
            }
            queue.idle += 1;
            self.has_request.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn carry_out(&self, task: Task) {
        let answer = self.answer(&task.on, task.call, task.content, &task.makes);
        if task.number != UNANSWERED {
            self.reply(task.number, answer);
        }
    }

    /// Whatever comes of it, what was to be opened is known to be open or not.
    fn answer(
        &self,
        on: &[Arc<Object>],
        call: Call,
        content: Vec<u8>,
        makes: &[Arc<Object>],
    ) -> Result<(Answer, Vec<u8>)> {
        let carried_out = match call {
            Call::Close => close(self.carrier.storage, on).map_err(not_said),
            Call::Compress => {
                self.packing.allow();
                Ok((Answer::Done, Given::default()))
            }
            call => on
                .iter()
                .map(|object| object.wait())
                .collect::<Result<Vec<_>>>()
                .and_then(|handles| self.carrier.carry_out(&handles, call, content).map_err(not_said)),
        };
        let errno = carried_out.as_ref().err().copied().unwrap_or(Errno::CANCELED);
        let (answer, mut given) = match carried_out {
            Ok(carried_out) => carried_out,
            Err(errno) => {
                makes.iter().for_each(|object| object.set(Err(errno)));
                return Err(errno);
            }
        };
        given.made.resize_with(makes.len(), || None);
        for (object, made) in makes.iter().zip(given.made) {
            object.set(made.ok_or(errno));
        }
        Ok((answer, given.content))
    }

    /// A near end that does not listen any more is told nothing; the reader notices.
    fn reply(&self, number: u64, answer: Result<(Answer, Vec<u8>)>) {
        let (reply, content): (Reply, Vec<u8>) = match answer {
            Ok((answer, content)) => (Ok(answer), content),
            Err(errno) => (Err(errno.raw_os_error()), Vec::new()),
        };
        let pieces = [IoSlice::new(&content)];
        let content = self.packing.pack(&pieces);
        let encoded = frame::encode(&reply, &content);
        let mut to = self.to.lock();
        let _ = match encoded {
            Ok(encoded) => {
                let bytes = encoded.bytes() + content.bytes();
                self.packing.watch(bytes, || encoded.write(&mut *to, number, &content))
            }
            Err(_) => frame::encode(&Reply::Err(Errno::MSGSIZE.raw_os_error()), &Content::NONE)
                .and_then(|encoded| encoded.write(&mut *to, number, &Content::NONE)),
        };
    }
}

/// That something is cancelled says that what it needs could not be opened, and nothing else; and that there is no connection, that the one to us has
/// ended, and not that of a file system here to its own server.
fn not_said(errno: Errno) -> Errno {
    match errno {
        Errno::CANCELED | Errno::NOTCONN => Errno::IO,
        errno => errno,
    }
}

/// Closes an object, and hears what close(2) says.
fn close(storage: &dyn Storage, on: &[Arc<Object>]) -> Result<(Answer, Given)> {
    let [object] = on else { return Err(Errno::PROTO) };
    let handle = object.take()?;
    storage.close(&handle)?;
    Ok((Answer::Done, Given::default()))
}

/// The request with its objects. Those that it releases are forgotten: only requests that came before it name them.
fn task(objects: &mut Objects, request: Request, frame: Frame) -> std::result::Result<Task, (u64, Errno)> {
    let number = frame.number;
    if request.on.len() > NAMED_MAX || request.makes.len() > NAMED_MAX {
        return Err((number, Errno::PROTO));
    }
    let on: Result<Vec<_>> = request.on.iter().map(|id| objects.get(*id)).collect();
    let promised: Vec<Result<_>> = request.makes.iter().map(|id| objects.promise(*id)).collect();
    request.released.iter().for_each(|id| objects.release(*id));
    if let (Call::Close, [id]) = (&request.call, &request.on[..]) {
        objects.release(*id);
    }
    let failed = promised.iter().find_map(|promise| promise.as_ref().err().copied());
    let makes: Vec<Arc<Object>> = promised.into_iter().flatten().collect();
    let on = match (on, failed) {
        (Ok(on), None) => on,
        (Err(errno), _) | (Ok(_), Some(errno)) => {
            // Nobody is to wait for them.
            makes.iter().for_each(|object| object.set(Err(errno)));
            return Err((number, errno));
        }
    };
    Ok(Task {
        number,
        on,
        makes,
        call: request.call,
        bytes: frame.bytes(),
        content: frame.content,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use elbow_file::{RealStorage, Worked};

    use super::*;

    struct NoWorker;

    impl FarWorker for NoWorker {
        fn work(&self, _: &[Handle], _: &[u8], _: Vec<u8>) -> Result<Worked> {
            Err(Errno::PROTO)
        }
    }

    fn request(call: Call, on: Vec<u64>, makes: Vec<u64>) -> Request {
        Request {
            on,
            makes,
            released: Vec::new(),
            call,
        }
    }

    /// What a far end answers to these requests, by their numbers, until it has ended.
    fn answers(requests: &[(u64, Request)]) -> Vec<(u64, Reply)> {
        let place = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(place.path()).unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        let served = std::thread::spawn(move || {
            let to = far.try_clone().unwrap();
            greeted(far, to)?.serve(&RealStorage, root, &NoWorker)
        });
        let greeting = Greeting {
            version: VERSION,
            uid: 0,
            gid: 0,
        };
        near.write_all(&MAGIC).unwrap();
        frame::encode(&greeting, &Content::NONE)
            .unwrap()
            .write(&mut near, UNANSWERED, &Content::NONE)
            .unwrap();
        for (number, request) in requests {
            frame::encode(request, &Content::NONE)
                .unwrap()
                .write(&mut near, *number, &Content::NONE)
                .unwrap();
        }
        near.shutdown(Shutdown::Write).unwrap();
        let mut magic = [0; MAGIC.len()];
        near.read_exact(&mut magic).unwrap();
        let _welcome = frame::read(&mut near).unwrap();
        let mut answers = Vec::new();
        while let Some(frame) = frame::read(&mut near).unwrap() {
            answers.push((frame.number, frame.decode().unwrap()));
        }
        served.join().expect("no panic").expect("the near end has ended it");
        answers.sort_by_key(|(number, _)| *number);
        answers
    }

    /// A request without a reply that was to open something was forgotten at once, and who needed that waited for ever, with the lock of a job.
    #[test]
    fn what_nobody_opens_keeps_nobody_waiting() {
        let said = answers(&[
            (UNANSWERED, request(Call::Nothing, vec![], vec![5])),
            (1, request(Call::List, vec![5], vec![])),
            (2, request(Call::List, vec![6], vec![])),
            (3, request(Call::List, vec![0], vec![7])),
            (4, request(Call::List, vec![7], vec![])),
        ]);
        let errno = |errno: Errno| Err(errno.raw_os_error());
        assert_eq!(said[0], (1, errno(Errno::CANCELED)));
        assert_eq!(said[1], (2, errno(Errno::BADF)));
        assert_eq!(said[2], (3, Ok(Answer::Entries(Vec::new()))));
        assert_eq!(said[3], (4, errno(Errno::CANCELED)));
    }

    #[test]
    fn a_request_that_names_more_than_any_needs_is_refused() {
        let said = answers(&[
            (1, request(Call::List, vec![0; NAMED_MAX + 1], vec![])),
            (2, request(Call::Nothing, vec![], (1..=NAMED_MAX as u64 + 1).collect())),
            (3, request(Call::StatOpen, vec![1], vec![])),
        ]);
        let refused: Vec<_> = said.into_iter().map(|(_, reply)| reply.unwrap_err()).collect();
        let expected = [Errno::PROTO, Errno::PROTO, Errno::BADF];
        assert_eq!(refused, expected.map(Errno::raw_os_error));
    }
}
