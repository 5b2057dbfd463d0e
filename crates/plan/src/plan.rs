//! The plan of a run: which examples each step of each epoch uses, how often, and in which batch.
//!
//! ```text
//! records ─► Selection ─► order, mixture or draws ─► echo ─► runs, buckets, packed rows ─► echo of batches ─► ranks
//!            0..kept      0..examples                places  fresh batches               steps              share_of
//! ```
//!
//! Each stage is arithmetic on the indices of the one before, so any (epoch, step) is computed from the plan's
//! description: the only state is these two integers, on any number of ranks. Stages are not iterators over one
//! another, as input pipelines mostly are: each would have a buffer and a generator to store.

use std::sync::Arc;

use pelton_key::{Digest, mix};

use crate::batching::{Batching, Last};
use crate::bucketed::Bucketed;
use crate::buckets::{BucketLayout, BucketPolicy, Packing};
use crate::echo::Echo;
use crate::epoch_order::EpochOrder;
use crate::error::PlanError;
use crate::hint::Hint;
use crate::ids::{Drawn, Examples};
use crate::mixture::Mixture;
use crate::numbering::Numbering;
use crate::ordering::{Ids, Over, Spread};
use crate::orders::Order;
use crate::packed::Packed;
use crate::plan_parts::{Groups, PlanParts};
use crate::randomness::{Randomness, ln_factorial};
use crate::runs::Runs;
use crate::sampler::{Sampler, Weighted, sorted_by_class};
use crate::selection::Selection;
use crate::sequence::Sequence;
use crate::spec::{Catalog, Part, PlanSpec};
use crate::split::local_slots;
use crate::step_batch::{Draw, StepBatch};
use crate::units::Units;
use crate::walk::{Place, Walk};

/// Most records a plan can number.
const MAX_RECORDS: u64 = 1 << 63;

/// Which examples each step of each epoch uses, how often, and in which batch: a pure function of its description.
/// Cheap to clone.
///
/// ```
/// use pelton_plan::{Catalog, Order, Place, Plan, PlanSpec, Selection, StepBatch, share_of};
///
/// let mut spec = PlanSpec::new(Order::Full, 32, 7);
/// spec.echo = "2:64".parse()?; // every example twice, at least 32 others between
/// let odd = Selection::new(10_000, |id| id % 2 == 1);
/// let plan = Plan::new(&spec, Catalog::new(10_000).with_selection(Some(odd)))?;
/// assert_eq!(plan.steps(0), 10_000_u64.div_ceil(32));
///
/// let mut batch = StepBatch::default();
/// let mut walk = plan.walk(Place { epoch: 3, step: 100 }, None); // without visiting steps 0..100
/// assert!(walk.next(&mut batch));
/// assert!(batch.ids.iter().all(|id| id % 2 == 1));
/// let mut mine = Vec::new();
/// share_of(&batch, 1, 4, &mut mine); // the draws that the second of four ranks takes
/// assert_eq!(mine.len(), 8);
/// # Ok::<(), pelton_plan::PlanError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan(Arc<PlanParts>);

impl Plan {
    /// A plan over a catalog of records.
    ///
    /// Errors: a request that cannot be met; each names the remedy.
    pub fn new(spec: &PlanSpec, over: Catalog<'_>) -> Result<Plan, PlanError> {
        check(spec, &over)?;
        let (numbering, drawn) = numbered(spec, &over)?;
        let len = match &drawn {
            Drawn::Once => numbering.len(),
            Drawn::Mixed(mixture) => mixture.examples(),
            Drawn::Weighted(_) => spec.epoch_examples.unwrap_or(numbering.len()),
        };
        let ids: Box<dyn Ids> = match &drawn {
            Drawn::Once => order_over(spec, &over, len)?,
            Drawn::Mixed(mixture) => Box::new(Arc::clone(mixture)),
            Drawn::Weighted(weighted) => Box::new(Arc::clone(weighted)),
        };
        let examples = Examples {
            ids,
            drawn,
            len,
            seed: spec.seed,
        };
        let sequence = Sequence::new(examples, spec.echo)?;
        let groups = groups(spec, &over, &numbering, &sequence)?;
        let words = [
            plan_fingerprint(spec, &sequence, &groups),
            numbering.fingerprint(),
            spec.echo.fingerprint(),
            spec.batch_echo.fingerprint(),
        ];
        Ok(Plan(Arc::new(PlanParts {
            records: over.records,
            order: spec.order,
            batching: spec.batching,
            last: spec.last,
            groups,
            sequence,
            batch_echo: spec.batch_echo,
            fingerprint: match words {
                [plan, 0, 0, 0] => plan,
                words => Digest::new("parts of a plan").words(words).value(),
            },
            numbering,
        })))
    }

