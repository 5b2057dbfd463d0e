//! Serves the files of a folder over a modelled network, for measuring: a latency for each request, and a bandwidth
//! shared by all of them.
//!
//! ```text
//! cargo run --release -p pelton-remote --example serve_folder -- FOLDER LATENCY_MS MB_PER_S
//! ```
//!
//! Prints the address, and for each line on standard input how many requests and bytes there were since the last.

#[path = "../tests/support/server.rs"]
mod server;

use std::io::BufRead;
use std::time::Duration;

use server::{Behaviour, Server};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, latency, rate] = arguments.as_slice() else {
        eprintln!("usage: serve_folder FOLDER LATENCY_MS MB_PER_S");
        std::process::exit(2);
    };
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let server = Server::start(Behaviour {
        latency: Duration::from_secs_f64(number(latency) * 1e-3),
        bytes_per_s: number(rate) * 1e6,
        ..Behaviour::default()
    });
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let name = path.file_name().expect("a name").to_string_lossy();
            server.put(&name, std::fs::read(&path).expect("readable"));
        }
    }
    println!("{}", server.url(""));
    let mut before = (0, 0);
    for _ in std::io::stdin().lock().lines() {
        let now = (server.requests(), server.bytes());
        println!("{} requests, {} bytes", now.0 - before.0, now.1 - before.1);
        before = now;
    }
}
