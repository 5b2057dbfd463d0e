//! Values that are worked on group by group, where many of a group together take less time than one by one.

/// Values of a group, on average, that make sorting them by group worth it.
const TOGETHER: usize = 4;

/// Buffers, kept between calls.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Where each group begins among the sorted values.
    starts: Vec<usize>,
    next: Vec<usize>,
    slots: Vec<usize>,
    sorted: Vec<u64>,
}

impl Groups {
    /// Hands each value to `change` together with others of its group: all of them, or neighbours where groups are
    /// many beside the values. Groups are `0..groups`.
    pub(crate) fn change(
        &mut self,
        groups: usize,
        group_of: &[u32],
        values: &mut [u64],
        mut change: impl FnMut(usize, &mut [u64]),
    ) {
        if values.len() < TOGETHER * groups {
            let mut from = 0;
            for alike in group_of.chunk_by(|a, b| a == b) {
                change(alike[0] as usize, &mut values[from..from + alike.len()]);
                from += alike.len();
            }
            return;
        }
        // A counting sort.
        self.starts.clear();
        self.starts.resize(groups + 1, 0);
        for &group in group_of {
            self.starts[group as usize + 1] += 1;
        }
        for group in 0..groups {
            self.starts[group + 1] += self.starts[group];
        }
        self.next.clone_from(&self.starts);
        self.slots.resize(values.len(), 0);
        self.sorted.resize(values.len(), 0);
        for (slot, (&value, &group)) in values.iter().zip(group_of).enumerate() {
            let at = &mut self.next[group as usize];
            self.slots[*at] = slot;
            self.sorted[*at] = value;
            *at += 1;
        }
        for (group, ends) in self.starts.windows(2).enumerate() {
            if ends[0] < ends[1] {
                change(group, &mut self.sorted[ends[0]..ends[1]]);
            }
        }
        for (&slot, &value) in self.slots.iter().zip(&self.sorted) {
            values[slot] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

    #[test]
    fn every_value_is_changed_once_with_its_group() {
        let mut rng = KeyedRng::new(6);
        let mut groups = Groups::default();
        for (count, len) in [(1, 0), (1, 40), (3, 100), (3, 20), (50, 2000), (2000, 300)] {
            let group_of: Vec<u32> = (0..len).map(|_| rng.below(count) as u32).collect();
            let before: Vec<u64> = (0..len).map(|_| rng.below(1000)).collect();
            let mut values = before.clone();
            groups.change(count as usize, &group_of, &mut values, |group, values| {
                assert!(!values.is_empty());
                values
                    .iter_mut()
                    .for_each(|value| *value += 1000 * group as u64 + 1);
            });
            let expected = before.iter().zip(&group_of);
            let expected = expected.map(|(value, &group)| value + 1000 * u64::from(group) + 1);
            assert!(values.into_iter().eq(expected));
        }
    }
}
