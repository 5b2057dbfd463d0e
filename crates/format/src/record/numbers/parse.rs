//! Decimal numbers from bytes, correctly rounded.
//!
//! A number of at most 19 digits with a power of ten within ±22 is one integer and one multiplication or division in
//! f64; the result is within 2 units in the last place, so rounding it to f32 is right unless it is that close to the
//! middle between two f32 values. Those cases, and everything unusual, go to the standard library's parser. Always
//! calling that parser was rejected: it needs the token cut out and checked as UTF-8 first, and was 2 to 3 times
//! slower.

/// Why a token is not a finite f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotANumber {
    /// Not a decimal number.
    Malformed,
    /// Spelled `nan` or `inf`.
    NotFinite,
    /// A decimal number beyond the largest finite value.
    Overflow,
}

const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The type of decoded features: f32, or f64 if f32 would round too much.
pub(crate) trait Feature: Copy {
    /// Up to here every whole number is exact.
    const MOST_EXACT: f64;

    /// The nearest to a number.
    fn of(value: f64) -> Self;

    fn wide(self) -> f64;

    /// Whether its magnitude is below this.
    fn is_below(self, limit: Self) -> bool;

    /// The number that starts at `from` and its end, if the fast path applies.
    fn prefix(bytes: &[u8], from: usize) -> Option<(Self, usize)>;

    /// A whole token.
    fn parse(token: &[u8]) -> Result<Self, NotANumber>;
}

impl Feature for f32 {
    const MOST_EXACT: f64 = 16_777_216.0;

    #[inline]
    fn of(value: f64) -> f32 {
        value as f32
    }

    #[inline]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline]
    fn is_below(self, limit: f32) -> bool {
        self.abs() < limit
    }

    #[inline]
    fn prefix(bytes: &[u8], from: usize) -> Option<(f32, usize)> {
        f32_prefix(bytes, from)
    }

    fn parse(token: &[u8]) -> Result<f32, NotANumber> {
        parse_f32(token)
    }
}

impl Feature for f64 {
    const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

    #[inline]
    fn of(value: f64) -> f64 {
        value
    }

    #[inline]
    fn wide(self) -> f64 {
        self
    }

    #[inline]
    fn is_below(self, limit: f64) -> bool {
        self.abs() < limit
    }

    #[inline]
    fn prefix(bytes: &[u8], from: usize) -> Option<(f64, usize)> {
        let (decimal, end) = Decimal::prefix(bytes, from)?;
        (decimal.mantissa < 1 << 53).then(|| (decimal.to_f64(), end))
    }

    fn parse(token: &[u8]) -> Result<f64, NotANumber> {
        parse_f64(token)
    }
}

/// Whether `value`, parsed from `token`, differs from the whole number that the token spells. A number with a power
/// of ten is a magnitude and spells no whole number.
#[cold]
pub(crate) fn is_rounded<T: Feature>(token: &[u8], value: T) -> bool {
    let value = value.wide();
    if value.abs() < T::MOST_EXACT || token.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return false;
    }
    let whole = token.split(|byte| *byte == b'.').next().unwrap_or_default();
    let whole = std::str::from_utf8(whole).ok().map(str::parse::<i128>);
    // Beyond i128 a number is always rounded.
    whole.is_none_or(|whole| whole.ok() != Some(value as i128))
}

/// A whole token as f32.
pub(crate) fn parse_f32(token: &[u8]) -> Result<f32, NotANumber> {
    match f32_prefix(token, 0) {
        Some((value, end)) if end == token.len() => Ok(value),
        _ => parse_f32_slowly(token),
    }
}

/// A whole token as f32 by the standard library.
#[cold]
pub(crate) fn parse_f32_slowly(token: &[u8]) -> Result<f32, NotANumber> {
    let value = std::str::from_utf8(token)
        .ok()
        .and_then(|text| text.parse::<f32>().ok());
    finite(value, f32::is_finite, token)
}

/// A whole token as f64.
pub(crate) fn parse_f64(token: &[u8]) -> Result<f64, NotANumber> {
    if let Some((decimal, end)) = Decimal::prefix(token, 0)
        && end == token.len()
        && decimal.mantissa < 1 << 53
    {
        return Ok(decimal.to_f64());
    }
    let value = std::str::from_utf8(token)
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    finite(value, f64::is_finite, token)
}

