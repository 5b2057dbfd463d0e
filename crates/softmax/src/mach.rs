//! Several small softmaxes over hashed classes (MACH: Medini et al., 2019): memory that grows with the logarithm of
//! the classes, for some accuracy.
//!
//! Every repetition hashes all classes into the same number of buckets and is a full softmax over them. The probability
//! of a class is the mean of its buckets'. Differs from the paper: the repetitions share one feature net.

use pelton_comm::{Comm, Reduction, share};
use pelton_key::mix;
use rayon::prelude::*;

use crate::best::{Best, best_of_all};
use crate::chosen::{ChosenHead, EVALUATED};
use crate::class_head::{ClassHead, HeadKind, HeadOptions, Observed, ReadRows, RowBlock};
use crate::error::HeadError;
use crate::head::{Measured, Sums};
use crate::labels::Labels;
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

    /// The logarithm of the same for one example, which may be too small for f32.
    fn log_score(self, logarithms: &[Vec<f32>], class: u64, example: usize, batch: usize) -> f64 {
        let of_repetition = |(repetition, all): (usize, &Vec<f32>)| {
            f64::from(all[self.of(repetition, class) as usize * batch + example])
        };
        let of_repetitions = || logarithms.iter().enumerate().map(of_repetition);
        let most = of_repetitions().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = of_repetitions().map(|x| (x - most).exp()).sum();
        most + (sum / logarithms.len() as f64).ln()
    }
}

