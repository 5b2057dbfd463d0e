//! `pelton vocabulary`: the words of a text with their ids, as a file.

use std::io::{self, Write};

use pelton_tools::vocabulary::{VocabularyConfig, VocabularyFigures, vocabulary};

use crate::arguments::VocabularyArguments;
use crate::output::{Failure, print_json, print_with, with_console};

/// Counts words and writes those that get ids.
pub fn count(arguments: VocabularyArguments) -> Result<(), Failure> {
    let config = VocabularyConfig {
        data: arguments.format.config(arguments.data),
        out: arguments.out,
        overwrite: arguments.overwrite,
        min_count: arguments.min_count,
        max_size: arguments.max_size,
    };
    let figures = with_console(|context| vocabulary(&config, context))?;
    if arguments.json {
        print_json(&figures)
    } else {
        print_with(|out| print(&figures, out))
    }
}

fn print(figures: &VocabularyFigures, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{} tokens, {} of them for words, in {}",
        figures.size,
        figures.kept_words,
        figures.out.display()
    )?;
    writeln!(
        out,
        "{} words, {} of them different: the vocabulary covers {:.2} %",
        figures.tokens,
        figures.words,
        100.0 * figures.coverage
    )?;
    writeln!(
        out,
        "{} others become {}, index {}",
        figures.unknown_tokens, figures.unknown_token, figures.unknown_id
    )?;
    for word in &figures.top {
        let share = 100.0 * word.count as f64 / figures.tokens.max(1) as f64;
        writeln!(
            out,
            "{:>8}  {:<20} {:>12}  {share:>6.2} %",
            word.id,
            plain(&word.word),
            word.count
        )?;
    }
    Ok(())
}

/// A word without characters that a terminal would interpret.
fn plain(word: &str) -> String {
    let shown = |character: char| {
        if character.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        }
    };
    word.chars().map(shown).collect()
}