fn finite<T: Copy>(
    value: Option<T>,
    is_finite: impl Fn(T) -> bool,
    token: &[u8],
) -> Result<T, NotANumber> {
    match value {
        Some(value) if is_finite(value) => Ok(value),
        Some(_) if token.iter().any(u8::is_ascii_digit) => Err(NotANumber::Overflow),
        Some(_) => Err(NotANumber::NotFinite),
        None => Err(NotANumber::Malformed),
    }
}

/// The number that starts at `from` and its end, if the fast path applies.
#[inline]
pub(crate) fn f32_prefix(bytes: &[u8], from: usize) -> Option<(f32, usize)> {
    let (decimal, end) = Decimal::prefix(bytes, from)?;
    let value = decimal.to_f64();
    // An f64 has 29 bits more than an f32; the middle between two f32 values has the top one set.
    const MIDDLE: u64 = 1 << 28;
    const MARGIN: u64 = 4;
    let below = value.to_bits() & ((1 << 29) - 1);
    if below.wrapping_sub(MIDDLE - MARGIN) <= 2 * MARGIN || value.abs() > f64::from(f32::MAX) {
        return None;
    }
    Some((value as f32, end))
}

/// `±mantissa · 10^exponent`, exact, with |exponent| at most 22.
#[derive(Clone, Copy)]
struct Decimal {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

impl Decimal {
    /// Within 2 units in the last place; exact rounding if the mantissa is below 2^53.
    #[inline]
    fn to_f64(self) -> f64 {
        let magnitude = self.mantissa as f64;
        let power = POWERS_OF_TEN[self.exponent.unsigned_abs() as usize];
        let value = if self.exponent < 0 {
            magnitude / power
        } else {
            magnitude * power
        };
        if self.negative { -value } else { value }
    }

