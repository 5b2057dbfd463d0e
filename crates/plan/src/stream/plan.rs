//! Any step of any epoch of a stream.

use super::batch::{Draw, StreamBatch};
use super::held::HeldBatches;
use super::mixture::Mixture;
use super::queues::Queues;
use super::rows::Rows;
use super::runs::Runs;
use super::selection::Selection;
use super::sequence::{Sequence, Source};
use super::spec::StreamSpec;
use crate::batching::Batching;
use crate::buckets::{BucketLayout, BucketPlan, BucketPolicy, Packing};
use crate::echo::{Echo, EchoPlan, Echoed};
use crate::error::PlanError;
use crate::order::Order;
use crate::plan::Plan;
use crate::randomness::Randomness;
use crate::units::Units;
use pelton_key::{GOLDEN_GAMMA, mix};

/// Which examples each step of each epoch uses, how often, and in which batch: a pure function of what it was made
/// from.
///
/// Shared between threads by reference; what it keeps inside changes speed, never results.
///
/// ```
/// use pelton_plan::{Order, Selection, StreamBatch, StreamPlan, StreamSpec, share_of};
///
/// let mut spec = StreamSpec::new(Order::Full, 32, 7);
/// spec.echo = "2:64".parse()?; // every example twice, at least 32 others between
/// let odd = Selection::new(10_000, |id| id % 2 == 1);
/// let stream = StreamPlan::new(10_000, &spec, Some(odd), None, None)?;
/// assert_eq!(stream.steps(0), 10_000_u64.div_ceil(32));
///
/// let mut batch = StreamBatch::default();
/// stream.batch(3, 100, &mut batch); // epoch 3, step 100, without visiting steps 0..100
/// assert!(batch.draws.iter().all(|draw| draw.id % 2 == 1 && draw.copy < 2));
/// let mut mine = Vec::new();
/// share_of(&batch, 1, 4, &mut mine); // the draws that the second of four ranks takes
/// assert_eq!(mine.len(), 8);
/// # Ok::<(), pelton_plan::PlanError>(())
/// ```
#[derive(Debug)]
pub struct StreamPlan {
    records: u64,
    fresh: Fresh,
    selection: Option<Selection>,
    batch_echo: Echo,
    held: HeldBatches,
    seed: u64,
    fingerprint: u64,
}

/// The batches of an epoch before they are echoed.
#[derive(Debug)]
enum Fresh {
    Runs(Box<Runs>),
    /// Of one bucket each, of examples that appear once, in an order that has an inverse.
    Buckets(Box<BucketPlan>),
    /// Of one bucket each.
    Queues(Box<Queues>),
    /// Of packed rows.
    Rows(Box<Rows>),
}

impl StreamPlan {
    /// A stream over the records `0..records`, of which a selection may keep a few; `units` are those of a `page`
    /// or `opportunistic` order over all records, and `length_of` tells the length of a record, for buckets. It is
    /// asked for kept records only, three times for each at most.
    pub fn new(
        records: u64,
        spec: &StreamSpec,
        selection: Option<Selection>,
        units: Option<Units>,
        length_of: Option<&dyn Fn(u64) -> u32>,
    ) -> Result<StreamPlan, PlanError> {
        check(records, spec, selection.as_ref())?;
        let kept = Kept {
            records,
            selection: selection.as_ref(),
            units: units.as_ref(),
        };
        let fresh = match (&spec.buckets, length_of) {
            (None, _) => Fresh::Runs(Box::new(Runs::new(kept.sequence(spec)?, batching(spec))?)),
            (Some(policy), None) => {
                let policy = policy.to_string();
                return Err(PlanError::NoLengths { policy });
            }
            (Some(policy), Some(length_of)) => kept.by_length(spec, policy, length_of)?,
        };
        let words = [
            fresh.fingerprint(),
            selection.as_ref().map_or(0, Selection::fingerprint),
            echo_word(spec.echo),
            echo_word(spec.batch_echo),
        ];
        // A stream that adds nothing to a plan is that plan.
        let fingerprint = match words {
            [plan, 0, 0, 0] => plan,
            words => words.into_iter().fold(5, |state, word| {
                mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
            }),
        };
        Ok(StreamPlan {
            records,
            fresh,
            selection,
            batch_echo: spec.batch_echo,
            held: HeldBatches::default(),
            seed: spec.seed,
            fingerprint,
        })
    }

