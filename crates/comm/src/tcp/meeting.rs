//! How processes that a launcher numbered find one another: at the address of rank 0.
//!
//! Each sends rank 0 its number, version, host and address, and gets those of all with a random token of the job;
//! then they connect as any ranks do. Torchrun's agent listens at the port that it states, so rank 0 takes the first
//! free one of 16 from there, and the others try them in turn: what answers there otherwise is not of this job.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::connect::{LOOK, Listener, wait};
use super::wire::{Frame, Kind, MANNERS, garbled};
use super::world::World;
use crate::host::host_name;
use crate::{CommError, Meeting};

/// How long processes wait for one another: machines of a cluster may get their images one after the other.
const WITHIN: Duration = Duration::from_secs(600);
/// How long they take to connect once all are there.
const CONNECTING: Duration = Duration::from_secs(60);
/// When a wait is mentioned.
const MENTION: Duration = Duration::from_secs(2);
/// Ports that rank 0 tries.
const PORTS: u16 = 16;
/// Limit for an arrival, and for a member of the list of all.
const LONGEST: usize = 1024;
/// The version of this library; its ranks understand no other.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time limit for reaching an address.
const CALL: Duration = Duration::from_millis(900);
/// The address of a process on the machine of rank 0: where others reach that.
const SAME: &str = "-";
/// Between the parts of an arrival or a member.
const NEXT: char = '\n';

/// A process that has arrived.
struct Arrival {
    host: String,
    /// Its address; none if it is on the machine of rank 0.
    address: Option<IpAddr>,
    port: u16,
    stream: TcpStream,
}

impl Meeting {
    /// Meets the other processes and connects all.
    pub(crate) fn connect(
        &self,
        asked: &Arc<AtomicBool>,
        mention: &mut dyn FnMut(&str),
    ) -> Result<Arc<World>, CommError> {
        let mut patience = Patience {
            asked,
            mention,
            mentioned: false,
            began: Instant::now(),
        };
        let (listener, token, members) = if self.rank == 0 {
            self.receive_all(&mut patience)?
        } else {
            self.arrive(&mut patience)?
        };
        let (addresses, hosts): (Vec<SocketAddr>, Vec<String>) = members.into_iter().unzip();
        let listener = listener.with_hosts(hosts).with_asked(Arc::clone(asked));
        listener.join(self.rank, &addresses, token, CONNECTING)
    }

    fn failed(&self, reason: String) -> CommError {
        CommError::Meeting { reason }
    }

    /// The host name and port, for people.
    fn shown(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }

    /// What tells this job from others on the same machine, whose ports may be among those tried.
    fn name(&self) -> String {
        format!("{} {}", self.port, self.job)
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        let first = self.port.saturating_add(self.is_taken.into());
        (0..PORTS).map_while(move |next| first.checked_add(next))
    }

    /// A socket for others to call: on all interfaces, unless it is known that nobody calls from elsewhere.
    fn open(&self, port: u16) -> io::Result<TcpListener> {
        if self.is_local {
            return TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        }
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
    }

    /// Rank 0 waits for all others.
    fn receive_all(&self, patience: &mut Patience<'_>) -> Result<Joined, CommError> {
        let unusable = |error: io::Error| {
            self.failed(format!(
                "rank 0 cannot listen at {} or the {PORTS} ports from there: {error}; set MASTER_PORT to a free port of this machine",
                self.shown()
            ))
        };
        let mut socket = Err(io::ErrorKind::AddrInUse.into());
        for port in self.ports() {
            socket = self.open(port);
            if socket.is_ok() {
                break;
            }
        }
        let socket = socket.map_err(unusable)?;
        socket.set_nonblocking(true).map_err(unusable)?;
        let listener = Listener::of(self.open(0).map_err(unusable)?);
        let own_port = listener.port().map_err(unusable)?;
        let mut arrived = BTreeMap::new();
        while arrived.len() + 1 < self.size {
            match socket.accept() {
                Ok((stream, _)) => match self.welcome(stream, &arrived) {
                    Ok(Some((rank, arrival))) => {
                        arrived.insert(rank, arrival);
                    }
                    // Not of this job.
                    Ok(None) => {}
                    Err(reason) => {
                        for arrival in arrived.values() {
                            let _ = refusal(&reason).write(&mut &arrival.stream);
                        }
                        return Err(self.failed(reason));
                    }
                },
                Err(_) => {
                    let missing: Vec<String> = (1..self.size)
                        .filter(|rank| !arrived.contains_key(rank))
                        .map(|rank| rank.to_string())
                        .collect();
                    let missing = format!(
                        "rank 0 waits at {} for rank{} {}",
                        self.shown(),
                        if missing.len() > 1 { "s" } else { "" },
                        missing.join(", ")
                    );
                    patience.pause(&missing)?;
                }
            }
        }
        let token = random();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let members = |same: IpAddr| {
            let first = (SocketAddr::new(same, own_port), host_name());
            let others = arrived.values().map(|arrival| {
                let ip = arrival.address.unwrap_or(same);
                (SocketAddr::new(ip, arrival.port), arrival.host.clone())
            });
            [first].into_iter().chain(others).collect::<Vec<_>>()
        };
        for (rank, arrival) in &arrived {
            let reached = arrival.stream.local_addr().map_or(here, |at| at.ip());
            let mut text = String::new();
            for (address, host) in members(reached.to_canonical()) {
                text += &format!("{address}{NEXT}{host}{NEXT}");
            }
            let answer = Frame {
                kind: Kind::Members,
                tag: 0,
                context: self.size as u64,
                bytes: [&token.to_le_bytes()[..], text.as_bytes()].concat().into(),
            };
            answer.write(&mut &arrival.stream).map_err(|error| {
                self.failed(format!(
                    "rank {rank} on {} has ended while others arrived ({error}); start all ranks again",
                    arrival.host
                ))
            })?;
        }
        // Only lower ranks are called, so rank 0 calls nobody.
        Ok((listener, token, members(here)))
    }

