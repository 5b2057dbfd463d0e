//! The data of a visit of a row: its address, its variable and its values.

/// The position of a row in its segment.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RowAddress {
    pub(crate) segment: u32,
    /// First value of a sparse row; number of a dense row.
    pub(crate) start: u32,
    /// Values of the row.
    pub(crate) length: u32,
}

/// All that a visit reads and writes of a row, except its values.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Visit {
    pub(crate) place: RowAddress,
    /// See [`crate::problem`].
    pub(crate) label: u32,
    pub(crate) alpha: f32,
    pub(crate) gradient: f32,
    /// Q_ii and its inverse.
    pub(crate) q: f32,
    pub(crate) inverse_q: f32,
}

/// The arrays of one segment.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) indices: &'a [u32],
}
