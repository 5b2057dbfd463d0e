//! Hybrid parallel classification over very many classes: the data of a feature net is divided over the ranks, and
//! so are the classes of the head after it (Song et al., KDD 2020, section 3.1).
//!
//! For each micro-batch all ranks gather all features, score them against their classes, and get back the gradients of
//! their own features. With overlap a part's later micro-batches run forward while the features of earlier ones are
//! sent, and earlier ones run backward while the gradients of later ones are sent (section 3.3.1).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use pelton_comm::{Comm, Pending, Reduction, share};
use pelton_softmax::{ClassHead, HeadError, HeadOptions, Observed, ReadRows, RowBlock, class_head};

use crate::data_parallel::DataParallel;
use crate::error::NnError;
use crate::features::FeatureNet;
use crate::input::Input;
use crate::label_lists::LabelLists;
use crate::nets::Net;
use crate::operands::Counts;
use crate::optimiser::{Rule, Update};
use crate::parameters::NamedArray;
use crate::trainer::{Evaluated, HeadFigures, StepOptions, Trainer};
use crate::views::Views;

/// How micro-batches go through net and head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassifierOptions {
    /// Micro-batches that each rank's part of a batch is cut into.
    pub micro_batches: usize,
    /// Whether they overlap.
    pub overlap: bool,
    /// Learning rate of the head as a multiple of that of the net.
    pub head_rate: f32,
    /// Part of the gradients of the net's large parameters that is sent; 1 for all.
    pub density: f64,
}

pub(crate) struct Classifier {
    net: Box<dyn FeatureNet>,
    head: Box<dyn ClassHead>,
    comm: Comm,
    options: ClassifierOptions,
    /// Active classes of all micro-batches, and micro-batches.
    active: (u64, u64),
    head_s: f64,
    features_s: f64,
    waited_s: f64,
}

/// A micro-batch in progress.
struct Micro<'c> {
    /// Rows of each rank.
    counts: Vec<usize>,
    /// Labels of all ranks.
    labels: LabelLists,
    /// Numbers in transfer: features of all ranks, then gradients of this one's; padded to the rank with most rows.
    travelling: Option<Pending<'c, f32>>,
    /// The same on a single rank.
    here: Vec<f32>,
}

/// A net with outputs that are the features of a head over very many classes, both divided over the ranks of `comm`.
///
/// Errors: a head for another number of features, or that cannot be made.
pub fn classifier(
    net: Net,
    head: &HeadOptions,
    options: ClassifierOptions,
    seed: u64,
    comm: Comm,
) -> Result<Box<dyn Trainer>, NnError> {
    let head = class_head(head, comm.duplicate()?)?;
    let net = DataParallel::new(net, seed, comm.duplicate()?).with_density(options.density);
    Ok(Box::new(Classifier::new(
        Box::new(net),
        head,
        comm,
        options,
    )?))
}

impl Classifier {
    pub(crate) fn new(
        net: Box<dyn FeatureNet>,
        head: Box<dyn ClassHead>,
        comm: Comm,
        options: ClassifierOptions,
    ) -> Result<Classifier, NnError> {
        if net.net().classes != head.d() {
            return Err(NnError::Net(format!(
                "the net outputs {} features and the head takes {}",
                net.net().classes,
                head.d()
            )));
        }
        Ok(Classifier {
            net,
            head,
            comm,
            options,
            active: (0, 0),
            head_s: 0.0,
            features_s: 0.0,
            waited_s: 0.0,
        })
    }

