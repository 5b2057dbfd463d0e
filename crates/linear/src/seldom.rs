//! Shared features that ranks do not exchange in every round: of sparse rows most features are rare, and what
//! several ranks move of one in a short time hardly overlaps, so that adding the moves up now and then does.
//!
//! While few of them move, only those are looked at and told, as pairs; where many do, all of them are. Which
//! of the two follows from what all ranks know, so that they agree.
//!
//! Cost of an exchange: 8 bytes for each feature that moved, or 4 for each there is.

use std::ops::Range;

use crate::ranks::{Exchange, Peers};
use crate::shared_features::SharedFeatures;
use crate::solve::VisitRows;
use crate::visit::Visit;

/// Where more than one in so many moves between exchanges, all are told.
const MOST_MOVED: usize = 4;

/// The shared features beyond the popular ones.
pub(crate) struct SeldomExchanged<'a> {
    shared: &'a SharedFeatures,
    range: Range<usize>,
    /// Their weights as all ranks know them.
    known: Vec<f32>,
    /// Visits between exchanges, and the most of any rank since the last.
    interval: usize,
    visits: usize,
    /// Features of this rank's rows that moved since; `None` once they are too many to list.
    touched: Option<Vec<u32>>,
    /// Whether the next exchange is of all of them.
    tells_all: bool,
    own: Vec<f32>,
    told: Vec<u64>,
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
            touched: shared.are_a_run().then(Vec::new),
            tells_all: false,
            own: Vec::new(),
            told: Vec::new(),
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
    /// at most `pass`.
    pub fn end_round<E>(
        &mut self,
        visits: usize,
        pass: usize,
        w: &mut [f32],
        peers: &mut Peers<'_, E>,
    ) -> Result<(), E> {
        self.visits += visits;
        if self.visits >= self.interval.min(pass) {
            self.exchange(w, peers)?;
        }
        Ok(())
    }

    /// Adds up what all ranks moved since the last exchange.
    // Ascent is not looked after here. The certificate holds whatever happens.
    pub fn exchange<E>(&mut self, w: &mut [f32], peers: &mut Peers<'_, E>) -> Result<(), E> {
        self.visits = 0;
        if self.range.is_empty() {
            return Ok(());
        }
        let moved = if self.tells_all {
            self.tell_all(w, peers)?
        } else {
            self.tell_moved(w, peers)?
        };
        self.tells_all = moved > self.range.len() / MOST_MOVED;
        match &mut self.touched {
            Some(touched) => touched.clear(),
            None => self.touched = self.shared.are_a_run().then(Vec::new),
        }
        Ok(())
    }

    /// Returns how many moved.
    fn tell_all<E>(&mut self, w: &mut [f32], peers: &mut Peers<'_, E>) -> Result<usize, E> {
        self.shared.pick(self.range.clone(), w, &mut self.own);
        for (own, known) in self.own.iter_mut().zip(&self.known) {
            *own -= known;
        }
        (peers.exchange)(Exchange::Sum(&mut self.own))?;
        let mut count = 0;
        for (known, moved) in self.known.iter_mut().zip(&self.own) {
            *known += moved;
            count += usize::from(*moved != 0.0);
        }
        self.shared.put(self.range.clone(), &self.known, w);
        Ok(count)
    }

    /// Returns how many moved, each counted for every rank that moved it.
    fn tell_moved<E>(&mut self, w: &mut [f32], peers: &mut Peers<'_, E>) -> Result<usize, E> {
        self.told.clear();
        self.own.clear();
        let word = |place: usize, own: f32| (place as u64) << 32 | u64::from(own.to_bits());
        if let Some(touched) = &self.touched {
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
        } else {
            self.shared.pick(self.range.clone(), w, &mut self.own);
            for (place, (own, known)) in self.own.iter().zip(&self.known).enumerate() {
                if own != known {
                    self.told.push(word(place, own - known));
                }
            }
        }
        let mut all = Vec::new();
        (peers.exchange)(Exchange::GatherWords(&self.told, &mut all))?;
        for &told in all.iter().flatten() {
            let place = (told >> 32) as usize;
            self.known[place] += f32::from_bits(told as u32);
            w[self.shared.feature(self.range.start + place)] = self.known[place];
        }
        Ok(all.iter().map(Vec::len).sum())
    }
}
