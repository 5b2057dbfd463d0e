//! The page is self-contained, well-formed and safe for any texts and figures.

use super::*;

fn text(text: &str) -> String {
    text.to_string()
}

fn plot(log_y: bool, lines: Vec<(String, Vec<(f64, f64)>)>) -> Plot {
    Plot {
        title: text("relative gap"),
        x_label: text("passes over the data"),
        y_label: text("relative to the dual value"),
        log_y,
        lines,
    }
}

/// Checks that elements close in reverse order of opening.
fn check_well_formed(page: &str) {
    const ALONE: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open = Vec::new();
    for piece in page.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("every < has its >");
        let name = tag.split([' ', '/']).next().unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closes in <{piece}");
        } else if !tag.ends_with('/') && !ALONE.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}

#[test]
fn an_empty_report_is_a_page() {
    let page = Report::default().to_html();
    check_well_formed(&page);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = full_report("run").to_html();
    check_well_formed(&page);
    for word in ["http", "<script", "<img", "<link", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
}

fn full_report(name: &str) -> Report {
    let points: Vec<(f64, f64)> = (0..60).map(|i| (f64::from(i), 0.8f64.powi(i))).collect();
    Report {
        title: text(name),
        verdict: text(name),
        summary: vec![(text(name), text(name), text(name)); 5],
        curves: vec![Curve {
            title: text(name),
            x_label: text(name),
            y_label: text(name),
            points: vec![(0.0, 0.0), (0.5, f64::NAN), (1.0, 1.0)],
            note: text(name),
        }],
        signed: vec![SignedBars {
            title: text(name),
            note: text(name),
            bars: vec![
                (text(name), -1.5),
                (text("up"), 2.0),
                (text("odd"), f64::NAN),
            ],
        }],
        tables: vec![Table {
            title: text(name),
            head: vec![text(name)],
            rows: vec![vec![text(name)]],
            note: text(name),
        }],
        series: vec![
            plot(
                true,
                vec![
                    (text(name), points.clone()),
                    (text("b"), points[..7].to_vec()),
                ],
            ),
            Plot {
                title: text(name),
                x_label: text(name),
                y_label: text(name),
                ..plot(false, vec![(text("c"), points)])
            },
        ],
        stages: vec![StageUse {
            name: text(name),
            busy_s: 2.0,
            wait_s: 1.0,
        }],
        bars: vec![Bars {
            title: text(name),
            unit: text(name),
            full: Some(100.0),
            bars: vec![(text(name), 72.5), (text("nothing"), f64::NAN)],
        }],
        notes: vec![text(name)],
        config_toml: text(name),
    }
}

#[test]
fn every_text_is_escaped() {
    let page = full_report("</title></style><b x='1' y=\"2\">&amp;\u{0}").to_html();
    check_well_formed(&page);
    assert!(!page.contains("<b x=") && !page.contains('\u{0}'));
    // All but the plot's own title, which is fixed.
    let shown =
        "&lt;/title&gt;&lt;/style&gt;&lt;b x=&#39;1&#39; y=&quot;2&quot;&gt;&amp;amp;\u{fffd}";
    assert!(
        page.matches(shown).count() >= 35,
        "{}",
        page.matches(shown).count()
    );
}

#[test]
fn figures_that_are_no_numbers_leave_no_mark() {
    let odd = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -1.0,
        1e300,
        1e-300,
        5e-324,
    ];
    for log_y in [false, true] {
        for first in odd {
            for second in odd {
                let lines = vec![(
                    text("odd"),
                    vec![(0.0, first), (first, second), (second, 1.0)],
                )];
                let report = Report {
                    series: vec![plot(log_y, lines)],
                    stages: vec![StageUse {
                        name: text("odd"),
                        busy_s: first,
                        wait_s: second,
                    }],
                    bars: vec![Bars {
                        full: Some(second),
                        bars: vec![(text("odd"), first)],
                        ..Bars::default()
                    }],
                    signed: vec![SignedBars {
                        bars: vec![(text("odd"), first), (text("odd"), second)],
                        ..SignedBars::default()
                    }],
                    curves: vec![Curve {
                        points: vec![(first, second)],
                        ..Curve::default()
                    }],
                    ..Report::default()
                };
                let page = report.to_html();
                check_well_formed(&page);
                let svg = &page[page.find("<section").unwrap()..];
                assert!(
                    !svg.contains("NaN") && !svg.contains("inf"),
                    "{first} {second}: {svg}"
                );
                assert!(page.len() < 100_000, "{first} {second}");
            }
        }
    }
}

