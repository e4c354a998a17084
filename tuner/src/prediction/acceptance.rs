//! Acceptance by tree shape: replayed over the texts of a workload, or imported from a file.

use std::{collections::BTreeMap, path::Path};

use engine::{
    EngineError,
    replay::{ReplayText, ShapeAcceptance},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::{
    sweep,
    tree::{NodeSource, TreeShape},
};
use serde::Deserialize;

use crate::{
    TunerError,
    files::atomic_file,
    prediction::guide::{AcceptanceRow, AcceptanceSource, AcceptanceTable},
    trials::configuration::Configuration,
};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 500;
/// Largest table that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// Sums a replay (`replayed[text][shape]`) into one row per shape.
pub fn replayed(texts: &[ReplayText], shapes: &[TreeShape], replayed: &[Vec<ShapeAcceptance>]) -> AcceptanceTable {
    let rows = shapes.iter().enumerate().filter_map(|(at, shape)| {
        let each: Vec<&ShapeAcceptance> = replayed.iter().filter_map(|text| text.get(at)).collect();
        row(*shape, &each)
    });
    let tokens = texts.iter().map(|text| text.output_tokens() as u64).sum();
    let source = AcceptanceSource::Replayed { texts: texts.len(), tokens };
    AcceptanceTable { source, rows: rows.collect(), text_drafts: Vec::new() }
}

/// The row of a shape, over all texts; `None` if no text had a round.
fn row(shape: TreeShape, each: &[&ShapeAcceptance]) -> Option<AcceptanceRow> {
    let mut histogram = Vec::new();
    for one in each {
        histogram.resize(one.accept_histogram.len().max(histogram.len()), 0);
        histogram.iter_mut().zip(&one.accept_histogram).for_each(|(sum, count)| *sum += count);
    }
    let counts: Vec<(f64, f64)> = each.iter().map(|one| (tokens(one), one.rounds as f64)).collect();
    let length = ratio(counts.iter().copied())?;
    Some(AcceptanceRow { shape, accept_length: length, interval: bootstrap(&counts), histogram })
}

/// Output tokens of a text. For a sampled text, the expected number over its rounds: the same mean
/// with less variance.
fn tokens(one: &ShapeAcceptance) -> f64 {
    // Expected drafts replace the counted ones: a replay knows the probability of each acceptance,
    // which is steadier than one draw.
    let counted = one.output_tokens as f64;
    one.expected_drafts.map_or(counted, |expected| counted - one.accepted_drafts() as f64 + expected)
}

/// Tokens / rounds over some texts; `None` without a round.
pub fn length_over<'a>(each: impl Iterator<Item = &'a ShapeAcceptance>) -> Option<f64> {
    ratio(each.map(|one| (tokens(one), one.rounds as f64)))
}

fn ratio(counts: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (tokens, rounds) = counts.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (rounds > 0.0).then(|| tokens / rounds)
}

/// The 95% percentile bootstrap interval. Texts are resampled, not rounds, because texts differ
/// more than the rounds of one text. The seed is fixed.
fn bootstrap(counts: &[(f64, f64)]) -> Option<[f64; 2]> {
    if counts.len() < 2 {
        return None;
    }
    // A fixed seed: a table that is read again has the same intervals.
    let mut random = StdRng::seed_from_u64(0x5EED);
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        // Whole texts are resampled, since rounds of one text resemble each other.
        .filter_map(|_| ratio((0..counts.len()).map(|_| counts[random.random_range(0..counts.len())])))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios.get((share * (RESAMPLES - 1) as f64).round() as usize).copied();
    Some([at(0.025)?, at(0.975)?])
}

#[derive(Deserialize)]
struct ImportedFile {
    #[serde(default)]
    source: String,
    rows: Vec<ImportedRow>,
}

#[derive(Deserialize)]
struct ImportedRow {
    target: Option<String>,
    draft: Option<String>,
    task: Option<String>,
    num_steps: usize,
    topk: usize,
    num_draft_tokens: usize,
    accept_length: f64,
}

