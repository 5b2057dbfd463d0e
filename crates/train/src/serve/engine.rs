//! A trained net that answers requests: bodies to inputs, inputs to features, features to classes.

use std::time::Instant;

use pelton_batch::{Array, Buffer, DType, Shape};
use pelton_feed::Exif;
use pelton_format::ClassMap;
use pelton_image::{Augment, Limits, Output, Pipeline, Pixels, Workspace};
use pelton_nn::{Flow, Input, Trainer};
use pelton_softmax::ClassIndex;
use rayon::ThreadPool;
use rayon::prelude::*;
use serde::Serialize;

use super::question::{Asked, Question, Refusal, Rows};
use crate::error::TrainError;
use crate::finished::{likeliest, softmax};
use crate::image::sizes;

/// Inputs that go through the net at once.
const PASS: usize = 256;
/// Pixels of the largest picture that is decoded.
const MOST_PIXELS: u64 = 50_000_000;

/// How classes are ranked by what the net makes.
pub(super) enum Ranking {
    /// It makes features, which are compared with class vectors.
    Vectors(ClassIndex),
    /// It has a head that tells the best classes.
    Head,
    /// It makes logits; scores are probabilities.
    Logits,
}

/// The net and what stands around it.
pub(super) struct Engine {
    pub(super) trainer: Box<dyn Trainer>,
    pub(super) ranking: Ranking,
    pub(super) labels: ClassMap,
    pub(super) pool: ThreadPool,
    pub(super) reader: Reader,
}

/// Makes inputs of bodies.
pub(super) struct Reader {
    pub(super) input: Flow,
    /// What is done with pictures, without chance; of the channels of the net.
    pub(super) pictures: Pipeline,
    pub(super) exif: Exif,
    /// Classes where a request does not say how many.
    pub(super) top: usize,
}

/// A question as the net takes it.
struct Prepared {
    /// Row by row.
    values: Vec<f32>,
    rows: usize,
    k: usize,
}

/// The best classes of one row with their scores.
type Ranked = Vec<(u64, f32)>;

#[derive(Serialize)]
struct Answer<'a> {
    results: Vec<Vec<Told<'a>>>,
    milliseconds: f64,
}

#[derive(Serialize)]
struct Told<'a> {
    class: u64,
    label: &'a str,
    score: f32,
}

impl Engine {
    /// Answers requests together: the text of each answer and the rows it answers, or why there is none.
    pub(super) fn answer<B: AsRef<[u8]> + Sync>(
        &mut self,
        asked: &[Asked<B>],
    ) -> Vec<Result<(String, u64), Refusal>> {
        let began = Instant::now();
        let Engine {
            trainer,
            ranking,
            labels,
            pool,
            reader,
        } = self;
        pool.install(|| {
            let read = |asked| reader.prepare(asked);
            let prepared: Vec<Result<Prepared, Refusal>> = asked.par_iter().map(read).collect();
            let good = || prepared.iter().flatten();
            let values: Vec<f32> = good().flat_map(|one| &one.values).copied().collect();
            let k = good().map(|one| one.k).max().unwrap_or(0);
            let ranked = rank(trainer.as_mut(), ranking, reader.input, &values, k);
            let mut ranked = ranked.map(Vec::into_iter);
            let milliseconds = began.elapsed().as_secs_f64() * 1e3;
            let told = prepared.into_iter().map(|one| {
                let one = one?;
                let rows = match &mut ranked {
                    Ok(rows) => rows.take(one.rows).collect::<Vec<_>>(),
                    Err(error) => return Err(Refusal::new(500, error.to_string())),
                };
                // A head that met no number ranks nothing.
                if rows.iter().flatten().any(|(_, score)| !score.is_finite()) || rows.iter().any(Vec::is_empty) {
                    let sentence = "the net makes no finite numbers of this; send values such as it was trained on";
                    return Err(Refusal::new(400, sentence));
                }
                Ok((text(&rows, one.k, labels, milliseconds), one.rows as u64))
            });
            told.collect()
        })
    }
}

