//! Echo: examples are used several times each time they are read and decoded, so a consumer does not wait for
//! a slow source (data echoing: Choi et al., arXiv 1907.05550).
//!
//! With t_up seconds for a fresh example and t_down for each one used, R = t_up/t_down, an echo factor e
//! takes max(t_up, e·t_down) a fresh example: it costs nothing while e ≤ R.
//!
//! The order of an epoch is cut into *windows* of consecutive examples. Between the fresh examples of one
//! window, in their order, the repeats of the window before are spread evenly, in a new random order for each
//! repeat; the repeats of the last window end the epoch. So fresh examples are read at an even
//! rate, and at most two windows are held. A window is at most a tenth of an epoch unless it was given: the repeats of
//! examples in one of a whole epoch would all come at its end. (The published buffer, which draws at random, reads in
//! bursts, may emit one example twice in a row, and can only be replayed from its start.)
//!
//! **Spacing.** The first half of a window is repeated before the second, so at least half a window of other
//! examples separates two appearances of an example if the factor is a whole number. If only part of a window has one
//! more repeat, these come as close as that part is long, and so do repeats in the last window.
//!
//! **Fractions.** With e = a/b the examples before position i appear ⌊i·a/b⌋ times in total: some ⌊e⌋ times, some
//! once more, spread evenly.
//!
//! Every position of the sequence follows from (examples, echo, seed, epoch): entering it anywhere costs one window,
//! and a checkpoint stores only the position.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::PlanError;
use pelton_key::{KeyedRng, Stage, key, mix};

/// Default examples of a window, or batches, which are large; at most this part of an epoch: the repeats of the first
/// window come after it, and those of the last end the epoch.
const DEFAULT_WINDOW: u64 = 1024;
const DEFAULT_BATCH_WINDOW: u64 = 4;
const MOST_OF_EPOCH: u64 = 10;
/// Largest factor, and its most decimal digits.
const MOST_TIMES: u64 = 1000;
const MOST_DECIMALS: usize = 3;

/// How often examples are repeated, and how many are held for that.
///
/// Written as text: `2`, `1.5`, `2:4096` with the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Echo {
    /// The factor in thousandths.
    thousandths: u64,
    /// `None` if it follows from the length of an epoch.
    window: Option<u32>,
}

/// One appearance of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Echoed {
    /// Its position in the epoch's order.
    pub(crate) position: u64,
    /// How often it came out before in this epoch: 0 for a fresh one.
    pub(crate) copy: u32,
}

impl Echo {
    /// Every example once.
    pub const NONE: Echo = Echo {
        thousandths: MOST_TIMES,
        window: None,
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
            window: Some(window),
        })
    }

    /// Appearances for each example, on average.
    pub fn factor(self) -> f64 {
        self.thousandths as f64 / 1000.0
    }

    /// Examples of a window, for an epoch of `examples`; two windows are held. By default 1024, and at most a tenth
    /// of an epoch.
    pub fn window(self, examples: u64) -> u64 {
        self.window_or(DEFAULT_WINDOW, examples)
    }

    /// Batches of a window, if batches are echoed. By default 4, and at most a tenth of an epoch.
    pub fn batch_window(self, batches: u64) -> u64 {
        self.window_or(DEFAULT_BATCH_WINDOW, batches)
    }

    fn window_or(self, default: u64, all: u64) -> u64 {
        let default = default.min(all / MOST_OF_EPOCH).max(1);
        self.window.map_or(default, u64::from)
    }

    /// 0 for no echo.
    pub(crate) fn fingerprint(self) -> u64 {
        if self.is_none() {
            return 0;
        }
        let window = self.window.map_or(0, u64::from);
        mix(self.factor().to_bits() ^ mix(window))
    }

    /// Whether every example appears once.
    pub fn is_none(self) -> bool {
        self.thousandths == 1000
    }

    /// The factor, if it is a whole number.
    pub(crate) fn whole(self) -> Option<u64> {
        self.thousandths
            .is_multiple_of(1000)
            .then_some(self.thousandths / 1000)
    }

    /// How often the first `examples` appear, in total.
    fn times(self, examples: u64) -> u64 {
        match examples.checked_mul(self.thousandths) {
            Some(product) => product / 1000,
            None => (u128::from(examples) * u128::from(self.thousandths) / 1000) as u64,
        }
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.factor())?;
        if let Some(window) = self.window {
            write!(f, ":{window}")?;
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
        let given = match window {
            Some(window) if digits(window) => window.parse().map_err(|_| bad())?,
            Some(_) => return Err(bad()),
            None => 1,
        };
        let echo = Echo::new(factor, given).map_err(|_| bad())?;
        Ok(Echo {
            window: echo.window.filter(|_| window.is_some()),
            ..echo
        })
    }
}

