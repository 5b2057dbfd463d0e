//! Draws of classes in turn: one random order of all classes is used up before the next begins.
//!
//! Each class is drawn once a round, so that all rows are pushed equally often; with independent draws this holds only
//! on average. No order is stored: in round r a class has the name `mix(key_r ^ class)`, cut to 53 bits, and a draw
//! takes the classes with names in the window after the last draw's. Each rank finds its own of them.

use std::ops::Range;

use pelton_key::mix;

/// Names of a round.
const NAMES: u64 = 1 << 53;

/// The state of the draws: a round, and the first name of the next window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    seed: u64,
    round: u64,
    at: u64,
}

/// A window of names, which may reach into the next round.
pub(crate) struct Window {
    /// Keys of a round and of the next one, with the names that are taken.
    rounds: [(u64, Range<u64>); 2],
}

impl Draws {
    /// The first round of a seed.
    pub fn new(seed: u64) -> Draws {
        Draws {
            seed,
            round: 0,
            at: 0,
        }
    }

    /// The window that holds each class with this chance; the next one begins at its end.
    pub(crate) fn next(&mut self, chance: f64) -> Window {
        let end = self.at + (chance * NAMES as f64) as u64;
        let key = |round: u64| mix(mix(self.seed ^ 0x6472_6177) ^ round);
        let window = Window {
            rounds: [
                (key(self.round), self.at..end),
                (key(self.round + 1), 0..end.saturating_sub(NAMES)),
            ],
        };
        (self.round, self.at) = (self.round + end / NAMES, end % NAMES);
        window
    }

    /// Round and name.
    pub(crate) fn numbers(self) -> Vec<f32> {
        in_parts(&[self.round, self.at])
    }

    /// From those; `None` if the numbers are invalid.
    pub(crate) fn at_numbers(self, numbers: &[f32]) -> Option<Draws> {
        let [round, at] = of_parts(numbers)?;
        (at < NAMES).then_some(Draws { round, at, ..self })
    }
}

/// Whole numbers in parts that are exact in single precision.
pub(crate) fn in_parts(words: &[u64]) -> Vec<f32> {
    let parts = words
        .iter()
        .flat_map(|word| (0..4).map(move |part| word >> (16 * part) & 0xffff));
    parts.map(|part| part as f32).collect()
}

/// The numbers of such parts; `None` if they are others.
pub(crate) fn of_parts<const N: usize>(parts: &[f32]) -> Option<[u64; N]> {
    let is_part = |x: &f32| x.fract() == 0.0 && (0.0..65_536.0).contains(x);
    let word = |parts: &[f32]| parts.iter().rev().fold(0, |word, &x| word << 16 | x as u64);
    let words = parts.chunks(4).map(word).collect::<Vec<u64>>();
    let is_whole = parts.len() == 4 * N && parts.iter().all(is_part);
    words.try_into().ok().filter(|_| is_whole)
}

impl Window {
    pub(crate) fn holds(&self, class: u64) -> bool {
        let mut rounds = self.rounds.iter();
        rounds.any(|(key, names)| !names.is_empty() && names.contains(&(mix(key ^ class) >> 11)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_drawn_once_a_round() {
        let classes = 5000;
        // With a chance that divides a round into equal windows, and with one that has windows across its end.
        for (chance, draws) in [(1.0 / 16.0, 16 * 3), (0.07, 100)] {
            let mut at = Draws::new(7);
            let mut drawn = vec![0u32; classes];
            let mut sizes = Vec::new();
            for _ in 0..draws {
                let window = at.next(chance);
                let held = (0..classes).filter(|&class| window.holds(class as u64));
                sizes.push(held.map(|class| drawn[class] += 1).count() as f64);
            }
            let rounds = (chance * f64::from(draws)) as u32;
            // A class in both rounds of one window counts once.
            let least = drawn.iter().min().unwrap();
            let most = drawn.iter().max().unwrap();
            assert!(
                (rounds - 1..=rounds).contains(least),
                "{least} in {rounds} rounds"
            );
            assert!(*most <= rounds + 1, "{most} in {rounds} rounds");
            if at.at == 0 {
                assert_eq!((*least, *most), (rounds, rounds));
            }
            let mean = chance * classes as f64;
            // Five deviations of the binomial distribution.
            let far = 5.0 * mean.sqrt();
            assert!(
                sizes.iter().all(|size| (size - mean).abs() < far),
                "{sizes:?}"
            );
        }
    }

    #[test]
    fn rounds_have_orders_of_their_own() {
        let first = |round: u64| -> Vec<u64> {
            let mut draws = Draws {
                round,
                ..Draws::new(7)
            };
            let window = draws.next(0.1);
            (0..1000).filter(|&class| window.holds(class)).collect()
        };
        let (a, b) = (first(0), first(1));
        let both = a.iter().filter(|class| b.contains(class)).count();
        assert!(both < 30, "{both} of about 10");
    }

    #[test]
    fn draws_are_numbers_and_back() {
        let mut draws = Draws::new(9);
        for _ in 0..1000 {
            draws.next(0.377);
        }
        assert!(draws.round > 300 && draws.at > 0);
        let saved = draws.numbers();
        assert_eq!(Draws::new(9).at_numbers(&saved), Some(draws));
        for wrong in [&saved[1..], &[0.5; 8], &[65_535.0; 8], &[f32::NAN; 8]] {
            assert_eq!(draws.at_numbers(wrong), None);
        }
    }
}
