//! The list of formats.

use crate::arrays::cifar::Cifar;
use crate::arrays::fvecs::Fvecs;
use crate::arrays::idx::Idx;
use crate::arrays::megatron::Documents;
use crate::arrays::mixture::Mixtures;
use crate::arrays::npy::matrix::Npy;
use crate::arrays::npz::Npz;
use crate::arrays::packed::rows::Packed;
use crate::arrays::raw_records::RawRecords;
use crate::arrays::windows::Windows;
#[cfg(feature = "columns")]
use crate::columns::{Columns, Kind};
use crate::locate::format::{Format, Match};
use crate::record::kind::{FormatKind, Head, Look};
use crate::samples::array_record::ArrayRecord;
use crate::samples::folder::Folder;
use crate::samples::shard::litdata::LitData;
use crate::samples::shard::mds::Mds;
use crate::samples::tar::Tar;
use crate::samples::tfrecord::TfRecord;
use crate::text::delimited::table::Delimited;
use crate::text::delimited::texts::Texts;
use crate::text::json_lines::JsonLines;
use crate::text::libsvm::lines::Libsvm;
use crate::text::libsvm::several::Several;
use crate::text::lines::Text;
use crate::text::stream::{Bytes, Tokens};

/// All formats. If two recognise a file equally well, the first is used.
static FORMATS: &[&dyn Format] = &[
    &Libsvm,
    &Delimited {
        name: "csv",
        delimiter: b',',
        look: Look::Csv,
    },
    &Delimited {
        name: "tsv",
        delimiter: b'\t',
        look: Look::Tsv,
    },
    &Texts {
        name: "csv",
        delimiter: b',',
    },
    &Texts {
        name: "tsv",
        delimiter: b'\t',
    },
    &Npy,
    &Packed,
    &Text,
    &Several,
    &Idx,
    &Cifar::TEN,
    &Cifar::HUNDRED,
    &Tar,
    &Folder,
    &Tokens,
    &Bytes,
    &RawRecords,
    &Windows,
    &Documents,
    &JsonLines { selects: false },
    &JsonLines { selects: true },
    &Npz { selects: false },
    &Npz { selects: true },
    &Mixtures,
    &Fvecs,
    &TfRecord::Found,
    &TfRecord::AsBytes,
    &ArrayRecord::Found,
    &ArrayRecord::AsBytes,
    &Mds,
    &LitData,
    #[cfg(feature = "columns")]
    &Columns {
        kind: Kind::Parquet,
        selects: false,
    },
    #[cfg(feature = "columns")]
    &Columns {
        kind: Kind::Parquet,
        selects: true,
    },
    #[cfg(feature = "columns")]
    &Columns {
        kind: Kind::Arrow,
        selects: false,
    },
    #[cfg(feature = "columns")]
    &Columns {
        kind: Kind::Arrow,
        selects: true,
    },
];

impl FormatKind {
    /// The format that is displayed as `name`, such as `csv` or `tokens:35`.
    pub fn from_name(name: &str) -> Option<FormatKind> {
        FormatKind::parse(name).ok()
    }

    /// The same; the error says why there is no such format.
    pub fn parse(spelling: &str) -> Result<FormatKind, String> {
        let (name, argument) = match spelling.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (spelling, None),
        };
        let format = FORMATS.iter().find(|format| {
            format.name() == name && format.argument().is_some() == argument.is_some()
        });
        let unknown = || format!("is not known: use one of {}", FormatKind::names());
        let format = format.ok_or_else(unknown)?;
        argument.map_or(Ok(()), |argument| format.check(argument))?;
        Ok(FormatKind::new(format.name(), argument))
    }

    /// The names of all formats, for messages.
    pub fn names() -> String {
        let spelled = |format: &&dyn Format| match format.argument() {
            Some(argument) => format!("{}:{argument}", format.name()),
            None => format.name().to_owned(),
        };
        let names: Vec<String> = FORMATS.iter().map(spelled).collect();
        names.join(", ")
    }
}

/// The names of formats that hold features, for messages.
pub(crate) fn with_features() -> String {
    let mut names: Vec<&str> = { FORMATS.iter() }
        .filter(|format| format.has_features())
        .map(|format| format.name())
        .collect();
    names.dedup();
    names.join(", ")
}

/// The format of a kind.
pub(crate) fn named(kind: &FormatKind) -> &'static dyn Format {
    let has_argument = kind.argument().is_some();
    let format = FORMATS
        .iter()
        .find(|format| format.name() == kind.name() && format.argument().is_some() == has_argument);
    *format.expect("kinds are made of formats in the list")
}

