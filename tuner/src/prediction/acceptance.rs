//! Acceptance by tree shape: replayed over the texts of a workload, or imported from a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use engine::{
    EngineError,
    replay::{ReplayText, ShapeAcceptance},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::{
    sweep,
    tree::{NodeSource, TreeShape},
};
use serde::{Deserialize, de::IgnoredAny};

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

/// A published table, or the `acceptance.json` of a report.
#[derive(Deserialize)]
struct ImportedFile {
    #[serde(default)]
    source: String,
    rows: Option<Vec<ImportedRow>>,
    sections: Option<Vec<ReportedSection>>,
}

/// Trials of one fingerprint.
#[derive(Deserialize)]
struct ReportedSection {
    target_hash: String,
    draft_hash: String,
    workload_hash: String,
    shapes: Vec<ReportedShape>,
}

#[derive(Deserialize)]
struct ReportedShape {
    /// The name of the draft, of several.
    #[serde(default)]
    draft: String,
    num_steps: usize,
    topk: usize,
    num_draft_tokens: usize,
    row_budget: Option<f64>,
    contexts: Option<IgnoredAny>,
    /// Without the target's own token.
    accepted_per_round: f64,
    simulated: bool,
}

#[derive(Clone, Deserialize)]
struct ImportedRow {
    target: Option<String>,
    draft: Option<String>,
    task: Option<String>,
    num_steps: usize,
    topk: usize,
    num_draft_tokens: usize,
    accept_length: f64,
}

/// Reads the table that the models of a sweep name, measured elsewhere, and keeps the rows of one
/// target and one draft. Relative paths start at `folder`. `None` if the models name no table.
///
/// # Errors
/// When the file cannot be read, has another format, has no matching row, or several targets or
/// drafts match.
pub fn import(folder: &Path, models: &sweep::SweepModels) -> Result<Option<AcceptanceTable>, TunerError> {
    let Some(from) = &models.acceptance else { return Ok(None) };
    let path = folder.join(&from.file);
    let text = atomic_file::read(&path, LARGEST).map_err(|source| TunerError::Read { path: path.clone(), source })?;
    let malformed = |reason: String| TunerError::Malformed { path: path.clone(), reason };
    let text = text.trim_start_matches('\u{feff}');
    let file: ImportedFile = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let all = file.rows().map_err(malformed)?;
    let picked = picked(&all, from, models).map_err(malformed)?;
    let mut lengths: BTreeMap<TreeShape, Vec<f64>> = BTreeMap::new();
    for (at, row) in &picked.rows {
        let ImportedRow { num_steps, topk, num_draft_tokens, accept_length, .. } = **row;
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
    let of_what = [("target", &picked.target), ("draft", &picked.draft), ("task", &from.task)];
    let of_what = of_what.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
    let source = [file.source.clone(), from.file.clone()].into_iter().chain(of_what).chain(means(&lengths));
    let source = source.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    let rows = lengths.into_iter().map(|(shape, lengths)| AcceptanceRow {
        shape,
        accept_length: lengths.iter().sum::<f64>() / lengths.len() as f64,
        interval: None,
        histogram: Vec::new(),
    });
    let (rows, source) = (rows.collect(), AcceptanceSource::Imported { source });
    Ok(Some(AcceptanceTable { source, rows, text_drafts: Vec::new() }))
}

impl ImportedFile {
    /// The rows of the table. Of a report, those whose acceptance is that of its models, over all
    /// contexts, with all nodes verified.
    fn rows(&self) -> Result<Vec<ImportedRow>, String> {
        let row = |section: &ReportedSection, one: &ReportedShape| ImportedRow {
            target: Some(section.target_hash.clone()),
            draft: Some(if one.draft.is_empty() { section.draft_hash.clone() } else { one.draft.clone() }),
            task: Some(section.workload_hash.clone()),
            num_steps: one.num_steps,
            topk: one.topk,
            num_draft_tokens: one.num_draft_tokens,
            accept_length: 1.0 + one.accepted_per_round,
        };
        let is_known = |one: &&ReportedShape| !one.simulated && one.row_budget.is_none() && one.contexts.is_none();
        match (&self.rows, &self.sections) {
            (Some(rows), _) => Ok(rows.clone()),
            (None, Some(sections)) => Ok(sections
                .iter()
                .flat_map(|section| section.shapes.iter().filter(is_known).map(move |one| row(section, one)))
                .collect()),
            (None, None) => {
                Err("expected `rows` with accept lengths, or the acceptance.json that a report writes".into())
            }
        }
    }
}

/// The rows of one target and one draft, each with its place in the file.
struct PickedRows<'a> {
    target: Option<String>,
    draft: Option<String>,
    rows: Vec<(usize, &'a ImportedRow)>,
}

/// Picks the rows of one target, then of one draft, then of the requested task.
fn picked<'a>(
    all: &'a [ImportedRow],
    from: &sweep::Acceptance,
    models: &sweep::SweepModels,
) -> Result<PickedRows<'a>, String> {
    // Published tables write no speculation in several ways; it accepts one token per round by
    // definition.
    let mut rows: Vec<(usize, &ImportedRow)> = all.iter().enumerate().filter(|(_, row)| row.num_steps > 0).collect();
    let target = one_of("target", |row| row.target.as_deref(), from.target.as_deref(), &models.target, &mut rows)?;
    if from.draft.is_none() {
        leave_out_no_speculation(&mut rows);
    }
    let draft = one_of("draft", |row| row.draft.as_deref(), from.draft.as_deref(), &models.draft, &mut rows)?;
    rows.retain(|(_, row)| from.task.is_none() || from.task == row.task);
    Ok(PickedRows { target, draft, rows })
}

