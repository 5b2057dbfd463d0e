//! Applies stages one after another, from pixels to the caller's slice.

use std::fmt;
use std::str::FromStr;

use pelton_key::KeyedRng;

use crate::affine::{self, Affine};
use crate::augment::{Augment, MOST_SIDE, bad_stage};
use crate::crop::{self, Rectangle};
use crate::frame::{Frame, Workspace};
use crate::write::{self, Tables};
use crate::{ImageError, Layout, Pixels, boxes, colour};

/// The destination of an image: its part of a batch.
#[derive(Debug)]
pub enum Output<'a> {
    /// As bytes.
    Bytes(&'a mut [u8]),
    /// As floats: normalised, or from 0 to 1 without normalisation.
    Floats(&'a mut [f32]),
}

/// The type of output values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Values {
    /// One byte a value.
    Bytes,
    /// Four bytes a value.
    Floats,
}

impl Values {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Values::Bytes => 1,
            Values::Floats => 4,
        }
    }
}

/// Stages in the order in which they act, spelt with commas between them.
///
/// ```
/// use pelton_image::{Augment, Pipeline, Values};
///
/// let pipeline: Pipeline = "rrc:224,flip,jitter:0.4:0.4:0.4:0.1,normalise".parse()?;
/// assert_eq!(pipeline.fixed_size(), Some((224, 224)));
/// assert_eq!(pipeline.sample_bytes(Values::Floats), Some(224 * 224 * 3 * 4));
/// assert_eq!(pipeline.stages()[1], Augment::Flip { chance: 0.5 });
/// assert_eq!(pipeline.to_string(), "rrc:224,flip,jitter:0.4:0.4:0.4:0.1,normalise");
/// # Ok::<(), pelton_image::ImageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pipeline {
    stages: Vec<Augment>,
    channels: usize,
    layout: Layout,
    /// The tables for floats.
    tables: Box<Tables>,
}

/// Stages, channels and layout determine everything else.
impl PartialEq for Pipeline {
    fn eq(&self, other: &Pipeline) -> bool {
        (&self.stages, self.channels, self.layout) == (&other.stages, other.channels, other.layout)
    }
}

impl Pipeline {
    /// These stages; an empty list leaves an image unchanged. The output has one channel after `grey` and three
    /// otherwise, interleaved.
    pub fn new(stages: Vec<Augment>) -> Result<Pipeline, ImageError> {
        let mut after_normalise = false;
        let mut normalised = ([0.0; 3], [1.0; 3]);
        for stage in &stages {
            let checked = stage.check();
            checked.map_err(|rule| bad_stage(&stage.to_string(), stage.name(), rule))?;
            match *stage {
                Augment::CutOut { .. } => (),
                _ if after_normalise => {
                    return Err(ImageError::new(format!(
                        "'{stage}' cannot follow normalise, which makes floats of bytes: only cutout may come after it"
                    )));
                }
                Augment::Normalise { mean, deviation } => {
                    after_normalise = true;
                    normalised = (mean, deviation);
                }
                _ => (),
            }
        }
        let channels = if stages.contains(&Augment::Grey) {
            1
        } else {
            3
        };
        let pipeline = Pipeline {
            stages,
            channels: 3,
            layout: Layout::Hwc,
            tables: Box::new(write::tables(normalised.0, normalised.1)),
        };
        pipeline.with_channels(channels)
    }

    /// With this number of channels in the output: grey images get three equal ones, colours become grey. Asserts
    /// that it is 1 or 3.
    pub fn with_channels(mut self, channels: usize) -> Result<Pipeline, ImageError> {
        assert!(channels == 1 || channels == 3, "an image is grey or RGB");
        let same = |values: &[f32; 3]| values[0] == values[1] && values[1] == values[2];
        for stage in &self.stages {
            if let Augment::Normalise { mean, deviation } = stage
                && channels == 1
                && !(same(mean) && same(deviation))
            {
                return Err(ImageError::new(
                    "normalise has a mean for each of three channels and the output has one: give one mean and \
                     deviation, for instance normalise:0.449:0.226",
                ));
            }
        }
        self.channels = channels;
        Ok(self)
    }

