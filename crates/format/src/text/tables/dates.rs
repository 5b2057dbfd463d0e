//! Dates as ISO 8601 writes them, 2026-11-26 and 2026/11/26, and as 26.11.2026; with or without 20:51 or 20:51:46.25
//! after a blank or T, and then perhaps an offset from UTC: Z, +02:00, +0200 or +02.
//!
//! 06/11/2026 is a date only if the column's order of day and month is known.

use pelton_batch::Slashes;

/// A point in time: in UTC if it has an offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment {
    /// Days since 1970-01-01, which was a Thursday.
    days: i64,
    /// Seconds of the day, if the time is given.
    seconds: Option<f64>,
}

impl Moment {
    /// Years of 365.2425 days since 1970.
    pub(crate) fn years(self) -> f64 {
        (self.days as f64 + self.seconds.unwrap_or(0.0) / 86_400.0) / 365.2425
    }

    /// The day of the week, 0 for Monday.
    pub(crate) fn day(self) -> usize {
        (self.days + 3).rem_euclid(7) as usize
    }

    /// Whether no time is given, or midnight.
    pub(crate) fn is_midnight(self) -> bool {
        self.seconds.unwrap_or(0.0) == 0.0
    }

    /// The hour, if the time is given.
    pub(crate) fn hour(self) -> Option<usize> {
        self.seconds.map(|seconds| (seconds / 3600.0) as usize)
    }

    /// The moment that `text` spells.
    pub(crate) fn parse(text: &[u8], slashes: Slashes) -> Option<Moment> {
        let text = std::str::from_utf8(text).ok()?;
        let is_first = |byte: &u8| byte.is_ascii_digit();
        let (date, time) = match text.split_once([' ', 'T']) {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        if !(8..=10).contains(&date.len()) || !date.as_bytes().first().is_some_and(is_first) {
            return None;
        }
        let (year, month, day) = numbers_of(date, slashes)?;
        if !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
            return None;
        }
        let days = days_since_1970(year, month, day);
        let Some(time) = time else {
            return Some(Moment {
                days,
                seconds: None,
            });
        };
        let (time, offset) = with_offset(time)?;
        let seconds = seconds_of(time)? - offset;
        Some(Moment {
            days: days + seconds.div_euclid(86_400.0) as i64,
            seconds: Some(seconds.rem_euclid(86_400.0)),
        })
    }
}

/// Year, month and day.
fn numbers_of(date: &str, slashes: Slashes) -> Option<(i64, i64, i64)> {
    let separator = date.find(|letter: char| !letter.is_ascii_digit())?;
    let mut parts = date.split(&date[separator..=separator]);
    let parts = [
        parts.next()?,
        parts.next()?,
        parts.next()?,
        parts.next().unwrap_or(""),
    ];
    let [a, b, c] = [digits(parts[0])?, digits(parts[1])?, digits(parts[2])?];
    let lengths = parts.map(str::len);
    let is_short = |length: usize| (1..=2).contains(&length);
    match (date.as_bytes()[separator], lengths) {
        (b'-' | b'/', [4, 2, 2, 0]) => Some((a, b, c)),
        (b'.', [d, m, 4, 0]) if is_short(d) && is_short(m) => Some((c, b, a)),
        (b'/', [d, m, 4, 0]) if is_short(d) && is_short(m) => match slashes {
            Slashes::Refused => None,
            Slashes::DayFirst => Some((c, b, a)),
            Slashes::MonthFirst => Some((c, a, b)),
        },
        _ => None,
    }
}

/// A time without its offset from UTC, and that in seconds.
fn with_offset(time: &str) -> Option<(&str, f64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0.0));
    }
    let Some(at) = time.find(['+', '-']) else {
        return Some((time, 0.0));
    };
    let offset = time[at + 1..].replace(':', "");
    let (hours, minutes) = match offset.len() {
        2 => (digits(&offset)?, 0),
        4 => (digits(&offset)? / 100, digits(&offset)? % 100),
        _ => return None,
    };
    if hours > 24 || minutes > 59 {
        return None;
    }
    let seconds = ((hours * 60 + minutes) * 60) as f64;
    let is_west = time.as_bytes()[at] == b'-';
    Some((
        time[..at].trim_end(),
        if is_west { -seconds } else { seconds },
    ))
}

fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok())?
}

fn seconds_of(time: &str) -> Option<f64> {
    let mut parts = time.splitn(3, ':');
    let (hours, minutes) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let seconds: f64 = match parts.next() {
        None => 0.0,
        Some(text) if text.as_bytes().first()?.is_ascii_digit() => text.parse().ok()?,
        Some(_) => return None,
    };
    let is_time = hours < 24 && minutes < 60 && (0.0..61.0).contains(&seconds);
    is_time.then(|| ((hours * 60 + minutes) * 60) as f64 + seconds.min(59.999_999))
}

fn days_of(year: i64, month: i64) -> i64 {
    let next = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    days_since_1970(next.0, next.1, 1) - days_since_1970(year, month, 1)
}

/// Of the proleptic Gregorian calendar; years begin in March, so that the leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let check = |text: &str, days, seconds| {
            assert_eq!(
                Moment::parse(text.as_bytes(), Slashes::Refused),
                Some(Moment { days, seconds }),
                "{text}"
            );
        };
        check("1970-01-01", 0, None);
        check("2000/02/29", 11_016, None);
        check("2026-11-26 20:51", 20_783, Some(75_060.0));
        check("1969-12-31T23:59:59.5Z", -1, Some(86_399.5));
        check("26.11.2026", 20_783, None);
        check("1.2.1970 00:30", 31, Some(1800.0));
        // In UTC.
        check("1970-01-01T01:00:00+02:00", -1, Some(82_800.0));
        check("1969-12-31 23:30:00.25-0045", 0, Some(900.25));
        check("1970-01-01 10:00 +02", 0, Some(28_800.0));
        for text in [
            "",
            "2026",
            "2026-11",
            "2026-13-01",
            "2025-02-29",
            "2026-11-26x",
            "2026-11-26 24:00",
            "2026-11-26 20",
            "26-11-2026",
            "2026-11-26 20:51:nan",
            "2026/11-26",
            "+026-11-26",
            "06/22/2020",
            "1.2.3",
            "192.168.1.1",
            "2026-11-26T10:00+2",
            "2026-11-26T10:00+02:60",
        ] {
            assert_eq!(
                Moment::parse(text.as_bytes(), Slashes::Refused),
                None,
                "{text}"
            );
        }
        let [day_first, month_first] = [Slashes::DayFirst, Slashes::MonthFirst];
        let parse = |text: &str, slashes| Moment::parse(text.as_bytes(), slashes);
        assert_eq!(
            parse("22/06/2020", day_first),
            parse("2020-06-22", month_first)
        );
        assert_eq!(
            parse("6/22/2020 7:05", month_first),
            parse("2020-06-22 07:05", day_first)
        );
        assert_eq!(parse("6/22/2020", day_first), None);
        assert_eq!(parse("22/06/2020", month_first), None);
        let day = |text: &str| parse(text, day_first).unwrap().day();
        // A Thursday, and a Monday before the epoch.
        assert_eq!((day("2026-11-26"), day("1969-12-29")), (3, 0));
        let moment = parse("2026-11-26 20:51", day_first).unwrap();
        assert_eq!(moment.hour(), Some(20));
        assert!((moment.years() - 56.902).abs() < 1e-2, "{}", moment.years());
    }
}
