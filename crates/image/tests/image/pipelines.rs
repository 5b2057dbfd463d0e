//! Pipelines against a plain one that does every stage by itself on a copy, pixel by pixel.

use pelton_image::{
    Augment, ImageError, Layout, Output, Pipeline, Pixels, Values, Workspace, example_key,
};
use pelton_key::{KeyedRng, Stage, key};
use proptest::prelude::*;

/// An image of pixels of 1 or 3 bytes.
#[derive(Clone)]
struct Plain {
    height: i64,
    width: i64,
    channels: usize,
    values: Vec<u8>,
}

impl Plain {
    fn from_pixels(pixels: &Pixels) -> Plain {
        Plain {
            height: i64::from(pixels.height()),
            width: i64::from(pixels.width()),
            channels: pixels.channels(),
            values: pixels.data().to_vec(),
        }
    }

    /// Black outside.
    fn at(&self, y: i64, x: i64, channel: usize) -> u8 {
        if y < 0 || x < 0 || y >= self.height || x >= self.width {
            return 0;
        }
        self.values[(y * self.width + x) as usize * self.channels + channel]
    }

    fn made(
        &self,
        (height, width): (i64, i64),
        channels: usize,
        pixel: impl Fn(i64, i64, usize) -> u8,
    ) -> Plain {
        let mut values = Vec::new();
        for y in 0..height {
            for x in 0..width {
                values.extend((0..channels).map(|channel| pixel(y, x, channel)));
            }
        }
        Plain {
            height,
            width,
            channels,
            values,
        }
    }

    fn crop(&self, top: i64, left: i64, side: i64) -> Plain {
        self.made((side, side), self.channels, |y, x, c| {
            self.at(top + y, left + x, c)
        })
    }

    fn luma(&self, y: i64, x: i64) -> u8 {
        if self.channels == 1 {
            return self.at(y, x, 0);
        }
        let [r, g, b] = [0, 1, 2].map(|c| u32::from(self.at(y, x, c)));
        ((19595 * r + 38470 * g + 7471 * b + 32768) / 65536) as u8
    }

    fn blended(&self, factor: f32, with: impl Fn(i64, i64) -> u8) -> Plain {
        self.made((self.height, self.width), self.channels, |y, x, c| {
            let (from, to) = (f32::from(with(y, x)), f32::from(self.at(y, x, c)));
            (from + factor * (to - from)).clamp(0.0, 255.0) as u8
        })
    }

    fn jitter(self, strengths: [f64; 3], rng: &mut KeyedRng) -> Plain {
        let mut order = [0, 1, 2, 3];
        rng.shuffle(&mut order);
        let factors = strengths.map(|strength| {
            let least = (1.0 - strength).max(0.0);
            (least + (1.0 + strength - least) * rng.next_f64()) as f32
        });
        let mut image = self;
        for what in order {
            if what == 3 || strengths[what] == 0.0 {
                continue;
            }
            let pixels = image.height * image.width;
            image = match what {
                0 => image.blended(factors[0], |_, _| 0),
                1 => {
                    let sum: u64 = (0..pixels)
                        .map(|p| u64::from(image.luma(p / image.width, p % image.width)))
                        .sum();
                    let mean = (sum as f64 / pixels as f64 + 0.5) as u8;
                    image.blended(factors[1], |_, _| mean)
                }
                _ if image.channels == 1 => image,
                _ => image.blended(factors[2], |y, x| image.luma(y, x)),
            };
        }
        image
    }

