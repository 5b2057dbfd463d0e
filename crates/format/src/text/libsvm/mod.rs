//! LIBSVM text: `label index:value index:value …`, one record a line.
//!
//! Blanks are spaces and tabs, lines end in LF or CRLF, `#` starts a comment, empty lines and the `qid:N` that svmlight
//! writes after the label are skipped. Indices count from 1 (or from 0 on request) and ascend strictly. Entries with
//! value 0 are kept, as in LIBLINEAR; they change no result.
//!
//! The index before a colon is found and converted eight bytes at a time, and a value of one digit, the most
//! frequent, costs one comparison; all others go through [`crate::record::numbers::parse`].

pub(crate) mod lines;
pub(crate) mod several;

use crate::record::cells::libsvm_token::{QUERY, ends_token, is_blank, label_token, token};
use crate::record::error::{Fault, excerpt};
use crate::record::labels::checked_label;
use crate::record::numbers::bad_number::bad_number;
use crate::record::numbers::parse::{
    Feature, digits_to_integer, f32_prefix, is_rounded, leading_digits, parse_f32_slowly, parse_f64,
};
use crate::record::rows::feature_type::FeatureType;

/// How lines are read.
#[derive(Clone, Copy, Debug)]
pub struct LibsvmRules {
    /// Indices count from 0.
    pub zero_based: bool,
    /// Features from this one on (counted from 0) are dropped.
    pub features: u64,
    /// The type of features; f32 here.
    pub dtype: FeatureType,
}

/// Appends the entries of the first line of `bytes` and returns its label. On a fault the entries
/// before it stay appended.
pub fn decode_libsvm_line(
    bytes: &[u8],
    rules: LibsvmRules,
    indices: &mut Vec<u32>,
    values: &mut Vec<f32>,
) -> Result<f64, Fault> {
    let mut at = 0;
    while bytes.get(at).is_some_and(|&byte| is_blank(byte)) {
        at += 1;
    }
    let label = label_token(&bytes[at..]);
    if label.is_empty() {
        return Err(Fault::NO_RECORD);
    }
    at += label.len();
    if label.contains(&b',') {
        return Err(Fault::new(format!(
            "has several labels, \"{}\": with a first line `records features labels`, and labels and indices from 0, it is read as format xmc",
            excerpt(label)
        )));
    }
    let value = parse_f64(label).map_err(|_| Fault::bad_label(&excerpt(label)))?;
    let value = checked_label(value, || excerpt(label))?;
    at = after_query(bytes, at)?;
    decode_entries(bytes, at, rules, indices, values)?;
    Ok(value)
}

/// Skips a query id at `at`: classification does not use it.
fn after_query(bytes: &[u8], mut at: usize) -> Result<usize, Fault> {
    while bytes.get(at).is_some_and(|&byte| is_blank(byte)) {
        at += 1;
    }
    if !bytes[at..].starts_with(QUERY) {
        return Ok(at);
    }
    let query = token(bytes, at);
    let number = &query[QUERY.len()..];
    if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
        return Err(Fault::new(format!(
            "{found:?} is not a query number; write qid: and a whole number",
            found = excerpt(query)
        )));
    }
    Ok(at + query.len())
}

pub(crate) fn decode_entries(
    bytes: &[u8],
    mut at: usize,
    rules: LibsvmRules,
    indices: &mut Vec<u32>,
    values: &mut Vec<f32>,
) -> Result<(), Fault> {
    let first = u32::from(!rules.zero_based);
    // The smallest index that may come next, as written; above u32::MAX after the largest.
    let mut least = u64::from(first);
    // A larger whole number may be rounded.
    let most = match rules.dtype {
        FeatureType::F32 => f64::INFINITY,
        FeatureType::Checked | FeatureType::F64 => f32::MOST_EXACT,
    };
    loop {
        while bytes.get(at).is_some_and(|&byte| is_blank(byte)) {
            at += 1;
        }
        let Some(&byte) = bytes.get(at) else { break };
        if byte == b'\n' || byte == b'#' {
            break;
        }
        let Some((written, after)) = index_before_colon(bytes, at) else {
            return Err(bad_index(token(bytes, at)));
        };
        if u64::from(written) < least {
            return Err(bad_order(written, least));
        }
        least = u64::from(written) + 1;
        let (value, end) = match single_digit(bytes, after) {
            Some(value) => (value, after + 1),
            None => value_at(bytes, after, written)?,
        };
        if value.wide().abs() >= most && is_rounded(&bytes[after..end], value) {
            return Err(rounded(written, token(bytes, after)));
        }
        at = end;
        let index = written - first;
        if u64::from(index) < rules.features {
            indices.push(index);
            values.push(value);
        }
    }
    Ok(())
}

