//! Reports of made-up trials, read back in every form.

mod common;

use std::{collections::BTreeSet, fs, path::Path};

use common::{
    guide::guide,
    synthetic::{Synthetic, fingerprint, tuned},
};
use polars::prelude::*;
use reports::{ReportInput, Sweep};
use schemas::tree::TreeShape;
use tuner::{
    configuration::{Knobs, Load, Real, TableRow},
    journal::{Header, Journal},
    record::{Outcome, Record, Role},
};

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
    ReportInput { sweeps: vec![sweep], compare: false }
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
    assert_eq!(data["version"], 2);
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
    let input = ReportInput { sweeps: vec![one, two], compare: false };
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
    reports::write(&ReportInput { sweeps: vec![one, two], compare: false }, folder.path()).expect("written");
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
    let html = check(&ReportInput { sweeps: vec![whole, other], compare: false });
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

/// All shapes of the made-up space, so that parameters can be told apart.
fn whole_space() -> Synthetic {
    Synthetic { shapes: Synthetic::default().shapes, ..small() }
}

fn guided() -> Sweep {
    let synthetic = whole_space();
    Sweep { guide: Some(guide(&synthetic)), ..synthetic.sweep("runs/guided") }
}

/// A sweep like `small`, elsewhere: each figure times `factor`, in the order of the records.
fn elsewhere(name: &str, driver: &str, factor: impl Fn(&Record) -> f64) -> Sweep {
    let mut sweep = small().sweep(name);
    for record in &mut sweep.records {
        record.id.push_str(driver);
        record.fingerprint.driver = driver.into();
        let factor = factor(record);
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.output_tokens_per_s *= factor;
            figures.tokens_per_s_per_user *= factor;
        }
    }
    sweep
}

fn column(frame: &DataFrame, name: &str) -> Vec<Option<f64>> {
    frame.column(name).expect("a column").f64().expect("numbers").iter().collect()
}

