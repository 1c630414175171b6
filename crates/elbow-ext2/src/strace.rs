//! Traces from the output of strace(1): `strace -f -o FILE -e trace=file,desc,process COMMAND`.
//!
//! With `-y`, strace also tells the directory of paths that do not begin at `/`.
//!
//! Kept are the calls on what lies below one directory, which is taken to be empty at first and becomes the root; a directory that is
//! used before it is made is made then. Failed calls, and calls that neither change nor read a file, are left out. Calls that were
//! interrupted by those of another process (`<unfinished ...>`) cannot be put in order and are an error.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::error::{TraceError, TraceProblem};
use crate::trace::{Action, Trace, TraceFile, line_numbers};

impl Trace {
    /// Reads what strace has written; `name` is for errors, `below` the directory that becomes the root.
    ///
    /// ```
    /// use elbow_ext2::Trace;
    ///
    /// let text = r#"7 openat(AT_FDCWD, "/t/a", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 4
    /// 7 write(4, "hello"..., 5) = 5
    /// 7 close(4) = 0"#;
    /// let trace = Trace::parse_strace("demo", text, "/t")?;
    /// assert_eq!(trace.to_string(), "7 create /a\n7 write /a 0 5\n7 close /a\n");
    /// # Ok::<(), elbow_ext2::TraceError>(())
    /// ```
    ///
    /// # Errors
    /// A line that is no line of strace, or a call that was interrupted.
    pub fn parse_strace(name: &str, text: &str, below: &str) -> Result<Self, TraceError> {
        Ok(TraceFile::parse_strace(name, text, below)?.trace)
    }
}

impl TraceFile {
    /// As [`Trace::parse_strace`], with the line of each operation, and notes of calls that have no counterpart.
    ///
    /// # Errors
    /// A line that is no line of strace, or a call that was interrupted.
    pub fn parse_strace(name: &str, text: &str, below: &str) -> Result<Self, TraceError> {
        let mut reader = Reader {
            below: below.trim_end_matches('/'),
            trace: Trace::default(),
            files: HashMap::new(),
            known: HashSet::new(),
            left_out: BTreeMap::new(),
        };
        let lines = line_numbers(name, text, |line| {
            reader.line(line.trim())?;
            Ok(reader.trace.operations.len())
        })?;
        let notes = reader.notes();
        Ok(Self {
            notes,
            ..Self::of(name, reader.trace, lines)
        })
    }
}

/// An open file.
#[derive(Clone)]
struct Open {
    path: String,
    offset: u64,
    append: bool,
}

struct Reader<'t> {
    below: &'t str,
    trace: Trace,
    /// By pid and descriptor.
    files: HashMap<(u32, i64), Open>,
    /// Paths that are there.
    known: HashSet<String>,
    /// Calls that would have changed or read something, by why they are left out.
    left_out: BTreeMap<&'static str, u64>,
}

/// Calls on a descriptor that the model has no counterpart for, or that are not followed.
const NOT_FOLLOWED: [&str; 15] = [
    "copy_file_range",
    "dup",
    "dup2",
    "dup3",
    "fallocate",
    "fcntl",
    "mmap",
    "preadv",
    "preadv2",
    "pwritev",
    "pwritev2",
    "sendfile",
    "splice",
    "io_uring_enter",
    "vmsplice",
];
/// Calls that name files in a way that is not followed.
const NAMES_NOT_FOLLOWED: [&str; 5] = ["link", "linkat", "symlink", "symlinkat", "openat2"];
const BEFORE: &str = "of files that were there before";
const RELATIVE: &str = "with paths that do not begin at / and whose directory strace was not asked for (-y)";

/// A path in the arguments of a call.
enum Named {
    /// From the root.
    Path(String),
    /// Below a directory that strace did not say (`-y`).
    Relative,
}

/// One call that has succeeded.
struct Call<'t> {
    pid: u32,
    name: &'t str,
    arguments: &'t str,
    result: i64,
}

