//! A trained net that answers requests: inputs to features, features to classes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelton_batch::{Array, Buffer, DType, Shape};
use pelton_format::ClassMap;
use pelton_nn::{Flow, Input, Trainer};
use pelton_softmax::{ClassIndex, compared};
use pelton_train::TrainError;
use pelton_train::finished::{Classifier, Ranked, best_classes};
use pelton_train::image::sizes;
use rayon::ThreadPool;
use rayon::prelude::*;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fair::{Line, Taken};
use crate::question::Refusal;
use crate::reader::{Prepared, Reader, Stage};
use crate::task::{Reply, SMALL_BODY, Task, Text};

/// Most requests that join the passes of the net at once.
const TOGETHER: usize = 64;
/// Most pixels of a picture that the answering thread decodes, in 0.2 ms.
const SMALL_PIXELS: u64 = 1 << 14;
/// Most inputs that go through the net at once.
const PASS: usize = 256;
/// Most numbers of these inputs, of their logits, and of their best classes.
const PASS_NUMBERS: usize = 1 << 19;
/// Numbers for each of the best classes, which are copied while threads search.
const PER_BEST: usize = 16;
/// Longest pass that requests may wait for, if its rows decide the time.
const PASS_TIME: Duration = Duration::from_millis(5);

/// The net and its pre- and postprocessing.
pub(crate) struct Engine {
    pub(crate) trainer: Box<dyn Trainer>,
    /// Finds the classes of the net's features; without an index the net ranks classes itself.
    pub(crate) index: Option<ClassIndex<u16>>,
    /// The run, with the exact vectors.
    pub(crate) run: Classifier,
    /// The mean that its head subtracts from features; empty if it subtracts none.
    pub(crate) mean: Vec<f32>,
    pub(crate) pool: ThreadPool,
    pub(crate) reader: Arc<Reader>,
    /// Bytes of answers that may wait for clients to receive them.
    pub(crate) room: Arc<Semaphore>,
    /// Questions for classes, and for features.
    pub(crate) open: [VecDeque<Open>; 2],
    pub(crate) pace: Pace,
}

/// Bytes of large answers that clients have not received yet; more are refused. The largest answers have about half
/// this size.
pub(crate) const ROOM: usize = 4 << 20;

/// The result of a row of a pass.
enum Made {
    Classes(Ranked),
    Features(Vec<f32>),
}

/// A question in progress.
pub(crate) struct Open {
    prepared: Prepared,
    /// Number of answered rows.
    done: usize,
    text: Vec<u8>,
    reply: Reply,
    began: Instant,
    /// Whether a row has a NaN score.
    failed: bool,
    _held: (Taken, Option<OwnedSemaphorePermit>),
}

#[derive(Serialize)]
struct Class {
    class: u64,
    label: String,
    score: f32,
}

impl Engine {
    /// Answers requests until the queue `answering` is closed.
    ///
    /// Pictures that take too long to decode here go to the queue `reading`.
    pub(crate) fn run(mut self, answering: &Line<Task>, reading: &Line<Task>) {
        loop {
            let is_idle = self.open.iter().all(VecDeque::is_empty);
            let joining = if is_idle {
                answering.take(TOGETHER)
            } else {
                answering.take_now(TOGETHER)
            };
            if is_idle && joining.is_empty() {
                return;
            }
            // A panic drops the replies of its questions; the thread continues with others.
            if catch_unwind(AssertUnwindSafe(|| self.turn(joining, reading))).is_err() {
                self.open = Default::default();
            }
        }
    }

    /// Lets requests join, and makes a pass over rows of classes and one over rows of features.
    fn turn(&mut self, joining: Vec<Task>, reading: &Line<Task>) {
        let reader = &self.reader;
        let advanced = |task: Task| task.advanced(reader, SMALL_PIXELS);
        let joining: Vec<Task> = self
            .pool
            .install(|| joining.into_par_iter().filter_map(advanced).collect());
        for task in joining {
            let client = task.client;
            match Open::new(task) {
                Ok(open) => self.open[usize::from(open.prepared.k.is_none())].push_back(open),
                // A large picture in a small file.
                Err(task) => reading.push(client, *task),
            }
        }
        for kind in 0..self.open.len() {
            self.pass(kind);
        }
    }