    #[inline]
    fn prefix(bytes: &[u8], from: usize) -> Option<(Decimal, usize)> {
        let mut at = from;
        let negative = match bytes.get(at) {
            Some(b'-') => {
                at += 1;
                true
            }
            Some(b'+') => {
                at += 1;
                false
            }
            _ => false,
        };
        let digits_start = at;
        let mut mantissa = 0u64;
        at = digits(bytes, at, &mut mantissa);
        let mut count = at - digits_start;
        let mut exponent = 0i32;
        if bytes.get(at) == Some(&b'.') {
            let point = at + 1;
            at = digits(bytes, point, &mut mantissa);
            count += at - point;
            exponent = -i32::try_from(at - point).ok()?;
        }
        if count == 0 || count > 19 {
            return None;
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            let (power, end) = power_of_ten(bytes, at + 1)?;
            exponent += power;
            at = end;
        }
        if exponent.abs() > 22 {
            return None;
        }
        Some((
            Decimal {
                negative,
                mantissa,
                exponent,
            },
            at,
        ))
    }
}

/// Appends the digits from `at` on to `mantissa` (wrapping; the caller limits the count) and returns their end. Up to
/// eight are processed at once, so that varying lengths cost no mispredicted branches.
#[inline]
fn digits(bytes: &[u8], mut at: usize, mantissa: &mut u64) -> usize {
    while let Some(eight) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
        let count = leading_digits(word);
        if count == 0 {
            return at;
        }
        *mantissa = mantissa
            .wrapping_mul(INTEGER_POWERS_OF_TEN[count as usize])
            .wrapping_add(u64::from(digits_to_integer(word, count)));
        at += count as usize;
        if count < 8 {
            return at;
        }
    }
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0'))
        && digit <= 9
    {
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    at
}

const INTEGER_POWERS_OF_TEN: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

fn power_of_ten(bytes: &[u8], mut at: usize) -> Option<(i32, usize)> {
    let negative = match bytes.get(at) {
        Some(sign @ (b'-' | b'+')) => {
            at += 1;
            *sign == b'-'
        }
        _ => false,
    };
    let mut power = 0u64;
    let end = digits(bytes, at, &mut power);
    if end == at || end - at > 4 {
        return None;
    }
    let power = power as i32;
    Some((if negative { -power } else { power }, end))
}

/// How many of the eight bytes of `word`, lowest first, are digits before the first that is not.
#[inline]
pub(crate) fn leading_digits(word: u64) -> u32 {
    let offset = word ^ 0x3030_3030_3030_3030;
    let low = (offset & 0x7f7f_7f7f_7f7f_7f7f) + 0x7676_7676_7676_7676;
    ((low | offset) & 0x8080_8080_8080_8080).trailing_zeros() / 8
}

/// The number spelled by the `count` (1 to 8) lowest bytes of `word`, which must be digits.
#[inline]
pub(crate) fn digits_to_integer(word: u64, count: u32) -> u32 {
    // Shifted so that zeros stand for the missing leading digits, then pairs, fours, eights.
    let digits = (word ^ 0x3030_3030_3030_3030) << (64 - 8 * count);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let mask = 0x0000_00ff_0000_00ff;
    let high = (pairs & mask).wrapping_mul(0x000f_4240_0000_0064);
    let low = ((pairs >> 16) & mask).wrapping_mul(0x0000_2710_0000_0001);
    (high.wrapping_add(low) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_numbers_that_are_rounded() {
        let check = |text: &str, narrow: bool, wide: bool| {
            let rounded = is_rounded(text.as_bytes(), parse_f32(text.as_bytes()).unwrap());
            assert_eq!(rounded, narrow, "{text}");
            let rounded = is_rounded(text.as_bytes(), parse_f64(text.as_bytes()).unwrap());
            assert_eq!(rounded, wide, "{text}");
        };
        check("16777215", false, false);
        check("16777216", false, false);
        check("16777217", true, false);
        check("-16777217.0", true, false);
        check("16777218", false, false);
        check("+123456789", true, false);
        check("1.6777217e7", false, false);
        check("1e30", false, false);
        check("0.1", false, false);
        check("9007199254740992", false, false);
        check("9007199254740993", true, true);
        check("1000000000000000000000000000000000000", true, true);
    }

    fn agrees(text: &str) {
        let expected: f32 = text.parse().expect("a number");
        match parse_f32(text.as_bytes()) {
            Ok(found) => assert_eq!(found.to_bits(), expected.to_bits(), "{text}"),
            Err(_) => assert!(!expected.is_finite(), "{text}"),
        }
        let expected: f64 = text.parse().expect("a number");
        match parse_f64(text.as_bytes()) {
            Ok(found) => assert_eq!(found.to_bits(), expected.to_bits(), "{text}"),
            Err(_) => assert!(!expected.is_finite(), "{text}"),
        }
    }

    #[test]
    fn known_numbers() {
        for text in [
            "0",
            "-0",
            "1",
            "+7",
            "0.5",
            ".5",
            "5.",
            "-12.25e3",
            "1e22",
            "1e23",
            "1e-22",
            "1e-45",
            "16777217",
            "16777219",
            "9007199254740993",
            "0.1",
            "3.4028235e38",
            "3.4028236e38",
            "1e39",
            "1e400",
            "12345678901234567890123",
            "0.00000000000000000000000000001",
            "8388608.5",
            "8388609.5",
            "1.00000017881393432617187499",
            "00000000000000000012",
        ] {
            agrees(text);
        }
    }

    #[test]
    fn refused() {
        for (text, expected) in [
            ("", NotANumber::Malformed),
            (".", NotANumber::Malformed),
            ("-", NotANumber::Malformed),
            ("1e", NotANumber::Malformed),
            ("1x", NotANumber::Malformed),
            ("1 ", NotANumber::Malformed),
            ("0x10", NotANumber::Malformed),
            ("nan", NotANumber::NotFinite),
            ("-inf", NotANumber::NotFinite),
            ("1e39", NotANumber::Overflow),
        ] {
            assert_eq!(parse_f32(text.as_bytes()), Err(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_decimal(text in "[-+]?[0-9]{1,12}(\\.[0-9]{0,12})?(e[-+]?[0-9]{1,2})?") {
            agrees(&text);
        }

        #[test]
        fn any_f32(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            agrees(&format!("{value}"));
            agrees(&format!("{value:e}"));
            agrees(&format!("{:.17e}", f64::from(value)));
        }

        #[test]
        fn middles_between_f32(bits in 0u32..0x7f7f_ffff, nudge in -3i64..=3) {
            let low = f64::from(f32::from_bits(bits));
            let middle = (low + f64::from(f32::from_bits(bits + 1))) / 2.0;
            let near = f64::from_bits((middle.to_bits() as i64 + nudge) as u64);
            agrees(&format!("{near}"));
            agrees(&format!("{near:.12e}"));
        }

        #[test]
        fn eight_digits(value in 0u32..100_000_000, count in 1u32..=8) {
            let text = format!("{:0width$}xxxxxxxx", value % 10u32.pow(count), width = count as usize);
            let word = u64::from_le_bytes(text.as_bytes()[..8].try_into().unwrap());
            prop_assert_eq!(leading_digits(word), count);
            prop_assert_eq!(digits_to_integer(word, count), value % 10u32.pow(count));
        }
    }
}
