//! LitData: chunks of samples next to an `index.json` that describes their cells (`mod.rs`). A folder of them is opened
//! by that file (`folder.rs`).

use std::path::Path;

use pelton_batch::DType;
use serde_json::Value;

use crate::arrays::ids::IdsDecoder;
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::Places;
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::record::error::FormatError;
use crate::record::kind::Head;
use crate::samples::shard::cells::{Cell, Element, Shape, numpy_element, torch_element};
use crate::samples::shard::folder::{Config, INDEX, read_index};
use crate::samples::shard::{self, Column};

/// Deepest nesting of the dictionaries and lists of a sample.
const MOST_DEPTH: usize = 16;

/// A chunk of LitData.
pub(crate) struct LitData;

impl Format for LitData {
    fn name(&self) -> &'static str {
        "litdata"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let is_one = head.name.starts_with("chunk-") && head.name.ends_with(".bin");
        is_one.then_some(Match::Name)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let path = source.path.with_file_name(INDEX);
        let config = read_index(&path)?.config;
        if let Some(config) = &config
            && config.item_loader.as_deref() == Some("TokensLoader")
            && config.encryption.is_none()
        {
            let dtype = dtype_of_tokens(config).map_err(|what| refused(&path, what))?;
            return documents(source, dtype);
        }
        let columns = config
            .ok_or("it has no `config`".into())
            .and_then(columns_of);
        let columns = columns.map_err(|what| refused(&path, what))?;
        shard::open(source, columns, notes)
    }
}

/// The type of the ids of a chunk for TokensLoader.
fn dtype_of_tokens(config: &Config) -> Result<DType, String> {
    let formats = config.data_format.as_deref().unwrap_or_default();
    let [format] = formats else {
        return Err(format!(
            "its chunks of tokens have {} fields, not one",
            formats.len()
        ));
    };
    match cell_of(format) {
        Cell::Array(Some(Element::Is(dtype)), Shape::Flat) => Ok(dtype),
        _ => Err(format!(
            "its chunks of tokens are {format:?}, and not tensors without a head"
        )),
    }
}

/// A chunk for TokensLoader: each sample is the ids of a document, without their number.
fn documents(source: &Source<'_>, dtype: DType) -> Result<Shard, FormatError> {
    let mut window = source.window()?;
    let starts = shard::read_starts(&mut window)?;
    let (records, end) = (starts.len() as u64 - 1, source.stamp.size);
    let mut places = EliasFanoBuilder::new((end - starts[0]) / records);
    let mut longest = 0;
    for two in starts.windows(2) {
        let length = two[1] - two[0];
        if !length.is_multiple_of(dtype.bytes() as u64) {
            let what = format!("a document has {length} bytes, which are no ids of {dtype}");
            return Err(shard::malformed(two[0], what));
        }
        places.push(two[0]);
        longest = longest.max(length);
    }
    Ok(Shard {
        bytes: end - starts[0],
        longest,
        places: Places::listed(places.finish(end), end, "its table of documents"),
        ..Shard::fields(records, IdsDecoder::new(dtype, None, 0))
    })
}

fn refused(index: &Path, what: String) -> FormatError {
    let remedy = "write the chunks with litdata.optimize, without compression and encryption";
    FormatError::malformed(0, format!("{what}; {remedy}")).in_file(index)
}

/// The columns in an index; the error says why they cannot be read.
fn columns_of(config: Config) -> Result<Vec<Column>, String> {
    if config.encryption.is_some() {
        return Err("its chunks are encrypted, and are not read".into());
    }
    if config
        .item_loader
        .as_deref()
        .is_some_and(|loader| loader != "PyTreeLoader")
    {
        return Err(format!(
            "its chunks are for {}, and only those for PyTreeLoader and TokensLoader are read",
            config.item_loader.unwrap_or_default()
        ));
    }
    // A chunk that is compressed as a whole was decompressed before.
    let level = config.compression_level.as_deref();
    if config.compression.is_some() && level.is_some_and(|level| level != "chunk") {
        return Err(
            "its samples are compressed by themselves or in batches, which is not read in place"
                .into(),
        );
    }
    let formats = config.data_format.ok_or("it has no `data_format`")?;
    let names = match config.data_spec {
        Some(spec) => names_of(&spec)
            .filter(|names| names.len() == formats.len())
            .ok_or(
                "its `data_spec` is damaged, or does not name as many fields as `data_format`",
            )?,
        None => (0..formats.len()).map(|i| i.to_string()).collect(),
    };
    let columns = names.into_iter().zip(&formats);
    let columns = columns.map(|(name, format)| Column {
        name,
        cell: cell_of(format),
        encoding: format.clone(),
        fixed: None,
    });
    Ok(columns.collect())
}

/// The type of a format such as `int` or `no_header_tensor:18`.
fn cell_of(format: &str) -> Cell {
    let (kind, code) = format.split_once(':').unwrap_or((format, ""));
    let array = |of: fn(usize) -> Option<Element>| {
        let element = code.parse().ok().and_then(of);
        element.map_or(Cell::Out, |element| Cell::Array(Some(element), Shape::Flat))
    };
    let number = |name| Element::from_name(name).map_or(Cell::Out, Cell::Number);
    match kind {
        "json" => Cell::Nested,
        "str" | "text" | "bytes" | "jpeg" | "image" | "file" => Cell::Text,
        "int" => number("int64"),
        "float" => number("float64"),
        "bool" => number("bool"),
        "pil" => Cell::Pixels,
        "numpy" => Cell::Array(None, Shape::Numpy),
        "tensor" => Cell::Array(None, Shape::Torch),
        "no_header_numpy" => array(numpy_element),
        "no_header_tensor" => array(torch_element),
        _ => Cell::Out,
    }
}

/// The names of the leaves of a sample, from the text of a Torch `TreeSpec`: keys and indices with dots between them,
/// and `data` if a sample is one leaf.
pub(crate) fn names_of(spec: &str) -> Option<Vec<String>> {
    let spec: Value = serde_json::from_str(spec).ok()?;
    let mut names = Vec::new();
    walk(spec.get(1)?, "", 0, &mut names)?;
    if let [only] = &mut names[..]
        && only.is_empty()
    {
        *only = "data".into();
    }
    Some(names)
}

fn walk(spec: &Value, before: &str, depth: usize, names: &mut Vec<String>) -> Option<()> {
    if depth > MOST_DEPTH {
        return None;
    }
    let Some(kind) = spec.get("type")?.as_str() else {
        names.push(before.to_owned());
        return Some(());
    };
    let children = spec.get("children_spec")?.as_array()?;
    let keys: Option<Vec<Value>> = if kind.ends_with("dict") || kind.ends_with("Dict") {
        let context = serde_json::from_str(spec.get("context")?.as_str()?).ok()?;
        // The keys of a `defaultdict` come after the maker of its values.
        let [_, keys] = if kind.ends_with("defaultdict") {
            serde_json::from_value(context).ok()?
        } else {
            [Value::Null, context]
        };
        let keys: Vec<Value> = serde_json::from_value(keys).ok()?;
        Some(keys)
            .filter(|keys| keys.len() == children.len())?
            .into()
    } else {
        None
    };
    for (i, child) in children.iter().enumerate() {
        let name = match &keys {
            Some(keys) => match keys.get(i)? {
                Value::String(key) => key.clone(),
                key => key.to_string(),
            },
            None => i.to_string(),
        };
        let name = if before.is_empty() {
            name
        } else {
            format!("{before}.{name}")
        };
        walk(child, &name, depth + 1, names)?;
    }
    Some(())
}
