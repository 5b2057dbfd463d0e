//! Plain loops, safe code only: the reference for the others and the fallback.

use pelton_format::Layout;

use super::pass_loop::{BlockRows, Dots, Vectors, pass_loop, prefetch, prefetch_slice};
use crate::step::Step;
use crate::visit::{RowAddress, Segment, Visit};

/// How many cache lines of a long row are prefetched; the processor's own prefetcher follows.
const LINES_AHEAD: usize = 8;

/// Dense rows, any width.
pub(super) struct Dense<'a, W> {
    pub(super) segments: &'a [Segment<'a>],
    pub(super) width: usize,
    pub(super) used: usize,
    pub(super) bias: f32,
    pub(super) w: W,
}

impl<W> Dense<'_, W> {
    /// The features of a row that the model knows.
    #[inline(always)]
    pub(super) fn row(&self, place: RowAddress) -> &[f32] {
        let start = place.start as usize * self.width;
        &self.segments[place.segment as usize].values[start..start + self.used]
    }

    #[inline(always)]
    pub(super) fn prefetch_start(&self, place: RowAddress) {
        let row = self.row(place);
        prefetch_slice(&row[..row.len().min(16 * LINES_AHEAD)]);
    }
}

impl<W: AsRef<[f32]>> Dots for Dense<'_, W> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        let (x, w) = (self.row(place), self.w.as_ref());
        let mut sums = [0.0_f32; 8];
        for (x, w) in x.chunks(8).zip(w.chunks(8)) {
            for ((sum, x), w) in sums.iter_mut().zip(x).zip(w) {
                *sum += x * w;
            }
        }
        let dot: f32 = sums.iter().sum();
        if self.bias == 0.0 {
            dot
        } else {
            dot + self.bias * w[w.len() - 1]
        }
    }

    #[inline(always)]
    fn prefetch_row(&self, place: RowAddress) {
        self.prefetch_start(place);
    }

    #[inline(always)]
    fn prefetch_weights(&self, _: RowAddress) {}
}

impl Vectors for Dense<'_, &mut [f32]> {
    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        let start = place.start as usize * self.width;
        let x = &self.segments[place.segment as usize].values[start..start + self.used];
        for (w, x) in self.w.iter_mut().zip(x) {
            *w += scale * x;
        }
        if self.bias != 0.0
            && let Some(last) = self.w.last_mut()
        {
            *last += scale * self.bias;
        }
    }
}

/// Sparse rows.
pub(super) struct Sparse<'a, W> {
    pub(super) segments: &'a [Segment<'a>],
    pub(super) bias: f32,
    pub(super) w: W,
}

impl<'a, W> Sparse<'a, W> {
    #[inline(always)]
    pub(super) fn row(&self, place: RowAddress) -> (&'a [u32], &'a [f32]) {
        let segment = &self.segments[place.segment as usize];
        let span = place.start as usize..place.start as usize + place.length as usize;
        (&segment.indices[span.clone()], &segment.values[span])
    }
}

/// Asks for the values and indices of a sparse row, as far as the processor's own prefetcher will
/// not follow.
#[inline(always)]
pub(super) fn prefetch_sparse(segment: &Segment<'_>, place: RowAddress) {
    let bytes = 4 * (place.length as usize).min(16 * LINES_AHEAD);
    let values = segment.values.as_ptr().wrapping_add(place.start as usize);
    let indices = segment.indices.as_ptr().wrapping_add(place.start as usize);
    let mut offset = 0;
    while offset < bytes + 60 {
        let offset_here = offset.min(bytes.saturating_sub(1));
        prefetch(values.cast::<u8>().wrapping_add(offset_here));
        prefetch(indices.cast::<u8>().wrapping_add(offset_here));
        offset += 64;
    }
}

/// How many weights of a row are prefetched: more would evict one another from the first-level cache.
pub(super) const WEIGHTS_PREFETCHED: usize = 128;

impl<W: AsRef<[f32]>> Dots for Sparse<'_, W> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        let (indices, values) = self.row(place);
        let w = self.w.as_ref();
        let mut sums = [0.0_f32; 4];
        for (indices, values) in indices.chunks(4).zip(values.chunks(4)) {
            for ((sum, &index), &value) in sums.iter_mut().zip(indices).zip(values) {
                *sum += value * w[index as usize];
            }
        }
        let dot = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        if self.bias == 0.0 {
            dot
        } else {
            dot + self.bias * w[w.len() - 1]
        }
    }

    #[inline(always)]
    fn prefetch_row(&self, place: RowAddress) {
        prefetch_sparse(&self.segments[place.segment as usize], place);
    }

    #[inline(always)]
    fn prefetch_weights(&self, place: RowAddress) {
        let (indices, _) = self.row(place);
        let w = self.w.as_ref();
        for &index in indices.iter().take(WEIGHTS_PREFETCHED) {
            prefetch(w.as_ptr().wrapping_add(index as usize));
        }
    }
}

impl Vectors for Sparse<'_, &mut [f32]> {
    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        let (indices, values) = self.row(place);
        for (&index, &value) in indices.iter().zip(values) {
            self.w[index as usize] += scale * value;
        }
        if self.bias != 0.0
            && let Some(last) = self.w.last_mut()
        {
            *last += scale * self.bias;
        }
    }
}

pub(super) fn pass<S: Step>(
    rows: &BlockRows<'_>,
    w: &mut [f32],
    step: &mut S,
    visits: &mut [Visit],
    order: &[u32],
    settled: &mut [bool],
) {
    let (segments, bias) = (&rows.segments[..], rows.bias);
    match rows.layout {
        Layout::Dense { width } => {
            let (width, used) = rows.dense_widths(width);
            let mut vectors = Dense {
                segments,
                width,
                used,
                bias,
                w,
            };
            pass_loop(&mut vectors, step, visits, order, settled)
        }
        Layout::Sparse | Layout::Bytes => pass_loop(
            &mut Sparse { segments, bias, w },
            step,
            visits,
            order,
            settled,
        ),
    }
}
