//! `elbow consume FILE | COMMAND`: a file given to a pipe, and freed behind its reader.
//!
//! ```text
//!   FILE  [ consumed, a hole | confirmed | given, in the pipe or being worked on | not given yet ]
//!                            ^ checkpoint: durable, before anything is freed up to there
//!   confirmations   what the reader says that it has finished       pipe    its reader watched
//!   freeing         records, then frees                             checkpoint    how far, durably
//! ```
//!
//! What counts as consumed is what the reader confirms; without that, all of it when the reader has taken all and closed; or, if that
//! is asked for, what has left the pipe. A run that is started again begins at the checkpoint, so what was given and not recorded
//! is given again, and what was freed never is.
//!
//! A file that was emptied and filled again between two runs has its inode still. What is certainly freed has no content then, and where it is not certain
//! there is what was there or nothing: anything else was written since, and nothing of it is freed.

mod checkpoint;
mod confirmations;
mod error;
mod freeing;
mod pipe;
mod tail;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueHint};
use elbow_file::{Access, Errno, Handle, RealStorage, Storage, first_content, try_lock};

use checkpoint::{Checkpoint, Subject};
use confirmations::Confirmations;
use error::{ConsumeError, failed};
use freeing::Freeing;
use pipe::{Pipe, PipeProbe};

use crate::output::{answer, print_message};
use crate::sort::refuse_unfinished;
use crate::{exit, size};

pub(crate) const EXAMPLES: &str = "\
Examples:
  Free a file when the command has taken all of it:
      elbow consume old.log | gzip > old.log.gz

  Free it as the work is done, by a program that says how far it is; after a crash the same command goes on:
      mkfifo done
      elbow consume big.bin --confirm done | ./load --finished-to done

  The same through a descriptor of the shell:
      exec 3<>done; elbow consume big.bin --confirm 3 | ./load --finished-to 3

  How many bytes are consumed, for a program that has to know where its input begins?
      elbow consume --where big.bin

  Free what has left the pipe. What the command had in hand when it died is lost:
      elbow consume --on-read scratch.tar | tar x

The reader confirms with the number of bytes that it has finished, counted from the first that this run gave: decimal, a line \
each, the newest is what counts. It keeps the FIFO open while it has something to confirm; one that has closed the pipe and confirms nothing for a minute is \
taken for dead.

What it confirms is recorded in the checkpoint, durably, and then freed, some megabytes or a second at a time. So after a crash \
it is given again what it may have confirmed just before: a reader that must do nothing twice asks --where it begins, and \
forgets what it did behind that.

Without --confirm nothing is freed before the reader has taken all and closed the pipe: then all is. Whether it did well with it \
is not known here. elbow has to be the last that writes to the pipe.

Exit code:
  0 when all is consumed; 141 when the reader closed before it had taken all, or confirmed all: what is not confirmed is not freed; 125 \
  for any other trouble.";

/// `elbow consume`.
#[derive(Args, Debug)]
pub(crate) struct ConsumeArgs {
    /// The file.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Keep there how far FILE is consumed [default: FILE with `.consumed` behind its name].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    checkpoint: Option<PathBuf>,
    /// Free what the reader confirms: it writes how many bytes it has finished to this open descriptor or FIFO, a number a line.
    #[arg(long, value_name = "FD|PATH", value_hint = ValueHint::FilePath)]
    confirm: Option<PathBuf>,
    /// Free what has left the pipe, finished or not. Dangerous: what the reader has read and not stored when it dies is lost.
    #[arg(long, conflicts_with = "confirm")]
    on_read: bool,
    /// A hole at the beginning of FILE is its own, and not what an earlier run has freed.
    #[arg(long)]
    sparse: bool,
    /// Print how many bytes of FILE are consumed, and do nothing.
    #[arg(long = "where", conflicts_with_all = ["confirm", "on_read", "sparse", "quiet"])]
    ask_where: bool,
    /// Print errors only.
    #[arg(long, short)]
    quiet: bool,
}

impl ConsumeArgs {
    fn checkpoint(&self) -> PathBuf {
        let beside = || {
            let mut name = self.file.clone().into_os_string();
            name.push(".consumed");
            name.into()
        };
        self.checkpoint.clone().unwrap_or_else(beside)
    }
}

