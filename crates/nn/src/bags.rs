//! Sparse rows.

/// Sparse rows: the indices of their features and the values of these, and their classes, of which a row may have
/// several or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bags {
    /// Features of each row.
    pub features: Vec<usize>,
    /// Their indices, row by row.
    pub ids: Vec<u32>,
    /// Their values.
    pub values: Vec<f32>,
    /// Classes of each row; in prediction none.
    pub counts: Vec<usize>,
    /// The classes, row by row.
    pub labels: Vec<i64>,
}

impl Bags {
    /// Some rows, as a separate batch.
    pub(crate) fn part(&self, rows: impl Iterator<Item = usize>) -> Bags {
        let starts = |counts: &[usize]| {
            let mut sum = 0;
            let ends = counts.iter().map(|count| {
                sum += count;
                sum
            });
            std::iter::once(0).chain(ends).collect::<Vec<usize>>()
        };
        let (features, labels) = (starts(&self.features), starts(&self.counts));
        let mut part = Bags::default();
        for at in rows {
            part.features.push(self.features[at]);
            let own = features[at]..features[at + 1];
            part.ids.extend(&self.ids[own.clone()]);
            part.values.extend(&self.values[own]);
            if let Some(count) = self.counts.get(at) {
                part.counts.push(*count);
                part.labels.extend(&self.labels[labels[at]..labels[at + 1]]);
            }
        }
        part
    }
}
