//! What configurations and loads are called where their full names have no room, or cannot stand.

use tuner::configuration::{Configuration, Load};

/// A configuration in few letters, for a mark in a chart: its tree, and how many settings differ beside it.
pub fn short(configuration: &Configuration) -> String {
    let tree = match configuration.table.len() {
        0 if configuration.shape.is_off() => "off".to_owned(),
        0 => configuration.shape.to_string(),
        rows => format!("table of {rows}"),
    };
    match configuration.knobs.words().len() {
        0 => tree,
        settings => format!("{tree} +{settings}"),
    }
}

/// What a short name leaves out: the rows of a table and the settings that differ; empty where it says all.
pub fn rest(configuration: &Configuration) -> String {
    let rows = configuration.table.iter().map(|row| format!("≤{}: {}", row.max_running_batch, row.shape));
    rows.chain(configuration.knobs.words()).collect::<Vec<_>>().join("; ")
}

/// A load as a heading.
pub fn heading(load: Load) -> String {
    match load {
        Load::BatchSize(size) => format!("Batch size {size}"),
        Load::RequestRate(rate) => format!("{} requests/s", rate.0),
        Load::Recorded => "Recorded arrivals".into(),
    }
}

/// A load as part of a file name or an anchor: letters, digits, dots and dashes.
pub fn anchor(load: Load) -> String {
    match load {
        Load::BatchSize(size) => format!("batch-{size}"),
        // With an exponent where there would be many zeros.
        Load::RequestRate(rate) => format!("rate-{}", format!("{:?}", rate.0).trim_end_matches(".0")),
        Load::Recorded => "recorded".into(),
    }
}

#[cfg(test)]
mod tests {
    use schemas::tree::TreeShape;
    use tuner::configuration::{Knobs, Real, TableRow};

    use super::*;

    #[test]
    fn short_names_and_their_rests_say_all() {
        let plain = Configuration::of(TreeShape::chain(3));
        assert_eq!((short(&plain), rest(&plain)), ("3,1,4".into(), String::new()));
        assert_eq!(short(&Configuration::of(TreeShape::OFF)), "off");
        let rows = [(8, TreeShape::chain(3)), (32, TreeShape::OFF)];
        let table = rows.map(|(max_running_batch, shape)| TableRow { max_running_batch, shape }).to_vec();
        let knobs = Knobs { page_size: Some(16), ..Knobs::default() };
        let both = Configuration { shape: TreeShape::OFF, table, knobs };
        assert_eq!((short(&both), rest(&both)), ("table of 2 +1".into(), "≤8: 3,1,4; ≤32: 0,1,1; page_size=16".into()));
    }

    #[test]
    fn anchors_are_names_of_files() {
        for (load, expected) in [
            (Load::BatchSize(8), "batch-8"),
            (Load::RequestRate(Real(2.0)), "rate-2"),
            (Load::RequestRate(Real(0.25)), "rate-0.25"),
            (Load::RequestRate(Real(1e300)), "rate-1e300"),
            (Load::Recorded, "recorded"),
        ] {
            assert_eq!(anchor(load), expected);
        }
    }
}
