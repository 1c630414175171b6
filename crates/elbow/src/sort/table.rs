//! `elbow sort --csv`: tables with a header, and keys that are columns of it.
//!
//! The header of the first file is read before anything else, for it says what the keys mean; the other files must have the same.

use std::ffi::{OsStr, OsString};
use std::fs::File;

use elbow_extmem::text::{CsvError, CsvRows, Header, Input, KeyOptions, KeySpec, TextError};

use super::files;

/// Without `-t`.
pub(super) const SEPARATOR: u8 = b',';

/// Why there is no such key.
#[derive(Debug, thiserror::Error)]
pub(super) enum ColumnError {
    #[error("there is no column `{key}`; there are {}", .names.join(", "))]
    NoColumn { key: String, names: Vec<String> },
    #[error("column `{name}` is there {times} times; write its number, from 1")]
    Ambiguous { name: String, times: usize },
    #[error("the key `{key}`: {why}")]
    Options { key: String, why: TextError },
    #[error("`{}` separates no fields of a table", char::from(*.0))]
    Separator(u8),
}

/// The tables that are sorted.
pub(super) struct Table {
    header: Header,
    first: CsvRows<File>,
}

impl Table {
    /// Reads the header of the first.
    pub(super) fn open(names: &[OsString], separator: Option<u8>) -> anyhow::Result<Self> {
        let separator = separator.unwrap_or(SEPARATOR);
        if matches!(separator, b'"' | b'\n' | b'\r' | 0) {
            return Err(ColumnError::Separator(separator).into());
        }
        let name = &names[0];
        let opened = files::open(name).and_then(|file| CsvRows::open(file, separator));
        let (header, first) = opened.map_err(|reason| TextError::Input {
            tried: "read failed",
            name: files::shown(name),
            reason,
        })?;
        Ok(Self { header, first })
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// What the keys are, in the words of `--key`.
    pub(super) fn keys(&self, keys: &[String]) -> Result<Vec<KeySpec>, ColumnError> {
        keys.iter().map(|key| key_of(&self.header, key)).collect()
    }

    /// The rows of all tables.
    pub(super) fn inputs(self, names: &[OsString], output: Option<&File>) -> Vec<Input> {
        let Self { header, first } = self;
        let mut first = Some(first);
        let input = |name: &OsString| {
            let shown = files::shown(name);
            let input = match first.take() {
                Some(rows) => Input::new(shown, move || Ok(rows)),
                None => {
                    let (name, header) = (name.clone(), header.clone());
                    Input::new(shown, move || following(&name, &header))
                }
            };
            files::described(input, name, output)
        };
        names.iter().map(input).collect()
    }
}

/// The rows of a table that is not the first.
fn following(name: &OsStr, expected: &Header) -> std::io::Result<CsvRows<File>> {
    let (header, rows) = CsvRows::open(files::open(name)?, expected.separator())?;
    if header.names() != expected.names() {
        return Err(CsvError::OtherHeader.into());
    }
    Ok(rows)
}

/// `NAME`, or `NUMBER` from 1; and `:OPTIONS` behind it.
fn key_of(header: &Header, key: &str) -> Result<KeySpec, ColumnError> {
    let none = || ColumnError::NoColumn {
        key: key.to_owned(),
        names: header.names().to_vec(),
    };
    if let Some(column) = column(header, key)? {
        return Ok(KeySpec::field(column, KeyOptions::default()));
    }
    let (name, letters) = key.rsplit_once(':').ok_or_else(none)?;
    let column = column(header, name)?.ok_or_else(none)?;
    let options = KeyOptions::parse(letters).map_err(|why| ColumnError::Options {
        key: key.to_owned(),
        why,
    })?;
    Ok(KeySpec::field(column, options))
}

/// The column of a name, or else of a number.
fn column(header: &Header, word: &str) -> Result<Option<usize>, ColumnError> {
    let times = header.names().iter().filter(|name| *name == word).count();
    if times > 1 {
        return Err(ColumnError::Ambiguous {
            name: word.to_owned(),
            times,
        });
    }
    let number = || {
        word.parse::<usize>()
            .ok()?
            .checked_sub(1)
            .filter(|column| *column < header.names().len())
    };
    Ok(header.column(word).or_else(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Header {
        CsvRows::open(text.as_bytes(), SEPARATOR).expect("a header").0
    }

    #[test]
    fn columns_are_named_or_numbered() {
        let header = header("name,a:n,2,price,price\n");
        let of = |key: &str| key_of(&header, key).map_err(|error| error.to_string());
        let field = |column, letters| Ok(KeySpec::field(column, KeyOptions::parse(letters).expect("letters")));
        assert_eq!(of("name"), field(0, ""));
        assert_eq!(of("name:fr"), field(0, "fr"));
        assert_eq!(of("a:n"), field(1, ""), "a name that looks like options");
        assert_eq!(of("a:n:n"), field(1, "n"));
        assert_eq!(of("2"), field(2, ""), "a name that looks like a number");
        assert_eq!(of("1"), field(0, ""));
        assert_eq!(of("4:nr"), field(3, "nr"));
        let none = |key: &str| {
            Err(format!(
                "there is no column `{key}`; there are name, a:n, 2, price, price"
            ))
        };
        for key in ["nam", "0", "6", "2,2nr", "", "nam:n"] {
            assert_eq!(of(key), none(key));
        }
        assert!(of("price").is_err_and(|said| said.contains("there 2 times")));
        assert!(of("name:x").is_err_and(|said| said.contains("'x' is no ordering option")));
    }
}
