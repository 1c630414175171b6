//! A real ext4 with its journal on a region: power cuts at any moment of both disks together, journal writes torn.
//!
//! ```text
//!   ext4 ──loop──> data disk      (every write and flush is a moment)     cut at one: any subset of what was not flushed
//!     └───loop──> region ──> journal disk (the same)                      any subset, in any sectors
//! ```
//!
//! Both disks are doubles that know what they would leave. After a run some moments are cut: the region is opened, its content is the journal that
//! e2fsck replays, and the file system has to be clean and to have each file whose fsync(2) had returned by then.

#![allow(clippy::disallowed_methods, reason = "mounts and files of tests")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use elbow_disk::region::Region;
use elbow_drive::{Answer, Ask, Attachment, AttachmentKind, BlockDevice, DriveFault, Link, Reply, ServedRegion};
use elbow_file::range_device::{
    Blocking, Completion, CutImage, MemoryDevice, PowerCut, RangeDevice, RangeError, Request, Shape, Ticket,
    VolatileDevice,
};
use elbow_testkit::cases;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

const DATA_SECTORS: u64 = 32 << 10; // 16 MiB
const JOURNAL_SECTORS: u64 = 4 << 10; // 2 MiB, the least that ext4 takes with blocks of 1 KiB.
const REGION_SECTORS: u64 = 3 * JOURNAL_SECTORS;
const FILES: usize = 60;
/// Moments that are cut in a run, and what is tried of each.
const CUTS: usize = 8;
const IMAGES_PER_CUT: usize = 2;
/// For what others let go of by themselves, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Disk = Blocking<VolatileDevice<MemoryDevice>>;

/// Both disks, and what happened on them in one order.
struct World {
    data: Disk,
    journal: VolatileDevice<MemoryDevice>,
    /// Moments of both, after each event.
    timeline: Vec<(usize, usize)>,
    /// Files whose fsync(2) has returned: the length of the timeline then, and what they are called.
    synced: Vec<(usize, String)>,
    /// The planted mistake: a flush of the journal's disk is acknowledged, and makes nothing durable.
    flushes_early: bool,
    early: u64,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new(seed: u64) -> Shared {
        Arc::new(Mutex::new(World {
            data: Blocking::new(VolatileDevice::new(MemoryDevice::new(512, DATA_SECTORS))),
            journal: VolatileDevice::new(MemoryDevice::capricious(512, REGION_SECTORS, seed)),
            timeline: Vec::new(),
            synced: Vec::new(),
            flushes_early: false,
            early: 0,
        }))
    }

    fn happened(&mut self) {
        let now = (self.data.device().now(), self.journal.now());
        self.timeline.push(now);
    }

    fn ask_data(&mut self, ask: &Ask) -> Result<Vec<u8>, RangeError> {
        let mut through = false;
        let read = match ask {
            Ask::Read { at, sectors } => self.data.read(*at, u64::from(*sectors))?,
            Ask::Write {
                at,
                data,
                through: is_through,
            } => {
                through = *is_through;
                self.data.write(*at, data)?;
                Vec::new()
            }
            Ask::WriteZeros { at, sectors, .. } | Ask::Trim { at, sectors, .. } => {
                self.data.write(*at, &vec![0; *sectors as usize * 512])?;
                Vec::new()
            }
            Ask::Flush => {
                through = true;
                Vec::new()
            }
        };
        if through {
            self.data.flush()?;
        }
        self.happened();
        Ok(read)
    }
}

/// The data disk as something that can be attached.
struct DataDisk(Shared);

impl BlockDevice for DataDisk {
    fn submit(&self, ask: Ask, reply: Reply) {
        let done: Answer = lock(&self.0).ask_data(&ask).map_err(|_| DriveFault::NoSuchSectors);
        reply(done);
    }

    fn sectors(&self) -> u64 {
        DATA_SECTORS
    }

    fn is_rotational(&self) -> bool {
        true
    }
}

/// The journal's disk, below the region.
struct JournalDisk(Shared);

