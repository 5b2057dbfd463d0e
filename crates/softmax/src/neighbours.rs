//! The exact nearest neighbours of every class by cosine, built in a ring (Song et al., KDD 2020, section 3.2.2,
//! Figure 3b).
//!
//! The rows of each rank travel from rank to rank; each multiplies its own rows with those that have arrived, block by
//! block, and keeps the best of each row; it never stores all products. Within a rank each product counts for both of
//! its rows, which takes half of the operations: N²·d for N classes on one rank.
//!
//! In bf16 the products recall candidates, and those in f32 decide. Rounding moves the product of two rows of length 1
//! by at most E, bounded by the lengths of their rounding errors. The K nearest so far have at least the product t of
//! the K-th less E; a class with less than t − 2E in bf16 has less than that, and is dropped. All others are kept and
//! ranked by their products in f32, equal to the bit to those of a graph in f32, so that the lists are equal, too. If
//! rows are so near each other that most products would be candidates, the rest of the products is f32.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pelton_comm::{Comm, Reduction};
use pelton_kernels::simd::{self, Kernel, Simd};
use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm, gemm_packed};
use rayon::prelude::*;

use crate::chunk;
use crate::error::HeadError;
use crate::rows::ClassRows;

/// Rows of a task, which share a lock.
const TALL: usize = 128;
/// Columns that tasks go through together, a multiple of `TALL`.
const WIDE: usize = 2048;
const TAG: u16 = 7;

/// The nearest classes of each class of this rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    k: usize,
    classes: Range<u64>,
    /// \[classes, k\], the nearest first, which is the class itself.
    ids: Vec<u32>,
}

impl Neighbours {
    /// Finds the `k` nearest of each class among those of all ranks. Equally near classes are in the order of their
    /// ids. With fewer than `k` classes it finds all. The result is the same in every precision of the products.
    ///
    /// Errors: weights that are not finite; a lost rank.
    pub fn find(
        rows: &ClassRows,
        k: usize,
        precision: Precision,
        comm: &Comm,
    ) -> Result<Neighbours, HeadError> {
        Neighbours::find_until(rows, k, precision, comm, &|| false)
    }

