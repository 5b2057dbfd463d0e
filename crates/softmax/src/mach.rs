//! Several small softmaxes over hashed classes (MACH: Medini et al., 2019): memory that grows with the logarithm of
//! the classes, for some accuracy.
//!
//! Every repetition hashes all classes into the same number of buckets and is a full softmax over them. A class is as
//! likely as the mean of its buckets says. Differs from the paper: the repetitions share one feature net.

use pelton_comm::{Comm, Reduction, share};
use pelton_key::mix;
use rayon::prelude::*;

use crate::chosen::{Best, ChosenHead, EVALUATED, best_of_all};
use crate::class_head::{ClassHead, HeadKind, HeadOptions, ReadRows, RowBlock};
use crate::error::HeadError;
use crate::head::Sums;
use crate::rows::Update;

/// Classes that a task scores.
const EACH: usize = 4096;

/// Which bucket a class falls into.
#[derive(Clone, Copy)]
struct Buckets {
    seed: u64,
    count: u64,
}

impl Buckets {
    fn of(self, repetition: usize, class: u64) -> u64 {
        mix(mix(self.seed ^ repetition as u64) ^ class) % self.count
    }

    /// The mean probability of a class's buckets, by example.
    fn score(self, probabilities: &[Vec<f32>], class: u64, scores: &mut [f32]) {
        let batch = scores.len();
        scores.fill(0.0);
        for (repetition, all) in probabilities.iter().enumerate() {
            let bucket = self.of(repetition, class) as usize;
            let row = &all[bucket * batch..][..batch];
            scores
                .iter_mut()
                .zip(row)
                .for_each(|(score, p)| *score += p);
        }
        let part = 1.0 / probabilities.len() as f32;
        scores.iter_mut().for_each(|score| *score *= part);
    }
}

pub(crate) struct Mach {
    options: HeadOptions,
    buckets: Buckets,
    heads: Vec<ChosenHead>,
    comm: Comm,
}

impl Mach {
    pub(crate) fn new(
        options: &HeadOptions,
        buckets: usize,
        repetitions: usize,
        comm: Comm,
    ) -> Result<Mach, HeadError> {
        let buckets = Buckets {
            seed: options.seed,
            count: (buckets as u64).min(options.classes),
        };
        let heads = (0..repetitions as u64).map(|repetition| {
            let options = HeadOptions {
                kind: HeadKind::Full,
                classes: buckets.count,
                seed: mix(options.seed ^ (repetition + 1)),
                ..*options
            };
            Ok(ChosenHead::new(&options, comm.duplicate()?))
        });
        Ok(Mach {
            heads: heads.collect::<Result<_, HeadError>>()?,
            options: *options,
            buckets,
            comm,
        })
    }

    fn hashed(&self, repetition: usize, labels: &[u64]) -> Vec<u64> {
        labels
            .iter()
            .map(|&label| self.buckets.of(repetition, label))
            .collect()
    }

    /// Probabilities of all buckets of each repetition, \[buckets, batch\], on all ranks.
    fn probabilities(&self, features: &[f32]) -> Result<Vec<Vec<f32>>, HeadError> {
        let batch = features.len() / self.options.d;
        let scale = self.options.logits.scale();
        let of_repetition = |head: &ChosenHead| {
            let mut own = Vec::new();
            head.head()
                .products(features, &mut |_, products| own.extend_from_slice(products))?;
            let mut all = self.comm.all_gather_ragged(&own)?.concat();
            let mut most = vec![f32::NEG_INFINITY; batch];
            let mut sums = vec![0.0f64; batch];
            for row in all.chunks_exact(batch) {
                most.iter_mut()
                    .zip(row)
                    .for_each(|(most, z)| *most = most.max(z * scale));
            }
            for row in all.chunks_exact_mut(batch) {
                for ((z, most), sum) in row.iter_mut().zip(&most).zip(&mut sums) {
                    *z = (*z * scale - most).exp();
                    *sum += f64::from(*z);
                }
            }
            for row in all.chunks_exact_mut(batch) {
                row.iter_mut()
                    .zip(&sums)
                    .for_each(|(p, sum)| *p /= *sum as f32);
            }
            Ok(all)
        };
        self.heads.iter().map(of_repetition).collect()
    }

    /// Classes that this rank scores.
    fn own(&self) -> std::ops::Range<u64> {
        let classes = self.options.classes as usize;
        let own = share(classes, self.comm.rank(), self.comm.size());
        own.start as u64..own.end as u64
    }

    /// Tasks of this rank's classes.
    fn tasks(&self) -> Vec<std::ops::Range<u64>> {
        let own = self.own();
        let starts = own.clone().step_by(EACH);
        starts
            .map(|from| from..(from + EACH as u64).min(own.end))
            .collect()
    }
}

impl ClassHead for Mach {
    fn classes(&self) -> u64 {
        self.options.classes
    }

    fn d(&self) -> usize {
        self.options.d
    }

    fn renew(&mut self, _: u64, _: &(dyn Fn() -> bool + Sync)) -> Result<(), HeadError> {
        Ok(())
    }

