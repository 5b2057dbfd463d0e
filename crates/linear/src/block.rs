//! A block of rows prepared for visits: address and dual variable of each row, in one 32-byte entry, so a
//! visit in random order costs one cache line in addition to the row itself.
//!
//! Cost: 36 bytes a row (entry and position in the visiting order), one pass over the values for ‖x‖².

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable};

use crate::abandoned::{Before, Halt};
use crate::active::Active;
use crate::error::LinearError;
use crate::kernels::{BlockRows, Simd};
use crate::loss::{LossFunction, RowTerms};
use crate::problem::Problem;
use crate::visit::{RowAddress, Segment, Visit};

/// Working memory for blocks, reused from block to block.
#[derive(Debug)]
pub struct Scratch {
    pub(crate) simd: Simd,
    pub(crate) visits: Vec<Visit>,
    /// ‖x‖² of each row, if subproblems add different terms to it; else empty.
    pub(crate) squares: Vec<f32>,
    /// The labels of the rows, if rows of one label differ in target or cost; a visit then stores its row's index
    /// instead of the label.
    pub(crate) labels: Vec<u32>,
    pub(crate) active: Active,
    pub(crate) slack: Vec<f32>,
    /// The reason to end a block early, and what it has changed so far.
    pub(crate) halt: Option<Halt>,
    pub(crate) before: Before,
}

impl Scratch {
    /// Empty working memory; `simd` selects the instructions of the solver.
    pub fn new(simd: Simd) -> Scratch {
        Scratch {
            simd,
            visits: Vec::new(),
            squares: Vec::new(),
            labels: Vec::new(),
            active: Active::default(),
            slack: Vec::new(),
            halt: None,
            before: Before::default(),
        }
    }

    /// Abandons blocks soon after `asked` is set: see [`LinearError::Interrupted`].
    pub fn end_when(&mut self, asked: Arc<AtomicBool>) {
        self.halt = Some(Halt::new(asked));
    }

    /// For each row of the block solved last. If α is at a bound in every subproblem: |G| at the last visit (the least
    /// over subproblems), how far the row is from leaving the bound. If α is free in some subproblem: −|G| of the
    /// freest.
    pub fn slack(&self) -> &[f32] {
        &self.slack
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Visit>() * self.visits.capacity()
            + self.active.heap_bytes()
            + 4 * (self.slack.capacity() + self.labels.capacity() + self.squares.capacity())
            + self.before.heap_bytes()
    }

    /// Bytes that a block of `rows` rows will need.
    pub fn bytes_for(rows: usize) -> usize {
        rows * (size_of::<Visit>() + Active::BYTES_A_ROW + 4)
    }

    /// Fills the entries for `block`: addresses, labels and Q_ii; leaves α at 0.
    pub(crate) fn prepare(
        &mut self,
        problem: &Problem,
        block: &RowTable,
    ) -> Result<(), LinearError> {
        let bias = problem.bias().unwrap_or(0.0);
        let terms = problem.terms(0);
        self.visits.clear();
        self.squares.clear();
        if self.visits.capacity() < block.len() {
            self.visits = pelton_storage::huge_vec(block.len());
        }
        for i in 0..block.len() {
            let (place, values) = locate(problem.features(), block, i)?;
            let label = block.label(i);
            problem.check_label(label, block.id(i))?;
            let square = squared_norm(values) + bias * bias;
            let q = square + terms.of(label, block.id(i)).dual.diagonal;
            if !q.is_finite() {
                return Err(LinearError::TooLarge {
                    record: block.id(i),
                });
            }
            self.visits.push(Visit {
                place,
                label,
                alpha: 0.0,
                gradient: 0.0,
                q,
                inverse_q: 1.0 / q,
            });
            if problem.has_grid() {
                self.squares.push(square);
            }
        }
        Ok(())
    }

    /// Sets Q_ii for one subproblem, if subproblems differ in it.
    pub(crate) fn set_diagonal(&mut self, terms: &[RowTerms]) {
        for (visit, square) in self.visits.iter_mut().zip(&self.squares) {
            visit.q = square + terms[visit.label as usize].dual.diagonal;
            visit.inverse_q = 1.0 / visit.q;
        }
    }

    /// If rows of one label differ, makes each visit store its row's index instead of the label.
    pub(crate) fn name_rows(&mut self, problem: &Problem) {
        self.labels.clear();
        if problem.rows_differ() {
            self.labels
                .extend(self.visits.iter().map(|visit| visit.label));
            for (visit, row) in self.visits.iter_mut().zip(0..) {
                visit.label = row;
            }
        }
    }

    /// Takes the dual variables of the rows `ids` from `stored`; returns what they add to the dual value.
    pub(crate) fn take_duals(
        &mut self,
        loss: &impl LossFunction,
        terms: &[RowTerms],
        ids: &[u64],
        stored: &[f32],
    ) -> f64 {
        let mut sum = 0.0;
        for (visit, &id) in self.visits.iter_mut().zip(ids) {
            visit.alpha = stored[id as usize];
            sum += loss.dual_term(&terms[visit.label as usize], visit.alpha);
        }
        sum
    }

