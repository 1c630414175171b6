//! Keys: which part of a line is compared, and how. The `-k` of sort(1) and what it means.
//!
//! ```text
//!   -k F[.C][OPTS][,F[.C][OPTS]]
//!      |  |    |    |  |    '-- options of this key; `b` here: skip blanks before counting C of the end
//!      |  |    |    |  '------- last byte, counted from 1; 0 or none: to the end of the field
//!      |  |    |    '---------- last field; without it the key reaches to the end of the line
//!      |  |    '--------------- options of this key; `b` here: skip blanks before counting C of the start
//!      |  '-------------------- first byte, counted from 1
//!      '----------------------- first field, counted from 1
//! ```
//!
//! A field is a separator's worth of bytes (`-t`), or a run of blanks with the run of other bytes after it. Blanks are
//! space, tab and, for lines that do not end in it, the newline. The obsolete `+F -F` is not understood.
//!
//! Source: POSIX.1-2017 sort; GNU coreutils manual, section "sort invocation".

use super::{TextError, csv};

/// The ordering options that sort(1) knows, in the order in which it names them.
const LETTERS: &[u8] = b"bdfghiMnrV";

/// Space, tab and newline.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

/// A set of ordering options: those of `bdfghiMnrV`.
///
/// ```
/// use elbow_extmem::text::KeyOptions;
///
/// let options = KeyOptions::parse("nr")?;
/// assert!(options.has(b'r') && !options.has(b'f'));
/// assert!(KeyOptions::parse("nR").is_err()); // a random order is refused
/// # Ok::<(), elbow_extmem::text::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions(u16);

impl KeyOptions {
    /// The options in a string of letters.
    ///
    /// # Errors
    /// A letter that is no ordering option, or `R`.
    pub fn parse(letters: &str) -> Result<Self, TextError> {
        let mut options = Self::default();
        for letter in letters.bytes() {
            if !options.insert(letter)? {
                return Err(TextError::UnknownOption(char::from(letter)));
            }
        }
        Ok(options)
    }

    /// Adds one; `false` if it is no ordering option.
    fn insert(&mut self, letter: u8) -> Result<bool, TextError> {
        if letter == b'R' {
            return Err(TextError::RandomOrder);
        }
        let place = LETTERS.iter().position(|known| *known == letter);
        place.inspect(|place| self.0 |= 1 << place);
        Ok(place.is_some())
    }

    /// Whether an option is among them.
    #[must_use]
    pub fn has(self, letter: u8) -> bool {
        LETTERS
            .iter()
            .position(|known| *known == letter)
            .is_some_and(|place| self.0 & 1 << place != 0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn without(self, letters: &[u8]) -> Self {
        let dropped = |place: &usize| letters.contains(&LETTERS[*place]);
        Self(
            (0..LETTERS.len())
                .filter(dropped)
                .fold(self.0, |left, place| left & !(1 << place)),
        )
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// As sort(1) names them in a complaint.
    pub(super) fn letters(self) -> String {
        LETTERS
            .iter()
            .filter(|letter| self.has(**letter))
            .map(|letter| char::from(*letter))
            .collect()
    }
}

/// A place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    /// Fields before it.
    field: usize,
    /// Bytes of its field before it (start), or up to and with it (end; 0: all of the field).
    byte: usize,
    /// Blanks do not count as bytes of its field.
    skip_blanks: bool,
}

/// One key of a line, as `-k` describes it.
///
/// ```
/// use elbow_extmem::text::KeySpec;
///
/// let key = KeySpec::parse("2.3nr,4")?;
/// assert_eq!(key.range(b"one two three four five", None), 5..18); // from the third byte of " two" to the end of " four"
/// assert!(KeySpec::parse("0").is_err_and(|error| error.to_string().contains("field number is zero")));
/// # Ok::<(), elbow_extmem::text::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    start: Position,
    /// `None`: the end of the line.
    end: Option<Position>,
    options: KeyOptions,
}

impl KeySpec {
    /// A key from its description.
    ///
    /// # Errors
    /// What sort(1) says of a description that is none.
    pub fn parse(spec: &str) -> Result<Self, TextError> {
        let mut words = Words { spec, at: 0 };
        let (field, byte) = words.position("invalid number at field start", "invalid number after '.'")?;
        let byte = match (byte, byte.and_then(|byte| byte.checked_sub(1))) {
            (Some(_), None) => return Err(words.wrong("character offset is zero")),
            (_, byte) => byte.unwrap_or(0),
        };
        let start_options = words.options()?;
        let start = Position {
            field,
            byte,
            skip_blanks: start_options.has(b'b'),
        };
        let mut options = start_options;
        let mut end = None;
        if words.accept(b',') {
            let (field, byte) = words.position("invalid number after ','", "invalid number after '.'")?;
            let end_options = words.options()?;
            let skip_blanks = end_options.has(b'b');
            end = Some(Position {
                field,
                byte: byte.unwrap_or(0),
                skip_blanks,
            });
            options = options.union(end_options);
        }
        if words.at < spec.len() {
            return Err(words.wrong("stray character in field spec"));
        }
        Ok(Self { start, end, options })
    }

