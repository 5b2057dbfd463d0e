//! [`OutOfCore`] on several ranks: each reads, and keeps between blocks, rows of its own; the weights, the
//! terms of the dual value and all sums are the same on all ranks.
//!
//! Every record has one rank that owns it, in every epoch, so that α is known to who needs it and nothing of a
//! row is ever told to another. A saved state holds the α of all; whoever goes on with it takes those of its
//! own records, on any number of ranks.

use std::borrow::Cow;

use pelton_format::RowTable;
use pelton_key::{Stage, key};

use crate::certificate::LossSum;
use crate::coded_cache::SavedCodes;
use crate::error::LinearError;
use crate::gap::gap_of_rows;
use crate::out_of_core::{
    BETWEEN_EPOCHS, CODED_BLOCK_PASSES, CODED_PASSES, EpochOutcome, OutOfCore,
};
use crate::ranks::{Exchange, Peers, solve_share};
use crate::saved_state::SavedState;
use crate::solve::InnerPasses;
use crate::weights::Weights;

impl OutOfCore {
    /// [`OutOfCore::begin_epoch`] on all ranks.
    pub fn begin_epoch_share<E: From<LinearError>>(
        &mut self,
        epoch: u64,
        reads_all: bool,
        peers: &mut Peers<'_, E>,
    ) -> Result<(), E> {
        let before = self.start_epoch(epoch, reads_all);
        let solved = match epoch {
            0 => Ok(false),
            _ => self.solve_coded_share(BETWEEN_EPOCHS, CODED_PASSES, peers),
        };
        self.take_snapshot(before, solved)
    }

    /// [`OutOfCore::take_best_as_snapshot`] on all ranks.
    pub fn take_best_as_snapshot_share<E: From<LinearError>>(
        &mut self,
        peers: &mut Peers<'_, E>,
    ) -> Result<bool, E> {
        let refined = self.solve_coded_share(BETWEEN_EPOCHS, CODED_PASSES, peers)?;
        Ok(self.take_found_as_snapshot(refined))
    }

    /// Trains together with other ranks on one block, the `step`-th of the epoch, of which this rank owns
    /// the rows `rows`. Afterwards the weights are the same on all ranks. Of the rows that settle each rank
    /// leaves its own unread.
    ///
    /// Panics where rows are kept whole between blocks, which ranks do not do.
    pub fn train_share<E: From<LinearError>>(
        &mut self,
        rows: &RowTable,
        step: u64,
        peers: &mut Peers<'_, E>,
    ) -> Result<(), E> {
        assert!(self.cache.is_none(), "ranks keep no rows whole");
        let unsettled = self.begin_settling();
        self.settle(rows);
        self.end_settling(unsettled, peers)?;
        let mut losses = LossSum::new(&self.problem);
        let mut gap = 0.0;
        match &self.epoch.snapshot {
            Some(snapshot) => losses.add(&self.problem, rows, &snapshot.weights, self.simd)?,
            None if self.options.held => {}
            None => gap = gap_of_rows(&self.problem, rows, &self.weights, &self.duals, self.simd)?,
        }
        let inner = self.inner_passes();
        let solved = solve_share(
            &self.problem,
            rows,
            &mut self.weights,
            &mut self.duals,
            inner,
            key(self.options.seed, self.epoch.epoch, Stage::Inner(step)),
            self.options.snapshots && self.coded.is_none(),
            &mut self.scratch,
            peers,
        )?;
        let mut sums = vec![
            gap,
            rows.len() as f64,
            losses.rows as f64,
            losses.correct as f64,
        ];
        sums.extend(&losses.loss);
        (peers.exchange)(Exchange::SumWide(&mut sums))?;
        let epoch = &mut self.epoch;
        epoch.gap += sums[0];
        epoch.rows += sums[1] as u64;
        epoch.visits += solved.report.visits;
        epoch.inner_passes += u64::from(solved.report.passes);
        if let Some(snapshot) = &mut epoch.snapshot {
            snapshot.losses.rows += sums[2] as u64;
            snapshot.losses.correct += sums[3] as u64;
            for (loss, sum) in snapshot.losses.loss.iter_mut().zip(&sums[4..]) {
                *loss += sum;
            }
        }
        if let Some(bound) = &mut epoch.bound {
            bound.add(&self.problem, rows, &self.duals, self.simd);
        }
        if let Some(centre) = &solved.centre {
            epoch.add_to_mean(centre, self.duals.records());
        }
        let slack = self.scratch.slack();
        if let Some(skip) = &mut self.skip {
            skip.record_rows(rows, self.epoch.epoch, slack);
        }
        if let Some(coded) = &mut self.coded {
            coded.agree_on_quantizer(rows, peers)?;
            coded.take_in(&self.problem, rows, slack, &self.weights, self.simd);
            // As on one rank.
            if self.epoch.snapshot.is_none() {
                self.solve_coded_share(step, CODED_BLOCK_PASSES, peers)?;
            }
        }
        Ok(())
    }

    /// [`OutOfCore::end_epoch`] on all ranks.
    pub fn end_epoch_share<E: From<LinearError>>(
        &mut self,
        peers: &mut Peers<'_, E>,
    ) -> Result<EpochOutcome, E> {
        if let Some(bound) = &mut self.epoch.bound {
            bound.add_up(peers)?;
        }
        Ok(self.end_epoch()?)
    }