    /// Batches of an epoch. The same in every epoch, and known at once, unless examples that are put together by
    /// length come from a mixture, or are echoed or packed: then it costs a pass over the epoch, once.
    pub fn steps(&self, epoch: u64) -> u64 {
        self.echo_of(self.fresh.steps(epoch)).appearances()
    }

    /// Puts the global batch of a step into `out`, whatever that held. Asserts `step < steps`.
    pub fn batch(&self, epoch: u64, step: u64, out: &mut StreamBatch) {
        let fresh = self.fresh.steps(epoch);
        let echo = self.echo_of(fresh);
        let steps = echo.appearances();
        assert!(step < steps, "step {step} of {steps} an epoch");
        let mut asked = Echoed {
            position: step,
            copy: 0,
        };
        if !self.batch_echo.is_none() {
            let mut echoed = Vec::with_capacity(1);
            echo.fill(epoch, step..step + 1, &mut echoed);
            asked = echoed[0];
        }
        let (number, copy) = (asked.position, asked.copy);
        if self.batch_echo.is_none() || self.fresh.is_sought_at_once() {
            out.clear();
            self.fresh.fill(epoch, number, out);
        } else {
            self.held.copy(&echo, epoch, asked, out, |number, batch| {
                self.fresh.fill(epoch, number, batch);
            });
        }
        out.repeat_of = (copy > 0).then_some(number);
        (out.fresh_batch, out.batch_copy) = (number, copy);
        out.last = copy + 1 == echo.times_of(number);
        for draw in &mut out.draws {
            // Examples appear once where batches are echoed.
            draw.copy += copy;
            draw.last &= out.last;
        }
        if let Some(selection) = &self.selection {
            for draw in &mut out.draws {
                draw.id = selection.get(draw.id);
            }
        }
    }

    /// Records of the data set that it is over.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How often each example appears.
    pub fn echo(&self) -> Echo {
        let sequence = self.fresh.sequence();
        sequence.map_or(Echo::NONE, |sequence| sequence.echo().echo())
    }

    /// How often each batch appears.
    pub fn batch_echo(&self) -> Echo {
        self.batch_echo
    }

    /// The most draws of a global batch, or more.
    pub fn largest_batch(&self) -> u64 {
        match &self.fresh {
            Fresh::Runs(runs) => runs.largest_batch(),
            Fresh::Buckets(plan) => {
                let capacities = plan.layout().buckets().iter().map(|bucket| bucket.capacity);
                capacities.max().unwrap_or(0).min(plan.plan().records())
            }
            Fresh::Queues(queues) => queues.largest_batch(),
            Fresh::Rows(rows) => rows.largest_batch(),
        }
    }

    /// Examples of an epoch's order, those of a last batch that is left out included.
    pub fn examples(&self, _epoch: u64) -> u64 {
        match self.fresh.sequence() {
            Some(sequence) => sequence.source().examples(),
            None => self.fresh.plan().map_or(0, Plan::records),
        }
    }

    /// Appearances of an epoch's examples, before batches are echoed or left out.
    pub fn appearances(&self, epoch: u64) -> u64 {
        let sequence = self.fresh.sequence();
        sequence.map_or_else(|| self.examples(epoch), Sequence::appearances)
    }

    /// The most examples, or more, that at any moment between two draws have appeared in the epoch and appear again.
    pub fn most_held(&self) -> u64 {
        self.most_held_with(None)
    }

