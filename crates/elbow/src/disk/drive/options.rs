//! What `elbow disk attach` is told: the drive, how it is driven, and its backing file.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum, ValueHint, value_parser};
use elbow_disk::sched::Scheduler;
use elbow_disk::{Drive, SECTOR_BYTES};
use elbow_drive::{Driving, Settings};
use rustix::fs::{FlockOperation, flock};

use crate::attached::server::OfferArgs;
use crate::output::print_message;
use crate::size;

/// Deeper queues tell a scheduler nothing more.
const DEPTH_MAX: u32 = 256;

#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    /// The drive: a name (`elbow disk describe` lists them), or a description file.
    #[arg(long, value_name = "DISK", default_value = "generic-7200")]
    model: String,
    /// Where its bytes are; made where there is none.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) backing: PathBuf,
    /// Offer the first N bytes of the drive [default: as many as the backing file has; if it has none, all].
    #[arg(long, value_name = "N", value_parser = size::parse)]
    size: Option<u64>,
    /// When a write is complete: when the drive has it, or when the medium has it [default: as described].
    #[arg(long, value_enum, value_name = "CACHE")]
    cache: Option<CacheMode>,
    /// How many requests the drive knows, with the one that it serves.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u32).range(1..=DEPTH_MAX.into()))]
    depth: u32,
    /// Who picks among them: fcfs, sstf, sptf, asptf, asptf:W, scan, c-look, ecs, ecs:K, hrs or hrs:whole.
    #[arg(long, value_name = "NAME", default_value = "asptf")]
    pub(super) scheduler: Scheduler,
    /// Fail when detached if any answer was later than this, as 500us or 5ms.
    #[arg(long, value_name = "T", value_parser = duration)]
    pub(super) max_lateness: Option<Duration>,
    /// Write a row for each read and write there, comma-separated, as `elbow disk replay` reads them.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    log: Option<PathBuf>,
    #[command(flatten)]
    pub(super) offer: OfferArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CacheMode {
    /// When the drive has it; a flush waits for the medium.
    WriteBack,
    /// When the medium has it.
    WriteThrough,
}

/// A time with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    });
    parsed.ok_or_else(|| "write a number and us, ms or s, as 500us".to_owned())
}

impl AttachArgs {
    /// The drive as it is to be driven, and the backing file.
    pub(super) fn settings(&self) -> Result<(Settings, File)> {
        let drive = self.drive()?;
        let write_through = self.cache == Some(CacheMode::WriteThrough);
        let sectors = self.sectors(&drive)?;
        let backing = open(&self.backing, sectors * SECTOR_BYTES)?;
        let driving = Driving {
            scheduler: self.scheduler,
            depth: self.depth as usize,
            write_through,
        };
        let settings = Settings {
            drive: Arc::new(drive),
            driving,
            sectors,
            lateness_max: self.max_lateness,
        };
        Ok((settings, backing))
    }

    /// The file for the rows, if there is to be one.
    #[allow(clippy::disallowed_methods, reason = "a report beside the emulation")]
    pub(super) fn log(&self) -> Result<Option<File>> {
        let open = |path: &PathBuf| {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path);
            file.with_context(|| format!("cannot make the log {}", path.display()))
        };
        self.log.as_ref().map(open).transpose()
    }

    fn drive(&self) -> Result<Drive> {
        let drive = Drive::named(&self.model)?;
        if self.cache != Some(CacheMode::WriteBack) || drive.caches_writes() {
            return Ok(drive);
        }
        let drive = drive.caching_writes();
        ensure!(
            drive.caches_writes(),
            "{}: it has no memory that could be a write cache; describe a [cache] of it",
            self.model
        );
        print_message(format_args!(
            "{}: a write cache is assumed, the description has none",
            self.model
        ));
        Ok(drive)
    }

    /// How many are offered. Nothing is made yet.
    #[allow(clippy::disallowed_methods, reason = "the backing file")]
    fn sectors(&self, drive: &Drive) -> Result<u64> {
        // Whatever is wrong with it is told when it is opened.
        let has = self.backing.metadata().map_or(0, |found| found.len());
        let whole = drive.sectors() * SECTOR_BYTES;
        let (bytes, named, instead) = match (self.size, has) {
            (Some(size), _) => (size, "--size".to_owned(), "less"),
            (None, 0) => (whole, self.model.clone(), "--size"),
            (None, has) => (has, self.backing.display().to_string(), "--size"),
        };
        ensure!(
            bytes <= whole,
            "{named}: {bytes} bytes are more than the drive has, {whole}: say {instead}, or take another --model"
        );
        let next = bytes.next_multiple_of(SECTOR_BYTES);
        ensure!(
            bytes == next,
            "{named}: {bytes} bytes are no whole number of sectors of {SECTOR_BYTES}; {next} are{}",
            if self.size.is_some() { "" } else { ": say --size" }
        );
        Ok(bytes / SECTOR_BYTES)
    }
}

/// Opens the backing file for this drive alone, and makes it at least so long.
#[allow(clippy::disallowed_methods, reason = "the backing file")]
fn open(path: &Path, bytes: u64) -> Result<File> {
    let name = path.display();
    let is_new = !path.exists();
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    // What is on a drive is for its user alone, whatever the permissions of the files on it.
    let file = options.mode(0o600).open(path);
    let file = file.with_context(|| format!("cannot open the backing file {name}"))?;
    if !file.metadata()?.is_file() {
        bail!("{name}: the backing of a drive is an ordinary file");
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| anyhow::anyhow!("{name}: another drive has it"))?;
    if file.metadata()?.len() < bytes
        && let Err(error) = file.set_len(bytes)
    {
        if is_new {
            // It is empty, and nobody asked for that.
            let _ = std::fs::remove_file(path);
        }
        return Err(error).with_context(|| format!("{name}: cannot be made {bytes} bytes long"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        for wrong in ["5", "ms", "-1s", "5m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
