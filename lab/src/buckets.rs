//! Bucketing of the Penn Treebank: padding, dropped sentences, randomness, and speed by counting cells.
//!
//! The report trains an LSTM on the Penn Treebank without buckets, with static ones and with automatic ones, and prints
//! minutes; here the table counts the cells that each policy computes on the same text. A recurrent net spends its time
//! in cells, so their ratio is the possible gain by buckets: it is shown next to the ratio of the printed minutes and
//! labelled modelled. The report does not print padding; the expected values come from a calculation with an unrecorded
//! limit on sentences, and are labelled expected. Cost: one pass over 5 MB.

use pelton_comm::Comm;
use pelton_run::{Interrupt, RunContext, write_atomically};
use pelton_tools::buckets::{
    BucketRow, BucketsConfig, LengthSource, PUBLISHED_AUTO, Unit, buckets, histogram, published,
    read_lengths, row,
};
use pelton_train::TrainError;
use serde_json::{Value, json};

use pelton_plan::{BucketPolicy, LengthHistogram};

use super::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction, Row};

const COLUMNS: &str =
    "data,batch,policy,buckets,batches,padded_fraction,dropped,stretched,rl_exact";

/// Known figures of a policy: expected padding in percent, and printed minutes of 25 epochs on one device and on two,
/// all at batches of 32 and of 128.
pub(super) struct Known {
    policy: &'static str,
    padding: [f64; 2],
    pub minutes: Option<[[f64; 2]; 2]>,
}

const KNOWN: [Known; 6] = [
    Known {
        policy: "none",
        padding: [65.0, 65.0],
        minutes: Some([[124.0, 91.0], [132.0, 58.0]]),
    },
    Known {
        policy: "static",
        padding: [17.8, 17.8],
        minutes: Some([[45.0, 27.0], [54.0, 21.0]]),
    },
    Known {
        policy: "optimal:8",
        padding: [11.6, 11.6],
        minutes: None,
    },
    Known {
        policy: "optimal:16",
        padding: [4.8, 4.8],
        minutes: None,
    },
    Known {
        policy: "auto",
        padding: [0.04, 0.16],
        minutes: Some([[34.0, 20.0], [45.0, 16.0]]),
    },
    // Expected to stay below this.
    Known {
        policy: "pack",
        padding: [0.2, 0.2],
        minutes: None,
    },
];

/// Sentences that the published scheme drops, in percent.
const PUBLISHED_DROPPED: [f64; 2] = [1.9, 6.8];

/// Index of this batch size among the two known ones.
pub(super) fn known_batch(batch: u64) -> Option<usize> {
    [32, 128].iter().position(|&known| known == batch)
}

/// The known figures of a policy.
pub(super) fn known(policy: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| policy.starts_with(known.policy))
}

pub(super) fn buckets_table(
    config: &ReproduceConfig,
    interrupt: &Interrupt,
) -> Result<Reproduction, TrainError> {
    let experiment = &config.experiment;
    let policies: Vec<BucketPolicy> = experiment
        .policies
        .iter()
        .map(|policy| policy.parse())
        .collect::<Result<_, _>>()?;
    let mut raw = RawRuns::create(&config.out.join("buckets-runs.csv"), COLUMNS)?;
    let mut reproduction = Reproduction {
        name: experiment.name.clone(),
        rows: Vec::new(),
        notes: notes(),
        files: vec![raw.path()],
    };
    for set in &experiment.sets {
        let file = set.train.as_ref().zip(config.real_data.as_ref());
        let file = file.map(|(file, folder)| folder.join(file));
        let Some(path) = file.filter(|file| file.exists()) else {
            let note = format!("{}: left out, its files are not there", set.name);
            reproduction.notes.push(note);
            continue;
        };
        let source = LengthSource::Lines(Unit::Words);
        let lengths = read_lengths(&path, &source, interrupt)?;
        let counts = LengthHistogram::new(lengths.iter().copied());
        for &batch in &experiment.batches {
            let mut found = policies
                .iter()
                .map(|policy| row(policy, batch, &lengths, &counts))
                .collect::<Result<Vec<_>, _>>()?;
            found.push(published(batch, &lengths));
            for figures in &found {
                write_raw(&mut raw, &set.name, batch, figures)?;
            }
            reproduction
                .rows
                .extend(rows(&set.name, counts.sentences(), batch, &found));
        }
        let picture = config.out.join(format!("buckets-{}.svg", set.name));
        let batch = experiment.batches.first().copied().unwrap_or(32);
        let table = BucketsConfig {
            pair: None,
            path,
            source,
            batch,
            policies: policies.clone(),
        };
        let comm = Comm::alone();
        let table = buckets(&table, RunContext::new(&comm, interrupt, &mut |_| {}))?;
        let drawing = histogram(&table).to_svg();
        write_atomically(&picture, |path| std::fs::write(path, drawing))?;
        reproduction.files.push(picture);
    }
    Ok(reproduction)
}

