//! Random cases: an old tree, who works on it, and calls that mostly make sense there.
//!
//! While calls are drawn, a rough idea of the tree is kept: what probably exists, what lies in which slot. It need not be right (whether a call is
//! refused is found out by doing it), only good enough that most calls do something. A seed and a storage give the same case for ever.

mod calls;
mod tree;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::case::{Case, Ending, Runner, Step, WorkerIdentity};
use super::ground::Storage;
use super::word::{At, Bits, MAPS, Name, SLOTS, Slot};

/// The users of root's cases, and the group that two of them share.
const USERS: [u32; 2] = [1001, 1002];
const SHARED_GROUP: u32 = 2000;
/// The user of an ordinary user's cases, who is on every machine, and a supplementary group.
pub const ORDINARY: u32 = 1;
/// The group that lets that user in.
pub const ORDINARY_GROUP: u32 = 1998;

/// Modes that something may have.
const MODES: [u32; 20] = [
    0o644, 0o600, 0o666, 0o664, 0o444, 0o400, 0o222, 0o000, 0o755, 0o777, 0o700, 0o750, 0o4755, 0o2755, 0o6777, 0o1777,
    0o555, 0o711, 0o311, 0o2775,
];
/// Names below a directory.
const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "k", "m"];
/// Names that are seldom.
const ODD_NAMES: [&str; 9] = ["n*255", "n*256", "s p", "\u{e4}", ".", "..", "", "a/", "./a"];

/// What something probably is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbableKind {
    Dir,
    File,
    Link,
    Other,
}

/// What a worker probably has.
#[derive(Clone, Debug, Default)]
struct WorkerState {
    cwd: String,
    slots: [Option<(String, Option<ProbableKind>)>; SLOTS as usize],
    maps: [bool; MAPS as usize],
}

/// See the module's header.
struct CaseGenerator {
    rng: StdRng,
    known: Vec<(String, ProbableKind)>,
    hands: Vec<WorkerState>,
    workers: Vec<WorkerIdentity>,
    /// The worker whose turn it is.
    turn: usize,
    storage: Storage,
    /// How many more bytes large writes may take: they cost time.
    large_left: u32,
}

/// How many calls a case has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Some 20: many cases in little time.
    Short,
    /// From 20 to 400.
    Any,
    /// That many.
    Of(usize),
    /// `Any` of one seed in so many, `Short` of the others.
    Mixed(u64),
}

impl Length {
    /// That of one seed.
    #[must_use]
    pub fn of_seed(self, seed: u64) -> Self {
        match self {
            Self::Mixed(every) if seed.is_multiple_of(every) => Self::Any,
            Self::Mixed(_) => Self::Short,
            other => other,
        }
    }
}

/// The case of a seed.
pub fn draw(seed: u64, storage: Storage, length: Length) -> Case {
    let mut draw = CaseGenerator {
        rng: StdRng::seed_from_u64(seed),
        known: vec![(".".to_owned(), ProbableKind::Dir)],
        hands: Vec::new(),
        workers: Vec::new(),
        turn: 0,
        storage,
        large_left: 2,
    };
    let runner = draw.runner();
    draw.workers = draw.people(runner);
    draw.hands = vec![
        WorkerState {
            cwd: ".".to_owned(),
            ..WorkerState::default()
        };
        draw.workers.len()
    ];
    let old = draw.old_tree(runner);
    let length = match length.of_seed(seed) {
        Length::Short | Length::Mixed(_) => draw.rng.random_range(8..32),
        Length::Any => [20, 60, 200, 200, 400][draw.rng.random_range(0..5)],
        Length::Of(length) => length,
    };
    let case = Case {
        storage: storage.name().to_owned(),
        runner,
        ending: draw.ending(),
        options: draw.options(),
        workers: draw.workers.clone(),
        steps: (0..length).map(|_| draw.step()).collect(),
        old,
    };
    Case {
        ending: draw.another_way(case.ending),
        ..case
    }
}

