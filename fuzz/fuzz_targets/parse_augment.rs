//! The text of an augmentation: accepted text is written back unchanged, and the step works on an image.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_image::{Augment, Layout, Output, Pipeline, Pixels, Workspace};

fn check(text: &str, key: u64) {
    let Ok(pipeline) = text.parse::<Pipeline>() else {
        return;
    };
    assert_eq!(
        pipeline.to_string().parse::<Pipeline>().as_ref(),
        Ok(&pipeline)
    );
    let mut pixels = Pixels::new();
    let bytes: Vec<u8> = (0..6 * 10 * 3).map(|value| (value * 37) as u8).collect();
    pixels.set(6, 10, 3, Layout::Hwc, &bytes);
    // Intermediate sizes may be larger than the last.
    let sides = text.split(|c: char| !c.is_ascii_digit());
    if sides
        .filter_map(|side| side.parse::<u64>().ok())
        .any(|side| side > 100)
    {
        return;
    }
    let Ok((height, width)) = pipeline.output_size(6, 10) else {
        return;
    };
    let mut out = vec![f32::NAN; height as usize * width as usize * pipeline.channels()];
    let mut work = Workspace::new();
    pipeline
        .apply(&pixels, key, &mut work, Output::Floats(&mut out))
        .expect("its size is known");
    assert!(out.iter().all(|value| !value.is_nan()));
}

fuzz_target!(|input: (u64, &[u8])| {
    let (key, bytes) = input;
    check(&String::from_utf8_lossy(bytes), key);
    // Three good steps with single bytes changed.
    let steps = Augment::steps();
    let good = [key, key >> 16, key >> 32].map(|bits| {
        let examples = steps[bits as usize % steps.len()].examples;
        examples[bits as usize / steps.len() % examples.len()]
    });
    let mut edited = good.join(",").into_bytes();
    for [at, byte] in bytes.as_chunks::<2>().0 {
        let at = usize::from(*at) % edited.len();
        edited[at] = *byte;
    }
    check(&String::from_utf8_lossy(&edited), key);
});
