//! Records of a trace as Arrow record batches: the columns of `clew trace export --csv`, with their types.

use std::fs::File;
use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use clew_trace::export::{COLUMNS, Row, row};
use clew_trace::{Reader, Trace, TraceError};

/// Rows of a batch, at most.
const ROWS: usize = 1 << 16;

/// A stream of all records, from the first.
///
/// # Errors
/// If the trace cannot be read.
pub fn stream(trace: &Trace) -> Result<FFI_ArrowArrayStream, TraceError> {
    let batches = Batches { reader: trace.records()?, schema: schema() };
    Ok(FFI_ArrowArrayStream::new(Box::new(batches)))
}

fn schema() -> SchemaRef {
    use DataType::{UInt32, UInt64, Utf8};
    let types = [UInt64, Utf8, Utf8, UInt32, UInt64, UInt64, Utf8, UInt64, Utf8];
    let fields = COLUMNS.into_iter().zip(types).enumerate();
    let fields = fields.map(|(at, (name, kind))| Field::new(name, kind, at > 1));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

struct Batches {
    reader: Reader<File>,
    schema: SchemaRef,
}

#[derive(Default)]
struct Columns {
    ns: UInt64Builder,
    record: StringBuilder,
    app: StringBuilder,
    space: UInt32Builder,
    page: UInt64Builder,
    pages: UInt64Builder,
    flag: StringBuilder,
    contents: UInt64Builder,
    detail: StringBuilder,
}

impl Columns {
    fn append(&mut self, row: Row<'_>) {
        let text = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
        self.ns.append_value(row.ns);
        self.record.append_value(row.record);
        self.app.append_option(row.app);
        self.space.append_option(row.space);
        self.page.append_option(row.page);
        self.pages.append_option(row.pages);
        self.flag.append_option(text(row.flag));
        self.contents.append_option(row.contents);
        self.detail.append_option(text(&row.detail));
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.ns.finish()),
            Arc::new(self.record.finish()),
            Arc::new(self.app.finish()),
            Arc::new(self.space.finish()),
            Arc::new(self.page.finish()),
            Arc::new(self.pages.finish()),
            Arc::new(self.flag.finish()),
            Arc::new(self.contents.finish()),
            Arc::new(self.detail.finish()),
        ]
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut columns = Columns::default();
        for count in 0..ROWS {
            match self.reader.next() {
                None if count == 0 => return None,
                None => break,
                Some(Ok(stamped)) => columns.append(row(&stamped, self.reader.apps())),
                Some(Err(error)) => return Some(Err(ArrowError::ExternalError(Box::new(error)))),
            }
        }
        Some(RecordBatch::try_new(self.schema.clone(), columns.finish()))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
