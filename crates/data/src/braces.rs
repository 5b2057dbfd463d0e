//! Names with braces, as WebDataset writes them: `train-{000..099}.tar` and `{train,more}.csv`.

/// Most names that one pattern may expand to.
const MOST: usize = 1_000_000;

/// Expands a pattern into names, in its order; the pattern itself if it has no braces.
///
/// Errors: the problem, as the end of a sentence.
pub(crate) fn expanded(spelling: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = spelling;
    while let Some((before, from)) = rest.split_once('{') {
        let Some((inside, after)) = from.split_once('}') else {
            return Err("has a brace that is not closed".into());
        };
        let parts = parts_of(inside)?;
        if names.len().saturating_mul(parts.len()) > MOST {
            return Err(format!("stands for more than {MOST} names"));
        }
        names = names
            .iter()
            .flat_map(|name| {
                parts
                    .iter()
                    .map(move |part| format!("{name}{before}{part}"))
            })
            .collect();
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// The contents of braces: a range of numbers, zero-padded like the first, or words.
fn parts_of(inside: &str) -> Result<Vec<String>, String> {
    let Some((first, last)) = inside.split_once("..") else {
        return if inside.contains(',') {
            Ok(inside.split(',').map(str::to_owned).collect())
        } else {
            Err(format!(
                "has {{{inside}}}, which is not a range such as {{000..099}}"
            ))
        };
    };
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
    let (Some(from), Some(to)) = (number(first), number(last)) else {
        return Err(format!(
            "has {{{inside}}}, which is not a range such as {{000..099}}"
        ));
    };
    if from.abs_diff(to) >= MOST as u64 {
        return Err(format!("stands for more than {MOST} names"));
    }
    let width = if first.starts_with('0') {
        first.len()
    } else {
        0
    };
    let shown = |number: u64| format!("{number:0width$}");
    Ok(if from <= to {
        (from..=to).map(shown).collect()
    } else {
        (to..=from).rev().map(shown).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spelling: &str, expected: &[&str]) {
        assert_eq!(expanded(spelling).unwrap(), expected, "{spelling}");
    }

    #[test]
    fn spellings() {
        check("x.tar", &["x.tar"]);
        check(
            "x-{008..011}.tar",
            &["x-008.tar", "x-009.tar", "x-010.tar", "x-011.tar"],
        );
        check("{8..11}", &["8", "9", "10", "11"]);
        check("{2..0}x", &["2x", "1x", "0x"]);
        check("{0..1}", &["0", "1"]);
        check(
            "{a,b}-{1..2}.csv",
            &["a-1.csv", "a-2.csv", "b-1.csv", "b-2.csv"],
        );
        check("{,x}y", &["y", "xy"]);
        check("s3://b/{5..5}?k=1", &["s3://b/5?k=1"]);
    }

    #[test]
    fn what_is_wrong() {
        for (spelling, text) in [
            ("a{1..2", "not closed"),
            ("{}", "has {}, which is not a range"),
            ("{a}", "has {a}, which is not a range such as {000..099}"),
            ("{a..c}", "which is not a range"),
            ("{1..-2}", "which is not a range"),
            ("{0..1000000}", "more than 1000000 names"),
            ("{0..999}{0..999}{0..1}", "more than 1000000 names"),
        ] {
            let error = expanded(spelling).unwrap_err();
            assert!(error.contains(text), "{spelling}: {error}");
        }
    }
}
