//! Seconds of the communication of training, to compare with what `pelton-lab plan-capacity` predicts, as JSON.
//!
//! ```text
//! network_times BYTES        on each rank, started by torchrun --no-python or mpirun
//! ```
//!
//! Each rank has BYTES: they are summed over all ranks, gathered from all, passed around the ring of the ranks, and read
//! from the next rank's window in ranges of 110 KiB. Each figure is the median of five.

use std::sync::Arc;
use std::time::Instant;

use pelton_comm::{Comm, CommError, Get, Reduction, launched, run_launched};

const READ_BYTES: usize = 110 << 10;
const ROUNDS: usize = 5;

fn main() {
    let bytes = std::env::args().nth(1).expect("bytes");
    let bytes: usize = bytes.parse().expect("a number of bytes");
    let how = launched().expect("variables of one launcher");
    let how = how.expect("ranks that a launcher started");
    let ended = run_launched(&how, &Arc::default(), &mut |_| (), |comm| {
        times(&comm, bytes)
    });
    if let Err(error) = ended {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn times(comm: &Comm, bytes: usize) -> Result<(), CommError> {
    let mut values = vec![1.0_f32; bytes / 4];
    let reduce = median(comm, || comm.all_reduce(&mut values, Reduction::Sum))?;
    let own = vec![1_u8; bytes];
    let gather = median(comm, || comm.all_gather_ragged(&own).map(drop))?;
    let (next, before) = (
        (comm.rank() + 1) % comm.size(),
        (comm.rank() + comm.size() - 1) % comm.size(),
    );
    let mut passed = own;
    let ring = median(comm, || {
        for _ in 1..comm.size() {
            comm.send(next, 1, &passed)?;
            comm.receive(before, 1, &mut passed)?;
        }
        Ok(())
    })?;
    let window = comm.allocate(bytes)?.share(comm)?;
    let mut buffer = vec![0; bytes - bytes % READ_BYTES];
    let reads = median(comm, || {
        let places = (0_u64..).zip(buffer.chunks_exact_mut(READ_BYTES));
        let get = |(place, buffer)| Get {
            rank: next,
            offset: place * READ_BYTES as u64,
            buffer,
        };
        let mut gets: Vec<Get<'_>> = places.map(get).collect();
        gets.chunks_mut(64).try_for_each(|gets| window.get(gets))
    })?;
    if comm.rank() == 0 {
        println!(
            "{{\"all_reduce\": {reduce}, \"all_gather\": {gather}, \"ring\": {ring}, \"reads\": {reads}, \"read_bytes\": {}}}",
            buffer.len()
        );
    }
    window.free(comm)
}

/// Seconds of the slowest rank, the median of the rounds.
fn median(comm: &Comm, mut round: impl FnMut() -> Result<(), CommError>) -> Result<f64, CommError> {
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        comm.barrier()?;
        let began = Instant::now();
        round()?;
        let mut seconds = [began.elapsed().as_secs_f64()];
        comm.all_reduce(&mut seconds, Reduction::Max)?;
        all.push(seconds[0]);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[ROUNDS / 2])
}
