//! Killed, resumed, sharded and merged: the ranking is that of one run without interruption.

#[path = "../src/fixtures/synthetic.rs"]
mod synthetic;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use schemas::{
    sweep::{Metric, Search, SweepFile},
    text::Source,
    tree::{NodeSource, TreeShape},
};
use tuner::{
    results::selection::{LoadRanking, Looks, rank},
    space::{Candidate, expand},
    strategy::{self, Experiment, Shard},
    sweep::merge,
    trials::{
        self,
        configuration::TrialLoad,
        journal::{self, FILE_NAME, FORMAT, Journal, JournalHeader},
        record::{CandidateRole, Fingerprint, Outcome, Record, Trial},
    },
};

const SWEEP: &str = "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE'\n[workload]\nprompts = 'p'\n\
                     [batch]\nsizes = [1, 4]\n[space]\nnum_steps = [1, 2, 3]\ntopk = [1, 2]\nnum_draft_tokens = [4]\n\
                     [search]\nrepeats = 2\n";
/// The engine's default shape.
const DEFAULT: TreeShape = TreeShape::whole_tree(5, 1, 6);

fn file() -> SweepFile {
    SweepFile::read(&Source::new("sweep.toml", SWEEP)).expect("a sweep")
}

fn fingerprint() -> Fingerprint {
    let name = |name: &str| name.to_owned();
    Fingerprint {
        device: name("cpu"),
        device_name: name("x"),
        driver: String::new(),
        units: 2,
        engine: name("spectune"),
        target: name("t"),
        draft: name("d"),
        workload: name("w"),
        settings: name("s"),
    }
}

fn entrants() -> Vec<Candidate> {
    expand(&file().space, &file().knobs, &[], NodeSource::Beams, DEFAULT).entrants
}

/// The trials of a shard, in order.
fn plan(shard: Option<Shard>) -> Vec<(Trial, CandidateRole)> {
    let all = entrants();
    let entrants = shard.map_or(all.clone(), |shard| shard.select(&all));
    let experiment = Experiment {
        entrants,
        loads: vec![TrialLoad::BatchSize(1), TrialLoad::BatchSize(4)],
        repeats: file().search.repeats,
        metric: Metric::Throughput,
        looks: Looks::Planned,
        restarts: false,
    };
    let role = |trial: &Trial| {
        experiment
            .entrants
            .iter()
            .find(|one| one.configuration == trial.configuration)
            .map_or(CandidateRole::Candidate, |one| one.role)
    };
    let trials = strategy::list(&Search::default(), &experiment).expect("a grid has a fixed number of trials");
    trials.into_iter().map(|trial| (trial.clone(), role(&trial))).collect()
}

fn header(shard: Option<Shard>) -> JournalHeader {
    JournalHeader {
        format: FORMAT,
        journal: "made-up".into(),
        sweep: "one".into(),
        fingerprint: fingerprint(),
        shard,
        file: file(),
        folder: None,
        planned: plan(shard).len(),
        cut: None,
    }
}

/// The measurement is a function of the trial and a seed, so that every machine measures the same.
/// One trial in eleven fails. Trials end a second apart in the order of the whole sweep, whichever
/// shard runs them.
fn record((trial, role): &(Trial, CandidateRole), seed: u64) -> Record {
    let id = trial.id(&fingerprint());
    let draw =
        id.bytes().fold(seed, |sum, byte| sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(byte.into())) >> 33;
    let made_up = synthetic::record(trial.clone(), *role, 100.0 + (draw % 1000) as f64 / 10.0);
    let failed = draw % 11 == 0;
    let outcome =
        if failed { Outcome::Failed { reason: "out of memory".into(), failure: None } } else { made_up.outcome };
    let place = plan(None).iter().position(|(planned, _)| planned == trial).expect("a trial of the sweep");
    Record { id, fingerprint: fingerprint(), finished_at: place as u64, outcome, ..made_up }
}

/// A run that is killed at some bytes of its journal, and resumed after each kill, until every
/// trial of its plan is measured.
fn run(folder: &Path, shard: Option<Shard>, seed: u64, cuts: &[prop::sample::Index]) {
    let header = header(shard);
    drop(Journal::create(folder, &header).expect("a journal"));
    let least = fs::metadata(folder.join(FILE_NAME)).expect("a header").len();
    for cut in cuts.iter().map(Some).chain([None]) {
        let (mut journal, contents) = Journal::resume(folder, &header).expect("it resumes");
        for trial in plan(shard) {
            let record = record(&trial, seed);
            if !contents.records.iter().any(|done| done.id == record.id) {
                journal.append(&record).expect("it is written");
            }
        }
        drop(journal);
        if let Some(cut) = cut {
            let path = folder.join(FILE_NAME);
            let length = fs::metadata(&path).expect("a journal").len();
            let at = least + cut.index((length - least) as usize + 1) as u64;
            fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(at)).expect("a kill");
        }
    }
}

