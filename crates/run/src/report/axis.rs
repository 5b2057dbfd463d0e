//! Axes: the range of values, the ticks, and the format of numbers.

/// One axis of a plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// Least and greatest value shown; their logarithms if `log`.
    low: f64,
    high: f64,
    log: bool,
    /// Values at which a line is drawn, with their text.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis over finite values with about `count` ticks at multiples of 1, 2 or 5 times a power of ten. It begins at
    /// 0 if that wastes less than half of it.
    pub(super) fn linear(values: impl Iterator<Item = f64>, count: u32) -> Axis {
        let (mut low, mut high) = extent(values).unwrap_or((0.0, 1.0));
        if low > 0.0 && low < 0.5 * high {
            low = 0.0;
        }
        if high - low <= 1e-12 * high.abs().max(low.abs()) {
            let margin = if low == 0.0 { 1.0 } else { 0.1 * low.abs() };
            (low, high) = (low - margin, high + margin);
        }
        let step = nice_step((high - low) / f64::from(count));
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let greatest = (first * step).abs().max((last * step).abs());
        let ticks = (0..=(last - first) as u32)
            .map(|i| (first + f64::from(i)) * step)
            .map(|value| (value, stepped(value, step, greatest)))
            .collect();
        Axis {
            low: first * step,
            high: last * step,
            log: false,
            ticks,
        }
    }

    /// A linear axis that ends with the values, for the independent variable.
    pub(super) fn spanning(values: impl Iterator<Item = f64> + Clone, count: u32) -> Axis {
        let mut axis = Axis::linear(values.clone(), count);
        let Some((low, high)) = extent(values).filter(|(low, high)| low < high) else {
            return axis;
        };
        axis.high = high;
        if axis.low != 0.0 {
            axis.low = low;
        }
        let (low, high) = (axis.low, axis.high);
        axis.ticks.retain(|tick| (low..=high).contains(&tick.0));
        // Counts such as epochs have no halves.
        if high - low > 1.0 && high - low <= f64::from(count) {
            axis.ticks.retain(|tick| tick.0.fract() == 0.0);
        }
        axis
    }

    /// A logarithmic axis over positive values: ticks at powers of ten, and between them if those are few.
    pub(super) fn logarithmic(values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = extent(values).unwrap_or((0.1, 1.0));
        let (low, high) = (low.log10(), high.log10());
        let margin = (0.05 * (high - low)).max(0.05);
        let (low, high) = (low - margin, high + margin);
        let decades = high.floor() - low.ceil();
        let factors: &[f64] = match decades {
            d if d >= 3.0 => &[1.0],
            d if d >= 1.0 => &[1.0, 3.0],
            _ => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        };
        let every = ((decades / 7.0).ceil() as i32).max(1);
        let mut ticks = Vec::new();
        for exponent in low.floor() as i32..=high.ceil() as i32 {
            for factor in factors {
                let at = f64::from(exponent) + factor.log10();
                if exponent % every == 0 && (low..=high).contains(&at) {
                    ticks.push((10f64.powf(at), power(*factor, exponent)));
                }
            }
        }
        Axis {
            low,
            high,
            log: true,
            ticks,
        }
    }

    /// The position of a value between the ends of the axis, 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

fn nice_step(rough: f64) -> f64 {
    let scale = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * scale >= rough * 0.999)
        .unwrap_or(10.0);
    factor * scale
}

const SCALES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];

/// A tick's value with as many decimals as the ticks' step needs, in thousands or millions if the greatest tick is
/// large.
fn stepped(value: f64, step: f64, greatest: f64) -> String {
    if step < 1e-4 || greatest >= 1e15 {
        return number(value);
    }
    let (scale, suffix) = SCALES
        .into_iter()
        .find(|(scale, _)| greatest > 1e4 && greatest >= *scale && step >= scale / 10.0)
        .unwrap_or((1.0, ""));
    let places = (-(step / scale).log10().floor()).max(0.0) as usize;
    // Adding 0 turns −0 into 0.
    format!("{:.places$}{suffix}", value / scale + 0.0)
}

