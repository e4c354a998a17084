//! A sweep that is killed at random moments: `--resume` finishes it with each trial exactly once.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

/// Times that the sweep is killed.
const KILLS: u64 = 10;

#[test]
fn a_sweep_that_is_killed_ten_times_measures_each_trial_exactly_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
    let sweep = folder.path().join("sweep.toml");
    let models = root.join("models/tiny");
    let content = format!(
        "[models]\ntarget = '{0}/target'\ndraft = '{0}/eagle3'\nalgorithm = 'EAGLE3'\n\
         [workload]\nrandom = {{ input_length = 16 }}\nrequests = 2\noutput_length = 24\n\
         [batch]\nsizes = [1, 2]\n[space]\nnum_steps = [1, 2, 3]\ntopk = [1, 2]\nnum_draft_tokens = [3, 4]\n",
        models.display()
    );
    fs::write(&sweep, content).expect("a sweep file");
    let out = folder.path().join("out");
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_spectune"))
            .args(["sweep".as_ref(), sweep.as_os_str(), "--resume".as_ref(), "--out".as_ref(), out.as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts")
    };
    let mut seen = 0;
    for kill in 0..KILLS {
        let mut child = start();
        // Moments spread over loading, measuring and writing; which of them is hit does not matter.
        sleep(Duration::from_millis(40 + (kill * 37) % 160));
        child.kill().expect("SIGKILL");
        child.wait().expect("it ends");
        let journal = out.join("journal.jsonl");
        let whole = fs::read_to_string(&journal).map_or(0, |text| text.matches('\n').count());
        assert!(whole >= seen, "a finished trial was lost");
        seen = whole;
    }
    let output = start().wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");

    let mut trials: BTreeMap<String, usize> = BTreeMap::new();
    let journal = fs::read_to_string(out.join("journal.jsonl")).expect("the journal");
    for line in journal.lines().skip(1) {
        let record: serde_json::Value = serde_json::from_str(line).expect("a whole line");
        *trials.entry(record["content"]["trial"].to_string()).or_default() += 1;
    }
    // No speculation, the default and seven shapes; two batch sizes, three repeats.
    let shapes: std::collections::BTreeSet<String> =
        trials.keys().map(|trial| trial.split("batch").next().unwrap_or_default().to_owned()).collect();
    assert_eq!(trials.len(), shapes.len() * 2 * 3, "{words}");
    assert!(trials.values().all(|count| *count == 1), "{trials:#?}");
    assert!(out.join("report.html").exists() && out.join("tuned.toml").exists());
}
