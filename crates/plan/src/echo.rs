//! Echo: examples come out several times for each time they are read and decoded, so that a consumer does
//! not wait for a slow source (data echoing: Choi et al., arXiv 1907.05550).
//!
//! With t_up seconds for a fresh example and t_down for each one used, R = t_up/t_down, an echo factor e
//! takes max(t_up, e·t_down) a fresh example: it costs nothing while e ≤ R.
//!
//! The order of an epoch is cut into *windows* of consecutive examples. While the fresh examples of one window
//! come out, in the order they have, the repeats of the window before are put evenly between them, in a new random
//! order for each repeat; the repeats of the last window end the epoch. So the source is asked for fresh
//! examples at an even rate, and at most two windows are held. (A buffer that draws at random, as published,
//! asks in bursts, may emit one example twice in a row, and can be entered only from its beginning.)
//!
//! **Spacing.** The first half of a window is repeated before the second, so that between two appearances of
//! an example lie at least half a window of others where the factor is a whole number. Repeats of which only a
//! part of a window has one more come as close as that part, and so do those of the last window.
//!
//! **Fractions.** With e = a/b the examples before place i come out ⌊i·a/b⌋ times together: some ⌊e⌋ times, some
//! once more, spread evenly.
//!
//! Every place of the sequence follows from (examples, echo, seed, epoch): entering it anywhere costs one
//! window, and so does a checkpoint of it nothing but its place.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::PlanError;
use pelton_key::KeyedRng;
use pelton_key::{Stage, key};

/// Examples of a window where nothing is said.
const DEFAULT_WINDOW: u32 = 1024;
/// Largest factor, and decimal places that it may have.
const MOST_TIMES: u64 = 1000;
const MOST_DECIMALS: usize = 3;

/// How often examples come out, and how many are held for it.
///
/// Written as text: `2`, `1.5`, `2:4096` with the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Echo {
    /// The factor in thousandths.
    thousandths: u64,
    window: u32,
}

/// One appearance of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Echoed {
    /// Its place in the epoch's order.
    pub position: u64,
    /// How often it came out before in this epoch: 0 for a fresh one.
    pub copy: u32,
}

impl Echo {
    /// Every example once.
    pub const NONE: Echo = Echo {
        thousandths: MOST_TIMES,
        window: DEFAULT_WINDOW,
    };

    /// `factor` appearances for each example, on average, from windows of `window` examples.
    ///
    /// Errors: a factor below 1 or above 1000, or an empty window.
    pub fn new(factor: f64, window: u32) -> Result<Echo, PlanError> {
        let thousandths = (factor * 1000.0).round();
        if !(1000.0..=1e6).contains(&thousandths) || window == 0 {
            return Err(PlanError::BadEcho {
                text: format!("{factor}:{window}"),
            });
        }
        Ok(Echo {
            thousandths: thousandths as u64,
            window,
        })
    }

    /// Appearances for each example, on average.
    pub fn factor(self) -> f64 {
        self.thousandths as f64 / 1000.0
    }

    /// Examples of a window; two windows are held.
    pub fn window(self) -> u32 {
        self.window
    }

    /// Whether every example comes out once.
    pub fn is_none(self) -> bool {
        self.thousandths == 1000
    }

    /// The factor, where it is a whole number.
    pub(crate) fn whole(self) -> Option<u64> {
        self.thousandths
            .is_multiple_of(1000)
            .then_some(self.thousandths / 1000)
    }

    /// How often the first `examples` come out, together.
    fn times(self, examples: u64) -> u64 {
        // A plan numbers fewer than 2^63 records, and refuses more appearances.
        match examples.checked_mul(self.thousandths) {
            Some(product) => product / 1000,
            None => (u128::from(examples) * u128::from(self.thousandths) / 1000) as u64,
        }
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.factor())?;
        if self.window != DEFAULT_WINDOW {
            write!(f, ":{}", self.window)?;
        }
        Ok(())
    }
}

