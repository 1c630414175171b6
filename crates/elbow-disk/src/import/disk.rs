//! A disk: its electronics, and the whole description.

use std::fmt::Write as _;

use super::files::Files;
use super::geometry::{inner, mechanics, ms, zones};
use super::keys::Keys;
use super::language::{Block, Item, Located, Value};
use crate::drive::DriveError;

/// Sectors of a write that a drive with an extra disconnect has before it writes the first, and from what size on which.
///
/// They are constants of DiskSim's program, not of its files.
const WRITE_START: (u32, u32, u32) = (10, 45, 15);

/// Keys that are of no account for one drive that gets one request at a time.
const OF_NO_ACCOUNT: [&str; 7] = [
    "Print stats",
    "Avg sectors per cylinder",
    "Scheduler",
    "Calc sector by sector",
    "Hold bus entire write xfer",
    "Low (write) water mark",
    "Maximum number of write segments",
];

/// Keys that say how a drive does what this one does not, because another says so.
const OF_WRITE_CACHES: [&str; 3] = [
    "Combine seq writes",
    "Allow write prebuffering",
    "Use separate write segment",
];
const OF_DISCONNECTS: [&str; 4] = [
    "Read disconnect afterread",
    "Read disconnect afterwrite",
    "Write disconnect overhead",
    "First reselect overhead",
];

/// A description that was taken over.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The description, as [`Drive::parse`](crate::Drive::parse) takes it.
    pub toml: String,
    /// What was left behind, one sentence each.
    pub notes: Vec<String>,
}

pub(super) fn import(
    file: &str,
    items: &[Located<Item>],
    wanted: Option<&str>,
    files: &mut Files<'_>,
) -> Result<Imported, DriveError> {
    let disk = the_disk(file, items, wanted)?;
    let name = disk.value.name.clone().unwrap_or_default();
    let mut notes = Vec::new();
    let keys = Keys::new(&disk);
    let model_items;
    let model = match keys.get("Model").ok_or_else(|| keys.missing("Model"))? {
        there @ Located {
            value: Value::Source(model),
            ..
        } => {
            let text = files.text(there, model)?;
            model_items = files.items(model, &text)?;
            only(&model_items, "dm_disk")
                .ok_or_else(|| there.error(Some("Model"), format!("`{model}` has no one `dm_disk`")))?
        }
        _ => inner(&keys, "Model")?,
    };
    let bus = bus_of(items, &name);
    let electronics = electronics(&keys, bus.as_ref(), &mut notes)?;
    let (head, zones) = geometry(&name, &model, files, &mut notes)?;
    keys.skip(&OF_NO_ACCOUNT);
    keys.finish(&mut notes);
    let mut toml = format!("# Taken over from {file}, a parameter file of DiskSim.\n");
    if notes.is_empty() {
        toml.push_str("# Everything in it was.\n");
    }
    for note in &notes {
        let _ = writeln!(toml, "# Left out: {}", note.replace('\n', " "));
    }
    toml = toml + &head + "\n" + &electronics + &zones;
    Ok(Imported { toml, notes })
}

fn blocks<'i>(items: &'i [Located<Item>], kind: &str) -> Vec<Located<&'i Block>> {
    let of_kind = |item: &'i Located<Item>| match &item.value {
        Item::Block(block) if block.kind == kind => Some(Located {
            value: block,
            file: item.file.clone(),
            line: item.line,
        }),
        _ => None,
    };
    items.iter().filter_map(of_kind).collect()
}

fn only<'i>(items: &'i [Located<Item>], kind: &str) -> Option<Located<&'i Block>> {
    let mut found = blocks(items, kind);
    if found.len() == 1 { found.pop() } else { None }
}

fn the_disk<'i>(
    file: &str,
    items: &'i [Located<Item>],
    wanted: Option<&str>,
) -> Result<Located<&'i Block>, DriveError> {
    let nowhere = Located {
        value: (),
        file: file.to_owned(),
        line: 1,
    };
    let mut disks = blocks(items, "disksim_disk");
    let names: Vec<String> = disks.iter().filter_map(|disk| disk.value.name.clone()).collect();
    if let Some(wanted) = wanted {
        disks.retain(|disk| disk.value.name.as_deref() == Some(wanted));
    }
    match (disks.len(), disks.pop()) {
        (1, Some(disk)) => Ok(disk),
        _ if names.is_empty() => Err(nowhere.error(None, "there is no `disksim_disk`".to_owned())),
        _ => Err(nowhere.error(None, format!("name one of the disks there: {}", names.join(", ")))),
    }
}

