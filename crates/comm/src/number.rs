//! Numbers that ranks reduce, and the order in which they do it.
//!
//! Element i of a reduction is combined over the ranks 0, 1, 2 … in that order, by the rank that owns it. So the bits
//! of the result depend only on the operands and the number of ranks: not on timing, transport, or the length of the
//! vector. A reduction tree was rejected because its shape differs between libraries; it would save no additions,
//! only latency.

use std::fmt;

use bytemuck::Pod;
use bytes::Bytes;

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum; integers wrap around.
    Sum,
    /// The largest; a NaN of any rank wins, so that it stays visible.
    Max,
}

mod sealed {
    pub trait Sealed {}
}

/// A type that ranks can reduce: `f32`, `f64` and `u64`.
pub trait Number: Pod + Send + Sync + fmt::Debug + sealed::Sealed {
    /// Combines the result of lower ranks with the next rank's value.
    #[doc(hidden)]
    fn combine(so_far: Self, next: Self, reduction: Reduction) -> Self;
}

macro_rules! float {
    ($number:ty) => {
        impl sealed::Sealed for $number {}
        impl Number for $number {
            #[inline]
            fn combine(so_far: Self, next: Self, reduction: Reduction) -> Self {
                match reduction {
                    Reduction::Sum => so_far + next,
                    Reduction::Max if so_far > next || so_far.is_nan() => so_far,
                    Reduction::Max => next,
                }
            }
        }
    };
}
float!(f32);
float!(f64);

impl sealed::Sealed for u64 {}
impl Number for u64 {
    #[inline]
    fn combine(so_far: Self, next: Self, reduction: Reduction) -> Self {
        match reduction {
            Reduction::Sum => so_far.wrapping_add(next),
            Reduction::Max => so_far.max(next),
        }
    }
}

/// The reduction of one rank's share of the elements; `contributions` are in rank order and equally
/// long.
pub(crate) fn reduce<T: Number>(contributions: &[Bytes], reduction: Reduction) -> Bytes {
    let mut result: Vec<T> = bytemuck::pod_collect_to_vec(&contributions[0][..]);
    for contribution in &contributions[1..] {
        let next = contribution.chunks_exact(size_of::<T>());
        for (value, next) in result.iter_mut().zip(next) {
            *value = T::combine(*value, bytemuck::pod_read_unaligned(next), reduction);
        }
    }
    owned(result)
}

/// [`reduce`] for one type of number.
pub(crate) type Reduce = fn(&[Bytes], Reduction) -> Bytes;

/// The bytes of `values`, without a copy.
pub(crate) fn owned<T: Pod + Send + Sync>(values: Vec<T>) -> Bytes {
    struct Owner<T>(Vec<T>);
    impl<T: Pod> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    Bytes::from_owner(Owner(values))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_nan_is_not_lost() {
        for values in [[f64::NAN, 1.0], [1.0, f64::NAN]] {
            assert!(f64::combine(values[0], values[1], Reduction::Max).is_nan());
        }
        assert_eq!(f32::combine(1.0, 2.0, Reduction::Max), 2.0);
        assert_eq!(f32::combine(2.0, 1.0, Reduction::Max), 2.0);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(u64::combine(u64::MAX, 2, Reduction::Sum), 1);
        assert_eq!(u64::combine(3, 2, Reduction::Max), 3);
    }

    #[test]
    fn ranks_are_summed_in_order() {
        let parts = [1e16, 1.0, -1e16].map(|value: f64| owned(vec![value]));
        let sum = reduce::<f64>(&parts, Reduction::Sum);
        assert_eq!(
            bytemuck::pod_read_unaligned::<f64>(&sum),
            (1e16 + 1.0) - 1e16
        );
    }
}
