//! Rows kept as codes on several ranks: each keeps some of its own, and all solve over them together.

use super::quantizer::Quantizer;
use super::{CodedCache, loops::CodedRows};
use crate::block::Scratch;
use crate::duals::Duals;
use crate::error::LinearError;
use crate::problem::Problem;
use crate::ranks::{Exchange, Peers, Solving};
use crate::shared_features::SharedFeatures;
use crate::solve::{BlockReport, InnerPasses};
use crate::weights::Weights;
use pelton_format::RowTable;

impl CodedCache {
    /// Makes the quantizer from the rows of the first rank that has some, unless there is one: a row that
    /// comes to another rank later must have the same codes there.
    pub fn agree_on_quantizer<E>(
        &mut self,
        block: &RowTable,
        peers: &mut Peers<'_, E>,
    ) -> Result<(), E> {
        if self.quantizer.is_some() {
            return Ok(());
        }
        let own = match block.is_empty() {
            true => Vec::new(),
            false => Quantizer::from_rows(self.features, block).parts(),
        };
        let mut all = Vec::new();
        (peers.exchange)(Exchange::Gather(&own, &mut all))?;
        let found = all.into_iter().find(|parts| !parts.is_empty());
        self.quantizer = found.map(|parts| {
            let (offsets, steps) = parts.split_at(self.features);
            Quantizer::from_parts(self.features, offsets.to_vec(), steps.to_vec())
        });
        Ok(())
    }

    /// [`CodedCache::solve`] over the rows that all ranks hold.
    #[expect(clippy::too_many_arguments)]
    pub fn solve_share<E: From<LinearError>>(
        &mut self,
        problem: &Problem,
        weights: &mut Weights,
        duals: &mut Duals,
        inner: InnerPasses,
        key: u64,
        scratch: &mut Scratch,
        peers: &mut Peers<'_, E>,
    ) -> Result<BlockReport, E> {
        // The same on all ranks.
        if self.quantizer.is_none() {
            return Ok(BlockReport::default());
        }
        let (held, mut padded) = self.begin(problem, weights, duals, scratch);
        let some = !held.ids.is_empty();
        let Some(shared) = SharedFeatures::dense(padded[0].len(), some, peers)? else {
            return Ok(BlockReport::default());
        };
        let q = self.quantizer.as_ref().expect("looked at above");
        let rows = |subproblem| CodedRows {
            cache: self,
            q,
            bias: problem.bias().unwrap_or(0.0),
            subproblem,
        };
        let solved = Solving {
            problem,
            ids: &held.ids,
            shared: &shared,
            key,
            inner,
        }
        .solve(rows, &mut padded, None, duals, scratch, peers);
        if solved.is_ok() {
            self.end(&held, &padded, weights, scratch);
        }
        self.forget_unchanged(&held, duals);
        Ok(solved?.report)
    }
}
