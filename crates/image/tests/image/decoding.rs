//! Pixels of files that other programs wrote, against the pixels Pillow decodes from them
//! (`images/generate.py` wrote both).

use std::path::{Path, PathBuf};

use pelton_image::{Format, ImageError, Layout, Limits, Orientation, Pixels, decode, orientation};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect(name)
}

/// Width, height, channels and bytes of a PGM or PPM file.
fn expected(name: &str) -> (u32, u32, usize, Vec<u8>) {
    let grey = folder().join(format!("{name}.pgm"));
    let (path, channels) = if grey.exists() {
        (grey, 1)
    } else {
        (folder().join(format!("{name}.ppm")), 3)
    };
    let bytes = std::fs::read(path).expect(name);
    // "P6\n37 29\n255\n"
    let mut lines = bytes.splitn(4, |&byte| byte == b'\n');
    let sizes = String::from_utf8(lines.nth(1).unwrap().to_vec()).unwrap();
    let (width, height) = sizes.split_once(' ').unwrap();
    let data = lines.nth(1).unwrap().to_vec();
    (
        width.parse().unwrap(),
        height.parse().unwrap(),
        channels,
        data,
    )
}

fn decoded(bytes: &[u8]) -> Result<Pixels, ImageError> {
    let mut pixels = Pixels::new();
    decode(bytes, &Limits::default(), &mut pixels).map(|_| pixels)
}

/// Decodes a file and gives the largest difference of a byte from the expected one.
fn difference(name: &str) -> u8 {
    let pixels = decoded(&file(name)).expect(name);
    let (width, height, channels, data) = expected(name);
    let shape = (pixels.width(), pixels.height(), pixels.channels());
    assert_eq!(shape, (width, height, channels), "{name}");
    assert_eq!(pixels.data().len(), data.len(), "{name}");
    let pairs = pixels.data().iter().zip(&data);
    pairs
        .map(|(&ours, &theirs)| ours.abs_diff(theirs))
        .max()
        .unwrap()
}

#[track_caller]
fn check(name: &str, format: Format, most: u8) {
    assert_eq!(Format::detect(&file(name)), Some(format), "{name}");
    let difference = difference(name);
    assert!(difference <= most, "{name} differs by {difference}");
}

/// The standard leaves the rounding of the cosine transform to decoders, ±1 a component before colours
/// are mixed, and does not specify how chroma is upsampled.
#[test]
fn jpeg_is_what_libjpeg_makes_of_it() {
    for name in [
        "full.jpg",
        "grey.jpg",
        "rgb.jpg",
        "cmyk.jpg",
        "plain_cmyk.jpg",
        "ycck.jpg",
    ] {
        check(name, Format::Jpeg, 2);
    }
    for name in [
        "subsampled.jpg",
        "half.jpg",
        "progressive.jpg",
        "restarts.jpg",
        "trailing.jpg",
        "turned.jpg",
    ] {
        check(name, Format::Jpeg, 3);
    }
    for width in 1..=5 {
        for sampling in [420, 422] {
            check(&format!("narrow_{width}_{sampling}.jpg"), Format::Jpeg, 3);
        }
    }
}

/// Programs convert CMYK by different formulas.
#[test]
fn other_formats_are_what_pillow_makes_of_them() {
    for name in ["rgb.bmp", "palette.bmp", "alpha.bmp"] {
        check(name, Format::Bmp, 0);
    }
    for name in ["palette.gif", "moving.gif"] {
        check(name, Format::Gif, 0);
    }
    for name in ["rgb.ppm", "grey.pgm", "bits.pbm", "few.ppm", "text.pgm"] {
        check(name, Format::Pnm, 0);
    }
    for name in [
        "rgb",
        "lzw",
        "deflate",
        "packed",
        "grey",
        "bits",
        "alpha",
        "pages",
        "deep_grey",
    ] {
        check(&format!("{name}.tif"), Format::Tiff, 0);
    }
    check("jpeg.tif", Format::Tiff, 3);
    check("cmyk.tif", Format::Tiff, 2);
    for name in ["float.tif", "palette.tif"] {
        let error = decoded(&file(name)).unwrap_err().to_string();
        let part = "this kind of TIFF image cannot be decoded: ";
        assert!(error.contains(part), "{error}");
    }
}