impl FromStr for Echo {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Echo, PlanError> {
        let bad = || PlanError::BadEcho {
            text: text.to_owned(),
        };
        let (factor, window) = match text.split_once(':') {
            Some((factor, window)) => (factor, Some(window)),
            None => (text, None),
        };
        let (whole, decimals) = factor.split_once('.').unwrap_or((factor, ""));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let fits = decimals.len() <= MOST_DECIMALS && digits(whole);
        if !fits || (factor.contains('.') && !digits(decimals)) {
            return Err(bad());
        }
        let factor: f64 = factor.parse().map_err(|_| bad())?;
        let window = match window {
            Some(window) if digits(window) => window.parse().map_err(|_| bad())?,
            Some(_) => return Err(bad()),
            None => DEFAULT_WINDOW,
        };
        Echo::new(factor, window).map_err(|_| bad())
    }
}

/// The appearances of an epoch's examples, in order.
///
/// ```
/// use pelton_plan::{Echo, EchoPlan};
///
/// let plan = EchoPlan::new(10_000, "2".parse()?, 7)?;
/// assert_eq!(plan.appearances(), 20_000);
/// let mut some = Vec::new();
/// plan.fill(3, 12_000..12_004, &mut some); // epoch 3, without what comes before
/// assert!(some.iter().all(|echoed| echoed.copy < 2));
/// # Ok::<(), pelton_plan::PlanError>(())
/// ```
#[derive(Debug, Clone)]
pub struct EchoPlan {
    examples: u64,
    echo: Echo,
    seed: u64,
    /// The stage of the order of a window's repeats.
    stage: fn(u64) -> Stage,
}

/// The fresh examples of one window, and the repeats of the one before, which come out together.
pub(crate) struct Phase {
    /// Appearances before it.
    pub(crate) start: u64,
    /// Places of the fresh examples.
    pub(crate) fresh: Range<u64>,
    /// The number of repeats.
    pub(crate) repeats: u64,
}

impl Phase {
    pub(crate) fn len(&self) -> u64 {
        self.fresh.end - self.fresh.start + self.repeats
    }

    /// Fresh examples before the `slot`-th appearance of the phase.
    pub(crate) fn fresh_before(&self, slot: u64) -> u64 {
        let fresh = self.fresh.end - self.fresh.start;
        (u128::from(slot) * u128::from(fresh) / u128::from(self.len().max(1))) as u64
    }
}

impl EchoPlan {
    /// Over epochs of `examples` examples.
    ///
    /// Errors: more appearances than can be numbered.
    pub fn new(examples: u64, echo: Echo, seed: u64) -> Result<EchoPlan, PlanError> {
        let appearances = u128::from(examples) * u128::from(echo.thousandths) / 1000;
        if appearances >= 1 << 63 {
            return Err(PlanError::TooManyRecords { records: examples });
        }
        Ok(EchoPlan {
            examples,
            echo,
            seed,
            stage: Stage::Echo,
        })
    }

    /// Over epochs of `batches` batches, which come out several times as examples do otherwise: windows are
    /// of batches, and their repeats come in an order of their own.
    pub fn of_batches(batches: u64, echo: Echo, seed: u64) -> Result<EchoPlan, PlanError> {
        let stage = Stage::BatchEcho;
        EchoPlan::new(batches, echo, seed).map(|plan| EchoPlan { stage, ..plan })
    }

    /// How often the example at a place of the epoch's order comes out.
    pub fn times_of(&self, position: u64) -> u32 {
        (self.echo.times(position + 1) - self.echo.times(position)) as u32
    }

    /// The echo.
    pub fn echo(&self) -> Echo {
        self.echo
    }

    /// Examples of an epoch.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// Appearances of an epoch.
    pub fn appearances(&self) -> u64 {
        self.echo.times(self.examples)
    }

