//! Which format a trace has, by its first line.

use super::format::Format;
use super::line::Line;

impl Format {
    /// The format of a trace that begins with this line, if it can be told.
    ///
    /// ```
    /// use elbow_disk::trace::Format;
    /// assert_eq!(Format::of("0.5 0 1000 8 0"), Some(Format::DiskSim));
    /// assert_eq!(Format::of("#!/bin/sh"), None);
    /// ```
    #[must_use]
    pub fn of(first: &str) -> Option<Format> {
        let fields: Vec<&str> = first.split(',').map(str::trim).collect();
        let words: Vec<&str> = first.split_whitespace().collect();
        if first.starts_with("fio version ") {
            return Some(Format::Fio);
        }
        let rules: [(Format, bool); 7] = [
            (Format::Msr, is_msr(&fields)),
            (Format::Spc, is_spc(&fields)),
            (
                Format::Fio,
                fields.len() >= 5 && fields.iter().take(5).all(|field| is_whole(field)),
            ),
            (Format::Csv, fields.contains(&"lbn") && fields.contains(&"sectors")),
            (
                Format::Blktrace,
                words.first().is_some_and(|word| is_device(word)) && words.len() >= 7,
            ),
            (Format::Validate, is_validate(&words)),
            (Format::DiskSim, is_disksim(&words)),
        ];
        rules.into_iter().find_map(|(format, is_it)| is_it.then_some(format))
    }

    /// Whether it says anything about the format.
    pub(super) fn is_told_by(line: &str) -> bool {
        !Line::new(line).is_blank()
    }
}

fn is_whole(word: &str) -> bool {
    word.parse::<u64>().is_ok()
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

fn is_device(word: &str) -> bool {
    word.split_once(',')
        .is_some_and(|(major, minor)| is_whole(major) && is_whole(minor))
}

fn is_msr(fields: &[&str]) -> bool {
    match fields {
        ["Timestamp", "Hostname", ..] => true,
        [at, _, disk, op, ..] => is_whole(at) && is_whole(disk) && matches!(*op, "Read" | "Write"),
        _ => false,
    }
}

fn is_spc(fields: &[&str]) -> bool {
    match fields {
        [unit, block, bytes, op, at, ..] => {
            [unit, block, bytes].into_iter().all(|field| is_whole(field))
                && matches!(*op, "R" | "r" | "W" | "w")
                && is_number(at)
        }
        _ => false,
    }
}

fn is_validate(words: &[&str]) -> bool {
    match words {
        ["R" | "W", _, lbn, sectors, took, think] => {
            is_whole(lbn) && is_whole(sectors) && is_number(took) && is_number(think)
        }
        _ => false,
    }
}

fn is_disksim(words: &[&str]) -> bool {
    match words {
        [at, device, lbn, sectors, _] => is_number(at) && [device, lbn, sectors].into_iter().all(|word| is_whole(word)),
        _ => false,
    }
}
