//! Training a net for a table: the job that `pelton train` runs, and what it leaves, epoch by epoch.

use pelton_comm::run_ranks_over;
use pelton_run::{Event, RunContext, RunOptions};
use pelton_train::{FitConfig, NetEpoch, NetSummary, TrainError};

use crate::table::interrupted;

/// A constant rate, with the default decay and momentum.
pub(super) fn constant(rate: f64, batch: u64, epochs: u64, seed: u64) -> FitConfig {
    FitConfig {
        rate: Some(rate),
        batch,
        epochs,
        seed,
        schedule: "constant".parse().expect("a schedule"),
        checkpoint_seconds: 1e6,
        ..FitConfig::default()
    }
}

/// What a training left.
pub(super) struct Trained {
    /// Finished epochs; a NaN loss ends them and is not an error.
    pub epochs: Vec<NetEpoch>,
    /// Figures of the whole, where it came to its end.
    pub summary: Option<NetSummary>,
}

/// Runs a job on this many ranks of this process, over a modelled network with these bytes a second, if given.
pub(super) fn train(
    folder: &RunOptions,
    ranks: usize,
    link: Option<f64>,
    context: &RunContext<'_>,
    job: impl Fn(RunContext<'_>) -> Result<NetSummary, TrainError> + Sync,
) -> Result<Trained, TrainError> {
    let interrupt = context.interrupt;
    let summaries = run_ranks_over(link, ranks, |comm| {
        // Its notes are those of every epoch of every run.
        let quiet = &mut |_: Event<'_>| {};
        job(RunContext::new(&comm, interrupt, quiet).in_folder(folder))
    });
    let summary = match summaries.map_err(|failed| failed.source) {
        Ok(summaries) => summaries.into_iter().next(),
        Err(TrainError::NotANumber { .. }) => None,
        Err(TrainError::Interrupted { .. }) => return Err(interrupted()),
        Err(error) => return Err(error),
    };
    let file = folder.out.join("metrics.jsonl");
    // Where the first epoch failed there is none.
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let epochs: Result<Vec<NetEpoch>, _> = text.lines().map(serde_json::from_str).collect();
    let epochs = epochs.map_err(|error| {
        TrainError::config(format!(
            "{}: cannot be read ({error}); run it again",
            file.display()
        ))
    })?;
    Ok(Trained { epochs, summary })
}

/// Epochs after which a value that begins anywhere first is at most `goal`, by a line between two epochs.
pub(super) fn reached(values: &[f64], goal: f64) -> Option<f64> {
    let at = values.iter().position(|&value| value <= goal)?;
    Some(match at.checked_sub(1) {
        Some(before) => {
            let (from, to) = (values[before], values[at]);
            at as f64 + (from - goal) / (from - to)
        }
        None => 1.0,
    })
}

#[cfg(test)]
mod tests {
    use super::reached;

    #[test]
    fn goals_are_met_between_epochs() {
        let losses = [3.0, 2.0, 1.0, 1.5];
        assert_eq!(reached(&losses, 3.5), Some(1.0));
        assert_eq!(reached(&losses, 1.5), Some(2.5));
        assert_eq!(reached(&losses, 1.0), Some(3.0));
        assert_eq!(reached(&losses, 0.5), None);
        assert_eq!(reached(&[f64::NAN, 1.0], 2.0).map(f64::is_nan), Some(true));
    }
}
