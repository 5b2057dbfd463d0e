//! Bytes at offsets, for walks that hop from header to header.

use std::io;

use crate::locate::places::input::Input;

/// The source of a walk's bytes.
pub(crate) trait ByteSource {
    /// Number of bytes.
    fn size(&self) -> u64;

    /// The `length` bytes at `offset`; all must exist.
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]>;
}

impl ByteSource for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    #[inline]
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let from = offset as usize;
        Ok(&self[from..from + length])
    }
}

/// A file, read through a window that moves with the walk. If members are short, the whole file is read in large
/// blocks; if they are long, little more than their headers.
pub(crate) struct FileWindow {
    file: Input,
    size: u64,
    from: u64,
    window: Vec<u8>,
}

/// Bytes of a read-ahead, half of a small second-level cache.
pub(crate) const STRETCH: u64 = 256 << 10;
/// Bytes of a read if the next header was far away: the header, and the small members that often follow.
const GLANCE: u64 = 4 << 10;
/// A jump over this many bytes costs more than a system call does.
const FAR: u64 = 32 << 10;

impl FileWindow {
    pub(crate) fn new(file: Input, size: u64) -> FileWindow {
        FileWindow {
            file,
            size,
            from: 0,
            window: Vec::new(),
        }
    }

    #[cold]
    fn move_to(&mut self, offset: u64, length: usize) -> io::Result<()> {
        let end = self.from + self.window.len() as u64;
        let ahead = if offset.saturating_sub(end) < FAR {
            STRETCH
        } else {
            GLANCE
        };
        let wanted = ahead.max(length as u64).min(self.size - offset);
        self.window.resize(wanted as usize, 0);
        self.from = offset;
        let read = self.file.read_exact_at(&mut self.window, offset);
        read.inspect_err(|_| self.window.clear())
    }
}

impl ByteSource for FileWindow {
    fn size(&self) -> u64 {
        self.size
    }

    #[inline]
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let end = self.from + self.window.len() as u64;
        if offset < self.from || offset + length as u64 > end {
            self.move_to(offset, length)?;
        }
        let from = (offset - self.from) as usize;
        Ok(&self.window[from..from + length])
    }
}