/// Gives the file to standard output, and frees what counts as consumed.
pub(crate) fn run(args: &ConsumeArgs) -> anyhow::Result<ExitCode> {
    if args.ask_where {
        let path = args.checkpoint();
        let found = Checkpoint::open(&path)?;
        let file = crate::zero::open(&args.file, Access::Read)?;
        if let Some(found) = &found {
            check_same(found, &file, &path, &args.file)?;
        }
        answer(found.map_or(0, |found| found.consumed()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let confirmations = args.confirm.as_deref().map(Confirmations::open).transpose()?;
    // Before anything is made for it.
    let (pipe, probe) = Pipe::of_standard_output()?;
    let (source, freeing) = open(args)?;
    let mut run = Run {
        freeing,
        probe,
        begin: source.begin,
        size: source.size,
    };
    let is_whole = match (confirmations, args.on_read) {
        (Some(confirmations), _) => run.confirmed(source, pipe, confirmations)?,
        (None, true) => run.on_read(&source, pipe)?,
        (None, false) => run.at_the_end(&source, pipe)?,
    };
    run.freeing.finish()?;
    if !is_whole || !args.quiet {
        print_message(run.told(&args.file)?);
    }
    Ok(if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::PIPE_CLOSED)
    })
}

/// What is given.
struct Source {
    file: Handle,
    path: PathBuf,
    begin: u64,
    size: u64,
}

/// Looks at everything that has to be so, before anything is given.
fn open(args: &ConsumeArgs) -> anyhow::Result<(Source, Freeing)> {
    let (path, checkpoint_path) = (&args.file, args.checkpoint());
    let file = crate::zero::open(path, Access::ReadWrite)?;
    if !try_lock(&file).map_err(failed("locking", path))? {
        return Err(ConsumeError::InUse(path.clone()).into());
    }
    refuse_unfinished(path)?;
    let size = RealStorage.stat_handle(&file).map_err(failed("looking at", path))?.size;
    check_punching(&file, path, size)?;
    let checkpoint = match Checkpoint::open(&checkpoint_path)? {
        Some(checkpoint) => {
            check_same(&checkpoint, &file, &checkpoint_path, path)?;
            checkpoint
        }
        None => {
            check_beginning(args, &file, size, &checkpoint_path)?;
            Checkpoint::create(&checkpoint_path, Subject::of(&file, path)?)?
        }
    };
    let begin = checkpoint.consumed();
    let source = Source {
        file: file.clone(),
        path: path.clone(),
        begin,
        size,
    };
    Ok((source, Freeing::new(file, path.clone(), size, checkpoint)?))
}

/// A punch behind the end changes nothing, and is refused where one before it would be.
fn check_punching(file: &Handle, path: &Path, size: u64) -> Result<(), ConsumeError> {
    const BEHIND: u64 = 1 << 20;
    let at = size.next_multiple_of(BEHIND);
    RealStorage
        .punch(file, at, BEHIND)
        .map_err(|errno| ConsumeError::CannotPunch {
            path: path.to_owned(),
            errno,
        })
}

/// Refuses what is not the file that the checkpoint is about, as it was left.
fn check_same(found: &Checkpoint, file: &Handle, checkpoint: &Path, path: &Path) -> Result<(), ConsumeError> {
    let (checkpoint, path) = (checkpoint.to_owned(), path.to_owned());
    if !found.subject().may_be(&Subject::of(file, &path)?) {
        return Err(ConsumeError::OtherFile { checkpoint, path });
    }
    let (size, consumed) = (
        RealStorage.stat_handle(file).map_err(failed("looking at", &path))?.size,
        found.consumed(),
    );
    if consumed > size {
        return Err(ConsumeError::Shrunk { path, size, consumed });
    }
    match first_anew(found, file).map_err(failed("reading", &path))? {
        Some(at) => Err(ConsumeError::WrittenAnew { path, at, checkpoint }),
        None => Ok(()),
    }
}

/// The first byte of what is consumed that is neither freed nor what it was, as far as is known.
fn first_anew(found: &Checkpoint, file: &Handle) -> elbow_file::Result<Option<u64>> {
    let progress = found.progress();
    match first_content(&RealStorage, file, 0..progress.freed)? {
        None => progress.tail.first_other(progress.consumed, file),
        found => Ok(found),
    }
}

fn check_beginning(args: &ConsumeArgs, file: &Handle, size: u64, checkpoint: &Path) -> Result<(), ConsumeError> {
    let data = RealStorage
        .next_data(file, 0)
        .map_err(failed("looking at", &args.file))?;
    let bytes = data.map_or(size, |(start, _)| start);
    if bytes == 0 || args.sparse {
        return Ok(());
    }
    let (path, checkpoint) = (args.file.clone(), checkpoint.to_owned());
    Err(ConsumeError::Hole {
        path,
        bytes,
        checkpoint,
    })
}

impl Source {
    /// Gives all from the beginning on. `offered` is told how much there may be read, before it can be; `given`, how much has been
    /// written. `false`: the reader has closed.
    fn give(
        &self,
        pipe: &mut Pipe,
        offered: impl Fn(u64),
        mut given: impl FnMut(&Pipe, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        const PIECE_BYTES: usize = 1 << 20;
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = self.begin;
        while at < self.size {
            let wanted = usize::try_from(self.size - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let read = RealStorage
                .read(&self.file, &mut piece[..wanted], at)
                .map_err(failed("reading", &self.path))?;
            if read == 0 {
                let (path, size) = (self.path.clone(), at);
                return Err(ConsumeError::Shrunk {
                    path,
                    size,
                    consumed: self.size,
                }
                .into());
            }
            let mut rest = &piece[..read];
            offered(at - self.begin + read as u64);
            while !rest.is_empty() {
                match pipe.write(rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        at += written as u64;
                        given(pipe, at - self.begin)?;
                    }
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
                    Err(error) => return Err(error).context("writing to the pipe"),
                }
            }
        }
        Ok(true)
    }
}

/// One run over a file.
struct Run {
    freeing: Freeing,
    probe: PipeProbe,
    begin: u64,
    size: u64,
}

/// How giving ended: `Ok(false)` where the reader closed early.
type Given = Receiver<anyhow::Result<bool>>;

impl Run {
    /// All or nothing: when the reader has taken all of it.
    fn at_the_end(&mut self, source: &Source, mut pipe: Pipe) -> anyhow::Result<bool> {
        let is_given = source.give(&mut pipe, |_| (), |_, _| Ok(()))?;
        let is_whole = is_given && pipe.drain()? == 0;
        drop(pipe);
        if is_whole {
            self.probe.wait()?;
            self.freeing.consume(self.size)?;
        }
        Ok(is_whole)
    }

    /// What has left the pipe.
    fn on_read(&mut self, source: &Source, mut pipe: Pipe) -> anyhow::Result<bool> {
        let (freeing, begin) = (&mut self.freeing, self.begin);
        let left = |pipe: &Pipe, given: u64| {
            let left = given.saturating_sub(pipe.unread_bytes()?);
            Ok(freeing.consume(begin + left)?)
        };
        let is_given = source.give(&mut pipe, |_| (), left)?;
        if !is_given {
            return Ok(false);
        }
        let unread = pipe.drain()?;
        self.freeing.consume(self.size - unread)?;
        Ok(unread == 0)
    }

    /// What the reader confirms, while another thread gives.
    fn confirmed(&mut self, source: Source, pipe: Pipe, mut confirmations: Confirmations) -> anyhow::Result<bool> {
        let offered = Arc::new(AtomicU64::new(0));
        let mut ended = give_aside(source, pipe, offered.clone())?;
        let mut closed_since = None;
        loop {
            let heard = confirmations.hear(pipe::LOOK_INTERVAL, || offered.load(Ordering::Acquire))?;
            if let Some(confirmed) = heard.confirmed {
                self.freeing.consume(self.begin + confirmed)?;
                closed_since = None;
            }
            self.freeing.step()?;
            if self.freeing.wanted() == self.size && ended.look()?.is_some() {
                return Ok(true);
            }
            let patience = if heard.is_deserted { GRACE } else { SILENCE_MAX };
            if !self.is_closed(&mut ended)? {
                closed_since = None;
            } else if closed_since.get_or_insert_with(Instant::now).elapsed() > patience {
                return Ok(false);
            }
        }
    }

    /// Whether nobody has the pipe any more.
    fn is_closed(&self, ended: &mut Ending) -> anyhow::Result<bool> {
        Ok(match ended.look()? {
            None => false,
            Some(false) => true,
            Some(true) => self.probe.is_closed()?,
        })
    }

    fn told(&self, path: &Path) -> Result<String, ConsumeError> {
        let consumed = self.freeing.consumed();
        let how_much = match consumed == self.size {
            true => "all".to_owned(),
            false => format!("{} of {}", size::show(consumed), size::show(self.size)),
        };
        let disk = size::show(self.freeing.disk_bytes()?);
        Ok(format!(
            "{}: {how_much} consumed; it takes {disk} of the disk",
            path.display()
        ))
    }
}

/// When the pipe is closed and nobody can confirm, somebody may yet be about to open the channel.
const GRACE: Duration = Duration::from_secs(1);
/// When the pipe is closed and somebody could: a shell that has the channel open outlives the reader that has died.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How giving ended, when it has.
struct Ending {
    given: Given,
    known: Option<bool>,
}

impl Ending {
    fn look(&mut self) -> anyhow::Result<Option<bool>> {
        if self.known.is_none() {
            self.known = match self.given.try_recv() {
                Ok(ended) => Some(ended?),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("the thread that gives has ended").into());
                }
            };
        }
        Ok(self.known)
    }
}

/// Gives on a thread of its own, which may wait for the reader for ever; it ends with the process.
fn give_aside(source: Source, mut pipe: Pipe, counter: Arc<AtomicU64>) -> Result<Ending, ConsumeError> {
    let (tell, given) = channel();
    let path = source.path.clone();
    let work = move || {
        let ended = source.give(
            &mut pipe,
            |offered| counter.store(offered, Ordering::Release),
            |_, _| Ok(()),
        );
        drop(pipe);
        // Nobody listens any more when the run has ended.
        let _ = tell.send(ended);
    };
    let started = std::thread::Builder::new().name("elbow-give".into()).spawn(work);
    started.map_err(|_| failed("starting a thread for", &path)(Errno::AGAIN))?;
    Ok(Ending { given, known: None })
}
