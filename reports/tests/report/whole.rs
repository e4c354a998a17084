//! The report of one sweep.

use std::fs;

use polars_core::prelude::*;
use polars_io::prelude::*;
use reports::{ReportInput, Sweep};
use schemas::tree::TreeShape;
use tuner::trials::{
    configuration::{ContextRange, Knobs, Real, TableRow, TrialLoad},
    journal::JournalHeader,
    record::{CandidateRole, Outcome, TrialSpread},
};

use crate::{
    check,
    common::synthetic::{Synthetic, fingerprint, header, tuned},
    elsewhere, input, small,
};

const TRIALS_APART: [&str; 4] = ["apart_round_ms", "apart_draft_ms", "apart_verify_ms", "apart_extend_ms"];

#[test]
fn a_whole_report() {
    let sweep = small().sweep("runs/one");
    let html = check(&input(sweep)).replace("&#x2f;", "/");
    for part in [
        "Speculation pays here.",
        "SYNTHETIC",
        "num_steps 3 · topk 4",
        "accept length",
        "SGLANG_ARGS=(",
        "spectune serve runs/one/tuned.toml",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn the_markdown_and_the_terminal_table_stay_as_they_are() {
    let input = input(small().sweep("runs/one"));
    let folder = tempfile::tempdir().expect("a folder");
    reports::write(&input, folder.path()).expect("written");
    insta::assert_snapshot!("markdown", fs::read_to_string(folder.path().join("report.md")).expect("Markdown"));
    insta::assert_snapshot!("terminal_wide", reports::terminal_table(&input, 120));
    insta::assert_snapshot!("terminal_narrow", reports::terminal_table(&input, 80));
}

#[test]
fn tables_read_back_with_every_row_and_figure() {
    let sweep = small().sweep("runs/one");
    let records = sweep.records.clone();
    let folder = tempfile::tempdir().expect("a folder");
    reports::write(&input(sweep), folder.path()).expect("written");
    let path = |name: &str| folder.path().join(name);
    let parquet =
        |name: &str| ParquetReader::new(fs::File::open(path(name)).expect("there")).finish().expect("Parquet");
    let csv = |name: &str| {
        let options = CsvReadOptions::default().with_infer_schema_length(None);
        options.try_into_reader_with_file_path(Some(path(name))).expect("there").finish().expect("CSV")
    };
    for name in ["trials", "ranking"] {
        let (parquet, csv) = (parquet(&format!("{name}.parquet")), csv(&format!("{name}.csv")));
        assert_eq!(parquet.shape(), csv.shape(), "{name}");
        assert_eq!(parquet.get_column_names(), csv.get_column_names(), "{name}");
        let figure =
            |frame: &DataFrame| frame.column("output_tokens_per_s").expect("there").f64().expect("numbers").to_vec();
        assert_eq!(figure(&parquet), figure(&csv), "{name}");
    }
    let trials = parquet("trials.parquet");
    assert_eq!(trials.height(), records.len());
    let figures = trials.column("output_tokens_per_s").expect("there").f64().expect("numbers").to_vec();
    let expected: Vec<Option<f64>> =
        records.iter().map(|record| Some(record.measurement()?.output_tokens_per_s)).collect();
    assert_eq!(figures, expected);
    let reasons = trials.column("reason").expect("there").str().expect("texts").iter().flatten().count();
    assert_eq!(reasons, expected.iter().filter(|figure| figure.is_none()).count());
}

#[test]
fn names_and_reasons_are_text_and_never_markup() {
    let hostile = "</script><img src=x onerror=alert(1)>\"'&|`\n# heading";
    let mut sweep = small().sweep(hostile);
    if let Some(header) = &mut sweep.header {
        header.file.models.target = hostile.into();
    }
    sweep.notices.push(hostile.into());
    let mut file = tuned();
    file.models.target = hostile.into();
    file.models.draft = hostile.into();
    sweep.tuned = Some(file);
    for record in &mut sweep.records {
        record.fingerprint.device_name = hostile.into();
        record.fingerprint.engine = hostile.into();
        if let Outcome::Failed { reason, .. } = &mut record.outcome {
            *reason = format!("{hostile}\u{1b}[31m");
        }
    }
    let html = check(&input(sweep));
    assert!(!html.contains("<img src"), "the name is escaped");
    assert_eq!(html.matches("</script>").count(), 2, "the data and the script, and nothing that ends them early");
}

#[test]
fn an_empty_sweep_says_so() {
    let html = check(&input(Sweep {
        name: "runs/empty".into(),
        header: Some(JournalHeader { planned: 12, ..header() }),
        ..Sweep::default()
    }));
    assert!(html.contains("No trial has finished yet"), "{html}");
    assert!(html.contains("no finished trial of 12 planned"));
    check(&ReportInput::default());
    assert!(reports::terminal_table(&ReportInput::default(), 80).contains("no trial has finished"));
}

#[test]
fn a_sweep_in_which_all_failed_says_why() {
    let html = check(&input(Synthetic { largest_tree: 0, ..small() }.sweep("runs/failed")));
    assert!(html.contains("No trial succeeded under this load."));
    assert!(html.contains("out of memory"));
}

#[test]
fn a_single_configuration_and_a_single_repeat_read_well() {
    let only = Synthetic { shapes: vec![TreeShape::chain(3)], batch_sizes: vec![4], repeats: 1, ..small() };
    let html = check(&input(only.sweep("runs/one")));
    assert!(html.contains("no speculation was not measured"));
    let once = Synthetic { repeats: 1, ..small() };
    let html = check(&input(once.sweep("runs/once")));
    assert!(html.contains("one repeat, no range"));
    let off = Synthetic { shapes: vec![TreeShape::OFF], repeats: 1, ..small() };
    check(&input(off.sweep("runs/off")));
}

#[test]
fn speculation_that_does_not_pay_is_the_answer() {
    let bad = Synthetic { acceptance: 0.02, ..small() };
    let html = check(&input(bad.sweep("runs/bad")));
    assert!(html.contains("Speculation does not pay here"));
}

#[test]
fn a_noisy_race_is_not_known_and_says_what_to_do() {
    let noisy = Synthetic { acceptance: 0.1, noise: 0.15, seed: 3, ..small() };
    let html = check(&input(noisy.sweep("runs/noisy")));
    assert!(html.contains("It is unknown whether speculation pays: the repeats vary too much. So far"));
    assert!(html.contains("--until decided --resume"));
}

#[test]
fn parts_of_a_round_that_were_not_measured_stay_missing() {
    let html = check(&input(Synthetic { split: false, ..small() }.sweep("runs/unsplit")));
    assert!(html.contains("<td>—</td>"));
}

#[test]
fn parts_of_a_round_that_were_timed_apart_are_shown_and_said_to_be_so() {
    let mut sweep = Synthetic { split: false, apart: true, ..small() }.sweep("runs/apart");
    // As in a sweep: once for each configuration and load.
    for record in sweep.records.iter_mut().filter(|record| record.trial.repeat > 0) {
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.parts_apart = None;
        }
    }
    let input = input(sweep);
    let html = check(&input);
    let remark = "measured in a few extra rounds after the trial";
    let folder = tempfile::tempdir().expect("a folder");
    reports::write(&input, folder.path()).expect("written");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("a file");
    // Above the table of each load, and below its chart.
    assert_eq!(html.matches(remark).count() - read("report.json").matches(remark).count(), 4);
    assert_eq!(read("report.md").matches(remark).count(), 2);
    assert!(reports::terminal_table(&input, 160).contains(remark));
    assert!(!reports::terminal_table(&input, 60).contains(remark), "where no part has room, there is nothing to say");

    let data: serde_json::Value = serde_json::from_str(&read("report.json")).expect("JSON");
    let entries = data["sections"][0]["races"][0]["entries"].as_array().expect("entries");
    let mut drafting = 0;
    for entry in entries.iter().filter(|entry| !entry["rank"].is_null()) {
        let parts = &entry["parts_of_round_ms"];
        let figure = |name: &str| parts[name].as_f64();
        let sum: f64 = ["draft", "verify", "extend"].into_iter().filter_map(figure).sum();
        assert!((sum / figure("apart").expect("a round") - 1.0).abs() < 1e-9, "{parts}");
        assert!(parts["remark"].as_str().is_some_and(|words| words.contains(remark)), "{parts}");
        drafting += usize::from(figure("draft").is_some());
    }
    assert_eq!(drafting, 4, "all but no speculation and the one that failed");
    let verify = TRIALS_APART.map(|name| read("trials.csv").contains(name));
    assert_eq!(verify, [true; 4]);
    let chart = read("charts/batch-8-round-time.svg");
    assert!(chart.contains(": draft ") && chart.contains(": verify ") && chart.contains(": extend "), "{chart}");

    let html = check(&crate::input(small().sweep("runs/one")));
    assert!(!html.contains(remark));
}

#[test]
fn figures_that_are_no_numbers_do_not_break_a_report() {
    let mut sweep = small().sweep("runs/broken");
    for record in &mut sweep.records {
        if let Outcome::Measured(measurement) = &mut record.outcome {
            measurement.round_ms.median = 0.0;
            measurement.tokens_per_s_per_user = f64::INFINITY;
            measurement.accept_histogram = Vec::new();
        }
    }
    check(&input(sweep));
}

#[test]
fn a_folder_that_cannot_be_made_is_a_clear_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").expect("written");
    let error = reports::write(&input(small().sweep("runs/one")), &file.join("report")).expect_err("no folder");
    assert!(error.to_string().contains("cannot create the report's folder"), "{error}");
}