    /// Remembers w before rows kept as codes are put right in it, where there are any.
    pub fn begin_settling(&self) -> Option<Weights> {
        self.coded.is_some().then(|| self.weights.clone())
    }

    /// Adds up what every rank has put right in w since [`OutOfCore::begin_settling`].
    pub fn end_settling<E>(
        &mut self,
        before: Option<Weights>,
        peers: &mut Peers<'_, E>,
    ) -> Result<(), E> {
        let Some(before) = before else {
            return Ok(());
        };
        for (subproblem, w) in self.weights.vectors_mut().iter_mut().enumerate() {
            let before = before.vector(subproblem);
            for (weight, before) in w.iter_mut().zip(before) {
                *weight -= before;
            }
            (peers.exchange)(Exchange::Sum(w))?;
            for (weight, before) in w.iter_mut().zip(before) {
                *weight += before;
            }
        }
        Ok(())
    }

    /// [`OutOfCore::solve_coded`] on all ranks.
    fn solve_coded_share<E: From<LinearError>>(
        &mut self,
        step: u64,
        inner: InnerPasses,
        peers: &mut Peers<'_, E>,
    ) -> Result<bool, E> {
        let Some(coded) = &mut self.coded else {
            return Ok(false);
        };
        let halt = self.scratch.halt.take_if(|_| step != BETWEEN_EPOCHS);
        let solved = coded.solve_share(
            &self.problem,
            &mut self.weights,
            &mut self.duals,
            inner,
            key(self.options.seed, self.epoch.epoch, Stage::Inner(!step)),
            &mut self.scratch,
            peers,
        );
        self.scratch.halt = self.scratch.halt.take().or(halt);
        let report = solved?;
        self.epoch.visits += report.visits;
        Ok(report.visits > 0)
    }

    /// The state of all ranks, for rank 0 to write; on the others it lacks the weights. `owner` says which
    /// rank a record belongs to.
    pub fn save_share<E>(
        &self,
        owner: &dyn Fn(u64) -> usize,
        peers: &mut Peers<'_, E>,
    ) -> Result<SavedState<'_>, E> {
        let mut state = match peers.rank {
            0 => self.save(),
            _ => self.save_own(),
        };
        for alpha in &mut state.alpha {
            *alpha = of_owners(alpha, owner, peers)?.into();
        }
        if let Some(bound) = &mut state.bound {
            bound.to_mut().add_up(peers)?;
        }
        if let Some(skip) = &mut state.skip {
            *skip = of_owners_of_bytes(skip, owner, peers)?.into();
        }
        if let Some(coded) = &mut state.coded {
            *coded = SavedCodes {
                quantizer: std::mem::take(&mut coded.quantizer),
                ids: {
                    let mut all = Vec::new();
                    (peers.exchange)(Exchange::GatherWords(&coded.ids, &mut all))?;
                    Cow::Owned(all.concat())
                },
                residuals: gathered(&coded.residuals, peers)?,
                slack: gathered(&coded.slack, peers)?,
                before: (coded.before.iter())
                    .map(|before| Ok(of_owners(before, owner, peers)?.into()))
                    .collect::<Result<_, E>>()?,
            };
        }
        Ok(state)
    }
}

/// The values of all ranks, one after the other.
fn gathered<'a, E>(own: &[f32], peers: &mut Peers<'_, E>) -> Result<Cow<'a, [f32]>, E> {
    let mut all = Vec::new();
    (peers.exchange)(Exchange::Gather(own, &mut all))?;
    Ok(all.concat().into())
}

/// A value for each record, as the rank that owns the record has it.
pub fn of_owners<E>(
    values: &[f32],
    owner: &dyn Fn(u64) -> usize,
    peers: &mut Peers<'_, E>,
) -> Result<Vec<f32>, E> {
    let own = own_of(values, owner, peers.rank);
    let mut all = Vec::new();
    (peers.exchange)(Exchange::Gather(&own, &mut all))?;
    Ok(merged(&all, values.len(), owner))
}

/// The same for bytes.
fn of_owners_of_bytes<E>(
    values: &[u8],
    owner: &dyn Fn(u64) -> usize,
    peers: &mut Peers<'_, E>,
) -> Result<Vec<u8>, E> {
    let own = own_of(values, owner, peers.rank);
    let mut words = Vec::with_capacity(own.len().div_ceil(8));
    for bytes in own.chunks(8) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        words.push(u64::from_le_bytes(word));
    }
    let mut all = Vec::new();
    (peers.exchange)(Exchange::GatherWords(&words, &mut all))?;
    let bytes_of = |words: &Vec<u64>| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let all: Vec<Vec<u8>> = all.iter().map(bytes_of).collect();
    Ok(merged(&all, values.len(), owner))
}

fn own_of<T: Copy>(values: &[T], owner: &dyn Fn(u64) -> usize, rank: usize) -> Vec<T> {
    let records = (0..).zip(values);
    let own = records.filter(|(id, _)| owner(*id) == rank);
    own.map(|(_, &value)| value).collect()
}

fn merged<T: Copy>(all: &[Vec<T>], records: usize, owner: &dyn Fn(u64) -> usize) -> Vec<T> {
    let mut next: Vec<_> = all.iter().map(|values| values.iter()).collect();
    let merged = (0..records as u64).map(|id| {
        let value = next[owner(id)].next();
        *value.expect("every rank has a value for each of its records")
    });
    merged.collect()
}
