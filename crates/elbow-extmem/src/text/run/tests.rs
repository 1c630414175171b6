//! Tests of runs: what is written comes back, in its order and from any place.

use elbow_file::double::{Faulty, Interposed, Operation, Plan};

use super::*;

const FREED_AT_ONCE: MergeGroup = MergeGroup { runs: 1, bytes: 0 };

fn spill(directories: usize) -> (Vec<tempfile::TempDir>, Spill) {
    let places: Vec<_> = (0..directories)
        .map(|_| tempfile::tempdir().expect("a directory"))
        .collect();
    let paths = places.iter().map(|place| place.path().to_owned()).collect();
    (places, Spill::new(Arc::new(RealStorage), paths, 0))
}

fn write(spill: &mut Spill, text: &[u8]) -> Run {
    let mut writer = spill.begin().expect("a temporary file");
    writer.write_all(text).expect("room");
    writer.finish()
}

#[test]
fn runs_are_read_back_and_their_space_is_freed_on_the_way() {
    let (_places, mut spill) = spill(1);
    let texts: Vec<Vec<u8>> = (1..4_u8).map(|run| vec![run; usize::from(run) * 300_000]).collect();
    let runs: Vec<Run> = texts.iter().map(|text| write(&mut spill, text)).collect();
    let file = runs[0].file.clone();
    let blocks = || RealStorage.stat_handle(file.file.handle()).expect("a file").blocks * 512;
    assert!(blocks() >= 1_800_000);
    let mut readers: Vec<RunReader> = runs
        .into_iter()
        .map(|run| RunReader::new(run.consume(FREED_AT_ONCE)))
        .collect();
    for (reader, text) in readers.iter_mut().zip(&texts) {
        let mut half = vec![0; text.len() / 2];
        reader.read_exact(&mut half).expect("what was written");
        assert_eq!(half, text[..text.len() / 2]);
    }
    assert!(blocks() < 1_200_000, "{}", blocks());
    for (reader, text) in readers.iter_mut().zip(&texts) {
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("what was written");
        assert_eq!(rest, text[text.len() / 2..]);
    }
    drop(readers);
    assert_eq!(blocks(), 0);
}

/// A slice that freed the block in which another begins or ends would free what that has not read yet.
#[test]
fn slices_of_a_run_are_read_in_any_order_and_nothing_of_another_is_freed() {
    let (_places, mut spill) = spill(1);
    let text: Vec<u8> = (0..700_000_u32).map(|n| (n / 3) as u8).collect();
    let run = write(&mut spill, &text);
    let (file, start) = (run.file.clone(), run.start);
    let cuts = [0, 100, 65_536, 65_537, 300_000, 300_000, 640_000].map(|cut: u64| start + cut);
    let slices = run.slices(&cuts);
    let mut all = vec![Vec::new(); slices.len()];
    let odd_ones_first = (0..slices.len())
        .map(|n| (n + 1) % 2)
        .zip(slices.into_iter().zip(&mut all));
    let mut turns: Vec<_> = odd_ones_first.collect();
    turns.sort_by_key(|(turn, _)| *turn);
    for (_, (slice, all)) in turns {
        let mut reader = RunReader::new(slice.consume(FREED_AT_ONCE));
        reader.read_to_end(all).expect("what was written");
    }
    assert!(all.concat() == text);
    let blocks = RealStorage.stat_handle(file.file.handle()).expect("a file").blocks * 512;
    assert!(
        (1..=6 * CUT_ALIGNMENT).contains(&blocks),
        "{blocks}: the blocks with a cut are left"
    );
    drop(file);
    drop(spill.files.pop());
    assert_eq!(spill.room().taken_bytes(), 0);
}

/// What was freed too much was taken from a run that was being written, and the sum of all could fall below nothing.
#[test]
fn the_gap_behind_a_run_is_not_counted_as_freed() {
    let (_places, mut spill) = spill(1);
    let (short, long) = (write(&mut spill, b"short"), write(&mut spill, &[7; 70_000]));
    assert!(Arc::ptr_eq(&short.file, &long.file));
    drop(short.consume(FREED_AT_ONCE));
    assert_eq!((spill.room().freed_bytes(), spill.room().taken_bytes()), (5, 70_000));
    drop(long.consume(FREED_AT_ONCE));
    assert_eq!((spill.room().freed_bytes(), spill.room().taken_bytes()), (70_005, 0));
}

