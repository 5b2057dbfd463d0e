//! A folder of pictures as batches of floats with labels, in a full random order; run again, it resumes.
//!
//! ```text
//! cargo run --release -p pelton-feed --example pictures -- FOLDER state.json
//! ```
use pelton_feed::{AugmentImages, DecodeImages, Loader, LoaderOptions, LoaderState, Stages};
use pelton_plan::{Catalog, Order, Plan, PlanSpec};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [folder, state] = [1, 2].map(|i| std::env::args().nth(i).expect("FOLDER and STATE"));
    let dataset = pelton_format::Dataset::open(&[folder.into()], &Default::default())?;
    let (dataset, spec) = (Arc::new(dataset), PlanSpec::new(Order::Full, 64, 7));
    let plan = Arc::new(Plan::new(&spec, Catalog::new(dataset.records()))?);
    let stages = Stages::default()
        .then(DecodeImages::from_kind("image").expect("a kind of picture"))
        .then(AugmentImages::by("rrc:224,flip,normalise".parse()?));
    let mut options = LoaderOptions::with_memory(512 << 20);
    if let Ok(saved) = std::fs::read_to_string(&state) {
        options = LoaderState::from_json(&saved)?.resume(&dataset, &plan, &stages, &options)?;
    }
    let mut loader = Loader::new(dataset, plan, stages, &options)?;
    for batch in loader.by_ref().take(5) {
        let batch = batch?;
        let (pixels, labels) = (batch.values::<f32>("image"), batch.values::<i64>("label"));
        println!(
            "{}/{}: {:?} floats, labels {:?}",
            batch.epoch,
            batch.step,
            pixels.map(<[f32]>::len),
            labels
        );
    }
    Ok(std::fs::write(&state, loader.state().to_json())?)
}
