//! Samples by number equal a loader's, from any caller and in any order.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::fixtures::open;
use crate::loader::{
    all_kinds, failing, lines, marked, options, said, samples, seen, spec, stream,
};
use crate::unreadable_records::{CUT, FILES, GONE, damaged};
use pelton_batch::{Batch, Layout};
use pelton_feed::{
    AugmentImages, Collate, DecodeImages, FeedError, Loader, LoaderOptions, Samples, Stages,
};
use pelton_fetch::FetchError;
use pelton_format::{Dataset, FormatKind, OpenOptions};
use pelton_plan::{Catalog, Order, Place, Plan, PlanSpec};

fn of(
    dataset: &Arc<Dataset>,
    plan: &Arc<Plan>,
    stages: &Stages,
    options: &LoaderOptions,
) -> Samples {
    let (dataset, plan) = (Arc::clone(dataset), Arc::clone(plan));
    Samples::new(dataset, plan, stages.clone(), options).unwrap()
}

/// Every batch of a loader equals the one requested by its epoch and step.
fn check_places(
    dataset: &Arc<Dataset>,
    plan: &Arc<Plan>,
    stages: &Stages,
    options: &LoaderOptions,
    same: impl Fn(&Batch, &Batch),
) {
    let by_place = of(dataset, plan, stages, options);
    let parts = (Arc::clone(dataset), Arc::clone(plan), stages.clone());
    let loader = Loader::new(parts.0, parts.1, parts.2, options).unwrap();
    let mut steps = [0; 2];
    for batch in loader {
        let batch = batch.unwrap();
        let place = Place {
            epoch: batch.epoch,
            step: batch.step,
        };
        let found = by_place.batch_at(place).unwrap().expect("the epoch has it");
        assert_eq!(seen(&found), seen(&batch));
        assert_eq!(found.ends_epoch, batch.ends_epoch);
        assert_eq!(found.bucket, batch.bucket);
        assert_eq!(found.global_examples, batch.global_examples);
        same(&found, &batch);
        steps[batch.epoch as usize] += 1;
    }
    for (epoch, steps) in (0..).zip(steps) {
        assert!(steps > 0);
        let beyond = by_place.batch_at(Place { epoch, step: steps });
        assert!(beyond.unwrap().is_none());
    }
}

#[test]
fn a_place_gives_what_a_loader_hands_out_there() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 90);
    for (spec, echo_point) in all_kinds() {
        let plan = stream(&dataset, &spec);
        for (rank, world_size) in [(0, 1), (1, 3)] {
            let options = LoaderOptions {
                echo_point,
                rank,
                world_size,
                ..options()
            };
            check_places(&dataset, &plan, &marked(), &options, |_, _| {});
        }
    }
    // Without line ends; the last line has none.
    let length_of = |id: u64| dataset.locate(id).length as u32 - u32::from(id < 89);
    for policy in ["static:20,40,80", "pack:90:64", "pack:13:16"] {
        let spec = PlanSpec {
            buckets: Some(policy.parse().unwrap()),
            ..spec(5, "1", "1")
        };
        let catalog = Catalog::new(dataset.records()).with_lengths(&length_of);
        let plan = Arc::new(Plan::new(&spec, catalog).unwrap());
        let stages = Stages::default().collated(Collate::Pad);
        check_places(&dataset, &plan, &stages, &options(), |found, batch| {
            let shapes = [found, batch].map(|batch| batch.get("text").unwrap().shape().clone());
            assert_eq!(shapes[0], shapes[1]);
        });
    }
}

