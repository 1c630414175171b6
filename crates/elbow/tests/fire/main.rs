//! Locks under fire: real processes of every kind hold and lose locks while the service, its proxies and they themselves are killed, stopped,
//! restarted and moved; what they were told is judged afterwards by `elbow_testkit::oracle`.
//!
//! ```text
//!   schedule   a seed -> who is killed or stopped, when, for how long
//!   bed        the service (Unix and TCP), two proxies
//!   clients    twelve clients: C, Python, fcntl, `elbow lock hold`; over a Unix socket, TCP and proxies; each writes a log
//! ```
//!
//! A round takes a minute. `SEED=n` repeats a schedule (not what the processes make of it), `SOAK=1` runs ten, the last of them until a service that
//! knows nothing grants again.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests look at files themselves, and fail where they must

mod clients;
#[path = "../package/mod.rs"]
mod package;
mod process;
mod schedule;
mod testbed;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use elbow_lock::{Hold, LockError, LockMode, Wait};
use elbow_ranges::Footprint;
use elbow_testkit::cases::{is_soak, seeds_of};
use elbow_testkit::oracle::{Holding, Violation, judge, log::History};

use self::clients::{ClientKind, Programs, Slot};
use self::process::{Process, now};
use self::schedule::{CLIENTS, Event, Fault, PROXIES, Target, draw};
use self::testbed::{FILES, Testbed};

/// How long there is fire; the rest of a minute is what follows.
const FIRE_MS: u64 = 45_000;
/// How long clients work at least before the address moves to a service that knows nothing, how much longer if none has got a lock by then, and after.
const BEFORE_MS: u64 = 2_000;
const MORE_MS: u64 = 200;
const AFTER_MS: u64 = 3_000;
/// Such a service grants nothing for a minute at most.
const SILENT_FOR: Duration = Duration::from_secs(62);
const TICK: Duration = Duration::from_millis(5);
/// Longer than anybody waits on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn nobody_acts_on_a_lock_that_is_not_theirs_whatever_is_killed_stopped_restarted_or_moved() {
    let Some(programs) = Programs::build() else { return };
    let seeds = seeds_of(1, 10);
    for seed in seeds.clone() {
        println!("SEED={seed}");
        Round::new(&programs, seed).play(seed + 1 == seeds.end);
    }
}

struct Round<'a> {
    testbed: Testbed,
    programs: &'a Programs,
    seed: u64,
    began: Instant,
    proxies: [Option<Process>; PROXIES],
    slots: Vec<Slot>,
    /// What has happened to whom.
    done: BTreeMap<(Fault, &'static str), usize>,
    /// Locks that were held over the end of a service.
    reasserted: u64,
    /// When the service was away or stopped; since when it is.
    troubles: Vec<Range<u64>>,
    trouble: u64,
}

impl<'a> Round<'a> {
    fn new(programs: &'a Programs, seed: u64) -> Self {
        Self {
            testbed: Testbed::start(),
            programs,
            seed,
            began: Instant::now(),
            proxies: [None, None],
            slots: (0..CLIENTS).map(Slot::new).collect(),
            done: BTreeMap::new(),
            reasserted: 0,
            troubles: Vec::new(),
            trouble: 0,
        }
    }

    fn play(mut self, is_last: bool) {
        self.burn(&draw(self.seed, FIRE_MS));
        self.let_all_end();
        self.expect_that_all_is_free();
        let before = self.judge();
        self.move_without_memory(before.holdings.len(), is_last);
        let after = self.judge();
        assert!(
            after.holdings.len() > before.holdings.len(),
            "nobody worked before it moved"
        );
        self.expect_that_it_burned(&before);
        plant_faults(&before.holdings);
    }

    /// Lets the faults happen, each at its time and until its end.
    fn burn(&mut self, schedule: &[Event]) {
        self.began = Instant::now();
        let mut ends: BTreeMap<(u64, Target), Fault> = BTreeMap::new();
        let mut begins = schedule.iter().peekable();
        while begins.peek().is_some() || !ends.is_empty() {
            let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap();
            while let Some(event) = begins.next_if(|event| event.at_ms <= at_ms) {
                self.begin(event.target, event.fault);
                ends.insert((event.at_ms + event.for_ms, event.target), event.fault);
            }
            while let Some(entry) = ends.first_entry().filter(|entry| entry.key().0 <= at_ms) {
                let ((_, target), fault) = entry.remove_entry();
                self.end(target, fault);
            }
            let is_away = |target| ends.keys().any(|(_, other)| *other == target);
            let away: Vec<Target> = (0..PROXIES)
                .map(Target::Proxy)
                .chain((0..CLIENTS).map(Target::Client))
                .filter(|&target| is_away(target))
                .collect();
            self.tend(&away);
            std::thread::sleep(TICK);
        }
    }

