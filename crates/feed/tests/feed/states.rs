//! The state of a loader as text: refused states, and resuming from valid ones.

use std::sync::Arc;

use pelton_feed::{FeedError, Loader, LoaderOptions, LoaderState, Stages, Tokenise};
use pelton_plan::{Catalog, Place, Plan, PlanSpec};
use pelton_text::{Ends, Vocabulary, VocabularyOptions};

use crate::loader::{lines, marked, options, planned, spec, stream};

#[test]
fn a_state_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 50);
    let first = stream(&dataset, &spec(8, "1", "1"));
    let other = stream(&dataset, &spec(9, "1", "1"));
    let loader = Loader::new(
        Arc::clone(&dataset),
        Arc::clone(&first),
        marked(),
        &options(),
    )
    .unwrap();
    let state = loader.state();
    let refused = |state: &LoaderState, stream: &Plan| {
        let error = state
            .resume(&dataset, stream, &marked(), &options())
            .unwrap_err();
        assert!(matches!(error, FeedError::State(_)));
        error.to_string()
    };
    assert!(refused(&state, &other).contains("another order"));
    let mut beyond = state.clone();
    beyond.step = 8;
    assert!(refused(&beyond, &first).contains("beyond"));
    let elsewhere = tempfile::tempdir().unwrap();
    let data = lines(elsewhere.path(), 49);
    let error = state
        .resume(&data, &first, &marked(), &options())
        .unwrap_err();
    assert!(error.to_string().contains("other data"), "{error}");
    let json = state.to_json();
    for text in [
        "",
        "{}",
        "[1]",
        &json.replace("\"version\":1", "\"version\":2"),
        &json[..20],
    ] {
        let error = LoaderState::from_json(text).unwrap_err();
        assert!(matches!(error, FeedError::State(_)), "{text}: {error}");
    }
    assert_eq!(LoaderState::from_json(&json).unwrap(), state);
    let options = state
        .resume(&dataset, &first, &marked(), &options())
        .unwrap();
    assert_eq!(options.start, Place::default());
}

/// A pipeline that maps words to numbers by the vocabulary of `text`.
fn of_words(text: &str, end: bool) -> Stages {
    let vocabulary = Vocabulary::from_sentences([text], &VocabularyOptions::default()).unwrap();
    let ends = Ends { begin: false, end };
    Stages::default().then(Tokenise::by(Arc::new(vocabulary), ends))
}

#[test]
fn a_state_of_another_vocabulary_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 50);
    let stream = stream(&dataset, &spec(8, "1", "1"));
    let state_of = |stages: &Stages| {
        let (dataset, stream) = (Arc::clone(&dataset), Arc::clone(&stream));
        let mut loader = Loader::new(dataset, stream, stages.clone(), &options()).unwrap();
        loader.next().unwrap().unwrap();
        loader.state()
    };
    let resume =
        |state: &LoaderState, stages: &Stages| state.resume(&dataset, &stream, stages, &options());
    let words = of_words("id word", true);
    let state = state_of(&words);
    // Words counted otherwise have the same numbers.
    let options = resume(&state, &of_words("id word id", true)).unwrap();
    assert_eq!(options.start, Place { epoch: 0, step: 1 });

    let refused = |state: &LoaderState, stages: &Stages, reason: &str| {
        let error = resume(state, stages).unwrap_err();
        assert!(matches!(error, FeedError::State(_)));
        assert!(error.to_string().contains(reason), "{error}");
    };
    for other in [
        of_words("id words", true),
        of_words("word word id", true),
        of_words("id word", false),
    ] {
        refused(&state, &other, "it was saved with other stages");
    }
    refused(
        &state,
        &marked(),
        "a stage that it was saved with is missing",
    );
    let plain = state_of(&marked());
    resume(&plain, &marked()).unwrap();
    refused(
        &plain,
        &words,
        "saved without a stage that must not be added",
    );

    let other = plain.to_json().replace("\"version\":1", "\"version\":2");
    let error = LoaderState::from_json(&other).unwrap_err().to_string();
    let says = "it has version 2 and this program reads version 1";
    assert!(error.contains(says), "{error}");
}

/// A state holds a hint of the last 64 steps; without it, or with a damaged one, the batches are the same.
#[test]
fn a_state_goes_on_with_its_hint_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 3000);
    let spec = PlanSpec {
        buckets: Some("static:9,10,20".parse().unwrap()),
        ..spec(7, "2:16", "1")
    };
    let length_of = |id| dataset.locate(id).length as u32;
    let over = Catalog::new(dataset.records()).with_lengths(&length_of);
    let stream = Arc::new(Plan::new(&spec, over).unwrap());
    let planned = planned(&stream, 2);
    let new = |options: &LoaderOptions| {
        Loader::new(Arc::clone(&dataset), Arc::clone(&stream), marked(), options).unwrap()
    };
    let mut loader = new(&options());
    for (step, expected) in planned.iter().enumerate() {
        let batch = loader.next().unwrap().unwrap();
        assert_eq!((&batch.ids, &batch.copies), (&expected.2, &expected.3));
        // A hint of the first steps of an epoch saves nothing.
        if step % 97 != 96 || expected.1 < 64 {
            continue;
        }
        let json = loader.state().to_json();
        let hint = json.split("\"hint\":\"").nth(1).expect("a hint");
        let (hint, _) = hint.split_once('"').unwrap();
        let damaged = json.replace(hint, &hint.replace('a', "b"));
        let without = json.replace(&format!(",\"hint\":\"{hint}\""), "");
        assert!(without.len() < json.len());
        for json in [&json, &damaged, &without] {
            let state = LoaderState::from_json(json).unwrap();
            let options = state.resume(&dataset, &stream, &marked(), &options());
            let mut resumed = new(&options.unwrap());
            for expected in planned[step + 1..].iter().take(3) {
                let batch = resumed.next().unwrap().unwrap();
                assert_eq!((&batch.ids, &batch.copies), (&expected.2, &expected.3));
            }
        }
    }
}