/// Red pictures of different sizes, with the id as green, in folders by class.
fn pictures(folder: &Path) -> Arc<Dataset> {
    let root = folder.join("pictures");
    for id in 0..12_u8 {
        let class = root.join(format!("class {}", id % 3));
        fs::create_dir_all(&class).unwrap();
        let (width, height) = (20 + u32::from(id), 24);
        let pixels = [200, 10 * id, 0].repeat((width * height) as usize);
        let file = fs::File::create(class.join(format!("{id:03}.png"))).unwrap();
        let mut encoder = png::Encoder::new(file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder
            .write_header()
            .unwrap()
            .write_image_data(&pixels)
            .unwrap();
    }
    open(&[root])
}

#[test]
fn pictures_come_in_the_order_asked_for_or_alone_in_their_own_shape() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = pictures(folder.path());
    let plan = stream(&dataset, &spec(4, "1", "1"));
    let decode = || Stages::default().then(DecodeImages::from_kind("png").unwrap());
    let augmented = decode().then(AugmentImages::by("rrc:8,flip,normalise".parse().unwrap()));
    let whole = of(&dataset, &plan, &decode(), &options());
    let small = of(&dataset, &plan, &augmented, &options());
    let labels = |batch: &Batch| batch.values::<i64>("label").unwrap().to_vec();
    let all: Vec<u64> = (0..12).rev().collect();
    let of_all = small.batch(1, &all).unwrap();
    assert_eq!(of_all.ids, all);
    assert_eq!(of_all.get("image").unwrap().shape().dims, [12, 8, 8, 3]);
    for (i, &id) in all.iter().enumerate() {
        // Alone, each sample is the same as in a batch.
        let alone = small.batch(1, &[id]).unwrap();
        assert_eq!(
            alone.get("image").unwrap().bytes(),
            of_all.get("image").unwrap().sample(i)
        );
        assert_eq!(labels(&alone)[0], labels(&of_all)[i]);
        let fields = small.sample(1, id).unwrap();
        assert_eq!(
            fields.get("image").unwrap().bytes(),
            of_all.get("image").unwrap().sample(i)
        );
        assert_eq!(fields.get("image").unwrap().shape().dims, [1, 8, 8, 3]);
        assert_eq!(
            fields.get("label").unwrap().values::<i64>().unwrap()[0],
            labels(&of_all)[i]
        );
        // In its own size if no stage resizes it.
        let fields = whole.sample(0, id).unwrap();
        let image = fields.get("image").unwrap();
        let number = image.bytes()[1] / 10;
        assert_eq!(image.shape().dims, [1, 24, 20 + usize::from(number), 3]);
        assert_eq!(image.shape().layout, Layout::Stacked);
        assert!(
            image
                .bytes()
                .chunks(3)
                .all(|pixel| pixel == [200, 10 * number, 0])
        );
    }
    let planar = of(&dataset, &plan, &decode().planar(true), &options());
    let fields = planar.sample(0, 0).unwrap();
    let image = fields.get("image").unwrap();
    assert_eq!(image.shape().dims[..2], [1, 3]);
    assert!(image.bytes()[..24 * 20].iter().all(|&red| red == 200));
}

/// Records of fields that a loader copies unchanged.
#[test]
fn named_arrays_come_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    let raw: Vec<u8> = (0..100u8).flat_map(|i| [i, i, 200 - i, i % 3]).collect();
    fs::write(&path, raw).unwrap();
    let open_options = OpenOptions {
        format: FormatKind::from_name("raw:data:u8[2],x:u8,label:u8"),
        ..OpenOptions::default()
    };
    let dataset = Arc::new(Dataset::open(&[path], &open_options).unwrap());
    let plan = Plan::new(&PlanSpec::new(Order::Full, 8, 0), Catalog::new(100)).unwrap();
    let samples = of(&dataset, &Arc::new(plan), &Stages::default(), &options());
    for id in [0, 7, 99] {
        let fields = samples.sample(0, id).unwrap();
        assert_eq!(fields.get("data").unwrap().bytes(), [id as u8; 2]);
        assert_eq!(fields.get("x").unwrap().bytes(), [200 - id as u8]);
        let label = fields.get("label").unwrap().values::<i64>().unwrap()[0];
        assert_eq!(label, id as i64 % 3);
    }
}

