//! Some columns of the rows, in memory.

use std::ops::Range;

use pelton_format::RowTable;

use crate::error::LinearError;
use crate::look::for_each_value;
use crate::peers::{Exchange, Peers};

/// Stands for a feature without a column.
const NONE: u32 = u32::MAX;

/// Columns of features by index, and labels and ids of their rows.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// The features, ascending.
    pub features: Vec<u32>,
    /// Labels and records of the rows.
    pub labels: Vec<u32>,
    pub records: Vec<u64>,
    /// Start of the entries of each column, then the end of the last.
    starts: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f32>,
}

/// One column.
#[derive(Clone, Copy)]
pub(super) enum Column<'a> {
    /// A value in every row.
    Full(&'a [f32]),
    /// Values in some rows.
    Sparse(&'a [u32], &'a [f32]),
    /// The same value in every row.
    Constant(f64),
}

impl Columns {
    /// The bytes that columns of this many values take.
    pub fn bytes(values: u64) -> u64 {
        8 * values
    }

    /// The position of a feature, if it has a column.
    pub fn place(&self, feature: u32) -> Option<usize> {
        self.features.binary_search(&feature).ok()
    }

    pub fn column(&self, place: usize) -> Column<'_> {
        let range = self.starts[place]..self.starts[place + 1];
        let values = &self.values[range.clone()];
        if values.len() == self.labels.len() {
            Column::Full(values)
        } else {
            Column::Sparse(&self.rows[range], values)
        }
    }
}

impl Column<'_> {
    /// Calls `each` with row and value.
    #[inline(always)]
    pub fn for_each(self, rows: usize, mut each: impl FnMut(usize, f64)) {
        match self {
            Column::Full(values) => {
                for (row, &x) in values.iter().enumerate() {
                    each(row, f64::from(x));
                }
            }
            Column::Sparse(rows, values) => {
                for (&row, &x) in rows.iter().zip(values) {
                    each(row as usize, f64::from(x));
                }
            }
            Column::Constant(x) => (0..rows).for_each(|row| each(row, x)),
        }
    }

    /// Number of entries, of `rows` rows.
    pub fn len(self, rows: usize) -> usize {
        self.before(rows)
    }

    /// Entries before row `row`.
    pub fn before(self, row: usize) -> usize {
        match self {
            Column::Sparse(rows, _) => rows.partition_point(|&at| (at as usize) < row),
            _ => row,
        }
    }

    /// Calls `each` with row and value of the entries from `first` on that are in `rows`; returns how many are before
    /// their end.
    #[inline(always)]
    pub fn for_each_in(
        self,
        rows: Range<usize>,
        first: usize,
        mut each: impl FnMut(usize, f64),
    ) -> usize {
        match self {
            Column::Full(values) => rows
                .clone()
                .for_each(|row| each(row, f64::from(values[row]))),
            Column::Constant(x) => rows.clone().for_each(|row| each(row, x)),
            Column::Sparse(own, values) => {
                let mut at = first;
                while let Some(&row) = own.get(at).filter(|row| (**row as usize) < rows.end) {
                    each(row as usize, f64::from(values[at]));
                    at += 1;
                }
                return at;
            }
        }
        rows.end
    }

    /// x·v.
    pub fn dot(self, v: &[f64]) -> f64 {
        match self {
            Column::Full(values) => {
                let mut sums = [0.0; 8];
                let (chunks, rest) = values.as_chunks::<8>();
                let (vs, v_rest) = v.as_chunks::<8>();
                for (x, v) in chunks.iter().zip(vs) {
                    for ((sum, &x), v) in sums.iter_mut().zip(x).zip(v) {
                        *sum += f64::from(x) * v;
                    }
                }
                let rest: f64 = rest
                    .iter()
                    .zip(v_rest)
                    .map(|(&x, v)| f64::from(x) * v)
                    .sum();
                sums.iter().sum::<f64>() + rest
            }
            Column::Sparse(rows, values) => {
                let each = |(&row, &x): (&u32, &f32)| f64::from(x) * v[row as usize];
                rows.iter().zip(values).map(each).sum()
            }
            Column::Constant(x) => x * v.iter().sum::<f64>(),
        }
    }

    /// v += scale · factor · x, entry by entry.
    pub fn add_to(self, scale: f64, factors: &[f64], v: &mut [f64]) {
        match self {
            Column::Full(values) => {
                for ((v, &x), factor) in v.iter_mut().zip(values).zip(factors) {
                    *v += scale * factor * f64::from(x);
                }
            }
            _ => self.for_each(v.len(), |row, x| v[row] += scale * factors[row] * x),
        }
    }
}