/// The appearances of an epoch's examples, in order.
#[derive(Debug, Clone)]
pub(crate) struct EchoPlan {
    examples: u64,
    echo: Echo,
    window: u64,
    seed: u64,
    /// The stage of the order of a window's repeats.
    stage: fn(u64) -> Stage,
}

/// The fresh examples of one window, mixed with the repeats of the one before.
pub(crate) struct Phase {
    /// Appearances before it.
    pub(crate) start: u64,
    /// Positions of the fresh examples.
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
    pub(crate) fn new(examples: u64, echo: Echo, seed: u64) -> Result<EchoPlan, PlanError> {
        let appearances = u128::from(examples) * u128::from(echo.thousandths) / 1000;
        if appearances > 1 << 63 {
            return Err(PlanError::TooManyRecords { records: examples });
        }
        Ok(EchoPlan {
            examples,
            window: echo.window(examples),
            echo,
            seed,
            stage: Stage::Echo,
        })
    }

    /// Echo of whole batches, for epochs of `batches` batches: windows consist of batches, and their repeats
    /// have a separate order.
    pub(crate) fn of_batches(batches: u64, echo: Echo, seed: u64) -> EchoPlan {
        EchoPlan {
            examples: batches,
            window: echo.batch_window(batches),
            echo,
            seed,
            stage: Stage::BatchEcho,
        }
    }

    /// How often the example at a position of the epoch's order appears.
    pub(crate) fn times_of(&self, position: u64) -> u32 {
        (self.echo.times(position + 1) - self.echo.times(position)) as u32
    }

    /// The echo.
    pub(crate) fn echo(&self) -> Echo {
        self.echo
    }

    /// Appearances of an epoch.
    pub(crate) fn appearances(&self) -> u64 {
        self.echo.times(self.examples)
    }

    /// The first position in the epoch's order that is needed at the `place`-th appearance or later: a holder of
    /// examples may drop those before it.
    pub(crate) fn first_needed(&self, place: u64) -> u64 {
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
        let start = number.saturating_mul(self.window).min(self.examples);
        start..start.saturating_add(self.window).min(self.examples)
    }

    /// Repeats of the examples before a position.
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

