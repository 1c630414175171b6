//! What the processes of the study do.

use std::collections::HashSet;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::{TraceError, TraceProblem};
use crate::trace::{Action, Trace, TraceFile, line_numbers};

fn write(trace: &mut Trace, pid: u32, path: &str, bytes: u64) {
    trace.push(pid, Action::Create(path.to_owned()));
    if bytes > 0 {
        let (path, offset) = (path.to_owned(), 0);
        trace.push(pid, Action::Write { path, offset, bytes });
    }
    trace.push(pid, Action::Close(path.to_owned()));
}

/// Small files made in one directory by several processes in turn (Figures 9 to 11 of *Range Writes*).
///
/// ```
/// use elbow_ext2::SmallFiles;
///
/// let trace = SmallFiles { files: 1000, bytes: 4096, processes: 16 }.trace("/small");
/// assert_eq!(trace.summary().creates, 1000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallFiles {
    /// Files that are made.
    pub files: u32,
    /// Bytes of each file, written from its beginning.
    pub bytes: u64,
    /// Pids from 0 on; each has a mini-group of its own if there are at most 16.
    pub processes: u32,
}

impl SmallFiles {
    /// The files, in a directory that is there.
    #[must_use]
    pub fn trace(&self, directory: &str) -> Trace {
        let mut trace = Trace::default();
        for file in 0..self.files {
            write(
                &mut trace,
                file % self.processes.max(1),
                &format!("{directory}/{file}"),
                self.bytes,
            );
        }
        trace
    }
}

impl Trace {
    /// Unpacks an archive: a listing with `size TAB path` in each line, in the order of the archive; `name` is for errors.
    ///
    /// ```
    /// use elbow_ext2::Trace;
    ///
    /// let trace = Trace::untar("demo", "18693\tCOPYING\n10592\tDocumentation/00-INDEX\n")?;
    /// assert_eq!((trace.summary().creates, trace.summary().directories), (2, 1));
    /// # Ok::<(), elbow_ext2::TraceError>(())
    /// ```
    ///
    /// # Errors
    /// The first line that is not of that form.
    pub fn untar(name: &str, listing: &str) -> Result<Self, TraceError> {
        Ok(TraceFile::untar(name, listing)?.trace)
    }
}

impl TraceFile {
    /// As [`Trace::untar`], with the line of each operation.
    ///
    /// # Errors
    /// The first line that is not of that form.
    pub fn untar(name: &str, listing: &str) -> Result<Self, TraceError> {
        let (mut trace, mut made) = (Trace::default(), HashSet::new());
        let lines = line_numbers(name, listing, |line| {
            unpack(&mut trace, &mut made, line)?;
            Ok(trace.operations.len())
        })?;
        Ok(Self::of(name, trace, lines))
    }
}

/// Makes the file of a line, and the directories above it that are not made yet.
fn unpack(trace: &mut Trace, made: &mut HashSet<String>, line: &str) -> Result<(), TraceProblem> {
    let (size, path) = line
        .split_once('\t')
        .ok_or_else(|| TraceProblem::NotAListing(line.to_owned()))?;
    let size = size.parse().map_err(|_| TraceProblem::NotASize(size.to_owned()))?;
    let path = format!("/{}", path.trim_start_matches('/'));
    for (end, _) in path.match_indices('/').skip(1) {
        if made.insert(path[..end].to_owned()) {
            trace.push(1, Action::Mkdir(path[..end].to_owned()));
        }
    }
    write(trace, 1, &path, size);
    Ok(())
}

/// PostMark, a mail server: files made, then transactions on them, then all removed. Its random numbers are not those of the program, whose
/// real calls [`Trace::parse_strace`] reads.
///
/// Source: Katcher, *PostMark: A New File System Benchmark* (1997); defaults of version 1.51.
///
/// ```
/// use elbow_ext2::PostMark;
///
/// let summary = PostMark::default().trace("/mail").summary();
/// assert_eq!(summary.creates, summary.deletes);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostMark {
    /// Files that are made before the transactions.
    pub files: u32,
    /// Transactions: each reads or appends, and creates or deletes.
    pub transactions: u32,
    /// Smallest file.
    pub bytes_min: u64,
    /// Largest file.
    pub bytes_max: u64,
    /// Chances of ten that a transaction reads rather than appends.
    pub read_bias: u32,
    /// Chances of ten that it creates rather than deletes.
    pub create_bias: u32,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for PostMark {
    fn default() -> Self {
        Self {
            files: 500,
            transactions: 500,
            bytes_min: 500,
            bytes_max: 10_000,
            read_bias: 5,
            create_bias: 5,
            seed: 42,
        }
    }
}