    /// Answers rows of the open questions, and sends questions once all their rows are answered.
    ///
    /// Memory: a few times [`PASS_NUMBERS`], the text of one long answer and of the short ones of a pass, and [`ROOM`]
    /// for complete answers. Requests of disconnected clients are dropped between two passes.
    fn pass(&mut self, kind: usize) {
        let Engine {
            trainer,
            index,
            run,
            mean,
            pool,
            reader,
            room,
            open,
            pace,
        } = self;
        let open = &mut open[kind];
        open.retain(|one| !one.reply.is_closed());
        let Some(k) = open.iter().map(|one| one.prepared.k).max() else {
            return;
        };
        let began = Instant::now();
        let logits = run.config.head.as_ref().map(|head| head.logits);
        let logits = logits.unwrap_or_default();
        let width: usize = sizes(reader.input).iter().product();
        let outputs = trainer.net().classes;
        let most = PASS_NUMBERS / width.max(PER_BEST * k.unwrap_or(1)).max(outputs);
        let most = most.clamp(1, pace.rows);
        let rest: Vec<usize> = open
            .iter()
            .map(|one| one.prepared.rows - one.done)
            .collect();
        let counts = rows_of_pass(&rest, most, pace.passes);
        let mut values = Vec::new();
        for (one, count) in open.iter().zip(&counts) {
            values.extend(&one.prepared.values[one.done * width..][..count * width]);
        }
        let index = index.as_ref().map(|index| (index, &*run));
        let passed = pool.install(|| {
            with_input(reader.input, &values, |input| match k {
                Some(k) => rank(trainer.as_mut(), index, input, k),
                None => {
                    let features = trainer.logits(input)?;
                    let features = compared(&features, outputs, mean, logits);
                    let rows = features.chunks_exact(outputs);
                    Ok(rows.map(|row| Made::Features(row.to_vec())).collect())
                }
            })
        });
        let mut made = passed.map(Vec::into_iter);
        let (mut rest, mut rows) = (VecDeque::new(), 0);
        for (mut one, count) in open.drain(..).zip(counts) {
            match &mut made {
                Err(error) if count > 0 => {
                    one.reply.send(Err(Refusal::new(500, error.to_string())));
                    continue;
                }
                Ok(made) => made
                    .take(count)
                    .for_each(|made| one.add(&made, &run.labels)),
                Err(_) => {}
            }
            rows += count;
            if one.done < one.prepared.rows {
                rest.push_back(one);
            } else {
                one.send(room);
            }
        }
        *open = rest;
        pace.passed(rows, most, began.elapsed());
    }
}

/// Number of rows that a pass takes of each question; `rest` has the rows left of each, in order of arrival.
///
/// A question with few rows joins the next pass together with one with many: questions with the fewest rows come first,
/// as long as all their rows fit. A quarter of the rows, or of the passes, is for the first question. Only that one is
/// answered in parts, so the text of only one partial answer is kept.
fn rows_of_pass(rest: &[usize], most: usize, pass: usize) -> Vec<usize> {
    let mut counts = vec![0; rest.len()];
    counts[0] = rest[0].min((most + 3 - pass % 4) / 4);
    let mut left = most - counts[0];
    let mut order: Vec<usize> = (1..rest.len()).collect();
    order.sort_by_key(|&at| rest[at]);
    for at in order {
        if rest[at] > left {
            break;
        }
        counts[at] = rest[at];
        left -= rest[at];
    }
    counts[0] += left.min(rest[0] - counts[0]);
    counts
}

/// Limits the rows of a pass, so that requests need not wait long for its end.
pub(crate) struct Pace {
    /// Most rows of the next pass.
    rows: usize,
    /// Passes so far.
    passes: usize,
    /// Recent time of a pass of one row.
    of_one: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            rows: 1,
            passes: 0,
            of_one: Duration::ZERO,
        }
    }
}

impl Pace {
    /// Adapts to the time of a pass of `rows` rows that could have had `most`.
    ///
    /// If a pass of one row takes longer than [`PASS_TIME`], as when comparing all classes, smaller passes would only
    /// slow down all requests.
    fn passed(&mut self, rows: usize, most: usize, took: Duration) {
        self.passes += 1;
        if rows == 1 {
            self.of_one = if self.of_one.is_zero() {
                took
            } else {
                (3 * self.of_one + took) / 4
            };
        }
        if took > PASS_TIME.max(2 * self.of_one) {
            self.rows = (rows / 2).max(1);
        } else if rows == self.rows && rows == most {
            self.rows = (2 * rows).min(PASS);
        }
    }
}

impl Open {
    /// The question of a prepared task; otherwise returns the task.
    fn new(task: Task) -> Result<Open, Box<Task>> {
        let Stage::Prepared(prepared) = task.stage else {
            return Err(Box::new(task));
        };
        Ok(Open {
            prepared,
            done: 0,
            text: b"{\"results\":".to_vec(),
            failed: false,
            reply: task.reply,
            began: task.began,
            _held: (task.place, task.room),
        })
    }

