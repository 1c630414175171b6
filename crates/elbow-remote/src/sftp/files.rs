//! Open files of a server: reading and writing with many requests under way.
//!
//! ```text
//!   write of 1 MiB    WRITE WRITE WRITE WRITE ...   answers are heard while more is sent; WINDOW_BYTES are under way at most
//!   read of 1 MiB     READ  READ  READ  READ  ...   what comes short is asked for again from there on
//! ```

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use elbow_file::{Errno, FileType, Result};
use parking_lot::Mutex;

use super::nodes::Node;
use super::server::Server;
use super::session::{Answered, Fault, Pending, Session};
use super::why::kind_of;
use super::wire::{Ask, Attrs, Request, Status};

/// What one call has under way: a line of 100 MB/s has so much on it at 80 ms.
const WINDOW_BYTES: usize = 8 << 20;
/// What is copied by one request: OpenSSH's server does one after the other, and hears nobody meanwhile.
const COPY_BYTES: u64 = 8 << 20;

/// A file that is open at the server.
#[derive(Debug)]
pub(crate) struct OpenFile {
    session: Weak<Session>,
    handle: Vec<u8>,
    /// Whatever is written goes to its end.
    appends: bool,
    is_closed: AtomicBool,
    /// What was opened is what was looked at before.
    check: Mutex<Check>,
}

#[derive(Debug)]
enum Check {
    Passed,
    /// It was looked at, and then opened: what the second look says is on its way.
    Waiting(Attrs, Pending),
    Failed(Errno),
}

impl OpenFile {
    /// A file that was made by being opened.
    pub(crate) fn made(session: &Arc<Session>, handle: Vec<u8>) -> Self {
        Self::with(session, handle, false, Check::Passed)
    }

    /// A file that was there, and looked like this before it was opened. Somebody may have put another object in its place in between, as a
    /// link that points elsewhere, which a server follows; so it is looked at once more, and whoever uses it waits for that.
    pub(crate) fn found(session: &Arc<Session>, handle: Vec<u8>, appends: bool, seen: Attrs) -> Self {
        let looks = session.send(Request::new(Ask::Fstat).string(&handle));
        Self::with(session, handle, appends, Check::Waiting(seen, looks))
    }

    fn with(session: &Arc<Session>, handle: Vec<u8>, appends: bool, check: Check) -> Self {
        session.open.fetch_add(1, Ordering::Relaxed);
        Self {
            session: Arc::downgrade(session),
            handle,
            appends,
            is_closed: AtomicBool::new(false),
            check: Mutex::new(check),
        }
    }

    fn session(&self) -> Result<Arc<Session>> {
        self.session.upgrade().ok_or(Errno::NOTCONN)
    }

    /// A request about the file.
    pub(crate) fn request(&self, ask: Ask) -> Request {
        Request::new(ask).string(&self.handle)
    }

    pub(crate) fn appends(&self) -> bool {
        self.appends
    }

    pub(crate) fn handle(&self) -> &[u8] {
        &self.handle
    }

    /// Sees to it that it is the file that was looked at.
    ///
    /// # Errors
    /// ELOOP when it is another one.
    pub(crate) fn check(&self, node: &Node) -> Result<()> {
        let mut check = self.check.lock();
        let outcome = match std::mem::replace(&mut *check, Check::Passed) {
            Check::Passed => Ok(()),
            Check::Failed(errno) => Err(errno),
            Check::Waiting(seen, looks) => match looks.attrs() {
                Ok(found) => self.compare(&seen, &found, node),
                Err(fault) => Err(fault.errno()),
            },
        };
        if let Err(errno) = outcome {
            *check = Check::Failed(errno);
        }
        outcome
    }

    fn compare(&self, seen: &Attrs, found: &Attrs, node: &Node) -> Result<()> {
        if seen == found {
            return Ok(());
        }
        // It may have been written to meanwhile. Then its name still stands for what is open.
        let now = self.session()?.lstat(&node.path()?).map_err(Fault::errno)?;
        let is_file = kind_of(found) == Some(FileType::File);
        match is_file && (now.mode, now.owner) == (found.mode, found.owner) {
            true => Ok(()),
            false => Err(Errno::LOOP),
        }
    }

    /// Reads from an offset on until the buffer is full or the file ends.
    pub(crate) fn read(&self, node: &Node, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let session = self.session()?;
        let mut filled = 0;
        let mut is_at_end = false;
        while filled < buffer.len() && !is_at_end {
            let asked = self.ask_pieces(&session, &mut buffer[filled..], offset + filled as u64);
            // It was asked for before what is read, and so it is answered before.
            self.check(node)?;
            let (read, end) = asked.map_err(Fault::errno)?;
            filled += read;
            is_at_end = end;
        }
        Ok(filled)
    }

