//! Reads of other ranks' windows, over connections of their own.
//!
//! The thread that reads writes its requests and takes the answers straight into its buffers; a thread of the rank that
//! is read from answers each connection. A connection is made at the first read.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::wire::{Frame, Kind, MANNERS, u64_at};
use crate::CommError;
use crate::local::Exchange;

/// Bytes of a request: window, offset, length.
const REQUEST: usize = 24;
/// Most requests under way on a connection. They fit into its buffers, so neither side waits for the other to read.
const MOST: usize = 512;
/// Buffer of small answers, which are written together.
const TOGETHER: usize = 64 << 10;
/// Most buffers filled by one call.
const AT_ONCE: usize = 64;
/// How often a rank that waits for an answer checks for failures.
const LOOK: Duration = Duration::from_millis(50);
/// How long a rank whose connection was lost waits to learn which rank failed.
const GRACE: Duration = Duration::from_secs(1);

/// The connections to read from all other ranks.
pub(super) struct Reads {
    rank: usize,
    addresses: Vec<SocketAddr>,
    greeting: Frame,
    /// Those not in use, by rank.
    streams: Vec<Mutex<Vec<TcpStream>>>,
    exchange: Arc<Exchange<Bytes>>,
    windows: Arc<Windows>,
    /// Ends the thread that accepts connections.
    ends: Arc<AtomicBool>,
}

/// This rank's windows that others may read, by number.
#[derive(Default)]
pub(super) struct Windows(Mutex<HashMap<u64, Bytes>>);

impl Windows {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A range of a window; `None` if it is not in there.
    fn range(&self, window: u64, offset: u64, length: u64) -> Option<Bytes> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        let windows = self.all();
        let bytes = windows.get(&window)?;
        (end <= bytes.len()).then(|| bytes.slice(start..end))
    }
}

/// Ranges of one rank's window to be read, none of them empty.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    pub(super) offsets: Vec<u64>,
    pub(super) buffers: Vec<IoSliceMut<'a>>,
}

impl Reads {
    /// Other ranks connect through `listener`; all listen at `addresses`.
    pub(super) fn start(
        listener: TcpListener,
        rank: usize,
        addresses: Vec<SocketAddr>,
        token: &Frame,
        exchange: Arc<Exchange<Bytes>>,
    ) -> io::Result<Reads> {
        let windows = Arc::<Windows>::default();
        let greeting = Frame {
            kind: Kind::Reader,
            tag: 0,
            ..token.clone()
        };
        let ends = Arc::<AtomicBool>::default();
        let (ended, expected, answering) =
            (Arc::clone(&ends), greeting.clone(), Arc::clone(&windows));
        listener.set_nonblocking(false)?;
        let named = |what: &str| thread::Builder::new().name(what.to_string());
        named("windows").spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else {
                    // Out of files: the next attempt may succeed.
                    thread::sleep(LOOK);
                    continue;
                };
                let (expected, windows) = (expected.clone(), Arc::clone(&answering));
                let answer = move || drop(answer(&stream, &expected, &windows));
                // Without a thread the connection closes, and the reader says so.
                drop(named("window").spawn(answer));
            }
        })?;
        Ok(Reads {
            rank,
            streams: addresses.iter().map(|_| Mutex::default()).collect(),
            addresses,
            greeting,
            exchange,
            windows,
            ends,
        })
    }

    pub(super) fn windows(&self) -> MutexGuard<'_, HashMap<u64, Bytes>> {
        self.windows.all()
    }

    /// Reads ranges of the window with a number from the ranks in `wanted`, and runs `work` while they come.
    pub(super) fn read(
        &self,
        window: u64,
        wanted: &mut BTreeMap<usize, Wanted<'_>>,
        work: &mut dyn FnMut(),
    ) -> Result<(), CommError> {
        let mut connections = Vec::with_capacity(wanted.len());
        for (&peer, wanted) in wanted.iter_mut() {
            let idle = self.streams(peer).pop();
            let stream = idle.map_or_else(|| self.connect(peer), Ok);
            let begun = stream.and_then(|stream| Underway::begin(stream, window, wanted));
            connections.push((peer, begun.map_err(|error| self.lost(peer, &error))?));
        }
        work();
        for (peer, mut underway) in connections {
            while !underway.buffers.is_empty() {
                if let Err(error) = underway.advance() {
                    match error.kind() {
                        ErrorKind::WouldBlock | ErrorKind::TimedOut => self.exchange.failure()?,
                        ErrorKind::Interrupted => {}
                        _ => return Err(self.lost(peer, &error)),
                    }
                }
            }
            // After an error the next read would get answers to this one.
            self.streams(peer).push(underway.stream);
        }
        Ok(())
    }

    fn streams(&self, peer: usize) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams[peer]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, peer: usize) -> io::Result<TcpStream> {
        let mut stream =
            TcpStream::connect_timeout(&self.addresses[peer], Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        self.greeting.write(&mut stream)?;
        Ok(stream)
    }

    /// The error of a lost connection: the rank that failed, once it is known.
    fn lost(&self, peer: usize, error: &io::Error) -> CommError {
        let exchange = &self.exchange;
        let until = Instant::now() + GRACE;
        while exchange.failed_rank().is_none() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        exchange.fail(peer, format!("its connection was lost ({error})"));
        let failed = exchange.failure();
        failed.expect_err("a rank has failed")
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for a connection.
        drop(TcpStream::connect_timeout(&self.addresses[self.rank], LOOK));
    }
}

