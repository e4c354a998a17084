//! Whole runs on the demo pair: a damaged head recovers, a killed run continues exactly, and a head
//! that is not better is not written.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use engine::{DeviceChoice, Engine, EngineOptions, ModelFiles, Request, SamplingParams, ShapePolicy, StopConditions};
use schemas::{text::Source, train::TrainFile, training_record::TrainingRecord};
use tempfile::TempDir;
use training::{
    Finished, LoadedPrompts, RunOutcome, StepsOn, TrainProgress, TrainRequest, TrainingPrompt, head::trained_tensors,
};

use crate::common::{BlockKind, block_head, repository};

/// A copy of a head with noise added to every trained matrix.
fn damaged(head: &str, strength: f32) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in repository("models").join(head).read_dir().expect("the head") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, folder.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    let options = options(Some(folder.path()));
    let models = ModelFiles::open(&options).expect("the head");
    let spec = models.draft.clone().expect("a draft");
    let mut state = 1_u64;
    for tensor in trained_tensors(&spec, models.target.vocabulary) {
        if tensor.shape.len() < 2 {
            continue;
        }
        let place = models.draft_place(&tensor).expect("its place");
        let mut file = fs::read(&place.path).expect("the file");
        let values: Vec<f32> = models.draft_values(&tensor).expect("values");
        let size = (values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32).sqrt();
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0) * size * strength
        };
        let bytes = values.iter().flat_map(|value| half::bf16::from_f32(value + noise()).to_le_bytes());
        file[place.bytes].copy_from_slice(&bytes.collect::<Vec<u8>>());
        fs::write(&place.path, file).expect("written");
    }
    folder
}

fn options(head: Option<&Path>) -> EngineOptions {
    EngineOptions {
        model_path: repository("models/tiny/target"),
        draft_model_path: head.map(Path::to_owned),
        policy: ShapePolicy::fixed("3,1,4".parse().expect("a shape")),
        context_length: Some(128),
        max_running_requests: 16,
        page_size: 16,
        device: DeviceChoice::Cpu,
        ..EngineOptions::default()
    }
}

fn file(more: &str) -> TrainFile {
    file_for("EAGLE3", more)
}

fn file_for(algorithm: &str, more: &str) -> TrainFile {
    let text = format!(
        "[models]\ntarget = \"t\"\ndraft = \"d\"\nalgorithm = \"{algorithm}\"\n[tree]\nshape = \"3,1,4\"\nbatch = 0\n\
         [[prompts]]\nfile = \"x\"\n[answers]\noutput_length = 32\nignore_eos = true\n{more}"
    );
    TrainFile::read(&Source::new("train.toml", text)).expect("a training file")
}

/// Plain prompts: pieces of the demo's prompts.
fn prompts(engine: &Engine, count: usize) -> Vec<TrainingPrompt> {
    let text = engine.text().expect("a tokenizer");
    let all = fs::read_to_string(repository("sweeps/demo-prompts.jsonl")).expect("the demo's prompts");
    let lines: Vec<String> = all.lines().map(str::to_owned).collect();
    let piece = |at: usize| {
        let line = &lines[at % lines.len()];
        let tokens = text.encode(line).expect("it encodes");
        let start = 3 + 2 * (at / lines.len());
        tokens[start.min(tokens.len() - 4)..(start + 12).min(tokens.len())].to_vec()
    };
    let request = |at: usize| Request {
        input_ids: piece(at),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(32), ignore_eos: true, ..StopConditions::default() },
    };
    (0..count).map(|at| TrainingPrompt { request: request(at), answer: None }).collect()
}

/// Runs until the end, or until this many steps are completed.
fn train(file: &TrainFile, head: &Path, out: &Path, count: usize, stop_after: Option<usize>) -> RunOutcome {
    let engine = Engine::load(options(Some(head))).expect("it loads");
    let interrupted = AtomicBool::new(false);
    let request = TrainRequest {
        file,
        options: options(Some(head)),
        steps_on: StepsOn::Processor,
        sets: vec![LoadedPrompts { name: "demo".into(), prompts: prompts(&engine, count) }],
        general: Vec::new(),
        out,
        resume: true,
        interrupted: &interrupted,
    };
    let outcome = training::run(request, engine, &mut |progress| {
        if let (TrainProgress::Steps { point, .. }, Some(most)) = (progress, stop_after)
            && point.step >= most
        {
            interrupted.store(true, Ordering::Relaxed);
        }
    });
    outcome.expect("it runs")
}

