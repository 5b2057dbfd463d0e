//! Custom functions: they add, replace and take out fields of any type and shape, change labels, and their errors
//! name the record.

use std::any::Any;
use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixtures::open;
use crate::loader::{lines, options, spec, stream};
use pelton_batch::{Batch, DType, FieldSpec, FieldSpecs, Layout};
use pelton_feed::{
    Appearance, AugmentImages, BadExamples, EchoPoint, FeedError, Function, Labels, Loader,
    LoaderOptions, Sample, Samples, Slots, Stage, StageFailure, Stages, TEXT, Value, When,
};
use pelton_format::{Dataset, FormatKind, OpenOptions};

/// Pictures of 4 × 6, a number and a class, all derived from their number.
fn pictures(folder: &Path) -> Arc<Dataset> {
    let record = |id: u8| [&[id; 24][..], &[id, id % 3]].concat();
    let path = folder.join("x.bin");
    fs::write(&path, (0..40).flat_map(record).collect::<Vec<u8>>()).unwrap();
    let options = OpenOptions {
        format: FormatKind::from_name("raw:image:u8[4,6],x:u8,label:u8"),
        ..OpenOptions::default()
    };
    Arc::new(Dataset::open(&[path], &options).unwrap())
}

fn batches(dataset: &Arc<Dataset>, stages: &Stages, echo: &str) -> Result<Vec<Batch>, FeedError> {
    let stream = stream(dataset, &spec(8, echo, "1"));
    let loader = Loader::new(Arc::clone(dataset), stream, stages.clone(), &options())?;
    loader.collect()
}

fn numbers(dtype: DType, dims: &[usize], bytes: Vec<u8>) -> Value<'static> {
    Value::Numbers(dtype, dims.to_vec(), Cow::Owned(bytes))
}

fn number_of(sample: &Sample<'_>) -> u8 {
    sample.get("x").expect("the number").bytes()[0]
}

/// Before a stage with a field that has a slot, next to it, and after it; with repeats and without.
#[test]
fn fields_come_and_go_around_other_stages() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = pictures(folder.path());
    let grid = |sample: &mut Sample<'_>| {
        let x = f64::from(number_of(sample));
        let grid: Vec<u8> = (0..6)
            .flat_map(|i| (x + f64::from(i)).to_ne_bytes())
            .collect();
        sample.set(&"grid".into(), numbers(DType::F64, &[2, 3], grid));
        sample.set(&"half".into(), numbers(DType::I32, &[], vec![0; 4]));
        sample.set(
            &"said".into(),
            Value::from(vec![b'a'; usize::from(number_of(sample)) % 5]),
        );
    };
    let read = Function::at_read(move |sample, _| {
        grid(sample);
        // Another type and shape than before.
        let x = number_of(sample);
        sample.set(
            &"x".into(),
            numbers(
                DType::I64,
                &[2],
                [i64::from(x); 2].map(i64::to_ne_bytes).concat(),
            ),
        );
        Ok(())
    });
    let late = Function::at_appearance(|sample, at| {
        sample.remove("half");
        sample.set(
            &"key".into(),
            numbers(DType::I64, &[], at.key.to_ne_bytes().to_vec()),
        );
        sample.set(
            &"label".into(),
            numbers(
                DType::F32,
                &[],
                (at.label as f32 / 2.0).to_ne_bytes().to_vec(),
            ),
        );
        Ok(())
    });
    let augment = AugmentImages::by(
        "flip"
            .parse::<pelton_image::Pipeline>()
            .unwrap()
            .with_channels(1)
            .unwrap(),
    );
    let stages = Stages::default().then(read).then(augment).then(late);
    for echo in ["1", "2:16"] {
        let mut keys = std::collections::HashSet::new();
        let all = batches(&dataset, &stages, echo).unwrap();
        assert_eq!(
            all.iter().map(Batch::len).sum::<usize>(),
            if echo == "1" { 80 } else { 160 }
        );
        for batch in all {
            let n = batch.len();
            assert_eq!(batch.get("grid").unwrap().shape().dims, [n, 2, 3]);
            let grid = batch.values::<f64>("grid").unwrap();
            assert!(
                grid.chunks(6)
                    .zip(&batch.ids)
                    .all(|(g, &id)| g[0] == id as f64 && g[5] == id as f64 + 5.0)
            );
            let said = batch.get("said").unwrap();
            assert!(matches!(said.shape().layout, Layout::Ragged { .. }));
            assert!((0..n).all(|i| said.sample(i).len() as u64 == batch.ids[i] % 5));
            let label: Vec<f32> = batch.ids.iter().map(|&id| (id % 3) as f32 / 2.0).collect();
            assert_eq!(batch.values::<f32>("label").unwrap(), label);
            assert_eq!(batch.get("image").unwrap().shape().dims, [n, 4, 6, 1]);
            assert!(batch.get("half").is_none());
            let x = batch.get("x").unwrap();
            assert_eq!((x.dtype(), x.bytes().len()), (DType::I64, 16 * n));
            keys.extend(batch.values::<i64>("key").unwrap().to_vec());
            assert_eq!(batch.fields.len(), 6);
        }
        assert_eq!(keys.len(), if echo == "1" { 80 } else { 160 });
    }
    let plan = stream(&dataset, &spec(8, "1", "1"));
    let samples = Samples::new(dataset, plan, stages, &options()).unwrap();
    let fields = samples.sample(0, 7).unwrap();
    assert_eq!(fields.get("grid").unwrap().shape().dims, [1, 2, 3]);
    assert_eq!(
        fields.get("label").unwrap().values::<f32>(),
        Some(&[0.5][..])
    );
}