impl RangeDevice for JournalDisk {
    fn shape(&self) -> Shape {
        lock(&self.0).journal.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        let mut world = lock(&self.0);
        let request = match request {
            Request::Flush if world.flushes_early => {
                world.early += 1;
                Request::Barrier
            }
            other => other,
        };
        let ticket = world.journal.submit(request)?;
        world.happened();
        Ok(ticket)
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut world = lock(&self.0);
        let completion = world.journal.poll();
        world.happened();
        completion
    }

    fn wait(&mut self) -> Option<Completion> {
        let mut world = lock(&self.0);
        let completion = world.journal.wait();
        world.happened();
        completion
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root() && File::open("/dev/fuse").is_ok();
    if !is_root {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI, and this machine lacks root or FUSE"
        );
        eprintln!("SKIPPED: this machine lacks root or FUSE");
    }
    is_root
}

/// What a program says, and whether it ended with one of these codes.
fn run(program: &str, args: &[&str], codes: &[i32]) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new("timeout");
    let output = command
        .args(["60", program])
        .args(args)
        .env("PATH", path)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.code().is_some_and(|code| codes.contains(&code)) {
        true => Ok(said),
        false => Err(format!("{program} {args:?}: {:?}: {said}", output.status)),
    }
}

fn must(program: &str, args: &[&str]) -> String {
    run(program, args, &[0]).unwrap_or_else(|said| panic!("{said}"))
}

/// A mount that goes with the test.
struct Mounted<'p>(&'p Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

fn content(name: &str) -> String {
    format!("this is {name}\n").repeat(1 + name.len() * 40)
}

/// Makes the file system, writes files with fsync(2) and others without, and leaves what happened.
fn history(seed: u64, flushes_early: bool, directory: &TempDir) -> World {
    let world = World::new(seed);
    let region = Region::format(JournalDisk(Arc::clone(&world)), JOURNAL_SECTORS, seed).expect("there is room");
    let served = ServedRegion::start(region).expect("it starts");
    let at = |name: &str| directory.path().join(name);
    let attach = |name: &str, link| Attachment::open(&AttachmentKind::Loop(at(name)), link).expect("it is attached");
    let mut journal = attach("journal", served.link());
    let mut data = attach("data", Link::to(DataDisk(Arc::clone(&world))));
    must("mke2fs", &["-q", "-b", "1024", "-O", "journal_dev", &journal.name()]);
    let device = format!("device={}", journal.name());
    must("mkfs.ext4", &["-q", "-b", "1024", "-J", &device, &data.name()]);
    let point = at("mounted");
    std::fs::create_dir(&point).expect("a directory");
    must(
        "mount",
        &["-o", "commit=60", &data.name(), &point.display().to_string()],
    );
    let mounted = Mounted(&point);
    lock(&world).flushes_early = flushes_early;
    write_files(&world, &point, seed);
    // What is between the last fsync and now is lost or not, as the cut has it.
    drop(mounted);
    closed(&mut data);
    closed(&mut journal);
    drop((data, journal));
    served.stop().expect("it stops");
    // A thread of a device that has answered its last may have it for a moment.
    let deadline = Instant::now() + PATIENCE;
    while Arc::strong_count(&world) > 1 {
        assert!(Instant::now() < deadline, "somebody still has it");
        std::thread::sleep(Duration::from_millis(10));
    }
    Arc::into_inner(world)
        .expect("nobody has it any more")
        .into_inner()
        .expect("nobody panicked")
}

/// The kernel lets go of a device a moment after it was unmounted.
fn closed(attachment: &mut Attachment) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = attachment.close() {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn write_files(world: &Shared, point: &Path, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..FILES {
        let name = format!("file-{number}");
        let mut file = File::create(point.join(&name)).expect("it is made");
        file.write_all(content(&name).as_bytes()).expect("it writes");
        if rng.random_ratio(2, 3) {
            file.sync_all().expect("it syncs");
            let mut world = lock(world);
            let now = world.timeline.len();
            world.synced.push((now, name));
        }
    }
}

/// What was found in a run, so that a test knows that it has tested something.
#[derive(Debug, Default)]
struct Seen {
    images: usize,
    lost: usize,
    replayed: usize,
    synced: usize,
}

/// Cuts the power at some moments of a history.
fn check(world: &mut World, seed: u64, directory: &TempDir, seen: &mut Seen) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let first = world.synced.first().expect("a file was synced").0;
    for _ in 0..CUTS {
        let moment = rng.random_range(first..world.timeline.len());
        let (data_moment, journal_moment) = world.timeline[moment];
        let data = world.data.device().cut_at(data_moment);
        let journal = world.journal.cut_at(journal_moment);
        seen.lost += usize::from(data.pending() + journal.pending() > 0);
        let synced = world.synced.iter().filter(|(since, _)| *since <= moment);
        let synced: Vec<&str> = synced.map(|(_, name)| name.as_str()).collect();
        for _ in 0..IMAGES_PER_CUT {
            let (data, journal) = (data_image(&data, &mut rng), journal_image(&journal, &mut rng));
            let told = |finding| format!("moment {moment}, data {data}, journal {journal}: {finding}");
            check_image(&data, &journal, &synced, directory, seen).map_err(told)?;
        }
    }
    Ok(())
}

