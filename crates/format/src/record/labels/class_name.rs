//! A class as the user names it.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// A class as the user names it: by its name if classes have names, otherwise by its label value.
///
/// The text is kept unparsed: `10` is the folder of that name, and the eleventh class only if no class has that name.
/// Configuration files write it as a number if it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    text: String,
}

impl ClassName {
    /// The label value it stands for; `names` are those of the classes 0, 1, 2 …, or empty. `None` if it is neither a
    /// name nor a number.
    pub(crate) fn value_among(&self, names: &[String]) -> Option<f64> {
        let place = names.iter().position(|name| *name == self.text);
        place.map(|place| place as f64).or_else(|| self.number())
    }

    fn number(&self) -> Option<f64> {
        self.text.parse().ok()
    }
}

impl From<f64> for ClassName {
    fn from(value: f64) -> ClassName {
        let text = value.to_string();
        ClassName { text }
    }
}

impl FromStr for ClassName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ClassName, Infallible> {
        let text = text.to_owned();
        Ok(ClassName { text })
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ClassName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Only a number that reads back as the same text.
        match self
            .number()
            .filter(|number| number.to_string() == self.text)
        {
            Some(number) if number.is_finite() => to.serialize_f64(number),
            _ => to.serialize_str(&self.text),
        }
    }
}

impl<'de> Deserialize<'de> for ClassName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ClassName, D::Error> {
        from.deserialize_any(ClassVisitor)
    }
}

struct ClassVisitor;

impl Visitor<'_> for ClassVisitor {
    type Value = ClassName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label: a number or a name")
    }

    fn visit_f64<E>(self, value: f64) -> Result<ClassName, E> {
        Ok(ClassName::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<ClassName, E> {
        let text = value.to_string();
        Ok(ClassName { text })
    }

    fn visit_u64<E>(self, value: u64) -> Result<ClassName, E> {
        let text = value.to_string();
        Ok(ClassName { text })
    }

    fn visit_str<E>(self, text: &str) -> Result<ClassName, E> {
        let text = text.to_owned();
        Ok(ClassName { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> ClassName {
        text.parse().unwrap()
    }

    #[test]
    fn names_come_before_numbers() {
        let names = ["0", "1", "10", "2"].map(String::from);
        for (text, value) in [
            ("2", Some(3.0)),
            ("10", Some(2.0)),
            ("3", Some(3.0)),
            ("x", None),
        ] {
            assert_eq!(class(text).value_among(&names), value, "{text}");
        }
        assert_eq!(class("+1").value_among(&[]), Some(1.0));
        assert_eq!(class("-1.0").value_among(&[]), Some(-1.0));
    }

    #[test]
    fn configurations_keep_them() {
        for (text, written) in [
            ("2", "2.0"),
            ("-1", "-1.0"),
            ("0.5", "0.5"),
            ("03", "\"03\""),
            ("cat", "\"cat\""),
            ("inf", "\"inf\""),
        ] {
            let json = serde_json::to_string(&class(text)).unwrap();
            assert_eq!(json, written);
            assert_eq!(
                serde_json::from_str::<ClassName>(&json).unwrap(),
                class(text)
            );
        }
        assert_eq!(serde_json::from_str::<ClassName>("7").unwrap(), class("7"));
        assert!(serde_json::from_str::<ClassName>("[7]").is_err());
    }
}
