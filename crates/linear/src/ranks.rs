//! A block solved by several ranks at once, each on rows of its own.
//!
//! Work goes in rounds. In a round each rank visits some of its rows by dual coordinate descent and
//! moves a w of its own; at its end the moves Δw_r of all ranks r are added to w everywhere, and every
//! α keeps what it became. So w = Σ α_i y_i x_i after every round, and the certificate stands as with one
//! rank.
//!
//! **Anticipation.** Adding alone diverges or crawls: rows of few features determine w within a
//! fraction of a round, so every rank undoes the same error that w had at the round's beginning, and the
//! sum undoes it R times. Damping the sum by 1/R, or each step (CoCoA+: Ma et al., ICML 2015), is safe
//! and slows every α by what w needs. Here a rank begins its round at a *view*
//! of w from which the others' share of that correction is taken as done. With k ranks that
//! know a feature and a centre c, the running mean of where the ranks' views ended,
//! v = w − (1 − 1/k)(w − c). All corrections together then undo the error once, and as w comes to
//! rest, v goes to w. Features that only one rank's rows have need no exchange before the block ends.
//! Measured on 500 000 rows of 28 features: as many visits to the same dual value as with one rank,
//! for 2, 4 and 8; damped steps took 1.6 and 2.6 times as many for 2 and 4.
//!
//! **Ascent.** Rank r knows what its steps gained at its view, A_r. All of them change the dual value by
//! G = Σ A_r + (v − w)·Δw − ½(‖Δw‖² − Σ ‖Δw_r‖²), where only features that ranks share add to
//! the last terms. Where G < 0 only the share γ of every step is kept; as the dual value is concave with
//! curvature N = ‖Δw‖² at least along the steps, D(γ) − D(0) ≥ γ G + γ(1 − γ) N/2, which
//! γ = ½ + G/N makes largest and positive (a line search: Lee and Chang, arXiv 1709.03043). So no round
//! lowers the dual value.
//!
//! The centre is a better model than w, which swings about it, and is what the next certificate is
//! about.
//!
//! **Conflict.** Where the rows of one rank undo in the shared features what those of another do, ‖Δw‖² is a
//! small part of Σ ‖Δw_r‖², and a round gains what w moves before the ranks balance, however long it is:
//! only more rounds help. So passes are cut into more rounds until what is kept is half, and into fewer again
//! where it is more. (25 000 reviews as counts of words, 2 ranks: 109 epochs of 200 passes to a gap of 1e-3
//! with rounds of one length.)
//!
//! Cost of a round: one sum over the ranks of 4 bytes a shared feature. Without conflict a round is as long as
//! makes that a small part of it. All that follows from numbers that every rank has alike, so that a run
//! repeats bit for bit.

use std::ops::Range;

use pelton_format::RowTable;

use crate::abandoned::Halt;
use crate::block::{Scratch, block_rows};
use crate::duals::{Duals, decode};
use crate::error::LinearError;
use crate::problem::{Loss, Problem};
use crate::random::derive;
use crate::seldom::SeldomExchanged;
use crate::shared_features::SharedFeatures;
use crate::solve::{
    A_VISIT, BlockReport, InnerPasses, SETTLED_ABOVE, VisitRows, class_terms, limits, solve_block,
};
use crate::step::{ClassTerms, HingeStep, LogisticStep, Outcome, Step};
use crate::visit::Visit;
use crate::weights::Weights;

/// What ranks exchange: all of them the same things in the same order.
#[derive(Debug)]
pub enum Exchange<'a> {
    /// Adds each element up over the ranks, in their order.
    Sum(&'a mut [f32]),
    /// The same in f64.
    SumWide(&'a mut [f64]),
    /// Takes the largest of each element.
    Largest(&'a mut [f64]),
    /// Collects the values of every rank, of which there may be different numbers.
    Gather(&'a [f32], &'a mut Vec<Vec<f32>>),
    /// The same for words.
    GatherWords(&'a [u64], &'a mut Vec<Vec<u64>>),
}

impl Exchange<'_> {
    /// What comes of it on the only rank: sums and largest values are its own.
    pub fn alone<E>(self) -> Result<(), E> {
        match self {
            Exchange::Sum(_) | Exchange::SumWide(_) | Exchange::Largest(_) => {}
            Exchange::Gather(values, all) => *all = vec![values.to_vec()],
            Exchange::GatherWords(words, all) => *all = vec![words.to_vec()],
        }
        Ok(())
    }
}

/// This rank among those that solve a block together.
pub struct Peers<'a, E> {
    /// This rank.
    pub rank: usize,
    /// Ranks there are.
    pub ranks: usize,
    /// Exchanges with all of them.
    pub exchange: &'a mut dyn FnMut(Exchange<'_>) -> Result<(), E>,
}

