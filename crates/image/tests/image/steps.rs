//! Properties of every step in the list.

use std::path::Path;

use pelton_image::{Augment, Layout, Output, Pipeline, Pixels, Workspace};

/// One or more texts for each step.
pub(crate) fn examples() -> impl Iterator<Item = &'static str> {
    let steps = Augment::steps().iter();
    steps.flat_map(|step| step.examples.iter().copied())
}

#[test]
fn every_step_is_written_as_it_is_read() {
    for step in Augment::steps() {
        assert!(!step.examples.is_empty(), "{}", step.form);
        for &text in step.examples {
            let read: Augment = text.parse().unwrap();
            assert_eq!((read.name(), &*read.to_string()), (step.name(), text));
            assert_eq!(read.numbers().is_empty(), !step.form.contains(':'));
            for (end, _) in format!("{text}:").match_indices(':') {
                let cut = format!("{text}:")[..=end].parse::<Augment>().unwrap_err();
                let refused = format!("asks for what {} cannot do: ", step.name());
                assert!(cut.to_string().contains(&refused), "{text}: {cut}");
            }
        }
    }
}

#[test]
fn nothing_is_random_in_evaluation() {
    let bytes: Vec<u8> = (0..20 * 31 * 3).map(|i| (i * 37 + i / 7) as u8).collect();
    let mut pixels = Pixels::new();
    pixels.set(20, 31, 3, Layout::Hwc, &bytes);
    for text in examples() {
        let pipeline = text.parse::<Pipeline>().unwrap().evaluation();
        assert_eq!(pipeline.evaluation(), pipeline, "{text}");
        let (height, width) = pipeline.output_size(20, 31).unwrap();
        let made = |key| {
            let mut out = vec![f32::NAN; (height * width) as usize * pipeline.channels()];
            let work = &mut Workspace::new();
            pipeline
                .apply(&pixels, key, work, Output::Floats(&mut out))
                .unwrap();
            out
        };
        let first = made(0);
        assert!(first.iter().all(|value| value.is_finite()), "{text}");
        assert!((1..50).all(|key| made(key) == first), "{text}");
    }
}

#[test]
fn the_documentation_lists_every_step() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pipelines.md");
    let rows = Augment::steps().iter();
    let rows = rows.map(|step| format!("| `{}` | {} |\n", step.form, step.does));
    let table = format!("|---|---|\n{}\n", rows.collect::<String>());
    let is_there = std::fs::read_to_string(page).unwrap().contains(&table);
    assert!(is_there, "the table in docs/pipelines.md is now:\n{table}");
}
