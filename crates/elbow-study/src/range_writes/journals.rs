//! Figure 13 and Table 3: TPC-B on a file system whose journal lies on a plain disk, on a write-ahead region, or on nothing. They are measured
//! (`make bench-bark`), not simulated: these are the files of its results.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::claim::{Claim, TOLERANCE, Verdict, as_much, change};
use super::panel::{Column, Panel, PanelKind, Scale};
use super::plan::{Figure, Journals, Plan, RESULTS_FILE, StudyError, WRITES_FILE};

/// What a journal lies on: a plain disk, a region on one, nothing.
const JOURNALS: [&str; 3] = ["plain", "Bark", "null"];
/// How ext4 treats data.
const MODES: [&str; 2] = ["data=ordered", "data=journal"];
/// Where the data lie: as in *Range Writes*, and where nothing but the journal is waited for.
const DATA: [&str; 2] = ["data on an emulated disk", "data in memory"];
const PROGRAM: &str = "SQLite, rollback journal";
const CACHES: [&str; 2] = ["uncached", "cached"];
/// Steps of the axis of times.
const STEPS: u32 = 60;
/// The slowest of a hundred would leave the others no room.
const SHOWN_PERCENT: u32 = 99;

/// A line of [`RESULTS_FILE`]; its other columns are not needed here.
#[derive(Deserialize)]
struct Measurement {
    storage: String,
    job: String,
    peer: String,
    repetition: u32,
    mean_ms: Option<f64>,
    rejected: String,
    problem: String,
}

/// A line of [`WRITES_FILE`]: so many percent of a journal's writes took no longer.
#[derive(Deserialize)]
struct Percentile {
    storage: String,
    job: String,
    journal: String,
    percent: u32,
    ms: f64,
}

/// One setting: in each round in which all three went well, the mean time of a transaction in ms, by [`JOURNALS`].
#[derive(Clone)]
struct Rounds(Vec<[f64; JOURNALS.len()]>);

impl Rounds {
    /// `None` where no round went well with all three.
    fn of(measurements: &[Measurement], storage: &str, cache: &str) -> Option<Rounds> {
        let job = format!("{PROGRAM}, {cache}");
        let mut rounds: BTreeMap<u32, [Option<f64>; JOURNALS.len()]> = BTreeMap::new();
        for run in measurements
            .iter()
            .filter(|run| run.storage == storage && run.job == job)
        {
            if let Some(journal) = JOURNALS.iter().position(|journal| *journal == run.peer) {
                let is_good = run.rejected == "False" && run.problem.is_empty();
                rounds.entry(run.repetition).or_default()[journal] = run.mean_ms.filter(|_| is_good);
            }
        }
        let good = rounds
            .into_values()
            .filter_map(|[plain, bark, null]| Some([plain?, bark?, null?]));
        let good: Vec<_> = good.collect();
        (!good.is_empty()).then_some(Rounds(good))
    }

    /// The median over the rounds.
    fn median(&self, of: impl Fn(&[f64; JOURNALS.len()]) -> f64) -> f64 {
        let mut values: Vec<f64> = self.0.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
    }

    /// How much faster with Bark, in percent.
    fn gain(&self) -> f64 {
        self.median(|&[plain, bark, _]| change(bark, plain))
    }

    /// Bark as a multiple of what costs nothing.
    fn over_null(&self) -> f64 {
        self.median(|[_, bark, null]| bark / null)
    }
}

