//! The reference among processes over TCP: a bare loop over sockets, with as many requests under way.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use pelton_comm::{Comm, CommError};

use crate::turns::Range;

/// Requests ranges and reads the answers. A thread of each rank answers from a vector of its own.
pub fn sockets(
    comm: &Comm,
    window_bytes: usize,
) -> Result<impl FnMut(&[Range], &mut [u8]) + use<>, CommError> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut ports = vec![0_u16; comm.size()];
    let port = listener.local_addr().expect("its address").port();
    comm.all_gather(&[port], &mut ports)?;
    let size = comm.size();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(size) {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || answer(stream, window_bytes));
        }
    });
    let rank = comm.rank();
    let connect = |port: &u16| {
        let stream = TcpStream::connect(("127.0.0.1", *port)).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream
    };
    let mut streams: Vec<TcpStream> = ports.iter().map(connect).collect();
    Ok(move |ranges: &[Range], buffer: &mut [u8]| {
        for (from, offset, length) in ranges {
            assert_ne!(*from, rank, "two ranks or more");
            let request = [*offset as u64, *length as u64].map(u64::to_le_bytes);
            let request = request.as_flattened();
            streams[*from].write_all(request).expect("a request");
        }
        for ((from, _, length), place) in ranges.iter().zip(buffer.chunks_mut(ranges[0].2)) {
            streams[*from]
                .read_exact(&mut place[..*length])
                .expect("an answer");
        }
    })
}

fn answer(mut stream: TcpStream, window_bytes: usize) {
    stream.set_nodelay(true).expect("an option");
    let memory = vec![1_u8; window_bytes];
    let mut request = [0; 16];
    while stream.read_exact(&mut request).is_ok() {
        let [offset, length] =
            [0, 8].map(|at| u64::from_le_bytes(request[at..at + 8].try_into().expect("8 bytes")));
        let range = offset as usize..(offset + length) as usize;
        stream.write_all(&memory[range]).expect("an answer");
    }
}
