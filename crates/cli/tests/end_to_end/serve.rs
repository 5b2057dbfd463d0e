//! `pelton serve` over its sockets: answers, refusals, limits, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::{Ended, Place};

const CLASSES: usize = 8;

/// A run over vectors of 6 numbers: class `i` of 8 has 3 at index `i`, or -3 at `i - 6`.
pub fn trained() -> Place {
    let place = Place::new();
    let line = |i: usize| {
        let class = i % CLASSES;
        let value = |j: usize| {
            if j == class % 6 {
                3.0 - 6.0 * (class / 6) as f64
            } else {
                ((i * 7 + j * 13) % 11) as f64 / 20.0
            }
        };
        let values: Vec<String> = (0..6).map(|j| value(j).to_string()).collect();
        format!("name{class},{}\n", values.join(","))
    };
    place.write("data.csv", (0..400).map(line).collect::<String>());
    place.write("few.csv", (0..CLASSES).map(line).collect::<String>());
    place.ok("train classify data.csv --label 1 --model none --epochs 3 --batch 20 --out run");
    place
}

/// The vectors of `few.csv`.
fn few(place: &Place) -> Vec<Vec<f64>> {
    String::from_utf8(place.read("few.csv"))
        .unwrap()
        .lines()
        .map(|line| {
            line.split(',')
                .skip(1)
                .map(|x| x.parse().unwrap())
                .collect()
        })
        .collect()
}

/// A server that ends with the test.
pub struct Server {
    child: Option<Child>,
    address: String,
}