    /// Batches of an epoch. The same in every epoch, at no cost, unless rows are packed, or buckets take examples
    /// from a mixture or some once more than others: then it costs a pass over the epoch.
    pub fn steps(&self, epoch: u64) -> u64 {
        if self.0.batch_echo.is_none() {
            self.0.fresh_steps(epoch)
        } else {
            self.0.batch_echo_of(epoch).appearances()
        }
    }

    /// The steps from `from` on; from the start of the next epoch if `from` is beyond its epoch's end.
    ///
    /// Cost: arithmetic if batches are runs of an order other than `queue`; a pass over the units before for a `page`
    /// order. Queue, bucketed and packed plans replay the epoch up to `from`, or resume from `hint` if it belongs to
    /// this plan and is before `from`. A hint never changes the result.
    pub fn walk(&self, from: Place, hint: Option<&Hint>) -> Walk {
        Walk::new(Arc::clone(&self.0), from, hint)
    }

    /// The records of one step, in order: a walk of one step, for inspection.
    pub fn step_ids(&self, epoch: u64, step: u64) -> Vec<u64> {
        let mut batch = StepBatch::default();
        self.walk(Place { epoch, step }, None).next(&mut batch);
        batch.ids
    }

    /// The order of an epoch there and back; `None` for `page`, `queue`, mixtures and samplers, which have no inverse.
    pub fn epoch_order(&self, epoch: u64) -> Option<EpochOrder> {
        EpochOrder::new(Arc::clone(&self.0), epoch)
    }

    /// Appearances of an epoch that are in none of its batches. A pass over the units of a `page` order that drops some.
    pub fn left_out(&self, epoch: u64) -> u64 {
        match &self.0.groups {
            Groups::Runs(runs) if self.last() == Last::Drop => {
                runs.left_out(self.appearances(), epoch)
            }
            _ => 0,
        }
    }

    /// The fewest draws, or packed rows, that a batch of an epoch has, or fewer in a `page` order; `None` without
    /// batches. More ranks than that leave a rank without an example. Costs what [`steps`](Self::steps) does.
    pub fn smallest_batch(&self, epoch: u64) -> Option<u64> {
        let sequence = &self.0.sequence;
        match &self.0.groups {
            Groups::Runs(runs) => runs.smallest_batch(),
            Groups::Bucketed(bucketed) => bucketed.smallest_batch(sequence, epoch),
            Groups::Packed(packed) => packed.smallest_batch(sequence, epoch),
        }
    }

    /// Draws of a step's batch; `None` if only a walk can tell, and beyond the end of the epoch.
    pub fn step_len(&self, epoch: u64, step: u64) -> Option<u64> {
        match &self.0.groups {
            Groups::Runs(runs) if self.0.batch_echo.is_none() && step < runs.steps() => {
                Some(runs.step_len(epoch, step))
            }
            _ => None,
        }
    }

    /// Draws, or packed rows, of an epoch that a rank takes. Costs as much as a walk where [`step_len`](Self::step_len)
    /// is unknown. Asserts `rank < world_size`.
    pub fn share_len(&self, epoch: u64, rank: u32, world_size: u32) -> u64 {
        let share = |slots: u64| {
            let slots = local_slots(slots, rank, world_size);
            slots.end - slots.start
        };
        let steps = 0..self.steps(epoch);
        if let Some(all) = steps
            .map(|step| self.step_len(epoch, step))
            .collect::<Option<Vec<u64>>>()
        {
            return all.into_iter().map(share).sum();
        }
        let mut walk = self.walk(Place { epoch, step: 0 }, None);
        let (mut batch, mut sum) = (StepBatch::default(), 0);
        while walk.place().epoch == epoch && walk.next(&mut batch) {
            let rows = batch.row_draws.len();
            sum += share(if rows > 0 { rows } else { batch.len() } as u64);
        }
        sum
    }

    /// Records of the data set that it is over.
    pub fn records(&self) -> u64 {
        self.0.records
    }

