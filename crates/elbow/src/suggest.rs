//! What a mistyped subcommand, option or value was to be.
//!
//! clap finds `zero` in `version`. Here two words are similar when few letters have to be changed, or when one is the
//! beginning of the other; and no suggestion is better than a silly one.

use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// One letter of so many may be wrong.
const LETTERS_PER_MISTAKE: usize = 3;
/// Fewer letters are the beginning of anything.
const BEGINNING_MIN: usize = 3;
/// Other words for what there is.
const SYNONYMS: [(&str, &str); 6] = [
    ("version", "elbow --version"),
    ("exec", "elbow run"),
    ("umount", "elbow commit` or `elbow rollback"),
    ("unmount", "elbow commit` or `elbow rollback"),
    ("abort", "elbow rollback"),
    ("undo", "elbow rollback"),
];

/// Puts our suggestions in the place of clap's. `words` are those after the program's name.
pub(crate) fn improve(error: &mut clap::Error, root: &Command, words: &[OsString]) {
    let command = reached(root, words);
    match error.kind() {
        ErrorKind::InvalidSubcommand => for_subcommand(error, root, command),
        ErrorKind::UnknownArgument if command.has_subcommands() => for_misplaced_option(error, command, words),
        ErrorKind::UnknownArgument => for_option(error, command, words),
        ErrorKind::InvalidValue => for_value(error),
        ErrorKind::ValueValidation => for_number(error, command),
        _ => {}
    }
}

/// The subcommand that the first words name.
fn reached<'a>(root: &'a Command, words: &[OsString]) -> &'a Command {
    let mut command = root;
    for word in words {
        match word.to_str().and_then(|word| command.find_subcommand(word)) {
            Some(next) => command = next,
            None => break,
        }
    }
    command
}

fn for_subcommand(error: &mut clap::Error, root: &Command, command: &Command) {
    let word = text(error, ContextKind::InvalidSubcommand);
    let mut similar = similar(&word, visible(command).map(Command::get_name));
    let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == word);
    if synonym.is_some() {
        similar.clear();
    }
    let tip = match synonym {
        Some((_, meant)) => Some(format!("use `{meant}`")),
        None if similar.is_empty() => elsewhere(root, &word),
        None => None,
    };
    replace(error, ContextKind::SuggestedSubcommand, similar);
    tell(error, tip);
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|each| !each.is_hide_set())
}

/// A subcommand of another subcommand.
fn elsewhere(root: &Command, word: &str) -> Option<String> {
    let holds = |each: &&Command| each.get_name() != "help" && each.find_subcommand(word).is_some();
    let found = visible(root).find(holds)?;
    Some(format!("use `elbow {} {word}`", found.get_name()))
}

/// An option in front of the subcommand that it belongs to.
fn for_misplaced_option(error: &mut clap::Error, command: &Command, words: &[OsString]) {
    let option = text(error, ContextKind::InvalidArg);
    let named = words.iter().find_map(|word| command.find_subcommand(word.to_str()?));
    let own = similar_options(command, &option);
    let tip = named.and_then(|named| {
        let found = similar_options(named, &option).into_iter().next()?;
        Some(format!("`elbow {}` has {found}; write it behind", named.get_name()))
    });
    replace(error, ContextKind::SuggestedArg, own);
    tell(error, tip);
}

fn for_option(error: &mut clap::Error, command: &Command, words: &[OsString]) {
    let option = text(error, ContextKind::InvalidArg);
    let mut found = similar_options(command, &option);
    if found.is_empty() {
        found = with_one_dash(command, words);
    }
    if !found.is_empty() || option.starts_with("--") || is_negative(&option) {
        // That it could be a file of this name is not what was meant, then.
        error.remove(ContextKind::Suggested);
    }
    replace(error, ContextKind::SuggestedArg, found);
}

fn similar_options(command: &Command, option: &str) -> Vec<String> {
    let Some(name) = option.strip_prefix("--") else {
        return Vec::new();
    };
    let found = similar(name, longs(command));
    found.into_iter().map(|name| format!("--{name}")).collect()
}