/// Probabilities from their logarithms.
fn exponentials(mut logarithms: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let all = logarithms.iter_mut().flatten();
    all.for_each(|p| *p = p.exp());
    logarithms
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

    /// The buckets of each example's classes, how many it has, and the sum of the factors in each.
    fn merged(
        &self,
        repetition: usize,
        labels: Labels<'_>,
        factors: Option<&[f32]>,
    ) -> (Vec<u64>, Vec<usize>, Vec<f32>) {
        let (mut all, mut counts) = (Vec::new(), Vec::new());
        for own in labels.of_examples() {
            let each = own.map(|at| {
                let factor = factors.map_or(1.0, |factors| factors[at]);
                (self.buckets.of(repetition, labels.classes[at]), factor)
            });
            let mut buckets: Vec<(u64, f32)> = each.collect();
            buckets.sort_by_key(|(bucket, _)| *bucket);
            buckets.dedup_by(|next, kept| {
                let is_same = next.0 == kept.0;
                kept.1 += if is_same { next.1 } else { 0.0 };
                is_same
            });
            counts.push(buckets.len());
            all.extend(buckets);
        }
        let (buckets, factors) = all.into_iter().unzip();
        (buckets, counts, factors)
    }

    /// Logarithms of the probabilities of all buckets of each repetition, \[buckets, batch\], on all ranks.
    fn log_probabilities(&self, features: &[f32]) -> Result<Vec<Vec<f32>>, HeadError> {
        let batch = features.len() / self.options.d;
        let scale = self.options.logits.scale();
        let of_repetition = |head: &ChosenHead| {
            let mut own = Vec::new();
            head.products(features, &mut |_, products| own.extend_from_slice(products))?;
            let mut all = self.comm.all_gather_ragged(&own)?.concat();
            all.iter_mut().for_each(|z| *z *= scale);
            let mut most = vec![f32::NEG_INFINITY; batch];
            let mut sums = vec![0.0f64; batch];
            for row in all.chunks_exact(batch) {
                most.iter_mut()
                    .zip(row)
                    .for_each(|(most, z)| *most = most.max(*z));
            }
            for row in all.chunks_exact(batch) {
                for ((z, most), sum) in row.iter().zip(&most).zip(&mut sums) {
                    *sum += f64::from((*z - most).exp());
                }
            }
            for row in all.chunks_exact_mut(batch) {
                for ((z, most), sum) in row.iter_mut().zip(&most).zip(&sums) {
                    *z = (*z - most) - sum.ln() as f32;
                }
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

    fn observe(
        &mut self,
        what: Observed,
        features: &[f32],
        labels: &[u64],
    ) -> Result<(), HeadError> {
        self.select(labels, 0)?;
        for repetition in 0..self.heads.len() {
            let hashed = self.hashed(repetition, labels);
            self.heads[repetition].observe(what, features, &hashed)?;
        }
        Ok(())
    }

    /// Returns how many buckets of all repetitions have no example.
    fn begin_at_means(&mut self) -> Result<u64, HeadError> {
        self.heads.iter_mut().map(ClassHead::begin_at_means).sum()
    }

    fn mean(&self) -> Option<Vec<f32>> {
        self.heads.first().and_then(ClassHead::mean)
    }

    fn renew(&mut self, _: u64, _: &(dyn Fn() -> bool + Sync)) -> Result<(), HeadError> {
        Ok(())
    }

    fn select(&mut self, labels: &[u64], _: u64) -> Result<(), HeadError> {
        let classes = self.options.classes;
        match labels.iter().position(|&label| label >= classes) {
            Some(example) => Err(HeadError::Label {
                example,
                label: labels[example],
                classes,
            }),
            None => Ok(()),
        }
    }

    fn active(&self) -> u64 {
        (self.buckets.count * self.heads.len() as u64).min(self.options.classes)
    }

    fn score(
        &mut self,
        features: &[f32],
        labels: Labels<'_>,
        weight: f32,
        factors: Option<&[f32]>,
    ) -> Result<(Sums, Vec<f32>), HeadError> {
        self.select(labels.classes, 0)?;
        let parts = self.heads.len();
        let mut all = (Sums::default(), vec![0.0; features.len()]);
        for repetition in 0..parts {
            let (classes, counts, factors) = self.merged(repetition, labels, factors);
            let labels = Labels {
                classes: &classes,
                counts: Some(&counts),
            };
            let head = &mut self.heads[repetition];
            let weight = weight / parts as f32;
            let (sums, gradient) = head.score(features, labels, weight, Some(&factors))?;
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

    fn gradient_square(&mut self) -> Result<f64, HeadError> {
        self.heads.iter_mut().map(ClassHead::gradient_square).sum()
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

    fn evaluate(
        &mut self,
        features: &[f32],
        labels: Labels<'_>,
        factors: Option<&[f32]>,
    ) -> Result<Measured, HeadError> {
        self.select(labels.classes, 0)?;
        let mut found = Measured::default();
        let parts = features.chunks(EVALUATED * self.options.d);
        for (features, (indices, labels)) in parts.zip(labels.parts(EVALUATED)) {
            let batch = labels.examples();
            let (logarithms, buckets) = (self.log_probabilities(features)?, self.buckets);
            let of_examples: Vec<_> = labels.of_examples().collect();
            let owners = labels.owners();
            let own = owners.iter().zip(labels.classes);
            let own: Vec<f64> = own
                .map(|(&i, &label)| buckets.log_score(&logarithms, label, i, batch))
                .collect();
            let probabilities = exponentials(logarithms);
            let of_task = |classes: std::ops::Range<u64>| {
                let (mut best, mut sum) = (vec![f32::NEG_INFINITY; batch], vec![0.0f64; batch]);
                let mut scores = vec![0.0; batch];
                for class in classes {
                    buckets.score(&probabilities, class, &mut scores);
                    for (i, &score) in scores.iter().enumerate() {
                        sum[i] += f64::from(score);
                        let own = &labels.classes[of_examples[i].clone()];
                        if score > best[i] && !own.contains(&class) {
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
            found.right.resize(found.right.len() + batch, false);
            let right = found.right.len() - batch;
            for (at, (&i, &label)) in owners.iter().zip(labels.classes).enumerate() {
                self.buckets.score(&probabilities, label, &mut scores);
                let loss = sum[i].ln() - own[at];
                if !loss.is_finite() {
                    return Err(HeadError::NotFinite { example: i });
                }
                let factor = factors.map_or(1.0, |all| all[indices.start + at]);
                found.loss += loss * f64::from(factor);
                found.right[right + i] |= scores[i] > best[i];
            }
        }
        Ok(found)
    }

    fn top(&mut self, features: &[f32], k: usize) -> Result<Vec<Vec<(u64, f32)>>, HeadError> {
        let batch = features.len() / self.options.d;
        if batch == 0 {
            return Ok(vec![]);
        }
        let probabilities = exponentials(self.log_probabilities(features)?);
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

    fn save(&self, state: bool) -> Vec<RowBlock<'_>> {
        let mut all = Vec::new();
        for (repetition, head) in self.heads.iter().enumerate() {
            all.extend(head.save(state).into_iter().map(|block| RowBlock {
                name: format!("{repetition}.{}", block.name),
                ..block
            }));
        }
        all
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

#[cfg(test)]
mod tests {
    use pelton_comm::run_ranks;
    use pelton_kernels::Precision;
    use pelton_key::KeyedRng;

    use super::*;
    use crate::logits::{Logits, Margin};

    /// Losses of any scale against sums in f64 over the weights that the head saves, on several ranks.
    #[test]
    fn mach_evaluates_as_in_f64() {
        let (d, classes, labels) = (6, 40, [3u64, 9, 39, 9]);
        let mut rng = KeyedRng::new(2);
        let features: Vec<f32> = (0..labels.len() * d)
            .map(|_| 2.0 * rng.next_f64() as f32 - 1.0)
            .collect();
        for scale in [1.0f32, 60.0, 128.0, 1000.0] {
            let options = HeadOptions {
                kind: HeadKind::Full,
                logits: Logits::Cosine {
                    scale,
                    margin: Margin::NONE,
                },
                classes,
                d,
                correct: true,
                centre: false,
                precision: Precision::F32,
                seed: 4,
                scratch_bytes: 0,
            };
            let make = |comm: Comm| Mach::new(&options, 7, 3, comm);
            let alone = make(Comm::alone()).unwrap();
            let unit = |x: &[f32]| -> Vec<f64> {
                let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
                x.iter().map(|x| x / length).collect()
            };
            let saved: Vec<Vec<f32>> = alone
                .save(true)
                .into_iter()
                .map(|b| b.values.into_owned())
                .collect();
            // Of each repetition the logarithm of each bucket's probability.
            let logarithms = |x: &[f32]| -> Vec<Vec<f64>> {
                let of_repetition = |weights: &Vec<f32>| -> Vec<f64> {
                    let x = unit(x);
                    let rows = weights.chunks_exact(d).map(unit);
                    let z: Vec<f64> = rows
                        .map(|w| {
                            f64::from(scale) * w.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>()
                        })
                        .collect();
                    let most = z.iter().copied().fold(f64::MIN, f64::max);
                    let lse = most + z.iter().map(|z| (z - most).exp()).sum::<f64>().ln();
                    z.iter().map(|z| z - lse).collect()
                };
                saved.iter().map(of_repetition).collect()
            };
            let expected: f64 = features
                .chunks_exact(d)
                .zip(labels)
                .map(|(x, label)| {
                    let all = logarithms(x);
                    let score = |class: u64, add: f64| -> f64 {
                        let of = |(r, p): (usize, &Vec<f64>)| {
                            (p[alone.buckets.of(r, class) as usize] + add).exp()
                        };
                        all.iter().enumerate().map(of).sum()
                    };
                    let sum: f64 = (0..classes).map(|class| score(class, 0.0)).sum();
                    // Of the label relative to e^-600, which f64 holds.
                    sum.ln() - score(label, 600.0).ln() + 600.0
                })
                .sum();
            for ranks in 1..=4 {
                let found = run_ranks(ranks, |comm: Comm| {
                    make(comm)?.evaluate(&features, (&labels).into(), None)
                });
                for sums in found.unwrap() {
                    // Roundings of cosines in f32, times the scale.
                    let tolerance = 1e-6 * (1.0 + f64::from(scale)) * labels.len() as f64;
                    assert!(
                        (sums.loss - expected).abs() < tolerance,
                        "scale {scale}, {ranks} ranks: {} {expected}",
                        sums.loss
                    );
                }
            }
        }
    }
}
