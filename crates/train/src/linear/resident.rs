//! Training on files that fit in memory: reads the records once, into rows that stay.

use pelton_comm::Alike;
use pelton_format::ContentSum;

use super::budget::whole_bytes;
use super::in_memory::{InMemory, Stage};
use super::journal::{Found, Journal, Trained};
use super::method::Method;
use super::problem::Shape;
use super::reading::hold;
use super::resume::{self, Before};
use super::task::Task;
use crate::checkpoint::{Progress, State};
use crate::config::LinearConfig;
use crate::error::TrainError;

/// A run over the files of a task with another configuration.
pub(super) fn in_memory<'a>(task: &'a Task<'a>, config: &'a LinearConfig) -> InMemory<'a> {
    let (data, budget) = (&task.rows.data, &task.division.budget);
    let room = budget
        .bytes
        .saturating_sub(whole_bytes(&data.dataset, None));
    InMemory {
        config,
        problem: task.problem.clone(),
        shape: Shape::from_data(data),
        interrupt: task.interrupt,
        start: task.start.as_ref(),
        ranks: task.ranks,
        is_open: task.is_open,
        // Tables by column are worth memory even if the rows leave little.
        newton_room: room.max(budget.bytes / 4),
        fine_room: room,
    }
}

/// One session over such files on one rank, from a start or a checkpoint to its end.
pub(super) struct ResidentSession<'a> {
    task: &'a Task<'a>,
    run: InMemory<'a>,
    stage: Stage,
}

impl<'a> ResidentSession<'a> {
    pub fn new(task: &'a Task<'a>) -> ResidentSession<'a> {
        let run = in_memory(task, &task.config);
        ResidentSession {
            stage: run.begin(),
            run,
            task,
        }
    }
}

impl Method for ResidentSession<'_> {
    fn restore(
        &mut self,
        before: &Before,
        progress: &Progress,
        state: State<'static>,
    ) -> Result<String, TrainError> {
        if let State::Descent(_) = state {
            resume::check_plan(before, self.task, progress)?;
        }
        self.stage = self.run.resume(progress, state)?;
        let epochs = progress.epochs.len();
        Ok(match &self.stage {
            Stage::Passes(_, before) => format!("pass {}", epochs - before + 1),
            _ => format!("epoch {}", epochs + 1),
        })
    }

    fn place(&self) -> Alike {
        Alike::default()
    }

    fn train(self: Box<Self>, journal: &mut Journal<'_>) -> Result<Trained, TrainError> {
        let (rows, mut meters, advice) = hold(self.task)?;
        journal.see(ContentSum::new(&rows));
        journal.end_content()?;
        let solved = self.run.train(self.stage, rows, &mut meters, journal)?;
        journal.finish(Found {
            solved,
            access: "memory".to_string(),
            meters,
            advice,
        })
    }
}
