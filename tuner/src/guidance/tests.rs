//! A guided sweep of the demo pair on the CPU, from file to ranking.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::atomic::AtomicBool,
};

use schemas::{sweep::SweepFile, text::Source};

use crate::{
    prediction::guide::AcceptanceSource,
    sweep::{StopReason, SweepInputs, SweepProgress, SweepRequest, SweepSummary, run},
    trials::{
        configuration::TrialLoad,
        record::{CandidateRole, Measurement, Record},
    },
};

/// The messages of a sweep before its first trial, and the message at which it is killed.
#[derive(Default)]
struct Heard {
    said: Vec<String>,
    kill_at: Option<&'static str>,
}

impl Heard {
    fn any(&self, word: &str) -> bool {
        self.said.iter().any(|said| said.contains(word))
    }
}

impl SweepProgress for Heard {
    fn preparing(&mut self, what: &str, _steps: usize) {
        self.said.push(what.to_owned());
        if self.kill_at.is_some_and(|word| what.contains(word)) {
            // As with a kill, the sweep writes nothing further.
            resume_unwind(Box::new("killed"));
        }
    }

    fn note(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }
}

const FILE: &str = r#"
[models]
target = "tiny/target"
draft = "tiny/eagle3"
algorithm = "EAGLE3"
[engine]
device = "cpu"
context_length = 128
[workload]
prompts = "prompts.jsonl"
requests = 5
output_length = 20
warm_up_tokens = 2
[batch]
sizes = [1, 4]
[space]
shapes = ["1,1,2", "2,2,4", "4,2,6", "2,4,8"]
[search]
strategy = "guided"
candidates = 1
repeats = 2
"#;

const PROMPTS: &str = r#"{"prompt": "The sea was"}
{"prompt": "Write a list:"}
{"prompt": "def main():"}
"#;

fn sweep(file: &str, out: &Path, resume: bool) -> SweepSummary {
    sweep_heard(file, out, resume, &mut Heard::default())
}

/// Resumes the sweep, which is killed once the texts exist and before anything else is known.
fn killed_behind_texts(file: &str, out: &Path) -> Heard {
    killed(file, out, "acceptance of")
}

/// Resumes the sweep, which is killed once acceptance is known and before it is written.
fn killed_behind_replay(file: &str, out: &Path) -> Heard {
    killed(file, out, "rounds of a designed set")
}

fn killed(file: &str, out: &Path, kill_at: &'static str) -> Heard {
    let mut heard = Heard { kill_at: Some(kill_at), ..Heard::default() };
    let ended = catch_unwind(AssertUnwindSafe(|| sweep_heard(file, out, true, &mut heard)));
    assert!(ended.is_err() && !out.join("results/guide.json").exists());
    heard
}

fn sweep_heard(file: &str, out: &Path, resume: bool, progress: &mut dyn SweepProgress) -> SweepSummary {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    std::fs::write(out.join("prompts.jsonl"), PROMPTS).expect("prompts");
    let file = file.replace("tiny/", &format!("{}/tiny/", models.display()));
    let request = SweepRequest {
        inputs: SweepInputs {
            file: SweepFile::read(&Source::new("sweep.toml", file)).expect("a sweep file"),
            folder: out.to_owned(),
            shard: None,
            device: None,
        },
        out: out.join("results"),
        resume,
        keep_states: 1 << 30,
        interrupted: &AtomicBool::new(false),
        supervisor: None,
    };
    run(&request, progress).expect("it runs")
}

fn figures(summary: &SweepSummary) -> impl Iterator<Item = (&crate::trials::record::Trial, &Measurement)> {
    summary.records.iter().filter_map(|record| Some((&record.trial, record.measurement()?)))
}