impl<E> Peers<'static, E> {
    /// The only rank.
    pub fn alone() -> Peers<'static, E> {
        Peers {
            rank: 0,
            ranks: 1,
            // A function takes no memory, so that none is lost.
            exchange: Box::leak(Box::new(|what: Exchange<'_>| what.alone())),
        }
    }
}

/// Rounds of a pass where not every shared feature is popular, at least: in fewer, ranks learn too little
/// of one another. (Dense rows: 1, since more costs a quarter more exchanges and saves no visits.)
const LEAST_ROUNDS: usize = 4;

/// Exchanges of common features to one of rare features, at first.
const RARE_INTERVALS: usize = 4;

/// Weight of the past in the centre, at most.
const PAST: f32 = 0.8;

/// Parts of what ranks move in a pass that others leave: below the first they conflict, above the second they
/// do not.
const LEAST_LEFT: f64 = 0.5;
const MUCH_LEFT: f64 = 0.8;

/// How many times more rounds than without conflict, at most.
const MOST_MORE_ROUNDS: usize = 32;

/// What was done on a block, and where w came to rest.
#[derive(Debug, Default)]
pub struct SharedReport {
    /// What was done, over all ranks.
    pub report: BlockReport,
    /// The centre of w over the last rounds, where it was asked for and there are several ranks.
    pub centre: Option<Weights>,
    /// Rounds, and how many of them were damped.
    pub rounds: [u64; 2],
}

/// Solves a block of which this rank holds the rows `share`, from the present weights, which are the same
/// on all ranks, and the duals of its rows. Afterwards the weights are the same again, and so are the terms
/// of the duals. With `keep_centre` the centre of w is returned. A lone rank visits its rows as [`solve_block`] does.
///
/// Errors: rows of another problem; [`LinearError::Interrupted`] on all ranks where [`Scratch::end_when`] says
/// so on one.
#[expect(clippy::too_many_arguments)]
pub fn solve_share<E: From<LinearError>>(
    problem: &Problem,
    share: &RowTable,
    weights: &mut Weights,
    duals: &mut Duals,
    inner: InnerPasses,
    key: u64,
    keep_centre: bool,
    scratch: &mut Scratch,
    peers: &mut Peers<'_, E>,
) -> Result<SharedReport, E> {
    if peers.ranks == 1 {
        return Ok(SharedReport {
            report: solve_block(problem, share, weights, duals, inner, key, scratch)?,
            ..SharedReport::default()
        });
    }
    let records = duals.records();
    if let Some(&record) = share.ids().iter().find(|&&id| id >= records as u64) {
        return Err(LinearError::RecordOutOfRange { record, records }.into());
    }
    scratch.prepare(problem, share)?;
    let rows = &block_rows(problem.features(), problem.bias(), share);
    let length = weights.vector(0).len();
    let shared = match scratch.shared.take() {
        Some(shared) => shared,
        None => {
            let (frequent, same_rows) = (scratch.frequent, scratch.same_rows);
            SharedFeatures::agree(rows, &scratch.visits, length, frequent, same_rows, peers)?
        }
    };
    let mut centre = keep_centre.then(|| weights.clone());
    let centres = centre.as_mut().map(Weights::vectors_mut);
    let ids = share.ids();
    let vectors = weights.vectors_mut();
    let solved = Solving {
        problem,
        ids,
        shared: &shared,
        key,
        inner,
    }
    .solve(|_| rows, vectors, centres, duals, scratch, peers);
    if scratch.same_rows {
        scratch.shared = Some(shared);
    }
    let mut solved = solved?;
    solved.centre = centre;
    Ok(solved)
}

/// What ranks solve together.
pub(crate) struct Solving<'a> {
    pub problem: &'a Problem,
    /// Records of this rank's rows.
    pub ids: &'a [u64],
    pub shared: &'a SharedFeatures,
    pub key: u64,
    pub inner: InnerPasses,
}

