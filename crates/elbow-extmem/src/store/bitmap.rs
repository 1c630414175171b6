//! The free map in the file, for where holes cannot be trusted.
//!
//! ```text
//!   page n of the map:   | copy 0 | copy 1 |     version v is written to copy v mod 2
//!   copy:   magic "ELBOWMAP", number of the page, version, one bit for each of 32448 blocks: it holds data; CRC-32
//! ```
//!
//! Invariants: the newest version that is durable is never overwritten, so a write torn by a crash leaves the version
//! before it. A page's first version, empty, is durable before its second is written; so a page whose copies are both
//! damaged was damaged later, except one that was being made.
//!
//! Pages are written when the store is synced, after the data that they speak of is durable.

use elbow_file::{Handle, Storage};
use elbow_ranges::encoding::{DecodeError, ENVELOPE_BYTES, open_sealed, seal};

use super::StoreError;
use super::bitset::Bitset;
use super::layout::{BLOCKS_MAX, BLOCKS_PER_PAGE, Layout, PAGE_BYTES, PAGE_PREFIX_BYTES, PAGE_WORDS};

const MAGIC: [u8; 8] = *b"ELBOWMAP";
const VERSION: u16 = 1;

/// A page as it is to be written.
pub(super) struct Page {
    pub(super) number: u64,
    words: Vec<u64>,
}

/// The newest durable version of each page; `None` of a page that was never written.
#[derive(Debug, Default)]
pub(super) struct Versions(Vec<Option<u64>>);

impl Page {
    /// What is in memory of a page.
    pub(super) fn of(number: u64, written: &Bitset) -> Self {
        let first = number as usize * PAGE_WORDS;
        let words = (first..first + PAGE_WORDS).map(|index| written.word(index)).collect();
        Self { number, words }
    }

    fn empty(number: u64) -> Self {
        let words = vec![0; PAGE_WORDS];
        Self { number, words }
    }

    fn encode(&self, version: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(PAGE_PREFIX_BYTES + PAGE_WORDS * 8);
        let numbers = [self.number, version].into_iter().chain(self.words.iter().copied());
        numbers.for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
        seal(MAGIC, VERSION, &body)
    }

    /// A copy and its version.
    fn decode(number: u64, copy: &[u8]) -> Result<(u64, Self), DecodeError> {
        let sealed = &copy[..ENVELOPE_BYTES + PAGE_PREFIX_BYTES + PAGE_WORDS * 8];
        let (_, body) = open_sealed(MAGIC, VERSION..=VERSION, sealed)?;
        let (words, _) = body.as_chunks();
        let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
        let (found, version) = (words.next(), words.next());
        match (found, version) {
            (Some(found), Some(version)) if found == number => {
                let words = words.collect();
                Ok((version, Self { number, words }))
            }
            _ => Err(DecodeError::BadValue {
                at: ENVELOPE_BYTES - 4,
                what: "it is another page's",
            }),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let first = self.number * BLOCKS_PER_PAGE;
        let bits = self.words.iter().zip((first..).step_by(64));
        bits.flat_map(|(&word, first)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| first + bit)
        })
    }
}

/// The bitmap of one file.
pub(super) struct Map<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) file: &'a Handle,
    pub(super) name: &'a str,
    pub(super) layout: &'a Layout,
}

impl Map<'_> {
    /// Reads all pages; gives the blocks that hold data.
    pub(super) fn load(&self, file_bytes: u64) -> Result<(Versions, Bitset), StoreError> {
        let (mut versions, mut written) = (Versions::default(), Bitset::new());
        for number in 0..BLOCKS_MAX / BLOCKS_PER_PAGE {
            if self.layout.page_offset(number) >= file_bytes {
                break;
            }
            let newest = self.load_page(number)?;
            versions.0.push(newest.as_ref().map(|(version, _)| *version));
            let blocks = newest.iter().flat_map(|(_, page)| page.blocks());
            blocks.for_each(|block| {
                written.insert(block);
            });
        }
        Ok((versions, written))
    }

    /// The newest version of a page, if it has any.
    fn load_page(&self, number: u64) -> Result<Option<(u64, Page)>, StoreError> {
        let mut copies = vec![0; 2 * PAGE_BYTES];
        self.storage
            .read(self.file, &mut copies, self.layout.page_offset(number))
            .map_err(|errno| StoreError::io(self.name, "read its free map", errno))?;
        let (first, second) = copies.split_at(PAGE_BYTES);
        match (Page::decode(number, first), Page::decode(number, second)) {
            (Ok(one), Ok(other)) => Ok(Some(if one.0 > other.0 { one } else { other })),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(Some(one)),
            // Nothing was written behind the first copy, so the first was the empty one.
            (Err(_), Err(_)) if second.iter().all(|&byte| byte == 0) => Ok(None),
            (Err(_), Err(source)) => Err(StoreError::Map {
                file: self.name.to_owned(),
                page: number,
                source,
            }),
        }
    }

    /// Makes pages durable, and before them all data that was written so far.
    pub(super) fn store(&self, versions: &mut Versions, pages: &[Page]) -> Result<(), StoreError> {
        for page in pages.iter().filter(|page| versions.of(page.number).is_none()) {
            self.write(&Page::empty(page.number), 0)?;
        }
        self.sync()?;
        if pages.is_empty() {
            return Ok(());
        }
        for page in pages {
            self.write(page, versions.of(page.number).unwrap_or(0) + 1)?;
        }
        self.sync()?;
        pages.iter().for_each(|page| versions.advance(page.number));
        Ok(())
    }

    fn write(&self, page: &Page, version: u64) -> Result<(), StoreError> {
        let offset = self.layout.page_offset(page.number) + version % 2 * PAGE_BYTES as u64;
        let copy = page.encode(version);
        self.storage
            .write(self.file, &[std::io::IoSlice::new(&copy)], offset)
            .map_err(|errno| StoreError::io(self.name, "write its free map", errno))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.storage
            .sync(self.file)
            .map_err(|errno| StoreError::io(self.name, "sync it", errno))
    }
}

impl Versions {
    fn of(&self, page: u64) -> Option<u64> {
        self.0.get(page as usize).copied().flatten()
    }

    fn advance(&mut self, page: u64) {
        let page = page as usize;
        self.0.resize(self.0.len().max(page + 1), None);
        self.0[page] = Some(self.0[page].unwrap_or(0) + 1);
    }

    /// Forgets the pages behind those of so many blocks: they are cut off the file.
    pub(super) fn cut(&mut self, blocks: u64) {
        self.0.truncate(blocks.div_ceil(BLOCKS_PER_PAGE) as usize);
    }
}
