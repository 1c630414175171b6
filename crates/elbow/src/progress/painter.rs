//! The thread that shows progress: it looks where things are, and draws when there is something worth drawing.
//!
//! It is alone with the terminal. Whoever shows something leaves it in the mailbox and goes on, so that a terminal that is
//! stopped (Ctrl-S) or a full pipe stops nothing but this thread, and the newest of what was left there is drawn next.

use std::borrow::Cow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::estimate::{Estimate, Part};
use super::line::Facts;
use super::terminal::{self, CursorLine, Row};
use crate::output::print_message;
use crate::signals;

/// How often is looked, and drawn.
const TICK: Duration = Duration::from_millis(100);
/// What is quicker than this is not worth a bar.
const PATIENCE: Duration = Duration::from_millis(500);
/// A phase that is over sooner is not shown: what was shown before it stays meanwhile.
const PHASE_PATIENCE: Duration = Duration::from_millis(300);
/// A command that runs is given longer, and nobody waits for less than this.
const PATIENCE_RUNNING: Duration = Duration::from_secs(1);
/// A row stays for so long after all is stored: there is often more to come.
const ROW_STAYS: Duration = Duration::from_secs(3);
/// Time between lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(5);
/// A thread that does not get rid of what it writes is left behind.
const FAREWELL: Duration = Duration::from_millis(500);

/// Where progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaintTarget {
    /// The last row of a terminal that others write to, also while a command runs.
    Row,
    /// The line of the cursor.
    Line,
    /// Lines in a pipe or a file, of what somebody waits for.
    Lines,
    /// Such lines also while a command runs.
    AlwaysLines,
}

/// What is to be seen.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) doing: Cow<'static, str>,
    /// What the items are.
    pub(super) noun: &'static str,
    pub(super) bytes: Part,
    pub(super) items: Part,
    /// Nobody waits for it: a command runs meanwhile, and there may be more of it.
    pub(super) is_background: bool,
}

/// Looks where things are when nothing was left in the mailbox.
type Look = Box<dyn Fn() -> Option<View> + Send>;

#[derive(Default)]
struct Mailbox {
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Default)]
struct Orders {
    view: Option<View>,
    finish: bool,
    pause: bool,
    /// Nothing is shown now.
    is_clear: bool,
}

impl Orders {
    fn want_clear(&self) -> bool {
        self.finish || self.pause
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next order, or for the time to draw.
    fn wait(&self) -> MutexGuard<'_, Orders> {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), TICK, |orders| !orders.want_clear());
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Says that nothing is shown any more.
    fn say_clear(&self) -> MutexGuard<'_, Orders> {
        let mut orders = self.lock();
        orders.is_clear = true;
        orders.pause = false;
        self.changed.notify_all();
        orders
    }

    /// Gives an order and waits until nothing is shown any more, or for a while.
    fn order_to_clear(&self, order: impl FnOnce(&mut Orders)) {
        let mut orders = self.lock();
        order(&mut orders);
        orders.is_clear = false;
        self.changed.notify_all();
        let waited = self
            .changed
            .wait_timeout_while(orders, FAREWELL, |orders| !orders.is_clear);
        drop(waited);
    }
}

/// The mailbox of the thread that shows something now.
static AT_WORK: Mutex<Weak<Mailbox>> = Mutex::new(Weak::new());

/// Gives the terminal back before this process is stopped. What is shown comes back when it goes on.
pub(super) fn pause() {
    let mailbox = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if let Some(mailbox) = mailbox {
        mailbox.order_to_clear(|orders| orders.pause = true);
    }
}

/// Shows something until it is dropped.
pub(super) struct Painter {
    mailbox: Arc<Mailbox>,
}

impl Painter {
    /// Starts the thread; without one nothing is shown. `name` stands before lines in a pipe.
    pub(super) fn start(name: String, place: PaintTarget, estimate: Estimate, look: Look) -> Option<Self> {
        let mailbox = Arc::new(Mailbox::default());
        *AT_WORK.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&mailbox);
        if place == PaintTarget::Row {
            give_back_on_panic();
        }
        let mut work = Work::new(name, place, estimate);
        let of_thread = mailbox.clone();
        let started = std::thread::Builder::new()
            .name("elbow-progress".into())
            .spawn(move || work.run(&of_thread, &look));
        started.ok().map(|_| Self { mailbox })
    }

    /// Leaves something in the mailbox.
    pub(super) fn show(&self, view: View) {
        self.mailbox.lock().view = Some(view);
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        self.mailbox.order_to_clear(|orders| orders.finish = true);
    }
}

/// A program that panics ends at once, and must not leave the terminal without its last row.
fn give_back_on_panic() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            terminal::give_back();
            before(panic);
        }));
    });
}