    /// The rank that calls, if it is of this job; the reason why the job cannot go on, if there is one.
    fn welcome(
        &self,
        stream: TcpStream,
        arrived: &BTreeMap<usize, Arrival>,
    ) -> Result<Option<(usize, Arrival)>, String> {
        let Some((frame, parts)) = read_arrival(&stream) else {
            return Ok(None);
        };
        let [job, version, host, address, port] = &parts;
        if *job != self.name() {
            return Ok(None);
        }
        let rank = frame.tag as usize;
        let refuse = |reason: String| {
            let _ = refusal(&reason).write(&mut &stream);
            Err(reason)
        };
        let own = host_name();
        if version != VERSION {
            return refuse(format!(
                "rank {rank} on {host} runs Pelton {version}, but rank 0 on {own} runs {VERSION}; install the same version everywhere"
            ));
        }
        if frame.context != self.size as u64 || rank == 0 || rank >= self.size {
            return refuse(format!(
                "{host} has rank {rank} of {}, but rank 0 on {own} has {} ranks; give all processes the same number and each its own rank",
                frame.context, self.size
            ));
        }
        if let Some(first) = arrived.get(&rank).filter(|first| is_open(&first.stream)) {
            let reason = format!(
                "two processes are rank {rank}, on {} and {host}; give each its own rank",
                first.host
            );
            return refuse(reason);
        }
        let (Ok(port), Ok(address)) = (port.parse(), optional(address)) else {
            return Ok(None);
        };
        let arrival = Arrival {
            host: host.clone(),
            address,
            port,
            stream,
        };
        // It waits for this before it takes the port for ours. If it has given up meanwhile, it comes again.
        let there = heard().write(&mut &arrival.stream);
        let there = there.and_then(|()| Frame::read(&mut &arrival.stream, 0));
        Ok(there.is_ok().then_some((rank, arrival)))
    }

    /// Another rank finds rank 0 and learns of all.
    fn arrive(&self, patience: &mut Patience<'_>) -> Result<Joined, CommError> {
        let mut reason = String::new();
        loop {
            // A name may not be known before its machine is.
            let name = if self.is_local {
                "localhost"
            } else {
                &self.address
            };
            let addresses: Vec<SocketAddr> = match (name, 0).to_socket_addrs() {
                Ok(found) => found.collect(),
                Err(error) => {
                    reason = error.to_string();
                    Vec::new()
                }
            };
            for port in self.ports() {
                for address in &addresses {
                    match self.call(SocketAddr::new(address.ip(), port)) {
                        Ok(Ok((listener, stream))) => {
                            return self.learn(listener, &stream, patience);
                        }
                        Ok(Err(refused)) => return Err(self.failed(refused)),
                        Err(error) if port == self.port => reason = error.to_string(),
                        Err(_) => {}
                    }
                }
                patience.check()?;
            }
            patience.pause(&format!(
                "rank {} waits for rank 0 at {} ({reason})",
                self.rank,
                self.shown()
            ))?;
        }
    }

