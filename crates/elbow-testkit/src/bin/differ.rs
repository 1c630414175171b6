//! `differ`: random system calls, natively and in a job; what differs, made small. `cargo xtask differ` builds and starts it.

// It reads and writes scripts.
#![allow(clippy::disallowed_methods)]

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use elbow_testkit::differ::actor::{self, ActorInput};
use elbow_testkit::differ::campaign::{Summary, TrialContext};
use elbow_testkit::differ::case::{Case, Runner};
use elbow_testkit::differ::draw::{Length, draw};
use elbow_testkit::differ::ground::{Storage, StorageHost, enter_own_mounts};
use elbow_testkit::differ::known::KnownList;
use elbow_testkit::differ::plant::Bug;
use elbow_testkit::differ::trial::{Programs, Trial};
use elbow_testkit::differ::word::Word;

const EXAMPLES: &str = "\
Examples:
  A thousand cases in memory, and what they found made small, as scripts in target/differ:
      cargo xtask differ --seeds 0..1000 --minimise

  One case again, and as a script:
      cargo xtask differ --seeds 17 --storage ext4
      cargo xtask differ --seeds 17 --storage ext4 --print

  A script again, as it was found or edited:
      cargo xtask differ --replay target/differ/tmpfs-17-0.script

  Everything with one option of `elbow run`:
      cargo xtask differ --storage all --seeds 0..500 --options '--mem 8M'

What is found is told by signature, the worst first:
  hang              the job, or a call of it, does not end
  wrong-after-0     exit code 0, and the storage has something else than it should
  not-rolled-back   a job that failed left something else than the old tree
  refused           a job whose command succeeded was rolled back
  seen-inside       the command saw another tree at its end
  answer            a call answered something else

It needs root: it makes mounts (which only it sees, and which go with it), other users, for sshfs a private sshd, and for SFTP OpenSSH's server.

Exit code: 0 when nothing was found that is not known, 1 when something was, 2 when it could not work.";

/// Runs random system calls of several processes and users natively and in `elbow run`, and tells what differs.
#[derive(Parser)]
#[command(name = "differ", version, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    /// The seeds of the cases: one, or from A up to and without B.
    #[arg(long, value_name = "SEED|A..B", default_value = "0..200", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Where: tmpfs, ext4, xfs, btrfs, overlayfs, slowfs, sshfs, sshfs-user, sshfs-other, sftp, sftp-tmpfs; several with commas; or all.
    #[arg(long, value_name = "NAMES", default_value = "tmpfs")]
    storage: String,
    /// Run all jobs with these options of `elbow run` instead of random ones; '' is none.
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
    /// Only the cases of seeds that are of `root`, or of an ordinary `user`.
    #[arg(long, value_name = "WHO", value_parser = parse_runner)]
    runner: Option<Runner>,
    /// Calls of a case: a number, `short` (some 20) or `any` (20 to 400).
    #[arg(long, value_name = "N", default_value = "any", value_parser = parse_length)]
    calls: Length,
    /// Make the first case of each signature, or the scripts of --replay, as small as they get.
    #[arg(long)]
    minimise: bool,
    /// Where scripts go that show something.
    #[arg(long, value_name = "DIR", default_value = "target/differ")]
    save: PathBuf,
    /// Run these scripts instead, on the storage that they name.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    replay: Vec<PathBuf>,
    /// Print the cases as scripts and run nothing.
    #[arg(long)]
    print: bool,
    /// Bugs that wait: lines `storage | signature | why`; they are counted, and are no failure.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "crates/elbow-testkit/corpus/differ/known"
    )]
    known: PathBuf,
    /// Plant a bug in the job, to see that it is found.
    #[arg(long, value_name = "BUG", value_parser = parse_bug)]
    plant: Option<Bug>,
    /// The program under test [default: `elbow` beside this one].
    #[arg(long, value_name = "FILE")]
    elbow: Option<PathBuf>,
    /// Cases at a time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
}