impl Server {
    pub fn start(place: &Place, flags: &str) -> Server {
        let mut child = place.start(&format!("serve run --port 0 {flags}"));
        let mut line = String::new();
        let mut out = BufReader::with_capacity(1, child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        child.stdout = Some(out.into_inner());
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("{line}")).to_string();
        Server {
            child: Some(child),
            address,
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    /// Sends these bytes and reads to the end of the connection: status, head, and body.
    pub fn exchange(&self, request: &[u8]) -> (u16, String, String) {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        response(stream)
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (status, _, body) = self.exchange(request.as_bytes());
        (status, body)
    }

    fn post(&self, body: &str) -> (u16, Value) {
        self.post_to("classify", body)
    }

    fn post_to(&self, what: &str, body: &str) -> (u16, Value) {
        let (status, _, body) = self.exchange(&asking(what, body));
        (
            status,
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")),
        )
    }

    /// Ends the server by a signal, within two seconds.
    fn end(mut self, signal: rustix::process::Signal) -> Ended {
        let child = self.child.take().unwrap();
        let began = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let ended = Ended::of(child);
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn asking(what: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/{what} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn response(mut stream: TcpStream) -> (u16, String, String) {
    let mut bytes = Vec::new();
    // If a server closes early, unread data may reset the connection after its answer.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_string(), body.to_string())
}

#[test]
fn answers_are_those_of_predict_and_what_is_wrong_is_refused() {
    let place = trained();
    let server = Server::start(&place, "--max-body 2000");
    let rows = few(&place);
    let (status, answer) = server.post(&json!({ "features": rows, "k": 3 }).to_string());
    assert_eq!(status, 200, "{answer}");
    assert!(answer["milliseconds"].as_f64().unwrap() > 0.0);
    let predicted = place.ok("predict run few.csv --label 1 --top 3").stdout;
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), CLASSES);
    for ((class, line), result) in predicted.lines().enumerate().zip(results) {
        let mut said = line.split('\t');
        assert_eq!(result.as_array().unwrap().len(), 3);
        for report in result.as_array().unwrap() {
            assert_eq!(report["label"], said.next().unwrap());
            let score: f64 = said.next().unwrap().parse().unwrap();
            assert!(
                (report["score"].as_f64().unwrap() - score).abs() < 2e-6,
                "{report} {line}"
            );
        }
        assert_eq!(result[0]["label"], format!("name{class}"));
    }
    // The default is five classes.
    let (_, answer) = server.post(&json!({ "features": [rows[0]] }).to_string());
    assert_eq!(answer["results"][0].as_array().unwrap().len(), 5);

    for (body, part) in [
        ("{\"features\": [[1, 2]]}", "has 2 numbers; the net takes 6"),
        ("{\"features\": [[1,2,3,4,5,NaN]]}", "the body is not"),
        ("{\"features\": [[1,2,3,4,5,1e99]]}", "out of range"),
        ("{\"image\": \"AAAA\"}", "takes vectors, not images"),
        ("{", "the body is not"),
    ] {
        let (status, answer) = server.post(body);
        assert_eq!(status, 400, "{body}");
        let error = answer["error"].as_str().unwrap();
        assert!(
            error.contains(part) && !error.contains('\n'),
            "{body}: {error}"
        );
    }
    let large = format!("{{\"features\": [[{}1]]}}", "0,".repeat(2000));
    assert_eq!(server.post(&large).0, 413);
    let chunked = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut request = chunked.to_vec();
    for _ in 0..3 {
        request.extend(b"3e8\r\n");
        request.extend([b' '; 1000]);
        request.extend(b"\r\n");
    }
    assert_eq!(server.exchange(&request).0, 413);
    assert_eq!(server.get("/nothing").0, 404);
    assert_eq!(server.get("/v1/classify").0, 405);
    let text = "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(server.exchange(text.as_bytes()).0, 415);

    assert_eq!(server.get("/health"), (200, "ok\n".to_string()));
    let (status, page) = server.get("/");
    assert!(status == 200 && page.starts_with("<!doctype html>"));
    assert!(!page.contains("https://"), "the page needs no other server");
    let model: Value = serde_json::from_str(&server.get("/v1/model").1).unwrap();
    assert_eq!(
        (&model["input"], &model["classes"]),
        (&json!([6]), &json!(CLASSES))
    );
    let (_, metrics) = server.get("/metrics");
    let queries = CLASSES + 1;
    for line in [
        "pelton_responses_total{status=\"200\"} 5",
        "pelton_responses_total{status=\"400\"} 5",
        "pelton_responses_total{status=\"413\"} 2",
        &format!("pelton_queries_total {queries}"),
        "pelton_in_flight 0",
        "pelton_latency_seconds_count 2",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
    let ended = server.end(rustix::process::Signal::INT).succeeded("serve");
    assert!(
        ended
            .stdout
            .contains(&format!("{queries} queries answered")),
        "{}",
        ended.stdout
    );
}

#[test]
fn features_are_those_of_predict() {
    let place = trained();
    let server = Server::start(&place, "");
    let rows = few(&place);
    let (status, answer) = server.post_to("embed", &json!({ "features": rows }).to_string());
    assert_eq!(status, 200, "{answer}");
    place.ok("predict run few.csv --label 1 --embeddings few.npy");
    let file = place.read("few.npy");
    let numbers = file[file.len() - 4 * 6 * CLASSES..].chunks_exact(4);
    let expected = numbers.map(|x| f64::from(f32::from_le_bytes(x.try_into().unwrap())));
    let results = answer["results"].as_array().unwrap();
    let report = results.iter().flat_map(|row| row.as_array().unwrap());
    let report: Vec<f64> = report.map(|x| x.as_f64().unwrap()).collect();
    assert_eq!(report.len(), 6 * CLASSES);
    for (report, expected) in report.iter().zip(expected) {
        assert!((report - expected).abs() < 1e-6, "{report} {expected}");
    }
    let (status, answer) = server.post_to("embed", &json!({"features": rows, "k": 3}).to_string());
    assert_eq!(status, 400);
    assert!(answer["error"].as_str().unwrap().contains("leave it out"));
}

#[test]
fn slow_and_many_clients_take_nothing_from_others() {
    let place = trained();
    let server = Server::start(&place, "--timeout 0.6 --concurrency 2");
    let question = "{\"features\": [[3,0,0,0,0,0]]}";
    // Two requests that never send their bodies take both slots.
    let head = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{";
    let slow = [(); 2].map(|()| {
        let mut stream = server.connect();
        stream.write_all(head).unwrap();
        stream
    });
    let began = Instant::now();
    while !server.get("/metrics").1.contains("pelton_in_flight 2\n") {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "they were never under way"
        );
    }
    let began = Instant::now();
    let (status, headers, body) = server.exchange(&asking("classify", question));
    assert_eq!(status, 503, "{body}");
    assert!(began.elapsed() < Duration::from_millis(500), "at once");
    assert!(
        headers.to_lowercase().contains("retry-after: 1"),
        "{headers}"
    );
    for stream in slow {
        assert_eq!(response(stream).0, 408);
    }
    // A head that never ends is cut off.
    let mut half = server.connect();
    half.write_all(b"POST /v1/cla").unwrap();
    let mut rest = Vec::new();
    let _ = half.read_to_end(&mut rest);
    assert_eq!(server.post(question).0, 200);

    // Far more at once than allowed: each gets an answer, and none is lost.
    let many: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&asking("classify", question)).unwrap();
            stream
        })
        .collect();
    let statuses: Vec<u16> = many.into_iter().map(|stream| response(stream).0).collect();
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
    assert!(statuses.contains(&200));
    assert_eq!(server.post(question).0, 200);

    // A request that is arriving at shutdown is still answered, and idle connections do not delay the end.
    let idle = server.connect();
    let mut late = server.connect();
    let request = asking("classify", question);
    let rest = { request.clone() }.split_off(request.len() - 5);
    late.write_all(&request[..request.len() - 5]).unwrap();
    let began = Instant::now();
    while !server.get("/metrics").1.contains("pelton_in_flight 1\n") {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "it was never under way"
        );
    }
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        late.write_all(&rest).unwrap();
        response(late).0
    });
    let ended = server.end(rustix::process::Signal::TERM).succeeded("serve");
    assert!(
        ended.stdout.contains("queries answered"),
        "{}",
        ended.stdout
    );
    assert_eq!(sender.join().unwrap(), 200);
    drop(idle);
}