fn longs(command: &Command) -> impl Iterator<Item = &str> {
    let options = command.get_arguments().filter(|option| !option.is_hide_set());
    options.filter_map(clap::Arg::get_long)
}

/// `-json` for `--json`.
fn with_one_dash(command: &Command, words: &[OsString]) -> Vec<String> {
    let names = words.iter().filter_map(|word| word.to_str()?.strip_prefix('-'));
    let known = |name: &&str| longs(command).any(|long| long == *name);
    names.filter(known).map(|name| format!("--{name}")).take(1).collect()
}

fn for_value(error: &mut clap::Error) {
    let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else {
        return;
    };
    let found = similar(
        &text(error, ContextKind::InvalidValue),
        valid.iter().map(String::as_str),
    );
    replace(error, ContextKind::SuggestedValue, found);
}

fn is_negative(option: &str) -> bool {
    option.strip_prefix('-').is_some_and(|rest| rest.parse::<f64>().is_ok())
}

/// What is no number is told as a tip, in the place of the words of Rust.
fn for_number(error: &mut clap::Error, command: &Command) {
    let Some(tip) = std::error::Error::source(error).and_then(number_expected) else {
        return;
    };
    let mut told = clap::Error::new(ErrorKind::ValueValidation).with_cmd(command);
    for (kind, value) in error.context() {
        told.insert(kind, value.clone());
    }
    tell(&mut told, Some(tip.to_owned()));
    *error = told;
}

/// What to write, where something is no number.
pub(crate) fn number_expected(source: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        return Some(match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "the number is too large",
            _ => "write a whole number",
        });
    }
    source.is::<ParseFloatError>().then_some("write a number")
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

fn replace(error: &mut clap::Error, kind: ContextKind, found: Vec<String>) {
    match found.len() {
        0 => error.remove(kind),
        1 => error.insert(kind, ContextValue::String(found.concat())),
        _ => error.insert(kind, ContextValue::Strings(found)),
    };
}

fn tell(error: &mut clap::Error, tip: Option<String>) {
    match tip {
        Some(tip) => error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()])),
        None => error.remove(ContextKind::Suggested),
    };
}

/// The known words that a word is nearest to, if any is near.
pub(crate) fn similar<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let near = known.filter_map(|known| distance(word, known).map(|distance| (distance, known)));
    let near: Vec<_> = near.collect();
    let nearest = near.iter().map(|(distance, _)| *distance).min();
    let found = near.iter().filter(|(distance, _)| Some(*distance) == nearest);
    found.map(|(_, known)| (*known).to_owned()).collect()
}