    /// The same, unless `stop` returns true on any rank; it is called between the parts of the ring, for all ranks, and
    /// by each rank alone between blocks.
    pub fn find_until(
        rows: &ClassRows,
        k: usize,
        precision: Precision,
        comm: &Comm,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Neighbours, HeadError> {
        rows.check(comm)?;
        let d = rows.d();
        let counts = comm.all_gather_ragged(&[rows.len() as u64])?.concat();
        let k = k.min(counts.iter().sum::<u64>() as usize);
        let own = Block::new(rows);
        let lists: Vec<Mutex<Vec<List>>> = own
            .blocks()
            .map(|places| Mutex::new(vec![List::new(k); places.len()]))
            .collect();
        let mut recall = Recall::new(&own, precision, comm)?;
        own.meet_itself(&lists, &mut recall, stop);
        let (rank, size) = (comm.rank(), comm.size());
        let mut passed = own.unit.clone();
        for step in 1..=size {
            let mut stopped = [u64::from(stop())];
            comm.all_reduce(&mut stopped, Reduction::Max)?;
            if stopped[0] > 0 {
                return Err(HeadError::Interrupted);
            }
            if step == size {
                break;
            }
            comm.send((rank + 1) % size, TAG, &passed)?;
            passed = comm.receive_vec((rank + size - 1) % size, TAG)?;
            let from = (rank + size - step) % size;
            let block = Block {
                d,
                first: counts[..from].iter().sum(),
                unit: passed,
            };
            own.meet(&block, &lists, &mut recall, stop);
            passed = block.unit;
        }
        let lists = lists.into_iter().flat_map(|lists| {
            let lists = lists.into_inner();
            lists.unwrap_or_else(PoisonError::into_inner)
        });
        let mut ids = Vec::with_capacity(rows.len() * k);
        for list in lists {
            ids.extend(list.sorted());
        }
        Ok(Neighbours {
            k,
            classes: rows.classes(),
            ids,
        })
    }

    /// Lists that contain only the class itself, `k` times.
    pub(crate) fn themselves(classes: Range<u64>, k: usize) -> Neighbours {
        let ids = classes.clone().flat_map(|id| vec![id as u32; k]).collect();
        Neighbours { k, classes, ids }
    }

    /// Those that were found before: `ids` \[classes, k\].
    pub(crate) fn of_ids(classes: Range<u64>, ids: Vec<u32>) -> Neighbours {
        let k = ids.len() / ((classes.end - classes.start) as usize).max(1);
        Neighbours { k, classes, ids }
    }

    /// Neighbours of each class.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The classes of these lists of neighbours.
    pub fn classes(&self) -> Range<u64> {
        self.classes.clone()
    }

    /// Neighbours of the class at this index, the nearest first.
    pub fn of(&self, place: usize) -> &[u32] {
        &self.ids[place * self.k..][..self.k]
    }
}

/// The `k` best classes so far of one row.
#[derive(Clone)]
struct List {
    k: usize,
    /// No order; more than `k` at times, and as long as they are not ranked in f32.
    best: Vec<(f32, u32)>,
    /// Products below it are not among the best.
    least: f32,
}

/// Descending by product, then ascending by class.
fn nearer(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl List {
    fn new(k: usize) -> List {
        List {
            k,
            best: Vec::new(),
            least: f32::NEG_INFINITY,
        }
    }

    /// Keeps the best, and products at most `slack` below the last of them.
    fn cut(&mut self, slack: f32) {
        if self.k > 0 && self.best.len() >= self.k {
            let (_, last, _) = self.best.select_nth_unstable_by(self.k - 1, nearer);
            self.least = last.0 - slack;
            let mut place = 0;
            self.best.retain(|(product, _)| {
                place += 1;
                place <= self.k || slack > 0.0 && *product >= self.least
            });
        }
    }

    fn sorted(mut self) -> impl Iterator<Item = u32> {
        self.cut(0.0);
        self.best.sort_unstable_by(nearer);
        self.best.into_iter().map(|(_, class)| class)
    }
}

/// Rows of length 1 of one rank.
struct Block {
    d: usize,
    first: u64,
    unit: Vec<f32>,
}

type Lists = [Mutex<Vec<List>>];

fn locked(lists: &Mutex<Vec<List>>) -> MutexGuard<'_, Vec<List>> {
    lists.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Block {
    fn new(rows: &ClassRows) -> Block {
        let mut unit = vec![0.0; rows.weights().len()];
        let mut inverse = vec![0.0; rows.len()];
        chunk::unit_rows(|i| rows.row(i), true, &mut unit, &mut inverse);
        Block {
            d: rows.d(),
            first: rows.classes().start,
            unit,
        }
    }

    fn len(&self) -> usize {
        self.unit.len() / self.d
    }

    /// Indices of rows that share a lock.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let len = self.len();
        let starts = (0..len).step_by(TALL);
        starts.map(move |start| start..(start + TALL).min(len))
    }

    fn matrix(&self, places: Range<usize>) -> Matrix<'_> {
        let rows = &self.unit[places.start * self.d..places.end * self.d];
        Matrix::new(rows, places.len(), self.d)
    }

    /// The products with another rank's rows go into the lists of this one's.
    fn meet(
        &self,
        other: &Block,
        lists: &Lists,
        recall: &mut Recall,
        stop: &(dyn Fn() -> bool + Sync),
    ) {
        for start in (0..other.len()).step_by(WIDE).take_while(|_| !stop()) {
            let columns = start..(start + WIDE).min(other.len());
            let packed = other.packed(columns.clone(), recall);
            let blocks: Vec<Range<usize>> = self.blocks().collect();
            let meeting = Meeting::new(self, other, recall);
            let each = blocks.into_par_iter().zip(lists);
            each.for_each_init(Vec::new, |products, (rows, lists)| {
                self.products(rows.clone(), &packed, columns.len(), products);
                let class = other.first as u32 + start as u32;
                meeting.keep(products, class, None, rows.start, &mut locked(lists));
            });
            meeting.end(
                lists,
                self.len() * columns.len(),
                columns.end == other.len(),
            );
        }
    }

