//! Both ends of a connection in one process, over a real socket and a real directory.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests look at the storage themselves"
)]

use std::ffi::OsStr;
use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use elbow_file::{Access, Errno, FarEnd, FarWorker, Handle, Order, RealStorage, RenameMode, Storage, Time, Worked};
use elbow_remote::{ConnectError, RemoteStorage, ServeError, greeted};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Opens a directory below the one that it is given, slowly, and says back what it was told.
struct SlowOpener;

impl FarWorker for SlowOpener {
    fn work(&self, on: &[Handle], order: &[u8], content: Vec<u8>) -> Result<Worked, Errno> {
        std::thread::sleep(Duration::from_millis(50));
        let name = std::str::from_utf8(order).map_err(|_| Errno::PROTO)?;
        Ok(Worked {
            made: vec![Some(RealStorage.open_dir(&on[0], OsStr::new(name))?)],
            answer: content,
        })
    }
}

/// Says that it has begun, and does nothing until it is told to.
struct HeldWorker {
    has_begun: SyncSender<()>,
    may_go_on: Mutex<Receiver<()>>,
}

impl FarWorker for HeldWorker {
    fn work(&self, _: &[Handle], _: &[u8], _: Vec<u8>) -> Result<Worked, Errno> {
        let _ = self.has_begun.send(());
        let _ = self.may_go_on.lock().unwrap().recv();
        Ok(Worked {
            made: Vec::new(),
            answer: Vec::new(),
        })
    }
}

type Served = JoinHandle<Result<(), ServeError>>;

fn serve(stream: UnixStream, root: &Path) -> Served {
    serve_by(SlowOpener, stream, root)
}

fn serve_by(worker: impl FarWorker + 'static, stream: UnixStream, root: &Path) -> Served {
    let root = RealStorage::open_root(root).unwrap();
    std::thread::spawn(move || {
        let to = stream.try_clone().unwrap();
        greeted(stream, to)?.serve(&RealStorage, root, &worker)
    })
}

fn connected(root: &Path) -> (RemoteStorage, Served) {
    let (near, far) = UnixStream::pair().unwrap();
    let served = serve(far, root);
    let to = near.try_clone().unwrap();
    let closed = near.try_clone().unwrap();
    let storage = RemoteStorage::connect("here", near, ClosesWriting(to, closed)).unwrap();
    (storage, served)
}

/// A socket whose other end hears that nothing more comes when this is dropped, as with a pipe.
struct ClosesWriting(UnixStream, UnixStream);