    /// Announces this rank at an address, if that is of rank 0.
    fn call(&self, address: SocketAddr) -> io::Result<Result<(Listener, TcpStream), String>> {
        let stream = TcpStream::connect_timeout(&address, CALL)?;
        stream.set_nodelay(true)?;
        let own = stream.local_addr()?.ip();
        let listener = if own.is_loopback() {
            self.open(0)?
        } else {
            TcpListener::bind((own, 0))?
        };
        let port = listener.local_addr()?.port();
        let own = if own.is_loopback() {
            SAME.to_string()
        } else {
            own.to_string()
        };
        let (job, host) = (self.name(), host_name());
        let about = format!("{job}{NEXT}{VERSION}{NEXT}{host}{NEXT}{own}{NEXT}{port}");
        let arrival = Frame {
            kind: Kind::Arrival,
            tag: self.rank as u32,
            context: self.size as u64,
            bytes: about.into_bytes().into(),
        };
        arrival.write(&mut &stream)?;
        stream.set_read_timeout(Some(MANNERS))?;
        let answer = Frame::read(&mut &stream, LONGEST as u64)?;
        match answer.kind {
            Kind::Beat => {
                heard().write(&mut &stream)?;
                Ok(Ok((Listener::of(listener), stream)))
            }
            Kind::Failed => Ok(Err(text(&answer.bytes))),
            _ => Err(garbled()),
        }
    }

    /// Waits until rank 0 knows all ranks.
    fn learn(
        &self,
        listener: Listener,
        stream: &TcpStream,
        patience: &mut Patience<'_>,
    ) -> Result<Joined, CommError> {
        let ended = |error: io::Error| {
            self.failed(format!(
                "rank 0 at {} ended before all ranks had arrived ({error}); see its message",
                self.shown()
            ))
        };
        loop {
            stream.set_read_timeout(Some(LOOK)).map_err(ended)?;
            let mut begins = [0];
            match stream.peek(&mut begins) {
                Ok(_) => break,
                Err(error) if is_quiet(&error) => patience.pause(&format!(
                    "rank {} has reached rank 0 at {} and waits for other ranks",
                    self.rank,
                    self.shown()
                ))?,
                Err(error) => return Err(ended(error)),
            }
        }
        stream.set_read_timeout(Some(MANNERS)).map_err(ended)?;
        let limit = (self.size + 1) * LONGEST;
        let answer = Frame::read(&mut &*stream, limit as u64).map_err(ended)?;
        if answer.kind == Kind::Failed {
            return Err(self.failed(text(&answer.bytes)));
        }
        let (token, members) = members(&answer, self.size).ok_or_else(|| ended(garbled()))?;
        Ok((listener, token, members))
    }
}

/// A listener for the others, the job's token, and the address and host of each rank.
type Joined = (Listener, u128, Vec<(SocketAddr, String)>);

/// The token, and addresses and hosts of all ranks, as rank 0 sent them.
fn members(answer: &Frame, size: usize) -> Option<(u128, Vec<(SocketAddr, String)>)> {
    let (token, text) = answer.bytes.split_at_checked(16)?;
    let token = u128::from_le_bytes(token.try_into().ok()?);
    let mut parts = std::str::from_utf8(text).ok()?.split_terminator(NEXT);
    let mut members = Vec::new();
    while let Some(address) = parts.next() {
        members.push((address.parse().ok()?, parts.next()?.to_string()));
    }
    (answer.kind == Kind::Members && members.len() == size).then_some((token, members))
}

/// An address, or [`SAME`].
fn optional(address: &str) -> Result<Option<IpAddr>, std::net::AddrParseError> {
    if address == SAME {
        return Ok(None);
    }
    address.parse().map(Some)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a process that calls says of itself; `None` if it is not one of ours.
fn read_arrival(stream: &TcpStream) -> Option<(Frame, [String; 5])> {
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(MANNERS)).ok()?;
    let frame = Frame::read(&mut &*stream, LONGEST as u64).ok()?;
    let text = std::str::from_utf8(&frame.bytes).ok()?;
    let parts: Vec<String> = text.split(NEXT).map(str::to_string).collect();
    let parts = parts.try_into().ok()?;
    (frame.kind == Kind::Arrival).then_some((frame, parts))
}

/// Says that the sender has understood.
fn heard() -> Frame {
    Frame {
        kind: Kind::Beat,
        tag: 0,
        context: 0,
        bytes: Vec::new().into(),
    }
}

fn refusal(reason: &str) -> Frame {
    Frame {
        kind: Kind::Failed,
        tag: 0,
        context: 0,
        bytes: reason.as_bytes().to_vec().into(),
    }
}

/// Whether the process at the other end still waits.
fn is_open(stream: &TcpStream) -> bool {
    let looked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(&mut [0]));
    let open = matches!(&looked, Err(error) if is_quiet(error));
    open && stream.set_nonblocking(false).is_ok()
}

/// Whether an error says that nothing has come yet.
fn is_quiet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// A number that nobody can guess.
fn random() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    // Its keys are from the system's random source.
    let half = |word: u64| u128::from(RandomState::new().hash_one((word, Instant::now())));
    half(0) << 64 | half(1)
}