    fn stage(self, stage: Augment, rng: &mut KeyedRng) -> Plain {
        let size = (self.height, self.width);
        match (stage.name(), stage.numbers()) {
            ("crop", &[side]) => {
                let side = side as i64;
                // The odd pixel, of black or of the image, is on the same side as in torchvision.
                let middle = |length: i64| {
                    let before = (side - length).max(0) / 2;
                    let length = length.max(side);
                    ((length - side) as f64 / 2.0).round_ties_even() as i64 - before
                };
                self.crop(middle(self.height), middle(self.width), side)
            }
            ("randomcrop", &[side, padding]) => {
                let (side, padding) = (side as i64, padding as i64);
                let mut place = |length: i64| {
                    rng.below((length + 2 * padding - side + 1) as u64) as i64 - padding
                };
                let (top, left) = (place(self.height), place(self.width));
                self.crop(top, left, side)
            }
            ("flip", &[chance]) => {
                if rng.next_f64() >= chance {
                    return self;
                }
                self.made(size, self.channels, |y, x, c| {
                    self.at(y, self.width - 1 - x, c)
                })
            }
            ("jitter", &[brightness, contrast, saturation, _]) => {
                self.jitter([brightness, contrast, saturation], rng)
            }
            ("cutout", &[side]) => {
                let inside = hole(size, side, rng);
                self.made(size, self.channels, |y, x, c| {
                    if inside(y, x) { 0 } else { self.at(y, x, c) }
                })
            }
            ("grey", []) => self.made(size, 1, |y, x, _| self.luma(y, x)),
            _ => panic!("{stage} has a test of its own"),
        }
    }
}

fn hole(
    (height, width): (i64, i64),
    side: f64,
    rng: &mut KeyedRng,
) -> impl Fn(i64, i64) -> bool + use<> {
    let centre = (
        rng.below(height as u64) as i64,
        rng.below(width as u64) as i64,
    );
    let side = side as i64;
    let within = move |place: i64, centre: i64| (0..side).contains(&(place - centre + side / 2));
    move |y, x| within(y, centre.0) && within(x, centre.1)
}

/// The expected output as floats; bytes are those times 255 if nothing normalises.
fn expected(pipeline: &Pipeline, pixels: &Pixels, key: u64) -> Result<Vec<f32>, ImageError> {
    pipeline.output_size(pixels.height(), pixels.width())?;
    let mut image = Plain::from_pixels(pixels);
    let mut normalise = None;
    let mut holes: Vec<Box<dyn Fn(i64, i64) -> bool>> = Vec::new();
    for (number, &stage) in pipeline.stages().iter().enumerate() {
        let mut rng = KeyedRng::at(key, (number as u64) << 32);
        match (stage.name(), stage.numbers(), normalise) {
            ("normalise", &[a, b, c, d, e, f], _) => {
                normalise = Some(([a, b, c].map(|n| n as f32), [d, e, f].map(|n| n as f32)));
            }
            ("cutout", &[side], Some(_)) => {
                holes.push(Box::new(hole((image.height, image.width), side, &mut rng)));
            }
            _ => image = image.stage(stage, &mut rng),
        }
    }
    let (mean, deviation) = normalise.unwrap_or(([0.0; 3], [1.0; 3]));
    let value = |y: i64, x: i64, channel: usize| {
        let value = match (image.channels, pipeline.channels()) {
            (3, 1) => image.luma(y, x),
            (1, _) => image.at(y, x, 0),
            _ => image.at(y, x, channel),
        };
        if holes.iter().any(|hole| hole(y, x)) {
            return 0.0;
        }
        (f32::from(value) / 255.0 - mean[channel]) / deviation[channel]
    };
    let channels = pipeline.channels();
    let mut out = Vec::new();
    let places = (0..image.height).flat_map(|y| (0..image.width).map(move |x| (y, x)));
    match pipeline.layout() {
        Layout::Hwc => {
            for (y, x) in places {
                out.extend((0..channels).map(|channel| value(y, x, channel)));
            }
        }
        Layout::Chw => {
            for channel in 0..channels {
                out.extend(places.clone().map(|(y, x)| value(y, x, channel)));
            }
        }
    }
    Ok(out)
}

fn noise(height: u32, width: u32, channels: usize, seed: u64) -> Pixels {
    let mut rng = KeyedRng::new(seed);
    let bytes: Vec<u8> = (0..height as usize * width as usize * channels)
        .map(|_| rng.next_u64() as u8)
        .collect();
    let mut pixels = Pixels::new();
    pixels.set(height, width, channels, Layout::Hwc, &bytes);
    pixels
}

