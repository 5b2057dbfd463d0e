//! Several members of a tar sample, or fields of a record, as fields of a batch, and masks that follow their pictures.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::fixtures::open;
use crate::loader::{options, spec, stream};
use crate::tar;
use pelton_batch::{Batch, DType, Layout};
use pelton_feed::{AugmentImages, DecodeFields, DecodeSetting, FeedError, Loader, Samples, Stages};
use pelton_format::{Dataset, FormatKind, OpenOptions};

const SAMPLES: u64 = 40;
const SIDES: (usize, usize) = (14, 16);

/// The mask of a sample: numbers that occur nowhere else.
fn mask(id: u64) -> Vec<u8> {
    (0..SIDES.0 * SIDES.1)
        .map(|i| (i as u64 * 3 + id) as u8)
        .collect()
}

/// Up to two boxes in a picture.
fn boxes(id: u64) -> Vec<[f32; 4]> {
    let of = |n: u64| [n as f32, 1.5, (id % 9 + n) as f32, 8.0];
    (0..id % 3).map(of).collect()
}

fn png(colour: png::ColorType, (height, width): (usize, usize), pixels: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(colour);
    encoder
        .write_header()
        .unwrap()
        .write_image_data(pixels)
        .unwrap();
    file
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((head.len() as u16).to_le_bytes());
    file.extend(head.bytes());
    file.extend(data);
    file
}

/// Samples of a picture with its mask as red, the mask, a caption, numbers in JSON, a class and an array.
fn samples(folder: &Path, lacks: Option<u64>) -> Arc<Dataset> {
    let mut file = Vec::new();
    for id in 0..SAMPLES {
        let mask = mask(id);
        let colours: Vec<u8> = mask.iter().flat_map(|&v| [v, 255 - v, 7]).collect();
        let json = format!(
            r#"{{"score": {}.5, "big": {}, "in": {{"box": [{id}, -1.25]}}, "tags": {:?}, "boxes": {:?}, "flat": [[0, 0.5, 0.5, 1]], "sides": [5, 5, 9, 3]}}"#,
            id,
            9_007_199_254_740_993_i64 - id as i64,
            (0..id % 4).collect::<Vec<u64>>(),
            boxes(id),
        );
        let array: Vec<u8> = (0..6).flat_map(|i| (id as i32 - i).to_le_bytes()).collect();
        let caption = "word ".repeat(1 + id as usize % 5);
        let members = [
            ("png", png(png::ColorType::Rgb, SIDES, &colours)),
            ("seg.png", png(png::ColorType::Grayscale, SIDES, &mask)),
            ("txt", caption.into_bytes()),
            ("json", json.into_bytes()),
            ("cls", format!("{}", id % 3).into_bytes()),
            ("npy", npy("<i4", "(2, 3)", &array)),
        ];
        for (extension, bytes) in members {
            if lacks != Some(id) || extension != "seg.png" {
                file.extend(tar::member(&format!("{id:04}.{extension}"), &bytes));
            }
        }
    }
    file.extend(tar::end());
    let path = folder.join("samples.tar");
    fs::write(&path, file).unwrap();
    open(&[path])
}

fn decoded(text: &str) -> Stages {
    let Ok(DecodeSetting::Fields(fields)) = text.parse() else {
        panic!("{text}")
    };
    Stages::default().then(DecodeFields::new(&fields))
}

fn batches(dataset: &Arc<Dataset>, stages: &Stages) -> Result<Vec<Batch>, FeedError> {
    let stream = stream(dataset, &spec(8, "1", "1"));
    let loader = Loader::new(Arc::clone(dataset), stream, stages.clone(), &options())?;
    loader.collect()
}

