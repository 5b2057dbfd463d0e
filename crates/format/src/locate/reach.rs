//! The cost of reading one record.

/// The cost of reading one record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Reach {
    /// One read of its bytes.
    #[default]
    InPlace,
    /// One read for each column.
    Gathered {
        /// Count of separate file offsets with a record's values.
        places: u32,
    },
    /// Computing it, which takes no longer for a single record.
    Computed,
    /// Reading and decoding its whole block.
    Blocks(Blocks),
}

/// Blocks of records that are decoded as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocks {
    /// How many there are.
    pub count: u64,
    /// Mean bytes of one, decoded.
    pub bytes: f64,
    /// Mean bytes of one in the file.
    pub stored_bytes: f64,
    /// Memory of the cached blocks of all files together, in bytes.
    pub kept_bytes: u64,
}
