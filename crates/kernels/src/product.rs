//! c = a·b by blocks: the one loop under dense products and convolutions.
//!
//! Blocks of `a` and `b` are copied into caches in the reading order of `tile`, from any [`BlockSource`]. The division
//! into blocks and tasks depends only on the shapes, so results do not depend on the number of threads.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use crate::block_source::BlockSource;
use crate::precision::{Operand, Precision};
use crate::simd::Simd;
use crate::tile::{self, DEPTH, ROW, Tile};

/// Numbers of `b` that are packed at a time, 32 MiB.
const PACKED: usize = 8 << 20;

/// Multiplications and additions that make a task worth handing to another thread.
const TASK: usize = 1 << 19;

/// Numbers of `b` that surely stay in a cache of level 2: 384 KiB.
const RESIDENT: usize = 96 << 10;

/// Numbers of a block of `a` that stays in a cache of level 1: 24 KiB.
const STRIP: usize = 6 << 10;

/// Most tasks of a product.
const TASKS: usize = 128;

/// Most numbers in the partial sums of a product with divided k.
const PARTIAL: usize = 2 << 20;

/// The left operand, [m, k].
#[derive(Clone, Copy)]
pub(crate) enum Left<'a> {
    /// As it is.
    Rows(&'a dyn BlockSource),
    /// Given transposed, [k, m].
    Columns(&'a dyn BlockSource),
}

/// The right operand, [k, n].
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    Source(&'a dyn BlockSource),
    Packed(&'a Packed),
}

/// The destination of the result, and its epilogue.
pub(crate) struct Output<'a> {
    pub(crate) c: &'a mut [f32],
    /// Offset of a row in `c`. Rows must not overlap.
    pub(crate) row: &'a (dyn Fn(usize) -> usize + Sync),
    pub(crate) add: bool,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) relu: bool,
}

/// A right operand in the reading order of tiles: by blocks of k, in these by panels as wide as a tile; the last panel
/// is padded with zeros.
pub(crate) struct Packed {
    level: Simd,
    k: usize,
    n: usize,
    depth: usize,
    data: Vec<f32>,
}

impl Packed {
    pub(crate) fn new(level: Simd, source: &dyn BlockSource, depth: usize) -> Packed {
        Packed::reusing(Vec::new(), level, source, 0..source.cols(), depth)
    }

    fn reusing(
        data: Vec<f32>,
        level: Simd,
        source: &dyn BlockSource,
        cols: Range<usize>,
        depth: usize,
    ) -> Packed {
        let mut packed = Packed {
            level,
            k: source.rows(),
            n: cols.len(),
            depth: depth.max(1),
            data,
        };
        let width = tile::width(level);
        let columns = padded(level, packed.n);
        let (k, n, depth) = (packed.k, packed.n, packed.depth);
        let data = aligned(&mut packed.data, k * columns);
        let blocks: Vec<&mut [f32]> = data.chunks_mut((depth * columns).max(1)).collect();
        let panels: Vec<(usize, usize, &mut [f32])> = blocks
            .into_iter()
            .enumerate()
            .flat_map(|(block, data)| {
                let length = depth.min(k - block * depth);
                data.chunks_mut(length * width)
                    .enumerate()
                    .map(move |(panel, data)| (block * depth, panel * width, data))
            })
            .collect();
        let pack = |(start, column, data): (usize, usize, &mut [f32])| {
            let wide = width.min(n - column);
            let rows = start..(start + depth).min(k);
            let columns = cols.start + column..cols.start + column + wide;
            pack_panel(level, source, rows, columns, data);
        };
        if k * n < 1 << 15 {
            panels.into_iter().for_each(pack);
        } else {
            panels.into_par_iter().for_each(pack);
        }
        packed
    }

    pub(crate) fn k(&self) -> usize {
        self.k
    }

    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// The panel that begins at row `start` and column `column`.
    pub(crate) fn panel(&self, rows: Range<usize>, column: usize) -> &[f32] {
        let columns = padded(self.level, self.n);
        let wide = tile::width(self.level).min(columns - column);
        let offset = self.data.as_ptr().align_offset(ALIGNMENT);
        let at = offset + rows.start * columns + rows.len() * column;
        &self.data[at..at + rows.len() * wide]
    }
}

/// Columns of `n` after filling up to narrow tiles.
fn padded(level: Simd, n: usize) -> usize {
    n.next_multiple_of(tile::width(level) / 2)
}