/// Keeps the rows with the requested name. Without one, all rows must have the same, or one of
/// their names must be that of the sweep's own model: rows of different models are not averaged.
fn one_of(
    key: &str,
    name: fn(&ImportedRow) -> Option<&str>,
    requested: Option<&str>,
    own: &str,
    rows: &mut Vec<(usize, &ImportedRow)>,
) -> Result<Option<String>, String> {
    if let Some(requested) = requested {
        rows.retain(|(_, row)| name(row) == Some(requested));
        return Ok(Some(requested.to_owned()));
    }
    let names: BTreeSet<Option<&str>> = rows.iter().map(|(_, row)| name(row)).collect();
    let is_own = |name: &&Option<&str>| name.is_some_and(|name| last_part(name) == last_part(own));
    let own: Vec<Option<&str>> = names.iter().filter(is_own).copied().collect();
    let kept = match (names.len(), own.as_slice()) {
        (0 | 1, _) => names.first().copied().flatten(),
        (_, [one]) => *one,
        _ => {
            let listed = |name: &Option<&str>| name.map_or_else(|| "none".to_owned(), |name| format!("{name:?}"));
            let listed = names.iter().map(listed).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "its rows are of {} {key}s, which are not averaged: give models.acceptance.{key}, one of {listed}",
                names.len()
            ));
        }
    };
    rows.retain(|(_, row)| name(row) == kept);
    Ok(kept.map(ToOwned::to_owned))
}

/// The name of a model in its folder or repository, in lower case.
fn last_part(name: &str) -> String {
    name.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_ascii_lowercase()
}

/// Leaves out what published tables list as another draft, with the shapes of the others and an
/// accept length of 1 in each row: no speculation.
fn leave_out_no_speculation(rows: &mut Vec<(usize, &ImportedRow)>) {
    let speculates = |draft: &Option<String>, rows: &[(usize, &ImportedRow)]| {
        rows.iter().any(|(_, row)| row.draft == *draft && row.accept_length != 1.0)
    };
    let drafts: BTreeSet<&Option<String>> = rows.iter().map(|(_, row)| &row.draft).collect();
    let real: BTreeSet<&Option<String>> = drafts.iter().copied().filter(|draft| speculates(draft, rows)).collect();
    if !real.is_empty() {
        rows.retain(|(_, row)| real.contains(&row.draft));
    }
}