    /// The order of the examples.
    pub fn order(&self) -> Order {
        self.0.order
    }

    /// How the records of a step are spread over the files.
    pub fn spread(&self) -> Spread {
        match self.0.order.kind().spread() {
            // Neighbours in a list may be anywhere in the files.
            Spread::Neighbours | Spread::InOrder if self.is_of_list() => Spread::Everywhere,
            spread => spread,
        }
    }

    /// The batching asked for.
    pub fn batching(&self) -> Batching {
        self.0.batching
    }

    /// How examples that do not fill a batch are used.
    pub fn last(&self) -> Last {
        self.0.last
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.0.sequence.examples.seed
    }

    /// The units of a `page` or `opportunistic` order, of kept records by their numbers.
    pub fn units(&self) -> Option<&Units> {
        self.0.sequence.examples.ids.units()
    }

    /// Loads an epoch of an `opportunistic` order is read in.
    pub fn loads(&self) -> Option<u64> {
        self.0.sequence.examples.ids.loads()
    }

    /// Whether every epoch has the same batches in the same order.
    pub fn is_same_every_epoch(&self) -> bool {
        is_same(self.0.order, &self.0.sequence.examples)
    }

    /// How often each example appears.
    pub fn echo(&self) -> Echo {
        self.0.sequence.echo.echo()
    }

    /// How often each batch appears.
    pub fn batch_echo(&self) -> Echo {
        self.0.batch_echo
    }

    /// The most draws of a global batch, or more. A pass over the units of a `page` order.
    pub fn largest_batch(&self) -> u64 {
        match &self.0.groups {
            Groups::Runs(runs) => runs.largest_batch(),
            Groups::Bucketed(bucketed) => bucketed.largest_batch(&self.0.sequence),
            Groups::Packed(packed) => packed.largest_batch(&self.0.sequence),
        }
    }

    /// Examples of an epoch's order, those of a last batch that is left out included.
    pub fn examples(&self) -> u64 {
        self.0.sequence.examples.len
    }

    /// Appearances of an epoch's examples, before batches are echoed or left out.
    pub fn appearances(&self) -> u64 {
        self.0.sequence.len()
    }

    /// An upper bound of the examples held for echo at any moment, also for another window of the echo.
    pub fn most_held(&self, window: Option<u32>) -> u64 {
        let windows = |echo: Echo, own: u64| {
            if echo.is_none() {
                0
            } else {
                2 * window.map_or(own, u64::from)
            }
        };
        let (echo, batch_echo) = (self.echo(), self.batch_echo());
        let of_examples = windows(echo, echo.window(self.examples()));
        let waiting = match &self.0.groups {
            Groups::Bucketed(bucketed) if of_examples > 0 => {
                bucketed.most_waiting(&self.0.sequence)
            }
            Groups::Packed(packed) => packed.most_waiting(&self.0.sequence),
            _ => 0,
        };
        let of_batches = windows(batch_echo, batch_echo.batch_window(u64::MAX));
        let of_batches = of_batches.saturating_mul(self.largest_batch());
        let held = of_examples
            .saturating_add(waiting)
            .saturating_add(of_batches);
        held.min(self.examples())
    }

    /// Memory that the plan and a walk may use, beyond a few kilobytes, also for another window of the echo.
    pub fn memory_bytes(&self, window: Option<u32>) -> u64 {
        let sequence = &self.0.sequence;
        let groups = match &self.0.groups {
            Groups::Runs(_) => 0,
            Groups::Bucketed(bucketed) => bucketed.memory_bytes(sequence),
            Groups::Packed(packed) => packed.memory_bytes(sequence),
        };
        let held = if self.0.batch_echo.is_none() {
            0
        } else {
            let own = self.0.batch_echo.batch_window(u64::MAX);
            let window = window.map_or(own, u64::from);
            let draws = window
                .saturating_mul(2)
                .saturating_mul(self.largest_batch());
            draws.min(self.appearances()) * size_of::<Draw>() as u64
        };
        sequence.memory_bytes(window) + groups + held + self.0.numbering.memory_bytes()
    }