fn notes() -> Vec<String> {
    vec![
        "a sentence is its words and one for its end; every batch is padded to the end of its bucket, and sentences beyond the last boundary stretch it".to_string(),
        "padding under 'published' is expected, not printed: 65 % and 17.8 % are met within 0.1 when the end is not counted and sentences of more than 60 words are dropped (64.97 % and 17.7 %)".to_string(),
        "published-auto drops what fills no batch and repeats one order for ever; the other policies drop nothing and shuffle again every epoch".to_string(),
        "RL* = ln(orders an epoch can have)/ln(N!)".to_string(),
    ]
}

fn write_raw(
    raw: &mut RawRuns,
    data: &str,
    batch: u64,
    figures: &BucketRow,
) -> Result<(), TrainError> {
    raw.line(&[
        data,
        &batch.to_string(),
        &format!("\"{}\"", figures.policy),
        &figures.buckets.to_string(),
        &figures.batches.to_string(),
        &figures.padded_fraction.to_string(),
        &figures.dropped.to_string(),
        &figures.stretched.to_string(),
        &figures.rl_exact.to_string(),
    ])
}

/// The figures of all policies on one data set in batches of one size.
fn rows(data: &str, sentences: u64, batch: u64, found: &[BucketRow]) -> Vec<Row> {
    let place = known_batch(batch);
    let mut rows = Vec::new();
    let mut push = |figures: &BucketRow,
                    figure: &str,
                    published: Option<f64>,
                    measured: Value,
                    differs: &str| {
        rows.push(Row {
            table: "Bucketing".to_string(),
            data: format!("{data}, batches of {batch}"),
            method: figures.policy.clone(),
            figure: figure.to_string(),
            published: json!(published),
            measured,
            differs: differs.to_string(),
            ..Row::default()
        });
    };
    for figures in found {
        let expected = place.zip(known(&figures.policy));
        let expected = expected.map(|(place, known)| known.padding[place]);
        let measured = json!(percent(figures.padded_fraction));
        push(
            figures,
            PADDED,
            expected,
            measured,
            "expected values, not printed ones; of pack an upper bound",
        );
    }
    for figures in found {
        let is_published = figures.policy == PUBLISHED_AUTO;
        let printed = place.filter(|_| is_published || figures.policy == "auto");
        let measured = json!(percent(figures.dropped as f64 / sentences.max(1) as f64));
        let printed = printed.map(|place| PUBLISHED_DROPPED[place]);
        push(
            figures,
            "sentences dropped, in percent",
            printed,
            measured,
            "the published auto drops; none of ours does",
        );
    }
    for figures in found {
        let measured = json!(percent(figures.rl_exact));
        push(
            figures,
            "exact randomness RL* in percent",
            None,
            measured,
            "not published; one order for ever is 0",
        );
    }
    for figures in found {
        push(
            figures,
            "buckets",
            None,
            json!(figures.buckets),
            "not published",
        );
    }
    let Some(none) = found.iter().find(|figures| figures.policy == "none") else {
        return rows;
    };
    for figures in found
        .iter()
        .filter(|figures| figures.policy != PUBLISHED_AUTO)
    {
        let printed = place.and_then(|place| {
            let [minutes, _] = known(&figures.policy)?.minutes?;
            Some(KNOWN[0].minutes?[0][place] / minutes[place])
        });
        let gain = (1.0 - figures.padded_fraction) / (1.0 - none.padded_fraction);
        push(
            figures,
            "speed against none (modelled)",
            printed.map(|gain| (100.0 * gain).round() / 100.0),
            json!((100.0 * gain).round() / 100.0),
            "published: ratio of minutes on one device; ours: ratio of cells, all sentences kept",
        );
    }
    rows
}

/// The figure in the bar charts of the page.
pub(super) const PADDED: &str = "padded cells in percent";

fn percent(share: f64) -> f64 {
    (1e5 * share).round() / 1000.0
}
