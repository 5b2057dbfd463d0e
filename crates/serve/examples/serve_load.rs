//! Load on `pelton serve` from a second process.
//!
//! ```text
//! serve_load make FOLDER CLASSES D                      a run folder with class vectors, as training would leave it
//! serve_load drive ADDRESS FOLDER CONNECTIONS SECONDS [RATE]   requests as fast as they are answered, a query each,
//!                                                              or RATE a second, timed from when each was due
//! ```
//!
//! Class vectors are a hierarchical mixture with the variances of `demo:classes`; there is no net, so a query costs
//! only its transport and search. Queries are class vectors plus noise of equal length, saved with the best class of
//! each by brute force. A refused connection retries after ten milliseconds.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pelton_key::{KeyedRng, mix};
use pelton_run::{Dtype, Entries, RunFolder, Set, Tensor, write_checkpoint};
use pelton_softmax::{ClassIndex, Logits, Margin};
use pelton_train::classify::HeadConfig;
use pelton_train::image::{ImageConfig, ImageModel};

const QUERIES: usize = 4000;

fn add_normals(to: &mut [f32], seed: u64, scale: f32) {
    let mut rng = KeyedRng::new(seed);
    for x in to {
        let (u, v) = (rng.next_f64().max(1e-12), rng.next_f64());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        *x += scale * normal as f32;
    }
}

fn make(folder: &Path, classes: usize, d: usize) {
    let mut weights = vec![0.0; classes * d];
    for (class, row) in weights.chunks_mut(d).enumerate() {
        let (mut count, mut rest, mut level) = (32, 1.0f32, 1);
        while count < classes {
            let seed = mix(level << 40 | (class % count) as u64);
            add_normals(row, seed, (rest * 0.3).sqrt());
            (count, rest, level) = (count * 32, rest * 0.7, level + 1);
        }
        add_normals(row, mix(99 << 40 | class as u64), rest.sqrt());
    }
    let mut rng = KeyedRng::new(4);
    let mut queries = Vec::with_capacity(QUERIES * d);
    for _ in 0..QUERIES {
        let class = rng.below(classes as u64) as usize;
        let mut query = weights[class * d..][..d].to_vec();
        add_normals(&mut query, rng.next_u64(), 1.0);
        queries.extend(query);
    }
    let config = ImageConfig {
        model: ImageModel::None,
        head: Some(HeadConfig {
            embedding: d,
            ..HeadConfig::default()
        }),
        ..ImageConfig::default()
    };
    let run = RunFolder::open(folder, &config, false, false).expect("a new folder");
    let run = run.with_settings(config.decisive());
    let described = serde_json::json!({ "image": [d], "features": d, "count": classes, "labels": [], "names": [] });
    run.write_json("classes.json", &described)
        .expect("the classes");
    let rows = serde_json::json!([{ "name": "weights", "first": 0, "total": classes, "width": d }]);
    let all = Tensor::new("weights", Dtype::F32, &weights).shaped(&[classes, d]);
    let (number, _) = run.begin(Set::Model).expect("a model");
    let mut files = Entries::from([run.entry("classes.json").expect("the classes")]);
    for (name, text, arrays) in [
        ("model.safetensors", "", vec![]),
        ("model-1-0-of-1.rows", &*rows.to_string(), vec![all]),
    ] {
        let entry = write_checkpoint(&folder.join(name), text, arrays).expect(name);
        files.insert(name.to_string(), entry);
    }
    run.commit(Set::Model, number, files).expect("a manifest");
    let (scale, margin) = (16.0, Margin::NONE);
    let index = ClassIndex::exact(&weights, d, Logits::Cosine { scale, margin });
    let best = index.search_all(&queries, 1);
    let lines = best.iter().zip(queries.chunks(d)).map(|(best, query)| {
        let numbers: Vec<String> = query.iter().map(|x| format!("{x:.5}")).collect();
        format!("{} {}\n", best[0].0, numbers.join(","))
    });
    let lines: String = lines.collect();
    run.write_text("queries.txt", &lines).expect("the queries");
}

#[derive(Default)]
struct Seen {
    statuses: BTreeMap<u16, u64>,
    milliseconds: Vec<f64>,
    right: u64,
}

