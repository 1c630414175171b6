//! One file of settings: `[section]`, `key = value`.
//!
//! A mistake is refused with file and line. Whose file it is matters, since a setting may send a job's results elsewhere: only those of root and of the
//! user are obeyed, and in a directory, where others may put one, no link.

#![allow(clippy::disallowed_methods, reason = "files of settings, not the storage of a job")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use elbow_file::{Errno, ShowName};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, Kind};
use crate::cli::Cli;
use crate::suggest::{number_expected, similar};

/// A larger one was not written by people.
const BYTES_MAX: u64 = 64 << 10;

/// What became of a place where there may be a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// It was read.
    Read,
    /// There is none.
    Absent,
    /// It is there and does not count; why.
    Ignored(String),
}

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {reason}", path.shown())]
pub(crate) struct Mistake {
    path: PathBuf,
    line: usize,
    reason: Reason,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error("{0}")]
    Syntax(String),
    #[error("`{0}` stands in no section; they are {sections}", sections = sections())]
    NoSection(String),
    #[error("unknown section `{section}`; {}", near.map_or_else(|| format!("they are {}", sections()), did_you_mean))]
    UnknownSection {
        section: String,
        near: Option<&'static str>,
    },
    #[error("unknown key `{name}`; {}", near.map_or_else(|| format!("those of [{section}] are {}", names(section)), did_you_mean))]
    UnknownKey {
        section: String,
        name: String,
        near: Option<&'static str>,
    },
    #[error("`{name}` is a key of [{right}], not of [{section}]")]
    OtherSection {
        section: String,
        name: String,
        right: &'static str,
    },
    #[error("`{0}` is true or false")]
    NoFlag(&'static str),
    #[error("`{name}` is text in quotation marks{}", if *may_be_number { ", or a whole number" } else { "" })]
    NoText { name: &'static str, may_be_number: bool },
    #[error("`{0}` is a list of paths: [\"a\", \"b\"]")]
    NoPaths(&'static str),
    #[error("{0}: a path with a colon can be named on the command line only")]
    Colon(String),
    #[error("`{0}` names an empty path")]
    EmptyPath(&'static str),
    #[error("the path of this file is not UTF-8")]
    PathNotUtf8,
    /// What the option says.
    #[error("{0}")]
    Refused(String),
}

fn did_you_mean(near: &'static str) -> String {
    format!("did you mean `{near}`?")
}

/// The value of a key, and the line that it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: String,
    pub(super) line: usize,
}

/// By section and name.
pub(super) type Entries = BTreeMap<(&'static str, &'static str), Entry>;

/// Reads one, if it is there and may be obeyed.
pub(super) fn read(path: &Path, may_be_link: bool) -> anyhow::Result<(FileState, Entries)> {
    let text = match text_of(path, may_be_link) {
        Ok(Found::Text(text)) => text,
        Ok(Found::NotToBeObeyed(why)) => return Ok((FileState::Ignored(why), Entries::new())),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok((FileState::Absent, Entries::new())),
        // A home that is another user's (`setpriv`, `sudo -E`): what may be in it is nobody's wish.
        Err(Errno::ACCESS) if path.symlink_metadata().is_err() => return Ok((FileState::Absent, Entries::new())),
        Err(errno) => {
            return Ok((
                FileState::Ignored(crate::output::strerror(errno.raw_os_error())),
                Entries::new(),
            ));
        }
    };
    Ok((FileState::Read, parse(path, &text)?))
}

/// What is at a place.
enum Found {
    Text(String),
    /// Why not.
    NotToBeObeyed(String),
}

fn text_of(path: &Path, may_be_link: bool) -> Result<Found, Errno> {
    let follow = if may_be_link { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | follow;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::LOOP) if !may_be_link => {
            return Ok(Found::NotToBeObeyed(
                "it is a link, which anybody could have made".into(),
            ));
        }
        opened => opened?,
    };
    let found = rustix::fs::fstat(&file)?;
    let own = rustix::process::geteuid().as_raw();
    let why = if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        Some("it is no regular file".to_owned())
    } else if found.st_uid != own && found.st_uid != 0 {
        Some(format!(
            "it belongs to user {}, and only your own and root's count",
            found.st_uid
        ))
    } else if found.st_mode & 0o002 != 0 {
        Some("everybody may write to it (chmod o-w)".to_owned())
    } else if u64::try_from(found.st_size).is_ok_and(|size| size > BYTES_MAX) {
        Some(format!("it has more than {BYTES_MAX} bytes"))
    } else {
        None
    };
    if let Some(why) = why {
        return Ok(Found::NotToBeObeyed(why));
    }
    let mut text = Vec::new();
    let read = File::from(file).take(BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(String::from_utf8(text).map_or_else(|_| Found::NotToBeObeyed("it is not UTF-8".to_owned()), Found::Text))
}

fn parse(path: &Path, text: &str) -> Result<Entries, Mistake> {
    let mistake = |at: usize, reason: Reason| Mistake {
        path: path.to_owned(),
        line: line_at(text, at),
        reason,
    };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        mistake(at, Reason::Syntax(error.message().to_owned()))
    })?;
    let mut entries = Entries::new();
    for (section, table) in root.get_ref() {
        let at = section.span().start;
        let section: &str = section.get_ref();
        let DeValue::Table(table) = table.get_ref() else {
            return Err(mistake(at, Reason::NoSection(section.to_owned())));
        };
        expect_section(section).map_err(|reason| mistake(at, reason))?;
        for (name, value) in table {
            let at = name.span().start;
            let key = known(section, name.get_ref()).map_err(|reason| mistake(at, reason))?;
            let value = value_of(key, value, path).map_err(|reason| mistake(value.span().start, reason))?;
            let line = line_at(text, at);
            entries.insert((key.section, key.name), Entry { value, line });
        }
    }
    Ok(entries)
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

