//! Which features of a block the rows of several ranks have: what these must exchange in every round.
//!
//! Of dense rows that is all of them. Of sparse rows most features are rare, and the rows that have one
//! often lie on one rank; it moves their weights alone and tells them at the block's end.
//!
//! Cost: one pass over the indices, a bit a feature from every rank, 9 bytes a shared feature.

use crate::kernels::BlockRows;
use crate::ranks::{Exchange, Peers};
use crate::visit::Visit;
use pelton_format::Layout;

/// The features that several ranks share.
pub(crate) struct SharedFeatures {
    /// Number of weights.
    length: usize,
    /// The shared features in ascending order and how many ranks know each; empty where all are.
    features: Vec<u32>,
    ranks_of: Vec<u8>,
    /// 1 / the number of ranks, where all are shared.
    part: f32,
    /// Features that only this rank has, as a set for each rank; empty where all are shared.
    alone: Vec<Vec<u64>>,
}

impl SharedFeatures {
    /// Finds them, together with all ranks.
    pub fn agree<E>(
        rows: &BlockRows<'_>,
        visits: &[Visit],
        length: usize,
        peers: &mut Peers<'_, E>,
    ) -> Result<SharedFeatures, E> {
        // Ranks without rows count for none, and do not know the layout.
        let dense = matches!(rows.layout, Layout::Dense { .. }) && !visits.is_empty();
        let mut dense_ranks = [f64::from(u8::from(dense))];
        (peers.exchange)(Exchange::SumWide(&mut dense_ranks))?;
        if dense_ranks[0] > 0.0 {
            return Ok(SharedFeatures {
                length,
                features: Vec::new(),
                ranks_of: Vec::new(),
                part: (1.0 / dense_ranks[0]) as f32,
                alone: Vec::new(),
            });
        }
        let mut own = vec![0_u64; length.div_ceil(64)];
        for visit in visits {
            for &feature in rows.indices(visit.place) {
                own[feature as usize / 64] |= 1 << (feature % 64);
            }
        }
        if rows.bias != 0.0 && !visits.is_empty() {
            own[(length - 1) / 64] |= 1 << ((length - 1) % 64);
        }
        let mut sets = Vec::new();
        (peers.exchange)(Exchange::GatherBits(&own, &mut sets))?;
        Ok(SharedFeatures::of_sets(length, sets))
    }

    fn of_sets(length: usize, mut sets: Vec<Vec<u64>>) -> SharedFeatures {
        let (mut features, mut ranks_of) = (Vec::new(), Vec::new());
        for word in 0..length.div_ceil(64) {
            let (mut once, mut twice) = (0, 0);
            for set in &sets {
                twice |= once & set[word];
                once |= set[word];
            }
            let mut rest = twice;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                features.push((64 * word) as u32 + bit);
                let ranks = sets.iter().filter(|set| set[word] >> bit & 1 == 1).count();
                ranks_of.push(ranks.min(255) as u8);
            }
            for set in &mut sets {
                set[word] &= !twice;
            }
        }
        SharedFeatures {
            length,
            features,
            ranks_of,
            part: 0.0,
            alone: sets,
        }
    }

    fn all(&self) -> bool {
        self.alone.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        if self.all() {
            self.length
        } else {
            self.features.len()
        }
    }

    /// 1 / the number of ranks that know the `j`-th of them.
    #[inline]
    pub fn part(&self, j: usize) -> f32 {
        match self.ranks_of.get(j) {
            Some(&ranks) => 1.0 / f32::from(ranks),
            None => self.part,
        }
    }

    /// Copies the weights of shared features from `w`.
    pub fn pick(&self, w: &[f32], shared: &mut Vec<f32>) {
        shared.clear();
        if self.all() {
            shared.extend_from_slice(w);
        } else {
            shared.extend(self.features.iter().map(|&feature| w[feature as usize]));
        }
    }

    /// Copies the weights of shared features to `w`.
    pub fn put(&self, shared: &[f32], w: &mut [f32]) {
        if self.all() {
            w.copy_from_slice(shared);
            return;
        }
        for (&feature, &weight) in self.features.iter().zip(shared) {
            w[feature as usize] = weight;
        }
    }

    /// Tells all ranks the weights that only this one has moved, and learns theirs.
    pub fn spread<E>(&self, w: &mut [f32], peers: &mut Peers<'_, E>) -> Result<(), E> {
        let Some(own) = self.alone.get(peers.rank) else {
            return Ok(());
        };
        let told: Vec<f32> = members(own).map(|feature| w[feature]).collect();
        let mut all = Vec::new();
        (peers.exchange)(Exchange::Gather(&told, &mut all))?;
        for (rank, (set, told)) in self.alone.iter().zip(&all).enumerate() {
            if rank != peers.rank {
                for (feature, &weight) in members(set).zip(told) {
                    w[feature] = weight;
                }
            }
        }
        Ok(())
    }
}

/// The members of a set in ascending order.
fn members(set: &[u64]) -> impl Iterator<Item = usize> + '_ {
    set.iter().enumerate().flat_map(|(word, &bits)| {
        let mut rest = bits;
        std::iter::from_fn(move || {
            let bit = rest.trailing_zeros() as usize;
            (rest != 0).then(|| {
                rest &= rest - 1;
                64 * word + bit
            })
        })
    })
}
