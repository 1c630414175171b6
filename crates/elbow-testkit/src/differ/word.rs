//! The words that a call is written with: each has one readable spelling, without blanks, that reads back as the same value.

use std::fmt::Write as _;

/// Something that is one word in a script.
pub trait Word: Sized {
    /// Appends its spelling.
    fn put(&self, out: &mut String);
    /// Reads it back; `None` when it is not one.
    fn take(word: &str) -> Option<Self>;
}

/// The spelling of a word.
pub fn spell(word: &impl Word) -> String {
    let mut out = String::new();
    word.put(&mut out);
    out
}

macro_rules! decimal {
    ($($number:ty),*) => {$(
        impl Word for $number {
            fn put(&self, out: &mut String) {
                let _ = write!(out, "{self}"); // Writing to a string cannot fail.
            }
            fn take(word: &str) -> Option<Self> {
                word.parse().ok()
            }
        }
    )*};
}
decimal!(u64, i64, u32, i32, u8);

/// Permission bits, in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits(pub u32);

impl Word for Bits {
    fn put(&self, out: &mut String) {
        let _ = write!(out, "{:04o}", self.0);
    }
    fn take(word: &str) -> Option<Self> {
        u32::from_str_radix(word, 8).ok().map(Self)
    }
}

/// A path or the name of an attribute: bytes, of which those that are not printable, `%` and blanks are written as `%20`; the empty one is `%`,
/// and a long run of one letter is `x*255`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(pub Vec<u8>);

impl Name {
    /// That of a text.
    pub fn of(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl Word for Name {
    fn put(&self, out: &mut String) {
        let all_same = self.0.first().filter(|first| self.0.iter().all(|byte| byte == *first));
        if let Some(letter) = all_same.filter(|letter| self.0.len() > 20 && letter.is_ascii_alphanumeric()) {
            let _ = write!(out, "{}*{}", char::from(*letter), self.0.len());
            return;
        }
        if self.0.is_empty() {
            out.push('%');
        }
        for byte in &self.0 {
            if byte.is_ascii_graphic() && !b"%*".contains(byte) {
                out.push(char::from(*byte));
            } else {
                let _ = write!(out, "%{byte:02x}");
            }
        }
    }

    fn take(word: &str) -> Option<Self> {
        if word == "%" {
            return Some(Self::default());
        }
        if let Some((letter, count)) = word.split_once('*') {
            let count = count.parse().ok().filter(|count| *count <= NAME_BYTES_MAX)?;
            return Some(Self(vec![letter.bytes().next()?; count]));
        }
        let mut bytes = Vec::new();
        let mut rest = word.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let digits = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            } else {
                bytes.push(byte);
            }
        }
        Some(Self(bytes))
    }
}

/// No path is longer.
const NAME_BYTES_MAX: usize = 1 << 13;

/// Bytes that a seed gives, as `LENGTH@SEED`; seed 0 gives zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// How many bytes.
    pub length: u64,
    /// From which they are drawn.
    pub seed: u64,
}

/// No case writes more at once.
const DATA_BYTES_MAX: u64 = 64 << 20;

impl Data {
    /// The bytes themselves.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or(0)];
        if self.seed == 0 {
            return bytes;
        }
        let mut state = self.seed;
        for piece in bytes.chunks_mut(8) {
            // splitmix64, as in java.util.SplittableRandom: fast, and every seed gives another sequence.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) | 1).to_le_bytes();
            piece.copy_from_slice(&mixed[..piece.len()]);
        }
        bytes
    }
}

impl Word for Data {
    fn put(&self, out: &mut String) {
        let _ = write!(out, "{}@{}", self.length, self.seed);
    }
    fn take(word: &str) -> Option<Self> {
        let (length, seed) = word.split_once('@')?;
        let length = length.parse().ok().filter(|length| *length <= DATA_BYTES_MAX)?;
        Some(Self {
            length,
            seed: seed.parse().ok()?,
        })
    }
}

/// What a path is relative to: `root` (the directory of the case), `cwd`, or the descriptor in a slot (`f3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The directory of the case.
    Root,
    /// The worker's current directory.
    Cwd,
    /// The worker's descriptor of that number.
    Slot(Slot),
}

impl Word for At {
    fn put(&self, out: &mut String) {
        match self {
            Self::Root => out.push_str("root"),
            Self::Cwd => out.push_str("cwd"),
            Self::Slot(slot) => slot.put(out),
        }
    }
    fn take(word: &str) -> Option<Self> {
        match word {
            "root" => Some(Self::Root),
            "cwd" => Some(Self::Cwd),
            slot => Slot::take(slot).map(Self::Slot),
        }
    }
}

/// How many descriptors a worker has.
pub const SLOTS: u8 = 8;
/// How many maps a worker has.
pub const MAPS: u8 = 3;

