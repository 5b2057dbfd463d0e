//! The classes of examples, of which an example may have several or none, and their losses.

use std::ops::Range;

/// The classes of some examples, each at most once in an example.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// Example by example.
    pub classes: &'a [u64],
    /// How many each example has; none if each has one.
    pub counts: Option<&'a [usize]>,
}

/// One class each.
impl<'a, T: AsRef<[u64]> + ?Sized> From<&'a T> for Labels<'a> {
    fn from(classes: &'a T) -> Labels<'a> {
        Labels {
            classes: classes.as_ref(),
            counts: None,
        }
    }
}

impl<'a> Labels<'a> {
    /// How many examples there are.
    pub fn examples(self) -> usize {
        self.counts.map_or(self.classes.len(), <[usize]>::len)
    }

    /// Of each example, which of the classes are its own.
    pub(crate) fn of_examples(self) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut next = 0;
        (0..self.examples()).map(move |example| {
            let own = next..next + self.counts.map_or(1, |counts| counts[example]);
            next = own.end;
            own
        })
    }

    /// The example of each class.
    pub(crate) fn owners(self) -> Vec<usize> {
        let each = self.of_examples().enumerate();
        each.flat_map(|(example, own)| own.map(move |_| example))
            .collect()
    }

    /// At most `size` examples at a time, and which of the classes are theirs.
    pub(crate) fn parts(self, size: usize) -> impl Iterator<Item = (Range<usize>, Labels<'a>)> {
        let mut next = 0;
        let examples = self.examples();
        (0..examples).step_by(size).map(move |from| {
            let until = (from + size).min(examples);
            let counts = self.counts.map(|counts| &counts[from..until]);
            let count = counts.map_or(until - from, |counts| counts.iter().sum());
            let own = next..next + count;
            next = own.end;
            let classes = &self.classes[own.clone()];
            (own, Labels { classes, counts })
        })
    }
}

/// A class of an example: its logit with margin and without, and the factor on its loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) with_margin: f64,
    pub(crate) plain: f64,
    pub(crate) factor: f32,
}

/// The loss of one example, Σ factor · loss over its classes, and the derivatives of that over the sum of the factors.
///
/// The loss of a class is log(1 + Σ e^z / e^m): m is its logit with margin, and the sum goes over all other classes, those
/// that are the example's own included.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfExample {
    pub(crate) loss: f64,
    /// The sum of the factors.
    pub(crate) factor: f32,
    /// The derivative by the logit of a class that is not its own is e^(logit − this).
    pub(crate) shift: f64,
    /// Of each own class the derivatives by its logit with margin and, where it is one of the others, without.
    pub(crate) by_own: Vec<(f64, f64)>,
}

impl OfExample {
    /// `rest` is Σ e^(logit − shift) over the classes that are not its own. Takes as many exponentials as there are own
    /// classes; with margins their square.
    pub(crate) fn new(rest: f64, shift: f64, own: &[Own]) -> OfExample {
        let plain = || own.iter().map(|own| own.plain);
        let most = plain().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        let most = most.map_or(0, |(most, _)| most);
        // Σ e^(logit − the first number) over the classes other than this one.
        let without = |this: usize| {
            let left = || plain().enumerate().filter(|(other, _)| *other != this);
            let top = left().fold(shift, |top, (_, z)| top.max(z));
            let sum: f64 = left().map(|(_, z)| (z - top).exp()).sum();
            (top, rest * (shift - top).exp() + sum)
        };
        let (top, all) = without(own.len());
        let factor: f32 = own.iter().map(|own| own.factor).sum();
        let mut loss = 0.0;
        // Of each class its part of the factors, the logarithm of its sum, and the share of the others in that.
        let mut each: Vec<(f64, f64, f64)> = Vec::with_capacity(own.len());
        for (i, own_class) in own.iter().enumerate() {
            let Own { with_margin, .. } = *own_class;
            let (top, others) = if i == most {
                without(i)
            } else {
                // At least 1, of the largest.
                (top, all - (own_class.plain - top).exp())
            };
            // Infinite if the class is far above the others, or the only one.
            let e = (with_margin - top).exp();
            let of_class = if with_margin > top {
                (others / e).ln_1p()
            } else {
                top - with_margin + (others + e).ln()
            };
            loss += f64::from(own_class.factor) * of_class;
            let part = match factor {
                0.0 => 1.0 / own.len() as f64,
                _ => f64::from(own_class.factor) / f64::from(factor),
            };
            let wrong = if e.is_finite() {
                others / (others + e)
            } else {
                0.0
            };
            each.push((part, with_margin + of_class, wrong));
        }
        let has_margin = own.iter().any(|own| own.with_margin != own.plain);
        let by_own = own.iter().zip(&each).enumerate();
        let by_own = by_own.map(|(i, (own, &(part, log_sum, wrong)))| {
            let among_others = if has_margin {
                let others = each.iter().enumerate().filter(|(other, _)| *other != i);
                let terms =
                    others.map(|(_, (part, log_sum, _))| part * (own.plain - log_sum).exp());
                terms.sum()
            } else {
                (1.0 - part) * (own.plain - log_sum).exp()
            };
            (-part * wrong, among_others)
        });
        let by_own = by_own.collect();
        let least = each
            .iter()
            .fold(f64::INFINITY, |least, one| least.min(one.1));
        let shares = each
            .iter()
            .map(|(part, log_sum, _)| part * (least - log_sum).exp());
        let shift = match each.len() {
            0 => shift,
            _ => least - shares.sum::<f64>().ln(),
        };
        OfExample {
            loss,
            factor,
            shift,
            by_own,
        }
    }
}
