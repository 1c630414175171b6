//! Description files: TOML, with errors that name file, line and key.
//!
//! The format is described key by key in `docs/src/reference/drive-file.md`.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::DriveError;
use super::geometry::{Geometry, Zone};
use super::mechanics::Turn;
use super::seek::{Curve, SeekTable};
use super::{Drive, Ps};

/// More tracks than any drive has: bounds the memory that a description can ask for (32 bytes each).
const TRACKS_MAX: u64 = 1 << 24;
/// More cylinders than any drive has, for the same reason.
const CYLINDERS_MAX: u32 = 1 << 22;
/// Bounds on one turn, so that no arithmetic on times can overflow: 60 to 600,000 rpm.
const ROTATION_MS: Range<f64> = 0.1..1000.0;
/// No single time in a description is longer than this.
const TIME_MS_MAX: f64 = 10_000.0;
/// Sectors of one track at most.
const SECTORS_MAX: u32 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    heads: Spanned<u32>,
    rotation_ms: Spanned<f64>,
    seek: SeekPart,
    zone: Spanned<Vec<Spanned<ZonePart>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeekPart {
    head_switch_ms: Spanned<f64>,
    #[serde(default = "nothing")]
    write_settle_ms: Spanned<f64>,
    short_ms: Option<Spanned<Vec<f64>>>,
    sqrt_below: Option<u32>,
    sqrt_ms: Option<Spanned<[f64; 2]>>,
    linear_ms: Option<Spanned<[f64; 2]>>,
    points_ms: Option<Spanned<Vec<(u32, f64)>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZonePart {
    cylinders: Spanned<[u32; 2]>,
    sectors_per_track: Spanned<u32>,
    #[serde(default)]
    offset: u32,
    #[serde(default)]
    track_skew: u32,
    #[serde(default)]
    cylinder_skew: u32,
    #[serde(default)]
    front_tracks: u32,
    #[serde(default)]
    spare_tracks: u32,
    #[serde(default = "no_slips")]
    slipped: Spanned<Vec<u32>>,
}

fn nothing() -> Spanned<f64> {
    Spanned::new(0..0, 0.0)
}

fn no_slips() -> Spanned<Vec<u32>> {
    Spanned::new(0..0, Vec::new())
}

/// What is wrong, and at which bytes.
type Wrong = (Range<usize>, String);

pub(super) fn parse(file: &str, text: &str) -> Result<Drive, DriveError> {
    let parsed: File = toml::from_str(text)
        .map_err(|error| located(file, text, error.span().unwrap_or(0..0), error.message().to_owned()))?;
    build(&parsed).map_err(|(span, reason)| located(file, text, span, reason))
}

fn located(file: &str, text: &str, span: Range<usize>, reason: String) -> DriveError {
    let before = text.as_bytes().iter().take(span.start);
    DriveError::Description {
        file: file.to_owned(),
        line: 1 + before.filter(|&&byte| byte == b'\n').count(),
        key: key_at(text, span.start),
        reason,
    }
}

/// The path of the innermost key around a byte.
fn key_at(text: &str, at: usize) -> Option<String> {
    let root = DeTable::parse(text).ok()?;
    let mut path = String::new();
    descend(root.get_ref(), at, &mut path);
    (!path.is_empty()).then_some(path)
}

fn descend(table: &DeTable<'_>, at: usize, path: &mut String) {
    for (key, value) in table {
        if key.span().contains(&at) || holds(value, at) {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(key.get_ref());
            return descend_value(value.get_ref(), at, path);
        }
    }
}

fn descend_value(value: &DeValue<'_>, at: usize, path: &mut String) {
    match value {
        DeValue::Table(table) => descend(table, at, path),
        DeValue::Array(items) => {
            let tables = |item: &Spanned<DeValue<'_>>| matches!(item.get_ref(), DeValue::Table(_));
            if let Some((index, item)) = items
                .iter()
                .enumerate()
                .find(|(_, item)| tables(item) && holds(item, at))
            {
                path.push_str(&format!("[{index}]"));
                descend_value(item.get_ref(), at, path);
            }
        }
        _ => {}
    }
}

/// Whether a byte is in a value. The span of a table with a header is that of the header alone, so its entries are asked.
fn holds(value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    value.span().contains(&at)
        || match value.get_ref() {
            DeValue::Table(table) => table
                .iter()
                .any(|(key, value)| key.span().contains(&at) || holds(value, at)),
            DeValue::Array(items) => items.iter().any(|item| holds(item, at)),
            _ => false,
        }
}

fn build(file: &File) -> Result<Drive, Wrong> {
    let heads = *file.heads.get_ref();
    if heads == 0 || heads > 255 {
        return Err((file.heads.span(), format!("{heads} heads; a drive has 1 to 255")));
    }
    if !ROTATION_MS.contains(file.rotation_ms.get_ref()) {
        let reason = format!(
            "one turn of {} ms; expected {} to {}",
            file.rotation_ms.get_ref(),
            ROTATION_MS.start,
            ROTATION_MS.end
        );
        return Err((file.rotation_ms.span(), reason));
    }
    let zones = zones(file, heads)?;
    let geometry = Geometry::new(&zones, heads, Ps::from_ms(*file.rotation_ms.get_ref()));
    let seek = SeekTable::new(&curve(file)?, geometry.cylinders());
    Ok(Drive {
        name: file.name.clone(),
        turn: Turn::new(geometry.rotation()),
        geometry,
        seek,
        head_switch: time(&file.seek.head_switch_ms)?,
        write_settle: time(&file.seek.write_settle_ms)?,
    })
}

fn time(ms: &Spanned<f64>) -> Result<Ps, Wrong> {
    checked(*ms.get_ref())
        .map(Ps::from_ms)
        .map_err(|reason| (ms.span(), reason))
}

fn checked(ms: f64) -> Result<f64, String> {
    match ms {
        _ if (0.0..=TIME_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err(format!("{ms} is no time; expected 0 to {TIME_MS_MAX} ms")),
    }
}

fn all_times<'a>(times: impl IntoIterator<Item = &'a f64>, span: Range<usize>) -> Result<(), Wrong> {
    times
        .into_iter()
        .try_for_each(|&ms| checked(ms).map(drop))
        .map_err(|reason| (span, reason))
}

fn curve(file: &File) -> Result<Curve, Wrong> {
    let part = &file.seek;
    let whole = part.head_switch_ms.span();
    match (&part.points_ms, &part.linear_ms) {
        (Some(points), None) => points_curve(points),
        (None, Some(linear)) => {
            let short = part.short_ms.as_ref();
            let sqrt = part.sqrt_ms.as_ref();
            all_times(linear.get_ref(), linear.span())?;
            short.map_or(Ok(()), |short| all_times(short.get_ref(), short.span()))?;
            sqrt.map_or(Ok(()), |sqrt| all_times(sqrt.get_ref(), sqrt.span()))?;
            Ok(Curve::Equation {
                short_ms: short.map_or(Vec::new(), |short| short.get_ref().clone()),
                sqrt_below: if sqrt.is_some() {
                    part.sqrt_below.unwrap_or(0)
                } else {
                    0
                },
                sqrt_ms: sqrt.map_or([0.0; 2], |sqrt| *sqrt.get_ref()),
                linear_ms: *linear.get_ref(),
            })
        }
        (Some(points), Some(_)) => Err((points.span(), "either `points_ms` or `linear_ms`, not both".to_owned())),
        (None, None) => Err((
            whole,
            "the seek curve is missing: give `points_ms` or `linear_ms`".to_owned(),
        )),
    }
}

fn points_curve(points: &Spanned<Vec<(u32, f64)>>) -> Result<Curve, Wrong> {
    let list = points.get_ref();
    if list.is_empty() {
        return Err((points.span(), "no points; give [distance, ms] at least once".to_owned()));
    }
    all_times(list.iter().map(|(_, ms)| ms), points.span())?;
    if let Some(pair) = list
        .windows(2)
        .find(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1)
    {
        let reason = format!("{:?} after {:?}: distances and times have to rise", pair[1], pair[0]);
        return Err((points.span(), reason));
    }
    Ok(Curve::Points(list.clone()))
}

fn zones(file: &File, heads: u32) -> Result<Vec<Zone>, Wrong> {
    let mut zones: Vec<Zone> = Vec::new();
    for part in file.zone.get_ref() {
        let zone = zone(part.get_ref(), heads, zones.last())?;
        zones.push(zone);
    }
    if zones.is_empty() {
        return Err((file.zone.span(), "a drive has at least one zone".to_owned()));
    }
    Ok(zones)
}

fn zone(part: &ZonePart, heads: u32, before: Option<&Zone>) -> Result<Zone, Wrong> {
    let [first, last] = *part.cylinders.get_ref();
    let wrong = |reason: String| Err((part.cylinders.span(), reason));
    let next = before.map_or(0, |before| before.last_cylinder + 1);
    if let Some(before) = before.filter(|_| first < next) {
        let (start, end) = (before.first_cylinder, before.last_cylinder);
        return wrong(format!(
            "zone {first} to {last} overlaps the zone before it, {start} to {end}"
        ));
    }
    if first != next {
        return wrong(format!(
            "the zone begins at cylinder {first}, but {next} is the next that has no zone"
        ));
    }
    if last < first || last >= CYLINDERS_MAX || u64::from(last + 1) * u64::from(heads) > TRACKS_MAX {
        return wrong(format!(
            "{first} to {last} with {heads} heads: expected a rising range, at most {TRACKS_MAX} tracks"
        ));
    }
    tracks(part, heads, [first, last])
}

fn tracks(part: &ZonePart, heads: u32, [first_cylinder, last_cylinder]: [u32; 2]) -> Result<Zone, Wrong> {
    let sectors_per_track = *part.sectors_per_track.get_ref();
    if sectors_per_track == 0 || sectors_per_track > SECTORS_MAX {
        let reason = format!("{sectors_per_track} sectors on a track; expected 1 to {SECTORS_MAX}");
        return Err((part.sectors_per_track.span(), reason));
    }
    let zone = Zone {
        first_cylinder,
        last_cylinder,
        sectors_per_track,
        offset: part.offset % sectors_per_track,
        track_skew: part.track_skew % sectors_per_track,
        cylinder_skew: part.cylinder_skew % sectors_per_track,
        front_tracks: part.front_tracks,
        spare_tracks: part.spare_tracks,
        slipped: part.slipped.get_ref().clone(),
    };
    let (total, front, spare) = (
        zone.tracks(heads),
        u64::from(part.front_tracks),
        u64::from(part.spare_tracks),
    );
    if front + spare >= total {
        let reason = format!("no data track is left: the zone has {total} tracks, {front} in front, {spare} spare");
        return Err((part.cylinders.span(), reason));
    }
    slips(part, &zone, total)?;
    Ok(zone)
}

fn slips(part: &ZonePart, zone: &Zone, total: u64) -> Result<(), Wrong> {
    let slipped = &zone.slipped;
    let wrong = |reason: String| Err((part.slipped.span(), reason));
    if let Some(pair) = slipped.windows(2).find(|pair| pair[0] >= pair[1]) {
        return wrong(format!("{} after {}: slipped tracks have to rise", pair[1], pair[0]));
    }
    let allowed = u64::from(zone.front_tracks)..total;
    if let Some(track) = slipped.iter().find(|&&track| !allowed.contains(&u64::from(track))) {
        return wrong(format!(
            "track {track} is not among the zone's {} to {}",
            allowed.start,
            allowed.end - 1
        ));
    }
    if slipped.len() > zone.spare_tracks as usize {
        return wrong(format!(
            "{} slipped tracks, but only {} spare",
            slipped.len(),
            zone.spare_tracks
        ));
    }
    Ok(())
}