/// A figure of `/proc/PID/status` in KiB.
fn status(child: &Child, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let figure = line
        .unwrap()
        .trim_start_matches(':')
        .trim()
        .trim_end_matches(" kB");
    figure.parse().unwrap()
}

/// Answers once had no limit: 64 answers of a thousand classes for each of 1024 vectors took 3 GB until clients read
/// them, and shutdown waited for all of them.
#[test]
fn many_of_the_largest_requests_take_bounded_memory_and_time() {
    let place = trained();
    let server = Server::start(&place, "--timeout 5");
    let child = server.child.as_ref().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let idle = status(child, "VmRSS");
    let row = "[0.25,0.25,0.25,0.25,0.25,0.25]";
    let rows = |count: usize, k: usize| {
        let more = format!("{row},").repeat(count - 1);
        format!("{{\"features\":[{more}{row}],\"k\":{k}}}")
    };
    let (status_, refusal) = server.post(&rows(1024, 1000));
    assert_eq!(status_, 400);
    let sentence = refusal["error"].as_str().unwrap();
    assert!(sentence.contains("send at most 32 vectors"), "{sentence}");
    // The largest possible body with the largest possible answer.
    let mut largest = rows(1024, 32);
    largest.push_str(&" ".repeat((8 << 20) - largest.len()));
    let request = asking("classify", &largest);
    let seen = std::sync::Mutex::new(std::collections::BTreeMap::<u16, usize>::new());
    std::thread::scope(|scope| {
        for client in 0..50 {
            let (server, request, seen) = (&server, &request, &seen);
            scope.spawn(move || {
                let mut stream = server.connect();
                // A refused client may get the answer while still sending.
                let _ = stream.write_all(request);
                if client % 5 == 0 {
                    // Sends a request and does not read.
                    std::thread::sleep(Duration::from_secs(1));
                }
                let (status, _, _) = response(stream);
                *seen.lock().unwrap().entry(status).or_default() += 1;
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    assert!(
        seen.keys().all(|status| [200, 408, 503].contains(status)) && seen[&200] > 0,
        "{seen:?}"
    );
    let peak = status(child, "VmHWM");
    // The limits for bodies and for answers, plus some MB for connections and a pass.
    assert!(peak <= idle + (24 << 10), "{idle} KiB idle, {peak} KiB");

    // Shutdown is quick under load too.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let small = asking("classify", &rows(1024, 32));
    let address = server.address.clone();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            let (stop, small, address) = (&stop, &small, &address);
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(address) else {
                        std::thread::sleep(Duration::from_millis(10));
                        continue;
                    };
                    let mut answer = Vec::new();
                    let _ = stream.write_all(small);
                    let _ = stream.read_to_end(&mut answer);
                }
            });
        }
        // The clients also end if this fails.
        let _stops = Stops(&stop);
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        server.end(rustix::process::Signal::TERM).succeeded("serve");
        assert!(
            began.elapsed() <= Duration::from_millis(1500),
            "{:?}",
            began.elapsed()
        );
    });
}