impl Solving<'_> {
    /// Solves over the rows whose visits are prepared in `scratch`; `rows` gives them for each subproblem,
    /// and `vectors` are the weights as those rows meet them. The centres, where asked for, are put in
    /// `centres`.
    pub fn solve<E: From<LinearError>, R: VisitRows>(
        &self,
        rows: impl Fn(usize) -> R,
        vectors: &mut [Vec<f32>],
        mut centres: Option<&mut [Vec<f32>]>,
        duals: &mut Duals,
        scratch: &mut Scratch,
        peers: &mut Peers<'_, E>,
    ) -> Result<SharedReport, E> {
        let (problem, ids, shared) = (self.problem, self.ids, self.shared);
        let (intervals, work) = Intervals::of(&rows(0), &scratch.visits, shared, peers)?;
        let [cost, count] = work.map(|sum| sum / peers.ranks as f64);
        // The same on all ranks.
        scratch.before.begin(vectors, count, cost);
        let mut solved = SharedReport::default();
        for subproblem in 0..vectors.len() {
            let w = &mut vectors[subproblem];
            let (stored, term) = duals.stored_mut(subproblem);
            let before = scratch.take_duals(problem, ids, stored);
            let classes = class_terms(problem, subproblem);
            let mut truth = Vec::new();
            let popular = 0..shared.popular();
            shared.pick(popular.clone(), w, &mut truth);
            let common = popular.end..shared.common();
            let rare = common.end..shared.len();
            let mut run = Run {
                problem,
                rows: rows(subproblem),
                classes: &classes,
                shared,
                intervals,
                seldom: [
                    SeldomExchanged::new(shared, common, w, intervals.common),
                    SeldomExchanged::new(shared, rare, w, RARE_INTERVALS * intervals.common),
                ],
                orders: derive(derive(self.key, subproblem as u64), peers.rank as u64),
                solved: &mut solved,
                round: 0,
                more_rounds: 1,
                left: [0.0; 2],
                view: truth.clone(),
                centre: truth.clone(),
                parts: popular.clone().map(|j| shared.part(j)).collect(),
                truth,
                own: Vec::new(),
                moved: Vec::new(),
                before: Vec::new(),
                w,
            };
            let solving = match problem.loss() {
                Loss::Hinge | Loss::SquaredHinge => run.hinge(self.inner, scratch, peers)?,
                Loss::Logistic => run.logistic(self.inner, scratch, peers)?,
            };
            if solving.is_none() {
                return Err(scratch.before.give_up(ids, vectors, duals).into());
            }
            for seldom in &mut run.seldom {
                seldom.exchange(run.w, peers)?;
            }
            let (truth, at_rest) = (run.truth, run.centre);
            shared.put(popular.clone(), &truth, w);
            shared.spread(w, peers)?;
            if let Some(centres) = &mut centres {
                let centre = &mut centres[subproblem];
                centre.copy_from_slice(w);
                shared.put(popular, &at_rest, centre);
            }
            let last = subproblem + 1 == problem.subproblems();
            scratch.before.keep(ids, stored, *term, last);
            let after = scratch.put_duals(problem, ids, stored);
            let mut change = [after - before];
            (peers.exchange)(Exchange::SumWide(&mut change))?;
            *term += change[0];
            scratch.fold_slack(problem, subproblem == 0);
        }
        let mut visits = [solved.report.visits as f64];
        (peers.exchange)(Exchange::SumWide(&mut visits))?;
        solved.report.visits = visits[0] as u64;
        Ok(solved)
    }
}

/// How many visits lie between exchanges.
#[derive(Clone, Copy)]
struct Intervals {
    /// Between those of the popular features: a round.
    round: usize,
    /// Between those of the other common ones.
    common: usize,
}