    /// With this layout of the output.
    pub fn with_layout(mut self, layout: Layout) -> Pipeline {
        self.layout = layout;
        self
    }

    /// The same without randomness, for validation: a random crop becomes one of the middle, `rrc:S` after the
    /// shorter side is resized to 256/224 of S, as is usual for ImageNet; flips, changes of colour, turns and black
    /// squares are dropped.
    pub fn evaluation(&self) -> Pipeline {
        let mut all = self.clone();
        all.stages = Vec::with_capacity(self.stages.len() + 1);
        for stage in &self.stages {
            match *stage {
                Augment::Flip { .. }
                | Augment::Jitter { .. }
                | Augment::Affine { .. }
                | Augment::CutOut { .. } => {}
                Augment::RandomCrop { side, .. } => all.stages.push(Augment::Crop { side }),
                Augment::RandomResizedCrop { side, .. } => {
                    let resized = (side * 256).div_ceil(224).min(MOST_SIDE);
                    all.stages.push(Augment::ResizeShorter { side: resized });
                    all.stages.push(Augment::Crop { side });
                }
                stage => all.stages.push(stage),
            }
        }
        all
    }

    /// The stages.
    pub fn stages(&self) -> &[Augment] {
        &self.stages
    }

    /// Channels of the output.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Layout of the output.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether it normalises, so that the output must be floats.
    pub fn normalises(&self) -> bool {
        let normalises = |stage: &Augment| matches!(stage, Augment::Normalise { .. });
        self.stages.iter().any(normalises)
    }

    /// Height and width of every output, where they do not depend on the image.
    pub fn fixed_size(&self) -> Option<(u32, u32)> {
        self.stages.iter().fold(None, |size, stage| match *stage {
            Augment::Resize { height, width } => Some((height, width)),
            Augment::Crop { side }
            | Augment::RandomCrop { side, .. }
            | Augment::RandomResizedCrop { side, .. } => Some((side, side)),
            // The result for a known size is within bounds, or is refused for every image.
            Augment::ResizeShorter { side } => size.and_then(|(height, width)| {
                let (height, width) = crop::shorter_to(side, height, width);
                Some((u32::try_from(height).ok()?, u32::try_from(width).ok()?))
            }),
            _ => size,
        })
    }

    /// Height and width of the output for an image of this size.
    ///
    /// Errors: a side grows too long, or the image is too small for its random crop.
    pub fn output_size(&self, height: u32, width: u32) -> Result<(u32, u32), ImageError> {
        let mut size = (height, width);
        for stage in &self.stages {
            size = size_after(stage, size)?;
        }
        Ok(size)
    }

    /// Bytes of every output, where they do not depend on the image.
    pub fn sample_bytes(&self, values: Values) -> Option<usize> {
        let (height, width) = self.fixed_size()?;
        Some(height as usize * width as usize * self.channels * values.bytes())
    }

    /// The part of an image of this size that is needed under this key.
    pub(crate) fn looks_at(&self, height: u32, width: u32, key: u64) -> Rectangle {
        let mut part = Rectangle::all(height, width);
        let mut mirrored = false;
        for (number, stage) in self.byte_stages() {
            let size = (part.height, part.width);
            let mut rng = stream(key, number);
            if let Augment::Flip { chance } = *stage {
                mirrored ^= rng.next_f64() < chance;
                continue;
            }
            // A stage reports a refused size when it is applied.
            let crop = size_after(stage, size).ok();
            let crop = crop.and_then(|_| cropped(stage, size, &mut rng));
            let Some((top, left, wanted)) = crop else {
                break;
            };
            let inside = Rectangle::inside(top, left, wanted, size);
            if inside.height == 0 || inside.width == 0 {
                break;
            }
            part = part.part(inside, mirrored);
            // After a resize, or with black around them, pixels differ.
            let resizes = matches!(stage, Augment::RandomResizedCrop { .. });
            if resizes || (inside.height, inside.width) != wanted {
                break;
            }
        }
        part
    }

