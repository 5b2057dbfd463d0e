//! Classes drawn by how likely they are for an example of the batch.
//!
//! Where classes resemble each other, few of them share nearly all of the probability that an example leaves to wrong
//! classes, and they are those near its features, not those near the vector of its label. Products with all class
//! vectors find them: a third of the operations of a full step. A class has a chance by its largest share of an
//! example's softmax, and all have the part [`EVEN`] of it alike. The draw is priority sampling (Duffield, Lund and
//! Thorup, 2007): of class j with the chance q_j and its own random number u_j the k largest q_j/u_j take part, and with
//! the next as τ each stands for max(1, τ/q_j) classes. So their number is fixed, the largest are always there, and any
//! sum over classes has the right mean.
//!
//! From [`LISTED`] classes on, k-means divides the class vectors into lists, and an example looks only at the classes of
//! the nearest ones: as few lists as find the share [`RECALL`] of the [`TOP`] nearest classes of a batch. With more the
//! nets learn no better. Vectors are compared as they are in the step, apart from pending momentum; only the lists age,
//! and are made again after a while.
//!
//! No part of the choice depends on how rows are divided: all ranks learn the same centres, a logit has the same bits in
//! every list, and sums are of whole numbers.
//!
//! Cost for N classes of d numbers, of which a step takes the share a, and a batch of B, in operations: 2·N·B·d without
//! lists. With L = √N lists of which an example looks at p, 2·B·d·(L + p·N/L), and a build of about 2·N·L·d every
//! [`LIFE`]·L/a examples.

use std::ops::Range;

use pelton_comm::{Comm, Reduction};
use pelton_kernels::math::exp;
use pelton_kernels::simd::{self, Kernel, Simd};
use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm_packed};
use pelton_key::{KeyedRng, mix};
use rayon::prelude::*;

use crate::clusters::{assign, centres};
use crate::draws::{in_parts, of_parts};
use crate::error::HeadError;
use crate::head::{Head, Scratch};
use crate::table::Table;

/// Classes from which on there are lists.
pub(crate) const LISTED: u64 = 32_768;
/// Class vectors a list that the centres are learnt from.
const LEARNT: u64 = 16;
/// Examples a list, times the share of classes that takes part, until lists are made again.
const LIFE: f64 = 4.0;
/// Nearest classes of an example that lists should find, and the share of them that they must find.
pub(crate) const TOP: usize = 8;
const RECALL: f64 = 0.95;
/// More than one list in so many is as dear as all: products of whole blocks are faster.
const MOST_SHARE: usize = 4;
/// Class vectors that one task multiplies: sums of this many [`ONE`]s fit 32 bits.
const TALL: usize = 256;
/// Part of the chances that all classes have alike.
const EVEN: f64 = 0.2;
/// Unit of exponentials in whole numbers.
const ONE: f32 = 2_097_152.0;
/// Added to a number from 0 to 2^22, it leaves the nearest whole number in the low bits.
const ROUND: f32 = 12_582_912.0;
/// Products that are kept at once.
const KEPT: u64 = 16 << 20;

/// The classes of this rank in lists that are the same on all ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lists {
    /// \[lists, d\], as compared with features; of a single list its length alone counts.
    pub(crate) centres: Vec<f32>,
    /// The list of each row.
    pub(crate) list_of: Vec<u32>,
    /// Rows, list by list, and the start of each list; then the end.
    rows: Vec<u32>,
    starts: Vec<usize>,
    /// Lists that an example looks at.
    pub(crate) probes: usize,
    /// Examples that looked since the lists were made.
    pub(crate) examples: u64,
}

impl Lists {
    /// One list of all classes.
    pub(crate) fn single(d: usize, rows: usize) -> Lists {
        Lists::new(d, vec![0.0; d], vec![0; rows], 1, 0)
    }