/// The bus that a disk hangs on.
fn bus_of<'i>(items: &'i [Located<Item>], disk: &str) -> Option<Located<&'i Block>> {
    let instances = |of: &str| -> Vec<&str> {
        let names = items.iter().filter_map(|item| match &item.value {
            Item::Instantiate(names, kind) if kind == of => Some(names),
            _ => None,
        });
        names.flatten().map(String::as_str).chain([]).collect()
    };
    let disks = instances(disk);
    let parent = items.iter().find_map(|item| match &item.value {
        Item::Topology(nodes) => nodes
            .iter()
            .find(|(name, _)| disks.contains(&name.as_str()))?
            .1
            .as_deref(),
        _ => None,
    })?;
    let of = |bus: &Located<&Block>| {
        bus.value
            .name
            .as_deref()
            .is_some_and(|name| name == parent || instances(name).contains(&parent))
    };
    blocks(items, "disksim_bus").into_iter().find(of)
}

/// The name, heads, turn and seeks; and the zones.
fn geometry(
    name: &str,
    model: &Located<&Block>,
    files: &mut Files<'_>,
    notes: &mut Vec<String>,
) -> Result<(String, String), DriveError> {
    let keys = Keys::new(model);
    let heads = keys.needed("Number of data surfaces")?;
    let cylinders = keys.needed("Number of cylinders")?;
    keys.skip(&["Block count"]);
    let layout = zones(&inner(&keys, "Layout Model")?, heads, notes)?;
    let (rotation, seek) = mechanics(&inner(&keys, "Mechanical Model")?, cylinders, files, notes)?;
    keys.finish(notes);
    let (top, zones) = layout.split_once('\u{0}').unwrap_or(("", &layout));
    let quoted: String = name
        .chars()
        .filter(|c| !c.is_control() && !"\"\\".contains(*c))
        .collect();
    let head = format!(
        "name = \"{quoted}\"\nheads = {heads}\nrotation_ms = {}\n{top}\n{seek}",
        ms(rotation)
    );
    Ok((head, zones.to_owned()))
}

/// Lines `name = value` of a table, without those that say nothing.
struct Table {
    text: String,
}

impl Table {
    fn new(name: &str) -> Table {
        Table {
            text: format!("[{name}]\n"),
        }
    }

    fn ms(&mut self, name: &str, value: f64) {
        if value != 0.0 {
            let _ = writeln!(self.text, "{name} = {}", ms(value));
        }
    }

    fn flag(&mut self, name: &str, value: bool, default: bool) {
        if value != default {
            let _ = writeln!(self.text, "{name} = {value}");
        }
    }

    fn whole(&mut self, name: &str, value: u64) {
        if value > 0 {
            let _ = writeln!(self.text, "{name} = {value}");
        }
    }

    /// A time, and what it is after a write, where that is another.
    fn pair(&mut self, name: &str, [after_read, after_write]: [f64; 2]) {
        self.ms(&format!("{name}_ms"), after_read);
        if after_read != after_write {
            let _ = writeln!(self.text, "{name}_after_write_ms = {}", ms(after_write));
        }
    }

    fn finish(self) -> String {
        self.text + "\n"
    }
}

/// `[command]`, `[bus]`, `[cache]`, `[write_cache]`.
fn electronics(keys: &Keys<'_>, bus: Option<&Located<&Block>>, notes: &mut Vec<String>) -> Result<String, DriveError> {
    let scale = keys.number("Time scale for overheads", 1.0)?;
    let time = |key: &str| Ok::<f64, DriveError>(keys.number(key, 0.0)? * scale);
    let pair = |key: &str| {
        Ok::<[f64; 2], DriveError>([
            time(&format!("{key} after read"))?,
            time(&format!("{key} after write"))?,
        ])
    };
    keys.note(
        notes,
        "Per-request overhead time",
        0.0,
        "requests have no overhead beside those of their kind",
    )?;
    let fast_write = keys.whole("Fast write level", 0)?;
    let write_hit = pair("Write hit over.")?;
    let text = command(
        keys,
        &time,
        pair("Read miss over.")?,
        pair("Read hit over.")?,
        pair("Write miss over.")?,
    )? + &bus_times(keys, bus, notes)?
        + &cache(keys, notes)?;
    keys.skip(&OF_WRITE_CACHES);
    keys.skip(&OF_DISCONNECTS);
    if fast_write == 0 {
        return Ok(text);
    }
    let mut table = Table::new("write_cache");
    let apart = keys.is("Use separate write segment", false)?;
    let segments = keys.whole("Maximum number of write segments", 1)?;
    table.whole("segments", if apart { 1 } else { segments.max(1) });
    table.pair("command", write_hit);
    table.flag("append", keys.is("Combine seq writes", true)?, true);
    table.flag("take_while_busy", keys.is("Allow write prebuffering", false)?, false);
    Ok(text + &table.finish())
}

