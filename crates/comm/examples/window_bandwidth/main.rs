//! Bandwidth of window reads against the least that they could cost, as CSV on standard output.
//!
//! ```text
//! cargo run --release -p pelton-comm --example window_bandwidth -- 2           two threads
//! cargo build --release -p pelton-comm --example window_bandwidth
//! mpirun -n 2 target/release/examples/window_bandwidth                         two processes
//! torchrun --nproc-per-node 2 --no-python target/release/examples/window_bandwidth
//! ```
//!
//! All ranks read at once, at random offsets in the other ranks' windows, 64 ranges a batch. The reference copies the
//! same ranges from a vector as large as the windows; among processes over TCP it is a bare loop over sockets
//! (`sockets.rs`). The two take turns (`turns.rs`); the result is the median of the turns.

mod sockets;
mod turns;

use pelton_comm::{Comm, CommError, Get, Launched, Window, run_launched, run_ranks};
use sockets::sockets;
use std::sync::Arc;
use turns::{Range, in_turns, memcpy, transport};

/// Sizes of reads: a page, and an image of ImageNet.
const READ_BYTES: [usize; 2] = [4096, 110 << 10];
/// Bytes on each rank; together more than any CPU cache.
const WINDOW_BYTES: usize = 256 << 20;
/// Reads in flight at once.
const BATCH: usize = 64;
/// Fewest bytes of a turn.
const TURN_BYTES: usize = 512 << 20;
const TURNS: usize = 7;

fn main() {
    let threads = |ranks| {
        run_ranks(ranks, |comm| {
            measure(&comm, "local", memcpy(&comm, WINDOW_BYTES))
        })
    };
    let result = if let Some((how, name)) = transport() {
        run_launched(&how, &Arc::default(), &mut |_| (), |comm| match how {
            Launched::Tcp(_) => measure(&comm, name, sockets(&comm, WINDOW_BYTES)?),
            Launched::Mpi { .. } => measure(&comm, name, memcpy(&comm, WINDOW_BYTES)),
        })
    } else {
        let ranks = std::env::args().nth(1);
        threads(ranks.map_or(2, |ranks| ranks.parse().expect("ranks"))).map(|_| ())
    };
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn measure(
    comm: &Comm,
    transport: &str,
    mut reference: impl FnMut(&[Range], &mut [u8]),
) -> Result<(), CommError> {
    let mut window = comm.allocate(WINDOW_BYTES)?;
    window.local().fill(1);
    let window = window.share(comm)?;
    if comm.rank() == 0 {
        println!("transport,ranks,read_bytes,get_gb_per_s,reference_gb_per_s,ratio");
    }
    for read_bytes in READ_BYTES {
        let batches: Vec<Vec<Range>> = batches(comm, read_bytes);
        let mut buffer = vec![0; BATCH * read_bytes];
        let mut other = vec![0; BATCH * read_bytes];
        let bytes = batches.len() * BATCH * read_bytes;
        let rates = in_turns(
            comm,
            TURNS,
            (&batches, bytes),
            |ranges| get(&window, ranges, &mut buffer),
            |ranges| reference(ranges, &mut other),
        )?;
        if comm.rank() == 0 {
            let (ranks, read, bare) = (comm.size(), rates.read, rates.reference);
            println!(
                "{transport},{ranks},{read_bytes},{read:.3},{bare:.3},{:.3}",
                rates.ratio
            );
        }
    }
    window.free(comm)
}

/// Batches of random ranges of other ranks' windows; of the own one if there is no other.
fn batches(comm: &Comm, read_bytes: usize) -> Vec<Vec<Range>> {
    let mut state = comm.rank() as u64 + 1;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((state >> 33) as usize) % below
    };
    let others = comm.size() - 1;
    let mut range = || {
        let step = if others > 0 { 1 + random(others) } else { 0 };
        let offset = random(WINDOW_BYTES - read_bytes);
        ((comm.rank() + step) % comm.size(), offset, read_bytes)
    };
    let count = TURN_BYTES / (BATCH * read_bytes);
    (0..count)
        .map(|_| (0..BATCH).map(|_| range()).collect())
        .collect()
}

fn get(window: &Window, ranges: &[Range], buffer: &mut [u8]) -> Result<(), CommError> {
    let places = ranges.iter().zip(buffer.chunks_mut(ranges[0].2));
    let mut gets: Vec<Get<'_>> = places
        .map(|((rank, offset, _), buffer)| Get {
            rank: *rank,
            offset: *offset as u64,
            buffer,
        })
        .collect();
    window.get(&mut gets)
}