#[test]
fn each_member_is_a_field() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = samples(folder.path(), None);
    let stages = decoded(
        "image=png,mask=seg.png,caption=txt,score=json:score,big=json:big:i64,box=json:in.box:f64[2],tags=json:tags:i64[],class=cls,array=npy:f32[2,3],whole=npy:i64[],all=json",
    );
    for batch in batches(&dataset, &stages).unwrap() {
        let n = batch.len();
        let each = |name: &str, value: &dyn Fn(u64) -> Vec<u8>| {
            let array = batch.get(name).unwrap();
            for (i, &id) in batch.ids.iter().enumerate() {
                assert_eq!(array.sample(i), value(id), "{name} of {id}");
            }
            array.shape().clone()
        };
        each("mask", &mask);
        let captions = each("caption", &|id| {
            "word ".repeat(1 + id as usize % 5).into_bytes()
        });
        assert!(matches!(captions.layout, Layout::Ragged { .. }));
        let score = each("score", &|id| (id as f32 + 0.5).to_ne_bytes().to_vec());
        assert_eq!(score.dims, [n]);
        each("big", &|id| {
            (9_007_199_254_740_993_i64 - id as i64)
                .to_ne_bytes()
                .to_vec()
        });
        let corners = |id: u64| {
            [id as f64, -1.25]
                .iter()
                .flat_map(|x| x.to_ne_bytes())
                .collect()
        };
        assert_eq!(each("box", &corners).dims, [n, 2]);
        let tags = |id: u64| (0..id as i64 % 4).flat_map(i64::to_ne_bytes).collect();
        assert!(matches!(each("tags", &tags).layout, Layout::Ragged { .. }));
        each("class", &|id| (id as i64 % 3).to_ne_bytes().to_vec());
        let row = |id: u64| {
            (0..6)
                .flat_map(|i| (id as f32 - i as f32).to_ne_bytes())
                .collect()
        };
        assert_eq!(each("array", &row).dims, [n, 2, 3]);
        each("whole", &|id| {
            (0..6).flat_map(|i| (id as i64 - i).to_ne_bytes()).collect()
        });
        assert!(
            batch
                .get("all")
                .unwrap()
                .bytes()
                .starts_with(b"{\"score\": ")
        );
        assert_eq!(batch.values::<i64>("label"), batch.values::<i64>("class"));
        assert_eq!(batch.fields.len(), 12);
    }
}

#[test]
fn masks_and_other_pictures_go_where_their_picture_goes() {
    let folder = tempfile::tempdir().unwrap();
    let tarred = samples(folder.path(), None);
    // The same from fields of raw records with masks without channels.
    let path = folder.path().join("x.bin");
    let record = |id: u64| {
        let colours = mask(id).into_iter().flat_map(|v| [v, 255 - v, 7]);
        let colours: Vec<u8> = colours.collect();
        [&colours[..], &mask(id), &colours].concat()
    };
    fs::write(&path, (0..SAMPLES).flat_map(record).collect::<Vec<u8>>()).unwrap();
    let raw = OpenOptions {
        format: FormatKind::from_name("raw:image:u8[14,16,3],mask_a:u8[14,16],image_b:u8[14,16,3]"),
        ..OpenOptions::default()
    };
    let raw = Arc::new(Dataset::open(&[path], &raw).unwrap());
    let of_members = decoded("image=png,mask_a=seg.png,mask_b=seg.png:image,image_b=png");
    let mut mirrored = 0;
    for (dataset, stages, masks) in [
        (tarred, of_members, vec!["mask_a", "mask_b"]),
        (raw, Stages::default(), vec!["mask_a"]),
    ] {
        for (text, planar) in [
            ("randomcrop:12:2,flip,jitter:0,normalise:0:1", false),
            ("flip,crop:9,normalise:0:1", true),
        ] {
            let layout = if planar {
                pelton_image::Layout::Chw
            } else {
                pelton_image::Layout::Hwc
            };
            let pipeline: pelton_image::Pipeline = text.parse().unwrap();
            let augment = AugmentImages::by(pipeline.with_layout(layout));
            let stages = stages.clone().planar(planar).then(augment);
            for batch in batches(&dataset, &stages).unwrap() {
                let image = batch.get("image").unwrap().shape().dims.clone();
                let pixels = batch.values::<f32>("image").unwrap();
                assert_eq!(batch.values::<f32>("image_b").unwrap(), pixels);
                let each = pixels.len() / batch.len();
                for name in &masks {
                    let found = batch.get(name).unwrap();
                    let side = if planar { 9 } else { 12 };
                    let sides = if planar {
                        [batch.len(), 1, side, side]
                    } else {
                        [batch.len(), side, side, 1]
                    };
                    assert_eq!(found.shape().dims, sides, "{image:?}");
                    for (i, pixels) in pixels.chunks(each).enumerate() {
                        let red: Vec<u8> = if planar {
                            pixels[..each / 3]
                                .iter()
                                .map(|v| (v * 255.0).round() as u8)
                                .collect()
                        } else {
                            pixels
                                .chunks(3)
                                .map(|v| (v[0] * 255.0).round() as u8)
                                .collect()
                        };
                        assert_eq!(found.sample(i), red, "{name}, {text}");
                        let falls = red
                            .windows(2)
                            .filter(|pair| pair[1] == pair[0].wrapping_sub(3))
                            .count();
                        mirrored += usize::from(falls > red.len() / 2);
                    }
                }
            }
        }
    }
    // Two epochs of two augmentations, of three masks; half are mirrored.
    assert!((140..340).contains(&mirrored), "{mirrored}");
}

