//! Augmentation of pictures.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_image::{ImageError, Layout, Output, Pipeline, Pixels, Workspace};

use super::{IMAGE, is_mask};
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure, When};

/// Crops, flips, resizes, colours and normalises the field "image", again at each appearance.
///
/// Where no field is called so, the only one of bytes with two or three dimensions is the picture: height, width and,
/// unless it is grey, channels. The output is the field "image".
///
/// Masks, which are pictures with names that begin with "mask", have the size of their picture and are
/// cropped, flipped and rotated with it; their values are classes ([`Pipeline::apply_to_mask`]).
pub struct AugmentImages {
    pipeline: Pipeline,
    name: Arc<str>,
}

impl AugmentImages {
    /// By this pipeline, in its layout.
    pub fn by(pipeline: Pipeline) -> AugmentImages {
        AugmentImages {
            pipeline,
            name: IMAGE.into(),
        }
    }

    /// By this pipeline, with one channel where the pictures among these fields have one.
    ///
    /// Errors: a normalisation by the means of three channels.
    pub fn suited(pipeline: Pipeline, fields: &FieldSpecs) -> Result<AugmentImages, ImageError> {
        let is_grey = picture_of(fields).is_some_and(|place| match fields.0[place].dims[..] {
            [_, _, channels] => channels == Some(1),
            _ => true,
        });
        let pipeline = if is_grey {
            pipeline.with_channels(1)?
        } else {
            pipeline
        };
        Ok(AugmentImages::by(pipeline))
    }

    fn dtype(&self) -> DType {
        if self.pipeline.normalises() {
            DType::F32
        } else {
            DType::U8
        }
    }

    fn dims<T>(&self, [height, width]: [T; 2], channels: T) -> [T; 3] {
        match self.pipeline.layout() {
            Layout::Hwc => [height, width, channels],
            Layout::Chw => [channels, height, width],
        }
    }

    /// The output for a mask with this many channels, if known.
    fn mask_spec(&self, field: &FieldSpec, size: Option<(u32, u32)>) -> FieldSpec {
        let sides = size.map(|(height, width)| [height as usize, width as usize].map(Some));
        let channels = match field.dims[..] {
            [_, _, channels] => channels,
            _ => Some(1),
        };
        let dims = self.dims(sides.unwrap_or_default(), channels);
        FieldSpec::new(&field.name, DType::U8, &dims)
    }

    /// Does with the masks what the key does with a picture of this height and width.
    fn masks(
        &self,
        sample: &mut Sample<'_>,
        size: (u32, u32),
        slots: &mut Slots<'_>,
        key: u64,
        work: &mut Workspace,
    ) -> Result<(), StageFailure> {
        let names = sample
            .iter()
            .map(|(name, _)| name)
            .filter(|name| is_mask(name));
        let names: Vec<Arc<str>> = names.cloned().collect();
        for name in names {
            if let Some(Value::Numbers(_, dims, _)) = sample.get(&name)
                && (2..=3).contains(&dims.len())
            {
                numbers_to_pixels(sample, &name, &name)?;
            }
            let Some(Value::Pixels(mask)) = sample.get(&name) else {
                continue;
            };
            let own = (mask.height(), mask.width());
            if own != size {
                return Err(format!(
                    "its `{name}` has {} × {} pixels, the picture {} × {}; store both in one size",
                    own.0, own.1, size.0, size.1
                )
                .into());
            }
            let (height, width) = self.pipeline.output_size(size.0, size.1)?;
            let sides = [height as usize, width as usize];
            let dims = self.dims(sides, mask.channels()).to_vec();
            let elements: usize = dims.iter().product();
            if let Some(slot) = slots.take(&name) {
                if slot.len() != elements {
                    return Err(format!(
                        "its `{name}` differs from the others in the number of channels"
                    )
                    .into());
                }
                self.pipeline.apply_to_mask(mask, key, work, slot)?;
                sample.finish(&name);
                continue;
            }
            let mut bytes = vec![0; elements];
            self.pipeline.apply_to_mask(mask, key, work, &mut bytes)?;
            sample.set(&name, Value::Numbers(DType::U8, dims, Cow::Owned(bytes)));
        }
        Ok(())
    }

