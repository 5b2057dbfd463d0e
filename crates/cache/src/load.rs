//! Brings parts of the space into memory.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::CacheError;
use crate::backend::{BackendRead, Bounce, read_much};
use crate::space::Space;

/// Bytes read between two checks of the interrupt: some tens of milliseconds.
const STRETCH_BYTES: u64 = 64 << 20;

/// A part of the space and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: Range<u64>,
    pub(crate) to: usize,
}

/// Reads `parts`, ascending and disjoint in the space and in `memory`, from their files, and returns the bytes read
/// from the backend.
///
/// Adjacent parts are one read; each read goes straight into `memory` if that is aligned.
pub(crate) fn load(
    space: &Space,
    parts: &[Part],
    memory: &mut [u8],
    interrupt: &AtomicBool,
) -> Result<u64, CacheError> {
    let mut bounces = [Bounce::default(), Bounce::default()];
    let mut asked = 0;
    let (mut rest, mut passed) = (memory, 0);
    let mut batch: Vec<BackendRead<'_>> = Vec::new();
    let (mut batch_file, mut batch_bytes) = (0, 0);
    for (range, to) in stretches(parts) {
        let mut at = to;
        for piece in space.pieces(range) {
            if piece.file != batch_file || batch_bytes >= STRETCH_BYTES {
                if interrupt.load(Ordering::Relaxed) {
                    return Err(CacheError::Interrupted);
                }
                let backend = &*space.files()[batch_file].backend;
                asked += read_much(backend, batch.drain(..), &mut bounces)?;
                (batch_file, batch_bytes) = (piece.file, 0);
            }
            let (_, behind) = rest.split_at_mut(at - passed);
            let (buffer, behind) = behind.split_at_mut(piece.length as usize);
            at += piece.length as usize;
            (rest, passed) = (behind, at);
            batch_bytes += piece.length;
            batch.push(BackendRead {
                offset: piece.offset,
                buffer,
            });
        }
    }
    if let Some(file) = space.files().get(batch_file) {
        asked += read_much(&*file.backend, batch, &mut bounces)?;
    }
    Ok(asked)
}

/// Parts with neighbours joined, cut at the distance between two checks of the interrupt.
fn stretches(parts: &[Part]) -> impl Iterator<Item = (Range<u64>, usize)> + '_ {
    let mut parts = parts.iter().peekable();
    let mut current: Option<Part> = None;
    std::iter::from_fn(move || {
        let mut part = current.take().or_else(|| parts.next().cloned())?;
        while let Some(next) = parts.next_if(|next| {
            let length = (part.range.end - part.range.start) as usize;
            next.range.start == part.range.end && next.to == part.to + length
        }) {
            part.range.end = next.range.end;
        }
        let Range { start, end } = part.range;
        let cut = end.min(start.saturating_add(STRETCH_BYTES));
        if cut < end {
            current = Some(Part {
                range: cut..end,
                to: part.to + (cut - start) as usize,
            });
        }
        Some((start..cut, part.to))
    })
}