impl Intervals {
    /// As long as makes what ranks exchange a fixed part of the time: the costs of a visit and of an exchange
    /// are in nanoseconds, as measured between threads. Also returns the costs of all visits, and their number.
    fn of<E>(
        rows: &impl VisitRows,
        visits: &[Visit],
        shared: &SharedFeatures,
        peers: &mut Peers<'_, E>,
    ) -> Result<(Intervals, [f64; 2]), E> {
        const ROUNDS_TO_EXCHANGES: f64 = 8.0;
        const VISITS_TO_EXCHANGES_OF_COMMON: f64 = 3.0;
        const A_ROUND: f64 = 50_000.0;
        let costs = visits.iter().map(|visit| rows.visit_cost(visit.place));
        let mut totals = [costs.sum::<f64>(), visits.len() as f64];
        (peers.exchange)(Exchange::SumWide(&mut totals))?;
        let a_visit = (totals[0] / totals[1].max(1.0)).max(A_VISIT);
        let a_feature = 6.0 + 2.0 * peers.ranks as f64;
        let exchange = |features: usize| A_ROUND + a_feature * features as f64;
        let visits = |time: f64| (time / a_visit).ceil() as usize;
        let intervals = Intervals {
            round: visits(ROUNDS_TO_EXCHANGES * exchange(shared.popular())),
            common: visits(VISITS_TO_EXCHANGES_OF_COMMON * exchange(shared.common())),
        };
        Ok((intervals, totals))
    }
}

/// One subproblem on one block.
struct Run<'a, R> {
    problem: &'a Problem,
    rows: R,
    classes: &'a [ClassTerms],
    shared: &'a SharedFeatures,
    intervals: Intervals,
    /// The other shared features.
    seldom: [SeldomExchanged<'a>; 2],
    orders: u64,
    solved: &'a mut SharedReport,
    round: u32,
    /// How many times more rounds a pass has for conflict.
    more_rounds: usize,
    /// ‖Δw‖² and Σ ‖Δw_r‖² over the rounds of a pass.
    left: [f64; 2],
    /// This rank's w: in a round it moves from the view.
    w: &'a mut [f32],
    /// Of the popular shared features: w as all ranks know it, the view this round began at, the centre.
    truth: Vec<f32>,
    view: Vec<f32>,
    centre: Vec<f32>,
    /// 1 / the number of ranks that know each.
    parts: Vec<f32>,
    /// This rank's move of them, and the sum of all.
    own: Vec<f32>,
    moved: Vec<f32>,
    /// α of the round's rows before it.
    before: Vec<f32>,
}

/// A step that also adds up what it gains.
struct Gaining<'a, S> {
    step: &'a mut S,
    problem: &'a Problem,
    classes: &'a [ClassTerms],
    gain: f64,
}

impl<S: Step> Step for Gaining<'_, S> {
    #[inline(always)]
    fn step(&mut self, visit: &mut Visit, dot: f32) -> Outcome {
        let class = self.classes[visit.class as usize];
        let before = visit.alpha;
        let outcome = self.step.step(visit, dot);
        let gain = if self.problem.loss() == Loss::Logistic {
            let delta = f64::from(outcome.scale * class.sign);
            self.problem.dual_term(visit.class, visit.alpha)
                - self.problem.dual_term(visit.class, before)
                - delta * (f64::from(class.sign * dot) + 0.5 * delta * f64::from(visit.q))
        } else {
            let delta = visit.alpha - before;
            let g = class.sign * dot - 1.0 + class.diagonal * before;
            -f64::from(delta * (g + 0.5 * delta * visit.q))
        };
        self.gain += gain;
        outcome
    }
}

