//! The text of an augmentation: what is read is written the same, and does what it says to an image.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_image::{Layout, Output, Pipeline, Pixels, Workspace};

const GOOD: [&str; 4] = [
    "rrc:9:0.25-1,flip,jitter:0.4:0.4:0.4:0.1,normalise",
    "resize:12,crop:8,flip:1,grey",
    "randomcrop:7:4,cutout:3,normalise:0.5:0.25,cutout:2",
    "resize:5x11,jitter:1:2:3:0.5",
];

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
    // Sizes on the way may be larger than the last.
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
    // A good text with single bytes changed.
    let mut edited = GOOD[key as usize % GOOD.len()].as_bytes().to_vec();
    for [at, byte] in bytes.as_chunks::<2>().0 {
        let at = usize::from(*at) % edited.len();
        edited[at] = *byte;
    }
    check(&String::from_utf8_lossy(&edited), key);
});
