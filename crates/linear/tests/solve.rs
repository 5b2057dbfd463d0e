//! The solver against what its solutions must satisfy: the certificate closes, the optimality
//! conditions hold, and nothing depends on how rows are stored or which instructions are used.

mod support;

use pelton_format::{Layout, RowTable};
use pelton_linear::*;
use support::{planted, table};

const LOSSES: [Loss; 3] = [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic];
const TIGHT: InnerPasses = InnerPasses::Until {
    epsilon: 1e-4,
    at_most: 100_000,
};

struct Solved {
    certificate: Certificate,
    accuracy: f64,
}

fn certify(
    problem: &Problem,
    table: &RowTable,
    weights: &Weights,
    duals: &Duals,
) -> (Certificate, f64) {
    let mut sum = LossSum::new(problem);
    sum.add(problem, table, weights, Simd::best()).unwrap();
    let certificate = Certificate {
        primal: sum.primal(weights),
        dual: dual_value(weights, duals),
    };
    (certificate, sum.accuracy())
}

fn solve(problem: &Problem, table: &RowTable, inner: InnerPasses, key: u64, simd: Simd) -> Solved {
    let mut weights = Weights::zeros(problem);
    let mut duals = Duals::zeros(problem, table.len());
    let mut scratch = Scratch::new(simd);
    solve_block(
        problem,
        table,
        &mut weights,
        &mut duals,
        inner,
        key,
        &mut scratch,
    )
    .unwrap();
    let (certificate, accuracy) = certify(problem, table, &weights, &duals);
    Solved {
        certificate,
        accuracy,
    }
}

#[test]
fn the_gap_closes_for_every_loss_layout_and_level() {
    for loss in LOSSES {
        for (layout, features) in [
            (Layout::Dense { width: 28 }, 28),
            (Layout::Dense { width: 45 }, 45),
            (Layout::Sparse, 60),
        ] {
            let rows = table(planted(layout, 500, features, 2, 1));
            for bias in [None, Some(1.0)] {
                let mut problem = Problem::new(loss, 1.0, features, 2).unwrap();
                if let Some(bias) = bias {
                    problem = problem.with_bias(bias).unwrap();
                }
                for simd in Simd::available() {
                    let solved = solve(&problem, &rows, TIGHT, 3, simd);
                    let gap = solved.certificate.relative_gap();
                    assert!(
                        (-1e-5..1e-4).contains(&gap),
                        "{loss:?} {layout:?} {bias:?} {simd:?}: {:?}, gap {gap}",
                        solved.certificate
                    );
                    assert!(solved.accuracy > 0.7);
                }
            }
        }
    }
}
