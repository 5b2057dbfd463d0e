//! Large arrays that are visited at random, on huge pages where the system grants them.
//!
//! A visit of a sparse row touches some thirty weights, each on a page of its own when there are
//! millions of features: with 4 KiB pages nearly every touch also misses the translation cache. Asking
//! for 2 MiB pages is a hint; a refusal only costs time, so it is ignored. Replacing the allocator was
//! rejected: it would change the memory of the whole process for the sake of two arrays.
#![allow(unsafe_code)]

/// Bytes of a huge page.
const PAGE: usize = 2 << 20;

/// `length` zeros, on huge pages where they fill some.
pub(crate) fn zeros(length: usize) -> Vec<f32> {
    let mut values = vec![0.0; length];
    advise(&mut values);
    values
}

/// An empty vector with room for `capacity` items, on huge pages where they fill some.
pub(crate) fn with_capacity<T>(capacity: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(capacity);
    advise(&mut values);
    values
}

/// Asks for huge pages under the whole capacity of a vector.
fn advise<T>(values: &mut Vec<T>) {
    let start = values.as_mut_ptr() as usize;
    let end = start + values.capacity() * size_of::<T>();
    // Only whole huge pages inside the allocation, so that nobody else's memory is advised about.
    let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
    if first >= last {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        let address = values
            .as_mut_ptr()
            .cast::<u8>()
            .wrapping_add(first - start)
            .cast();
        // SAFETY: the range lies inside the allocation of `values`, and this advice never changes what
        // memory holds.
        let _ = unsafe {
            rustix::mm::madvise(address, last - first, rustix::mm::Advice::LinuxHugepage)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_any_size_hold_what_is_written() {
        for length in [0, 1, 1000, PAGE / 4, PAGE, 3 * PAGE / 4 + 5, 2 * PAGE] {
            let mut values = zeros(length);
            assert_eq!(values.len(), length);
            assert!(values.iter().all(|&value| value == 0.0));
            for (i, value) in values.iter_mut().enumerate() {
                *value = i as f32;
            }
            assert!(
                values
                    .iter()
                    .enumerate()
                    .all(|(i, &value)| value == i as f32)
            );
            let mut grown: Vec<u32> = with_capacity(length);
            grown.extend(0..length as u32);
            assert!(
                grown
                    .iter()
                    .enumerate()
                    .all(|(i, &value)| value == i as u32)
            );
        }
    }
}
