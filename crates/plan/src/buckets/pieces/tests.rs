//! RL* of packing against all orders of small look-aheads.

use std::collections::HashSet;

use super::*;

/// The segments of each row.
type Rows = Vec<Vec<Segment>>;

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(count - 1) {
        for place in 0..=shorter.len() {
            let mut longer = shorter.clone();
            longer.insert(place, count - 1);
            all.push(longer);
        }
    }
    all
}

/// The rows of sentences in a given order, for every order of the rows.
fn emitted(packing: Packing, lengths: &[u32], order: &[usize]) -> Vec<Rows> {
    let mut pieces: Vec<Segment> = Vec::new();
    for &id in order {
        let of_sentence = packing.pieces(lengths[id]);
        pieces.extend(of_sentence.map(|(start, length)| Segment {
            place: id as u32,
            piece: Piece { start, length },
        }));
    }
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.piece.length));
    let patterns = PieceCounter::new(packing).pack(lengths);
    let rows: Vec<usize> = (0..patterns.len())
        .flat_map(|place| std::iter::repeat_n(place, patterns[place].rows as usize))
        .collect();
    let mut all = Vec::new();
    for row_order in permutations(rows.len()) {
        let mut next = NextPieces::new(&pieces);
        let row_of = |&row: &usize| {
            let mut segments = Vec::new();
            next.row(&patterns[rows[row]], |segment| segments.push(*segment));
            segments
        };
        all.push(row_order.iter().map(row_of).collect());
    }
    all
}

#[test]
fn reachable_rows_are_counted_exactly() {
    for (row_length, lengths) in [
        (5, vec![5, 5, 3, 2, 1]),
        (5, vec![3, 3, 2, 2, 4]),
        (4, vec![1, 1, 1, 1, 1]),
        (4, vec![0, 2, 2, 4]),
        // Cut sentences, with equal rests, with others, and with whole rows alone.
        (4, vec![6, 6, 2]),
        (4, vec![6, 7, 2, 3]),
        (4, vec![9, 5, 1, 4]),
        (4, vec![8, 4, 3]),
    ] {
        let packing = Packing::new(row_length, 100).unwrap();
        let reached: HashSet<Rows> = permutations(lengths.len())
            .iter()
            .flat_map(|order| emitted(packing, &lengths, order))
            .collect();
        let expected = (reached.len() as f64).ln();
        let orders = PieceCounter::new(packing).ln_orders(&lengths);
        assert!(
            (orders - expected).abs() < 1e-9,
            "{lengths:?}: {}",
            reached.len()
        );
    }
}
