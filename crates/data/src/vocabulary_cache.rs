//! The vocabulary of a pipeline that decodes text: from a file, or all words of the data.
//!
//! A vocabulary is counted once without limits and cached under a name derived from the data ([`Dataset::cache_path`]);
//! applying `min_count` and `max_size` needs no further pass. One thread concatenates the texts of a step while all
//! count: a million sentences of the Penn Treebank (121 MB) take 0.7 s on two busy cores, and reading the count again
//! takes milliseconds. Rejected: counting records directly in their batch, since batches are lent one at a time and
//! only one thread would count.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use pelton_format::{Contents, Dataset};
use pelton_run::{Event, Interrupt, Observer, RunContext};
use pelton_storage::make_cache_folder;
use pelton_text::{Tokenizer, Vocabulary, VocabularyOptions};
use rayon::iter::{ParallelBridge, ParallelIterator};

use crate::error::DataError;
use crate::length_cache::in_turn;
use crate::open::OpenedData;
use crate::texts::Texts;

/// Suffix of the names of saved vocabularies.
const SUFFIX: &str = ".pelton-vocabulary";
/// Steps of text queued for counting.
const STEPS_AHEAD: usize = 4;
/// How often a pass waiting for the counters checks whether to end.
const LOOK: Duration = Duration::from_millis(2);

/// The vocabulary of a pipeline, from a file or the data. With several ranks, rank 0 counts and saves it before the
/// others look for it.
///
/// Errors: a file that is not a vocabulary, or has other tokens; data without text; an interruption.
pub(crate) fn pipeline_vocabulary(
    opened: &OpenedData,
    tokenizer: Tokenizer,
    file: Option<&Path>,
    context: &mut RunContext<'_>,
) -> Result<Vocabulary, DataError> {
    if let Some(path) = file {
        return saved(path, tokenizer);
    }
    if tokenizer == Tokenizer::Bytes {
        return Ok(Vocabulary::from_text(b"", &without_limits(tokenizer))?);
    }
    in_turn(context.comm, || {
        cached_vocabulary(opened, context.interrupt, context.observer)
    })
}

/// The vocabulary of a file, which must be for `tokenizer`.
fn saved(path: &Path, tokenizer: Tokenizer) -> Result<Vocabulary, DataError> {
    let vocabulary = Vocabulary::load(path)?;
    of_tokens(vocabulary, tokenizer, &path.display().to_string())
}

/// Checks that a vocabulary, called `name` in messages, is for `tokenizer`.
pub(crate) fn of_tokens<V: std::borrow::Borrow<Vocabulary>>(
    vocabulary: V,
    tokenizer: Tokenizer,
    name: &str,
) -> Result<V, DataError> {
    let called = |tokenizer| match tokenizer {
        Tokenizer::Whitespace => "words",
        Tokenizer::Bytes => "bytes",
    };
    match vocabulary.borrow().tokenizer() {
        found if found == tokenizer => Ok(vocabulary),
        found => Err(DataError::Config(format!(
            "{name}: is a vocabulary of {}, and `decode` asks for {}; give `decode` {}, or another vocabulary",
            called(found),
            called(tokenizer),
            called(found)
        ))),
    }
}

/// All words of the data, read from a file or counted and saved now.
///
/// Errors: data without text; an interruption.
pub fn cached_vocabulary(
    opened: &OpenedData,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vocabulary, DataError> {
    let dataset = &opened.dataset;
    let path = dataset.cache_path(&opened.cache_dir, SUFFIX);
    match Vocabulary::load(&path) {
        Ok(vocabulary) if vocabulary.tokenizer() == Tokenizer::Whitespace => {
            tracing::info!(path = %path.display(), "read the saved vocabulary");
            return Ok(vocabulary);
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "no vocabulary was kept"),
    }
    let vocabulary = counted(dataset, interrupt, observer)?;
    // Counts from a file that changed meanwhile are not saved.
    dataset.check_unchanged()?;
    // Writing the file reports a failure.
    let _ = make_cache_folder(&opened.cache_dir);
    match vocabulary.save(&path) {
        Ok(()) => {
            tracing::info!(path = %path.display(), "counted and saved the vocabulary");
        }
        Err(error) => observer(Event::Note(&format!(
            "the vocabulary cannot be saved and will be counted again next time: {error}"
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
    // An interruption abandons this thread and its result.
    let counter = pelton_storage::spawn("count", move || {
        pelton_storage::in_parallel(|| {
            let chunks = receiver.into_iter().par_bridge().map(|chunk| [chunk]);
            Vocabulary::from_chunks(chunks, &options)
        })
    })?;
    loop {
        // Words end at line ends and blanks, so texts may be concatenated.
        let mut joined = Vec::new();
        let more = texts.next_step(observer, |_, text| {
            found += 1;
            joined.extend_from_slice(text);
            joined.push(b'\n');
        })?;
        // The receiver is gone if counting failed; the error is returned below.
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
        Ok(counted) => counted?.map_err(DataError::from),
        Err(panic) => std::panic::resume_unwind(panic),
    };
    if counted.is_ok() && found == 0 && dataset.contents() == Contents::Members {
        let files = dataset.files().iter();
        let first = files.map(|file| file.path().display().to_string()).next();
        return Err(DataError::Config(format!(
            "{}: contains no text, since no sample has a .txt member; name other files",
            first.unwrap_or_default()
        )));
    }
    counted
}
