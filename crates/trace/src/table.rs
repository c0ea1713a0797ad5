//! Recordings as Parquet, for analysis by anything that reads tables.

use crate::content::Trace;
use crate::error::Error;
use crate::objects::{Objects, Request};
use crate::spans::Spans;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use spandrel_sim::Operation;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// Rows that are written at once.
const GROUP_ROWS: usize = 1 << 20;

const REQUESTS: &str = "message requests {
    required int64 ns;
    required int32 thread;
    required binary kind (utf8);
    required int64 object;
    required int64 size;
    required int64 old_size;
    required int64 align;
    required boolean zeroed;
    required boolean moved;
}";

const SPANS: &str = "message spans {
    required int64 ns;
    required binary kind (utf8);
    required int64 span;
    required int64 pages;
    required int64 align;
    required int64 objects;
}";

/// Why a table could not be written.
#[derive(Debug)]
pub enum TableError {
    /// The recording is damaged.
    Trace(Error),
    /// The table cannot be written.
    Table(ParquetError),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(why) => write!(f, "{why}"),
            Self::Table(why) => write!(f, "the table cannot be written: {why}"),
        }
    }
}

impl std::error::Error for TableError {}

impl From<Error> for TableError {
    fn from(why: Error) -> Self {
        Self::Trace(why)
    }
}

impl From<ParquetError> for TableError {
    fn from(why: ParquetError) -> Self {
        Self::Table(why)
    }
}

/// A column of a group of rows.
enum Column {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Text(Vec<ByteArray>),
    Bool(Vec<bool>),
}

/// What a row has in a column.
enum Cell {
    Long(i64),
    Int(i32),
    Text(&'static str),
    Bool(bool),
}

struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
    all_rows: u64,
}

impl<W: Write + Send> Table<W> {
    fn new(out: W, schema: &str) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(schema)?);
        let columns = schema.get_fields().iter().map(|field| match field.get_physical_type() {
            parquet::basic::Type::INT32 => Column::Int(Vec::new()),
            parquet::basic::Type::BOOLEAN => Column::Bool(Vec::new()),
            parquet::basic::Type::BYTE_ARRAY => Column::Text(Vec::new()),
            _ => Column::Long(Vec::new()),
        });
        let columns = columns.collect();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        Ok(Self { writer, columns, rows: 0, all_rows: 0 })
    }

    fn row<const N: usize>(&mut self, cells: [Cell; N]) -> Result<(), ParquetError> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (column, cell) {
                (Column::Long(values), Cell::Long(value)) => values.push(value),
                (Column::Int(values), Cell::Int(value)) => values.push(value),
                (Column::Text(values), Cell::Text(value)) => values.push(value.into()),
                (Column::Bool(values), Cell::Bool(value)) => values.push(value),
                _ => return Err(ParquetError::General("a cell of another type".into())),
            }
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            write_column(&mut group, column)?;
        }
        group.close()?;
        self.all_rows += self.rows as u64;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<u64, ParquetError> {
        self.write()?;
        self.writer.close()?;
        Ok(self.all_rows)
    }
}

fn write_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &mut Column,
) -> Result<(), ParquetError> {
    let Some(mut out) = group.next_column()? else {
        return Err(ParquetError::General("a column too many".into()));
    };
    match column {
        Column::Long(values) => {
            out.typed::<Int64Type>().write_batch(values, None, None)?;
            values.clear();
        }
        Column::Int(values) => {
            out.typed::<Int32Type>().write_batch(values, None, None)?;
            values.clear();
        }
        Column::Text(values) => {
            out.typed::<ByteArrayType>().write_batch(values, None, None)?;
            values.clear();
        }
        Column::Bool(values) => {
            out.typed::<BoolType>().write_batch(values, None, None)?;
            values.clear();
        }
    }
    out.close()
}

