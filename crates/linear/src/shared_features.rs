//! Which features of a block the rows of several ranks have: what these must exchange in every round.
//!
//! Of dense rows that is all of them. Of sparse rows most features are rare, and the rows that have one
//! often lie on one rank; it moves their weights alone and tells them at the block's end. Of the shared
//! ones the *popular* come first: they couple the rows of different ranks, and are exchanged in
//! every round, the others now and then.
//!
//! Cost: one pass over the indices, a bit a feature from every rank, 5 bytes a shared feature.

use std::ops::Range;

use pelton_format::Layout;

use crate::kernels::BlockRows;
use crate::ranks::{Exchange, Peers};
use crate::visit::Visit;

/// Popular features that each rank names, and values that it finds them among.
const MOST_POPULAR: usize = 1 << 11;
const SAMPLED_VALUES: usize = 1 << 20;

/// The features that several ranks share, as a list of *elements*.
#[derive(Debug)]
pub(crate) struct SharedFeatures {
    /// Number of weights.
    length: usize,
    elements: Elements,
    /// How many ranks know each element; empty where all know all.
    ranks_of: Vec<u8>,
    /// How many of them are popular; these come first.
    popular: usize,
    /// How many of them are common; the popular ones are.
    common: usize,
    /// 1 / the number of ranks, where all know all.
    part: f32,
    /// Features that only this rank has, as a set for each rank; empty where all are shared.
    alone: Vec<Vec<u64>>,
}

/// Which feature each element is.
#[derive(Debug)]
enum Elements {
    /// Every feature, in order.
    All,
    /// The bias where there is one, then as many features from the first on.
    Run { bias: bool, features: usize },
    /// These: the popular ones in ascending order, then the others.
    List(Vec<u32>),
}

