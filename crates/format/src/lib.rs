//! Where each record lies and what it says.

mod rows;

pub use rows::{Layout, Row, RowTable, Rows, Slot};