    /// Labels of each part on each rank: [part][rank].
    fn labels(&self, parts: &[Option<Input<'_>>]) -> Result<Vec<Vec<LabelLists>>, NnError> {
        let mut message = Vec::new();
        for part in parts {
            part.map_or(LabelLists::default(), LabelLists::of)
                .write(&mut message);
        }
        let mut all = vec![Vec::new(); parts.len()];
        for from_rank in self.comm.all_gather_ragged(&message)? {
            let mut rest = &from_rank[..];
            for part in &mut all {
                part.push(LabelLists::read(&mut rest));
            }
        }
        Ok(all)
    }

    /// Reported by rank 0 only: sums of all ranks.
    fn reported(&self, loss: f64, correct: usize, rows: u64) -> Counts {
        match self.comm.rank() {
            0 => Counts {
                loss,
                rows,
                correct: correct as u64,
            },
            _ => Counts {
                rows,
                ..Counts::default()
            },
        }
    }
}

/// The rows of one rank among those of all.
fn own_rows(of_ranks: &[LabelLists], rank: usize) -> Range<usize> {
    let before = of_ranks[..rank].iter().map(LabelLists::rows).sum();
    before..before + of_ranks[rank].rows()
}

/// Runs and returns the seconds it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed().as_secs_f64())
}

impl Trainer for Classifier {
    fn net(&self) -> &Net {
        self.net.net()
    }