impl SharedFeatures {
    /// Finds them, together with all ranks. Where features are numbered by frequency, `frequent` says how
    /// many are in two rows or more, and in many; with `same_rows` they are found once for all blocks.
    pub fn agree<E>(
        rows: &BlockRows<'_>,
        visits: &[Visit],
        length: usize,
        frequent: Option<[usize; 2]>,
        same_rows: bool,
        peers: &mut Peers<'_, E>,
    ) -> Result<SharedFeatures, E> {
        let dense = matches!(rows.layout, Layout::Dense { .. }) && !visits.is_empty();
        if let Some(shared) = SharedFeatures::dense(length, dense, peers)? {
            return Ok(shared);
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
        (peers.exchange)(Exchange::GatherWords(&own, &mut sets))?;
        let bias = rows.bias != 0.0;
        if let Some(frequent) = frequent.filter(|_| same_rows) {
            return Ok(SharedFeatures::run(length, bias, frequent, sets));
        }
        let mut shared = SharedFeatures::of_sets(length, sets);
        if let Some([_, common]) = frequent {
            shared.divide(bias, common);
            return Ok(shared);
        }
        let mut told = Vec::new();
        let own = popular_features(rows, visits);
        (peers.exchange)(Exchange::GatherWords(&own, &mut told))?;
        shared.put_first(told.concat());
        Ok(shared)
    }

    /// All of them, as ranks share dense rows; `some` says whether this rank has rows. `None` where none
    /// has.
    pub fn dense<E>(
        length: usize,
        some: bool,
        peers: &mut Peers<'_, E>,
    ) -> Result<Option<SharedFeatures>, E> {
        // Ranks without rows count for none, and do not know the layout.
        let mut ranks = [f64::from(u8::from(some))];
        (peers.exchange)(Exchange::SumWide(&mut ranks))?;
        Ok((ranks[0] > 0.0).then(|| SharedFeatures {
            length,
            popular: length,
            common: length,
            elements: Elements::All,
            ranks_of: Vec::new(),
            part: (1.0 / ranks[0]) as f32,
            alone: Vec::new(),
        }))
    }

    /// All of the first `features`, since most of them are, and the bias.
    fn run(
        length: usize,
        bias: bool,
        [features, common]: [usize; 2],
        mut sets: Vec<Vec<u64>>,
    ) -> SharedFeatures {
        let ranks_of = |feature: usize| {
            let known = sets.iter().filter(|set| has(set, feature)).count();
            known.clamp(1, 255) as u8
        };
        let elements = bias.then_some(length - 1).into_iter().chain(0..features);
        let ranks_of: Vec<u8> = elements.map(ranks_of).collect();
        for set in &mut sets {
            let elements = bias.then_some(length - 1).into_iter().chain(0..features);
            for feature in elements {
                set[feature / 64] &= !(1 << (feature % 64));
            }
        }
        SharedFeatures {
            length,
            elements: Elements::Run { bias, features },
            popular: ranks_of.len().min(MOST_POPULAR),
            common: ranks_of.len().min(MOST_POPULAR.max(common)),
            ranks_of,
            part: 0.0,
            alone: sets,
        }
    }

    /// Says which of the listed features are popular and common where they are numbered by frequency.
    fn divide(&mut self, bias: bool, common: usize) {
        let Elements::List(features) = &mut self.elements else {
            return;
        };
        let last = self.length - 1;
        let has_bias = bias
            && features
                .last()
                .is_some_and(|&feature| feature as usize == last);
        let below = |end: usize| features.partition_point(|&feature| (feature as usize) < end);
        let ends = [below(MOST_POPULAR), below(common.max(MOST_POPULAR))];
        if has_bias {
            features.rotate_right(1);
            self.ranks_of.rotate_right(1);
        }
        [self.popular, self.common] = ends.map(|end| end + usize::from(has_bias));
        self.popular = self.popular.min(features.len());
        self.common = self.common.min(features.len());
    }

    /// Puts these of the shared features first.
    fn put_first(&mut self, mut popular: Vec<u64>) {
        let Elements::List(features) = &mut self.elements else {
            return;
        };
        popular.sort_unstable();
        popular.dedup();
        let shared = features.iter().copied().zip(self.ranks_of.iter().copied());
        let is_popular =
            |(feature, _): &(u32, u8)| popular.binary_search(&u64::from(*feature)).is_ok();
        let (first, rest): (Vec<_>, Vec<_>) = shared.partition(is_popular);
        self.popular = first.len();
        self.common = first.len();
        (*features, self.ranks_of) = first.into_iter().chain(rest).unzip();
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
            popular: features.len(),
            common: features.len(),
            elements: Elements::List(features),
            ranks_of,
            part: 0.0,
            alone: sets,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.elements {
            Elements::All => self.length,
            Elements::Run { bias, features } => usize::from(*bias) + features,
            Elements::List(features) => features.len(),
        }
    }

    /// How many of them are popular; those come first.
    pub fn popular(&self) -> usize {
        self.popular
    }

    /// How many of them are common; the popular ones are the first of these.
    pub fn common(&self) -> usize {
        self.common
    }

    /// Which of them a feature is, where that takes no search; beyond [`SharedFeatures::len`] for one that is
    /// not shared.
    #[inline]
    pub fn element(&self, feature: usize) -> Option<usize> {
        match self.elements {
            Elements::Run { bias, features } if feature < features => {
                Some(feature + usize::from(bias))
            }
            Elements::Run { .. } => Some(usize::MAX),
            Elements::All | Elements::List(_) => None,
        }
    }

    /// Whether [`SharedFeatures::element`] says it.
    pub fn are_a_run(&self) -> bool {
        matches!(self.elements, Elements::Run { .. })
    }

    /// The feature that the `j`-th of them is.
    #[inline]
    pub fn feature(&self, j: usize) -> usize {
        match &self.elements {
            Elements::All => j,
            Elements::Run { bias: false, .. } => j,
            Elements::Run { bias: true, .. } => j.checked_sub(1).unwrap_or(self.length - 1),
            Elements::List(features) => features[j] as usize,
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

    /// Copies the weights of the shared features `range` from `w`.
    pub fn pick(&self, range: Range<usize>, w: &[f32], shared: &mut Vec<f32>) {
        shared.clear();
        match &self.elements {
            Elements::All => shared.extend_from_slice(&w[range]),
            Elements::Run { bias, .. } => {
                let (bias, features) = run_of(*bias, range);
                shared.extend(bias.then(|| w[self.length - 1]));
                shared.extend_from_slice(&w[features]);
            }
            Elements::List(features) => {
                let features = features[range].iter();
                shared.extend(features.map(|&feature| w[feature as usize]));
            }
        }
    }

    /// Copies the weights of the shared features `range` to `w`.
    pub fn put(&self, range: Range<usize>, shared: &[f32], w: &mut [f32]) {
        match &self.elements {
            Elements::All => w[range].copy_from_slice(shared),
            Elements::Run { bias, .. } => {
                let (bias, features) = run_of(*bias, range);
                if bias {
                    w[self.length - 1] = shared[0];
                }
                w[features].copy_from_slice(&shared[usize::from(bias)..]);
            }
            Elements::List(features) => {
                for (&feature, &weight) in features[range].iter().zip(shared) {
                    w[feature as usize] = weight;
                }
            }
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

/// The features that occur most among a sample of this rank's rows.
fn popular_features(rows: &BlockRows<'_>, visits: &[Visit]) -> Vec<u64> {
    let values: usize = visits.iter().map(|visit| visit.place.length as usize).sum();
    let every = values / SAMPLED_VALUES + 1;
    let mut sampled: Vec<u32> = Vec::new();
    for visit in visits.iter().step_by(every) {
        sampled.extend(rows.indices(visit.place));
    }
    sampled.sort_unstable();
    let runs = sampled.chunk_by(|a, b| a == b);
    let mut counts: Vec<(usize, u32)> = runs.map(|run| (run.len(), run[0])).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let most = counts.iter().take(MOST_POPULAR);
    let mut popular: Vec<u64> = most.map(|&(_, feature)| u64::from(feature)).collect();
    if rows.bias != 0.0 && !visits.is_empty() {
        popular.push(rows.features as u64);
    }
    popular
}

/// The features of elements of a run, the first of which may be the bias.
fn run_of(bias: bool, range: Range<usize>) -> (bool, Range<usize>) {
    if !bias {
        return (false, range);
    }
    let start = range.start.max(1);
    (
        range.start == 0 && range.end > 0,
        start - 1..range.end.max(start) - 1,
    )
}

fn has(set: &[u64], feature: usize) -> bool {
    set[feature / 64] >> (feature % 64) & 1 == 1
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