/// The index that starts at `at` and the start of its value; `None` if the token is not an index with a colon, or
/// exceeds u32.
#[inline]
fn index_before_colon(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    if let Some(eight) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
        let count = leading_digits(word);
        if (1..8).contains(&count) && (word >> (8 * count)) as u8 == b':' {
            return Some((digits_to_integer(word, count), at + count as usize + 1));
        }
    }
    let mut index = 0u64;
    let mut end = at;
    while let Some(digit) = bytes.get(end).map(|byte| byte.wrapping_sub(b'0'))
        && digit <= 9
    {
        index = index.saturating_mul(10).saturating_add(u64::from(digit));
        end += 1;
    }
    if end == at || bytes.get(end) != Some(&b':') {
        return None;
    }
    Some((u32::try_from(index).ok()?, end + 1))
}

#[inline]
fn single_digit(bytes: &[u8], at: usize) -> Option<f32> {
    let digit = bytes.get(at)?.wrapping_sub(b'0');
    let ends = matches!(bytes.get(at + 1), Some(b' ' | b'\n') | None);
    (digit <= 9 && ends).then_some(f32::from(digit))
}

#[inline]
fn value_at(bytes: &[u8], at: usize, index: u32) -> Result<(f32, usize), Fault> {
    if let Some((value, end)) = f32_prefix(bytes, at)
        && ends_token(bytes.get(end))
    {
        return Ok((value, end));
    }
    let text = token(bytes, at);
    match parse_f32_slowly(text) {
        Ok(value) => Ok((value, at + text.len())),
        Err(why) => Err(bad_number(why, u64::from(index), text, |found| {
            Fault::new(format!(
                "value {found:?} of feature {index} is not a number; write a decimal number"
            ))
        })),
    }
}

#[cold]
fn rounded(index: u32, value: &[u8]) -> Fault {
    Fault::new(format!(
        "feature {index} holds {}, which features of 32 bits round; write the rows as CSV and read them with `dtype` f64, or read them with `dtype` f32 as they are rounded",
        excerpt(value)
    ))
}

#[cold]
fn bad_order(written: u32, least: u64) -> Fault {
    let previous = (least - 1) as u32;
    if written == 0 && least == 1 {
        Fault::new(
            "feature index 0, but indices count from 1; pass `zero_based` if this file counts from 0",
        )
    } else if written == previous {
        Fault::new(format!(
            "feature index {found} occurs twice; keep one of them",
            found = written
        ))
    } else {
        Fault::new(format!(
            "feature index {found} follows {previous}; sort the features of each line by index",
            found = written
        ))
    }
}