fn ranking(folder: &Path) -> Vec<LoadRanking> {
    rank(&journal::read(folder).expect("a journal").records, Metric::Throughput)
}

fn bytes(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(FILE_NAME)).expect("a journal")
}

/// A folder with two finished shards, and the shards' folders.
fn two_shards(seed: u64) -> (tempfile::TempDir, Vec<PathBuf>) {
    let base = tempfile::tempdir().expect("a folder");
    let folders: Vec<PathBuf> = (1..=2).map(|index| base.path().join(index.to_string())).collect();
    folders.iter().zip(1..).for_each(|(folder, index)| run(folder, Some(Shard { index, count: 2 }), seed, &[]));
    (base, folders)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_sweep_that_was_killed_resumed_sharded_and_merged_ranks_as_one_that_was_not(
        seed: u64, count in 2_usize..5, cuts in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..3), 4),
    ) {
        let base = tempfile::tempdir().expect("a folder");
        let whole = base.path().join("whole");
        run(&whole, None, seed, &[]);
        let expected = ranking(&whole);
        prop_assert_eq!(expected.len(), 2);

        let folders: Vec<PathBuf> = (1..=count).map(|index| base.path().join(format!("shard-{index}"))).collect();
        for ((index, folder), cuts) in (1..).zip(&folders).zip(&cuts) {
            run(folder, Some(Shard { index, count }), seed, cuts);
        }
        let out = base.path().join("out");
        let summary = merge::run(&folders, &out).expect("it merges");
        prop_assert_eq!(&ranking(&out), &expected);
        prop_assert_eq!(&summary.ranking, &expected);
        prop_assert!(summary.missing.is_empty());
        let merged = journal::read(&out).expect("a journal");
        // The merged sweep is an ordinary one: complete, and nothing is left to do when it is
        // resumed.
        prop_assert_eq!((merged.header.planned, merged.header.shard, merged.records.len()), (plan(None).len(), None, plan(None).len()));
        let (_, resumed) = Journal::resume(&out, &header(None)).expect("it resumes");
        prop_assert!(plan(None).iter().all(|(trial, _)| resumed.records.iter().any(|done| done.trial == *trial)));

        // The bytes do not change with the order of the folders, when merging again, or when
        // merging the merged one.
        let first = bytes(&out);
        merge::run(&folders, &out).expect("again");
        prop_assert!(bytes(&out) == first);
        let reversed: Vec<PathBuf> = folders.iter().rev().cloned().collect();
        let (other, again) = (base.path().join("other"), base.path().join("again"));
        merge::run(&reversed, &other).expect("the other way round");
        merge::run(&[vec![out], reversed].concat(), &again).expect("the merged too");
        prop_assert!(bytes(&other) == first && bytes(&again) == first);
    }
}

#[test]
fn of_one_trial_the_measured_goes_before_the_failed_and_the_first_before_later_ones() {
    let base = tempfile::tempdir().expect("a folder");
    let trial = &plan(None)[0];
    let measured = (0..).map(|seed| record(trial, seed)).find(|one| matches!(one.outcome, Outcome::Measured(_)));
    let measured = Record { finished_at: 20, ..measured.expect("one that is measured") };
    let failed =
        Record { finished_at: 10, outcome: Outcome::Failed { reason: "no".into(), failure: None }, ..measured.clone() };
    let later = Record { finished_at: 30, ..measured.clone() };
    let mut folders = Vec::new();
    for (name, record) in [("failed", &failed), ("later", &later), ("measured", &measured)] {
        let folder = base.path().join(name);
        Journal::create(&folder, &header(None)).and_then(|mut journal| journal.append(record)).expect("a journal");
        folders.push(folder);
    }
    let out = base.path().join("out");
    let summary = merge::run(&folders, &out).expect("it merges");
    assert_eq!((summary.trials, summary.repeated, summary.planned), (1, 2, plan(None).len()));
    assert_eq!(journal::read(&out).expect("a journal").records, [measured]);
}

