//! Dates as ISO 8601 writes them: 2026-11-26, 2026/11/26, with or without 20:51 or 20:51:46.25 after a blank or T.

/// A point in time, without a time zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment {
    /// Days since 1970-01-01, which was a Thursday.
    days: i64,
    /// Seconds of the day, where the time is given.
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

    /// The hour, where the time is given.
    pub(crate) fn hour(self) -> Option<usize> {
        self.seconds.map(|seconds| (seconds / 3600.0) as usize)
    }

    /// The moment that `text` spells.
    pub(crate) fn parse(text: &[u8]) -> Option<Moment> {
        let text = std::str::from_utf8(text).ok()?;
        let separator = match text.as_bytes().get(4)? {
            b'-' => '-',
            b'/' => '/',
            _ => return None,
        };
        let date = text.get(..10)?;
        let mut parts = date.split(separator).map(digits);
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        if parts.next().is_some() || !(1..=12).contains(&month) {
            return None;
        }
        if day == 0 || day > days_of(year, month) {
            return None;
        }
        let rest = &text[10..];
        let seconds = match rest.strip_prefix([' ', 'T']) {
            None if rest.is_empty() => None,
            None => return None,
            Some(time) => Some(seconds_of(time.strip_suffix('Z').unwrap_or(time))?),
        };
        Some(Moment {
            days: days_since_1970(year, month, day),
            seconds,
        })
    }
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
                Moment::parse(text.as_bytes()),
                Some(Moment { days, seconds }),
                "{text}"
            );
        };
        check("1970-01-01", 0, None);
        check("2000/02/29", 11_016, None);
        check("2026-11-26 20:51", 20_783, Some(75_060.0));
        check("1969-12-31T23:59:59.5Z", -1, Some(86_399.5));
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
        ] {
            assert_eq!(Moment::parse(text.as_bytes()), None, "{text}");
        }
        let day = |text: &str| Moment::parse(text.as_bytes()).unwrap().day();
        // A Thursday, and a Monday before the epoch.
        assert_eq!((day("2026-11-26"), day("1969-12-29")), (3, 0));
        let moment = Moment::parse(b"2026-11-26 20:51").unwrap();
        assert_eq!(moment.hour(), Some(20));
        assert!((moment.years() - 56.902).abs() < 1e-2, "{}", moment.years());
    }
}