#[test]
fn directories_are_used_in_turn_and_files_take_several_runs() {
    let (places, mut spill) = spill(2);
    let runs: Vec<Run> = (0..40_u8).map(|run| write(&mut spill, &[run])).collect();
    for (number, run) in runs.iter().enumerate() {
        assert_eq!(run.file.directory, places[number % 2].path());
    }
    let mut files: Vec<_> = runs.iter().map(|run| Arc::as_ptr(&run.file)).collect();
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), 4); // 20 runs in each directory, 16 in a file
}

#[test]
fn a_missing_directory_is_named() {
    let (places, _) = spill(1);
    let mut spill = Spill::new(Arc::new(RealStorage), vec![places[0].path().join("x")], 0);
    let error = spill.begin().err().expect("no such directory").to_string();
    assert!(
        error.starts_with("cannot create temporary file in '") && error.ends_with("x': No such file or directory"),
        "{error}"
    );
}

#[test]
fn the_first_runs_go_through_the_page_cache_and_the_others_past_it() {
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let mut spill = Spill::new(Arc::new(RealStorage), vec![place.path().to_owned()], 4 << 20);
    let text = vec![7; 1 << 20];
    let runs: Vec<Run> = (0..2 * RUNS_PER_FILE).map(|_| write(&mut spill, &text)).collect();
    let past = |run: &Run| run.file.file.is_direct();
    assert!(runs.iter().take(4).all(|run| !past(run)));
    let last = runs.last().expect("runs");
    if elbow_file::direct(last.file.file.handle()).is_some() {
        assert!(past(last));
    }
    for run in runs {
        let mut back = Vec::new();
        RunReader::new(run.consume(FREED_AT_ONCE))
            .read_to_end(&mut back)
            .expect("what was written");
        assert_eq!(back, text);
    }
    spill.close().expect("nothing was lost");
}

fn spill_with(plan: Plan) -> (tempfile::TempDir, Arc<Interposed<Faulty>>, Spill) {
    let place = tempfile::tempdir().expect("a directory");
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
    let spill = Spill::new(storage.clone(), vec![place.path().to_owned()], 0);
    (place, storage, spill)
}

/// What a run of some pieces gives back when it is read, and how much of it was freed.
fn read_back(spill: &mut Spill) -> (bool, u64) {
    let text = vec![7; 1 << 20];
    let run = write(spill, &text);
    let mut back = Vec::new();
    RunReader::new(run.consume(FREED_AT_ONCE))
        .read_to_end(&mut back)
        .expect("what was written");
    (back == text, spill.room().freed_bytes())
}

#[test]
fn where_nothing_can_be_punched_it_is_not_tried_again() {
    let plan = Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch).times(u64::MAX);
    let (_place, storage, mut spill) = spill_with(plan);
    assert_eq!(read_back(&mut spill), (true, 0));
    assert_eq!(storage.hook().fired(), 1);
}

#[test]
fn a_punch_that_finds_no_room_is_made_later() {
    // The first piece fails, and once more after the file system has settled.
    let plan = Plan::fail(Errno::NOSPC).on(Operation::Punch).times(2);
    let (_place, storage, mut spill) = spill_with(plan);
    assert_eq!(read_back(&mut spill), (true, 1 << 20));
    assert_eq!(storage.hook().fired(), 2);
}

#[test]
fn a_full_disk_is_an_error_that_names_the_directory() {
    let plan = Plan::fail(Errno::NOSPC).on(Operation::Write);
    let (_place, storage, mut spill) = spill_with(plan);
    let mut writer = spill.begin().expect("a temporary file");
    let failed = writer.failed();
    let error = failed(writer.write_all(b"text").expect_err("no room")).to_string();
    assert!(
        error.contains("No space left on device; another directory (-T)"),
        "{error}"
    );
    assert_eq!(storage.hook().fired(), 1);
}