/// Sets a flag when dropped.
struct Stops<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The connection was once reset while the client was still sending, which lost the refusal.
#[test]
fn a_body_over_the_limit_is_refused_before_the_connection_ends() {
    let place = trained();
    let server = Server::start(&place, "--max-body 100kB");
    let large = vec![b' '; 30 << 20];
    let head = |length: &str| {
        format!("POST /v1/classify HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n").into_bytes()
    };
    let declared = head(&format!("Content-Length: {}", large.len()));
    let mut chunk = format!("{:x}\r\n", large.len()).into_bytes();
    chunk.extend(&large);
    chunk.extend(b"\r\n0\r\n\r\n");
    let chunked = [head("Transfer-Encoding: chunked"), chunk].concat();
    for request in [[declared, large].concat(), chunked] {
        // Like clients that send everything before reading.
        let mut stream = server.connect();
        stream.write_all(&request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("larger than 100000 bytes"), "{answer}");
    }
    // A client that asks first gets the refusal without sending.
    let asks = head("Content-Length: 1000000\r\nExpect: 100-continue");
    assert_eq!(server.exchange(&asks).0, 413);
    // A refusal without a body read leaves the connection for the next request.
    let mut stream = server.connect();
    let body = "{\"features\": [[3,0,0,0,0,0]]}";
    let text = format!(
        "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 50000\r\n\r\n{}",
        " ".repeat(50_000)
    );
    stream.write_all(text.as_bytes()).unwrap();
    stream.write_all(&asking("classify", body)).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert!(answers.starts_with("HTTP/1.1 415 "), "{answers}");
    assert!(answers.contains("HTTP/1.1 200 "), "{answers}");
}

/// Its answer once stayed in memory for ever.
#[test]
fn a_client_that_does_not_read_loses_its_connection() {
    let place = Place::new();
    // Long names, so that an answer fills the buffers of a connection.
    let name = "n".repeat(250);
    let line = |i: usize| format!("{name}{},{},{}\n", i % 32, i % 32, i % 7);
    place.write("data.csv", (0..400).map(line).collect::<String>());
    place.ok("train classify data.csv --label 1 --model none --epochs 1 --batch 20 --out run");
    let server = Server::start(&place, "--timeout 0.5");
    let rows = "[1,1],".repeat(1023);
    let question = format!("{{\"features\":[{rows}[1,1]],\"k\":32}}");
    let mut idle = server.connect();
    idle.write_all(&asking("classify", &question)).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let mut answer = Vec::new();
    let whole = idle.read_to_end(&mut answer);
    // The system's buffers contain the data sent until then.
    let text = String::from_utf8_lossy(&answer);
    let mut lines = text.lines().map(|line| line.split_once("content-length: "));
    let length: usize = lines.find_map(|line| line?.1.parse().ok()).unwrap();
    assert!(
        whole.is_err() || answer.len() < length,
        "all {length} bytes were kept"
    );
    // Its room is free again.
    let (status, _) = server.post(&question);
    assert_eq!(status, 200);
}

/// A run over small grey pictures of three kinds.
pub fn trained_on_pictures() -> Place {
    let place = Place::new();
    // Grey pictures of 10 × 12 in portable form need no encoder: PNG with stored blocks.
    for class in 0..3u8 {
        for i in 0..8u8 {
            let folder = place.path(&format!("pictures/kind{class}"));
            std::fs::create_dir_all(&folder).unwrap();
            let pixel = |x: u8, y: u8| match class {
                0 => 20 + i + x,
                1 => 230 - i - y,
                _ => 200 * ((x + y) % 2) + i,
            };
            let pixels = (0..12).flat_map(|y| (0..10).map(move |x| pixel(x, y)));
            std::fs::write(
                folder.join(format!("{i}.png")),
                png(10, 12, pixels.collect()),
            )
            .unwrap();
        }
    }
    place.ok("train classify pictures --augment resize:8,crop:8,grey,normalise:0.4:0.3 --epochs 2 --batch 8 --embedding 8 --rate 0.02 --out run");
    place
}

/// A request with a picture's bytes, for three classes.
pub fn showing(bytes: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/classify?k=3 HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        bytes.len()
    );
    [head.as_bytes(), bytes].concat()
}

