//! The text of dates and points in time that columns store as whole numbers.

/// The text of a point in time, `since` units after 1970 began, with the time of day if a day has several units.
pub(crate) fn spelled(since: i64, units_a_day: i64) -> String {
    let (days, rest) = (since.div_euclid(units_a_day), since.rem_euclid(units_a_day));
    let (year, month, day) = date_of(days);
    let date = format!("{year:04}-{month:02}-{day:02}");
    let a_second = units_a_day / 86_400;
    if a_second == 0 {
        return date;
    }
    let (seconds, part) = (rest / a_second, rest % a_second);
    let [hours, minutes, seconds] = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    let time = format!("{date} {hours:02}:{minutes:02}:{seconds:02}");
    match part {
        0 => time,
        // Units are powers of ten of a second.
        _ => format!("{time}.{part:0width$}", width = a_second.ilog10() as usize),
    }
}

/// Year, month and day, in the proleptic Gregorian calendar; years begin in March, so that the leap day is the last.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + 400 * era, (month + 2) % 12 + 1);
    (year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tables::dates::Moment;
    use pelton_batch::Slashes;

    #[test]
    fn points_in_time_are_spelled_as_they_are_read() {
        for days in (-719_000..2_900_000).step_by(997).chain(-800..800) {
            let text = spelled(days, 1);
            let found = Moment::parse(text.as_bytes(), Slashes::Refused).expect(&text);
            assert_eq!((found.years() * 365.2425).round() as i64, days, "{text}");
            assert_eq!(found.hour(), None);
        }
        for (since, a_second, text) in [
            (0, 1, "1970-01-01 00:00:00"),
            (-500, 1_000, "1969-12-31 23:59:59.500"),
            (951_867_296_000_007, 1_000_000, "2000-02-29 23:34:56.000007"),
            (1_000_000_000, 1_000_000_000, "1970-01-01 00:00:01"),
        ] {
            assert_eq!(spelled(since, 86_400 * a_second), text);
            assert!(Moment::parse(text.as_bytes(), Slashes::Refused).is_some());
        }
    }
}
