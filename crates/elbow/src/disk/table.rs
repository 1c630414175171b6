//! A file with a row for each request: comma-separated, or Parquet where its name ends in `.parquet` (and the program
//! was built with the feature `parquet`).
//!
//! Rows are written as they come. The first error is kept until the end, so that whoever makes the rows needs no way to
//! fail.

mod cell;
#[cfg(feature = "parquet")]
mod parquet;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(super) use cell::{Cell, ColumnType};

/// A file that is being written.
pub(super) struct Table {
    path: PathBuf,
    to: Format,
    result: Result<()>,
}

enum Format {
    Csv(BufWriter<File>),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::Groups>),
}

impl Table {
    /// Creates the file, for rows of these columns.
    pub(super) fn create(path: &Path, columns: &[(&str, ColumnType)]) -> Result<Self> {
        let to = Format::of(path, columns)?;
        Ok(Self {
            path: path.to_owned(),
            to,
            result: Ok(()),
        })
    }

    /// Adds a row: a cell for each column, of its kind.
    pub(super) fn add<const N: usize>(&mut self, row: [Cell; N]) {
        if self.result.is_ok() {
            self.result = match &mut self.to {
                Format::Csv(to) => write_line(to, &row),
                #[cfg(feature = "parquet")]
                Format::Parquet(groups) => groups.add(&row),
            };
        }
    }

    /// Ends the file.
    pub(super) fn finish(self) -> Result<()> {
        let Self { path, to, result } = self;
        result
            .and_then(|()| match to {
                Format::Csv(mut to) => Ok(to.flush()?),
                #[cfg(feature = "parquet")]
                Format::Parquet(groups) => groups.finish(),
            })
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Format {
    /// That of a file of this name, which is created; one that this program cannot write is not.
    #[allow(clippy::disallowed_methods, reason = "a report beside the simulation")]
    fn of(path: &Path, columns: &[(&str, ColumnType)]) -> Result<Self> {
        let failed = || format!("cannot create {}", path.display());
        let is_parquet = path.extension().is_some_and(|extension| extension == "parquet");
        if is_parquet {
            return Self::parquet(path, columns).with_context(failed);
        }
        let mut to = BufWriter::new(File::create(path).with_context(failed)?);
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        writeln!(to, "{}", names.join(",")).with_context(failed)?;
        Ok(Self::Csv(to))
    }

    #[cfg(feature = "parquet")]
    #[allow(clippy::disallowed_methods, reason = "a report beside the simulation")]
    fn parquet(path: &Path, columns: &[(&str, ColumnType)]) -> Result<Self> {
        let groups = parquet::Groups::new(File::create(path)?, columns)?;
        Ok(Self::Parquet(Box::new(groups)))
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet(_: &Path, _: &[(&str, ColumnType)]) -> Result<Self> {
        anyhow::bail!(
            "this elbow was built without Parquet; name a file that ends otherwise for comma-separated rows, or build \
             elbow with `--features parquet`"
        )
    }
}

fn write_line(to: &mut impl Write, row: &[Cell]) -> Result<()> {
    for (place, cell) in row.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        match cell {
            Cell::Whole(number) => write!(to, "{comma}{number}"),
            Cell::Letter(letter) => write!(to, "{comma}{letter}"),
            Cell::Time(time) | Cell::MaybeTime(Some(time)) => write!(to, "{comma}{:.6}", time.ms()),
            Cell::MaybeTime(None) => write!(to, "{comma}"),
        }?;
    }
    Ok(writeln!(to)?)
}