    /// Appends the appearances `range` of an epoch to `out`; those beyond the end are left out.
    ///
    /// Cost: what it lists, and a window for each window that it touches.
    pub fn fill(&self, epoch: u64, range: Range<u64>, out: &mut Vec<Echoed>) {
        let end = range.end.min(self.appearances());
        let mut next = range.start;
        while next < end {
            let number = self.phase_of(next);
            let phase = self.phase(number);
            let repeats = match number.checked_sub(1) {
                Some(window) if phase.repeats > 0 => self.repeats(epoch, window),
                _ => Vec::new(),
            };
            let until = end.min(phase.start + phase.len());
            for slot in next - phase.start..until - phase.start {
                let fresh = phase.fresh_before(slot);
                out.push(if phase.fresh_before(slot + 1) > fresh {
                    Echoed {
                        position: phase.fresh.start + fresh,
                        copy: 0,
                    }
                } else {
                    repeats[(slot - fresh) as usize]
                });
            }
            next = until;
        }
    }

    /// Fresh examples among the appearances before the `place`-th of an epoch.
    pub fn fresh_before(&self, place: u64) -> u64 {
        if place >= self.appearances() {
            return self.examples;
        }
        let phase = self.phase(self.phase_of(place));
        phase.fresh.start + phase.fresh_before(place - phase.start)
    }

    /// The first place in the epoch's order that is needed at the `place`-th appearance or later: whoever
    /// holds examples may drop those before it.
    pub fn first_needed(&self, place: u64) -> u64 {
        if place >= self.appearances() {
            return self.examples;
        }
        let number = self.phase_of(place);
        match number.checked_sub(1) {
            Some(window) => self.window(window).start,
            None => 0,
        }
    }

    pub(crate) fn window(&self, number: u64) -> Range<u64> {
        let window = u64::from(self.echo.window);
        let start = number.saturating_mul(window).min(self.examples);
        start..start.saturating_add(window).min(self.examples)
    }

    /// Repeats of the examples before a place.
    fn repeats_before(&self, position: u64) -> u64 {
        self.echo.times(position) - position
    }

    pub(crate) fn phase(&self, number: u64) -> Phase {
        let fresh = self.window(number);
        let repeated = match number.checked_sub(1) {
            Some(window) => self.window(window),
            None => 0..0,
        };
        let before = self.repeats_before(repeated.start);
        Phase {
            start: fresh.start + before,
            repeats: self.repeats_before(repeated.end) - before,
            fresh,
        }
    }