/// Drives one connection until the time is over.
fn drive(
    address: &str,
    queries: &[(u64, String)],
    number: usize,
    end: Instant,
    every: Duration,
) -> Seen {
    let mut seen = Seen::default();
    let mut rng = KeyedRng::new(number as u64);
    let mut connection: Option<BufReader<TcpStream>> = None;
    // Spreads connections over the time between two requests of one.
    let mut due = Instant::now() + every.mul_f64(rng.next_f64());
    while Instant::now() < end {
        let (best, request) = &queries[rng.below(queries.len() as u64) as usize];
        let mut began = Instant::now();
        if !every.is_zero() {
            std::thread::sleep(due.saturating_duration_since(began));
            began = due;
            due += every;
        }
        let (status, body) = match exchange(&mut connection, address, request) {
            Ok(answer) => answer,
            Err(_) => {
                connection = None;
                (0, String::new())
            }
        };
        *seen.statuses.entry(status).or_default() += 1;
        if status == 200 {
            seen.milliseconds.push(began.elapsed().as_secs_f64() * 1e3);
            let first = format!("{{\"results\":[[{{\"class\":{best},");
            seen.right += u64::from(body.starts_with(&first));
        } else {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    seen
}

fn exchange(
    connection: &mut Option<BufReader<TcpStream>>,
    address: &str,
    request: &str,
) -> std::io::Result<(u16, String)> {
    if connection.is_none() {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        *connection = Some(BufReader::new(stream));
    }
    let stream = connection.as_mut().expect("just made");
    stream.get_mut().write_all(request.as_bytes())?;
    let bad = || std::io::Error::other("no answer of HTTP");
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(bad());
        }
        let line = line.trim().to_ascii_lowercase();
        match line.strip_prefix("content-length: ") {
            Some(text) => length = text.parse().map_err(|_| bad())?,
            None if line.starts_with("http/1.1 ") => status = line[9..12].parse().ok(),
            None if line.is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((
        status.ok_or_else(bad)?,
        String::from_utf8(body).map_err(|_| bad())?,
    ))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match words[..] {
        ["make", folder, classes, d] => make(Path::new(folder), number(classes), number(d)),
        [
            "drive",
            address,
            folder,
            connections,
            seconds,
            ref rate @ ..,
        ] if rate.len() < 2 => {
            let rate = rate.first().map_or(0, |rate| number(rate));
            let every = number(connections) as f64 / rate as f64;
            let every = if rate > 0 { every } else { 0.0 };
            let every = Duration::from_secs_f64(every);
            let text = std::fs::read_to_string(Path::new(folder).join("queries.txt"));
            let text = text.expect("queries; make them first");
            let query = |line: &str| {
                let (best, numbers) = line.split_once(' ').expect("a query");
                let body = format!("{{\"features\":[[{numbers}]],\"k\":5}}");
                let request = format!(
                    "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                (best.parse().expect("a class"), request)
            };
            let queries: Vec<(u64, String)> = text.lines().map(query).collect();
            let (began, seen) = (Instant::now(), Mutex::new(Seen::default()));
            let end = began + Duration::from_secs(number(seconds) as u64);
            std::thread::scope(|scope| {
                for connection in 0..number(connections) {
                    let (seen, queries) = (&seen, &queries);
                    scope.spawn(move || {
                        let one = drive(address, queries, connection, end, every);
                        let mut all = seen.lock().expect("no panic");
                        for (status, count) in one.statuses {
                            *all.statuses.entry(status).or_default() += count;
                        }
                        all.milliseconds.extend(one.milliseconds);
                        all.right += one.right;
                    });
                }
            });
            let mut all = seen.into_inner().expect("no panic");
            let answered = all.milliseconds.len();
            all.milliseconds.sort_by(f64::total_cmp);
            let quantile = |part: f64| match answered {
                0 => f64::NAN,
                n => all.milliseconds[((n as f64 * part) as usize).min(n - 1)],
            };
            println!(
                "{connections} connections: {:.0} queries/s, p50 {:.2} ms, p99 {:.2} ms, recall@1 {:.4}, statuses {:?} (0: broken off)",
                answered as f64 / began.elapsed().as_secs_f64(),
                quantile(0.5),
                quantile(0.99),
                all.right as f64 / answered.max(1) as f64,
                all.statuses,
            );
        }
        _ => panic!("make FOLDER CLASSES D, or drive ADDRESS FOLDER CONNECTIONS SECONDS [RATE]"),
    }
}
