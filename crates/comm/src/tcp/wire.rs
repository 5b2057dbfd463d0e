//! The protocol of a connection: frames; the first identifies the sender.

use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::Bytes;

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The sender: its rank as the tag, the number of ranks as the context; contains the token.
    Greeting,
    /// A message of a communicator, with its tag.
    Message,
    /// The start of a connection to read windows; contains the token. Requests and answers follow, without frames.
    Reader,
    /// The sender sends no more messages.
    Ended,
    /// The rank given as the tag failed, and why. Nothing comes after it.
    Failed,
    /// The sender lives.
    Beat,
    /// The sender was interrupted.
    Asked,
    /// A rank that meets the others: its rank as the tag, the number of ranks as the context, and who it is.
    Arrival,
    /// Rank 0's answer when all have arrived: the token, and each rank's address and host.
    Members,
}

const KINDS: [Kind; 9] = [
    Kind::Greeting,
    Kind::Message,
    Kind::Reader,
    Kind::Ended,
    Kind::Failed,
    Kind::Beat,
    Kind::Asked,
    Kind::Arrival,
    Kind::Members,
];
/// The start of a frame, before its kind, which identifies the version.
const MAGIC: u32 = 0x7065_6c20;

/// The unit of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) tag: u32,
    /// Number of the communicator or window.
    pub(super) context: u64,
    pub(super) bytes: Bytes,
}

/// Time limit for a new connection to identify itself.
pub(super) const MANNERS: Duration = Duration::from_secs(2);
const HEADER: usize = 24;
/// Memory that is allocated before its bytes have arrived.
const AHEAD: u64 = 64 << 20;
/// Shorter frames are written at once with their header.
const SHORT: usize = 16 << 10;

impl Frame {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut first = Vec::with_capacity(HEADER + self.bytes.len().min(SHORT));
        first.extend((MAGIC + self.kind as u32).to_le_bytes());
        first.extend(self.tag.to_le_bytes());
        first.extend(self.context.to_le_bytes());
        first.extend((self.bytes.len() as u64).to_le_bytes());
        if self.bytes.len() < SHORT {
            first.extend(&self.bytes[..]);
            return to.write_all(&first);
        }
        to.write_all(&first)?;
        to.write_all(&self.bytes)
    }

    /// The next frame, which holds at most `limit` bytes.
    pub(super) fn read(from: &mut impl Read, limit: u64) -> io::Result<Frame> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let (begins, tag) = (u64_at(&header, 0) as u32, (u64_at(&header, 0) >> 32) as u32);
        let kind = begins
            .checked_sub(MAGIC)
            .and_then(|kind| KINDS.get(kind as usize));
        let (Some(&kind), length) = (kind, u64_at(&header, 16)) else {
            return Err(garbled());
        };
        if length > limit {
            return Err(garbled());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length.min(AHEAD) as usize)?;
        from.take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (context, bytes) = (u64_at(&header, 8), bytes.into());
        Ok(Frame {
            kind,
            tag,
            context,
            bytes,
        })
    }
}

/// An error for bytes that no rank would send.
pub(super) fn garbled() -> io::Error {
    let what = "what arrived is not from a rank of this job";
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bytes_and_back() {
        for length in [0, 1, SHORT - 1, SHORT, 100_000] {
            for kind in KINDS {
                let frame = Frame {
                    kind,
                    tag: 0x8000_0001,
                    context: u64::MAX - 5,
                    bytes: vec![7; length].into(),
                };
                let mut bytes = Vec::new();
                frame.write(&mut bytes).unwrap();
                let read = |bytes: &[u8], limit| Frame::read(&mut &bytes[..], limit);
                assert_eq!(read(&bytes, length as u64).unwrap(), frame);
                let cut = read(&bytes[..bytes.len() - 1], u64::MAX).unwrap_err();
                assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
                if length > 0 {
                    let long = read(&bytes, length as u64 - 1).unwrap_err();
                    assert_eq!(long.kind(), io::ErrorKind::InvalidData);
                }
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_before_it_takes_memory() {
        let refused = |begins: u32, length: u64| {
            let mut bytes = [0; HEADER];
            bytes[..4].copy_from_slice(&begins.to_le_bytes());
            bytes[16..].copy_from_slice(&length.to_le_bytes());
            Frame::read(&mut &bytes[..], u64::MAX).unwrap_err().kind()
        };
        assert_eq!(refused(0, 0), io::ErrorKind::InvalidData);
        assert_eq!(refused(MAGIC + 9, 0), io::ErrorKind::InvalidData);
        assert_eq!(refused(MAGIC, u64::MAX), io::ErrorKind::UnexpectedEof);
        // Bytes that look random, after every kind.
        let mut random = 1_u64;
        for round in 0..10_000_u32 {
            let mut bytes = (MAGIC + round % 12).to_le_bytes().to_vec();
            for _ in 0..round % 60 {
                random = random
                    .wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(round.into());
                bytes.push((random >> 56) as u8 >> (round % 12).min(7));
            }
            if let Ok(frame) = Frame::read(&mut &bytes[..], 40) {
                assert!(frame.bytes.len() + HEADER <= bytes.len());
            }
        }
    }
}