impl Call<'_> {
    /// The n-th text in quotes, from 0.
    fn text(&self, n: usize) -> Option<String> {
        let mut rest = self.arguments;
        for _ in 0..n {
            rest = &rest[rest.find('"')? + 1..];
            rest = &rest[quoted_end(rest)? + 1..];
        }
        rest = &rest[rest.find('"')? + 1..];
        Some(unquote(&rest[..quoted_end(rest)?]))
    }

    /// The n-th text in quotes as a path.
    fn path(&self, n: usize) -> Option<Named> {
        let text = self.text(n)?;
        if text.starts_with('/') {
            return Some(Named::Path(plain(&text)));
        }
        // openat(AT_FDCWD</t>, "a", ...), renameat(3</t>, "a", 4</u>, "b").
        let before = self.arguments.split(", \"").nth(n)?;
        let directory = before.strip_suffix('>').and_then(|before| before.rsplit_once('<'));
        Some(match directory {
            Some((_, directory)) => Named::Path(plain(&format!("{directory}/{text}"))),
            None => Named::Relative,
        })
    }

    /// The first argument as a number.
    fn descriptor(&self) -> Option<i64> {
        self.arguments.split(',').next().and_then(descriptor)
    }

    /// The last argument as a number.
    fn last_number(&self) -> Option<u64> {
        self.arguments.rsplit(',').next()?.trim().parse().ok()
    }
}

/// A descriptor, with its path behind it (`-y`) or without.
fn descriptor(word: &str) -> Option<i64> {
    word.split('<').next()?.trim().parse().ok()
}

/// A path without `.`, `..` and doubled slashes, as far as names say.
fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Where a text in quotes ends.
fn quoted_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        end
    })
}