    /// Each product of two blocks of its own rows goes into the lists of both.
    fn meet_itself(&self, lists: &Lists, recall: &mut Recall, stop: &(dyn Fn() -> bool + Sync)) {
        for start in (0..self.len()).step_by(WIDE).take_while(|_| !stop()) {
            let columns = start..(start + WIDE).min(self.len());
            let packed = self.packed(columns.clone(), recall);
            let meeting = Meeting::new(self, self, recall);
            let class = self.first as u32;
            let blocks: Vec<Range<usize>> = self.blocks().collect();
            let (before, after) = blocks.split_at(start / TALL);
            let within = &after[..columns.len().div_ceil(TALL)];
            let (far, near) = lists.split_at(start / TALL);
            // These first: they leave few products that may be among the best of the columns.
            let each = within.par_iter().zip(near);
            each.for_each_init(Vec::new, |products, (rows, lists)| {
                self.products(rows.clone(), &packed, columns.len(), products);
                for row in rows.clone() {
                    products[(row - rows.start) * columns.len() + row - start] = f32::INFINITY;
                }
                let first = class + start as u32;
                meeting.keep(products, first, None, rows.start, &mut locked(lists));
            });
            let each = before.par_iter().zip(far);
            each.for_each_init(Vec::new, |products, (rows, lists)| {
                self.products(rows.clone(), &packed, columns.len(), products);
                let mut least = Vec::with_capacity(columns.len());
                for lists in &near[..within.len()] {
                    least.extend(locked(lists).iter().map(|list| list.least));
                }
                let mut found = Found {
                    least: &least,
                    hits: vec![Vec::new(); within.len()],
                };
                let (first, lists) = (class + start as u32, &mut locked(lists));
                meeting.keep(products, first, Some(&mut found), rows.start, lists);
                for (block, (hits, lists)) in found.hits.iter().zip(near).enumerate() {
                    let mut lists = locked(lists);
                    for &(column, row, product) in hits {
                        let place = start + block * TALL + column;
                        let id = class + (rows.start + row) as u32;
                        meeting.push(&mut lists[column], place, product, id);
                    }
                }
            });
            meeting.end(
                lists,
                columns.end * columns.len(),
                columns.end == self.len(),
            );
        }
    }

    fn packed(&self, columns: Range<usize>, recall: &Recall) -> PackedMatrix {
        PackedMatrix::new(recall.precision, self.matrix(columns).transposed())
    }

    /// Writes \[rows, columns\].
    fn products(
        &self,
        rows: Range<usize>,
        columns: &PackedMatrix,
        width: usize,
        products: &mut Vec<f32>,
    ) {
        products.resize(rows.len() * width, 0.0);
        gemm_packed(self.matrix(rows), columns, products, width, false);
    }
}

/// Products that may be among the best of their columns.
struct Found<'a> {
    /// Of each column's list.
    least: &'a [f32],
    /// By blocks of columns: column in the block, row, product.
    hits: Vec<Vec<(usize, usize, f32)>>,
}

/// How products are computed, and how far they may be off.
struct Recall {
    precision: Precision,
    /// Twice as much as products differ from those in f32.
    slack: f32,
}

impl Recall {
    /// All ranks call it.
    fn new(own: &Block, precision: Precision, comm: &Comm) -> Result<Recall, HeadError> {
        if precision == Precision::F32 {
            return Ok(Recall {
                precision,
                slack: 0.0,
            });
        }
        let lost = own.unit.par_chunks_exact(own.d).map(|row| {
            let lost = row.iter().map(|&x| (precision.round(x) - x).powi(2));
            lost.sum::<f32>().sqrt()
        });
        let mut lost = [lost.reduce(|| 0.0, f32::max)];
        comm.all_reduce(&mut lost, Reduction::Max)?;
        // x̃·w̃ − x·w = (x̃ − x)·w̃ + x·(w̃ − w), and each of the sums of d products is rounded at most 1.5 d + 4
        // times.
        let of_sums = (own.d as f32 + 4.0) / (1 << 21) as f32;
        let slack = 2.0 * (lost[0] * (2.0 + lost[0]) * 1.001 + of_sums);
        Ok(Recall { precision, slack })
    }
}

/// Own rows, and the other rows that they are multiplied with.
struct Meeting<'a> {
    own: &'a Block,
    other: &'a Block,
    recall: &'a mut Recall,
    /// Products in f32 so far.
    ranked: AtomicUsize,
}