    fn new(d: usize, centres: Vec<f32>, list_of: Vec<u32>, probes: usize, examples: u64) -> Lists {
        let mut starts = vec![0; centres.len() / d + 1];
        for &list in &list_of {
            starts[list as usize + 1] += 1;
        }
        for list in 1..starts.len() {
            starts[list] += starts[list - 1];
        }
        let (mut next, mut rows) = (starts.clone(), vec![0; list_of.len()]);
        for (row, &list) in (0..).zip(&list_of) {
            rows[next[list as usize]] = row;
            next[list as usize] += 1;
        }
        Lists {
            centres,
            list_of,
            rows,
            starts,
            probes,
            examples,
        }
    }

    /// Lists of the class vectors as they are; an example looks at as few as find [`RECALL`] of the nearest classes
    /// `nearest` of the examples `unit` \[batch, d\], or at all.
    ///
    /// All ranks call it.
    pub(crate) fn learn(
        head: &Head,
        classes: u64,
        key: u64,
        unit: &[f32],
        nearest: &[Vec<(u64, f32)>],
        comm: &Comm,
    ) -> Result<Lists, HeadError> {
        let (own, d) = (head.rows().classes(), head.rows().d());
        let lists = classes.isqrt();
        let mut vectors = Scratch::new();
        let is_learnt =
            |row: &u32| mix(key ^ (own.start + u64::from(*row))) % classes < LEARNT * lists;
        let all: Vec<u32> = (0..head.rows().len() as u32).collect();
        let sample: Vec<u32> = all.iter().copied().filter(is_learnt).collect();
        head.gather(&sample, &mut vectors);
        let sample = comm.all_gather_ragged(&vectors.unit)?.concat();
        let lists = (lists as usize).min(sample.len() / d).max(1);
        let centres = centres(&sample, d, lists, &mut KeyedRng::new(mix(key)));
        let mut list_of = Vec::with_capacity(all.len());
        for rows in all.chunks(16 * TALL) {
            head.gather(rows, &mut vectors);
            list_of.extend(assign(&vectors.unit, d, &centres));
        }
        let mut made = Lists::new(d, centres, list_of, lists, 0);
        let mut before = made.before(head, unit, nearest, comm)?;
        before.sort_unstable();
        let needed = before.get((before.len() as f64 * RECALL) as usize);
        made.probes = match needed.map(|&lists| lists as usize + 1) {
            Some(probes) if probes <= lists / MOST_SHARE => probes,
            _ => lists,
        };
        Ok(made)
    }

    /// Whether it is time to make them again, in a step with this share of all classes.
    pub(crate) fn are_old(&self, share: f64) -> bool {
        self.len() > 1 && self.examples as f64 * share > LIFE * self.len() as f64
    }

    /// How many of the nearest classes of some examples they find, and of how many.
    pub(crate) fn recall(
        &self,
        head: &Head,
        unit: &[f32],
        nearest: &[Vec<(u64, f32)>],
        comm: &Comm,
    ) -> Result<(u64, u64), HeadError> {
        let before = self.before(head, unit, nearest, comm)?;
        let found = before.iter().filter(|&&lists| lists < self.probes as u64);
        Ok((found.count() as u64, before.len() as u64))
    }

    /// What is not in the lists themselves.
    pub(crate) fn numbers(&self) -> Vec<f32> {
        in_parts(&[self.probes as u64, self.examples])
    }

