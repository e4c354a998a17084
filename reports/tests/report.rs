//! Reports of made-up trials, read back in every form.

mod common;

use std::{collections::BTreeSet, fs, path::Path};

use common::synthetic::{Synthetic, fingerprint, tuned};
use polars::prelude::*;
use reports::{ReportInput, Sweep};
use schemas::tree::TreeShape;
use tuner::record::Outcome;

fn small() -> Synthetic {
    let shapes = [TreeShape::OFF, TreeShape::chain(1), TreeShape::chain(3)]
        .into_iter()
        .chain([(5, 4, 8), (3, 4, 16), (5, 8, 64)].map(|(num_steps, topk, num_draft_tokens)| TreeShape {
            num_steps,
            topk,
            num_draft_tokens,
        }))
        .collect();
    Synthetic { batch_sizes: vec![1, 8], shapes, repeats: 3, ..Synthetic::default() }
}

fn input(sweep: Sweep) -> ReportInput {
    ReportInput { sweeps: vec![sweep] }
}

/// Writes the report and checks what must hold for every report; gives back its web page.
fn check(input: &ReportInput) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let files = reports::write(input, folder.path()).expect("written");
    let names: BTreeSet<String> =
        files.iter().map(|path| path.strip_prefix(folder.path()).expect("inside").display().to_string()).collect();
    for name in
        ["report.html", "report.md", "report.json", "trials.csv", "trials.parquet", "ranking.csv", "ranking.parquet"]
    {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    let left: Vec<_> = walk(folder.path()).into_iter().filter(|name| !names.contains(name)).collect();
    assert_eq!(left, Vec::<String>::new(), "nothing but the files that were returned");

    let html = fs::read_to_string(folder.path().join("report.html")).expect("a page");
    loads_nothing(&html);
    let markdown = fs::read_to_string(folder.path().join("report.md")).expect("Markdown");
    assert!(markdown.contains("is measured"), "{markdown}");
    let data: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("report.json")).expect("JSON")).expect("valid");
    assert_eq!(data["format"], "spectune-report");
    assert_eq!(data["version"], 1);
    let embedded =
        html.split_once("id=\"report-data\">").expect("embedded").1.split_once("</script>").expect("closed").0;
    assert_eq!(serde_json::from_str::<serde_json::Value>(embedded).expect("valid"), data, "the page carries the rows");
    for file in files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "svg")) {
        let svg = fs::read_to_string(file).expect("a drawing");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{}", file.display());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", file.display());
        let html_part =
            svg.replacen(&svg[svg.find("<style>").expect("a style")..svg.find("</style>").expect("closed") + 8], "", 1);
        assert!(html.contains(html_part.trim()), "{} is in the page", file.display());
    }
    assert!(reports::terminal_table(input, 100).lines().all(|line| !line.contains('\u{1b}')));
    html
}

fn walk(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .flat_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() {
                walk(&entry.path()).into_iter().map(|inner| format!("{name}/{inner}")).collect()
            } else {
                vec![name]
            }
        })
        .collect()
}

/// No element, rule or script of the page names another place to load from.
fn loads_nothing(html: &str) {
    let lower = html.to_lowercase();
    for tag in lower.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or(rest)) {
        let name = tag.split_whitespace().next().unwrap_or_default();
        assert!(!["img", "iframe", "object", "embed", "base", "video", "audio", "source"].contains(&name), "<{tag}>");
        for attribute in ["src=", "srcset=", "action=", "data=", "xlink:href="] {
            assert!(!tag.contains(&format!(" {attribute}")), "<{tag}>");
        }
        if let Some((_, target)) = tag.split_once("href=\"") {
            assert!(target.starts_with('#') || target.starts_with("data:,"), "<{tag}>");
        }
    }
    let style = lower.split_once("<style>").expect("a style").1.split_once("</style>").expect("closed").0;
    let script = lower.rsplit_once("<script>").expect("a script").1;
    for part in ["@import", "url(", "fetch(", "xmlhttprequest", "import(", "http"] {
        assert!(!style.contains(part) && !script.contains(part), "{part}");
    }
}

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
    insta::assert_snapshot!("terminal_wide", reports::terminal_table(&input, 160));
    insta::assert_snapshot!("terminal_narrow", reports::terminal_table(&input, 60));
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
    let expected: Vec<Option<f64>> = records
        .iter()
        .map(|record| match &record.outcome {
            Outcome::Measured(measurement) => Some(measurement.output_tokens_per_s),
            Outcome::Failed { .. } => None,
        })
        .collect();
    assert_eq!(figures, expected);
    let reasons = trials.column("reason").expect("there").str().expect("texts").iter().flatten().count();
    assert_eq!(reasons, expected.iter().filter(|figure| figure.is_none()).count());
}

