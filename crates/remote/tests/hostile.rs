//! Servers that send more or other bytes than requested: the client uses the correct part of the answer, or refuses
//! it, soon and within the memory of the request.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use pelton_remote::{RemoteOptions, Stores};
use pelton_storage::conformance::read_ranges;

const SIZE: u64 = 4_000_000;

/// Answers every connection's first request, and forwards the request.
fn serve(
    answer: impl Fn(&str, &mut TcpStream) -> std::io::Result<()> + Send + Sync + Clone + 'static,
) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let (asked, requests) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let (answer, asked) = (answer.clone(), asked.clone());
            std::thread::spawn(move || {
                let reader = BufReader::new(stream.try_clone().expect("a second handle"));
                let lines = reader.lines().map_while(Result::ok);
                let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let _ = asked.send(lines.join("\n"));
                // Fails as soon as the client has its bytes.
                let _ = answer(&lines.join("\n"), &mut stream);
            });
        }
    });
    (address, requests)
}

/// The part that a request asks for.
fn part(request: &str) -> (u64, u64) {
    let range = request.lines().find_map(|line| {
        let (name, range) = line.split_once(": bytes=")?;
        let (from, to) = range.split_once('-')?;
        name.eq_ignore_ascii_case("range").then_some((from, to))
    });
    let (from, to) = range.expect("a range");
    let (from, to): (u64, u64) = (from.parse().expect("from"), to.parse().expect("to"));
    (from, to.min(SIZE - 1))
}

fn right_range(request: &str) -> String {
    let (from, to) = part(request);
    format!("Content-Range: bytes {from}-{to}/{SIZE}\r\nETag: \"1\"\r\n")
}

/// Bytes without end, or until the client has gone.
fn endless(stream: &mut TcpStream, in_chunks: bool) -> std::io::Result<()> {
    loop {
        if in_chunks {
            stream.write_all(b"100000\r\n")?;
        }
        stream.write_all(&vec![b'x'; 1 << 20])?;
        if in_chunks {
            stream.write_all(b"\r\n")?;
        }
    }
}

/// Opens the file of a server and reads from its middle.
fn read(address: SocketAddr) -> Result<Vec<u8>, String> {
    let options = RemoteOptions {
        stall: Duration::from_millis(300),
        deadline: Duration::from_secs(1),
        ..RemoteOptions::default()
    };
    let stores = Stores::new(options, Default::default());
    let opened = stores.open(&format!("http://{address}/data"), 65_536);
    let (object, head) = opened.map_err(|error| error.to_string())?;
    assert_eq!((head.len(), object.bytes()), (65_536, SIZE));
    let parts = read_ranges(&object, &[(2_000_000, 100_000)]).map_err(|error| error.to_string())?;
    Ok(parts.concat())
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    1024 * kib.unwrap_or_default()
}