/// The format of a file, and the evidence for it; `None` for files that are not text and have no known name.
pub(crate) fn detect(head: &Head<'_>) -> Option<(Match, &'static dyn Format)> {
    let found = FORMATS.iter().rev();
    let found = found.filter_map(|format| Some((format.recognise(head)?, *format)));
    found.max_by_key(|(by, _)| *by)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check(name: &str, head: &[u8], expected: Option<&str>) {
        assert_eq!(
            detect(&Head::new(Path::new(name), head, 3074, false)).map(|(_, format)| format.name()),
            expected,
            "{name}"
        );
    }

    #[test]
    fn by_name_and_content() {
        check("a9a", b"-1 3:1\n", Some("libsvm"));
        check("a9a.t", b"# c\n\n+1 3:1\n", Some("libsvm"));
        check("labels", b"1\n2\n", Some("libsvm"));
        check("x.CSV", b"1 2", Some("csv"));
        check("x.csv.gz", b"1 2", Some("csv"));
        check("x.data", b"1,2,3\n", Some("csv"));
        check("x.data", b"1\t2\t3\n", Some("tsv"));
        check("x.csv", b"\x93NUMPY", Some("npy"));
        check("x.txt", crate::arrays::packed::MAGIC, Some("prow"));
        check("photo", b"\xff\xd8\x00\x10", None);
        check("comments", b"# a\n\n  \n#", Some("libsvm"));
        check(
            "train.en",
            b"Two men, old and new.\nNo: one.\n",
            Some("text"),
        );
        check(
            "ptb.train.txt",
            b" aer banknote \n pierre <unk> N\n",
            Some("text"),
        );
        let prose = b"Dear reader\nyours\n";
        check("letter", prose, Some("text"));
        let as_numbers = detect(&Head::new(Path::new("letter"), prose, 99, true));
        assert_eq!(as_numbers.map(|(_, format)| format.name()), Some("csv"));
        check("one.txt", b"a, b: c", Some("text"));
        for prose in [
            "Hello, world\n42, said he\n",
            "Dear reader,\n1984, a book, was sold\n",
            "One, two\n3, 4, 5, 6\n",
        ] {
            check("p.txt", prose.as_bytes(), Some("text"));
        }
        for prose in [
            "On a day, in May, 7 men met\nthey were 3, 4 and 5, said one, or so\n",
            "1984 was a year\nof 12 months\n",
            "17 4 99 3\n5 6 7\n",
            "1.5 2.5 3.5\n4.5 5.5 6.5\n",
        ] {
            check("p", prose.as_bytes(), Some("text"));
        }
        check("a", b"1 qid:3 1:2\n", Some("libsvm"));
        check("x.data", b"1,2,3\n4,5\n", Some("csv"));
        check("t.txt", b"a,b,label\n1,2,cat\n3,,dog\n", Some("csv"));
        check("winequality.data", b"a;b\n1,5;2\n", Some("csv"));
        check("x.data", b"1|2\n3|4\n", Some("csv"));
        check("x", b"a;b\nc;d\n", Some("text"));
        check("delicious.txt", b"12920 500 983\n1,2 0:0.5\n", Some("xmc"));
        check("x.data", b"a,b,label\n1,2,3\n", Some("csv"));
        check("bad", b"cat 1:2 3:4\n", Some("libsvm"));
        check("train-images-idx3-ubyte.gz", b"\x01", Some("idx"));
        check("x", b"\0\0\x08\x03\0", Some("idx"));
        check("data_batch_1.bin", b"\0", Some("cifar10"));
        check("train.bin", b"\0", Some("cifar100"));
        check("other.bin", b"\0", None);
        check("x.tar", b"\0", Some("tar"));
        for name in ["x.jsonl", "x.jsonlines", "x.NDJSON", "x.jsonlines.gz"] {
            check(name, b"{}", Some("jsonl"));
        }
        check("x.fvecs", b"\x02\0\0\0", Some("fvecs"));
        check("x.npz", b"PK\x03\x04\0", Some("npz"));
        if cfg!(feature = "columns") {
            check("x", b"PAR1\0", Some("parquet"));
            check("x", b"ARROW1\0\0", Some("arrow"));
            check("x.arrow", b"\xff\xff\xff\xff", Some("arrow"));
        }
        for name in FormatKind::names().split(", ") {
            let name = name
                .replace("LENGTH", "1024")
                .replace("FIELDS", "u8[3],label:u8");
            let kind = FormatKind::from_name(&name).unwrap();
            assert_eq!(kind.to_string(), name);
        }
        for name in [
            "",
            "tokens",
            "tokens:",
            "tokens:0",
            "bytes:-1",
            "bytes:+1",
            "bytes:4294967296",
            "csv:",
            "raw",
            "raw:",
            "raw:u9",
        ] {
            assert_eq!(FormatKind::from_name(name), None, "{name}");
        }
    }
}
