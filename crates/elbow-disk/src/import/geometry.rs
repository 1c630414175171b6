//! Layouts and mechanics of kind G1.

use std::fmt::Write as _;

use super::files::Files;
use super::keys::Keys;
use super::language::{Block, Located, Value};
use crate::drive::DriveError;

/// The first line of a file of seek times.
const CURVE_HEADER: &str = "Seek distances measured:";
/// Numbers of a list on one line.
const LIST_ROW: usize = 10;
/// Points by which a formula is given where ours has no such formula.
const CURVE_POINTS: u32 = 64;

/// How a scheme of sparing appears in our description.
struct Scheme {
    /// A unit's tracks; none: the zone is one.
    unit_tracks: Option<u64>,
    first: bool,
    slips_take_spares: bool,
    /// Slips turn the tracks behind them.
    turns: bool,
}

/// A block that is the value of a key.
pub(super) fn inner<'b>(keys: &Keys<'b>, key: &str) -> Result<Located<&'b Block>, DriveError> {
    let value = keys.get(key).ok_or_else(|| keys.missing(key))?;
    match &value.value {
        Value::Block(block) => Ok(Located {
            value: block,
            file: value.file.clone(),
            line: value.line,
        }),
        _ => Err(value.error(Some(key), "expected a block".to_owned())),
    }
}

