//! `elbow sort` for records: into another file, or in place and resumable.

#![allow(
    clippy::disallowed_methods,
    reason = "files named on the command line are looked at before they are sorted"
)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use elbow_extmem::sort::{
    self, Key, Memory, Meter, Options, Output, RecordFormat, SortError, Summary, Target, side_directory,
};
use elbow_file::{Errno, Handle, RealStorage, RenameMode, Storage};
use serde_json::json;

use super::args::SortArgs;
use super::memory;
use crate::meter::Meter as Display;
use crate::say::{raw, say};
use crate::signals::{self, Event};
use crate::{allocator, exit, size};

/// How often progress is shown and the space that is taken is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Threads by themselves; more help little with one disk.
const THREADS_MAX: usize = 8;
const NEW_FILE_MODE: u32 = 0o666;

/// Sorts records as asked.
pub(super) fn run(args: &SortArgs) -> Result<ExitCode> {
    allocator::return_large_pieces();
    refuse_what_is_for_text(args)?;
    let options = Options {
        memory_bytes: memory::bytes(&args.buffer_size)?,
        threads: threads(args)?,
        stable: args.text.stable,
    };
    if args.records.resume {
        return in_place(args, one_file(args)?, &options, None);
    }
    let format = format(args)?;
    if args.records.dry_run {
        return dry_run(args, &format, &options);
    }
    if args.records.in_place {
        return in_place(args, one_file(args)?, &options, Some(&format));
    }
    copying(args, &format, &options)
}

fn refuse_what_is_for_text(args: &SortArgs) -> Result<()> {
    let text = &args.text;
    let given = [
        (text.check_loud || text.check_quiet || text.check.is_some(), "-c"),
        (text.merge, "-m"),
        (text.unique, "-u"),
        (text.numeric_sort, "-n"),
        (text.general_numeric_sort, "-g"),
        (text.human_numeric_sort, "-h"),
        (text.month_sort, "-M"),
        (text.version_sort, "-V"),
        (text.dictionary_order, "-d"),
        (text.ignore_case, "-f"),
        (text.ignore_leading_blanks, "-b"),
        (text.ignore_nonprinting, "-i"),
        (text.zero_terminated, "-z"),
        (text.reverse, "-r (write :desc behind a key)"),
        (!text.field_separator.is_empty(), "-t"),
        (text.files0_from.is_some(), "--files0-from"),
        (!text.compress_program.is_empty(), "--compress-program"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => bail!("{option} is for lines of text, not for records"),
        None => Ok(()),
    }
}

fn threads(args: &SortArgs) -> Result<usize> {
    match &args.parallel {
        None => Ok(std::thread::available_parallelism()
            .map_or(1, |n| n.get())
            .min(THREADS_MAX)),
        Some(text) => match text.parse() {
            Ok(threads) if threads > 0 => Ok(threads),
            _ => bail!("invalid --parallel argument '{text}'"),
        },
    }
}

fn format(args: &SortArgs) -> Result<RecordFormat> {
    if args.records.gensort {
        ensure!(
            args.text.key.is_empty(),
            "--gensort says what the key is; leave --key out, or write --record 100"
        );
        return Ok(RecordFormat::gensort());
    }
    let bytes = args.records.record;
    let bytes =
        bytes.context("--in-place needs to know the records: --record BYTES --key OFFSET:WIDTH:TYPE, or --gensort")?;
    let keys: Vec<Key> = args
        .text
        .key
        .iter()
        .map(|key| key.parse().map_err(anyhow::Error::msg))
        .collect::<Result<_>>()?;
    RecordFormat::new(bytes, keys).map_err(anyhow::Error::msg)
}

fn one_file(args: &SortArgs) -> Result<&OsStr> {
    ensure!(
        args.output.is_empty(),
        "-o cannot be used with a sort in place: the file itself is sorted"
    );
    match args.files.as_slice() {
        [name] if name == "-" => bail!("standard input cannot be sorted in place; name a file"),
        [name] => Ok(name),
        [] => bail!("which file? A sort in place needs one"),
        _ => bail!("a sort in place takes one file, not {}", args.files.len()),
    }
}

/// The file that a name leads to, through symbolic links.
fn target(name: &OsStr) -> Result<Target> {
    let shown = Path::new(name).display();
    let path = Path::new(name).canonicalize().with_context(|| format!("{shown}"))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{shown}: cannot be sorted in place: it is not a regular file");
    };
    let dir = RealStorage::open_root(parent).with_context(|| format!("opening {}", parent.display()))?;
    Ok(Target {
        dir,
        name: name.to_owned(),
        path: path.clone(),
    })
}

