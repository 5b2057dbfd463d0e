//! A trained net that answers requests: bodies to inputs, inputs to features, features to classes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pelton_batch::{Array, Buffer, DType, Shape};
use pelton_feed::Exif;
use pelton_format::ClassMap;
use pelton_image::{Augment, ImageError, Limits, Output, Pipeline, Pixels, Workspace};
use pelton_nn::{Flow, Input, Trainer};
use pelton_softmax::{ClassIndex, compared};
use pelton_train::TrainError;
use pelton_train::finished::{Classifier, Ranked, best_classes};
use pelton_train::image::sizes;
use rayon::ThreadPool;
use rayon::prelude::*;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::question::{Asked, Question, Refusal, Rows};
use crate::queue::Reply;

/// Most inputs that go through the net at once.
const PASS: usize = 256;
/// Most numbers of these inputs, of their logits, and of what is kept of their best classes.
const PASS_NUMBERS: usize = 1 << 19;
/// Numbers for each class that is kept, which is copied while threads search.
const PER_BEST: usize = 16;
/// Most numbers of an answer with features: about 1.5 MB of text.
const MOST_FEATURES: usize = 1 << 17;
/// Pixels of the largest picture that is decoded.
const MOST_PIXELS: u64 = 50_000_000;
/// Pixels of pictures that threads decode side by side; larger ones are decoded one after the other.
const FEW_PIXELS: u64 = 2_000_000;

/// The net and its pre- and postprocessing.
pub(crate) struct Engine {
    pub(crate) trainer: Box<dyn Trainer>,
    /// Finds the classes of the features that the net makes; a net without ranks by itself.
    pub(crate) index: Option<ClassIndex<u16>>,
    /// The run, which has the exact vectors.
    pub(crate) run: Classifier,
    /// The mean that its head takes off features; empty where it takes off none.
    pub(crate) mean: Vec<f32>,
    pub(crate) pool: ThreadPool,
    pub(crate) reader: Reader,
    /// Bytes of answers that may wait for clients to take them.
    pub(crate) room: Arc<Semaphore>,
}

/// Bytes of bodies that are read together: numbers take up to twice as many until they are ranked.
const BODIES: usize = 1 << 20;
/// Bytes of answers that clients have not taken yet; more are refused. The largest have about half as many.
pub(crate) const ROOM: usize = 4 << 20;

/// Makes inputs of bodies.
pub(crate) struct Reader {
    pub(crate) input: Flow,
    /// The processing of pictures, without randomness, for the channels of the net.
    pub(crate) pictures: Pipeline,
    pub(crate) exif: Exif,
    /// Default number of classes in an answer.
    pub(crate) top: usize,
    /// Numbers of the features that are compared with classes, if there are such.
    pub(crate) features: Option<usize>,
    /// Held while a large picture is decoded.
    pub(crate) large: Mutex<()>,
}

/// A question as the net takes it.
struct Prepared {
    /// Row by row.
    values: Vec<f32>,
    rows: usize,
    k: Option<usize>,
}

/// What a row of a pass came to.
enum Made {
    Classes(Ranked),
    Features(Vec<f32>),
}

/// A question that is being answered.
struct Open {
    prepared: Prepared,
    /// Rows that are answered.
    done: usize,
    text: Vec<u8>,
    reply: Reply<Told>,
    /// Whether a row has a NaN score.
    failed: bool,
}

/// The text of an answer, which has its room until it is written.
pub(crate) struct Text {
    text: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The text of an answer and the rows it answers, or why there is none.
pub(crate) type Told = Result<(Text, u64), Refusal>;

#[derive(Serialize)]
struct Class {
    class: u64,
    label: String,
    score: f32,
}

impl Engine {
    /// Answers requests together, as many as have [`BODIES`] bytes, and then the next.
    pub(crate) fn answer<B: AsRef<[u8]> + Send>(&mut self, asked: Vec<(Asked<B>, Reply<Told>)>) {
        let mut asked = asked.into_iter().peekable();
        while asked.peek().is_some() {
            let mut bytes = 0;
            let together = std::iter::from_fn(|| {
                asked.next_if(|(one, _)| {
                    let first = bytes == 0;
                    bytes += one.body.as_ref().len().max(1);
                    first || bytes <= BODIES
                })
            });
            let together = together.collect();
            self.answer_together(together);
        }
    }

