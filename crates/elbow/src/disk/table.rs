//! A file with a row for each request: comma-separated, or Parquet where its name ends in `.parquet`.
//!
//! Rows are written as they come; of a Parquet file a group of [`GROUP_ROWS`] is kept until it is full. The first error is
//! kept until the end, so that whoever makes the rows needs no way to fail.
//!
//! Source: Apache Parquet format 2, through the crate `parquet`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use elbow_disk::Ps;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Rows of a group of a Parquet file.
const GROUP_ROWS: usize = 65_536;

/// What a column holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Whole,
    Milliseconds,
    /// Not of every row.
    MaybeMilliseconds,
    Letter,
}

/// One value of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    Whole(u64),
    Time(Ps),
    MaybeTime(Option<Ps>),
    Letter(char),
}

/// A file that is being written.
pub(super) struct Table {
    path: PathBuf,
    to: Format,
    result: Result<()>,
}

enum Format {
    Csv(BufWriter<File>),
    Parquet(Box<Groups>),
}

impl Table {
    /// Creates the file, for rows of these columns.
    #[allow(clippy::disallowed_methods, reason = "a report beside the simulation")]
    pub(super) fn create(path: &Path, columns: &[(&str, Kind)]) -> Result<Self> {
        let failed = || format!("cannot create {}", path.display());
        let file = File::create(path).with_context(failed)?;
        let to = match path.extension() {
            Some(extension) if extension == "parquet" => {
                Format::Parquet(Box::new(Groups::new(file, columns).with_context(failed)?))
            }
            _ => {
                let mut to = BufWriter::new(file);
                let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
                writeln!(to, "{}", names.join(",")).with_context(failed)?;
                Format::Csv(to)
            }
        };
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
                Format::Parquet(groups) => groups.finish(),
            })
            .with_context(|| format!("cannot write {}", path.display()))
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

/// A Parquet file and the group of rows that is not in it yet.
struct Groups {
    to: SerializedFileWriter<File>,
    columns: Vec<Column>,
    rows: usize,
}

/// A column of the group: its values, and for which rows there are some where not all have one.
enum Column {
    Whole(Vec<i64>),
    Milliseconds(Vec<f64>),
    MaybeMilliseconds(Vec<f64>, Vec<i16>),
    Letters(Vec<ByteArray>),
}

impl Groups {
    fn new(file: File, columns: &[(&str, Kind)]) -> Result<Self> {
        let field = |(name, kind): &(&str, Kind)| match kind {
            Kind::Whole => format!("REQUIRED INT64 {name};"),
            Kind::Milliseconds => format!("REQUIRED DOUBLE {name};"),
            Kind::MaybeMilliseconds => format!("OPTIONAL DOUBLE {name};"),
            Kind::Letter => format!("REQUIRED BYTE_ARRAY {name} (UTF8);"),
        };
        let fields: String = columns.iter().map(field).collect();
        let schema = parse_message_type(&format!("message requests {{ {fields} }}"))?;
        let to = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(WriterProperties::builder().build()))?;
        let column = |(_, kind): &(&str, Kind)| match kind {
            Kind::Whole => Column::Whole(Vec::new()),
            Kind::Milliseconds => Column::Milliseconds(Vec::new()),
            Kind::MaybeMilliseconds => Column::MaybeMilliseconds(Vec::new(), Vec::new()),
            Kind::Letter => Column::Letters(Vec::new()),
        };
        Ok(Self {
            to,
            columns: columns.iter().map(column).collect(),
            rows: 0,
        })
    }

    fn add(&mut self, row: &[Cell]) -> Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            match (column, *cell) {
                (Column::Whole(values), Cell::Whole(number)) => values.push(i64::try_from(number)?),
                (Column::Milliseconds(values), Cell::Time(time)) => values.push(time.ms()),
                (Column::MaybeMilliseconds(values, has_one), Cell::MaybeTime(time)) => {
                    values.extend(time.map(Ps::ms));
                    has_one.push(i16::from(time.is_some()));
                }
                (Column::Letters(values), Cell::Letter(letter)) => values.push(letter.to_string().as_str().into()),
                (_, cell) => unreachable!("{cell:?} in a column of another kind"),
            }
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let mut group = self.to.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut writer) = group.next_column()? else { break };
            match column {
                Column::Whole(values) => writer.typed::<Int64Type>().write_batch(values, None, None)?,
                Column::Milliseconds(values) => writer.typed::<DoubleType>().write_batch(values, None, None)?,
                Column::MaybeMilliseconds(values, has_one) => {
                    writer
                        .typed::<DoubleType>()
                        .write_batch(values, Some(has_one.as_slice()), None)?
                }
                Column::Letters(values) => writer.typed::<ByteArrayType>().write_batch(values, None, None)?,
            };
            writer.close()?;
            column.clear();
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        if self.rows > 0 {
            self.flush()?;
        }
        self.to.close()?;
        Ok(())
    }
}

impl Column {
    fn clear(&mut self) {
        match self {
            Self::Whole(values) => values.clear(),
            Self::Milliseconds(values) => values.clear(),
            Self::MaybeMilliseconds(values, has_one) => {
                values.clear();
                has_one.clear();
            }
            Self::Letters(values) => values.clear(),
        }
    }
}
