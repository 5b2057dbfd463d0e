//! The ranks of a run, and their communication outside the solver.
//!
//! After every pass all ranks hold the same w and sums, so each takes the same decisions from them. Only rank 0 writes
//! files. Ranks agree once a pass on values that could differ (an interruption, the clock, seconds and bytes).

use std::sync::Arc;

use pelton_comm::{Comm, Reduction};
use pelton_data::{self as data, DataConfig, Expected, OpenedData, check_limit, stripe_records};
use pelton_fetch::{DeviceSpeed, FetchOptions, Meters, Share};
use pelton_format::Dataset;
use pelton_linear::{Exchange, Peers};
use pelton_run::{Interrupt, Observer};

use crate::checkpoint::Totals;
use crate::error::TrainError;

/// The rank with the stripe that contains a record.
fn stripe_of(id: u64, stripe: u64, ranks: u32) -> u32 {
    (id / stripe % u64::from(ranks)) as u32
}

/// This rank among those of a run.
#[derive(Clone, Copy)]
pub(super) struct Ranks<'a>(pub &'a Comm);

/// The agreement after a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agreed {
    /// Whether the run must end early.
    pub interrupted: bool,
    /// Whether a checkpoint is due by rank 0's clock.
    pub due: bool,
    /// Work of all ranks: bytes and rows added up, seconds as their mean.
    pub totals: Totals,
}

impl<'a> Ranks<'a> {
    /// The ranks, if there are several.
    pub fn comm(self) -> Option<&'a Comm> {
        Some(self.0).filter(|comm| comm.size() > 1)
    }

    pub fn rank(self) -> usize {
        self.0.rank()
    }

    pub fn size(self) -> usize {
        self.0.size()
    }

    /// The part of every global batch that this rank takes: the records of its own stripes of the files; `None` for
    /// all. So it reads the same 1/R of them in every epoch. Stripes are short compared with a class or a day of the
    /// data.
    pub fn share(self, dataset: &Dataset) -> Option<Share> {
        let comm = self.comm()?;
        let (rank, ranks) = (comm.rank() as u32, comm.size() as u32);
        let stripe = stripe_records(dataset, ranks);
        Some(Share::new(rank, ranks).owned(Arc::new(move |id| stripe_of(id, stripe, ranks))))
    }

    /// Calls `with` with the exchange functions, which do nothing for a single rank.
    pub fn together<T>(
        self,
        with: impl FnOnce(&mut Peers<'_, TrainError>) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        with(&mut |what| exchange(self.0, what))
    }

    /// Opens a data set: rank 0 first, which may generate or index it. All ranks use the device speed of rank 0, since
    /// the division into blocks follows from it.
    pub fn open(
        self,
        config: &DataConfig,
        paths: &[String],
        expected: Option<&Expected>,
        interrupt: &Interrupt,
        observer: Observer<'_>,
    ) -> Result<OpenedData, TrainError> {
        let comm = self.0;
        let context = &mut pelton_run::RunContext::new(comm, interrupt, observer);
        let mut opened = data::open(config, paths, expected, context)?;
        let device = opened.device.speed();
        let mut speeds = [
            device.random_reads_per_s,
            device.read_bytes_per_s,
            device.write_bytes_per_s,
        ];
        comm.broadcast(&mut speeds, 0)?;
        opened.device = DeviceSpeed {
            random_reads_per_s: speeds[0],
            read_bytes_per_s: speeds[1],
            write_bytes_per_s: speeds[2],
        }
        .into();
        Ok(opened)
    }

    /// Returns when all ranks have come here.
    pub fn barrier(self) -> Result<(), TrainError> {
        Ok(self.0.barrier()?)
    }

    /// Whether it is true on any rank.
    pub fn any(self, said: bool) -> Result<bool, TrainError> {
        let mut any = [u64::from(said)];
        self.0.all_reduce(&mut any, Reduction::Max)?;
        Ok(any[0] > 0)
    }

    /// Agrees on what to do after a block, and adds up the work of all ranks.
    pub fn agree(self, interrupted: bool, due: bool, own: Totals) -> Result<Agreed, TrainError> {
        let comm = self.0;
        let said = [
            f64::from(u8::from(interrupted)),
            f64::from(u8::from(due && comm.rank() == 0)),
            own.load_s,
            own.compute_s,
            own.overlap_s,
            own.wait_s,
            own.prepare_s,
            own.read_bytes as f64,
            own.used_bytes as f64,
            own.written_bytes as f64,
            own.skipped_records as f64,
        ];
        let mut sums = said;
        comm.all_reduce(&mut sums, Reduction::Sum)?;
        let mean = |sum: f64| sum / comm.size() as f64;
        let [
            stop,
            save,
            load,
            compute,
            overlap,
            wait,
            prepare,
            read,
            used,
            written,
            skipped,
        ] = sums;
        Ok(Agreed {
            interrupted: stop > 0.0,
            due: save > 0.0,
            totals: Totals {
                load_s: mean(load),
                compute_s: mean(compute),
                overlap_s: mean(overlap),
                wait_s: mean(wait),
                prepare_s: mean(prepare),
                read_bytes: read as u64,
                used_bytes: used as u64,
                written_bytes: written as u64,
                skipped_records: skipped as u64,
                // The solver's counts already cover all ranks.
                visits: own.visits,
                rows: own.rows,
                ..Totals::default()
            },
        })
    }

    /// Fails on all ranks if together they met more bad records than allowed.
    pub fn check_bad_records(
        self,
        feed: &FetchOptions,
        dataset: &Dataset,
        meters: &Meters,
    ) -> Result<(), TrainError> {
        Ok(check_limit(self.0, feed.on_bad_record, dataset, meters)?)
    }

    /// Bytes that all ranks have sent and the seconds that each has waited for others on average.
    pub fn traffic(self) -> Result<(u64, f64), TrainError> {
        let comm = self.0;
        let traffic = comm.traffic();
        let mut sums = [traffic.sent_bytes as f64, traffic.waited.as_secs_f64()];
        comm.all_reduce(&mut sums, Reduction::Sum)?;
        Ok((sums[0] as u64, sums[1] / comm.size() as f64))
    }
}

/// Performs the solver's request.
fn exchange(comm: &Comm, what: Exchange<'_>) -> Result<(), TrainError> {
    match what {
        Exchange::Sum(values) => comm.all_reduce(values, Reduction::Sum)?,
        Exchange::Largest(values) => comm.all_reduce(values, Reduction::Max)?,
        Exchange::Gather(values) => *values = comm.all_gather_ragged(values)?.concat(),
    }
    Ok(())
}