#[test]
fn trials_of_one_second_keep_the_order_of_their_journal() {
    let base = tempfile::tempdir().expect("a folder");
    let one = base.path().join("one");
    let records: Vec<Record> =
        plan(None).iter().map(|planned| Record { finished_at: 7, ..record(planned, 1) }).collect();
    let mut journal = Journal::create(&one, &header(None)).expect("a journal");
    records.iter().for_each(|record| journal.append(record).expect("it is written"));
    drop(journal);
    let out = base.path().join("out");
    merge::run(&[one], &out).expect("it merges");
    assert_eq!(journal::read(&out).expect("a journal").records, records);
}

#[test]
fn a_missing_shard_is_named_and_the_plan_is_not_taken_for_done() {
    let (base, folders) = two_shards(1);
    let summary = merge::run(&folders[..1], &base.path().join("out")).expect("it merges");
    assert_eq!(summary.missing, [Shard { index: 2, count: 2 }]);
    assert!(summary.trials < summary.planned && summary.planned <= plan(None).len(), "{}", summary.planned);
    // The missing shard is added to the existing result.
    let summary = merge::run(&folders[1..], &base.path().join("out")).expect("it merges");
    assert_eq!((summary.trials, summary.planned), (plan(None).len(), plan(None).len()));
    assert!(summary.missing.is_empty());
}