fn finished(outcome: RunOutcome) -> Box<Finished> {
    match outcome {
        RunOutcome::Finished(finished) => finished,
        RunOutcome::Interrupted { step } => panic!("it stopped at step {step}"),
    }
}

fn tensors(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("model.safetensors")).expect("tensors")
}

#[test]
fn a_damaged_head_recovers_and_is_written_in_its_published_format() {
    let head = damaged("tiny/eagle3", 1.2);
    let out = tempfile::tempdir().expect("a folder");
    let settings = "[training]\nsteps = 16\nbatch_size = 8\nunroll = 3\nlearning_rate = 0.002\n[stop]\nheld_out = 0.3\nevaluate_every = 8\n";
    let outcome = train(&file(settings), head.path(), out.path(), 40, None);
    let Finished { record, head: written } = *finished(outcome);
    let all = record.judged.first().expect("a judgement");
    assert!(record.verdict.better && all.ratio.low > 1.0, "{:?} {all:?}", record.verdict);
    assert_eq!(record.evaluations.len(), 3);
    let first = &record.evaluations[0];
    assert!(record.evaluations[2].loss < first.loss && record.evaluations[2].accept_length > first.accept_length);

    // The written head loads, has the reported acceptance, and differs from the damaged one only in
    // trained tensors.
    let written = written.expect("a head");
    let read = fs::read_to_string(out.path().join("training.json")).expect("a record");
    assert_eq!(TrainingRecord::parse(&read).as_ref(), Ok(&record));
    let before = ModelFiles::open(&options(Some(head.path()))).expect("the damaged head");
    let after = ModelFiles::open(&options(Some(&written))).expect("the written head");
    assert_eq!(before.draft, after.draft);
    assert_eq!(tensors(head.path()).len(), tensors(&written).len());
    let mut engine = Engine::load(options(Some(&written))).expect("it loads");
    let requests = prompts(&engine, 4).into_iter().map(|prompt| prompt.request).collect();
    let rounds: usize = engine.run(requests).expect("it runs").iter().map(|one| one.rounds).sum();
    assert!(rounds > 0 && rounds < 4 * 31, "nothing is accepted in {rounds} rounds");
}

#[test]
fn a_random_block_head_learns_and_is_written_in_its_published_format() {
    let head = block_head(BlockKind::Dflash);
    let out = tempfile::tempdir().expect("a folder");
    let settings = "[training]\nsteps = 24\nbatch_size = 8\nanchors = 16\nlearning_rate = 0.004\n\
                    [stop]\nheld_out = 0.3\nevaluate_every = 12\n";
    let outcome = train(&file_for("DFLASH", settings), head.path(), out.path(), 40, None);
    let Finished { record, head: written } = *finished(outcome);
    let all = record.judged.first().expect("a judgement");
    assert!(record.verdict.better && all.ratio.low > 1.0, "{:?} {all:?}", record.verdict);
    assert_eq!(record.curve[0].loss.len(), 3, "a block of four rows has three drafts");
    let written = written.expect("a head");
    let before = ModelFiles::open(&options(Some(head.path()))).expect("the random head");
    let after = ModelFiles::open(&options(Some(&written))).expect("the written head");
    assert_eq!(before.draft, after.draft);
    assert_eq!(tensors(head.path()).len(), tensors(&written).len());
    assert!(tensors(head.path()) != tensors(&written));
}

#[test]
fn a_run_that_stops_and_goes_on_ends_as_one_that_does_not() {
    stops_and_goes_on("EAGLE3", damaged("tiny/eagle3", 0.8).path(), "unroll = 2");
}