/// One look in words.
pub(super) fn sentence(view: &View) -> String {
    let mut estimate = Estimate::default();
    estimate.note(Instant::now(), view.bytes, view.items);
    let facts = facts(&estimate, view);
    Facts { time: None, ..facts }.sentence()
}

fn facts(estimate: &Estimate, view: &View) -> Facts {
    let behind = if view.is_background { "behind" } else { "left" };
    Facts {
        doing: view.doing.clone(),
        noun: view.noun,
        ..Facts::of(estimate, view.bytes, view.items, behind)
    }
}

enum Surface {
    Row(Row),
    Line(CursorLine),
    Lines(Lines),
}

/// Lines in a pipe or a file.
struct Lines {
    last: Instant,
    name: String,
    always: bool,
}

impl Lines {
    fn show(&mut self, now: Instant, view: &View, facts: &Facts) {
        let is_wanted = self.always || !view.is_background;
        if !is_wanted || now.duration_since(self.last) < BETWEEN_LINES {
            return;
        }
        self.last = now;
        match self.name.as_str() {
            "" => print_message(facts.sentence()),
            name => print_message(format_args!("{name}: {}", facts.sentence())),
        }
    }
}

/// What the thread knows.
struct Work {
    surface: Surface,
    began: Instant,
    /// Since when somebody waits.
    awaited: Option<Instant>,
    estimate: Estimate,
    doing: Cow<'static, str>,
    doing_since: Instant,
    /// When there last was so much left that it is worth a row.
    was_behind: Option<Instant>,
}

impl Work {
    fn new(name: String, place: PaintTarget, estimate: Estimate) -> Self {
        let began = Instant::now();
        let last = began;
        let lines = |name, always| Surface::Lines(Lines { last, name, always });
        Self {
            surface: match place {
                PaintTarget::Row => Surface::Row(Row::default()),
                PaintTarget::Line => Surface::Line(CursorLine::default()),
                PaintTarget::Lines => lines(name, false),
                PaintTarget::AlwaysLines => lines(name, true),
            },
            began,
            awaited: None,
            estimate,
            doing: Cow::Borrowed(""),
            doing_since: began,
            was_behind: None,
        }
    }

    fn run(&mut self, mailbox: &Mailbox, look: &Look) {
        // A terminal may stop whoever writes to it from the background (stty tostop); we only put it in order then.
        signals::block_output_stop();
        loop {
            let orders = mailbox.wait();
            if !orders.want_clear() {
                let left_there = orders.view.clone();
                drop(orders);
                if let Some(view) = left_there.or_else(look) {
                    self.show(Instant::now(), &view);
                }
                continue;
            }
            drop(orders);
            self.hide();
            if mailbox.say_clear().finish {
                return;
            }
        }
    }

    fn show(&mut self, now: Instant, view: &View) {
        if self.doing != view.doing {
            if !self.doing.is_empty() {
                self.estimate = Estimate::default();
            }
            self.doing.clone_from(&view.doing);
            self.doing_since = now;
        }
        if !view.is_background {
            self.awaited.get_or_insert(now);
            self.estimate.close();
        }
        self.estimate.note(now, view.bytes, view.items);
        let is_worth = self.is_worth_it(now, view);
        if now.duration_since(self.doing_since) < PHASE_PATIENCE {
            return;
        }
        let facts = facts(&self.estimate, view);
        match &mut self.surface {
            Surface::Lines(lines) => lines.show(now, view, &facts),
            Surface::Row(row) if is_worth => row.draw(|columns| facts.line(columns)),
            Surface::Line(line) if is_worth && terminal::is_ours() => line.draw(|columns| facts.line(columns)),
            Surface::Row(row) => row.hide(),
            Surface::Line(_) => {}
        }
    }

    fn hide(&mut self) {
        match &mut self.surface {
            Surface::Row(row) => row.hide(),
            Surface::Line(line) => line.hide(),
            Surface::Lines(_) => {}
        }
    }

    /// Somebody has waited for a while; or a command has run for a while, and what it did is stored a while later.
    fn is_worth_it(&mut self, now: Instant, view: &View) -> bool {
        if let Some(awaited) = self.awaited {
            return now.duration_since(awaited) >= PATIENCE || self.was_behind.is_some();
        }
        let is_behind = view.bytes.left() + view.items.left() > 0
            && self.estimate.left().is_none_or(|left| left >= PATIENCE_RUNNING);
        if is_behind && now.duration_since(self.began) >= PATIENCE_RUNNING {
            self.was_behind = Some(now);
        }
        self.was_behind.take_if(|then| now.duration_since(*then) >= ROW_STAYS);
        self.was_behind.is_some()
    }
}