    /// The phase that contains the `place`-th appearance of the epoch.
    pub(crate) fn phase_of(&self, place: u64) -> u64 {
        let phases = self.examples.div_ceil(self.window) + 1;
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

    fn rng(&self, epoch: u64, window: u64) -> KeyedRng {
        KeyedRng::new(key(self.seed, epoch, (self.stage)(window)))
    }

    /// Appends the positions with a repeat `copy`.
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

/// The appearances of an epoch from a position on, with the contents of the current window and the one before:
/// ids of examples, or batches.
#[derive(Debug)]
pub(crate) struct Echoes<T> {
    phase: u64,
    fresh: Vec<T>,
    before: Vec<T>,
    repeats: Vec<Echoed>,
    /// Appearances of the phase that came out, the fresh ones among them, and what an even rate is behind by.
    slot: u64,
    fresh_done: u64,
    behind: u64,
}

impl<T> Echoes<T> {
    /// The first example needed to enter an epoch at an appearance.
    pub(crate) fn first_made(echo: &EchoPlan, place: u64) -> u64 {
        let phase = echo.phase_of(place);
        echo.window(phase.saturating_sub(1)).start
    }

    /// From an appearance on; `make` makes the examples at neighbouring positions, from the [first](Self::first_made)
    /// on, each range after the one before.
    pub(crate) fn at(
        echo: &EchoPlan,
        epoch: u64,
        place: u64,
        make: &mut dyn FnMut(Range<u64>, &mut Vec<T>),
    ) -> Echoes<T> {
        let number = echo.phase_of(place);
        let mut echoes = Echoes {
            phase: number,
            fresh: Vec::new(),
            before: Vec::new(),
            repeats: Vec::new(),
            slot: 0,
            fresh_done: 0,
            behind: 0,
        };
        if let Some(before) = number.checked_sub(1) {
            make(echo.window(before), &mut echoes.fresh);
        }
        echoes.enter(echo, epoch, make);
        let phase = echo.phase(number);
        echoes.slot = place - phase.start;
        echoes.fresh_done = phase.fresh_before(echoes.slot);
        let fresh = u128::from(echoes.slot) * echoes.fresh.len() as u128;
        echoes.behind = (fresh % u128::from(phase.len().max(1))) as u64;
        echoes
    }

    /// Begins the phase; its window follows the one that was fresh last.
    fn enter(
        &mut self,
        echo: &EchoPlan,
        epoch: u64,
        make: &mut dyn FnMut(Range<u64>, &mut Vec<T>),
    ) {
        std::mem::swap(&mut self.fresh, &mut self.before);
        self.fresh.clear();
        make(echo.window(self.phase), &mut self.fresh);
        self.repeats = match self.phase.checked_sub(1) {
            Some(before) => echo.repeats(epoch, before),
            None => Vec::new(),
        };
        (self.slot, self.fresh_done, self.behind) = (0, 0, 0);
    }

    /// The next appearance. Asserts that the epoch has one.
    pub(crate) fn next(
        &mut self,
        echo: &EchoPlan,
        epoch: u64,
        make: &mut dyn FnMut(Range<u64>, &mut Vec<T>),
    ) -> (Echoed, &T) {
        let mut len = (self.fresh.len() + self.repeats.len()) as u64;
        while self.slot == len {
            self.phase += 1;
            self.enter(echo, epoch, make);
            len = (self.fresh.len() + self.repeats.len()) as u64;
            assert!(len > 0, "the epoch has no more appearances");
        }
        self.slot += 1;
        self.behind += self.fresh.len() as u64;
        if self.behind >= len {
            self.behind -= len;
            let place = self.fresh_done;
            self.fresh_done += 1;
            let position = echo.window(self.phase).start + place;
            return (Echoed { position, copy: 0 }, &self.fresh[place as usize]);
        }
        let echoed = self.repeats[(self.slot - self.fresh_done - 1) as usize];
        let place = echoed.position - echo.window(self.phase - 1).start;
        (echoed, &self.before[place as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The appearances of an epoch from one on; each example is its own position.
    fn from(plan: &EchoPlan, epoch: u64, place: u64) -> Vec<Echoed> {
        let mut make = |positions: Range<u64>, into: &mut Vec<u64>| into.extend(positions);
        let mut echoes = Echoes::at(plan, epoch, place, &mut make);
        let mut next = || {
            let (echoed, made) = echoes.next(plan, epoch, &mut make);
            assert_eq!(*made, echoed.position);
            echoed
        };
        (place..plan.appearances()).map(|_| next()).collect()
    }

    fn all(plan: &EchoPlan, epoch: u64) -> Vec<Echoed> {
        from(plan, epoch, 0)
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
                    assert!(plan.first_needed(place) <= echoed.position);
                    let seen = &mut copies[echoed.position as usize];
                    assert_eq!(echoed.copy, *seen, "copies come in order");
                    *seen += 1;
                    if echoed.copy == 0 {
                        assert_eq!(echoed.position, fresh, "fresh ones keep their order");
                        fresh += 1;
                    }
                    let held = fresh - plan.first_needed(place).min(fresh);
                    assert!(held <= 2 * plan.echo().window(examples));
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
            for from_place in 0..whole.len() {
                assert_eq!(from(&plan, 1, from_place as u64), whole[from_place..]);
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
        // Between the first window, which has nothing to repeat, and the last repeats.
        for chunk in all[100..39_700].chunks(40) {
            let fresh = chunk.iter().filter(|echoed| echoed.copy == 0).count();
            assert!((9..=11).contains(&fresh), "{fresh}");
        }
    }

    /// Of an epoch below a default window of 1024, everything was repeated at the end.
    #[test]
    fn repeats_come_early_in_a_short_epoch() {
        for examples in [1_u64, 9, 10, 99, 500, 1000, 20_000, 1 << 40] {
            let window = plan(examples, "3").window;
            assert_eq!(window, (examples / 10).clamp(1, 1024));
            assert_eq!(plan(examples, "3:7").window, 7);
        }
        let all = all(&plan(500, "3"), 0);
        let repeats = |part: &[Echoed]| part.iter().filter(|echoed| echoed.copy > 0).count();
        for tenth in all.chunks(150).skip(1) {
            let repeats = repeats(tenth);
            assert!((80..=150).contains(&repeats), "{repeats} of 150");
        }
        assert_eq!(repeats(&all), 1000);
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