/// A text with the escapes of strace (those of C).
fn unquote(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let octal = bytes[at..]
            .iter()
            .take(3)
            .take_while(|byte| (b'0'..=b'7').contains(byte))
            .count();
        if octal > 0 {
            let digits = bytes[at..at + octal].iter();
            out.push(digits.fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0')) as u8);
            at += octal;
        } else if let Some(&escaped) = bytes.get(at) {
            out.push(match escaped {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                other => other,
            });
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The call in a line; `None` for one that failed, or anything else that strace says.
fn parse_call(line: &str) -> Result<Option<Call<'_>>, TraceProblem> {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (pid, call) = match first.parse() {
        Ok(pid) => (pid, rest.trim_start()),
        Err(_) => (1, line),
    };
    if call.is_empty() || call.starts_with("+++") || call.starts_with("---") {
        return Ok(None);
    }
    if call.starts_with("<...") || call.ends_with("<unfinished ...>") {
        return Err(TraceProblem::Interrupted);
    }
    let no_call = || TraceProblem::NoCall(line.to_owned());
    let (name, rest) = call.split_once('(').ok_or_else(no_call)?;
    let (arguments, result) = rest.rsplit_once(" = ").ok_or_else(no_call)?;
    let arguments = arguments.trim_end().strip_suffix(')').ok_or_else(no_call)?;
    let result = result.split_whitespace().next().unwrap_or_default();
    let result = match result {
        "?" => return Ok(None),
        hexadecimal if hexadecimal.starts_with("0x") => 0,
        number => descriptor(number).ok_or_else(no_call)?,
    };
    Ok((result >= 0).then_some(Call {
        pid,
        name,
        arguments,
        result,
    }))
}

impl Reader<'_> {
    fn line(&mut self, line: &str) -> Result<(), TraceProblem> {
        let Some(call) = parse_call(line)? else { return Ok(()) };
        match call.name {
            "open" | "openat" | "creat" => self.open(&call),
            "read" | "write" | "readv" | "writev" | "pread64" | "pwrite64" => self.transfer(&call),
            "lseek" => {
                if let Some(file) = self.file(&call) {
                    file.offset = call.result as u64;
                }
            }
            "close" => self.close(&call),
            "fork" | "vfork" | "clone" | "clone3" => self.inherit(&call),
            "fsync" | "fdatasync" | "ftruncate" => self.on_file(&call),
            "sync" | "syncfs" => self.trace.push(call.pid, Action::Sync),
            "mkdir" | "mkdirat" | "rmdir" | "unlink" | "unlinkat" | "truncate" => self.on_path(&call),
            "rename" | "renameat" | "renameat2" => self.rename(&call),
            other => self.not_followed(other, &call),
        }
        Ok(())
    }

    fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    fn not_followed(&mut self, name: &str, call: &Call<'_>) {
        let on_file = || NOT_FOLLOWED.iter().find(|known| **known == name);
        let on_name = || NAMES_NOT_FOLLOWED.iter().find(|known| **known == name);
        let inside = |path| matches!(path, Some(Named::Path(path)) if path.starts_with(self.below));
        let why = match on_file() {
            // mmap has its descriptor behind, the others in front.
            Some(why)
                if self
                    .descriptors(call)
                    .any(|fd| self.files.contains_key(&(call.pid, fd))) =>
            {
                Some(why)
            }
            Some(_) => None,
            None => on_name().filter(|_| inside(call.path(0)) || inside(call.path(1))),
        };
        let duplicates = !name.starts_with("fcntl") || call.arguments.contains("F_DUPFD");
        if let Some(why) = why.filter(|_| duplicates) {
            self.leave_out(why);
        }
    }

    fn descriptors<'c>(&self, call: &'c Call<'_>) -> impl Iterator<Item = i64> + 'c {
        call.arguments.split(',').filter_map(descriptor)
    }

    /// What was left out, in sentences.
    fn notes(&self) -> Vec<String> {
        let sentence = |(why, calls): (&&str, &u64)| match *why {
            BEFORE | RELATIVE => format!("{calls} calls {why} are left out"),
            name => format!("{calls} calls of {name} are left out: they have no counterpart here"),
        };
        self.left_out.iter().map(sentence).collect()
    }

    /// A path as seen from the root; `None` outside.
    fn inside(&mut self, path: Option<Named>) -> Option<String> {
        let Named::Path(path) = path? else {
            self.leave_out(RELATIVE);
            return None;
        };
        let path = path.strip_prefix(self.below)?.to_owned();
        path.starts_with('/').then_some(path)
    }

    fn file(&mut self, call: &Call<'_>) -> Option<&mut Open> {
        self.files.get_mut(&(call.pid, call.descriptor()?))
    }

    /// Makes the directories that a path needs and that nobody has made.
    fn make_parents(&mut self, pid: u32, path: &str) {
        let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).skip(1).collect();
        for end in ends {
            if self.known.insert(path[..end].to_owned()) {
                self.trace.push(pid, Action::Mkdir(path[..end].to_owned()));
            }
        }
    }

    fn open(&mut self, call: &Call<'_>) {
        let Some(path) = self.inside(call.path(0)) else { return };
        let has = |flag: &str| call.arguments.split(['|', ',', ' ']).any(|word| word == flag);
        if has("O_DIRECTORY") {
            return;
        }
        let new = !self.known.contains(&path);
        if call.name == "creat" || has("O_CREAT") && new || has("O_TRUNC") {
            self.make_parents(call.pid, &path);
            self.known.insert(path.clone());
            self.trace.push(call.pid, Action::Create(path.clone()));
        } else if new {
            return self.leave_out(BEFORE);
        }
        let open = Open {
            path,
            offset: 0,
            append: has("O_APPEND"),
        };
        self.files.insert((call.pid, call.result), open);
    }

    fn transfer(&mut self, call: &Call<'_>) {
        let bytes = call.result as u64;
        let at = call.name.starts_with('p').then(|| call.last_number()).flatten();
        let Some(file) = self.file(call) else { return };
        if bytes == 0 {
            return;
        }
        let (path, offset) = (file.path.clone(), at.unwrap_or(file.offset));
        let action = match (call.name, file.append) {
            ("read" | "readv" | "pread64", _) => Action::Read { path, offset, bytes },
            ("write" | "writev", true) => Action::Append { path, bytes },
            _ => Action::Write { path, offset, bytes },
        };
        if at.is_none() {
            file.offset = file.offset.saturating_add(bytes);
        }
        self.trace.push(call.pid, action);
    }

    fn close(&mut self, call: &Call<'_>) {
        let file = call.descriptor().and_then(|fd| self.files.remove(&(call.pid, fd)));
        if let Some(file) = file.filter(|file| self.known.contains(&file.path)) {
            self.trace.push(call.pid, Action::Close(file.path));
        }
    }

    /// A new process has the files of the one that made it.
    fn inherit(&mut self, call: &Call<'_>) {
        let own = self.files.iter().filter(|((pid, _), _)| *pid == call.pid);
        let child = call.result as u32;
        let copies: Vec<_> = own.map(|((_, fd), open)| ((child, *fd), open.clone())).collect();
        self.files.extend(copies);
    }

    fn on_file(&mut self, call: &Call<'_>) {
        let bytes = call.last_number();
        let Some(path) = self.file(call).map(|file| file.path.clone()) else {
            return;
        };
        let action = match (call.name, bytes) {
            ("ftruncate", Some(bytes)) => Action::Truncate { path, bytes },
            _ => Action::Fsync(path),
        };
        self.trace.push(call.pid, action);
    }

    fn on_path(&mut self, call: &Call<'_>) {
        let Some(path) = self.inside(call.path(0)) else { return };
        if call.name.starts_with("mkdir") {
            self.make_parents(call.pid, &path);
            if self.known.insert(path.clone()) {
                self.trace.push(call.pid, Action::Mkdir(path));
            }
            return;
        }
        let gone = call.name != "truncate";
        if !(if gone {
            self.known.remove(&path)
        } else {
            self.known.contains(&path)
        }) {
            return;
        }
        let directory = call.name == "rmdir" || call.arguments.contains("AT_REMOVEDIR");
        let action = match (gone, directory) {
            (true, true) => Action::Rmdir(path),
            (true, false) => Action::Unlink(path),
            (false, _) => Action::Truncate {
                path,
                bytes: call.last_number().unwrap_or(0),
            },
        };
        self.trace.push(call.pid, action);
    }

    fn rename(&mut self, call: &Call<'_>) {
        let (Some(from), Some(to)) = (self.inside(call.path(0)), self.inside(call.path(1))) else {
            return;
        };
        if !self.known.remove(&from) {
            return;
        }
        self.make_parents(call.pid, &to);
        let moved = |path: &str| {
            path.strip_prefix(&from)
                .filter(|rest| rest.starts_with('/'))
                .map(|rest| format!("{to}{rest}"))
        };
        let below: Vec<(String, String)> = self
            .known
            .iter()
            .filter_map(|old| Some((old.clone(), moved(old)?)))
            .collect();
        for (old, new) in below {
            self.known.remove(&old);
            self.known.insert(new);
        }
        for open in self.files.values_mut() {
            let new = if open.path == from {
                Some(to.clone())
            } else {
                moved(&open.path)
            };
            open.path = new.unwrap_or_else(|| std::mem::take(&mut open.path));
        }
        self.known.insert(to.clone());
        self.trace.push(call.pid, Action::Rename { from, to });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_become_operations() {
        let text = r#"5 execve("/bin/x", ["x"], 0x7ff /* 9 vars */) = 0
5 brk(NULL) = 0x5581
5 openat(AT_FDCWD, "cfg", O_RDONLY) = 3
5 openat(AT_FDCWD, "/t/d/e/a \"1\"\303\251", O_RDWR|O_CREAT, 0666) = 4
5 write(4, "x) = 7, \"", 100) = 100
5 lseek(4, 50, SEEK_SET) = 50
5 read(4, ""..., 20) = 20
5 read(4, ""..., 20) = 10
5 pwrite64(4, "y", 9, 4096) = 9
5 ftruncate(4, 77) = 0
5 clone(child_stack=NULL, flags=CLONE_CHILD|SIGCHLD) = 6
6 fsync(4) = 0
6 openat(AT_FDCWD, "/t/none", O_RDONLY) = -1 ENOENT (No such file or directory)
5 rename("/t/d/e", "/t/f") = 0
5 close(4) = 0
5 unlink("/t/f/a \"1\"\303\251") = 0
5 unlink("/tmp/other") = 0
5 rmdir("/t/f") = 0
5 --- SIGCHLD {si_signo=SIGCHLD} ---
5 +++ exited with 0 +++"#;
        let expected = "5 mkdir /d\n5 mkdir /d/e\n5 create /d/e/a%20\"1\"é\n5 write /d/e/a%20\"1\"é 0 100\n5 read /d/e/a%20\"1\"é 50 30\n\
            5 write /d/e/a%20\"1\"é 4096 9\n5 truncate /d/e/a%20\"1\"é - 77\n6 fsync /d/e/a%20\"1\"é\n5 rename /d/e /f\n\
            5 close /f/a%20\"1\"é\n5 unlink /f/a%20\"1\"é\n5 rmdir /f\n";
        assert_eq!(Trace::parse_strace("s", text, "/t/").unwrap().to_string(), expected);
    }

    /// A program that had changed its directory did nothing at all, and nobody was told.
    #[test]
    fn paths_are_followed_where_strace_tells_their_directory_and_others_are_counted() {
        let text = r#"5 openat(AT_FDCWD</t/d>, "./x/../a", O_WRONLY|O_CREAT, 0666) = 4</t/d/a>
5 writev(4</t/d/a>, [{iov_base="x", iov_len=1}, {iov_base="yz", iov_len=2}], 2) = 3
5 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 4</t/d/a>, 0) = 0x7f
5 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</lib/c.so>, 0) = 0x7f
5 fcntl(4</t/d/a>, F_GETFL) = 0x8001
5 renameat(3</t/d>, "a", AT_FDCWD</t>, "b") = 0
5 link("/t/b", "/t/c") = 0
5 link("/u/b", "/u/c") = 0
5 openat(AT_FDCWD, "e", O_WRONLY|O_CREAT, 0666) = 5
5 openat(AT_FDCWD, "/t/old", O_RDONLY) = 6"#;
        let file = TraceFile::parse_strace("s", text, "/t").unwrap();
        assert_eq!(
            file.trace.to_string(),
            "5 mkdir /d\n5 create /d/a\n5 write /d/a 0 3\n5 rename /d/a /b\n"
        );
        assert_eq!(
            [1, 2, 3, 4, 5].map(|number| file.line_of(number)),
            [1, 1, 2, 6, 0].map(|line| (line > 0).then_some(line))
        );
        assert_eq!(
            file.notes,
            [
                "1 calls of link are left out: they have no counterpart here",
                "1 calls of mmap are left out: they have no counterpart here",
                "1 calls of files that were there before are left out",
                "1 calls with paths that do not begin at / and whose directory strace was not asked for (-y) are left out",
            ]
        );
    }

    #[test]
    fn errors_name_file_line_and_reason() {
        let error = Trace::parse_strace("s", "5 sync() = 0\n5 read(4, <unfinished ...>", "/t").unwrap_err();
        assert!(
            error.to_string().starts_with("s:2: a call that was interrupted"),
            "{error}"
        );
        let error = Trace::parse_strace("s", "hello", "/t").unwrap_err();
        assert_eq!(
            error.to_string(),
            "s:1: \"hello\" is no call as strace writes it: NAME(ARGUMENTS) = RESULT"
        );
    }
}
