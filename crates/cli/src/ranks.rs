//! Starts the ranks of a job: threads of this process, or the processes that a launcher started.

use pelton_comm::{Comm, EndedRank, FailedRank, Launched, RankError, launched, run_ranks_over};
use pelton_train::{DataError, Event, RunContext, TrainError};

use crate::console::{Console, interrupt_flag};
use crate::output::{Failure, usage, with_console};

/// Number of ranks requested by the flag and the launcher; 1 by default.
///
/// Errors: more ranks in one process than its processors can serve; a flag and a launcher that disagree; a
/// launcher whose processes cannot find one another, since each would do the whole job.
pub fn asked(flag: Option<usize>) -> Result<usize, Failure> {
    let launched = match launched() {
        Ok(launched) => launched,
        // Each process is a job of its own, then.
        Err(_) if flag == Some(1) => None,
        Err(error) => return Err(usage(error.into())),
    };
    counted(flag, launched.as_ref(), most_threads()).map_err(|text| usage(anyhow::anyhow!(text)))
}

/// The launcher of this process, unless each of its processes is a job of its own.
pub fn launcher(ranks: usize) -> Option<Launched> {
    launched().ok().flatten().filter(|_| ranks > 1)
}

/// Most ranks of one process. With many more ranks than processors they only wait for each other: on two processors 16
/// of them train 3000 rows in 3 s, 64 in 17 s and 128 in minutes.
fn most_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (4 * processors).clamp(16, 1024)
}

fn counted(
    flag: Option<usize>,
    launched: Option<&Launched>,
    most_threads: usize,
) -> Result<usize, String> {
    // Processes that only share a machine or a job's variables; those of MPI would wait for one another.
    if flag == Some(1) && matches!(launched, Some(Launched::Tcp(_))) {
        return Ok(1);
    }
    let most = launched.map_or(most_threads, |_| usize::MAX);
    if let Some(ranks) = flag.filter(|ranks| !(1..=most).contains(ranks)) {
        return Err(format!(
            "--ranks {ranks} cannot be started; give 1 to {most_threads} here, or start more as processes with mpirun"
        ));
    }
    match (launched.map(Launched::size), flag) {
        (None, flag) => Ok(flag.unwrap_or(1)),
        (Some(Some(size)), Some(ranks)) if size != ranks => Err(format!(
            "the launcher started {size} processes and --ranks asks for {ranks}; leave --ranks out"
        )),
        (Some(size), flag) => Ok(size.or(flag).unwrap_or(1)),
    }
}

