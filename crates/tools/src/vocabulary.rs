//! The job `vocabulary`: counts the words of a text and writes them with ids to a file.

use std::path::{Path, PathBuf};

use pelton_data as data;
use pelton_data::{DataConfig, DataError, cached_vocabulary};
use pelton_run::RunContext;
use pelton_storage::{output_file, path_text};
use pelton_text::{Special, Vocabulary};
use serde::Serialize;

/// Number of words listed in the figures.
const TOP: u32 = 10;

/// The data, the limits, and the output file.
#[derive(Clone, Debug)]
pub struct VocabularyConfig {
    /// The data.
    pub data: DataConfig,
    /// The file to write.
    pub out: PathBuf,
    /// Whether to replace an existing file.
    pub overwrite: bool,
    /// Words that occur less often have no id.
    pub min_count: u64,
    /// Most tokens, including the four special ones.
    pub max_size: Option<u32>,
}

/// The contents of a vocabulary and how much of the text it covers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VocabularyFigures {
    /// The file.
    #[serde(serialize_with = "path_text::serialize_path")]
    pub out: PathBuf,
    /// Tokens with ids, including the four special ones.
    pub size: u32,
    /// Words with ids.
    pub kept_words: u64,
    /// Distinct words of the text, including those without an id.
    pub words: u64,
    /// Words of the text, including repeats.
    pub tokens: u64,
    /// Number of these in the vocabulary.
    pub covered_tokens: u64,
    /// The same as a share.
    pub coverage: f64,
    /// The token for all others.
    pub unknown_token: String,
    /// Its id.
    pub unknown_id: u32,
    /// Words of the text, including repeats, that become this token.
    pub unknown_tokens: u64,
    /// The most frequent words.
    pub top: Vec<WordFigures>,
}

/// A word and how often it occurs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WordFigures {
    /// The word, with marks in place of bytes that are not UTF-8.
    pub word: String,
    /// Its id.
    pub id: u32,
    /// How often it occurs.
    pub count: u64,
}

/// Counts the words of the data, or takes a cached count, and saves the words within the limits.
///
/// Errors: data without text, limits without room for the special tokens, a file that cannot be written or exists, an
/// interruption.
pub fn vocabulary(
    config: &VocabularyConfig,
    mut context: RunContext<'_>,
) -> Result<VocabularyFigures, DataError> {
    data::check_range("min_count", config.min_count, 1..=u64::MAX)?;
    let file = output_file(&config.out, &config.data.inputs([]), config.overwrite)?;
    let data = config.data.with_bytes();
    let opened = data::open(&data, &data.paths, None, &mut context)?;
    let all = cached_vocabulary(&opened, context.interrupt, context.observer)?;
    let limited = all.limited(config.min_count, config.max_size)?;
    limited.save_in(file)?;
    Ok(figures(&all, &limited, &config.out))
}

fn figures(all: &Vocabulary, limited: &Vocabulary, out: &Path) -> VocabularyFigures {
    let tokens = (0..all.size()).filter_map(|id| all.count(id)).sum();
    let unknown = Special::Unknown;
    let unknown_tokens = limited.count(unknown.id()).unwrap_or(0);
    let covered_tokens = tokens - unknown_tokens;
    let listed = Special::COUNT..limited.size().min(Special::COUNT + TOP);
    VocabularyFigures {
        out: out.to_path_buf(),
        size: limited.size(),
        kept_words: u64::from(limited.size() - Special::COUNT),
        words: u64::from(all.size() - Special::COUNT),
        tokens,
        covered_tokens,
        coverage: match tokens {
            0 => 1.0,
            _ => covered_tokens as f64 / tokens as f64,
        },
        unknown_token: unknown.spelling().to_string(),
        unknown_id: unknown.id(),
        unknown_tokens,
        top: listed
            .map(|id| WordFigures {
                word: String::from_utf8_lossy(limited.token(id).unwrap_or_default()).into_owned(),
                id,
                count: limited.count(id).unwrap_or(0),
            })
            .collect(),
    }
}