fn command(
    keys: &Keys<'_>,
    time: &dyn Fn(&str) -> Result<f64, DriveError>,
    miss: [f64; 2],
    hit: [f64; 2],
    write: [f64; 2],
) -> Result<String, DriveError> {
    let stays = keys.is("Never disconnect", false)?;
    let off_the_bus = |key: &str| if stays { Ok(0.0) } else { time(key) };
    let mut table = Table::new("command");
    table.pair("read_miss", miss);
    table.pair("read_hit", hit);
    table.pair("write", write);
    table.ms("data_preparation_ms", time("Data preparation overhead")?);
    table.ms(
        "read_disconnect_after_read_ms",
        off_the_bus("Read disconnect afterread")?,
    );
    table.ms(
        "read_disconnect_after_write_ms",
        off_the_bus("Read disconnect afterwrite")?,
    );
    table.ms("write_disconnect_ms", off_the_bus("Write disconnect overhead")?);
    table.ms("reselect_ms", off_the_bus("First reselect overhead")?);
    table.ms("read_completion_ms", time("Read completion overhead")?);
    table.ms("write_completion_ms", time("Write completion overhead")?);
    table.ms("write_seek_min_ms", time("Minimum seek delay")?);
    let names = [
        ("command_ms", "Extradisc command overhead"),
        ("first_disconnect_ms", "Extradisc disconnect overhead"),
        ("pause_ms", "Extradisc inter-disconnect delay"),
        ("second_disconnect_ms", "Extradisc 2nd disconnect overhead"),
        ("seek_delay_ms", "Extradisc seek delta"),
        ("last_reselect_ms", "Other reselect overhead"),
    ];
    let mut scattered = Table::new("command.scattered_write");
    for (name, key) in names {
        scattered.ms(name, time(key)?);
    }
    let extra = keys.is("Extra write disconnect", false)? && !stays;
    Ok(table.finish() + &if extra { scattered.finish() } else { String::new() })
}

/// How long a sector takes to cross: the bus and the drive each have a time, and the longer counts.
fn bus_times(keys: &Keys<'_>, bus: Option<&Located<&Block>>, notes: &mut Vec<String>) -> Result<String, DriveError> {
    let drive = keys.number("Bulk sector transfer time", 0.0)?;
    let mut table = Table::new("bus");
    let Some(bus) = bus else {
        notes.push("no bus that the disk hangs on: its times are the drive's own".to_owned());
        table.ms("read_sector_ms", drive);
        table.ms("write_sector_ms", drive);
        return Ok(table.finish());
    };
    let bus = Keys::new(bus);
    table.ms(
        "read_sector_ms",
        drive.max(bus.number("Read block transfer time", 0.0)?),
    );
    table.ms(
        "write_sector_ms",
        drive.max(bus.number("Write block transfer time", 0.0)?),
    );
    bus.note(
        notes,
        "Arbitration time",
        0.0,
        "a bus with one drive has nothing to arbitrate",
    )?;
    bus.skip(&["type", "Arbitration type", "Print stats"]);
    bus.finish(notes);
    Ok(table.finish())
}