#[cold]
fn bad_index(token: &[u8]) -> Fault {
    let Some(colon) = token.iter().position(|byte| *byte == b':') else {
        return Fault::new(format!(
            "feature {found:?} has no colon; write index:value",
            found = excerpt(token)
        ));
    };
    let index = &token[..colon];
    let found = excerpt(index);
    let all_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if all_digits(index) {
        Fault::new(format!(
            "feature index {found} is above {}, the largest; renumber the features",
            u32::MAX
        ))
    } else if index.first() == Some(&b'-') && all_digits(&index[1..]) {
        Fault::new(format!(
            "feature index {found} is negative; indices count from 1, or from 0 with `zero_based`"
        ))
    } else {
        Fault::new(format!(
            "feature index {found:?} is not a whole number; write index:value"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parsed = Result<(f64, Vec<u32>, Vec<f32>), Fault>;

    fn decode(line: &str, zero_based: bool, features: u64) -> Parsed {
        let (mut indices, mut values) = (vec![], vec![]);
        let rules = LibsvmRules {
            zero_based,
            features,
            dtype: FeatureType::F32,
        };
        decode_libsvm_line(line.as_bytes(), rules, &mut indices, &mut values)
            .map(|label| (label, indices, values))
    }

    fn check(line: &str, label: f64, entries: &[(u32, f32)]) {
        let (found, indices, values) = decode(line, false, u64::MAX).expect(line);
        assert_eq!(found, label, "{line}");
        let found: Vec<_> = indices.into_iter().zip(values).collect();
        assert_eq!(found, entries, "{line}");
    }

    fn refuses(line: &str, message: &str) {
        let fault = decode(line, false, u64::MAX).expect_err(line).to_string();
        assert!(fault.contains(message), "{line}: {fault}");
    }

    #[test]
    fn whole_numbers_that_features_round() {
        let decode = |dtype| {
            let rules = LibsvmRules {
                zero_based: false,
                features: u64::MAX,
                dtype,
            };
            let line = b"1 2:16777216 7:16777217\n";
            decode_libsvm_line(line, rules, &mut vec![], &mut vec![])
        };
        assert_eq!(decode(FeatureType::F32), Ok(1.0));
        let fault = decode(FeatureType::Checked).unwrap_err().to_string();
        assert!(fault.starts_with("feature 7 holds 16777217, which features of 32 bits round"));
    }

    #[test]
    fn lines() {
        check("+1 1:1 3:0.5\n", 1.0, &[(0, 1.0), (2, 0.5)]);
        check("-1\t2:-3e2\t\t7:.25 \r\n", -1.0, &[(1, -300.0), (6, 0.25)]);
        check("  3 1:0 # 2:7 comment", 3.0, &[(0, 0.0)]);
        check("1.5 10:1#c\n", 1.5, &[(9, 1.0)]);
        check("0", 0.0, &[]);
        check("7\n# and a comment line after it\n", 7.0, &[]);
        check("1 4294967295:2\n", 1.0, &[(4294967294, 2.0)]);
        check("1 00000000000012:2\n", 1.0, &[(11, 2.0)]);
        check(
            "1 1:1 123456789:9 123456790:16777217\n",
            1.0,
            &[(0, 1.0), (123456788, 9.0), (123456789, 16777216.0)],
        );
    }

    #[test]
    fn query_numbers_are_passed_over() {
        check("2 qid:17 1:0.5 3:1 # doc 4\n", 2.0, &[(0, 0.5), (2, 1.0)]);
        check("2\tqid:0\r\n", 2.0, &[]);
    }

    #[test]
    fn zero_based_and_limited() {
        assert_eq!(decode("1 0:2 4:1", true, 4), Ok((1.0, vec![0], vec![2.0])));
        assert_eq!(
            decode("1 1:2 4:1 5:1", false, 4),
            Ok((1.0, vec![0, 3], vec![2.0, 1.0]))
        );
        assert_eq!(
            decode("1 0:2 4294967295:1", true, u64::MAX).map(|parsed| parsed.1),
            Ok(vec![0, u32::MAX])
        );
    }

    #[test]
    fn faults() {
        refuses("", "no record");
        refuses("# 1 1:1", "no record");
        refuses("yes 1:1", "label \"yes\" is not a number");
        refuses("nan 1:1", "label");
        refuses("1:1 2:1", "label \"1:1\"");
        refuses("1 0:1", "`zero_based`");
        refuses("1 -3:1", "feature index -3 is negative");
        refuses("1 5:1 3:1", "feature index 3 follows 5; sort");
        refuses("1 qid: 1:1", "\"qid:\" is not a query number");
        refuses("1 qid:x 1:1", "\"qid:x\" is not a query number");
        refuses("1 1:1 qid:1", "feature index \"qid\"");
        refuses(
            "9007199254740993 1:1",
            "label 9007199254740993 is not below 2^53",
        );
        refuses("-1e300 1:1", "2^53");
        refuses("1 5:1 0:1", "feature index 0 follows 5");
        refuses("1 5:1 5:1", "feature index 5 occurs twice");
        refuses(
            "1 4294967296:1",
            "feature index 4294967296 is above 4294967295",
        );
        refuses("1 99999999999999999999999:1", "above");
        refuses("1 7", "feature \"7\" has no colon");
        refuses("1 7 :1", "no colon");
        refuses("1 :1", "feature index \"\"");
        refuses("1 a:1", "feature index \"a\"");
        refuses("1 1.5:1", "feature index \"1.5\"");
        refuses("1 3:", "value \"\" of feature 3");
        refuses("1 3:x", "value \"x\" of feature 3");
        refuses("1 3:1:2", "value \"1:2\" of feature 3");
        refuses("1 3:nan", "\"nan\" in column 3 is not finite");
        refuses("1 3:-inf", "not finite");
        refuses("1 3:1e39", "beyond 32-bit");
    }

    /// The format's definition, with the standard library only.
    fn reference(line: &str) -> Option<(f64, Vec<u32>, Vec<f32>)> {
        let line = line.split(['#', '\n']).next()?;
        let mut tokens = line
            .split([' ', '\t', '\r'])
            .filter(|token| !token.is_empty());
        let label = tokens
            .next()?
            .parse::<f64>()
            .ok()
            .filter(|label| label.is_finite())?;
        let (mut indices, mut values) = (vec![], vec![]);
        for token in tokens {
            let (index, value) = token.split_once(':')?;
            let plain = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
            let index = index
                .parse::<u32>()
                .ok()
                .filter(|_| plain)?
                .checked_sub(1)?;
            if indices.last().is_some_and(|last| *last >= index) {
                return None;
            }
            indices.push(index);
            values.push(
                value
                    .parse::<f32>()
                    .ok()
                    .filter(|value| value.is_finite())?,
            );
        }
        Some((label, indices, values))
    }

    proptest! {
        #[test]
        fn agrees_with_the_reference_on_records(
            label in -5i32..5,
            entries in prop::collection::vec((1u32..100_000, prop_oneof![
                (0u32..12).prop_map(|v| v.to_string()),
                any::<f32>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| v.to_string()),
                any::<f32>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!("{v:e}")),
            ]), 0..40),
            blank in "[ \t]{1,3}", end in "\r?\n?",
        ) {
            let mut index = 0u64;
            let mut line = label.to_string();
            for (step, value) in &entries {
                index += u64::from(*step);
                line += &format!("{blank}{index}:{value}");
            }
            line += &end;
            let expected = reference(&line);
            prop_assert!(expected.is_some());
            prop_assert_eq!(decode(&line, false, u64::MAX).ok(), expected);
        }

        #[test]
        fn agrees_with_the_reference_on_noise(line in "[-+0-9:.e#\t\r n]{0,40}\n?") {
            prop_assert_eq!(decode(&line, false, u64::MAX).ok(), reference(&line), "{}", line);
        }
    }
}