/// Sorts a file in place, or goes on with that where no format is given.
fn in_place(args: &SortArgs, name: &OsStr, options: &Options, format: Option<&RecordFormat>) -> Result<ExitCode> {
    let target = target(name)?;
    let watch = Watch::new(args, &target.path.display().to_string(), Some(&target));
    let ended = watch.over(|meter| match format {
        Some(format) => sort::sort_in_place(&RealStorage, &target, format, options, meter),
        None => sort::resume(&RealStorage, &target, options, meter),
    });
    match ended {
        Ok(summary) => watch.report(&summary),
        Err(error) => {
            let begun = sort::is_unfinished(&RealStorage, &target).unwrap_or(true);
            let hint = if begun { resume_hint(&error, name) } else { None };
            watch.fail(&error, hint)
        }
    }
}

fn resume_hint(error: &SortError, name: &OsStr) -> Option<String> {
    let command = format!("elbow sort --resume {}", Path::new(name).display());
    match error {
        SortError::Storage {
            errno: Errno::NOSPC | Errno::DQUOT,
            ..
        } => Some(format!("nothing is lost; make room, and continue with: {command}")),
        error if error.is_resumable() => Some(format!("nothing is lost; continue with: {command}")),
        _ => None,
    }
}

/// Sorts one or more inputs into a file or to standard output.
fn copying(args: &SortArgs, format: &RecordFormat, options: &Options) -> Result<ExitCode> {
    let mut input = Inputs::new(args, format)?;
    let dir_path = args
        .temporary_directory
        .first()
        .cloned()
        .unwrap_or_else(default_temporary_directory);
    let temporary = RealStorage::open_root(&dir_path).with_context(|| format!("opening {}", dir_path.display()))?;
    let shown = input.name.display().to_string();
    let watch = Watch::new(args, &shown, None);
    let name = input.name.clone();
    let ended = match args.output.last() {
        Some(path) => {
            let draft = Draft::new(path)?;
            let output = Output::File(draft.file.clone(), path.clone());
            let sorted = watch.over(|meter| {
                sort::sort(
                    &RealStorage,
                    (&mut input, name),
                    output,
                    (temporary, dir_path),
                    format,
                    options,
                    meter,
                )
            });
            if sorted.is_ok() {
                draft.publish()?;
            }
            sorted
        }
        None => {
            let mut stdout = std::io::stdout();
            let output = Output::Stream(&mut stdout);
            watch.over(|meter| {
                sort::sort(
                    &RealStorage,
                    (&mut input, name),
                    output,
                    (temporary, dir_path),
                    format,
                    options,
                    meter,
                )
            })
        }
    };
    match ended {
        Ok(summary) => watch.report(&summary),
        Err(error) => watch.fail(&error, None),
    }
}

fn default_temporary_directory() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

/// The inputs, one after the other.
struct Inputs {
    name: PathBuf,
    left: std::vec::IntoIter<OsString>,
    now: Option<Box<dyn Read + Send>>,
}

impl Inputs {
    /// Looks at all files first, so that a mistake in the last one does not show after hours.
    fn new(args: &SortArgs, format: &RecordFormat) -> Result<Self> {
        let standard_input = [OsString::from("-")];
        let files = if args.files.is_empty() {
            &standard_input[..]
        } else {
            &args.files
        };
        for name in files.iter().filter(|name| *name != "-") {
            let path = Path::new(name);
            let found = File::open(path)
                .and_then(|file| file.metadata())
                .with_context(|| format!("{}", path.display()))?;
            let (size, record) = (found.len(), format.bytes() as u64);
            if found.is_file() && !size.is_multiple_of(record) {
                let path = path.to_owned();
                return Err(SortError::Truncated { path, size, record }.into());
            }
        }
        Ok(Self {
            name: files.first().map(PathBuf::from).unwrap_or_default(),
            left: Vec::from(files).into_iter(),
            now: None,
        })
    }
}

