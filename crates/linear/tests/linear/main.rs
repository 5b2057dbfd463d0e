//! Linear models from outside: solvers, certificates, models and their files.

mod certificates;
mod errors;
mod grid;
mod hard_cases;
mod lbfgs;
mod lbfgs_alone;
mod liblinear;
mod models;
mod newton;
mod out_of_core;
mod penalties;
mod random_problems;
mod solve;
mod support;
mod unpenalised;