/// Over how many rows the accept lengths of shapes are means, if they are.
fn means(lengths: &BTreeMap<TreeShape, Vec<f64>>) -> Option<String> {
    let (least, most) = (lengths.values().map(Vec::len).min()?, lengths.values().map(Vec::len).max()?);
    match (least, most) {
        (_, 1) => None,
        (least, most) if least == most => Some(format!("means of {most} rows of each shape")),
        (least, most) => Some(format!("means of {least} to {most} rows of each shape")),
    }
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
    use schemas::{sweep::SweepFile, text::Source};

    use super::*;

    const TABLE: &str = r#"{"source": "somewhere", "rows": [
        {"target": "a", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 2.0, "more": 1},
        {"target": "a", "task": "y", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 3.0},
        {"target": "a", "task": "y", "num_steps": 0, "topk": 0, "num_draft_tokens": 0, "accept_length": 1.0},
        {"target": "b", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 9.0}]}"#;

    /// What every sweep has.
    const WORKLOAD: &str = "[engine]\ndevice = 'cpu'\n[workload]\nprompts = 'p.jsonl'\nrequests = 4\noutput_length = 9\n[batch]\nsizes = [1]\n[space]\n\
                            num_steps = [1]\ntopk = [1]\nnum_draft_tokens = [2]\n[search]\nstrategy = 'grid'\nrepeats = 3\n[objective]\nmetric = \
                            'throughput'\n";

    /// Imports a table with these lines of `[models]` and `[models.acceptance]`.
    fn imported(table: &str, models: &str, filters: &str) -> Result<AcceptanceTable, String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("table.json"), table).expect("a table");
        let text = format!(
            "[models]\nalgorithm = 'EAGLE3'\n{models}\n[models.acceptance]\nfile = 'table.json'\n{filters}\n{WORKLOAD}"
        );
        let file =
            SweepFile::read(&Source::new("sweep.toml", text)).unwrap_or_else(|finding| panic!("{}", finding.message));
        import(folder.path(), &file.models).map(|table| table.expect("a table")).map_err(|error| error.to_string())
    }

    /// Imports the rows that match the filters.
    fn check(table: &str, target: Option<&str>, task: Option<&str>) -> Result<AcceptanceTable, String> {
        let line = |key: &str, text: Option<&str>| text.map_or_else(String::new, |text| format!("{key} = '{text}'\n"));
        imported(table, "target = 't'\ndraft = 'd'", &(line("target", target) + &line("task", task)))
    }

    /// A published table: two targets, two drafts of one of them, and no speculation as a draft.
    const PUBLISHED: &str = r#"{"rows": [
        {"target": "Big-8B", "draft": "x/Head-A", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 2.0},
        {"target": "Big-8B", "draft": "x/Head-A", "task": "y", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 3.0},
        {"target": "Big-8B", "draft": "y/Head-B", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 3.5},
        {"target": "Big-8B", "draft": "Without", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 1.0},
        {"target": "Other", "draft": "z/Head-C", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 1.5},
        {"target": "Other", "draft": "Without", "task": "x", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 1.0}]}"#;

    #[test]
    fn rows_of_several_targets_or_drafts_are_never_averaged() {
        let shape = TreeShape::chain(3);
        let length = |models: &str, filters: &str| {
            imported(PUBLISHED, models, filters).map(|table| table.length(shape).expect("a row"))
        };
        let (unknown, of_big) = ("target = 't'\ndraft = 'd'", "target = 'Big-8B'");
        let refused = length(unknown, "").expect_err("two targets");
        assert!(refused.contains("give models.acceptance.target, one of \"Big-8B\", \"Other\""), "{refused}");
        let refused = length(unknown, of_big).expect_err("two drafts");
        assert!(refused.contains("of 2 drafts") && refused.contains("one of \"x/Head-A\", \"y/Head-B\""), "{refused}");
        // No speculation is no draft, and neither lowers a mean nor has to be excluded by hand.
        assert_eq!(length(unknown, "target = 'Other'"), Ok(1.5));
        assert_eq!(length(unknown, "target = 'Big-8B'\ndraft = 'y/Head-B'"), Ok(3.5));
        assert_eq!(length(unknown, "target = 'Big-8B'\ndraft = 'Without'"), Ok(1.0));
        // The sweep's own models are found by the ends of their names.
        assert_eq!(length("target = '/models/big-8b/'\ndraft = 'y/head-b'", ""), Ok(3.5));
        let table = imported(PUBLISHED, "target = 'big-8b'\ndraft = 'Head-A'", "").expect("a table");
        let source = "table.json; target Big-8B; draft x/Head-A; means of 2 rows of each shape".into();
        assert_eq!((table.length(shape), table.source), (Some(2.5), AcceptanceSource::Imported { source }));
    }

    /// Simulated acceptance, budgets and buckets of contexts are not that of a tree.
    #[test]
    fn the_file_of_a_report_is_read() {
        let shape = |more: &str, accepted: f64| {
            format!(
                r#"{{"num_steps": 3, "topk": 1, "num_draft_tokens": 4, "rounds": 9, "accepted_per_round": {accepted}{more},
                 "accepted_by_position": [], "conditional_by_position": []}}"#
            )
        };
        let shapes = [
            shape(r#", "simulated": false"#, 1.25),
            shape(r#", "simulated": true"#, 2.0),
            shape(r#", "simulated": false, "row_budget": 2.5"#, 1.0),
            shape(r#", "simulated": false, "contexts": {"above": 0, "up_to": 9}"#, 2.0),
        ];
        let report = format!(
            r#"{{"format": "spectune-acceptance", "version": 1, "definition": "", "sections": [{{"engine": "", "device": "",
             "target_hash": "t1", "draft_hash": "d1", "workload_hash": "w1", "shapes": [{}]}}]}}"#,
            shapes.join(",")
        );
        let table = check(&report, None, None).expect("a table");
        let source = "table.json; target t1; draft d1".into();
        assert_eq!(
            (table.length(TreeShape::chain(3)), table.source),
            (Some(2.25), AcceptanceSource::Imported { source })
        );
        assert!(check(&report.replace("\"simulated\": false", "\"simulated\": true"), None, None).is_err());
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert!(check(&format!("\u{feff}{TABLE}"), Some("a"), None).is_ok());
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
        assert!(check("{}", None, None).expect_err("no rows").contains("expected `rows` with accept lengths"));
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
