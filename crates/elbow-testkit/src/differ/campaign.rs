//! Many cases on one storage, several at a time; what they find, by signature.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::case::Case;
use super::compare::{Class, Finding};
use super::draw::{Length, draw};
use super::ground::StorageHost;
use super::known::KnownList;
use super::shrink::shrink;
use super::trial::{Programs, Trial};

/// How often a case is run without the call that met something known.
const KNOWN_MAX: usize = 24;
/// How often a case is run to see how often it shows what it showed.
const TRIES: u32 = 5;
/// How far a campaign is, is said after so many.
const CASES_BETWEEN_LINES: u64 = 1_000;
/// Why something is not counted as found.
const UNSTEADY: &str = "the native system does not answer the same twice";

/// What is needed to try a case.
#[derive(Clone, Copy, Debug)]
pub struct TrialContext<'a> {
    /// The storage.
    pub test_storage: &'a StorageHost,
    /// What is started.
    pub programs: &'a Programs,
    /// What is known.
    pub known: &'a KnownList,
}

/// What a case showed.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The case without what is known.
    pub case: Case,
    /// What is not known.
    pub findings: Vec<Finding>,
    /// Signatures of what is known, with why.
    pub known: Vec<(String, String)>,
}

/// What was found, by signature.
pub type FindingCounts = BTreeMap<(Class, String), Found>;

/// One signature.
#[derive(Clone, Debug)]
pub struct Found {
    /// How many cases showed it.
    pub count: u64,
    /// The first of them: its seed, itself, and what was found.
    pub seed: u64,
    /// See `seed`.
    pub case: Case,
    /// See `seed`.
    pub detail: String,
}

/// What a campaign found.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many cases were run.
    pub cases: u64,
    /// How many calls they had.
    pub calls: u64,
    /// What is not known.
    pub found: FindingCounts,
    /// How often what is known was met, with why.
    pub known: BTreeMap<(String, String), u64>,
}

