//! How this process was started: alone, by an MPI launcher, or by one that only numbers its processes.

use crate::CommError;

/// Variables with the number of ranks: Open MPI; MPICH and its relatives.
const MPI_SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// Variables with the rank: Open MPI; PMIx launchers (`prterun`, `srun --mpi=pmix`); PMI.
const MPI_RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
/// Launchers without MPI, with their variables of rank and size. Those of Slurm's allocation do not count: a batch
/// script and a shell have them too, and run once.
const OTHERS: [(&str, &str, &str); 3] = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// How the processes of a job find one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launched {
    /// By the launcher's MPI.
    Mpi {
        /// Number of processes, if the launcher states it.
        size: Option<usize>,
    },
    /// By the address of rank 0, over TCP.
    Tcp(Meeting),
}

/// Where the processes of a job meet: what torchrun, Kubernetes' PyTorchJob, Ray and scripts for `srun` state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// This process's rank, below `size`.
    pub rank: usize,
    /// Number of processes, at least 2.
    pub size: usize,
    /// Name or address of rank 0's machine.
    pub address: String,
    /// The port there, or the first of 16 if another program has it.
    pub port: u16,
    /// What else the launcher calls this job; the same on all ranks.
    pub job: String,
    /// Whether another program, such as torchrun's agent, listens at `port` itself.
    pub is_taken: bool,
    /// Whether all processes are on one machine.
    pub is_local: bool,
}

impl Launched {
    /// Number of processes, if it is known.
    pub fn size(&self) -> Option<usize> {
        match self {
            Launched::Mpi { size } => *size,
            Launched::Tcp(meeting) => Some(meeting.size),
        }
    }
}