/// `None` stands for a block that all ranks give up.
impl<R: VisitRows> Run<'_, R> {
    fn hinge<E>(
        &mut self,
        inner: InnerPasses,
        scratch: &mut Scratch,
        peers: &mut Peers<'_, E>,
    ) -> Result<Option<()>, E> {
        let (epsilon, at_most) = limits(inner);
        let count = scratch.visits.len();
        let mut step = HingeStep {
            classes: self.classes,
            settled_above: SETTLED_ABOVE,
            largest: 0.0,
            smallest: 0.0,
        };
        scratch.active.start(count);
        let (mut passes, mut violation) = (0, 0.0);
        while passes < at_most {
            (step.largest, step.smallest) = (0.0, 0.0);
            let Some(visited) = self.pass(&mut step, passes, scratch, peers)? else {
                return Ok(None);
            };
            passes += 1;
            let rests = f64::from(u8::from(visited < count));
            let mut ends = [f64::from(step.largest), f64::from(-step.smallest), rests];
            (peers.exchange)(Exchange::Largest(&mut ends))?;
            violation = (ends[0] + ends[1]) as f32;
            if violation > epsilon {
                step.settled_above = SETTLED_ABOVE.min(violation);
                scratch.active.advance();
            } else if ends[2] == 0.0 {
                break;
            } else {
                scratch.active.wake_all();
            }
        }
        self.finish(passes, violation);
        Ok(Some(()))
    }

    fn logistic<E>(
        &mut self,
        inner: InnerPasses,
        scratch: &mut Scratch,
        peers: &mut Peers<'_, E>,
    ) -> Result<Option<()>, E> {
        let (epsilon, at_most) = limits(inner);
        let mut step = LogisticStep {
            classes: self.classes,
            largest: 0.0,
        };
        let (mut passes, mut violation) = (0, 0.0);
        while passes < at_most {
            scratch.active.start(scratch.visits.len());
            step.largest = 0.0;
            if self.pass(&mut step, passes, scratch, peers)?.is_none() {
                return Ok(None);
            }
            passes += 1;
            let mut largest = [f64::from(step.largest)];
            (peers.exchange)(Exchange::Largest(&mut largest))?;
            violation = largest[0] as f32;
            if violation <= epsilon {
                break;
            }
        }
        self.finish(passes, violation);
        Ok(Some(()))
    }

    /// One pass over the rows awake, in rounds; returns their number on this rank.
    fn pass<E>(
        &mut self,
        step: &mut impl Step,
        number: u32,
        scratch: &mut Scratch,
        peers: &mut Peers<'_, E>,
    ) -> Result<Option<usize>, E> {
        let active = &mut scratch.active;
        active.shuffle(derive(self.orders, u64::from(number)));
        let awake = active.order.len();
        let mut most = [awake as f64];
        (peers.exchange)(Exchange::Largest(&mut most))?;
        let most = most[0] as usize;
        let least = match self.shared.popular() < self.shared.len() {
            true => LEAST_ROUNDS,
            false => 1,
        };
        let rounds = most.div_ceil(self.intervals.round).max(least) * self.more_rounds;
        let rounds = rounds.min(most.max(least));
        for round in 0..rounds {
            let order = &active.order[awake * round / rounds..awake * (round + 1) / rounds];
            let visits = &mut scratch.visits;
            self.before.clear();
            let alphas = order.iter().map(|&i| visits[i as usize].alpha);
            self.before.extend(alphas);
            let mut gaining = Gaining {
                step,
                problem: self.problem,
                classes: self.classes,
                gain: 0.0,
            };
            let settled = &mut active.settled;
            self.rows
                .pass(scratch.simd, self.w, &mut gaining, visits, order, settled);
            let gain = gaining.gain;
            for seldom in &mut self.seldom {
                seldom.note(&self.rows, visits, order, &self.before);
            }
            let due = scratch.halt.as_mut().is_some_and(Halt::is_due);
            if self.end_round(gain, due, order, visits, peers)?.is_none() {
                return Ok(None);
            }
            let visits = most.div_ceil(rounds);
            for seldom in &mut self.seldom {
                seldom.end_round(visits, most, gain, self.w, peers)?;
            }
        }
        self.solved.report.visits += awake as u64;
        self.look_for_conflict();
        Ok(Some(awake))
    }

    /// Cuts the next pass into more rounds or fewer.
    fn look_for_conflict(&mut self) {
        let [left, moved] = std::mem::take(&mut self.left);
        if left < LEAST_LEFT * moved {
            self.more_rounds = (2 * self.more_rounds).min(MOST_MORE_ROUNDS);
        } else if left > MUCH_LEFT * moved {
            self.more_rounds = (self.more_rounds / 2).max(1);
        }
    }

    /// Adds up the moves of all ranks and makes the next view, unless the end is due on one of them.
    fn end_round<E>(
        &mut self,
        gain: f64,
        due: bool,
        order: &[u32],
        visits: &mut [Visit],
        peers: &mut Peers<'_, E>,
    ) -> Result<Option<()>, E> {
        let popular = 0..self.shared.popular();
        self.take_own(popular.clone());
        self.moved.clone_from(&self.own);
        // In two parts, so that f32 carries it without loss and one exchange does.
        let square = squared(&self.own);
        let gain = gain + 0.5 * square;
        let high = gain as f32;
        let low = (gain - f64::from(high)) as f32;
        let due = f32::from(u8::from(due));
        self.moved.extend([square as f32, high, low, due]);
        (peers.exchange)(Exchange::Sum(&mut self.moved))?;
        if self.moved.pop().unwrap_or_default() > 0.0 {
            return Ok(None);
        }
        let low = f64::from(self.moved.pop().unwrap_or_default());
        let gain = f64::from(self.moved.pop().unwrap_or_default()) + low;
        let squares = f64::from(self.moved.pop().unwrap_or_default());
        let total = squared(&self.moved);
        self.left[0] += total;
        self.left[1] += squares;
        let gain = gain + ahead(&self.view, &self.truth, &self.moved) - 0.5 * total;
        let mut kept = 1.0;
        if gain < 0.0 {
            kept = (0.5 + gain / total).clamp(0.0, 1.0);
            self.damp(kept, order, visits);
            self.solved.rounds[1] += 1;
        }
        self.solved.rounds[0] += 1;
        let past = PAST.min(self.round as f32 / (self.round + 1) as f32);
        self.round += 1;
        let kept = kept as f32;
        let (truth, centre) = (&mut self.truth, &mut self.centre);
        let known = truth.iter_mut().zip(centre).zip(&mut self.view);
        for (((truth, centre), view), (moved, part)) in
            known.zip(self.moved.iter().zip(&self.parts))
        {
            let moved = kept * moved;
            let mean = *view + part * moved;
            *truth += moved;
            *centre = past * *centre + (1.0 - past) * mean;
            *view = *truth - (1.0 - part) * (*truth - *centre);
        }
        self.shared
            .put(popular.clone(), &self.view[popular], self.w);
        Ok(Some(()))
    }

    /// What this rank has moved of the shared features `range` since their last exchange.
    fn take_own(&mut self, range: Range<usize>) {
        self.shared.pick(range.clone(), self.w, &mut self.own);
        for (own, view) in self.own.iter_mut().zip(&self.view[range]) {
            *own -= view;
        }
    }

    /// Takes back all but the share `kept` of this rank's steps in the round.
    fn damp(&mut self, kept: f64, order: &[u32], visits: &mut [Visit]) {
        for (&i, &before) in order.iter().zip(&self.before) {
            let visit = &mut visits[i as usize];
            let class = visit.class;
            let after = visit.alpha;
            if before == after {
                continue;
            }
            visit.alpha = between(self.problem, class, before, after, kept);
            let back =
                decode(self.problem, class, visit.alpha) - decode(self.problem, class, after);
            let scale = back as f32 * self.classes[class as usize].sign;
            // Shared features are overwritten with the next view.
            self.rows.add_scaled(visit.place, scale, self.w);
        }
    }

    fn finish(&mut self, passes: u32, violation: f32) {
        self.solved.report.passes = self.solved.report.passes.max(passes);
        self.solved.report.violation = self.solved.report.violation.max(violation);
    }
}

