//! How pipelines are spelt, what sizes they have, and what is refused.

use pelton_image::{Augment, Output, Pipeline, Pixels, Values, Workspace};
use proptest::prelude::*;

#[track_caller]
fn check(text: &str, stages: &[Augment], canonical: &str) {
    let pipeline: Pipeline = text.parse().unwrap();
    assert_eq!(pipeline.stages(), stages, "{text}");
    assert_eq!(pipeline.to_string(), canonical);
}

#[test]
fn every_stage_has_its_spelling() {
    let imagenet = Augment::Normalise {
        mean: [0.485, 0.456, 0.406],
        deviation: [0.229, 0.224, 0.225],
    };
    let rrc = Augment::RandomResizedCrop {
        side: 224,
        least: 0.08,
        most: 1.0,
    };
    let flip = Augment::Flip { chance: 0.5 };
    let jitter = |brightness, contrast, saturation, hue| Augment::Jitter {
        brightness,
        contrast,
        saturation,
        hue,
    };
    check("", &[], "");
    check(
        "rrc:224,flip,jitter:0.4:0.4:0.4:0.1,normalise",
        &[rrc, flip, jitter(0.4, 0.4, 0.4, 0.1), imagenet],
        "rrc:224,flip,jitter:0.4:0.4:0.4:0.1,normalise",
    );
    check(
        "resize:256,crop:224",
        &[
            Augment::ResizeShorter { side: 256 },
            Augment::Crop { side: 224 },
        ],
        "resize:256,crop:224",
    );
    check(
        "resize:32x48",
        &[Augment::Resize {
            height: 32,
            width: 48,
        }],
        "resize:32x48",
    );
    check(
        "randomcrop:32:4,randomcrop:8,randomcrop:8:0",
        &[(32, 4), (8, 0), (8, 0)].map(|(side, padding)| Augment::RandomCrop { side, padding }),
        "randomcrop:32:4,randomcrop:8,randomcrop:8",
    );
    check("rrc:224:0.08-1", &[rrc], "rrc:224");
    check(
        "rrc:9:0.25-0.5",
        &[Augment::RandomResizedCrop {
            side: 9,
            least: 0.25,
            most: 0.5,
        }],
        "rrc:9:0.25-0.5",
    );
    check("flip:0.50", &[flip], "flip");
    check("flip:1", &[Augment::Flip { chance: 1.0 }], "flip:1");
    check(
        "jitter:0.4",
        &[jitter(0.4, 0.0, 0.0, 0.0)],
        "jitter:0.4:0:0:0",
    );
    check("cutout:16", &[Augment::CutOut { side: 16 }], "cutout:16");
    let affine = Augment::Affine {
        degrees: 10.0,
        shift: 0.08,
        scale: 0.15,
        shear: 0.0,
    };
    check("affine:10:0.08:0.15", &[affine], "affine:10:0.08:0.15");
    check("affine:10:.080:0.15:0", &[affine], "affine:10:0.08:0.15");
    check("grey", &[Augment::Grey], "grey");
    check(
        "normalise:0.485/0.456/0.406:0.229/0.224/0.225",
        &[imagenet],
        "normalise",
    );
    check(
        "normalise:0.5:0.25/0.5/0.25",
        &[Augment::Normalise {
            mean: [0.5; 3],
            deviation: [0.25, 0.5, 0.25],
        }],
        "normalise:0.5:0.25/0.5/0.25",
    );
    check(
        "normalise:-1:1,cutout:3",
        &[
            Augment::Normalise {
                mean: [-1.0; 3],
                deviation: [1.0; 3],
            },
            Augment::CutOut { side: 3 },
        ],
        "normalise:-1:1,cutout:3",
    );
}

fn side() -> impl Strategy<Value = u32> {
    prop_oneof![1_u32..=8192, Just(1), Just(8192)]
}

