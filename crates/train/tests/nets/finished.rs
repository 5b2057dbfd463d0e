//! Finished nets measure and predict as their runs did.

use pelton_train::classify::Precision;
use pelton_train::evaluate::EvaluateConfig;
use pelton_train::finished::{self, Predicted, SampleConfig};

use super::*;

/// A finished run on data.
fn measured(out: &Path, data: &str) -> EvaluateConfig {
    EvaluateConfig {
        model: out.to_path_buf(),
        data: DataConfig {
            paths: vec![data.to_string()],
            ..DataConfig::default()
        },
        memory_bytes: 64 << 20,
    }
}

fn alone<T>(job: impl FnOnce(RunContext<'_>) -> T) -> T {
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
    job(RunContext::new(&comm, &interrupt, &mut |_: Event<'_>| ()))
}

#[test]
fn a_finished_net_of_images_measures_and_predicts_as_its_run_did() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_image(folder.path());
    let out = folder.path().join("run");
    let trained = run(out.clone(), false, None, |c| image::run(&config, c)).unwrap();
    let of = measured(&out, &config.fit.test[0]);
    let figures = alone(|c| finished::eval(&of, Some(2), c)).unwrap();
    assert_eq!(figures.test_accuracy, trained.test_accuracy);
    assert_eq!(Some(figures.test_loss), trained.test_loss);
    let mut lines = Vec::new();
    alone(|c| finished::predict_lines(&of, Predicted::Top(2), &mut lines, c)).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let data = std::fs::read(&config.fit.test[0]).unwrap();
    let right = |within: usize| {
        let is_right = |(line, record): &(&str, &[u8])| {
            let mut classes = line.split('\t').step_by(2).take(within);
            classes.any(|class| class == record[0].to_string())
        };
        let right = lines.lines().zip(data.chunks(3073)).filter(is_right);
        Some(right.count() as f64 / IMAGES as f64)
    };
    assert_eq!(lines.lines().count() as u64, figures.records);
    assert_eq!(figures.top_accuracy, right(2));
    assert_eq!(right(1), trained.test_accuracy);
    let file = out.join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let error = alone(|c| finished::eval(&of, None, c)).unwrap_err();
    assert!(error.to_string().contains("model.safetensors"), "{error}");
    assert_eq!(error.exit_code(), 2);
    let missing = measured(&folder.path().join("none"), &config.fit.test[0]);
    let error = alone(|c| finished::eval(&missing, None, c)).unwrap_err();
    assert!(error.to_string().contains("no run folder"), "{error}");
}

#[test]
fn a_finished_net_of_text_measures_as_its_run_did_and_makes_up_the_same_text() {
    for (carry, model) in [(None, "lstm"), (Some(5), "lstm"), (None, "transformer")] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = small_language(folder.path());
        config.carry = carry;
        config.model = model.parse().unwrap();
        let out = folder.path().join("run");
        let trained = run(out.clone(), false, None, |c| language::run(&config, c)).unwrap();
        let of = measured(&out, &config.fit.test[0]);
        let figures = alone(|c| finished::eval(&of, None, c)).unwrap();
        assert_eq!(figures.test_perplexity, trained.test_perplexity);
        let error =
            alone(|c| finished::predict_lines(&of, Predicted::Top(1), &mut vec![], c)).unwrap_err();
        assert!(error.to_string().contains("pelton sample"), "{error}");
        let text = |prompt: &str, seed: u64| {
            let of = SampleConfig {
                prompt: prompt.to_string(),
                words: 40,
                temperature: 1.0,
                top: 0,
                seed,
            };
            let mut text = Vec::new();
            let made = alone(|c| finished::sample(&out, &of, &mut text, &c));
            made.map(|()| String::from_utf8(text).unwrap())
        };
        let made = text("w1 w2", 7).unwrap();
        assert!(made.starts_with("w1 w2"), "{made}");
        assert_eq!(made, text("w1 w2", 7).unwrap());
        assert_ne!(made, text("w1 w2", 8).unwrap());
        let error = text("w1 zebra", 7).unwrap_err().to_string();
        assert!(error.contains("zebra"), "{error}");
    }
}

/// Products in bf16 lead to slightly different parameters in these few steps; measuring is in f32.
#[test]
fn half_precision_goes_on_exactly_and_is_measured_in_single() {
    let folder = tempfile::tempdir().unwrap();
    let (image, language) = (
        &mut small_image(folder.path()),
        &mut small_language(folder.path()),
    );
    image.fit.rate = Some(0.01);
    let mut precision = |to: Precision| {
        (image.fit.precision, language.fit.precision) = (to, to);
        (image.clone(), language.clone())
    };
    let [single, half] = [Precision::F32, Precision::Bf16].map(&mut precision);
    for is_text in [false, true] {
        let start =
            |(image, language): &(ImageConfig, LanguageConfig), name: &str, resume, steps| {
                let out = folder.path().join(format!("{name}-{is_text}"));
                let run = |out: &Path| match is_text {
                    false => run(out.into(), resume, steps, |c| image::run(image, c)),
                    true => run(out.into(), resume, steps, |c| language::run(language, c)),
                };
                run(&out).map(|summary| (model(&out), summary, out))
            };
        let (exact, ..) = start(&single, "exact", false, None).unwrap();
        let (whole, trained, out) = start(&half, "whole", false, None).unwrap();
        start(&half, "parts", false, Some(3)).unwrap_err();
        let refused = start(&single, "parts", true, None).unwrap_err().to_string();
        assert!(refused.contains("`precision` bf16"), "{refused}");
        assert_eq!(start(&half, "parts", true, None).unwrap().0, whole);
        let (mut size, mut away) = (0.0, 0.0);
        for (x, y) in exact.iter().zip(&whole) {
            assert!(x != y, "{}", x.0);
            size += x.1.iter().map(|x| x * x).sum::<f32>();
            away += (x.1.iter().zip(&y.1))
                .map(|(x, y)| (x - y).powi(2))
                .sum::<f32>();
        }
        assert!(away < 1e-3 * size, "{away} of {size}");
        let test = [&half.0.fit.test[0], &half.1.fit.test[0]][usize::from(is_text)];
        let figures = alone(|c| finished::eval(&measured(&out, test), None, c)).unwrap();
        assert_eq!(Some(figures.test_loss), trained.test_loss);
    }
}
