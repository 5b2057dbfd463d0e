//! Images a second of one thread: decoding, and decoding with random-resized-crop 224 and flip, each
//! next to a bare loop over the same crates:
//! `cargo run --release -p pelton-image --example image_rate [FOLDER [ROUNDS]]`.
//!
//! The example first reads the folder's JPEG files into memory. A round runs every case on every file, the cases one
//! after the other on each, each time beginning with the next one, so that other load on the machine affects all of
//! them equally. Prints one CSV line a case and round, one of the rate with the least time of each file
//! (`undisturbed`), and the medians as comments. The bare loops reuse their buffers, do no checks, and draw no numbers:
//! they use the pipeline's crops, drawn before the clock starts. Before the first round their pixels are compared with
//! the pipeline's.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use pelton_image::{Layout, Limits, Output, Pipeline, Pixels, Workspace, decode, example_key};
use pelton_key::KeyedRng;
use zune_core::bytestream::ZCursor;
use zune_jpeg::JpegDecoder;

const SIDE: u32 = 224;
const VALUES: usize = (SIDE * SIDE * 3) as usize;

/// A crop of the pipeline `rrc:224,flip`: top, left, height, width, and whether it is mirrored.
type Crop = (u32, u32, u32, u32, bool);

/// The work on each image.
type Run = Box<dyn FnMut(&Image)>;

struct Image {
    bytes: Vec<u8>,
    key: u64,
    crop: Crop,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next();
    let folder = folder.unwrap_or("../shared/data/jpeg-clothing/images".to_string());
    let rounds: u32 = arguments
        .next()
        .map_or(7, |text| text.parse().expect("a number"));
    let images = load(Path::new(&folder));
    let mut bare = Bare::default();
    let mut ours = Ours::new();
    for image in &images {
        bare.augment(image);
        ours.augment(image);
        assert!(
            bare.out == ours.out,
            "the pipeline makes other pixels than the bare loop"
        );
    }
    println!("case,round,images_per_second");
    let mut cases: [(&str, Vec<f64>, Run); 6] = [
        (
            "decode bare",
            Vec::new(),
            case(Bare::default(), Bare::decode),
        ),
        ("decode", Vec::new(), case(Ours::new(), Ours::decode)),
        (
            "decode + rrc:224 flip bare",
            Vec::new(),
            case(bare, Bare::augment),
        ),
        (
            "decode + rrc:224 flip",
            Vec::new(),
            case(ours, Ours::augment),
        ),
        (
            "decode + rrc:224 flip to floats",
            Vec::new(),
            case(Ours::new(), Ours::augment_as_floats),
        ),
        (
            "rrc:224 flip of one decoded image",
            Vec::new(),
            case(Ours::new(), Ours::augment_only),
        ),
    ];
    let mut least = vec![[f64::INFINITY; 6]; images.len()];
    for round in 0..rounds {
        let mut seconds = [0.0; 6];
        for (number, image) in images.iter().enumerate() {
            for turn in 0..cases.len() {
                let place = (number + turn) % cases.len();
                let began = Instant::now();
                cases[place].2(image);
                let taken = began.elapsed().as_secs_f64();
                seconds[place] += taken;
                least[number][place] = taken.min(least[number][place]);
            }
        }
        for ((name, rates, _), seconds) in cases.iter_mut().zip(seconds) {
            let rate = images.len() as f64 / seconds;
            println!("{name},{round},{rate:.1}");
            rates.push(rate);
        }
    }
    for (place, (name, mut rates, _)) in cases.into_iter().enumerate() {
        let seconds: f64 = least.iter().map(|least| least[place]).sum();
        let undisturbed = images.len() as f64 / seconds;
        println!("{name},undisturbed,{undisturbed:.1}");
        rates.sort_by(f64::total_cmp);
        println!("# median of {name}: {:.1}", rates[rates.len() / 2]);
    }
}

fn case<T: 'static>(mut state: T, run: fn(&mut T, &Image)) -> Run {
    Box::new(move |image| run(&mut state, image))
}

fn load(folder: &Path) -> Vec<Image> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| {
        panic!("{}: {error}; give a folder of JPEG files", folder.display())
    });
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "jpg"));
    paths.sort();
    let mut bare = Bare::default();
    let images = (0..).zip(paths).map(|(id, path)| {
        let bytes = std::fs::read(path).expect("a readable file");
        let key = example_key(1, id, 0);
        bare.decode_bytes(&bytes);
        let crop = crop(bare.size.1, bare.size.0, key);
        Image { bytes, key, crop }
    });
    images.collect()
}