fn sections() -> String {
    let mut names: Vec<String> = KEYS.iter().map(|key| format!("[{}]", key.section)).collect();
    names.dedup();
    names.join(", ")
}

fn of_section(section: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.section == section)
}

fn names(section: &str) -> String {
    let names: Vec<&str> = of_section(section).map(|key| key.name).collect();
    names.join(", ")
}

/// The known word that is nearest to one, if any is near.
fn nearest(word: &str, known: impl Iterator<Item = &'static str> + Clone) -> Option<&'static str> {
    let near = similar(word, known.clone()).into_iter().next()?;
    known.into_iter().find(|known| *known == near)
}

fn expect_section(section: &str) -> Result<(), Reason> {
    if of_section(section).next().is_some() {
        return Ok(());
    }
    Err(Reason::UnknownSection {
        section: section.to_owned(),
        near: nearest(section, KEYS.iter().map(|key| key.section)),
    })
}

/// The key of these names, or what was meant.
fn known(section: &str, name: &str) -> Result<&'static Key, Reason> {
    if let Some(key) = of_section(section).find(|key| key.name == name) {
        return Ok(key);
    }
    let (section, name) = (section.to_owned(), name.to_owned());
    match KEYS.iter().find(|key| key.name == name) {
        Some(key) => Err(Reason::OtherSection {
            section,
            name,
            right: key.section,
        }),
        None => Err(Reason::UnknownKey {
            near: nearest(
                &name,
                KEYS.iter().filter(|key| key.section == section).map(|key| key.name),
            ),
            section,
            name,
        }),
    }
}

/// What stands behind the `=`, as an option would have it, and tried as one.
fn value_of(key: &Key, value: &Spanned<DeValue<'_>>, file: &Path) -> Result<String, Reason> {
    let text = match (value.get_ref(), key.kind) {
        (DeValue::Boolean(is_so), Kind::Flag) => return Ok(is_so.to_string()),
        (_, Kind::Flag) => return Err(Reason::NoFlag(key.name)),
        (DeValue::String(text), Kind::Path) => beside(key, file, text)?,
        (DeValue::Array(paths), Kind::Paths) => return joined(key, paths, file),
        (_, Kind::Paths) => return Err(Reason::NoPaths(key.name)),
        (DeValue::String(text), Kind::Text) => text.to_string(),
        (DeValue::Integer(number), Kind::Text) => number.to_string(),
        _ => {
            return Err(Reason::NoText {
                name: key.name,
                may_be_number: key.kind == Kind::Text,
            });
        }
    };
    checked(key, &text).map(|()| text)
}

/// A path as a file says it.
fn beside(key: &Key, file: &Path, path: &str) -> Result<String, Reason> {
    if path.is_empty() {
        return Err(Reason::EmptyPath(key.name));
    }
    let directory = file.parent().unwrap_or(Path::new("/"));
    let path = directory.join(path);
    path.to_str().map(str::to_owned).ok_or(Reason::PathNotUtf8)
}