    fn select(&mut self, labels: &[u64], _: u64) -> Result<u64, HeadError> {
        let classes = self.options.classes;
        match labels.iter().position(|&label| label >= classes) {
            Some(example) => Err(HeadError::Label {
                example,
                label: labels[example],
                classes,
            }),
            None => Ok((self.buckets.count * self.heads.len() as u64).min(classes)),
        }
    }

    fn score(
        &mut self,
        features: &[f32],
        labels: &[u64],
        weight: f32,
    ) -> Result<(Sums, Vec<f32>), HeadError> {
        self.select(labels, 0)?;
        let parts = self.heads.len();
        let mut all = (Sums::default(), vec![0.0; features.len()]);
        for repetition in 0..parts {
            let hashed = self.hashed(repetition, labels);
            let head = &mut self.heads[repetition];
            let (sums, gradient) = head.score(features, &hashed, weight / parts as f32)?;
            all.0.loss += sums.loss / parts as f64;
            all.0.correct += sums.correct;
            all.1
                .iter_mut()
                .zip(gradient)
                .for_each(|(all, g)| *all += g);
        }
        // Of a batch, not of its repetitions.
        all.0.correct /= parts;
        Ok(all)
    }

    fn weigh(&mut self, micro_batch: usize, factor: f32) {
        let heads = self.heads.iter_mut();
        heads.for_each(|head| head.weigh(micro_batch, factor));
    }

    fn update(&mut self, update: &Update) -> Result<(), HeadError> {
        self.heads
            .iter_mut()
            .try_for_each(|head| head.update(update))
    }

    fn forget(&mut self) {
        self.heads.iter_mut().for_each(ClassHead::forget);
    }

    fn settle(&mut self) {
        self.heads.iter_mut().for_each(ClassHead::settle);
    }

    fn evaluate(&mut self, features: &[f32], labels: &[u64]) -> Result<Sums, HeadError> {
        self.select(labels, 0)?;
        let mut found = Sums::default();
        let parts = features.chunks(EVALUATED * self.options.d);
        for (features, labels) in parts.zip(labels.chunks(EVALUATED)) {
            let batch = labels.len();
            let (probabilities, buckets) = (self.probabilities(features)?, self.buckets);
            let of_task = |classes: std::ops::Range<u64>| {
                let (mut best, mut sum) = (vec![f32::NEG_INFINITY; batch], vec![0.0f64; batch]);
                let mut scores = vec![0.0; batch];
                for class in classes {
                    buckets.score(&probabilities, class, &mut scores);
                    for (i, &score) in scores.iter().enumerate() {
                        sum[i] += f64::from(score);
                        if class != labels[i] && score > best[i] {
                            best[i] = score;
                        }
                    }
                }
                (best, sum)
            };
            let tasks: Vec<_> = self.tasks().into_par_iter().map(of_task).collect();
            let (mut best, mut sum) = (vec![f32::NEG_INFINITY; batch], vec![0.0f64; batch]);
            for (task_best, task_sum) in tasks {
                best.iter_mut()
                    .zip(task_best)
                    .for_each(|(a, b)| *a = a.max(b));
                sum.iter_mut().zip(task_sum).for_each(|(a, b)| *a += b);
            }
            self.comm.all_reduce(&mut best, Reduction::Max)?;
            self.comm.all_reduce(&mut sum, Reduction::Sum)?;
            let mut scores = vec![0.0; batch];
            for (i, &label) in labels.iter().enumerate() {
                self.buckets.score(&probabilities, label, &mut scores);
                found.loss -= (f64::from(scores[i]) / sum[i]).max(1e-30).ln();
                found.correct += usize::from(scores[i] > best[i]);
            }
        }
        Ok(found)
    }

    fn top(&mut self, features: &[f32], k: usize) -> Result<Vec<Vec<(u64, f32)>>, HeadError> {
        let batch = features.len() / self.options.d;
        if batch == 0 {
            return Ok(vec![]);
        }
        let probabilities = self.probabilities(features)?;
        let mut best = vec![Best::new(k); batch];
        let mut scores = vec![0.0; batch];
        for class in self.own() {
            self.buckets.score(&probabilities, class, &mut scores);
            for (best, &score) in best.iter_mut().zip(&scores) {
                best.push(class, score);
            }
        }
        best_of_all(best, k, &self.comm)
    }

    fn save(&self) -> Vec<RowBlock> {
        let of_head = |(repetition, head): (usize, &ChosenHead)| {
            let blocks = head.save().into_iter();
            let named = blocks.map(move |block| RowBlock {
                name: format!("{repetition}.{}", block.name),
                ..block
            });
            named.collect::<Vec<_>>()
        };
        self.heads.iter().enumerate().flat_map(of_head).collect()
    }

    fn load(&mut self, read: &mut ReadRows<'_>) -> Result<(), HeadError> {
        for (repetition, head) in self.heads.iter_mut().enumerate() {
            head.load(&mut |name, rows| read(&format!("{repetition}.{name}"), rows))?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.heads.iter().map(ClassHead::bytes).sum()
    }

    fn graph_seconds(&self) -> f64 {
        0.0
    }

    fn communication_seconds(&self) -> f64 {
        self.heads
            .iter()
            .map(ClassHead::communication_seconds)
            .sum()
    }
}