/// As `ImageOps.exif_transpose` does; unless asked for, pixels keep the stored orientation.
#[test]
fn orientations_are_applied_as_pillow_does() {
    let jpegs = (1..=8).map(|number| format!("orientation_{number}.jpg"));
    let others = ["orientation_6.png", "orientation_6.webp"].map(str::to_owned);
    for (number, name) in (1..=8).chain([6, 6]).zip(jpegs.chain(others)) {
        let bytes = file(&name);
        let orientation = orientation(&bytes);
        assert_eq!(Orientation::of_number(number), Some(orientation), "{name}");
        assert_eq!(orientation.is_upright(), number == 1);
        let mut pixels = decoded(&bytes).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (9, 5), "{name}");
        pixels.turn_upright(orientation);
        let (width, height, channels, data) = expected(&name);
        let shape = (pixels.width(), pixels.height(), pixels.channels());
        assert_eq!(shape, (width, height, channels), "{name}");
        let differs = |(ours, theirs): (&u8, &u8)| ours.abs_diff(*theirs) > 2;
        let far = pixels
            .data()
            .iter()
            .zip(&data)
            .filter(|&pair| differs(pair));
        assert_eq!(far.count(), 0, "{name}");
    }
}

#[test]
fn images_without_an_orientation_that_can_be_read_are_upright() {
    for name in ["full.jpg", "rgb.png", "moving.webp", "lossy.webp"] {
        assert!(orientation(&file(name)).is_upright(), "{name}");
    }
    let good = file("orientation_6.jpg");
    let tag = good.windows(2).position(|pair| pair == b"MM").unwrap();
    let entry = tag + 10;
    assert_eq!(good[entry..entry + 2], [0x01, 0x12]);
    // The byte order, the directory's offset, its number of entries, the tag, its type, its value.
    for (at, wrong) in [
        (tag, 0),
        (tag + 7, 0),
        (tag + 7, 255),
        (tag + 9, 0),
        (entry, 9),
        (entry + 3, 2),
        (entry + 9, 0),
        (entry + 9, 9),
    ] {
        let mut bytes = good.clone();
        bytes[at] = wrong;
        assert!(orientation(&bytes).is_upright(), "byte {at} as {wrong}");
    }
    for length in 0..entry + 10 {
        assert!(orientation(&good[..length]).is_upright());
    }
}

#[test]
fn png_and_webp_are_exact() {
    for name in [
        "rgb.png",
        "grey.png",
        "alpha.png",
        "grey_alpha.png",
        "palette.png",
        "see_through.png",
        "bits.png",
        "deep.png",
        "deep_grey.png",
        "interlaced.png",
    ] {
        check(name, Format::Png, 0);
    }
    for name in [
        "lossy.webp",
        "lossless.webp",
        "alpha.webp",
        "lossless_alpha.webp",
        "moving.webp",
    ] {
        check(name, Format::Webp, 0);
    }
}

const FILES: [&str; 12] = [
    "full.jpg",
    "subsampled.jpg",
    "progressive.jpg",
    "restarts.jpg",
    "turned.jpg",
    "cmyk.jpg",
    "interlaced.png",
    "palette.png",
    "lossy.webp",
    "lossless.webp",
    "alpha.webp",
    "moving.webp",
];

/// In formats that the `image` library decodes.
const OTHERS: [&str; 9] = [
    "rgb.bmp",
    "palette.bmp",
    "palette.gif",
    "moving.gif",
    "few.ppm",
    "lzw.tif",
    "deflate.tif",
    "bits.tif",
    "jpeg.tif",
];

