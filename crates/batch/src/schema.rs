//! Names, types and order of columns or fields: a model stores those of its training data and compares other data
//! with them.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::column_code::{ColumnCode, Cross, MOST_HASH_BITS, are_bits};
use crate::spec::{FieldSpec, FieldSpecs};

/// The fields that every record of some data has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Its columns or fields in order, without the label.
    pub fields: FieldSpecs,
    /// The name of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How each of the fields becomes features; empty if fields are used unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<ColumnCode>,
    /// Fields that are hashed together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crosses: Vec<Cross>,
}

impl Schema {
    /// Features of a row, if the dimensions of all fields are known; `None` if codes or crosses are not valid, as in
    /// a damaged model.
    pub fn features(&self) -> Option<usize> {
        if self.codes.is_empty() {
            return self.fields.elements().filter(|_| self.crosses.is_empty());
        }
        let is_cross = |cross: &Cross| {
            let are_known = cross.columns.iter().all(|at| *at < self.codes.len());
            are_bits(cross.bits) && cross.columns.len() > 1 && are_known
        };
        let is_offset = |code: &&ColumnCode| matches!(code, ColumnCode::Offset { .. });
        if self.codes.len() != self.fields.0.len()
            || !self.codes.iter().all(ColumnCode::is_sound)
            || !self.crosses.iter().all(is_cross)
            || self.codes.iter().filter(is_offset).count() > 1
        {
            return None;
        }
        let own: usize = self.codes.iter().map(ColumnCode::width).sum();
        Some(own + self.hashed())
    }

    /// The feature that models add with weight 1, if a column is an offset or exposure.
    pub fn offset(&self) -> Option<usize> {
        let is_offset = |code: &ColumnCode| matches!(code, ColumnCode::Offset { .. });
        let at = self.codes.iter().position(is_offset)?;
        Some(self.codes[..at].iter().map(ColumnCode::width).sum())
    }

    /// Whether it has this many columns, all coded as numbers.
    pub fn is_numbers(&self, columns: usize) -> bool {
        let is_number = |code: &ColumnCode| matches!(code, ColumnCode::Number { .. });
        self.codes.len() == columns && self.codes.iter().all(is_number)
    }

    /// For each feature that a single column owns, whether it is a number; others are indicators, which are 0 or 1,
    /// or the offset, which is never scaled.
    pub fn numbers(&self) -> Vec<bool> {
        let own = self.codes.iter().flat_map(|code| {
            let is_number = matches!(code, ColumnCode::Number { .. } | ColumnCode::Date { .. });
            (0..code.width()).map(move |at| is_number && at == 0)
        });
        own.collect()
    }

    /// Features that hashed columns share: the last ones of a row.
    fn hashed(&self) -> usize {
        let hashed = self.codes.iter().map(ColumnCode::hashed);
        let crossed = self.crosses.iter();
        let crossed = crossed.map(|cross| 1 << cross.bits.min(MOST_HASH_BITS));
        hashed.chain(crossed).max().unwrap_or(0)
    }

    /// The names of the features, in order, up to those that hashed columns share.
    pub fn feature_names(&self) -> Vec<String> {
        let fields = self.fields.0.iter();
        if self.codes.is_empty() {
            return fields.flat_map(FieldSpec::element_names).collect();
        }
        let coded = fields.zip(&self.codes);
        coded
            .flat_map(|(field, code)| code.feature_names(&field.name))
            .collect()
    }

    /// The index of each of the fields in `found`, which may have them in any order.
    ///
    /// Errors: other fields, or other dimensions.
    pub fn places_in(&self, found: &FieldSpecs) -> Result<Vec<usize>, Difference> {
        let (known, found) = (&self.fields.0, &found.0);
        let same = known.len() == found.len()
            && (known.iter().zip(found)).all(|(a, b)| a.name == b.name && a.dims == b.dims);
        if same {
            return Ok((0..known.len()).collect());
        }
        let mut difference = Difference::default();
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(found.len());
        for (place, field) in found.iter().enumerate() {
            if places.insert(&field.name, place).is_some() {
                difference.repeated.push(field.name.to_string());
            }
        }
        let mut order = Vec::with_capacity(known.len());
        for field in known {
            match places.remove(&*field.name) {
                Some(place) => {
                    order.push(place);
                    if found[place].dims != field.dims {
                        difference.resized.push(field.name.to_string());
                    }
                }
                None => difference.missing.push(field.name.to_string()),
            }
        }
        let mut extra: Vec<usize> = places.into_values().collect();
        extra.sort_unstable();
        let extra = extra.into_iter().map(|place| found[place].name.to_string());
        difference.extra.extend(extra);
        if difference == Difference::default() {
            Ok(order)
        } else {
            Err(difference)
        }
    }
}