impl PostMark {
    /// All of it, by pid 1, in a directory that it makes.
    #[must_use]
    pub fn trace(&self, directory: &str) -> Trace {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut trace = Trace::default();
        trace.push(1, Action::Mkdir(directory.to_owned()));
        let mut live: Vec<(String, u64)> = Vec::new();
        let mut number = 0;
        let mut create = |trace: &mut Trace, live: &mut Vec<(String, u64)>, random: &mut Xoshiro256PlusPlus| {
            number += 1;
            let (path, bytes) = (
                format!("{directory}/{number}"),
                random.random_range(self.bytes_min..=self.bytes_max),
            );
            write(trace, 1, &path, bytes);
            live.push((path, bytes));
        };
        for _ in 0..self.files {
            create(&mut trace, &mut live, &mut random);
        }
        for _ in 0..self.transactions {
            if !live.is_empty() {
                let chosen = random.random_range(0..live.len());
                self.use_file(&mut trace, &mut live[chosen], &mut random);
            }
            if random.random_range(0..10) < self.create_bias || live.is_empty() {
                create(&mut trace, &mut live, &mut random);
            } else {
                let (path, _) = live.swap_remove(random.random_range(0..live.len()));
                trace.push(1, Action::Unlink(path));
            }
        }
        for (path, _) in live {
            trace.push(1, Action::Unlink(path));
        }
        trace
    }

    fn use_file(&self, trace: &mut Trace, (path, size): &mut (String, u64), random: &mut Xoshiro256PlusPlus) {
        let path = path.clone();
        if random.random_range(0..10) < self.read_bias {
            let (offset, bytes) = (0, *size);
            trace.push(1, Action::Read { path, offset, bytes });
        } else if *size < self.bytes_max {
            let bytes = random.random_range(1..=self.bytes_max - *size);
            *size += bytes;
            let close = Action::Close(path.clone());
            trace.push(1, Action::Append { path, bytes });
            trace.push(1, close);
        }
    }
}

/// The phases of the modified Andrew benchmark: make directories, copy sources, look at all, read all, compile. Compiling is thinking for the most
/// part, which no disk shortens.
///
/// Source: Howard et al., *Scale and Performance in a Distributed File System* (1988); Ousterhout's version of 1990. The shape is
/// theirs (70 files, 200 KB, five phases); the time to compile a file is an option.
///
/// ```
/// use elbow_ext2::Andrew;
///
/// assert_eq!(Andrew::default().trace("/andrew").summary().directories, 21);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Andrew {
    /// Directories in the one that is made first.
    pub directories: u32,
    /// Source files, spread over them.
    pub files: u32,
    /// Size of a source file on average; they have from half of it to half as much again.
    pub bytes: u64,
    /// Time to compile a file, in nanoseconds.
    pub compile_ns: u64,
    /// Seed of the sizes of files.
    pub seed: u64,
}

impl Default for Andrew {
    fn default() -> Self {
        Self {
            directories: 20,
            files: 70,
            bytes: 2_900,
            compile_ns: 300_000_000,
            seed: 1,
        }
    }
}

impl Andrew {
    /// All of it, by pid 1, in a directory that it makes.
    #[must_use]
    pub fn trace(&self, directory: &str) -> Trace {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut trace = Trace::default();
        trace.push(1, Action::Mkdir(directory.to_owned()));
        let count = self.directories.max(1);
        for number in 0..count {
            trace.push(1, Action::Mkdir(format!("{directory}/{number}")));
        }
        let source = |file: u32| format!("{directory}/{}/{file}.c", file % count);
        let sizes: Vec<u64> = (0..self.files)
            .map(|_| random.random_range(self.bytes / 2..=self.bytes * 3 / 2))
            .collect();
        for (file, &bytes) in (0..).zip(&sizes) {
            write(&mut trace, 1, &source(file), bytes);
        }
        for (file, &bytes) in (0..).zip(&sizes) {
            let (path, offset) = (source(file), 0);
            trace.push(1, Action::Read { path, offset, bytes });
        }
        for (file, &bytes) in (0..).zip(&sizes) {
            let (path, offset) = (source(file), 0);
            trace.push(1, Action::Read { path, offset, bytes });
            trace.push(1, Action::Think(self.compile_ns));
            write(
                &mut trace,
                1,
                &format!("{directory}/{}/{file}.o", file % count),
                bytes * 2,
            );
        }
        write(&mut trace, 1, &format!("{directory}/a.out"), sizes.iter().sum::<u64>());
        trace
    }
}
