//! Masks follow their pictures: the same crops, mirrors and turns under one key, and values that are never mixed.

use std::io::Cursor;

use pelton_image::{
    Format, ImageError, Keep, Layout, Limits, Output, Pipeline, Pixels, Workspace, decode,
    decode_keeping,
};
use pelton_key::KeyedRng;

use crate::steps::examples;

/// A picture with its mask as the first channel.
fn picture(height: u32, width: u32, value: impl Fn(u32, u32) -> u8) -> (Pixels, Pixels) {
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    let mask: Vec<u8> = places.map(|(y, x)| value(y, x)).collect();
    let colours: Vec<u8> = mask.iter().flat_map(|&v| [v, 255 - v, v / 2]).collect();
    let of = |channels, bytes: &[u8]| {
        let mut pixels = Pixels::new();
        pixels.set(height, width, channels, Layout::Hwc, bytes);
        pixels
    };
    (of(3, &colours), of(1, &mask))
}

fn decode_mask(bytes: &[u8], limits: &Limits, mask: &mut Pixels) -> Result<Format, ImageError> {
    decode_keeping(Keep::Numbers, bytes, limits, mask)
}

/// The first channel of the picture after a pipeline, and the mask after it.
fn both(text: &str, (picture, mask): &(Pixels, Pixels), key: u64) -> (Vec<u8>, Vec<u8>) {
    let pipeline: Pipeline = text.parse().unwrap();
    let (height, width) = pipeline.output_size(mask.height(), mask.width()).unwrap();
    let pixels = height as usize * width as usize;
    let mut work = Workspace::new();
    let mut floats = vec![0.0; 3 * pixels];
    let out = Output::Floats(&mut floats);
    pipeline.apply(picture, key, &mut work, out).unwrap();
    let mut of_mask = vec![7; pixels];
    pipeline
        .apply_to_mask(mask, key, &mut work, &mut of_mask)
        .unwrap();
    let byte = |value: f32| (value * 255.0).round() as u8;
    let red = floats.chunks(3).map(|pixel| byte(pixel[0]));
    (red.collect(), of_mask)
}

#[test]
fn crops_and_mirrors_are_those_of_the_picture() {
    let mut rng = KeyedRng::new(3);
    let mut seen = std::collections::HashSet::new();
    for text in [
        "",
        "flip",
        "crop:9",
        "crop:40",
        "randomcrop:12",
        "flip,randomcrop:20:6",
        "randomcrop:20:6,flip:0.3,crop:14",
        "jitter:0:0:0:0,flip,randomcrop:11,normalise:0:1",
    ] {
        for key in 0..30 {
            let noise: Vec<u8> = (0..23 * 31).map(|_| rng.below(256) as u8).collect();
            let noise = picture(23, 31, |y, x| noise[(y * 31 + x) as usize]);
            let (red, mask) = both(text, &noise, key);
            assert_eq!(red, mask, "{text} {key}");
            seen.insert((text, red == noise.1.data()));
        }
    }
    // A flip that never happened, or always, would have shown nothing.
    assert!(seen.contains(&("flip", true)) && seen.contains(&("flip", false)));
}

/// Stages that change values and move nothing make the same draws and leave the mask alone.
#[test]
fn colours_of_a_mask_stay() {
    let pictures = picture(20, 20, |y, x| (y * 20 + x) as u8 / 2);
    for key in 0..20 {
        let (plain, _) = both(
            "jitter:0,randomcrop:12,cutout:1,flip,normalise:0:1",
            &pictures,
            key,
        );
        let (red, mask) = both(
            "jitter:0.9:0.9,randomcrop:12,cutout:8,flip,normalise",
            &pictures,
            key,
        );
        let differ = plain.iter().zip(&mask).filter(|(a, b)| a != b).count();
        assert!(differ <= 1, "{key}: {differ}, where cutout takes one pixel");
        assert_ne!(red, mask);
    }
}

#[test]
fn a_resize_takes_the_nearest_pixel() {
    let (_, mask) = picture(17, 29, |y, x| (y * 29 + x) as u8);
    for (height, width) in [(5, 7), (17, 29), (40, 33), (1, 60)] {
        let pipeline: Pipeline = format!("resize:{height}x{width}").parse().unwrap();
        let mut out = vec![0; height * width];
        let work = &mut Workspace::new();
        pipeline.apply_to_mask(&mask, 0, work, &mut out).unwrap();
        let near = |place: usize, to: usize, from: usize| ((2 * place + 1) * from) / (2 * to);
        for (i, &value) in out.iter().enumerate() {
            let (y, x) = (near(i / width, height, 17), near(i % width, width, 29));
            assert_eq!(value, (y * 29 + x) as u8, "{height}x{width}: {i}");
        }
    }
}