fn long(number: u64) -> Cell {
    Cell::Long(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Alignments are in bytes for objects and in pages for spans.
fn align(log2: u8) -> Cell {
    Cell::Long(1i64.checked_shl(log2.into()).unwrap_or(i64::MAX))
}

/// Writes all requests, a row each; how many.
///
/// # Errors
/// The recording is damaged, or the table cannot be written.
pub fn requests_to_parquet(trace: &Trace, out: impl Write + Send) -> Result<u64, TableError> {
    let mut table = Table::new(out, REQUESTS)?;
    for step in Objects::new(trace) {
        let step = step?;
        // kind, object, size, old size, alignment, zeroed, moved
        let (kind, id, size, old, log2, zeroed, moved) = match step.request {
            Request::Allocate { id, size, align_log2, zeroed } => {
                ("allocate", id, size, 0, align_log2, zeroed, false)
            }
            Request::Free { id, size } => ("free", id, 0, size, 0, false, false),
            Request::Resize { id, size, old_size, moved } => {
                ("resize", id, size, old_size, 0, false, moved)
            }
        };
        table.row([
            long(step.ns),
            Cell::Int(step.thread as i32),
            Cell::Text(kind),
            long(id.into()),
            long(size),
            long(old),
            align(log2),
            Cell::Bool(zeroed),
            Cell::Bool(moved),
        ])?;
    }
    Ok(table.finish()?)
}

/// Writes all of the page heap's operations, a row each; how many.
///
/// # Errors
/// As for [`requests_to_parquet`].
pub fn spans_to_parquet(trace: &Trace, out: impl Write + Send) -> Result<u64, TableError> {
    let mut table = Table::new(out, SPANS)?;
    for next in Spans::new(trace) {
        let (ns, operation) = next?;
        let (kind, id, pages, alignment, objects) = match operation {
            Operation::New { id, pages, align, objects } => ("new", id, pages, align, objects),
            Operation::Delete { id } => ("delete", id, 0, 1, 0),
            Operation::Grow { id, pages } => ("grow", id, pages, 1, 0),
            Operation::Release { pages } => ("release", 0, pages, 1, 0),
            Operation::Pass => continue,
        };
        table.row([
            long(ns),
            Cell::Text(kind),
            long(id.into()),
            long(pages.into()),
            long(alignment.into()),
            long(objects.into()),
        ])?;
    }
    Ok(table.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::tests::recorded;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use spandrel_recorder::Event;

    fn rows(bytes: Vec<u8>) -> Vec<String> {
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        rows.map(|row| row.unwrap().to_string()).collect()
    }

    #[test]
    fn a_row_for_each_request_and_operation() {
        let spans = [
            (1, Event::New { first: 3, pages: 2, align_log2: 1, objects: 9 }),
            (2, Event::Grow { first: 3, pages: 4 }),
            (3, Event::Delete { first: 3 }),
            (4, Event::Release { pages: 7 }),
        ];
        let requests = [
            (5, Event::Thread { number: 4 }),
            (5, Event::Allocate { address: 64, size: 10, align_log2: 6, zeroed: true }),
            (6, Event::Resize { address: 64, size: 20 }),
            (7, Event::Resized { address: 128 }),
            (8, Event::Free { address: 128 }),
        ];
        let trace = Trace::new(recorded(&[(0, &[&spans]), (1, &[&requests])])).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(spans_to_parquet(&trace, &mut bytes).unwrap(), 4);
        let written = rows(bytes);
        assert!(written[0].contains("kind: \"new\", span: 0, pages: 2, align: 2, objects: 9"));
        assert_eq!(written.len(), 4);
        let mut bytes = Vec::new();
        assert_eq!(requests_to_parquet(&trace, &mut bytes).unwrap(), 3);
        let written = rows(bytes);
        assert!(written[0].contains("thread: 4, kind: \"allocate\", object: 0, size: 10"));
        assert!(written[1].contains("size: 20, old_size: 10"));
        assert!(written[1].contains("moved: true"));
        assert_eq!(written.len(), 3);
    }
}
