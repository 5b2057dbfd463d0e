//! Clients of `pelton serve` with expensive requests, together with others.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::serve::{Server, asking, png, response, showing, trained, trained_on_pictures};

/// One picture of 7000 × 7000 once blocked all other requests for a second, and 63 took all slots: now one address gets 56.
#[test]
fn large_pictures_hold_up_nobody() {
    let place = trained_on_pictures();
    let server = Server::start(&place, "--exact");
    let large = showing(&png(7000, 7000, vec![9; 49_000_000]));
    let small = showing(&place.read("pictures/kind0/0.png"));
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&large).unwrap();
            stream
        })
        .collect();
    let mut times: Vec<Duration> = (0..40)
        .map(|_| {
            let began = Instant::now();
            let (status, _, body) = server.exchange(&small);
            assert_eq!(status, 200, "{body}");
            began.elapsed()
        })
        .collect();
    let is_open = |stream: &&std::net::TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let is_open = stream.peek(&mut [0]).is_err();
        stream.set_nonblocking(false).unwrap();
        is_open
    };
    let waiting = clients.iter().filter(is_open).count();
    assert!(waiting > 0, "all large pictures were decoded before");
    times.sort();
    // 1 ms on an idle machine.
    assert!(times[20] < Duration::from_millis(200), "{times:?}");
    let statuses: Vec<(u16, String)> = clients
        .into_iter()
        .map(|stream| {
            let (status, _, body) = response(stream);
            (status, body)
        })
        .collect();
    for (status, body) in statuses {
        assert!([200, 503].contains(&status), "{status}: {body}");
    }

    // Only the header of this one is read.
    let (status, _, body) = server.exchange(&showing(&png(10_000, 10_000, vec![])));
    assert_eq!(status, 413);
    assert!(
        body.contains("10000 x 10000 pixels, more than the 50000000"),
        "{body}"
    );
}

/// Its connection was once dropped without an answer.
#[test]
fn a_client_that_closes_its_half_is_answered() {
    let server = Server::start(&trained(), "");
    let mut stream = server.connect();
    let request = asking("classify", "{\"features\": [[3,0,0,0,0,0]]}");
    stream.write_all(&request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(response(stream).0, 200);
    let mut half = server.connect();
    half.write_all(&request[..request.len() - 3]).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert_eq!(response(half).0, 400);
}