    /// Lists that were saved; `None` if the numbers do not fit.
    pub(crate) fn of_numbers(
        d: usize,
        centres: Vec<f32>,
        list_of: &[f32],
        numbers: &[f32],
    ) -> Option<Lists> {
        let lists = centres.len() / d;
        let fits = |list: &f32| list.fract() == 0.0 && (0.0..lists as f32).contains(list);
        let [probes, examples] = of_parts(numbers)?;
        if lists == 0 || !list_of.iter().all(fits) {
            return None;
        }
        let list_of = list_of.iter().map(|&list| list as u32).collect();
        let lists = Lists::new(d, centres, list_of, probes as usize, examples);
        (1..=lists.len()).contains(&lists.probes).then_some(lists)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.centres.len() + 2 * self.rows.len()) + 8 * self.starts.len()
    }

    /// Of each of these nearest classes, how many lists are nearer to the example than its own.
    fn before(
        &self,
        head: &Head,
        unit: &[f32],
        nearest: &[Vec<(u64, f32)>],
        comm: &Comm,
    ) -> Result<Vec<u64>, HeadError> {
        let orders = self.nearest(unit, head.rows().d(), self.len());
        let mut before = Vec::new();
        for (order, classes) in orders.iter().zip(nearest) {
            let mut place = vec![0; self.len()];
            (0..)
                .zip(order)
                .for_each(|(at, &list)| place[list as usize] = at);
            before.extend(classes.iter().map(|&(class, _)| {
                let row = head.rows().row_of(class);
                row.map_or(0, |row| place[self.list_of[row] as usize])
            }));
        }
        comm.all_reduce(&mut before, Reduction::Max)?;
        Ok(before)
    }

    /// The lists nearest to each example; all of them nearest first.
    fn nearest(&self, unit: &[f32], d: usize, count: usize) -> Vec<Vec<u32>> {
        let (examples, lists) = (unit.len() / d, self.len());
        if lists == 1 {
            return vec![vec![0]; examples];
        }
        let columns = Matrix::new(&self.centres, lists, d).transposed();
        let columns = PackedMatrix::new(Precision::F32, columns);
        let mut products = vec![0.0; examples * lists];
        let unit = Matrix::new(unit, examples, d);
        gemm_packed(unit, &columns, &mut products, lists, false);
        let each = products.par_chunks_exact(lists);
        each.map(|products| {
            let nearer = |a: &u32, b: &u32| {
                let [of_a, of_b] = [a, b].map(|list| products[*list as usize]);
                of_b.total_cmp(&of_a).then(a.cmp(b))
            };
            let mut order: Vec<u32> = (0..lists as u32).collect();
            if count < lists {
                order.select_nth_unstable_by(count, nearer);
                order.truncate(count);
            } else {
                order.sort_unstable_by(nearer);
            }
            order
        })
        .collect()
    }

    /// Of each row the logarithm of its largest share in an example of `unit` \[batch, d\], among the classes that the
    /// example looks at: 0 or less, −∞ for rows that none looks at. `classes` are those of all ranks, which call it.
    pub(crate) fn shares(
        &mut self,
        head: &Head,
        classes: u64,
        unit: &[f32],
        comm: &Comm,
    ) -> Result<Vec<f32>, HeadError> {
        let d = head.rows().d();
        let mut found = vec![f32::NEG_INFINITY; self.rows.len()];
        let looked_at = classes * self.probes as u64 / self.len() as u64;
        let group = (KEPT / looked_at.max(1)).max(1) as usize;
        for unit in unit.chunks(group * d) {
            self.look(head, unit, &mut found, comm)?;
        }
        self.examples += (unit.len() / d) as u64;
        Ok(found)
    }

    fn look(
        &self,
        head: &Head,
        unit: &[f32],
        all: &mut [f32],
        comm: &Comm,
    ) -> Result<(), HeadError> {
        let (d, scale) = (head.rows().d(), head.logits().scale());
        let examples = unit.len() / d;
        let mut visits = vec![Vec::new(); self.len()];
        let nearest = self.nearest(unit, d, self.probes);
        for (example, lists) in (0..).zip(nearest) {
            lists
                .into_iter()
                .for_each(|list| visits[list as usize].push(example));
        }
        let columns: Vec<Option<PackedMatrix>> = (visits.par_iter())
            .map(|visits: &Vec<u32>| {
                let mut rows = Vec::with_capacity(visits.len() * d);
                for &example in visits {
                    rows.extend_from_slice(&unit[example as usize * d..][..d]);
                }
                let columns = Matrix::new(&rows, visits.len(), d).transposed();
                (!visits.is_empty()).then(|| PackedMatrix::new(head.precision(), columns))
            })
            .collect();
        let tiles: Vec<(usize, Range<usize>)> = (0..self.len())
            .filter(|&list| !visits[list].is_empty())
            .flat_map(|list| {
                let (start, end) = (self.starts[list], self.starts[list + 1]);
                let starts = (start..end).step_by(TALL);
                starts.map(move |at| (list, at..(at + TALL).min(end)))
            })
            .collect();
        let level = Simd::current();
        // Logits [rows, visits] of each tile, and the largest of each column.
        let mut logits: Vec<(Vec<f32>, Vec<f32>)> = (tiles.par_iter())
            .map_init(Scratch::new, |scratch, (list, places)| {
                head.gather(&self.rows[places.clone()], scratch);
                let count = visits[*list].len();
                let columns = columns[*list].as_ref().expect("a list with visits");
                scratch.multiply(columns, count, d);
                let mut logits = std::mem::take(&mut scratch.products);
                let mut most = vec![f32::NEG_INFINITY; count];
                simd::run(level, Scale(scale, &mut logits, &mut most));
                (logits, most)
            })
            .collect();
        let mut most = vec![f32::MIN; examples];
        for ((list, _), (_, tile)) in tiles.iter().zip(&logits) {
            for (&example, z) in visits[*list].iter().zip(tile) {
                most[example as usize] = most[example as usize].max(*z);
            }
        }
        comm.all_reduce(&mut most, Reduction::Max)?;
        let of = |numbers: &[f32], list: usize| -> Vec<f32> {
            visits[list]
                .iter()
                .map(|&example| numbers[example as usize])
                .collect()
        };
        let parts: Vec<Vec<u32>> = (tiles.par_iter().zip(&logits))
            .map(|((list, _), (logits, _))| {
                let mut sums = vec![0; visits[*list].len()];
                simd::run(level, Exponentials(logits, &of(&most, *list), &mut sums));
                sums
            })
            .collect();
        let mut sums = vec![0_u64; examples];
        for ((list, _), part) in tiles.iter().zip(parts) {
            for (&example, sum) in visits[*list].iter().zip(part) {
                sums[example as usize] += u64::from(sum);
            }
        }
        comm.all_reduce(&mut sums, Reduction::Sum)?;
        for (most, sum) in most.iter_mut().zip(sums) {
            *most += (sum as f64 / f64::from(ONE)).ln() as f32;
        }
        let found: Vec<Vec<f32>> = (tiles.par_iter().zip(&mut logits))
            .map(|((list, _), (logits, _))| {
                let width = visits[*list].len();
                let mut found = vec![f32::NEG_INFINITY; logits.len() / width];
                simd::run(level, Largest(logits, &of(&most, *list), &mut found));
                found
            })
            .collect();
        for ((_, places), found) in tiles.iter().zip(found) {
            for (&row, near) in self.rows[places.clone()].iter().zip(found) {
                let old = &mut all[row as usize];
                *old = old.max(near);
            }
        }
        Ok(())
    }
}

