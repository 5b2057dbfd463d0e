//! Makes heads.

use pelton_comm::Comm;

use crate::chosen::ChosenHead;
use crate::class_head::{ClassHead, HeadKind, HeadOptions};
use crate::error::HeadError;
use crate::mach::Mach;

/// Makes a head; the initial weights do not depend on the number of ranks.
///
/// Errors: no classes, or more than 2³² − 1.
pub fn class_head(options: &HeadOptions, comm: Comm) -> Result<Box<dyn ClassHead>, HeadError> {
    options.check()?;
    Ok(match options.kind {
        HeadKind::Mach {
            buckets,
            repetitions,
        } => Box::new(Mach::new(options, buckets, repetitions, comm)?),
        HeadKind::Full
        | HeadKind::Near { .. }
        | HeadKind::Knn { .. }
        | HeadKind::Sampled { .. }
        | HeadKind::Selective { .. } => Box::new(ChosenHead::new(options, comm)),
    })
}