/// How the fields of some data differ from those of other data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    missing: Vec<String>,
    extra: Vec<String>,
    repeated: Vec<String>,
    resized: Vec<String>,
}

/// As the rest of a sentence about the data.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("lacks", &self.missing),
            ("also has", &self.extra),
            ("has several columns named", &self.repeated),
            ("has a different number of values in", &self.resized),
        ];
        let parts = parts.iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts
            .map(|(what, names)| format!("{what} {}", shortened(names)))
            .collect();
        f.write_str(&parts.join(" and "))
    }
}

fn shortened(names: &[String]) -> String {
    const MOST: usize = 10;
    let shown: Vec<String> = names.iter().take(MOST).map(|n| format!("{n:?}")).collect();
    match names.len().saturating_sub(MOST) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn fields(names: &[&str]) -> FieldSpecs {
        let field = |name: &&str| FieldSpec::new(name, DType::F32, &[]);
        FieldSpecs(names.iter().map(field).collect())
    }

    fn check(found: &[&str], expected: Result<Vec<usize>, &str>) {
        let known = Schema {
            fields: fields(&["a", "b", "c"]),
            label: None,
            codes: Vec::new(),
            crosses: Vec::new(),
        };
        let places = known.places_in(&fields(found));
        let places = places.map_err(|difference| difference.to_string());
        assert_eq!(places, expected.map_err(str::to_string), "{found:?}");
    }

    #[test]
    fn fields_are_found_by_name() {
        check(&["a", "b", "c"], Ok(vec![0, 1, 2]));
        check(&["c", "a", "b"], Ok(vec![1, 2, 0]));
        check(&["c", "a"], Err("lacks \"b\""));
        check(
            &["c", "a", "x", "d"],
            Err("lacks \"b\" and also has \"x\", \"d\""),
        );
        check(
            &["c", "a", "b", "a"],
            Err("has several columns named \"a\""),
        );
        // Two fields may have the same name if no field has moved.
        let twice = Schema {
            fields: fields(&["a", "a"]),
            label: None,
            codes: Vec::new(),
            crosses: Vec::new(),
        };
        assert_eq!(twice.places_in(&fields(&["a", "a"])), Ok(vec![0, 1]));
        let wide = FieldSpecs(vec![FieldSpec::new("a", DType::F32, &[Some(2)])]);
        let one = Schema {
            fields: fields(&["a"]),
            label: None,
            codes: Vec::new(),
            crosses: Vec::new(),
        };
        let error = one.places_in(&wide).unwrap_err().to_string();
        assert_eq!(error, "has a different number of values in \"a\"");
    }

    #[test]
    fn what_a_model_keeps_is_read_back() {
        let schema = Schema {
            fields: FieldSpecs(vec![
                FieldSpec::new("x, ü", DType::F32, &[]),
                FieldSpec::new("v", DType::I64, &[Some(3), None]),
            ]),
            label: Some("y".to_string()),
            codes: Vec::new(),
            crosses: Vec::new(),
        };
        let text = serde_json::to_string(&schema).unwrap();
        assert!(
            text.contains("{\"name\":\"x, ü\",\"dtype\":\"float32\"}"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Schema>(&text).unwrap(), schema);
    }

    #[test]
    fn damaged_codes_have_no_features() {
        let with = |codes: Vec<ColumnCode>, crosses: Vec<Cross>| Schema {
            fields: fields(&["a", "b"]),
            label: None,
            codes,
            crosses,
        };
        let bins = |edges: &[f64]| ColumnCode::Bins {
            edges: edges.to_vec(),
            missing: true,
        };
        let offset = || ColumnCode::Offset { exposure: true };
        let cross = |columns: &[usize], bits| Cross {
            columns: columns.to_vec(),
            bits,
        };
        let both = || vec![bins(&[1.0, 2.0]), offset()];
        let sound = with(both(), vec![cross(&[0, 1], 3)]);
        assert_eq!((sound.features(), sound.offset()), (Some(13), Some(4)));
        let names = ["a < 1", "a 1 to 2", "a >= 2", "a missing", "ln b"];
        assert_eq!(sound.feature_names(), names);
        for damaged in [
            with(both(), vec![cross(&[0, 2], 3)]),
            with(both(), vec![cross(&[0], 3)]),
            with(both(), vec![cross(&[0, 1], 0)]),
            with(both(), vec![cross(&[0, 1], 31)]),
            with(vec![bins(&[2.0, 1.0]), offset()], Vec::new()),
            with(vec![offset(), offset()], Vec::new()),
            with(vec![ColumnCode::Hash { bits: 0 }, offset()], Vec::new()),
            with(Vec::new(), vec![cross(&[0, 1], 3)]),
        ] {
            assert_eq!(damaged.features(), None, "{damaged:?}");
        }
    }
}
