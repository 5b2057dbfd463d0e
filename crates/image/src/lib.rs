//! Images for training: encoded bytes to pixels, and pixels to examples that differ each time.
//!
//! ```
//! use pelton_image::{Layout, Output, Pipeline, Pixels, Workspace, example_key};
//! use pelton_key::{Stage, key};
//!
//! // What decode() would have filled.
//! let mut pixels = Pixels::new();
//! pixels.set(2, 3, 1, Layout::Hwc, &[10, 20, 30, 40, 50, 60]);
//!
//! let pipeline: Pipeline = "resize:4x6,flip:1".parse()?;
//! let mut batch = vec![0; 2 * pipeline.sample_bytes(pelton_image::Values::Bytes).unwrap()];
//! let mut work = Workspace::new();
//! for (copy, out) in batch.chunks_exact_mut(4 * 6 * 3).enumerate() {
//!     let key = example_key(key(7, 0, Stage::Augment), 123, copy as u32);
//!     pipeline.apply(&pixels, key, &mut work, Output::Bytes(out))?;
//! }
//! assert_eq!(batch[..3], [30, 30, 30]);
//! # Ok::<(), pelton_image::ImageError>(())
//! ```
//!
//! ```text
//! bytes of a file → decode → Pixels → Pipeline::apply(key) → the caller's part of a batch
//! ```
//!
//! [`decode`] recognises JPEG, PNG, WebP, BMP, GIF, PNM and TIFF by their first bytes and gives RGB or grey bytes; an
//! image that declares too many pixels, is cut short or damaged is an [`ImageError`]. A [`Pipeline`] is a list of
//! [`Augment`]s (each a [`Step`] with its numbers), spelt like `rrc:224,flip,normalise`. It applies them to [`Pixels`]
//! and writes bytes or floats, in either [`Layout`], straight into a slice. All randomness comes from one key an
//! example: the same key gives the same pixels on any thread, and moves the pixels of a mask in the same way.
//! [`example_key`] derives it from the epoch's key, the example's id and the index of its copy.
//!
//! Decoding and augmenting reuse memory: one [`Pixels`] and one [`Workspace`] a thread.
//!
//! A crop only narrows the region, a flip only sets a mark, and a resize waits until its pixels are needed. So
//! `rrc:224,flip` reads the decoded image once and writes 224 x 224 pixels, without a copy of the crop. Other pipelines
//! copy when a stage changes pixels.

#![warn(clippy::wildcard_enum_match_arm)]

mod huffman;
mod orientation;
mod scratch;

mod layout;

mod pixels;

// The errors of other crates' decoders grow with their versions.
#[expect(clippy::wildcard_enum_match_arm)]
mod decode;

mod steps;

mod boxes;

mod pipeline;

mod frame;

mod affine;
mod crop;

mod colour;

mod write;

mod format;

mod error;

pub use decode::{Keep, Limits, decode, decode_for, decode_keeping, orientation};
pub use error::ImageError;
pub use format::Format;
pub use frame::Workspace;
pub use layout::{Layout, interleave, separate};
pub use orientation::Orientation;
pub use pipeline::{Output, Pipeline, Values};
pub use pixels::Pixels;
pub use steps::{Augment, Step};

use pelton_key::KeyedRng;

/// The key of one appearance of an example. `copy` is the index of the appearance within an epoch, which exceeds 0
/// if examples are echoed before augmentation. `epoch_key` is that of [`pelton_key::Stage::Augment`].
pub fn example_key(epoch_key: u64, id: u64, copy: u32) -> u64 {
    let of_id = KeyedRng::at(epoch_key, id).next_u64();
    KeyedRng::at(of_id, u64::from(copy)).next_u64()
}