#[test]
fn four_figures_are_large_and_the_others_in_a_table() {
    let row = |name: &str| (text(name), text("1"), text(""));
    let report = Report {
        summary: ["a", "b", "c", "d", "e"].map(row).to_vec(),
        ..Report::default()
    };
    let page = report.to_html();
    assert_eq!(page.matches("<dt>").count(), 4);
    assert!(page.contains("<td>e</td><td class=\"number\">1</td>"));
}

#[test]
fn bars_with_signs_lie_on_both_sides_of_0() {
    let report = Report {
        signed: vec![SignedBars {
            bars: vec![(text("a"), 1.0), (text("b"), -3.0)],
            ..SignedBars::default()
        }],
        ..Report::default()
    };
    let page = report.to_html();
    // A quarter of 262 to 566 is 76.
    assert!(page.contains("class=\"c0\" x=\"490.0\" y=\"4.0\" width=\"76.0\""));
    assert!(page.contains("class=\"c1\" x=\"262.0\" y=\"26.0\" width=\"228.0\""));
}

#[test]
fn a_plot_without_values_says_so() {
    let report = Report {
        series: vec![plot(
            true,
            vec![(text("gap"), vec![(1.0, 0.0), (2.0, f64::NAN)])],
        )],
        ..Report::default()
    };
    let page = report.to_html();
    assert!(page.contains("No values were recorded."));
    assert!(!page.contains("<svg"));
}

#[test]
fn long_lines_are_thinned_and_keep_their_end() {
    let points: Vec<(f64, f64)> = (0..100_001).map(|i| (f64::from(i), f64::from(i))).collect();
    let report = Report {
        series: vec![plot(false, vec![(text("long"), points)])],
        ..Report::default()
    };
    let page = report.to_html();
    assert!(page.len() < 40_000, "{}", page.len());
    assert!(
        page.contains("622.0,30.0 \""),
        "the last point is in the upper right corner"
    );
}

#[test]
fn a_drawing_is_a_file_of_its_own_whatever_its_texts() {
    let name = "<a & \"b\">";
    let histogram = Histogram {
        title: text(name),
        x_label: text(name),
        y_label: text(name),
        counts: vec![(0.0, 1.0, 3), (1.0, 2.0, 0), (2.0, 3.0, u64::MAX)],
        marks: vec![Marks {
            name: text(name),
            at: vec![0.5, 2.5],
        }],
    };
    let plot = Plot {
        title: text(name),
        x_label: text(name),
        y_label: text(name),
        log_y: true,
        lines: vec![
            (
                text(name),
                vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, -1.0), (3.0, 9.0)]
            );
            8
        ],
    };
    let bars = Bars {
        title: text(name),
        unit: text(name),
        full: None,
        bars: vec![(text(name), 1.0), (text(name), f64::INFINITY)],
    };
    let files = [
        histogram.to_svg(),
        Histogram::default().to_svg(),
        plot.to_svg(),
        Plot::default().to_svg(),
        bars.to_svg(),
        Bars::default().to_svg(),
    ];
    assert_eq!(files[2].matches("<polyline").count(), 8, "a line each");
    assert_eq!(
        files[2].matches(": 9.00</text>").count(),
        8,
        "and its last value"
    );
    for file in files {
        let (declaration, drawing) = file.split_once('\n').unwrap();
        assert!(declaration.starts_with("<?xml"));
        check_well_formed(drawing);
        assert!(!file.contains(name) && !file.contains("NaN") && !file.contains("inf"));
    }
}
