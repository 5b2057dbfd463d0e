//! Rows of a table by index, and the gradient of the table.

use rayon::prelude::*;

/// `out` \[n, d\] = rows `ids` \[n\] of `table` \[v, d\]. Panics if an index is out of range.
pub fn gather(table: &[f32], d: usize, ids: &[u32], out: &mut [f32]) {
    assert_eq!(out.len(), ids.len() * d, "output of an embedding");
    let each = 64;
    out.par_chunks_mut((each * d).max(1))
        .zip(ids.par_chunks(each))
        .for_each(|(out, ids)| {
            for (out, &id) in out.chunks_exact_mut(d).zip(ids) {
                out.copy_from_slice(row_of(table, d, id));
            }
        });
}

/// Row `ids[i]` of `dtable` \[v, d\] += row i of `dout` \[n, d\], for all i. Panics if an index is out of range.
///
/// A row's sum has the order of `ids`, with any threads: each task owns a range of the table.
pub fn scatter_add(dout: &[f32], d: usize, ids: &[u32], dtable: &mut [f32]) {
    assert_eq!(dout.len(), ids.len() * d, "gradient of an embedding");
    if d == 0 || ids.is_empty() {
        return;
    }
    if let Some(&id) = ids.iter().max() {
        row_of(dtable, d, id);
    }
    let rows = dtable.len() / d;
    // Sorted by row, and equal rows in the order of `ids`; then each task finds its own by bisection.
    let mut order: Vec<(u32, u32)> = ids.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let each = rows.div_ceil(64).max(1);
    dtable
        .par_chunks_mut(each * d)
        .enumerate()
        .for_each(|(i, table)| {
            let first = i * each;
            let begin = order.partition_point(|&(id, _)| (id as usize) < first);
            for &(id, at) in &order[begin..] {
                let Some(row) = table.get_mut((id as usize - first) * d..) else {
                    break;
                };
                if row.is_empty() {
                    break;
                }
                let from = &dout[at as usize * d..][..d];
                for (to, x) in row[..d].iter_mut().zip(from) {
                    *to += x;
                }
            }
        });
}

fn row_of(table: &[f32], d: usize, id: u32) -> &[f32] {
    let at = id as usize * d;
    table.get(at..at + d).unwrap_or_else(|| {
        panic!("row {id} of a table of {}", table.len() / d.max(1));
    })
}
