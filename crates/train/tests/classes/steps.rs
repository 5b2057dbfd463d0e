//! Steps of every kind: optimisers, weights of classes, sparse gradients, half precision, and those that diverge.

use super::*;
use pelton_train::classify::Precision;

/// The norms of LARS include rows that wait, and it has its own default rate.
#[test]
fn lars_learns_by_default_and_goes_on_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "sampled:0.5");
    config.fit.optimizer = pelton_train::Optimizer::Lars;
    config.fit.rate = None;
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    run(&config, &whole, 2, false, None).unwrap();
    run(&config, &parts, 2, false, Some(5)).unwrap_err();
    run(&config, &parts, 2, true, None).unwrap();
    let expected = losses(&whole);
    assert_eq!(expected, losses(&parts));
    assert!(expected[1] < expected[0] - 0.2, "learns: {expected:?}");
}

/// Rows outside a step stay, and those of other ranks have taken equally many steps.
#[test]
fn adamw_learns_and_goes_on_exactly_and_on_other_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let mut config = config(folder.path(), kind);
        config.fit.optimizer = pelton_train::Optimizer::Adamw;
        config.fit.rate = Some(0.01);
        let whole = folder.path().join(format!("{kind}-whole"));
        run(&config, &whole, 2, false, None).unwrap();
        let expected = losses(&whole);
        assert!(expected[1] < expected[0] - 0.2, "{kind}: {expected:?}");
        for (from, to) in [(2, 2), (3, 1)] {
            let out = folder.path().join(format!("{kind}-{from}-{to}"));
            run(&config, &out, from, false, Some(5)).unwrap_err();
            run(&config, &out, to, true, None).unwrap();
            if from == to {
                assert_eq!(expected, losses(&out), "{kind}");
            } else {
                // Roundings of small gradients weigh as much as others.
                for (a, b) in expected.iter().zip(losses(&out)) {
                    assert!((a - b).abs() < 2e-3 * a, "{kind}: {a} {b}");
                }
            }
        }
    }
}

/// The loss of a step is divided by the total weight of its examples over all ranks and micro-batches.
#[test]
fn classes_have_weights_in_the_loss() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights.csv");
    let lines = (0..120).map(|class| format!("{class},{}\n", class % 3));
    std::fs::write(&weights, lines.collect::<String>()).unwrap();
    for kind in [Some("full"), Some("knn:5:0.4"), Some("mach:20:3"), None] {
        let mut config = config(folder.path(), kind.unwrap_or("full"));
        let what = kind.unwrap_or("no head");
        if kind.is_none() {
            config.head = None;
        } else {
            config.head.as_mut().unwrap().centre = false;
        }
        let mut losses_of = |name: &str, weights: Option<&str>, ranks: usize, micro: usize| {
            config.class_weights = weights.map(|weights| weights.parse().unwrap());
            if let Some(head) = &mut config.head {
                head.micro_batches = micro;
            }
            let out = folder.path().join(format!("{what}-{name}"));
            run(&config, &out, ranks, false, None).unwrap();
            losses(&out)
        };
        let plain = losses_of("plain", None, 1, 1);
        // The classes of the demo have equally many records.
        assert_close(what, &plain, &losses_of("balanced", Some("balanced"), 1, 1));
        let file = weights.to_str();
        let weighted = losses_of("weighted", file, 1, 1);
        assert!((weighted[1] - plain[1]).abs() > 1e-3, "{what}: {plain:?}");
        assert_close(what, &weighted, &losses_of("ranks", file, 3, 2));
    }
}

#[test]
fn sparse_gradients_learn_and_go_on_exactly() {
    sparse_gradients(|_| ());
}

#[test]
fn sparse_gradients_with_lars_learn_and_go_on_exactly() {
    sparse_gradients(|config| {
        config.fit.optimizer = pelton_train::Optimizer::Lars;
        config.fit.rate = None;
    });
}

/// On one rank that sends everything, the local rates equal those of LARS. Sending a gradient clears its momentum.
#[test]
fn sparse_gradients_that_are_all_sent_take_the_steps_of_lars() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "full");
    config.fit.optimizer = pelton_train::Optimizer::Lars;
    config.fit.rate = None;
    config.fit.momentum = 0.0;
    let mut runs = [1.0, 1.0 - 1e-9].map(|density| {
        config.head.as_mut().unwrap().density = density;
        let out = folder.path().join(density.to_string());
        run(&config, &out, 1, false, None).unwrap();
        losses(&out).into_iter()
    });
    let [dense, sparse] = &mut runs;
    for (a, b) in dense.zip(sparse) {
        assert!((a - b).abs() < 1e-4 * a, "{a} and {b}");
    }
}

fn sparse_gradients(change: impl Fn(&mut ImageConfig)) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "knn:5:0.4");
    config.head.as_mut().unwrap().density = 0.05;
    change(&mut config);
    let whole = folder.path().join("whole");
    run(&config, &whole, 2, false, None).unwrap();
    let expected = losses(&whole);
    assert!(expected[1] < expected[0] - 0.2, "learns: {expected:?}");
    for (from, to) in [(2, 2), (4, 3), (1, 2)] {
        let out = folder.path().join(format!("{from}-{to}"));
        let stopped = run(&config, &out, from, false, Some(15));
        assert!(matches!(stopped, Err(TrainError::Interrupted { .. })));
        run(&config, &out, to, true, None).unwrap();
        let found = losses(&out);
        if from == to {
            assert_eq!(expected, found)
        } else {
            // With more ranks, each selects other entries.
            assert!(found[1] < found[0] - 0.2, "{found:?}")
        }
    }
}