impl Read for Inputs {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(now) = &mut self.now {
                match now.read(buffer)? {
                    0 if !buffer.is_empty() => self.now = None,
                    got => return Ok(got),
                }
            }
            match self.left.next() {
                None => return Ok(0),
                Some(name) if name == "-" => self.now = Some(Box::new(std::io::stdin())),
                Some(name) => self.now = Some(Box::new(File::open(name)?)),
            }
        }
    }
}

/// The output under another name, until it is complete; then it takes its own, and what had that is gone.
struct Draft {
    dir: Handle,
    file: Handle,
    draft: OsString,
    name: OsString,
    published: std::cell::Cell<bool>,
}

impl Draft {
    fn new(path: &Path) -> Result<Self> {
        let shown = path.display();
        let name = path
            .file_name()
            .with_context(|| format!("{shown}: is no name for a file"))?
            .to_owned();
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let dir = RealStorage::open_root(parent).with_context(|| format!("opening {}", parent.display()))?;
        let mut draft = OsString::from(".");
        draft.push(&name);
        draft.push(format!(".elbow-sort-{}", std::process::id()));
        let mode = path.metadata().map_or(NEW_FILE_MODE & !umask(), |found| {
            std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o7777
        });
        let file = RealStorage
            .create(&dir, &draft, mode)
            .with_context(|| format!("creating the output {shown}"))?;
        let published = std::cell::Cell::new(false);
        Ok(Self {
            dir,
            file,
            draft,
            name,
            published,
        })
    }

    fn publish(&self) -> Result<()> {
        let renamed = RealStorage.rename(&self.dir, &self.draft, &self.dir, &self.name, RenameMode::Replace);
        renamed.with_context(|| format!("naming the output {}", Path::new(&self.name).display()))?;
        self.published.set(true);
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published.get() {
            // Whoever hears of the failure can remove what is left.
            let _ = RealStorage.unlink(&self.dir, &self.draft);
        }
    }
}

fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

/// Says what a sort would need.
fn dry_run(args: &SortArgs, format: &RecordFormat, options: &Options) -> Result<ExitCode> {
    let memory = Memory::divide(options.memory_bytes, format, options.threads).map_err(anyhow::Error::msg)?;
    let mut bytes = 0;
    for name in &args.files {
        ensure!(name != "-", "the size of standard input is not known before it is read");
        let path = Path::new(name);
        bytes += path.metadata().with_context(|| format!("{}", path.display()))?.len();
    }
    let need = memory.need(bytes);
    let more = if args.records.in_place {
        need.headroom_bytes
    } else {
        bytes
    };
    let answer = json!({
        "records": bytes / format.bytes() as u64, "bytes": bytes, "memory_bytes": options.memory_bytes,
        "runs": need.runs, "passes": need.passes, "temporary_bytes": more, "in_place": args.records.in_place,
        "read_bytes": bytes * (1 + need.passes), "written_bytes": bytes * (1 + need.passes),
    });
    if args.records.json {
        raw(answer);
        return Ok(ExitCode::SUCCESS);
    }
    say(format_args!(
        "{} records, {}: {} runs, {} of merging, {} of memory",
        bytes / format.bytes() as u64,
        size::show(bytes),
        need.runs,
        if need.passes == 1 {
            "one pass".to_owned()
        } else {
            format!("{} passes", need.passes)
        },
        size::show(options.memory_bytes as u64)
    ));
    let whereby = if args.records.in_place {
        "beside the file itself"
    } else {
        "for runs, beside input and output"
    };
    say(format_args!("disk space needed {whereby}: {}", size::show(more)));
    Ok(ExitCode::SUCCESS)
}

