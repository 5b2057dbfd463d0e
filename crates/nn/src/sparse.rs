//! Sparse gradients: ranks exchange only the largest ones (Song et al., KDD 2020, section 3.3.2; deep gradient
//! compression, Lin et al., 2017).
//!
//! For each large parameter a rank keeps u, its momentum, and v, the values not yet sent: u ← m·u + g, v ← v + u. It
//! sends the k numbers of v that are largest by magnitude, with their indices, and zeroes u and v there (momentum
//! factor masking). The step is the sum over all ranks of the values sent. No gradient is lost: unsent values stay in
//! v. In epoch e, counted from 0, at least 4⁻⁽ᵉ⁺¹⁾ of a parameter is sent, until that is below the density (warm-up).

use pelton_comm::Comm;
use pelton_kernels::{TopK, top_k};
use pelton_softmax::{ReadRows, RowBlock};

use crate::error::NnError;
use crate::layer::{Parameter, Role};
use crate::parameters::NamedArray;

/// Parameters with fewer numbers are sent whole.
const SMALL: usize = 1024;

/// The gradients of a net that a rank has not sent yet.
pub(crate) struct Sparsifier {
    /// Part of each parameter that is sent, once warmed up.
    density: f64,
    epoch: u64,
    /// Of each parameter; `None` for those that are sent whole.
    kept: Vec<Option<Kept>>,
    rank: usize,
    ranks: usize,
}

struct Kept {
    momentum: Vec<f32>,
    unsent: Vec<f32>,
}

/// Momentum of the values to send.
#[derive(Clone, Copy)]
pub(crate) struct Correction {
    pub(crate) momentum: f32,
    pub(crate) nesterov: bool,
}