/// The classes of a batch and others drawn by the logarithms of their shares, of each row of this rank, `all` of
/// `classes` together. Returns the rows, ascending, and how many classes each stands for. All ranks call it.
pub(crate) fn draw(
    shares: &[f32],
    labels: &[u64],
    (classes, all): (u64, u64),
    own: Range<u64>,
    key: u64,
    comm: &Comm,
) -> Result<(Vec<u32>, Vec<f32>), HeadError> {
    let mut labels = labels.to_vec();
    labels.sort_unstable();
    labels.dedup();
    let others = classes - labels.len() as u64;
    let room = all.saturating_sub(labels.len() as u64).min(others) as usize;
    let is_other = |class: u64| labels.binary_search(&class).is_err();
    // Sums of whole numbers are the same for any division.
    let whole = |share: f32| (f64::from(exp(share.min(0.0))) * (1_u64 << 32) as f64) as u64;
    let of_others = (own.start..)
        .zip(shares)
        .filter(|(class, _)| is_other(*class));
    let mut sum = [of_others.clone().map(|(_, share)| whole(*share)).sum()];
    comm.all_reduce::<u64>(&mut sum, Reduction::Sum)?;
    let by_share = (1.0 - EVEN) / sum[0].max(1) as f64;
    let chance = |share: f32| whole(share) as f64 * by_share + EVEN / others as f64;
    let priority = |class: u64, share: f32| {
        let random = (mix(key ^ mix(class)) >> 11) + 1;
        (chance(share) / random as f64 * (1_u64 << 53) as f64) as f32
    };
    // The bits of positive numbers ascend; classes of one priority in their order.
    let mut keys: Vec<u64> = of_others
        .map(|(class, share)| u64::from(!priority(class, *share).to_bits()) << 32 | class)
        .collect();
    let cut = |keys: &mut Vec<u64>| {
        if keys.len() > room {
            keys.select_nth_unstable(room);
            keys.truncate(room + 1);
        }
    };
    cut(&mut keys);
    if comm.size() > 1 {
        keys = comm.all_gather_ragged(&keys)?.concat();
        cut(&mut keys);
    }
    // The last is the first that has no room, if there is one.
    let next = if keys.len() > room { keys.pop() } else { None };
    let least = next.map_or(0.0, |key| f64::from(f32::from_bits(!((key >> 32) as u32))));
    let row = |class: u64| (class - own.start) as u32;
    let mut taken: Vec<(u32, f32)> = (labels.iter().filter(|class| own.contains(class)))
        .map(|&class| (row(class), 1.0))
        .collect();
    let drawn = keys.iter().map(|key| key & u64::from(u32::MAX));
    taken.extend(drawn.filter(|class| own.contains(class)).map(|class| {
        let row = row(class);
        (row, (least / chance(shares[row as usize])).max(1.0) as f32)
    }));
    taken.sort_unstable_by_key(|(row, _)| *row);
    Ok(taken.into_iter().unzip())
}

