//! One-sided windows.

use super::numbers::number;
use crate::{Comm, CommError, FillWindow, Get, Window};

fn byte(generation: u64, rank: usize, i: usize) -> u8 {
    number(generation, rank, i) as u8
}

fn fill(window: &mut FillWindow, generation: u64, rank: usize) {
    for (i, place) in window.local().iter_mut().enumerate() {
        *place = byte(generation, rank, i);
    }
}

fn check_range(
    window: &Window,
    generation: u64,
    (rank, offset, length): (usize, usize, usize),
) -> Result<(), CommError> {
    let mut buffer = vec![0xaa; length];
    let mut get = [Get {
        rank,
        offset: offset as u64,
        buffer: &mut buffer,
    }];
    window.get(&mut get)?;
    for (i, found) in buffer.iter().enumerate() {
        let expected = byte(generation, rank, offset + i);
        assert_eq!(*found, expected, "byte {} of rank {rank}", offset + i);
    }
    Ok(())
}

pub(super) fn reads(comm: &Comm) -> Result<(), CommError> {
    const BYTES: usize = 10_000;
    let mut window = comm.allocate(BYTES)?;
    assert!(window.local().iter().all(|byte| *byte == 0));
    fill(&mut window, 20, comm.rank());
    let window = window.share(comm)?;
    assert_eq!(window.sizes(), vec![BYTES as u64; comm.size()]);
    for rank in 0..comm.size() {
        for (offset, length) in [
            (0, BYTES),
            (0, 0),
            (BYTES, 0),
            (1, 1),
            (17, 4096),
            (BYTES - 1, 1),
        ] {
            check_range(&window, 20, (rank, offset, length))?;
        }
    }
    assert_eq!(window.local()[123], byte(20, comm.rank(), 123));
    window.free(comm)
}

/// Windows of different sizes, one of them empty.
pub(super) fn ragged(comm: &Comm) -> Result<(), CommError> {
    let bytes = |rank: usize| rank * 1001;
    let mut window = comm.allocate(bytes(comm.rank()))?;
    fill(&mut window, 21, comm.rank());
    let window = window.share(comm)?;
    for rank in 0..comm.size() {
        check_range(&window, 21, (rank, 0, bytes(rank)))?;
        check_range(&window, 21, (rank, bytes(rank), 0))?;
    }
    window.free(comm)
}

/// Reads always see the last filling, however uneven the ranks are.
pub(super) fn refills(comm: &Comm) -> Result<(), CommError> {
    let mut filling = comm.allocate(5000)?;
    for generation in 0..10 {
        if generation > 0 {
            let last = byte(22 + generation - 1, comm.rank(), 77);
            assert_eq!(filling.local()[77], last, "memory stays as it was");
        }
        fill(&mut filling, 22 + generation, comm.rank());
        let window = filling.share(comm)?;
        for rank in 0..comm.size() {
            check_range(&window, 22 + generation, (rank, 0, 5000))?;
        }
        filling = window.refill(comm)?;
    }
    filling.free(comm)
}

/// Thousands of ranges of all ranks in one call, while this rank computes.
pub(super) fn many(comm: &Comm) -> Result<(), CommError> {
    const BYTES: usize = 1 << 16;
    let mut window = comm.allocate(BYTES)?;
    fill(&mut window, 40, comm.rank());
    let window = window.share(comm)?;
    let range = |i: usize| {
        let random = number(41, comm.rank(), i);
        let length = (random >> 40) as usize % 300;
        let offset = random as usize % (BYTES - length);
        ((random >> 32) as usize % comm.size(), offset, length)
    };
    let mut buffers: Vec<Vec<u8>> = (0..5000).map(|i| vec![0; range(i).2]).collect();
    let gets = buffers.iter_mut().enumerate();
    let mut gets: Vec<Get<'_>> = gets
        .map(|(i, buffer)| Get {
            rank: range(i).0,
            offset: range(i).1 as u64,
            buffer,
        })
        .collect();
    let computed = window.get_while(&mut gets, || (0..1000_u64).sum::<u64>())?;
    assert_eq!(computed, 499_500);
    for (i, buffer) in buffers.iter().enumerate() {
        let (rank, offset, _) = range(i);
        let expected = |j| byte(40, rank, offset + j);
        assert!(
            buffer
                .iter()
                .enumerate()
                .all(|(j, found)| *found == expected(j))
        );
    }
    window.free(comm)
}

pub(super) fn threads(comm: &Comm) -> Result<(), CommError> {
    let mut window = comm.allocate(20_000)?;
    fill(&mut window, 42, comm.rank());
    let window = window.share(comm)?;
    let read = |thread: usize| -> Result<(), CommError> {
        for i in 0..200 {
            let rank = (thread + i) % window.sizes().len();
            check_range(&window, 42, (rank, i * 31 + thread, 1000))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let read = &read;
        let spawned: Vec<_> = (0..3)
            .map(|thread| scope.spawn(move || read(thread)))
            .collect();
        let joined = spawned
            .into_iter()
            .map(|thread| thread.join().expect("a reader"));
        joined.collect::<Result<Vec<()>, _>>()
    })?;
    window.free(comm)
}

/// Two windows at a time, in groups of a split: one is filled while the other is read.
pub(super) fn groups(comm: &Comm) -> Result<(), CommError> {
    let color = Some((comm.rank() % 2) as u64);
    let group = comm.split(color, 0)?.expect("every rank has a color");
    let mut filling = group.allocate(700)?;
    let mut first = group.allocate(700)?;
    fill(&mut first, 50, group.rank());
    let mut reading = first.share(&group)?;
    for generation in 50..54 {
        fill(&mut filling, generation + 1, group.rank());
        for rank in 0..group.size() {
            check_range(&reading, generation, (rank, 0, 700))?;
        }
        let next = filling.share(&group)?;
        filling = std::mem::replace(&mut reading, next).refill(&group)?;
    }
    filling.free(&group)?;
    reading.free(&group)
}

pub(super) fn out_of_window(comm: &Comm) -> Result<(), CommError> {
    let window = comm.allocate(100)?.share(comm)?;
    for (at, length) in [(0, 101), (100, 1), (u64::MAX, 1), (u64::MAX, 0), (99, 2)] {
        let mut buffer = vec![0; length];
        let rank = comm.size() - 1;
        let (offset, buffer) = (at, &mut buffer[..]);
        match window.get(&mut [Get {
            rank,
            offset,
            buffer,
        }]) {
            Err(CommError::OutOfWindow {
                rank: found,
                offset,
                size,
                ..
            }) => {
                assert_eq!((found, offset, size), (rank, at, 100));
            }
            other => panic!("{length} bytes at {at}: {other:?}"),
        }
    }
    window.free(comm)
}