/// Settings by mode, as far as they were measured.
type ByMode = Vec<(&'static str, Rounds)>;

fn rows<T: for<'de> Deserialize<'de>>(
    plan: &Plan,
    file: &'static str,
    of: fn(&Journals) -> &Option<String>,
) -> Result<Vec<T>, StudyError> {
    let journals = plan.journals.as_ref().ok_or(StudyError::NotMeasured)?;
    let text = of(journals).as_ref().ok_or_else(|| StudyError::NoSuchResult {
        directory: journals.directory.clone(),
        file,
    })?;
    let rows: Result<Vec<T>, csv::Error> = csv::Reader::from_reader(text.as_bytes()).deserialize().collect();
    let invalid = |reason| StudyError::InvalidResult {
        file: format!("{}/{file}", journals.directory),
        reason,
    };
    rows.map_err(invalid)
}

fn nothing(plan: &Plan, file: &'static str, what: &'static str) -> StudyError {
    let directory = plan.journals.as_ref().map_or("", |journals| &journals.directory);
    StudyError::NothingMeasured {
        file: format!("{directory}/{file}"),
        what,
    }
}

/// Table 3.
pub(super) fn table(plan: &Plan) -> Result<Figure, StudyError> {
    let measurements: Vec<Measurement> = rows(plan, RESULTS_FILE, |journals| &journals.results)?;
    let panels: Vec<Panel> = storages().filter_map(|storage| bars(&measurements, storage)).collect();
    if panels.is_empty() {
        return Err(nothing(
            plan,
            RESULTS_FILE,
            "TPC-B on SQLite with a rollback journal, of which all three journals went well",
        ));
    }
    let by_mode = |cache: &str| -> ByMode {
        let of = |mode| Some((mode, Rounds::of(&measurements, &format!("{}, {mode}", DATA[0]), cache)?));
        MODES.into_iter().filter_map(of).collect()
    };
    let [uncached, cached] = CACHES.map(by_mode);
    Ok(Figure {
        name: "table3",
        title: "TPC-B by what the journal lies on",
        caption: format!(
            "Measured on a real ext4 in real time, on emulated disks: {PROGRAM}, medians of rounds in which nothing was rejected. The paper ran ext3 on two disks, \
             the journal on one and the data on the other, and its text does not say in which mode; ordered was the default.",
        ),
        panels,
        claims: claims(&uncached, &cached),
    })
}

fn storages() -> impl Iterator<Item = String> {
    DATA.into_iter()
        .flat_map(|data| MODES.into_iter().map(move |mode| format!("{data}, {mode}")))
}

/// `None` where nothing was measured.
fn bars(measurements: &[Measurement], storage: String) -> Option<Panel> {
    let of = |cache| Some((cache, Rounds::of(measurements, &storage, cache)?));
    let (caches, rounds): (Vec<&str>, Vec<Rounds>) = CACHES.into_iter().filter_map(of).unzip();
    let times = |journal: usize| {
        rounds
            .iter()
            .map(|rounds| rounds.median(|times| times[journal]))
            .collect()
    };
    let columns = JOURNALS
        .iter()
        .enumerate()
        .map(|(journal, name)| Column::exact(*name, times(journal)));
    let panel = Panel::new(
        storage,
        PanelKind::Bars,
        ("database", &caches),
        "time of a transaction (ms)",
    );
    (!caches.is_empty()).then(|| panel.with(columns.collect()))
}

/// What was not measured on a disk is not judged.
fn claims(uncached: &ByMode, cached: &ByMode) -> Vec<Claim> {
    let gain = |rounds: &Rounds| format!("{:+.0} %", rounds.gain());
    let over = |rounds: &Rounds| format!("{:.2}x of it", rounds.over_null());
    let mut claims = Vec::new();
    if !cached.is_empty() {
        claims.push(Claim::new(
            "Where the database is in memory, Bark makes TPC-B over 61 % faster",
            "over 61 % (section 6, Results; Table 3)",
            told(cached, gain),
            Verdict::together(cached.iter().map(|(_, rounds)| at_least(rounds.gain(), 61.0))),
            [BY_MODE, "Too little of a transaction is the journal"],
        ));
    }
    if !uncached.is_empty() {
        claims.push(Claim::new(
            "Where the database is read from the disk, Bark makes TPC-B 20 % faster",
            "20 % (section 6, Results; Table 3)",
            told(uncached, gain),
            Verdict::together(uncached.iter().map(|(_, rounds)| as_much(rounds.gain(), 20.0))),
            [BY_MODE, BY_MODE],
        ));
    }
    if !uncached.is_empty() && !cached.is_empty() {
        let all = || uncached.iter().chain(cached);
        claims.push(Claim::new(
            "Both are near what a journal gives that costs nothing",
            "approach the optimal time (section 6, Results; Table 3)",
            format!("uncached {}; cached {}", told(uncached, over), told(cached, over)),
            Verdict::together(all().map(|(_, rounds)| Verdict::from(rounds.over_null() <= 1.0 + TOLERANCE))),
            [
                "Where the data's own disk is what is waited for. With data=journal all data go through the journal too, and one that costs nothing has them for nothing",
                "The journal is what is waited for",
            ],
        ));
    }
    let both = uncached
        .iter()
        .filter_map(|(mode, rounds)| Some((rounds, &cached.iter().find(|(other, _)| other == mode)?.1)));
    let lessened = both.map(|(with, without)| Verdict::from((0.0..without.gain()).contains(&with.gain())));
    let lessened: Vec<Verdict> = lessened.collect();
    if !lessened.is_empty() {
        claims.push(Claim::new(
            "Reads lessen what Bark gains, which is still quite noticeable",
            "lessened, but still quite noticeable (section 6, Discussion)",
            format!("uncached {}; cached {}", told(uncached, gain), told(cached, gain)),
            Verdict::together(lessened),
            [
                "A read takes as long on any journal",
                "What is read was in memory after all, or the difference is lost in the noise",
            ],
        ));
    }
    claims
}

/// Why a gain depends on what the text of *Range Writes* does not say.
const BY_MODE: &str = "With data=ordered a transaction waits for the data's own disk too; with data=journal for the journal alone. The paper does not say which it was";

/// What is said of each mode.
fn told(of: &ByMode, say: impl Fn(&Rounds) -> String) -> String {
    let words: Vec<String> = of
        .iter()
        .map(|(mode, rounds)| format!("{} with {mode}", say(rounds)))
        .collect();
    words.join(", ")
}

/// As much as *Range Writes* has, or more.
fn at_least(is: f64, paper: f64) -> Verdict {
    if is >= paper {
        Verdict::Reproduced
    } else {
        as_much(is, paper)
    }
}

/// Figure 13.
pub(super) fn writes(plan: &Plan) -> Result<Figure, StudyError> {
    let percentiles: Vec<Percentile> = rows(plan, WRITES_FILE, |journals| &journals.writes)?;
    let job = format!("{PROGRAM}, cached");
    let mut panels = Vec::new();
    let mut medians = Vec::new();
    for storage in storages() {
        let of: Vec<&Percentile> = percentiles
            .iter()
            .filter(|row| row.storage == storage && row.job == job)
            .collect();
        let [plain, bark] = [0, 1].map(|journal| {
            of.iter()
                .find(|row| row.journal == JOURNALS[journal] && row.percent == 50)
        });
        if let (Some(plain), Some(bark)) = (plain, bark) {
            medians.push(format!("{:.2} -> {:.2} ms with {storage}", plain.ms, bark.ms));
            panels.push((distribution(storage, &of), bark.ms < plain.ms / 3.0));
        }
    }
    if panels.is_empty() {
        return Err(nothing(
            plan,
            WRITES_FILE,
            "writes of the journal on a plain disk and with Bark (the bench needs the kernel's tracefs for them)",
        ));
    }
    let claim = Claim::ours(
        "The median write of the journal takes less than a third with Bark",
        medians.join(", "),
        Verdict::together(panels.iter().map(|(_, is_less)| Verdict::from(*is_less))),
        [
            "A record goes where the platter comes next; in order it waits for most of a turn",
            "Something else than rotation is waited for",
        ],
    );
    Ok(Figure {
        name: "13",
        title: "How long writes of the journal take",
        caption: format!(
            "Measured in real time, from when ext4 handed a write to the device to its completion: {job}, up to the {SHOWN_PERCENT}th percentile. The paper's text has no such figure; it belongs to its Table 3."
        ),
        panels: panels.into_iter().map(|(panel, _)| panel).collect(),
        claims: vec![claim],
    })
}

/// How many percent of the writes took no longer, at even steps of time.
fn distribution(storage: String, of: &[&Percentile]) -> Panel {
    let shown = || of.iter().filter(|row| row.percent <= SHOWN_PERCENT);
    let most = shown().map(|row| row.ms).fold(0.0, f64::max);
    let times: Vec<f64> = (0..=STEPS)
        .map(|step| most * f64::from(step) / f64::from(STEPS))
        .collect();
    let places: Vec<String> = times.iter().map(|time| format!("{time:.3}")).collect();
    let percent = |journal: &str, time: f64| {
        let no_longer = shown().filter(|row| row.journal == journal && row.ms <= time);
        no_longer.map(|row| f64::from(row.percent)).fold(0.0, f64::max)
    };
    let columns = JOURNALS
        .iter()
        .filter(|journal| of.iter().any(|row| row.journal == **journal));
    let columns =
        columns.map(|journal| Column::exact(*journal, times.iter().map(|&time| percent(journal, time)).collect()));
    Panel {
        scale: Scale::Linear,
        ..Panel::new(
            storage,
            PanelKind::Lines,
            ("time of a write (ms)", &places),
            "took no longer (%)",
        )
        .with(columns.collect())
    }
}
