//! Rows of a head between the run folder of rank 0 and ranks that do not see it: hosts need not share a disk.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pelton_comm::{Comm, CommError, Reduction};
use pelton_run::{
    Entry, Manifest, RunError, RunFolder, Tensor, encode_checkpoint, write_atomically,
};

use crate::error::TrainError;

/// Bytes of a message; rank 0 holds one at a time.
const PIECE: usize = 64 << 20;
/// Tags of pieces and of their receipts.
const TAG: u16 = 11;
const RECEIPT: u16 = 12;

/// Whether this rank sees the folder of rank 0, which leaves a file there for a moment. All ranks call it.
pub(super) fn sees(folder: &RunFolder, comm: &Comm) -> Result<bool, TrainError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut name = [
        now.unwrap_or_default().as_nanos() as u64,
        std::process::id().into(),
    ];
    comm.broadcast(&mut name, 0)?;
    let token = folder.file(&format!("checkpoint/shared-{:x}-{:x}", name[0], name[1]))?;
    if comm.rank() == 0 {
        write_atomically(&token, |_| Ok(()))?;
    }
    comm.barrier()?;
    let seen = token.exists();
    comm.barrier()?;
    if comm.rank() == 0 {
        drop(std::fs::remove_file(&token));
    }
    Ok(seen)
}

/// Writes the file `name(rank)` of each rank that does not see rank 0's folder into it, one after the other; `own` are
/// this rank's text and arrays. Returns the entries of those files on rank 0. All ranks call it.
///
/// Errors: those of the write, on rank 0; others hear of its end.
pub(super) fn gather(
    folder: &RunFolder,
    sees: bool,
    name: impl Fn(usize) -> String,
    own: (&str, Vec<Tensor<'_>>),
    comm: &Comm,
) -> Result<Vec<(String, Entry)>, TrainError> {
    let all = comm.all_gather_ragged(&[u8::from(sees)])?;
    if comm.rank() > 0 {
        if !sees {
            let mut out = Sender {
                comm,
                piece: Vec::new(),
            };
            let sent = encode_checkpoint(&mut out, own.0, own.1).and_then(|()| out.end());
            sent.map_err(|error| match error.downcast::<CommError>() {
                Ok(error) => TrainError::from(error),
                Err(error) => RunError::io(folder.path(), "send rows to", error).into(),
            })?;
        }
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    for from in (0..).zip(&all).filter(|(_, sees)| sees[0] == 0) {
        let name = name(from.0);
        let path = folder.file(&name)?;
        let mut lost = None;
        let written = write_atomically(&path, |file| {
            let mut out = std::fs::OpenOptions::new().write(true).open(file)?;
            let received = receive(comm, from.0, &mut out);
            received.unwrap_or_else(|error| {
                lost = Some(error);
                Err(io::ErrorKind::ConnectionAborted.into())
            })
        });
        if let Some(lost) = lost {
            return Err(lost.into());
        }
        written?;
        let entry = Entry::read(&path).map_err(|error| RunError::io(&path, "read", error))?;
        entries.push((name, entry));
    }
    Ok(entries)
}

/// Sends what is written to it to rank 0 in pieces, each after the receipt of the one before.
struct Sender<'a> {
    comm: &'a Comm,
    piece: Vec<u8>,
}

impl Sender<'_> {
    fn send(&mut self) -> io::Result<()> {
        let sent = self.comm.send(0, TAG, &self.piece);
        let receipt = sent.and_then(|()| self.comm.receive(0, RECEIPT, &mut [0_u8]));
        self.piece.clear();
        receipt.map_err(io::Error::other)
    }

    /// Sends the rest, and that there is no more.
    fn end(mut self) -> io::Result<()> {
        if !self.piece.is_empty() {
            self.send()?;
        }
        self.send()
    }
}

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn receive(comm: &Comm, from: usize, out: &mut impl Write) -> Result<io::Result<()>, CommError> {
    loop {
        let piece = comm.receive_vec::<u8>(from, TAG)?;
        if let Err(error) = out.write_all(&piece) {
            return Ok(Err(error));
        }
        comm.send(from, RECEIPT, &[0_u8])?;
        if piece.is_empty() {
            return Ok(Ok(()));
        }
    }
}

/// Files of rank 0's folder, copied for a rank that does not see it; removed when this is dropped.
pub(super) struct Copied(Option<PathBuf>);

impl Drop for Copied {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Where a rank that does not see the folder of rank 0 keeps copies of its files.
pub(super) fn scratch(folder: &Path, comm: &Comm) -> PathBuf {
    let mut name = folder.as_os_str().to_os_string();
    name.push(format!(".rank-{}", comm.rank()));
    name.into()
}

/// Copies the files that `is_wanted` from rank 0's folder to the folder of `manifest` on ranks that do not see it. All
/// ranks call it.
pub(super) fn copy(
    manifest: &Manifest,
    sees: bool,
    is_wanted: impl Fn(&str) -> bool,
    comm: &Comm,
) -> Result<Copied, TrainError> {
    let mut blind = [u64::from(!sees)];
    comm.all_reduce(&mut blind, Reduction::Max)?;
    let mut copied = Copied(None);
    if blind[0] == 0 {
        return Ok(copied);
    }
    for name in manifest.files().keys().filter(|name| is_wanted(name)) {
        let path = manifest.path(name);
        let failed = |what, error| TrainError::from(RunError::io(&path, what, error));
        let mut file = None;
        if comm.rank() == 0 {
            file = Some(std::fs::File::open(&path).map_err(|error| failed("read", error))?);
        } else if !sees {
            let folder = path.parent().unwrap_or(&path);
            let made = std::fs::create_dir_all(folder);
            copied.0 = Some(manifest.path(""));
            let made = made.and_then(|()| std::fs::File::create(&path));
            file = Some(made.map_err(|error| failed("write", error))?);
        }
        loop {
            let mut piece = Vec::new();
            if let (Some(file), 0) = (&file, comm.rank()) {
                let read =
                    io::Read::read_to_end(&mut io::Read::take(file, PIECE as u64), &mut piece);
                read.map_err(|error| failed("read", error))?;
            }
            let mut length = [piece.len() as u64];
            comm.broadcast(&mut length, 0)?;
            if length[0] == 0 {
                break;
            }
            piece.resize(length[0] as usize, 0);
            comm.broadcast(&mut piece, 0)?;
            if let (Some(mut file), true) = (file.as_ref(), comm.rank() > 0) {
                let written = file.write_all(&piece);
                written.map_err(|error| failed("write", error))?;
            }
        }
    }
    Ok(copied)
}