/// Writes are lost whole: a superblock of ext4 of which one sector is new is not ext4's to bear.
fn data_image(cut: &PowerCut, rng: &mut StdRng) -> CutImage {
    let is_whole = |image: &CutImage| !image.to_string().split(" (").next().unwrap_or_default().contains('~');
    let mut images = cut.images(rng.random()).filter(is_whole);
    let none = images.next().expect("one in which nothing survives");
    images.take(rng.random_range(0..4)).last().unwrap_or(none)
}

/// The region has to bear any, the torn ones too, which come last.
fn journal_image(cut: &PowerCut, rng: &mut StdRng) -> CutImage {
    let images = cut.images(rng.random());
    images
        .take(rng.random_range(1..=320))
        .last()
        .expect("one in which nothing survives")
}

fn check_image(
    data: &CutImage,
    journal: &CutImage,
    synced: &[&str],
    directory: &TempDir,
    seen: &mut Seen,
) -> Result<(), String> {
    let at = |name: &str| directory.path().join(name);
    let (data_file, journal_file, out) = (at("data.img"), at("journal.img"), at("found"));
    std::fs::write(&data_file, data.read(0..DATA_SECTORS)).expect("it writes");
    let mut region = Region::open(journal.to_memory()).map_err(|error| error.to_string())?;
    let content_of_journal = region.read(0, JOURNAL_SECTORS).map_err(|error| error.to_string())?;
    std::fs::write(&journal_file, content_of_journal).expect("it writes");
    let (data_file, journal_file) = (shown(&data_file), shown(&journal_file));
    let replayed = run(
        "e2fsck",
        &["-y", "-E", "journal_only", "-j", &journal_file, &data_file],
        &[0, 1],
    )?;
    seen.replayed += usize::from(replayed.contains("recovering journal"));
    run("e2fsck", &["-fn", "-j", &journal_file, &data_file], &[0])?;
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).expect("a directory");
    run(
        "debugfs",
        &["-R", &format!("rdump / {}", shown(&out)), &data_file],
        &[0],
    )?;
    for name in synced {
        let found = std::fs::read_to_string(out.join(name)).map_err(|error| format!("{name}: {error}"))?;
        if found != content(name) {
            return Err(format!("{name} has another content, of {} bytes", found.len()));
        }
    }
    seen.images += 1;
    seen.synced += synced.len();
    Ok(())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn ext4_has_what_was_synced_after_any_power_cut() {
    if !is_root() {
        return;
    }
    let mut seen = Seen::default();
    for seed in cases::seeds(2) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut world = history(seed, false, &directory);
        check(&mut world, seed, &directory, &mut seen).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
    println!("{seen:?}");
    assert!(seen.lost > 0 && seen.replayed > 0 && seen.synced > 0, "{seen:?}");
}

#[test]
fn a_flush_that_is_acknowledged_early_is_found() {
    if !is_root() {
        return;
    }
    let finding = (0..4).find_map(|seed| {
        let directory = tempfile::tempdir().expect("a directory");
        let mut world = history(seed, true, &directory);
        assert!(world.early > 0, "it was planted");
        check(&mut world, seed, &directory, &mut Seen::default()).err()
    });
    println!("{finding:?}");
    assert!(finding.is_some(), "nothing was found in four runs");
}