/// How many letters differ, where that is few; a swap of two counts as one.
fn distance(word: &str, known: &str) -> Option<usize> {
    let distance = strsim::osa_distance(&word.to_lowercase(), known);
    let allowed = (word.len().max(known.len()) / LETTERS_PER_MISTAKE).max(1);
    let (short, long) = if word.len() < known.len() {
        (word, known)
    } else {
        (known, word)
    };
    let is_beginning = short.len() >= BEGINNING_MIN && long.starts_with(short);
    (distance <= allowed && distance < word.len() || is_beginning).then_some(distance)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut error = Cli::try_parse_from(&words).expect_err(line);
        let mut root = Cli::command();
        root.build();
        improve(&mut error, &root, &words[1..]);
        error.to_string()
    }

    #[test]
    fn a_mistyped_subcommand_gets_a_suggestion_that_is_near_or_none() {
        for (typed, meant) in [
            ("rnu", "'run'"),
            ("ru", "'run'"),
            ("rum", "'run'"),
            ("RUN", "'run'"),
            ("running", "'run'"),
            ("mout", "'mount'"),
            ("moutn", "'mount'"),
            ("mounts", "'mount'"),
            ("stat", "'status'"),
            ("stauts", "'status'"),
            ("state", "'status'"),
            ("comit", "'commit'"),
            ("commt", "'commit'"),
            ("committ", "'commit'"),
            ("roll-back", "'rollback'"),
            ("rolback", "'rollback'"),
            ("difff", "'diff'"),
            ("dif", "'diff'"),
            ("recovery", "'recover'"),
            ("rec", "'recover'"),
            ("srot", "'sort'"),
            ("sotr", "'sort'"),
            ("zeros", "'zero'"),
            ("zreo", "'zero'"),
            ("hole", "'holes'"),
            ("benchmark", "'bench'"),
            ("lok", "'lock'"),
            ("locked", "'lockd'"),
            ("dsik", "'disk'"),
            ("manual", "'man'"),
            ("completion", "'completions'"),
            ("hlep", "'help'"),
            ("lock stats", "'status'"),
            ("lock hodl", "'hold'"),
            ("lockd sevre", "'serve'"),
            ("disk figures", "'figure'"),
            ("version", "`elbow --version`"),
            ("umount", "`elbow commit`"),
            ("hold", "`elbow lock hold`"),
            ("simulate", "`elbow disk simulate`"),
            ("exec", "`elbow run`"),
        ] {
            let said = said(&format!("elbow {typed}"));
            assert!(said.contains("tip:") && said.contains(meant), "{typed}: {said}");
            assert_eq!(
                said.matches('\'').count() / 2,
                if meant.starts_with('\'') { 3 } else { 2 },
                "{said}"
            );
        }
    }

    /// `elbow version` suggested `zero`.
    #[test]
    fn what_is_like_nothing_gets_no_suggestion() {
        for typed in [
            "frobnicate",
            "ls",
            "x",
            "start",
            "cat",
            "make",
            "python3",
            "tar",
            "init",
            "gc",
            "push",
            "du",
            "scan",
            "launch-all",
            "freeze",
            "config",
            "lock x",
            "disk x",
            "z",
            "cp",
            "rm",
            "1",
        ] {
            let said = said(&format!("elbow {typed}"));
            assert!(!said.contains("tip:"), "{typed}: {said}");
        }
    }

    /// "invalid digit found in string", and the advice to pass `-1` as a file.
    #[test]
    fn what_is_no_number_is_told_without_words_of_rust() {
        for (typed, told) in [
            ("run --retry x -- true", "tip: write a whole number"),
            ("run --in-flight x -- true", "tip: write a whole number"),
            (
                "disk simulate --seed 99999999999999999999",
                "tip: the number is too large",
            ),
            ("disk simulate --show --lbns abc", "tip: write a whole number"),
            ("disk simulate --reads x", "tip: write a number"),
            ("zero f -1 5", "unexpected argument '-1'"),
        ] {
            let said = said(&format!("elbow {typed}"));
            assert!(said.contains(told), "{typed}: {said}");
            for words in ["in string", "literal", "target type", "as a value"] {
                assert!(!said.contains(words), "{typed}: {said}");
            }
        }
    }

    #[test]
    fn a_mistyped_option_gets_the_one_that_was_meant() {
        for (typed, meant) in [
            ("run --jsn -- true", "'--json'"),
            ("run --mme 5M -- true", "'--mem'"),
            ("run --kep -- true", "'--keep'"),
            ("run --retrys 3 -- true", "'--retry'"),
            ("run --dir a -- true", ""),
            ("run --verbose -- true", ""),
            ("run -json -- true", "'--json'"),
            ("run --in_flight 3 -- true", "'--in-flight'"),
            ("status --jsno m", "'--json'"),
            ("zero --range - f", "'--ranges'"),
            ("zero --force f", ""),
            ("--json run -- true", "`elbow run` has --json"),
            ("--versoin", "'--version'"),
            ("--quiet", ""),
            ("run --publish egaer -- true", "'eager'"),
            ("run --publish now -- true", ""),
            ("recover --forced d", "'--force'"),
            ("lock hold --share f -- true", "'--shared'"),
        ] {
            let said = said(&format!("elbow {typed}"));
            assert!(said.contains(meant), "{typed}: {said}");
            let tips = said.matches("similar").count() + said.matches("has --").count();
            assert_eq!(tips, usize::from(!meant.is_empty()), "{typed}: {said}");
        }
    }
}
