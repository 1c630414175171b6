//! Description files: TOML, with errors that name file, line and key.
//!
//! The format is described key by key in `docs/src/reference/drive-file.md`.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Drive;
use super::electronics::{Bus, CacheShape, Command, Electronics, WriteCache};
use super::error::DriveError;
use super::geometry::{Geometry, Serpentine, Zone};
use super::seek::{Curve, SeekTable, Settle};
use super::shingled::Shingled;
use super::sparing::Sparing;
use super::turn::Turn;
use super::units::{Ms, Ps, TIME_MS_MAX};

/// More tracks than any drive has: bounds the memory that a description can ask for (32 bytes each).
const TRACKS_MAX: u64 = 1 << 24;
/// More cylinders than any drive has, for the same reason.
const CYLINDERS_MAX: u32 = 1 << 22;
/// Entries of the table that finds a sector's track, 4 bytes each: it has one for as many sectors as the shortest track has.
const LOOKUP_MAX: u64 = 1 << 25;
/// Bounds on one turn, so that no arithmetic on times can overflow: 60 to 600,000 rpm.
const ROTATION_MS: Range<f64> = 0.1..1000.0;
/// Sectors of a band at most, 128 MiB: it is rewritten at a stroke.
const BAND_SECTORS_MAX: u32 = 1 << 18;
/// Segments of a cache at most: they are looked through one by one.
const SEGMENTS_MAX: u32 = 1024;
/// Sectors of one track at most.
const SECTORS_MAX: u32 = 1 << 20;
/// Zones at most, and slipped sectors of all of them, each of which takes a place in the table of tracks.
const ZONES_MAX: usize = u16::MAX as usize;
const SLIPPED_MAX: usize = 1 << 20;

/// Drives that need no file.
const BUILT_IN: [(&str, &str); 13] = [
    ("hp-c2247a", include_str!("../../disks/hp-c2247a.toml")),
    ("generic-7200", include_str!("../../disks/generic-7200.toml")),
    ("hp-c2490a", include_str!("../../disks/hp-c2490a.toml")),
    ("hp-c3323a", include_str!("../../disks/hp-c3323a.toml")),
    ("dec-rz26", include_str!("../../disks/dec-rz26.toml")),
    ("barracuda", include_str!("../../disks/barracuda.toml")),
    ("cheetah4lp", include_str!("../../disks/cheetah4lp.toml")),
    ("cheetah9lp", include_str!("../../disks/cheetah9lp.toml")),
    ("ibm18es", include_str!("../../disks/ibm18es.toml")),
    ("atlas10k", include_str!("../../disks/atlas10k.toml")),
    ("atlas-iii", include_str!("../../disks/atlas-iii.toml")),
    ("ultrastar-he12", include_str!("../../disks/ultrastar-he12.toml")),
    ("archive-8tb", include_str!("../../disks/archive-8tb.toml")),
];

impl Drive {
    /// A built-in drive by its name, or the one that a file describes.
    ///
    /// # Errors
    /// [`DriveError`] where there is no such file, or it is not a valid description.
    ///
    /// ```
    /// assert_eq!(elbow_disk::Drive::named("generic-7200")?.heads(), 4);
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[allow(
        clippy::disallowed_methods,
        reason = "a description is configuration, not storage of the user's"
    )]
    pub fn named(name_or_path: &str) -> Result<Drive, DriveError> {
        if let Some(text) = Drive::description(name_or_path) {
            return Drive::parse(&format!("{name_or_path}.toml"), text);
        }
        let path = Path::new(name_or_path);
        let text = std::fs::read_to_string(path).map_err(|reason| DriveError::Read {
            name: name_or_path.to_owned(),
            path: path.to_owned(),
            known: BUILT_IN.map(|(name, _)| name).join(", "),
            reason,
        })?;
        Drive::parse(name_or_path, &text)
    }

