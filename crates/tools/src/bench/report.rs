//! The measurements.

use pelton_comm::{Comm, Reduction};
use pelton_data::{DataError, PeerFigures};
use pelton_feed::{Exif, StageMeters};
use serde::{Deserialize, Serialize};

/// The measurements.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BenchReport {
    /// Examples of all batches over the seconds of taking them, `wall_s` less `open_s`.
    pub examples_per_s: f64,
    /// Bytes of records used over the same seconds.
    pub bytes_per_s: f64,
    /// Examples delivered.
    pub examples: u64,
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes of records used.
    pub used_bytes: u64,
    /// Bytes written to scratch files.
    pub written_bytes: u64,
    /// Bytes read over bytes used.
    pub read_amplification: f64,
    /// Seconds of the command to the first batch; 0 if none came.
    pub first_batch_s: f64,
    /// Seconds of the command.
    pub wall_s: f64,
    /// Seconds of the command before the first request for a batch: opening, probing, planning, filling peers' memory.
    pub open_s: f64,
    /// Seconds that threads waited for reads.
    pub read_s: f64,
    /// Seconds that threads decoded.
    pub decode_s: f64,
    /// Reads in flight on average.
    pub mean_queue_depth: f64,
    /// Largest resident memory of the process.
    pub peak_rss_bytes: u64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
    /// Randomness level of the order, if known.
    pub rl: Option<f64>,
    /// Exact randomness level, if known.
    pub rl_exact: Option<f64>,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Bytes of files that are kept in memory to copy records from.
    pub resident_bytes: u64,
    /// First appearances of examples in their epoch.
    pub fresh_examples: u64,
    /// Repeats of examples.
    pub echoed_examples: u64,
    /// Appearances that the plan drops.
    pub dropped: u64,
    /// Work of each stage; empty in a report that was read back.
    #[serde(skip_deserializing)]
    pub stages: Vec<StageMeters>,
    /// Share of batch elements that are padding.
    pub padded_fraction: f64,
    /// Pictures with an Exif orientation other than upright, each counted once.
    pub exif_pictures: u64,
    /// How the orientation was handled.
    #[serde(skip)]
    pub exif: Exif,
    /// Bytes of the delivered batches.
    pub batch_bytes: u64,
    /// Examples of each part of a mixture in the first epoch, or of each class if classes are balanced.
    pub mixture: Vec<u64>,
    /// Distinct records of the first epoch, if it does not use each record once.
    pub distinct_records: Option<u64>,
    /// Examples left out because they could not be read or decoded.
    pub skipped_records: u64,
    /// Examples replaced by others of their batch because they could not be read or decoded.
    pub replaced_records: u64,
    /// Ranks that shared the batches.
    pub ranks: u64,
    /// Bytes served from the reading rank's own memory.
    pub local_bytes: u64,
    /// Bytes served from other ranks' memory.
    pub remote_bytes: u64,
    /// Bytes read from the backend, to fill memory or to serve reads.
    pub backend_bytes: u64,
    /// Mode for data larger than the ranks' memory; absent without peers' memory.
    pub mode: Option<String>,
    /// How the ranks' memory was used.
    pub pipeline: Option<String>,
    /// Seconds of filling memory, maximum over ranks; before the first batch if all data fits, else during reading.
    pub load_s: f64,
    /// Access path used.
    pub access: String,
    /// Order used.
    pub order: String,
    /// The bottleneck of the rate.
    pub verdict: String,
    /// Sum of the first value of every row, which proves that every row was read.
    pub checksum: f64,
}

impl BenchReport {
    /// Seconds of taking batches.
    pub fn taking_s(&self) -> f64 {
        (self.wall_s - self.open_s).max(1e-9)
    }

    fn with_rates(mut self) -> BenchReport {
        if self.exif_pictures > 0 {
            let done = match self.exif {
                Exif::Ignore => "is not applied; `exif` apply turns them",
                Exif::Apply => "is applied",
            };
            self.verdict += &format!(
                "; {} pictures state an orientation in EXIF, which {done}",
                self.exif_pictures
            );
        }
        self.examples_per_s = self.examples as f64 / self.taking_s();
        self.bytes_per_s = self.used_bytes as f64 / self.taking_s();
        self.read_amplification = self.read_bytes as f64 / self.used_bytes.max(1) as f64;
        self
    }

    /// Adds this rank's reads through peers' memory.
    pub(super) fn add_peers(&mut self, figures: &PeerFigures) {
        let meters = &figures.meters;
        self.mode = Some(figures.mode.name().to_string());
        self.pipeline = Some(figures.pipeline.clone());
        self.local_bytes = meters.local_bytes;
        self.remote_bytes = meters.remote_bytes;
        self.backend_bytes = meters.backend_bytes;
        self.load_s = meters.load_s;
    }

    /// The figures of all ranks: sums, and the time of the slowest.
    pub(super) fn over_ranks(mut self, comm: &Comm) -> Result<BenchReport, DataError> {
        let mut counts = [
            &mut self.examples,
            &mut self.read_bytes,
            &mut self.used_bytes,
            &mut self.written_bytes,
            &mut self.skipped_records,
            &mut self.replaced_records,
            &mut self.fresh_examples,
            &mut self.echoed_examples,
            &mut self.batch_bytes,
            &mut self.local_bytes,
            &mut self.remote_bytes,
            &mut self.backend_bytes,
            &mut self.resident_bytes,
            &mut self.exif_pictures,
        ];
        sum(comm, &mut counts)?;
        let mut sums = [
            &mut self.checksum,
            &mut self.mean_queue_depth,
            &mut self.read_s,
            &mut self.decode_s,
        ];
        reduce(comm, &mut sums, Reduction::Sum)?;
        let mut longest = [
            &mut self.wall_s,
            &mut self.open_s,
            &mut self.first_batch_s,
            &mut self.load_s,
        ];
        reduce(comm, &mut longest, Reduction::Max)?;
        self.ranks = comm.size() as u64;
        Ok(self.with_rates())
    }
}

fn sum(comm: &Comm, places: &mut [&mut u64]) -> Result<(), DataError> {
    let mut values: Vec<u64> = places.iter().map(|place| **place).collect();
    comm.all_reduce(&mut values, Reduction::Sum)?;
    for (place, value) in places.iter_mut().zip(values) {
        **place = value;
    }
    Ok(())
}

fn reduce(comm: &Comm, places: &mut [&mut f64], how: Reduction) -> Result<(), DataError> {
    let mut values: Vec<f64> = places.iter().map(|place| **place).collect();
    comm.all_reduce(&mut values, how)?;
    for (place, value) in places.iter_mut().zip(values) {
        **place = value;
    }
    Ok(())
}