#[test]
fn a_guided_sweep_predicts_the_space_and_its_acceptance_is_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    let summary = sweep(FILE, folder.path(), false);
    let guide = crate::prediction::guide::read(&folder.path().join("results")).expect("a guide").expect("a guide");
    assert!(matches!(guide.acceptance.source, AcceptanceSource::Replayed { texts: 5, tokens: 100 }));
    // No speculation, the default and four shapes under two loads.
    assert_eq!(guide.predictions.len(), 6 * 2);
    assert!(guide.predictions.iter().all(|one| one.output_tokens_per_s > 0.0 && one.round_ms > 0.0));
    assert!(matches!(summary.stopped, StopReason::Settled | StopReason::StillTied));
    let mut compared = 0;
    for (trial, measured) in figures(&summary).filter(|(trial, _)| !trial.configuration.is_off()) {
        let row = guide.acceptance.rows.iter().find(|row| row.shape == trial.configuration.shape).expect("a row");
        assert_eq!(row.histogram, measured.accept_histogram, "{}", trial.configuration);
        assert!((row.accept_length - measured.accept_length).abs() < 1e-9);
        compared += 1;
    }
    assert!(compared >= 4, "{compared}");
    for load in [TrialLoad::BatchSize(1), TrialLoad::BatchSize(4)] {
        let ranking = summary.ranking.iter().find(|ranking| ranking.load == load).expect("a ranking");
        assert!(ranking.chosen.is_some() && ranking.entries.iter().any(|entry| entry.configuration.is_off()));
    }
    // Nothing is measured or computed twice.
    let made =
        std::fs::metadata(folder.path().join("results/guide.json")).and_then(|file| file.modified()).expect("time");
    let again = sweep(FILE, folder.path(), true);
    let read =
        std::fs::metadata(folder.path().join("results/guide.json")).and_then(|file| file.modified()).expect("time");
    assert_eq!((again.kept, made), (summary.records.len(), read));
}

#[test]
fn imported_acceptance_is_made_up_in_every_trial_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = r#"{"source": "elsewhere", "rows": [
        {"num_steps": 1, "topk": 1, "num_draft_tokens": 2, "accept_length": 1.5},
        {"num_steps": 2, "topk": 2, "num_draft_tokens": 4, "accept_length": 2.0}]}"#;
    std::fs::write(folder.path().join("table.json"), table).expect("a table");
    let file = FILE.replace("algorithm = \"EAGLE3\"", "algorithm = \"EAGLE3\"\nacceptance = { file = \"table.json\" }");
    let summary = sweep(&file, folder.path(), false);
    let guide = crate::prediction::guide::read(&folder.path().join("results")).expect("a guide").expect("a guide");
    assert!(matches!(guide.acceptance.source, AcceptanceSource::Imported { .. }));
    assert_eq!(guide.predictions.len(), 3 * 2, "no speculation and two shapes of which something is known");
    assert!(figures(&summary).all(|(_, measured)| measured.simulated));
    for (trial, measured) in figures(&summary) {
        let made_up = guide.acceptance.length(trial.configuration.shape).expect("a row");
        assert!((measured.accept_length / made_up - 1.0).abs() < 0.25, "{} {made_up}", measured.accept_length);
    }
    // Candidates that are not in the table are skipped; the default, a baseline, fails by name, and
    // the sweep continues.
    let failed = summary.records.iter().filter(|record| record.failure().is_some());
    assert!(failed.into_iter().all(|record| record.role == CandidateRole::EngineDefault), "{:?}", summary.records);
    let failed = summary.records.iter().find_map(Record::failure);
    assert!(failed.is_some_and(|reason| reason.contains("has no row for the tree shape")), "{failed:?}");
}