    /// Writes them back; returns what they now add to the dual value.
    pub(crate) fn put_duals(
        &self,
        loss: &impl LossFunction,
        terms: &[RowTerms],
        ids: &[u64],
        stored: &mut [f32],
    ) -> f64 {
        let mut sum = 0.0;
        for (visit, &id) in self.visits.iter().zip(ids) {
            stored[id as usize] = visit.alpha;
            sum += loss.dual_term(&terms[visit.label as usize], visit.alpha);
        }
        sum
    }

    /// Folds the gradients of the subproblem just solved into `slack`, of the rows that it sees.
    pub(crate) fn fold_slack(
        &mut self,
        loss: &impl LossFunction,
        terms: &[RowTerms],
        first: bool,
        is_left_out: impl Fn(usize) -> bool,
    ) {
        if first {
            self.slack.clear();
            self.slack.resize(self.visits.len(), f32::INFINITY);
        }
        for (i, (slack, visit)) in self.slack.iter_mut().zip(&self.visits).enumerate() {
            if is_left_out(i) {
                continue;
            }
            let free = loss.is_free(&terms[visit.label as usize], visit.alpha);
            let g = visit.gradient.abs();
            // −0.0 would not be below 0.
            let this = if free { -g.max(f32::MIN_POSITIVE) } else { g };
            let both_free = free && *slack < 0.0;
            *slack = if both_free {
                slack.max(this)
            } else {
                slack.min(this)
            };
        }
    }
}

/// Finds row `i` of `block` and checks that its features are below `features`.
fn locate(
    features: usize,
    block: &RowTable,
    i: usize,
) -> Result<(RowAddress, &[f32]), LinearError> {
    let slot = block.slots()[i];
    let rows = &block.segments()[slot.segment as usize];
    let span = rows.span(slot.row as usize);
    let start = match rows.layout() {
        Layout::Dense { width } => {
            if width != features {
                return Err(LinearError::Width {
                    record: block.id(i),
                    found: width,
                    expected: features,
                });
            }
            slot.row
        }
        Layout::Sparse => {
            // Indices ascend, so the last is the largest.
            let largest = rows.indices()[span.clone()].last();
            if let Some(&index) = largest.filter(|&&index| index as usize >= features) {
                return Err(LinearError::FeatureOutOfRange {
                    record: block.id(i),
                    index: index as usize,
                    features,
                });
            }
            // A segment holds under 2^32 sparse values.
            span.start as u32
        }
        Layout::Bytes => {
            return Err(LinearError::NoFeatures {
                record: block.id(i),
            });
        }
    };
    let place = RowAddress {
        segment: slot.segment,
        start,
        length: span.len() as u32,
    };
    Ok((place, &rows.values()[span]))
}

/// The addresses of rows `range` of `block`, cut to the features below `features`.
pub(crate) fn places_clipped(
    features: usize,
    block: &RowTable,
    range: Range<usize>,
    places: &mut Vec<RowAddress>,
) {
    places.extend(block.slots()[range].iter().map(|slot| {
        let rows = &block.segments()[slot.segment as usize];
        let span = rows.span(slot.row as usize);
        match rows.layout() {
            Layout::Dense { width } => RowAddress {
                segment: slot.segment,
                start: slot.row,
                length: width.min(features) as u32,
            },
            Layout::Sparse => {
                let indices = &rows.indices()[span.clone()];
                let known = match indices.last() {
                    Some(&last) if last as usize >= features => {
                        indices.partition_point(|&index| (index as usize) < features)
                    }
                    _ => indices.len(),
                };
                RowAddress {
                    segment: slot.segment,
                    start: span.start as u32,
                    length: known as u32,
                }
            }
            // Bytes are not features: such a row counts as empty.
            Layout::Bytes => RowAddress {
                segment: slot.segment,
                start: 0,
                length: 0,
            },
        }
    }));
}

/// The rows of a block for the kernels; all its segments must be of one layout.
pub(crate) fn block_rows(features: usize, bias: Option<f32>, block: &RowTable) -> BlockRows<'_> {
    let mut layouts = block
        .segments()
        .iter()
        .filter(|rows| !rows.is_empty())
        .map(|rows| rows.layout());
    let layout = layouts.next().unwrap_or(Layout::Sparse);
    assert!(
        layouts.all(|other| other == layout),
        "the rows of a block are of one layout"
    );
    let segments = block
        .segments()
        .iter()
        .map(|rows| Segment {
            values: rows.values(),
            indices: rows.indices(),
        })
        .collect();
    BlockRows {
        segments,
        layout,
        features,
        bias: bias.unwrap_or(0.0),
    }
}

/// ‖x‖² in eight sums. It only sets the length of steps, so f32 does.
fn squared_norm(x: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (chunks, rest) = x.as_chunks::<8>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value * value;
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += value * value;
    }
    sums.iter().sum()
}
