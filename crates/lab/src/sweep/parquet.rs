//! Rows of a sweep as a Parquet file: the columns of `sweep.csv`, with their types.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use clew_trace::Draft;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use serde_json::Value;

use super::{Row, flat};
use crate::error::LabError;

/// What a column's cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Double,
    Text,
}

impl Kind {
    fn of(value: &Value) -> Kind {
        match value {
            Value::Bool(_) => Kind::Bool,
            Value::Number(number) if number.as_i64().is_some() => Kind::Int,
            Value::Number(_) => Kind::Double,
            _ => Kind::Text,
        }
    }

    /// What holds both.
    fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (a, b) if a == b => a,
            (Kind::Int, Kind::Double) | (Kind::Double, Kind::Int) => Kind::Double,
            _ => Kind::Text,
        }
    }
}

/// Writes the rows to `path`, whole or not at all. A cell that a row has not is null.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, rows: &[Row]) -> Result<(), LabError> {
    let failed = LabError::file(path);
    let written = || {
        let mut draft = Draft::new(path, false)?;
        encode(rows, &mut draft).map_err(std::io::Error::other)?;
        draft.commit()
    };
    written().map_err(failed)
}

fn encode(rows: &[Row], to: &mut (impl Write + Send)) -> Result<(), ParquetError> {
    let cells: Vec<BTreeMap<String, Value>> = rows
        .iter()
        .map(|row| {
            let mut cells = flat(row);
            for (name, value) in
                [("trace", &row.trace), ("scheme", &row.outcome.name), ("budget", &row.budget)]
            {
                cells.insert(name.to_string(), value.clone().into());
            }
            cells
        })
        .collect();
    let mut columns: BTreeMap<&String, Kind> = BTreeMap::new();
    for (name, value) in cells.iter().flatten() {
        let kind = Kind::of(value);
        columns.entry(name).and_modify(|known| *known = known.with(kind)).or_insert(kind);
    }
    let fields = columns.iter().map(|(name, kind)| {
        let (physical, logical) = match kind {
            Kind::Bool => (Physical::BOOLEAN, None),
            Kind::Int => (Physical::INT64, None),
            Kind::Double => (Physical::DOUBLE, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("sweep").with_fields(fields).build()?;
    let mut file = SerializedFileWriter::new(to, Arc::new(schema), Default::default())?;
    let mut group = file.next_row_group()?;
    for (name, kind) in columns {
        let values: Vec<Option<&Value>> = cells.iter().map(|cells| cells.get(name)).collect();
        match kind {
            Kind::Bool => column::<BoolType, _>(&mut group, &values, Value::as_bool)?,
            Kind::Int => column::<Int64Type, _>(&mut group, &values, Value::as_i64)?,
            Kind::Double => column::<DoubleType, _>(&mut group, &values, Value::as_f64)?,
            Kind::Text => column::<ByteArrayType, _>(&mut group, &values, |value| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                Some(ByteArray::from(text.into_bytes()))
            })?,
        }
    }
    group.close()?;
    file.close().map(drop)
}

/// The next column. Definition level 1 is a value, 0 is none.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[Option<&Value>],
    read: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = values.iter().map(|value| read((*value)?)).collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the schema has fewer columns".to_string()));
    };
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_report::Arm;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    fn row(budget: u64, parameter: Option<&str>) -> Row {
        let parameters = parameter.map(|value| ("packing.chunk".to_string(), value.to_string()));
        Row {
            trace: "day \"one\"".to_string(),
            budget: "40%".to_string(),
            parameters: parameters.into_iter().collect(),
            budget_bytes: budget,
            flash_bytes: None,
            flash_used_pct: 0,
            outcome: Arm::default(),
        }
    }

    #[test]
    fn what_was_written_is_read_again_with_its_types_and_gaps() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sweep.parquet");
        let rows = [row(1 << 40, Some("4KiB")), row(7, None)];
        write(&path, &rows).expect("written");
        let reader = SerializedFileReader::new(std::fs::File::open(&path).expect("there"));
        let reader = reader.expect("it is Parquet");
        let schema = reader.metadata().file_metadata().schema_descr();
        let at = |name: &str| {
            let names = schema.columns().iter().map(|column| column.name().to_string());
            names.into_iter().position(|found| found == name).unwrap_or_else(|| panic!("{name}"))
        };
        let read: Vec<_> =
            reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
        assert_eq!(read.len(), 2);
        for (row, read) in rows.iter().zip(&read) {
            assert_eq!(read.get_string(at("trace")).expect("text"), &row.trace);
            assert_eq!(
                read.get_long(at("budget_bytes")).expect("a number"),
                row.budget_bytes as i64
            );
        }
        let parameter = at("parameter.packing.chunk");
        assert_eq!(read[0].get_string(parameter).expect("text"), "4KiB");
        assert!(read[1].get_string(parameter).is_err(), "it has none");
    }
}
