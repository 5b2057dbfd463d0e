//! Jobs on data, one module a job: [`mod@bench`] measures a feed without training, [`buckets`] the cost of padding
//! sentences, [`mod@vocabulary`] counts words, [`mod@glyphs`] draws the characters of fonts, [`data_tools`] index,
//! show, pack and probe. Nothing here prints; jobs report events to an [`Observer`](pelton_run::Observer).

pub mod bench;
pub mod buckets;
pub mod data_tools;
pub mod glyphs;
pub mod picture;
pub mod vocabulary;

pub use pelton_feed::{
    BadExamples, Collate, DecodeSetting, EchoSetting, Exif, LengthRange, LengthSetting,
    PipelineConfig, SampleSetting,
};
pub use pelton_image::Pipeline;
pub use pelton_plan::BucketPolicy;
pub use pelton_run::write_atomically;

/// Entry points over plain bytes, for fuzzing.
#[doc(hidden)]
pub mod raw;
