//! LIRS Table 5: the tables that random shuffling keeps in memory.
//!
//! LIRS keeps 8 bytes a row for its block and, if rows differ in length, 8 bytes for its offset. Here the order is
//! computed, not stored, and offsets are Elias–Fano coded.

use pelton_data as data;
use pelton_run::RunContext;
use pelton_train::TrainError;
use serde_json::{Value, json};

use super::data_in_memory::generated;
use super::experiment::SetConfig;
use super::published::published;
use crate::table::{ReproduceConfig, Reproduction, Row};

/// Bytes of an entry in both of the paper's tables.
const PUBLISHED_ENTRY_BYTES: f64 = 8.0;
/// The paper's MB.
const MB: f64 = (1 << 20) as f64;

/// The basis for counting the tables of a data set.
struct Counted {
    /// The demo with the same shape.
    demo: &'static str,
    rows: u64,
    sparse: bool,
    /// Random assignment and offset table in MB, as printed.
    tables_mb: [f64; 2],
}

fn counted(name: &str) -> Option<Counted> {
    if name == "imagenet" {
        // Section 5.3.3; images of one size need no offsets.
        return Some(Counted {
            demo: "images",
            rows: 1_281_167,
            sparse: false,
            tables_mb: [9.8, 0.0],
        });
    }
    published(name).map(|set| Counted {
        demo: set.name,
        rows: set.rows,
        sparse: set.sparse,
        tables_mb: set.tables_mb,
    })
}

pub(super) fn lirs_memory(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let mut rows = Vec::new();
    for set in &config.experiment.sets {
        let (Some(published), Some(generated_rows)) = (counted(&set.name), set.rows) else {
            return Err(TrainError::config(format!(
                "{}: Table 5 has no such set; use webspam, epsilon, kdd, higgs or imagenet",
                set.name
            )));
        };
        rows.extend(one_set(config, set, published, generated_rows, context)?);
    }
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows,
        notes: vec![
            "the row of imagenet is printed in the text of section 5.3.3, not in Table 5".to_string(),
            "MB are 2^20 bytes, with which the published figures are 8 bytes a row".to_string(),
            "rows at the paper's counts are computed: bytes a row of the generated file times the paper's number of rows".to_string(),
        ],
        files: Vec::new(),
    })
}

fn one_set(
    config: &ReproduceConfig,
    set: &SetConfig,
    published: Counted,
    generated_rows: u64,
    context: &mut RunContext<'_>,
) -> Result<Vec<Row>, TrainError> {
    let data = generated(config, published.demo, generated_rows, 0);
    let dataset = data::open(&data, &data.paths, None, context)?.dataset;
    let index = dataset.index_report();
    let records = dataset.records();
    let mut rows = Vec::new();
    let mut row = |method: &str, figure: &str, published: Value, measured: f64, differs: &str| {
        rows.push(Row {
            table: "Table 5".to_string(),
            data: set.name.clone(),
            method: method.to_string(),
            figure: figure.to_string(),
            published,
            measured: json!(measured),
            differs: differs.to_string(),
            ..Row::default()
        });
    };
    let offset_bytes = if published.sparse {
        PUBLISHED_ENTRY_BYTES
    } else {
        0.0
    };
    let tables = [
        (
            "random assignment table",
            PUBLISHED_ENTRY_BYTES,
            0.0,
            published.tables_mb[0],
        ),
        (
            "offset table",
            offset_bytes,
            index.bytes_per_record,
            published.tables_mb[1],
        ),
    ];
    for (name, theirs, ours, published_mb) in tables {
        let differs = match name {
            "offset table" => {
                "places are Elias-Fano coded, rows of one length need none; published: 8 bytes a row"
            }
            _ => "the order is computed, not stored; published: 8 bytes a row",
        };
        let paper = format!("MB, computed for the paper's {} rows", published.rows);
        let here = format!("bytes, measured for {records} generated rows");
        row(
            name,
            &paper,
            json!(published_mb),
            ours * published.rows as f64 / MB,
            differs,
        );
        row(
            name,
            &here,
            json!(theirs * records as f64),
            ours * records as f64,
            differs,
        );
        row(name, "bytes a row", json!(theirs), ours, differs);
    }
    let dual = "any dual solver keeps it; BMF and LIRS do too and do not count it";
    row("dual variables", "bytes a row", Value::Null, 4.0, dual);
    let skip = "optional: leaves settled rows unread";
    row(
        "table of rows to skip",
        "bytes a row",
        Value::Null,
        1.0,
        skip,
    );
    rows.sort_by(|a, b| b.figure.cmp(&a.figure));
    Ok(rows)
}