#[test]
fn names_and_reasons_are_text_and_never_markup() {
    let hostile = "</script><img src=x onerror=alert(1)>\"'&|`\n# heading";
    let mut sweep = small().sweep(hostile);
    if let Some(file) = &mut sweep.file {
        file.models.target = hostile.into();
    }
    sweep.notices.push(hostile.into());
    let mut file = tuned();
    file.models.target = hostile.into();
    file.models.draft = hostile.into();
    sweep.tuned = Some(file);
    for record in &mut sweep.records {
        record.fingerprint.device_name = hostile.into();
        record.fingerprint.engine = hostile.into();
        if let Outcome::Failed { reason } = &mut record.outcome {
            *reason = format!("{hostile}\u{1b}[31m");
        }
    }
    let html = check(&input(sweep));
    assert!(!html.contains("<img src"), "the name is escaped");
    assert_eq!(html.matches("</script>").count(), 2, "the data and the script, and nothing that ends them early");
}

#[test]
fn an_empty_sweep_says_so() {
    let html = check(&input(Sweep { name: "runs/empty".into(), planned: Some(12), ..Sweep::default() }));
    assert!(html.contains("No trial has finished yet"), "{html}");
    assert!(html.contains("no finished trial of 12 planned"));
    check(&ReportInput::default());
    assert!(reports::terminal_table(&ReportInput::default(), 80).contains("no trial has finished"));
}

#[test]
fn a_sweep_in_which_all_failed_says_why() {
    let html = check(&input(Synthetic { largest_tree: 0, ..small() }.sweep("runs/failed")));
    assert!(html.contains("No trial succeeded at this batch size."));
    assert!(html.contains("out of memory"));
}

#[test]
fn a_single_configuration_and_a_single_repeat_read_well() {
    let only = Synthetic { shapes: vec![TreeShape::chain(3)], batch_sizes: vec![4], repeats: 1, ..small() };
    let html = check(&input(only.sweep("runs/one")));
    assert!(html.contains("no speculation was not measured"));
    let once = Synthetic { repeats: 1, ..small() };
    let html = check(&input(once.sweep("runs/once")));
    assert!(html.contains("one repeat, no interval"));
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
fn parts_of_a_round_that_were_not_measured_stay_missing() {
    let html = check(&input(Synthetic { split: false, ..small() }.sweep("runs/unsplit")));
    assert!(html.contains("<td>—</td>"));
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
fn different_fingerprints_are_not_ranked_against_each_other() {
    let one = small().sweep("runs/one");
    let mut two = small().sweep("runs/two");
    for record in &mut two.records {
        record.id.push('x');
        record.fingerprint.workload = "blake3:other".into();
    }
    let input = ReportInput { sweeps: vec![one, two] };
    let html = check(&input);
    assert!(html.contains("2 different fingerprints"));
    assert!(html.contains("Section 2"));
    assert!(reports::terminal_table(&input, 100).contains("2 fingerprints"));
}

#[test]
fn a_trial_in_two_folders_counts_once_and_a_measured_one_goes_before_a_failed_one() {
    let one = small().sweep("runs/one");
    let mut two = one.clone();
    two.name = "runs/two".into();
    let failed =
        two.records.iter_mut().find(|record| matches!(record.outcome, Outcome::Failed { .. })).expect("one failed");
    let measured =
        one.records.iter().find(|record| matches!(record.outcome, Outcome::Measured(_))).expect("one measured");
    failed.outcome = measured.outcome.clone();
    let (count, failures) = (one.records.len(), |sweep: &Sweep| {
        sweep.records.iter().filter(|record| matches!(record.outcome, Outcome::Failed { .. })).count()
    });
    let expected = failures(&one) - 1;
    let folder = tempfile::tempdir().expect("a folder");
    reports::write(&ReportInput { sweeps: vec![one, two] }, folder.path()).expect("written");
    let trials = ParquetReader::new(fs::File::open(folder.path().join("trials.parquet")).expect("there"))
        .finish()
        .expect("Parquet");
    assert_eq!(trials.height(), count);
    assert_eq!(trials.column("reason").expect("there").str().expect("texts").iter().flatten().count(), expected);
}

#[test]
fn shards_are_whole_together_and_partial_alone() {
    let mut whole = small().sweep("runs/shard-1");
    whole.planned = Some(whole.records.len());
    let mut other = Sweep { name: "runs/shard-2".into(), ..whole.clone() };
    other.records = whole.records.split_off(whole.records.len() / 2);
    assert!(check(&input(whole.clone())).contains("18 of 36 planned trials have finished"));
    let html = check(&ReportInput { sweeps: vec![whole, other] });
    assert!(!html.contains("planned trials have finished"));
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