/// (view − truth)·moved.
fn ahead(view: &[f32], truth: &[f32], moved: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 8];
    let product = |view: f32, truth: f32, moved: f32| f64::from(view - truth) * f64::from(moved);
    let ((views, view), (truths, truth)) = (view.as_chunks::<8>(), truth.as_chunks::<8>());
    let (moves, moved) = moved.as_chunks::<8>();
    for ((views, truths), moves) in views.iter().zip(truths).zip(moves) {
        for (k, sum) in sums.iter_mut().enumerate() {
            *sum += product(views[k], truths[k], moves[k]);
        }
    }
    for (k, sum) in sums.iter_mut().enumerate().take(moved.len()) {
        *sum += product(view[k], truth[k], moved[k]);
    }
    sums.iter().sum()
}

fn squared(x: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 8];
    let (chunks, rest) = x.as_chunks::<8>();
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        *sum += f64::from(value) * f64::from(value);
    }
    sums.iter().sum()
}

/// The stored form of the α that lies `kept` of the way from `before` to `after`.
fn between(problem: &Problem, class: u32, before: f32, after: f32, kept: f64) -> f32 {
    let upper = f64::from(problem.upper(class));
    let logistic = problem.loss() == Loss::Logistic;
    if logistic && before < 0.0 && after < 0.0 {
        // Both near the upper end: their distances from it are exact.
        return (f64::from(before) + kept * (f64::from(after) - f64::from(before))) as f32;
    }
    let (from, to) = (
        decode(problem, class, before),
        decode(problem, class, after),
    );
    let value = from + kept * (to - from);
    if logistic && value > 0.5 * upper {
        (value - upper) as f32
    } else {
        (value as f32).clamp(0.0, upper as f32)
    }
}