/// The best classes of each row.
fn rank(
    trainer: &mut dyn Trainer,
    ranking: &Ranking,
    input: Flow,
    values: &[f32],
    k: usize,
) -> Result<Vec<Ranked>, TrainError> {
    let sizes = sizes(input);
    let width: usize = sizes.iter().product();
    let mut ranked = Vec::new();
    for values in values.chunks(PASS * width.max(1)) {
        let rows = values.len() / width.max(1);
        let shape = Shape::stacked(rows, &sizes);
        let array = Array::new(DType::F32, shape, Buffer::of(values));
        let none = vec![0; rows];
        let input = match input {
            Flow::Image(..) => Input::Images {
                pixels: &array,
                labels: &none,
            },
            _ => Input::Vectors {
                values: &array,
                labels: &none,
            },
        };
        match ranking {
            Ranking::Vectors(index) => {
                let features = trainer.logits(input)?;
                ranked.extend(index.search(&features, k));
            }
            Ranking::Head => ranked.extend(trainer.top(input, k)?),
            Ranking::Logits => {
                let logits = trainer.logits(input)?;
                ranked.extend(logits.chunks(logits.len() / rows).map(|row| {
                    let shares = softmax(row, 1.0);
                    let best = likeliest(row, k).into_iter();
                    best.map(|class| (class as u64, shares[class] as f32))
                        .collect::<Ranked>()
                }));
            }
        }
    }
    Ok(ranked)
}

fn text(rows: &[Ranked], k: usize, labels: &ClassMap, milliseconds: f64) -> String {
    let described: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .take(k)
                .map(|&(class, _)| labels.describe(class as u32))
                .collect()
        })
        .collect();
    let results = rows.iter().zip(&described).map(|(row, labels)| {
        let told = row.iter().zip(labels);
        told.map(|(&(class, score), label)| Told {
            class,
            label,
            score,
        })
        .collect()
    });
    let answer = Answer {
        results: results.collect(),
        milliseconds,
    };
    serde_json::to_string(&answer).expect("numbers and text")
}

impl Reader {
    fn prepare<B: AsRef<[u8]>>(&self, asked: &Asked<B>) -> Result<Prepared, Refusal> {
        let Question { rows, k } = asked.read(self.top)?;
        match (rows, self.input) {
            (Rows::Vectors(rows), Flow::Row(width)) => {
                if let Some(row) = rows.iter().position(|row| row.len() != width) {
                    let found = rows[row].len();
                    return Err(Refusal::new(
                        400,
                        format!(
                            "vector {row} of `features` has {found} numbers; the net takes {width}"
                        ),
                    ));
                }
                Ok(Prepared {
                    values: rows.concat(),
                    rows: rows.len(),
                    k,
                })
            }
            (Rows::Image(bytes), Flow::Image(height, width, channels)) => {
                let size = (height as u32, width as u32);
                let mut values = vec![0.0; height * width * channels];
                self.draw(&bytes, size, &mut values).map_err(|error| {
                    Refusal::new(400, format!("the image is of no use: {error}"))
                })?;
                Ok(Prepared { values, rows: 1, k })
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

    /// A picture as the run measured its own. What would come out in another size than the net's is resized first.
    fn draw(
        &self,
        bytes: &[u8],
        size: (u32, u32),
        values: &mut [f32],
    ) -> Result<(), pelton_image::ImageError> {
        let limits = Limits {
            most_pixels: MOST_PIXELS,
        };
        let (mut pixels, mut work) = (Pixels::new(), Workspace::new());
        pelton_image::decode(bytes, &limits, &mut pixels)?;
        if self.exif == Exif::Apply {
            pixels.turn_upright(pelton_image::orientation(bytes));
        }
        let out = Output::Floats(values);
        match self.pictures.output_size(pixels.height(), pixels.width()) {
            Ok(found) if found == size => self.pictures.apply(&pixels, 0, &mut work, out),
            _ => self.resized(size)?.apply(&pixels, 0, &mut work, out),
        }
    }

    /// The stages behind a resize to the size of the net, which they keep: otherwise they would fix another.
    fn resized(&self, (height, width): (u32, u32)) -> Result<Pipeline, pelton_image::ImageError> {
        let mut stages = vec![Augment::Resize { height, width }];
        stages.extend(self.pictures.stages().iter().copied());
        Pipeline::new(stages)?.with_channels(self.pictures.channels())
    }
}