#[test]
fn the_same_call_gives_the_same_from_any_thread() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 300);
    let plan = stream(&dataset, &spec(7, "1", "1"));
    let reader = of(&dataset, &plan, &marked(), &options());
    assert_eq!((reader.len(), reader.is_empty()), (300, false));
    let ids = |call: u64| -> Vec<u64> { (0..50).map(|i| (i * 37 + call * 11) % 300).collect() };
    let expected: Vec<_> = (0..20)
        .map(|call| seen(&reader.batch(3, &ids(call)).unwrap()))
        .collect();
    for (call, (epoch, _, asked, _, samples)) in expected.iter().enumerate() {
        assert_eq!((*epoch, asked), (3, &ids(call as u64)));
        let said: Vec<u64> = samples.iter().map(|sample| said(sample)).collect();
        assert_eq!(said, *asked);
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (reader, expected) = (&reader, &expected);
            scope.spawn(move || {
                for call in (0..20).cycle().skip(5 * thread).take(40) {
                    let batch = reader.batch(3, &ids(call as u64)).unwrap();
                    assert_eq!(seen(&batch), expected[call]);
                }
            });
        }
    });
    // Another epoch draws again, and so does each repetition of a record in a call.
    assert_ne!(
        samples(&reader.batch(4, &[7]).unwrap()),
        samples(&reader.batch(3, &[7]).unwrap())
    );
    let again = reader.batch(3, &[7, 9, 7, 7]).unwrap();
    assert_eq!(again.copies, [0, 0, 1, 2]);
    let distinct: HashSet<Vec<u8>> = samples(&again).into_iter().collect();
    assert_eq!(distinct.len(), 4);
    assert!(reader.batch(0, &[]).unwrap().is_empty());
    let error = reader.batch(0, &[3, 300]).unwrap_err();
    assert!(
        matches!(
            error,
            FeedError::NoRecord {
                id: 300,
                records: 300
            }
        ),
        "{error}"
    );
    assert!(reader.sample(0, 300).is_err());
}

#[test]
fn bad_records_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let policy = |text: &str| LoaderOptions {
        bad_examples: text.parse().unwrap(),
        ..options()
    };
    // Files of a folder that cannot be read, and records that a stage refuses.
    let (unreadable, paths) = damaged(folder.path());
    let refused = lines(folder.path(), FILES);
    for (dataset, stages) in [
        (unreadable, Stages::default()),
        (refused, failing(&[GONE, CUT])),
    ] {
        let plan = stream(&dataset, &spec(8, "1", "1"));
        let with = |text: &str| of(&dataset, &plan, &stages, &policy(text));
        let names = |error: &FeedError| {
            let text = error.to_string();
            text.contains("lines.txt: record ")
                || paths
                    .iter()
                    .any(|path| text.starts_with(path.to_str().unwrap()))
        };
        let ids = [GONE - 1, GONE, CUT, 5, GONE];
        let error = with("fail").batch(0, &ids).unwrap_err();
        assert!(names(&error), "{error}");
        let skipping = with("skip");
        assert_eq!(skipping.batch(0, &ids).unwrap().ids, [GONE - 1, 5]);
        assert_eq!(skipping.bad_ids(), [GONE, CUT]);
        assert!(skipping.batch(0, &[CUT]).unwrap().is_empty());
        assert_eq!(
            with("replace").batch(0, &ids).unwrap().ids,
            [GONE - 1, 5, 5, 5, GONE - 1]
        );
        let limited = with("skip:1");
        assert!(limited.batch(0, &[3, CUT, CUT]).is_ok());
        let error = limited.batch(0, &[GONE]).unwrap_err();
        assert!(
            matches!(
                error,
                FeedError::Fetch(FetchError::TooManyBadRecords {
                    found: 2,
                    limit: 1,
                    ..
                })
            ),
            "{error}"
        );
        // A single requested sample has no replacement.
        let error = skipping.sample(0, GONE).unwrap_err();
        assert!(names(&error), "{error}");
        assert!(skipping.sample(0, GONE + 1).is_ok());
    }
}

#[test]
fn a_file_that_changed_is_an_error_whatever_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 30);
    let plan = stream(&dataset, &spec(8, "1", "1"));
    let options = LoaderOptions {
        bad_examples: "skip".parse().unwrap(),
        ..options()
    };
    let reader = of(&dataset, &plan, &Stages::default(), &options);
    assert!(reader.batch(0, &[29]).is_ok());
    let file = fs::File::options()
        .write(true)
        .open(dataset.files()[0].path());
    file.unwrap().set_len(99).unwrap();
    let error = reader.batch(0, &[29]).unwrap_err();
    assert!(
        error.to_string().contains("changed while it was read"),
        "{error}"
    );
}
