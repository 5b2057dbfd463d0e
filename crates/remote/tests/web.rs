//! Files of a web server that is slow, errs, breaks off or changes its files.

#[path = "support/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pelton_remote::{RemoteObject, RemoteOptions, Stores};
use pelton_storage::conformance::{check_ranges, check_storage, read_ranges};
use pelton_storage::{Storage, StorageError, StorageErrorKind};

use server::{Behaviour, Fault, Server};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn quick() -> RemoteOptions {
    RemoteOptions {
        stall: Duration::from_millis(300),
        deadline: Duration::from_secs(3),
        ..RemoteOptions::default()
    }
}

fn stores(options: RemoteOptions) -> Stores {
    Stores::new(options, Arc::default())
}

/// A server with one file, and that file opened.
fn opened(behaviour: Behaviour, bytes: &[u8]) -> (Server, RemoteObject) {
    let server = Server::start(behaviour);
    server.put("data", bytes);
    let (object, head) = stores(quick())
        .open(&server.url("data"), 1000)
        .expect("opened");
    assert_eq!(head, bytes[..bytes.len().min(1000)]);
    (server, object)
}

fn refusal(outcome: Result<impl Sized, StorageError>) -> String {
    outcome.err().expect("refused").to_string()
}

#[test]
fn it_conforms() {
    for size in [0, 1, 200_003, 3_333_333] {
        let bytes = pattern(size);
        let (server, object) = opened(Behaviour::default(), &bytes);
        assert_eq!(object.bytes(), size as u64);
        check_storage(&object, &bytes);
        assert_eq!(object.name(), server.url("data"));
    }
}

/// States are distinguished with a weak ETag or none.
#[test]
fn servers_that_say_less() {
    let bytes = pattern(50_000);
    for (etag, last_modified) in [(true, false), (false, true), (false, false)] {
        let behaviour = Behaviour {
            etag,
            last_modified,
            ..Behaviour::default()
        };
        let (server, object) = opened(behaviour, &bytes);
        check_ranges(&object, &bytes, &[(7, 20_000), (40_000, 20_000)]);
        let again = stores(quick())
            .open(&server.url("data"), 10)
            .expect("opened")
            .0;
        assert_eq!(object.tag() == again.tag(), etag || last_modified);
        assert_ne!(object.tag(), 0);
    }
}

/// Answers in chunks, without the size of the whole, and with headers that are not as they should be.
#[test]
fn servers_with_odd_headers() {
    let bytes = pattern(50_000);
    let odd = |headers: &'static str| Behaviour {
        etag: false,
        last_modified: false,
        headers,
        ..Behaviour::default()
    };
    for behaviour in [
        Behaviour {
            in_chunks: true,
            ..Behaviour::default()
        },
        Behaviour {
            says_size: false,
            ..Behaviour::default()
        },
        odd("Last-Modified: Mon, 01 Jul 2025 10:00:00 GMT\r\n"),
        odd("Last-Modified: yesterday\r\n"),
        odd("ETag: \"caf\u{e9}\"\r\nContent-Disposition: attachment; filename=\"\u{e4}.tar\"\r\n"),
    ] {
        let says_state = behaviour.etag || !behaviour.headers.is_empty();
        let (server, object) = opened(behaviour.clone(), &bytes);
        check_ranges(&object, &bytes, &[(7, 20_000), (40_000, 20_000)]);
        assert_eq!(object.size().expect("a size"), 50_000, "{behaviour:?}");
        let again = stores(quick()).open(&server.url("data"), 10);
        let again = again.expect("opened").0;
        assert_eq!(object.tag() == again.tag(), says_state, "{behaviour:?}");
        server.put("data", vec![1; 49_999]);
        let error = read_ranges(&object, &[(0, 10)]).expect_err("changed");
        assert!(error.kind == StorageErrorKind::Changed, "{error}");
    }
}

#[test]
fn a_batch_is_few_requests_under_way_at_once() {
    let bytes = pattern(20 << 20);
    let behaviour = Behaviour {
        latency: Duration::from_millis(40),
        ..Behaviour::default()
    };
    let (server, object) = opened(behaviour, &bytes);
    let before = (server.requests(), server.bytes());
    // Neighbours, near ones, one far off, and one that is long.
    let mut ranges: Vec<(u64, usize)> = (0..10).map(|i| (i * 3000, 3000)).collect();
    ranges.extend((0..10).map(|i| ((1 << 20) + i * 50_000, 10_000)));
    ranges.push((4 << 20, 10_000));
    ranges.push((8 << 20, 8 << 20));
    let began = Instant::now();
    check_ranges(&object, &bytes, &ranges);
    let took = began.elapsed();
    assert_eq!(server.requests() - before.0, 1 + 1 + 1 + 8);
    let fetched = server.bytes() - before.1;
    assert_eq!(fetched, 30_000 + 460_000 + 10_000 + (8 << 20));
    // One by one they would take 440 ms.
    assert!(took < Duration::from_millis(300), "{took:?}");
    // Many far ranges keep to the limit.
    let far: Vec<(u64, usize)> = (0..200).map(|i| (i * 100_000, 10)).collect();
    check_ranges(&object, &bytes, &far);
    let most = server.most_under_way();
    assert!((30..=128).contains(&most), "{most}");
}

