//! Jobs on data, one module a job: [`mod@bench`] measures a feed without training, [`buckets`] the cost of padding
//! sentences, [`mod@vocabulary`] counts words, [`data_tools`] index, show, pack and probe. Nothing here
//! prints; jobs report events to an [`Observer`](pelton_run::Observer).
//!
//! ```
//! use pelton_comm::Comm;
//! use pelton_run::{Event, Interrupt, RunContext};
//! use pelton_tools::buckets::{BucketsConfig, LengthSource, Unit, buckets};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("sentences.txt");
//! # std::fs::write(&path, "a short one\nand a sentence of more words\n".repeat(100))?;
//! let config = BucketsConfig {
//!     path,
//!     pair: None,
//!     source: LengthSource::Lines(Unit::Words),
//!     batch: 20,
//!     policies: vec!["none".parse()?, "auto".parse()?],
//! };
//! let (comm, interrupt) = (Comm::alone(), Interrupt::default());
//! let mut observer = |_: Event<'_>| {};
//! let table = buckets(&config, RunContext::new(&comm, &interrupt, &mut observer))?;
//! assert!(table.rows[1].padded_fraction < table.rows[0].padded_fraction);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bench;
pub mod buckets;
pub mod data_tools;
pub mod picture;
pub mod vocabulary;

pub use pelton_feed::{
    BadExamples, Collation, DecodeSetting, EchoSetting, Exif, LengthRange, LengthSetting,
    PipelineConfig, SampleSetting,
};
pub use pelton_image::{Augment, Pipeline};
pub use pelton_plan::{BucketPolicy, Last};

/// Entry points over plain bytes, for fuzzing.
#[doc(hidden)]
pub mod raw;