impl CaseGenerator {
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of.choose(&mut self.rng).expect("a choice of nothing").clone()
    }

    fn runner(&mut self) -> Runner {
        match self.storage.runner() {
            Some(runner) => runner,
            None if self.chance(35) => Runner::User,
            None => Runner::Root,
        }
    }

    fn people(&mut self, runner: Runner) -> Vec<WorkerIdentity> {
        let count = self.rng.random_range(1..=3);
        if runner == Runner::User {
            return vec![ordinary(); count];
        }
        if !self.storage.has_users() {
            return vec![WorkerIdentity::default(); count];
        }
        (0..count).map(|_| self.person()).collect()
    }

    fn person(&mut self) -> WorkerIdentity {
        let uid = self.one(&[0, USERS[0], USERS[1]]);
        let groups = if self.chance(50) {
            vec![SHARED_GROUP]
        } else {
            Vec::new()
        };
        WorkerIdentity { uid, gid: uid, groups }
    }

    fn ending(&mut self) -> Ending {
        match self.rng.random_range(0..100) {
            0..65 => Ending::Commit,
            65..90 => Ending::Fail,
            _ => Ending::Leave,
        }
    }

    /// Another way to the same end, now and then. Drawn last, so that all else of a seed is what it was before there were others.
    fn another_way(&mut self, ending: Ending) -> Ending {
        let has_mounts = !self.storage.is_by_sftp(); // `elbow mount` goes no such way.
        match (ending, self.rng.random_range(0..100)) {
            (Ending::Commit, 0..6) => Ending::Retry,
            (Ending::Commit, 6..12) if has_mounts => Ending::Mount,
            (Ending::Fail, 0..15) => Ending::Keep,
            (Ending::Fail, 15..25) if has_mounts => Ending::MountFail,
            _ => ending,
        }
    }

    fn options(&mut self) -> Vec<String> {
        let all = [
            ("--mem 8M", 25),
            ("--publish eager", 25),
            ("--on-conflict overwrite", 15),
            ("--durable", 15),
            ("--in-flight 1", 10),
            ("--in-flight 4", 10),
        ];
        let mut options: Vec<String> = Vec::new();
        for (option, percent) in all {
            let verb = option.split(' ').next().unwrap_or_default();
            if self.chance(percent) && !options.iter().any(|other| other.starts_with(verb)) {
                options.push(option.to_owned());
            }
        }
        options
    }

    fn step(&mut self) -> Step {
        self.turn = self.rng.random_range(0..self.workers.len());
        let call = self.any_call();
        Step {
            worker: self.turn,
            call,
        }
    }

    fn worker_state(&mut self) -> &mut WorkerState {
        &mut self.hands[self.turn]
    }

    fn mode(&mut self) -> Bits {
        Bits(self.one(&MODES))
    }

    fn slot(&mut self) -> Slot {
        Slot(self.rng.random_range(0..SLOTS))
    }

    /// A slot with something of that sort in it, mostly.
    fn slot_of(&mut self, sort: ProbableKind) -> Slot {
        let worker_state = &self.hands[self.turn];
        let filled = |slot: &u8| {
            worker_state.slots[usize::from(*slot)]
                .as_ref()
                .is_some_and(|(_, open)| *open == Some(sort))
        };
        let good: Vec<u8> = (0..SLOTS).filter(filled).collect();
        if good.is_empty() || self.chance(5) {
            self.slot()
        } else {
            Slot(self.one(&good))
        }
    }

    /// Something that exists, of that sort where there is one.
    fn existing(&mut self, sort: ProbableKind) -> String {
        let good: Vec<String> = self
            .known
            .iter()
            .filter(|(_, known)| *known == sort)
            .map(|(path, _)| path.clone())
            .collect();
        if good.is_empty() {
            self.anything()
        } else {
            self.one(&good)
        }
    }

    fn anything(&mut self) -> String {
        let known = self.known.clone();
        self.one(&known).0
    }

    /// A name in a directory that exists, which may be taken.
    fn name_in_dir(&mut self) -> String {
        let dir = if self.chance(4) {
            self.anything()
        } else {
            self.existing(ProbableKind::Dir)
        };
        let name = if self.chance(3) {
            self.one(&ODD_NAMES)
        } else {
            self.one(&NAMES)
        };
        if dir == "." {
            name.to_owned()
        } else {
            format!("{dir}/{name}")
        }
    }

    /// Something, of that sort mostly.
    fn path(&mut self, sort: ProbableKind) -> String {
        match self.rng.random_range(0..100) {
            0..75 => self.existing(sort),
            75..90 => self.anything(),
            _ => self.name_in_dir(),
        }
    }

    /// A way to a path: from the root, the current directory or an open directory.
    fn way(&mut self, path: &str) -> (At, Name) {
        let path = self.detour(path);
        match self.rng.random_range(0..100) {
            0..60 => (At::Root, name(&path)),
            60..85 => {
                let cwd = self.worker_state().cwd.clone();
                (At::Cwd, name(&relative(&cwd, &path)))
            }
            _ => {
                let slot = self.slot_of(ProbableKind::Dir);
                match self.worker_state().slots[usize::from(slot.0)].clone() {
                    Some((dir, Some(ProbableKind::Dir))) => (At::Slot(slot), name(&relative(&dir, &path))),
                    _ => (At::Root, name(&path)),
                }
            }
        }
    }

    /// Seldom by way of another directory.
    fn detour(&mut self, path: &str) -> String {
        let dir = self.existing(ProbableKind::Dir);
        if dir != "." && self.chance(3) {
            let back = "../".repeat(dir.matches('/').count() + 1);
            return format!("{dir}/{back}{path}");
        }
        path.to_owned()
    }

    fn learn(&mut self, path: &str, sort: ProbableKind) {
        // Below an empty name there would be the root of the machine.
        if !path.is_empty() && path != "." && !self.known.iter().any(|(known, _)| known == path) {
            self.known.push((path.to_owned(), sort));
        }
    }

    fn forget(&mut self, path: &str) {
        let below = format!("{path}/");
        self.known
            .retain(|(known, _)| known == "." || (known != path && !known.starts_with(&below)));
    }

    fn moved(&mut self, from: &str, to: &str) {
        let Some((_, sort)) = self.known.iter().find(|(known, _)| known == from).cloned() else {
            return;
        };
        if from == "." || to.is_empty() || to.starts_with(&format!("{from}/")) {
            return;
        }
        self.known.retain(|(known, _)| known != to || known == ".");
        self.known.retain(|(known, _)| known != from);
        self.learn(to, sort);
        let below = format!("{from}/");
        for (known, _) in &mut self.known {
            if let Some(rest) = known.strip_prefix(&below) {
                *known = format!("{to}/{rest}");
            }
        }
    }
}