impl Sparsifier {
    pub(crate) fn new<'p>(
        parameters: impl Iterator<Item = &'p Parameter>,
        density: f64,
        comm: &Comm,
    ) -> Sparsifier {
        let kept = parameters.map(|parameter| {
            let len = parameter.len();
            let is_large = parameter.role == Role::Weight && len >= SMALL;
            is_large.then(|| Kept {
                momentum: vec![0.0; len],
                unsent: vec![0.0; len],
            })
        });
        Sparsifier {
            density,
            epoch: 0,
            kept: kept.collect(),
            rank: comm.rank(),
            ranks: comm.size(),
        }
    }

    /// Whether only the largest numbers of a parameter's gradient are sent.
    pub(crate) fn takes(&self, parameter: usize) -> bool {
        self.kept[parameter].is_some()
    }

    /// The parameters with sparse gradients.
    pub(crate) fn taken(&self) -> Vec<usize> {
        (0..self.kept.len()).filter(|&at| self.takes(at)).collect()
    }

    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Numbers of a parameter of `len` that are sent.
    fn count(&self, len: usize) -> usize {
        let warming = 0.25f64.powf(self.epoch as f64 + 1.0);
        let density = self.density.max(warming).min(1.0);
        ((len as f64 * density).round() as usize).clamp(1, len)
    }

    /// Takes the gradients of the [`taken`](Sparsifier::taken) parameters in their order, this rank's part of the mean,
    /// and returns the steps that all ranks take.
    pub(crate) fn exchange(
        &mut self,
        gradients: Vec<Vec<f32>>,
        how: Correction,
        comm: &Comm,
    ) -> Result<Vec<Vec<f32>>, NnError> {
        let taken = self.taken();
        for (&at, gradient) in taken.iter().zip(&gradients) {
            let Kept { momentum, unsent } = self.kept[at].as_mut().expect("is taken");
            for ((u, v), g) in momentum.iter_mut().zip(unsent).zip(gradient) {
                *u = how.momentum * *u + g;
                *v += if how.nesterov {
                    g + how.momentum * *u
                } else {
                    *u
                };
            }
        }
        let counts: Vec<usize> = gradients.iter().map(|g| self.count(g.len())).collect();
        let layers: Vec<(&[f32], usize)> = taken
            .iter()
            .zip(&counts)
            .map(|(&at, &k)| (&self.kept[at].as_ref().expect("is taken").unsent[..], k))
            .collect();
        let selected = top_k(&layers, TopK::Sampled);

        // Indices of all parameters, then their numbers.
        let mut sent: Vec<u32> = selected.concat();
        for (&at, places) in taken.iter().zip(&selected) {
            let Kept { momentum, unsent } = self.kept[at].as_mut().expect("is taken");
            for &place in places {
                momentum[place as usize] = 0.0;
                sent.push(std::mem::take(&mut unsent[place as usize]).to_bits());
            }
        }
        let mut all = vec![0; sent.len() * self.ranks];
        comm.all_gather(&sent, &mut all)?;

        // In the order of the ranks: the same bits on all of them.
        let mut steps = gradients;
        for step in &mut steps {
            step.fill(0.0);
        }
        for from_rank in all.chunks_exact(sent.len().max(1)) {
            let (mut places, mut numbers) = from_rank.split_at(sent.len() / 2);
            for (step, &k) in steps.iter_mut().zip(&counts) {
                let (own, after) = places.split_at(k);
                let (values, behind) = numbers.split_at(k);
                for (&place, &bits) in own.iter().zip(values) {
                    step[place as usize] += f32::from_bits(bits);
                }
                (places, numbers) = (after, behind);
            }
        }
        Ok(steps)
    }

    /// The epoch, which is the same on all ranks.
    pub(crate) fn state(&self) -> NamedArray {
        NamedArray {
            name: EPOCH.to_string(),
            shape: vec![1],
            values: vec![self.epoch as f32],
        }
    }

    /// Takes it.
    pub(crate) fn set_state(&mut self, saved: &[NamedArray]) {
        let epoch = saved.iter().find(|array| array.name == EPOCH);
        let epoch = epoch.and_then(|array| array.values.first());
        self.epoch = epoch.map_or(0, |&epoch| epoch as u64);
    }

    /// The state of this rank, as one row.
    pub(crate) fn save(&self) -> Vec<RowBlock<'static>> {
        let all = self.kept.iter().flatten();
        let values: Vec<f32> = all
            .flat_map(|kept| [&kept.momentum[..], &kept.unsent].concat())
            .collect();
        let own = (self.rank as u64, self.ranks as u64);
        vec![RowBlock::new(UNSENT, own, values.len(), values)]
    }

    /// Restores unsent gradients: each rank its own, and those of ranks that no longer exist divided over the others.
    pub(crate) fn load(&mut self, read: &mut ReadRows<'_>) {
        for from in (self.rank as u64..).step_by(self.ranks) {
            let Some(values) = read(UNSENT, from..from + 1) else {
                return;
            };
            let mut rest = values.iter();
            let is_own = from == self.rank as u64;
            for kept in self.kept.iter_mut().flatten() {
                for x in kept.momentum.iter_mut().chain(&mut kept.unsent) {
                    let saved = rest.next().copied().unwrap_or(0.0);
                    *x = if is_own { saved } else { *x + saved };
                }
            }
        }
    }
}

/// Name of the epoch in the state of an optimiser.
const EPOCH: &str = "sparse.epoch";
/// Name of the block of unsent values.
const UNSENT: &str = "unsent";

#[cfg(test)]
mod tests {
    use pelton_comm::{CommError, run_ranks};
    use pelton_key::KeyedRng;

    use super::*;
    use crate::layer::Init;

    fn parameters() -> Vec<Parameter> {
        let of = |len: usize, role| Parameter {
            name: len.to_string(),
            shape: vec![len],
            role,
            init: Init::Constant(0.0),
            flattened: None,
        };
        vec![
            of(1500, Role::Weight),
            of(7, Role::Weight),
            of(2000, Role::Weight),
        ]
    }

    fn gradients(seed: u64) -> Vec<Vec<f32>> {
        let mut rng = KeyedRng::new(seed);
        let mut of = |n: usize| (0..n).map(|_| rng.next_f64() as f32 - 0.5).collect();
        vec![of(1500), of(2000)]
    }