/// Declared outputs are stacked in their slots; an example with another output is an error.
#[test]
fn what_is_said_to_come_out_has_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 30);
    let gives = |dims: &[Option<usize>]| {
        FieldSpecs(vec![
            FieldSpec::new("pair", DType::I32, dims),
            FieldSpec::new(TEXT, DType::U8, &[None]),
        ])
    };
    let with = |value: fn(u64) -> Value<'static>, gives: FieldSpecs| {
        let function = move |sample: &mut Sample<'_>, at: &pelton_feed::Appearance| {
            sample.set(&"pair".into(), value(at.id));
            Ok(())
        };
        Stages::default().then(Function::at_read(function).giving(gives))
    };
    let pair = |id: u64| {
        numbers(
            DType::I32,
            &[2],
            [id as i32; 2].map(i32::to_ne_bytes).concat(),
        )
    };
    for batch in batches(&dataset, &with(pair, gives(&[Some(2)])), "1").unwrap() {
        assert_eq!(batch.get("pair").unwrap().shape().dims, [batch.len(), 2]);
        let expected: Vec<i32> = batch.ids.iter().flat_map(|&id| [id as i32; 2]).collect();
        assert_eq!(batch.values::<i32>("pair").unwrap(), expected);
        assert!(matches!(
            batch.get(TEXT).unwrap().shape().layout,
            Layout::Ragged { .. }
        ));
    }
    let fails = |stages: &Stages, says: &str| {
        let error = batches(&dataset, stages, "1").unwrap_err().to_string();
        assert!(
            error.contains("lines.txt: record ") && error.contains(says),
            "{error}"
        );
    };
    // As many bytes, of another type or shape.
    let float = |id: u64| match id {
        11 => numbers(DType::F32, &[2], vec![0; 8]),
        _ => numbers(DType::I32, &[2], vec![0; 8]),
    };
    fails(
        &with(float, gives(&[Some(2)])),
        "its `pair` is numbers (float32 of [2]), that of the others int32 of [2]",
    );
    let column = |id: u64| match id {
        11 => numbers(DType::I32, &[2, 1], vec![0; 8]),
        _ => numbers(DType::I32, &[2], vec![0; 8]),
    };
    fails(&with(column, gives(&[Some(2)])), "(int32 of [2, 1])");
    fails(
        &with(|_| Value::from(vec![1u8; 8]), gives(&[Some(2)])),
        "is bytes (uint8 of [8])",
    );
}