    fn begin(&mut self, target: Target, fault: Fault) {
        let process = match target {
            Target::Service => Some(self.testbed.service()),
            Target::Proxy(number) => self.proxies[number].as_mut(),
            Target::Client(number) => self.slots[number].process.as_mut(),
        };
        let Some(process) = process else { return }; // It has just ended by itself.
        let whom = match target {
            Target::Service => "service",
            Target::Proxy(_) => "proxy",
            Target::Client(_) => "client",
        };
        *self.done.entry((fault, whom)).or_default() += 1;
        if target == Target::Service {
            self.trouble = now();
        }
        match (fault, target) {
            (Fault::Stop, _) => process.stop(),
            (_, Target::Service) => {
                self.reasserted += self.testbed.told("totals", "reasserted");
                self.testbed.kill();
            }
            (_, Target::Proxy(_)) => process.kill(),
            (_, Target::Client(number)) => self.slots[number].kill(),
        }
    }

    fn end(&mut self, target: Target, fault: Fault) {
        match (target, fault) {
            (Target::Service, Fault::Kill) => self.testbed.start_again(),
            (Target::Service, Fault::Move) => self.testbed.start_with_a_copy(),
            (Target::Service, Fault::Stop) => self.testbed.service().go_on(),
            (Target::Proxy(number), _) => self.proxies[number].iter_mut().for_each(Process::go_on),
            (Target::Client(number), _) => self.slots[number].process.iter_mut().for_each(Process::go_on),
        }
        if target == Target::Service {
            self.trouble_ends();
        }
    }

    fn trouble_ends(&mut self) {
        self.troubles.push(self.trouble..now());
    }

