//! What is known of the fields of examples before they are there.

use std::sync::Arc;

use crate::dtype::DType;

/// What is known of a field of every example.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldSpec {
    /// Its name.
    pub name: Arc<str>,
    /// What its elements are.
    pub dtype: DType,
    /// Lengths of the dimensions of one example's array; `None` where they vary.
    pub dims: Vec<Option<usize>>,
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

    /// The dimensions, where all are known.
    pub fn known(&self) -> Option<Vec<usize>> {
        self.dims.iter().copied().collect()
    }

    /// Bytes of one example's array, where that is known.
    pub fn bytes(&self) -> Option<usize> {
        let elements: usize = self.known()?.iter().product();
        Some(elements * self.dtype.bytes())
    }
}

/// The fields of every example, in the order in which they come out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSpecs(pub Vec<FieldSpec>);

impl FieldSpecs {
    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&FieldSpec> {
        self.0.iter().find(|field| &*field.name == name)
    }

    /// Puts `field` in the place of the one called `name`; at the end where there is none.
    pub fn replace(&mut self, name: &str, field: FieldSpec) {
        match self.0.iter_mut().find(|known| &*known.name == name) {
            Some(known) => *known = field,
            None => self.0.push(field),
        }
    }

    /// The names, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|field| &*field.name).collect();
        names.join(", ")
    }
}