fn stage() -> impl Strategy<Value = Augment> {
    let mean = prop::array::uniform3(-1e6_f32..1e6);
    let deviation = prop::array::uniform3(1e-20_f32..1e20);
    prop_oneof![
        side().prop_map(|side| Augment::ResizeShorter { side }),
        (side(), side()).prop_map(|(height, width)| Augment::Resize { height, width }),
        side().prop_map(|side| Augment::Crop { side }),
        (side(), 0_u32..=8192).prop_map(|(side, padding)| Augment::RandomCrop { side, padding }),
        (side(), 1e-9..1.0, 0.0..1.0).prop_map(|(side, least, more)| {
            let most = least + (1.0 - least) * more;
            Augment::RandomResizedCrop { side, least, most }
        }),
        (0.0..=1.0).prop_map(|chance| Augment::Flip { chance }),
        (0.0..100.0, 0.0..1.0, 0.0..1e-3, 0.0..0.5).prop_map(
            |(brightness, contrast, saturation, hue)| Augment::Jitter {
                brightness,
                contrast,
                saturation,
                hue
            }
        ),
        side().prop_map(|side| Augment::CutOut { side }),
        (0.0..=180.0, 0.0..=1.0, 0.0..=0.9, 0.0..=80.0).prop_map(
            |(degrees, shift, scale, shear)| Augment::Affine {
                degrees,
                shift,
                scale,
                shear,
            }
        ),
        Just(Augment::Grey),
        (mean, deviation).prop_map(|(mean, deviation)| Augment::Normalise { mean, deviation }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(stages in prop::collection::vec(stage(), 0..8)) {
        if let Ok(pipeline) = Pipeline::new(stages) {
            prop_assert_eq!(pipeline.to_string().parse::<Pipeline>(), Ok(pipeline));
        }
    }

    #[test]
    fn one_stage_is_read_again(stage in stage()) {
        prop_assert_eq!(stage.to_string().parse::<Augment>(), Ok(stage));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9:,x/.\\-]{0,40}") {
        if let Ok(pipeline) = text.parse::<Pipeline>() {
            prop_assert_eq!(pipeline.to_string().parse::<Pipeline>(), Ok(pipeline));
        }
    }
}

#[track_caller]
fn check_refusal(text: &str, message: &str) {
    assert_eq!(text.parse::<Pipeline>().unwrap_err().to_string(), message);
}

#[test]
fn refusals_name_the_stage_and_the_rule() {
    let side = "a side is a whole number from 1 to 8192";
    for (stage, name) in [
        ("resize:0", "resize"),
        ("resize:8193", "resize"),
        ("resize:5x0", "resize"),
        ("resize:+5", "resize"),
        ("crop:", "crop"),
        ("crop:1.5", "crop"),
        ("randomcrop:99999999999", "randomcrop"),
        ("rrc:x", "rrc"),
        ("cutout:-1", "cutout"),
    ] {
        let text = format!("flip,{stage}");
        check_refusal(
            &text,
            &format!("'{stage}' asks for what {name} cannot do: {side}"),
        );
    }
    let affine = "its parameters are degrees (0 to 180), a shift (0 to 1), a scale (0 to 0.9) and perhaps degrees of \
                  shear (0 to 80), as in 10:0.08:0.15:8";
    for (stage, name, rule) in [
        ("crop", "crop", "it has one parameter, a side"),
        ("cutout:1:2", "cutout", "it has one parameter, a side"),
        ("affine:1:0.1", "affine", affine),
        ("affine:181:0:0", "affine", affine),
        ("affine:1:0:1", "affine", affine),
        (
            "resize",
            "resize",
            "it has one parameter: the shorter side, or height x width as in 224x320",
        ),
        (
            "randomcrop",
            "randomcrop",
            "its parameters are a side and perhaps a padding",
        ),
        (
            "randomcrop:8:8193",
            "randomcrop",
            "padding is a whole number from 0 to 8192",
        ),
        (
            "rrc",
            "rrc",
            "its parameters are a side and perhaps the parts of the area, MIN-MAX",
        ),
        ("flip:1.1", "flip", "a chance lies from 0 to 1"),
        ("flip:inf", "flip", "a chance lies from 0 to 1"),
        ("flip:1:1", "flip", "its one parameter is a chance"),
        (
            "jitter:101",
            "jitter",
            "brightness, contrast and saturation lie from 0 to 100",
        ),
        ("jitter:0:0:0:0.6", "jitter", "hue lies from 0 to 0.5"),
        (
            "jitter",
            "jitter",
            "its parameters are brightness, contrast, saturation and hue, as in 0.4:0.4:0.4:0.1",
        ),
        ("grey:1", "grey", "it has no parameter"),
        (
            "normalise:0:0",
            "normalise",
            "a deviation is a number above 0",
        ),
        (
            "normalise:0.5",
            "normalise",
            "its parameters are means and deviations of the channels, as in \
             0.485/0.456/0.406:0.229/0.224/0.225 or 0.5:0.5",
        ),
    ] {
        check_refusal(
            stage,
            &format!("'{stage}' asks for what {name} cannot do: {rule}"),
        );
    }
    for parts in ["0.5", "0-1", "0.6-0.5", "0.5-1.1", "-0.1-1"] {
        let text = format!("rrc:8:{parts}");
        let rule = "the parts of the area are MIN-MAX with 0 < MIN <= MAX <= 1";
        check_refusal(
            &text,
            &format!("'{text}' asks for what rrc cannot do: {rule}"),
        );
    }
    for text in [
        "flop",
        "flip,",
        ",flip",
        "flip,,flip",
        "0.4",
        "Flip",
        "jitter:0.4,0.4",
    ] {
        let error = text.parse::<Pipeline>().unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("' is not known: use resize:S"),
            "{text}: {error}"
        );
    }
    check_refusal(
        "normalise,flip",
        "'flip' cannot follow normalise, which makes floats of bytes: only cutout may come after it",
    );
    check_refusal(
        "normalise,normalise",
        "'normalise' cannot follow normalise, which makes floats of bytes: only cutout may come after \
         it",
    );
    check_refusal(
        "grey,normalise",
        "normalise has a mean for each of three channels and the output has one: give one mean and \
         deviation, for instance normalise:0.449:0.226",
    );
    let refused = Pipeline::new(vec![Augment::Flip { chance: f64::NAN }]).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("asks for what flip cannot do"),
        "{refused}"
    );
}