/// Several paths, as a variable says them.
fn joined(key: &Key, paths: &[Spanned<DeValue<'_>>], file: &Path) -> Result<String, Reason> {
    let each = paths.iter().map(|path| match path.get_ref() {
        DeValue::String(path) => beside(key, file, path),
        _ => Err(Reason::NoPaths(key.name)),
    });
    let paths = each.collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = paths.iter().find(|path| path.contains(':')) {
        return Err(Reason::Colon(path.clone()));
    }
    Ok(paths.join(":"))
}

/// Whether the option takes a value.
pub(super) fn checked(key: &Key, value: &str) -> Result<(), Reason> {
    if key.kind == Kind::Flag {
        return match value {
            "true" | "false" => Ok(()),
            _ => Err(Reason::NoFlag(key.name)),
        };
    }
    if key.is_list() {
        return Ok(()); // A path is a path.
    }
    let target = &key.commands[0];
    let option = format!("--{}={value}", key.name);
    let words = std::iter::once("elbow").chain(target.path.iter().copied());
    let words = words.chain([option.as_str()]).chain(target.rest.iter().copied());
    match Cli::command().try_get_matches_from(words) {
        // An option that wants another one beside it is not alone on a real command line.
        Err(error) if error.kind() != clap::error::ErrorKind::MissingRequiredArgument => {
            Err(Reason::Refused(in_words(&error)))
        }
        _ => key.parser.map_or(Ok(()), |parser| parser(value)).map_err(|why| {
            let name = key.name;
            Reason::Refused(format!("invalid value '{value}' for '--{name}': {why}"))
        }),
    }
}

/// The same, where something is no number without the words of Rust.
fn in_words(error: &clap::Error) -> String {
    let said = first_line(error);
    let source = std::error::Error::source(error);
    match source.and_then(|source| Some((source.to_string(), number_expected(source)?))) {
        Some((words, instead)) => said.replace(&words, instead),
        None => said,
    }
}

/// What clap says is wrong, without the usage.
pub(super) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(text: &str) -> String {
        parse(Path::new("/x/.elbow.toml"), text).expect_err(text).to_string()
    }

    #[test]
    fn values_are_what_options_take() {
        let text = "[job]\nmem = \"2G\"\nin-flight = 64\ndurable = true\nscratch = \"tmp\"\n[run]\nretry = 2\n";
        let entries = parse(Path::new("/x/.elbow.toml"), text).expect("settings");
        let value = |section, name| entries[&(section, name)].value.clone();
        assert_eq!(
            (value("job", "mem"), value("job", "in-flight"), value("job", "durable")),
            ("2G".into(), "64".into(), "true".into())
        );
        assert_eq!(
            (value("job", "scratch"), value("run", "retry")),
            ("/x/tmp".into(), "2".into())
        );
        assert_eq!(entries[&("run", "retry")].line, 7);
        let listed = parse(Path::new("/x/.elbow.toml"), "[run]\npass-through = [\"a\", \"/b/c\"]\n").expect("a list");
        assert_eq!(listed[&("run", "pass-through")].value, "/x/a:/b/c");
        assert!(parse(Path::new("x"), "").expect("nothing").is_empty());
        assert!(parse(Path::new("x"), "[job]\n").expect("nothing").is_empty());
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_what_was_meant() {
        for (text, said) in [
            (
                "[job]\n\nmemm = 1\n",
                "/x/.elbow.toml:3: unknown key `memm`; did you mean `mem`?",
            ),
            ("[jobs]\nmem = 1\n", ":1: unknown section `jobs`; did you mean `job`?"),
            ("[jobs]\n", ":1: unknown section `jobs`; did you mean `job`?"),
            (
                "mem = 1\n",
                ":1: `mem` stands in no section; they are [job], [run], [lock], [sort]",
            ),
            ("[run]\nmem = \"2G\"\n", ":2: `mem` is a key of [job], not of [run]"),
            ("[job]\nmem = \"2Q\"\n", ":2: invalid value '2Q' for '--mem <SIZE>'"),
            (
                "[job]\npublish = \"late\"\n",
                ":2: invalid value 'late' for '--publish <PUBLISH>'",
            ),
            ("[job]\ndurable = \"yes\"\n", ":2: `durable` is true or false"),
            (
                "[job]\nmem = 1.5\n",
                ":2: `mem` is text in quotation marks, or a whole number",
            ),
            ("[job]\nscratch = 1\n", ":2: `scratch` is text in quotation marks"),
            ("[job]\nmem = 1\nmem = 2\n", ":3: duplicate key"),
            (
                "[run]\npass-through = \"a\"\n",
                ":2: `pass-through` is a list of paths: [\"a\", \"b\"]",
            ),
            // It was the directory of the file.
            ("[job]\n\nscratch = \"\"\n", ":3: `scratch` names an empty path"),
            (
                "[run]\npass-through = [\"a\", \"\"]\n",
                ":2: `pass-through` names an empty path",
            ),
            ("[run]\npass-through = [1]\n", ":2: `pass-through` is a list of paths"),
            ("[run]\npass-through = [\"a:b\"]\n", ":2: /x/a:b: a path with a colon"),
            (
                "[sort]\n\nbuffer-size = \"zz\"\n",
                ":3: invalid value 'zz' for '--buffer-size': invalid -S argument 'zz'",
            ),
            (
                "[sort]\nparallel = 0\n",
                ":2: invalid value '0' for '--parallel': number in parallel must be nonzero",
            ),
            (
                "[run]\nretry = \"x\"\n",
                ":2: invalid value 'x' for '--retry <N>': write a whole number",
            ),
            ("[job\n", ":1: "),
        ] {
            let told = mistake(text);
            assert!(told.contains(said), "{text}: {told}");
        }
    }
}
