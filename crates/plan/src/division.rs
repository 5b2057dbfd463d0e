//! Division by a number that stays the same: a multiplication and a shift.

/// Divides numbers up to a limit by one number.
///
/// With m = ⌈2^64/d⌉ = (2^64 + e)/d, 0 ≤ e < d, n·m/2^64 = n/d + n·e/(d·2^64), whose whole part is that of n/d while
/// n·e < 2^64 (Granlund and Montgomery, PLDI 1994).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Divider {
    divisor: u64,
    /// 0 where the product could be too large.
    multiplier: u64,
}

impl Divider {
    /// Divides `0..=most` by `divisor`, which is not 0.
    pub(crate) fn new(divisor: u64, most: u64) -> Divider {
        let fits = divisor > 1 && most.checked_mul(divisor).is_some();
        Divider {
            divisor,
            multiplier: if fits { u64::MAX / divisor + 1 } else { 0 },
        }
    }

    #[inline]
    pub(crate) fn divide(self, number: u64) -> u64 {
        match self.multiplier {
            0 => number / self.divisor,
            multiplier => ((u128::from(number) * u128::from(multiplier)) >> 64) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact_up_to_the_limit() {
        let divisors = (1..300).chain([1 << 20, (1 << 31) - 1, 1 << 40, u64::MAX]);
        for divisor in divisors {
            for most in [0, 1000, 1 << 33, u64::MAX / divisor, u64::MAX] {
                let divider = Divider::new(divisor, most);
                let near =
                    |number: u64| [number.saturating_sub(1), number, number.saturating_add(1)];
                let last = most / divisor * divisor;
                let numbers = near(0).into_iter().chain(near(divisor)).chain(near(last));
                for number in numbers.chain([most / 3, most]).filter(|&n| n <= most) {
                    assert_eq!(
                        divider.divide(number),
                        number / divisor,
                        "{number} / {divisor}"
                    );
                }
            }
        }
    }
}