#[test]
fn examples_that_differ_and_failures_are_said_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 30);
    let fails = |function: Function, says: &str| {
        let stages = Stages::default().then(function);
        let error = batches(&dataset, &stages, "1").unwrap_err();
        assert!(matches!(error, FeedError::Example { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let adding = |value: fn(u64) -> Option<Value<'static>>| {
        Function::at_read(move |sample, at| {
            if let Some(value) = value(at.id) {
                sample.set(&"more".into(), value);
            }
            Ok(())
        })
    };
    fails(
        adding(|id| (id != 11).then(|| numbers(DType::F32, &[], vec![0; 4]))),
        "`more`",
    );
    fails(
        adding(|id| (id == 11).then(|| numbers(DType::F32, &[], vec![0; 4]))),
        "`more`",
    );
    let types = |id: u64| {
        Some(numbers(
            if id == 11 { DType::I32 } else { DType::F32 },
            &[],
            vec![0; 4],
        ))
    };
    fails(adding(types), "but the first of the batch has numbers (");
    let shapes = |id: u64| {
        Some(numbers(
            DType::U8,
            &[1 + id as usize % 2],
            vec![0; 1 + id as usize % 2],
        ))
    };
    fails(adding(shapes), "has the shape");
    let refuses = Function::at_appearance(|_, at| match at.id {
        11 => Err("eleven is out".into()),
        _ => Ok(()),
    });
    fails(refuses, "record 11 (at byte ");
    let left_out =
        Stages::default().then(adding(move |_| Some(numbers(DType::F32, &[], vec![0; 4]))));
    assert!(
        batches(&dataset, &left_out, "1")
            .unwrap()
            .iter()
            .all(|batch| batch.values::<f32>("more").is_some())
    );
}

/// The label of a record is found by its class.
#[test]
fn labels_are_there_for_functions() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = pictures(folder.path());
    let labels = Labels::from_dataset(&dataset, false).unwrap();
    let function = Function::at_read(move |sample, at| {
        let label = labels.array([at.label].into_iter());
        let value = 10 * label.values::<i64>().ok_or("whole classes")?[0];
        sample.set(
            &"label".into(),
            numbers(DType::I64, &[], value.to_ne_bytes().to_vec()),
        );
        Ok(())
    });
    for batch in batches(&dataset, &Stages::default().then(function), "1").unwrap() {
        let expected: Vec<i64> = batch.ids.iter().map(|&id| 10 * (id as i64 % 3)).collect();
        assert_eq!(batch.values::<i64>("label").unwrap(), expected);
    }
    assert!(
        Labels::from_dataset(
            &open(&[lines(folder.path(), 3).files()[0].path().to_path_buf()]),
            false
        )
        .is_none()
    );
}

/// Doubles the number and notes its key; does not take every number.
struct Doubles {
    when: When,
    together: usize,
    /// Examples of the largest call.
    most: Arc<AtomicUsize>,
}

impl Stage for Doubles {
    fn name(&self) -> &'static str {
        "doubles"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        Ok(input)
    }

    fn is_open(&self) -> bool {
        true
    }

    fn when(&self) -> When {
        self.when
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let number = number_of(sample);
        if number % 10 == 7 {
            return Err(format!("{number} is left out").into());
        }
        sample.set(&"x".into(), numbers(DType::U8, &[], vec![2 * number]));
        let noted = [at.key, at.copy.into(), at.label.into()].map(u64::to_ne_bytes);
        sample.set(&"noted".into(), numbers(DType::I64, &[3], noted.concat()));
        Ok(())
    }

    fn together(&self) -> usize {
        self.together
    }

    fn run_together(
        &self,
        samples: &mut [(&mut Sample<'_>, Appearance)],
    ) -> Vec<Result<(), StageFailure>> {
        self.most.fetch_max(samples.len(), Ordering::Relaxed);
        let each = samples.iter_mut();
        each.map(|(sample, at)| self.run(sample, &mut Slots::default(), at, &mut ()))
            .collect()
    }
}

/// First, last and between other stages; of fresh examples, of repeats and of bad ones.
#[test]
fn examples_taken_together_are_those_taken_alone() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = pictures(folder.path());
    for when in [When::Read, When::Appearance] {
        for (echo, point) in [
            ("1", EchoPoint::BeforeAugment),
            ("2", EchoPoint::Read),
            ("2", EchoPoint::BeforeAugment),
            ("2", EchoPoint::AfterAugment),
        ] {
            let made = |together: usize| {
                let most = Arc::<AtomicUsize>::default();
                let doubles = || Doubles {
                    when,
                    together,
                    most: Arc::clone(&most),
                };
                let augment = AugmentImages::by("flip".parse().unwrap());
                let stages = match when {
                    When::Read => Stages::default().then(doubles()).then(augment),
                    When::Appearance => Stages::default().then(augment).then(doubles()),
                };
                let stream = stream(&dataset, &spec(8, echo, "1"));
                let options = LoaderOptions {
                    bad_examples: BadExamples::Skip { limit: None },
                    echo_point: point,
                    ..options()
                };
                let loader = Loader::new(Arc::clone(&dataset), stream, stages, &options).unwrap();
                let batches: Vec<Batch> = loader.map(Result::unwrap).collect();
                (batches, most.load(Ordering::Relaxed))
            };
            let (alone, most) = made(1);
            assert_eq!(most, 0);
            let (together, most) = made(5);
            let found: usize = alone.iter().map(|batch| batch.ids.len()).sum();
            assert_eq!(found, 2 * 36 * echo.parse::<usize>().unwrap());
            // Repeats are taken alone.
            assert_eq!(most > 1, echo == "1", "{echo}: {most}");
            assert_eq!(alone.len(), together.len());
            for (a, b) in alone.iter().zip(&together) {
                assert_eq!((&a.ids, &a.copies), (&b.ids, &b.copies));
                for (name, array) in a.fields.iter() {
                    assert_eq!(
                        Some(array.bytes()),
                        b.fields.get(name).map(|array| array.bytes()),
                        "{echo}: {name}"
                    );
                }
            }
        }
    }
}
