//! Settings of a pipeline from records to batches: their types, spelling and help texts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pelton_format::ClassName;
use pelton_image::{Augment, Pipeline};
use pelton_plan::{BucketPolicy, Echo, Last};
use pelton_storage::path_text;
use pelton_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::collation::Collation;
use crate::field_setting::{FieldKind, FieldSetting};
use crate::options::{AutoEcho, BadExamples, EchoPoint};
use crate::settings;
use crate::settings::{list, on, path, some, some_list, value};
use crate::stages::{DecodeImages, Exif};

settings! {
    /// How records are processed into batches.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct PipelineConfig: "Stages" {
        #[serde(with = "as_text")]
        decode: DecodeSetting = DecodeSetting::None, flag(One, value, help DecodeSetting::HELP), "How records become samples";
        #[serde(with = "path_text", skip_serializing_if = "Option::is_none")]
        vocabulary: Option<PathBuf> = None, flag(One, path, of "FILE", needs "decode"),
            "Vocabulary for `decode` words, as written by `pelton vocabulary` (default: the words of the data, counted once and kept in the cache folder)";
        #[serde(with = "as_text")]
        exif: Exif = Exif::Ignore, flag(One, value, help PipelineConfig::EXIF_HELP), "How to treat the orientations of pictures";
        #[serde(skip_serializing_if = "Option::is_none")]
        max_megapixels: Option<u64> = None, flag(One, some, of "MILLIONS"),
            "Largest picture in megapixels; larger ones are bad records (default: 100)";
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        augment: Option<Pipeline> = None, flag(One, some, help PipelineConfig::augment_help()), "Augmentation of pictures";
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        echo: Option<EchoSetting> = None, flag(One, some, help EchoSetting::HELP), "Repeats";
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        buckets: Option<BucketPolicy> = None, flag(One, some, help PipelineConfig::BUCKETS_HELP), "How examples are batched by length";
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        lengths: Option<LengthSetting> = None, flag(One, some, of "WHERE", help LengthSetting::HELP), "The source of lengths, if not the bytes or tokens of records";
        #[serde(with = "as_text")]
        collate: Collation = Collation::default(), flag(One, value, help PipelineConfig::COLLATE_HELP), "How samples are collated";
        #[serde(with = "as_text")]
        last: Last = Last::default(), flag(One, value, of "even|short|drop", help PipelineConfig::LAST_HELP), "What becomes of examples that fill no batch";
        planar: bool = false, flag(Switch, on), "Output pictures with channels first";
        #[serde(skip_serializing_if = "Option::is_none")]
        mix: Option<Vec<f64>> = None, flag(Commas, some_list, of "SHARE"),
            "Shares of the files in a mixture, such as 0.7,0.3, in the order of the files";
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        sample: Option<SampleSetting> = None, flag(One, some, of "WHICH", help SampleSetting::HELP), "The records of an epoch, if not each of them once";
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch_examples: Option<u64> = None, flag(One, some, of "N"),
            "Examples of an epoch of `mix`, or of `sample` balanced or weights (default: as many as there are records)";
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        keep_lengths: Option<LengthRange> = None, flag(One, some, of "FROM..TO", help LengthRange::HELP), "Lengths of records that are kept, in tokens if text is decoded, otherwise in bytes";
        keep_classes: Vec<ClassName> = Vec::new(), flag(Commas, list, of "CLASS"),
            "Keep records of these classes only, such as cat,dog or 3,5: by name if classes have names, otherwise by label";
        #[serde(with = "as_text")]
        bad_examples: BadExamples = BadExamples::Fail, "What to do with bad examples";
        #[serde(skip_serializing_if = "Option::is_none")]
        read_threads: Option<usize> = None, flag(One, some),
            "Threads that read, in addition to those of the stages (default: 2, or 8 for data on a server)";
    }
}

