//! Short names of configurations and loads for places where the full names do not fit or are not
//! allowed.

use tuner::trials::configuration::{Configuration, ContextRange, TrialLoad};

/// A short label of a configuration for charts: its tree, and the number of other settings that
/// differ.
pub fn short(configuration: &Configuration) -> String {
    let tree = match configuration.table.len() {
        0 if configuration.shape.is_off() => "off".to_owned(),
        0 => configuration.shape.to_string(),
        rows => format!("table of {rows}"),
    };
    let tree = match configuration.draft.as_str() {
        "" => tree,
        draft => format!("{draft} {tree}"),
    };
    match configuration.knobs.words().len() {
        0 => tree,
        settings => format!("{tree} +{settings}"),
    }
}

/// What a short name omits: the rows of a table and the settings that differ; empty if it omits
/// nothing.
pub fn rest(configuration: &Configuration) -> String {
    let rows = configuration.table.iter().map(ToString::to_string);
    rows.chain(configuration.knobs.words()).collect::<Vec<_>>().join("; ")
}

/// Folder names that are meaningless without their parent folder.
const GENERIC: &[&str] =
    &["target", "draft", "model", "base", "head", "eagle", "eagle2", "eagle3", "main", "final", "hf"];

/// Display name of a checkpoint: the last part of its path, or its id in a cache.
pub fn model(path: &str) -> String {
    let parts: Vec<&str> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    // …/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f
    if let Some(id) = parts.iter().rev().find_map(|part| part.strip_prefix("models--")) {
        return id.replace("--", "/");
    }
    match parts.as_slice() {
        [.., above, last] if GENERIC.contains(last) && !above.starts_with('.') => format!("{above}/{last}"),
        [.., last] => (*last).to_owned(),
        [] => path.to_owned(),
    }
}

/// A load as a heading.
pub fn heading(load: TrialLoad) -> String {
    match load {
        TrialLoad::BatchSize(size) => format!("Batch size {size}"),
        TrialLoad::BatchInContexts(size, contexts) => format!("Batch size {size}, {contexts}"),
        TrialLoad::RequestRate(rate) => format!("{} requests/s", rate.0),
        TrialLoad::Recorded => "Recorded arrivals".into(),
    }
}

/// A load as part of a file name or an anchor: letters, digits, dots and dashes.
pub fn anchor(load: TrialLoad) -> String {
    match load {
        TrialLoad::BatchSize(size) => format!("batch-{size}"),
        TrialLoad::BatchInContexts(size, ContextRange { above, up_to: Some(up_to) }) => {
            format!("batch-{size}-context-{}-{up_to}", above + 1)
        }
        TrialLoad::BatchInContexts(size, ContextRange { above, up_to: None }) => {
            format!("batch-{size}-context-above-{above}")
        }
        // In exponent notation for many zeros.
        TrialLoad::RequestRate(rate) => format!("rate-{}", format!("{:?}", rate.0).trim_end_matches(".0")),
        TrialLoad::Recorded => "recorded".into(),
    }
}

#[cfg(test)]
mod tests {
    use schemas::tree::TreeShape;
    use tuner::trials::configuration::{Knobs, Real, TableRow};

    use super::*;

    #[test]
    fn short_names_and_their_rests_say_all() {
        let plain = Configuration::from_shape(TreeShape::chain(3));
        assert_eq!((short(&plain), rest(&plain)), ("3,1,4".into(), String::new()));
        assert_eq!(short(&Configuration::from_shape(TreeShape::OFF)), "off");
        assert_eq!(short(&Configuration { draft: "suffix".into(), ..plain }), "suffix 3,1,4");
        let rows = [(8, TreeShape::chain(3)), (32, TreeShape::OFF)];
        let table = rows.map(|(max_running_batch, shape)| TableRow::for_any_context(max_running_batch, shape)).to_vec();
        let knobs = Knobs { page_size: Some(16), ..Knobs::default() };
        let both = Configuration { table, knobs, ..Configuration::from_shape(TreeShape::OFF) };
        assert_eq!((short(&both), rest(&both)), ("table of 2 +1".into(), "≤8: 3,1,4; ≤32: 0,1,1; page_size=16".into()));
    }

    #[test]
    fn models_have_the_names_that_people_use() {
        for (path, expected) in [
            ("../models/tiny/target", "tiny/target"),
            ("/data/Llama-3.1-8B-Instruct/", "Llama-3.1-8B-Instruct"),
            ("/x/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e", "meta-llama/Llama-3.1-8B-Instruct"),
            ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "EAGLE3-LLaMA3.1-Instruct-8B"),
            ("../target", "target"),
            ("", ""),
        ] {
            assert_eq!(model(path), expected, "{path}");
        }
    }

    #[test]
    fn anchors_are_names_of_files() {
        for (load, expected) in [
            (TrialLoad::BatchSize(8), "batch-8"),
            (TrialLoad::RequestRate(Real(2.0)), "rate-2"),
            (TrialLoad::RequestRate(Real(0.25)), "rate-0.25"),
            (TrialLoad::RequestRate(Real(1e300)), "rate-1e300"),
            (TrialLoad::Recorded, "recorded"),
            (TrialLoad::BatchInContexts(8, ContextRange { above: 64, up_to: Some(512) }), "batch-8-context-65-512"),
            (TrialLoad::BatchInContexts(8, ContextRange { above: 512, up_to: None }), "batch-8-context-above-512"),
        ] {
            assert_eq!(anchor(load), expected);
        }
    }
}
