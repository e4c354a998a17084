//! The same figure is the same wherever it is shown, and every trial is shown.

use std::{collections::BTreeMap, fs};

use polars_core::prelude::*;
use polars_io::prelude::*;
use reports::ReportInput;
use schemas::tree::TreeShape;
use tempfile::TempDir;
use tuner::trials::{
    configuration::{Real, TableRow, TrialLoad},
    record::{ArrivalFigures, CandidateRole, Measurement, Outcome, Record, Stalls},
};

use crate::{check, common::synthetic::Synthetic, input, small};

/// A report with its tables.
struct Written {
    folder: TempDir,
    html: String,
}

impl Written {
    fn from_report(input: &ReportInput) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        reports::write(input, folder.path()).expect("written");
        let html = fs::read_to_string(folder.path().join("report.html")).expect("a page");
        Self { folder, html }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).expect("a file")
    }

    fn table(&self, name: &str) -> DataFrame {
        let file = fs::File::open(self.folder.path().join(format!("{name}.parquet"))).expect("there");
        ParquetReader::new(file).finish().expect("Parquet")
    }
}

fn numbers(frame: &DataFrame, column: &str) -> Vec<Option<f64>> {
    frame.column(column).expect("there").f64().expect("numbers").to_vec()
}

fn words<'a>(frame: &'a DataFrame, column: &str) -> Vec<Option<&'a str>> {
    frame.column(column).expect("there").str().expect("texts").iter().collect()
}

fn figures(record: &mut Record) -> Option<&mut Measurement> {
    match &mut record.outcome {
        Outcome::Measured(figures) => Some(figures),
        Outcome::Failed { .. } => None,
    }
}

/// Stalls that the trials separate, and one trial that is nothing but stalls.
fn disturbed() -> Vec<Record> {
    let mut records = small().records();
    for record in &mut records {
        let repeat = record.trial.repeat;
        let is_it =
            record.trial.configuration.shape == TreeShape::chain(3) && record.trial.load == TrialLoad::BatchSize(8);
        let spoiled = is_it && repeat == 1;
        let Some(figures) = figures(record) else { continue };
        figures.steady = Some(figures.by_wall_clock());
        let share = 0.1 * repeat as f64;
        figures.output_tokens_per_s *= 1.0 - share;
        figures.elapsed_s /= 1.0 - share;
        figures.stalls = Some(Stalls { of_time: share, of_steps: if spoiled { 0.9 } else { 0.01 } });
    }
    records
}

#[test]
fn the_throughput_of_the_tables_is_the_median_of_the_trials_that_count() {
    let mut sweep = small().sweep("runs/one");
    sweep.records = disturbed();
    let report = input(sweep);
    let written = Written::from_report(&report);
    let (trials, ranking) = (written.table("trials"), written.table("ranking"));
    let mut of: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    let excluded = words(&trials, "excluded");
    let keys = |frame: &DataFrame| -> Vec<(String, String)> {
        let pairs = words(frame, "load").into_iter().zip(words(frame, "configuration"));
        pairs.map(|(load, name)| (load.expect("a load").to_owned(), name.expect("a name").to_owned())).collect()
    };
    for ((key, rate), excluded) in keys(&trials).into_iter().zip(numbers(&trials, "output_tokens_per_s")).zip(&excluded)
    {
        of.entry(key).or_default().extend(rate.filter(|_| excluded.is_none()));
    }
    for (key, rate) in keys(&ranking).into_iter().zip(numbers(&ranking, "output_tokens_per_s")) {
        let expected = tuner::statistics::interval(&of[&key]).map(|interval| interval.median);
        assert_eq!(rate, expected, "{key:?}");
    }
    let walls = numbers(&trials, "wall_output_tokens_per_s");
    let slower = numbers(&trials, "output_tokens_per_s").into_iter().zip(walls).filter(|(rate, wall)| wall < rate);
    assert_eq!(slower.count(), 20, "the second and third repeats stalled");
    // Card, details, head and table count alike.
    assert_eq!(excluded.iter().flatten().copied().collect::<Vec<_>>(), ["stalled"]);
    assert!(written.html.contains("30 trials, 1 of them excluded, 6 failed"));
    assert!(written.html.contains("1 of 15 trials was excluded from the comparison"), "{}", written.html);
    assert!(written.html.contains("1 repeat is excluded from medians and comparisons"));
    assert!(written.html.contains("3,1,4 repeat 2."));
    assert_eq!(written.html.matches("No repeat was excluded.").count(), 1, "at the other load");
    assert!(reports::terminal_table(&report, 100).contains("1 of them excluded"));
    let data: serde_json::Value = serde_json::from_str(&written.text("report.json")).expect("JSON");
    let marked = data["sections"][0]["trials"].as_array().expect("trials").iter();
    assert_eq!(marked.filter(|trial| trial["excluded"] == "stalled").count(), 1);
}