    /// Adds the answer for the next row.
    fn add(&mut self, made: &Made, labels: &ClassMap) {
        self.failed |= match made {
            // A head that meets NaN ranks no classes.
            Made::Classes(ranked) => {
                ranked.is_empty() || ranked.iter().any(|(_, score)| !score.is_finite())
            }
            Made::Features(features) => !features.iter().all(|x| x.is_finite()),
        };
        if !self.failed {
            self.text.push(if self.done == 0 { b'[' } else { b',' });
            let written = match made {
                Made::Classes(ranked) => {
                    let ranked = ranked.iter().take(self.prepared.k.unwrap_or(0));
                    let row = ranked.map(|&(class, score)| Class {
                        class,
                        label: labels.describe(class as u32),
                        score,
                    });
                    serde_json::to_writer(&mut self.text, &row.collect::<Vec<Class>>())
                }
                Made::Features(features) => serde_json::to_writer(&mut self.text, features),
            };
            written.expect("numbers and text");
        }
        self.done += 1;
    }

    /// Sends the complete answer.
    fn send(mut self, room: &Arc<Semaphore>) {
        let milliseconds = self.began.elapsed().as_secs_f64() * 1e3;
        self.text
            .extend(format!("],\"milliseconds\":{milliseconds}}}").bytes());
        // Answers that fit in the buffers of a connection need no room.
        let bytes = match self.text.len() {
            0..=SMALL_BODY => 0,
            bytes => bytes.min(ROOM) as u32,
        };
        let answer = match Arc::clone(room).try_acquire_many_owned(bytes) {
            _ if self.failed => Err(Refusal::new(
                400,
                "the net's outputs for this are not finite; send values like those it was trained on",
            )),
            Err(_) => Err(Refusal::new(
                503,
                "too many answers are waiting for their clients; try again in a second",
            )),
            Ok(room) => Ok((
                Text {
                    text: self.text,
                    _room: room,
                },
                self.prepared.rows as u64,
            )),
        };
        self.reply.send(answer);
    }
}

/// Calls `take` with the rows of a pass as input of the net.
fn with_input<T>(input: Flow, values: &[f32], take: impl FnOnce(Input<'_>) -> T) -> T {
    let sizes = sizes(input);
    let width: usize = sizes.iter().product();
    let rows = values.len() / width.max(1);
    let shape = Shape::stacked(rows, &sizes);
    let array = Array::new(DType::F32, shape, Buffer::from_slice(values));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_short_questions_first_and_a_part_of_the_oldest() {
        let check = |rest: &[usize], most, pass, expected: &[usize]| {
            assert_eq!(rows_of_pass(rest, most, pass), expected, "{rest:?} {most}");
        };
        check(&[3], 8, 0, &[3]);
        check(&[100], 8, 0, &[8]);
        // The oldest is long: it gets its quarter plus the remainder.
        check(&[100, 1, 2], 16, 0, &[13, 1, 2]);
        check(&[100, 90, 1, 12, 2], 16, 0, &[4 + 9, 0, 1, 0, 2]);
        check(&[100, 4, 4, 4, 4], 16, 0, &[4, 4, 4, 4, 0]);
        // With passes of one row, the oldest gets one in four.
        let firsts = (0..4).map(|pass| rows_of_pass(&[50, 1, 1], 1, pass));
        assert_eq!(
            firsts.collect::<Vec<_>>(),
            [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]]
        );
    }

    #[test]
    fn passes_are_as_long_as_one_may_wait() {
        let passes = |of_one: u64, of_row: u64, count: usize| {
            let mut pace = Pace::default();
            for _ in 0..count {
                let rows = pace.rows;
                let took = Duration::from_micros(of_one + of_row * rows as u64);
                pace.passed(rows, rows, took);
            }
            pace.rows
        };
        assert_eq!(passes(100, 1, 20), PASS);
        // Rows of 0.5 ms: about ten per pass.
        assert!((4..=16).contains(&passes(0, 500, 20)));
        assert!((4..=16).contains(&passes(0, 500, 21)));
        // Rows that cost little compared with the fixed cost of a pass.
        assert_eq!(passes(30_000, 50, 20), PASS);
        // A pass that is not full gives no information.
        let mut pace = Pace::default();
        for _ in 0..5 {
            pace.passed(1, 16, Duration::from_micros(10));
        }
        assert_eq!(pace.rows, 1);
    }
}