/// On a slope, a mean of neighbours and the nearest of them differ little.
#[test]
fn what_is_resized_or_turned_stays_in_its_place() {
    let moves = |text: &&str| text.parse::<Pipeline>().unwrap().moves_pixels();
    let texts = [
        "rrc:24:0.3-1",
        "resize:30x20,flip",
        "affine:20:0.1:0.2:5,flip",
    ];
    // Policies change colours too; see below.
    let plain = |text: &&str| moves(text) && !text.contains("augment");
    for text in examples().filter(plain).chain(texts) {
        let most = if text.contains("affine") { 8 } else { 5 };
        for slope in [|y: u32, _: u32| 4 * y as u8, |_: u32, x: u32| 4 * x as u8] {
            let pictures = picture(60, 60, slope);
            for key in 0..20 {
                let (red, mask) = both(text, &pictures, key);
                let far = red
                    .iter()
                    .zip(&mask)
                    .filter(|(a, b)| a.abs_diff(**b) > most)
                    .count();
                // At the border to black, one of them may be black.
                assert!(
                    far <= red.len() / 12,
                    "{text} {key}: {far} of {}",
                    red.len()
                );
            }
        }
    }
}

#[test]
fn what_a_policy_moves_is_moved_in_the_mask_and_nothing_else() {
    let pictures = picture(40, 60, |y, x| (3 * y + 2 * x) as u8);
    for text in ["randaugment:20", "trivialaugment"] {
        let (mut moved, mut changed) = (0, 0);
        for key in 0..300 {
            let (red, mask) = both(text, &pictures, key);
            let (_, still) = both("flip:0", &pictures, key);
            // From the nearest pixel, so the picture has the values of the mask.
            assert!(mask == still || red == mask, "{text} {key}");
            moved += usize::from(mask != still);
            changed += usize::from(red != mask);
        }
        // 5 of 14 kinds move, and 8 change values, some with a strength of nothing.
        assert!(
            (60..150).contains(&moved) && (80..200).contains(&changed),
            "{moved} {changed}"
        );
    }
}

#[test]
fn planes_and_channels_are_those_of_the_mask() {
    let (colours, _) = picture(6, 5, |y, x| (10 * y + x) as u8);
    let pipeline: Pipeline = "flip:1,normalise".parse().unwrap();
    let mut out = vec![0; 90];
    let planar = pipeline.with_layout(Layout::Chw);
    planar
        .apply_to_mask(&colours, 0, &mut Workspace::new(), &mut out)
        .unwrap();
    assert_eq!(out[..6], [4, 3, 2, 1, 0, 14]);
    assert_eq!(out[30..33], [251, 252, 253]);
}

fn png(colour: png::ColorType, depth: png::BitDepth, width: u32, rows: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let row_bytes = rows.len() / 3;
    assert_eq!(row_bytes * 3, rows.len());
    let mut encoder = png::Encoder::new(Cursor::new(&mut file), width, 3);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    if colour == png::ColorType::Indexed {
        encoder.set_palette((0..=255).flat_map(|i| [i, 255 - i, 9]).collect::<Vec<u8>>());
    }
    encoder
        .write_header()
        .unwrap()
        .write_image_data(rows)
        .unwrap();
    file
}

#[test]
fn a_palette_gives_the_numbers_of_its_colours() {
    use png::{BitDepth, ColorType};
    let mut rng = KeyedRng::new(5);
    for (depth, bits) in [
        (BitDepth::One, 1),
        (BitDepth::Two, 2),
        (BitDepth::Four, 4),
        (BitDepth::Eight, 8),
    ] {
        for width in [1_usize, 3, 8, 13, 64] {
            let row_bytes = (width * bits).div_ceil(8);
            let rows: Vec<u8> = (0..3 * row_bytes).map(|_| rng.below(256) as u8).collect();
            let number = |y: usize, x: usize| {
                let at = |bit: usize| rows[y * row_bytes + bit / 8] >> (7 - bit % 8) & 1;
                (x * bits..(x + 1) * bits).fold(0, |all, bit| all << 1 | at(bit))
            };
            let expected: Vec<u8> = (0..3 * width)
                .map(|i| number(i / width, i % width))
                .collect();
            let file = png(ColorType::Indexed, depth, width as u32, &rows);
            let (mut mask, mut colours) = (Pixels::new(), Pixels::new());
            let limits = Limits::default();
            decode_mask(&file, &limits, &mut mask).unwrap();
            assert_eq!(
                (mask.channels(), mask.data()),
                (1, &expected[..]),
                "{bits} bits, {width}"
            );
            decode(&file, &limits, &mut colours).unwrap();
            let coloured: Vec<u8> = expected.iter().flat_map(|&i| [i, 255 - i, 9]).collect();
            assert_eq!(colours.data(), coloured);
        }
    }
    // Without a palette nothing changes.
    let grey = png(
        ColorType::Grayscale,
        BitDepth::Eight,
        2,
        &[1, 2, 3, 4, 5, 6],
    );
    let mut mask = Pixels::new();
    decode_mask(&grey, &Limits::default(), &mut mask).unwrap();
    assert_eq!((mask.channels(), mask.data()), (1, &[1, 2, 3, 4, 5, 6][..]));
}

