//! The fields of examples, as far as known before they are read.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dtype::DType;

/// A field of every example, as far as known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldSpec {
    /// Its name.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub name: Arc<str>,
    /// The type of its elements.
    pub dtype: DType,
    /// Lengths of the dimensions of one example's array; `None` if they vary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dims: Vec<Option<usize>>,
}

fn write_name<S: Serializer>(name: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name)
}

fn read_name<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(from).map(Arc::from)
}

impl FieldSpec {
    /// A field of this name, type and dimensions.
    pub fn new(name: &str, dtype: DType, dims: &[Option<usize>]) -> FieldSpec {
        FieldSpec {
            name: name.into(),
            dtype,
            dims: dims.to_vec(),
        }
    }

    /// The dimensions, if all are known.
    pub fn known(&self) -> Option<Vec<usize>> {
        self.dims.iter().copied().collect()
    }

    /// Bytes of one example's array, if known.
    pub fn bytes(&self) -> Option<usize> {
        let elements: usize = self.known()?.iter().product();
        Some(elements * self.dtype.bytes())
    }

    /// Names of the elements of one example's array, in order: the field's own name if it has a single element.
    pub fn element_names(&self) -> impl Iterator<Item = String> {
        let count: usize = self.dims.iter().map(|length| length.unwrap_or(0)).product();
        let (name, is_one) = (Arc::clone(&self.name), self.dims.is_empty());
        (0..count).map(move |at| {
            if is_one {
                name.to_string()
            } else {
                format!("{name}[{at}]")
            }
        })
    }
}

/// The fields of every example, in the order of the output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FieldSpecs(pub Vec<FieldSpec>);

impl FieldSpecs {
    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&FieldSpec> {
        self.0.iter().find(|field| &*field.name == name)
    }

    /// Replaces the field called `name` by `field`; appends it if there is none.
    pub fn replace(&mut self, name: &str, field: FieldSpec) {
        match self.0.iter_mut().find(|known| &*known.name == name) {
            Some(known) => *known = field,
            None => self.0.push(field),
        }
    }

    /// Elements of one example's arrays together, if known.
    pub fn elements(&self) -> Option<usize> {
        let elements = |field: &FieldSpec| -> Option<usize> {
            let dims = field.known()?;
            dims.iter().try_fold(1, |all: usize, n| all.checked_mul(*n))
        };
        let mut fields = self.0.iter();
        fields.try_fold(0, |sum: usize, field| sum.checked_add(elements(field)?))
    }

    /// The names, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|field| &*field.name).collect();
        names.join(", ")
    }
}
