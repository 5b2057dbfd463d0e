//! Numbers of one type from texts, JSON and arrays of NumPy's.

use std::borrow::Cow;

use pelton_batch::DType;
use pelton_format::{JsonKey, element_value, json_numbers, npy_array};
use serde_json::Number;

use crate::sample::Value;

/// Whole numbers up to here are exact in double precision.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

type Decoded = Result<Value<'static>, String>;

/// Numbers of one type, and how many of them a sample has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumbersKind {
    /// Their type: f32, f64, i32, i64 or u8.
    pub dtype: DType,
    /// Lengths of the dimensions, as far as they are the same in all samples, none for a single number; `None` if the
    /// number of dimensions varies too.
    pub dims: Option<Vec<Option<usize>>>,
}

impl NumbersKind {
    /// Numbers with white space between them.
    pub(crate) fn of_text(&self, text: &[u8]) -> Decoded {
        let text = std::str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
        let number = |word: &str| -> Result<Number, String> {
            let whole = word.parse::<i64>().ok().map(Number::from);
            let real = || word.parse::<f64>().ok().and_then(Number::from_f64);
            whole
                .or_else(real)
                .ok_or_else(|| format!("{:?} is not a number", &word[..word.len().min(32)]))
        };
        let numbers: Result<Vec<Number>, String> =
            text.split_ascii_whitespace().map(number).collect();
        let numbers = numbers?;
        let is_one = numbers.len() == 1 && self.dims.as_ref().is_some_and(Vec::is_empty);
        let dims = if is_one {
            Vec::new()
        } else {
            vec![numbers.len()]
        };
        self.of_numbers(&numbers, dims)
    }

    pub(crate) fn of_json(&self, json: &[u8], key: &JsonKey) -> Decoded {
        let (numbers, dims) = json_numbers(json, key).map_err(|fault| fault.to_string())?;
        self.of_numbers(&numbers, dims)
    }

    pub(crate) fn of_npy(&self, file: &[u8]) -> Decoded {
        let (header, data) = npy_array(file).map_err(|error| error.to_string())?;
        let dims = header.shape.iter().map(|&length| length as usize).collect();
        let dims = self.checked(dims)?;
        if header.number == self.dtype {
            return Ok(Value::Numbers(self.dtype, dims, Cow::Owned(data.to_vec())));
        }
        let elements = data.chunks_exact(header.number.bytes());
        let mut bytes = Vec::with_capacity(elements.len() * self.dtype.bytes());
        for element in elements {
            let value = element_value(header.number, element);
            push(self.dtype, None, value, &mut bytes)?;
        }
        Ok(Value::Numbers(self.dtype, dims, Cow::Owned(bytes)))
    }

    fn of_numbers(&self, numbers: &[Number], dims: Vec<usize>) -> Decoded {
        let dims = self.checked(dims)?;
        let mut bytes = Vec::with_capacity(numbers.len() * self.dtype.bytes());
        for number in numbers {
            let real = number.as_f64().unwrap_or(f64::NAN);
            push(self.dtype, number.as_i64(), real, &mut bytes)?;
        }
        Ok(Value::Numbers(self.dtype, dims, Cow::Owned(bytes)))
    }

    /// The lengths found, if they match the declared ones. An empty list does not determine the lengths of lists in
    /// it.
    fn checked(&self, found: Vec<usize>) -> Result<Vec<usize>, String> {
        let Some(spelt) = &self.dims else {
            return Ok(found);
        };
        let is_empty = found.contains(&0) && spelt.contains(&None);
        if is_empty && found.len() <= spelt.len() {
            return Ok(spelt.iter().map(|length| length.unwrap_or(0)).collect());
        }
        let mut pairs = spelt.iter().zip(&found);
        let fits = pairs.all(|(spelt, found)| spelt.is_none_or(|length| length == *found));
        if fits && spelt.len() == found.len() {
            return Ok(found);
        }
        let lengths = spelt
            .iter()
            .map(|length| length.map_or(String::new(), |n| n.to_string()));
        let lengths = lengths.collect::<Vec<_>>().join(", ");
        Err(match (spelt.is_empty(), found.is_empty()) {
            (true, _) => format!(
                "it is an array of {found:?}, not a single number; state its lengths, as in f32[4], or f32[] if they vary"
            ),
            (false, true) => format!("it is a number by itself and no array of [{lengths}]"),
            (false, false) => format!(
                "it is an array of {found:?}, not of [{lengths}]; state its actual lengths, leave out those that vary, as in f32[,4], or all, as in f32[]"
            ),
        })
    }
}

/// Appends a number; `whole` is its exact value, if it is a whole number.
fn push(dtype: DType, whole: Option<i64>, real: f64, into: &mut Vec<u8>) -> Result<(), String> {
    let exact = whole.or_else(|| {
        let fits = real.fract() == 0.0 && real.abs() <= MOST_EXACT;
        fits.then_some(real as i64)
    });
    let refuse = || {
        let number = exact.map_or(real.to_string(), |number| number.to_string());
        format!("{number} does not fit {dtype}; choose another type, such as f64 or i64")
    };
    // A whole number is refused if floating point would round it.
    let keeps = |rounded: f64| exact.is_none_or(|number| rounded as i128 == i128::from(number));
    match dtype {
        DType::F64 if keeps(real) => into.extend(real.to_ne_bytes()),
        DType::F32 if keeps(f64::from(real as f32)) => into.extend((real as f32).to_ne_bytes()),
        DType::F64 | DType::F32 => return Err(refuse()),
        DType::I64 => into.extend(exact.ok_or_else(refuse)?.to_ne_bytes()),
        DType::I32 => {
            let number = exact.and_then(|number| i32::try_from(number).ok());
            into.extend(number.ok_or_else(refuse)?.to_ne_bytes());
        }
        DType::U8 => into.push(
            exact
                .and_then(|n| u8::try_from(n).ok())
                .ok_or_else(refuse)?,
        ),
        _ => into.extend((real as f32).to_ne_bytes()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_not_rounded() {
        let check = |dtype, text: &str, expected: Result<&[u8], &str>| {
            let dims = Some(Vec::new());
            let made = NumbersKind { dtype, dims }.of_text(text.as_bytes());
            let made = made.map(|value| value.bytes().to_vec());
            let expected = expected.map(<[u8]>::to_vec).map_err(|number| {
                format!("{number} does not fit {dtype}; choose another type, such as f64 or i64")
            });
            assert_eq!(made, expected, "{text}");
        };
        let exact = 16_777_216f32.to_ne_bytes();
        check(DType::F32, "16777216", Ok(&exact));
        check(DType::F32, "16777217", Err("16777217"));
        check(DType::F32, "0.1", Ok(&0.1f32.to_ne_bytes()));
        check(DType::F32, "1e30", Ok(&1e30f32.to_ne_bytes()));
        check(DType::F64, "16777217", Ok(&16_777_217f64.to_ne_bytes()));
        check(DType::F64, "9007199254740993", Err("9007199254740993"));
        check(
            DType::I64,
            "9007199254740993",
            Ok(&9_007_199_254_740_993i64.to_ne_bytes()),
        );
        check(DType::I64, "0.5", Err("0.5"));
    }
}
