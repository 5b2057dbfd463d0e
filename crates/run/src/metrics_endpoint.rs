//! Counters of a running pipeline as Prometheus text over HTTP.
//!
//! One thread answers one request at a time: scrapes come every few seconds. Each connection has two
//! seconds and 8 KiB for its request, so a silent client does not block others for long.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::RunError;
use crate::prometheus::PROMETHEUS_TYPE;

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
    pub fn start(address: &str) -> Result<MetricsEndpoint, RunError> {
        let given = address;
        let refused = |error: io::Error| RunError::Address {
            address: given.to_string(),
            source: error,
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let text = Arc::new(Mutex::new(String::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let (shown, ended) = (Arc::clone(&text), Arc::clone(&ends));
        let thread = std::thread::Builder::new().name("metrics".to_string());
        let thread = thread.spawn(move || {
            for connection in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // A client that disconnects does not matter to the run.
                let _ = connection.and_then(|connection| answer(connection, &shown));
            }
        });
        let thread = thread.map_err(refused)?;
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
    pub fn update(&self, text: String) {
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
        "HTTP/1.1 {status}\r\nContent-Type: {PROMETHEUS_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
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
        let text = "# HELP pelton_fresh_examples_total x\npelton_fresh_examples_total 640\n";
        endpoint.update(text.to_string());
        let answer = ask(
            endpoint.address(),
            "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert_eq!(body, text);
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
            error.contains(&address) && error.contains("`metrics`"),
            "{error}"
        );
        assert!(MetricsEndpoint::start("nowhere").is_err());
    }
}
