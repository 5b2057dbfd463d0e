//! The output of every data pipeline: batches of named arrays.
//!
//! ```
//! use pelton_batch::{Array, Batch};
//!
//! let mut batch = Batch {
//!     ids: vec![7, 3],
//!     ..Batch::default()
//! };
//! batch.fields.insert("label".into(), Array::from_slice(&[1_i64, 0]));
//! assert_eq!(batch.values::<i64>("label"), Some(&[1, 0][..]));
//! ```
//!
//! An [`Array`] is a [`DType`], a [`Shape`] and a [`Buffer`]. The buffer is aligned to 64 bytes and goes back to its
//! [`Pool`] when the last array that shares it is dropped. So a tensor of another library can borrow it without a
//! copy, as long as it holds the array. A [`Batch`] is a step of a plan with its arrays by name: "image", "tokens",
//! "label". A [`FieldSpec`] describes such a field before a batch exists, and a [`Schema`] the columns or fields that
//! a model was trained on.

mod array;
mod batch;
mod buffer;
mod column_code;
mod dtype;
mod schema;
mod shape;
mod spec;

pub use array::Array;
pub use batch::{Batch, Fields};
pub use buffer::{Buffer, Pool};
pub use column_code::{ColumnCode, Cross, MOST_HASH_BITS, Slashes};
pub use dtype::{DType, Element};
pub use schema::{Difference, Schema};
pub use shape::{Layout, Shape};
pub use spec::{FieldSpec, FieldSpecs};
