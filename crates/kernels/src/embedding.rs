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
    scatter(dout, d, ids, |at| (at, 1.0), dtable);
}

/// Row i of `out` \[n, d\] = `bias` \[d\] and the sum of `values` times the rows `ids` of `table` \[v, d\], of which row i
/// has the next `counts[i]`. Panics if an index is out of range.
pub fn gather_sums(
    table: &[f32],
    bias: &[f32],
    counts: &[usize],
    (ids, values): (&[u32], &[f32]),
    out: &mut [f32],
) {
    let d = bias.len();
    assert_eq!(out.len(), counts.len() * d, "output of bags");
    assert_eq!(ids.len(), values.len(), "values of bags");
    let mut end = 0;
    let starts = counts.iter().map(|count| {
        end += count;
        end - count
    });
    let starts: Vec<usize> = starts.collect();
    assert_eq!(end, ids.len(), "features of bags");
    let rows = out.par_chunks_mut(d.max(1)).with_min_len(8);
    rows.zip(&starts)
        .zip(counts)
        .for_each(|((out, &start), &count)| {
            out.copy_from_slice(bias);
            let own = start..start + count;
            for (&id, &value) in ids[own.clone()].iter().zip(&values[own]) {
                for (sum, x) in out.iter_mut().zip(row_of(table, d, id)) {
                    *sum += value * x;
                }
            }
        });
}

/// The gradient of [`gather_sums`] by its table: row `ids[i]` of `dtable` \[v, d\] += `values[i]` · row `rows[i]` of
/// `dout`, in the order of `ids`. Panics if an index is out of range.
pub fn scatter_sums(
    dout: &[f32],
    d: usize,
    (ids, rows, values): (&[u32], &[usize], &[f32]),
    dtable: &mut [f32],
) {
    let from = |at: usize| (rows[at], values[at]);
    scatter(dout, d, ids, from, dtable);
}

/// Row `ids[i]` of `dtable` += factor · row of `dout`, both by `from(i)`.
fn scatter(
    dout: &[f32],
    d: usize,
    ids: &[u32],
    from: impl Fn(usize) -> (usize, f32) + Sync,
    dtable: &mut [f32],
) {
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
                let (at, factor) = from(at as usize);
                let from = &dout[at * d..][..d];
                for (to, x) in row[..d].iter_mut().zip(from) {
                    *to += factor * x;
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
