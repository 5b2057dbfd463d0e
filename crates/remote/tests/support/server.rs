//! A web server on the loopback device with a modelled network and faults on demand.
#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A fault in one answer to a GET.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// This status instead of the file, with a body.
    Status(u16, &'static str),
    /// The connection breaks after this many bytes of the answer's body.
    Reset(usize),
    /// The answer states this many bytes, fewer than requested, and ends there.
    Short(usize),
    /// Nothing is sent for this long before the answer.
    Silence(Duration),
    /// The answer stops for this long after the first byte of its body.
    Stall(Duration),
    /// The whole file, whatever part was requested.
    Whole,
    /// As if the file had been rewritten by the time of this answer, whatever state was requested.
    Rewritten,
    /// The right headers and no fault.
    None,
}

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Time from a request to the first byte of its answer.
    pub latency: Duration,
    /// Bytes a second of all answers together.
    pub bytes_per_s: f64,
    pub etag: bool,
    pub last_modified: bool,
    /// Whether a part comes with the size of the whole file.
    pub says_size: bool,
    /// Whether bodies come in chunks, without a length.
    pub in_chunks: bool,
    /// Further headers of files.
    pub headers: &'static str,
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour {
            latency: Duration::ZERO,
            bytes_per_s: f64::INFINITY,
            etag: true,
            last_modified: true,
            says_size: true,
            in_chunks: false,
            headers: "",
        }
    }
}

/// A file, and how often it was written again.
type Stored = (Arc<Vec<u8>>, u32);

struct Shared {
    behaviour: Behaviour,
    files: Mutex<BTreeMap<String, Stored>>,
    faults: Mutex<VecDeque<Fault>>,
    free_at: Mutex<Instant>,
    requests: AtomicU64,
    bytes: AtomicU64,
    under_way: AtomicU64,
    most_under_way: AtomicU64,
    seen: Mutex<Vec<String>>,
    ends: AtomicBool,
}

pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Server {
    pub fn start(behaviour: Behaviour) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            behaviour,
            files: Mutex::default(),
            faults: Mutex::default(),
            free_at: Mutex::new(Instant::now()),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            most_under_way: AtomicU64::new(0),
            seen: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                if serving.ends.load(Relaxed) {
                    return;
                }
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.connection(stream));
            }
        });
        Server { shared, address }
    }

    /// Puts a file there, or another state of it.
    pub fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        let mut files = lock(&self.shared.files);
        let version = files.get(name).map_or(0, |(_, version)| version + 1);
        files.insert(name.to_owned(), (Arc::new(bytes.into()), version));
    }

    /// Sets the faults of the next answers, one each.
    pub fn faults(&self, faults: impl IntoIterator<Item = Fault>) {
        *lock(&self.shared.faults) = faults.into_iter().collect();
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Relaxed)
    }

    /// Bytes of files that were sent.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Relaxed)
    }

    pub fn most_under_way(&self) -> u64 {
        self.shared.most_under_way.load(Relaxed)
    }

    /// The requests so far: paths and byte ranges.
    pub fn seen(&self) -> Vec<String> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Relaxed);
        // Wakes the one that waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

struct Request {
    method: String,
    target: String,
    range: Option<String>,
    if_match: Option<String>,
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ');
    let mut request = Request {
        method: words.next()?.to_owned(),
        target: words.next()?.to_owned(),
        range: None,
        if_match: None,
    };
    loop {
        let mut header = String::new();
        reader
            .read_line(&mut header)
            .ok()
            .filter(|read| *read > 0)?;
        let header = header.trim_end();
        if header.is_empty() {
            return Some(request);
        }
        let (name, value) = header.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = Some(value.trim().to_owned()),
            "if-match" => request.if_match = Some(value.trim().to_owned()),
            _ => {}
        }
    }
}

