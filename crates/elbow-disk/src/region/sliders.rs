//! The runs of free sectors that are held for moving records, one on each device; how they [slide](super::slide) is said there.

use std::ops::Range;

use super::format::RECORD_SECTORS_MAX;
use super::image::Image;

/// Sectors that stay free for a trim: a full region must not refuse what makes room.
pub(super) const TRIM_SECTORS: u64 = 1;
/// A held run has so many times the sectors of the longest record; a write needs as many more.
pub(super) const HELD_RECORDS: u64 = 2;

/// Sectors of the longest record of a region.
fn longest_record(logical_sectors: u64) -> u64 {
    logical_sectors.min(RECORD_SECTORS_MAX) + 1
}

/// The sectors that devices which share a region need for its records, so that none is refused: twice the logical ones; on each, what is held and a run that is a
/// record too short; and one.
pub(super) fn places_needed(logical_sectors: u64, devices: u64) -> u64 {
    let spare = (HELD_RECORDS + 1) * longest_record(logical_sectors);
    let places = logical_sectors.saturating_mul(2);
    places
        .saturating_add(devices.saturating_mul(spare))
        .saturating_add(TRIM_SECTORS)
}

/// The runs that slide, one on each device that is large enough.
#[derive(Debug)]
pub(super) struct Sliders {
    /// Sectors of the longest record.
    pub(super) longest: u64,
    pub(super) sliders: Vec<Slider>,
}

#[derive(Debug)]
pub(super) struct Slider {
    /// All places of the device.
    pub(super) places: Range<u64>,
    /// The part of the run that is held; `None` where no run is long enough, which was left so by something else.
    pub(super) held: Option<Range<u64>>,
    pub(super) is_backwards: bool,
}

impl Sliders {
    /// Holds a run on each device; on none where there is no room to keep the promise.
    pub(super) fn new(image: &mut Image, logical_sectors: u64, places: &Range<u64>) -> Sliders {
        let longest = longest_record(logical_sectors);
        let mut segments = image.segments(places);
        segments.retain(|segment| segment.end - segment.start > (HELD_RECORDS + 1) * longest);
        let sectors: u64 = segments.iter().map(|segment| segment.end - segment.start).sum();
        if sectors < places_needed(logical_sectors, segments.len() as u64) {
            segments.clear();
        }
        let sliders = segments.into_iter().map(|places| Slider {
            places,
            held: None,
            is_backwards: true,
        });
        let mut sliders = Sliders {
            longest,
            sliders: sliders.collect(),
        };
        sliders.hold(image);
        sliders
    }

    /// Whether writes inside the region are never refused.
    pub(super) fn is_held(&self) -> bool {
        !self.sliders.is_empty()
    }

    /// Holds a run where none is.
    pub(super) fn hold(&mut self, image: &mut Image) {
        for slider in &mut self.sliders {
            if slider.held.is_none() {
                let within = |run: &Range<u64>| run.start >= slider.places.start && run.end <= slider.places.end;
                let runs = image.free().iter().filter(within);
                let run = runs.max_by_key(|run| run.end - run.start);
                slider.held = run.and_then(|run| held(&run, self.longest, false));
                slider.held.iter().for_each(|held| image.hold(held));
            }
        }
    }
}

/// What is held of a run: the end to which it slides.
pub(super) fn held(run: &Range<u64>, longest: u64, is_backwards: bool) -> Option<Range<u64>> {
    let length = run.end - run.start;
    let held = (HELD_RECORDS * longest).min(length);
    let part = if is_backwards {
        run.start..run.start + held
    } else {
        run.end - held..run.end
    };
    (length >= longest).then_some(part)
}