    /// A key that is one field, counted from 0.
    ///
    /// ```
    /// use elbow_extmem::text::{Fields, KeyOptions, KeySpec};
    ///
    /// let key = KeySpec::field(1, KeyOptions::default());
    /// assert_eq!(key.part(b"a,\"b,c\",d", Fields::Csv(b',')), 3..6);
    /// ```
    #[must_use]
    pub fn field(field: usize, options: KeyOptions) -> Self {
        let position = Position {
            field,
            byte: 0,
            skip_blanks: options.has(b'b'),
        };
        Self {
            start: position,
            end: Some(position),
            options,
        }
    }

    /// A key that is the whole line.
    pub(super) fn whole_line(options: KeyOptions) -> Self {
        let start = Position {
            field: 0,
            byte: 0,
            skip_blanks: options.has(b'b'),
        };
        Self {
            start,
            end: None,
            options,
        }
    }

    /// Its own options, `b` of either end among them.
    pub(super) fn options(&self) -> KeyOptions {
        self.options
    }

    /// Takes the options of the command line, as a key without any does.
    pub(super) fn inherit(&mut self, options: KeyOptions) {
        self.options = options;
        self.start.skip_blanks = options.has(b'b');
        if let Some(end) = &mut self.end {
            end.skip_blanks = options.has(b'b');
        }
    }

    /// The part of a line (without its terminator) that is the key; empty where it begins after its end.
    #[must_use]
    #[inline]
    pub fn range(&self, line: &[u8], separator: Option<u8>) -> std::ops::Range<usize> {
        let start = self.start(line, separator);
        let end = self.end.map_or(line.len(), |end| end_of(&end, line, separator));
        start..end.max(start)
    }

    /// The part of a line (without its terminator) that is the key. Of a row of a table it is the content of one field, without the
    /// quotes around it.
    #[must_use]
    #[inline]
    pub fn part(&self, line: &[u8], fields: Fields) -> std::ops::Range<usize> {
        match fields {
            Fields::Blanks => self.range(line, None),
            Fields::Separated(separator) => self.range(line, Some(separator)),
            Fields::Csv(separator) => self.part_of_row(line, separator),
        }
    }

    fn part_of_row(&self, row: &[u8], separator: u8) -> std::ops::Range<usize> {
        if self.end.is_none() {
            return 0..row.len();
        }
        let found = csv::field(row, separator, self.start.field);
        if self.start.skip_blanks {
            return after_blanks(&row[..found.end], found.start)..found.end;
        }
        found
    }

    fn start(&self, line: &[u8], separator: Option<u8>) -> usize {
        let Position {
            field,
            byte,
            skip_blanks,
        } = self.start;
        let mut at = 0;
        let mut fields = field;
        while fields > 0 && at < line.len() {
            at = match separator {
                Some(separator) => (next_separator(line, at, separator) + 1).min(line.len()),
                None => after_field(line, at),
            };
            fields -= 1;
        }
        if skip_blanks {
            at = after_blanks(line, at);
        }
        at.saturating_add(byte).min(line.len())
    }
}

/// How fields of a line are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// They begin where blanks begin.
    #[default]
    Blanks,
    /// A separator stands between them (`-t`).
    Separated(u8),
    /// The same in a table (RFC 4180): quoted fields may hold it. Keys are single fields.
    Csv(u8),
}

/// The end of a key: after the last byte that belongs to it.
fn end_of(end: &Position, line: &[u8], separator: Option<u8>) -> usize {
    let whole_field = end.byte == 0;
    let mut fields = end.field.saturating_add(usize::from(whole_field));
    let mut at = 0;
    while fields > 0 && at < line.len() {
        fields -= 1;
        at = match separator {
            Some(separator) => next_separator(line, at, separator),
            None => after_field(line, at),
        };
        // The separator is passed on the way to a later place, and is no part of a field.
        if separator.is_some() && at < line.len() && (fields > 0 || !whole_field) {
            at += 1;
        }
    }
    if whole_field {
        return at;
    }
    if end.skip_blanks {
        at = after_blanks(line, at);
    }
    at.saturating_add(end.byte).min(line.len())
}

/// The next separator from a place on, or the end.
fn next_separator(line: &[u8], at: usize, separator: u8) -> usize {
    memchr::memchr(separator, &line[at..]).map_or(line.len(), |length| at + length)
}

fn after_blanks(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|byte| is_blank(**byte)).count()
}