fn parse_seeds(text: &str) -> Result<Range<u64>> {
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("\"{text}\" is no seed"));
    match text.split_once("..") {
        Some((first, end)) => Ok(number(first)?..number(end)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn parse_length(text: &str) -> Result<Length> {
    Ok(match text {
        "short" => Length::Short,
        "any" => Length::Any,
        number => Length::Of(number.parse().context("a number, short or any")?),
    })
}

fn parse_bug(text: &str) -> Result<Bug> {
    let all = Bug::ALL
        .iter()
        .map(elbow_testkit::differ::word::spell)
        .collect::<Vec<_>>();
    Bug::take(text).with_context(|| format!("one of {}", all.join(", ")))
}

fn parse_storages(text: &str) -> Result<Vec<Storage>> {
    if text == "all" {
        return Ok(Storage::ALL.to_vec());
    }
    let one = |name: &str| Storage::of_name(name).with_context(|| format!("there is no storage \"{name}\""));
    text.split(',').map(one).collect()
}

fn main() -> ExitCode {
    if ActorInput::of_environment().is_some() {
        actor::play();
    }
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differ: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing was found that is not known.
fn run(arguments: &Arguments) -> Result<bool> {
    let storages = parse_storages(&arguments.storage)?;
    if arguments.print {
        return print(arguments, &storages).map(|()| true);
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "it needs root, to make mounts and to be other users"
    );
    rustix::process::umask(rustix::fs::Mode::empty()); // Old trees get their modes from their scripts.
    enter_own_mounts().context("making mounts of our own")?;
    let here = std::env::current_exe()?;
    let elbow = arguments.elbow.clone().unwrap_or_else(|| here.with_file_name("elbow"));
    ensure!(elbow.exists(), "{} is not there: cargo build -p elbow", elbow.display());
    let mut programs = Programs::new(&elbow, &here, &[])?;
    programs.bug = arguments.plant;
    let known = if arguments.known.exists() {
        KnownList::with_file(&arguments.known)?
    } else {
        KnownList::limits()
    };
    if !arguments.replay.is_empty() {
        return replay(arguments, &programs, &known);
    }
    let mut clean = true;
    for storage in storages {
        clean &= explore(arguments, storage, &programs, &known)?;
    }
    Ok(clean)
}

fn print(arguments: &Arguments, storages: &[Storage]) -> Result<()> {
    for storage in storages {
        for seed in arguments.seeds.clone() {
            let mut case = draw(seed, *storage, arguments.calls);
            if adjust(arguments, &mut case) {
                write!(io::stdout(), "{}", case.encode())?;
            }
        }
    }
    Ok(())
}

/// Changes a case to what was asked for; whether it is one of those.
fn adjust(arguments: &Arguments, case: &mut Case) -> bool {
    if let Some(options) = &arguments.options {
        case.options = options
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
    }
    arguments.runner.is_none_or(|runner| case.runner == runner)
}

fn parse_runner(text: &str) -> Result<Runner> {
    Runner::of_word(text).with_context(|| format!("\"{text}\" is neither root nor user"))
}

fn explore(arguments: &Arguments, storage: Storage, programs: &Programs, known: &KnownList) -> Result<bool> {
    let test_storage = StorageHost::new(storage).with_context(|| format!("mounting {}", storage.name()))?;
    let trial_context = TrialContext {
        test_storage: &test_storage,
        programs,
        known,
    };
    let began = Instant::now();
    let adjust = |case: &mut Case| adjust(arguments, case);
    let summary = trial_context.run(arguments.seeds.clone(), arguments.calls, arguments.threads, &adjust)?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{}: {} cases, {} calls in {seconds:.1} s",
        storage.name(),
        summary.cases,
        summary.calls
    );
    for (why, count) in summary.known_by_why() {
        println!("  {count:6} known     {why}");
    }
    tell(arguments, &trial_context, &summary)?;
    Ok(summary.found.is_empty())
}

fn tell(arguments: &Arguments, trial_context: &TrialContext<'_>, summary: &Summary) -> Result<()> {
    for (number, ((_, signature), found)) in summary.found.iter().enumerate() {
        let storage = trial_context.test_storage.storage().name();
        println!("  {:6} NEW       {signature} (seed {})", found.count, found.seed);
        let mut case = found.case.clone();
        let mut header = format!(
            "{signature}\nseed {}, {} of {} cases",
            found.seed, found.count, summary.cases
        );
        if arguments.minimise {
            let (small, often) = trial_context.minimise(&case, signature, "small")?;
            case = small;
            header += &format!(", again {often} of 5 times");
            let findings =
                Trial::run(&case, trial_context.test_storage, trial_context.programs, "again")?.findings(&case);
            let now = findings.iter().find(|finding| finding.signature == *signature);
            header += &format!(
                "\n{}",
                now.map_or("(not shown when run once more)", |finding| &finding.detail)
            );
        } else {
            header += &format!("\n{}", found.detail);
        }
        let path = arguments.save.join(format!("{storage}-{}-{number}.script", found.seed));
        save(&path, &case, &header)?;
        println!("             {} calls in {}", case.steps.len(), path.display());
    }
    Ok(())
}

/// A script, with what it shows as its second lines.
fn save(path: &Path, case: &Case, header: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let text = case.encode();
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let said: String = header.lines().map(|line| format!("# {line}\n")).collect();
    std::fs::write(path, format!("{first}\n{said}{rest}")).with_context(|| format!("writing {}", path.display()))
}

fn replay(arguments: &Arguments, programs: &Programs, known: &KnownList) -> Result<bool> {
    let mut clean = true;
    let mut labs: Vec<StorageHost> = Vec::new();
    for path in &arguments.replay {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let case = Case::decode(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        let Some(storage) = Storage::of_name(&case.storage) else {
            bail!("there is no storage \"{}\"", case.storage)
        };
        if !labs.iter().any(|test_storage| test_storage.storage() == storage) {
            labs.push(StorageHost::new(storage)?);
        }
        let test_storage = labs
            .iter()
            .find(|test_storage| test_storage.storage() == storage)
            .context("a lab that was just made")?;
        let findings = Trial::run(&case, test_storage, programs, "replay")?.findings(&case);
        println!(
            "{}: {}",
            path.display(),
            if findings.is_empty() { "no difference" } else { "" }
        );
        for finding in &findings {
            let why = known
                .of(storage, &case, finding)
                .map(|known| format!(" (known: {})", known.why));
            clean &= why.is_some();
            println!("  {}{}\n{}", finding.signature, why.unwrap_or_default(), finding.detail);
        }
        if let Some(finding) = findings.first().filter(|_| arguments.minimise) {
            let trial_context = TrialContext {
                test_storage,
                programs,
                known,
            };
            let (small, often) = trial_context.minimise(&case, &finding.signature, "small")?;
            let said = format!(
                "{}\nshown {often} of 5 times before it was made small\n{}",
                finding.signature, finding.detail
            );
            let path = arguments.save.join(path.file_name().context("a script has a name")?);
            save(&path, &small, &said)?;
            println!("  {} calls in {}", small.steps.len(), path.display());
        }
    }
    Ok(clean)
}