#[test]
fn bytes_that_were_not_asked_for_take_no_memory() {
    const RIGHT: Result<usize, &str> = Ok(100_000);
    type Answer = fn(&str, &mut TcpStream) -> std::io::Result<()>;
    let cases: [(&str, Answer, Result<usize, &str>); 10] = [
        (
            "a part without end, in chunks",
            |request, out| {
                let range = right_range(request);
                let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked";
                write!(out, "{head}\r\n{range}\r\n")?;
                endless(out, true)
            },
            RIGHT,
        ),
        (
            "a length that is a lie",
            |request, out| {
                let range = right_range(request);
                let head = "HTTP/1.1 206 Partial Content\r\nContent-Length: 1152921504606846976";
                write!(out, "{head}\r\n{range}\r\n")?;
                endless(out, false)
            },
            RIGHT,
        ),
        (
            "a refusal that never ends",
            |_, out| {
                write!(out, "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                endless(out, true)
            },
            Err("404"),
        ),
        (
            "the whole file, without end",
            |_, out| {
                write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                endless(out, true)
            },
            Err("the whole file (200 OK)"),
        ),
        (
            "another part",
            |request, out| {
                let (from, to) = part(request);
                let range = format!("Content-Range: bytes {}-{to}/{SIZE}", from + 1);
                let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked";
                write!(out, "{head}\r\n{range}\r\n\r\n")?;
                endless(out, true)
            },
            Err("answers requests for parts"),
        ),
        (
            "a part of more bytes than there are numbers",
            |_, out| {
                let range = "Content-Range: bytes 0-18446744073709551615/18446744073709551615";
                let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked";
                write!(out, "{head}\r\n{range}\r\n\r\n")?;
                endless(out, true)
            },
            Err("answers requests for parts"),
        ),
        (
            "a file larger than any",
            |request, out| {
                let (from, to) = part(request);
                let range = format!("Content-Range: bytes {from}-{to}/18446744073709551615");
                let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked";
                write!(out, "{head}\r\n{range}\r\n\r\n")?;
                endless(out, true)
            },
            Err("18446744073709551615 bytes"),
        ),
        (
            "headers without end",
            |_, out| {
                write!(out, "HTTP/1.1 206 Partial Content\r\n")?;
                loop {
                    write!(out, "X-More: {}\r\n", "x".repeat(1000))?;
                }
            },
            Err("after"),
        ),
        (
            "redirects without end",
            |_, out| {
                let head = "HTTP/1.1 302 Found\r\nLocation: /data\r\nConnection: close";
                write!(out, "{head}\r\nContent-Length: 0\r\n\r\n")
            },
            Err("redirect"),
        ),
        (
            "a byte now and then",
            |request, out| {
                let range = right_range(request);
                let (from, to) = part(request);
                let head = "HTTP/1.1 206 Partial Content\r\nContent-Length";
                write!(out, "{head}: {}\r\n{range}\r\n", to - from + 1)?;
                loop {
                    out.write_all(b"x")?;
                    std::thread::sleep(Duration::from_millis(100));
                }
            },
            Err("did not come whole"),
        ),
    ];
    for (what, answer, expected) in cases {
        let began = Instant::now();
        let read = read(serve(answer).0);
        match expected {
            Ok(bytes) => assert_eq!(read.expect(what), vec![b'x'; bytes], "{what}"),
            Err(part) => {
                let error = read.expect_err(what);
                assert!(error.contains(part), "{what}: {error}");
            }
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(10), "{what}: {took:?}");
        let peak = peak_bytes() >> 20;
        assert!(peak < 100, "{what}: {peak} MiB");
    }
}

/// A password is sent, and not to the server that an answer names; nor is a signature.
#[test]
fn secrets_stay_with_their_server() {
    let (other, asked_of_other) = serve(|request, out| {
        let range = right_range(request);
        let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked";
        write!(out, "{head}\r\n{range}\r\n")?;
        endless(out, true)
    });
    let (first, asked) = serve(move |_, out| {
        let head = "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0";
        write!(
            out,
            "{head}\r\nLocation: http://localhost:{}/other\r\n\r\n",
            other.port()
        )
    });
    let stores = Stores::new(RemoteOptions::default(), Default::default());
    let name = stores.name(&format!("http://me:pa%20ss@{first}/data?sig=secret"));
    assert_eq!(name, format!("http://{first}/data"));
    let (object, _) = stores.open(&name, 10).expect("opened");
    read_ranges(&object, &[(5, 5)]).expect("read");
    let request = asked.recv().expect("a request");
    assert!(request.contains("/data?sig=secret"), "{request}");
    // me:pa ss
    assert!(request.contains("Basic bWU6cGEgc3M="), "{request}");
    let request = asked_of_other.recv().expect("a request").to_lowercase();
    for secret in ["sig=secret", "authorization", "referer"] {
        assert!(!request.contains(secret), "{request}");
    }
    assert!(!format!("{stores:?} {object:?}").contains("secret"));
}