impl Write for ClosesWriting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for ClosesWriting {
    fn drop(&mut self) {
        let _ = self.1.shutdown(Shutdown::Write);
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "..", "a/b"];

/// One random call on a directory, and what it says; both storages get the same.
fn call(storage: &dyn Storage, dir: &Handle, random: &mut SmallRng) -> String {
    let name = |random: &mut SmallRng| OsStr::new(NAMES[random.random_range(0..NAMES.len())]);
    let (at, to) = (name(random), name(random));
    let offset = random.random_range(0..3_000_000u64);
    let data = vec![random.random::<u8>(); random.random_range(0..2_500_000)];
    let time = Some(Time {
        seconds: 1_000_000_007,
        nanoseconds: 5,
    });
    let open = |access| storage.open(dir, at, access);
    match random.random_range(0..17) {
        0 => format!("{:?}", storage.create(dir, at, 0o640).map(drop)),
        1 => format!("{:?}", storage.mkdir(dir, at, 0o751)),
        2 => format!("{:?}", storage.symlink(to, dir, at)),
        3 => format!("{:?}", storage.link(dir, at, dir, to)),
        4 => format!("{:?}", storage.rename(dir, at, dir, to, RenameMode::NoReplace)),
        5 => format!("{:?}", storage.rename(dir, at, dir, to, RenameMode::Exchange)),
        6 => format!("{:?}", storage.unlink(dir, at)),
        7 => format!("{:?}", storage.rmdir(dir, at)),
        8 => format!(
            "{:?}",
            storage
                .stat(dir, at)
                .map(|s| (s.kind, s.mode, s.nlink, s.size, Some(s.mtime) == time))
        ),
        9 => {
            let listed = storage.list(dir).map(|mut all| {
                all.sort_by(|a, b| a.name.cmp(&b.name));
                all.into_iter()
                    .map(|entry| (entry.name, entry.kind))
                    .collect::<Vec<_>>()
            });
            format!("{listed:?}")
        }
        10 => format!("{:?}", storage.readlink(dir, at)),
        11 => format!("{:?}", storage.chmod(dir, at, 0o600)),
        12 => format!("{:?}", storage.set_times(dir, at, None, time)),
        13 => {
            let key = OsStr::new("user.test");
            let set = storage.set_xattr(dir, at, key, &data[..data.len().min(100)]);
            format!(
                "{set:?} {:?} {:?}",
                storage.get_xattr(dir, at, key),
                storage.list_xattrs(dir, at)
            )
        }
        14 => {
            let half = data.len() / 2;
            let pieces = [IoSlice::new(&data[..half]), IoSlice::new(&data[half..])];
            let wrote = open(Access::ReadWrite).and_then(|file| {
                storage.write(&file, &pieces, offset)?;
                storage.sync(&file)?;
                storage.close(&file)
            });
            format!("{wrote:?}")
        }
        15 => {
            let mut bytes = vec![0; data.len()];
            let read = open(Access::Read).and_then(|file| storage.read(&file, &mut bytes, offset));
            bytes.truncate(read.unwrap_or(0));
            format!("{read:?} {:?}", (bytes.len(), bytes.first(), bytes.last()))
        }
        _ => format!(
            "{:?}",
            storage.open_dir(dir, at).map(|below| storage.identity(&below).is_ok())
        ),
    }
}

#[test]
fn a_storage_far_away_answers_as_one_here() {
    let seed: u64 = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (storage, served) = connected(there.path());
    let (near, far) = (RealStorage::open_root(here.path()).unwrap(), storage.root());
    let (mut of_near, mut of_far) = (SmallRng::seed_from_u64(seed), SmallRng::seed_from_u64(seed));
    let mut succeeded = 0;
    for step in 0..3_000 {
        let expected = call(&RealStorage, &near, &mut of_near);
        assert_eq!(call(&storage, &far, &mut of_far), expected, "step {step}");
        succeeded += usize::from(expected.starts_with("Ok"));
    }
    assert!(succeeded > 500, "{succeeded} calls did something");
    drop(storage);
    served.join().unwrap().unwrap();
}

/// More than one message can hold: the record of a commit that changes very much.
#[test]
fn a_write_may_be_longer_than_a_message() {
    let place = tempfile::tempdir().unwrap();
    let (storage, served) = connected(place.path());
    let file = storage.create(&storage.root(), OsStr::new("long"), 0o600).unwrap();
    let (short, long) = (vec![1u8; 1000], vec![2u8; 80 << 20]);
    let pieces = [IoSlice::new(&short), IoSlice::new(&long), IoSlice::new(&short)];
    storage.write(&file, &pieces, 7).unwrap();
    let written = std::fs::read(place.path().join("long")).unwrap();
    assert_eq!(written.len(), 7 + 2 * short.len() + long.len());
    let (first, last) = (&written[7..1007], &written[written.len() - 1000..]);
    assert!(first == short && last == short && written[1007..1007 + long.len()] == long);
    drop((file, storage));
    served.join().unwrap().unwrap();
}

#[test]
fn what_work_will_open_can_be_named_before_it_is_open() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("below/deeper")).unwrap();
    let (storage, served) = connected(place.path());
    let below = storage.promise();
    let (told, tells) = std::sync::mpsc::channel();
    let order = Order {
        on: &[storage.root()],
        makes: std::slice::from_ref(&below),
        order: b"below",
        content: &[IoSlice::new(b"said")],
    };
    storage.send(&order, Box::new(move |answer| told.send(answer).unwrap()));
    // This one is sent long before the other is done.
    assert_eq!(storage.list(&below).unwrap()[0].name, "deeper");
    let answer = tells.recv().unwrap().unwrap();
    assert_eq!((answer.made, &answer.bytes[..]), (vec![true], &b"said"[..]));
    drop((below, storage));
    served.join().unwrap().unwrap();
}

#[test]
fn what_depends_on_what_could_not_be_opened_is_cancelled() {
    let place = tempfile::tempdir().unwrap();
    let (storage, served) = connected(place.path());
    let missing = storage.promise();
    let order = Order {
        on: &[storage.root()],
        makes: std::slice::from_ref(&missing),
        order: b"missing",
        content: &[],
    };
    let (told, tells) = std::sync::mpsc::channel();
    storage.send(&order, Box::new(move |answer| told.send(answer).unwrap()));
    assert_eq!(storage.mkdir(&missing, OsStr::new("x"), 0o700), Err(Errno::CANCELED));
    assert_eq!(tells.recv().unwrap(), Err(Errno::NOENT), "and only the first says why");
    drop((missing, storage));
    served.join().unwrap().unwrap();
}