impl<'a> Meeting<'a> {
    fn new(own: &'a Block, other: &'a Block, recall: &'a mut Recall) -> Meeting<'a> {
        Meeting {
            own,
            other,
            recall,
            ranked: AtomicUsize::new(0),
        }
    }

    /// Adds a class to the list of an own row.
    #[inline]
    fn push(&self, list: &mut List, place: usize, product: f32, class: u32) {
        if product >= list.least {
            list.best.push((product, class));
            let slack = self.recall.slack;
            let room = list.k + list.k / 2 + 16;
            let room = if slack > 0.0 { 2 * room } else { room };
            if list.best.len() >= room {
                list.cut(slack);
                if list.best.len() > room * 3 / 4 {
                    self.rank(list, place);
                }
            }
        }
    }

    /// Ranks the classes of a list by their products in f32.
    fn rank(&self, list: &mut List, place: usize) {
        let Block { d, first, ref unit } = *self.other;
        let own = (self.own.first as usize + place) as u32;
        let (mut rows, mut scores) = (Vec::new(), Vec::new());
        let others = first as u32..(first as usize + self.other.len()) as u32;
        let mut pending: Vec<&mut (f32, u32)> = list.best.iter_mut().collect();
        pending.retain(|(_, class)| others.contains(class) && *class != own);
        for (_, class) in &pending {
            rows.extend_from_slice(&unit[(class - others.start) as usize * d..][..d]);
        }
        scores.resize(pending.len(), 0.0);
        let row = &self.own.unit[place * d..][..d];
        let (rows, row) = (Matrix::new(&rows, pending.len(), d), Matrix::new(row, d, 1));
        gemm(Precision::F32, rows, row, &mut scores, 1, false);
        self.ranked.fetch_add(pending.len(), Ordering::Relaxed);
        for (entry, score) in pending.into_iter().zip(scores) {
            entry.0 = score;
        }
        list.cut(0.0);
        list.least -= self.recall.slack;
    }

    /// Ends a round of `products` products: ranks their candidates after the last round, and before a switch to f32
    /// products, made if that takes less time.
    fn end(self, lists: &Lists, products: usize, is_last: bool) {
        let is_dense = self.ranked.load(Ordering::Relaxed) > products / 64;
        if self.recall.slack > 0.0 && (is_last || is_dense) {
            lists.par_iter().enumerate().for_each(|(block, lists)| {
                for (i, list) in locked(lists).iter_mut().enumerate() {
                    self.rank(list, block * TALL + i);
                }
            });
        }
        if is_dense {
            (self.recall.precision, self.recall.slack) = (Precision::F32, 0.0);
        }
    }

    /// Keeps the products of some own rows, those from `start` on, that may be among the best of their rows, and of
    /// their columns if `found` is given.
    fn keep(
        &self,
        products: &[f32],
        first: u32,
        mut found: Option<&mut Found<'_>>,
        start: usize,
        lists: &mut [List],
    ) {
        let level = Simd::current();
        let width = products.len() / lists.len();
        let never = vec![f32::INFINITY; width];
        let mut places = Vec::new();
        for (i, (row, list)) in products.chunks_exact(width).zip(lists).enumerate() {
            let columns = found.as_ref().map_or(&never[..], |found| found.least);
            places.clear();
            simd::run(level, Reaching(row, list.least, columns, &mut places));
            for &j in &places {
                self.push(list, start + i, row[j], first + j as u32);
                if let Some(found) = &mut found
                    && row[j] >= found.least[j]
                {
                    found.hits[j / TALL].push((j % TALL, i, row[j]));
                }
            }
        }
    }
}

/// Numbers that are looked at together, a bit each.
const SCAN: usize = 32;

/// Indices of the numbers that reach the row's least, or their column's.
struct Reaching<'a>(&'a [f32], f32, &'a [f32], &'a mut Vec<usize>);

impl Kernel for Reaching<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Reaching(numbers, row, columns, places) = self;
        let least = |column: f32| if column < row { column } else { row };
        let (parts, rest) = numbers.as_chunks::<SCAN>();
        let columns_of = columns.as_chunks::<SCAN>().0;
        for (part, (numbers, columns)) in parts.iter().zip(columns_of).enumerate() {
            let mut reaching = 0u32;
            for j in 0..SCAN {
                reaching |= u32::from(numbers[j] >= least(columns[j])) << j;
            }
            while reaching != 0 {
                places.push(part * SCAN + reaching.trailing_zeros() as usize);
                reaching &= reaching - 1;
            }
        }
        let last = numbers.len() - rest.len()..numbers.len();
        places.extend(last.filter(|&j| numbers[j] >= least(columns[j])));
    }
}
