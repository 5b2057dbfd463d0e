//! The spelling of pipelines, their sizes, and refused ones.

use pelton_image::{Augment, Output, Pipeline, Pixels, Values, Workspace};
use proptest::prelude::*;

use crate::steps::examples;

#[track_caller]
fn check(text: &str, numbers: &[f64], canonical: &str) {
    let step: Augment = text.parse().unwrap();
    assert_eq!((step.numbers(), &*step.to_string()), (numbers, canonical));
}

#[test]
fn numbers_have_one_spelling() {
    let imagenet = [0.485, 0.456, 0.406, 0.229, 0.224, 0.225];
    check("resize:32x48", &[32.0, 48.0], "resize:32x48");
    check("randomcrop:32:4", &[32.0, 4.0], "randomcrop:32:4");
    check("randomcrop:8:0", &[8.0, 0.0], "randomcrop:8");
    let third = 4.0 / 3.0;
    check(
        "rrc:224:0.08-1",
        &[224.0, 0.08, 1.0, 0.75, third],
        "rrc:224",
    );
    check(
        "rrc:9:0.25-0.5",
        &[9.0, 0.25, 0.5, 0.75, third],
        "rrc:9:0.25-0.5",
    );
    check(
        "rrc:9x8:0.08-1:0.5-2",
        &[9.0, 8.0, 0.08, 1.0, 0.5, 2.0],
        "rrc:9x8:0.08-1:0.5-2",
    );
    check("flip:0.50", &[0.5], "flip");
    check("jitter:0.4:0", &[0.4, 0.0, 0.0, 0.0], "jitter:0.4");
    check(
        "affine:10:.080:0.15:0",
        &[10.0, 0.08, 0.15, 0.0],
        "affine:10:0.08:0.15",
    );
    check(
        "normalise:0.485/0.456/0.406:0.229/0.224/0.225",
        &imagenet,
        "normalise",
    );
    check(
        "normalise:-1/-1/-1:1",
        &[-1.0, -1.0, -1.0, 1.0, 1.0, 1.0],
        "normalise:-1:1",
    );
    check(
        "normalise:0.5:0.25/0.5/0.25",
        &[0.5, 0.5, 0.5, 0.25, 0.5, 0.25],
        "normalise:0.5:0.25/0.5/0.25",
    );
}

/// The text of a step with some other numbers, which may be out of range.
fn stage() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (1_u32..=8192).prop_map(|number| number.to_string()),
        (-1.0..2.0).prop_map(|number: f64| number.to_string()),
    ];
    let numbers = prop::collection::vec(prop::option::of(number), 7);
    let texts: Vec<&str> = examples().collect();
    (prop::sample::select(texts), numbers).prop_map(|(text, numbers)| {
        let parts = text.split_inclusive([':', '/', 'x', '-']).zip(numbers);
        let parts = parts.map(|(part, number)| match number {
            Some(number) if part.starts_with(|c: char| c.is_ascii_digit()) => {
                let sign = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                number + sign
            }
            _ => part.to_owned(),
        });
        parts.collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(stages in prop::collection::vec(stage(), 0..4)) {
        if let Ok(pipeline) = stages.join(",").parse::<Pipeline>() {
            prop_assert_eq!(pipeline.to_string().parse::<Pipeline>(), Ok(pipeline));
        }
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

#[track_caller]
fn check_rule(rule: &str, texts: &str) {
    for text in texts.split(' ') {
        let name = text.split(':').next().unwrap();
        let message = format!("'{text}' asks for what {name} cannot do: {rule}");
        check_refusal(&format!("flip,{text}"), &message);
    }
}

#[test]
fn refusals_name_the_stage_and_the_rule() {
    check_rule(
        "its parameter is the shorter side, or height x width as in 224x320, of 1 to 8192 pixels",
        "resize resize:0 resize:8193 resize:5x0 resize:+5 resize:5x5x5 resize:5:5",
    );
    let side = "its parameter is a side, a whole number from 1 to 8192";
    check_rule(side, "cutout cutout: cutout:1.5 cutout:-1 cutout:1:2");
    check_rule(
        "its parameter is a side, or height x width as in 224x320, whole numbers from 1 to 8192",
        "crop crop: crop:1.5 crop:5. crop:5x crop:5x5x5",
    );
    check_rule(
        "its parameters are an odd side (1 to 99), perhaps deviations, MIN-MAX with 0 < MIN <= MAX <= 100, and a chance \
         from 0 to 1",
        "blur blur:4 blur:101 blur:3:0-1 blur:3:2-1 blur:3:1",
    );
    check_rule(
        "its parameters are a side, or height x width (1 to 8192), and perhaps a padding (0 to 8192), whole numbers",
        "randomcrop randomcrop:99999999999 randomcrop:8:8193 randomcrop:8:1:1",
    );
    check_rule(
        "its parameters are a side, or height x width (1 to 8192), perhaps the parts of the area, MIN-MAX with \
         0 < MIN <= MAX <= 1, and perhaps the ratios of width to height, LEAST-MOST (0.01 to 100)",
        "rrc rrc:x rrc:8:0.5 rrc:8:0-1 rrc:8:0.6-0.5 rrc:8:0.5-1.1 rrc:8:-0.1-1",
    );
    check_rule(
        "its one parameter is a chance from 0 to 1",
        "flip:1.1 flip:inf flip:NaN flip:1:1 flip:1e-1",
    );
    check_rule(
        "its parameters are brightness, contrast and saturation (0 to 100) and hue (0 to 0.5), as in 0.4:0.4:0.4:0.1",
        "jitter jitter:101 jitter:0:0:0:0.6 jitter:0:0:0:0:0",
    );
    check_rule(
        "its parameters are degrees (0 to 180), a shift (0 to 1), a scale (0 to 0.9) and perhaps degrees of shear \
         (0 to 80), as in 10:0.08:0.15:8",
        "affine:1:0.1 affine:181:0:0 affine:1:0:1 affine:1:0:0:81",
    );
    check_rule("it has no parameter", "grey:1 grey:");
    check_rule(
        "its parameters are means and deviations (above 0) of the channels, as in \
         0.485/0.456/0.406:0.229/0.224/0.225 or 0.5:0.5",
        "normalise:0:0 normalise:0.5 normalise:0.5/0.5:1 normalise:1/1/1/1:1",
    );
    let unknown = "' is not known: use resize:SHORTER_SIDE, resize:HEIGHTxWIDTH, crop:SIDE, ";
    for text in "flop|flip,|,flip|flip,,flip|0.4|Flip|jitter:0.4,0.4".split('|') {
        let error = text.parse::<Pipeline>().unwrap_err().to_string();
        assert!(error.contains(unknown), "{text}: {error}");
    }
    for text in ["flip", "normalise"] {
        check_refusal(
            &format!("normalise,{text}"),
            &format!(
                "'{text}' cannot follow normalise, which makes floats of bytes: only what blackens, as cutout, may"
            ),
        );
    }
    check_refusal(
        "grey,normalise",
        "normalise has a mean for each of three channels and the output has one: give one mean and \
         deviation, for instance normalise:0.449:0.226",
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

/// Random stages become those of an evaluation; the others stay.
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
