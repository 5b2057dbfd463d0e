//! Batches: what one rank uses in one step.

use std::sync::Arc;

use crate::array::Array;
use crate::dtype::Element;

/// One batch: what one rank uses in one step. Each field has one sample an example, in the order of `ids`.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step of the epoch's plan; repeats chosen by waiting have the step of the batch after them.
    pub step: u64,
    /// Whether it is the last of its epoch.
    pub ends_epoch: bool,
    /// Record ids.
    pub ids: Vec<u64>,
    /// How often each example came out before in this epoch, 0 for a fresh one.
    pub copies: Vec<u32>,
    /// Index of the bucket, if there are buckets.
    pub bucket: Option<u32>,
    /// Examples in the step over all ranks, bad ones included.
    pub global_examples: u64,
    /// The arrays by name.
    pub fields: Fields,
}

impl Batch {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether every example of it was left out as bad.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Examples that appear for the first time in this epoch.
    pub fn fresh(&self) -> u64 {
        self.copies.iter().filter(|&&copy| copy == 0).count() as u64
    }

    /// The array of this name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.fields.get(name)
    }

    /// The numbers of the array of this name; `None` if there is none, or if they are of another type.
    pub fn values<T: Element>(&self, name: &str) -> Option<&[T]> {
        self.get(name)?.values()
    }
}

/// Arrays by name, in the order of insertion.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<(Arc<str>, Array)>);

impl Fields {
    /// Adds an array, replacing one of the same name.
    pub fn insert(&mut self, name: Arc<str>, array: Array) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = array,
            None => self.0.push((name, array)),
        }
    }

    /// The array of this name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        let (_, array) = self.0.iter().find(|(known, _)| &**known == name)?;
        Some(array)
    }

    /// Takes the array of this name out.
    pub fn remove(&mut self, name: &str) -> Option<Array> {
        let i = self.0.iter().position(|(known, _)| &**known == name)?;
        Some(self.0.remove(i).1)
    }

    /// Names and arrays.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.0.iter().map(|(name, array)| (&**name, array))
    }

    /// Number of arrays.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no arrays.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_go_by_name() {
        let mut batch = Batch {
            ids: vec![3, 4],
            copies: vec![0, 1],
            ..Batch::default()
        };
        batch
            .fields
            .insert("label".into(), Array::from_slice(&[1i64, 0]));
        batch
            .fields
            .insert("weight".into(), Array::from_slice(&[0.5f32, 2.0]));
        batch
            .fields
            .insert("label".into(), Array::from_slice(&[2i64, 0]));
        assert_eq!(batch.values::<i64>("label"), Some(&[2, 0][..]));
        assert_eq!(batch.values::<f32>("label"), None);
        assert_eq!((batch.len(), batch.fresh()), (2, 1));
        let names: Vec<&str> = batch.fields.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["label", "weight"]);
        assert!(batch.fields.remove("weight").is_some());
        assert_eq!((batch.fields.len(), batch.fields.is_empty()), (1, false));
        assert!(batch.get("weight").is_none());
    }
}