/// Multiplies all numbers; finds the largest of each column.
struct Scale<'a>(f32, &'a mut [f32], &'a mut [f32]);

impl Kernel for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Scale(scale, numbers, most) = self;
        for row in numbers.chunks_exact_mut(most.len()) {
            for (z, most) in row.iter_mut().zip(&mut *most) {
                *z *= scale;
                *most = if *z > *most { *z } else { *most };
            }
        }
    }
}

/// Sums of e^(z − most) of each column, in [`ONE`]s.
struct Exponentials<'a>(&'a [f32], &'a [f32], &'a mut [u32]);

impl Kernel for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Exponentials(logits, most, sums) = self;
        for row in logits.chunks_exact(most.len()) {
            for ((z, most), sum) in row.iter().zip(most).zip(&mut *sums) {
                let whole = (ONE * exp(z - most) + ROUND).to_bits();
                *sum = sum.wrapping_add(whole.wrapping_sub(ROUND.to_bits()));
            }
        }
    }
}

/// The largest z − shift of each row.
struct Largest<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel for Largest<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Largest(logits, shift, most) = self;
        for (row, most) in logits.chunks_exact(shift.len()).zip(most) {
            let (parts, rest) = row.as_chunks::<16>();
            let (shifts, of_rest) = shift.as_chunks::<16>();
            let mut each = [f32::NEG_INFINITY; 16];
            for (z, shift) in parts.iter().zip(shifts) {
                for i in 0..16 {
                    let near = z[i] - shift[i];
                    each[i] = if near > each[i] { near } else { each[i] };
                }
            }
            for (z, shift) in rest.iter().zip(of_rest) {
                each[0] = each[0].max(z - shift);
            }
            *most = each.into_iter().fold(*most, f32::max);
        }
    }
}