    /// The description file of a built-in drive: a beginning for one's own.
    ///
    /// ```
    /// assert!(elbow_disk::Drive::description("hp-c2247a").unwrap().contains("[[zone]]"));
    /// ```
    #[must_use]
    pub fn description(name: &str) -> Option<&'static str> {
        BUILT_IN
            .iter()
            .find(|(built_in, _)| *built_in == name)
            .map(|(_, text)| *text)
    }

    /// The names of the drives that need no file.
    ///
    /// ```
    /// assert!(elbow_disk::Drive::built_in().take(3).eq(["hp-c2247a", "generic-7200", "hp-c2490a"]));
    /// ```
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The drive that `text` describes; `file` is what errors call it.
    ///
    /// # Errors
    /// [`DriveError::Description`] with the line and the key.
    ///
    /// ```
    /// use elbow_disk::Drive;
    /// let text = "name = 'tiny'\nheads = 1\nrotation_ms = 8\n\
    ///     seek = { head_switch_ms = 0, points_ms = [[1, 1]] }\nzone = [{ cylinders = [0, 9], sectors_per_track = 10 }]";
    /// assert_eq!(Drive::parse("tiny.toml", text)?.sectors(), 100);
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    pub fn parse(file: &str, text: &str) -> Result<Drive, DriveError> {
        let parsed: File = toml::from_str(text)
            .map_err(|error| located(file, text, error.span().unwrap_or(0..0), error.message().to_owned()))?;
        build(&parsed).map_err(|(span, reason)| located(file, text, span, reason))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    heads: Spanned<u32>,
    rotation_ms: Spanned<f64>,
    #[serde(default)]
    serpentine: Serpentine,
    seek: Spanned<SeekPart>,
    #[serde(default)]
    command: Command,
    #[serde(default)]
    bus: Bus,
    cache: Option<Spanned<CacheShape>>,
    write_cache: Option<Spanned<WriteCache>>,
    shingled: Option<Spanned<Shingled>>,
    zone: Spanned<Vec<Spanned<ZonePart>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeekPart {
    head_switch_ms: Ms,
    #[serde(default)]
    write_settle_ms: SignedMs,
    #[serde(default)]
    short_ms: Vec<Ms>,
    #[serde(default)]
    sqrt_below: u32,
    #[serde(default)]
    sqrt_ms: [Ms; 2],
    linear_ms: Option<[Ms; 2]>,
    points_ms: Option<Spanned<Vec<(u32, Ms)>>>,
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
    #[serde(default)]
    gap_cylinders: u32,
    #[serde(default)]
    front_sectors: u64,
    #[serde(default)]
    spare_sectors: u64,
    spare_every_tracks: Option<u32>,
    #[serde(default)]
    spares_first: bool,
    #[serde(default = "yes")]
    slips_take_spares: bool,
    #[serde(default)]
    media_cache: bool,
    #[serde(default = "no_slips")]
    slipped_sectors: Spanned<Vec<u64>>,
}

fn yes() -> bool {
    true
}

fn no_slips<T>() -> Spanned<Vec<T>> {
    Spanned::new(0..0, Vec::new())
}

/// A duration in milliseconds that may be below 0.
#[derive(Clone, Copy, Debug, Default)]
struct SignedMs(f64);

impl<'de> Deserialize<'de> for SignedMs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<SignedMs, D::Error> {
        let ms = f64::deserialize(from)?;
        if (-TIME_MS_MAX..=TIME_MS_MAX).contains(&ms) {
            return Ok(SignedMs(ms));
        }
        let reason = format!("{ms} is no time; expected {} to {TIME_MS_MAX} ms", -TIME_MS_MAX);
        Err(serde::de::Error::custom(reason))
    }
}

/// What is wrong, and at which bytes.
type SpannedError = (Range<usize>, String);

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

fn build(file: &File) -> Result<Drive, SpannedError> {
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
    let media_cache = geometry.media_cache(&zones);
    let part = file.seek.get_ref();
    let seek = SeekTable::new(&curve(part, file.seek.span())?, geometry.cylinders());
    let head_switch = part.head_switch_ms.0;
    let write_settle = Settle::from_ms(part.write_settle_ms.0);
    let shortest = seek
        .shortest()
        .into_iter()
        .chain((heads > 1).then_some(head_switch))
        .min();
    if let Some(shortest) = shortest.filter(|&shortest| !write_settle.suits(shortest)) {
        let (less, all) = (-part.write_settle_ms.0, shortest.ms());
        let reason = format!("a write takes {less} ms less than a read, and the shortest movement {all} ms");
        return Err((file.seek.span(), reason));
    }
    Ok(Drive {
        name: file.name.clone(),
        turn: Turn::new(geometry.rotation()),
        geometry,
        seek,
        head_switch,
        write_settle,
        electronics: electronics(file)?,
        shingled: shingled(file, media_cache)?,
    })
}