    fn observe(
        &mut self,
        what: Observed,
        input: Option<Input<'_>>,
        views: &mut Views,
    ) -> Result<(), NnError> {
        let (mut taken, mut own) = (Vec::new(), Vec::new());
        for (rank, labels) in self.labels(&[input])?.remove(0).into_iter().enumerate() {
            for (row, label) in labels.pairs() {
                if views.take(label) {
                    taken.push(label);
                    own.extend((rank == self.comm.rank()).then_some(row));
                }
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        let features = match input.filter(|_| !own.is_empty()) {
            Some(input) => {
                let part = input.part(own.into_iter()).expect("no words");
                self.net.logits(part.input())?
            }
            None => vec![],
        };
        let features = self.comm.all_gather_ragged(&features)?.concat();
        Ok(self.head.observe(what, &features, &taken)?)
    }

    fn begin_at_means(&mut self) -> Result<u64, NnError> {
        Ok(self.head.begin_at_means()?)
    }

    fn begin_epoch(&mut self, epoch: u64, stop: &(dyn Fn() -> bool + Sync)) -> Result<(), NnError> {
        self.net.begin_epoch(epoch, stop)?;
        Ok(self.head.renew(epoch, stop)?)
    }

    fn end_epoch(&mut self) {
        self.head.settle();
    }

    fn gradients(
        &mut self,
        parts: &[Option<Input<'_>>],
        options: &StepOptions<'_>,
    ) -> Result<Counts, NnError> {
        let labels = self.labels(parts)?;
        let every = labels.iter().flatten().flat_map(|own| &own.labels);
        let every: Vec<u64> = every.copied().collect();
        let apart = self.head.communication_seconds() + self.head.graph_seconds();
        let (selected, took) = timed(|| self.head.select(&every, options.key_of(usize::MAX)));
        selected?;
        self.head_s += took;

        let (rank, ranks, d) = (self.comm.rank(), self.comm.size(), self.head.d());
        let Classifier {
            net, head, comm, ..
        } = self;
        let micros = self.options.micro_batches.max(1);
        let ahead = if self.options.overlap { micros } else { 1 };
        let (mut loss, mut correct) = (0.0, 0);
        for (at, (input, labels)) in parts.iter().zip(&labels).enumerate() {
            let numbers: Vec<usize> = (0..micros).collect();
            for group in numbers.chunks(ahead) {
                let mut forward = VecDeque::new();
                for &micro in group {
                    let rows = |rank: usize| share(labels[rank].rows(), micro, micros);
                    let counts: Vec<usize> = (0..ranks).map(|rank| rows(rank).len()).collect();
                    let key = options.key_of(at * micros + micro);
                    let (features, took) = timed(|| match input.filter(|_| counts[rank] > 0) {
                        None => Ok(vec![]),
                        Some(input) if micros == 1 => net.forward(input, key),
                        Some(input) => {
                            let part = input.part(rows(rank)).expect("no words");
                            net.forward(part.input(), key)
                        }
                    });
                    let mut features = features?;
                    self.features_s += took;
                    let mut travelling = None;
                    if ranks > 1 {
                        features.resize(counts.iter().max().expect("a rank") * d, 0.0);
                        let sent = std::mem::take(&mut features);
                        travelling = Some(comm.start_all_gather(sent)?);
                    }
                    forward.push_back(Micro {
                        labels: (0..ranks)
                            .map(|rank| labels[rank].part(rows(rank)))
                            .collect(),
                        counts,
                        travelling,
                        here: features,
                    });
                }
                let mut backward = VecDeque::new();
                for mut micro in forward {
                    let (arrived, took) = timed(|| micro.arrived());
                    self.waited_s += took;
                    let features = micro.packed(&arrived?, d);
                    if micro.labels.rows() == 0 {
                        backward.push_back(micro);
                        continue;
                    }
                    let lists = &micro.labels;
                    let factors = lists.means(options.loss.factors(&lists.labels));
                    let (labels, scale) = (lists.labels(), options.loss.scale);
                    let (scored, took) =
                        timed(|| head.score(&features, labels, scale, Some(&factors)));
                    self.head_s += took;
                    self.active.0 += head.active();
                    self.active.1 += 1;
                    let gradient = match scored {
                        Ok((sums, gradient)) => {
                            loss += sums.loss;
                            correct += sums.correct;
                            gradient
                        }
                        // The same on all ranks, which end the run together.
                        Err(HeadError::NotFinite { .. }) => {
                            loss = f64::NAN;
                            vec![0.0; features.len()]
                        }
                        Err(error) => return Err(error.into()),
                    };
                    if ranks > 1 {
                        let sent = micro.padded(&gradient, d);
                        micro.travelling = Some(comm.start_reduce_scatter(sent, Reduction::Sum)?);
                    } else {
                        micro.here = gradient;
                    }
                    backward.push_back(micro);
                }
                for (mut micro, &number) in backward.into_iter().zip(group) {
                    let (arrived, took) = timed(|| micro.arrived());
                    self.waited_s += took;
                    let mut gradient = arrived?;
                    gradient.truncate(micro.counts[rank] * d);
                    let last = at + 1 == parts.len() && number + 1 == micros;
                    let gradient = (micro.counts[rank] > 0).then_some(gradient);
                    let (done, took) = timed(|| net.backward(gradient, last));
                    self.features_s += took;
                    done?;
                }
            }
        }
        let own = labels.iter().map(|part| part[rank].rows() as u64).sum();
        self.head_s -= self.head.communication_seconds() + self.head.graph_seconds() - apart;
        Ok(self.reported(loss, correct, own))
    }

    /// Of net and head together. The head is one more pass over the classes of the step.
    fn gradient_norm(&mut self) -> Result<f64, NnError> {
        let of_net = self.net.gradient_norm()?;
        let (of_head, took) = timed(|| self.head.gradient_square());
        self.head_s += took;
        Ok((of_net.powi(2) + of_head?).sqrt())
    }

    fn update(&mut self, update: &Update) -> Result<(), NnError> {
        let (done, took) = timed(|| self.net.update(update));
        self.features_s += took;
        done?;
        let rule = match update.rule {
            Rule::Sgd { momentum, nesterov } => pelton_softmax::Rule::Sgd { momentum, nesterov },
            Rule::Lars { momentum, trust } => pelton_softmax::Rule::Lars { momentum, trust },
            Rule::AdamW {
                mean_decay,
                square_decay,
                epsilon,
            } => pelton_softmax::Rule::AdamW {
                mean_decay,
                square_decay,
                epsilon,
            },
        };
        let update = pelton_softmax::Update {
            rule,
            rate: update.rate * self.options.head_rate,
            weight_decay: update.weight_decay,
            scale: update.scale,
        };
        let waited = self.head.communication_seconds();
        let (done, took) = timed(|| self.head.update(&update));
        self.head_s += took - (self.head.communication_seconds() - waited);
        Ok(done?)
    }

    fn forget(&mut self) {
        self.net.forget();
        self.head.forget();
    }

    fn evaluate(&mut self, input: Option<Input<'_>>) -> Result<Counts, NnError> {
        Ok(self.evaluate_each(input, 0)?.counts)
    }

    fn evaluate_each(
        &mut self,
        input: Option<Input<'_>>,
        best: usize,
    ) -> Result<Evaluated, NnError> {
        let of_ranks = self.labels(&[input])?.remove(0);
        let rank = self.comm.rank();
        let own = own_rows(&of_ranks, rank);
        let features = match input.filter(|_| !own.is_empty()) {
            Some(input) => self.net.logits(input)?,
            None => vec![],
        };
        let features = self.comm.all_gather_ragged(&features)?.concat();
        if features.is_empty() {
            return Ok(Evaluated::default());
        }
        let labels: LabelLists = of_ranks.into_iter().collect();
        let factors = labels.means(None);
        let measured = (self.head).evaluate(&features, labels.labels(), Some(&factors))?;
        let counts = self.reported(measured.loss, measured.correct(), own.len() as u64);
        let mut found = Evaluated {
            counts,
            right: measured.right[own.clone()].to_vec(),
            best: Vec::new(),
        };
        if best > 0 {
            let best = best.min(self.head.classes() as usize);
            let of_row = |row: Vec<(u64, f32)>| row.into_iter().map(|(class, _)| class).collect();
            let top = self.head.top(&features, best)?.into_iter();
            let top = top.skip(own.start).take(own.len());
            found.best = top.map(of_row).collect();
        }
        Ok(found)
    }

    fn logits(&mut self, _: Input<'_>) -> Result<Vec<f32>, NnError> {
        Err(NnError::Net(
            "a head over many classes returns the best classes, not all logits".to_string(),
        ))
    }

    fn top(&mut self, input: Input<'_>, k: usize) -> Result<Vec<Vec<(u64, f32)>>, NnError> {
        let features = self.net.logits(input)?;
        Ok(self.head.top(&features, k)?)
    }

    fn parameters(&self) -> Result<Vec<NamedArray>, NnError> {
        self.net.parameters()
    }

    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        self.net.set_parameters(saved)
    }

    fn state(&self) -> Result<Vec<NamedArray>, NnError> {
        self.net.state()
    }

    fn set_state(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        self.net.set_state(saved)
    }

    fn row_blocks(&self, state: bool) -> Vec<RowBlock<'_>> {
        let mut all = self.head.save(state);
        all.extend(self.net.row_blocks(state));
        all
    }

    fn set_row_blocks(&mut self, read: &mut ReadRows<'_>) -> Result<(), NnError> {
        self.net.set_row_blocks(read)?;
        Ok(self.head.load(read)?)
    }

    fn head(&self) -> Option<HeadFigures> {
        let (active, scored) = self.active;
        Some(HeadFigures {
            classes: self.head.classes(),
            scored,
            active,
            recall: self.head.recall(),
            head_s: self.head_s,
            features_s: self.features_s,
            communication_s: self.waited_s + self.head.communication_seconds(),
            graph_s: self.head.graph_seconds(),
        })
    }
}

impl Micro<'_> {
    /// The data received.
    fn arrived(&mut self) -> Result<Vec<f32>, NnError> {
        Ok(match self.travelling.take() {
            Some(pending) => pending.wait()?,
            None => std::mem::take(&mut self.here),
        })
    }

    /// Without the padding.
    fn packed(&self, all: &[f32], d: usize) -> Vec<f32> {
        let widest = self.counts.iter().max().expect("a rank") * d;
        let parts = all.chunks(widest.max(1)).zip(&self.counts);
        parts
            .flat_map(|(part, &rows)| part[..rows * d].iter().copied())
            .collect()
    }

    /// With it.
    fn padded(&self, packed: &[f32], d: usize) -> Vec<f32> {
        let widest = self.counts.iter().max().expect("a rank") * d;
        let mut all = Vec::with_capacity(widest * self.counts.len());
        let mut rest = packed;
        for &rows in &self.counts {
            let (part, after) = rest.split_at(rows * d);
            all.extend_from_slice(part);
            all.resize(all.len() + widest - part.len(), 0.0);
            rest = after;
        }
        all
    }
}