    /// A number that is equal for two plans that give the same batches by construction; checkpoints store it, so that
    /// a run is not resumed with another plan.
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }

    /// How well the order of the examples shuffles, before bucketing.
    ///
    /// Draws by weight are independent, so theirs is perfect. For mixtures and equally frequent classes, both levels
    /// are the share of the orders of an epoch that leave each part its share at any point. No level implies that an
    /// epoch has each record once. A list has that of the order of its entries.
    pub fn randomness(&self) -> Randomness {
        let examples = &self.0.sequence.examples;
        match &examples.drawn {
            Drawn::Weighted(_) => Randomness::PERFECT,
            Drawn::Mixed(_) if examples.len <= 1 => Randomness::PERFECT,
            Drawn::Mixed(mixture) => {
                let level = mixture.ln_orders() / ln_factorial(examples.len as f64);
                Randomness {
                    rl: level.min(1.0),
                    rl_exact: level.min(1.0),
                }
            }
            Drawn::Once => {
                let units = examples.ids.units().map_or(0, Units::len);
                self.0.order.randomness(examples.len, units)
            }
        }
    }

    /// The exact randomness RL* of an epoch's examples in their batches, each by its first appearance; unknown
    /// for mixtures and echoed examples in buckets, and for some orders in buckets. Costs a
    /// pass over the epoch for packed rows.
    pub fn rl_exact(&self, epoch: u64) -> Option<f64> {
        let sequence = &self.0.sequence;
        match &self.0.groups {
            Groups::Runs(_) => Some(self.randomness().rl_exact),
            Groups::Packed(packed) => {
                packed.rl_exact(sequence, epoch, self.randomness() == Randomness::PERFECT)
            }
            Groups::Bucketed(bucketed) => {
                if !self.echo().is_none() || sequence.examples.expected().is_some() {
                    return None;
                }
                if sequence.examples.len <= 1 {
                    return Some(1.0);
                }
                if self.randomness() == Randomness::PERFECT {
                    return Some(bucketed.layout().rl_exact());
                }
                self.is_same_every_epoch().then_some(0.0)
            }
        }
    }

    /// Cells that hold padding over all cells of an epoch, before batches are echoed. That of a mean epoch if buckets
    /// take a mixture or a fractional echo; costs a pass over the epoch for packed rows.
    pub fn padded_fraction(&self, epoch: u64) -> Option<f64> {
        match &self.0.groups {
            Groups::Packed(packed) => Some(packed.padded_fraction(&self.0.sequence, epoch)),
            _ => self.bucket_layout().map(BucketLayout::padded_fraction),
        }
    }

    /// The buckets, for the examples of a mean epoch, each once.
    pub fn bucket_layout(&self) -> Option<&BucketLayout> {
        match &self.0.groups {
            Groups::Bucketed(bucketed) => Some(bucketed.layout()),
            _ => None,
        }
    }

    /// The packing.
    pub fn packing(&self) -> Option<Packing> {
        match &self.0.groups {
            Groups::Packed(packed) => Some(packed.packing()),
            _ => None,
        }
    }

    /// Whether examples come from a list, so that neighbours in the order may be anywhere in the data.
    pub fn is_of_list(&self) -> bool {
        matches!(self.0.numbering, Numbering::Listed(_))
    }

    /// Records that an epoch draws, each counted once. Costs a pass over the epoch, and a bit a record, if it may
    /// draw some several times.
    pub fn distinct_records(&self, epoch: u64) -> u64 {
        let (plan, examples) = (&*self.0, &self.0.sequence.examples);
        if examples.expected().is_none() && !self.is_of_list() {
            return examples.len;
        }
        let mut seen = vec![0_u64; plan.records.div_ceil(64) as usize];
        let mut walk = examples.walk(epoch, 0);
        let mut ids = [0; 1024];
        for first in (0..examples.len).step_by(ids.len()) {
            let ids = &mut ids[..(examples.len - first).min(1024) as usize];
            walk.fill(ids);
            plan.numbering.to_records(ids);
            for id in ids {
                seen[(*id / 64) as usize] |= 1 << (*id % 64);
            }
        }
        seen.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The records that pass the filter, if there is one.
    pub fn selection(&self) -> Option<&Selection> {
        self.0.numbering.selection()
    }

    /// Examples of each part of a mixture in an epoch, or of each equally frequent class, each counted once; empty if
    /// there is neither.
    pub fn realised_mixture(&self, epoch: u64) -> Vec<u64> {
        match &self.0.sequence.examples.drawn {
            Drawn::Mixed(mixture) => mixture.counts(epoch),
            Drawn::Once | Drawn::Weighted(_) => Vec::new(),
        }
    }
}

