//! Retrieval: whether the nearest neighbours of a record have its class. The net need not have been trained on that
//! class.
//!
//! Neighbours are exact, by cosine. The features of the searched records are in memory; products with them are computed
//! for a few queries at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_data::{DataConfig, check_range};
use pelton_run::{Event, Interrupt, RunContext, peak_rss_bytes};
use pelton_softmax::{ClassIndex, Logits};
use rayon::ThreadPool;
use serde::Serialize;

use crate::embeddings::{Embedder, Records};
use crate::error::TrainError;
use crate::evaluate::EvaluateConfig;
use crate::finished::Labels;
use crate::image::check_whole;

/// Multiplications between two looks at the interrupt, a fraction of a second.
const MULTIPLICATIONS: usize = 8 << 30;
/// Keeping one neighbour of a query takes as long as this many multiplications: measured, 5 ms for 1000 among 400 000
/// records.
const PER_NEIGHBOUR: usize = 1 << 17;
/// Most neighbours of a query.
const MOST_NEIGHBOURS: usize = 1000;
/// Most queries of a search.
const MOST_QUERIES: usize = 1024;
/// Marks classes that no query has.
const OTHER: u32 = u32::MAX;

/// Statistics of a retrieval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetrievalFigures {
    /// By k: share of the queries with a record of their class among their k nearest.
    pub recall: BTreeMap<usize, f64>,
    /// Records with another record of their class among those searched.
    pub queries: u64,
    /// Records without one, which do not count.
    pub left_out: u64,
    /// Records that are searched.
    pub gallery: u64,
    /// Seconds.
    pub wall_s: f64,
    /// Most memory of the process.
    pub peak_rss_bytes: u64,
}

/// The searched records, and the classes of the queries.
struct Search<'a> {
    index: ClassIndex,
    /// Classes of the index's records.
    labels: Vec<u32>,
    /// How many records of the index each class has.
    counts: Vec<u64>,
    /// Whether queries are records of the index, in its order.
    is_own: bool,
    /// Neighbours of a query that are found, itself left out.
    most: usize,
    pool: &'a ThreadPool,
    interrupt: &'a Interrupt,
}

/// Counts of queries by the rank at which they find their class.
#[derive(Default)]
struct Hits {
    queries: u64,
    left_out: u64,
    /// How many first find it at this rank, from 0.
    at: Vec<u64>,
}

impl Search<'_> {
    /// Looks for the classes of the next queries.
    fn run(&self, queries: &[f32], labels: &[u32], hits: &mut Hits) -> Result<(), TrainError> {
        let d = self.index.d();
        let wanted = self.most + usize::from(self.is_own);
        let block = MULTIPLICATIONS / (self.index.len() * d + wanted * PER_NEIGHBOUR);
        let block = block.clamp(4, MOST_QUERIES);
        hits.at.resize(self.most, 0);
        for (queries, labels) in queries.chunks(block * d).zip(labels.chunks(block)) {
            let nearest = self.pool.install(|| self.index.search(queries, wanted));
            for (nearest, &label) in nearest.iter().zip(labels) {
                let query = hits.queries + hits.left_out;
                if self.counts[label as usize] == u64::from(self.is_own) {
                    hits.left_out += 1;
                    continue;
                }
                hits.queries += 1;
                let others = nearest.iter().map(|&(record, _)| record);
                let mut others = others.filter(|&record| !self.is_own || record != query);
                let rank = others.position(|record| self.labels[record as usize] == label);
                if let Some(at) = rank.and_then(|rank| hits.at.get_mut(rank)) {
                    *at += 1;
                }
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(TrainError::stopped("searching"));
            }
        }
        Ok(())
    }
}