macro_rules! lettered {
    ($($(#[$about:meta])* $name:ident $letter:literal $most:ident),*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub u8);

        impl Word for $name {
            fn put(&self, out: &mut String) {
                let _ = write!(out, "{}{}", $letter, self.0);
            }
            fn take(word: &str) -> Option<Self> {
                let number = word.strip_prefix($letter)?.parse().ok()?;
                (number < $most).then_some(Self(number))
            }
        }
    )*};
}
lettered!(
    /// A place for a descriptor, `f0` to `f7`.
    Slot 'f' SLOTS,
    /// A place for a memory map, `m0` to `m2`.
    Map 'm' MAPS
);

/// A time to set: `now`, `omit`, or seconds and nanoseconds since 1970 as `1000000000.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// That of the call.
    Now,
    /// The one that it has.
    Omit,
    /// Seconds and nanoseconds.
    At(i64, i64),
}

impl Word for Time {
    fn put(&self, out: &mut String) {
        let _ = match self {
            Self::Now => write!(out, "now"),
            Self::Omit => write!(out, "omit"),
            Self::At(seconds, nanoseconds) => write!(out, "{seconds}.{nanoseconds}"),
        };
    }
    fn take(word: &str) -> Option<Self> {
        match word {
            "now" => Some(Self::Now),
            "omit" => Some(Self::Omit),
            time => {
                let (seconds, nanoseconds) = time.split_once('.')?;
                Some(Self::At(seconds.parse().ok()?, nanoseconds.parse().ok()?))
            }
        }
    }
}

/// A number that may be left out, `-`.
impl Word for Option<u64> {
    fn put(&self, out: &mut String) {
        match self {
            Some(number) => number.put(out),
            None => out.push('-'),
        }
    }
    fn take(word: &str) -> Option<Self> {
        match word {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        }
    }
}

