//! LIRS Table 5: the tables that random shuffling keeps in memory.
//!
//! LIRS holds 8 bytes a row to say which block it belongs to and, where rows differ in length, 8 bytes
//! for its place. Here the order is computed, not stored, and places are Elias–Fano coded.

use serde_json::{Value, json};

use super::shapes::{SHAPES, load_shape};
use super::{ReproduceConfig, Reproduction, Row};
use crate::error::TrainError;
use crate::event::Observer;

pub(super) fn lirs_memory(
    config: &ReproduceConfig,
    observer: Observer<'_>,
) -> Result<Reproduction, TrainError> {
    let mut rows = Vec::new();
    for shape in SHAPES {
        let loaded = load_shape(config, shape, observer)?;
        let report = loaded.dataset.index_report();
        let at_scale = |bytes_a_row: f64| bytes_a_row * shape.published_rows as f64 / 1e6;
        let mut row = |figure: &str, published: Value, measured: Value, differs: &str| {
            rows.push(Row {
                table: "Table 5".to_string(),
                data: shape.name.to_string(),
                method: "LIRS".to_string(),
                figure: figure.to_string(),
                published,
                measured,
                differs: differs.to_string(),
            });
        };
        row(
            "random assignment table, MB",
            json!(shape.published_tables_mb[0]),
            json!(0.0),
            "the order is a keyed permutation that is computed, not stored",
        );
        row(
            "offset table, MB",
            json!(shape.published_tables_mb[1]),
            json!(at_scale(report.bytes_per_record)),
            "measured bytes a row at the generated size, times the published number of rows",
        );
        row(
            "offset table, bytes a row",
            json!(if shape.sparse { 8.0 } else { 0.0 }),
            json!(report.bytes_per_record),
            "measured on the generated file",
        );
        row(
            "dual variables, MB (any dual solver needs them)",
            Value::Null,
            json!(at_scale(4.0)),
            "4 bytes a row; the table of --skip adds 1 byte a row",
        );
    }
    Ok(Reproduction {
        name: config.name.clone(),
        rows,
        notes: vec!["MB are 10^6 bytes; the published figures agree with 8 bytes a row in units of 2^20 bytes".to_string()],
    })
}