#[test]
fn images_that_do_not_fit_are_refused() {
    let mut pixels = Pixels::new();
    pixels.set(1, 3000, 1, pelton_image::Layout::Hwc, &[5; 3000]);
    let mut work = Workspace::new();
    let mut apply = |text: &str| {
        let pipeline: Pipeline = text.parse().unwrap();
        let sized = pipeline.output_size(1, 3000);
        let error = pipeline
            .apply(&pixels, 0, &mut work, Output::Bytes(&mut []))
            .unwrap_err();
        assert_eq!(sized, Err(error.clone()));
        error.to_string()
    };
    assert_eq!(
        apply("resize:200"),
        "resize would make 600000 x 200 pixels of a 3000 x 1 image, more than 67108864: give both \
         sides, for instance resize:256x256",
    );
    assert_eq!(
        apply("randomcrop:32:8"),
        "randomcrop takes 32 x 32 pixels and the image has 3016 x 17 with its padding: resize it first",
    );
    let pipeline: Pipeline = "normalise".parse().unwrap();
    let error = pipeline
        .apply(&pixels, 0, &mut work, Output::Bytes(&mut []))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "normalise makes floats, which bytes cannot hold: ask for floats or leave it out",
    );
}

#[track_caller]
fn check_size(text: &str, fixed: Option<(u32, u32)>, of_a_photo: (u32, u32)) {
    let pipeline: Pipeline = text.parse().unwrap();
    assert_eq!(pipeline.fixed_size(), fixed, "{text}");
    assert_eq!(pipeline.output_size(533, 400), Ok(of_a_photo), "{text}");
    let channels = if text.contains("grey") { 1 } else { 3 };
    assert_eq!(pipeline.channels(), channels);
    let values = fixed.map(|(height, width)| height as usize * width as usize * channels);
    assert_eq!(pipeline.sample_bytes(Values::Bytes), values);
    assert_eq!(
        pipeline.sample_bytes(Values::Floats),
        values.map(|values| 4 * values)
    );
}

#[test]
fn sizes_are_known_where_they_are_fixed() {
    check_size("", None, (533, 400));
    check_size("flip,cutout:4,jitter:1", None, (533, 400));
    check_size("resize:256", None, (341, 256));
    check_size("resize:256,crop:224", Some((224, 224)), (224, 224));
    check_size("resize:100x50,resize:25,grey", Some((50, 25)), (50, 25));
    check_size("rrc:224,flip,normalise", Some((224, 224)), (224, 224));
    check_size("randomcrop:300:20", Some((300, 300)), (300, 300));
}

/// What chance decided becomes what a measurement looks at; the rest stays.
#[test]
fn for_evaluation_chance_is_left_out() {
    for (training, measured) in [
        ("randomcrop:32:4,flip,normalise", "crop:32,normalise"),
        (
            "rrc:224,flip,jitter:0.4,grey,cutout:16",
            "resize:256,crop:224,grey",
        ),
        ("resize:40x30,crop:28", "resize:40x30,crop:28"),
        ("rrc:8192", "resize:8192,crop:8192"),
    ] {
        let training: Pipeline = training.parse().unwrap();
        assert_eq!(training.evaluation(), measured.parse().unwrap());
    }
}