#[test]
fn the_order_is_that_of_the_speed_ups_and_the_page_says_so() {
    for seed in 0..4 {
        let noisy = Synthetic { noise: 0.08, seed, ..small() };
        let written = Written::from_report(&input(noisy.sweep("runs/one")));
        assert!(written.html.contains("Ranked by speed-up, highest first: throughput relative to no speculation"));
        let ranking = written.table("ranking");
        let (ratios, rates) = (numbers(&ranking, "speedup"), numbers(&ranking, "output_tokens_per_s"));
        let loads = words(&ranking, "load");
        let mut disagrees = false;
        for place in 1..loads.len() {
            if loads[place] == loads[place - 1] && ratios[place].is_some() {
                assert!(ratios[place] <= ratios[place - 1], "{seed}: {ratios:?}");
                disagrees |= rates[place] > rates[place - 1];
            }
        }
        assert_eq!(written.html.contains("are in another order in places"), disagrees, "{seed}: {rates:?}");
    }
}

#[test]
fn no_percentile_is_shown_that_is_the_largest_value() {
    let with = |requests: usize| {
        let mut sweep = small().sweep("runs/one");
        for figures in sweep.records.iter_mut().filter_map(figures) {
            figures.requests = requests;
            for spread in [&mut figures.time_to_first_token_ms, &mut figures.latency_ms] {
                // As in journals of earlier versions, which do not contain it.
                spread.count = 0;
            }
            figures.inter_token_ms.iter_mut().for_each(|spread| spread.count = requests);
        }
        Written::from_report(&input(sweep))
    };
    for (requests, has_p90, has_p99) in [(9, false, false), (99, true, false), (100, true, true)] {
        let written = with(requests);
        let trials = written.table("trials");
        for (column, expected) in [("p90", has_p90), ("p99", has_p99), ("max", true)] {
            for what in ["time_to_first_token_ms", "inter_token_ms", "latency_ms"] {
                let known = numbers(&trials, &format!("{what}_{column}")).iter().flatten().count();
                assert_eq!(known, if expected { 30 } else { 0 }, "{requests}: {what}_{column}");
            }
        }
        let page = written.html.split("id=\"definitions\"").next().expect("a page");
        assert_eq!(page.contains(">p99<"), has_p99, "{requests}");
        assert_eq!(page.contains(">p90<"), has_p90, "{requests}");
        assert_eq!(page.contains(&format!(">max of {requests}<")), !has_p99, "{requests}");
    }
}

#[test]
fn probes_are_rows_and_a_load_with_nothing_else_is_on_the_page() {
    let mut sweep = small().sweep("runs/one");
    let table = |record: &Record| {
        let mut probe = record.clone();
        probe.id.push_str("/probe");
        probe.role = CandidateRole::Probe;
        probe.trial.configuration.table =
            vec![TableRow::for_any_context(1, TreeShape::chain(7)), TableRow::for_any_context(8, TreeShape::chain(3))];
        probe
    };
    let chains: Vec<&Record> =
        sweep.records.iter().filter(|one| one.trial.configuration.shape == TreeShape::chain(3)).collect();
    let mut probes: Vec<Record> = chains.into_iter().map(table).collect();
    let mut alone = probes[0].clone();
    alone.id.push_str("/32");
    alone.trial.load = TrialLoad::BatchSize(32);
    probes.push(alone);
    sweep.records.extend(probes);
    let report = input(sweep);
    check(&report);
    let written = Written::from_report(&report);
    let page = written.html.split("<script type=\"application").next().expect("a page");
    assert_eq!(
        page.matches("table ≤1: 7,1,8; ≤8: 3,1,4 <span class=\"badge\">probe</span>").count(),
        6,
        "in the first rows and in all: {page}"
    );
    assert!(page.contains("Batch size 32") && page.contains("Nothing was ranked under this load."));
    assert!(page.contains("only separate starts are compared"));
    let ranking = written.table("ranking");
    assert_eq!(words(&ranking, "role").iter().filter(|role| **role == Some("probe")).count(), 3);
    let names = words(&ranking, "configuration");
    for name in words(&written.table("trials"), "configuration") {
        assert!(names.contains(&name), "{name:?}");
    }
    assert!(reports::terminal_table(&report, 200).contains("probe table ≤1: 7,1,8; ≤8: 3,1,4"));
    assert!(written.text("report.md").contains("(probe)"));
}