#[test]
fn pictures_are_prepared_as_the_run_measured_them() {
    let place = trained_on_pictures();
    let server = Server::start(&place, "--exact");
    let predicted = place.ok("predict run pictures --top 3").stdout;
    let mut lines = predicted.lines();
    for class in 0..3 {
        for i in 0..8 {
            let bytes = place.read(&format!("pictures/kind{class}/{i}.png"));
            let (status, _, body) = server.exchange(&showing(&bytes));
            assert_eq!(status, 200, "{body}");
            let answer: Value = serde_json::from_str(&body).unwrap();
            let report = answer["results"][0].as_array().unwrap().iter();
            let line: Vec<&str> = lines.next().unwrap().split('\t').collect();
            for (report, pair) in report.zip(line.chunks(2)) {
                assert_eq!(report["label"], pair[0], "kind{class}/{i}.png");
                let (score, predicted) =
                    (report["score"].as_f64().unwrap(), pair[1].parse::<f64>());
                // Six digits are printed.
                assert!(
                    (score - predicted.unwrap()).abs() < 2e-6,
                    "kind{class}/{i}.png: {report} {pair:?}"
                );
            }
        }
    }
    // Another size and shape is resized to that of the net.
    let (status, _, body) = server.exchange(&showing(&png(40, 30, vec![25; 1200])));
    assert_eq!(status, 200, "{body}");
    let (status, answer) = server.post("{\"image\": \"iVBORw0KGgo=\"}");
    assert_eq!(status, 400);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("the image cannot be used"),
        "{answer}"
    );
}

/// A grey PNG of stored blocks.
pub fn png(width: u32, height: u32, pixels: Vec<u8>) -> Vec<u8> {
    let mut rows = Vec::new();
    for row in pixels.chunks(width as usize) {
        rows.push(0);
        rows.extend(row);
    }
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&rows).unwrap();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 0, 0, 0, 0]);
    for (kind, data) in [
        (b"IHDR", header),
        (b"IDAT", packed.finish().unwrap()),
        (b"IEND", vec![]),
    ] {
        file.extend((data.len() as u32).to_be_bytes());
        let mut sum = flate2::Crc::new();
        sum.update(kind);
        sum.update(&data);
        file.extend(kind);
        file.extend(&data);
        file.extend(sum.sum().to_be_bytes());
    }
    file
}

#[test]
fn what_cannot_be_served_is_refused() {
    let place = trained();
    for (line, parts) in [
        ("serve nowhere", &["nowhere", "no run folder"][..]),
        ("serve run --timeout 0", &["--timeout", "above 0"]),
        ("serve run --top 0", &["--top 0"]),
        ("serve run --concurrency 0", &["--concurrency"]),
        (
            "serve run --host 203.0.113.7 --port 1",
            &["203.0.113.7:1", "--port"],
        ),
    ] {
        place.refuses(line, 2, parts);
    }
}

/// The index is a file after the first start; a bad file is reported and replaced.
#[test]
fn an_index_is_written_once() {
    let place = trained();
    let report = |place: &Place| {
        let server = Server::start(place, "");
        let (status, answer) = server.post("{\"features\": [[3, 0, 0, 0, 0, 0]], \"k\": 8}");
        assert_eq!(status, 200);
        let ended = server.end(rustix::process::Signal::INT);
        (answer["results"].clone(), ended.stderr)
    };
    let (first, said) = report(&place);
    assert!(
        said.contains("index.safetensors: holds the index"),
        "{said}"
    );
    let bytes = place.read("run/index.safetensors");
    let (second, said) = report(&place);
    assert!(!said.contains("index.safetensors"), "{said}");
    place.write("run/index.safetensors", &bytes[..99]);
    let (third, said) = report(&place);
    assert!(said.contains("index.safetensors: has 99 bytes"), "{said}");
    assert_eq!((&first, &first), (&second, &third));
    assert!(place.read("run/index.safetensors") == bytes);
}

#[test]
fn a_net_on_sparse_rows_is_measured_and_not_served() {
    let place = Place::new();
    let line = |i: usize| format!("{},{} {}:1 {}:2\n", i % 9, 9 + i % 7, i % 9, 20 + i % 7);
    let rows: String = (0..300).map(line).collect();
    place.write("rows.txt", format!("300 40 16\n{rows}"));
    let told = place.ok("train classify rows.txt --test rows.txt --epochs 6 --optimizer adamw --rate 0.01 --out run").stderr;
    let line = |begins: &str| {
        let mut lines = told.lines().map(str::trim);
        lines
            .find(|line| line.starts_with(begins))
            .unwrap_or_else(|| panic!("{begins}: {told}"))
    };
    assert!(
        line("propensity-scored precision ").ends_with("% at 5"),
        "{told}"
    );
    let measured = place.ok("eval run rows.txt --top 2").stdout;
    for figures in ["precision ", "nDCG "] {
        assert!(
            measured.lines().any(|of| of == line(figures)),
            "{measured}{told}"
        );
    }
    assert!(
        line("precision ").starts_with("precision 9")
            || line("precision ").starts_with("precision 100"),
        "{told}"
    );
    place.refuses(
        "serve run --port 0",
        2,
        &["predict files of them with `pelton predict`"],
    );
}