/// What started this process together with others, by the variables of the environment; `None` without a launcher, and
/// for a single process, which needs none: launchers set variables for everything they start.
///
/// Errors: [`CommError::Launch`] for variables that contradict each other, and for a launcher that started several
/// processes without saying how they find one another.
pub fn launched() -> Result<Option<Launched>, CommError> {
    launched_by(&|name| std::env::var(name).ok()).map_err(|reason| CommError::Launch { reason })
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

fn number(variable: Variables<'_>, name: &str) -> Option<usize> {
    variable(name)?.trim().parse().ok()
}

fn launched_by(variable: Variables<'_>) -> Result<Option<Launched>, String> {
    let mpi = by_mpi(variable);
    let Some((launcher, rank, size)) = by_others(variable) else {
        return Ok(mpi);
    };
    // One launcher may start another, and torchrun sets a variable if it is the inner one.
    let is_torchrun = variable("TORCHELASTIC_RUN_ID").is_some();
    if mpi.is_some() && !is_torchrun {
        let (_, ranks, sizes) = OTHERS[0];
        let mpi_rank = MPI_RANKS.iter().find_map(|name| number(variable, name));
        let stated = mpi.as_ref().and_then(Launched::size);
        if launcher == "torchrun"
            && (stated.is_some_and(|stated| stated != size)
                || mpi_rank.is_some_and(|mpi_rank| mpi_rank != rank))
        {
            let shown = |value: Option<usize>| value.map_or("?".to_string(), |n| n.to_string());
            return Err(format!(
                "the environment has {ranks}={rank} and {sizes}={size}, but MPI's launcher says rank {} of {}; unset those that do not belong to this job",
                shown(mpi_rank),
                shown(stated)
            ));
        }
        return Ok(mpi);
    }
    if rank >= size {
        return Err(format!(
            "{launcher} calls this process rank {rank} of {size}, and there is no such rank; correct its variables"
        ));
    }
    let address = variable("MASTER_ADDR").filter(|address| !address.trim().is_empty());
    let port = variable("MASTER_PORT").and_then(|port| port.trim().parse().ok());
    let (Some(address), Some(port)) = (address, port) else {
        return Err(format!(
            "{launcher} started {size} processes, and each would do the whole job: they cannot find one another; set MASTER_ADDR and MASTER_PORT to a host name and a port of rank 0's machine, start them with mpirun or by srun with PMIx, start pelton once with `ranks` {size}, or give `ranks` 1 if each process is a job of its own"
        ));
    };
    let job = variable("TORCHELASTIC_RUN_ID").unwrap_or_default();
    Ok(Some(Launched::Tcp(Meeting {
        rank,
        size,
        address: address.trim().to_string(),
        port,
        job: job.chars().filter(|c| !c.is_control()).take(200).collect(),
        is_taken: variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True"),
        is_local: number(variable, "LOCAL_WORLD_SIZE") == Some(size),
    })))
}

fn by_mpi(variable: Variables<'_>) -> Option<Launched> {
    let size = MPI_SIZES.iter().find_map(|name| number(variable, name));
    if size == Some(1) {
        return None;
    }
    let size = size.filter(|size| *size > 0);
    let ranked = MPI_RANKS[1..]
        .iter()
        .any(|name| number(variable, name).is_some());
    (size.is_some() || ranked).then_some(Launched::Mpi { size })
}

/// Launcher, rank and size, if it started several processes.
fn by_others(variable: Variables<'_>) -> Option<(&'static str, usize, usize)> {
    let several = |(launcher, rank, size): &(&'static str, &str, &str)| {
        let found = (number(variable, rank)?, number(variable, size)?);
        (found.1 > 1).then_some((*launcher, found.0, found.1))
    };
    // A program that imitates a step of Slurm may leave out its size.
    let of_step = || {
        let rank = number(variable, "SLURM_PROCID")?;
        let is_step = rank > 0 || variable("SLURM_STEP_ID").is_some();
        let size = number(variable, "SLURM_NTASKS").filter(|size| is_step && *size > 1)?;
        let unstated = variable("SLURM_STEP_NUM_TASKS").is_none();
        unstated.then_some(("srun", rank, size))
    };
    OTHERS.iter().find_map(several).or_else(of_step)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<Launched>, String> {
        launched_by(&|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_string())
        })
    }

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: Option<Launched>) {
        assert_eq!(found(variables), Ok(expected), "{variables:?}");
    }

    fn mpi(size: Option<usize>) -> Option<Launched> {
        Some(Launched::Mpi { size })
    }

    #[test]
    fn launchers_of_mpi_are_recognised() {
        check(&[], None);
        check(&[("HOME", "1")], None);
        check(&[("OMPI_COMM_WORLD_SIZE", "4")], mpi(Some(4)));
        check(&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")], None);
        check(&[("PMIX_RANK", "3")], mpi(None));
        check(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], mpi(Some(2)));
        // A step of Slurm whose PMI says the same.
        let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        check(&[step[0], step[1], ("PMIX_RANK", "1")], mpi(None));
    }

    #[test]
    fn others_meet_at_an_address() {
        let meeting = |rank, size, job: &str| Meeting {
            rank,
            size,
            address: "h0".to_string(),
            port: 29400,
            job: job.to_string(),
            is_taken: false,
            is_local: false,
        };
        let (host, port) = (("MASTER_ADDR", "h0"), ("MASTER_PORT", "29400"));
        let torch = [("RANK", "1"), ("WORLD_SIZE", "2")];
        let tcp = |meeting| Some(Launched::Tcp(meeting));
        check(&[torch[0], torch[1], host, port], tcp(meeting(1, 2, "")));
        let agent = [
            ("TORCHELASTIC_RUN_ID", "none"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("LOCAL_WORLD_SIZE", "2"),
        ];
        let on_one = Meeting {
            is_taken: true,
            is_local: true,
            ..meeting(1, 2, "none")
        };
        // Also if MPI started torchrun, once a machine.
        let outer = ("OMPI_COMM_WORLD_SIZE", "2");
        let all = [&torch[..], &agent[..], &[host, port, outer]].concat();
        check(&all, tcp(on_one));
        let step = [("SLURM_PROCID", "2"), ("SLURM_STEP_NUM_TASKS", "3")];
        check(&[step[0], step[1], host, port], tcp(meeting(2, 3, "")));
        let horovod = [("HOROVOD_RANK", "1"), ("HOROVOD_SIZE", "4")];
        check(
            &[horovod[0], horovod[1], host, port],
            tcp(meeting(1, 4, "")),
        );
    }

    #[test]
    fn several_processes_that_cannot_meet_are_refused() {
        let refused = |variables: &[(&str, &str)], parts: &[&str]| {
            let reason = found(variables).unwrap_err();
            for part in parts {
                assert!(reason.contains(part), "{reason}");
            }
        };
        let torch = [("RANK", "0"), ("WORLD_SIZE", "2")];
        refused(
            &torch,
            &["torchrun started 2 processes", "MASTER_ADDR", "`ranks` 2"],
        );
        let host = ("MASTER_ADDR", "h0");
        refused(&[torch[0], torch[1], host], &["MASTER_PORT"]);
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0")];
        let counted = ("SLURM_STEP_NUM_TASKS", "3");
        refused(&[step[0], step[1], counted], &["srun started 3 processes"]);
        refused(
            &[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")],
            &["srun started 2 processes"],
        );
        refused(
            &[("RANK", "2"), ("WORLD_SIZE", "2")],
            &["rank 2 of 2", "no such rank"],
        );
        let other = [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "0")];
        refused(
            &[torch[0], torch[1], other[0], other[1]],
            &["RANK=0 and WORLD_SIZE=2", "rank 0 of 4"],
        );
    }

    #[test]
    fn single_processes_are_no_job() {
        check(&[("RANK", "0"), ("WORLD_SIZE", "1")], None);
        check(&[("WORLD_SIZE", "8")], None);
        check(&[("RANK", "0"), ("WORLD_SIZE", "many")], None);
        // A batch script and a shell in an allocation of eight tasks, and one task of them.
        check(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")], None);
        check(&[("SLURM_NTASKS", "8")], None);
        let one = [
            ("SLURM_STEP_ID", "4294967290"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_NUM_TASKS", "1"),
        ];
        check(&one, None);
    }

    #[test]
    fn nonsense_is_no_launcher() {
        check(&[("OMPI_COMM_WORLD_SIZE", "many")], None);
        check(&[("OMPI_COMM_WORLD_SIZE", "0")], None);
        check(&[("PMI_RANK", "")], None);
    }
}