    /// Answers each request as soon as its rows are ranked.
    ///
    /// Memory: [`PASS_NUMBERS`] a few times, the text of one answer, and the [`ROOM`] of those that are complete.
    /// Requests whose clients have gone are dropped between two passes.
    fn answer_together<B: AsRef<[u8]> + Send>(&mut self, asked: Vec<(Asked<B>, Reply<Told>)>) {
        let began = Instant::now();
        let Engine {
            trainer,
            index,
            run,
            mean,
            pool,
            reader,
            room,
        } = self;
        let logits = run.config.head.as_ref().map(|head| head.logits);
        let logits = logits.unwrap_or_default();
        let width: usize = sizes(reader.input).iter().product();
        pool.install(|| {
            let prepare = |(asked, reply): (Asked<B>, Reply<Told>)| {
                if reply.is_closed() {
                    return None;
                }
                match reader.prepare(&asked) {
                    Ok(prepared) => Some(Open::new(prepared, reply)),
                    Err(refusal) => {
                        reply.send(Err(refusal));
                        None
                    }
                }
            };
            let open: Vec<Open> = asked.into_par_iter().filter_map(prepare).collect();
            let (classes, features): (VecDeque<Open>, VecDeque<Open>) =
                open.into_iter().partition(|one| one.prepared.k.is_some());
            for mut open in [classes, features] {
                loop {
                    open.retain(|one| !one.reply.is_closed());
                    let Some(k) = open.iter().map(|one| one.prepared.k).max() else {
                        break;
                    };
                    let outputs = trainer.net().classes;
                    let most = PASS_NUMBERS / width.max(PER_BEST * k.unwrap_or(1)).max(outputs);
                    let values = next_rows(&open, width, most.clamp(1, PASS));
                    let index = index.as_ref().map(|index| (index, &*run));
                    let passed = with_input(reader.input, &values, |input| match k {
                        Some(k) => rank(trainer.as_mut(), index, input, k),
                        None => {
                            let features = trainer.logits(input)?;
                            let features = compared(&features, outputs, mean, logits);
                            let rows = features.chunks_exact(outputs);
                            Ok(rows.map(|row| Made::Features(row.to_vec())).collect())
                        }
                    });
                    match passed {
                        Ok(outputs) => {
                            for row in &outputs {
                                tell(&mut open, row, &run.labels, room, began);
                            }
                        }
                        Err(error) => {
                            for one in open.drain(..) {
                                one.reply.send(Err(Refusal::new(500, error.to_string())));
                            }
                        }
                    }
                }
            }
        })
    }
}

impl Open {
    fn new(prepared: Prepared, reply: Reply<Told>) -> Open {
        Open {
            prepared,
            done: 0,
            text: b"{\"results\":".to_vec(),
            failed: false,
            reply,
        }
    }
}

/// The values of the next rows, `most` at most.
fn next_rows(open: &VecDeque<Open>, width: usize, most: usize) -> Vec<f32> {
    let mut values = Vec::new();
    for one in open {
        let rest = &one.prepared.values[one.done * width..];
        let room = most * width - values.len();
        values.extend(&rest[..rest.len().min(room)]);
    }
    values
}

/// Adds a row to the first answer, and sends that once it is complete.
fn tell(
    open: &mut VecDeque<Open>,
    made: &Made,
    labels: &ClassMap,
    room: &Arc<Semaphore>,
    began: Instant,
) {
    let one = open
        .front_mut()
        .expect("an answer for each row of the pass");
    one.failed |= match made {
        // A head that met no number ranks nothing.
        Made::Classes(ranked) => {
            ranked.is_empty() || ranked.iter().any(|(_, score)| !score.is_finite())
        }
        Made::Features(features) => !features.iter().all(|x| x.is_finite()),
    };
    if !one.failed {
        one.text.push(if one.done == 0 { b'[' } else { b',' });
        let written = match made {
            Made::Classes(ranked) => {
                let ranked = ranked.iter().take(one.prepared.k.unwrap_or(0));
                let row = ranked.map(|&(class, score)| Class {
                    class,
                    label: labels.describe(class as u32),
                    score,
                });
                serde_json::to_writer(&mut one.text, &row.collect::<Vec<Class>>())
            }
            Made::Features(features) => serde_json::to_writer(&mut one.text, features),
        };
        written.expect("numbers and text");
    }
    one.done += 1;
    if one.done < one.prepared.rows {
        return;
    }
    let Some(mut one) = open.pop_front() else {
        return;
    };
    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
    one.text
        .extend(format!("],\"milliseconds\":{milliseconds}}}").bytes());
    let bytes = one.text.len().min(ROOM) as u32;
    let answer = match Arc::clone(room).try_acquire_many_owned(bytes) {
        _ if one.failed => Err(Refusal::new(
            400,
            "the net's outputs for this are not finite; send values like those it was trained on",
        )),
        Err(_) => Err(Refusal::new(
            503,
            "too many answers are waiting for their clients; try again in a second",
        )),
        Ok(room) => Ok((
            Text {
                text: one.text,
                _room: room,
            },
            one.prepared.rows as u64,
        )),
    };
    one.reply.send(answer);
}

/// Hands `take` the rows of a pass as the net takes them.
fn with_input<T>(input: Flow, values: &[f32], take: impl FnOnce(Input<'_>) -> T) -> T {
    let sizes = sizes(input);
    let width: usize = sizes.iter().product();
    let rows = values.len() / width.max(1);
    let shape = Shape::stacked(rows, &sizes);
    let array = Array::new(DType::F32, shape, Buffer::of(values));
    let none = vec![0; rows];
    take(match input {
        Flow::Image(..) => Input::Images {
            pixels: &array,
            labels: &none,
        },
        _ => Input::Vectors {
            values: &array,
            labels: &none,
        },
    })
}

/// The best classes of each row of a pass.
fn rank(
    trainer: &mut dyn Trainer,
    index: Option<(&ClassIndex<u16>, &Classifier)>,
    input: Input<'_>,
    k: usize,
) -> Result<Vec<Made>, TrainError> {
    let ranked = match index {
        Some((index, run)) => {
            index.search_exactly(&trainer.logits(input)?, k, &|class| run.vector(class))?
        }
        None => best_classes(trainer, input, k)?,
    };
    Ok(ranked.into_iter().map(Made::Classes).collect())
}

impl Reader {
    fn prepare<B: AsRef<[u8]>>(&self, asked: &Asked<B>) -> Result<Prepared, Refusal> {
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
        let Question { rows, k } = asked.read(width, self.top)?;
        if let (Rows::Vectors(vectors), None, Some(d)) = (&rows, k, self.features)
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
        match (rows, self.input) {
            (Rows::Vectors(vectors), Flow::Row(width)) => {
                if let Some((row, found)) = vectors.wrong {
                    return Err(Refusal::new(
                        400,
                        format!(
                            "vector {row} of `features` has {found} numbers; the net takes {width}"
                        ),
                    ));
                }
                Ok(Prepared {
                    values: vectors.values,
                    rows: vectors.count,
                    k,
                })
            }
            (Rows::Image(bytes), Flow::Image(height, width, channels)) => {
                let size = (height as u32, width as u32);
                let mut values = vec![0.0; height * width * channels];
                self.draw(&bytes, size, &mut values).map_err(|error| {
                    Refusal::new(400, format!("the image cannot be used: {error}"))
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

    /// A picture as the run measured its own. Images that would not have the net's input size are resized first.
    fn draw(&self, bytes: &[u8], size: (u32, u32), values: &mut [f32]) -> Result<(), ImageError> {
        let (mut pixels, mut work) = (Pixels::new(), Workspace::new());
        let mut decode = |most_pixels| {
            let limits = Limits { most_pixels };
            pelton_image::decode(bytes, &limits, &mut pixels)
        };
        let _alone = match decode(FEW_PIXELS) {
            Err(ImageError::TooManyPixels(_)) => {
                let alone = self.large.lock().unwrap_or_else(PoisonError::into_inner);
                decode(MOST_PIXELS)?;
                Some(alone)
            }
            decoded => {
                decoded?;
                None
            }
        };
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
        let mut stages = vec![Augment::Resize { height, width }];
        stages.extend(self.pictures.stages().iter().copied());
        Pipeline::new(stages)?.with_channels(self.pictures.channels())
    }
}
