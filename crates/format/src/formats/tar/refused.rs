//! Why the samples of a tar file cannot be told.

use crate::error::FormatError;
use crate::formats::tar::walk::Broken;
use crate::labels::MOST_LABELS;
use crate::labels::json::JsonFault;

/// Why samples cannot be told.
#[derive(Debug)]
pub(crate) enum Refused {
    Broken {
        member: String,
        why: Broken,
    },
    Sparse {
        member: String,
        offset: u64,
    },
    Repeated {
        key: String,
        offset: u64,
    },
    Twice {
        member: String,
        offset: u64,
    },
    BadClass {
        member: String,
        offset: u64,
        found: String,
    },
    NoLabel {
        sample: String,
        fault: JsonFault,
    },
    TooManyLabels,
    Interrupted,
}

impl Refused {
    pub(crate) fn at(self, path: &std::path::Path) -> FormatError {
        let path = path.to_path_buf();
        match self {
            Refused::Broken { member, why } => match why {
                Broken::Truncated { start, needed } => FormatError::TarTruncated {
                    path,
                    member,
                    offset: start,
                    needed,
                },
                Broken::Damaged { at, what } => FormatError::TarDamaged {
                    path,
                    offset: at,
                    what,
                },
                Broken::Failed(error) => FormatError::io(&path, "read it", error),
            },
            Refused::Sparse { member, offset } => FormatError::TarSparse {
                path,
                member,
                offset,
            },
            Refused::Repeated { key, offset } => FormatError::TarRepeated { path, key, offset },
            Refused::Twice { member, offset } => FormatError::TarTwice {
                path,
                member,
                offset,
            },
            Refused::BadClass {
                member,
                offset,
                found,
            } => FormatError::TarClass {
                path,
                member,
                offset,
                found,
            },
            Refused::NoLabel { sample, fault } => FormatError::TarLabel {
                path,
                sample,
                fault,
            },
            Refused::TooManyLabels => FormatError::TooManyLabels {
                path,
                limit: MOST_LABELS,
            },
            Refused::Interrupted => FormatError::Interrupted { path },
        }
    }
}