impl PipelineConfig {
    /// The files that it reads.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let lengths = match &self.lengths {
            Some(LengthSetting::File(file)) => Some(file),
            _ => None,
        };
        let sample = match &self.sample {
            Some(SampleSetting::Weights(file) | SampleSetting::Ids(file)) => Some(file),
            _ => None,
        };
        let files = [self.vocabulary.as_ref(), lengths, sample];
        files.into_iter().flatten().map(PathBuf::as_path)
    }

    /// For measuring: every record once, in the order of the files, without chance.
    #[must_use]
    pub fn evaluation(&self) -> PipelineConfig {
        PipelineConfig {
            augment: self.augment.as_ref().map(|all| all.evaluation()),
            echo: None,
            buckets: None,
            lengths: None,
            last: Last::default(),
            mix: None,
            sample: None,
            epoch_examples: None,
            keep_lengths: None,
            ..self.clone()
        }
    }

    /// Most pixels of a picture.
    pub fn most_pixels(&self) -> u64 {
        let pixels = self
            .max_megapixels
            .map(|most| most.saturating_mul(1_000_000));
        pixels.unwrap_or(DecodeImages::MOST_PIXELS)
    }
}

/// A line of help for each setting parsed in another module.
impl PipelineConfig {
    /// On `exif`.
    pub const EXIF_HELP: &str = "EXIF orientation of pictures, as phones write it: ignore (default, as in torchvision) or apply";
    /// On `augment`.
    pub fn augment_help() -> String {
        let steps = Augment::help();
        format!(
            "Augmentation of pictures, stages with commas between them, such as rrc:224,flip: {steps}"
        )
    }
    /// On `last`.
    pub const LAST_HELP: &str = "Examples that fill no batch at the end of an epoch or bucket: even (default: the last two batches share what is left), short (a smaller last batch) or drop";
    /// On `buckets`.
    pub const BUCKETS_HELP: &str = "Batches of similar lengths: none, static:LENGTH,LENGTH,… (of pairs static:LENGTHxLENGTH,…), auto, optimal:BUCKETS, tokens:MAX or pack:ROW_LENGTH[:LOOK_AHEAD] (8192); lengths in tokens where words or bytes are decoded, otherwise in bytes; records of several fields need `lengths`";
    /// On `collate`.
    pub const COLLATE_HELP: &str = "How samples are collated: auto (default: what the stages need), stack (one shape), pad (to the longest) or ragged (with offsets); pad:NUMBER pads with another number than 0, FIELD=pad and the like are for one field, and multiple:8 pads to a multiple, all with commas between them";
}

/// How records become samples, as text: `none`, `jpg`, `png`, `webp`, `image`, `image:FIELD`, `words`, `bytes`,
/// `pairs`, `pairs:bytes` or `member:EXT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DecodeSetting {
    /// Bytes as they are.
    #[default]
    None,
    /// Pictures of the named kind, or any.
    Image(String),
    /// Text as numbers of a vocabulary, which is built first unless it is given or cached.
    Text(Tokenizer),
    /// The same of two sentences with a tab between them.
    Pairs(Tokenizer),
    /// The bytes of a tar member.
    Member(String),
    /// Several members of a tar sample, or fields of a record, each with its name in the batch.
    Fields(Vec<FieldSetting>),
}

impl DecodeSetting {
    /// A line of help.
    pub const HELP: &str = "Samples from records: none, jpg (or jpeg), png, webp, image (any of these; image:FIELD for one of several fields of bytes), words or bytes (indices of a vocabulary), pairs or pairs:bytes (words or bytes of two sentences with a tab between them), member:EXTENSION (of a tar file), or several members as fields: NAME=EXTENSION,… as in image=jpg,mask=png,caption=txt,score=json:score,box=json:box:f32[4] (masks are augmented as pictures are)";

    /// Whether it makes pictures of files that may state an orientation.
    pub fn makes_pictures(&self) -> bool {
        match self {
            DecodeSetting::Image(_) => true,
            DecodeSetting::Fields(fields) => {
                fields.iter().any(|field| field.kind == FieldKind::Picture)
            }
            _ => false,
        }
    }
}