fn is_same(order: Order, examples: &Examples) -> bool {
    order.kind().is_fixed() && examples.expected().is_none()
}

fn check(spec: &PlanSpec, over: &Catalog<'_>) -> Result<(), PlanError> {
    let records = over.records;
    if let Some(found) = over.selection.as_ref().map(Selection::records)
        && found != records
    {
        return Err(PlanError::SelectionMismatch { found, records });
    }
    if !spec.echo.is_none() && !spec.batch_echo.is_none() {
        return Err(PlanError::TwoEchoes {
            examples: spec.echo.factor().to_string(),
            batches: spec.batch_echo.factor().to_string(),
        });
    }
    match (&spec.mixture, &spec.sampler) {
        (Some(_), Some(_)) => return Err(PlanError::SampledMixture),
        (None, None | Some(Sampler::Ids(_))) => {
            if let Some(examples) = spec.epoch_examples {
                return Err(PlanError::EpochWithoutMixture { examples });
            }
        }
        (Some(_), None) if spec.order != Order::Full => {
            let order = spec.order.to_string();
            return Err(PlanError::MixtureOrder { order });
        }
        _ => {}
    }
    if let Some(sampler) = &spec.sampler {
        sampler.check(spec.order, records)?;
    }
    let refused = |setting| Err(PlanError::BucketBatching { setting });
    match (&spec.buckets, spec.batching) {
        (Some(_), Batching::Examples(0)) => Err(PlanError::EmptyBatch),
        (Some(_), Batching::Examples(_)) if spec.last == Last::Drop => refused("`last` drop"),
        (Some(_), Batching::Batches(_)) => refused("a number of batches"),
        (None, _) | (Some(_), Batching::Examples(_)) => Ok(()),
    }
}

/// The records that are numbered, and how often an epoch has each.
fn numbered(spec: &PlanSpec, over: &Catalog<'_>) -> Result<(Numbering, Drawn), PlanError> {
    let (records, seed) = (over.records, spec.seed);
    if records > MAX_RECORDS {
        return Err(PlanError::TooManyRecords { records });
    }
    let kept = match over.selection.clone() {
        Some(selection) => Numbering::Kept(selection),
        None => Numbering::All(records),
    };
    let mixture = |parts: &[Part], records, selection| {
        let mixture = Mixture::new(parts, spec.epoch_examples, records, selection, seed)?;
        Ok(Drawn::Mixed(Arc::new(mixture)))
    };
    if let Some(parts) = &spec.mixture {
        let drawn = mixture(parts, records, over.selection.as_ref())?;
        return Ok((kept, drawn));
    }
    match &spec.sampler {
        None => Ok((kept, Drawn::Once)),
        Some(Sampler::Ids(ids)) => {
            let left_out = |kept: &Selection| ids.iter().find(|&&id| !kept.contains(id)).copied();
            match over.selection.as_ref().and_then(left_out) {
                Some(id) => Err(PlanError::ListedLeftOut { id }),
                None => Ok((Numbering::Listed(Arc::clone(ids)), Drawn::Once)),
            }
        }
        Some(Sampler::Weights(weights)) => {
            let weighted = {
                let record_of = kept.walk();
                let weights = (0..kept.len()).map(|number| weights[record_of(number) as usize]);
                Weighted::new(weights, seed)?
            };
            Ok((kept, Drawn::Weighted(Arc::new(weighted))))
        }
        Some(Sampler::Classes(classes)) => {
            let record_of = kept.walk();
            let class_of = |number| classes[record_of(number) as usize];
            let (mut sorted, ends) = sorted_by_class(kept.len(), class_of);
            kept.to_records(&mut sorted);
            let parts = parts_ending(&ends);
            let drawn =
                mixture(&parts, sorted.len() as u64, None).map_err(|error| match error {
                    PlanError::PartTooSmall { examples, .. } => {
                        PlanError::ShortBalancedEpoch { examples }
                    }
                    other => other,
                })?;
            Ok((Numbering::Listed(sorted.into()), drawn))
        }
    }
}

/// Parts that end at these numbers; those that are not empty have the same weight.
fn parts_ending(ends: &[u64]) -> Vec<Part> {
    let mut start = 0;
    let parts = ends.iter().map(|&end| {
        let ids = std::mem::replace(&mut start, end)..end;
        let weight = if ids.is_empty() { 0.0 } else { 1.0 };
        Part { ids, weight }
    });
    parts.collect()
}

