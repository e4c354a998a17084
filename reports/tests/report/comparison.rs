//! Several sweeps in one report.

use std::{fs, path::PathBuf};

use polars_io::prelude::*;
use reports::{ReportInput, Sweep};
use tuner::{
    sweep::merge,
    trials::{
        configuration::TrialLoad,
        journal::JournalHeader,
        record::{CandidateRole, Outcome},
    },
};

use crate::{check, elsewhere, folders::two_shards, input, small, synthetic::header};

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
    assert!(html.contains("2: synthetic device (made-up figures), workload blake3:other"));
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
    whole.header = Some(JournalHeader { planned: whole.records.len(), ..header() });
    let mut other = Sweep { name: "runs/shard-2".into(), ..whole.clone() };
    other.records = whole.records.split_off(whole.records.len() / 2);
    assert!(check(&input(whole.clone())).contains("18 of 36 planned trials have finished"));
    let html = check(&ReportInput { sweeps: vec![whole, other], compare: false });
    assert!(!html.contains("planned trials have finished"));
}

/// No speculation and the engine's default, under two loads, with three repeats.
const BASELINE_TRIALS: usize = 2 * 2 * 3;

fn sweeps(folders: &[PathBuf]) -> ReportInput {
    let sweeps = folders.iter().map(|folder| Sweep::read(folder).expect("a sweep")).collect();
    ReportInput { sweeps, compare: false }
}

#[test]
fn shards_are_reported_as_the_merged_sweep_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let shards = two_shards(folder.path(), &small());
    let merged = folder.path().join("merged");
    let summary = merge::run(&shards, &merged).expect("it merges");
    assert!(summary.repeated > 0, "baselines are in both");
    let section = |folders: &[PathBuf]| {
        let out = folder.path().join("report");
        reports::write(&sweeps(folders), &out).expect("written");
        let text = fs::read_to_string(out.join("report.json")).expect("JSON");
        let data: serde_json::Value = serde_json::from_str(&text).expect("valid");
        (data["sections"][0]["races"].clone(), data["sections"][0]["trials"].clone())
    };
    let expected = section(&[merged]);
    assert_eq!(section(&shards), expected);
    let [first, second] = shards;
    assert_eq!(section(&[second, first]), expected);
}

#[test]
fn the_plan_of_shards_is_that_of_all_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let shards = two_shards(folder.path(), &small());
    let mut input = sweeps(&shards);
    let planned = input.sweeps.iter().filter_map(Sweep::planned).sum::<usize>();
    assert!(!check(&input).contains("planned trials have finished"));
    // First the last trial of the second shard is missing, then all of them.
    let last = input.sweeps[1].records.pop().expect("a trial");
    assert_eq!(last.role, CandidateRole::Candidate, "or the first shard would have it too");
    let whole = planned - BASELINE_TRIALS;
    assert!(check(&input).contains(&format!("{} of {whole} planned trials have finished", whole - 1)));
    input.sweeps[1].records.clear();
    let first = input.sweeps[0].records.len();
    assert!(check(&input).contains(&format!("{first} of {whole} planned trials have finished")));
}

#[test]
fn two_runs_that_differ_in_one_thing_are_compared_and_not_ranked() {
    let check_comparison = |factor: f64, batch_1: &str| {
        let other =
            elsewhere(
                "runs/newer",
                "2.0",
                |record| if record.trial.load == TrialLoad::BatchSize(1) { factor } else { 1.0 },
            );
        let input = ReportInput { sweeps: vec![elsewhere("runs/older", "1.0", |_| 1.0), other], compare: false };
        let html = check(&input).replace("&#x2f;", "/");
        for part in
            ["runs/newer against runs/older", "driver: 1.0 → 2.0", batch_1, "Batch size 8: no significant difference"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert!(html.contains("2: synthetic device (made-up figures), driver 2.0"), "ranked each for itself");
        assert!(reports::terminal_table(&input, 80).contains(batch_1));
    };
    check_comparison(1.25, "Batch size 1: better in 5 of 5; 1.25× at the median.");
    check_comparison(0.8, "Batch size 1: worse in 5 of 5; 0.80× at the median.");
}

#[test]
fn runs_that_differ_in_more_are_compared_only_when_requested() {
    let mut other = elsewhere("runs/newer", "2.0", |_| 1.0);
    other.records.iter_mut().for_each(|record| record.fingerprint.workload = "another".into());
    let mut input = ReportInput { sweeps: vec![elsewhere("runs/older", "1.0", |_| 1.0), other], compare: false };
    assert!(!check(&input).contains("What differs between the runs"));
    input.compare = true;
    let html = check(&input);
    assert!(html.contains("driver: 1.0 → 2.0; workload:"), "both are named");
    // The same run against itself: the report says that nothing differs.
    let same = ReportInput { sweeps: vec![small().sweep("runs/one"), small().sweep("runs/two")], compare: true };
    let html = check(&same);
    assert!(html.contains("have the same fingerprint"));
    assert!(html.contains("Batch size 1: no significant difference"));
}