    /// The same of a plan whose echo has another window, where one is named.
    pub fn most_held_with(&self, window: Option<u32>) -> u64 {
        let windows = |echo: Echo| match echo.is_none() {
            true => 0,
            false => 2 * u64::from(window.unwrap_or(echo.window())),
        };
        let echo = self.fresh.sequence().map(|sequence| sequence.echo().echo());
        let of_examples = echo.map_or(0, windows);
        let waiting = match &self.fresh {
            Fresh::Queues(queues) if of_examples > 0 => queues.most_waiting(),
            Fresh::Rows(rows) => rows.most_waiting(),
            _ => 0,
        };
        let of_batches = windows(self.batch_echo).saturating_mul(self.largest_batch());
        let held = of_examples
            .saturating_add(waiting)
            .saturating_add(of_batches);
        held.min(self.examples(0))
    }

    /// Memory the plan may come to hold, beyond its own few hundred bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes_with(None)
    }

    /// The same of a plan whose echo has another window, where one is named.
    pub fn memory_bytes_with(&self, window: Option<u32>) -> u64 {
        let with_own_window = match &self.fresh {
            Fresh::Runs(runs) => runs.sequence().memory_bytes(),
            Fresh::Buckets(plan) => plan.memory_bytes(),
            Fresh::Queues(queues) => queues.memory_bytes(),
            Fresh::Rows(rows) => rows.memory_bytes(),
        };
        let of_echo = |sequence: &Sequence| match window {
            Some(window) => sequence.memory_bytes_with(window),
            None => sequence.memory_bytes(),
        };
        let batches = match self.fresh.sequence() {
            Some(sequence) => with_own_window - sequence.memory_bytes() + of_echo(sequence),
            None => with_own_window,
        };
        let held = match self.batch_echo.is_none() || self.fresh.is_sought_at_once() {
            true => 0,
            false => {
                let window = u64::from(window.unwrap_or(self.batch_echo.window()));
                let draws = window
                    .saturating_mul(2)
                    .saturating_mul(self.largest_batch());
                draws.min(self.appearances(0)) * size_of::<Draw>() as u64
            }
        };
        batches + held + self.selection.as_ref().map_or(0, Selection::memory_bytes)
    }

    /// A number that two streams share when they give the same batches by construction; kept in checkpoints so
    /// that a run is not resumed under another.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// How well the order of the examples shuffles, before they are put together by length.
    ///
    /// That of a mixture is perfect: how many examples an epoch draws from each part is fixed, but one permutation of
    /// all its places puts what it draws in any order.
    pub fn randomness(&self) -> Option<Randomness> {
        match self.fresh.sequence().map(Sequence::source) {
            Some(Source::Mixture(_)) => Some(Randomness::PERFECT),
            _ => self.fresh.plan().map(Plan::randomness),
        }
    }

    /// The exact randomness RL* of an epoch's examples as they come out in batches, each by its first appearance;
    /// not known of mixtures and echoed examples that are put together by length, and of some orders that are. Costs a
    /// pass over the epoch for packed rows.
    pub fn rl_exact(&self, epoch: u64) -> Option<f64> {
        match &self.fresh {
            Fresh::Runs(_) => self.randomness().map(|randomness| randomness.rl_exact),
            Fresh::Buckets(plan) => plan.rl_exact(),
            Fresh::Queues(_) => None,
            Fresh::Rows(rows) => rows.rl_exact(epoch),
        }
    }

    /// Cells that hold padding over all cells of an epoch, before batches are echoed. Of a mean epoch where buckets
    /// are of a mixture or a fractional echo; costs a pass over the epoch for packed rows.
    pub fn padded_fraction(&self, epoch: u64) -> Option<f64> {
        match &self.fresh {
            Fresh::Rows(rows) => Some(rows.padded_fraction(epoch)),
            _ => self.bucket_layout().map(BucketLayout::padded_fraction),
        }
    }

    /// The buckets, for the examples of a mean epoch, each once.
    pub fn bucket_layout(&self) -> Option<&BucketLayout> {
        match &self.fresh {
            Fresh::Buckets(plan) => Some(plan.layout()),
            Fresh::Queues(queues) => Some(queues.layout()),
            Fresh::Runs(_) | Fresh::Rows(_) => None,
        }
    }

    /// The packing.
    pub fn packing(&self) -> Option<Packing> {
        match &self.fresh {
            Fresh::Rows(rows) => Some(rows.packing()),
            _ => None,
        }
    }

    /// The records that are drawn from, where a filter keeps a few.
    pub fn selection(&self) -> Option<&Selection> {
        self.selection.as_ref()
    }

    /// Examples of each part of a mixture in an epoch, each counted once; empty where there is none.
    pub fn realised_mixture(&self, epoch: u64) -> Vec<u64> {
        match self.fresh.sequence().map(Sequence::source) {
            Some(Source::Mixture(mixture)) => {
                let turns = mixture.turns(epoch);
                turns.iter().map(|turn| turn.count).collect()
            }
            _ => Vec::new(),
        }
    }

    fn echo_of(&self, fresh: u64) -> EchoPlan {
        let echo = EchoPlan::of_batches(fresh, self.batch_echo, self.seed);
        echo.expect("as many were counted when the stream was made")
    }
}

