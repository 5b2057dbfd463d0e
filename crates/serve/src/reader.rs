//! Converts bodies to inputs of the net.

use pelton_feed::Exif;
use pelton_image::{Augment, ImageError, Limits, Output, Pipeline, Pixels, Workspace};
use pelton_nn::Flow;

use crate::question::{Asked, Question, Refusal, Rows};

/// Most numbers in an answer with features: about 1.5 MB of text.
const MOST_FEATURES: usize = 1 << 17;
/// Pixels of the largest picture to decode.
pub(crate) const MOST_PIXELS: u64 = 50_000_000;

/// Converts bodies to inputs.
pub(crate) struct Reader {
    pub(crate) input: Flow,
    /// The processing of pictures, without randomness, for the channels of the net.
    pub(crate) pictures: Pipeline,
    pub(crate) exif: Exif,
    /// Default number of classes in an answer.
    pub(crate) top: usize,
    /// Size of the features that are compared with classes, if there are any.
    pub(crate) features: Option<usize>,
}

/// The stage of a request.
pub(crate) enum Stage {
    Asked(Asked<Vec<u8>>),
    Read(Question),
    Prepared(Prepared),
}

/// A question as input of the net.
pub(crate) struct Prepared {
    /// The numbers row by row.
    pub(crate) values: Vec<f32>,
    pub(crate) rows: usize,
    pub(crate) k: Option<usize>,
}

impl Reader {
    /// Parses a request.
    pub(crate) fn read<B: AsRef<[u8]>>(&self, asked: &Asked<B>) -> Result<Question, Refusal> {
        let width = match self.input {
            Flow::Row(width) => width,
            _ => 0,
        };
        if asked.features && self.features.is_none() {
            return Err(Refusal::new(
                400,
                "this net has no features that are compared with classes; ask /v1/classify, or serve a run of `pelton train classify`",
            ));
        }
        let question = asked.read(width, self.top)?;
        if let (Rows::Vectors(vectors), None, Some(d)) = (&question.rows, question.k, self.features)
            && vectors.count * d > MOST_FEATURES
        {
            return Err(Refusal::new(
                400,
                format!(
                    "`features` contains {} vectors, and the answer would have {d} numbers for each, more than {MOST_FEATURES}; send at most {} vectors at once",
                    vectors.count,
                    (MOST_FEATURES / d).max(1)
                ),
            ));
        }
        Ok(question)
    }

    /// The question as input of the net; unchanged, if it is a picture of more than `most_pixels`.
    pub(crate) fn prepared(&self, question: Question, most_pixels: u64) -> Result<Stage, Refusal> {
        let k = question.k;
        match (question.rows, self.input) {
            (Rows::Vectors(vectors), Flow::Row(width)) => {
                if let Some((row, found)) = vectors.wrong {
                    return Err(Refusal::new(
                        400,
                        format!(
                            "vector {row} of `features` has {found} numbers; the net takes {width}"
                        ),
                    ));
                }
                Ok(Stage::Prepared(Prepared {
                    values: vectors.values,
                    rows: vectors.count,
                    k,
                }))
            }
            (Rows::Image(bytes), Flow::Image(height, width, channels)) => {
                let limits = Limits { most_pixels };
                let mut pixels = Pixels::new();
                let wrong = |error: ImageError| {
                    Refusal::new(400, format!("the image cannot be used: {error}"))
                };
                match pelton_image::decode(&bytes, &limits, &mut pixels) {
                    Err(ImageError::TooManyPixels(_)) if most_pixels < MOST_PIXELS => {
                        let rows = Rows::Image(bytes);
                        return Ok(Stage::Read(Question { rows, k }));
                    }
                    Err(ImageError::TooManyPixels(why)) => {
                        let sentence = format!("{why}; send a smaller one");
                        return Err(Refusal::new(413, sentence));
                    }
                    decoded => decoded.map_err(wrong)?,
                };
                let size = (height as u32, width as u32);
                let mut values = vec![0.0; height * width * channels];
                self.draw(pixels, &bytes, size, &mut values)
                    .map_err(wrong)?;
                Ok(Stage::Prepared(Prepared { values, rows: 1, k }))
            }
            (Rows::Image(_), _) => Err(Refusal::new(
                400,
                "the net takes vectors, not images; send `features`",
            )),
            (Rows::Vectors(_), _) => Err(Refusal::new(
                400,
                "the net takes images, not vectors; send `image`, or the bytes of a PNG, JPEG or WebP file",
            )),
        }
    }

    /// Processes a picture as in the run's evaluation. Images that would not have the net's input size are resized
    /// first.
    fn draw(
        &self,
        mut pixels: Pixels,
        bytes: &[u8],
        size: (u32, u32),
        values: &mut [f32],
    ) -> Result<(), ImageError> {
        let mut work = Workspace::new();
        if self.exif == Exif::Apply {
            pixels.turn_upright(pelton_image::orientation(bytes));
        }
        let out = Output::Floats(values);
        match self.pictures.output_size(pixels.height(), pixels.width()) {
            Ok(found) if found == size => self.pictures.apply(&pixels, 0, &mut work, out),
            _ => self.resized(size)?.apply(&pixels, 0, &mut work, out),
        }
    }

    /// The stages after a resize to the size of the net, if they keep that size.
    fn resized(&self, (height, width): (u32, u32)) -> Result<Pipeline, ImageError> {
        let resize: Augment = format!("resize:{height}x{width}").parse()?;
        let mut stages = vec![resize];
        stages.extend(self.pictures.stages().iter().copied());
        Pipeline::new(stages)?.with_channels(self.pictures.channels())
    }
}
