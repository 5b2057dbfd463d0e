//! Where look-aheads begin against packing every appearance in turn.

use super::super::mixture::Mixture;
use super::super::sequence::Source;
use super::super::spec::Part;
use super::*;
use crate::batching::Batching;
use crate::echo::EchoPlan;
use crate::plan::Plan;
use pelton_key::mix;

const EPOCH: u64 = 4;

/// By the appearances of the epoch, one after the other.
fn plainly(packed: Packed<'_>) -> Vec<u64> {
    let mut draws = Vec::new();
    let all = 0..packed.sequence.appearances();
    packed.sequence.fill(packed.epoch, all, &mut draws);
    let mut counter = PieceCounter::new(packed.packing);
    let mut starts = vec![0];
    for ahead in draws.chunks(packed.packing.look_ahead() as usize) {
        let numbers: Vec<u64> = ahead.iter().map(|draw| draw.id).collect();
        let mut lengths = vec![0; numbers.len()];
        packed.lengths.gather(&numbers, &mut lengths);
        let patterns = counter.pack(&lengths);
        let rows = patterns.iter().map(|pattern| u64::from(pattern.rows));
        starts.push(starts[starts.len() - 1] + rows.sum::<u64>());
    }
    starts
}

fn source(order: &str, examples: u64) -> Source {
    if order != "mixture" {
        let plan = Plan::new(
            examples,
            order.parse().unwrap(),
            Batching::Examples(32),
            EPOCH,
        );
        return Source::Plan(plan.unwrap());
    }
    let ends = [0, 1, 40, examples / 3, examples];
    let parts = (0..4).map(|part| Part {
        ids: ends[part]..ends[part + 1],
        weight: [0.1, 1.0, 3.0, 2.0][part],
    });
    let parts: Vec<Part> = parts.collect();
    Source::Mixture(Mixture::new(&parts, None, examples, None, 8).unwrap())
}

fn check(order: &str, examples: u64, echo: &str, packing: (u32, u32), longest: u32) {
    let sequence = Sequence::new(source(order, examples), echo.parse().unwrap(), 9).unwrap();
    let length_of = |number| (mix(number) % u64::from(longest + 1)) as u32;
    let lengths = Table::new(examples, longest, length_of);
    let packed = Packed {
        sequence: &sequence,
        packing: Packing::new(packing.0, packing.1).unwrap(),
        lengths: &lengths,
        longest,
        epoch: EPOCH,
    };
    let expected = plainly(packed);
    let says = format!("{order} {examples} {echo} {packing:?} {longest}");
    assert_eq!(packed.look_aheads() as usize + 1, expected.len(), "{says}");
    if sequence.source().is_invertible() {
        assert_eq!(by_number(packed), expected, "{says}");
    }
    let mut walk = Walk::new(packed);
    for (number, rows) in (0..).zip(expected.windows(2)) {
        assert_eq!(walk.rows(number), rows[1] - rows[0], "{says}: {number}");
    }
    // A walk that begins anywhere, and goes back.
    let mut walk = Walk::new(packed);
    for step in 0..packed.look_aheads().min(20) {
        let number = mix(step / 3) % packed.look_aheads();
        let number = (number + step % 3) % packed.look_aheads();
        let rows = expected[number as usize + 1] - expected[number as usize];
        assert_eq!(walk.rows(number), rows, "{says}: {number}");
    }
}

#[test]
fn look_aheads_begin_where_packing_finds_them() {
    for order in [
        "full",
        "sequential",
        "block:7:permute",
        "page",
        "queue:90",
        "mixture",
    ] {
        for echo in [
            "1",
            "2:64",
            "1.5:40",
            "3.25:7",
            "2:1",
            "1.001:5000",
            "4:300",
        ] {
            for packing in [(10, 1), (30, 50), (30, 512), (100, 1000), (7, 100_000)] {
                check(order, 3000, echo, packing, 25);
            }
        }
    }
    for examples in [0, 1, 2, 63, 64, 65] {
        for echo in ["1", "2:16", "1.5:16", "2:100"] {
            check("full", examples, echo, (12, 8), 20);
        }
    }
}

/// Counters of two and of four bytes, few and so many that neighbours are brought together.
#[test]
fn many_counters_count_the_same() {
    for echo in ["1", "2:30", "2.5:30"] {
        for packing in [(9000, 100), (9000, 70_000), (5000, 40_000), (60, 200)] {
            check("full", 40_000, echo, packing, 9000);
        }
    }
}

/// The places of an epoch fall into stretches that hold each appearance once.
#[test]
fn stretches_hold_each_appearance() {
    for examples in [0, 1, 15, 64, 200] {
        for echo in ["1", "2:16", "1.5:16", "3.3:7", "2:500", "1.1:9"] {
            let plan = EchoPlan::new(examples, echo.parse().unwrap(), 3).unwrap();
            let mut all = Vec::new();
            plan.fill(EPOCH, 0..u64::MAX, &mut all);
            for len in [1, 7, 16, 40, 1000] {
                for start in (0..all.len() as u64).step_by(3) {
                    let stretch = plan.stretch(&(start..start + len));
                    let mut found: Vec<u64> = stretch.fresh.collect();
                    for position in stretch.whole {
                        let times = plan.times_of(position) as usize - 1;
                        found.extend(std::iter::repeat_n(position, times));
                    }
                    for (window, repeats) in stretch.parts.into_iter().flatten() {
                        let order = plan.repeats(EPOCH, window);
                        let some = &order[repeats.start as usize..repeats.end as usize];
                        found.extend(some.iter().map(|echoed| echoed.position));
                    }
                    let end = all.len().min((start + len) as usize);
                    let here = all[start as usize..end].iter();
                    let mut expected: Vec<u64> = here.map(|echoed| echoed.position).collect();
                    expected.sort_unstable();
                    found.sort_unstable();
                    assert_eq!(found, expected, "{examples} {echo} {start} {len}");
                }
            }
        }
    }
}
