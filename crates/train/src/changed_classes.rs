//! Classes that join or leave a finished run without training.
//!
//! The vector of a new class is the mean of its examples' features, each of length 1: the value a head starts training
//! from. The net, its running mean and the vectors of other classes stay as they are. The result is a new run folder
//! that commands read like any finished run.

use std::collections::HashSet;

use pelton_comm::Comm;
use pelton_format::{ClassMap, ClassName};
use pelton_run::{RunContext, RunFolder, Set};
use pelton_softmax::{Logits, Means, RowBlock, class_vectors, feature_mean};

use crate::deep::{MODEL, Shards, write_model};
use crate::embeddings::Embedder;
use crate::error::TrainError;
use crate::evaluate::EvaluateConfig;
use crate::finished::{Job, Labels, open_run, tells_no_classes};
use crate::image::{CLASSES, check_whole};

/// The classes of the run that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedClasses {
    /// Its classes.
    pub classes: usize,
    /// How many of them are new.
    pub added: usize,
}

/// Writes the run of `of` with other classes to the context's folder: without the classes in `remove`, plus every class
/// of `of`'s data, if it names files.
///
/// Errors: a run that is unfinished, damaged, or has no head that compares class vectors by cosine; a class of the data
/// that the run already has, or that has no example; a class to remove that the run lacks; nothing to change.
pub fn change_classes(
    of: &EvaluateConfig,
    remove: &[ClassName],
    mut context: RunContext<'_>,
) -> Result<ChangedClasses, TrainError> {
    let context = &mut context;
    let wrong = |what: String| TrainError::config(format!("{}: {what}", of.model.display()));
    let (Job::Images(mut config, mut written), manifest) = open_run(&of.model)? else {
        return Err(tells_no_classes(&of.model));
    };
    config.pipeline.keep_classes.clear();
    let out = context.folder.out.clone();
    let refuse = |what: &str| TrainError::config(format!("`out` {}: {what}", out.display()));
    if std::fs::canonicalize(&out)
        .is_ok_and(|out| std::fs::canonicalize(&of.model).ok() == Some(out))
    {
        return Err(refuse("is the run itself; name a new folder"));
    }
    // The manifest is written last: without it these are leftovers of a killed process with the same work.
    let text = pelton_storage::read_text(out.join("run.toml")).ok();
    // It follows the line that names the run.
    let is_same =
        |text: &String| toml::to_string(&config).is_ok_and(|config| text.ends_with(&config));
    let is_left = text.as_ref().is_some_and(is_same) && !out.join(Set::Model.file()).exists();
    let overwrite = context.folder.overwrite || is_left;
    if text.is_some() && !overwrite {
        return Err(refuse(
            "contains a run already; give `overwrite` to replace it, or name a new folder",
        ));
    }
    let mut embedder = Embedder::open(&of.model)?;
    let (d, rows) = (embedder.d, Shards::new(&manifest, MODEL));
    let head = config.head.as_ref();
    let logits = head.map_or(Logits::Product, |head| head.logits);
    let old = written.map.len();
    let vectors = rows.taken(|read| class_vectors(read, 0..old as u64))?;
    let Some(vectors) = vectors.filter(|_| matches!(logits, Logits::Cosine { .. })) else {
        return Err(wrong(
            "its head compares no class vectors by cosine, so classes cannot join or leave; train one with `head` other than mach, and `logits` other than product".to_string(),
        ));
    };
    if remove.is_empty() && of.data.paths.is_empty() {
        return Err(wrong("nothing changes; give `add` or `remove`".to_string()));
    }
    let mut removed = HashSet::new();
    for class in remove {
        removed.insert(written.map.class_called(class).ok_or_else(|| {
            wrong(format!(
                "has no class {class} to remove; it has {}",
                written.map.listed()
            ))
        })?);
    }
    let kept = (0..old as u32).filter(|class| !removed.contains(class));
    let kept: Vec<u32> = kept.collect();
    let mut weights = Vec::with_capacity(kept.len() * d);
    for &class in &kept {
        weights.extend_from_slice(&vectors[class as usize * d..][..d]);
    }
    drop(vectors);
    let mut added = ClassMap::default();
    if !of.data.paths.is_empty() {
        let records = embedder.records(of, Labels::OfData, context)?;
        added = records.data.dataset.labels().clone();
        check_whole(&added, &of.data.paths)?;
        let names: HashSet<String> = kept
            .iter()
            .map(|&class| written.map.describe(class))
            .collect();
        let all = 0..added.len() as u32;
        if let Some(class) = all
            .clone()
            .find(|&class| names.contains(&added.describe(class)))
        {
            return Err(wrong(format!(
                "has a class {} already, as {} does; remove it first, or give data of new classes only",
                added.describe(class),
                of.data.paths.join(", ")
            )));
        }
        let mut means = Means::new(0..added.len() as u64, d);
        embedder.each(&records, Logits::default(), context, |labels, features| {
            let labels: Vec<u64> = labels.iter().map(|&label| label as u64).collect();
            means.add(&features, &labels);
            Ok(())
        })?;
        let begin = weights.len();
        weights.resize(begin + added.len() * d, 0.0);
        means
            .write(&mut weights[begin..], &Comm::alone())
            .map_err(pelton_nn::NnError::from)?;
        let is_empty = |class: &u32| {
            let row = &weights[begin + *class as usize * d..][..d];
            row.iter().all(|&x| x == 0.0)
        };
        if let Some(class) = all.into_iter().find(is_empty) {
            return Err(wrong(format!(
                "the class {} of {} has no example with features that have a direction; give more examples of it",
                added.describe(class),
                of.data.paths.join(", ")
            )));
        }
    }
    let map = joined(&written.map, &kept, &added);
    if map.is_empty() {
        return Err(wrong("no class would be left; remove fewer".to_string()));
    }
    let mean = rows.taken(feature_mean)?;
    let blocks = [("weights", Some(weights)), ("mean", mean)];
    let blocks = blocks.into_iter().filter_map(|(name, values)| {
        let values = values?;
        Some(RowBlock::new(
            name,
            (0, (values.len() / d) as u64),
            d,
            values,
        ))
    });
    let folder = RunFolder::open(&out, &config, false, overwrite)?;
    let folder = folder.with_settings(config.decisive());
    let classes = map.len();
    written.map = map;
    folder.write_json(CLASSES, &written)?;
    write_model(&manifest, &folder, blocks.collect(), CLASSES)?;
    Ok(ChangedClasses {
        classes,
        added: added.len(),
    })
}

/// The classes `kept` of a map, then all of another; named if either is.
fn joined(map: &ClassMap, kept: &[u32], added: &ClassMap) -> ClassMap {
    let all = 0..added.len() as u32;
    if map.has_names() || added.has_names() {
        let names = kept.iter().map(|&class| map.describe(class));
        ClassMap::named(
            names
                .chain(all.map(|class| added.describe(class)))
                .collect(),
        )
    } else {
        let values = kept.iter().map(|&class| map.value(class));
        ClassMap::new(values.chain(all.map(|class| added.value(class))).collect())
    }
}