/// The shingles, with the media cache that the zones leave for them.
fn shingled(file: &File, media_cache: Option<Range<u64>>) -> Result<Option<Shingled>, SpannedError> {
    match (&file.shingled, media_cache) {
        (None, None) => Ok(None),
        (Some(part), Some(media_cache)) if media_cache.start > 0 => {
            let with_cache = Shingled {
                media_cache,
                ..part.get_ref().clone()
            };
            let checked = with_cache.checked(BAND_SECTORS_MAX);
            checked.map(Some).map_err(|error| (part.span(), error.to_string()))
        }
        (Some(part), None) => Err((
            part.span(),
            "a shingled drive needs a media cache: say `media_cache = true` of a zone".to_owned(),
        )),
        (Some(_), Some(_)) => Err((
            file.zone.span(),
            "all zones are media cache, none is the host's".to_owned(),
        )),
        (None, Some(_)) => Err((
            file.zone.span(),
            "a zone is a media cache, but there is no table `[shingled]`".to_owned(),
        )),
    }
}

fn curve(part: &SeekPart, whole: Range<usize>) -> Result<Curve, SpannedError> {
    match (&part.points_ms, part.linear_ms) {
        (Some(points), None) => points_curve(points),
        (None, Some(linear)) => Ok(Curve::Equation {
            short_ms: part.short_ms.iter().map(|ms| ms.0.ms()).collect(),
            sqrt_below: part.sqrt_below,
            sqrt_ms: part.sqrt_ms.map(|ms| ms.0.ms()),
            linear_ms: linear.map(|ms| ms.0.ms()),
        }),
        (Some(points), Some(_)) => Err((points.span(), "either `points_ms` or `linear_ms`, not both".to_owned())),
        (None, None) => Err((
            whole,
            "the seek curve is missing: give `points_ms` or `linear_ms`".to_owned(),
        )),
    }
}

fn points_curve(points: &Spanned<Vec<(u32, Ms)>>) -> Result<Curve, SpannedError> {
    let list: Vec<(u32, f64)> = points
        .get_ref()
        .iter()
        .map(|(distance, ms)| (*distance, ms.0.ms()))
        .collect();
    if list.is_empty() {
        return Err((points.span(), "no points; give [distance, ms] at least once".to_owned()));
    }
    // Times need not rise: measured ones dip, where the arm is calm sooner.
    if let Some(pair) = list.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        let reason = format!("{:?} after {:?}: distances have to rise", pair[1], pair[0]);
        return Err((points.span(), reason));
    }
    Ok(Curve::Points(list))
}

fn electronics(file: &File) -> Result<Electronics, SpannedError> {
    if let Some(cache) = &file.cache {
        let (shape, wrong) = (cache.get_ref(), |reason: String| Err((cache.span(), reason)));
        if shape.segments <= shape.write_segments || shape.segments > SEGMENTS_MAX {
            let (all, write) = (shape.segments, shape.write_segments);
            return wrong(format!(
                "{all} segments, {write} of them for writes: expected one for reads, at most {SEGMENTS_MAX}"
            ));
        }
        if shape.segment_sectors == 0 || !(0.0..=1.0).contains(&shape.read_water_mark) {
            return wrong("expected `segment_sectors` of 1 or more and a `read_water_mark` of 0 to 1".to_owned());
        }
        if shape.keep_written && shape.write_segments > 0 {
            return wrong(
                "what was written can be read only from segments for both; `write_segments` has to be 0".to_owned(),
            );
        }
    }
    if let Some(cache) = &file.write_cache {
        let segments = cache.get_ref().segments;
        if segments == 0 || segments > SEGMENTS_MAX {
            let reason = format!("{segments} segments for written data; expected 1 to {SEGMENTS_MAX}");
            return Err((cache.span(), reason));
        }
        if file.cache.is_none() {
            return Err((
                cache.span(),
                "a write cache needs `[cache]`, for the size of its segments".to_owned(),
            ));
        }
    }
    let cache = file.cache.as_ref().map(|cache| cache.get_ref().clone());
    Ok(Electronics {
        command: file.command.clone(),
        bus: file.bus.clone(),
        cache,
        write_cache: file.write_cache.as_ref().map(|cache| cache.get_ref().clone()),
    })
}

