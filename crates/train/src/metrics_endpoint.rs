//! Counters of a running pipeline as Prometheus text over HTTP.
//!
//! One thread answers one request at a time: whoever scrapes asks every few seconds. Each connection has two
//! seconds and 8 KiB for its request, so that a client that says nothing holds up nobody for long.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pelton_feed::LoaderMeters;

use crate::error::TrainError;

const TIMEOUT: Duration = Duration::from_secs(2);
const MOST_REQUEST: usize = 8 << 10;

/// Answers `GET /metrics` until it is dropped.
#[derive(Debug)]
pub struct MetricsEndpoint {
    address: SocketAddr,
    text: Arc<Mutex<String>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsEndpoint {
    /// Listens at `address`, such as `127.0.0.1:9464`; port 0 takes a free one.
    ///
    /// Errors: an address that is none, or that is taken.
    pub fn start(address: &str) -> Result<MetricsEndpoint, TrainError> {
        let refused = |error: io::Error| {
            TrainError::Config(format!(
                "no metrics can be served at {address} ({error}); name another address and port with --metrics"
            ))
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let text = Arc::new(Mutex::new(String::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let (shown, ended) = (Arc::clone(&text), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // A client that goes away is no concern of the run.
                let _ = connection.and_then(|connection| answer(connection, &shown));
            }
        });
        Ok(MetricsEndpoint {
            address,
            text,
            ends,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is answered from now on.
    pub fn update(&self, meters: &LoaderMeters) {
        let text = prometheus_text(meters);
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for a connection.
        let _ = TcpStream::connect_timeout(&self.address, TIMEOUT);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut connection: TcpStream, text: &Mutex<String>) -> io::Result<()> {
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = connection.read(&mut piece)?;
        if count == 0 || request.len() + count > MOST_REQUEST {
            return Ok(());
        }
        request.extend_from_slice(&piece[..count]);
    }
    let (status, body) = match request
        .strip_prefix(b"GET ")
        .map(|rest| rest.split(|&b| b == b' ').next())
    {
        Some(Some(b"/metrics" | b"/")) => (
            "200 OK",
            text.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        ),
        _ => ("404 Not Found", "the counters are at /metrics\n".to_owned()),
    };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The counters in Prometheus' text format.
pub fn prometheus_text(meters: &LoaderMeters) -> String {
    let mut out = String::new();
    let mut counter = |name: &str, help: &str, value: f64| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "# HELP pelton_{name} {help}\n# TYPE pelton_{name} counter\npelton_{name} {value}"
        );
    };
    counter(
        "batches_total",
        "Batches handed out.",
        meters.batches as f64,
    );
    counter(
        "fresh_examples_total",
        "Examples handed out for the first time in their epoch.",
        meters.fresh_examples as f64,
    );
    counter(
        "echoed_examples_total",
        "Repeats of examples.",
        meters.echoed_examples as f64,
    );
    counter(
        "skipped_examples_total",
        "Examples left out as bad.",
        meters.skipped_examples as f64,
    );
    counter(
        "replaced_examples_total",
        "Examples replaced because they were bad.",
        meters.replaced_examples as f64,
    );
    counter(
        "batch_bytes_total",
        "Bytes of batches.",
        meters.batch_bytes as f64,
    );
    counter(
        "read_bytes_total",
        "Bytes read from storage.",
        meters.feed.read_bytes as f64,
    );
    counter(
        "wait_seconds_total",
        "Seconds the consumer waited for batches.",
        meters.wait_s,
    );
    counter(
        "compute_seconds_total",
        "Seconds the consumer spent between batches.",
        meters.compute_s,
    );
    let stages = [
        (
            "busy_seconds_total",
            "Seconds of work of a stage's threads.",
        ),
        ("records_total", "Examples a stage worked on."),
    ];
    for (name, help) in stages {
        let _ = writeln!(
            out,
            "# HELP pelton_stage_{name} {help}\n# TYPE pelton_stage_{name} counter"
        );
        for stage in &meters.stages {
            let value = match name {
                "records_total" => stage.records as f64,
                _ => stage.busy_s,
            };
            let _ = writeln!(
                out,
                "pelton_stage_{name}{{stage=\"{}\"}} {value}",
                stage.name
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use pelton_feed::StageMeters;

    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn counters_are_served_as_text() {
        let endpoint = MetricsEndpoint::start("127.0.0.1:0").unwrap();
        let meters = LoaderMeters {
            fresh_examples: 640,
            stages: vec![StageMeters {
                name: "decode",
                busy_s: 1.5,
                ..StageMeters::default()
            }],
            ..LoaderMeters::default()
        };
        endpoint.update(&meters);
        let answer = ask(
            endpoint.address(),
            "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert!(
            body.contains("\npelton_fresh_examples_total 640\n"),
            "{body}"
        );
        assert!(body.contains("\npelton_stage_busy_seconds_total{stage=\"decode\"} 1.5\n"));
        // Every line is a comment or a name and a number.
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
        }
        for request in [
            "POST /metrics HTTP/1.1\r\n\r\n",
            "GET /x HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(ask(endpoint.address(), request).starts_with("HTTP/1.1 404"));
        }
        // A request that never ends, and one that is too long, get no answer and stop nothing.
        let most = "GET /metrics HTTP/1.1\r\n".to_owned() + &"x".repeat(MOST_REQUEST);
        let mut connection = TcpStream::connect(endpoint.address()).unwrap();
        let _ = connection.write_all(most.as_bytes());
        drop(connection);
        assert!(ask(endpoint.address(), "GET / HTTP/1.0\r\n\r\n").contains("200 OK"));
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let endpoint = MetricsEndpoint::start("127.0.0.1:0").unwrap();
        let address = endpoint.address().to_string();
        let error = MetricsEndpoint::start(&address).unwrap_err().to_string();
        assert!(
            error.contains(&address) && error.contains("--metrics"),
            "{error}"
        );
        assert!(MetricsEndpoint::start("nowhere").is_err());
    }
}
