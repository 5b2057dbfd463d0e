//! Published figures of linear training in LIRS (section 5).

/// A data set of LIRS Table 1 with its published figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Published {
    pub name: &'static str,
    /// Instances, features and bytes of an instance (Table 1).
    pub rows: u64,
    pub features: u64,
    pub row_bytes: u64,
    /// Whether rows are stored sparse (Table 1).
    pub sparse: bool,
    /// Blocks per epoch (section 5.1).
    pub blocks: u64,
    /// Epochs to the best of BMF, of BMF and of LIRS (Table 3).
    pub epochs: [u64; 2],
    /// Test accuracy of BMF and LIRS in percent (Table 4).
    pub accuracy: [f64; 2],
    /// Random assignment and offset table in MB (Table 5).
    pub tables_mb: [f64; 2],
    /// Share of the total time of BMF on HDD saved by LIRS on Optane, in percent (section 5.2.2).
    pub saved_on_optane: f64,
    /// Effect of shuffling pages (section 5.2.3), for rows smaller than a page.
    pub pages: Option<PublishedPages>,
}

/// LIRS section 5.2.3: pages against rows, on Optane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PublishedPages {
    /// Loading time saved against rows, in percent.
    pub loading_saved: f64,
    /// Epochs needed beyond those of rows.
    pub more_epochs: u64,
    /// Total time saved against BMF, in percent.
    pub total_saved: f64,
}

/// In the order of Table 1.
pub(super) const PUBLISHED: [Published; 4] = [
    Published {
        name: "webspam",
        rows: 200_000,
        features: 16_609_143,
        row_bytes: 44_560,
        sparse: true,
        blocks: 40,
        epochs: [30, 7],
        accuracy: [99.20, 99.19],
        tables_mb: [1.53, 1.53],
        saved_on_optane: 76.9,
        pages: None,
    },
    Published {
        name: "epsilon",
        rows: 400_000,
        features: 2_000,
        row_bytes: 24_000,
        sparse: false,
        blocks: 30,
        epochs: [30, 12],
        accuracy: [89.80, 89.73],
        tables_mb: [3.05, 0.0],
        saved_on_optane: 71.9,
        pages: None,
    },
    Published {
        name: "kdd",
        rows: 19_264_097,
        features: 29_890_095,
        row_bytes: 362,
        sparse: true,
        blocks: 40,
        epochs: [30, 11],
        accuracy: [88.70, 88.84],
        tables_mb: [147.0, 147.0],
        saved_on_optane: 32.2,
        pages: Some(PublishedPages {
            loading_saved: 68.7,
            more_epochs: 1,
            total_saved: 28.6,
        }),
    },
    Published {
        name: "higgs",
        rows: 10_500_000,
        features: 28,
        row_bytes: 327,
        sparse: false,
        blocks: 40,
        epochs: [30, 17],
        accuracy: [64.29, 64.23],
        tables_mb: [80.11, 0.0],
        saved_on_optane: 18.4,
        pages: Some(PublishedPages {
            loading_saved: 73.5,
            more_epochs: 0,
            total_saved: 6.0,
        }),
    },
];

/// The published figures of a data set by its name.
pub(super) fn published(name: &str) -> Option<Published> {
    PUBLISHED.into_iter().find(|set| set.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables as the paper prints them, a line a set or figure.
    const TABLE_1: &str = "\
        webspam | 200000 | 16609143 | 8.3 | 44560 | Y\n\
        epsilon | 400000 | 2000 | 8.9 | 24000 | N\n\
        kdd | 19264097 | 29890095 | 6.5 | 362 | Y\n\
        higgs | 10500000 | 28 | 3.2 | 327 | N";
    const TABLE_3: &str = "\
        webspam | 30 | 7 | kdd | 30 | 11\n\
        epsilon | 30 | 12 | higgs | 30 | 17";
    const TABLE_4: &str = "\
        webspam | 99.20% | 99.19%\n\
        epsilon | 89.80% | 89.73%\n\
        kdd | 88.70% | 88.84%\n\
        higgs | 64.29% | 64.23%";
    const TABLE_5: [&str; 2] = [
        "1.53MB | 3.05MB | 147MB | 80.11MB",
        "1.53MB | 0 | 147MB | 0",
    ];
    const BLOCKS: &str = "webspam, epsilon, kdd, and higgs into 40, 30, 40 and 40 batches";
    const SAVED: &str = "76.9%, 71.9%, 32.2%, and 18.4% at webspam, epsilon, kdd, and higgs";
    const PAGES: [&str; 3] = [
        "68.7% and 73.5% at kdd and higgs",
        "28.6% and 6% over BMF",
        "1 and 0 additional epochs at kdd and higgs",
    ];

    fn cells(line: &str) -> Vec<&str> {
        line.split('|').map(str::trim).collect()
    }

    fn numbers(text: &str) -> Vec<f64> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.')
            .filter_map(|part| part.parse().ok())
            .collect()
    }

    #[test]
    fn every_figure_is_the_papers() {
        for (line, set) in TABLE_1.lines().zip(PUBLISHED) {
            let cells = cells(line);
            assert_eq!(cells[0], set.name);
            let figures = [set.rows, set.features, set.row_bytes].map(|x| x as f64);
            assert_eq!(
                [cells[1], cells[2], cells[4]].map(|x| numbers(x)[0]),
                figures
            );
            assert_eq!(cells[5] == "Y", set.sparse);
        }
        for line in TABLE_3.lines() {
            for three in cells(line).chunks(3) {
                let set = published(three[0]).expect("a set of Table 1");
                assert_eq!(set.epochs.map(|x| x.to_string()), [three[1], three[2]]);
            }
        }
        for (line, set) in TABLE_4.lines().zip(PUBLISHED) {
            assert_eq!(cells(line)[0], set.name);
            assert_eq!(numbers(line), set.accuracy);
        }
        for (table, line) in TABLE_5.into_iter().enumerate() {
            assert_eq!(numbers(line), PUBLISHED.map(|set| set.tables_mb[table]));
        }
        assert_eq!(numbers(BLOCKS), PUBLISHED.map(|set| set.blocks as f64));
        assert_eq!(numbers(SAVED), PUBLISHED.map(|set| set.saved_on_optane));
        let pages = ["kdd", "higgs"].map(|name| published(name).and_then(|set| set.pages));
        let pages = pages.map(|pages| pages.expect("rows smaller than a page"));
        assert_eq!(numbers(PAGES[0]), pages.map(|pages| pages.loading_saved));
        assert_eq!(numbers(PAGES[1]), pages.map(|pages| pages.total_saved));
        assert_eq!(
            numbers(PAGES[2]),
            pages.map(|pages| pages.more_epochs as f64)
        );
    }

    #[test]
    fn table_5_is_eight_bytes_a_row() {
        for set in PUBLISHED {
            let assignment_mb = 8.0 * set.rows as f64 / (1 << 20) as f64;
            assert!(
                (assignment_mb - set.tables_mb[0]).abs() < 0.05,
                "{}",
                set.name
            );
            assert_eq!(set.tables_mb[1] > 0.0, set.sparse, "{}", set.name);
        }
    }
}
