//! What the stages of a pipeline are asked to be, and how that is spelt.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pelton_feed::{AutoEcho, BadExamples, Collate, DecodeImages, EchoPoint, Exif};
use pelton_format::ClassName;
use pelton_image::Pipeline;
use pelton_plan::{BucketPolicy, Echo};
use pelton_text::Tokenizer;

/// What happens to records behind the feed.
#[derive(Clone, Debug, Default)]
pub struct StagesConfig {
    /// How records become samples.
    pub decode: DecodeSetting,
    /// File of the vocabulary that text is decoded with; where absent, that of the data.
    pub vocabulary: Option<PathBuf>,
    /// What is done with orientations that pictures state.
    pub exif: Exif,
    /// Augmentation of pictures.
    pub augment: Option<Pipeline>,
    /// Repeats.
    pub echo: Option<EchoSetting>,
    /// How examples are put together by length.
    pub buckets: Option<BucketPolicy>,
    /// How samples are put together.
    pub collate: Collate,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
    /// Whether pictures are put out as all of one channel before the next.
    pub planar: bool,
    /// Shares of the files in a mixture, in the order of the files.
    pub mix: Option<Vec<f64>>,
    /// Lengths of records that are kept, in tokens where text is decoded and otherwise in bytes.
    pub keep_lengths: Option<(u32, u32)>,
    /// Classes of records that are kept; where empty, all.
    pub keep_classes: Vec<ClassName>,
    /// What happens to bad examples.
    pub bad_examples: BadExamples,
    /// Time that the consumer spends on each batch.
    pub compute: Duration,
    /// Threads that read.
    pub read_threads: usize,
    /// File that says where the pipeline stands after every batch, and from which it goes on.
    pub state: Option<PathBuf>,
    /// Address at which the counters are served while the pipeline runs.
    pub metrics: Option<String>,
    /// File to which the ids of every batch are appended before its state is saved.
    pub log: Option<PathBuf>,
}

/// How records become samples, as text: `none`, `jpg`, `png`, `webp`, `image`, `words`, `bytes` or `member:EXT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DecodeSetting {
    /// Bytes as they are.
    #[default]
    None,
    /// Pictures of the named kind, or any.
    Image(String),
    /// Text as numbers of a vocabulary, which is counted first unless it is named or was kept.
    Text(Tokenizer),
    /// The bytes of a tar member.
    Member(String),
}

impl FromStr for DecodeSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<DecodeSetting, String> {
        match text {
            "none" => return Ok(DecodeSetting::None),
            "words" => return Ok(DecodeSetting::Text(Tokenizer::Whitespace)),
            "bytes" => return Ok(DecodeSetting::Text(Tokenizer::Bytes)),
            _ => {}
        }
        if let Some(extension) = text.strip_prefix("member:").filter(|e| !e.is_empty()) {
            return Ok(DecodeSetting::Member(extension.to_owned()));
        }
        match DecodeImages::of(text) {
            Some(_) => Ok(DecodeSetting::Image(text.to_owned())),
            None => Err(format!(
                "`{text}` is not a decoder: use none, jpg, png, webp, image, words, bytes or member:EXTENSION"
            )),
        }
    }
}

impl fmt::Display for DecodeSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeSetting::None => f.write_str("none"),
            DecodeSetting::Image(kind) => f.write_str(kind),
            DecodeSetting::Text(Tokenizer::Whitespace) => f.write_str("words"),
            DecodeSetting::Text(_) => f.write_str("bytes"),
            DecodeSetting::Member(extension) => write!(f, "member:{extension}"),
        }
    }
}

/// Repeats, as text: `before:E[:WINDOW]`, `after:E[:WINDOW]`, `batch:E[:WINDOW]` or `auto[:MOST]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EchoSetting {
    /// Of examples.
    Examples(Echo, EchoPoint),
    /// Of batches.
    Batches(Echo),
    /// Where the consumer would wait.
    Auto(AutoEcho),
}

impl FromStr for EchoSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<EchoSetting, String> {
        let bad = || {
            format!(
                "`{text}` is not an echo: use before:FACTOR[:WINDOW], after:FACTOR[:WINDOW], batch:FACTOR[:WINDOW] or auto[:MOST]"
            )
        };
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let echo = |text: &str| text.parse::<Echo>().map_err(|error| error.to_string());
        match (kind, rest) {
            ("before", Some(rest)) => {
                Ok(EchoSetting::Examples(echo(rest)?, EchoPoint::BeforeAugment))
            }
            ("after", Some(rest)) => {
                Ok(EchoSetting::Examples(echo(rest)?, EchoPoint::AfterAugment))
            }
            // Whole batches are large: a window of a few is held.
            ("batch", Some(rest)) if !rest.contains(':') => {
                Ok(EchoSetting::Batches(echo(&format!("{rest}:4"))?))
            }
            ("batch", Some(rest)) => Ok(EchoSetting::Batches(echo(rest)?)),
            ("auto", None) => Ok(EchoSetting::Auto(AutoEcho::default())),
            ("auto", Some(most)) => match most.parse() {
                Ok(most) if (1.0..=1000.0).contains(&most) => Ok(EchoSetting::Auto(AutoEcho {
                    most,
                    ..AutoEcho::default()
                })),
                _ => Err(bad()),
            },
            _ => Err(bad()),
        }
    }
}

impl EchoSetting {
    pub(super) fn of_examples(this: Option<EchoSetting>) -> Echo {
        match this {
            Some(EchoSetting::Examples(echo, _)) => echo,
            _ => Echo::NONE,
        }
    }

    pub(super) fn of_batches(this: Option<EchoSetting>) -> Echo {
        match this {
            Some(EchoSetting::Batches(echo)) => echo,
            _ => Echo::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_or_are_refused_in_a_sentence() {
        for text in [
            "none",
            "jpg",
            "png",
            "webp",
            "image",
            "words",
            "bytes",
            "member:json",
        ] {
            let setting: DecodeSetting = text.parse().unwrap();
            assert_eq!(setting.to_string(), text);
        }
        for text in ["", "gif", "member:"] {
            let error = text.parse::<DecodeSetting>().unwrap_err();
            assert!(error.contains("use none, jpg"), "{error}");
        }
        let echo = |text: &str| text.parse::<EchoSetting>().unwrap();
        let of = |text: &str| text.parse::<Echo>().unwrap();
        let before = EchoSetting::Examples(of("2:64"), EchoPoint::BeforeAugment);
        assert_eq!(echo("before:2:64"), before);
        let after = EchoSetting::Examples(of("1.5"), EchoPoint::AfterAugment);
        assert_eq!(echo("after:1.5"), after);
        assert_eq!(echo("batch:3"), EchoSetting::Batches(of("3:4")));
        assert_eq!(echo("batch:3:9"), EchoSetting::Batches(of("3:9")));
        assert!(matches!(echo("auto:5"), EchoSetting::Auto(auto) if auto.most == 5.0));
        for text in [
            "", "2", "before", "before:0", "batch:x", "auto:0", "auto:x", "never:2",
        ] {
            assert!(text.parse::<EchoSetting>().is_err(), "{text}");
        }
    }
}