#[test]
fn nothing_outside_is_reached() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("root")).unwrap();
    std::fs::write(place.path().join("secret"), "x").unwrap();
    std::os::unix::fs::symlink("..", place.path().join("root/up")).unwrap();
    let (storage, served) = connected(&place.path().join("root"));
    let root = storage.root();
    for name in ["..", "../secret", "/etc", "up/secret", ""] {
        let name = OsStr::new(name);
        assert_eq!(storage.open_dir(&root, name).map(drop), Err(Errno::INVAL), "{name:?}");
        assert_eq!(
            storage.open(&root, name, Access::Read).map(drop),
            Err(Errno::INVAL),
            "{name:?}"
        );
        assert_eq!(storage.unlink(&root, name), Err(Errno::INVAL), "{name:?}");
    }
    let through_link = storage.open_dir(&root, OsStr::new("up")).map(drop);
    assert!(
        matches!(through_link, Err(Errno::NOTDIR | Errno::LOOP)),
        "{through_link:?}"
    );
    drop(storage);
    served.join().unwrap().unwrap();
}

#[test]
fn released_objects_are_closed_at_the_far_end() {
    let place = tempfile::tempdir().unwrap();
    let (storage, served) = connected(place.path());
    let root = storage.root();
    let open_there = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let here = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        // Of what was unlinked the kernel says so behind its name.
        here.filter(|path| path.parent() == Some(place.path())).count()
    };
    for n in 0..400 {
        let file = storage.create(&root, OsStr::new("f"), 0o600).unwrap();
        drop(file);
        storage.unlink(&root, OsStr::new("f")).unwrap();
        assert!(open_there() <= 300, "{n}: what nobody needs is closed now and then");
    }
    let held = storage.create(&root, OsStr::new("f"), 0o600).unwrap();
    storage.close(&held).unwrap();
    storage.stat(&root, OsStr::new(".")).unwrap();
    assert_eq!(open_there(), 0, "a file that is closed is closed at once");
    drop((held, storage));
    served.join().unwrap().unwrap();
}

#[test]
fn whoever_waits_when_the_connection_ends_hears_of_it() {
    let place = tempfile::tempdir().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let cut = near.try_clone().unwrap();
    let (has_begun, begun) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel::<()>(1);
    let worker = HeldWorker {
        has_begun,
        may_go_on: Mutex::new(may_go_on),
    };
    let served = serve_by(worker, far, place.path());
    let storage = RemoteStorage::connect("here", near.try_clone().unwrap(), near).unwrap();
    let order = Order {
        on: &[storage.root()],
        makes: &[],
        order: b".",
        content: &[],
    };
    let answer = std::thread::scope(|threads| {
        let waits = threads.spawn(|| storage.ask(&order));
        begun.recv().unwrap();
        cut.shutdown(Shutdown::Both).unwrap();
        waits.join().unwrap()
    });
    assert_eq!(answer, Err(Errno::NOTCONN));
    drop(go_on);
    assert_eq!(
        storage.stat_handle(&storage.root()),
        Err(Errno::NOTCONN),
        "and so does who comes after"
    );
    let _ = served.join().unwrap();
}

/// What a far end gets that is attacked, or has a bug at its other end.
#[test]
fn random_bytes_end_a_connection_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut near, far) = UnixStream::pair().unwrap();
        let served = serve(far, place.path());
        near.write_all(b"ELBOWVIA").unwrap();
        // A greeting of version 9 for user and group 0: message length, content length, number, message.
        let greeting = [3u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0];
        near.write_all(&greeting).unwrap();
        let length = random.random_range(0..200u32);
        let mut frame = length.to_le_bytes().to_vec();
        frame.extend(random.random_range(0..40u32).to_le_bytes());
        frame.extend(1u64.to_le_bytes());
        frame.extend((0..length + 40).map(|_| random.random_range(0..60u8)));
        let _ = near.write_all(&frame);
        near.shutdown(Shutdown::Write).unwrap();
        let mut said = Vec::new();
        let _ = near.read_to_end(&mut said);
        let welcome = [2u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0];
        assert!(said[8..].starts_with(&welcome), "it is past the greeting: {said:?}");
        // Ended, in one way or the other: not hanging, and no panic.
        let _ = served.join().expect("no panic");
    }
    assert_eq!(
        std::fs::read_dir(place.path()).unwrap().count(),
        0,
        "SEED space has no valid creation"
    );
}

#[test]
fn another_program_at_the_far_end_is_named() {
    let (near, mut far) = UnixStream::pair().unwrap();
    far.write_all(b"Welcome to box! Today is a nice day.\n").unwrap();
    let refused = RemoteStorage::connect("box", near.try_clone().unwrap(), near).unwrap_err();
    let told = refused.to_string();
    assert!(
        matches!(refused, ConnectError::NotOurs { .. }) && told.contains("Welcome to box!"),
        "{told}"
    );
}
