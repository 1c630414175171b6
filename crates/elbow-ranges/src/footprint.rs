//! What one request covers, in the form it was asked for.
//!
//! ```text
//!   whole      every byte that the file has or will have
//!   pattern    one range or one regular pattern
//!   list       irregular runs, and patterns; each sorted by start
//!   blocks     a bitmap of blocks
//! ```
//!
//! Invariants: never empty, never expanded. One form per value: a list has two members or more, its runs are sorted, disjoint and
//! coalesced, its patterns sorted, different and not single ranges; all of `[0, u64::MAX)` is the whole.
//!
//! Not here: who holds it, and how (the lock table).
//!
//! Source: Aarestad et al., *Scalable Approaches for Supporting MPI-IO Atomicity* (list locks, block locks); Ching et al.,
//! SC'07 (locks on datatypes).

mod coarsen;
mod coding;
mod overlap;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::compress::find;
use crate::list::List;
use crate::ranges::{RangeSource, Run};
use crate::{BlockBitmap, PatternError, Ranges, Strided};
pub use coarsen::Mode;

/// The bytes that one request covers. Cloning is cheap.
///
/// ```
/// use elbow_ranges::Footprint;
///
/// // Every 4th piece of 100 bytes, and a header.
/// let list = (0..1000).map(|i| (4096 + i * 400, 100)).chain([(0, 512)]);
/// let writer = Footprint::from_list(list)?;
/// assert_eq!(writer.segments(), 1001);
/// assert_eq!(writer.bounds(), 0..4096 + 999 * 400 + 100);
///
/// assert!(!writer.overlaps(&Footprint::extent(512..4096)?));
/// assert!(writer.overlaps(&Footprint::whole()));
/// assert_eq!(writer.to_string(), "0..512, 4096 + 1000 x 400 + [0, 100)");
/// # Ok::<(), elbow_ranges::PatternError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Footprint {
    form: Form,
    /// What it is asked for first, whatever the form.
    bounds: Run,
}

#[derive(Clone, PartialEq)]
enum Form {
    Whole,
    Pattern(Strided),
    List(Arc<List>),
    /// Not empty.
    Blocks(Arc<BlockBitmap>),
}

/// Everything.
const ALL: Run = Run {
    start: 0,
    end: u64::MAX,
};

impl Footprint {
    /// All bytes, those that are not there yet included.
    #[must_use]
    pub fn whole() -> Self {
        Self::of(Form::Whole)
    }

    /// One range.
    ///
    /// # Errors
    /// When it is empty.
    pub fn extent(range: Range<u64>) -> Result<Self, PatternError> {
        Strided::range(range).map(Self::from)
    }

    /// What a list of `(offset, length)` covers, in any order, overlapping or not; patterns in it are found
    /// ([`compress`](crate::compress())). `O(n)` for a sorted list.
    ///
    /// # Errors
    /// When it covers nothing or an end lies past `u64::MAX`.
    pub fn from_list(list: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, PatternError> {
        let run = |(start, length): (u64, u64)| {
            Some(Run {
                start,
                end: start.checked_add(length)?,
            })
        };
        let runs: Option<Vec<Run>> = list.into_iter().map(run).collect();
        let runs = runs.ok_or(PatternError::Overflow)?;
        Self::from_parts(find(List {
            runs,
            patterns: Vec::new(),
        }))
    }

    /// What any of some patterns covers; those that together are a larger pattern are put together.
    ///
    /// # Errors
    /// When there is none.
    pub fn from_patterns(patterns: impl IntoIterator<Item = Strided>) -> Result<Self, PatternError> {
        let patterns = patterns.into_iter().collect();
        Self::from_parts(find(List {
            runs: Vec::new(),
            patterns,
        }))
    }

    /// All blocks of a bitmap.
    ///
    /// # Errors
    /// When it is empty.
    pub fn from_blocks(blocks: BlockBitmap) -> Result<Self, PatternError> {
        if blocks.is_empty() {
            return Err(PatternError::Empty);
        }
        Ok(Self::of(Form::Blocks(Arc::new(blocks))))
    }

    /// What either covers, put together where it fits. `O(n log n)` of lists; two bitmaps of one block size stay one.
    ///
    /// ```
    /// # use elbow_ranges::Footprint;
    /// let (a, b) = (Footprint::from_list([(0, 10), (50, 10)])?, Footprint::extent(10..20)?);
    /// assert_eq!(a.union(&b).iter().collect::<Vec<_>>(), [0..20, 50..60]);
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if let (Form::Blocks(ours), Form::Blocks(theirs)) = (&self.form, &other.form) {
            let mut union = (**ours).clone();
            if union.union_with(theirs).is_ok() {
                return Self::of(Form::Blocks(Arc::new(union)));
            }
        }
        let (mut list, theirs) = (self.to_list(), other.to_list());
        list.runs.extend(theirs.runs);
        list.patterns.extend(theirs.patterns);
        Self::from_parts(find(list)).unwrap_or_else(|_| Self::whole()) // neither is empty
    }

    fn to_list(&self) -> List {
        let (runs, patterns) = self.parts();
        let runs = match &self.form {
            Form::Blocks(blocks) => blocks.iter().map(|Range { start, end }| Run { start, end }).collect(),
            _ => runs.to_vec(),
        };
        List {
            runs,
            patterns: patterns.to_vec(),
        }
    }