    /// Starts whoever has ended, but those that are to be away.
    fn tend(&mut self, away: &[Target]) {
        self.tend_proxies(away);
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let is_gone = slot.reap(false).unwrap_or_else(|why| panic!("{why}"));
            if is_gone && !away.contains(&Target::Client(number)) {
                slot.start(&self.testbed, self.programs, self.seed);
            }
        }
    }

    fn tend_proxies(&mut self, away: &[Target]) {
        for (number, proxy) in self.proxies.iter_mut().enumerate() {
            if !away.contains(&Target::Proxy(number)) && proxy.as_mut().is_none_or(|proxy| proxy.ended().is_some()) {
                *proxy = Some(self.testbed.start_proxy(number));
            }
        }
    }

    /// Whoever waits for a lock gets it in the end, since all others give theirs back.
    fn let_all_end(&mut self) {
        let stop = self.testbed.path().join("stop");
        std::fs::write(&stop, "").unwrap();
        let give_up = Instant::now() + PATIENCE;
        loop {
            let mut left = 0;
            self.tend_proxies(&[]);
            for slot in &mut self.slots {
                left += usize::from(!slot.reap(true).unwrap_or_else(|why| panic!("{why}")));
            }
            if left == 0 {
                break;
            }
            assert!(
                Instant::now() < give_up,
                "{left} clients wait for what nobody holds: {}",
                self.keep()
            );
            std::thread::sleep(TICK);
        }
        std::fs::remove_file(stop).unwrap();
    }

    fn expect_that_all_is_free(&mut self) {
        let addresses = [
            self.testbed.unix(),
            self.testbed.tcp(),
            self.testbed.proxy(0),
            self.testbed.proxy(1),
        ];
        for (address, file) in addresses.iter().flat_map(|address| FILES.map(|file| (address, file))) {
            self.expect_free(address, file);
        }
    }

    /// Who has no processor for a lease of a second loses what it was granted, and asks again.
    fn expect_free(&mut self, address: &str, file: &str) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            self.tend_proxies(&[]);
            let (client, file) = (self.testbed.client(address), self.testbed.path().join(file));
            let hold = client.lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::For(30_000));
            match hold.and_then(Hold::finish) {
                Ok(()) => return,
                Err(LockError::Lost { .. }) if Instant::now() < give_up => {}
                Err(error) => panic!("nobody holds it, and {address} says: {error}"),
            }
        }
    }

    fn grants(&self) -> usize {
        let client_histories = self.slots.iter().flat_map(Slot::client_histories);
        client_histories
            .map(|client_history| client_history.holdings.len())
            .sum()
    }

    /// The address moves to a machine where nothing is known of the services before; when there have been more than so many grants. Its silence is the
    /// same whatever burned before, so one round waits for its end.
    fn move_without_memory(&mut self, grants: usize, is_last: bool) {
        let work = |round: &mut Self, for_ms: u64| {
            let until = Instant::now() + Duration::from_millis(for_ms);
            while Instant::now() < until {
                round.tend(&[]);
                std::thread::sleep(TICK);
            }
        };
        let give_up = Instant::now() + PATIENCE;
        work(self, BEFORE_MS);
        while self.grants() <= grants && Instant::now() < give_up {
            work(self, MORE_MS);
        }
        self.trouble = now();
        self.testbed.kill();
        self.testbed.start_without_memory();
        self.trouble_ends();
        assert!(self.testbed.told("", "grace_left_ms") > 0);
        work(self, AFTER_MS);
        if is_last && is_soak("the end of a minute of silence") {
            std::thread::sleep(SILENT_FOR);
            self.let_all_end();
            self.expect_that_all_is_free();
        } else {
            self.slots.iter_mut().for_each(Slot::kill);
        }
    }

    /// All that the clients wrote, in which nothing may be wrong.
    fn judge(&self) -> History {
        let mut all = History::default();
        for client_history in self.slots.iter().flat_map(Slot::client_histories) {
            all.asked += client_history.asked;
            all.lost += client_history.lost;
            all.holdings.extend(client_history.holdings);
            for (why, count) in client_history.refused {
                *all.refused.entry(why).or_default() += count;
            }
        }
        let found = judge(&all.holdings, &self.troubles);
        assert!(
            found.is_empty(),
            "{} of {} grants cannot be; replay with SEED={}, logs in {}\n{}",
            found.len(),
            all.holdings.len(),
            self.seed,
            self.keep(),
            found
                .iter()
                .take(5)
                .map(|violation| format!("{violation}\n"))
                .collect::<String>()
        );
        all
    }

    /// Copies the logs to where they stay.
    fn keep(&self) -> String {
        let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fire-{}", self.seed));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).unwrap();
        for entry in std::fs::read_dir(self.testbed.path()).unwrap().flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b"log-") {
                std::fs::copy(entry.path(), place.join(name)).unwrap();
            }
        }
        place.display().to_string()
    }

    /// A fire in which nothing happened would show nothing.
    fn expect_that_it_burned(&self, client_history: &History) {
        let mut by_kind: BTreeMap<ClientKind, usize> = BTreeMap::new();
        for slot in &self.slots {
            let grants: usize = slot
                .client_histories()
                .iter()
                .map(|client_history| client_history.holdings.len())
                .sum();
            *by_kind.entry(slot.kind()).or_default() += grants;
        }
        println!(
            "{by_kind:?}; {} asked, {} lost, {} reasserted, refused {:?}; {:?}",
            client_history.asked, client_history.lost, self.reasserted, client_history.refused, self.done
        );
        let done = |fault, whom| self.done.get(&(fault, whom)).copied().unwrap_or(0);
        assert!(
            done(Fault::Kill, "service") > 0 && done(Fault::Move, "service") > 0 && done(Fault::Stop, "service") > 0
        );
        assert!(done(Fault::Kill, "proxy") > 1 && done(Fault::Stop, "proxy") > 1);
        assert!(done(Fault::Kill, "client") > 10 && done(Fault::Stop, "client") > 20);
        // How many of each depends on who is where when the machine is busy.
        let noticed = u64::try_from(client_history.lost).unwrap() + self.reasserted;
        assert!(
            noticed > 0,
            "no lock was held when the service died or its client was stopped"
        );
        for (kind, enough) in [
            (ClientKind::C, 50),
            (ClientKind::Python, 20),
            (ClientKind::Fcntl, 20),
            (ClientKind::Hold, 5),
        ] {
            assert!(by_kind[&kind] > enough, "{kind:?}: {} grants", by_kind[&kind]);
        }
    }
}

/// The judge of this very history would have seen it.
fn plant_faults(history: &[Holding]) {
    let has = |holdings: &[Holding], is_it: fn(&Violation) -> bool| judge(holdings, &[]).iter().any(is_it);
    let sure =
        |holding: &&Holding| holding.sure().is_some_and(|(start, end)| start + 1_000 < end) && holding.token.is_some();
    let victim = history
        .iter()
        .filter(sure)
        .nth(history.len() / 4)
        .expect("a lock that was held for a while");
    let (start, end) = victim.sure().expect("it is sure");
    let intruder = Holding {
        client: "planted".to_owned(),
        asked: start + 1,
        granted: end - 1,
        ours: Some(end),
        mode: elbow_testkit::oracle::Mode::Exclusive,
        ..victim.clone()
    };
    let with = |intruder: Holding| [history, &[intruder]].concat();
    assert!(has(&with(intruder.clone()), |it| matches!(it, Violation::Both { .. })));
    let unchecked = Holding {
        ours: None,
        ..intruder.clone()
    };
    assert!(has(&with(unchecked), |it| matches!(it, Violation::NeverAlone(_))));
    let late = Holding {
        asked: now(),
        granted: now() + 1,
        ours: None,
        ..intruder
    };
    assert!(has(&with(late), |it| matches!(it, Violation::Token { .. })));
}
