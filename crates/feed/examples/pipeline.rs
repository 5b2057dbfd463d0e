//! A pipeline with custom functions: sentences of a text file as word indices, with random words left out at
//! each appearance, in batches of similar lengths, every sentence twice. It prints the first hundred batches,
//! saves its state in a file, and resumes from there when run again.
//!
//! ```text
//! cargo run --release -p pelton-feed --example pipeline -- sentences.txt state.json
//! ```

use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use pelton_feed::{
    Appearance, Collate, Function, Loader, LoaderOptions, LoaderState, Sample, StageFailure,
    Stages, TEXT, TOKENS, Value,
};
use pelton_format::{Dataset, FormatKind, OpenOptions};
use pelton_key::KeyedRng;
use pelton_plan::{Catalog, Order, Plan, PlanSpec};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let (Some(sentences), Some(state), None) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("name a text file and the file that says where the pipeline stands".into());
    };
    let open = OpenOptions {
        format: FormatKind::from_name("text"),
        ..OpenOptions::default()
    };
    let dataset = Arc::new(Dataset::open(std::slice::from_ref(&sentences), &open)?);

    // The plan: a full random order of each epoch, in batches of sentences of similar lengths.
    let spec = PlanSpec {
        echo: "2:1000".parse()?,
        buckets: Some("auto".parse()?),
        ..PlanSpec::new(Order::Full, 32, 7)
    };
    let text = fs::read(&sentences)?;
    let words = |line: &[u8]| {
        line.split(u8::is_ascii_whitespace)
            .filter(|w| !w.is_empty())
            .count()
    };
    let lengths: Vec<u32> = text
        .split(|&byte| byte == b'\n')
        .map(|line| words(line) as u32)
        .collect();
    let length_of = |id: u64| lengths[id as usize];
    let over = Catalog::new(dataset.records()).with_lengths(&length_of);
    let stream = Plan::new(&spec, over)?;
    let stream = Arc::new(stream);

    // The stages for each sentence.
    let stages = Stages::default().collated(Collate::Pad);
    let stages = stages
        .then(Function::at_read(|sample, _| to_numbers(sample)))
        .then(Function::at_appearance(leave_out_words));
    let mut options = LoaderOptions {
        end_epoch: Some(1),
        ..LoaderOptions::with_memory(64 << 20)
    };
    if let Ok(saved) = fs::read_to_string(&state) {
        options = LoaderState::from_json(&saved)?.resume(&dataset, &stream, &stages, &options)?;
    }

    let mut loader = Loader::new(dataset, stream, stages, &options)?;
    for batch in loader.by_ref().take(100) {
        let batch = batch?;
        let tokens = batch.values::<u32>(TOKENS).unwrap_or_default();
        println!(
            "step {}: {} sentences ({} fresh), {} numbers, first {:?}",
            batch.step,
            batch.len(),
            batch.fresh(),
            tokens.len(),
            tokens.first()
        );
    }
    // Written to a temporary file first: a half-written state is unusable.
    let aside = state.with_extension("part");
    fs::write(&aside, loader.state().to_json())?;
    fs::rename(aside, state)?;
    println!("{}", loader.meters().verdict());
    Ok(())
}

/// Words as numbers from 1; once for each time a sentence is read.
fn to_numbers(sample: &mut Sample<'_>) -> Result<(), StageFailure> {
    let line = sample.remove(TEXT);
    let line = line.as_ref().and_then(Value::as_bytes);
    // The error names the file and the line; see `LoaderOptions::bad_examples` for what happens then.
    let line = std::str::from_utf8(line.ok_or("a line of text was expected")?)?;
    let number = |word: &str| {
        let mut hasher = DefaultHasher::new();
        word.hash(&mut hasher);
        (hasher.finish() % 30_000) as u32 + 1
    };
    let numbers: Vec<u32> = line.split_ascii_whitespace().map(number).collect();
    sample.set(&TOKENS.into(), numbers.into());
    Ok(())
}

/// Leaves out every tenth word; once for each appearance, by a key that is the appearance's own.
fn leave_out_words(sample: &mut Sample<'_>, at: &Appearance) -> Result<(), StageFailure> {
    if let Some(Value::Tokens(tokens)) = sample.get_mut(TOKENS) {
        let mut random = KeyedRng::new(at.key);
        tokens.to_mut().retain(|_| random.next_f64() >= 0.1);
    }
    Ok(())
}