/// Recall at each of `ks`: the share of records with their class among their `k` nearest other records or, with
/// `gallery`, among the nearest records of those files.
///
/// Errors: a run that is not finished, damaged, or of another job than `train classify`; data without labels or of
/// other sizes; no class with two records.
pub fn recall(
    of: &EvaluateConfig,
    ks: &[usize],
    gallery: &[String],
    mut context: RunContext<'_>,
) -> Result<RetrievalFigures, TrainError> {
    let began = Instant::now();
    let context = &mut context;
    let mut embedder = Embedder::open(&of.model)?;
    let data = labelled(&embedder, of, context)?;
    let searched = match gallery {
        [] => None,
        paths => {
            let mut of = of.clone();
            of.data.paths = paths.to_vec();
            Some(labelled(&embedder, &of, context)?)
        }
    };
    let is_own = searched.is_none();
    let searched = searched.as_ref().unwrap_or(&data);
    let size = searched.data.dataset.records();
    let others = (size as usize).saturating_sub(usize::from(is_own));
    for &k in ks {
        check_range("recall", k, 1..=others.clamp(1, MOST_NEIGHBOURS))?;
    }
    let classes = data.data.dataset.labels();
    let (features, own) = embedder.all(searched, context)?;
    let labels: Vec<u32> = if is_own {
        own.iter().map(|&label| label as u32).collect()
    } else {
        let described = (0..classes.len() as u32).map(|class| (classes.describe(class), class));
        let numbers: HashMap<String, u32> = described.collect();
        let theirs = searched.data.dataset.labels();
        let number = |class| numbers.get(&theirs.describe(class)).copied();
        let number = |class| number(class).unwrap_or(OTHER);
        let numbers: Vec<u32> = (0..theirs.len() as u32).map(number).collect();
        own.iter().map(|&label| numbers[label as usize]).collect()
    };
    let mut counts = vec![0; classes.len()];
    for &label in labels.iter().filter(|&&label| label != OTHER) {
        counts[label as usize] += 1;
    }
    let pool = Arc::clone(&embedder.pool);
    let search = Search {
        index: ClassIndex::of_rows(features, embedder.d),
        labels,
        counts,
        is_own,
        most: ks.iter().copied().max().unwrap_or(1),
        pool: &pool,
        interrupt: context.interrupt,
    };
    let mut hits = Hits::default();
    if is_own {
        // In parts, to show progress.
        let parts = search.index.rows().chunks(MOST_QUERIES * embedder.d);
        for (queries, labels) in parts.zip(search.labels.chunks(MOST_QUERIES)) {
            search.run(queries, labels, &mut hits)?;
            let (what, done) = ("searching", hits.queries + hits.left_out);
            let total = size;
            (context.observer)(Event::Progress { what, done, total });
        }
    } else {
        embedder.each(&data, Logits::default(), context, |labels, features| {
            let labels: Vec<u32> = labels.iter().map(|&label| label as u32).collect();
            search.run(&features, &labels, &mut hits)
        })?;
    }
    if hits.queries == 0 {
        let lacks = if is_own {
            "no two records have the same class; give data with several records of each class, or a `gallery`"
        } else {
            "no record has a class that the `gallery` has; give a gallery of the same classes"
        };
        return Err(TrainError::config(format!(
            "{}: {lacks}",
            of.data.paths.join(", ")
        )));
    }
    let share = |k: usize| hits.at[..k].iter().sum::<u64>() as f64 / hits.queries as f64;
    Ok(RetrievalFigures {
        recall: ks.iter().map(|&k| (k, share(k))).collect(),
        queries: hits.queries,
        left_out: hits.left_out,
        gallery: size,
        wall_s: began.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
    })
}

/// Opens data with its own classes.
fn labelled(
    embedder: &Embedder,
    of: &EvaluateConfig,
    context: &mut RunContext<'_>,
) -> Result<Records, TrainError> {
    let records = embedder.records(of, Labels::OfData, context)?;
    let DataConfig { classes, paths, .. } = &of.data;
    if classes.is_none() {
        check_whole(records.data.dataset.labels(), paths)?;
    }
    Ok(records)
}
