//! Whether `mpirun` or a like launcher started this process.

/// Variables with the number of ranks: Open MPI; MPICH and its relatives.
const SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// Variables with only the rank of a process: PMIx launchers (`prterun`, `srun --mpi=pmix`), PMI.
const RANK_VARIABLES: [&str; 2] = ["PMIX_RANK", "PMI_RANK"];

/// What a launcher set for this process.
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
    fn nonsense_is_no_launcher() {
        check(&[("OMPI_COMM_WORLD_SIZE", "many")], None);
        check(&[("OMPI_COMM_WORLD_SIZE", "0")], None);
        check(&[("PMI_RANK", "")], None);
    }
}
