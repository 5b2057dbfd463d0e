//! Agrees on one outcome on all ranks.

use pelton_comm::Comm;

use crate::CacheError;

/// Returns the result if all ranks have one; otherwise every rank gets an error.
pub(crate) fn agree<T>(comm: &Comm, result: Result<T, CacheError>) -> Result<T, CacheError> {
    let mut reason = match &result {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    if result.is_err() && reason.is_empty() {
        reason.push_str("no reason");
    }
    let reasons = comm.all_gather_ragged(reason.as_bytes())?;
    let failed = reasons
        .into_iter()
        .enumerate()
        .find(|(_, reason)| !reason.is_empty());
    match (result, failed) {
        (Ok(_), Some((rank, reason))) => Err(CacheError::PeerFailed {
            rank,
            reason: String::from_utf8_lossy(&reason).into_owned(),
        }),
        (result, _) => result,
    }
}