impl FromStr for DecodeSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<DecodeSetting, String> {
        match text {
            "none" => return Ok(DecodeSetting::None),
            "words" => return Ok(DecodeSetting::Text(Tokenizer::Whitespace)),
            "bytes" => return Ok(DecodeSetting::Text(Tokenizer::Bytes)),
            "pairs" => return Ok(DecodeSetting::Pairs(Tokenizer::Whitespace)),
            "pairs:bytes" => return Ok(DecodeSetting::Pairs(Tokenizer::Bytes)),
            _ => {}
        }
        if text.contains('=') {
            return FieldSetting::all(text).map(DecodeSetting::Fields);
        }
        if let Some(extension) = text.strip_prefix("member:").filter(|e| !e.is_empty()) {
            return Ok(DecodeSetting::Member(extension.to_owned()));
        }
        match DecodeImages::from_kind(text) {
            Some(_) => Ok(DecodeSetting::Image(text.to_owned())),
            None => Err(format!(
                "`{text}` is not a decoder: use none, image, jpg, png, webp, bmp, gif, ppm, tif, words, bytes, pairs, pairs:bytes, member:EXTENSION or fields as in image=jpg,mask=png"
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
            DecodeSetting::Pairs(Tokenizer::Whitespace) => f.write_str("pairs"),
            DecodeSetting::Pairs(_) => f.write_str("pairs:bytes"),
            DecodeSetting::Member(extension) => write!(f, "member:{extension}"),
            DecodeSetting::Fields(fields) => {
                let fields: Vec<String> = fields.iter().map(FieldSetting::to_string).collect();
                f.write_str(&fields.join(","))
            }
        }
    }
}

/// Repeats, as text: `read:E[:WINDOW]`, `before:E[:WINDOW]`, `after:E[:WINDOW]`, `batch:E[:WINDOW]` or `auto[:MOST]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EchoSetting {
    /// Of examples.
    Examples(Echo, EchoPoint),
    /// Of batches.
    Batches(Echo),
    /// Whenever the consumer would wait.
    Auto(AutoEcho),
}

impl FromStr for EchoSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<EchoSetting, String> {
        let bad = || {
            format!(
                "`{text}` is not an echo: use read:FACTOR[:WINDOW], before:FACTOR[:WINDOW], after:FACTOR[:WINDOW], batch:FACTOR[:WINDOW] or auto[:MOST]"
            )
        };
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let echo = |text: &str| text.parse::<Echo>().map_err(|error| error.to_string());
        match (kind, rest) {
            ("read", Some(rest)) => Ok(EchoSetting::Examples(echo(rest)?, EchoPoint::Read)),
            ("before", Some(rest)) => {
                Ok(EchoSetting::Examples(echo(rest)?, EchoPoint::BeforeAugment))
            }
            ("after", Some(rest)) => {
                Ok(EchoSetting::Examples(echo(rest)?, EchoPoint::AfterAugment))
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

impl fmt::Display for EchoSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EchoSetting::Examples(echo, point) => write!(f, "{point}:{echo}"),
            EchoSetting::Batches(echo) => {
                write!(f, "batch:{echo}")
            }
            EchoSetting::Auto(auto) => write!(f, "auto:{}", auto.most),
        }
    }
}

impl EchoSetting {
    /// A line of help.
    pub const HELP: &str = "Repeats: read:FACTOR[:WINDOW] (records before they are decoded), before:FACTOR[:WINDOW] or after:FACTOR[:WINDOW] augmentation, batch:FACTOR[:WINDOW], or auto[:MOST] (only when the consumer would wait); a factor such as 2 or 1.5, a window of WINDOW examples (1024) or batches (4) held for repeats, at most a tenth of an epoch unless given";

    /// Repeats of examples for the plan.
    pub fn of_examples(self) -> Echo {
        match self {
            EchoSetting::Examples(echo, _) => echo,
            _ => Echo::NONE,
        }
    }

    /// Repeats of batches for the plan.
    pub fn of_batches(self) -> Echo {
        match self {
            EchoSetting::Batches(echo) => echo,
            _ => Echo::NONE,
        }
    }

    /// The stage at which examples are repeated.
    pub fn point(self) -> EchoPoint {
        match self {
            EchoSetting::Examples(_, point) => point,
            _ => EchoPoint::default(),
        }
    }

    /// Repeats by waiting.
    pub fn auto(self) -> Option<AutoEcho> {
        match self {
            EchoSetting::Auto(auto) => Some(auto),
            _ => None,
        }
    }
}