impl Fresh {
    fn steps(&self, epoch: u64) -> u64 {
        match self {
            Fresh::Runs(runs) => runs.steps(),
            Fresh::Buckets(plan) => plan.steps(),
            Fresh::Queues(queues) => queues.steps(epoch),
            Fresh::Rows(rows) => rows.steps(epoch),
        }
    }

    fn fill(&self, epoch: u64, step: u64, out: &mut StreamBatch) {
        match self {
            Fresh::Runs(runs) => runs.fill(epoch, step, out),
            Fresh::Buckets(plan) => fill_bucket(plan, epoch, step, out),
            Fresh::Queues(queues) => queues.fill(epoch, step, out),
            Fresh::Rows(rows) => rows.fill(epoch, step, out),
        }
    }

    /// Whether any batch costs what the next one does.
    fn is_sought_at_once(&self) -> bool {
        matches!(self, Fresh::Runs(runs) if runs.sequence().source().is_invertible())
    }

    fn sequence(&self) -> Option<&Sequence> {
        match self {
            Fresh::Runs(runs) => Some(runs.sequence()),
            Fresh::Buckets(_) => None,
            Fresh::Queues(queues) => Some(queues.sequence()),
            Fresh::Rows(rows) => Some(rows.sequence()),
        }
    }

    fn plan(&self) -> Option<&Plan> {
        match (self, self.sequence().map(Sequence::source)) {
            (Fresh::Buckets(plan), _) => Some(plan.plan()),
            (_, Some(Source::Plan(plan))) => Some(plan),
            _ => None,
        }
    }

    fn fingerprint(&self) -> u64 {
        let source = match self.sequence() {
            Some(sequence) => sequence.source().fingerprint(),
            None => 0,
        };
        match self {
            Fresh::Runs(runs) => runs.fingerprint(),
            Fresh::Buckets(plan) => plan.fingerprint(),
            Fresh::Queues(queues) => mix(source.rotate_left(9) ^ queues.fingerprint()),
            Fresh::Rows(rows) => mix(source.rotate_left(9) ^ rows.fingerprint()),
        }
    }
}

fn fill_bucket(plan: &BucketPlan, epoch: u64, step: u64, out: &mut StreamBatch) {
    let mut ids = Vec::new();
    let bucket = plan.batch_ids(epoch, step, &mut ids);
    let mut positions = ids.clone();
    plan.plan().positions_of_each(epoch, &mut positions);
    let draws = ids.into_iter().zip(positions);
    out.draws.extend(draws.map(|(id, position)| Draw {
        id,
        position,
        copy: 0,
        last: true,
    }));
    let shape = &plan.layout().buckets()[bucket];
    out.bucket = Some(bucket as u32);
    out.padded_length = (!shape.alone).then_some(shape.longest);
}