    fn of(form: Form) -> Self {
        let Range { start, end } = match &form {
            Form::Whole => ALL.start..ALL.end,
            Form::Pattern(pattern) => pattern.bounds(),
            Form::Blocks(blocks) => blocks.bounds(),
            Form::List(list) => list.bounds(),
        };
        Self {
            form,
            bounds: Run { start, end },
        }
    }

    /// The one form of a list. Its parts are sorted as they have to be.
    fn from_parts(mut list: List) -> Result<Self, PatternError> {
        if list.runs.first() == Some(&ALL) {
            return Ok(Self::whole());
        }
        match (list.runs.as_slice(), list.patterns.as_slice()) {
            ([], []) => Err(PatternError::Empty),
            ([run], []) => Self::extent(run.start..run.end),
            ([], [_]) => Ok(list.patterns.remove(0).into()),
            _ => Ok(Self::of(Form::List(Arc::new(list)))),
        }
    }

    /// Whether it is all bytes.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.form == Form::Whole
    }

    /// Whether it is one pattern of three or more nested vectors, which may take long to compare with another one.
    #[must_use]
    #[inline] // A lock service asks it several times of each lock.
    pub fn is_deep(&self) -> bool {
        matches!(&self.form, Form::Pattern(pattern) if pattern.dims().len() > 2)
    }

    /// The smallest range that holds all of it.
    #[must_use]
    #[inline] // A lock service asks it several times of each lock.
    pub fn bounds(&self) -> Range<u64> {
        self.bounds.start..self.bounds.end
    }

    /// Ranges that [`iter`](Self::iter) gives; an upper bound where patterns or vectors interleave. `O(n)` of a list or a bitmap.
    #[must_use]
    pub fn segments(&self) -> u64 {
        match &self.form {
            Form::Whole => 1,
            Form::Pattern(pattern) => pattern.segments(),
            Form::Blocks(blocks) => blocks.iter().count() as u64,
            Form::List(list) => {
                let of_patterns = list.patterns.iter().map(Strided::segments);
                of_patterns.fold(list.runs.len() as u64, u64::saturating_add)
            }
        }
    }

    /// Bytes that it covers; an upper bound where patterns or vectors interleave. `O(n)` of a list.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        match &self.form {
            Form::Whole => u64::MAX,
            Form::Pattern(pattern) => pattern.total_bytes(),
            Form::Blocks(blocks) => blocks.total_bytes(),
            Form::List(list) => {
                let runs = list.runs.iter().map(|run| run.end - run.start);
                runs.chain(list.patterns.iter().map(Strided::total_bytes))
                    .fold(0, u64::saturating_add)
            }
        }
    }

    /// Memory that it takes beside its own size, shared with its clones: of a list or a bitmap, about, in bytes.
    ///
    /// ```
    /// # use elbow_ranges::Footprint;
    /// assert_eq!(Footprint::extent(0..4096).unwrap().heap_bytes(), 0);
    /// assert!(Footprint::from_list([(0, 1), (2, 3), (7, 9)]).unwrap().heap_bytes() >= 48);
    /// ```
    #[must_use]
    #[inline] // A lock service asks it several times of each lock.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Whole => 0,
            Form::Pattern(pattern) => pattern.heap_bytes(),
            Form::Blocks(blocks) => blocks.heap_bytes(),
            Form::List(list) => {
                let of_patterns = list.patterns.iter().map(Strided::heap_bytes).sum::<usize>();
                size_of_val(&*list.runs) + size_of_val(&*list.patterns) + of_patterns
            }
        }
    }

    /// The ranges that it covers, sorted and coalesced.
    #[must_use]
    pub fn iter(&self) -> Ranges<'_> {
        match &self.form {
            Form::Whole => Ranges::from_source(RangeSource::List([ALL].iter())),
            Form::Pattern(pattern) => pattern.iter(),
            Form::Blocks(blocks) => blocks.iter(),
            Form::List(list) => Ranges::merge(list.sources()),
        }
    }

    /// The runs and patterns that it consists of; of a bitmap, none.
    fn parts(&self) -> (&[Run], &[Strided]) {
        match &self.form {
            Form::Whole => (&[ALL], &[]),
            Form::Pattern(pattern) => (&[], std::slice::from_ref(pattern)),
            Form::List(list) => (&list.runs, &list.patterns),
            Form::Blocks(_) => (&[], &[]),
        }
    }
}

/// A pattern covers what it covers.
impl From<Strided> for Footprint {
    fn from(pattern: Strided) -> Self {
        if pattern.bounds() == (ALL.start..ALL.end) && pattern.dims().len() == 0 {
            return Self::whole();
        }
        Self::of(Form::Pattern(pattern))
    }
}

impl fmt::Debug for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Members shown of a long list.
const SHOWN: usize = 3;

/// Its members, of a long list the first few: `0..512, 4096 + 1000 x 400 + [0, 100)`.
impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Whole => f.write_str("all"),
            Form::Pattern(pattern) => pattern.fmt(f),
            Form::Blocks(blocks) => blocks.fmt(f),
            Form::List(list) => {
                let runs = list.runs.iter().map(|run| format!("{}..{}", run.start, run.end));
                let members = list.runs.len() + list.patterns.len();
                let shown: Vec<String> = runs
                    .take(SHOWN)
                    .chain(list.patterns.iter().map(Strided::to_string).take(SHOWN))
                    .collect();
                f.write_str(&shown.join(", "))?;
                match members - shown.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}
