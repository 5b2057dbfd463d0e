//! Random trees over class vectors, for selective softmax (Zhang et al., 2018): classes of one leaf count as
//! neighbours.
//!
//! A tree is a few random planes, each through the mean of the classes; the sides that a class is on determine its
//! leaf. Differs from the paper: planes belong to a level, not to a node, so that all ranks agree on leaves by sharing
//! one mean; and leaves are found for the classes of the labels, not for the features. Nearby classes on two sides of a
//! plane are missed; several trees make this rarer.

use pelton_comm::{Comm, CommError, Reduction};
use pelton_kernels::{Matrix, Precision, gemm};
use pelton_key::{KeyedRng, mix};

use crate::graph::Selection;
use crate::rows::ClassRows;
use crate::table::Table;

/// Classes that a leaf has on average.
const LEAF: u64 = 32;
/// Rows that are multiplied at once.
const BLOCK: usize = 4096;

#[derive(Debug)]
pub(crate) struct Forest {
    trees: usize,
    /// Of each row of this rank its leaf in each tree, \[rows, trees\].
    leaves: Vec<u32>,
    /// Of each tree leaves with their rows, ascending.
    sorted: Vec<Vec<(u32, u32)>>,
}

impl Forest {
    /// Trees over the rows of all ranks.
    pub(crate) fn new(
        rows: &ClassRows,
        trees: usize,
        classes: u64,
        seed: u64,
        comm: &Comm,
    ) -> Result<Forest, CommError> {
        let d = rows.d();
        let levels = (classes.div_ceil(LEAF).max(1).ilog2() as usize).clamp(1, 24);
        let planes = trees * levels;
        let mut rng = KeyedRng::new(mix(seed));
        let plane: Vec<f32> = (0..planes * d)
            .map(|_| (0..4).map(|_| rng.next_f64() as f32 - 0.5).sum())
            .collect();
        let mut mean = vec![0.0f64; d];
        for row in 0..rows.len() {
            for (mean, w) in mean.iter_mut().zip(rows.row(row)) {
                *mean += f64::from(*w) / classes as f64;
            }
        }
        comm.all_reduce(&mut mean, Reduction::Sum)?;
        let threshold: Vec<f32> = plane
            .chunks_exact(d)
            .map(|plane| {
                let products = plane.iter().zip(&mean).map(|(p, m)| f64::from(*p) * m);
                products.sum::<f64>() as f32
            })
            .collect();
        let mut leaves = Vec::with_capacity(rows.len() * trees);
        let mut heights = Vec::new();
        for block in rows.weights().chunks(BLOCK * d) {
            let n = block.len() / d;
            heights.resize(n * planes, 0.0);
            gemm(
                Precision::F32,
                Matrix::new(block, n, d),
                Matrix::new(&plane, planes, d).transposed(),
                &mut heights[..n * planes],
                planes,
                false,
            );
            for heights in heights[..n * planes].chunks_exact(planes) {
                for tree in 0..trees {
                    let levels = tree * levels..(tree + 1) * levels;
                    leaves.push(levels.fold(0, |leaf, level| {
                        leaf << 1 | u32::from(heights[level] > threshold[level])
                    }));
                }
            }
        }
        Ok(Forest::of_leaves(trees, leaves))
    }

    /// From the leaves of this rank's rows, \[rows, trees\].
    pub(crate) fn of_leaves(trees: usize, leaves: Vec<u32>) -> Forest {
        let sorted = (0..trees).map(|tree| {
            let of_rows = leaves.iter().skip(tree).step_by(trees).zip(0..);
            let mut all: Vec<(u32, u32)> = of_rows.map(|(&leaf, row)| (leaf, row)).collect();
            all.sort_unstable();
            all
        });
        Forest {
            trees,
            sorted: sorted.collect(),
            leaves,
        }
    }

    /// Of each row of this rank its leaf in each tree; below 2²⁴.
    pub(crate) fn leaves(&self) -> &[u32] {
        &self.leaves
    }

    /// Adds the classes of the labels, then those of their leaves, tree by tree.
    pub(crate) fn select(
        &self,
        labels: &[u64],
        rows: &ClassRows,
        selection: &mut Selection,
        comm: &Comm,
    ) -> Result<(), CommError> {
        // The owner of a class knows its leaves.
        let mut leaves = vec![0u64; labels.len() * self.trees];
        for (&label, leaves) in labels.iter().zip(leaves.chunks_exact_mut(self.trees)) {
            selection.add(label, 0);
            if let Some(row) = rows.row_of(label) {
                let own = &self.leaves[row * self.trees..][..self.trees];
                for (leaf, &own) in leaves.iter_mut().zip(own) {
                    *leaf = u64::from(own);
                }
            }
        }
        comm.all_reduce(&mut leaves, Reduction::Max)?;
        for leaves in leaves.chunks_exact(self.trees) {
            for ((tree, &leaf), place) in self.sorted.iter().zip(leaves).zip(1..) {
                let from = tree.partition_point(|&(at, _)| u64::from(at) < leaf);
                let members = tree[from..].iter();
                for &(_, row) in members.take_while(|&&(at, _)| u64::from(at) == leaf) {
                    selection.add_row(row, place);
                }
            }
        }
        Ok(())
    }

    /// Bytes that this rank holds.
    pub(crate) fn bytes(&self) -> usize {
        12 * self.leaves.len()
    }
}