fn batching(spec: &StreamSpec) -> Batching {
    match spec.drop_last {
        true => Batching::DropLast(spec.batch),
        false => Batching::Examples(spec.batch),
    }
}

/// 0 for no echo.
fn echo_word(echo: Echo) -> u64 {
    match echo.is_none() {
        true => 0,
        false => mix(echo.factor().to_bits() ^ mix(echo.window().into())),
    }
}

fn check(records: u64, spec: &StreamSpec, selection: Option<&Selection>) -> Result<(), PlanError> {
    if let Some(found) = selection.map(Selection::records)
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
    match (&spec.mixture, spec.epoch_examples) {
        (None, Some(examples)) => return Err(PlanError::EpochWithoutMixture { examples }),
        (Some(_), _) if spec.order != Order::Full => {
            let order = spec.order.to_string();
            return Err(PlanError::MixtureOrder { order });
        }
        _ => {}
    }
    match &spec.buckets {
        _ if spec.batch == 0 => Err(PlanError::EmptyBatch),
        Some(_) if spec.drop_last => {
            let batching = batching(spec).to_string();
            Err(PlanError::BucketBatching { batching })
        }
        _ => Ok(()),
    }
}

/// What a stream is made over.
struct Kept<'a> {
    records: u64,
    selection: Option<&'a Selection>,
    units: Option<&'a Units>,
}

impl Kept<'_> {
    fn len(&self) -> u64 {
        self.selection.map_or(self.records, Selection::len)
    }

    fn plan(&self, spec: &StreamSpec) -> Result<Plan, PlanError> {
        let whole = Plan::new(self.records, spec.order, batching(spec), spec.seed);
        match (self.units, self.selection) {
            (None, None) => whole,
            (None, Some(_)) => Plan::new(self.len(), spec.order, batching(spec), spec.seed),
            (Some(units), None) => whole?.with_units(units.clone()),
            (Some(units), Some(selection)) => {
                whole?.with_units(units.clone())?;
                let units = units.kept(selection);
                Plan::over_units(units, spec.order, batching(spec), spec.seed)
            }
        }
    }

    fn sequence(&self, spec: &StreamSpec) -> Result<Sequence, PlanError> {
        let source = match &spec.mixture {
            None => Source::Plan(self.plan(spec)?),
            Some(parts) => Source::Mixture(Mixture::new(
                parts,
                spec.epoch_examples,
                self.records,
                self.selection,
                spec.seed,
            )?),
        };
        Sequence::new(source, spec.echo, spec.seed)
    }

    fn by_length(
        &self,
        spec: &StreamSpec,
        policy: &BucketPolicy,
        length_of: &dyn Fn(u64) -> u32,
    ) -> Result<Fresh, PlanError> {
        let walk = self.selection.map(Selection::walk);
        let length_at = |number| length_of(walk.as_ref().map_or(number, |walk| walk(number)));
        let sequence = self.sequence(spec)?;
        let is_plain = matches!(sequence.source(), Source::Plan(plan) if plan.is_invertible())
            && spec.echo.is_none();
        let (kept, batch, seed) = (self.len(), spec.batch, spec.seed);
        if let BucketPolicy::Pack(packing) = policy {
            let rows = Rows::new(sequence, *packing, batch, kept, seed, length_at)?;
            if let (false, Some(longest)) = (spec.batch_echo.is_none(), rows.longest_cut()) {
                let packing = packing.to_string();
                return Err(PlanError::EchoedCuts { packing, longest });
            }
            Ok(Fresh::Rows(Box::new(rows)))
        } else if is_plain {
            let plan = self.plan(spec)?;
            let plan = BucketPlan::new(plan, policy, length_at)?;
            Ok(Fresh::Buckets(Box::new(plan)))
        } else {
            let queues = Queues::new(sequence, policy, batch, kept, seed, length_at)?;
            Ok(Fresh::Queues(Box::new(queues)))
        }
    }
}
