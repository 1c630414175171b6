//! Rows as Parquet: a group of [`GROUP_ROWS`] is kept until it is full.
//!
//! Source: Apache Parquet format 2, through the crate `parquet`.

use std::fs::File;
use std::sync::Arc;

use anyhow::Result;
use elbow_disk::Ps;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::cell::{Cell, ColumnType};

/// Rows of a group of a Parquet file.
const GROUP_ROWS: usize = 65_536;

/// A Parquet file and the group of rows that is not in it yet.
pub(super) struct Groups {
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
    pub(super) fn new(file: File, columns: &[(&str, ColumnType)]) -> Result<Self> {
        let field = |(name, kind): &(&str, ColumnType)| match kind {
            ColumnType::Whole => format!("REQUIRED INT64 {name};"),
            ColumnType::Milliseconds => format!("REQUIRED DOUBLE {name};"),
            ColumnType::MaybeMilliseconds => format!("OPTIONAL DOUBLE {name};"),
            ColumnType::Letter => format!("REQUIRED BYTE_ARRAY {name} (UTF8);"),
        };
        let fields: String = columns.iter().map(field).collect();
        let schema = parse_message_type(&format!("message requests {{ {fields} }}"))?;
        let to = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(WriterProperties::builder().build()))?;
        let column = |(_, kind): &(&str, ColumnType)| match kind {
            ColumnType::Whole => Column::Whole(Vec::new()),
            ColumnType::Milliseconds => Column::Milliseconds(Vec::new()),
            ColumnType::MaybeMilliseconds => Column::MaybeMilliseconds(Vec::new(), Vec::new()),
            ColumnType::Letter => Column::Letters(Vec::new()),
        };
        Ok(Self {
            to,
            columns: columns.iter().map(column).collect(),
            rows: 0,
        })
    }

    pub(super) fn add(&mut self, row: &[Cell]) -> Result<()> {
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

    pub(super) fn finish(mut self) -> Result<()> {
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
