//! The loops for processors without wide registers, selected by `PELTON_CPU`.

use serde_json::Value;

use crate::command::{Ended, Place, number};

const JPEG: &[u8] = include_bytes!("../../../image/tests/images/full.jpg");

fn limited(place: &Place, line: &str, cpu: &str) -> Ended {
    let mut command = place.command(line);
    Ended::from(command.env("PELTON_CPU", cpu).output().unwrap())
}

#[test]
fn plain_paths_give_the_same() {
    let place = Place::new();
    for class in ["images/a", "images/b"] {
        std::fs::create_dir_all(place.path(class)).unwrap();
        for i in 0..4 {
            place.write(&format!("{class}/{i}.jpg"), JPEG);
        }
    }
    for (line, key) in [
        (
            "train svm demo:higgs:2000 --epochs 3 --solver coordinate-descent",
            "primal",
        ),
        ("train svm demo:higgs:2000 --solver newton", "primal"),
        (
            "bench images --decode jpg --augment resize:32x32 --batch 4",
            "examples",
        ),
    ] {
        let line = format!("{line} --json");
        let [wide, plain]: [Value; 2] = ["", "portable"].map(|cpu| {
            let _ = std::fs::remove_dir_all(place.path("runs"));
            limited(&place, &line, cpu).succeeded(&line).json()
        });
        let (wide, plain) = (number(&wide, key), number(&plain, key));
        assert!(
            (wide - plain).abs() <= 1e-4 * wide.abs(),
            "{line}: {wide} and {plain}"
        );
    }
}

#[test]
fn an_unknown_level_is_refused() {
    let place = Place::new();
    let line = "inspect demo:higgs:10";
    limited(&place, line, "sse").refused(line, 2, &["PELTON_CPU=sse", "portable or avx2"]);
}
