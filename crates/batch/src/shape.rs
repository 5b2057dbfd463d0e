//! The layout of a batch's samples in an array.

/// The dimensions of an array, and the position of each sample in it. Elements are contiguous along the last
/// dimension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Lengths of the dimensions; their product is the number of elements.
    pub dims: Vec<usize>,
    /// The positions of the samples.
    pub layout: Layout,
}

/// The layout of the samples in an array.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Layout {
    /// Each of one shape, one after another: `[samples, …]`.
    #[default]
    Stacked,
    /// Padded along their first dimension: `[samples, longest, …]`.
    Padded {
        /// Elements along that dimension that are the sample's own, one a sample.
        lengths: Vec<u32>,
    },
    /// One after another along the first dimension, sample `i` from `offsets[i]` to `offsets[i + 1]`:
    /// `[elements of all]`.
    Ragged {
        /// One more than there are samples.
        offsets: Vec<u64>,
        /// The dimensions of each sample; empty if all have one.
        dims: Vec<Vec<usize>>,
    },
    /// Rows of several samples each, the rest of a row zeros: `[rows, length]`.
    Packed {
        /// Samples of each row, in order.
        row_samples: Vec<u32>,
        /// Elements of each sample, in order.
        lengths: Vec<u32>,
    },
}

impl Shape {
    /// Samples of one shape: `[samples, sample…]`.
    pub fn stacked(samples: usize, sample: &[usize]) -> Shape {
        let dims = [&[samples], sample].concat();
        Shape {
            dims,
            layout: Layout::Stacked,
        }
    }

    /// Samples of the given lengths one after another.
    pub fn ragged(lengths: impl Iterator<Item = usize>) -> Shape {
        let mut end = 0;
        let mut offsets = vec![0];
        offsets.extend(lengths.map(|length| {
            end += length as u64;
            end
        }));
        Shape {
            dims: vec![end as usize],
            layout: Layout::Ragged {
                offsets,
                dims: Vec::new(),
            },
        }
    }

    /// Number of elements, padding included.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Number of samples.
    pub fn samples(&self) -> usize {
        match &self.layout {
            Layout::Stacked => self.dims.first().copied().unwrap_or(0),
            Layout::Padded { lengths } | Layout::Packed { lengths, .. } => lengths.len(),
            Layout::Ragged { offsets, .. } => offsets.len().saturating_sub(1),
        }
    }

    /// Elements that are padding.
    pub fn padding(&self) -> usize {
        let sum = |lengths: &[u32]| lengths.iter().map(|&length| length as usize).sum::<usize>();
        let used = match &self.layout {
            Layout::Padded { lengths } => sum(lengths) * self.dims[2..].iter().product::<usize>(),
            Layout::Packed { lengths, .. } => sum(lengths),
            Layout::Stacked | Layout::Ragged { .. } => return 0,
        };
        self.elements() - used
    }

    /// The elements of each sample, in order, without padding.
    pub fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        match &self.layout {
            Layout::Stacked => {
                let each = self.dims[1..].iter().product::<usize>();
                (0..self.samples())
                    .map(|i| i * each..(i + 1) * each)
                    .collect()
            }
            Layout::Padded { lengths } => {
                let inner: usize = self.dims[2..].iter().product();
                let row = self.dims[1] * inner;
                let range =
                    |(i, &length): (usize, &u32)| i * row..i * row + length as usize * inner;
                lengths.iter().enumerate().map(range).collect()
            }
            Layout::Ragged { offsets, .. } => offsets
                .windows(2)
                .map(|ends| ends[0] as usize..ends[1] as usize)
                .collect(),
            Layout::Packed {
                row_samples,
                lengths,
            } => {
                let mut lengths = lengths.iter();
                let mut ranges = Vec::with_capacity(lengths.len());
                for (row, &samples) in row_samples.iter().enumerate() {
                    let mut start = row * self.dims[1];
                    for &length in lengths.by_ref().take(samples as usize) {
                        ranges.push(start..start + length as usize);
                        start += length as usize;
                    }
                }
                ranges
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shape: &Shape, elements: usize, padding: usize, ranges: &[std::ops::Range<usize>]) {
        assert_eq!((shape.elements(), shape.padding()), (elements, padding));
        assert_eq!(shape.samples(), ranges.len());
        assert_eq!(shape.ranges(), ranges);
    }

    #[test]
    fn samples_are_where_the_layout_says() {
        check(&Shape::stacked(2, &[3, 2]), 12, 0, &[0..6, 6..12]);
        check(&Shape::stacked(3, &[]), 3, 0, &[0..1, 1..2, 2..3]);
        check(
            &Shape::ragged([2, 0, 3].into_iter()),
            5,
            0,
            &[0..2, 2..2, 2..5],
        );
        let padded = Shape {
            dims: vec![2, 4, 3],
            layout: Layout::Padded {
                lengths: vec![1, 4],
            },
        };
        check(&padded, 24, 9, &[0..3, 12..24]);
        let packed = Shape {
            dims: vec![2, 5],
            layout: Layout::Packed {
                row_samples: vec![2, 1],
                lengths: vec![2, 3, 4],
            },
        };
        check(&packed, 10, 1, &[0..2, 2..5, 5..9]);
        check(&Shape::ragged(std::iter::empty()), 0, 0, &[]);
    }
}