/// Reads a table that was measured elsewhere, and keeps the requested rows. Relative paths start at
/// `folder`.
///
/// # Errors
/// When the file cannot be read, has another format, or has no matching row.
pub fn import(folder: &Path, from: &sweep::Acceptance) -> Result<AcceptanceTable, TunerError> {
    let path = folder.join(&from.file);
    let text = atomic_file::read(&path, LARGEST).map_err(|source| TunerError::Read { path: path.clone(), source })?;
    let malformed = |reason: String| TunerError::Malformed { path: path.clone(), reason };
    let file: ImportedFile = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let wanted = |requested: &Option<String>, there: &Option<String>| requested.is_none() || requested == there;
    let mut lengths: BTreeMap<TreeShape, Vec<f64>> = BTreeMap::new();
    for (at, row) in file.rows.iter().enumerate() {
        let kept =
            wanted(&from.target, &row.target) && wanted(&from.draft, &row.draft) && wanted(&from.task, &row.task);
        if !kept {
            continue;
        }
        let ImportedRow { num_steps, topk, num_draft_tokens, accept_length, .. } = *row;
        // Published tables write no speculation in several ways; it accepts one token per round by
        // definition.
        if num_steps == 0 {
            continue;
        }
        let wrong = |reason: String| malformed(format!("row {}: {reason}", at + 1));
        let shape = TreeShape::whole_tree(num_steps, topk, num_draft_tokens);
        NodeSource::check_any(shape).map_err(|error| wrong(error.to_string()))?;
        if !shape.reaches(accept_length) {
            return Err(wrong(format!(
                "accept length {accept_length} of {shape}: expected 1 to {}",
                shape.max_tokens_per_round()
            )));
        }
        lengths.entry(shape).or_default().push(accept_length);
    }
    if lengths.is_empty() {
        return Err(malformed("it has no row for the requested target, draft and task".into()));
    }
    let rows = lengths.into_iter().map(|(shape, lengths)| AcceptanceRow {
        shape,
        accept_length: lengths.iter().sum::<f64>() / lengths.len() as f64,
        interval: None,
        histogram: Vec::new(),
    });
    let picked = [("target", &from.target), ("draft", &from.draft), ("task", &from.task)];
    let picked: Vec<String> =
        picked.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?))).collect();
    let source = [&[file.source, from.file.clone()][..], &picked].concat();
    let source = source.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    let source = AcceptanceSource::Imported { source };
    Ok(AcceptanceTable { source, rows: rows.collect(), text_drafts: Vec::new() })
}

impl AcceptanceTable {
    /// Output tokens per round of a shape; 1 without speculation, `None` if the table has no such
    /// row.
    pub fn length(&self, shape: TreeShape) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.shape == shape).map(|row| row.accept_length);
        if shape.is_off() { Some(1.0) } else { row }
    }
}

/// The accept length that a trial simulates.
///
/// # Errors
/// When the table has no such shape, or the configuration has several: one simulated length is used
/// for all rounds.
pub fn length_of(table: &AcceptanceTable, configuration: &Configuration) -> Result<f32, EngineError> {
    let mut lengths = configuration.shapes().map(|shape| {
        table.length(shape).ok_or_else(|| {
            EngineError::Configuration(format!("the imported acceptance table has no row for the tree shape {shape}"))
        })
    });
    let first = lengths.next().unwrap_or(Ok(1.0))?;
    for other in lengths {
        if other? != first {
            return Err(EngineError::Configuration(
                "a table of several shapes cannot run with imported acceptance: one accept length is simulated for \
                 all rounds"
                    .into(),
            ));
        }
    }
    Ok(first as f32)
}

/// Hash of a table, for the fingerprint.
pub fn hash(table: &AcceptanceTable) -> String {
    let text = serde_json::to_string(table).unwrap_or_default();
    blake3::hash(text.as_bytes()).to_hex()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"{"source": "somewhere", "rows": [
        {"target": "a", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 2.0, "more": 1},
        {"target": "a", "task": "y", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 3.0},
        {"target": "a", "task": "y", "num_steps": 0, "topk": 0, "num_draft_tokens": 0, "accept_length": 1.0},
        {"target": "b", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 9.0}]}"#;

    /// Imports the rows that match the filters.
    fn check(table: &str, target: Option<&str>, task: Option<&str>) -> Result<AcceptanceTable, String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("table.json"), table).expect("a table");
        let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
        let from =
            sweep::Acceptance { file: "table.json".into(), target: owned(target), draft: None, task: owned(task) };
        import(folder.path(), &from).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_of_a_shape_are_averaged_within_what_was_requested() {
        let shape = TreeShape::chain(3);
        assert_eq!(check(TABLE, Some("a"), None).expect("a table").length(shape), Some(2.5));
        let table = check(TABLE, Some("a"), Some("y")).expect("a table");
        assert_eq!((table.length(shape), table.length(TreeShape::OFF)), (Some(3.0), Some(1.0)));
        assert_eq!(table.length(TreeShape::chain(5)), None);
        assert_eq!(
            table.source,
            AcceptanceSource::Imported { source: "somewhere; table.json; target a; task y".into() }
        );
        let made_up =
            length_of(&table, &Configuration::from_shape(TreeShape::chain(5))).expect_err("no row").to_string();
        assert!(made_up.contains("5,1,6"), "{made_up}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (target, words) in [(Some("b"), "row 4: accept length 9"), (Some("c"), "no row for the requested target")] {
            let error = check(TABLE, target, None).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
        assert!(check("{}", None, None).expect_err("no rows").contains("missing field `rows`"));
    }

    #[test]
    fn a_replay_is_summed_over_texts_and_its_interval_comes_from_them() {
        let one = |tokens, rounds| ShapeAcceptance {
            output_tokens: tokens,
            rounds,
            accept_histogram: vec![rounds as u64 / 2, rounds as u64 / 2],
            ..ShapeAcceptance::default()
        };
        let counted = [one(20, 10), one(30, 10), one(10, 10)];
        let each: Vec<&ShapeAcceptance> = counted.iter().collect();
        let row = row(TreeShape::chain(1), &each).expect("rounds");
        assert_eq!((row.accept_length, row.histogram), (2.0, vec![15, 15]));
        let [low, high] = row.interval.expect("three texts");
        assert!((1.0..2.0).contains(&low) && high > 2.0 && high <= 3.0);
        assert_eq!(super::row(TreeShape::chain(1), &[]), None);
    }
}