/// After blanks and the bytes that follow them.
fn after_field(line: &[u8], at: usize) -> usize {
    let at = after_blanks(line, at);
    memchr::memchr3(b' ', b'\t', b'\n', &line[at..]).map_or(line.len(), |length| at + length)
}

/// What is left of a description.
struct Words<'a> {
    spec: &'a str,
    at: usize,
}

impl Words<'_> {
    /// `F[.C]`, with F counted from 0.
    fn position(&mut self, no_field: &'static str, no_byte: &'static str) -> Result<(usize, Option<usize>), TextError> {
        let field = self.number(no_field)?;
        let field = field.checked_sub(1).ok_or_else(|| self.wrong("field number is zero"))?;
        let byte = if self.accept(b'.') {
            Some(self.number(no_byte)?)
        } else {
            None
        };
        Ok((field, byte))
    }

    /// A number; the largest there is for one that is larger.
    fn number(&mut self, otherwise: &'static str) -> Result<usize, TextError> {
        let rest = &self.spec[self.at..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            let rest = rest.to_owned();
            return Err(TextError::Count {
                problem: otherwise,
                rest,
            });
        }
        self.at += digits;
        Ok(rest[..digits].parse().unwrap_or(usize::MAX))
    }

    fn options(&mut self) -> Result<KeyOptions, TextError> {
        let mut options = KeyOptions::default();
        while let Some(&letter) = self.spec.as_bytes().get(self.at)
            && options.insert(letter)?
        {
            self.at += 1;
        }
        Ok(options)
    }

    fn accept(&mut self, byte: u8) -> bool {
        let accepted = self.spec.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(accepted);
        accepted
    }

    fn wrong(&self, problem: &'static str) -> TextError {
        TextError::FieldSpec {
            problem,
            spec: self.spec.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(spec: &str, line: &'a str, separator: Option<u8>) -> &'a str {
        &line[KeySpec::parse(spec).expect(spec).range(line.as_bytes(), separator)]
    }

    #[test]
    fn fields_between_blanks_begin_with_their_blanks() {
        let line = "  one two\t three";
        assert_eq!(key("1,1", line, None), "  one");
        assert_eq!(key("2,2", line, None), " two");
        assert_eq!(key("3", line, None), "\t three");
        assert_eq!(key("2b,2", line, None), "two");
        assert_eq!(key("2.2,3.3", line, None), "two\t t");
        assert_eq!(key("2,3.2b", line, None), " two\t th");
        assert_eq!(key("3.2b,3", line, None), "hree");
        assert_eq!(key("4", line, None), "");
    }

    #[test]
    fn a_separator_is_no_part_of_a_field_and_fields_may_be_empty() {
        let line = "a::b:c";
        for (spec, expected) in [
            ("1,1", "a"),
            ("2,2", ""),
            ("2", ":b:c"),
            ("3,4", "b:c"),
            ("1.2", "::b:c"),
            ("1,3.1", "a::b"),
            ("1,2.1", "a::"),
            ("5,9", ""),
        ] {
            assert_eq!(key(spec, line, Some(b':')), expected, "{spec}");
        }
    }

    #[test]
    fn a_key_that_ends_before_it_begins_is_empty() {
        assert_eq!(key("2,1", "a b c", None), "");
        assert_eq!(key("1.3,1.2", "abcdef", None), "");
        assert_eq!(key("1,1.0", "ab cd", None), "ab");
    }

    #[test]
    fn numbers_beyond_all_lines_are_places_beyond_all_lines() {
        let huge = "99999999999999999999999999";
        assert_eq!(key(&format!("{huge}.{huge}"), "abc", None), "");
        assert_eq!(key(&format!("1.2,{huge}.{huge}"), "abc", Some(b':')), "bc");
        assert_eq!(key(&format!("1,{huge}"), "abc", Some(b':')), "abc");
    }

    #[test]
    fn mistakes_are_described_as_sort_describes_them() {
        for (spec, message) in [
            ("0", "field number is zero: invalid field specification '0'"),
            ("", "invalid number at field start: invalid count at start of ''"),
            ("x", "invalid number at field start: invalid count at start of 'x'"),
            ("1.", "invalid number after '.': invalid count at start of ''"),
            ("1.0", "character offset is zero: invalid field specification '1.0'"),
            ("1,", "invalid number after ',': invalid count at start of ''"),
            ("1,0", "field number is zero: invalid field specification '1,0'"),
            (
                "1.2x",
                "stray character in field spec: invalid field specification '1.2x'",
            ),
            (
                "1,2,3",
                "stray character in field spec: invalid field specification '1,2,3'",
            ),
        ] {
            let error = KeySpec::parse(spec).expect_err(spec);
            assert_eq!(error.to_string(), message, "{spec}");
        }
        assert!(matches!(KeySpec::parse("1R"), Err(TextError::RandomOrder)));
    }
}