/// A value in three significant digits, for reading rather than computing.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_string();
    }
    if !(1e-3..1e15).contains(&size) {
        let text = format!("{value:.2e}");
        return match text.split_once('e') {
            Some((digits, exponent)) => format!("{digits}·10{}", superscript(exponent)),
            None => text,
        };
    }
    let (scale, suffix) = SCALES
        .into_iter()
        .find(|(scale, _)| size >= 1e4 && size >= *scale)
        .unwrap_or((1.0, ""));
    let scaled = value / scale;
    let places = (2.0 - scaled.abs().log10().floor()).clamp(0.0, 5.0) as usize;
    format!("{scaled:.places$}{suffix}")
}

/// `factor` times a power of ten.
fn power(factor: f64, exponent: i32) -> String {
    if (-2..=3).contains(&exponent) {
        return number_plain(factor * 10f64.powi(exponent));
    }
    let ten = format!("10{}", superscript(&exponent.to_string()));
    if factor == 1.0 {
        ten
    } else {
        format!("{factor}·{ten}")
    }
}

fn number_plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn superscript(digits: &str) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    digits
        .chars()
        .filter_map(|digit| match digit {
            '-' => Some('⁻'),
            _ => digit.to_digit(10).map(|digit| DIGITS[digit as usize]),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    fn check_linear(values: &[f64], expected: &[&str]) {
        assert_eq!(
            texts(&Axis::linear(values.iter().copied(), 5)),
            expected,
            "{values:?}"
        );
    }

    #[test]
    fn linear_ticks_are_round() {
        check_linear(&[3.0, 9.7], &["0", "2", "4", "6", "8", "10"]);
        check_linear(
            &[0.91, 0.93],
            &["0.910", "0.915", "0.920", "0.925", "0.930"],
        );
        check_linear(
            &[0.0, 1_900_000.0],
            &["0.0M", "0.5M", "1.0M", "1.5M", "2.0M"],
        );
        check_linear(
            &[4e3, 9.1e3],
            &["0", "2000", "4000", "6000", "8000", "10000"],
        );
        check_linear(&[9e3, 4.1e4], &["0k", "10k", "20k", "30k", "40k", "50k"]);
        check_linear(&[-1.0, 1.0], &["-1.0", "-0.5", "0.0", "0.5", "1.0"]);
        check_linear(&[1.0, 1.0], &["0.90", "0.95", "1.00", "1.05", "1.10"]);
        check_linear(&[], &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    fn check_log(values: &[f64], expected: &[&str]) {
        assert_eq!(
            texts(&Axis::logarithmic(values.iter().copied())),
            expected,
            "{values:?}"
        );
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten() {
        check_log(
            &[1e-6, 0.5],
            &["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "0.01", "0.1"],
        );
        check_log(
            &[0.2, 4.0],
            &["0.2", "0.3", "0.4", "0.5", "0.7", "1", "1.5", "2", "3", "4"],
        );
        check_log(
            &[1e-30, 1.0],
            &["10⁻³⁰", "10⁻²⁵", "10⁻²⁰", "10⁻¹⁵", "10⁻¹⁰", "10⁻⁵", "1"],
        );
    }

    #[test]
    fn places_run_from_0_to_1() {
        let axis = Axis::linear([0.0, 10.0].into_iter(), 5);
        assert_eq!(
            (axis.place(0.0), axis.place(5.0), axis.place(10.0)),
            (0.0, 0.5, 1.0)
        );
        let axis = Axis::logarithmic([1.0, 100.0].into_iter());
        assert!((axis.place(10.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.123456, "0.123"),
            (12.3456, "12.3"),
            (1234.5, "1234"),
            (123456.0, "123k"),
            (12_345_678.0, "12.3M"),
            (0.000123, "1.23·10⁻⁴"),
            (-2e-9, "-2.00·10⁻⁹"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