/// A wait that mentions what for, ends by an interruption, and is limited.
struct Patience<'a> {
    asked: &'a AtomicBool,
    mention: &'a mut dyn FnMut(&str),
    mentioned: bool,
    began: Instant,
}

impl Patience<'_> {
    /// Waits a little for `what`.
    fn pause(&mut self, what: &str) -> Result<(), CommError> {
        if !self.mentioned && self.began.elapsed() > MENTION {
            self.mentioned = true;
            (self.mention)(what);
        }
        self.check()?;
        wait(self.began + WITHIN).map_err(|_| CommError::Meeting {
            reason: format!(
                "{what}, for {} s in vain; start all ranks, with the same MASTER_ADDR and MASTER_PORT, and let them reach one another",
                WITHIN.as_secs()
            ),
        })
    }

    fn check(&self) -> Result<(), CommError> {
        if self.asked.load(Ordering::Relaxed) {
            return Err(CommError::Interrupted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread;

    use super::super::link::comm_of;
    use super::*;

    fn meeting(rank: usize, port: u16) -> Meeting {
        Meeting {
            rank,
            size: 3,
            address: "localhost".to_string(),
            port,
            job: "here".to_string(),
            is_taken: false,
            is_local: true,
        }
    }

    /// A port that nobody uses now.
    fn free_port() -> u16 {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.local_addr().unwrap().port()
    }

    fn join(rank: usize, port: u16) -> Result<Arc<World>, CommError> {
        meeting(rank, port).connect(&Arc::default(), &mut |_| ())
    }

    /// Says who it is to rank 0, and returns the answer.
    fn call(port: u16, rank: u32, about: &str) -> io::Result<Frame> {
        let stream = loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(LOOK),
            }
        };
        let arrival = Frame {
            kind: Kind::Arrival,
            tag: rank,
            context: 3,
            bytes: about.as_bytes().to_vec().into(),
        };
        arrival.write(&mut &stream)?;
        Frame::read(&mut &stream, 1 << 20)
    }

    #[test]
    fn ranks_meet_whatever_else_calls_or_listens_there() {
        let port = free_port();
        // Another program has the port itself.
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        thread::spawn(move || while other.accept().is_ok() {});
        let ranks: Vec<_> = (0..3)
            .map(|rank| thread::spawn(move || join(rank, port)))
            .collect();
        // A browser, and a rank of another job.
        let mut browser = loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port + 1)) {
                Ok(stream) => break stream,
                Err(_) if ranks[0].is_finished() => {
                    break TcpStream::connect(("localhost", port)).unwrap();
                }
                Err(_) => thread::sleep(LOOK),
            }
        };
        let _ = browser.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _ = browser.read(&mut [0; 10]);
        let worlds: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert!(worlds.iter().all(Result::is_ok));
    }

    #[test]
    fn another_job_is_sent_away_and_another_version_named() {
        let port = free_port();
        let first = thread::spawn(move || join(0, port));
        let about = |job: &str, version: &str| format!("{port} {job}\n{version}\nh7\n-\n1234");
        assert!(call(port, 1, &about("elsewhere", VERSION)).is_err());
        assert!(call(port, 1, "not five parts").is_err());
        let refused = call(port, 1, &about("here", "0.0.1")).unwrap();
        assert_eq!(refused.kind, Kind::Failed);
        let expected = "rank 1 on h7 runs Pelton 0.0.1, but rank 0 on ";
        assert!(text(&refused.bytes).starts_with(expected));
        let error = first.join().unwrap().err().unwrap().to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn jobs_at_the_next_port_keep_apart() {
        let (port, next) = loop {
            let port = free_port();
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
                break (port, port + 1);
            }
        };
        // Ranks that find the other job's rank 0 before their own listens.
        let order = [
            (0, next),
            (1, port),
            (2, port),
            (0, port),
            (1, next),
            (2, next),
        ];
        let ranks = order.map(|(rank, port)| {
            let joins = thread::spawn(move || {
                let comm = comm_of(&join(rank, port).unwrap());
                comm.all_gather_ragged(&port.to_le_bytes()).unwrap()
            });
            thread::sleep(Duration::from_millis(20));
            (port, joins)
        });
        for (port, joins) in ranks {
            assert_eq!(joins.join().unwrap(), [port.to_le_bytes(); 3]);
        }
    }

    #[test]
    fn a_wait_can_be_interrupted() {
        for rank in [0, 1] {
            let asked = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&asked);
            let port = free_port();
            let waits = thread::spawn(move || meeting(rank, port).connect(&flag, &mut |_| ()));
            thread::sleep(Duration::from_millis(50));
            asked.store(true, Ordering::Relaxed);
            let error = waits.join().unwrap().err().unwrap();
            assert!(matches!(error, CommError::Interrupted), "{error}");
        }
    }
}