    /// What was read before the first piece that came short, and whether the file ends there.
    fn ask_pieces(&self, session: &Session, buffer: &mut [u8], offset: u64) -> Answered<(usize, bool)> {
        let piece_bytes = session.server.read_bytes_max;
        let mut asked = VecDeque::new();
        let (mut next, mut read) = (0, 0);
        let end = buffer.len();
        loop {
            while next < end && next - read < WINDOW_BYTES.max(piece_bytes) {
                let length = piece_bytes.min(end - next);
                let request = self.request(Ask::Read).u64(offset + next as u64).u32(length as u32);
                asked.push_back((next, length, session.send(request)));
                next += length;
            }
            let Some((at, length, pending)) = asked.pop_front() else {
                return Ok((read, false));
            };
            let data = match pending.data() {
                Ok(data) => data,
                Err(Fault::Said(Status::EndOfFile)) => return Ok((read, true)),
                Err(fault) => return Err(fault),
            };
            let into = buffer[at..at + length].get_mut(..data.len());
            into.ok_or(Fault::Lost(Errno::PROTO))?.copy_from_slice(&data);
            read = at + data.len();
            if data.len() < length {
                return Ok((read, data.is_empty()));
            }
        }
    }

    /// Writes all pieces, one after the other, from an offset on; how far it came before the first that was refused.
    pub(crate) fn write(&self, pieces: &[IoSlice<'_>], mut offset: u64) -> std::result::Result<(), (u64, Fault)> {
        let session = self.session().map_err(|errno| (offset, Fault::Lost(errno)))?;
        let piece_bytes = session.server.write_bytes_max;
        let mut sent: VecDeque<(u64, usize, Pending)> = VecDeque::new();
        let mut under_way = 0;
        for piece in pieces.iter().flat_map(|piece| piece.chunks(piece_bytes)) {
            while under_way + piece.len() > WINDOW_BYTES.max(piece_bytes)
                && let Some((at, length, pending)) = sent.pop_front()
            {
                pending.done().map_err(|fault| (at, fault))?;
                under_way -= length;
            }
            let request = self.request(Ask::Write).u64(offset).string(piece);
            sent.push_back((offset, piece.len(), session.send(request)));
            under_way += piece.len();
            offset += piece.len() as u64;
        }
        sent.into_iter()
            .try_for_each(|(at, _, pending)| pending.done().map_err(|fault| (at, fault)))
    }

    /// Has the server copy a part of this file to another one; how much of it there was, and what this file is like then.
    ///
    /// Source: draft-ietf-secsh-filexfer-extensions-00, section 7; OpenSSH's `PROTOCOL`, section 4.10.
    pub(crate) fn copy_to(&self, file: &Self, from: u64, to: u64, length: u64) -> Answered<(u64, Attrs)> {
        let session = self.session().map_err(Fault::Lost)?;
        let ask = |at: u64| {
            let request = Request::extended(Server::COPY).string(&self.handle).u64(from + at);
            let request = request.u64(COPY_BYTES.min(length - at)).string(&file.handle);
            session.send(request.u64(to + at))
        };
        let asked: Vec<Pending> = (0..length).step_by(COPY_BYTES as usize).map(ask).collect();
        let looks = session.send(self.request(Ask::Fstat));
        for pending in asked {
            match pending.done() {
                // OpenSSH says "done" of a part that ends within what it reads at once, and else that the file ends: either way there is less.
                Ok(()) | Err(Fault::Said(Status::EndOfFile)) => {}
                Err(fault) => return Err(fault),
            }
        }
        let then = looks.attrs()?;
        let size = then.size.ok_or(Fault::Lost(Errno::PROTO))?;
        Ok((length.min(size.saturating_sub(from)), then))
    }

    /// Asks for the end of the file, unless it is closed; what comes of it.
    pub(crate) fn close(&self) -> Result<Option<Pending>> {
        let session = self.session()?;
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        session.open.fetch_sub(1, Ordering::Relaxed);
        Ok(Some(session.send(self.request(Ask::Close))))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !self.is_closed.swap(true, Ordering::AcqRel)
            && let Some(session) = self.session.upgrade()
        {
            session.open.fetch_sub(1, Ordering::Relaxed);
            session.release(std::mem::take(&mut self.handle));
        }
    }
}
