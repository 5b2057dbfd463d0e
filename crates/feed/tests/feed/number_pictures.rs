//! Arrays of bytes are pictures: augmentation works on them as on pixels of any other source.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::fixtures::open;
use crate::loader::{options, spec, stream};
use pelton_batch::{Batch, FieldSpecs};
use pelton_feed::{AugmentImages, Loader, Stages};
use pelton_format::{Dataset, FormatKind, OpenOptions};
use pelton_image::{Layout, Output, Pipeline, Pixels, Workspace, example_key};
use pelton_key::{Stage, key};

const RECORDS: usize = 60;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 256 * 31) as u8).collect()
}

fn npy(folder: &Path, name: &str, dims: &[usize]) -> Arc<Dataset> {
    let shape: Vec<String> = dims.iter().map(usize::to_string).collect();
    let head = format!(
        "{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}",
        shape.join(", ")
    );
    let head = format!("{head:<117}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((head.len() as u16).to_le_bytes());
    file.extend(head.bytes());
    file.extend(bytes(dims.iter().product()));
    let path = folder.join(name);
    fs::write(&path, file).unwrap();
    open(&[path])
}

fn raw(folder: &Path, fields: &str, record: usize) -> Arc<Dataset> {
    let path = folder.join("raw.bin");
    fs::write(&path, bytes(RECORDS * record)).unwrap();
    let options = OpenOptions {
        format: FormatKind::from_name(fields),
        ..OpenOptions::default()
    };
    Arc::new(Dataset::open(&[path], &options).unwrap())
}

fn batches(dataset: &Arc<Dataset>, augment: &str) -> Vec<Batch> {
    let fields = Stages::default().spec(dataset).unwrap();
    let suited = AugmentImages::suited(augment.parse().unwrap(), &fields).unwrap();
    let stages = Stages::default().then(suited);
    let stream = stream(dataset, &spec(8, "1", "1"));
    let loader = Loader::new(Arc::clone(dataset), stream, stages, &options()).unwrap();
    loader.map(Result::unwrap).collect()
}

/// Asserts that batches of `dataset`, with `picture(id)` as picture `id`, are what the pipeline makes of those
/// pixels.
fn check(dataset: &Arc<Dataset>, shape: [usize; 3], picture: impl Fn(usize) -> Vec<u8>) {
    let [height, width, channels] = shape;
    let text = "randomcrop:12:3,flip,cutout:4,resize:10x9,normalise:0.25:0.5";
    let pipeline: Pipeline = text.parse().unwrap();
    let pipeline = pipeline.with_channels(channels).unwrap();
    let (mut pixels, mut work) = (Pixels::new(), Workspace::new());
    let mut seen = 0;
    for batch in batches(dataset, text) {
        let found = batch.get("image").unwrap();
        assert_eq!(found.shape().dims, [batch.len(), 10, 9, channels]);
        let found = batch.values::<f32>("image").unwrap();
        for (&id, found) in batch.ids.iter().zip(found.chunks(90 * channels)) {
            let (height, width) = (height as u32, width as u32);
            pixels.set(height, width, channels, Layout::Hwc, &picture(id as usize));
            // By the position in the epoch's order; nothing is left out.
            let position = (seen % RECORDS) as u64;
            let key = example_key(key(7, batch.epoch, Stage::Augment), position, 0);
            let mut expected = vec![0.0; 90 * channels];
            pipeline
                .apply(&pixels, key, &mut work, Output::Floats(&mut expected))
                .unwrap();
            assert_eq!(found, expected, "picture {id}");
            seen += 1;
        }
    }
    assert_eq!(seen, 2 * RECORDS);
    // By hand: nothing moves, and each value is (v / 255 − 0.25) / 0.5.
    for batch in batches(dataset, "normalise:0.25:0.5") {
        let found = batch.values::<f32>("image").unwrap();
        let of = |&id: &u64| picture(id as usize).into_iter();
        let plain = |v: u8| (f32::from(v) / 255.0 - 0.25) / 0.5;
        let expected: Vec<f32> = batch.ids.iter().flat_map(of).map(plain).collect();
        assert_eq!(found, expected);
    }
    for batch in batches(dataset, "grey") {
        assert_eq!(
            batch.get("image").unwrap().shape().dims,
            [batch.len(), height, width, 1]
        );
    }
}

#[test]
fn arrays_are_augmented_as_pictures_are() {
    let folder = tempfile::tempdir().unwrap();
    for (dims, shape) in [
        (vec![RECORDS, 14, 16, 3], [14, 16, 3]),
        (vec![RECORDS, 14, 16, 1], [14, 16, 1]),
        (vec![RECORDS, 14, 16], [14, 16, 1]),
    ] {
        let size: usize = shape.iter().product();
        let all = bytes(RECORDS * size);
        let dataset = npy(folder.path(), "x.npy", &dims);
        check(&dataset, shape, |id| all[id * size..][..size].to_vec());
    }
    // Among other fields, under another name, with the label in front.
    let dataset = raw(folder.path(), "raw:label:u8,photo:u8[14,16,3],x:u8[2]", 675);
    let all = bytes(RECORDS * 675);
    check(&dataset, [14, 16, 3], |id| {
        all[id * 675 + 1..][..672].to_vec()
    });
    let batch = batches(&dataset, "flip").remove(0);
    assert!(batch.get("photo").is_none());
    let x: Vec<u8> = batch
        .ids
        .iter()
        .flat_map(|&id| all[id as usize * 675 + 673..][..2].to_vec())
        .collect();
    assert_eq!(batch.values::<u8>("x").unwrap(), x);
}

#[test]
fn other_arrays_are_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = |fields: &str, record: usize, says: &str| {
        let dataset = raw(folder.path(), fields, record);
        let stages = Stages::default().then(AugmentImages::by("flip".parse().unwrap()));
        let refused = stages.spec(&dataset).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    };
    refuses("raw:u8[5,4,2]", 40, "`data` has 5 × 4 × 2 of uint8");
    refuses(
        "raw:image:f32[5,4,3]",
        240,
        "`image` has 5 × 4 × 3 of float32",
    );
    refuses("raw:image:u8[9]", 9, "`image` has 9 of uint8");
    refuses("raw:a:u8[5,4],b:u8[5,4]", 40, "the data has a, b");
    refuses("raw:f32[5,4]", 80, "the data has data");
    let grey = npy(folder.path(), "g.npy", &[RECORDS, 5, 4]);
    let refused = AugmentImages::suited("normalise".parse().unwrap(), &grey.fields());
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("give one mean"), "{refused}");
    let nothing = FieldSpecs::default();
    assert!(AugmentImages::suited("normalise".parse().unwrap(), &nothing).is_ok());
}