#[test]
fn boxes_move_with_their_picture() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = samples(folder.path(), None);
    let flip = |text: &str| AugmentImages::by(text.parse().unwrap());
    let stages = decoded("image=png,boxes=json:boxes:f32[,4]").then(flip("flip,resize:28x16"));
    let (mut mirrored, mut seen) = (0, 0);
    for batch in batches(&dataset, &stages).unwrap() {
        let found = batch.get("boxes").unwrap();
        for (i, &id) in batch.ids.iter().enumerate() {
            let is_mirrored = batch.get("image").unwrap().sample(i)[0] != mask(id)[0];
            let expected = boxes(id).into_iter().flat_map(|[x1, y1, x2, y2]| {
                let (x1, x2) = if is_mirrored {
                    (16.0 - x2, 16.0 - x1)
                } else {
                    (x1, x2)
                };
                [x1, 2.0 * y1, x2, 2.0 * y2]
            });
            let expected: Vec<u8> = expected.flat_map(f32::to_ne_bytes).collect();
            assert_eq!(found.sample(i), expected, "{id}");
            mirrored += usize::from(is_mirrored);
            seen += 1;
        }
    }
    assert!((seen / 4..seen * 3 / 4).contains(&mirrored), "{mirrored}");
    let error = batches(
        &dataset,
        &decoded("image=png,boxes=json:flat:f32[,4]").then(flip("flip")),
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("has boxes within one pixel")
    );
    let error = batches(
        &dataset,
        &decoded("image=png,boxes=json:sides:f32[4]").then(flip("flip")),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("not left, top, width and height"), "{error}");
    // Boxes that nothing moves are as they were stored.
    let stages = decoded("image=png,box=json:in.box:f64[2]").then(flip("jitter:0.4"));
    assert_eq!(
        batches(&dataset, &stages).unwrap()[0]
            .get("box")
            .unwrap()
            .dtype(),
        pelton_batch::DType::F64
    );
    for fields in [
        "image=png,box=json:in.box:f64[2]",
        "image=png,bbox=json:boxes:f32[,4]",
    ] {
        let error = batches(&dataset, &decoded(fields).then(flip("flip"))).unwrap_err();
        let part = "would stay as it is while its picture is cropped";
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn what_is_asked_for_by_number_has_the_same_fields() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = samples(folder.path(), None);
    let stages =
        decoded("image=png,mask=seg.png,label=json:score,spot=json:in.box:f32[2],image_b=png");
    let stages = stages.then(AugmentImages::by(
        "rrc:8,flip,jitter:0.4,cutout:2".parse().unwrap(),
    ));
    let plan = stream(&dataset, &spec(8, "1", "1"));
    let reader = Samples::new(Arc::clone(&dataset), plan, stages.clone(), &options()).unwrap();
    let batch = reader.batch(1, &[9, 3]).unwrap();
    // A stage's label replaces the data's own.
    assert_eq!(batch.values::<f32>("label"), Some(&[9.5, 3.5][..]));
    assert_eq!(batch.get("mask").unwrap().shape().dims, [2, 8, 8, 1]);
    assert_eq!(batch.values::<u8>("image_b"), batch.values::<u8>("image"));
    let fields = reader.sample(1, 3).unwrap();
    assert_eq!(fields.get("mask").unwrap().shape().dims, [1, 8, 8, 1]);
    for name in ["image", "image_b", "mask", "label", "spot"] {
        let alone = fields.get(name).unwrap();
        assert_eq!(alone.bytes(), batch.get(name).unwrap().sample(1), "{name}");
    }
    assert_eq!(fields.len(), 5);
}