#[test]
fn the_fingerprint_is_on_the_page() {
    let html = check(&input(small().sweep("runs/one")));
    let print = fingerprint();
    for part in [print.device_name, print.engine, print.target, print.draft, print.workload] {
        assert!(html.contains(&part), "{part}");
    }
}

#[test]
fn the_page_says_what_it_is_about_and_whose_figures_it_shows() {
    let mut sweep = small().sweep("runs/one");
    for (place, record) in sweep.records.iter_mut().enumerate() {
        record.origin.host = "node-3".into();
        record.finished_at = 1_790_000_000 + 60 * place as u64;
    }
    let html = check(&input(sweep));
    let models = "made-up&#x2f;target with made-up&#x2f;draft (EAGLE3)";
    let machine = "synthetic device (made-up figures) (node-3)";
    assert!(html.contains(&format!("<title>{models} on {machine}: what to run (spectune)</title>")), "{html}");
    for part in [
        machine,
        models,
        "made-up.jsonl, 64 requests of 256 new tokens, greedy",
        "2026-09-21 14:13 to 14:48 UTC, 30 trials",
        "Measured with spectune&#x27;s own engine 0.0.0: another engine may rank the same shapes differently.",
        "measured: spectune&#x27;s own engine 0.0.0 on synthetic device",
        "SGLang was not measured: another engine",
        "Waiting times: percentiles over requests",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // Explanations are collapsed, answers are not.
    assert!(html.find("class=\"answers\"") < html.find("<details class=\"card fold\""));
}

#[test]
fn several_sections_begin_with_one_table_and_are_called_by_what_tells_them_apart() {
    let first = small().sweep("runs/one");
    let second = elsewhere("runs/two", "999.1", |_| 2.0);
    let input = ReportInput { sweeps: vec![first, second], compare: false };
    let html = check(&input);
    for part in ["All sections", "Side by side", "1: synthetic device (made-up figures), driver", "driver 999.1"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.find("Side by side") < html.find("class=\"answers\""));
}

#[test]
fn no_speculation_has_no_accept_length() {
    let off = Synthetic { shapes: vec![TreeShape::OFF], ..small() };
    let html = check(&input(off.sweep("runs/off")));
    assert!(!html.contains("<dt>accept length</dt><dd><b>"), "{html}");
}

#[test]
fn a_winner_that_is_no_better_than_the_default_is_said_to_be_none() {
    let mut sweep = small().sweep("runs/one");
    for record in &mut sweep.records {
        let shape = record.trial.configuration.shape;
        let up = if record.trial.repeat % 2 == 0 { 1.004 } else { 0.996 };
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.output_tokens_per_s = match record.role {
                CandidateRole::EngineDefault => 200.0,
                _ if shape == TreeShape::chain(3) => 200.0 * up,
                _ => 100.0,
            };
        }
    }
    let html = check(&input(sweep));
    assert!(html.contains("Speculation pays here."));
    assert!(html.contains("No significant difference from the engine&#x27;s default, 5,4,8."), "{html}");
}