#[test]
fn a_guided_sweep_shows_prediction_beside_measurement() {
    let html = check(&input(guided()));
    for part in [
        "Predicted against measured",
        "Predicted, not measured",
        "Accept length by shape",
        "Replayed: the draft was run over 64 texts",
        "Round-time model",
        "weights of the target",
        "Capture sizes",
        "slime&#x27;s wide list",
        "Parameter importance",
        "over 20 predicted",
        "time for the draft&#x27;s replay",
        "but for those that are called predicted",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    reports::write(&input(guided()), folder.path()).expect("written");
    let frame = ParquetReader::new(fs::File::open(folder.path().join("predictions.parquet")).expect("there"))
        .finish()
        .expect("Parquet");
    assert_eq!(frame.height(), whole_space().shapes.len() * 2, "the whole space, what failed included");
    let sizes = frame.column("batch_size").expect("there").u64().expect("numbers").iter().collect::<Vec<_>>();
    let errors = column(&frame, "relative_error");
    assert_eq!(errors.iter().filter(|error| error.is_none()).count(), 2, "what failed has no error");
    for (size, error) in sizes.into_iter().zip(errors) {
        let expected = common::guide::error(size.expect("a size") as usize);
        assert!(error.is_none_or(|error| (error - expected).abs() < 0.04), "{size:?}: {error:?}");
    }
}

#[test]
fn a_guide_of_another_machine_is_not_shown() {
    let mut sweep = guided();
    sweep.guide.as_mut().expect("a guide").fingerprint.device_name = "another".into();
    let html = check(&input(sweep));
    assert!(html.contains("its predictions were made for something else"));
    assert!(!html.contains("Predicted against measured"));
    assert!(html.contains("none is predicted or extrapolated"));
}

#[test]
fn a_guide_beside_the_journal_is_read_and_a_broken_one_is_a_notice() {
    let synthetic = small();
    let file = synthetic.sweep("any").file.expect("a file");
    let header = Header {
        format: tuner::journal::FORMAT,
        sweep: "hash".into(),
        fingerprint: fingerprint(),
        shard: None,
        file,
        planned: 36,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::create(folder.path(), &header).expect("a journal");
    synthetic.records().iter().take(6).for_each(|record| journal.append(record).expect("written"));
    let check = |text: Option<&str>, there: bool, notices: &[&str]| {
        let path = folder.path().join(tuner::guide::FILE_NAME);
        match text {
            Some(text) => fs::write(&path, text).expect("written"),
            None => assert!(!path.exists()),
        }
        let sweep = Sweep::read(folder.path()).expect("a journal");
        assert_eq!((sweep.guide.is_some(), sweep.notices.len()), (there, notices.len()), "{:?}", sweep.notices);
        assert!(sweep.notices.iter().zip(notices).all(|(notice, part)| notice.contains(part)), "{:?}", sweep.notices);
    };
    check(None, false, &[]);
    let whole = serde_json::to_string(&guide(&synthetic)).expect("JSON");
    check(Some(&whole), true, &[]);
    check(Some(&whole.replacen("\"format\":1", "\"format\":99", 1)), false, &["format 99, and this program reads 1"]);
    check(Some(&whole[..whole.len() / 2]), false, &["guide.json cannot be used"]);
    check(Some("[]"), false, &["guide.json cannot be used"]);
}

#[test]
fn two_runs_that_differ_in_one_thing_are_compared_and_not_ranked() {
    let check_comparison = |factor: f64, batch_1: &str| {
        let other =
            elsewhere("runs/newer", "2.0", |record| if record.trial.load == Load::BatchSize(1) { factor } else { 1.0 });
        let input = ReportInput { sweeps: vec![elsewhere("runs/older", "1.0", |_| 1.0), other], compare: false };
        let html = check(&input).replace("&#x2f;", "/");
        for part in
            ["runs/newer against runs/older", "driver: 1.0 → 2.0", batch_1, "Batch size 8: no significant difference"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert!(html.contains("Section 2"), "ranked each for itself");
        assert!(reports::terminal_table(&input, 80).contains(batch_1));
    };
    check_comparison(1.25, "Batch size 1: better in 5 of 5; 1.25× at the median.");
    check_comparison(0.8, "Batch size 1: worse in 5 of 5; 0.80× at the median.");
}

#[test]
fn runs_that_differ_in_more_are_compared_only_when_asked() {
    let mut other = elsewhere("runs/newer", "2.0", |_| 1.0);
    other.records.iter_mut().for_each(|record| record.fingerprint.workload = "another".into());
    let mut input = ReportInput { sweeps: vec![elsewhere("runs/older", "1.0", |_| 1.0), other], compare: false };
    assert!(!check(&input).contains("What differs between the runs"));
    input.compare = true;
    let html = check(&input);
    assert!(html.contains("driver: 1.0 → 2.0; workload:"), "both are named");
    // The same run against itself: nothing differs, and that is said.
    let same = ReportInput { sweeps: vec![small().sweep("runs/one"), small().sweep("runs/two")], compare: true };
    let html = check(&same);
    assert!(html.contains("have the same fingerprint"));
    assert!(html.contains("Batch size 1: no significant difference"));
}

#[test]
fn a_winner_that_is_no_better_than_the_default_is_said_to_be_none() {
    let mut sweep = small().sweep("runs/one");
    for record in &mut sweep.records {
        let shape = record.trial.configuration.shape;
        let up = if record.trial.repeat % 2 == 0 { 1.004 } else { 0.996 };
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.output_tokens_per_s = match record.role {
                Role::EngineDefault => 200.0,
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
fn simulated_acceptance_is_named_wherever_its_figures_stand() {
    let simulated = input(Synthetic { simulated: true, ..small() }.sweep("runs/one"));
    let html = check(&simulated);
    assert!(html.contains("Acceptance was simulated in trials that are marked so"));
    assert!(html.matches("simulated acceptance</span>").count() >= 10, "each configuration is marked");
    assert!(reports::terminal_table(&simulated, 120).contains("simulated acceptance"));
    assert!(!check(&input(small().sweep("runs/one"))).contains("simulated acceptance"));
}

#[test]
fn arrivals_settings_and_tables_have_names_of_their_own() {
    let mut sweep = small().sweep("runs/one");
    for record in &mut sweep.records {
        if record.trial.load == Load::BatchSize(8) {
            record.trial.load = Load::RequestRate(Real(2.5));
        }
        if record.trial.configuration.shape == TreeShape::chain(1) {
            record.trial.configuration.knobs = Knobs { page_size: Some(16), ..Knobs::default() };
        }
        if record.trial.configuration.shape.topk == 4 && record.trial.configuration.shape.num_steps == 3 {
            record.trial.configuration.table = vec![
                TableRow { max_running_batch: 4, shape: record.trial.configuration.shape },
                TableRow { max_running_batch: 64, shape: TreeShape::chain(3) },
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

#[test]
fn a_machine_that_slows_down_is_found_out() {
    assert!(check(&input(small().sweep("runs/one"))).contains("No drift"));
    let slower = elsewhere("runs/slower", "", |record| 1.0 - 0.1 * record.trial.repeat as f64);
    let html = check(&input(slower));
    assert!(html.contains("<p>Drift: the last third of the trials is −"), "{html}");
}
