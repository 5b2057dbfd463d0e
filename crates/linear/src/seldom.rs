//! Shared features that ranks do not exchange in every round: of sparse rows most features are rare, and what
//! several ranks move of one in a short time hardly overlaps, so that adding the moves up now and then does.
//!
//! While few of them move, only those are looked at and told, as pairs; where many do, all of them are. Which
//! of the two follows from what all ranks know, so that they agree.
//!
//! **How seldom.** What each rank gains on its own, less what the moves of several ranks undo of one another,
//! Σ_{r<s} Δw_r·Δw_s, is what all gain together. Where the second is a large part of the first, ranks
//! correct the same errors several times, and exchange twice as often from then on; where it is a small
//! part, half as often. (Short rows of 10 values in 3 ranks never came to rest with one exchange a pass.)
//!
//! Cost of an exchange: 8 bytes for each feature that moved, or 4 for each there is.

use std::ops::Range;

use crate::ranks::{Exchange, Peers};
use crate::shared_features::SharedFeatures;
use crate::solve::VisitRows;
use crate::visit::Visit;

/// Where more than one in so many moves between exchanges, all are told.
const MOST_MOVED: usize = 4;

/// Parts of what ranks gain that may be undone: above the first they exchange more often, below the second
/// less.
const MOST_UNDONE: f64 = 0.1;
const LEAST_UNDONE: f64 = 0.02;

/// The shared features beyond the popular ones.
pub(crate) struct SeldomExchanged<'a> {
    shared: &'a SharedFeatures,
    range: Range<usize>,
    /// Their weights as all ranks know them.
    known: Vec<f32>,
    /// Visits between exchanges, and the most of any rank since the last.
    interval: usize,
    visits: usize,
    /// What this rank has gained since.
    gain: f64,
    /// Features of this rank's rows that moved since; `None` once they are too many to list.
    touched: Option<Vec<u32>>,
    /// Whether the next exchange is of all of them.
    tells_all: bool,
    own: Vec<f32>,
    told: Vec<u64>,
    /// What the ranks before have moved of each, while their moves are added up; else 0.
    moved: Vec<f32>,
}