#[test]
fn buckets_of_contexts_are_shown_with_the_gain_of_following_them() {
    let buckets = [ContextRange { above: 0, up_to: Some(512) }, ContextRange { above: 512, up_to: None }];
    let mut sweep = small().sweep("runs/one");
    sweep.records.retain(|record| record.trial.load.batch_size().is_some_and(|batch| batch <= 8));
    for record in &mut sweep.records {
        let place = usize::from(record.trial.load == TrialLoad::BatchSize(8));
        record.trial.load = TrialLoad::BatchInContexts(8, buckets[place]);
        let chain = record.trial.configuration.shape == TreeShape::chain(3);
        let up = if record.trial.repeat % 2 == 0 { 1.001 } else { 0.999 };
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.output_tokens = 1000;
            figures.output_tokens_per_s = match (record.role, place) {
                (CandidateRole::NoSpeculation, 0) => 100.0,
                (CandidateRole::NoSpeculation, _) => 150.0,
                (_, 0) if chain => 200.0 * up,
                (_, 1) if chain => 100.0 * up,
                _ => 80.0 * up,
            };
        }
    }
    let input = input(sweep);
    let html = check(&input);
    for part in [
        "Accept length and round time by context",
        "3,1,4 (the choice for contexts up to 512)",
        "batch-8-context-1-512",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // 1/200.2 + 1/100.1 with the chain everywhere, 1/200.2 + 1/150 by context.
    let table = reports::terminal_table(&input, 400);
    let gain =
        "Batch 8: 3,1,4 for contexts up to 512, off for contexts above 512 together are +28% over 3,1,4 everywhere";
    assert!(table.contains(gain), "{table}");
}

