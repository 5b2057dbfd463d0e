//! A pass over some training data before the first step: class vectors start at the mean features of their classes.

use std::sync::atomic::Ordering;

use pelton_comm::{Comm, Reduction};
use pelton_data::DataError;
use pelton_nn::{Trainer, Views};
use pelton_run::{Event, RunContext};
use pelton_softmax::Observed;
use rayon::ThreadPool;

use super::batch::Targets;
use super::source::Prepared;
use crate::error::TrainError;

/// Most examples averaged per class.
const VIEWS: u8 = 8;
/// Examples of all classes that are enough for their common mean: its error is a 256th of their spread.
const ENOUGH: usize = 1 << 16;

/// Initial values of class vectors.
pub(crate) struct ClassMeans {
    /// The training data without augmentation, in the order of the files.
    pub(crate) data: Prepared,
    /// Whether the common mean of all features is subtracted first.
    pub(crate) centre: bool,
}

/// Sets each class vector of the head to the mean features of a few examples, by the net as it is. All ranks call it.
///
/// Costs a forward pass over at most [`VIEWS`] examples of each class, and a smaller one for the common mean.
///
/// Errors: features that are not finite; an interruption.
pub(super) fn begin_at_means(
    of: &ClassMeans,
    trainer: &mut dyn Trainer,
    targets: Targets,
    pool: &ThreadPool,
    comm: &Comm,
    context: &mut RunContext<'_>,
) -> Result<(), TrainError> {
    let Targets::Classes(classes) = targets else {
        return Ok(());
    };
    let few = (ENOUGH / classes).clamp(1, VIEWS.into()) as u8;
    let passes = [(Observed::Mean, few), (Observed::Classes, VIEWS)];
    for (what, most) in &passes[usize::from(!of.centre)..] {
        let mut views = Views::new(classes, *most);
        let mut source = of.data.source(None, targets, comm)?;
        let total = of.data.steps(0);
        for step in 0..total {
            let Some(next) = source.next().filter(|_| !views.is_full()) else {
                break;
            };
            let ready = next?.ready;
            let input = (ready.rows() > 0).then(|| ready.input());
            pool.install(|| trainer.observe(*what, input, &mut views))?;
            let (what, done) = ("class means", step + 1);
            (context.observer)(Event::Progress { what, done, total });
            let mut stopped = [u64::from(context.interrupt.load(Ordering::Relaxed))];
            let summed = comm.all_reduce(&mut stopped, Reduction::Max);
            summed.map_err(DataError::from)?;
            if stopped[0] > 0 {
                return Err(TrainError::interrupted_in(&context.folder.out));
            }
        }
    }
    let missing = pool.install(|| trainer.begin_at_means())?;
    if missing > 0 {
        let note = format!(
            "{missing} rows of the head have no example in the training data, or none with a direction: they begin at random, the others at the mean features of their classes"
        );
        (context.observer)(Event::Note(&note));
    }
    Ok(())
}