/// Anchors are drawn anew in each step, and are the same after a stop.
#[test]
fn a_run_of_a_block_head_that_stops_and_goes_on_ends_as_one_that_does_not() {
    stops_and_goes_on("DFLASH", block_head(BlockKind::Dflash).path(), "anchors = 5");
    stops_and_goes_on("DSPARK", block_head(BlockKind::Dspark("rnn", true)).path(), "anchors = 5");
}

fn stops_and_goes_on(algorithm: &str, head: &Path, more: &str) {
    let settings = format!(
        "[training]\nsteps = 6\nbatch_size = 4\nlearning_rate = 0.001\ncheckpoint_every = 2\n{more}\n[stop]\nevaluate_every = 3\n"
    );
    let file = file_for(algorithm, &settings);
    let (whole, parted) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let one = finished(train(&file, head, whole.path(), 64, None));
    for most in [2, 4] {
        let outcome = train(&file, head, parted.path(), 64, Some(most));
        assert!(matches!(outcome, RunOutcome::Interrupted { .. }), "{outcome:?}");
        // Leftovers of a kill.
        fs::write(parted.path().join(".checkpoint.safetensors.new"), b"half").expect("written");
        fs::create_dir_all(parted.path().join("heads/step-999999")).expect("made");
    }
    let other = finished(train(&file, head, parted.path(), 64, None));
    let checkpoint = |folder: &Path| -> PathBuf { folder.join("checkpoint.safetensors") };
    let values =
        |folder: &Path| candle_core::safetensors::load(checkpoint(folder), &candle_core::Device::Cpu).expect("values");
    let (a, b) = (values(whole.path()), values(parted.path()));
    assert_eq!(a.len(), b.len());
    for (name, tensor) in &a {
        let bits = |tensor: &candle_core::Tensor| -> Vec<u32> {
            let values = tensor.flatten_all().and_then(|all| all.to_vec1::<f32>()).expect("values");
            values.into_iter().map(f32::to_bits).collect()
        };
        assert_eq!(bits(tensor), bits(&b[name]), "{name}");
    }
    assert_eq!(one.record.evaluations, other.record.evaluations);
    assert_eq!((one.record.verdict, one.record.judged), (other.record.verdict, other.record.judged));
}

#[test]
fn a_head_that_is_no_better_is_not_written() {
    // A learning rate that changes almost nothing.
    let settings =
        "[training]\nsteps = 2\nbatch_size = 2\nunroll = 2\nlearning_rate = 1e-12\n[stop]\nevaluate_every = 1\n";
    let out = tempfile::tempdir().expect("a folder");
    let head = repository("models/tiny/eagle3");
    let Finished { record, head } = *finished(train(&file(settings), &head, out.path(), 64, None));
    assert!(!record.verdict.better && head.is_none() && record.models.after.is_none());
    assert!(!out.path().join("head").exists());
    assert!(!record.baseline.is_empty());
}

#[test]
fn a_folder_of_another_run_is_left_alone() {
    let out = tempfile::tempdir().expect("a folder");
    let head = repository("models/tiny/eagle3");
    let settings = |steps: usize| format!("[training]\nsteps = {steps}\nbatch_size = 2\nunroll = 2\n");
    let _ = train(&file(&settings(1)), &head, out.path(), 64, None);
    let engine = Engine::load(options(Some(&head))).expect("it loads");
    let interrupted = AtomicBool::new(false);
    for (resume, steps, words) in [(false, 1, "--resume"), (true, 2, "other models, prompts or settings")] {
        let engine_again = Engine::load(options(Some(&head))).expect("it loads");
        let file = file(&settings(steps));
        let request = TrainRequest {
            file: &file,
            options: options(Some(&head)),
            steps_on: StepsOn::Processor,
            sets: vec![LoadedPrompts { name: "demo".into(), prompts: prompts(&engine, 64) }],
            general: Vec::new(),
            out: out.path(),
            resume,
            interrupted: &interrupted,
        };
        let error = training::run(request, engine_again, &mut |_| {}).expect_err("refused");
        assert!(error.to_string().contains(words), "{error}");
    }
}