/// Columns while a pass brings their rows.
#[derive(Debug)]
pub(super) struct Collector {
    columns: Columns,
    /// The position of each feature.
    places: Vec<u32>,
    /// Entries so far of each column.
    ends: Vec<usize>,
}

impl Collector {
    /// For these features, ascending; `counts` has the number of their values in this rank's rows.
    pub fn new(features: Vec<u32>, counts: &[u32]) -> Collector {
        let mut places = vec![NONE; counts.len()];
        let mut starts = vec![0];
        for (place, &feature) in (0..).zip(&features) {
            places[feature as usize] = place;
            let end = starts[place as usize] + counts[feature as usize] as usize;
            starts.push(end);
        }
        let entries = starts.last().copied().unwrap_or(0);
        Collector {
            places,
            ends: starts[..features.len()].to_vec(),
            columns: Columns {
                features,
                rows: vec![0; entries],
                values: vec![0.0; entries],
                starts,
                ..Columns::default()
            },
        }
    }

    /// Adds the rows `range`.
    ///
    /// Errors: rows with more values than counted.
    pub fn add(&mut self, rows: &RowTable, range: Range<usize>) -> Result<(), LinearError> {
        for i in range {
            let row = self.columns.labels.len() as u32;
            self.columns.labels.push(rows.label(i));
            self.columns.records.push(rows.id(i));
            let mut complete = true;
            for_each_value(rows.row(i), None, |feature, value| {
                let place = self.places[feature] as usize;
                if place == NONE as usize {
                    return;
                }
                let end = &mut self.ends[place];
                if *end == self.columns.starts[place + 1] {
                    complete = false;
                    return;
                }
                self.columns.rows[*end] = row;
                self.columns.values[*end] = value;
                *end += 1;
            });
            if !complete {
                return Err(LinearError::StateMismatch {
                    part: "values of a row that changed while it was read",
                });
            }
        }
        Ok(())
    }

    /// The columns of the rows of all ranks.
    pub fn finish(self, peers: &mut Peers<'_, LinearError>) -> Result<Columns, LinearError> {
        let Collector { columns, .. } = self;
        let mut counts = vec![columns.labels.len() as f64];
        peers(Exchange::Gather(&mut counts))?;
        if counts.len() == 1 {
            return Ok(columns);
        }
        let mut gathered = |numbers: Vec<f64>| -> Result<Vec<f64>, LinearError> {
            let mut numbers = numbers;
            peers(Exchange::Gather(&mut numbers))?;
            Ok(numbers)
        };
        let labels = gathered(
            columns
                .labels
                .iter()
                .map(|&label| f64::from(label))
                .collect(),
        )?;
        let records = gathered(columns.records.iter().map(|&id| id as f64).collect())?;
        let lengths = columns
            .starts
            .windows(2)
            .map(|ends| (ends[1] - ends[0]) as f64);
        let lengths = gathered(lengths.collect())?;
        let rows = gathered(columns.rows.iter().map(|&row| f64::from(row)).collect())?;
        let values = gathered(columns.values.iter().map(|&x| f64::from(x)).collect())?;
        let ranks = counts.len();
        let width = columns.features.len();
        // Start of the entries of each rank and column.
        let mut begins = vec![0; ranks * width + 1];
        for (at, length) in lengths.iter().enumerate() {
            begins[at + 1] = begins[at] + *length as usize;
        }
        let mut all = Columns {
            features: columns.features,
            labels: labels.iter().map(|&label| label as u32).collect(),
            records: records.iter().map(|&record| record as u64).collect(),
            starts: vec![0],
            ..Columns::default()
        };
        for place in 0..width {
            let mut first = 0;
            for (rank, count) in counts.iter().enumerate() {
                let range = begins[rank * width + place]..begins[rank * width + place + 1];
                let own = rows[range.clone()].iter().map(|&row| first + row as u32);
                all.rows.extend(own);
                all.values.extend(values[range].iter().map(|&x| x as f32));
                first += *count as u32;
            }
            all.starts.push(all.rows.len());
        }
        Ok(all)
    }
}