    fn write(
        &self,
        pixels: &Pixels,
        key: u64,
        work: &mut Workspace,
        out: &mut [u8],
    ) -> Result<(), StageFailure> {
        let out = if self.pipeline.normalises() {
            Output::Floats(bytemuck::try_cast_slice_mut(out).map_err(|error| error.to_string())?)
        } else {
            Output::Bytes(out)
        };
        Ok(self.pipeline.apply(pixels, key, work, out)?)
    }
}

impl Stage for AugmentImages {
    fn name(&self) -> &'static str {
        "augment"
    }

    fn spec(&self, mut input: FieldSpecs) -> Result<FieldSpecs, String> {
        let Some(place) = picture_of(&input) else {
            let others = match input.0.len() {
                0 => "none".to_owned(),
                _ => input.names(),
            };
            return Err(format!(
                "augmentation needs pictures, a field `image` of uint8, and the data has {others}; decode pictures with `decode` image, or leave `augment` out"
            ));
        };
        let image = &input.0[place];
        let size = match (image.dtype, &image.dims[..]) {
            (DType::U8, [height, width] | [height, width, None | Some(1 | 3)]) => {
                height.zip(*width).map(|(h, w)| (h as u32, w as u32))
            }
            _ => {
                return Err(format!(
                    "augmentation needs pictures as uint8 arrays of height × width × channels with 1 or 3 channels, and `{}` has {} of {}; store them so, or leave `augment` out",
                    image.name,
                    spelled(&image.dims),
                    image.dtype
                ));
            }
        };
        let known = match (self.pipeline.fixed_size(), size) {
            (Some(size), _) => Some(size),
            (None, Some((height, width))) => self.pipeline.output_size(height, width).ok(),
            (None, None) => None,
        };
        let sides = known.map(|(height, width)| [height as usize, width as usize].map(Some));
        let dims = match sides {
            Some(sides) => self.dims(sides, Some(self.pipeline.channels())),
            None => [None; 3],
        };
        input.0[place] = FieldSpec::new(IMAGE, self.dtype(), &dims);
        let has_sides = |field: &&mut FieldSpec| (2..=3).contains(&field.dims.len());
        let masks = input.0.iter_mut().filter(|field| is_mask(&field.name));
        for field in masks.filter(has_sides) {
            if field.dtype != DType::U8 {
                return Err(format!(
                    "masks are augmented as bytes, and `{}` has {}; store it as uint8, or under a name that does not begin with mask",
                    field.name, field.dtype
                ));
            }
            *field = self.mask_spec(field, known);
        }
        Ok(input)
    }

    fn when(&self) -> When {
        When::Appearance
    }

    fn makes_one_shape(&self) -> bool {
        true
    }

    fn augmentation(&self) -> Option<&Pipeline> {
        Some(&self.pipeline)
    }

    fn work(&self) -> Box<dyn Any + Send> {
        Box::new(Workspace::new())
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        slots: &mut Slots<'_>,
        at: &Appearance,
        work: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let work = work.downcast_mut().expect("the work of this stage");
        if !matches!(sample.get(IMAGE), Some(Value::Pixels(_))) {
            let found = picture_in(sample).ok_or(NO_PICTURE)?;
            numbers_to_pixels(sample, &found, &self.name)?;
        }
        let size = match sample.get(IMAGE) {
            Some(Value::Pixels(pixels)) => pixels.whole_size(),
            _ => return Err(NO_PICTURE.into()),
        };
        self.masks(sample, size, slots, at.key, work)?;
        let Some(Value::Pixels(pixels)) = sample.get(IMAGE) else {
            return Err(NO_PICTURE.into());
        };
        if let Some(slot) = slots.take(IMAGE) {
            self.write(pixels, at.key, work, slot)?;
            sample.finish(IMAGE);
            return Ok(());
        }
        let (height, width) = self.pipeline.output_size(size.0, size.1)?;
        let sides = [height as usize, width as usize];
        let dims = self.dims(sides, self.pipeline.channels()).to_vec();
        let elements: usize = dims.iter().product();
        let value = match self.dtype() {
            DType::F32 => {
                let mut values = vec![0.0_f32; elements];
                self.write(pixels, at.key, work, bytemuck::cast_slice_mut(&mut values))?;
                Value::Floats(dims, Cow::Owned(values))
            }
            dtype => {
                let mut bytes = vec![0; elements];
                self.write(pixels, at.key, work, &mut bytes)?;
                Value::Numbers(dtype, dims, Cow::Owned(bytes))
            }
        };
        sample.set(&self.name, value);
        Ok(())
    }
}