/// The order over this many indices.
fn order_over(
    spec: &PlanSpec,
    over: &Catalog<'_>,
    records: u64,
) -> Result<Box<dyn Ids>, PlanError> {
    if over.units.is_some() && spec.order.unit_bytes().is_none() {
        let order = spec.order.to_string();
        return Err(PlanError::UnitsUnused { order });
    }
    spec.order.kind().over(&Over {
        order: spec.order.to_string(),
        records,
        seed: spec.seed,
        batching: spec.batching,
        last: spec.last,
        all_records: over.records,
        selection: over.selection.as_ref(),
        units: over.units.as_ref(),
    })
}

fn groups(
    spec: &PlanSpec,
    over: &Catalog<'_>,
    numbering: &Numbering,
    sequence: &Sequence,
) -> Result<Groups, PlanError> {
    let (Some(policy), Batching::Examples(batch)) = (&spec.buckets, spec.batching) else {
        return Runs::new(sequence, spec.batching, spec.last).map(Groups::Runs);
    };
    let Some(length_of) = over.length_of else {
        let policy = policy.to_string();
        return Err(PlanError::NoLengths { policy });
    };
    let id_of = numbering.walk();
    let length_at = |number| length_of(id_of(number));
    let second_at = over
        .second_length_of
        .map(|second_of| |number| second_of(id_of(number)));
    let second_at = second_at.as_ref().map(|of| of as &dyn Fn(u64) -> u32);
    let kept = numbering.len();
    let BucketPolicy::Pack(packing) = policy else {
        let batch = (batch, spec.last);
        let bucketed = Bucketed::new(sequence, policy, batch, kept, length_at, second_at)?;
        return Ok(Groups::Bucketed(Box::new(bucketed)));
    };
    if second_at.is_some() {
        let policy = packing.to_string();
        return Err(PlanError::NotForPairs { policy });
    }
    let same = is_same(spec.order, &sequence.examples);
    let packed = Packed::new(*packing, (batch, spec.last), kept, same, length_at)?;
    if let (false, Some(longest)) = (spec.batch_echo.is_none(), packed.longest_cut()) {
        let packing = packing.to_string();
        return Err(PlanError::EchoedCuts { packing, longest });
    }
    Ok(Groups::Packed(Box::new(packed)))
}

/// The fingerprint without the meaning of indices and without echo.
fn plan_fingerprint(spec: &PlanSpec, sequence: &Sequence, groups: &Groups) -> u64 {
    let (source, is_mixture) = match &sequence.examples.drawn {
        Drawn::Once => (order_fingerprint(spec, &sequence.examples), false),
        Drawn::Mixed(mixture) => (mixture.fingerprint(), true),
        Drawn::Weighted(weighted) => {
            let order = order_fingerprint(spec, &sequence.examples);
            (mix(order ^ weighted.fingerprint()), false)
        }
    };
    match groups {
        Groups::Runs(Runs::Places(cuts)) if is_mixture => {
            let sizes = Digest::new("cuts").words([cuts.longest(), cuts.steps(), spec.last as u64]);
            mix(source ^ sizes.value())
        }
        Groups::Runs(_) => source,
        Groups::Bucketed(bucketed) => mix(source.rotate_left(9) ^ bucketed.fingerprint()),
        Groups::Packed(packed) => mix(source.rotate_left(9) ^ packed.fingerprint()),
    }
}

fn order_fingerprint(spec: &PlanSpec, examples: &Examples) -> u64 {
    let order = spec.order.kind();
    let (batch_kind, batch) = match (spec.batching, spec.last) {
        _ if order.ignores_batching() => (0, 0),
        (Batching::Examples(examples), Last::Short) => (1, examples),
        (Batching::Examples(examples), Last::Drop) => (2, examples),
        (Batching::Batches(batches), _) => (3, batches),
        (Batching::Examples(examples), Last::Even) => (4, examples),
    };
    let units = examples.ids.units().map_or(0, Units::fingerprint);
    let words = [examples.len, batch_kind, batch, spec.seed, units];
    let order = spec.order.to_string();
    Digest::new("order")
        .bytes(order.as_bytes())
        .words(words)
        .value()
}
