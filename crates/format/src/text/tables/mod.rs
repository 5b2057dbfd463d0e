//! Tables with columns that are not all numbers: how their cells become features.
//!
//! If records are rows of cells, a format gives them one by one ([`cells::Cells`]). If some column holds text or the
//! user gives a column a kind, one parallel pass over all files (`survey`) collects statistics of each column, `choice`
//! decides how it becomes features ([`ColumnCode`](pelton_batch::ColumnCode)), and a decoder over that of the file
//! (`coded`) writes sparse rows. A model keeps the codes, so other data needs no such pass and gets the same features.
//!
//! Features of columns come in the order of the columns; those of hashed columns share the last ones.

pub(crate) mod choice;
pub(crate) mod coded;
pub(crate) mod column_found;
pub(crate) mod dates;
pub(crate) mod hashing;
pub(crate) mod survey;
pub(crate) mod words;

use std::sync::Arc;

use pelton_batch::Schema;

use crate::locate::common_labels::not_alike;
use crate::locate::format::Opened;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::options::{Missing, OpenOptions};
use crate::record::rows::Layout;
pub use crate::text::tables::choice::ColumnUse;
use crate::text::tables::choice::{Choice, choose};
use crate::text::tables::coded::{Coded, Coder};
use crate::text::tables::column_found::ColumnFound;
use crate::text::tables::survey::survey;

/// How the columns of a table are used.
#[derive(Debug)]
pub(crate) struct Coding {
    pub(crate) columns: Vec<ColumnUse>,
    /// The weight of each record, if a column holds weights.
    pub(crate) weights: Option<Arc<[f32]>>,
}

/// How the cells of tables become features.
pub(crate) enum Codes {
    /// By the codes of their columns.
    Of(Coding),
    /// Plain numbers, with the mean of each column if a pass over all files has computed it.
    Numbers(Option<Arc<[f32]>>),
}

/// Gives tables features by the codes of their columns: those of the model, or new ones from a pass over all files.
/// Adds remarks to `notes`.
pub(crate) fn code(
    opened: &mut [Opened],
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Codes, FormatError> {
    let are_features = |file: &Opened| file.shard.contents == Contents::Features;
    if !options.codes_columns || !(options.features_only || opened.iter().all(are_features)) {
        return Ok(Codes::Numbers(None));
    }
    let known = options.columns.as_ref().map(|known| &known.schema);
    let known = known.filter(|schema| !schema.codes.is_empty());
    let has_text = |file: &Opened| file.shard.decoder.cells().is_some_and(|c| c.has_text());
    let is_asked = !options.column_kinds.is_empty() || options.missing == Some(Missing::Flag);
    let has_text = opened.iter().any(has_text);
    let are_tables = opened
        .iter()
        .all(|file| file.shard.decoder.cells().is_some());
    // Missing cells are known only after all are read.
    let is_auto = options.missing == Some(Missing::Auto) && are_tables;
    let wanted = is_asked || has_text || is_auto;
    // A model of numbers reads other data as numbers.
    let is_new = options.columns.is_none();
    if known.is_none() && !(is_new && wanted) {
        return Ok(Codes::Numbers(None));
    }
    if let Some(other) = (opened.iter()).find(|file| file.shard.decoder.cells().is_none()) {
        let Some(table) = (opened.iter()).find(|file| file.shard.decoder.cells().is_some()) else {
            let what = "has no columns that can be given kinds; give CSV, TSV, Parquet, Arrow or JSON Lines";
            return Err(FormatError::new(what).in_file(&other.path));
        };
        return Err(not_alike(other, "no cells", table, "a table"));
    }
    let (schema, columns, weights) = match known {
        Some(schema) => (Schema::clone(schema), Vec::new(), None),
        None => {
            let found = survey(opened, options)?;
            let all = found.columns.len();
            let is_full = found.columns.iter().all(ColumnFound::is_plain);
            if is_auto && is_full && !is_asked && !has_text {
                let means = found.columns.iter().map(|column| column.mean());
                return Ok(Codes::Numbers(Some(means.collect())));
            }
            let choice = choose(found, &opened[0], options, notes)?;
            if !is_asked && is_full && choice.schema.is_numbers(all) {
                return Ok(Codes::Numbers(None));
            }
            let Choice {
                schema,
                columns,
                weights,
            } = choice;
            (schema, columns, weights)
        }
    };
    let coder = Arc::new(Coder::new(&schema));
    for file in opened.iter_mut() {
        let cells = file.shard.decoder.cells().expect("all are tables");
        let coded = Coded::new(Arc::clone(&file.shard.decoder), cells, &coder, options);
        let coded = coded.map_err(|error| error.in_file(&file.path))?;
        let shard = &mut file.shard;
        shard.decoder = Arc::new(coded);
        shard.contents = Contents::Features;
        shard.layout = Layout::Sparse;
        shard.features = coder.features() as u64;
        let mean = shard.bytes / shard.records.max(1);
        shard.nonzeros = shard.records.saturating_mul(coder.entries(mean));
    }
    opened[0].shard.columns = Some(schema);
    Ok(Codes::Of(Coding { columns, weights }))
}