/// The largest norm is that of net and head together, and the head looks ahead as the net does.
#[test]
fn clipping_and_nesterov_reach_the_head() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let mut config = config(folder.path(), kind);
        // Vectors are features, so that the head alone learns, from random rows.
        config.model = "none".parse().unwrap();
        config.fit.rate = Some(0.3);
        let head = config.head.as_mut().unwrap();
        (head.begin, head.centre) = ("random".parse().unwrap(), false);
        let mut losses_of = |name: &str, ranks: usize, clip: Option<f64>, nesterov: bool| {
            config.fit.clip = clip;
            config.fit.nesterov = nesterov;
            let out = folder.path().join(format!("{kind}-{name}"));
            run(&config, &out, ranks, false, None).unwrap();
            losses(&out)
        };
        let ahead = losses_of("ahead", 1, None, true);
        let plain = losses_of("plain", 1, None, false);
        assert!(
            (ahead[0] - plain[0]).abs() > 1e-4,
            "{kind}: {ahead:?} {plain:?}"
        );
        assert!(ahead[1] < ahead[0] - 0.2, "{kind}: {ahead:?}");
        let still = losses_of("still", 1, Some(1e-6), false);
        assert!(
            (still[1] - still[0]).abs() < 0.1 * (plain[0] - plain[1]),
            "{kind}: {still:?}"
        );
        let clipped = losses_of("clipped", 1, Some(0.5), true);
        assert_close(kind, &clipped, &losses_of("ranks", 3, Some(0.5), true));
    }
}

/// Non-finite parameters of the head after the last step are not written.
#[test]
fn a_head_that_went_astray_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["full", "mach:20:3"] {
        let mut config = config(folder.path(), kind);
        config.model = "none".parse().unwrap();
        (config.fit.batch, config.fit.epochs, config.fit.rate) = (1000, 1, Some(1e30));
        let out = folder.path().join(kind.replace(':', "-"));
        let error = run(&config, &out, 2, false, None).unwrap_err().to_string();
        assert!(error.contains("no longer finite after step 1"), "{error}");
        assert!(!out.join("model.safetensors").exists());
        let files = std::fs::read_dir(out.join("checkpoint")).unwrap().count();
        assert_eq!(files, 0);
    }
}

/// Rates too high for any training: every head with every optimiser reports a value that is not finite and its step, or
/// ends with finite values. None panics.
#[test]
fn a_run_that_diverges_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut diverged = 0;
    for kind in KINDS {
        for (optimizer, momentum, nesterov) in [
            ("sgd", 0.9, true),
            ("sgd", 0.0, false),
            ("lars", 0.9, false),
            ("adamw", 0.9, false),
        ] {
            for (rate, logits, clip) in [
                (1e6, "product", None),
                (1e20, "product", None),
                (1e30, "cosine:16", Some(1.0)),
                (1e38, "cosine:16", None),
            ] {
                let of = [("none", 2, "f32"), ("none", 1, "bf16"), ("mlp", 1, "f32")];
                for (model, ranks, precision) in of {
                    let mut config = config(folder.path(), kind);
                    config.model = model.parse().unwrap();
                    config.fit.optimizer = optimizer.parse().unwrap();
                    (config.fit.momentum, config.fit.nesterov) = (momentum, nesterov);
                    (config.fit.rate, config.fit.clip) = (Some(rate), clip);
                    config.fit.epochs = 3;
                    config.head.as_mut().unwrap().logits = logits.parse().unwrap();
                    config.fit.precision = precision.parse().unwrap();
                    let what = format!(
                        "{kind} {optimizer} {momentum} {rate:e} {logits} {model} {ranks} {precision}"
                    );
                    let out = folder.path().join(&what);
                    let Err(error) = run(&config, &out, ranks, false, None) else {
                        continue;
                    };
                    diverged += 1;
                    let is_said = matches!(error, TrainError::NotANumber { .. });
                    let error = error.to_string();
                    let names = ["is no longer finite", "are no longer finite"];
                    assert!(
                        is_said
                            && names.iter().any(|name| error.contains(name))
                            && error.contains("step")
                            && error.contains("smaller `rate`"),
                        "{what}: {error}"
                    );
                    assert!(!out.join("model.safetensors").exists(), "{what}");
                }
            }
        }
    }
    assert!(diverged > 60, "{diverged}");
}

/// Products in bf16 move losses by a hundredth, in steps as steep as these; a run keeps its precision.
#[test]
fn half_precision_learns_and_goes_on_exactly() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let mut config = config(folder.path(), kind);
        let [f32, whole, parts] =
            ["f32", "whole", "parts"].map(|name| folder.path().join(format!("{kind}-{name}")));
        run(&config, &f32, 2, false, None).unwrap();
        config.fit.precision = Precision::Bf16;
        run(&config, &whole, 2, false, None).unwrap();
        run(&config, &parts, 2, false, Some(15)).unwrap_err();
        let kept = std::fs::read_to_string(parts.join("run.toml")).unwrap();
        assert!(kept.contains("precision = \"bf16\""), "{kept}");
        config.fit.precision = Precision::F32;
        let refused = run(&config, &parts, 2, true, None).unwrap_err().to_string();
        let said = "started with `precision` bf16 and cannot continue with f32";
        assert!(refused.contains(said), "{refused}");
        config.fit.precision = Precision::Bf16;
        run(&config, &parts, 2, true, None).unwrap();
        let (expected, found) = (losses(&f32), losses(&whole));
        assert_eq!(found, losses(&parts), "{kind}");
        for (expected, found) in expected.iter().zip(&found) {
            assert!(expected != found, "{kind}");
            assert!(
                (expected - found).abs() < 3e-2 * expected,
                "{kind}: {expected} {found}"
            );
        }
    }
}