impl<'a> SeldomExchanged<'a> {
    /// Those of `shared`, whose weights in `w` are the same on all ranks.
    pub fn new(
        shared: &'a SharedFeatures,
        range: Range<usize>,
        w: &[f32],
        interval: usize,
    ) -> SeldomExchanged<'a> {
        let mut known = Vec::new();
        shared.pick(range.clone(), w, &mut known);
        SeldomExchanged {
            shared,
            range,
            known,
            interval,
            visits: 0,
            gain: 0.0,
            touched: shared.are_a_run().then(Vec::new),
            tells_all: false,
            own: Vec::new(),
            told: Vec::new(),
            moved: Vec::new(),
        }
    }

    /// Notes which rows moved in a round: those of `order` whose α is no longer what it was `before`.
    pub fn note(&mut self, rows: &impl VisitRows, visits: &[Visit], order: &[u32], before: &[f32]) {
        let Some(touched) = self.touched.as_mut().filter(|_| !self.tells_all) else {
            return;
        };
        if self.range.is_empty() {
            return;
        }
        for (&i, &before) in order.iter().zip(before) {
            let visit = &visits[i as usize];
            if visit.alpha == before {
                continue;
            }
            let elements = (rows.features(visit.place).iter())
                .filter_map(|&feature| self.shared.element(feature as usize));
            touched.extend(
                elements
                    .filter(|element| self.range.contains(element))
                    .map(|element| element as u32),
            );
            if touched.len() > self.range.len() / 2 {
                self.touched = None;
                return;
            }
        }
    }

    /// Exchanges them where that is due after a round of at most `visits` visits on any rank, in a pass of
    /// at most `pass`, in which this rank gained `gain`.
    pub fn end_round<E>(
        &mut self,
        visits: usize,
        pass: usize,
        gain: f64,
        w: &mut [f32],
        peers: &mut Peers<'_, E>,
    ) -> Result<(), E> {
        self.visits += visits;
        self.gain += gain;
        if self.visits >= self.interval.min(pass) {
            self.exchange(w, peers)?;
        }
        Ok(())
    }

    /// Adds up what all ranks moved since the last exchange.
    // Ascent is not looked after here beyond that. The certificate holds whatever happens.
    pub fn exchange<E>(&mut self, w: &mut [f32], peers: &mut Peers<'_, E>) -> Result<(), E> {
        let visits = std::mem::take(&mut self.visits);
        if self.range.is_empty() {
            return Ok(());
        }
        let all = if self.tells_all {
            self.tell_all(w, peers)?
        } else {
            self.tell_moved(w, peers)?
        };
        self.gain = 0.0;
        self.tells_all = all.moved > self.range.len() / MOST_MOVED;
        if all.undone > MOST_UNDONE * all.gain {
            self.interval = (visits / 2).max(1);
        } else if all.undone < LEAST_UNDONE * all.gain {
            self.interval = self.interval.max(2 * visits);
        }
        match &mut self.touched {
            Some(touched) => touched.clear(),
            None => self.touched = self.shared.are_a_run().then(Vec::new),
        }
        Ok(())
    }

    fn tell_all<E>(&mut self, w: &mut [f32], peers: &mut Peers<'_, E>) -> Result<Exchanged, E> {
        self.shared.pick(self.range.clone(), w, &mut self.own);
        let mut squared = 0.0;
        for (own, known) in self.own.iter_mut().zip(&self.known) {
            *own -= known;
            squared += f64::from(*own) * f64::from(*own);
        }
        (peers.exchange)(Exchange::Sum(&mut self.own))?;
        let mut sums = [self.gain, squared];
        (peers.exchange)(Exchange::SumWide(&mut sums))?;
        let [gain, squares] = sums;
        let (mut moved_features, mut squared) = (0, 0.0);
        for (known, moved) in self.known.iter_mut().zip(&self.own) {
            *known += moved;
            moved_features += usize::from(*moved != 0.0);
            squared += f64::from(*moved) * f64::from(*moved);
        }
        self.shared.put(self.range.clone(), &self.known, w);
        Ok(Exchanged {
            moved: moved_features,
            gain,
            undone: 0.5 * (squared - squares),
        })
    }

    fn tell_moved<E>(&mut self, w: &mut [f32], peers: &mut Peers<'_, E>) -> Result<Exchanged, E> {
        self.list_moved(w);
        self.told.push(self.gain.to_bits());
        let mut all = Vec::new();
        (peers.exchange)(Exchange::GatherWords(&self.told, &mut all))?;
        self.moved.resize(self.range.len(), 0.0);
        let (mut gain, mut undone) = (0.0, 0.0);
        for told in &mut all {
            gain += told.pop().map_or(0.0, f64::from_bits);
            for &word in told.iter() {
                let (place, move_of_rank) = ((word >> 32) as usize, f32::from_bits(word as u32));
                undone += f64::from(self.moved[place]) * f64::from(move_of_rank);
                self.moved[place] += move_of_rank;
            }
        }
        let mut moved = 0;
        for &word in all.iter().flatten() {
            let place = (word >> 32) as usize;
            // Told by several, it is looked at again and has not moved.
            let sum = std::mem::take(&mut self.moved[place]);
            moved += usize::from(sum != 0.0);
            self.known[place] += sum;
            w[self.shared.feature(self.range.start + place)] = self.known[place];
        }
        Ok(Exchanged {
            moved,
            gain,
            undone,
        })
    }

    /// Lists what this rank moved since the last exchange.
    fn list_moved(&mut self, w: &[f32]) {
        self.told.clear();
        self.own.clear();
        let word = |place: usize, own: f32| (place as u64) << 32 | u64::from(own.to_bits());
        let Some(touched) = &self.touched else {
            self.shared.pick(self.range.clone(), w, &mut self.own);
            for (place, (own, known)) in self.own.iter().zip(&self.known).enumerate() {
                if own != known {
                    self.told.push(word(place, own - known));
                }
            }
            return;
        };
        for &element in touched {
            let place = element as usize - self.range.start;
            let weight = w[self.shared.feature(element as usize)];
            let own = weight - self.known[place];
            if own != 0.0 {
                self.told.push(word(place, own));
                // So that it is told once.
                self.own.push(self.known[place]);
                self.known[place] = weight;
            }
        }
        for (told, &known) in self.told.iter().zip(&self.own) {
            self.known[(told >> 32) as usize] = known;
        }
    }
}

/// What an exchange found, the same on all ranks.
struct Exchanged {
    /// Features that moved.
    moved: usize,
    /// What the ranks gained, each on its own.
    gain: f64,
    /// What they undid of one another.
    undone: f64,
}
