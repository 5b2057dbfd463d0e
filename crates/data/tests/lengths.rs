//! Batches of about one length, with record lengths from a field, a file or the program.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pelton_batch::Layout;
use pelton_comm::Comm;
use pelton_data::{DataConfig, DataError, OpenedData, PipelineTerms, PreparedPipeline, open};
use pelton_feed::PipelineConfig;
use pelton_fetch::Access;
use pelton_plan::Order;
use pelton_run::{Event, Interrupt, RunContext};

const RECORDS: u64 = 90;

/// How many tokens a record has.
fn tokens(id: u64) -> u64 {
    1 + id * 7 % 23
}

/// Records with a list of tokens, a text of another length, and the list's length as a number.
fn records(folder: &Path) -> DataConfig {
    let line = |id: u64| {
        let list: Vec<u64> = (0..tokens(id)).collect();
        let text = "x".repeat(40 - tokens(id) as usize);
        let n = tokens(id);
        format!("{{\"n\": {n}, \"part\": {n}.5, \"text\": \"{text}\", \"tokens\": {list:?}}}\n")
    };
    let path = folder.join("records.jsonl");
    fs::write(&path, (0..RECORDS).map(line).collect::<String>()).unwrap();
    DataConfig {
        paths: vec![path.display().to_string()],
        cache_dir: Some(folder.join("cache")),
        ..DataConfig::default()
    }
    .with_bytes()
}

fn terms(lengths: Option<Arc<[u32]>>) -> PipelineTerms {
    PipelineTerms {
        order: Order::Full,
        among: None,
        sampler: None,
        lengths,
        batch: Some(6),
        seed: 3,
        epochs: Some(1),
        memory_bytes: 8 << 20,
        threads: 2,
        access: Access::Auto,
        cache: None,
        ranks: None,
        by_class: false,
        vocabulary: None,
    }
}

fn with<T>(data: &DataConfig, work: impl FnOnce(&OpenedData, &mut RunContext<'_>) -> T) -> T {
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let opened = open(data, &data.paths, None, &mut context).unwrap();
    work(&opened, &mut context)
}

fn config(lengths: Option<&str>) -> PipelineConfig {
    PipelineConfig {
        buckets: Some("static:6,12,23".parse().unwrap()),
        collate: "pad".parse().unwrap(),
        lengths: lengths.map(|text| text.parse().unwrap()),
        ..PipelineConfig::default()
    }
}

fn npy(folder: &Path, name: &str, numbers: &[f64]) -> String {
    let count = numbers.len();
    let head = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({count},), }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((head.len() as u16).to_le_bytes());
    file.extend(head.bytes());
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    let path = folder.join(name);
    fs::write(&path, file).unwrap();
    path.display().to_string()
}

/// Checks that all records come, each batch from one bucket; `fixed` says that tokens are padded to the bucket's
/// length.
fn check(pipeline: &PreparedPipeline, fixed: bool) {
    let mut ids = Vec::new();
    for batch in pipeline.loader(None, &Comm::alone()).unwrap() {
        let batch = batch.unwrap();
        let bucket = |id: u64| [6, 12, 23].into_iter().find(|end| tokens(id) <= *end);
        let end = bucket(batch.ids[0]).unwrap();
        assert!(batch.ids.iter().all(|&id| bucket(id) == Some(end)));
        let longest = batch.ids.iter().map(|&id| tokens(id)).max().unwrap();
        let shape = batch.get("tokens").unwrap().shape();
        let padded = if fixed { end } else { longest };
        assert_eq!(shape.dims, [batch.len(), padded as usize]);
        let Layout::Padded { lengths } = &shape.layout else {
            panic!("{shape:?}")
        };
        assert!(
            lengths
                .iter()
                .zip(&batch.ids)
                .all(|(n, &id)| u64::from(*n) == tokens(id))
        );
        // The text has another length than the bucket, so it is padded to the longest of the batch.
        let text = batch.get("text").unwrap().shape();
        let longest = batch.ids.iter().map(|&id| 40 - tokens(id)).max().unwrap();
        assert_eq!(text.dims, [batch.len(), longest as usize]);
        ids.extend(batch.ids);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..RECORDS).collect::<Vec<u64>>());
}

#[test]
fn a_field_a_file_or_the_program_says_how_long_records_are() {
    let folder = tempfile::tempdir().unwrap();
    let data = records(folder.path());
    let numbers: Vec<f64> = (0..RECORDS).map(|id| tokens(id) as f64).collect();
    let file = npy(folder.path(), "lengths.npy", &numbers);
    let given: Arc<[u32]> = (0..RECORDS).map(|id| tokens(id) as u32).collect();
    with(&data, |opened, context| {
        let mut prepared = |lengths: Option<&str>, given| {
            PreparedPipeline::new(&config(lengths), &terms(given), opened, context).unwrap()
        };
        let of_field = prepared(Some("field:tokens"), None);
        check(&of_field, true);
        let others = [
            prepared(Some("field:n"), None),
            prepared(Some(&file), None),
            prepared(None, Some(Arc::clone(&given))),
        ];
        for other in &others {
            check(other, false);
            assert_eq!(other.plan().fingerprint(), of_field.plan().fingerprint());
        }
        // Counted once: the second time they come from the cache.
        check(&prepared(Some("field:tokens"), None), true);
        let kept = fs::read_dir(&opened.cache_dir).unwrap();
        let kept = kept.filter(|file| {
            let name = file.as_ref().unwrap().file_name();
            name.to_string_lossy().contains(".pelton-lengths-")
        });
        assert_eq!(kept.count(), 2, "of two fields");
        // Evaluation has no buckets, and needs no lengths.
        let measured = others[2].evaluation(opened, None, context).unwrap();
        assert!(measured.plan().bucket_layout().is_none());
        // A filter uses the same lengths.
        let kept = PipelineConfig {
            keep_lengths: Some("5..9".parse().unwrap()),
            ..config(Some("field:n"))
        };
        let kept = PreparedPipeline::new(&kept, &terms(None), opened, context).unwrap();
        let expected = (0..RECORDS).filter(|&id| (5..=9).contains(&tokens(id)));
        assert_eq!(kept.plan().examples(), expected.count() as u64);
    });
}

#[test]
fn lengths_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = records(folder.path());
    let few = npy(folder.path(), "few.npy", &[1.0, 2.0]);
    let half = npy(folder.path(), "half.npy", &[1.0, 0.5]);
    with(&data, |opened, context| {
        let mut refuses = |config: &PipelineConfig, given: Option<Arc<[u32]>>, says: &str| {
            let refused = PreparedPipeline::new(config, &terms(given), opened, context);
            let error = refused.err().unwrap();
            assert!(matches!(error, DataError::Config(_)), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        };
        let one = || Some(Arc::from([1_u32]));
        refuses(&config(None), one(), "1 lengths are given for 90 records");
        refuses(
            &config(Some(&few)),
            None,
            "2 lengths are given for 90 records",
        );
        refuses(&config(Some(&half)), None, "0.5 is not a length");
        refuses(&config(Some("field:n")), one(), "give only one of them");
        refuses(
            &config(Some("field:gone")),
            None,
            "only n, part, text, tokens",
        );
        refuses(&config(Some("field:part")), None, "record 0 has 1.5 there");
        let nothing = PipelineConfig {
            buckets: None,
            ..config(Some("field:n"))
        };
        refuses(&nothing, None, "does nothing without `buckets`");
    });
}
