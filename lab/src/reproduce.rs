//! The job `reproduce`: the work of a published table, its figures next to ours.
//!
//! * `lirs-svm`: LIRS Tables 3 and 4, Figures 9 and 10: epochs to the best of block
//!   minimization, accuracy, total time by device;
//! * `lirs-pages`: Figure 11: rows, pages and larger units;
//! * `lirs-memory`: Table 5: the tables in memory;
//! * `lirs-dnn`: Tables 6 and 7, Figures 12 and 13: nets on a shuffle queue and in full random order;
//! * `deepio-bandwidth`: DeepIO Figures 10 to 12: reading through ranks' memory;
//! * `deepio-order`: DeepIO Figures 7 and 8: training against the randomness of the order, linear models and nets;
//! * `buckets`: padding of the Penn Treebank by bucketing policy, and an LSTM trained on it;
//! * `echo`: data echoing: nets on a slow source, with examples used several times.
//!
//! Other tables are lists of runs of `train` ([`runs`]).
//!
//! [`Experiment`](crate::experiment::Experiment) defines the comparison, `published` contains the paper's figures,
//! `data_in_memory` the data, `convergence` trains, `modelled` and `measured` price the reading. A figure of a modelled
//! device says so; everything else is measured or counted in this run.

use pelton_run::{RunContext, write_atomically};
use pelton_train::{TrainError, refuse_address};

use crate::machine::{self, Others};
use crate::table::{ReproduceConfig, Reproduction};
use crate::{
    bucket_training, buckets, deepio_bandwidth, deepio_nets, deepio_order, drawing, echo, lirs_dnn,
    memory, pages, runs, svm, top_k,
};

/// Folder of the drawings.
const CHARTS: &str = "charts";

/// Runs the work of a table and writes raw runs and a report to the folder.
///
/// Errors: bad configuration; data that cannot be generated or read; an interruption.
pub fn reproduce(
    config: &ReproduceConfig,
    mut context: RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let context = &mut context;
    let scale_fits = config.scale > 0.0 && config.scale <= 1000.0;
    if !scale_fits || !(1..=1000).contains(&config.seeds) {
        return Err(TrainError::config(format!(
            "`scale` {} `seeds` {}: a scale is above 0 and at most 1000, seeds are 1 to 1000",
            config.scale, config.seeds
        )));
    }
    refuse_address(&config.out)?;
    for folder in ["data", CHARTS].map(|name| config.out.join(name)) {
        std::fs::create_dir_all(&folder).map_err(|error| {
            TrainError::config(format!(
                "{}: cannot be made: {error}; name another folder with `out`",
                folder.display()
            ))
        })?;
    }
    let others = Others::now();
    let mut reproduction = match config.experiment.name.as_str() {
        "lirs-svm" => svm::lirs_svm(config, context)?,
        "lirs-pages" => pages::lirs_pages(config, context)?,
        "deepio-bandwidth" => deepio_bandwidth::deepio_bandwidth(config, context)?,
        "lirs-memory" => memory::lirs_memory(config, context)?,
        "topk" => top_k::top_k_table(config, context)?,
        "lirs-dnn" => lirs_dnn::lirs_dnn(config, context)?,
        "echo" => echo::echo_table(config, context)?,
        _ if !config.experiment.runs.is_empty() => runs::table_of_runs(config, context)?,
        "deepio-order" => deepio_order::deepio_order(config, context)?,
        "buckets" => buckets::buckets_table(config, context.interrupt)?,
        name => {
            return Err(TrainError::config(format!(
                "{name} is not the name of a table and has no runs; compare it with the files in experiments/"
            )));
        }
    };
    match config.experiment.name.as_str() {
        "buckets" => bucket_training::bucket_training(config, context, &mut reproduction)?,
        "deepio-order" => deepio_nets::deepio_nets(config, context, &mut reproduction)?,
        _ => (),
    }
    let notes = &mut reproduction.notes;
    notes.insert(0, machine::description());
    if let Some(others) = others.and_then(|others| others.processors()) {
        notes.push(format!("other work took {others:.2} processors meanwhile"));
    }
    let page = config.out.join(format!("{}.html", reproduction.name));
    let report = drawing::report(&reproduction);
    for (name, drawing) in drawing::files(&report) {
        let path = config.out.join(CHARTS).join(name);
        write_atomically(&path, |path| std::fs::write(path, drawing))?;
    }
    write_atomically(&page, |path| std::fs::write(path, report.to_html()))?;
    reproduction.files.push(page);
    Ok(reproduction)
}
