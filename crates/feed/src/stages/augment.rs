//! Augmentation of pictures.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_image::{Layout, Output, Pipeline, Pixels, Workspace};

use super::IMAGE;
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure, When};

/// Crops, flips, resizes, colours and normalises the field "image", anew at each appearance.
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

    fn dtype(&self) -> DType {
        match self.pipeline.normalises() {
            true => DType::F32,
            false => DType::U8,
        }
    }

    fn dims(&self, (height, width): (u32, u32)) -> Vec<usize> {
        let (height, width) = (height as usize, width as usize);
        match self.pipeline.layout() {
            Layout::Hwc => vec![height, width, self.pipeline.channels()],
            Layout::Chw => vec![self.pipeline.channels(), height, width],
        }
    }

    fn write(
        &self,
        pixels: &Pixels,
        key: u64,
        work: &mut Workspace,
        out: &mut [u8],
    ) -> Result<(), StageFailure> {
        let out = match self.pipeline.normalises() {
            true => Output::Floats(
                bytemuck::try_cast_slice_mut(out).map_err(|error| error.to_string())?,
            ),
            false => Output::Bytes(out),
        };
        Ok(self.pipeline.apply(pixels, key, work, out)?)
    }
}

impl Stage for AugmentImages {
    fn name(&self) -> &'static str {
        "augment"
    }

    fn spec(&self, mut input: FieldSpecs) -> Result<FieldSpecs, String> {
        let Some(image) = input.get(IMAGE) else {
            return Err(format!(
                "augmentation is for pictures, and here are {}; decode them with `decode` image, or leave `augment` out",
                input.names()
            ));
        };
        let size = match image.dims[..] {
            [Some(height), Some(width), _] => Some((height as u32, width as u32)),
            _ => None,
        };
        let known = match (self.pipeline.fixed_size(), size) {
            (Some(size), _) => Some(size),
            (None, Some((height, width))) => self.pipeline.output_size(height, width).ok(),
            (None, None) => None,
        };
        let dims: Vec<Option<usize>> = match known {
            Some(size) => self.dims(size).into_iter().map(Some).collect(),
            None => vec![None; 3],
        };
        input.replace(IMAGE, FieldSpec::new(IMAGE, self.dtype(), &dims));
        Ok(input)
    }

    fn when(&self) -> When {
        When::Appearance
    }

    fn makes_one_shape(&self) -> bool {
        true
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
        let Some(Value::Pixels(pixels)) = sample.get(IMAGE) else {
            return Err("there is no picture to augment".into());
        };
        if let Some(slot) = slots.take(IMAGE) {
            self.write(pixels, at.key, work, slot)?;
            sample.finish(IMAGE);
            return Ok(());
        }
        let dims = self.dims(self.pipeline.output_size(pixels.height(), pixels.width())?);
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
