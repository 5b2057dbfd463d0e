//! Weights of classes, their own or borrowed.

/// Weights \[len, d\] by rows.
pub trait Table: Sync {
    /// Numbers in a row.
    fn d(&self) -> usize;

    /// How many rows.
    fn len(&self) -> usize;

    /// The numbers of one.
    fn row(&self, row: usize) -> &[f32];

    /// Row of a class, if it is there.
    fn row_of(&self, class: u64) -> Option<usize>;
}