impl TrialContext<'_> {
    /// Runs a case until nothing known hides the rest; `name` is that of no other case under way there.
    ///
    /// # Errors
    /// What the lab says.
    pub fn examine(&self, case: &Case, name: &str) -> io::Result<Examined> {
        let (mut case, mut known) = (case.clone(), Vec::new());
        let mut given_up = format!("more than {KNOWN_MAX} calls of a case met something known");
        for _ in 0..KNOWN_MAX {
            let trial = match Trial::run(&case, self.test_storage, self.programs, name) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    given_up = "a case cannot be played without a call that met something known".to_owned();
                    break;
                }
                trial => trial?,
            };
            let findings = trial.findings(&case);
            let of = |finding: &Finding| self.known.of(self.test_storage.storage(), &case, finding);
            let (met, findings): (Vec<Finding>, _) = findings.into_iter().partition(|finding| of(finding).is_some());
            let call = met.iter().find(|finding| finding.step.is_some());
            // What the rest is caused by is seen when the call is out of the way.
            let counted = call.map_or(&met[..], std::slice::from_ref);
            known.extend(
                counted
                    .iter()
                    .filter_map(|finding| Some((finding.signature.clone(), of(finding)?.why.clone()))),
            );
            match call.and_then(|finding| finding.step) {
                Some(step) => drop(case.steps.remove(step)),
                None => {
                    let (findings, unsteady) = self.steady(&case, trial, findings, name)?;
                    known.extend(
                        unsteady
                            .into_iter()
                            .map(|finding| (finding.signature, UNSTEADY.to_owned())),
                    );
                    return Ok(Examined { case, findings, known });
                }
            }
        }
        known.push(("given up".to_owned(), given_up));
        Ok(Examined {
            case,
            findings: Vec::new(),
            known,
        })
    }

    /// What is found beside another native run as well, and what is not: sshfs goes on for a while to tell what a file was like.
    fn steady(
        &self,
        case: &Case,
        trial: Trial,
        findings: Vec<Finding>,
        name: &str,
    ) -> io::Result<(Vec<Finding>, Vec<Finding>)> {
        if findings.is_empty() {
            return Ok(Default::default());
        }
        let again = trial
            .beside_another(case, self.test_storage, self.programs, name)?
            .findings(case);
        let is_again = |finding: &Finding| again.iter().any(|other| other.signature == finding.signature);
        Ok(findings.into_iter().partition(is_again))
    }

    /// Runs the cases of seeds, as `adjust` changes them; those where it says no are left out.
    ///
    /// # Errors
    /// The first that a lab said.
    pub fn run(
        &self,
        seeds: Range<u64>,
        length: Length,
        threads: usize,
        adjust: &(dyn Fn(&mut Case) -> bool + Sync),
    ) -> io::Result<Summary> {
        let (next, summary) = (AtomicU64::new(seeds.start), Mutex::new(Summary::default()));
        let work = || -> io::Result<()> {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return Ok(());
                }
                let mut case = draw(seed, self.test_storage.storage(), length);
                if !adjust(&mut case) {
                    continue;
                }
                let calls = case.steps.len() as u64;
                let examined = self.examine(&case, &format!("seed-{seed}"))?;
                let mut summary = summary.lock();
                self.tell_new(seed, &examined, &summary);
                summary.add(seed, calls, examined);
                if summary.cases % CASES_BETWEEN_LINES == 0 {
                    let (storage, cases) = (self.test_storage.storage().name(), summary.cases);
                    eprintln!("{storage}: {cases} of {} cases", seeds.end - seeds.start);
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        Ok(summary.into_inner())
    }

    /// Says at once what was not seen before: a campaign may take hours.
    fn tell_new(&self, seed: u64, examined: &Examined, summary: &Summary) {
        for finding in &examined.findings {
            if !summary.found.contains_key(&(finding.class, finding.signature.clone())) {
                let storage = self.test_storage.storage().name();
                eprintln!("{storage}: seed {seed}: {}", finding.signature);
            }
        }
    }

    /// The smallest case that shows the same, and how often of [`TRIES`] times the one that is given did.
    ///
    /// # Errors
    /// What the lab says.
    pub fn minimise(&self, case: &Case, signature: &str, name: &str) -> io::Result<(Case, u32)> {
        let shows = |case: &Case| -> io::Result<bool> {
            match Trial::run(case, self.test_storage, self.programs, name) {
                // Made smaller, it lacks what let it be played.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
                trial => Ok(trial?
                    .findings(case)
                    .iter()
                    .any(|finding| finding.signature == signature)),
            }
        };
        let shown: Vec<bool> = (0..TRIES).map(|_| shows(case)).collect::<io::Result<_>>()?;
        let often = shown.into_iter().map(u32::from).sum();
        if often == 0 {
            return Ok((case.clone(), 0));
        }
        // What is seldom shown is tried more often before it is believed to have gone.
        let tries = if often == TRIES { 1 } else { 2 * TRIES / often };
        let mut trouble = None;
        let small = shrink(case, &mut |case| {
            let mut once = || {
                shows(case).unwrap_or_else(|error| {
                    trouble.get_or_insert(error);
                    false
                })
            };
            (0..tries).any(|_| once())
        });
        trouble.map_or(Ok((small, often)), Err)
    }
}

impl Summary {
    fn add(&mut self, seed: u64, calls: u64, examined: Examined) {
        self.cases += 1;
        self.calls += calls;
        for known in examined.known {
            *self.known.entry(known).or_default() += 1;
        }
        for finding in examined.findings {
            let found = self
                .found
                .entry((finding.class, finding.signature))
                .or_insert_with(|| Found {
                    count: 0,
                    seed,
                    case: examined.case.clone(),
                    detail: finding.detail,
                });
            found.count += 1;
        }
    }

    /// How often what is known was met, by why.
    pub fn known_by_why(&self) -> BTreeMap<&str, u64> {
        let mut sums = BTreeMap::new();
        for ((_, why), count) in &self.known {
            *sums.entry(why.as_str()).or_default() += count;
        }
        sums
    }
}
