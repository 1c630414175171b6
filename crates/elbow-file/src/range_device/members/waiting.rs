//! Waiting for whichever member is done first, and the time of several devices.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::{Member, Members};
use crate::range_device::{Clock, RangeDevice};

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<D: RangeDevice> Members<D> {
    /// Takes one completion from each member that has one, in the order in which they were done.
    pub(super) fn gather(&mut self) {
        let mut done = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            done.extend(member.device.poll().map(|completion| (index, completion)));
        }
        done.sort_by_cached_key(|(index, completion)| self.our_time(*index, completion.at));
        for (index, completion) in done {
            self.complete(index, completion);
        }
    }

    /// Waits until some member may have something, which [`gather`](Self::gather) then takes. `false` when nothing is
    /// outstanding.
    pub(super) fn wait_for_any(&mut self) -> bool {
        let busy = |member: &Member<D>| !member.outstanding.is_empty();
        let Some(first) = self.members.iter().position(busy) else {
            return false;
        };
        if let Some(time) = self.next_modelled() {
            self.pass_modelled(time);
            return true;
        }
        let is_only = !self.members[first + 1..].iter().any(busy);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        match self
            .members
            .iter_mut()
            .position(|member| busy(member) && !member.device.wake(&waker))
        {
            // All happens in its methods, so nothing is gained by waiting for the others.
            Some(index) => self.wait_for_member(index),
            None if is_only => self.wait_for_member(first),
            None => self.park(),
        }
        if let Some(waker) = self.waker.clone() {
            self.wake_by(&waker);
            waker.wake_by_ref(); // for what we were told instead
        }
        true
    }

    fn wait_for_member(&mut self, index: usize) {
        if let Some(completion) = self.members[index].device.wait() {
            self.complete(index, completion);
        }
    }

    /// Sleeps until a member wakes us or something is known to happen. They have been told to, and one that was done
    /// before that is found first.
    fn park(&mut self) {
        self.gather();
        if !self.done.is_empty() {
            return;
        }
        match self.next_of_members() {
            None => std::thread::park(),
            Some(time) => std::thread::park_timeout(time.saturating_sub(self.our_clock().time())),
        }
    }

    pub(super) fn wake_by(&mut self, waker: &Waker) -> bool {
        let told = self
            .members
            .iter_mut()
            .filter_map(|member| member.device.wake(waker).then_some(()));
        told.count() == self.members.len()
    }

    /// The next thing that is known to happen, in our time.
    pub(super) fn next_of_members(&mut self) -> Option<Duration> {
        let times: Vec<_> = self
            .members
            .iter_mut()
            .map(|member| member.device.next_completion_at())
            .collect();
        let times = times.into_iter().enumerate();
        times
            .filter_map(|(index, time)| Some(self.our_time(index, time?)))
            .min()
    }

    /// The next thing that happens on a modelled member, in their time.
    fn next_modelled(&mut self) -> Option<Duration> {
        let modelled = |member: &&mut Member<D>| matches!(member.device.clock(), Clock::Modelled(_));
        let members = self.members.iter_mut().filter(modelled);
        members.filter_map(|member| member.device.next_completion_at()).min()
    }

    fn pass_modelled(&mut self, time: Duration) {
        self.members
            .iter_mut()
            .for_each(|member| member.device.pass_until(time));
    }

    pub(super) fn our_clock(&self) -> Clock {
        match self.modelled_time() {
            Some(time) => Clock::Modelled(time),
            None => Clock::Real(self.started.elapsed()),
        }
    }

    /// The latest of the members' times, if all are modelled.
    fn modelled_time(&self) -> Option<Duration> {
        let times = self.members.iter().map(|member| match member.device.clock() {
            Clock::Modelled(time) => Some(time),
            Clock::None | Clock::Real(_) => None,
        });
        times.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// No modelled member is behind the others when it is asked something.
    pub(super) fn keep_in_step(&mut self) {
        if let Some(time) = self.modelled_time() {
            self.pass_modelled(time);
        }
    }

    /// The time of a member as ours.
    pub(super) fn our_time(&self, index: usize, time: Duration) -> Duration {
        match (self.our_clock(), self.members[index].zero) {
            (Clock::Modelled(_), _) => time,
            (_, Some(zero)) => time.saturating_sub(zero),
            (clock, None) => clock.time(),
        }
    }
}
