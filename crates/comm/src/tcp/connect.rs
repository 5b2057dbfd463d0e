//! How ranks find one another.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::link::comm_of;
use super::reads::Reads;
use super::wire::{Frame, Kind, MANNERS, garbled};
use super::world::{Job, World};
use crate::heartbeat::{self, Heartbeat};
use crate::{Comm, CommError};

/// Pause between two attempts to reach a rank.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// A rank's listening socket, open before the others get its address.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// Set if it overrides the environment.
    silence: Option<Duration>,
    /// Names of the machines by rank, for messages, if there are several.
    hosts: Vec<String>,
    /// Set when another rank was interrupted.
    asked: Arc<AtomicBool>,
}

impl Listener {
    /// Listens at an address of this machine, on a free port.
    ///
    /// Errors: the system's.
    pub fn open(address: IpAddr) -> io::Result<Listener> {
        Ok(Listener::of(TcpListener::bind((address, 0))?))
    }

    pub(super) fn of(socket: TcpListener) -> Listener {
        Listener {
            socket,
            silence: None,
            hosts: Vec::new(),
            asked: Arc::default(),
        }
    }

    /// With another limit for how long a connected rank may be silent before it counts as failed; by default a
    /// minute, or the environment's value. The same on all ranks.
    #[must_use]
    pub fn with_silence(mut self, limit: Duration) -> Listener {
        self.silence = Some(limit);
        self
    }

    /// With the name of each rank's machine, which messages mention if they differ.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<String>) -> Listener {
        if hosts.iter().any(|host| *host != hosts[0]) {
            self.hosts = hosts;
        }
        self
    }

    /// With a flag that is set when another rank was interrupted.
    pub(super) fn with_asked(mut self, asked: Arc<AtomicBool>) -> Listener {
        self.asked = asked;
        self
    }

    /// The port.
    ///
    /// Errors: the system's.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Connects the ranks that listen at `addresses`; this is `rank`. All call it with the same `addresses` and
    /// `token`. Returns when all are connected. When the last communicator is dropped, this rank has ended, and
    /// others that still wait for it get an error.
    ///
    /// Errors: [`CommError::Unreachable`] for a rank that cannot be reached `within` the time;
    /// [`CommError::Setting`] if the environment gives an invalid limit for silence.
    pub fn connect(
        self,
        rank: usize,
        addresses: &[SocketAddr],
        token: u128,
        within: Duration,
    ) -> Result<(Comm, Job), CommError> {
        let world = self.join(rank, addresses, token, within)?;
        let job = world.job();
        Ok((comm_of(&world), job))
    }

    /// The same, as the connections.
    pub(super) fn join(
        self,
        rank: usize,
        addresses: &[SocketAddr],
        token: u128,
        within: Duration,
    ) -> Result<Arc<World>, CommError> {
        let size = addresses.len();
        if rank >= size {
            return Err(CommError::NoSuchRank { rank, size });
        }
        let silence = self.silence.map_or_else(heartbeat::limit, Ok)?;
        let until = Instant::now() + within;
        let lost = |peer: usize, source: io::Error| CommError::Unreachable {
            rank: peer,
            address: addresses[peer],
            source,
        };
        let own = Frame {
            kind: Kind::Greeting,
            tag: rank as u32,
            context: size as u64,
            bytes: token.to_le_bytes().to_vec().into(),
        };
        let mut peers: Vec<Option<TcpStream>> = (0..size).map(|_| None).collect();
        for (peer, address) in addresses.iter().enumerate().take(rank) {
            let stream = call(address, &own, peer, until).map_err(|source| lost(peer, source))?;
            peers[peer] = Some(stream);
        }
        while let Some(peer) = (rank + 1..size).find(|&peer| peers[peer].is_none()) {
            let (from, stream) = self
                .hear(&own, until)
                .map_err(|source| lost(peer, source))?;
            peers[from] = Some(stream);
        }
        // Others may still wait for one another.
        let heartbeat = Heartbeat::new(size, silence, within);
        let reads = |exchange| Reads::start(self.socket, rank, addresses.to_vec(), &own, exchange);
        World::start(rank, peers, (self.hosts, self.asked), heartbeat, reads)
            .map_err(|source| lost(rank, source))
    }

    /// The next rank that calls. Others are sent away.
    fn hear(&self, own: &Frame, until: Instant) -> io::Result<(usize, TcpStream)> {
        self.socket.set_nonblocking(true)?;
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => {
                    if let Ok(from) = greet(&stream, own, MANNERS) {
                        return Ok((from, stream));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(until)?,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects to a rank of a lower number.
fn call(address: &SocketAddr, own: &Frame, peer: usize, until: Instant) -> io::Result<TcpStream> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(address, left.max(LOOK)) {
            Ok(stream) => {
                own.write(&mut &stream)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(left.max(LOOK)))?;
                let other = greeting(&stream, own)?;
                return if other == peer {
                    Ok(stream)
                } else {
                    Err(garbled())
                };
            }
            // It may not listen yet.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                wait(until).map_err(|_| error)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The rank that called, which is of this job and has a higher number.
fn greet(stream: &TcpStream, own: &Frame, within: Duration) -> io::Result<usize> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(within))?;
    let other = greeting(stream, own)?;
    if other <= own.tag as usize || other as u64 >= own.context {
        return Err(garbled());
    }
    own.write(&mut &*stream)?;
    Ok(other)
}

/// The rank that greets, if it is of this job.
fn greeting(mut stream: &TcpStream, own: &Frame) -> io::Result<usize> {
    let other = Frame::read(&mut stream, own.bytes.len() as u64)?;
    stream.set_read_timeout(None)?;
    let expected = Frame {
        tag: other.tag,
        ..own.clone()
    };
    if other != expected {
        return Err(garbled());
    }
    Ok(other.tag as usize)
}

pub(super) fn wait(until: Instant) -> io::Result<()> {
    if Instant::now() >= until {
        return Err(io::ErrorKind::TimedOut.into());
    }
    thread::sleep(LOOK);
    Ok(())
}
