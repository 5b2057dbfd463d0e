//! The connections of one rank to all others, and the threads that serve them.

use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::reads::Reads;
use super::wire::{Frame, Kind, garbled};
use crate::CommError;
use crate::heartbeat::Heartbeat;
use crate::local::{Exchange, Route};

/// How long a rank that ends waits for its messages to be sent.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between two checks whether the other ranks have ended.
const LOOK: Duration = Duration::from_millis(5);

/// State that lives as long as anything of the job on this rank.
pub(crate) struct World {
    pub(super) rank: usize,
    pub(super) inbox: Arc<Inbox>,
    /// By rank; none to itself.
    outboxes: Vec<Option<Sender<Frame>>>,
    /// Closed when all that write are done.
    written: Mutex<Receiver<()>>,
    pub(super) reads: Reads,
    /// Ends the thread that sends heartbeats when it is dropped.
    _beating: Sender<()>,
}

/// Messages that have arrived.
pub(super) struct Inbox {
    pub(super) exchange: Arc<Exchange<Bytes>>,
    heartbeat: Heartbeat,
    /// Set when another rank was interrupted.
    asked: Arc<AtomicBool>,
}

/// A connection on which every byte is a sign of life.
struct Heard<'a> {
    stream: TcpStream,
    heartbeat: &'a Heartbeat,
    peer: usize,
}

impl Read for Heard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.heartbeat.hear(self.peer);
        Ok(read)
    }
}

/// The job as another thread sees it.
#[derive(Clone, Debug)]
pub struct Job(Weak<World>);

impl Job {
    /// Ends the waits of all ranks, this one's first, with an error that gives this reason. Does nothing after the end.
    pub fn fail(&self, reason: &str) {
        if let Some(world) = self.0.upgrade() {
            world.fail(reason);
        }
    }
}

impl World {
    /// `peers` are the connections by rank, none for this one.
    pub(super) fn start(
        rank: usize,
        peers: Vec<Option<TcpStream>>,
        (hosts, asked): (Vec<String>, Arc<AtomicBool>),
        heartbeat: Heartbeat,
        reads: impl FnOnce(Arc<Exchange<Bytes>>) -> io::Result<Reads>,
    ) -> io::Result<Arc<World>> {
        let inbox = Arc::new(Inbox {
            exchange: Arc::new(Exchange::new(peers.len()).on(hosts)),
            heartbeat,
            asked,
        });
        let (writing, written) = channel();
        let mut outboxes = Vec::with_capacity(peers.len());
        for (peer, stream) in peers.into_iter().enumerate() {
            let Some(stream) = stream else {
                outboxes.push(None);
                continue;
            };
            let reading = stream.try_clone()?;
            let (outbox, frames) = channel();
            outboxes.push(Some(outbox));
            let writing: Sender<()> = writing.clone();
            let named = |what: &str| thread::Builder::new().name(format!("{what} rank {peer}"));
            named("to").spawn(move || {
                write_all(stream, &frames);
                drop(writing);
            })?;
            let inbox = Arc::clone(&inbox);
            named("from").spawn(move || inbox.read_all(rank, peer, reading))?;
        }
        let (beating, over) = channel();
        let (to, heart) = (outboxes.clone(), Arc::clone(&inbox));
        let thread = thread::Builder::new().name("heartbeat".to_string());
        thread.spawn(move || heart.beat(rank, &to, &over))?;
        Ok(Arc::new(World {
            rank,
            reads: reads(Arc::clone(&inbox.exchange))?,
            inbox,
            outboxes,
            written: Mutex::new(written),
            _beating: beating,
        }))
    }

    pub(crate) fn job(self: &Arc<World>) -> Job {
        Job(Arc::downgrade(self))
    }

    pub(super) fn size(&self) -> usize {
        self.outboxes.len()
    }

    /// Sends a message, also to this rank itself.
    pub(super) fn send(&self, route: Route, bytes: Bytes) {
        let Route { context, tag, .. } = route;
        let kind = Kind::Message;
        match &self.outboxes[route.to] {
            None => self.inbox.exchange.send(route, bytes),
            Some(outbox) => give(outbox, (kind, tag, context), bytes),
        }
    }

