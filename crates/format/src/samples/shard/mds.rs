//! MDS: the shards of MosaicML Streaming. Each describes its columns in JSON between its table and its samples; a
//! folder of them is opened by its `index.json` (`folder.rs`).

use serde::Deserialize;

use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::byte_source::ByteSource;
use crate::record::error::FormatError;
use crate::record::kind::{Head, codec_by_name, unread};
use crate::samples::shard::cells::{Cell, Element, Shape};
use crate::samples::shard::{self, Column, malformed, read_starts};

/// Longest description.
const MOST_CONFIG_BYTES: u64 = 16 << 20;

/// A shard of MosaicML Streaming.
pub(crate) struct Mds;

/// A shard's description of itself.
#[derive(Deserialize)]
struct Config {
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u32>>,
}

impl Format for Mds {
    fn name(&self) -> &'static str {
        "mds"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let is_one = head.ends_in(&["mds"]) || head.name.contains(".mds.");
        is_one.then_some(Match::Name)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        if let Some(codec) = codec_by_name(source.path) {
            return Err(unread(codec));
        }
        let mut window = source.window()?;
        let starts = read_starts(&mut window)?;
        let from = 4 * (starts.len() as u64 + 1);
        let bytes = starts[0] - from;
        if bytes > MOST_CONFIG_BYTES {
            return Err(malformed(from, "its description is longer than 16 MiB"));
        }
        let config = window.bytes(from, bytes as usize)?;
        let columns = columns_of(config).map_err(|what| malformed(from, what))?;
        shard::open(source, columns, notes)
    }
}

/// Parses the columns of a description; the error describes its fault.
pub(crate) fn columns_of(config: &[u8]) -> Result<Vec<Column>, String> {
    let config: Config = serde_json::from_slice(config)
        .map_err(|error| format!("it does not describe its columns ({error})"))?;
    let columns = config.column_names.len();
    if config.column_encodings.len() != columns || config.column_sizes.len() != columns {
        return Err("it does not describe all of its columns".into());
    }
    let encodings = config.column_encodings.iter().zip(config.column_sizes);
    let columns = config.column_names.into_iter().zip(encodings);
    let columns = columns.map(|(name, (encoding, fixed))| Column {
        name,
        cell: cell_of(encoding),
        encoding: encoding.to_owned(),
        fixed,
    });
    Ok(columns.collect())
}

/// The type of an encoding such as `int` or `ndarray:float32:2,3`.
fn cell_of(encoding: &str) -> Cell {
    match encoding {
        "str" | "json" | "bytes" | "jpeg" | "png" | "str_int" | "str_float" | "str_decimal" => {
            return Cell::Text;
        }
        "pil" => return Cell::Pixels,
        "int" => return Cell::Number(Element::Is(pelton_batch::DType::I64)),
        "ndarray" => return Cell::Array(None, Shape::Mds),
        _ => {}
    }
    let Some(array) = encoding.strip_prefix("ndarray:") else {
        return Element::from_name(encoding).map_or(Cell::Out, Cell::Number);
    };
    let (element, shape) = match array.split_once(':') {
        Some((element, shape)) => (element, Some(shape)),
        None => (array, None),
    };
    let lengths = |shape: &str| {
        let lengths = shape.split(',').map(|n| n.parse().ok());
        lengths.collect::<Option<Vec<usize>>>()
    };
    let shape = match shape.map(lengths) {
        None => Some(Shape::Mds),
        Some(lengths) => lengths.map(Shape::Known),
    };
    match (Element::from_name(element), shape) {
        (Some(element), Some(shape)) => Cell::Array(Some(element), shape),
        _ => Cell::Out,
    }
}