/// Which records an epoch uses, as text: `balanced`, `weights:FILE` or `ids:FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleSetting {
    /// Every class equally often, cycling through the records of each class.
    Balanced,
    /// Drawn with replacement by the weights of a file, one a record.
    Weights(PathBuf),
    /// Those that a file lists.
    Ids(PathBuf),
}

impl SampleSetting {
    /// A line of help.
    pub const HELP: &str = "Which records an epoch uses: balanced (every class as often as every other), weights:FILE.npy (drawn with replacement, one weight a record), or ids:FILE.npy (indices of records, each as often as listed)";
}

impl FromStr for SampleSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<SampleSetting, String> {
        match text.split_once(':') {
            None if text == "balanced" => Ok(SampleSetting::Balanced),
            Some(("weights", file)) if !file.is_empty() => Ok(SampleSetting::Weights(file.into())),
            Some(("ids", file)) if !file.is_empty() => Ok(SampleSetting::Ids(file.into())),
            _ => Err(format!(
                "`{text}` does not say which records to use: use balanced, weights:FILE.npy or ids:FILE.npy"
            )),
        }
    }
}

impl fmt::Display for SampleSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleSetting::Balanced => f.write_str("balanced"),
            SampleSetting::Weights(file) => write!(f, "weights:{}", file.display()),
            SampleSetting::Ids(file) => write!(f, "ids:{}", file.display()),
        }
    }
}

/// The source of record lengths, as text: `field:NAME`, or an `.npy` file of one number a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LengthSetting {
    /// A field of the records: its value if it is one whole number, otherwise its elements along the first dimension.
    Field(String),
    /// A file.
    File(PathBuf),
}

impl LengthSetting {
    /// A line of help.
    pub const HELP: &str = "Lengths of records for buckets and filters by length: field:NAME (a number in each record, or the length of an array or text there), or FILE.npy (one number a record)";
}

impl FromStr for LengthSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<LengthSetting, String> {
        match text.strip_prefix("field:") {
            _ if text.is_empty() => Err("name field:NAME or a file of lengths".to_owned()),
            Some("") => Err("`field:` names no field; give field:NAME".to_owned()),
            Some(name) => Ok(LengthSetting::Field(name.to_owned())),
            None => Ok(LengthSetting::File(text.into())),
        }
    }
}

impl fmt::Display for LengthSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LengthSetting::Field(name) => write!(f, "field:{name}"),
            LengthSetting::File(file) => file.display().fmt(f),
        }
    }
}

/// Lengths from one to another, both included, as text: `FROM..TO`; either may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthRange {
    /// The least.
    pub from: u32,
    /// The most.
    pub to: u32,
}

impl LengthRange {
    /// A line of help.
    pub const HELP: &str =
        "Keep only records with these lengths, such as 5..60, in the unit of the buckets";

    /// Whether to keep a record of this length.
    pub fn contains(self, length: u32) -> bool {
        (self.from..=self.to).contains(&length)
    }
}

impl fmt::Display for LengthRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from, self.to)
    }
}

impl FromStr for LengthRange {
    type Err = String;

