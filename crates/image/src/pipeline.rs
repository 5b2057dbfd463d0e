//! Applies stages one after another, from pixels to the caller's slice.

use std::fmt;
use std::str::FromStr;

use pelton_key::KeyedRng;

use crate::crop::Rectangle;
use crate::frame::{Frame, Workspace};
use crate::steps::{Augment, Effect, MOST_SIDE, Move, Moves, Numbers, Size};
use crate::write::{self, Tables};
use crate::{ImageError, Layout, Pixels};

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

/// Stages in the order they act, spelt with commas between them.
///
/// ```
/// use pelton_image::{Pipeline, Values};
///
/// let pipeline: Pipeline = "rrc:224,flip,jitter:0.4:0.4:0.4:0.1,normalise".parse()?;
/// assert_eq!(pipeline.fixed_size(), Some((224, 224)));
/// assert_eq!(pipeline.sample_bytes(Values::Floats), Some(224 * 224 * 3 * 4));
/// assert_eq!(pipeline.stages()[1].numbers(), [0.5]);
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
        let mut floats = false;
        for stage in &stages {
            let (effect, _) = stage.effect();
            if floats && !matches!(effect, Effect::Blacken(_)) {
                return Err(ImageError::new(format!(
                    "'{stage}' cannot follow normalise, which makes floats of bytes: only what blackens, as cutout, may"
                )));
            }
            floats |= matches!(effect, Effect::Normalise);
        }
        let is_grey = |stage: &Augment| matches!(stage.effect().0, Effect::Grey);
        let channels = if stages.iter().any(is_grey) { 1 } else { 3 };
        let numbers = normalisation(&stages).unwrap_or([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        let [mean @ .., d, e, f] = numbers.map(|number| number as f32);
        let pipeline = Pipeline {
            stages,
            channels: 3,
            layout: Layout::Hwc,
            tables: Box::new(write::tables(mean, [d, e, f])),
        };
        pipeline.with_channels(channels)
    }

    /// With this number of channels in the output: grey images get three equal ones, colours become grey. Asserts
    /// that it is 1 or 3.
    pub fn with_channels(mut self, channels: usize) -> Result<Pipeline, ImageError> {
        assert!(channels == 1 || channels == 3, "an image is grey or RGB");
        if let Some([a, b, c, d, e, f]) = normalisation(&self.stages)
            && channels == 1
            && !(a == b && b == c && d == e && e == f)
        {
            return Err(ImageError::new(
                "normalise has a mean for each of three channels and the output has one: give one mean and \
                 deviation, for instance normalise:0.449:0.226",
            ));
        }
        self.channels = channels;
        Ok(self)
    }

    /// With this layout of the output.
    pub fn with_layout(mut self, layout: Layout) -> Pipeline {
        self.layout = layout;
        self
    }

    /// The same without randomness, for validation: every stage is replaced by its counterpart without randomness (a
    /// random crop by a centre crop) or dropped.
    pub fn evaluation(&self) -> Pipeline {
        Pipeline {
            stages: self.stages.iter().flat_map(Augment::evaluation).collect(),
            ..self.clone()
        }
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
        normalisation(&self.stages).is_some()
    }

    /// Height and width of every output, if they do not depend on the image.
    pub fn fixed_size(&self) -> Option<(u32, u32)> {
        self.moves().fold(None, |size, (_, step, numbers)| {
            // A fixed size is that for any image large enough.
            let from = if step.fixes_size {
                Some((MOST_SIDE, MOST_SIDE))
            } else {
                size
            };
            (step.size_after)(numbers, from?).ok()
        })
    }

    /// Height and width of the output for an image of this size.
    ///
    /// Errors: a side grows too long, or the image is too small for its random crop.
    pub fn output_size(&self, height: u32, width: u32) -> Result<(u32, u32), ImageError> {
        let mut moves = self.moves();
        moves.try_fold((height, width), |size, (_, step, numbers)| {
            (step.size_after)(numbers, size)
        })
    }

    /// Bytes of every output, if they do not depend on the image.
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
            let (Effect::Move(step), numbers) = stage.effect() else {
                break;
            };
            // A stage reports a refused size when it is applied.
            let Ok(to) = (step.size_after)(numbers, size) else {
                break;
            };
            match (step.draw)(numbers, size, &mut stream(key, number)) {
                Move::Stay if to == size => (),
                Move::Flip => mirrored = !mirrored,
                Move::Crop(top, left, wanted) => {
                    let inside = Rectangle::inside(top, left, wanted, size);
                    if inside.height == 0 || inside.width == 0 {
                        break;
                    }
                    part = part.part(inside, mirrored);
                    // After a resize, or with black around them, pixels differ.
                    if (inside.height, inside.width) != wanted || wanted != to {
                        break;
                    }
                }
                Move::Stay | Move::FlipRows | Move::Affine(_) => break,
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
    /// `source` has pixels of bytes ([`Pixels::scale_to_bytes`]), that they were not decoded for another pipeline or
    /// key ([`crate::decode_for`]), and that `out` has as many values as the output.
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
            let (size, rng) = (frame.size(), &mut stream(key, number));
            match stage.effect() {
                (Effect::Move(step), numbers) => moved(step, numbers, &mut frame, rng)?,
                (Effect::Change(change), numbers) => change(numbers, &mut frame, rng),
                (Effect::MoveOrChange(step, change), numbers) => {
                    moved(step, numbers, &mut frame, rng)?;
                    change(numbers, &mut frame, &mut stream(key, number));
                }
                (Effect::Grey, _) => frame.grey(),
                (Effect::Blacken(hole), numbers) => frame.blacken(hole(numbers, size, rng)),
                // Done when the image is written.
                (Effect::Normalise, _) => (),
            }
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
                    if let (Effect::Blacken(hole), numbers) = stage.effect() {
                        let hole = hole(numbers, size, &mut stream(key, number));
                        write::fill(out, size, self.channels, layout, hole, 0.0);
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies the stages that move pixels to a picture's mask: the same key gives the same crops, mirrors and turns.
    /// Mask values are numbers such as classes, of any size, so the nearest pixel is used instead of interpolation. Values
    /// never change; areas that are black in pictures become 0. Writes the mask's channels to `out`, in the output's layout.
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
        for (number, step, numbers) in self.moves() {
            moved(step, numbers, &mut frame, &mut stream(key, number))?;
        }
        let part = frame.finished();
        let values = part.area.height as usize * part.area.width as usize * part.channels;
        assert_eq!(out.len(), values, "bytes of the output");
        part.write_numbers(mask.value_bytes(), self.layout, out);
        Ok(())
    }

    /// Moves the boxes of an image of this height and width as the stages move its pixels: the same key gives the same
    /// crops, mirrors and turns. A box is left, top, right and bottom, in pixels from the left and upper edge.
    ///
    /// Boxes are clipped to the output, and one that is cropped away gets area 0; after a turn a box is the smallest
    /// around its turned corners. torchvision's transforms of boxes do the same.
    ///
    /// Errors: those of [`Pipeline::output_size`].
    pub fn apply_to_boxes(
        &self,
        mut size: Size,
        key: u64,
        boxes: &mut [[f32; 4]],
    ) -> Result<(), ImageError> {
        for (number, step, numbers) in self.moves() {
            let to = (step.size_after)(numbers, size)?;
            let drawn = (step.draw)(numbers, size, &mut stream(key, number));
            for corners in &mut *boxes {
                *corners = drawn.corners(*corners, size, to);
            }
            size = to;
        }
        Ok(())
    }

    /// Whether it moves pixels, so that masks and boxes move too.
    pub fn moves_pixels(&self) -> bool {
        self.moves().next().is_some()
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, &Augment)> {
        (0..).zip(&self.stages)
    }

    /// The stages that act on bytes: those before normalisation.
    fn byte_stages(&self) -> impl Iterator<Item = (u64, &Augment)> {
        let is_bytes = |stage: &Augment| !matches!(stage.effect().0, Effect::Normalise);
        self.numbered()
            .take_while(move |(_, stage)| is_bytes(stage))
    }

    /// The stages that move pixels.
    fn moves(&self) -> impl Iterator<Item = (u64, &Moves, Numbers)> {
        self.numbered()
            .filter_map(|(number, stage)| match stage.effect() {
                (Effect::Move(step) | Effect::MoveOrChange(step, _), numbers) => {
                    Some((number, step, numbers))
                }
                (Effect::Change(_) | Effect::Grey | Effect::Blacken(_) | Effect::Normalise, _) => {
                    None
                }
            })
    }
}

/// The random stream of the stage with this index: 2^32 numbers of the key's stream are reserved for it.
fn stream(key: u64, number: u64) -> KeyedRng {
    KeyedRng::at(key, number << 32)
}

/// Three means and three deviations.
fn normalisation(stages: &[Augment]) -> Option<Numbers> {
    let mut effects = stages.iter().map(Augment::effect);
    effects.find_map(|(effect, numbers)| matches!(effect, Effect::Normalise).then_some(numbers))
}

/// Moves pixels, of a picture or a mask. A size is refused before memory is allocated for it.
fn moved(
    step: &Moves,
    numbers: Numbers,
    frame: &mut Frame<'_>,
    rng: &mut KeyedRng,
) -> Result<(), ImageError> {
    let size = frame.size();
    let to = (step.size_after)(numbers, size)?;
    (step.draw)(numbers, size, rng).act(frame, to);
    Ok(())
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
