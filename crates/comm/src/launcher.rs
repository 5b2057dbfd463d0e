//! Detects whether `mpirun` or a similar launcher started this process. Other launchers are only recognised: nothing
//! here carries messages between their processes.

/// Variables with the number of ranks: Open MPI; MPICH and its relatives.
const SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// Variables with only the rank of a process: PMIx launchers (`prterun`, `srun --mpi=pmix`), PMI.
const RANK_VARIABLES: [&str; 2] = ["PMIX_RANK", "PMI_RANK"];

/// The variables that a launcher set for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Number of ranks it started, if known.
    pub size: Option<usize>,
}

/// The launcher's settings in this process's environment; `None` without a launcher, and for a single process, which
/// needs none: launchers set variables for everything they start.
pub fn launched() -> Option<Launched> {
    launched_by(|name| std::env::var(name).ok())
}

/// Name and size of another launcher, without MPI, that started this process and others.
pub fn launched_otherwise() -> Option<(&'static str, usize)> {
    otherwise_by(|name| std::env::var(name).ok())
}

/// Launchers with their variables of rank and size. Those of Slurm's allocation do not count: a batch script and a shell
/// have them too, and run once.
const OTHERS: [(&str, &str, &str); 3] = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

fn otherwise_by(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    if SIZE_VARIABLES
        .iter()
        .chain(&RANK_VARIABLES)
        .any(|name| variable(name).is_some())
    {
        return None;
    }
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let mut found = OTHERS.iter().filter_map(|(launcher, rank, size)| {
        number(rank)?;
        Some((*launcher, number(size)?))
    });
    // A program that imitates a step may leave out its size.
    let of_step = || {
        let is_step = number("SLURM_PROCID")? > 0 || variable("SLURM_STEP_ID").is_some();
        let size = number("SLURM_NTASKS").filter(|_| is_step)?;
        variable("SLURM_STEP_NUM_TASKS")
            .is_none()
            .then_some(("srun", size))
    };
    found
        .find(|(_, size)| *size > 1)
        .or_else(of_step)
        .filter(|(_, size)| *size > 1)
}

fn launched_by(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let size = SIZE_VARIABLES.iter().find_map(|name| number(name));
    if size == Some(1) {
        return None;
    }
    let size = size.filter(|size| *size > 0);
    let ranked = RANK_VARIABLES.iter().any(|name| number(name).is_some());
    (size.is_some() || ranked).then_some(Launched { size })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expected: Option<Launched>) {
        let found = launched_by(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_string())
        });
        assert_eq!(found, expected, "{variables:?}");
    }

    #[test]
    fn launchers_are_recognised() {
        let sized = |size| Some(Launched { size: Some(size) });
        check(&[], None);
        check(&[("HOME", "1")], None);
        check(&[("OMPI_COMM_WORLD_SIZE", "4")], sized(4));
        check(&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")], None);
        check(&[("PMIX_RANK", "3")], Some(Launched { size: None }));
        check(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], sized(2));
    }

    #[test]
    fn launchers_without_mpi_are_recognised_by_what_they_started() {
        let check = |variables: &[(&str, &str)], expected| {
            let found = otherwise_by(|name| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| (*value).to_string())
            });
            assert_eq!(found, expected, "{variables:?}");
        };
        check(&[("RANK", "0"), ("WORLD_SIZE", "2")], Some(("torchrun", 2)));
        check(
            &[("HOROVOD_RANK", "1"), ("HOROVOD_SIZE", "4")],
            Some(("horovodrun", 4)),
        );
        let step = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "3"),
        ];
        check(&step, Some(("srun", 3)));
        check(
            &[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")],
            Some(("srun", 2)),
        );
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