/// Runs `job` on every rank, with the events of rank 0 on the console, and returns what rank 0 returned; `None` in the
/// processes of other ranks. Under a launcher, a failure or an interruption of one rank ends the processes of all.
pub fn run<T: Send, E: Into<TrainError>>(
    ranks: usize,
    job: impl Fn(RunContext<'_>) -> Result<T, E> + Sync,
) -> Result<Option<T>, Failure> {
    run_over(None, ranks, job)
}

/// [`run`] over a modelled network with the given bytes a second.
pub fn run_over<T: Send, E: Into<TrainError>>(
    link: Option<f64>,
    ranks: usize,
    job: impl Fn(RunContext<'_>) -> Result<T, E> + Sync,
) -> Result<Option<T>, Failure> {
    let job = |context: RunContext<'_>| job(context).map_err(Into::into);
    if ranks == 1 {
        return with_console(job).map(Some);
    }
    let interrupt = &interrupt_flag();
    let with_events = |comm: Comm| {
        if comm.rank() > 0 {
            return job(RunContext::new(&comm, interrupt, &mut |_| ()));
        }
        let mut console = Console::new();
        let observer = &mut |event: Event<'_>| console.show(event);
        let result = job(RunContext::new(&comm, interrupt, observer));
        console.finish();
        result
    };
    if let Some(launched) = launcher(ranks) {
        return processes::run(&launched, interrupt, with_events);
    }
    let results = run_ranks_over(link, ranks, with_events).map_err(failure)?;
    Ok(results.into_iter().next())
}

/// The message of a failure: errors in the input are the same on every rank, others name their rank.
fn failure(failed: RankError<TrainError>) -> Failure {
    let code = failed.source.exit_code();
    let all_bad = matches!(failed.source, TrainError::Data(DataError::AllBad { .. }));
    let error = match failed_rank(&failed.source) {
        // It names the rank, which is another.
        Some(other) => other.into(),
        None if code == 1 && !all_bad => anyhow::Error::new(failed),
        None => failed.source.into(),
    };
    Failure { error, code }
}

/// The rank whose failure caused this error.
fn failed_rank(error: &TrainError) -> Option<FailedRank> {
    causes(error).find_map(|cause| cause.downcast_ref().cloned())
}

/// Whether another rank ended or failed while this one waited for it.
fn is_of_others(error: &TrainError) -> bool {
    causes(error).any(|cause| cause.is::<FailedRank>() || cause.is::<EndedRank>())
}

/// An error and its causes.
fn causes(error: &TrainError) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
}

mod processes {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use pelton_comm::{Comm, CommError, Launched, abort, run_launched};
    use pelton_train::{DataError, Interrupt, TrainError};

    use crate::console::{say, say_error};
    use crate::output::Failure;
    use crate::ranks::{failed_rank, failure, is_of_others};

    /// How long the other ranks wait for rank 0 to report the error.
    const AFTER_RANK_0: Duration = Duration::from_secs(10);

    /// Runs `job` as this process's rank.
    pub fn run<T>(
        launched: &Launched,
        interrupt: &Interrupt,
        job: impl FnOnce(Comm) -> Result<T, TrainError>,
    ) -> Result<Option<T>, Failure> {
        // An interruption reaches all ranks: their connections are closed, and then each process ends.
        let result = run_launched(launched, interrupt, &mut |text| say(text), |comm| {
            let rank = comm.rank();
            match job(comm) {
                // This rank waited for an interrupted one.
                Err(error) if interrupt.load(Ordering::Relaxed) && is_of_others(&error) => {
                    let job = "ranks waited for one another";
                    Ok((rank, Err(TrainError::stopped(job))))
                }
                Err(error) if error.exit_code() == 130 => Ok((rank, Err(error))),
                result => result.map(|value| (rank, Ok(value))),
            }
        });
        let failed = match result {
            Ok((rank, Ok(value))) => return Ok((rank == 0).then_some(value)),
            Ok((0, Err(error))) => return Err(error.into()),
            // Rank 0 reports the error and sets the exit code. Another code here would make the launcher end rank 0
            // before it reports.
            Ok((_, Err(_))) => return Ok(None),
            Err(failed) => failed,
        };
        if matches!(
            failed.source,
            TrainError::Data(DataError::Comm(CommError::Interrupted))
        ) {
            return Err(TrainError::stopped("other ranks were awaited").into());
        }
        let asked = interrupt.load(Ordering::Relaxed);
        // Of its own failure it tells nothing.
        let is_of_rank_0 = failed_rank(&failed.source).is_some_and(|failed| failed.rank == 0);
        if failed.rank > 0 && !is_of_rank_0 {
            std::thread::sleep(AFTER_RANK_0);
        }
        let failure = failure(failed);
        // Unless rank 0 has reported it and the launcher ends the others.
        if asked || !interrupt.load(Ordering::Relaxed) {
            say_error(&failure.error);
        }
        abort(failure.code.into());
        std::process::exit(failure.code.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flag: Option<usize>, size: Option<Option<usize>>, expected: Result<usize, &str>) {
        let launched = size.map(|size| Launched::Mpi { size });
        let found = counted(flag, launched.as_ref(), 16);
        match expected {
            Ok(ranks) => assert_eq!(found, Ok(ranks)),
            Err(part) => assert!(
                found.as_ref().is_err_and(|text| text.contains(part)),
                "{found:?}"
            ),
        }
    }

    #[test]
    fn ranks_are_what_flag_and_launcher_say() {
        check(None, None, Ok(1));
        check(Some(4), None, Ok(4));
        check(Some(0), None, Err("--ranks 0 cannot"));
        check(Some(16), None, Ok(16));
        check(Some(1000), None, Err("give 1 to 16"));
        check(Some(1000), None, Err("with mpirun"));
        check(Some(1000), Some(Some(1000)), Ok(1000));
        check(None, Some(Some(4)), Ok(4));
        check(Some(4), Some(Some(4)), Ok(4));
        check(Some(3), Some(Some(4)), Err("leave --ranks out"));
        check(Some(3), Some(None), Ok(3));
    }
}
