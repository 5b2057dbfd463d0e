//! Augmentation of pictures.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_format::element_value;
use pelton_image::{ImageError, Layout, Output, Pipeline, Pixels, Workspace};

use super::{IMAGE, is_box, is_mask, is_picture, names_places};
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure, When};

/// Crops, flips, resizes, colours and normalises the field "image", again at each appearance.
///
/// If no field has such a name, the only one of 8 or 16 bits with two or three dimensions is the picture: height,
/// width and, unless it is grey, channels; or channels first if only the first dimension can be the channels. The
/// output is the field "image" of 8 bits; 16 bits are scaled to 8.
///
/// Other pictures of a sample have its size and get the same augmentation: those named "image…" all of it, masks
/// (named "mask…") only the part that moves pixels, since their values are numbers such as classes
/// ([`Pipeline::apply_to_mask`]); they keep their type. Numbers named "box…" are boxes, and move too
/// ([`Pipeline::apply_to_boxes`]); they become f32.
pub struct AugmentImages {
    pipeline: Pipeline,
    name: Arc<str>,
    /// Number of pictures in the first epoch for each remark.
    remarked: [AtomicU64; 2],
}

impl AugmentImages {
    /// Remarks to print once: the name of the counter in [`Stage::counted`], and a sentence.
    pub const REMARKS: [(&'static str, &'static str); 2] = [
        (
            "scaled_pictures",
            "augmentation works on bytes, so pictures of 16 bits are scaled to 8; call a field mask_… if only its pixels should move",
        ),
        (
            "planar_pictures",
            "pictures are taken to have channels first, because only their first dimension is 1, 3 or 4; store them as height × width × channels if that is wrong",
        ),
    ];

    /// By this pipeline, in its layout.
    pub fn by(pipeline: Pipeline) -> AugmentImages {
        AugmentImages {
            pipeline,
            name: IMAGE.into(),
            remarked: Default::default(),
        }
    }