/// A number as a description has it.
pub(super) fn ms(number: f64) -> String {
    // Ten digits behind the point are more than picoseconds are.
    let text = format!("{number:.10}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The zones of a layout, as TOML.
pub(super) fn zones(layout: &Located<&Block>, heads: u64, notes: &mut Vec<String>) -> Result<String, DriveError> {
    if layout.value.kind != "dm_layout_g1" {
        return Err(layout.error(
            None,
            format!("a layout of kind `{}`; only `dm_layout_g1` is known", layout.value.kind),
        ));
    }
    let keys = Keys::new(layout);
    keys.note(notes, "Skew units", 0.0, "skews are taken as sectors")?;
    let mapping = keys.whole("LBN-to-PBN mapping scheme", 0)?;
    let mut text = match mapping {
        0 => String::new(),
        1 => "serpentine = \"zone\"\n".to_owned(),
        2 => "serpentine = \"drive\"\n".to_owned(),
        _ => {
            return Err(keys.wrong(
                "LBN-to-PBN mapping scheme",
                format!("{mapping} is not known; 0 to 2 are"),
            ));
        }
    };
    // Top-level keys come before the tables; the caller puts this there.
    text.push('\u{0}');
    let scheme = keys.needed("Sparing scheme used")?;
    let range = keys.whole("Rangesize for sparing", 1)?;
    let list = keys.get("Zones").ok_or_else(|| keys.missing("Zones"))?;
    let Value::List(zones) = &list.value else {
        return Err(list.error(Some("Zones"), "expected a list of zones".to_owned()));
    };
    let mut next = 0;
    for value in zones {
        let Value::Block(block) = &value.value else {
            return Err(value.error(Some("Zones"), "expected `dm_layout_g1_zone { ... }`".to_owned()));
        };
        let block = Located {
            value: block,
            file: value.file.clone(),
            line: value.line,
        };
        next = zone(&block, (scheme, range, heads), next, &mut text, notes)?;
    }
    keys.finish(notes);
    Ok(text)
}

/// Adds one zone, the first cylinder of which may be `next`; says which may be that of the one behind it.
fn zone(
    block: &Located<&Block>,
    (scheme, range, heads): (u64, u64, u64),
    next: u64,
    text: &mut String,
    notes: &mut Vec<String>,
) -> Result<u64, DriveError> {
    let keys = Keys::new(block);
    let (first, last) = (
        keys.needed("First cylinder number")?,
        keys.needed("Last cylinder number")?,
    );
    let per_track = keys.needed("Blocks per track")?;
    let gap = first.checked_sub(next).ok_or_else(|| {
        keys.wrong(
            "First cylinder number",
            format!("{first} is among the cylinders of the zone before"),
        )
    })?;
    let _ = write!(
        text,
        "\n[[zone]]\ncylinders = [{first}, {last}]\nsectors_per_track = {per_track}\n"
    );
    let names = [
        ("offset", "Offset of first block"),
        ("track_skew", "Skew for track switch"),
        ("cylinder_skew", "Skew for cylinder switch"),
    ];
    for (name, key) in names {
        let sectors = keys.number(key, 0.0)?;
        if sectors.fract() != 0.0 || sectors < 0.0 {
            notes.push(format!(
                "`{key}` = {sectors} of zone {first} to {last}: taken as {} sectors",
                sectors.round().max(0.0)
            ));
        }
        put(text, name, sectors.round().max(0.0) as u64);
    }
    put(text, "gap_cylinders", gap);
    spared(&keys, (scheme, range, heads), per_track, text, notes)?;
    remapped(&keys, first, notes)?;
    keys.finish(notes);
    Ok(last.saturating_add(1))
}

fn put(text: &mut String, name: &str, value: u64) {
    if value > 0 {
        let _ = writeln!(text, "{name} = {value}");
    }
}

/// What holds no data in a zone.
fn spared(
    keys: &Keys<'_>,
    (scheme, range, heads): (u64, u64, u64),
    per_track: u64,
    text: &mut String,
    notes: &mut Vec<String>,
) -> Result<(), DriveError> {
    let (front, spares) = (
        keys.whole("Empty space at zone front", 0)?,
        keys.whole("Number of spares", 0)?,
    );
    let mut slips = keys.wholes("slips")?;
    slips.sort_unstable();
    slips.dedup();
    if scheme == 1 {
        if per_track > 0 && front % per_track != 0 {
            notes.push(format!(
                "`Empty space at zone front` = {front}: taken as {} whole tracks",
                front / per_track
            ));
        }
        put(text, "front_tracks", front.checked_div(per_track).unwrap_or(0));
        put(text, "spare_tracks", spares);
        list(text, "slipped", &slips);
        return Ok(());
    }
    let how = how(scheme, range, heads).ok_or_else(|| {
        keys.wrong(
            "Number of spares",
            format!("sparing scheme {scheme} is not known; 0 to 10 are"),
        )
    })?;
    put(text, "front_sectors", front);
    if !matches!(scheme, 0 | 7) && spares > 0 {
        put(text, "spare_sectors", spares);
        put(text, "spare_every_tracks", how.unit_tracks.unwrap_or(0));
        if how.first {
            text.push_str("spares_first = true\n");
        }
    }
    if !slips.is_empty() && !how.slips_take_spares {
        text.push_str("slips_take_spares = false\n");
    }
    if !slips.is_empty() && how.turns {
        notes.push(format!(
            "sparing scheme {scheme}: that {} slips turn the tracks behind them is left out",
            slips.len()
        ));
    }
    list(text, "slipped_sectors", &slips);
    Ok(())
}

fn list(text: &mut String, name: &str, numbers: &[u64]) {
    match numbers {
        [] => {}
        _ if numbers.len() <= LIST_ROW => {
            let _ = writeln!(text, "{name} = {numbers:?}");
        }
        _ => {
            let _ = writeln!(text, "{name} = [");
            for row in numbers.chunks(LIST_ROW) {
                let row: Vec<String> = row.iter().map(u64::to_string).collect();
                let _ = writeln!(text, "    {},", row.join(", "));
            }
            text.push_str("]\n");
        }
    }
}

fn how(scheme: u64, range: u64, heads: u64) -> Option<Scheme> {
    let of = |unit_tracks, first, slips_take_spares, turns| Scheme {
        unit_tracks,
        first,
        slips_take_spares,
        turns,
    };
    Some(match scheme {
        0 => of(None, false, true, false),
        2 => of(Some(heads), false, true, true),
        3 => of(Some(1), false, true, true),
        4 => of(Some(heads), false, false, true),
        5 => of(Some(heads), true, true, true),
        6 => of(Some(heads), true, false, true),
        7 | 10 => of(None, false, false, false),
        8 => of(Some(heads.saturating_mul(range)), false, true, false),
        9 => of(None, false, true, false),
        _ => return None,
    })
}

/// Sectors that lie elsewhere: pairs of what was bad, and where it is instead.
fn remapped(keys: &Keys<'_>, first: u64, notes: &mut Vec<String>) -> Result<(), DriveError> {
    let defects = keys.wholes("defects")?;
    let elsewhere = defects.chunks(2).filter(|pair| pair.first() != pair.last()).count();
    if elsewhere > 0 {
        notes.push(format!(
            "`defects` of the zone from cylinder {first} on: {elsewhere} remapped sectors lie where they would without"
        ));
    }
    Ok(())
}

/// `[seek]` and the turn of mechanics of kind G1, as TOML.
pub(super) fn mechanics(
    block: &Located<&Block>,
    cylinders: u64,
    files: &mut Files<'_>,
    notes: &mut Vec<String>,
) -> Result<(f64, String), DriveError> {
    if block.value.kind != "dm_mech_g1" {
        return Err(block.error(
            None,
            format!("mechanics of kind `{}`; only `dm_mech_g1` are known", block.value.kind),
        ));
    }
    let keys = Keys::new(block);
    let rpm = keys
        .maybe_number("Rotation speed (in rpms)")?
        .ok_or_else(|| keys.missing("Rotation speed (in rpms)"))?;
    if rpm <= 0.0 {
        return Err(keys.wrong("Rotation speed (in rpms)", format!("{rpm} turns a minute")));
    }
    keys.note(
        notes,
        "Percent error in rpms",
        0.0,
        "every drive turns at the same speed",
    )?;
    if let Some(kind) = keys
        .word("Access time type")?
        .filter(|&kind| kind != "trackSwitchPlusRotation")
    {
        notes.push(format!("`Access time type` = {kind}: seek and rotation are simulated"));
    }
    let mut text = String::from("[seek]\n");
    let _ = writeln!(text, "head_switch_ms = {}", ms(keys.number("Head switch time", 0.0)?));
    let settle = keys.number("Add. write settling delay", 0.0)?;
    if settle != 0.0 {
        let _ = writeln!(text, "write_settle_ms = {}", ms(settle));
    }
    text.push_str(&seek(&keys, cylinders, files, notes)?);
    let unused = [
        "Single cylinder seek time",
        "Average seek time",
        "Full strobe seek time",
        "HPL seek equation values",
        "First ten seek times",
        "Full seek curve",
    ];
    keys.skip(&unused);
    keys.finish(notes);
    Ok((60_000.0 / rpm, text))
}

fn seek(keys: &Keys<'_>, cylinders: u64, files: &mut Files<'_>, notes: &mut Vec<String>) -> Result<String, DriveError> {
    let kind = keys.word("Seek type")?.ok_or_else(|| keys.missing("Seek type"))?;
    let far = cylinders.clamp(2, u64::from(u32::MAX)) as f64 - 1.0;
    let (single, mean, full) = (
        keys.number("Single cylinder seek time", 0.0)?,
        keys.number("Average seek time", 0.0)?,
        keys.number("Full strobe seek time", 0.0)?,
    );
    Ok(match kind {
        "extracted" => {
            let key = "Full seek curve";
            let name = keys.word(key)?.ok_or_else(|| keys.missing(key))?;
            let there = keys.get(key).ok_or_else(|| keys.missing(key))?;
            points(&curve(name, &files.text(there, name)?)?)
        }
        "constant" => points(&[(1.0, mean)]),
        "linear" => {
            let third = (far / 3.0).round().max(2.0);
            points(&[(1.0, single), (third, mean), (far.max(third + 1.0), full)])
        }
        "curve" => {
            notes.push(format!("`Seek type` = curve: given by {CURVE_POINTS} points of it"));
            points(&three_points(far, [single, mean, full]))
        }
        "hpl" | "hplplus10" => hpl(keys, kind == "hplplus10")?,
        _ => {
            return Err(keys.wrong(
                "Seek type",
                format!("`{kind}` is not known; constant, linear, curve, hpl, hplplus10, extracted are"),
            ));
        }
    })
}

/// The curve through a single, a mean and a full seek.
///
/// Source: Lee and Katz, *An Analytic Performance Model of Disk Arrays* (SIGMETRICS 1993).
fn three_points(far: f64, [least, mean, most]: [f64; 3]) -> Vec<(f64, f64)> {
    let cylinders = far + 1.0;
    let root = (15.0 * mean - 10.0 * least - 5.0 * most) / (3.0 * cylinders.sqrt());
    let straight = (7.0 * least - 15.0 * mean + 8.0 * most) / (3.0 * cylinders);
    let mut distances: Vec<f64> = (0..CURVE_POINTS)
        .map(|at| far.powf(f64::from(at) / f64::from(CURVE_POINTS - 1)).round())
        .collect();
    distances.dedup();
    let time = |distance: f64| least + root * (distance - 1.0).sqrt() + straight * (distance - 1.0);
    distances
        .into_iter()
        .map(|distance| (distance, time(distance)))
        .collect()
}

fn hpl(keys: &Keys<'_>, first_ten: bool) -> Result<String, DriveError> {
    let key = "HPL seek equation values";
    let values = keys.numbers(key)?;
    let &[below, root, factor, base, slope, single] = values.as_slice() else {
        return Err(keys.wrong(key, format!("{} values; expected 6", values.len())));
    };
    let short = if first_ten {
        keys.numbers("First ten seek times")?
    } else if single < 0.0 {
        Vec::new()
    } else {
        vec![single]
    };
    let short: Vec<String> = short.into_iter().map(ms).collect();
    let mut text = String::new();
    if !short.is_empty() {
        let _ = writeln!(text, "short_ms = [{}]", short.join(", "));
    }
    let _ = writeln!(
        text,
        "sqrt_below = {}\nsqrt_ms = [{}, {}]",
        below.max(0.0) as u32,
        ms(root),
        ms(factor)
    );
    let _ = writeln!(text, "linear_ms = [{}, {}]", ms(base), ms(slope));
    Ok(text)
}

/// The points of a file of seek times: a line that says how many, then `distance, ms`.
fn curve(name: &str, text: &str) -> Result<Vec<(f64, f64)>, DriveError> {
    let mut points = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim().is_empty() || content.starts_with(CURVE_HEADER) {
            continue;
        }
        let number = |word: Option<&str>| word?.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let mut words = content.split(',');
        let (Some(distance), Some(time), None) = (number(words.next()), number(words.next()), words.next()) else {
            let reason = "expected `distance, time in ms`".to_owned();
            return Err(Located {
                value: (),
                file: name.to_owned(),
                line,
            }
            .error(None, reason));
        };
        points.push((distance, time));
    }
    Ok(points)
}

fn points(points: &[(f64, f64)]) -> String {
    let mut text = String::from("points_ms = [\n");
    for row in points.chunks(6) {
        let row: Vec<String> = row
            .iter()
            .map(|&(distance, time)| format!("[{distance}, {}]", ms(time)))
            .collect();
        let _ = writeln!(text, "    {},", row.join(", "));
    }
    text + "]\n"
}