#[test]
fn classes_of_other_formats_are_whole_or_refused() {
    let (mut mask, mut colours) = (Pixels::new(), Pixels::new());
    let limits = Limits::default();
    let file = include_bytes!("../images/palette.bmp");
    decode_mask(file, &limits, &mut mask).unwrap();
    decode(file, &limits, &mut colours).unwrap();
    assert_eq!(mask.channels(), 1);
    // Blue, green, red and an unused byte, after headers of 54 bytes.
    let of = |&i: &u8| [2, 1, 0].map(|channel| file[54 + 4 * usize::from(i) + channel]);
    let coloured: Vec<u8> = mask.data().iter().flat_map(of).collect();
    assert_eq!(colours.data(), coloured);
    decode_mask(include_bytes!("../images/rgb.bmp"), &limits, &mut mask).unwrap();
    assert_eq!(mask.channels(), 3);
    for file in [
        &include_bytes!("../images/deep_grey.png")[..],
        include_bytes!("../images/deep_grey.tif"),
        include_bytes!("../images/deep.png"),
    ] {
        decode_mask(file, &limits, &mut mask).unwrap();
        decode(file, &limits, &mut colours).unwrap();
        assert_eq!((mask.value_bytes(), colours.value_bytes()), (2, 1));
        let scaled = mask.data().as_chunks::<2>().0.iter().map(|&value| {
            let value = f64::from(u16::from_ne_bytes(value));
            (value / 257.0).round() as u8
        });
        assert!(scaled.eq(colours.data().iter().copied()));
        assert!(mask.scale_to_bytes() && mask == colours);
    }
    // Black and white are 0 and 1.
    for file in [
        &include_bytes!("../images/bits.png")[..],
        include_bytes!("../images/bits.pbm"),
        include_bytes!("../images/bits.tif"),
    ] {
        decode_mask(file, &limits, &mut mask).unwrap();
        decode(file, &limits, &mut colours).unwrap();
        assert!(colours.data().contains(&255));
        let bits = mask.data().iter().map(|bit| 255 * bit);
        assert!(bits.eq(colours.data().iter().copied()));
    }
    let refused = decode_mask(include_bytes!("../images/palette.gif"), &limits, &mut mask);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("convert it to PNG"), "{refused}");
}

#[test]
fn masks_have_the_limits_of_pictures() {
    let file = png(png::ColorType::Indexed, png::BitDepth::One, 64, &[0x55; 24]);
    let mut mask = Pixels::new();
    let small = Limits { most_pixels: 100 };
    let refused = decode_mask(&file, &small, &mut mask).unwrap_err();
    assert!(matches!(refused, ImageError::TooManyPixels(_)), "{refused}");
    let cut = decode_mask(&file[..file.len() - 20], &Limits::default(), &mut mask).unwrap_err();
    let cut = cut.to_string();
    assert!(
        cut.contains("is cut short") || cut.contains("is damaged"),
        "{cut}"
    );
    assert!(mask.data().is_empty());
}

/// Numbers of other sizes and channels move as bytes do, in either layout.
#[test]
fn numbers_of_any_size_move_as_bytes_do() {
    let (height, width) = (17, 23);
    let mut rng = KeyedRng::new(5);
    for text in [
        "crop:9",
        "flip,randomcrop:12:2",
        "rrc:8,flip",
        "affine:20:0.1:0.1:5",
        "resize:30x11",
    ] {
        for layout in [Layout::Hwc, Layout::Chw] {
            let pipeline: Pipeline = text.parse().unwrap();
            let pipeline = pipeline.with_layout(layout);
            let noise: Vec<u8> = (0..height * width).map(|_| rng.below(256) as u8).collect();
            let mut bytes = Pixels::new();
            bytes.set(height, width, 1, Layout::Hwc, &noise);
            // Channel 0 has the noise, channel 1 its complement.
            let deep: Vec<u8> = noise
                .iter()
                .flat_map(|&v| [u32::from(v), 255 - u32::from(v)])
                .flat_map(|v| (v << 12).to_ne_bytes())
                .collect();
            let mut numbers = Pixels::new();
            numbers.set_numbers((height, width, 2), 4, Layout::Hwc, &deep);
            let (h, w) = pipeline.output_size(height, width).unwrap();
            let plane = h as usize * w as usize;
            let (mut of_bytes, mut of_numbers) = (vec![0; plane], vec![0; 8 * plane]);
            let mut work = Workspace::new();
            pipeline
                .apply_to_mask(&bytes, 3, &mut work, &mut of_bytes)
                .unwrap();
            pipeline
                .apply_to_mask(&numbers, 3, &mut work, &mut of_numbers)
                .unwrap();
            let values = of_numbers.as_chunks::<4>().0;
            for (i, &byte) in of_bytes.iter().enumerate() {
                let place = if layout == Layout::Hwc { 2 * i } else { i };
                assert_eq!(
                    u32::from_ne_bytes(values[place]),
                    u32::from(byte) << 12,
                    "{text}"
                );
            }
        }
    }
}
