//! The order of lines: that of `LC_ALL=C sort` with the same options, byte for byte.
//!
//! ```text
//!   for each key: the part of each line -> without ignored bytes, in capitals (-d -i -f) -> compared by its kind; -r
//!   all equal:    the lines themselves by their bytes, which is the last resort; not with -s or -u
//! ```
//!
//! A key without options of its own takes those of the command line. Without keys, the options of the command line make
//! one key of the whole line; with `-r` alone there is no key, and only the last resort is turned round.
//!
//! Source: POSIX.1-2017 sort; GNU coreutils manual, "sort invocation".

use std::cmp::Ordering;
use std::ops::Range;

use super::error::TextError;
use super::key::{Fields, KeyOptions, KeySpec, is_blank};
use super::prefix::{common_length, first_bytes};
use super::{float, number, version};

/// What decides the order of lines.
#[derive(Clone, Debug, Default)]
pub struct OrderOptions {
    /// Options of the command line, for keys without any.
    pub options: KeyOptions,
    /// `-k`, in order.
    pub keys: Vec<KeySpec>,
    /// What fields are (`-t`).
    pub fields: Fields,
    /// `-s`: lines with equal keys stay in the order of the input.
    pub stable: bool,
    /// `-u`: of lines with equal keys only the first stays.
    pub unique: bool,
    /// With `unique`: all of them stay until the last merge, which counts them ([`OutputForm::count`](super::OutputForm::count)).
    pub count: bool,
}

/// How the content of a key is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyComparison {
    Bytes,
    Numeric,
    General,
    Human,
    Month,
    Version,
}

/// What bytes do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ignored {
    Nothing,
    /// `-i`: all but printing ones.
    NonPrinting,
    /// `-d`: all but letters, digits and blanks.
    NonDictionary,
}

#[derive(Clone, Copy, Debug)]
struct Key {
    spec: KeySpec,
    kind: KeyComparison,
    ignored: Ignored,
    fold: bool,
    reverse: bool,
}

/// An order of lines.
///
/// ```
/// use std::cmp::Ordering;
///
/// use elbow_extmem::text::{KeySpec, OrderOptions, TextOrder};
///
/// let keys = vec![KeySpec::parse("2,2n")?];
/// let order = TextOrder::new(&OrderOptions { keys, ..OrderOptions::default() })?;
/// assert_eq!(order.compare(b"b 9", b"a 10"), Ordering::Less);
/// assert_eq!(order.compare(b"b 9", b"a 9"), Ordering::Greater); // equal keys: the whole lines decide
/// assert!(order.prefix(b"b 9") < order.prefix(b"a 10"));
/// # Ok::<(), elbow_extmem::text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TextOrder {
    keys: Vec<Key>,
    fields: Fields,
    /// `-r` of the command line, for the last resort.
    reverse: bool,
    has_last_resort: bool,
    unique: bool,
    stable: bool,
}

impl TextOrder {
    /// The order that the options ask for.
    ///
    /// # Errors
    /// Options that contradict each other, as `-n` and `-d` in one key.
    pub fn new(options: &OrderOptions) -> Result<Self, TextError> {
        let mut specs = options.keys.clone();
        for spec in &mut specs {
            if spec.options().is_empty() {
                spec.inherit(options.options);
            }
        }
        if specs.is_empty() && !options.options.without(b"r").is_empty() {
            specs.push(KeySpec::whole_line(options.options));
        }
        let keys = specs.into_iter().map(Key::new).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            has_last_resort: keys.is_empty() || !(options.stable || options.unique),
            keys,
            fields: options.fields,
            reverse: options.options.has(b'r'),
            unique: options.unique && !options.count,
            stable: options.stable || options.unique,
        })
    }

    /// How two lines (without what ends them) are ordered. Lines that are equal by this and not the same are so because
    /// of `-s` or `-u`: they stay in the order of the input.
    #[must_use]
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        for key in &self.keys {
            let order = key.compare(a, b, self.fields);
            if order.is_ne() {
                return order;
            }
        }
        if !self.has_last_resort {
            return Ordering::Equal;
        }
        if self.reverse { b.cmp(a) } else { a.cmp(b) }
    }

    /// Eight bytes in the order of the lines as far as they go: lines with different prefixes are ordered as these are,
    /// lines with equal prefixes by [`compare`](Self::compare).
    #[must_use]
    #[inline]
    pub fn prefix(&self, line: &[u8]) -> u64 {
        let Some(key) = self.keys.first() else {
            let prefix = first_bytes(line);
            return if self.reverse { !prefix } else { prefix };
        };
        let prefix = key.prefix(&line[key.spec.part(line, self.fields)]);
        if key.reverse { !prefix } else { prefix }
    }

    /// The first key, if its bytes are compared one by one; lines with the same bytes in front are ordered by what follows.
    pub(super) fn first_key_bytes<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        let Some(key) = self.keys.first() else {
            return Some(line);
        };
        (key.kind == KeyComparison::Bytes).then(|| &line[key.spec.part(line, self.fields)])
    }

    /// A prefix of what follows in the first key after so many bytes, in which lines with equal prefixes are the same.
    pub(super) fn prefix_after(&self, line: &[u8], bytes: usize) -> u64 {
        let rest = self
            .first_key_bytes(line)
            .and_then(|key| key.get(bytes..))
            .unwrap_or_default();
        let (prefix, is_reverse) = match self.keys.first() {
            None => (first_bytes(rest), self.reverse),
            Some(key) => (key.prefix(rest), key.reverse),
        };
        if is_reverse { !prefix } else { prefix }
    }

    /// Of lines that are equal, only the first stays.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Lines that are equal and not the same have to stay in the order of the input.
    #[must_use]
    pub fn is_stable(&self) -> bool {
        self.stable
    }
}

