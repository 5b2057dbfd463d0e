//! The job `vocabulary`: which words a text has and how often, with numbers in a file.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use pelton_data as data;
use pelton_data::{DataConfig, DataError, cached_vocabulary};
use pelton_run::RunContext;
use pelton_storage::path_text;
use pelton_text::{Special, Vocabulary};
use serde::Serialize;

/// First bytes of every file that holds a vocabulary.
const HEAD: &[u8] = b"pelton-vocabulary ";
/// Words that the figures list.
const TOP: u32 = 10;

/// Whose words, how many of them, and where they go.
#[derive(Clone, Debug)]
pub struct VocabularyConfig {
    /// The data.
    pub data: DataConfig,
    /// The file to write.
    pub out: PathBuf,
    /// Words that come less often have no number.
    pub min_count: u64,
    /// Most tokens, the four special ones among them.
    pub max_size: Option<u32>,
}

/// The contents of a vocabulary and how much of the text it covers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VocabularyFigures {
    /// The file.
    #[serde(serialize_with = "path_text::serialize_path")]
    pub out: PathBuf,
    /// Tokens with numbers, the four special ones among them.
    pub size: u32,
    /// Words with numbers.
    pub kept_words: u64,
    /// Different words of the text, those without a number among them.
    pub words: u64,
    /// Words of the text, including repeats.
    pub tokens: u64,
    /// How many of these are in the vocabulary.
    pub covered_tokens: u64,
    /// The same as a share.
    pub coverage: f64,
    /// The token for all others.
    pub unknown_token: String,
    /// Its number.
    pub unknown_id: u32,
    /// How many words of the text become this token.
    pub unknown_tokens: u64,
    /// The most frequent words.
    pub top: Vec<WordFigures>,
}

/// A word and how often it comes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WordFigures {
    /// The word, with marks in place of bytes that are not UTF-8.
    pub word: String,
    /// Its number.
    pub id: u32,
    /// How often it comes.
    pub count: u64,
}

/// Counts the words of the data, or takes the count that was kept, and saves what the limits leave of them.
///
/// Errors: data that holds no text, limits without room for the special tokens, a file that cannot be
/// written or holds something else, an interruption.
pub fn vocabulary(
    config: &VocabularyConfig,
    mut context: RunContext<'_>,
) -> Result<VocabularyFigures, DataError> {
    check_out(config)?;
    data::check_range("min_count", config.min_count, 1..=u64::MAX)?;
    let data = config.data.with_bytes();
    let opened = data::open(&data, &data.paths, None, &mut context)?;
    let all = cached_vocabulary(&opened, context.interrupt, context.observer)?;
    let limited = all.limited(config.min_count, config.max_size)?;
    limited.save(&config.out)?;
    Ok(figures(&all, &limited, &config.out))
}

/// A vocabulary takes the place of vocabularies only, never of the data.
fn check_out(config: &VocabularyConfig) -> Result<(), DataError> {
    let out = &config.out;
    let Ok(status) = fs::metadata(out) else {
        return Ok(());
    };
    let mut head = [0; HEAD.len()];
    let holds_one = status.is_file()
        && pelton_storage::open_file(out)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok()
        && head == *HEAD;
    if holds_one {
        Ok(())
    } else {
        Err(DataError::Config(format!(
            "{}: exists and is not a vocabulary; name another file with `out`",
            out.display()
        )))
    }
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