/// Copies one panel, filling it up with zeros.
fn pack_panel(
    level: Simd,
    source: &dyn BlockSource,
    rows: Range<usize>,
    columns: Range<usize>,
    to: &mut [f32],
) {
    let wide = to.len() / rows.len();
    let (count, filled) = (rows.len(), columns.len());
    source.copy(level, rows, columns, to, wide);
    if filled < wide {
        for row in to.chunks_exact_mut(wide).take(count) {
            row[filled..].fill(0.0);
        }
    }
}

const ALIGNMENT: usize = 64;

/// The first `len` numbers of a buffer at an address that is a multiple of a cache line, so that no vector of a
/// panel crosses lines.
pub(crate) fn aligned(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len + ALIGNMENT / 4 {
        buffer.resize(len + ALIGNMENT / 4, 0.0);
    }
    let offset = buffer.as_ptr().align_offset(ALIGNMENT);
    &mut buffer[offset..offset + len]
}

/// Longest equal blocks of k, the last one shorter at most by the rounding.
pub(crate) fn even_depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1)
}

#[derive(Default)]
struct Scratch {
    a: Vec<f32>,
    b: Vec<f32>,
    rows: Vec<usize>,
    started: Vec<bool>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static WHOLE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// c = a·b, with the additions in `output`. Sums run over blocks of `depth` ≤ [`DEPTH`] numbers or pairs. Packed
/// operands have the same precision.
pub(crate) fn multiply(
    level: Simd,
    precision: Precision,
    left: Left<'_>,
    right: Right<'_>,
    depth: usize,
    output: Output<'_>,
) {
    let (a, b);
    let left = match left {
        Left::Rows(source) => {
            a = Operand::by_columns(level, precision, source);
            Left::Rows(&a)
        }
        Left::Columns(source) => {
            a = Operand::by_rows(level, precision, source);
            Left::Columns(&a)
        }
    };
    let right = match right {
        Right::Source(source) => {
            b = Operand::by_rows(level, precision, source);
            Right::Source(&b)
        }
        packed => packed,
    };
    let pairs = precision.pairs(level);
    let (m, unit) = match left {
        Left::Rows(source) => (source.rows(), source.unit()),
        Left::Columns(source) => (source.cols(), 1),
    };
    let one_tile = m <= tile::height(level);
    match right {
        Right::Source(source) if !one_tile && source.cols() > 0 && source.rows() > 0 => {
            let chunk = (PACKED / source.rows()).max(tile::width(level));
            let chunk = chunk.next_multiple_of(tile::width(level));
            let n = source.cols();
            let c = Shared::new(output.c);
            for start in (0..n).step_by(chunk) {
                let cols = start..(start + chunk).min(n);
                let data = WHOLE.take();
                let packed = Packed::reusing(data, level, source, cols, depth);
                let grid = Grid::new(level, unit, m, packed.n, packed.k);
                Product {
                    level,
                    pairs,
                    m,
                    left,
                    right: Right::Packed(&packed),
                    k: packed.k,
                    n: packed.n,
                    depth,
                    row: &|i| (output.row)(i) + start,
                    add: output.add,
                    bias: output.bias.map(|bias| &bias[start..]),
                    relu: output.relu,
                }
                .run(&grid, &c);
                WHOLE.set(packed.data);
            }
        }
        _ => {
            let (k, n, depth) = match right {
                Right::Source(source) => (source.rows(), source.cols(), depth),
                Right::Packed(packed) => (packed.k, packed.n, packed.depth),
            };
            Product {
                level,
                pairs,
                m,
                left,
                right,
                k,
                n,
                depth,
                row: output.row,
                add: output.add,
                bias: output.bias,
                relu: output.relu,
            }
            .run(&Grid::new(level, unit, m, n, k), &Shared::new(output.c));
        }
    }
}

/// c = aᵀ·b for a long k: `a` \[k, m\] and `b` \[k, n\] are packed as needed, never as a whole. k is divided if m·n
/// alone does not make enough tasks; the parts are added in a fixed order. `c` \[m, n\].
pub(crate) fn multiply_long(
    level: Simd,
    precision: Precision,
    a: &dyn BlockSource,
    b: &dyn BlockSource,
    depth: usize,
    c: &mut [f32],
) {
    let [a, b] = [a, b].map(|source| Operand::by_rows(level, precision, source));
    let (k, m, n) = (a.rows(), a.cols(), b.cols());
    let grid = Grid::long(level, m, n, k, depth);
    let product = |row: &(dyn Fn(usize) -> usize + Sync), grid: &Grid, c: &Shared| {
        Product {
            level,
            pairs: precision.pairs(level),
            m,
            left: Left::Columns(&a),
            right: Right::Source(&b),
            k,
            n,
            depth,
            row,
            add: false,
            bias: None,
            relu: false,
        }
        .run(grid, c);
    };
    let c = &mut c[..m * n];
    if grid.splits == 1 {
        product(&|i| i * n, &grid, &Shared::new(c));
        return;
    }
    sum_of_parts(grid.splits, c, |partial| {
        product(&|i| i * n, &grid, &Shared::new(partial));
    });
}

/// c = the sum of `parts` parts in order, which `write` leaves one after the other in its buffer.
pub(crate) fn sum_of_parts(parts: usize, c: &mut [f32], write: impl FnOnce(&mut [f32])) {
    let mut partial = WHOLE.take();
    if partial.len() < parts * c.len() {
        partial.resize(parts * c.len(), 0.0);
    }
    let len = c.len();
    write(&mut partial[..parts * len]);
    c.par_chunks_mut(4096).enumerate().for_each(|(chunk, c)| {
        let at = chunk * 4096;
        c.copy_from_slice(&partial[at..at + c.len()]);
        for part in 1..parts {
            let from = &partial[part * len + at..][..c.len()];
            for (c, x) in c.iter_mut().zip(from) {
                *c += x;
            }
        }
    });
    WHOLE.set(partial);
}

/// How a product is divided into tasks.
struct Grid {
    /// Rows that stay together.
    unit: usize,
    row_blocks: usize,
    col_blocks: usize,
    splits: usize,
    blocks_a_split: usize,
}

impl Grid {
    /// Blocks of 16 tiles' rows and of up to 512 columns, or smaller ones if these are too few.
    fn new(level: Simd, unit: usize, m: usize, n: usize, k: usize) -> Grid {
        let tiles = m.div_ceil(tile::height(level)).max(1);
        let panels = n.div_ceil(tile::width(level)).max(1);
        let want = (m * n * k / TASK).clamp(1, TASKS);
        let mut row_blocks = tiles.div_ceil(16);
        let mut col_blocks = n.div_ceil(512).max(1);
        if row_blocks * col_blocks < want {
            col_blocks = want
                .div_ceil(row_blocks)
                .min(panels.div_ceil(4))
                .max(col_blocks);
        }
        if row_blocks * col_blocks < want {
            row_blocks = want
                .div_ceil(col_blocks)
                .min(tiles.div_ceil(2))
                .max(row_blocks);
        }
        Grid {
            unit,
            row_blocks: row_blocks.min(m.div_ceil(unit)).max(1),
            col_blocks,
            splits: 1,
            blocks_a_split: usize::MAX,
        }
    }