    /// The phase that a place of the epoch falls into.
    pub(crate) fn phase_of(&self, place: u64) -> u64 {
        let phases = self.examples.div_ceil(u64::from(self.echo.window)) + 1;
        let (mut low, mut high) = (0, phases);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.phase(middle).start <= place {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Which examples appear at some places of an epoch, without the order of those that all do.
    pub(crate) fn stretch(&self, places: &Range<u64>) -> Stretch {
        let end = places.end.min(self.appearances());
        let start = places.start.min(end);
        if self.echo.is_none() || start == end {
            return Stretch {
                fresh: start..end,
                whole: start..start,
                parts: [const { None }; 2],
            };
        }
        let (first, last) = (self.phase_of(start), self.phase_of(end - 1));
        let phases = [self.phase(first), self.phase(last)];
        let slots = [start - phases[0].start, end - phases[1].start];
        let fresh = [0, 1].map(|edge| phases[edge].fresh_before(slots[edge]));
        let repeats = [slots[0] - fresh[0], slots[1] - fresh[1]];
        let part = |phase: u64, repeats: Range<u64>| Some((phase.checked_sub(1)?, repeats));
        Stretch {
            fresh: phases[0].fresh.start + fresh[0]..phases[1].fresh.start + fresh[1],
            // Each phase repeats the window before its own.
            whole: self.window(first).start..self.window(last.max(first + 1) - 1).start,
            parts: if first == last {
                [part(first, repeats[0]..repeats[1]), None]
            } else {
                [
                    part(first, repeats[0]..phases[0].repeats),
                    part(last, 0..repeats[1]),
                ]
            },
        }
    }

    /// The repeats of a window in their order.
    pub(crate) fn repeats(&self, epoch: u64, window: u64) -> Vec<Echoed> {
        let mut rng = self.rng(epoch, window);
        let mut repeats = Vec::new();
        let mut positions = Vec::new();
        for (copy, side) in self.sides(window) {
            let first = repeats.len();
            positions.clear();
            self.add_repeated(copy, side, &mut positions);
            let of_copy = positions.iter().map(|&position| Echoed { position, copy });
            repeats.extend(of_copy);
            rng.shuffle(&mut repeats[first..]);
        }
        repeats
    }

    /// The examples repeated of a window, so that one can tell which of the repeats come before `cut` and which
    /// after, at every place for `None`. What lies between two sides of the window needs no shuffle.
    pub(crate) fn repeats_around(
        &self,
        epoch: u64,
        window: u64,
        cut: Option<u64>,
        out: &mut Vec<u64>,
    ) {
        out.clear();
        let mut starts = Vec::new();
        for (copy, side) in self.sides(window) {
            starts.push(out.len());
            self.add_repeated(copy, side, out);
        }
        starts.push(out.len());
        let cut = cut.map_or(usize::MAX, |cut| cut as usize);
        if starts.contains(&cut) {
            return;
        }
        let mut rng = self.rng(epoch, window);
        let sides = starts.windows(2).take_while(|side| side[0] < cut);
        sides.for_each(|side| rng.shuffle(&mut out[side[0]..side[1]]));
    }

    fn rng(&self, epoch: u64, window: u64) -> KeyedRng {
        KeyedRng::new(key(self.seed, epoch, (self.stage)(window)))
    }

    /// Appends those of neighbouring positions whose examples have a copy of this number.
    fn add_repeated(&self, copy: u32, positions: Range<u64>, out: &mut Vec<u64>) {
        if u64::from(copy) * 1000 + 1000 <= self.echo.thousandths {
            out.extend(positions);
        } else {
            out.extend(positions.filter(|&position| self.times_of(position) > copy));
        }
    }

    /// The first and the second half of a window for each repeat, in order.
    fn sides(&self, window: u64) -> impl Iterator<Item = (u32, Range<u64>)> + use<> {
        let places = self.window(window);
        let half = places.start + (places.end - places.start) / 2;
        let times = self.echo.times(places.end) - self.echo.times(places.start);
        // Some come once more than the others, or none does.
        let most = times.div_ceil((places.end - places.start).max(1)) as u32;
        let of_copy = move |copy| [(copy, places.start..half), (copy, half..places.end)];
        (1..most).flat_map(of_copy)
    }
}

/// The examples that appear at some places of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Places in the epoch's order of those that are fresh.
    pub(crate) fresh: Range<u64>,
    /// Places of those all of whose repeats are here: whole windows.
    pub(crate) whole: Range<u64>,
    /// Windows with some of their repeats.
    pub(crate) parts: [Option<(u64, Range<u64>)>; 2],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(plan: &EchoPlan, epoch: u64) -> Vec<Echoed> {
        let mut all = Vec::new();
        plan.fill(epoch, 0..u64::MAX, &mut all);
        all
    }

    fn plan(examples: u64, echo: &str) -> EchoPlan {
        EchoPlan::new(examples, echo.parse().unwrap(), 5).unwrap()
    }

    #[test]
    fn every_example_comes_out_as_often_as_asked() {
        for examples in (0..70).chain([997, 5000]) {
            for echo in [
                "1",
                "1:7",
                "1.5:8",
                "2:1",
                "2:16",
                "2.333:10",
                "5:64",
                "1.001:100",
            ] {
                let plan = plan(examples, echo);
                let all = all(&plan, 3);
                assert_eq!(all.len() as u64, plan.appearances(), "{examples} {echo}");
                let mut copies = vec![0; examples as usize];
                let mut fresh = 0;
                for (place, echoed) in all.iter().enumerate() {
                    let place = place as u64;
                    assert_eq!(plan.fresh_before(place), fresh, "{examples} {echo} {place}");
                    assert!(plan.first_needed(place) <= echoed.position);
                    let seen = &mut copies[echoed.position as usize];
                    assert_eq!(echoed.copy, *seen, "copies come in order");
                    *seen += 1;
                    if echoed.copy == 0 {
                        assert_eq!(echoed.position, fresh, "fresh ones keep their order");
                        fresh += 1;
                    }
                    let held = fresh - plan.first_needed(place).min(fresh);
                    assert!(held <= 2 * u64::from(plan.echo().window()));
                }
                let least = plan.echo().factor().floor() as u32;
                assert!(
                    copies
                        .iter()
                        .all(|&times| times == least || times == least + 1)
                );
            }
        }
    }

    #[test]
    fn it_can_be_entered_anywhere() {
        for echo in ["1.5:8", "3:16", "2.333:10"] {
            let plan = plan(203, echo);
            let whole = all(&plan, 1);
            for from in 0..whole.len() {
                let mut rest = Vec::new();
                plan.fill(1, from as u64..from as u64 + 9, &mut rest);
                assert_eq!(rest, whole[from..(from + 9).min(whole.len())]);
            }
        }
    }

    #[test]
    fn appearances_of_an_example_lie_half_a_window_apart() {
        let (examples, window) = (1000, 50);
        for factor in 2..6 {
            let plan = plan(examples, &format!("{factor}:{window}"));
            let mut last = vec![None; examples as usize];
            for (place, echoed) in all(&plan, 0).into_iter().enumerate() {
                let before = last[echoed.position as usize].replace(place);
                let gap = before.map_or(usize::MAX, |before| place - before);
                assert!(gap >= window / 2, "{factor}: {gap} at {place}");
            }
        }
    }

    #[test]
    fn fresh_examples_come_at_an_even_rate() {
        let plan = plan(10_000, "4:100");
        let all = all(&plan, 2);
        // Between the first window, which nothing is there to repeat in, and the last repeats.
        for chunk in all[100..39_700].chunks(40) {
            let fresh = chunk.iter().filter(|echoed| echoed.copy == 0).count();
            assert!((9..=11).contains(&fresh), "{fresh}");
        }
    }

    #[test]
    fn repeats_are_shuffled_anew() {
        let plan = plan(1000, "3:1000");
        let order = |epoch, copy| {
            let all = all(&plan, epoch).into_iter();
            let of_copy = all.filter(|echoed| echoed.copy == copy);
            of_copy.map(|echoed| echoed.position).collect::<Vec<_>>()
        };
        let orders = [order(0, 1), order(0, 2), order(1, 1), order(1, 2)];
        for (i, a) in orders.iter().enumerate() {
            assert!(!a.is_sorted());
            assert!(orders[..i].iter().all(|b| a != b));
        }
    }

    #[test]
    fn text_goes_there_and_back() {
        for text in ["1", "2", "1.5", "2.125", "5:64", "1000:1"] {
            let echo: Echo = text.parse().unwrap();
            assert_eq!(echo.to_string(), text);
        }
        for text in [
            "",
            "0",
            "0.999",
            "1001",
            "-2",
            "2.0001",
            "x",
            "2:",
            "2:0",
            "2:x",
            "1.",
            ".5",
            "1e2",
            "+2",
            "2:99999999999",
        ] {
            let refused = text.parse::<Echo>().unwrap_err().to_string();
            assert!(refused.contains("echo"), "{text}: {refused}");
        }
    }

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let all = all(&plan(21, "2.25:8"), 1);
        let positions: Vec<u64> = all.iter().map(|echoed| echoed.position).collect();
        let golden = [
            0, 1, 2, 3, 4, 5, 6, 7, 1, 3, 8, 2, 9, 0, 10, 5, 11, 4, 6, 12, 7, 13, 3, 14, 7, 15, 11,
            10, 16, 8, 9, 17, 14, 15, 18, 12, 13, 19, 11, 15, 20, 16, 17, 19, 18, 20, 19,
        ];
        assert_eq!(positions, golden);
    }
}
