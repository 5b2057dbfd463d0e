//! The histogram of lengths with the boundaries of each policy: as characters, and as a drawing.

use pelton_run::{Histogram, Marks};

use super::{BucketRow, BucketsTable, PUBLISHED_AUTO};

/// Levels of a bar within a character.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Lines of bars.
const HEIGHT: usize = 10;

/// Characters before the bars.
const MARGIN: usize = 16;

/// The histogram in at most `columns` characters a line, with a line of boundaries below for each policy that has any.
pub fn in_terminal(table: &BucketsTable, columns: usize) -> Vec<String> {
    if table.sentences == 0 {
        return Vec::new();
    }
    let bins = Bins::new(table, columns.saturating_sub(MARGIN).max(20));
    let tallest = bins.counts.iter().copied().max().unwrap_or(0).max(1);
    let eighths = |count: u64| {
        let level = (count as f64 / tallest as f64 * (8 * HEIGHT) as f64).ceil();
        level as usize
    };
    let mut lines = Vec::new();
    for row in (0..HEIGHT).rev() {
        let label = if row + 1 == HEIGHT {
            tallest.to_string()
        } else {
            String::new()
        };
        let bars = bins
            .counts
            .iter()
            .map(|&count| LEVELS[eighths(count).saturating_sub(8 * row).min(8)]);
        lines.push(line(&label, &bars.collect::<String>()));
    }
    lines.push(line("length", &bins.scale()));
    for (policy, row) in marked(table) {
        lines.push(line(policy, &bins.marks(&row.boundaries)));
    }
    lines
}

fn line(label: &str, content: &str) -> String {
    const LABEL: usize = MARGIN - 2;
    let label: String = label.chars().take(LABEL).collect();
    format!("{label:>LABEL$}  {}", content.trim_end())
}

/// The histogram with the boundaries, for a drawing.
pub fn histogram(table: &BucketsTable) -> Histogram {
    Histogram {
        title: format!("{}: lengths of {} sentences", table.file, table.sentences),
        x_label: "tokens of a sentence".to_string(),
        y_label: "sentences".to_string(),
        counts: Bins::new(table, 160).ranges(),
        marks: marked(table)
            .map(|(policy, row)| Marks {
                name: format!("{policy}: {:.2} % padding", 100.0 * row.padded_fraction),
                // Through the middle of the length's bar, if each length has its own.
                at: row
                    .boundaries
                    .iter()
                    .map(|&end| f64::from(end) + 0.5)
                    .collect(),
            })
            .collect(),
    }
}

/// Policies with boundaries, so not packed rows, by the first part of their names or, if that is ambiguous, by the
/// whole name.
fn marked(table: &BucketsTable) -> impl Iterator<Item = (&str, &BucketRow)> {
    fn kind(row: &BucketRow) -> &str {
        row.policy.split(':').next().unwrap_or("")
    }
    let has_buckets = |row: &&BucketRow| row.policy != PUBLISHED_AUTO && kind(row) != "pack";
    let shown = table.rows.iter().filter(has_buckets);
    shown.map(move |row| {
        let alike = table
            .rows
            .iter()
            .filter(|other| kind(other) == kind(row))
            .count();
        let name = match row.policy.split_once(':') {
            Some((kind, _)) if alike == 1 => kind,
            _ => row.policy.as_str(),
        };
        (name, row)
    })
}

/// Sentences by ranges of lengths, all equally wide.
struct Bins {
    /// Lengths of a bin; the first begins at 0.
    width: u64,
    counts: Vec<u64>,
}

impl Bins {
    fn new(table: &BucketsTable, most: usize) -> Bins {
        let width = (u64::from(table.longest) + 1).div_ceil(most as u64);
        let bins = u64::from(table.longest) / width + 1;
        let mut counts = vec![0; bins as usize];
        for &(length, count) in &table.histogram {
            counts[(u64::from(length) / width) as usize] += count;
        }
        Bins { width, counts }
    }

    /// First length past each bin's start, and its sentences.
    fn ranges(&self) -> Vec<(f64, f64, u64)> {
        let edge = |bin: usize| (bin as u64 * self.width) as f64;
        let counts = self.counts.iter().enumerate();
        counts
            .map(|(bin, &count)| (edge(bin), edge(bin + 1), count))
            .collect()
    }

    /// Lengths written under the bars, each at its bin.
    fn scale(&self) -> String {
        let mut text = String::new();
        let every = self.counts.len().div_ceil(8).next_multiple_of(5);
        for bin in (0..self.counts.len()).step_by(every) {
            text += &" ".repeat(bin.saturating_sub(text.len()));
            text += &format!("{}", bin as u64 * self.width);
        }
        text
    }

    /// A stroke at each bin in which a bucket ends.
    fn marks(&self, boundaries: &[u32]) -> String {
        let mut marks = vec![' '; self.counts.len()];
        for &end in boundaries {
            let bin = (u64::from(end) / self.width) as usize;
            let last = marks.len() - 1;
            marks[bin.min(last)] = '|';
        }
        marks.into_iter().collect()
    }
}