/// The draws of the pipeline `rrc:224,flip`.
fn crop(height: u32, width: u32, key: u64) -> Crop {
    let mirrored = KeyedRng::at(key, 1 << 32).next_f64() < 0.5;
    let mut rng = KeyedRng::new(key);
    let area = f64::from(height) * f64::from(width);
    let (least, most) = (libm::log(3.0 / 4.0), libm::log(4.0 / 3.0));
    for _ in 0..10 {
        let part = area * (0.08 + (1.0 - 0.08) * rng.next_f64());
        let ratio = libm::exp(least + (most - least) * rng.next_f64());
        let wide = (part * ratio).sqrt().round_ties_even() as u32;
        let high = (part / ratio).sqrt().round_ties_even() as u32;
        if (1..=width).contains(&wide) && (1..=height).contains(&high) {
            let top = rng.below(u64::from(height - high) + 1) as u32;
            let left = rng.below(u64::from(width - wide) + 1) as u32;
            return (top, left, high, wide, mirrored);
        }
    }
    panic!("ten tries failed; use photos of ordinary ratios");
}

/// The crates alone.
#[derive(Default)]
struct Bare {
    pixels: Vec<u8>,
    size: (u32, u32),
    resizer: Resizer,
    made: Vec<u8>,
    out: Vec<u8>,
}

impl Bare {
    fn decode(&mut self, image: &Image) {
        self.decode_bytes(&image.bytes);
    }

    fn decode_bytes(&mut self, bytes: &[u8]) {
        let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
        decoder.decode_headers().expect("a JPEG");
        let length = decoder.output_buffer_size().expect("its size");
        self.pixels.resize(length, 0);
        decoder.decode_into(&mut self.pixels).expect("a whole JPEG");
        let info = decoder.info().expect("its size");
        self.size = (u32::from(info.width), u32::from(info.height));
        black_box(&self.pixels);
    }

    fn augment(&mut self, image: &Image) {
        self.decode(image);
        let (top, left, height, width, mirrored) = image.crop;
        self.out.resize(VALUES, 0);
        self.made.resize(VALUES, 0);
        let whole = TypedImageRef::<U8x3>::from_buffer(self.size.0, self.size.1, &self.pixels);
        let part = TypedCroppedImage::new(whole.unwrap(), left, top, width, height).unwrap();
        let made = if mirrored {
            &mut self.made
        } else {
            &mut self.out
        };
        let mut made = TypedImage::<U8x3>::from_buffer(SIDE, SIDE, made).unwrap();
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        self.resizer
            .resize_typed(&part, &mut made, &options)
            .unwrap();
        if mirrored {
            let row = SIDE as usize * 3;
            for (to, from) in self
                .out
                .chunks_exact_mut(row)
                .zip(self.made.chunks_exact(row))
            {
                for (to, from) in to.chunks_exact_mut(3).zip(from.chunks_exact(3).rev()) {
                    to.copy_from_slice(from);
                }
            }
        }
        black_box(&self.out);
    }
}

/// This crate.
struct Ours {
    pixels: Pixels,
    work: Workspace,
    pipeline: Pipeline,
    normalised: Pipeline,
    out: Vec<u8>,
    floats: Vec<f32>,
}

impl Ours {
    fn new() -> Ours {
        let normalised: Pipeline = "rrc:224,flip,normalise".parse().expect("a pipeline");
        Ours {
            pixels: Pixels::new(),
            work: Workspace::new(),
            pipeline: "rrc:224,flip".parse().expect("a pipeline"),
            normalised: normalised.with_layout(Layout::Chw),
            out: vec![0; VALUES],
            floats: vec![0.0; VALUES],
        }
    }

    fn decode(&mut self, image: &Image) {
        decode(&image.bytes, &Limits::default(), &mut self.pixels).expect("a whole JPEG");
        black_box(&self.pixels);
    }

    fn augment(&mut self, image: &Image) {
        self.decode(image);
        self.augment_decoded(image.key);
    }

    fn augment_only(&mut self, image: &Image) {
        if self.pixels.data().is_empty() {
            self.decode(image);
        }
        self.augment_decoded(image.key);
    }

    fn augment_decoded(&mut self, key: u64) {
        let out = Output::Bytes(&mut self.out);
        let done = self.pipeline.apply(&self.pixels, key, &mut self.work, out);
        done.expect("pixels");
        black_box(&self.out);
    }

    fn augment_as_floats(&mut self, image: &Image) {
        self.decode(image);
        let out = Output::Floats(&mut self.floats);
        let done = self
            .normalised
            .apply(&self.pixels, image.key, &mut self.work, out);
        done.expect("pixels");
        black_box(&self.floats);
    }
}
