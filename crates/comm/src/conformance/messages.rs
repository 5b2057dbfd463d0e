//! Messages between two ranks, groups, and misuse.

use super::numbers::number;
use crate::{Comm, CommError, Get, Reduction};

pub(super) fn ring(comm: &Comm) -> Result<(), CommError> {
    let next = (comm.rank() + 1) % comm.size();
    let before = (comm.rank() + comm.size() - 1) % comm.size();
    for length in [0, 1, 5, 10_000] {
        let part = |rank| -> Vec<u64> { (0..length).map(|i| number(10, rank, i)).collect() };
        comm.send(next, 1, &part(comm.rank()))?;
        let mut arrived = vec![0; length];
        comm.receive(before, 1, &mut arrived)?;
        assert_eq!(arrived, part(before));
    }
    Ok(())
}

/// Messages of one tag keep their order; tags and senders do not mix.
pub(super) fn order(comm: &Comm) -> Result<(), CommError> {
    let content = |from: usize, tag: u16, i: usize| [from as u64, u64::from(tag), i as u64];
    for to in 0..comm.size() {
        for i in 0..20 {
            for tag in [0, 7, u16::MAX] {
                comm.send(to, tag, &content(comm.rank(), tag, i))?;
            }
        }
    }
    for tag in [u16::MAX, 0, 7] {
        for from in (0..comm.size()).rev() {
            for i in 0..20 {
                assert_eq!(comm.receive_vec::<u64>(from, tag)?, content(from, tag, i));
            }
        }
    }
    Ok(())
}

/// Messages larger than any buffer of a transport, in both directions at once.
pub(super) fn large(comm: &Comm) -> Result<(), CommError> {
    let length = 3_000_001;
    for other in 0..comm.size() {
        comm.send(other, 3, &vec![(comm.rank() * 16 + other) as u8; length])?;
    }
    for other in 0..comm.size() {
        let values = comm.receive_vec::<u8>(other, 3)?;
        assert_eq!(values.len(), length);
        let expected = (other * 16 + comm.rank()) as u8;
        assert!(values.iter().all(|value| *value == expected));
    }
    // More than a transport sends in one piece.
    let length = (64 << 20) + 1;
    if comm.rank() == 0 {
        let values: Vec<u8> = (0..length).map(|i| (i >> 10) as u8).collect();
        comm.send(comm.size() - 1, 3, &values)?;
        comm.send(comm.size() - 1, 3, &[7_u8])?;
    }
    if comm.rank() + 1 == comm.size() {
        let values = comm.receive_vec::<u8>(0, 3)?;
        assert_eq!(values.len(), length);
        assert!((0..length).all(|i| values[i] == (i >> 10) as u8));
        assert_eq!(comm.receive_vec::<u8>(0, 3)?, [7]);
    }
    Ok(())
}

/// The traffic of an all-reduce of shares: a rank sends everyone their share of its vector, and its own reduced share
/// to everyone.
pub(super) fn counted(comm: &Comm) -> Result<(), CommError> {
    let before = comm.traffic();
    let (size, length) = (comm.size() as u64, 840 * comm.size() as u64);
    comm.all_reduce(&mut vec![1.0_f64; length as usize], Reduction::Sum)?;
    let after = comm.traffic();
    let expected = 8 * length * 2 * (size - 1) / size;
    assert_eq!(after.sent_bytes - before.sent_bytes, expected);
    assert!(after.waited >= before.waited);
    Ok(())
}

/// Even and odd ranks, reversed, with rank 1 in no group; then groups of groups.
pub(super) fn split(comm: &Comm) -> Result<(), CommError> {
    let color = (comm.rank() != 1).then_some((comm.rank() % 2) as u64 * u64::MAX);
    let key = (comm.size() - comm.rank()) as u64;
    let Some(group) = comm.split(color, key)? else {
        assert_eq!(comm.rank(), 1);
        return Ok(());
    };
    let in_group = |rank: &usize| *rank != 1 && rank % 2 == comm.rank() % 2;
    let members: Vec<usize> = (0..comm.size()).rev().filter(in_group).collect();
    assert_eq!(group.size(), members.len());
    let place = members.iter().position(|member| *member == comm.rank());
    assert_eq!(Some(group.rank()), place);
    let reported = group.all_gather_ragged(&[comm.rank() as u64])?;
    let expected: Vec<Vec<u64>> = members.iter().map(|member| vec![*member as u64]).collect();
    assert_eq!(reported, expected);
    let alone = group.split(Some(group.rank() as u64), 0)?.expect("a group");
    assert_eq!((alone.rank(), alone.size()), (0, 1));
    let mut values = [1.5_f32];
    alone.all_reduce(&mut values, Reduction::Sum)?;
    assert_eq!(values, [1.5]);
    assert_eq!(alone.world_rank(), comm.world_rank());
    Ok(())
}

/// Communicators made one after the other in both ways do not get each other's messages.
pub(super) fn separate(comm: &Comm) -> Result<(), CommError> {
    let mut comms = Vec::new();
    for _ in 0..3 {
        comms.push(comm.split(Some(0), 0)?.expect("every rank has a color"));
        comms.push(comm.duplicate()?);
    }
    let next = (comm.rank() + 1) % comm.size();
    let before = (comm.rank() + comm.size() - 1) % comm.size();
    for (i, other) in (0_u64..).zip(&comms) {
        other.send(next, 1, &[i])?;
    }
    for (i, other) in comms.iter().enumerate().rev() {
        assert_eq!(other.receive_vec::<u64>(before, 1)?, [i as u64]);
    }
    Ok(())
}

/// Two threads of each rank use communicators of their own at the same time.
pub(super) fn second_thread(comm: &Comm) -> Result<(), CommError> {
    let second = comm.duplicate()?;
    let sum_often = |comm: &Comm, times: u64| -> Result<(), CommError> {
        for i in 0..times {
            let mut values = [i, comm.rank() as u64];
            comm.all_reduce(&mut values, Reduction::Sum)?;
            let size = comm.size() as u64;
            assert_eq!(values, [i * size, size * (size - 1) / 2]);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(move || sum_often(&second, 200));
        sum_often(comm, 150)?;
        other.join().expect("the second thread")
    })
}

pub(super) fn wrong_arguments(comm: &Comm) -> Result<(), CommError> {
    let size = comm.size();
    let no_such_rank = |result: Result<(), CommError>| match result {
        Err(CommError::NoSuchRank { rank, size: found }) => assert_eq!((rank, found), (size, size)),
        other => panic!("{other:?}"),
    };
    no_such_rank(comm.broadcast(&mut [0_u64], size));
    no_such_rank(comm.send(size, 0, &[0_u64]));
    no_such_rank(comm.receive(size, 0, &mut [0_u64]));
    let window = comm.allocate(0)?.share(comm)?;
    let (rank, offset) = (size, 0);
    let buffer = &mut [];
    no_such_rank(window.get(&mut [Get {
        rank,
        offset,
        buffer,
    }]));
    window.free(comm)?;
    comm.send(comm.rank(), 4, &[1_u64, 2])?;
    match comm.receive(comm.rank(), 4, &mut [0_u64; 3]) {
        Err(CommError::LengthMismatch {
            expected, found, ..
        }) => assert_eq!((expected, found), (24, 16)),
        other => panic!("{other:?}"),
    }
    comm.send(comm.rank(), 4, &[1_u8, 2, 3])?;
    match comm.receive_vec::<u64>(comm.rank(), 4) {
        Err(CommError::LengthMismatch { found, .. }) => assert_eq!(found, 3),
        other => panic!("{other:?}"),
    }
    Ok(())
}