#[test]
fn requests_are_never_served_faster_than_they_are_sent() {
    let mut sweep = small().sweep("runs/one");
    for record in &mut sweep.records {
        record.trial.load = TrialLoad::RequestRate(Real(10.0));
        if let Some(figures) = figures(record) {
            figures.requests = 12;
            figures.arrivals =
                Some(ArrivalFigures { offered_per_s: 10.0, offered_tokens_per_s: 100.0, unserved_at_last: 3 });
        }
    }
    let written = Written::from_report(&input(sweep));
    let trials = written.table("trials");
    let rates = numbers(&trials, "served_per_s").into_iter().zip(numbers(&trials, "offered_per_s"));
    // Of eleven requests after the first, nine were served when the last one arrived.
    assert!(
        rates
            .flat_map(|(served, sent)| served.zip(sent))
            .all(|(served, sent)| (served - sent * 9.0 / 11.0).abs() < 1e-9)
    );
    assert!(written.html.contains("from the first arrival to the last"));
}

#[test]
fn what_limits_all_answers_is_said_where_they_are() {
    let mut sweep = small().sweep("runs/one");
    sweep.tuned.as_mut().expect("a tuned file").warnings =
        vec!["batch 8: the machine was busy".into(), "weights are quantised".into()];
    if let Some(header) = &mut sweep.header {
        header.file.workload.prompts = None;
        header.file.workload.random = Some(serde_json::from_str("{\"input_length\": 8}").expect("lengths"));
    }
    let report = input(sweep);
    let written = Written::from_report(&report);
    let answers = written.html.find("class=\"answers\"").expect("the answers");
    for caution in ["Weights are quantised.", "say nothing about text."] {
        assert!(written.html.find(caution).is_some_and(|place| place < answers), "{caution}");
    }
    assert!(!written.html[..answers].contains("batch 8: the machine"), "it is on the card of its load");
    let table = reports::terminal_table(&report, 200);
    assert!(table.contains("note: weights are quantised") && table.contains("say nothing about text"), "{table}");
}

#[test]
fn a_servers_last_lines_are_shown_once_for_all_that_it_rejected() {
    let mut sweep = small().sweep("runs/one");
    for record in &mut sweep.records {
        if !record.trial.configuration.is_off() {
            let reason = "the server rejected its arguments\nlaunch_server.py: error: no such option: --nope".into();
            record.outcome = Outcome::Failed { reason, failure: None };
        }
    }
    let report = input(sweep);
    let written = Written::from_report(&report);
    let lines = "<pre>launch_server.py: error: no such option: --nope</pre>";
    assert_eq!(written.html.matches(lines).count(), 2, "once per load");
    assert!(written.html.contains("<b>1,1,2, 3,1,4, 3,4,16, 5,4,8, 5,8,64</b>"), "{}", written.html);
    assert!(reports::terminal_table(&report, 80).contains("     launch_server.py: error: no such option: --nope"));
}

#[test]
fn remarks_on_flags_are_made_once_and_the_first_rows_are_in_sight() {
    let written = Written::from_report(&input(small().sweep("runs/one")));
    let remark = "follows the whole table: the tree shape changes with the running batch";
    assert_eq!(written.html.matches(remark).count(), 1);
    assert!(!written.html.contains("best choice"));
    let ranking =
        written.html.find("<table class=\"sortable ranking\" aria-label=\"The best configurations").expect("rows");
    assert_eq!(
        written.html[..ranking].matches("<details").count(),
        written.html[..ranking].matches("</details>").count()
    );
}