/// Who an ordinary user's job runs as.
pub fn ordinary() -> WorkerIdentity {
    WorkerIdentity {
        uid: ORDINARY,
        gid: ORDINARY,
        groups: vec![ORDINARY, ORDINARY_GROUP],
    }
}

/// The name of a path; one like `n*255` is that many letters.
fn name(path: &str) -> Name {
    let parts = path.split('/').map(|part| match part.split_once('*') {
        Some((letter, count)) => letter.repeat(count.parse().unwrap_or(1)),
        None => part.to_owned(),
    });
    Name::of(&parts.collect::<Vec<_>>().join("/"))
}

/// A path from the root as one from a directory.
fn relative(dir: &str, path: &str) -> String {
    if dir == "." {
        return path.to_owned();
    }
    if path == dir {
        return ".".to_owned();
    }
    match path.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/')) {
        // After a name that ends with a slash there is one more.
        Some(rest) => rest.trim_start_matches('/').to_owned(),
        None => format!("{}{path}", "../".repeat(dir.matches('/').count() + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_case_which_is_written_and_read_back() {
        for seed in 0..50 {
            let case = draw(seed, Storage::Ext4, Length::Any);
            assert_eq!(case, draw(seed, Storage::Ext4, Length::Any));
            assert_eq!(Case::decode(&case.encode()), Ok(case));
        }
    }

    /// An empty name was taken for a directory, and what was made below it was made in the root directory of the machine.
    #[test]
    fn no_case_leaves_its_tree() {
        for seed in 0..20_000 {
            let text = draw(seed, Storage::Overlayfs, Length::Short).encode();
            let leaves = |word: &str| word.starts_with('/');
            let line = text.lines().find(|line| line.split(' ').any(leaves));
            assert_eq!(line, None, "seed {seed}");
        }
    }

    #[test]
    fn a_path_is_found_from_anywhere() {
        assert_eq!(relative(".", "a/b"), "a/b");
        assert_eq!(relative("a", "a/b"), "b");
        assert_eq!(relative("a", "a"), ".");
        assert_eq!(relative("a", "a//.."), "..");
        assert_eq!(relative("a/b", "ab"), "../../ab");
    }
}