#[test]
fn what_passes_is_asked_for_again() {
    let bytes = pattern(300_000);
    let (server, object) = opened(Behaviour::default(), &bytes);
    for faults in [
        vec![Fault::Status(503, "SlowDown")],
        vec![
            Fault::Status(500, ""),
            Fault::Status(429, ""),
            Fault::Status(502, ""),
        ],
        vec![Fault::Reset(0)],
        vec![
            Fault::Reset(100_000),
            Fault::Reset(100_000),
            Fault::Reset(50_000),
        ],
        vec![Fault::Short(1000), Fault::Short(0)],
        vec![Fault::Silence(Duration::from_millis(900))],
        vec![Fault::Stall(Duration::from_millis(900))],
        vec![
            Fault::Status(503, ""),
            Fault::Reset(7),
            Fault::Short(5),
            Fault::Status(500, ""),
        ],
    ] {
        server.faults(faults.clone());
        let before = (server.requests(), server.bytes());
        check_ranges(&object, &bytes, &[(0, 300_000)]);
        let requests = server.requests() - before.0;
        assert_eq!(requests, 1 + faults.len() as u64, "{faults:?}");
        // Bytes from before a break are not fetched again.
        if faults[0] == Fault::Reset(100_000) {
            assert_eq!(server.bytes() - before.1, 300_000);
        }
    }
}

#[test]
fn opening_is_tried_again_as_well() {
    let bytes = pattern(5000);
    let server = Server::start(Behaviour::default());
    server.put("data", &bytes[..]);
    server.faults([Fault::Status(503, ""), Fault::Reset(10), Fault::Short(3)]);
    let (object, head) = stores(quick())
        .open(&server.url("data"), 100)
        .expect("opened");
    assert_eq!((object.bytes(), &head[..]), (5000, &bytes[..100]));
}