    /// Augments one image and writes it to `out`, which holds exactly the output.
    ///
    /// Deterministic in `key` ([`crate::example_key`]); the draws of a stage do not depend on those of earlier
    /// stages.
    ///
    /// Errors: those of [`Pipeline::output_size`], and output bytes of a pipeline that normalises. Asserts that
    /// `source` has pixels of bytes ([`Pixels::scale_to_bytes`]), that these are not of another pipeline or key ([`crate::decode_for`]), and that `out` has
    /// as many values as the output.
    pub fn apply(
        &self,
        source: &Pixels,
        key: u64,
        work: &mut Workspace,
        out: Output<'_>,
    ) -> Result<(), ImageError> {
        assert!(!source.data().is_empty(), "the image has pixels");
        assert!(source.value_bytes() == 1, "bytes are augmented");
        if self.normalises() && matches!(out, Output::Bytes(_)) {
            return Err(ImageError::new(
                "normalise makes floats, which bytes cannot hold: ask for floats or leave it out",
            ));
        }
        let mut frame = Frame::new(source, work);
        for (number, stage) in self.byte_stages() {
            act(stage, &mut frame, &mut stream(key, number))?;
        }
        if self.channels == 1 {
            frame.grey();
        }
        let (size, layout) = (frame.size(), self.layout);
        let values = size.0 as usize * size.1 as usize * self.channels;
        match out {
            Output::Bytes(out) => {
                assert_eq!(out.len(), values, "values of the output");
                let side_by_side = layout == Layout::Hwc || self.channels == 1;
                if !(side_by_side && frame.resize_into(self.channels, out)) {
                    write::bytes(frame.finished(), self.channels, layout, out);
                }
            }
            Output::Floats(out) => {
                assert_eq!(out.len(), values, "values of the output");
                let part = frame.finished();
                write::floats(part, self.channels, layout, &self.tables, out);
                for (number, stage) in self.numbered().skip(self.byte_stages().count()) {
                    if let &Augment::CutOut { side } = stage {
                        let hole = hole(side, size, &mut stream(key, number));
                        write::fill(out, size, self.channels, layout, hole, 0.0);
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies to a picture's mask the stages that move pixels: the same key gives the same crops, mirrors and turns.
    /// Its values are numbers such as classes, of any size, so the nearest pixel is used instead of interpolation; values
    /// never change, and 0 fills where pictures get black. Writes to `out`, in the layout of the output, the mask's channels.
    ///
    /// Errors: those of [`Pipeline::output_size`]. Asserts what [`Pipeline::apply`] does.
    pub fn apply_to_mask(
        &self,
        mask: &Pixels,
        key: u64,
        work: &mut Workspace,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        assert!(!mask.data().is_empty(), "the mask has pixels");
        let mut frame = Frame::new(mask, work).of_classes();
        for (number, stage) in self.numbered().filter(|(_, stage)| stage.moves_pixels()) {
            act(stage, &mut frame, &mut stream(key, number))?;
        }
        let part = frame.finished();
        let values = part.area.height as usize * part.area.width as usize * part.channels;
        assert_eq!(out.len(), values, "bytes of the output");
        part.write_numbers(mask.value_bytes(), self.layout, out);
        Ok(())
    }

    /// Moves the boxes of an image of this height and width as the stages move its pixels: the same key gives the same
    /// crops, mirrors and turns. A box is left, top, right and bottom, in pixels from the left and upper edge on.
    ///
    /// Boxes are clipped to what is seen, and one that is cropped away gets no area; after a turn a box is the smallest
    /// around its turned corners. So do torchvision's transforms of boxes.
    ///
    /// Errors: those of [`Pipeline::output_size`].
    pub fn apply_to_boxes(
        &self,
        mut size: (u32, u32),
        key: u64,
        boxes: &mut [[f32; 4]],
    ) -> Result<(), ImageError> {
        for (number, stage) in self.numbered().filter(|(_, stage)| stage.moves_pixels()) {
            let rng = &mut stream(key, number);
            let to = size_after(stage, size)?;
            let mut change = |moved: &dyn Fn([f32; 4]) -> [f32; 4]| {
                boxes
                    .iter_mut()
                    .for_each(|corners| *corners = moved(*corners));
            };
            match drawn(stage, size, rng) {
                Move::Stay => (),
                Move::Crop(top, left, part) => {
                    change(&|corners| boxes::shifted(corners, (top, left), part));
                    size = part;
                }
                Move::Flip => change(&|corners| boxes::mirrored(corners, size.1)),
                Move::Affine(affine) => change(&|corners| boxes::mapped(corners, affine, size)),
            }
            change(&|corners| boxes::stretched(corners, size, to));
            size = to;
        }
        Ok(())
    }

    /// Whether it moves pixels, so that masks and boxes move too.
    pub fn moves_pixels(&self) -> bool {
        self.stages.iter().any(Augment::moves_pixels)
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, &Augment)> {
        (0..).zip(&self.stages)
    }

    /// The stages that act on bytes: those before normalisation.
    fn byte_stages(&self) -> impl Iterator<Item = (u64, &Augment)> {
        let is_bytes = |(_, stage): &(u64, &Augment)| !matches!(stage, Augment::Normalise { .. });
        self.numbered().take_while(is_bytes)
    }
}

/// The random stream of stage `number`: 2^32 numbers of the key's stream are reserved for it.
fn stream(key: u64, number: u64) -> KeyedRng {
    KeyedRng::at(key, number << 32)
}

/// The size after a stage.
fn size_after(stage: &Augment, (height, width): (u32, u32)) -> Result<(u32, u32), ImageError> {
    /// Most pixels that a resize makes.
    const MOST: u64 = (MOST_SIDE as u64).pow(2);
    Ok(match *stage {
        Augment::ResizeShorter { side } => {
            let (to_height, to_width) = crop::shorter_to(side, height, width);
            // The shorter side is bounded, so the product does not overflow.
            if to_height * to_width > MOST {
                return Err(ImageError::new(format!(
                    "resize would make {to_width} x {to_height} pixels of a {width} x {height} image, more than {MOST}: \
                     give both sides, for instance resize:256x256"
                )));
            }
            (to_height as u32, to_width as u32)
        }
        Augment::Resize { height, width } => (height, width),
        Augment::RandomCrop { side, padding } => {
            let (height, width) = (height + 2 * padding, width + 2 * padding);
            if side > height || side > width {
                return Err(ImageError::new(format!(
                    "randomcrop takes {side} x {side} pixels and the image has {width} x {height} with its padding: \
                     resize it first"
                )));
            }
            (side, side)
        }
        Augment::Crop { side } | Augment::RandomResizedCrop { side, .. } => (side, side),
        Augment::Flip { .. }
        | Augment::Jitter { .. }
        | Augment::Affine { .. }
        | Augment::CutOut { .. }
        | Augment::Grey
        | Augment::Normalise { .. } => (height, width),
    })
}

/// The part that a cropping stage selects from an image: its top, left and size. It may extend beyond the image.
fn cropped(
    stage: &Augment,
    (height, width): (u32, u32),
    rng: &mut KeyedRng,
) -> Option<(i64, i64, (u32, u32))> {
    Some(match *stage {
        Augment::Crop { side } => {
            // torchvision pads images that are too small and takes the middle.
            let middle = |length: u32| {
                let black = side.saturating_sub(length);
                i64::from(crop::middle(length + black, side)) - i64::from(black / 2)
            };
            (middle(height), middle(width), (side, side))
        }
        Augment::RandomCrop { side, padding } => {
            let mut place = |length: u32| {
                let places = u64::from(length + 2 * padding - side) + 1;
                rng.below(places) as i64 - i64::from(padding)
            };
            (place(height), place(width), (side, side))
        }
        Augment::RandomResizedCrop { least, most, .. } => {
            let part = crop::random_resized_crop(height, width, (least, most), rng);
            let (top, left) = (i64::from(part.top), i64::from(part.left));
            (top, left, (part.height, part.width))
        }
        _ => return None,
    })
}

/// Where a stage moves pixels, before it brings them to its size.
enum Move {
    Stay,
    /// To the part with this top, left and size.
    Crop(i64, i64, (u32, u32)),
    Flip,
    Affine(Affine),
}

/// Draws what a stage does with the pixels of an image of this size, and so with its masks and boxes.
fn drawn(stage: &Augment, size: (u32, u32), rng: &mut KeyedRng) -> Move {
    match *stage {
        Augment::Flip { chance } if rng.next_f64() < chance => Move::Flip,
        Augment::Affine {
            degrees,
            shift,
            scale,
            shear,
        } => Move::Affine(affine::draw([degrees, shift, scale, shear], size, rng)),
        _ => cropped(stage, size, rng)
            .map_or(Move::Stay, |(top, left, part)| Move::Crop(top, left, part)),
    }
}

/// Applies one stage to bytes.
fn act(stage: &Augment, frame: &mut Frame<'_>, rng: &mut KeyedRng) -> Result<(), ImageError> {
    let (height, width) = frame.size();
    // Refuses impossible stages; a size is refused before memory is allocated for it.
    let (to_height, to_width) = size_after(stage, (height, width))?;
    match *stage {
        _ if stage.moves_pixels() => {
            match drawn(stage, (height, width), rng) {
                Move::Stay => (),
                Move::Crop(top, left, size) => frame.crop_beyond(top, left, size),
                Move::Flip => frame.flip(),
                Move::Affine(affine) => frame.affine(affine),
            }
            // A part of random size does not have the requested size yet.
            frame.resize(to_height, to_width);
        }
        Augment::Jitter {
            brightness,
            contrast,
            saturation,
            hue,
        } => {
            let strengths = [brightness, contrast, saturation, hue];
            for change in colour::draw_changes(strengths, rng).into_iter().flatten() {
                frame.change(change);
            }
        }
        Augment::CutOut { side } => frame.blacken(hole(side, (height, width), rng)),
        Augment::Grey => frame.grey(),
        _ => unreachable!("the rest moves pixels, or is done when the image is written"),
    }
    Ok(())
}

/// A square of `side` around a random pixel, clipped to the image (DeVries & Taylor, "Improved regularization of
/// convolutional neural networks with cutout", 2017).
fn hole(side: u32, (height, width): (u32, u32), rng: &mut KeyedRng) -> Rectangle {
    let mut span = |length: u32| {
        let centre = rng.below(u64::from(length)) as u32;
        let start = centre.saturating_sub(side / 2);
        // From centre - side/2 on, `side` pixels, before clipping.
        let end = (centre + side - side / 2).min(length);
        (start, end - start)
    };
    let ((top, height), (left, width)) = (span(height), span(width));
    Rectangle {
        top,
        left,
        height,
        width,
    }
}

impl FromStr for Pipeline {
    type Err = ImageError;

    /// Stages with commas between them; the empty text is a pipeline without stages.
    fn from_str(text: &str) -> Result<Pipeline, ImageError> {
        if text.is_empty() {
            return Pipeline::new(Vec::new());
        }
        let stages: Result<Vec<Augment>, ImageError> = text.split(',').map(str::parse).collect();
        Pipeline::new(stages?)
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, stage) in self.stages.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{stage}")?;
        }
        Ok(())
    }
}