    /// Notifies all other ranks of an interruption.
    pub(crate) fn ask_all(&self) {
        self.tell((Kind::Asked, 0, 0), Bytes::new());
    }

    /// Announces to the others how this rank ended, and waits until all have ended: without limit if none has failed,
    /// since they may still compute.
    pub(crate) fn end(&self, reason: Option<&str>) -> Result<(), CommError> {
        let exchange = &self.inbox.exchange;
        match reason {
            Some(reason) => self.fail(reason),
            None => self.tell((Kind::Ended, 0, 0), Bytes::new()),
        }
        let mut until = None;
        loop {
            if exchange.all_ended(self.rank) {
                return exchange.failure();
            }
            if let Err(failure) = exchange.failure() {
                let until = until.get_or_insert_with(|| Instant::now() + GRACE);
                if Instant::now() > *until {
                    return Err(failure);
                }
            }
            thread::sleep(LOOK);
        }
    }

    pub(super) fn fail(&self, reason: &str) {
        self.inbox.exchange.fail(self.rank, reason.to_string());
        // If this rank failed because another had, that one is named.
        if let Err(CommError::RankFailed(failed)) = self.inbox.exchange.failure() {
            self.tell((Kind::Failed, failed.rank as u32, 0), failed.reason.into());
        }
    }

    fn tell(&self, head: (Kind, u32, u64), bytes: Bytes) {
        for outbox in self.outboxes.iter().flatten() {
            give(outbox, head, bytes.clone());
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tell((Kind::Ended, 0, 0), Bytes::new());
        let written = self.written.get_mut();
        let written = written.unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(GRACE);
    }
}

impl Inbox {
    /// Sends heartbeats to all others and checks theirs, until this rank ends.
    fn beat(&self, rank: usize, to: &[Option<Sender<Frame>>], over: &Receiver<()>) {
        while over.recv_timeout(self.heartbeat.every()) == Err(RecvTimeoutError::Timeout) {
            for outbox in to.iter().flatten() {
                give(outbox, (Kind::Beat, 0, 0), Bytes::new());
            }
            if let Some((peer, reason)) = self.heartbeat.silent(rank) {
                self.heartbeat.end(peer);
                self.exchange.fail(peer, reason);
            }
        }
    }

    /// Receives a peer's frames until it ends.
    fn read_all(&self, rank: usize, peer: usize, stream: TcpStream) {
        let stream = Heard {
            stream,
            heartbeat: &self.heartbeat,
            peer,
        };
        let mut stream = BufReader::with_capacity(64 << 10, stream);
        let (culprit, reason) = loop {
            let Frame {
                kind,
                tag,
                context,
                bytes,
            } = match Frame::read(&mut stream, u64::MAX) {
                Ok(frame) => frame,
                Err(error) => break (peer, format!("its connection was lost ({error})")),
            };
            let route = Route {
                context,
                from: peer,
                to: rank,
                tag,
            };
            match kind {
                Kind::Message => self.exchange.send(route, bytes),
                Kind::Beat => {}
                Kind::Asked => self.asked.store(true, Ordering::Relaxed),
                Kind::Ended => {
                    self.heartbeat.end(peer);
                    return self.exchange.end(peer);
                }
                Kind::Greeting | Kind::Reader | Kind::Arrival | Kind::Members => {
                    break (peer, garbled().to_string());
                }
                Kind::Failed => {
                    break (tag as usize, String::from_utf8_lossy(&bytes).into_owned());
                }
            }
        };
        self.heartbeat.end(peer);
        self.exchange.fail(culprit, reason);
        self.exchange.end(peer);
    }
}

/// A frame to a peer that has ended is lost; waits for that peer fail with its end.
fn give(outbox: &Sender<Frame>, (kind, tag, context): (Kind, u32, u64), bytes: Bytes) {
    let _ = outbox.send(Frame {
        kind,
        tag,
        context,
        bytes,
    });
}

/// Writes queued frames until the last one.
fn write_all(mut stream: TcpStream, frames: &Receiver<Frame>) {
    while let Ok(frame) = frames.recv() {
        let last = matches!(frame.kind, Kind::Ended | Kind::Failed);
        // The side that reads hears of a lost connection too.
        if frame.write(&mut stream).is_err() || last {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}