fn zones(file: &File, heads: u32) -> Result<Vec<Zone>, SpannedError> {
    let mut zones: Vec<Zone> = Vec::new();
    for part in file.zone.get_ref() {
        let mut zone = zone(part.get_ref(), heads, zones.last())?;
        zone.serpentine = file.serpentine;
        zones.push(zone);
    }
    let slipped: usize = zones
        .iter()
        .filter_map(|zone| zone.sparing.as_ref())
        .map(|sparing| sparing.slipped.len())
        .sum();
    if zones.len() > ZONES_MAX || slipped > SLIPPED_MAX {
        let reason = format!(
            "{} zones with {slipped} slipped sectors; {ZONES_MAX} and {SLIPPED_MAX} are the most",
            zones.len()
        );
        return Err((file.zone.span(), reason));
    }
    if zones.is_empty() {
        return Err((file.zone.span(), "a drive has at least one zone".to_owned()));
    }
    let sectors: u64 = zones
        .iter()
        .map(|zone| zone.tracks(heads) * u64::from(zone.sectors_per_track))
        .sum();
    let shortest = zones.iter().map(|zone| zone.sectors_per_track).min().unwrap_or(1);
    if sectors >> shortest.ilog2() > LOOKUP_MAX {
        let reason = format!("{sectors} sectors are too many beside a track of {shortest}");
        return Err((file.zone.span(), reason));
    }
    Ok(zones)
}

fn zone(part: &ZonePart, heads: u32, before: Option<&Zone>) -> Result<Zone, SpannedError> {
    let [first, last] = *part.cylinders.get_ref();
    let wrong = |reason: String| Err((part.cylinders.span(), reason));
    let next = before
        .map_or(0, |before| before.last_cylinder + 1)
        .saturating_add(part.gap_cylinders);
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

fn tracks(part: &ZonePart, heads: u32, [first_cylinder, last_cylinder]: [u32; 2]) -> Result<Zone, SpannedError> {
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
        sparing: sparing(part),
        serpentine: Serpentine::None,
        media_cache: part.media_cache,
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
    if let Some(sparing) = &zone.sparing {
        spared(part, &zone, sparing, total)?;
    }
    Ok(zone)
}

/// What single sectors hold no data, if the zone says so.
fn sparing(part: &ZonePart) -> Option<Sparing> {
    let slipped = part.slipped_sectors.get_ref();
    (part.front_sectors > 0 || part.spare_sectors > 0 || !slipped.is_empty()).then(|| Sparing {
        front: part.front_sectors,
        spares: part.spare_sectors,
        unit_tracks: part.spare_every_tracks,
        spares_first: part.spares_first,
        slips_take_spares: part.slips_take_spares,
        slipped: slipped.clone(),
    })
}

fn spared(part: &ZonePart, zone: &Zone, sparing: &Sparing, tracks: u64) -> Result<(), SpannedError> {
    let wrong = |reason: String| Err((part.cylinders.span(), reason));
    if zone.front_tracks > 0 || zone.spare_tracks > 0 {
        return wrong("the zone spares tracks and sectors; it has to be one of them".to_owned());
    }
    let sectors = tracks * u64::from(zone.sectors_per_track);
    let unit = sparing
        .unit_tracks
        .map_or(sectors, |tracks| u64::from(tracks) * u64::from(zone.sectors_per_track));
    if sparing.spares >= unit {
        return wrong(format!("{} spare sectors of every {unit}", sparing.spares));
    }
    let wrong_slip = |reason: String| Err((part.slipped_sectors.span(), reason));
    if let Some(pair) = sparing.slipped.windows(2).find(|pair| pair[0] >= pair[1]) {
        return wrong_slip(format!("{} after {}: slipped sectors have to rise", pair[1], pair[0]));
    }
    if let Some(last) = sparing.slipped.last().filter(|&&last| last >= sectors) {
        return wrong_slip(format!("sector {last} is not among the zone's {sectors}"));
    }
    // Each unit has as many as it has, less spares and slips; so there is something left where they are fewer than the sectors.
    let gone = sparing.spares.saturating_mul(sectors.div_ceil(unit)) + sparing.slipped.len() as u64;
    if gone.saturating_add(sparing.front) >= sectors {
        return wrong(format!(
            "no data sector is left: the zone has {sectors}, and {gone} and {} in front hold none",
            sparing.front
        ));
    }
    Ok(())
}

fn slips(part: &ZonePart, zone: &Zone, total: u64) -> Result<(), SpannedError> {
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