    /// For operands that are copied by each task: blocks of up to 40 tiles' rows and 640 columns, and k divided as far
    /// as there is room for partial sums; smaller blocks if these are too few.
    fn long(level: Simd, m: usize, n: usize, k: usize, depth: usize) -> Grid {
        let tiles = m.div_ceil(tile::height(level)).max(1);
        let panels = n.div_ceil(tile::width(level)).max(1);
        let want = (m * n * k / TASK).clamp(1, TASKS / 2);
        let row_blocks = tiles.div_ceil(40);
        let mut col_blocks = n.div_ceil(640).max(1);
        let room = (PARTIAL / (m * n).max(1)).max(1);
        let blocks = k.div_ceil(depth).max(1);
        let splits = want.div_ceil(row_blocks * col_blocks).min(room).min(blocks);
        let blocks_a_split = blocks.div_ceil(splits);
        let splits = blocks.div_ceil(blocks_a_split);
        if row_blocks * col_blocks * splits < want {
            let more = want.div_ceil(row_blocks * splits);
            col_blocks = more.min(panels.div_ceil(4)).max(col_blocks);
        }
        Grid {
            unit: 1,
            row_blocks,
            col_blocks,
            splits,
            blocks_a_split,
        }
    }

    fn tasks(&self) -> usize {
        self.row_blocks * self.col_blocks * self.splits
    }
}

/// Memory that several threads write, each its own rows and columns.
struct Shared {
    start: *mut f32,
    len: usize,
}

// SAFETY: tasks write disjoint parts; see `Product::run`.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(c: &mut [f32]) -> Shared {
        Shared {
            start: c.as_mut_ptr(),
            len: c.len(),
        }
    }
}

struct Product<'a> {
    level: Simd,
    pairs: bool,
    m: usize,
    n: usize,
    k: usize,
    left: Left<'a>,
    right: Right<'a>,
    depth: usize,
    row: &'a (dyn Fn(usize) -> usize + Sync),
    add: bool,
    bias: Option<&'a [f32]>,
    relu: bool,
}

