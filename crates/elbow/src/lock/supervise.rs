//! Waits for a command as a shell does, for who has something to say when it has ended.

use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};

use anyhow::{Context, Result, bail};

use crate::child::{Running, die_with_us};
use crate::exit;
use crate::signal_probe::{SHORT, SignalProbe, pass_on};
use crate::signals::{self, Event};

/// All signals are taken for the command, from when this is made.
pub(super) struct Supervision {
    /// As they were before.
    blocked: libc::sigset_t,
    events: Sender<Event>,
    happenings: Receiver<Event>,
    process: Arc<AtomicI32>,
}

impl Supervision {
    /// Before any other thread, which would take signals itself.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn begin() -> Result<Self> {
        let blocked = signals::blocked();
        signals::block_all();
        signals::block_stop();
        let (events, happenings) = mpsc::channel();
        signals::listen_to_all(events.clone()).context("cannot start a thread")?;
        let process = Arc::new(AtomicI32::new(0));
        signals::on_stop(process.clone(), events.clone(), || {}).context("cannot start a thread")?;
        Ok(Self {
            blocked,
            events,
            happenings,
            process,
        })
    }

    /// The command gets signals as we found them, and dies with us.
    pub(super) fn prepare(&self, command: &mut Command) {
        signals::block_only_in(command, self.blocked);
        die_with_us(command);
    }

    /// Passes signals on until the command ends; its exit code, as a shell has it.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub(super) fn wait(self, child: Child) -> Result<u8> {
        let running = Running::of(child, self.events)?;
        self.process.store(running.process(), Ordering::Relaxed);
        wait(&running, &self.happenings)
    }
}

fn wait(running: &Running, happenings: &Receiver<Event>) -> Result<u8> {
    let mut signal_probe = None;
    loop {
        let event = match signal_probe {
            None => happenings.recv_timeout(SHORT),
            Some(_) => happenings.recv().map_err(RecvTimeoutError::from),
        };
        match event {
            Ok(Event::Signal(arrival)) => pass_on(&arrival, running, &mut signal_probe),
            Ok(Event::Ended(status)) => return Ok(exit::of_status(status.context("cannot wait for the command")?)),
            Ok(Event::Over | Event::RollBack(_)) => {}
            // Without one, signals are judged as in the first moment.
            Err(RecvTimeoutError::Timeout) => signal_probe = SignalProbe::start().ok(),
            Err(RecvTimeoutError::Disconnected) => bail!("nobody waits for the command any more"),
        }
    }
}