fn check(pipeline: &Pipeline, pixels: &Pixels, key: u64, work: &mut Workspace) {
    let expected = match expected(pipeline, pixels, key) {
        Ok(expected) => expected,
        Err(error) => {
            let mut nothing = [];
            let refused = pipeline.apply(pixels, key, work, Output::Floats(&mut nothing));
            assert_eq!(refused, Err(error), "{pipeline}");
            return;
        }
    };
    let mut floats = vec![f32::NAN; expected.len()];
    pipeline
        .apply(pixels, key, work, Output::Floats(&mut floats))
        .unwrap();
    assert!(
        floats == expected,
        "{pipeline} on {pixels:?}: {floats:?}, not {expected:?}"
    );
    let mut bytes = vec![77; expected.len()];
    let applied = pipeline.apply(pixels, key, work, Output::Bytes(&mut bytes));
    if pipeline.normalises() {
        let refused = applied.unwrap_err().to_string();
        assert!(refused.contains("normalise makes floats"), "{refused}");
        return;
    }
    applied.unwrap();
    let as_floats: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect();
    assert!(as_floats == expected, "{pipeline} as bytes");
}

fn byte_stage() -> impl Strategy<Value = Augment> {
    let text = prop_oneof![
        (1..14).prop_map(|side| format!("crop:{side}")),
        (1..14, 0..9).prop_map(|(side, padding)| format!("randomcrop:{side}:{padding}")),
        Just("flip".to_owned()),
        Just("flip:1".to_owned()),
        prop::array::uniform3(0.0..1.5).prop_map(|[b, c, s]| format!("jitter:{b}:{c}:{s}")),
        (1..8).prop_map(|side| format!("cutout:{side}")),
        Just("grey".to_owned()),
    ];
    text.prop_map(|text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn stages_do_what_the_plain_ones_do(
        mut stages in prop::collection::vec(byte_stage(), 0..6),
        normalised in any::<bool>(),
        holes in prop::collection::vec(1..6, 0..2),
        (height, width, colour) in (1_u32..12, 1_u32..12, any::<bool>()),
        to_colour in any::<bool>(),
        planar in any::<bool>(),
        key in any::<u64>(),
    ) {
        if normalised {
            stages.push("normalise:0.45:0.225".parse().unwrap());
            let cutouts = holes.iter().map(|side| format!("cutout:{side}"));
            stages.extend(cutouts.map(|text| text.parse::<Augment>().unwrap()));
        }
        let pixels = noise(height, width, if colour { 3 } else { 1 }, key);
        let layout = if planar { Layout::Chw } else { Layout::Hwc };
        let pipeline = Pipeline::new(stages).unwrap().with_layout(layout);
        let pipeline = pipeline.with_channels(if to_colour { 3 } else { 1 }).unwrap();
        // A second example with the same memory sees nothing of the first.
        let mut work = Workspace::new();
        check(&pipeline, &noise(9, 7, 3, 1), key, &mut work);
        check(&pipeline, &pixels, key, &mut work);
    }

    /// A resize that is delayed, or writes straight into the output, gives the same pixels as one by itself.
    #[test]
    fn resizes_that_wait_make_the_same_pixels(
        mut first in prop::collection::vec(byte_stage(), 0..3),
        last in prop::collection::vec(byte_stage(), 0..3),
        (to_height, to_width) in (1_u32..20, 1_u32..20),
        (height, width, colour) in (1_u32..12, 1_u32..12, any::<bool>()),
        key in any::<u64>(),
    ) {
        // A mirror before a resize is put off until after it, see below.
        first.retain(|stage| stage.name() != "flip");
        // The draws of a stage depend on its index: flips with probability 0 stand in for the other stages.
        let idle: Augment = "flip:0".parse().unwrap();
        let resize = format!("resize:{to_height}x{to_width}").parse().unwrap();
        let stage = |stages: &[&[Augment]]| {
            Pipeline::new(stages.concat()).unwrap().with_channels(3).unwrap()
        };
        let before = stage(&[&first]);
        let alone = stage(&[&vec![idle; first.len()], &[resize]]);
        let after = stage(&[&vec![idle; first.len() + 1], &last]);
        let all = stage(&[&first, &[resize], &last]);

        let pixels = noise(height, width, if colour { 3 } else { 1 }, key);
        let mut work = Workspace::new();
        let mut apply = |pipeline: &Pipeline, pixels: &Pixels| -> Result<Pixels, ImageError> {
            let (height, width) = pipeline.output_size(pixels.height(), pixels.width())?;
            let mut out = vec![0; (height * width * 3) as usize];
            pipeline.apply(pixels, key, &mut work, Output::Bytes(&mut out))?;
            let mut made = Pixels::new();
            made.set(height, width, 3, Layout::Hwc, &out);
            Ok(made)
        };
        let apart = apply(&before, &pixels)
            .and_then(|pixels| apply(&alone, &pixels))
            .and_then(|pixels| apply(&after, &pixels));
        match (apply(&all, &pixels), apart) {
            (Err(error), Err(apart)) => prop_assert_eq!(error, apart),
            (all, apart) => {
                let (all, apart) = (all.unwrap(), apart.unwrap());
                prop_assert_eq!((all.height(), all.width()), (apart.height(), apart.width()));
                prop_assert!(all == apart, "{} on {:?}", stage(&[&first, &[resize], &last]), pixels);
            }
        }
    }
}

/// The sums of a mirrored filter are the same, except when a half is rounded.
#[test]
fn mirrors_and_resizes_may_change_places() {
    let mut work = Workspace::new();
    for (number, size) in ["resize:9x7", "resize:31x40", "resize:5x33", "resize:20x20"]
        .iter()
        .enumerate()
    {
        let pixels = noise(16, 20, 3, number as u64);
        let mirrored =
            Plain::from_pixels(&pixels).stage("flip:1".parse().unwrap(), &mut KeyedRng::new(0));
        let mut other = Pixels::new();
        other.set(16, 20, 3, Layout::Hwc, &mirrored.values);
        let mut apply = |pipeline: &str, pixels: &Pixels| {
            let pipeline: Pipeline = pipeline.parse().unwrap();
            let mut out = vec![0; pipeline.sample_bytes(Values::Bytes).unwrap()];
            pipeline
                .apply(pixels, 0, &mut work, Output::Bytes(&mut out))
                .unwrap();
            out
        };
        let waiting = apply(&format!("flip:1,{size}"), &pixels);
        let pairs = waiting
            .iter()
            .zip(apply(size, &other))
            .map(|(a, b)| a.abs_diff(b));
        assert!(pairs.max() <= Some(1), "{size}");
    }
}

/// These numbers stand for what keys give for ever: the draws of `golden()` in this comment, made again
/// with the generator of `plan/tests/golden/orders.py`.
///
/// ```python
/// def at(key, counter):
///     rng = Rng(key)
///     rng.counter = counter
///     return rng.next()
/// def golden(seed, epoch, id, copy):
///     return at(at(key(seed, epoch, 14), id), copy)
/// ```
#[test]
fn keys_of_examples_stay() {
    let epoch = key(7, 3, Stage::Augment);
    assert_eq!(epoch, 0xf24f_80d2_3f44_6d0e);
    for (id, copy, expected) in [
        (0, 0, 0xf48c_a4b2_06f8_9bb4),
        (0, 1, 0xb21e_f1ad_8d39_2dee),
        (1, 0, 0xf15f_4713_20eb_34bf),
        (1_000_000_000_000, 4, 0x700e_1e53_f981_d11e),
    ] {
        assert_eq!(example_key(epoch, id, copy), expected, "{id} {copy}");
    }
}

/// A checksum of a pipeline's output for an image and a key.
fn checksum(pipeline: &str, key: u64) -> u64 {
    let pixels = noise(20, 24, 3, 5);
    let pipeline: Pipeline = pipeline.parse().unwrap();
    let (height, width) = pipeline.output_size(20, 24).unwrap();
    let mut out = vec![0; height as usize * width as usize * pipeline.channels()];
    let mut work = Workspace::new();
    pipeline
        .apply(&pixels, key, &mut work, Output::Bytes(&mut out))
        .unwrap();
    let mixed = |sum: u64, &byte: &u8| pelton_key::mix(sum ^ u64::from(byte));
    out.iter().fold(0, mixed)
}

/// Resizing is left out: another processor may round its sums otherwise.
#[test]
fn a_key_gives_the_same_pixels_for_ever() {
    let found = [
        checksum("randomcrop:16:4,flip,cutout:5", 1),
        checksum("randomcrop:16:4,flip,cutout:5", 2),
        checksum("jitter:0.4:0.4:0.4:0.1", 3),
        checksum("flip,grey,crop:30", 4),
        checksum("crop:18,affine:20:0.1:0.2:10", 5),
    ];
    let expected = [
        18_105_470_602_152_278_911,
        3_284_399_882_709_658_836,
        2_268_171_543_559_987_912,
        925_338_655_085_653_550,
        15_120_036_460_657_322_172,
    ];
    assert_eq!(found, expected);
}

/// An image marked as mirrored gives the same output as mirrored pixels.
#[test]
fn a_mirrored_image_is_shifted_as_it_is_seen() {
    let pixels = noise(9, 11, 1, 3);
    let apply = |text: &str, key: u64| {
        let pipeline: Pipeline = text.parse().unwrap();
        let pipeline = pipeline.with_channels(1).unwrap();
        let mut out = vec![0; 99];
        let mut work = Workspace::new();
        pipeline
            .apply(&pixels, key, &mut work, Output::Bytes(&mut out))
            .unwrap();
        out
    };
    for key in 0..20 {
        // The same draw, for an image that was mirrored before or is marked as mirrored.
        let marked = apply("flip:1,affine:30:0.2:0.3:10", key);
        let mirrored = {
            let mut mirrored = Pixels::new();
            mirrored.set(9, 11, 1, Layout::Hwc, &apply("flip:1,flip:0", key));
            let pipeline: Pipeline = "flip:0,affine:30:0.2:0.3:10".parse().unwrap();
            let mut out = vec![0; 99];
            let pipeline = pipeline.with_channels(1).unwrap();
            pipeline
                .apply(
                    &mirrored,
                    key,
                    &mut Workspace::new(),
                    Output::Bytes(&mut out),
                )
                .unwrap();
            out
        };
        let close = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= 1;
        assert!(marked.iter().zip(&mirrored).all(close), "{key}");
        assert_ne!(marked, apply("flip:1,flip:0", key));
    }
}

#[test]
fn an_empty_pipeline_leaves_the_image_as_it_is() {
    let pixels = noise(3, 5, 3, 1);
    let mut out = vec![0; 45];
    let pipeline: Pipeline = "".parse().unwrap();
    let mut work = Workspace::new();
    pipeline
        .apply(&pixels, 0, &mut work, Output::Bytes(&mut out))
        .unwrap();
    assert_eq!(out, pixels.data());
}

/// Half of all images are mirrored, also among those with the same id, copy or epoch.
#[test]
fn draws_of_examples_are_independent() {
    let mut pixels = Pixels::new();
    pixels.set(1, 2, 1, Layout::Hwc, &[0, 1]);
    let flip: Pipeline = "flip,crop:1".parse().unwrap();
    let flip = flip.with_channels(1).unwrap();
    let mut work = Workspace::new();
    let mut mirrored = |epoch: u64, id: u64, copy: u32| {
        let mut out = [9];
        let key = example_key(key(0, epoch, Stage::Augment), id, copy);
        flip.apply(&pixels, key, &mut work, Output::Bytes(&mut out))
            .unwrap();
        u32::from(out[0] == 1)
    };
    let by_id: u32 = (0..4000).map(|id| mirrored(0, id, 0)).sum();
    let by_copy: u32 = (0..4000).map(|copy| mirrored(0, 0, copy)).sum();
    let by_epoch: u32 = (0..4000).map(|epoch| mirrored(epoch, 0, 0)).sum();
    for count in [by_id, by_copy, by_epoch] {
        // Deviation sqrt(4000) / 2 = 32.
        assert!(
            (1840..2160).contains(&count),
            "{by_id} {by_copy} {by_epoch}"
        );
    }
}