    /// By this pipeline, with one channel if the pictures among these fields have one.
    ///
    /// Errors: a normalisation by the means of three channels.
    pub fn suited(pipeline: Pipeline, fields: &FieldSpecs) -> Result<AugmentImages, ImageError> {
        let is_grey = picture_of(fields).is_some_and(|place| {
            let arranged = arranged(&fields.0[place].dims);
            arranged.is_some_and(|([.., channels], _)| channels == Some(1))
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

    /// The output for a picture or mask of this type, with these dimensions and this size, if known.
    fn spec_of(
        &self,
        name: &str,
        (dtype, dims): (DType, &[Option<usize>]),
        size: Option<(u32, u32)>,
    ) -> FieldSpec {
        let sides = size.map(|(height, width)| [height as usize, width as usize].map(Some));
        if is_mask(name) {
            let channels = arranged(dims).and_then(|([.., channels], _)| channels);
            let dims = self.dims(sides.unwrap_or_default(), channels);
            return FieldSpec::new(name, dtype, &dims);
        }
        let dims = match sides {
            Some(sides) => self.dims(sides, Some(self.pipeline.channels())),
            None => [None; 3],
        };
        FieldSpec::new(name, self.dtype(), &dims)
    }

    /// Augments one picture or mask with numbers of this type as the key determines for pictures of this height and
    /// width.
    fn augment(
        &self,
        (sample, name, dtype): (&mut Sample<'_>, &Arc<str>, DType),
        size: (u32, u32),
        slots: &mut Slots<'_>,
        key: u64,
        work: &mut Workspace,
    ) -> Result<(), StageFailure> {
        let Some(Value::Pixels(pixels)) = sample.get(name) else {
            return Err(NO_PICTURE.into());
        };
        let (height, width) = pixels.whole_size();
        if (height, width) != size {
            return Err(format!(
                "its `{name}` has {height} × {width} pixels, the picture {} × {}; store both in one size",
                size.0, size.1
            )
            .into());
        }
        let (channels, dtype) = match is_mask(name) {
            true => (pixels.channels(), dtype),
            false => (self.pipeline.channels(), self.dtype()),
        };
        let (height, width) = self.pipeline.output_size(size.0, size.1)?;
        let dims = self.dims([height as usize, width as usize], channels);
        let elements: usize = dims.iter().product();
        if let Some(slot) = slots.take(name) {
            if slot.len() != elements * dtype.bytes() {
                let text =
                    format!("its `{name}` differs from the others in the number of channels");
                return Err(text.into());
            }
            self.write(name, pixels, key, work, slot)?;
            sample.finish(name);
            return Ok(());
        }
        let value = if dtype == DType::F32 && !is_mask(name) {
            let mut values = vec![0.0_f32; elements];
            self.write(
                name,
                pixels,
                key,
                work,
                bytemuck::cast_slice_mut(&mut values),
            )?;
            Value::Floats(dims.to_vec(), Cow::Owned(values))
        } else {
            let mut bytes = vec![0; elements * dtype.bytes()];
            self.write(name, pixels, key, work, &mut bytes)?;
            Value::Numbers(dtype, dims.to_vec(), Cow::Owned(bytes))
        };
        sample.set(name, value);
        Ok(())
    }

    /// Moves the boxes of a field as the key moves the pixels of pictures of this height and width.
    fn move_boxes(
        &self,
        (sample, name): (&mut Sample<'_>, &Arc<str>),
        size: (u32, u32),
        key: u64,
    ) -> Result<(), StageFailure> {
        let (dtype, dims, bytes) = match sample.get(name) {
            Some(value @ (Value::Floats(..) | Value::Numbers(..))) => {
                (value.dtype(), value.dims(), value.bytes())
            }
            _ => return Ok(()),
        };
        if dims.is_empty() {
            return Ok(());
        }
        // Without a box the width is unknown.
        let dims = if bytes.is_empty() { vec![0, 4] } else { dims };
        if !is_box(name) || dims.last() != Some(&4) {
            return Err(format!(
                "its `{name}` has {} and would stay as it is while its picture is cropped, resized or turned: make rows of left, top, right and bottom in pixels of it, in a field whose name begins with `box`, or leave it out",
                spelled(&dims.into_iter().map(Some).collect::<Vec<_>>())
            )
            .into());
        }
        let values = bytes.chunks_exact(dtype.bytes());
        let mut values: Vec<f32> = values
            .map(|bytes| element_value(dtype, bytes) as f32)
            .collect();
        let (boxes, _) = values.as_chunks_mut::<4>();
        check_boxes(boxes).map_err(|what| format!("its `{name}` {what}"))?;
        self.pipeline.apply_to_boxes(size, key, boxes)?;
        sample.set(name, Value::Floats(dims, Cow::Owned(values)));
        Ok(())
    }

    fn write(
        &self,
        name: &str,
        pixels: &Pixels,
        key: u64,
        work: &mut Workspace,
        out: &mut [u8],
    ) -> Result<(), StageFailure> {
        if is_mask(name) {
            return Ok(self.pipeline.apply_to_mask(pixels, key, work, out)?);
        }
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
                "augmentation needs pictures, a field `image` of uint8 or uint16, and the data has {others}; decode pictures with `decode` image, or leave `augment` out"
            ));
        };
        let image = &input.0[place];
        let size = match (image.dtype, arranged(&image.dims)) {
            (DType::U8 | DType::U16, Some(([height, width, None | Some(1 | 3)], _))) => {
                height.zip(width).map(|(h, w)| (h as u32, w as u32))
            }
            _ => {
                return Err(format!(
                    "augmentation needs pictures as arrays of height × width × channels with 1 or 3 channels, of uint8 or uint16, which it scales to 8 bits, and `{}` has {} of {}; convert them, call them mask_{0} where only their pixels should move, or leave `augment` out",
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
        input.0[place] = self.spec_of(IMAGE, (DType::U8, &[]), known);
        for (other, field) in input.0.iter_mut().enumerate() {
            if is_box(&field.name) && self.pipeline.moves_pixels() && field.dtype != DType::U8 {
                field.dtype = DType::F32;
            }
            if other == place || !(2..=3).contains(&field.dims.len()) {
                continue;
            }
            if !is_picture(&field.name) {
                let is_left = field.dtype == DType::U8 || self.pipeline.moves_pixels();
                check_apart(field, size.filter(|_| is_left))?;
                continue;
            }
            if !is_mask(&field.name) && !matches!(field.dtype, DType::U8 | DType::U16) {
                return Err(format!(
                    "pictures are augmented as bytes, and `{}` has {}; store it as uint8 or uint16, or call it mask_{0} if only its pixels should move",
                    field.name, field.dtype
                ));
            }
            *field = self.spec_of(&field.name, (field.dtype, &field.dims), known);
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
            self.take_pixels(sample, &found, &self.name, at.first)?;
        }
        let size = match sample.get(IMAGE) {
            Some(Value::Pixels(pixels)) => pixels.whole_size(),
            _ => return Err(NO_PICTURE.into()),
        };
        let names = sample.iter().map(|(name, _)| name);
        let names: Vec<Arc<str>> = names.filter(|name| is_picture(name)).cloned().collect();
        if self.pipeline.moves_pixels() {
            let others = sample
                .iter()
                .filter(|(name, _)| !is_picture(name) && !is_box(name));
            for (name, value) in others {
                if let [height, width] | [height, width, _] = value.dims()[..]
                    && (height, width) == (size.0 as usize, size.1 as usize)
                {
                    return Err(apart(name).into());
                }
            }
            let names = sample.iter().map(|(name, _)| name);
            let names = names.filter(|name| names_places(name));
            for name in &names.cloned().collect::<Vec<Arc<str>>>() {
                self.move_boxes((sample, name), size, at.key)?;
            }
        }
        for name in &names {
            let Some(value) = sample.get(name) else {
                continue;
            };
            let dtype = value.dtype();
            match value {
                Value::Pixels(_) => (),
                value if (2..=3).contains(&value.dims().len()) => {
                    self.take_pixels(sample, name, name, at.first)?;
                }
                _ => continue,
            }
            if !is_mask(name)
                && let Some(Value::Pixels(pixels)) = sample.get_mut(name)
                && pixels.value_bytes() > 1
                && pixels.to_mut().scale_to_bytes()
            {
                // Later epochs and copies have the same pictures.
                self.count(0, at.first);
            }
            self.augment((sample, name, dtype), size, slots, at.key, work)?;
        }
        Ok(())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        let remarks = AugmentImages::REMARKS.iter().zip(&self.remarked);
        remarks
            .map(|((name, _), count)| (*name, count.load(Relaxed)))
            .collect()
    }
}

impl AugmentImages {
    fn count(&self, remark: usize, first: bool) {
        let before = self.remarked[remark].fetch_add(u64::from(first), Relaxed);
        if first && before == 0 {
            tracing::warn!("{}", AugmentImages::REMARKS[remark].1);
        }
    }

    /// Replaces a field of numbers by its pixels, under a name of pictures.
    fn take_pixels(
        &self,
        sample: &mut Sample<'_>,
        name: &Arc<str>,
        image: &Arc<str>,
        first: bool,
    ) -> Result<(), StageFailure> {
        let mut pixels = sample.new_pixels();
        let value = sample.get(name).ok_or(NO_PICTURE)?;
        let (dtype, dims) = (value.dtype(), value.dims());
        let known: Vec<Option<usize>> = dims.iter().copied().map(Some).collect();
        let ([Some(height), Some(width), Some(channels)], layout) =
            arranged(&known).ok_or(NO_PICTURE)?
        else {
            return Err(NO_PICTURE.into());
        };
        let is_picture = matches!(dtype, DType::U8 | DType::U16) && matches!(channels, 1 | 3);
        if !is_mask(image) && !is_picture {
            return Err(format!(
                "its picture `{name}` has {} of {dtype}, not height × width × channels with 1 or 3 channels of uint8 or uint16; convert it in a function with before_augmentation, or call it mask_{name} if only its pixels should move",
                spelled(&known)
            )
            .into());
        }
        if value.bytes().is_empty() {
            return Err(format!("its picture `{name}` has no pixels").into());
        }
        // Lengths are stored as 32-bit numbers.
        let shape = (height as u32, width as u32, channels);
        pixels.set_numbers(shape, dtype.bytes(), layout, value.bytes());
        if layout == Layout::Chw {
            self.count(1, first);
        }
        if name != image {
            sample.remove(name);
        }
        sample.set(image, Value::Pixels(Cow::Owned(pixels)));
        Ok(())
    }
}

/// Height, width and channels of a picture with these dimensions, if it may be one, and their layout: channels are last,
/// unless only the first dimension can be the channels.
fn arranged(dims: &[Option<usize>]) -> Option<([Option<usize>; 3], Layout)> {
    let can_be = |length: Option<usize>| matches!(length, None | Some(1 | 3 | 4));
    match *dims {
        [height, width] => Some(([height, width, Some(1)], Layout::Hwc)),
        [channels @ Some(_), height, width] if can_be(channels) && !can_be(width) => {
            Some(([height, width, channels], Layout::Chw))
        }
        [height, width, channels] => Some(([height, width, channels], Layout::Hwc)),
        _ => None,
    }
}

const NO_PICTURE: &str = "there is no picture to augment";

/// Name, element type and number of dimensions of a field: they decide whether it is a picture.
type Kind<'a> = (&'a str, DType, usize);

/// The index of the field that is the picture.
fn picture(fields: &[Kind<'_>]) -> Option<usize> {
    let named = fields.iter().position(|(name, ..)| *name == IMAGE);
    let fits = |(name, dtype, dims): &Kind<'_>| {
        matches!(dtype, DType::U8 | DType::U16) && (2..=3).contains(dims) && !is_mask(name)
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

/// Refuses a picture that would stay unaugmented while the pictures of this size are augmented.
fn check_apart(field: &FieldSpec, size: Option<(u32, u32)>) -> Result<(), String> {
    let known = size.map(|(height, width)| [height as usize, width as usize].map(Some));
    let looks_so = match field.dims[..] {
        // Decoded, of any size.
        [None, None, None | Some(1 | 3)] => field.dtype == DType::U8,
        [height, width] | [height, width, _] => Some([height, width]) == known,
        _ => false,
    };
    if looks_so {
        return Err(apart(&field.name));
    }
    Ok(())
}

/// The sentence about such a field.
fn apart(name: &str) -> String {
    format!(
        "`{name}` is a second picture, and would not be augmented with the first: call it image_{name}, or mask_{name} if its values are classes, depths or the like, as in `decode` image=SOURCE,image_{name}=SOURCE, or leave it out"
    )
}

/// Refuses kinds of boxes that cannot be moved.
fn check_boxes(boxes: &[[f32; 4]]) -> Result<(), String> {
    if let Some(wrong) = boxes
        .iter()
        .find(|corners| !corners.iter().all(|at| at.is_finite()))
    {
        return Err(format!(
            "has the box {wrong:?}, which is not finite; leave it out, or the record"
        ));
    }
    if let Some(wrong) = boxes.iter().find(|[x1, y1, x2, y2]| x2 < x1 || y2 < y1) {
        return Err(format!(
            "has the box {wrong:?}, which ends before it begins: rows are left, top, right and bottom, not left, top, width and height; convert them in a function with before_augmentation"
        ));
    }
    let most = boxes.as_flattened().iter().copied().fold(0.0, f32::max);
    if most > 0.0 && most <= 1.0 {
        return Err("has boxes within one pixel, as shares of the sides are: rows are left, top, right and bottom in pixels; multiply them by the sides in a function with before_augmentation".to_owned());
    }
    Ok(())
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

/// Dimensions as text.
fn spelled(dims: &[Option<usize>]) -> String {
    let length =
        |length: &Option<usize>| length.map_or("?".to_owned(), |length| length.to_string());
    let lengths: Vec<String> = dims.iter().map(length).collect();
    lengths.join(" × ")
}