#[test]
fn texts_outlive_a_kill_and_are_not_run_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = FILE.replace("sizes = [1, 4]", "sizes = [1]");
    let heard = killed_behind_texts(&file, folder.path());
    assert!(heard.any("texts without speculation"), "{:?}", heard.said);
    let path = folder.path().join("results/texts.jsonl");
    let written = fs::read_to_string(&path).expect("the texts");
    let lines: Vec<serde_json::Value> =
        written.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
    assert_eq!((lines.len(), &lines[0]["format"]), (1 + 5, &serde_json::Value::from(1)));
    assert!(lines[1..].iter().all(|line| line["output_ids"].as_array().is_some_and(|ids| ids.len() == 20)));

    // A damaged file, or one of another sweep, is replaced, with the same content as before.
    let text_of = |text: &str| text.split_once('\n').expect("a header").1.to_owned();
    let line = |at: usize| written.lines().nth(at).expect("a line");
    for (spoiled, reason) in [
        (written.replacen("\"format\":1", "\"format\":9", 1), "format 9, but this program reads 1"),
        (written.replacen("\"device\":\"cpu\"", "\"device\":\"cuda:0\"", 1), "device cuda:0, now cpu"),
        (written.replacen(line(3), line(4), 1), "damaged"),
        (written[..written.len() - 9].to_owned(), "damaged"),
        (String::new(), "no complete line"),
        ("{}\n".into(), "line 1: missing field `format`"),
    ] {
        assert_ne!(spoiled, written, "{reason}");
        fs::write(&path, spoiled).expect("spoiled texts");
        let heard = killed_behind_texts(&file, folder.path());
        assert!(heard.any(reason) && heard.any("cannot be used"), "{reason}: {:?}", heard.said);
        assert!(heard.said.iter().any(|said| said == "texts without speculation"), "{:?}", heard.said);
        assert_eq!(text_of(&fs::read_to_string(&path).expect("the texts")), text_of(&written));
    }

    // The next kill comes after the replay: the run after it uses the states that the replay wrote.
    let heard = killed_behind_replay(&file, folder.path());
    assert!(heard.any("are loaded from an earlier run") && !heard.any("hidden states"), "{:?}", heard.said);
    let states = folder.path().join("results").join(super::STATES_FILE);
    let kept = fs::read(&states).expect("the states");

    let written = fs::read(&path).expect("the texts");
    let mut heard = Heard::default();
    let summary = sweep_heard(&file, folder.path(), true, &mut heard);
    assert!(
        heard.any("are loaded from an earlier run") && heard.any("hidden states of 5 of 5 texts"),
        "{:?}",
        heard.said
    );
    assert!(fs::read(&states).expect("the states") == kept);
    assert!(!heard.said.iter().any(|said| said == "texts without speculation"), "{:?}", heard.said);
    assert!(fs::read(&path).expect("the texts") == written);
    let guide = crate::prediction::guide::read(&folder.path().join("results")).expect("a guide").expect("a guide");
    assert!(matches!(guide.acceptance.source, AcceptanceSource::Replayed { texts: 5, tokens: 100 }));
    assert!(guide.cost.texts_s > 0.0, "what the texts have cost once");
    let speculating = || figures(&summary).filter(|(trial, _)| !trial.configuration.is_off());
    assert!(speculating().count() > 0);
    for (trial, measured) in speculating() {
        let row = guide.acceptance.rows.iter().find(|row| row.shape == trial.configuration.shape).expect("a row");
        assert_eq!(row.histogram, measured.accept_histogram, "{}", trial.configuration);
    }
}

#[test]
fn texts_and_states_serve_another_sweep_with_the_same_target_and_workload() {
    let first = tempfile::tempdir().expect("a folder");
    killed_behind_replay(FILE, first.path());
    let wider = FILE.replace("\"1,1,2\"", "\"1,1,2\", \"3,3,9\"");
    let other = FILE.replace("tiny/eagle3", "tiny/eagle2").replace("EAGLE3", "EAGLE");
    for (file, words) in [(wider, "hidden states of 5 of 5 texts"), (other, "states.bin cannot be used")] {
        assert_ne!(file, FILE);
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("results")).expect("a folder");
        for name in [super::texts::FILE_NAME, super::STATES_FILE] {
            let name = format!("results/{name}");
            fs::copy(first.path().join(&name), folder.path().join(&name)).expect("a copy");
        }
        let heard = killed_behind_replay(&file, folder.path());
        assert!(
            heard.any("texts without speculation are loaded from an earlier run") && heard.any(words),
            "{:?}",
            heard.said
        );
    }
}