#[test]
fn what_lasts_is_said_at_once() {
    let bytes = pattern(100_000);
    let (server, object) = opened(Behaviour::default(), &bytes);
    let check = |fault: Fault, lasts: bool, texts: &[&str]| {
        server.faults(std::iter::repeat_n(fault, 50));
        let before = server.requests();
        let error = read_ranges(&object, &[(1000, 500)]).expect_err("refused");
        server.faults([]);
        assert_eq!(error.kind, StorageErrorKind::Remote { lasts }, "{error:?}");
        let error = error.to_string();
        assert!(
            error.starts_with(&server.url("data: bytes 1000 to 1500: ")),
            "{error}"
        );
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
        server.requests() - before
    };
    let xml = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>";
    let lasting = [
        (
            Fault::Status(403, xml),
            vec!["403 Forbidden (AccessDenied); check the credentials"],
        ),
        (Fault::Status(401, ""), vec!["401", "check the credentials"]),
        (
            Fault::Status(404, ""),
            vec!["404 Not Found; check the name"],
        ),
        (
            Fault::Status(400, ""),
            vec!["400 Bad Request; check the name, the region"],
        ),
        (
            Fault::Whole,
            vec!["with the whole file (200 OK); give a server that answers"],
        ),
    ];
    for (fault, texts) in lasting {
        assert_eq!(check(fault, true, &texts), 1);
    }
    let passing = [
        (
            Fault::Status(503, ""),
            vec![
                "503 Service Unavailable, after ",
                "attempts in",
                "; the server is down",
            ],
        ),
        (
            Fault::Reset(3),
            vec!["after ", "attempts", "; check the network"],
        ),
        (Fault::Short(1), vec![]),
        (
            Fault::Silence(Duration::from_secs(9)),
            vec!["the server sent nothing for 0.3 s, after"],
        ),
    ];
    for (fault, texts) in passing {
        let began = Instant::now();
        // A short answer of a byte each is progress; the rest has no end but the deadline.
        if fault == Fault::Short(1) {
            server.faults(std::iter::repeat_n(fault, 2000));
            let error = refusal(read_ranges(&object, &[(1000, 500)]));
            assert!(
                error.contains("the answer ended after 1 bytes, after"),
                "{error}"
            );
            server.faults([]);
        } else {
            assert!(check(fault, false, &texts) > 2);
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    // All of it left the file as it was.
    check_ranges(&object, &bytes, &[(0, 100_000)]);
}

#[test]
fn names_that_cannot_be_opened() {
    let server = Server::start(Behaviour::default());
    server.put("x.tar", pattern(10));
    let stores = stores(quick());
    let check = |url: &str, text: &str| {
        let error = refusal(stores.open(url, 10));
        assert!(error.contains(text), "{url}: {error}");
    };
    check(&server.url("none"), "404 Not Found; check the name");
    check("http://127.0.0.1:1/x", "check the network");
    check("ftp://host/x", "ftp:// is not known; give s3://");
    check("s3://bucket", "names no file of a bucket");
    check("http://", "is not an address");
    let error = refusal(stores.matching(&server.url("*.tar")));
    assert!(
        error.contains("does not list its files; write out the names"),
        "{error}"
    );
    // The query is sent, but never shown.
    let (object, _) = stores
        .open(&server.url("x.tar?sig=secret"), 10)
        .expect("opened");
    assert_eq!(object.name(), server.url("x.tar"));
    assert!(
        server
            .seen()
            .iter()
            .any(|seen| seen.contains("?sig=secret")),
        "{:?}",
        server.seen()
    );
    let error = refusal(stores.open(&server.url("y.tar?sig=secret"), 10));
    assert!(!error.contains("secret"), "{error}");
}

/// Bytes of two states are never mixed, whether or not the server honours If-Match, and whatever state it reports.
#[test]
fn a_file_that_changes_is_an_error() {
    let old = pattern(50_000);
    for (etag, last_modified) in [(true, true), (false, true), (true, false)] {
        let behaviour = Behaviour {
            etag,
            last_modified,
            ..Behaviour::default()
        };
        let (server, object) = opened(behaviour, &old);
        server.put("data", vec![1; 50_000]);
        let error = read_ranges(&object, &[(0, 10)]).expect_err("changed");
        assert!(error.kind == StorageErrorKind::Changed, "{error}");
        assert!(error.to_string().contains("start again"), "{error}");
    }
    let (server, object) = opened(Behaviour::default(), &old);
    server.faults([Fault::Rewritten]);
    let error = refusal(read_ranges(&object, &[(0, 10)]));
    assert!(
        error.contains("its ETag or time of last change: \"data-0\" became \"data-1\""),
        "{error}"
    );
    // In the middle of an answer, between two attempts.
    server.faults([Fault::Reset(20_000), Fault::Rewritten]);
    let error = read_ranges(&object, &[(0, 50_000)]).expect_err("changed");
    assert!(error.kind == StorageErrorKind::Changed, "{error}");
    let nothing = Behaviour {
        etag: false,
        last_modified: false,
        ..Behaviour::default()
    };
    let (server, object) = opened(nothing, &old);
    server.put("data", vec![1; 49_999]);
    let error = refusal(read_ranges(&object, &[(0, 10)]));
    assert!(
        error.contains("its size: 50000 bytes became 49999"),
        "{error}"
    );
}

/// The first thing that was asked for in vain until its deadline ends the others too, which began later.
#[test]
fn a_dead_server_ends_all_waiting_at_once() {
    let (server, object) = opened(Behaviour::default(), &pattern(1000));
    server.faults(std::iter::repeat_n(Fault::Status(503, ""), 1000));
    let took = std::thread::scope(|scope| {
        let read = |after| {
            let object = &object;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(after));
                read_ranges(object, &[(0, 10)]).expect_err("refused");
                Instant::now()
            })
        };
        let (first, later) = (read(0), read(1500));
        let first = first.join().expect("it ends");
        later.join().expect("it ends").duration_since(first)
    });
    assert!(took < Duration::from_millis(200), "{took:?}");
    server.faults([]);
    read_ranges(&object, &[(0, 10)]).expect("it is there again");
}

#[test]
fn an_interruption_ends_waiting_within_a_second() {
    let interrupt = Arc::new(AtomicBool::new(false));
    let server = Server::start(Behaviour::default());
    server.put("data", pattern(1000));
    let stores = Stores::new(RemoteOptions::default(), Arc::clone(&interrupt));
    let (object, _) = stores.open(&server.url("data"), 10).expect("opened");
    for fault in [
        Fault::Silence(Duration::from_secs(5)),
        Fault::Status(503, ""),
    ] {
        server.faults(std::iter::repeat_n(fault, 100));
        let began = Instant::now();
        let flag = Arc::clone(&interrupt);
        let asker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            flag.store(true, Ordering::Relaxed);
        });
        let error = read_ranges(&object, &[(0, 10)]).expect_err("interrupted");
        assert!(error.kind == StorageErrorKind::Interrupted, "{error}");
        let took = began.elapsed();
        assert!(took < Duration::from_millis(1200), "{took:?}");
        asker.join().expect("it ends");
        interrupt.store(false, Ordering::Relaxed);
    }
}