    fn from_str(text: &str) -> Result<LengthRange, String> {
        let end = |end: &str, open: u32| match end {
            "" => Some(open),
            end => end.parse().ok(),
        };
        text.split_once("..")
            .and_then(|(from, to)| Some((end(from, 0)?, end(to, u32::MAX)?)))
            .filter(|(from, to)| from <= to)
            .map(|(from, to)| LengthRange { from, to })
            .ok_or_else(|| {
                format!("`{text}` is not a range of lengths; give FROM..TO, both included")
            })
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
            "pairs",
            "pairs:bytes",
            "member:json",
            "image=jpg,caption=txt,mask=seg.png",
            "a=json:x.y,b=json:box:f32[4],c=npy:u8[2,3],d=cls,e=npy,f=txt:i64[]",
            "image=image/encoded:image,id=id",
        ] {
            let setting: DecodeSetting = text.parse().unwrap();
            assert_eq!(setting.to_string(), text);
        }
        for text in ["", "avif", "member:"] {
            let error = text.parse::<DecodeSetting>().unwrap_err();
            assert!(error.contains("use none, image"), "{error}");
        }
        let echo = |text: &str| text.parse::<EchoSetting>().unwrap();
        let of = |text: &str| text.parse::<Echo>().unwrap();
        let before = EchoSetting::Examples(of("2:64"), EchoPoint::BeforeAugment);
        assert_eq!(echo("before:2:64"), before);
        let after = EchoSetting::Examples(of("1.5"), EchoPoint::AfterAugment);
        assert_eq!(echo("after:1.5"), after);
        assert_eq!(echo("batch:3"), EchoSetting::Batches(of("3")));
        assert_eq!(echo("batch:3:9"), EchoSetting::Batches(of("3:9")));
        for text in [
            "read:2.5:64",
            "before:2:64",
            "after:1.5",
            "batch:3:4",
            "batch:1.5",
            "auto:5",
        ] {
            assert_eq!(echo(text).to_string(), text);
        }
        for text in ["balanced", "weights:w.npy", "ids:a:b.npy"] {
            let setting: SampleSetting = text.parse().unwrap();
            assert_eq!(setting.to_string(), text);
        }
        for text in ["field:tokens", "lengths.npy"] {
            let setting: LengthSetting = text.parse().unwrap();
            assert_eq!(setting.to_string(), text);
        }
        assert!("".parse::<LengthSetting>().is_err());
        assert!("field:".parse::<LengthSetting>().is_err());
        for text in ["", "weights", "ids:", "balanced:2"] {
            let error = text.parse::<SampleSetting>().unwrap_err();
            assert!(error.contains("use balanced, weights"), "{error}");
        }
        assert!(matches!(echo("auto:5"), EchoSetting::Auto(auto) if auto.most == 5.0));
        for text in [
            "", "2", "read", "read:0.5", "before", "before:0", "batch:x", "auto:0", "auto:x",
            "never:2",
        ] {
            assert!(text.parse::<EchoSetting>().is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_refused_in_a_sentence() {
        let refuses = |text: &str, says: &str| {
            let error = text.parse::<DecodeSetting>().unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        refuses("image=jpg,", "it has no `=`");
        refuses("=jpg", "is missing");
        refuses("a=", "is missing");
        refuses("a=jpg,a=png", "two fields are called `a`");
        refuses("a=json:", "names no key");
        refuses("a=json:x:f99", "`f99` is not picture");
        refuses("a=npy:f32[2", "`]` is missing");
        refuses("a=npy:f32[2,x]", "a length is not a whole number");
        refuses("a=npy:f64[65536,65536]", "more than 2^32 bytes");
        refuses("a=txt:words", "write NAME=EXTENSION");
    }

    #[test]
    fn a_configuration_is_written_and_read() {
        let config = PipelineConfig {
            decode: DecodeSetting::Image("png".to_owned()),
            augment: Some("rrc:8,flip".parse().unwrap()),
            echo: Some("batch:1.5:1024".parse().unwrap()),
            buckets: Some("static:3,9".parse().unwrap()),
            mix: Some(vec![0.5, 0.5]),
            sample: Some("weights:a:b.npy".parse().unwrap()),
            epoch_examples: Some(9),
            lengths: Some("field:n".parse().unwrap()),
            keep_lengths: Some("3..".parse().unwrap()),
            ..PipelineConfig::default()
        };
        for config in [config, PipelineConfig::default()] {
            let text = serde_json::to_string(&config).unwrap();
            let read: PipelineConfig = serde_json::from_str(&text).unwrap();
            assert_eq!(read, config, "{text}");
        }
    }

    #[test]
    fn lengths_are_a_range_with_both_ends() {
        let range = |text: &str| text.parse::<LengthRange>();
        let kept = |text: &str| {
            let range = range(text).unwrap();
            [0, 5, 60, 61].map(|length| range.contains(length))
        };
        assert_eq!(kept("5..60"), [false, true, true, false]);
        assert_eq!(kept("..5"), [true, true, false, false]);
        assert_eq!(kept("60.."), [false, false, true, true]);
        assert_eq!(range("..5").unwrap().to_string(), "0..5");
        for text in ["", "5", "60..5", "a..b", "-1..5"] {
            assert!(range(text).unwrap_err().contains("give FROM..TO"), "{text}");
        }
    }
}