#[test]
fn a_file_cut_anywhere_is_an_error_or_whole() {
    for name in FILES.iter().chain(&OTHERS) {
        let bytes = file(name);
        let whole = decoded(&bytes).unwrap();
        let mut accepted = 0;
        for length in 0..bytes.len() {
            match decoded(&bytes[..length]) {
                // The image is complete before the file ends: the last chunk of a PNG only marks the end.
                Ok(pixels) => {
                    assert!(pixels == whole, "{name} cut to {length} bytes");
                    accepted += 1;
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        // The first of several frames is decoded.
        let most = match *name {
            "moving.gif" => bytes.len() * 2 / 3,
            name if name.ends_with(".png") => 16,
            name if OTHERS.contains(&name) => 4,
            _ => 0,
        };
        assert!(accepted <= most, "{name}: {accepted} lengths accepted");
        if OTHERS.contains(name) {
            continue;
        }
        let half = decoded(&bytes[..bytes.len() / 2]).unwrap_err();
        let found = bytes.len() / 2;
        let expected = format!("is cut short: its {found} bytes end");
        assert!(half.to_string().contains(&expected), "{name}: {half}");
    }
}

/// As left by a download that reserved its space, or closed properly by a tool.
#[test]
fn a_jpeg_whose_rest_is_lost_is_an_error() {
    for name in [
        "full.jpg",
        "subsampled.jpg",
        "restarts.jpg",
        "grey.jpg",
        "cmyk.jpg",
    ] {
        let bytes = file(name);
        let scan = bytes
            .windows(2)
            .position(|pair| pair == [0xFF, 0xDA])
            .unwrap()
            + 14;
        for kept in scan..scan + (bytes.len() - scan) / 3 {
            let mut zeros = bytes.clone();
            zeros[kept..].fill(0);
            assert!(decoded(&zeros).is_err(), "{name}: zeros from {kept} on");
            let ended = [&bytes[..kept], &[0xFF, 0xD9]].concat();
            assert!(decoded(&ended).is_err(), "{name}: ended at {kept}");
        }
    }
}

/// The range of each scan's data: from the end of its header to the marker that ends them.
fn scans(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let is_marker =
        |pair: &[u8]| pair[0] == 0xFF && pair[1] != 0 && !(0xD0..=0xD7).contains(&pair[1]);
    let markers = (0..bytes.len() - 1).filter(|&at| is_marker(&bytes[at..at + 2]));
    let markers: Vec<usize> = markers.collect();
    let begins = markers.iter().filter(|&&at| bytes[at + 1] == 0xDA);
    let range = |&at: &usize| {
        let from = at + 2 + usize::from(bytes[at + 3]);
        let to = markers.iter().find(|&&next| next >= from).unwrap();
        from..*to
    };
    begins.map(range).collect()
}

/// Data missing in a progressive image, within a scan or at its end.
#[test]
fn a_progressive_jpeg_that_lacks_data_is_an_error() {
    let bytes = file("progressive.jpg");
    let scans = scans(&bytes);
    assert_eq!(scans.len(), 10);
    for scan in &scans {
        for kept in scan.start..scan.end {
            // With the scans after it, and without any.
            let lacking = [&bytes[..kept], &bytes[scan.end..]].concat();
            let ended = [&bytes[..kept], &[0xFF, 0xD9]].concat();
            // The last two bytes may hold less than a code, and the bits that fill them up.
            let may_be_whole = kept + 2 >= scan.end;
            assert!(
                may_be_whole || decoded(&lacking).is_err(),
                "{kept} of {scan:?} kept"
            );
            assert!(
                may_be_whole && scan.end == scans[9].end || decoded(&ended).is_err(),
                "ended at {kept} of {scan:?}"
            );
        }
    }
}

/// A part of the data between two restart markers is missing, but no marker.
#[test]
fn a_jpeg_that_lacks_data_before_a_restart_is_an_error() {
    let bytes = file("restarts.jpg");
    let scan = scans(&bytes)[0].start;
    let restart = |pair: &[u8]| pair[0] == 0xFF && (0xD0..=0xD9).contains(&pair[1]);
    let ends = (scan..bytes.len() - 1).filter(|&at| restart(&bytes[at..at + 2]));
    let mut begin = scan;
    let mut intervals = 0;
    for end in ends {
        for kept in begin..end.saturating_sub(2) {
            let lacking = [&bytes[..kept], &bytes[end..]].concat();
            assert!(decoded(&lacking).is_err(), "{kept} of {begin}..{end}");
        }
        begin = end + 2;
        intervals += 1;
    }
    assert_eq!(intervals, 3);
}

#[test]
fn damage_never_panics() {
    for name in FILES.iter().chain(&OTHERS) {
        let bytes = file(name);
        let mut pixels = Pixels::new();
        let limits = Limits {
            most_pixels: 1 << 16,
        };
        for place in 0..bytes.len() {
            for damage in [0x01, 0x80, 0xFF] {
                let mut damaged = bytes.clone();
                damaged[place] ^= damage;
                match decode(&damaged, &limits, &mut pixels) {
                    Ok(_) => {
                        let values = pixels.height() as usize * pixels.width() as usize;
                        assert_eq!(pixels.data().len(), values * pixels.channels());
                    }
                    Err(_) => assert!(pixels.data().is_empty()),
                }
            }
        }
    }
}

/// The bytes with `with` at offset `place`.
fn patched(mut bytes: Vec<u8>, place: usize, with: &[u8]) -> Vec<u8> {
    bytes[place..place + with.len()].copy_from_slice(with);
    bytes
}

/// The offset of the height in a JPEG's frame header.
fn jpeg_height_at(bytes: &[u8]) -> usize {
    let frame = |pair: &[u8]| pair[0] == 0xFF && (0xC0..=0xC2).contains(&pair[1]);
    bytes.windows(2).position(frame).unwrap() + 5
}

/// A PNG's header with another size and its checksum.
fn png_sized(width: u32, height: u32) -> Vec<u8> {
    let mut header = b"IHDR".to_vec();
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    header.extend(&file("rgb.png")[24..29]);
    let mut sum = u32::MAX;
    for &byte in &header {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ (0xEDB8_8320 & (sum & 1).wrapping_neg());
        }
    }
    header.extend((!sum).to_be_bytes());
    patched(file("rgb.png"), 12, &header)
}

#[test]
fn sizes_beyond_the_limit_are_refused() {
    let side = 30_000_u32;
    let both = [(side >> 8) as u8, side as u8].repeat(2);
    let jpeg = |name| {
        let bytes = file(name);
        let place = jpeg_height_at(&bytes);
        patched(bytes, place, &both)
    };
    // A canvas states its width and height minus one in 24 bits each.
    let canvas = patched(file("alpha.webp"), 24, &[0x2F, 0x75, 0, 0x2F, 0x75, 0]);
    // A small canvas with large frames.
    let frame = file("alpha.webp");
    let place = frame
        .windows(3)
        .position(|three| three == [0x9D, 0x01, 0x2A]);
    let frame = patched(frame, place.unwrap() + 3, &[0xFF, 0x3F, 0xFF, 0x3F]);
    let moving = file("moving.webp");
    let place = moving.windows(4).position(|four| four == b"VP8L").unwrap();
    let moving = patched(moving, place + 9, &[0xFF, 0xFF, 0xFF, 0x0F]);
    for (bytes, format) in [
        (jpeg("full.jpg"), Format::Jpeg),
        (jpeg("progressive.jpg"), Format::Jpeg),
        (png_sized(side, side), Format::Png),
        (canvas, Format::Webp),
        (frame, Format::Webp),
        (moving, Format::Webp),
    ] {
        let error = decoded(&bytes).unwrap_err();
        let ImageError::TooManyPixels(message) = error else {
            panic!("{error}");
        };
        let numbers = message
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect();
        assert!(
            message.starts_with(&format!("the {format} image declares")),
            "{message}"
        );
        assert!(
            numbers[0] * numbers[1] > numbers[2] && numbers[2] == 1 << 26,
            "{message}"
        );
    }
    let exact = Limits {
        most_pixels: 37 * 29,
    };
    let less = Limits {
        most_pixels: 37 * 29 - 1,
    };
    for name in FILES.iter().chain(&OTHERS) {
        let bytes = file(name);
        assert!(decode(&bytes, &exact, &mut Pixels::new()).is_ok(), "{name}");
        assert!(decode(&bytes, &less, &mut Pixels::new()).is_err(), "{name}");
    }
}

#[test]
fn images_without_pixels_are_refused() {
    let jpeg = file("full.jpg");
    let height = jpeg_height_at(&jpeg);
    for bytes in [
        patched(jpeg.clone(), height, &[0, 0]),
        patched(jpeg, height + 2, &[0, 0]),
        patched(file("lossy.webp"), 26, &[0, 0]),
    ] {
        let error = decoded(&bytes).unwrap_err();
        assert!(error.to_string().contains("has no pixels"), "{error}");
    }
    // The decoder of PNG has its own message for it.
    assert!(decoded(&png_sized(0, 5)).is_err());
    assert!(decoded(&png_sized(5, 0)).is_err());
}

#[track_caller]
fn check_refusal(bytes: &[u8], message: &str) {
    assert_eq!(decoded(bytes).unwrap_err().to_string(), message);
}

#[test]
fn refusals_say_what_is_wrong() {
    check_refusal(
        b"%PDF-1.7",
        "the bytes are not a JPEG, PNG, WebP, BMP, GIF, PNM or TIFF image, whatever their name says: they begin with \
         25 50 44 46 2d 31 2e 37",
    );
    check_refusal(
        b"",
        "the bytes are not a JPEG, PNG, WebP, BMP, GIF, PNM or TIFF image, whatever their name says: they begin with \
         nothing",
    );
    let jpeg = file("full.jpg");
    let height = jpeg_height_at(&jpeg);
    check_refusal(
        &patched(jpeg.clone(), height - 4, &[0xC9]),
        "this kind of JPEG image cannot be decoded: it is arithmetically coded",
    );
    check_refusal(
        &patched(jpeg.clone(), height - 1, &[12]),
        "this kind of JPEG image cannot be decoded: it has 12 bits a channel",
    );
    check_refusal(
        &[0xFF, 0xD8, 0xFF, 0xD9],
        "the JPEG image is damaged: it has no frame header",
    );
    check_refusal(
        &jpeg[..600],
        "the JPEG image is cut short: its 600 bytes end before the image does",
    );
    check_refusal(
        &patched(jpeg, height, &[0x75, 0x30, 0x75, 0x30]),
        "the JPEG image declares 30000 x 30000 pixels, more than the 67108864 that are allowed",
    );
}

/// A buffer can be reused after a larger image, or one with more channels.
#[test]
fn one_buffer_serves_image_after_image() {
    let mut pixels = Pixels::new();
    for name in
        FILES
            .iter()
            .chain(&OTHERS)
            .chain(&["grey.jpg", "grey_alpha.png", "alpha.png", "grey.png"])
    {
        decode(&file(name), &Limits::default(), &mut pixels).unwrap();
        assert_eq!(pixels, decoded(&file(name)).unwrap(), "{name}");
        assert!(decode(b"no image", &Limits::default(), &mut pixels).is_err());
        assert!(pixels.data().is_empty());
    }
}

#[test]
fn raw_pixels_are_taken_in_either_layout() {
    let mut pixels = Pixels::new();
    pixels.set(1, 2, 3, Layout::Hwc, &[1, 2, 3, 4, 5, 6]);
    assert_eq!(pixels.data(), [1, 2, 3, 4, 5, 6]);
    pixels.set(1, 2, 3, Layout::Chw, &[1, 4, 2, 5, 3, 6]);
    assert_eq!(pixels.data(), [1, 2, 3, 4, 5, 6]);
    pixels.set(2, 1, 1, Layout::Chw, &[7, 8]);
    assert_eq!(
        (pixels.height(), pixels.width(), pixels.channels()),
        (2, 1, 1)
    );
    assert_eq!(pixels.data(), [7, 8]);
}
