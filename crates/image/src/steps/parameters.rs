//! The numbers of a step: their spelling, as its form shows it, and their ranges.

use std::fmt;

/// Numbers in the order of the parameters; the rest is 0.
pub(crate) type Numbers = [f64; 6];

/// Longest side that a step makes; 8192 x 8192 pixels are the default limit of [`crate::Limits`].
pub(crate) const MOST_SIDE: u32 = 8192;
pub(crate) const SIDE: Parameter = whole(1, MOST_SIDE);

#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    least: f64,
    most: f64,
    is_whole: bool,
    is_odd: bool,
    /// Its default, if the text leaves it out.
    default: f64,
    /// The sign in front of it.
    sign: char,
}

/// A number in this range.
pub(crate) const fn number(least: f64, most: f64) -> Parameter {
    Parameter {
        least,
        most,
        is_whole: false,
        is_odd: false,
        default: 0.0,
        sign: ':',
    }
}

/// A whole number in this range.
pub(crate) const fn whole(least: u32, most: u32) -> Parameter {
    Parameter {
        is_whole: true,
        ..number(least as f64, most as f64)
    }
}

impl Parameter {
    /// With this number where the text leaves it out.
    pub(crate) const fn or(self, default: f64) -> Parameter {
        Parameter { default, ..self }
    }

    /// With odd numbers alone.
    pub(crate) const fn odd(self) -> Parameter {
        Parameter {
            is_odd: true,
            ..self
        }
    }

    /// With another sign in front than a colon. After `-` numbers do not decrease; one number without `/` is for all.
    pub(crate) const fn after(self, sign: char) -> Parameter {
        Parameter { sign, ..self }
    }

    fn read(&self, text: &str) -> Option<f64> {
        let plain = |byte: u8| byte.is_ascii_digit() || (!self.is_whole && b".-".contains(&byte));
        // std also parses "1e3" and "+5".
        let number: f64 = text.parse().ok().filter(|_| text.bytes().all(plain))?;
        let is_one = (self.least..=self.most).contains(&number);
        (is_one && !(self.is_odd && number % 2.0 == 0.0)).then_some(number)
    }
}

/// How many parts with colons in front a text of this form may have.
fn counts(form: &str) -> impl Iterator<Item = usize> {
    form.split('[').scan(0, |colons, part| {
        *colons += part.matches(':').count();
        Some(*colons)
    })
}

/// The parameters of each part.
fn groups(parameters: &[Parameter]) -> impl Iterator<Item = &[Parameter]> {
    parameters.chunk_by(|_, next| next.sign != ':')
}

/// The numbers of a text's parts; `None` if these do not have the form, or are out of range.
pub(crate) fn read(form: &str, parameters: &[Parameter], parts: &[&str]) -> Option<Numbers> {
    counts(form).find(|&count| count == parts.len())?;
    let mut parts = parts.iter();
    let mut numbers = Vec::new();
    for group in groups(parameters) {
        let sign = group.last()?.sign;
        let read: Vec<f64> = if let Some(part) = parts.next() {
            let mut texts: Vec<&str> = part.split(sign).collect();
            if sign == '/' && texts.len() == 1 {
                texts.resize(group.len(), texts[0]);
            }
            if texts.len() != group.len() {
                return None;
            }
            let read = group
                .iter()
                .zip(texts)
                .map(|(number, text)| number.read(text));
            read.collect::<Option<_>>()?
        } else {
            group.iter().map(|number| number.default).collect()
        };
        if sign == '-' && !read.is_sorted() {
            return None;
        }
        numbers.extend(read);
    }
    numbers.resize(Numbers::default().len(), 0.0);
    numbers.try_into().ok()
}

/// Writes what [`read`] reads, without optional parts that have their defaults.
pub(crate) fn write(
    form: &str,
    parameters: &[Parameter],
    numbers: &Numbers,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut numbers = numbers.iter().copied();
    let part = |group: &[Parameter]| {
        let values: Vec<f64> = numbers.by_ref().take(group.len()).collect();
        let sign = group.last().map_or(':', |last| last.sign);
        let is_one = sign == '/' && values.iter().all(|value| *value == values[0]);
        let shown = if is_one { &values[..1] } else { &values };
        let texts: Vec<String> = shown.iter().map(f64::to_string).collect();
        let is_default = group.iter().map(|number| number.default).eq(values);
        (is_default, texts.join(&sign.to_string()))
    };
    let parts: Vec<(bool, String)> = groups(parameters).map(part).collect();
    let rest_is_default = |&count: &usize| parts[count..].iter().all(|(is_default, _)| *is_default);
    let count = counts(form).find(rest_is_default);
    let mut written = parts[..count.unwrap_or(parts.len())].iter();
    written.try_for_each(|(_, text)| write!(f, ":{text}"))
}