/// A read from one rank.
struct Underway<'w, 'a> {
    stream: TcpStream,
    window: u64,
    offsets: &'w [u64],
    /// Lengths of the ranges.
    lengths: Vec<usize>,
    /// How many ranges were requested.
    requested: usize,
    /// How many came, and bytes of the next one.
    came: usize,
    partial: usize,
    /// What is still to be filled.
    buffers: &'w mut [IoSliceMut<'a>],
}

impl<'w, 'a> Underway<'w, 'a> {
    fn begin(
        stream: TcpStream,
        window: u64,
        wanted: &'w mut Wanted<'a>,
    ) -> io::Result<Underway<'w, 'a>> {
        let mut underway = Underway {
            stream,
            window,
            offsets: &wanted.offsets,
            lengths: wanted.buffers.iter().map(|buffer| buffer.len()).collect(),
            requested: 0,
            came: 0,
            partial: 0,
            buffers: &mut wanted.buffers,
        };
        underway.request()?;
        Ok(underway)
    }

    /// Requests as many ranges as may be under way, once half of them are free.
    fn request(&mut self) -> io::Result<()> {
        if self.requested - self.came > MOST / 2 || self.requested == self.lengths.len() {
            return Ok(());
        }
        let until = (self.came + MOST).min(self.lengths.len());
        let mut requests = Vec::with_capacity((until - self.requested) * REQUEST);
        for range in self.requested..until {
            for word in [self.window, self.offsets[range], self.lengths[range] as u64] {
                requests.extend(word.to_le_bytes());
            }
        }
        self.requested = until;
        self.stream.write_all(&requests)
    }

    /// Takes the bytes that are here, or waits a moment for them.
    fn advance(&mut self) -> io::Result<()> {
        let count = self.buffers.len().min(AT_ONCE);
        let read = self.stream.read_vectored(&mut self.buffers[..count])?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        IoSliceMut::advance_slices(&mut self.buffers, read);
        self.partial += read;
        while self.came < self.lengths.len() && self.partial >= self.lengths[self.came] {
            self.partial -= self.lengths[self.came];
            self.came += 1;
        }
        self.request()
    }
}

/// Answers one rank until it closes the connection.
fn answer(stream: &TcpStream, expected: &Frame, windows: &Windows) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(MANNERS))?;
    let mut requests = BufReader::with_capacity(MOST * REQUEST, stream);
    if Frame::read(&mut requests, expected.bytes.len() as u64)? != *expected {
        return Ok(());
    }
    stream.set_read_timeout(None)?;
    let mut answers = BufWriter::with_capacity(TOGETHER, stream);
    loop {
        if requests.buffer().len() < REQUEST {
            answers.flush()?;
        }
        if requests.fill_buf()?.is_empty() {
            return Ok(());
        }
        let mut request = [0; REQUEST];
        requests.read_exact(&mut request)?;
        let [window, offset, length] = [0, 8, 16].map(|at| u64_at(&request, at));
        let Some(range) = windows.range(window, offset, length) else {
            return Ok(());
        };
        answers.write_all(&range)?;
    }
}