    /// Sums of all steps of `ranks` and their unsent values.
    fn run(ranks: usize, density: f64, how: Correction, steps: u64) -> Vec<f64> {
        let all = run_ranks(ranks, |comm| {
            let mut sparse = Sparsifier::new(parameters().iter(), density, &comm);
            sparse.begin_epoch(9);
            let mut sum = vec![0.0; 3500];
            for step in 0..steps {
                let own = gradients(step * 10 + comm.rank() as u64);
                let taken = sparse.exchange(own, how, &comm).expect("no rank fails");
                for (sum, x) in sum.iter_mut().zip(taken.concat()) {
                    *sum += f64::from(x);
                }
            }
            let unsent: Vec<f32> = sparse
                .kept
                .iter()
                .flatten()
                .flat_map(|kept| kept.unsent.clone())
                .collect();
            Ok::<_, CommError>((sum, unsent))
        })
        .unwrap();
        let mut total = all[0].0.clone();
        for (sum, unsent) in &all {
            assert_eq!(*sum, all[0].0);
            for (total, x) in total.iter_mut().zip(unsent) {
                *total += f64::from(*x);
            }
        }
        total
    }

    #[test]
    fn nothing_is_lost() {
        let how = Correction {
            momentum: 0.0,
            nesterov: false,
        };
        for ranks in [1, 3] {
            let total = run(ranks, 0.01, how, 20);
            let mut expected = vec![0.0; 3500];
            for step in 0..20 {
                for rank in 0..ranks as u64 {
                    let own = gradients(step * 10 + rank).concat();
                    for (sum, x) in expected.iter_mut().zip(own) {
                        *sum += f64::from(x);
                    }
                }
            }
            for (a, b) in total.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-4, "{a} {b}");
            }
        }
    }

    #[test]
    fn the_largest_are_sent_and_their_momentum_is_masked() {
        let comm = Comm::alone();
        let how = Correction {
            momentum: 0.9,
            nesterov: false,
        };
        let mut sparse = Sparsifier::new(parameters().iter(), 0.001, &comm);
        assert_eq!(sparse.taken(), [0, 2]);
        // Warm-up: a quarter in the first epoch, a sixteenth in the second, at last the density.
        let counts = |sparse: &mut Sparsifier, epoch| {
            sparse.begin_epoch(epoch);
            (sparse.count(1500), sparse.count(2000))
        };
        assert_eq!(counts(&mut sparse, 0), (375, 500));
        assert_eq!(counts(&mut sparse, 1), (94, 125));
        assert_eq!(counts(&mut sparse, 4), (2, 2));
        // The plain definition, in f64.
        let (mut u, mut v) = (vec![0.0f64; 1500], vec![0.0f64; 1500]);
        for step in 0..30 {
            let own = gradients(step);
            for ((u, v), g) in u.iter_mut().zip(&mut v).zip(&own[0]) {
                *u = 0.9 * *u + f64::from(*g);
                *v += *u;
            }
            let mut order: Vec<usize> = (0..1500).collect();
            order.sort_by(|&a, &b| v[b].abs().total_cmp(&v[a].abs()));
            let sent = &sparse.exchange(own, how, &comm).unwrap()[0];
            let places: Vec<usize> = (0..1500).filter(|&i| sent[i] != 0.0).collect();
            let mut expected = order[..2].to_vec();
            expected.sort_unstable();
            assert_eq!(places, expected);
            for place in places {
                assert!((f64::from(sent[place]) - v[place]).abs() < 1e-4);
                (u[place], v[place]) = (0.0, 0.0);
            }
        }
    }

    #[test]
    fn what_was_not_sent_is_saved_and_divided() {
        let how = Correction {
            momentum: 0.5,
            nesterov: true,
        };
        let saved: Vec<RowBlock<'_>> = run_ranks(3, |comm| {
            let mut sparse = Sparsifier::new(parameters().iter(), 0.01, &comm);
            let own = gradients(comm.rank() as u64);
            sparse.exchange(own, how, &comm).expect("no rank fails");
            Ok::<_, CommError>(sparse.save().remove(0))
        })
        .unwrap();
        let mut read = |name: &str, rows: std::ops::Range<u64>| {
            assert_eq!(name, UNSENT);
            let block = saved.iter().find(|block| block.first == rows.start)?;
            Some(block.values.to_vec())
        };
        let comm = Comm::alone();
        let mut alone = Sparsifier::new(parameters().iter(), 0.01, &comm);
        alone.load(&mut read);
        let sums = &alone.save()[0].values;
        for (at, sum) in sums.iter().enumerate() {
            let expected: f32 = saved.iter().map(|block| block.values[at]).sum();
            assert!((sum - expected).abs() < 1e-5);
        }
    }
}
