//! The job `vocabulary`: which words a text has and how often, with numbers in a file; and the vocabulary of a
//! pipeline that decodes words.
//!
//! A vocabulary is counted once without limits and kept in the cache folder under a name that only the same data
//! finds ([`Dataset::cache_path`]); what `--min-count` and `--max-size` leave follows from it without another pass.
//! One thread puts the texts of a step side by side while all count: a million sentences of the Penn Treebank
//! (121 MB) take 0.7 s on two busy cores, and reading the count again takes milliseconds
//! (`bench/results/first_batch.csv`). Counting records one by one as they lie in a batch was rejected: batches are lent one at a time, so
//! that one thread would count.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use pelton_comm::Comm;
use pelton_format::{Contents, Dataset};
use pelton_text::{Special, Tokenizer, Vocabulary, VocabularyOptions};
use rayon::iter::{ParallelBridge, ParallelIterator};
use serde::Serialize;

use pelton_data as data;
use pelton_data::{DataConfig, DataError, Texts, in_turn};
use pelton_run::{Event, Interrupt, Observer, RunContext};

/// What the names of kept vocabularies end with.
const SUFFIX: &str = ".pelton-vocabulary";
/// First bytes of every file that holds a vocabulary.
const HEAD: &[u8] = b"pelton-vocabulary ";
/// Steps whose texts wait to be counted.
const STEPS_AHEAD: usize = 4;
/// How often a pass that waits for them to be counted looks whether it is to end.
const LOOK: Duration = Duration::from_millis(2);
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

/// What a vocabulary holds and how much of the text that is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VocabularyFigures {
    /// The file.
    pub out: PathBuf,
    /// Tokens with numbers, the four special ones among them.
    pub size: u32,
    /// Words with numbers.
    pub kept_words: u64,
    /// Different words of the text, those without a number among them.
    pub words: u64,
    /// Words of the text, each as often as it comes.
    pub tokens: u64,
    /// How many of these have a number of their own.
    pub covered_tokens: u64,
    /// The same as a share.
    pub coverage: f64,
    /// How the token is spelled that stands for all others.
    pub unknown_token: String,
    /// Its number.
    pub unknown_id: u32,
    /// How many words of the text it stands for.
    pub unknown_tokens: u64,
    /// The most frequent words.
    pub top: Vec<WordFigures>,
}

/// A word and how often it comes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WordFigures {
    /// The word, with marks in place of bytes that are no UTF-8.
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
    let data = config.data.with_bytes();
    let opened = data::open(&data, &data.paths, None, &mut context)?;
    let all = kept(&opened.dataset, &data, context.interrupt, context.observer)?;
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
        && fs::File::open(out)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok()
        && head == *HEAD;
    match holds_one {
        true => Ok(()),
        false => Err(DataError::Config(format!(
            "{}: exists and is no vocabulary; name another file with `out`",
            out.display()
        ))),
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

/// The vocabulary of a pipeline: that of a file, or of the data. Of several ranks the first counts and keeps it
/// before the others look for it.
///
/// Errors: a file that is no vocabulary or one of other tokens; data that holds no text; an interruption.
pub(crate) fn of_pipeline(
    dataset: &Arc<Dataset>,
    data: &DataConfig,
    tokenizer: Tokenizer,
    file: Option<&Path>,
    comm: &Comm,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vocabulary, DataError> {
    if let Some(path) = file {
        return saved(path, tokenizer);
    }
    if tokenizer == Tokenizer::Bytes {
        return Ok(Vocabulary::from_text(b"", &without_limits(tokenizer))?);
    }
    in_turn(comm, || kept(dataset, data, interrupt, observer))
}

/// The vocabulary of a file, whose tokens must be those of `tokenizer`.
fn saved(path: &Path, tokenizer: Tokenizer) -> Result<Vocabulary, DataError> {
    let name = |tokenizer| match tokenizer {
        Tokenizer::Whitespace => "words",
        Tokenizer::Bytes => "bytes",
    };
    let vocabulary = Vocabulary::load(path)?;
    match vocabulary.tokenizer() {
        found if found == tokenizer => Ok(vocabulary),
        found => Err(DataError::Config(format!(
            "{}: numbers {}, and `decode` asks for {}; give `decode` {}, or another vocabulary",
            path.display(),
            name(found),
            name(tokenizer),
            name(found)
        ))),
    }
}

/// All words of the data: as they were kept, or counted and kept now.
fn kept(
    dataset: &Arc<Dataset>,
    data: &DataConfig,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vocabulary, DataError> {
    let path = dataset.cache_path(&data::cache_dir(data), SUFFIX);
    match Vocabulary::load(&path) {
        Ok(vocabulary) if vocabulary.tokenizer() == Tokenizer::Whitespace => {
            tracing::info!(path = %path.display(), "vocabulary read that was kept");
            return Ok(vocabulary);
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "no vocabulary was kept"),
    }
    let vocabulary = counted(dataset, interrupt, observer)?;
    // What was counted from a file that changed meanwhile is kept under no name.
    dataset.check_unchanged()?;
    if let Some(folder) = path.parent() {
        // A failure shows when the file is written.
        let _ = fs::create_dir_all(folder);
    }
    match vocabulary.save(&path) {
        Ok(()) => {
            tracing::info!(path = %path.display(), "vocabulary counted and kept");
        }
        Err(error) => observer(Event::Note(&format!(
            "the vocabulary is not kept and is counted anew next time: {error}"
        ))),
    }
    Ok(vocabulary)
}

fn without_limits(tokenizer: Tokenizer) -> VocabularyOptions {
    VocabularyOptions {
        tokenizer,
        ..VocabularyOptions::default()
    }
}

/// Counts the words of all texts on all threads.
fn counted(
    dataset: &Arc<Dataset>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vocabulary, DataError> {
    let options = without_limits(Tokenizer::Whitespace);
    let mut texts = Texts::new(dataset, "counting words", interrupt)?;
    let mut found = 0_u64;
    let (sender, receiver) = sync_channel::<Vec<u8>>(STEPS_AHEAD);
    // An interruption leaves this thread behind: what it adds up and sorts is for nobody then.
    let counter = thread::spawn(move || {
        let chunks = receiver.into_iter().par_bridge().map(|chunk| [chunk]);
        Vocabulary::from_chunks(chunks, &options)
    });
    loop {
        // Words are cut at line ends as at blanks, so that texts may stand side by side.
        let mut joined = Vec::new();
        let more = texts.next_step(observer, |_, text| {
            found += 1;
            joined.extend_from_slice(text);
            joined.push(b'\n');
        })?;
        // Nobody receives any more where counting failed, which says why below.
        if !more || sender.send(joined).is_err() {
            break;
        }
    }
    drop(sender);
    while !counter.is_finished() {
        if interrupt.load(Ordering::Relaxed) {
            return Err(DataError::Stopped {
                job: "counting words",
            });
        }
        thread::sleep(LOOK);
    }
    let counted = match counter.join() {
        Ok(counted) => counted.map_err(DataError::from),
        Err(panic) => std::panic::resume_unwind(panic),
    };
    if counted.is_ok() && found == 0 && dataset.contents() == Contents::Members {
        let files = dataset.files().iter();
        let first = files.map(|file| file.path().display().to_string()).next();
        return Err(DataError::Config(format!(
            "{}: no sample has a member .txt, so that there is no text; name other files",
            first.unwrap_or_default()
        )));
    }
    counted
}
