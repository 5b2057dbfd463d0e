//! Measures how fast sentences become ids, compared with a plain loop and with memory speed.
//!
//! `cargo run --release -p pelton-text --example text_rate -- FILE TIMES` reads a text, repeats it, and prints lines of
//! CSV: method, bytes, tokens, seconds. The methods run in turn, so that other load on the machine affects all; their
//! token counts are compared before printing.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use pelton_text::{Ends, LineLengths, Special, Tokenizer, Vocabulary, VocabularyOptions};

const RUNS: usize = 15;

/// Runs a method once and returns the number of tokens.
type Way<'a> = Box<dyn FnMut() -> usize + 'a>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: text_rate FILE TIMES")?;
    let times: usize = arguments.next().unwrap_or("1".into()).parse()?;
    let text = std::fs::read(path)?.repeat(times);
    let options = VocabularyOptions::default();
    let vocabulary = Vocabulary::from_text(&text, &options)?;
    let plain: HashMap<Vec<u8>, u32> = (0..vocabulary.size())
        .map(|id| (vocabulary.token(id).unwrap_or_default().to_vec(), id))
        .collect();
    let ends = Ends {
        begin: false,
        end: true,
    };
    // Sentences come as slices, so the measurement excludes finding the ends of lines.
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    lines.retain(|line| !line.is_empty());

    let mut ids = Vec::with_capacity(text.len());
    let mut expected = Vec::with_capacity(text.len());
    let mut ways: Vec<(&str, Way<'_>)> = vec![];
    let (fast, slow) = (&mut ids, &mut expected);
    ways.push((
        "encode",
        Box::new(|| {
            fast.clear();
            for line in &lines {
                vocabulary.encode(line, ends, fast);
            }
            fast.len()
        }),
    ));
    ways.push((
        "plain split and HashMap",
        Box::new(|| {
            slow.clear();
            for line in &lines {
                for word in line.split(|byte| *byte == b' ') {
                    if !word.is_empty() {
                        let id = plain.get(word).copied();
                        slow.push(id.unwrap_or(Special::Unknown.id()));
                    }
                }
                slow.push(Special::End.id());
            }
            slow.len()
        }),
    ));
    ways.push((
        "find words",
        Box::new(|| black_box(pelton_text::words(&text).count())),
    ));
    ways.push((
        "count words",
        Box::new(|| black_box(Tokenizer::Whitespace.count(&text))),
    ));
    ways.push((
        "lengths of lines",
        Box::new(|| {
            let mut lengths = LineLengths::default();
            let mut words = 0;
            let Ok(()) = lengths.push(&text, |line| {
                words += line.words;
                Ok::<(), std::convert::Infallible>(())
            });
            black_box(words as usize)
        }),
    ));
    ways.push((
        "vocabulary",
        Box::new(|| {
            let vocabulary = Vocabulary::from_text(&text, &options);
            vocabulary.map_or(0, |vocabulary| vocabulary.size() as usize)
        }),
    ));
    // One read of every byte, at memory speed.
    ways.push((
        "sum of bytes",
        Box::new(|| {
            let (words, _) = text.as_chunks::<8>();
            let sum = |sum: u64, word: &[u8; 8]| sum.wrapping_add(u64::from_le_bytes(*word));
            black_box(words.iter().fold(0, sum));
            0
        }),
    ));
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        for (name, way) in &mut ways {
            let began = Instant::now();
            let tokens = way();
            runs.push((*name, tokens, began.elapsed().as_secs_f64()));
        }
    }
    drop(ways);
    if ids != expected {
        return Err("the plain loop has other numbers".into());
    }
    println!("way,bytes,tokens,seconds");
    runs.sort_by_key(|run| run.0);
    for (name, tokens, seconds) in runs {
        println!("{name},{},{tokens},{seconds:.4}", text.len());
    }
    Ok(())
}