fn cache(keys: &Keys<'_>, notes: &mut Vec<String>) -> Result<String, DriveError> {
    left_out(keys, notes)?;
    let (segments, size) = (
        keys.whole("Number of buffer segments", 1)?,
        keys.whole("Segment size (in blks)", 0)?,
    );
    let apart = keys.is("Use separate write segment", false)?;
    let keeps = keys.is("Allow read hits on write data", false)? && !apart;
    if !keys.is("Enable caching in buffer", true)? || size == 0 {
        notes.push("nothing is cached".to_owned());
        return Ok(String::new());
    }
    if !apart && !keeps {
        notes.push("writes take segments from which they cannot be read: here they take none".to_owned());
    }
    let mut table = Table::new("cache");
    table.whole("segments", segments);
    table.whole("write_segments", u64::from(apart && segments > 1));
    table.whole("segment_sectors", size);
    let mark = keys.number("High (read) water mark", 0.0)?;
    if !keys.is("Set watermark by reqsize", true)? && mark > 0.0 {
        notes.push(format!(
            "`High (read) water mark` = {mark} of a segment: taken as one of the request"
        ));
    }
    table.ms("read_water_mark", mark);
    ahead(keys, size, &mut table)?;
    table.flag("resume_on_hit", keys.is("Read-ahead on idle hit", true)?, true);
    table.flag("stop_in_sector", keys.is("Stop prefetch in sector", true)?, true);
    table.flag("keep_passing", keys.is("Read any free blocks", false)?, false);
    table.flag("immediate_read", keys.is("Immediate buffer read", false)?, false);
    table.flag("immediate_write", keys.is("Immediate buffer write", false)?, false);
    table.flag("keep_written", keeps, false);
    table.flag(
        "hits_wait_for_writes",
        !keys.is("Allow sneaky full read hits", false)?,
        false,
    );
    if keys.is("Extra write disconnect", false)? {
        let (start, long, long_start) = WRITE_START;
        table.whole("write_start_sectors", start.into());
        table.whole("long_write_sectors", long.into());
        table.whole("long_write_start_sectors", long_start.into());
    }
    Ok(table.finish())
}

fn ahead(keys: &Keys<'_>, size: u64, table: &mut Table) -> Result<(), DriveError> {
    let most = match keys.whole("Maximum read-ahead (blks)", 0)? {
        0 => size,
        most => most,
    };
    let until = match keys.whole("Buffer continuous read", 0)? {
        0 => return Ok(()),
        1 => "track",
        2 => "cylinder",
        3 => "sectors",
        4 => "next-track",
        other => return Err(keys.wrong("Buffer continuous read", format!("{other} is not known; 0 to 4 are"))),
    };
    table.whole("read_ahead_sectors", most);
    if until != "sectors" {
        let _ = writeln!(table.text, "read_ahead_until = \"{until}\"");
    }
    Ok(())
}

/// What the model does in one way only.
fn left_out(keys: &Keys<'_>, notes: &mut Vec<String>) -> Result<(), DriveError> {
    let ways = [
        (
            "Allow almost read hits",
            0.0,
            "a sector that is being read is no hit yet",
        ),
        ("Allow sneaky partial read hits", 0.0, "requests come one at a time"),
        (
            "Allow sneaky intermediate read hits",
            0.0,
            "requests come one at a time",
        ),
        ("Preseeking level", 0.0, "the arm goes on when the request is complete"),
        ("Max queue length", 1.0, "the drive gets one request at a time"),
        (
            "Minimum read-ahead (blks)",
            0.0,
            "reading ahead can be broken off at once",
        ),
        (
            "Disconnect write if seek",
            0.0,
            "a movement of the arm is not broken off",
        ),
        ("Write hit stop prefetch", 1.0, "a write stops reading ahead"),
        ("Read directly to buffer", 1.0, "sectors go to the buffer as they pass"),
        (
            "Immed transfer partial hit",
            1.0,
            "a hit begins with the first sector that is there",
        ),
    ];
    for (key, neutral, why) in ways {
        keys.note(notes, key, neutral, why)?;
    }
    // With a number of sectors to read ahead it has no say.
    if keys.whole("Maximum read-ahead (blks)", 0)? == 0 {
        keys.note(
            notes,
            "Read-ahead over requested",
            1.0,
            "reading ahead may overwrite what was asked for",
        )?;
    }
    keys.skip(&["Read-ahead over requested"]);
    let holds = keys.is("Hold bus entire read xfer", true)?;
    let mark = keys.number("High (read) water mark", 0.0)?;
    if !holds && (mark > 0.0 || keys.number("First reselect overhead", 0.0)? > 0.0) {
        notes.push("`Hold bus entire read xfer` = 0: a read that has come back to the bus keeps it".to_owned());
    }
    Ok(())
}