impl Product<'_> {
    fn run(&self, grid: &Grid, c: &Shared) {
        if self.m == 0 || self.n == 0 {
            return;
        }
        assert!(self.depth <= DEPTH);
        // If all of b stays in a cache of level 1 or 2, a block of a may be small enough to stay there, too.
        let height = tile::height(self.level);
        let strip = match (self.left, self.right) {
            (Left::Rows(_), Right::Packed(_)) if self.k * self.n <= RESIDENT => {
                (STRIP / self.depth / height).max(1) * height
            }
            _ => usize::MAX,
        };
        let task = |number: usize| {
            let (rest, column) = (number / grid.col_blocks, number % grid.col_blocks);
            let (split, row) = (rest / grid.row_blocks, rest % grid.row_blocks);
            let unit = tile::width(self.level);
            let panels = part(self.n.div_ceil(unit), column, grid.col_blocks);
            let columns = panels.start * unit..(panels.end * unit).min(self.n);
            let units = part(self.m.div_ceil(grid.unit), row, grid.row_blocks);
            let rows = units.start * grid.unit..(units.end * grid.unit).min(self.m);
            let blocks = self.k.div_ceil(self.depth).max(1);
            let first = split.saturating_mul(grid.blocks_a_split).min(blocks);
            let last = first.saturating_add(grid.blocks_a_split).min(blocks);
            let shift = split * self.m * self.n;
            let strips = rows.len().div_ceil(strip);
            SCRATCH.with_borrow_mut(|scratch| {
                for number in 0..strips {
                    let part = part(rows.len(), number, strips);
                    let part = rows.start + part.start..rows.start + part.end;
                    self.block(scratch, part, columns.clone(), first..last, shift, c);
                }
            });
        };
        if grid.tasks() == 1 || rayon::current_num_threads() == 1 {
            (0..grid.tasks()).for_each(task);
        } else {
            (0..grid.tasks()).into_par_iter().for_each(task);
        }
    }

    /// One task: a block of c, over some blocks of k. `shift` is the offset of this part's c.
    fn block(
        &self,
        scratch: &mut Scratch,
        rows: Range<usize>,
        columns: Range<usize>,
        blocks: Range<usize>,
        shift: usize,
        c: &Shared,
    ) {
        if rows.is_empty() || columns.is_empty() {
            return;
        }
        let Scratch {
            a,
            b,
            rows: offsets,
            started,
        } = scratch;
        started.clear();
        started.resize(columns.len().div_ceil(tile::width(self.level)), self.add);
        offsets.clear();
        offsets.extend(rows.clone().map(|i| {
            let at = shift + (self.row)(i);
            assert!(
                at + self.n <= c.len,
                "a row of a product is outside its memory"
            );
            at
        }));
        let depths = |block: usize| block * self.depth..((block + 1) * self.depth).min(self.k);
        let skip = |block: &usize| match self.left {
            Left::Rows(source) => source.is_zero(rows.clone(), depths(*block)),
            Left::Columns(_) => false,
        };
        let last = blocks
            .clone()
            .rev()
            .find(|block| !skip(block))
            .unwrap_or(blocks.start);
        let tiles = rows.len().div_ceil(tile::height(self.level));
        let width = tile::width(self.level);
        let copied = self.copied(&columns);
        for block in blocks.start..=last {
            if block != last && skip(&block) {
                continue;
            }
            let p = depths(block);
            let a_stride = self.pack_left(a, &rows, &p);
            let b_stride = self.pack_right(b, &p, copied..columns.end);
            for (column, started) in columns.clone().step_by(width).zip(&mut *started) {
                let add = std::mem::replace(started, true);
                if add && self.bias.is_none() && !self.relu && self.is_zero(&p, column) {
                    continue;
                }
                let wide = width.min(padded(self.level, self.n) - column);
                let (panel, b_stride) = match self.right {
                    Right::Packed(packed) => (packed.panel(p.clone(), column), wide),
                    Right::Source(_) if column >= copied => (
                        &b[b.as_ptr().align_offset(ALIGNMENT) + column - copied..],
                        b_stride,
                    ),
                    Right::Source(source) => {
                        let (data, stride) = source.direct().expect("rows without gaps");
                        (data.get(p.start * stride + column..).unwrap_or(&[]), stride)
                    }
                };
                for number in 0..tiles {
                    let part = part(rows.len(), number, tiles);
                    let (a_row, a_column) = a_stride.map_or((ROW, 1), |stride| (1, stride));
                    let tile = Tile {
                        depth: p.len(),
                        lines: 1,
                        pairs: self.pairs,
                        a: &a[part.start * a_row..],
                        a_row,
                        a_column,
                        a_line: 0,
                        b: panel,
                        b_stride,
                        b_line: 0,
                        narrow: wide < width,
                        c: c.start,
                        rows: &offsets[part],
                        add,
                        bias: None,
                        relu: self.relu && block == last,
                    };
                    let bias = self.bias.filter(|_| block == last);
                    self.store(&tile, column, wide, bias);
                }
            }
        }
    }

    /// Whether a panel of `b` is all zeros.
    fn is_zero(&self, p: &Range<usize>, column: usize) -> bool {
        let end = (column + tile::width(self.level)).min(self.n);
        match self.right {
            Right::Source(source) => source.is_zero(p.clone(), column..end),
            Right::Packed(_) => false,
        }
    }

    /// Computes a tile into c, through a buffer if it extends beyond the last column.
    fn store(&self, tile: &Tile<'_>, column: usize, wide: usize, bias: Option<&[f32]>) {
        let filled = wide.min(self.n - column);
        let bias = bias.map(|bias| &bias[column..column + filled]);
        let c = tile.c.wrapping_add(column);
        if filled == wide {
            // SAFETY: all columns of the tile are inside the product's, and `block` checked that its rows are inside c;
            // tasks have different rows, columns or parts of k, and so write different numbers.
            unsafe { tile::multiply(self.level, &Tile { c, bias, ..*tile }) };
            return;
        }
        const WIDEST: usize = 32;
        let mut buffer = [0.0f32; 14 * WIDEST];
        let starts: [usize; 14] = std::array::from_fn(|i| i * WIDEST);
        let whole = Tile {
            c: buffer.as_mut_ptr(),
            rows: &starts[..tile.rows.len()],
            add: false,
            bias: None,
            relu: false,
            ..*tile
        };
        // SAFETY: the buffer holds the highest and widest tile, and is this task's own.
        unsafe { tile::multiply(self.level, &whole) };
        for (&row, values) in tile.rows.iter().zip(buffer.chunks_exact(WIDEST)) {
            // SAFETY: as above.
            let to = unsafe { std::slice::from_raw_parts_mut(c.wrapping_add(row), filled) };
            for (j, (to, &value)) in to.iter_mut().zip(values).enumerate() {
                let mut value = if tile.add { *to + value } else { value };
                value += bias.map_or(0.0, |bias| bias[j]);
                *to = if tile.relu && value < 0.0 { 0.0 } else { value };
            }
        }
    }

    /// Copies a block of `a`; returns its stride, in the form of `Tile`.
    fn pack_left(&self, a: &mut Vec<f32>, rows: &Range<usize>, p: &Range<usize>) -> Option<usize> {
        match self.left {
            Left::Rows(source) => {
                let len = rows.len() * ROW;
                if a.len() < len {
                    a.resize(len, 0.0);
                }
                source.copy(self.level, rows.clone(), p.clone(), a, ROW);
                None
            }
            Left::Columns(source) => {
                // An odd number of cache lines, so that the lines of a tile spread over the whole cache.
                let stride = (rows.len().div_ceil(16) | 1) * 16;
                if a.len() < stride * p.len() {
                    a.resize(stride * p.len(), 0.0);
                }
                source.copy(self.level, p.clone(), rows.clone(), a, stride);
                Some(stride)
            }
        }
    }

    /// The first column of `b` that must be copied, because it is neither packed nor readable in place.
    fn copied(&self, columns: &Range<usize>) -> usize {
        match self.right {
            Right::Packed(_) => columns.end,
            // Each number is used once: no copy pays, except for a partial last panel.
            Right::Source(source)
                if self.m <= tile::height(self.level) && source.direct().is_some() =>
            {
                let width = tile::width(self.level);
                let rest = columns.len() % width;
                columns.end - if rest == width / 2 { 0 } else { rest }
            }
            Right::Source(_) => columns.start,
        }
    }

    /// Copies a block of `b` row by row; returns its stride, an odd number of cache lines.
    fn pack_right(&self, b: &mut Vec<f32>, p: &Range<usize>, columns: Range<usize>) -> usize {
        let stride = (columns.len().div_ceil(16) | 1) * 16;
        if let Right::Source(source) = self.right
            && !columns.is_empty()
        {
            let to = aligned(b, stride * p.len() + tile::width(self.level));
            source.copy(self.level, p.clone(), columns, to, stride);
        }
        stride
    }
}

/// Part `number` of `parts` nearly equal parts of 0..n.
pub(crate) fn part(n: usize, number: usize, parts: usize) -> Range<usize> {
    n * number / parts..n * (number + 1) / parts
}