/// Follows a sort: shows progress, takes signals, sees how much space is taken, and reports.
struct Watch<'a> {
    args: &'a SortArgs,
    shown: String,
    in_place: Option<&'a Target>,
    meter: Meter,
    began: Instant,
    stopped_by: AtomicBool,
    peak_bytes: AtomicU64,
}

impl<'a> Watch<'a> {
    fn new(args: &'a SortArgs, shown: &str, in_place: Option<&'a Target>) -> Self {
        Self {
            args,
            shown: shown.to_owned(),
            in_place,
            meter: Meter::default(),
            began: Instant::now(),
            stopped_by: AtomicBool::new(false),
            peak_bytes: AtomicU64::new(0),
        }
    }

    /// Runs a sort and watches it from another thread.
    fn over(&self, sort: impl FnOnce(&Meter) -> sort::Result<Summary>) -> sort::Result<Summary> {
        signals::block();
        let (events, received) = mpsc::channel();
        let silent = self.args.records.quiet || self.args.records.json;
        if signals::listen(events.clone()).is_err() {
            say("cannot listen to signals; Ctrl-C will have no effect");
        }
        std::thread::scope(|scope| {
            let display = Display::new(format!("sorting {}", self.shown), silent);
            scope.spawn(move || self.look(&received, display));
            let ended = sort(&self.meter);
            let _ = events.send(Event::Over); // the other thread waits for it
            ended
        })
    }

    fn look(&self, events: &mpsc::Receiver<Event>, mut display: Display) {
        loop {
            match events.recv_timeout(LOOK_INTERVAL) {
                Ok(Event::Signal(_)) => {
                    self.stopped_by.store(true, Ordering::Relaxed);
                    self.meter.stop();
                }
                Ok(Event::Over | Event::Ended(_)) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            self.peak_bytes.fetch_max(self.taken_bytes(), Ordering::Relaxed);
            display.show(self.meter.done_bytes(), self.meter.total_bytes());
        }
    }

    /// Space that the file and what is beside it take now, as the file system says.
    fn taken_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let Some(target) = self.in_place else { return 0 };
        let beside = side_directory(&target.path).read_dir().into_iter().flatten().flatten();
        let files = beside.map(|entry| entry.path()).chain([target.path.clone()]);
        files
            .filter_map(|path| path.metadata().ok())
            .map(|found| found.blocks() * 512)
            .sum()
    }

    fn report(&self, summary: &Summary) -> Result<ExitCode> {
        let seconds = self.began.elapsed().as_secs_f64();
        let (read, written) = (self.meter.read_bytes(), self.meter.written_bytes());
        let peak = self.peak_bytes.load(Ordering::Relaxed);
        let peak = (self.in_place.is_some() && peak > 0).then_some(peak);
        if self.args.records.json {
            raw(json!({
                "outcome": "sorted", "records": summary.records, "bytes": summary.bytes, "runs": summary.runs,
                "passes": summary.passes, "seconds": seconds, "read_bytes": read, "written_bytes": written,
                "freed_bytes": self.meter.freed_bytes(), "peak_disk_bytes": peak,
            }));
        } else if !self.args.records.quiet && (self.in_place.is_some() || !self.args.output.is_empty()) {
            let peak = peak.map_or(String::new(), |peak| {
                format!(
                    ", at most {} of disk ({:.2}x)",
                    size::show(peak),
                    peak as f64 / summary.bytes.max(1) as f64
                )
            });
            say(format_args!(
                "sorted {} records ({}) in {seconds:.1} s: read {}, wrote {}{peak}",
                summary.records,
                size::show(summary.bytes),
                size::show(read),
                size::show(written)
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn fail(&self, error: &SortError, hint: Option<String>) -> Result<ExitCode> {
        let code = if self.stopped_by.load(Ordering::Relaxed) {
            exit::INTERRUPTED
        } else {
            exit::SORT_TROUBLE
        };
        if self.args.records.json {
            raw(json!({ "outcome": "failed", "error": error.to_string(), "hint": hint, "exit_code": code }));
            return Ok(ExitCode::from(code));
        }
        say(error);
        if let Some(hint) = hint {
            say(hint);
        }
        Ok(ExitCode::from(code))
    }
}
