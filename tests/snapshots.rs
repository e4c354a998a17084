//! What commands print, to the letter and with the exit code: merged folders, job files, compared runs.
#![cfg(unix)]

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;
use tuner::{journal::Header, record::Fingerprint};

use self::{
    folders::two_shards,
    synthetic::{Synthetic, header},
};

#[path = "../reports/tests/common/folders.rs"]
mod folders;
#[allow(dead_code, reason = "made for the tests of reports, which need more of it")]
#[path = "../reports/tests/common/synthetic.rs"]
mod synthetic;

/// Few enough trials for a page.
fn small() -> Synthetic {
    let shapes = ["0,1,1", "3,1,4", "5,4,8", "3,4,16"].map(|shape| shape.parse().expect("a shape"));
    Synthetic { batch_sizes: vec![1, 8], shapes: shapes.to_vec(), repeats: 3, ..Synthetic::default() }
}

/// Runs the binary in a folder; places that differ from machine to machine have names instead.
fn spectune(folder: &TempDir, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
    for name in ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "SPECTUNE_SHARDS", "COLUMNS"] {
        command.env_remove(name);
    }
    let output = command.args(arguments).current_dir(folder.path()).env("NO_COLOR", "1").output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    let shown = format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", text(output.stdout), text(output.stderr));
    let here = folder.path().canonicalize().expect("the folder");
    [
        (env!("CARGO_BIN_EXE_spectune"), "[SPECTUNE]"),
        (path(&here), "[FOLDER]"),
        (env!("CARGO_PKG_VERSION"), "[VERSION]"),
    ]
    .into_iter()
    .fold(shown, |shown, (place, name)| shown.replace(place, name))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Two runs of the same sweep, `before` and `after`, that differ in the driver and in the figures.
fn two_runs() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, driver, acceptance) in [("before", "570.10", 0.68), ("after", "580.20", 0.75)] {
        let fingerprint = Fingerprint { driver: driver.into(), ..header().fingerprint };
        let mut records = Synthetic { acceptance, ..small() }.records();
        for record in &mut records {
            record.id = record.trial.id(&fingerprint);
            record.fingerprint = fingerprint.clone();
        }
        folders::sweep(&folder.path().join(name), &Header { fingerprint, ..header() }, &records);
    }
    folder
}

#[test]
fn shards_are_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    two_shards(folder.path(), &small());
    insta::assert_snapshot!("merge", spectune(&folder, &["merge", "shard-1", "shard-2", "--out", "whole"]));
    insta::assert_snapshot!("merge_in_part", spectune(&folder, &["merge", "shard-1", "--out", "part"]));
}

#[test]
fn runs_on_two_machines_are_not_merged() {
    let folder = two_runs();
    insta::assert_snapshot!("merge_refused", spectune(&folder, &["merge", "before", "after", "--out", "whole"]));
    assert!(!folder.path().join("whole").exists());
}

#[test]
fn two_runs_are_compared() {
    let folder = two_runs();
    insta::assert_snapshot!(
        "report_compare",
        spectune(&folder, &["report", "before", "after", "--compare", "--out", "compared"])
    );
    insta::assert_snapshot!("report_compare_one", spectune(&folder, &["report", "before", "--compare"]));
}

#[test]
fn job_files_are_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let sweep = "[models]\ntarget = 'target'\ndraft = 'draft'\nalgorithm = 'EAGLE3'\n[workload]\n\
                 prompts = 'prompts.jsonl'\n[space]\nshapes = ['1,1,2', '2,1,3', '3,1,4']\n";
    fs::write(folder.path().join("sweep.toml"), sweep).expect("a sweep file");
    for scheduler in ["slurm", "k8s", "bash"] {
        let shown = spectune(&folder, &["sweep", "sweep.toml", "--emit", scheduler, "--out", "results"]);
        insta::assert_snapshot!(format!("emit_{scheduler}"), shown);
    }
}