#[test]
fn what_lacks_or_does_not_fit_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = samples(folder.path(), Some(7));
    let fails = |stages: &Stages, says: &str| {
        let error = batches(&dataset, stages).unwrap_err().to_string();
        let place = error.contains("samples.tar: record ");
        assert!(place && error.contains(says), "{error}");
    };
    fails(
        &decoded("image=png,mask=seg.png"),
        "no member .seg.png, which `decode` mask=seg.png needs; it has .png, .txt, .json, .cls, .npy",
    );
    fails(
        &decoded("a=json:in"),
        "its json: in of its member .json is an object",
    );
    fails(
        &decoded("a=json:in.box"),
        "not a single number; state its lengths, as in f32[4]",
    );
    fails(
        &decoded("a=json:score:f32[1]"),
        "a number by itself and no array of [1]",
    );
    fails(
        &decoded("a=json:score:i64"),
        "does not fit int64; choose another type",
    );
    fails(&decoded("a=json:big:i32"), "does not fit int32");
    fails(
        &decoded("a=npy:f32[3,2]"),
        "it is an array of [2, 3], not of [3, 2]",
    );
    fails(&decoded("a=npy:u8[2,3]"), "does not fit uint8");
    fails(&decoded("a=txt:f32"), "its txt: \"word\" is not a number");
    fails(&decoded("a=png:f32"), "it is not text");
    let second = decoded("image=png,right=png").then(AugmentImages::by("flip".parse().unwrap()));
    let error = second.spec(&dataset).unwrap_err();
    assert!(
        error.contains("call it image_right, or mask_right"),
        "{error}"
    );
    // Pictures that differ in size from their masks.
    let stages = decoded("image=png,mask=other.png");
    let path = folder.path().join("two.tar");
    let grey = |sides| {
        png(
            png::ColorType::Grayscale,
            sides,
            &vec![9; sides.0 * sides.1],
        )
    };
    let file = [
        tar::member("a.png", &grey((5, 6))),
        tar::member("a.other.png", &grey((6, 5))),
        tar::end(),
    ];
    fs::write(&path, file.concat()).unwrap();
    let stages = stages.then(AugmentImages::by("flip".parse().unwrap()));
    let error = batches(&open(&[path]), &stages).unwrap_err().to_string();
    assert!(
        error.contains("its `mask` has 6 × 5 pixels, the picture 5 × 6"),
        "{error}"
    );
}

#[test]
fn fields_of_records_are_taken_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    let record = |id: u8| [[id; 4].as_slice(), &[9, id, 0]].concat();
    fs::write(&path, (0..30).flat_map(record).collect::<Vec<u8>>()).unwrap();
    let options = OpenOptions {
        format: FormatKind::from_name("raw:photo:u8[2,2],depth:u8,number:u8,pad[1]"),
        ..OpenOptions::default()
    };
    let dataset = Arc::new(Dataset::open(&[path], &options).unwrap());
    // Arrays are pictures already, also if the text says so.
    for batch in batches(&dataset, &decoded("image=photo:image,id=number")).unwrap() {
        let ids: Vec<u8> = batch.ids.iter().map(|&id| id as u8).collect();
        assert_eq!(batch.values::<u8>("id").unwrap(), ids);
        assert_eq!(
            batch.get("image").unwrap().shape().dims,
            [batch.len(), 2, 2]
        );
        assert!(batch.get("depth").is_none() && batch.get("photo").is_none());
    }
    let error = decoded("a=gone").spec(&dataset).unwrap_err();
    assert!(
        error.contains("needs a field gone, and the records have photo, depth, number"),
        "{error}"
    );
    let spec = |fields: &str| {
        let options = OpenOptions {
            format: FormatKind::from_name(&format!("raw:image:u8[1,1],{fields}:i32[1,1],pad[2]")),
            ..OpenOptions::default()
        };
        let path = dataset.files()[0].path().to_path_buf();
        let augment = AugmentImages::by("flip".parse().unwrap());
        let stages = Stages::default().then(augment);
        stages.spec(&Dataset::open(&[path], &options).unwrap())
    };
    assert_eq!(spec("mask").unwrap().get("mask").unwrap().dtype, DType::I32);
    for (name, part) in [
        ("image_2", "`image_2` has int32; store it as uint8"),
        ("depth", "mask_depth"),
    ] {
        let error = spec(name).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
