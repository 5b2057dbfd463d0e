//! Measures two methods to read the same bytes in turns. The example of the cache shares it.

use std::time::Instant;

use pelton_comm::{Comm, CommError, Launched, Reduction, launched};

/// A range: rank, offset, length.
pub(super) type Range = (usize, usize, usize);

/// Rates of all ranks together.
pub(super) struct Rates {
    /// Medians over the turns, in GB/s.
    pub(super) read: f64,
    pub(super) reference: f64,
    /// Median of the ratio of each turn to the reference's next to it, which hardly depends on what else
    /// the machine does.
    pub(super) ratio: f64,
}

/// The reference among threads: copies from a vector as large as the other ranks' windows.
pub(super) fn memcpy(comm: &Comm, window_bytes: usize) -> impl FnMut(&[Range], &mut [u8]) + use<> {
    let others = comm.size().saturating_sub(1).max(1);
    let memory = vec![1_u8; others * window_bytes];
    let rank = comm.rank();
    move |ranges, buffer| {
        for ((from, offset, length), place) in ranges.iter().zip(buffer.chunks_mut(ranges[0].2)) {
            let other = if *from > rank { from - 1 } else { *from } % others;
            let start = other * window_bytes + offset;
            place.copy_from_slice(&memory[start..start + length]);
        }
    }
}

/// Reads all batches, `bytes` in all, `turns` times by each method.
pub(super) fn in_turns<T, E: From<CommError>>(
    comm: &Comm,
    turns: usize,
    (batches, bytes): (&[T], usize),
    mut read: impl FnMut(&T) -> Result<(), E>,
    mut reference: impl FnMut(&T),
) -> Result<Rates, E> {
    let (mut reads, mut references) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        reads.push(turn(comm, bytes, || {
            batches.iter().try_for_each(&mut read)
        })?);
        references.push(turn(comm, bytes, || {
            batches.iter().for_each(&mut reference);
            Ok::<_, E>(())
        })?);
    }
    let ratios = reads.iter().zip(&references);
    Ok(Rates {
        ratio: median(ratios.map(|(read, bare)| read / bare).collect()),
        read: median(reads),
        reference: median(references),
    })
}

/// Bandwidth of all ranks together, in GB/s.
fn turn<E: From<CommError>>(
    comm: &Comm,
    bytes: usize,
    read: impl FnOnce() -> Result<(), E>,
) -> Result<f64, E> {
    comm.barrier()?;
    let start = Instant::now();
    read()?;
    let mut total = [bytes as f64 / start.elapsed().as_secs_f64() / 1e9];
    comm.all_reduce(&mut total, Reduction::Sum)?;
    Ok(total[0])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What started this process with others, and the name of its transport.
pub fn transport() -> Option<(Launched, &'static str)> {
    let how = launched().expect("variables of one launcher")?;
    let name = match how {
        Launched::Mpi { .. } => "mpi",
        Launched::Tcp(_) => "tcp",
    };
    Some((how, name))
}