/// Words with a spelling of their own each.
macro_rules! choice {
    ($($(#[$about:meta])* $name:ident { $($variant:ident $word:literal = $value:expr),* $(,)? })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // Named after what the manual page calls them.
        pub enum $name { $($variant),* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The number that the system call takes.
            pub fn value(self) -> i32 {
                match self { $(Self::$variant => $value),* }
            }
        }

        impl $crate::differ::word::Word for $name {
            fn put(&self, out: &mut String) {
                out.push_str(match self { $(Self::$variant => $word),* });
            }
            fn take(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    )*};
}

choice! {
    /// What mknod(2) makes.
    Kind { Fifo "fifo" = libc::S_IFIFO as i32, Socket "socket" = libc::S_IFSOCK as i32, Char "char" = libc::S_IFCHR as i32,
        Block "block" = libc::S_IFBLK as i32, File "file" = libc::S_IFREG as i32 }
    /// Whence lseek(2) counts.
    Whence { Set "set" = libc::SEEK_SET, Cur "cur" = libc::SEEK_CUR, End "end" = libc::SEEK_END }
    /// Which access control list.
    Which { Access "access" = 0, Default "default" = 1 }
    /// A lock, or none.
    Lock { Shared "shared" = libc::F_RDLCK, Exclusive "exclusive" = libc::F_WRLCK, None "none" = libc::F_UNLCK }
}

/// Flags by name, joined with `+`; none are `-`, and bits without a name a number.
macro_rules! flags {
    ($($(#[$about:meta])* $name:ident { $($word:literal = $value:expr),* $(,)? })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub i32);

        impl $name {
            /// Each that has a name.
            pub const EACH: &'static [i32] = &[$($value),*];

            /// Whether it has all of these.
            pub fn has(self, bits: i32) -> bool {
                self.0 & bits == bits
            }
        }

        impl Word for $name {
            fn put(&self, out: &mut String) {
                let (mut rest, start) = (self.0, out.len());
                for (word, value) in [$(($word, $value)),*] {
                    if rest & value == value {
                        out.push_str(if out.len() > start { "+" } else { "" });
                        out.push_str(word);
                        rest &= !value;
                    }
                }
                if rest != 0 || out.len() == start {
                    out.push_str(if out.len() > start { "+" } else { "" });
                    if rest == 0 { out.push('-') } else { rest.put(out) }
                }
            }
            fn take(word: &str) -> Option<Self> {
                let bit = |word: &str| match word {
                    $($word => Some($value),)*
                    "-" => Some(0),
                    number => number.parse().ok(),
                };
                word.split('+').try_fold(0, |bits, word| Some(bits | bit(word)?)).map(Self)
            }
        }
    )*};
}

flags! {
    /// Those of open(2); without `WR` or `RW` it reads.
    OpenFlags { "TMPFILE" = libc::O_TMPFILE, "WR" = libc::O_WRONLY, "RW" = libc::O_RDWR, "CREAT" = libc::O_CREAT, "EXCL" = libc::O_EXCL,
        "TRUNC" = libc::O_TRUNC, "APPEND" = libc::O_APPEND, "DIRECTORY" = libc::O_DIRECTORY, "NOFOLLOW" = libc::O_NOFOLLOW,
        "PATH" = libc::O_PATH, "SYNC" = libc::O_DSYNC }
    /// Those of the calls whose names end in `at`.
    AtFlags { "NOFOLLOW" = libc::AT_SYMLINK_NOFOLLOW, "FOLLOW" = libc::AT_SYMLINK_FOLLOW, "EMPTY" = libc::AT_EMPTY_PATH,
        "EACCESS" = libc::AT_EACCESS }
    /// Those of renameat2(2).
    RenameFlags { "NOREPLACE" = libc::RENAME_NOREPLACE as i32, "EXCHANGE" = libc::RENAME_EXCHANGE as i32,
        "WHITEOUT" = libc::RENAME_WHITEOUT as i32 }
    /// Those of fallocate(2).
    FallocateFlags { "KEEP" = libc::FALLOC_FL_KEEP_SIZE, "PUNCH" = libc::FALLOC_FL_PUNCH_HOLE,
        "COLLAPSE" = libc::FALLOC_FL_COLLAPSE_RANGE, "ZERO" = libc::FALLOC_FL_ZERO_RANGE, "INSERT" = libc::FALLOC_FL_INSERT_RANGE }
    /// Those of setxattr(2).
    XattrFlags { "CREATE" = libc::XATTR_CREATE, "REPLACE" = libc::XATTR_REPLACE }
    /// Those of access(2).
    AccessFlags { "R" = libc::R_OK, "W" = libc::W_OK, "X" = libc::X_OK }
    /// Those of mmap(2).
    MapFlags { "WRITE" = libc::PROT_WRITE, "PRIVATE" = 0x100 }
}

/// An enum whose variants are lines: a verb, and one word for each field.
macro_rules! lines {
    ($(#[$what:meta])* $name:ident { $($(#[$about:meta])* $variant:ident $verb:literal { $($field:ident: $kind:ty),* })* }) => {
        $(#[$what])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The fields are named as in the manual pages.
        pub enum $name { $($(#[$about])* $variant { $($field: $kind),* }),* }

        impl $name {
            /// The first word of its line.
            pub fn verb(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $verb),* }
            }

            /// Its words, the verb first.
            pub fn encode(&self) -> String {
                #[allow(unused_mut)]
                let mut out = self.verb().to_owned();
                match self {
                    $(Self::$variant { $($field),* } => { $(out.push(' '); $crate::differ::word::Word::put($field, &mut out);)* })*
                }
                out
            }

            /// Reads what `encode` wrote; `None` where it is something else.
            pub fn decode(line: &str) -> Option<Self> {
                let mut words = line.split_ascii_whitespace();
                let read = match words.next()? {
                    $($verb => Self::$variant { $($field: <$kind as $crate::differ::word::Word>::take(words.next()?)?),* },)*
                    _ => return None,
                };
                words.next().is_none().then_some(read)
            }
        }
    };
}
pub(super) use {choice, lines};

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_reads_back<W: Word + PartialEq + std::fmt::Debug>(word: &W, spelling: &str) {
        assert_eq!(spell(word), spelling);
        assert_eq!(W::take(spelling).as_ref(), Some(word));
    }

    #[test]
    fn words_read_back_as_they_were() {
        assert_reads_back(&Name(b"a b\xff%*".to_vec()), "a%20b%ff%25%2a");
        assert_reads_back(&Name::default(), "%");
        assert_reads_back(&Name(vec![b'n'; 255]), "n*255");
        assert_reads_back(&OpenFlags(libc::O_RDWR | libc::O_CREAT), "RW+CREAT");
        assert_reads_back(&OpenFlags(0), "-");
        assert_reads_back(&AtFlags(0x4000_0000), "1073741824");
        assert_reads_back(&At::Slot(Slot(3)), "f3");
        assert_reads_back(&Time::At(-1, 5), "-1.5");
        assert_reads_back(&Data { length: 9, seed: 7 }, "9@7");
        assert_eq!(Slot::take("f8"), None);
    }

    #[test]
    fn data_of_a_seed_have_no_zeros_in_a_row_and_those_of_none_are_zeros() {
        let data = Data { length: 4096, seed: 1 }.bytes();
        assert!(data.chunks(8).all(|piece| piece.iter().any(|byte| *byte != 0)));
        assert_eq!(Data { length: 3, seed: 0 }.bytes(), [0; 3]);
    }
}