#[test]
fn other_sweeps_other_machines_and_shards_as_the_target_are_refused_and_nothing_is_written() {
    let (base, folders) = two_shards(1);
    let check = |change: fn(&mut JournalHeader), words: &[&str]| {
        let other = base.path().join("other");
        let mut header = header(None);
        change(&mut header);
        drop(Journal::create(&other, &header).expect("a journal"));
        let out = base.path().join("out");
        let error = merge::run(&[folders[0].clone(), other.clone()], &out).expect_err("refused").to_string();
        let places = [folders[0].display().to_string(), other.display().to_string()];
        for word in words.iter().copied().chain(places.iter().map(String::as_str)) {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        assert!(!out.exists());
        // The same as a target, which stays unchanged.
        let before = bytes(&other);
        merge::run(&folders, &other).expect_err("refused");
        assert!(bytes(&other) == before);
        fs::remove_dir_all(other).expect("it goes");
    };
    check(
        |header| {
            header.sweep = "two".into();
            header.file.workload.output_length = 7;
        },
        &["a different sweep", "workload.output_length was 128 and is 7"],
    );
    check(
        |header| {
            header.fingerprint.device_name = "y".into();
            header.fingerprint.driver = "580".into();
        },
        &["processor or GPU x in", "driver none in", "spectune report", "side by side"],
    );
    let before = bytes(&folders[0]);
    let error = merge::run(&folders, &folders[0]).expect_err("a shard").to_string();
    assert!(error.contains("holds shard 1/2") && error.contains("--out"), "{error}");
    assert!(bytes(&folders[0]) == before);
    let _running = Journal::resume(&folders[0], &header(Some(Shard { index: 1, count: 2 }))).expect("it runs");
    merge::run(&folders, &base.path().join("out")).expect("a running shard can be read");
    let _resumed = Journal::resume(&base.path().join("out"), &header(None)).expect("it runs");
    let error = merge::run(&folders, &base.path().join("out")).expect_err("a running target").to_string();
    assert!(error.contains("another process"), "{error}");
    let none = merge::run(&[base.path().join("none")], &base.path().join("new")).expect_err("no journal").to_string();
    assert!(none.contains("none/journal.jsonl"), "{none}");
}

#[test]
fn a_kill_at_any_byte_leaves_the_target_whole_or_absent_and_the_next_merge_mends_it() {
    let (base, folders) = two_shards(1);
    let done = base.path().join("done");
    merge::run(&folders, &done).expect("it merges");
    let whole = bytes(&done);
    let out = base.path().join("out");
    for cut in (0..whole.len()).step_by(2999) {
        // What a kill leaves while the temporary file is being written: first without, then with an
        // older journal.
        fs::create_dir_all(&out).expect("a folder");
        fs::write(out.join(format!(".{FILE_NAME}.new")), &whole[..cut]).expect("a torn file");
        assert!(!journal::exists(&out));
        merge::run(&folders[..1], &out).expect("it merges");
        fs::write(out.join(format!(".{FILE_NAME}.new")), &whole[..cut]).expect("a torn file");
        assert!(journal::read(&out).expect("the older one").damaged.is_empty());
        merge::run(&folders, &out).expect("it merges");
        assert!(bytes(&out) == whole, "cut at {cut}");
        assert!(!out.join(format!(".{FILE_NAME}.new")).exists());
        fs::remove_dir_all(&out).expect("it goes");
    }
}

#[test]
fn damaged_lines_are_named_and_left_out() {
    let (base, folders) = two_shards(1);
    let path = folders[1].join(FILE_NAME);
    let text = fs::read_to_string(&path).expect("a journal");
    let mut lines: Vec<&str> = text.lines().collect();
    lines[2] = "{}";
    fs::write(&path, lines.join("\n") + "\n{\"torn").expect("a spoiled journal");
    let summary = merge::run(&folders, &base.path().join("out")).expect("it merges");
    let words: BTreeMap<bool, &String> =
        summary.notes.iter().map(|note| (note.contains("line 3 cannot be read"), note)).collect();
    assert!(words.get(&true).is_some_and(|note| note.contains("2/journal.jsonl")), "{words:?}");
    assert_eq!(summary.planned, plan(None).len());
}

#[test]
fn the_guide_of_the_first_that_has_one_is_copied() {
    let (base, folders) = two_shards(1);
    let guide = |fingerprint: Fingerprint| tuner::prediction::guide::Guide {
        format: tuner::prediction::guide::FORMAT,
        fingerprint,
        draft: String::new(),
        acceptance: tuner::prediction::guide::AcceptanceTable {
            source: tuner::prediction::guide::AcceptanceSource::Replayed { texts: 1, tokens: 2 },
            rows: Vec::new(),
            text_drafts: Vec::new(),
        },
        round_times: tuner::prediction::guide::RoundTimeSummary {
            parameters: Vec::new(),
            error: tuner::prediction::guide::GuideErrors::default(),
            points: Vec::new(),
        },
        predictions: Vec::new(),
        rounds_by_batch: Vec::new(),
        captures: Vec::new(),
        cost: tuner::prediction::guide::GuideCost::default(),
        others: Vec::new(),
    };
    let elsewhere = Fingerprint { device_name: "y".into(), ..fingerprint() };
    let texts = [elsewhere, fingerprint()].map(|of| serde_json::to_string(&guide(of)).expect("JSON"));
    for (folder, text) in folders.iter().zip(&texts) {
        fs::write(folder.join(tuner::prediction::guide::FILE_NAME), text).expect("a guide");
    }
    let out = base.path().join("out");
    merge::run(&folders, &out).expect("it merges");
    assert_eq!(fs::read_to_string(out.join(tuner::prediction::guide::FILE_NAME)).expect("a guide"), texts[1]);
}

#[test]
fn texts_on_which_all_folders_agree_are_copied_and_others_are_named() {
    let texts = |fingerprint: &Fingerprint, seconds: f64, lines: &str| {
        let checksum = &blake3::hash(lines.as_bytes()).to_hex()[..16];
        let header =
            serde_json::json!({"format": 1, "fingerprint": fingerprint, "seconds": seconds, "checksum": checksum});
        format!("{header}\n{lines}")
    };
    let lines = "{\"prompt_ids\":[1],\"output_ids\":[2]}\n";
    let (this, that) = (texts(&fingerprint(), 1.0, lines), texts(&fingerprint(), 2.0, lines));
    let other = texts(&fingerprint(), 1.0, &lines.replace('2', "3"));
    let elsewhere = texts(&Fingerprint { device: "cuda:0".into(), ..fingerprint() }, 1.0, lines);
    let damaged = this.replace("[2]", "[4]");
    for (contents, copied, named) in [
        ([Some(&this), Some(&that)], Some(&this), false),
        ([None, Some(&that)], Some(&that), false),
        ([Some(&elsewhere), Some(&that)], Some(&that), false),
        ([Some(&damaged), Some(&that)], Some(&that), false),
        ([Some(&this), Some(&other)], None, true),
        ([None, None], None, false),
    ] {
        let (base, folders) = two_shards(1);
        for (folder, text) in folders.iter().zip(contents) {
            text.map_or(Ok(()), |text| fs::write(folder.join("texts.jsonl"), text)).expect("texts");
        }
        let out = base.path().join("out");
        let summary = merge::run(&folders, &out).expect("it merges");
        assert_eq!(fs::read_to_string(out.join("texts.jsonl")).ok().as_ref(), copied);
        assert_eq!(
            summary.notes.iter().any(|note| note.contains("contain different texts")),
            named,
            "{:?}",
            summary.notes
        );
    }
}