const NO_PICTURE: &str = "there is no picture to augment";

/// What decides whether a field is a picture: its name, element type and number of dimensions.
type Kind<'a> = (&'a str, DType, usize);

/// Which of some fields is the picture.
fn picture(fields: &[Kind<'_>]) -> Option<usize> {
    let named = fields.iter().position(|(name, ..)| *name == IMAGE);
    let fits = |(name, dtype, dims): &Kind<'_>| {
        *dtype == DType::U8 && (2..=3).contains(dims) && !is_mask(name)
    };
    let mut others = (0..fields.len()).filter(|&place| fits(&fields[place]));
    named.or_else(|| match (others.next(), others.next()) {
        (only, None) => only,
        _ => None,
    })
}

fn picture_of(fields: &FieldSpecs) -> Option<usize> {
    let fields = fields.0.iter();
    let kinds: Vec<Kind<'_>> = fields
        .map(|field| (&*field.name, field.dtype, field.dims.len()))
        .collect();
    picture(&kinds)
}

/// The name of the field that is the picture.
fn picture_in(sample: &Sample<'_>) -> Option<Arc<str>> {
    let kinds: Vec<Kind<'_>> = sample
        .iter()
        .map(|(name, value)| (&**name, value.dtype(), value.dims().len()))
        .collect();
    let found = picture(&kinds).and_then(|place| sample.iter().nth(place));
    found.map(|(name, _)| Arc::clone(name))
}

/// Puts the pixels of a field of numbers in its place, under a name of pictures.
fn numbers_to_pixels(
    sample: &mut Sample<'_>,
    name: &Arc<str>,
    image: &Arc<str>,
) -> Result<(), StageFailure> {
    let mut pixels = sample.new_pixels();
    let Some(Value::Numbers(DType::U8, dims, bytes)) = sample.get(name) else {
        return Err(NO_PICTURE.into());
    };
    let (height, width, channels) = match dims[..] {
        [height, width] => (height, width, 1),
        [height, width, channels @ (1 | 3)] => (height, width, channels),
        _ => {
            let dims: Vec<Option<usize>> = dims.iter().copied().map(Some).collect();
            let text = format!(
                "its picture `{name}` has {}, not height × width × channels with 1 or 3 channels",
                spelled(&dims)
            );
            return Err(text.into());
        }
    };
    if bytes.is_empty() {
        return Err(format!("its picture `{name}` has no pixels").into());
    }
    // Lengths are 32-bit numbers where they are stored.
    let size = (height as u32, width as u32);
    pixels.set(size.0, size.1, channels, Layout::Hwc, bytes);
    if name != image {
        sample.remove(name);
    }
    sample.set(image, Value::Pixels(Cow::Owned(pixels)));
    Ok(())
}

/// Dimensions as text.
fn spelled(dims: &[Option<usize>]) -> String {
    let length =
        |length: &Option<usize>| length.map_or("?".to_owned(), |length| length.to_string());
    let lengths: Vec<String> = dims.iter().map(length).collect();
    lengths.join(" × ")
}
