//! The Penn Treebank as language models use it: the usual published figures, from its files through the pipeline.

use std::path::{Path, PathBuf};

use pelton_batch::Layout;
use pelton_comm::Comm;
use pelton_data::{DataConfig, OpenedData, PipelineTerms, PreparedPipeline, open};
use pelton_feed::{PipelineConfig, Tokenise};
use pelton_fetch::Access;
use pelton_plan::Order;
use pelton_run::{Event, Interrupt, RunContext};
use pelton_text::Special;

/// Ends of sentences, unknown tokens and all tokens of one epoch, and the reported number of unknown ones.
fn tokens(pipeline: &PreparedPipeline) -> [u64; 4] {
    let mut loader = pipeline.loader(None, &Comm::alone()).unwrap();
    let (mut ends, mut unknown, mut all) = (0, 0, 0);
    for _ in 0..pipeline.plan().steps(0) {
        let batch = loader.next().unwrap().unwrap();
        let found = batch.get("tokens").unwrap();
        let Layout::Padded { lengths, .. } = &found.shape().layout else {
            panic!("sentences are padded")
        };
        let width = found.shape().dims[1];
        let numbers = batch.values::<u32>("tokens").unwrap();
        for (row, &length) in numbers.chunks(width).zip(lengths) {
            let sentence = &row[..length as usize];
            assert_eq!(sentence.last(), Some(&Special::End.id()));
            let count = |of: Special| sentence.iter().filter(|id| **id == of.id()).count() as u64;
            ends += count(Special::End);
            unknown += count(Special::Unknown);
            all += sentence.len() as u64;
        }
    }
    let counted = loader.meters().counted(Tokenise::UNKNOWN_TOKENS);
    [ends, unknown, all, counted]
}

fn files(folder: &Path, name: &str) -> Vec<String> {
    vec![folder.join(name).display().to_string()]
}

#[test]
fn sentences_have_the_tokens_that_are_reported_of_them() {
    let real = std::env::var_os("PELTON_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = real.join("ptb");
    if !folder.exists() {
        eprintln!(
            "SKIPPED: {} is missing; set PELTON_DATA to the folder of real data",
            folder.display()
        );
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let data = DataConfig {
        paths: files(&folder, "ptb.train.txt"),
        cache_dir: Some(cache.path().to_path_buf()),
        ..DataConfig::default()
    }
    .with_bytes();
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let open_file = |name: &str, context: &mut RunContext<'_>| -> OpenedData {
        open(&data, &files(&folder, name), None, context).unwrap()
    };
    let training = open_file("ptb.train.txt", &mut context);
    let test = open_file("ptb.test.txt", &mut context);
    let valid = open_file("ptb.valid.txt", &mut context);
    let terms = PipelineTerms {
        order: Order::Full,
        among: None,
        sampler: None,
        lengths: None,
        batch: Some(32),
        seed: 0,
        epochs: Some(1),
        memory_bytes: 32 << 20,
        threads: 2,
        access: Access::Auto,
        cache: None,
        ranks: None,
        by_class: false,
        vocabulary: None,
    };
    let mut figures = |decode: &str| {
        let config = PipelineConfig {
            decode: decode.parse().unwrap(),
            buckets: Some("auto".parse().unwrap()),
            ..PipelineConfig::default()
        };
        let pipeline = PreparedPipeline::new(&config, &terms, &training, &mut context).unwrap();
        let size = pipeline.vocabulary().unwrap().size();
        let test = pipeline.evaluation(&test, None, &mut context).unwrap();
        let valid = pipeline.evaluation(&valid, None, &mut context).unwrap();
        let of = [&pipeline, &valid, &test].map(tokens);
        (size, of)
    };
    // 10 000 with <unk> and <eos>, plus <pad> and <bos>, unused here. The text contains `<unk>` itself, and the other
    // parts have no new words.
    let (size, [train, valid, test]) = figures("words");
    assert_eq!(size, 10_002);
    assert_eq!(train, [42_068, 45_020, 929_589, 45_020]);
    assert_eq!((valid[0], valid[2]), (3_370, 73_760));
    assert_eq!((test[0], test[2]), (3_761, 82_430));
    assert_eq!((valid[1], test[1]), (valid[3], test[3]));
    // Bytes of the files; each end of a line is an end of a sentence.
    let (size, [train, valid, test]) = figures("bytes");
    assert_eq!(size, 260);
    let all = [train[2], valid[2], test[2]];
    assert_eq!(all, [5_101_618, 399_782, 449_945]);
}