impl Shared {
    fn connection(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut out = stream.try_clone().expect("a second handle");
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            self.requests.fetch_add(1, Relaxed);
            let now = self.under_way.fetch_add(1, Relaxed) + 1;
            self.most_under_way.fetch_max(now, Relaxed);
            let range = request.range.as_deref().unwrap_or("all");
            lock(&self.seen).push(format!("{} {} {range}", request.method, request.target));
            let goes_on = self.answer(&request, &mut out);
            self.under_way.fetch_sub(1, Relaxed);
            if goes_on != Some(true) || self.ends.load(Relaxed) {
                let _ = out.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    /// Whether the connection stays open; `None` if the client is gone.
    fn answer(&self, request: &Request, out: &mut TcpStream) -> Option<bool> {
        std::thread::sleep(self.behaviour.latency);
        let fault = match request.method.as_str() {
            "GET" => lock(&self.faults).pop_front().unwrap_or(Fault::None),
            _ => Fault::None,
        };
        if let Fault::Silence(pause) = fault {
            std::thread::sleep(pause);
        }
        if let Fault::Status(status, body) = fault {
            return plain(out, status, body);
        }
        let name = request.target.trim_start_matches('/');
        let name = name.split('?').next().unwrap_or_default();
        let Some((bytes, mut version)) = lock(&self.files).get(name).cloned() else {
            return plain(out, 404, "nothing here");
        };
        version += u32::from(fault == Fault::Rewritten);
        let etag = format!("\"{name}-{version}\"");
        if let Some(wanted) = &request.if_match
            && self.behaviour.etag
            && *wanted != etag
            && fault != Fault::Rewritten
        {
            return plain(out, 412, "another state");
        }
        let size = bytes.len();
        let part = request.range.as_deref().and_then(|range| {
            let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()? + 1))
        });
        let part = part.filter(|_| fault != Fault::Whole);
        let (from, to) = part.map_or((0, size), |(from, to)| (from, to.min(size)));
        if from >= size && part.is_some() {
            return plain(out, 416, "no such part");
        }
        let mut length = to - from;
        if let Fault::Short(short) = fault {
            length = length.min(short);
        }
        let mut head = match part {
            Some(_) => format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{}\r\n",
                to - 1,
                if self.behaviour.says_size {
                    size.to_string()
                } else {
                    "*".into()
                }
            ),
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
        };
        head += "Accept-Ranges: bytes\r\n";
        head += self.behaviour.headers;
        let in_chunks = self.behaviour.in_chunks;
        if in_chunks {
            head += "Transfer-Encoding: chunked\r\n"
        } else {
            head += &format!("Content-Length: {length}\r\n")
        }
        if self.behaviour.etag {
            head += &format!("ETag: {etag}\r\n");
        }
        if self.behaviour.last_modified {
            head += &format!(
                "Last-Modified: Tue, 01 Jul 2025 10:00:{:02} GMT\r\n",
                version % 60
            );
        }
        head += "\r\n";
        out.write_all(head.as_bytes()).ok()?;
        if request.method == "HEAD" {
            return Some(true);
        }
        let body = &bytes[from..from + length];
        if !in_chunks {
            return self.body(body, &fault, out);
        }
        out.write_all(format!("{length:x}\r\n").as_bytes()).ok()?;
        let goes_on = self.body(body, &fault, out)?;
        out.write_all(b"\r\n0\r\n\r\n").ok()?;
        Some(goes_on)
    }

    /// Sends the body at the pace of the modelled network.
    fn body(&self, body: &[u8], fault: &Fault, out: &mut TcpStream) -> Option<bool> {
        let end = match fault {
            Fault::Reset(after) => body.len().min(*after),
            _ => body.len(),
        };
        let first = match fault {
            Fault::Stall(_) => 1,
            _ => 16 << 10,
        };
        let mut at = 0;
        while at < end {
            let piece = &body[at..end.min(at + if at == 0 { first } else { 16 << 10 })];
            self.wait_for(piece.len());
            // Counted first, so that the one that has read them finds them counted.
            self.bytes.fetch_add(piece.len() as u64, Relaxed);
            out.write_all(piece).ok()?;
            at += piece.len();
            if let (Fault::Stall(pause), 1) = (fault, at) {
                std::thread::sleep(*pause);
            }
        }
        Some(!matches!(fault, Fault::Reset(_)))
    }

    fn wait_for(&self, bytes: usize) {
        if self.behaviour.bytes_per_s.is_infinite() {
            return;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / self.behaviour.bytes_per_s);
        let until = {
            let mut free_at = lock(&self.free_at);
            *free_at = (*free_at).max(Instant::now()) + takes;
            *free_at
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

fn plain(out: &mut TcpStream, status: u16, body: &str) -> Option<bool> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {length}\r\n\r\n{body}");
    out.write_all(text.as_bytes()).ok()?;
    Some(true)
}
