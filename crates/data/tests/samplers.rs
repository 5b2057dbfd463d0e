//! The records that an epoch uses: classes balanced, by weight, or a list, from a setting or a program, through loaders
//! that stop and resume.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use pelton_comm::Comm;
use pelton_data::{DataConfig, HeldOut, OpenedData, PipelineTerms, PreparedPipeline, open};
use pelton_feed::PipelineConfig;
use pelton_fetch::Access;
use pelton_plan::{Order, Sampler};
use pelton_run::{Event, Interrupt, RunContext};

/// Rows with their index as first feature, and class 2 for every tenth one and else 0 or 1.
fn rows(folder: &Path) -> DataConfig {
    let class = |id: usize| if id.is_multiple_of(10) { 2 } else { id % 2 };
    let text: String = (0..200)
        .map(|id| format!("{id},2,{}\n", class(id)))
        .collect();
    let path = folder.join("rows.csv");
    fs::write(&path, text).unwrap();
    DataConfig {
        paths: vec![path.display().to_string()],
        cache_dir: Some(folder.join("cache")),
        ..DataConfig::default()
    }
}

fn npy(folder: &Path, name: &str, numbers: &[f64]) -> String {
    let head = format!(
        "{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}\n",
        numbers.len()
    );
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((head.len() as u16).to_le_bytes());
    file.extend(head.bytes());
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    let path = folder.join(name);
    fs::write(&path, file).unwrap();
    path.display().to_string()
}

fn terms(order: Order, sampler: Option<Sampler>) -> PipelineTerms {
    PipelineTerms {
        order,
        among: None,
        sampler,
        lengths: None,
        batch: Some(16),
        seed: 3,
        epochs: Some(2),
        memory_bytes: 8 << 20,
        threads: 2,
        access: Access::Auto,
        cache: None,
        ranks: None,
        by_class: false,
        vocabulary: None,
    }
}

fn with<T>(work: impl FnOnce(&OpenedData, &mut RunContext<'_>) -> T, data: &DataConfig) -> T {
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let opened = open(data, &data.paths, None, &mut context).unwrap();
    work(&opened, &mut context)
}

fn sample(text: &str) -> PipelineConfig {
    PipelineConfig {
        sample: Some(text.parse().unwrap()),
        ..PipelineConfig::default()
    }
}

/// The ids of both epochs, also if the loader stops and resumes after each batch; checks that rows match their ids.
fn ids(pipeline: &PreparedPipeline) -> Vec<u64> {
    let comm = Comm::alone();
    let mut loader = pipeline.loader(None, &comm).unwrap();
    let mut batches = Vec::new();
    let mut states = vec![loader.state()];
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        let rows = batch.values::<f32>("features").unwrap().chunks(2);
        assert!(rows.zip(&batch.ids).all(|(row, &id)| row[0] == id as f32));
        states.push(loader.state());
        batches.push(batch.ids);
    }
    for (done, state) in states.iter().enumerate().step_by(7) {
        let rest = pipeline.loader(Some(state), &comm).unwrap();
        let rest: Vec<Vec<u64>> = rest.map(|batch| batch.unwrap().ids).collect();
        assert_eq!(rest, batches[done..]);
    }
    batches.concat()
}

#[test]
fn all_classes_come_alike() {
    let folder = tempfile::tempdir().unwrap();
    let data = rows(folder.path());
    with(
        |opened, context| {
            let config = PipelineConfig {
                epoch_examples: Some(330),
                ..sample("balanced")
            };
            let pipeline =
                PreparedPipeline::new(&config, &terms(Order::Full, None), opened, context).unwrap();
            let ids = ids(&pipeline);
            assert_eq!(ids.len(), 660);
            let rare = ids.iter().filter(|&&id| id % 10 == 0).count();
            let odd = ids.iter().filter(|&&id| id % 2 == 1).count();
            assert_eq!((rare, odd), (220, 220));
            let mut times: HashMap<u64, u32> = HashMap::new();
            ids.iter()
                .for_each(|&id| *times.entry(id).or_default() += 1);
            assert!(
                times.iter().all(|(id, &n)| id % 10 > 0 || n == 11),
                "in turn: {times:?}"
            );
            // Evaluation uses each record once.
            let held = HeldOut::share(200, 0.1, 3).unwrap();
            let measured = pipeline.validation(&held.validation, context).unwrap();
            let loader = measured.loader(None, &Comm::alone()).unwrap();
            let steps = measured.plan().steps(0) as usize;
            let found: Vec<u64> = loader
                .take(steps)
                .flat_map(|batch| batch.unwrap().ids)
                .collect();
            assert!(found.len() == 20 && found.is_sorted_by(|a, b| a < b));
        },
        &data,
    );
}

#[test]
fn weights_and_lists_come_from_files_or_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let data = rows(folder.path());
    let weights: Vec<f64> = (0..200).map(|id| f64::from(id % 4)).collect();
    let listed: Vec<u64> = (0..300).map(|i| i * 77 % 50).collect();
    let weights_file = npy(folder.path(), "weights.npy", &weights);
    let ids_file = npy(
        folder.path(),
        "ids.npy",
        &listed.iter().map(|&id| id as f64).collect::<Vec<f64>>(),
    );
    with(
        |opened, context| {
            let mut prepared = |config: &PipelineConfig, order, sampler| {
                PreparedPipeline::new(config, &terms(order, sampler), opened, context)
            };
            let plain = PipelineConfig::default();
            let of_file = prepared(
                &sample(&format!("weights:{weights_file}")),
                Order::Full,
                None,
            )
            .unwrap();
            let given = Sampler::Weights(weights.clone().into());
            let given = prepared(&plain, Order::Full, Some(given)).unwrap();
            assert_eq!(of_file.plan().fingerprint(), given.plan().fingerprint());
            let drawn = ids(&of_file);
            assert_eq!((drawn.len(), &drawn), (400, &ids(&given)));
            let heavy = drawn.iter().filter(|&&id| id % 4 == 3).count();
            // Half of 400 draws, with a standard deviation of 10.
            assert!(
                (140..260).contains(&heavy) && drawn.iter().all(|id| id % 4 > 0),
                "{heavy}"
            );

            let in_order =
                prepared(&sample(&format!("ids:{ids_file}")), Order::Sequential, None).unwrap();
            assert_eq!(ids(&in_order), [&listed[..], &listed].concat());
            let given = Sampler::Ids(listed.clone().into());
            let shuffled = prepared(&plain, Order::Full, Some(given)).unwrap();
            let mut found = ids(&shuffled);
            assert_ne!(found[..300], listed);
            assert_ne!(found[..300], found[300..]);
            let mut expected = [&listed[..], &listed].concat();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);

            let mut refuses = |config: &PipelineConfig, sampler, says: &str| {
                let error = prepared(config, Order::Full, sampler)
                    .err()
                    .unwrap()
                    .to_string();
                assert!(error.contains(says), "{error}");
            };
            let half = npy(folder.path(), "half.npy", &[1.0, 0.5]);
            refuses(
                &sample(&format!("ids:{half}")),
                None,
                "0.5 is not the index of a record",
            );
            refuses(
                &sample(&format!("weights:{half}")),
                None,
                "2 weights are given for 200 records",
            );
            refuses(&sample("weights:gone.npy"), None, "gone.npy");
            refuses(
                &sample("balanced"),
                Some(Sampler::Ids([1].into())),
                "give only one of them",
            );
        },
        &data,
    );
}