#[test]
fn retractions_are_a_column_and_a_caution_of_their_load() {
    let mut sweep = small().sweep("runs/one");
    let caution =
        "batch 8: the KV cache was full, so requests were put back and prefilled again, up to 3.00 times a trial";
    let table = |sweep: &Sweep| reports::terminal_table(&input(sweep.clone()), 400);
    assert!(!table(&sweep).contains("KV cache was full") && !table(&sweep).contains("retr."));
    for record in sweep.records.iter_mut().filter(|record| record.trial.load == TrialLoad::BatchSize(8)) {
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.retractions = Some(3);
        }
    }
    let found = table(&sweep);
    assert!(found.contains(caution) && found.contains("retr."), "{found}");
    assert!(check(&input(sweep)).contains("the KV cache was full"));
}

#[test]
fn waiting_for_drafts_is_a_column_where_the_host_looks_them_up() {
    let mut sweep = small().sweep("runs/one");
    let table = |sweep: &Sweep| reports::terminal_table(&input(sweep.clone()), 400);
    assert!(!table(&sweep).contains("wait"), "{}", table(&sweep));
    assert!(!check(&input(sweep.clone())).contains("waiting for drafts (ms)"));
    for record in sweep.records.iter_mut().filter(|record| record.trial.load == TrialLoad::BatchSize(8)) {
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.draft_wait_ms = Some(TrialSpread { median: 0.375, ..figures.round_ms });
        }
    }
    let found = table(&sweep);
    assert_eq!(found.matches("wait").count(), 1, "only under the load that waits: {found}");
    assert!(found.contains("0.375"), "{found}");
    let html = check(&input(sweep.clone()));
    assert!(html.contains("waiting for drafts (ms)") && html.contains("0.375"));
    let folder = tempfile::tempdir().expect("a folder");
    reports::write(&input(sweep), folder.path()).expect("written");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    assert!(read("report.json").contains("\"draft_wait_ms\":0.375"));
    assert!(read("ranking.csv").lines().any(|line| line.contains("draft_wait_ms")));
    assert!(read("trials.csv").lines().any(|line| line.contains("draft_wait_ms_median")));
}

#[test]
fn arrivals_settings_and_tables_have_names_of_their_own() {
    let mut sweep = small().sweep("runs/one");
    for record in &mut sweep.records {
        if record.trial.load == TrialLoad::BatchSize(8) {
            record.trial.load = TrialLoad::RequestRate(Real(2.5));
        }
        if record.trial.configuration.shape == TreeShape::chain(1) {
            record.trial.configuration.knobs = Knobs { page_size: Some(16), ..Knobs::default() };
        }
        if record.trial.configuration.shape.topk == 4 && record.trial.configuration.shape.num_steps == 3 {
            record.trial.configuration.table = vec![
                TableRow::for_any_context(4, record.trial.configuration.shape),
                TableRow::for_any_context(64, TreeShape::chain(3)),
            ];
        }
    }
    let input = input(sweep);
    let html = check(&input).replace("&#x2f;", "/");
    for part in ["2.5 requests/s", "id=\"section-1-rate-2.5\"", "1,1,2 page_size=16", "table ≤4: 3,4,16; ≤64: 3,1,4"]
    {
        assert!(html.contains(part), "{part}");
    }
    for width in [80, 120] {
        let table = reports::terminal_table(&input, width);
        assert!(table.contains("page_size=16"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= width), "{width}: {table}");
    }
}