impl Key {
    fn new(spec: KeySpec) -> Result<Self, TextError> {
        let options = spec.options();
        let ignored = match (options.has(b'd'), options.has(b'i')) {
            (true, _) => Ignored::NonDictionary,
            (false, true) => Ignored::NonPrinting,
            (false, false) => Ignored::Nothing,
        };
        let kinds = [
            (b'n', KeyComparison::Numeric),
            (b'g', KeyComparison::General),
            (b'h', KeyComparison::Human),
            (b'M', KeyComparison::Month),
            (b'V', KeyComparison::Version),
        ];
        let asked = || kinds.iter().filter(|(letter, _)| options.has(*letter));
        // `-V` may go with `-d` or `-i`, the others not.
        let numbers = asked().filter(|(letter, _)| *letter != b'V').count();
        if numbers > 1 || (numbers == 1 && (options.has(b'V') || ignored != Ignored::Nothing)) {
            let unimportant = if ignored == Ignored::NonDictionary {
                &b"bri"[..]
            } else {
                b"br"
            };
            return Err(TextError::Incompatible(options.without(unimportant).letters()));
        }
        let kind = asked().next().map_or(KeyComparison::Bytes, |(_, kind)| *kind);
        Ok(Self {
            spec,
            kind,
            ignored,
            fold: options.has(b'f'),
            reverse: options.has(b'r'),
        })
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8], fields: Fields) -> Ordering {
        let part = |line: &[u8]| -> Range<usize> { self.spec.part(line, fields) };
        let (a, b) = (&a[part(a)], &b[part(b)]);
        let order = match (self.kind, self.translates()) {
            (KeyComparison::Bytes, false) => a.cmp(b),
            (KeyComparison::Bytes, true) => {
                let same = common_length(a, b);
                self.translated(&a[same..]).cmp(self.translated(&b[same..]))
            }
            (_, false) => self.compare_kind(a, b),
            (_, true) => {
                let (a, b): (Vec<u8>, Vec<u8>) = (self.translated(a).collect(), self.translated(b).collect());
                self.compare_kind(&a, &b)
            }
        };
        if self.reverse { order.reverse() } else { order }
    }

    fn compare_kind(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.kind {
            KeyComparison::Bytes => a.cmp(b),
            KeyComparison::Numeric => number::compare(a, b),
            KeyComparison::General => float::rank(a).cmp(&float::rank(b)),
            KeyComparison::Human => number::compare_human(a, b),
            KeyComparison::Month => number::month(a).cmp(&number::month(b)),
            KeyComparison::Version => version::compare(a, b),
        }
    }

    fn prefix(&self, content: &[u8]) -> u64 {
        match (self.kind, self.translates()) {
            (KeyComparison::Bytes, false) => first_bytes(content),
            (KeyComparison::Bytes, true) => {
                let mut bytes = self.translated(content);
                (0..8).fold(0, |prefix, _| prefix << 8 | u64::from(bytes.next().unwrap_or(0)))
            }
            (_, false) => self.prefix_of_kind(content),
            (_, true) => self.prefix_of_kind(&self.translated(content).collect::<Vec<u8>>()),
        }
    }

    fn prefix_of_kind(&self, content: &[u8]) -> u64 {
        match self.kind {
            KeyComparison::Bytes => first_bytes(content),
            KeyComparison::Numeric => number::prefix(content),
            KeyComparison::General => float::prefix(content),
            KeyComparison::Human => number::prefix_human(content),
            KeyComparison::Month => number::month(content).into(),
            KeyComparison::Version => version::prefix(content),
        }
    }

    fn translates(&self) -> bool {
        self.fold || self.ignored != Ignored::Nothing
    }

    /// The bytes that count, as they count.
    fn translated<'a>(&self, content: &'a [u8]) -> impl Iterator<Item = u8> + use<'a> {
        let (ignored, fold) = (self.ignored, self.fold);
        let counts = move |byte: &u8| match ignored {
            Ignored::Nothing => true,
            Ignored::NonPrinting => matches!(byte, b' '..=b'~'),
            Ignored::NonDictionary => byte.is_ascii_alphanumeric() || is_blank(*byte),
        };
        content
            .iter()
            .copied()
            .filter(counts)
            .map(move |byte| if fold { byte.to_ascii_uppercase() } else { byte })
    }
}
