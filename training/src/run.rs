//! A training run, from prompts to the final comparison.
//!
//! Its folder contains the target's answers, the initial head, the newest checkpoint, the best head
//! so far, and at the end the trained head, if it is better. Each of these is written atomically,
//! so a run can be killed at any moment and continues from its newest checkpoint.

mod engines;
mod judge;
mod meaning;
mod steps;
mod work;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use candle_core::Tensor;
use engine::{Engine, EngineOptions, ModelFiles, ReplayText, spec::DraftSpec};
use schemas::{
    train::{self, TrainFile},
    training_record::{CurvePoint, Evaluation, TrainingRecord},
};

use self::{engines::Engines, steps::Trainer, work::TrainWork};
use crate::{
    checkpoint,
    compute::StepsOn,
    error::TrainingError,
    head::{self, Head, SharedWeights, trained_tensors},
    objective::{ObjectiveLoss, TrainObjective},
    optimizer::{AdamSettings, AdamW, RateSchedule},
    states::PromptStates,
    teacher::Teacher,
    texts::{self, AnswerProgress, LoadedPrompts, Placements, TrainingPrompt},
};

/// What to train, and where.
pub struct TrainRequest<'a> {
    /// The training file.
    pub file: &'a TrainFile,
    /// The options with which the engine was loaded.
    pub options: EngineOptions,
    /// Where steps run.
    pub steps_on: StepsOn,
    /// Prompts by set.
    pub sets: Vec<LoadedPrompts>,
    /// General prompts, for comparison outside of the sets.
    pub general: Vec<TrainingPrompt>,
    /// The folder of the run.
    pub out: &'a Path,
    /// Whether to continue the run in the folder.
    pub resume: bool,
    /// Set to stop the run.
    pub interrupted: &'a AtomicBool,
}

/// How a run ended.
#[derive(Debug)]
pub enum RunOutcome {
    /// It is complete, with a comparison.
    Finished(Box<Finished>),
    /// It was stopped; completed work is kept.
    Interrupted {
        /// Number of completed steps.
        step: usize,
    },
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// The result; also in `training.json`.
    pub record: TrainingRecord,
    /// The folder of the written head; `None` if the previous one is kept. For an MTP layer it is a
    /// copy of the target.
    pub head: Option<PathBuf>,
}

/// A progress message of a run.
#[derive(Debug)]
pub enum TrainProgress<'a> {
    /// The target answers prompts.
    Answers(AnswerProgress),
    /// A note for the user.
    Note(String),
    /// Steps were completed.
    Steps {
        /// Total number of steps.
        steps: usize,
        /// Figures since the previous message.
        point: &'a CurvePoint,
    },
    /// A checkpoint was evaluated.
    Evaluated {
        /// The result; the first one is that of the previous head.
        evaluation: &'a Evaluation,
        /// Whether it is the best so far.
        best: bool,
    },
    /// The chosen checkpoint is compared with the previous head.
    Judging,
}

/// Receives progress messages.
pub type TrainWatch<'a> = dyn FnMut(TrainProgress<'_>) + 'a;

/// Starts or continues a run.
///
/// # Errors
/// When the folder contains another run or one that should not be continued, settings do not fit,
/// or the engine, a file or tensors fail. Completed work is kept.
pub fn run(
    mut request: TrainRequest<'_>,
    engine: Engine,
    watch: &mut TrainWatch<'_>,
) -> Result<RunOutcome, TrainingError> {
    let (sets, general) = (std::mem::take(&mut request.sets), std::mem::take(&mut request.general));
    let placements = Placements::new(sets, general, &request.file.stop, request.file.training.seed)?;
    // Before the answers, which take longer than everything else: what cannot be trained is refused
    // at once.
    placements.check_judging(None)?;
    check(&request)?;
    let work = TrainWork::open(&request, &engine, &placements)?;
    let mut engine = engine;
    let stop = || request.interrupted.load(Ordering::Relaxed);
    let begin = Instant::now();
    let mut reported = |progress: AnswerProgress| {
        watch(TrainProgress::Answers(progress));
        !stop()
    };
    let Some(texts) = texts::answer(&mut engine, &placements, &work.answers(), &mut reported)? else {
        return Ok(RunOutcome::Interrupted { step: 0 });
    };
    let answers_s = begin.elapsed().as_secs_f64();
    note_texts(&placements, &texts, watch);
    placements.check_judging(Some(&texts))?;
    work.make_start(&request, &engine, &placements, &texts)?;
    let engines = Engines::new(engine, request.options.clone(), &work.start())?;
    let mut trainer = trainer(&request, &placements, &texts, work, engines)?;
    // A resumed run finds the answers on disk; their cost is that of the first run.
    if trainer.progress.cost.answer_tokens == 0 {
        trainer.progress.cost.answers_s = answers_s;
        trainer.progress.cost.answer_tokens = texts.iter().flatten().map(|text| text.output_tokens() as u64).sum();
    }
    if trainer.train(watch)?.is_break() {
        return Ok(RunOutcome::Interrupted { step: trainer.progress.step });
    }
    watch(TrainProgress::Judging);
    match judge::judge(&mut trainer, watch)? {
        Some(finished) => Ok(RunOutcome::Finished(Box::new(finished))),
        None => Ok(RunOutcome::Interrupted { step: trainer.progress.step }),
    }
}

/// Refuses, before the target answers anything, what cannot be trained or could not be written at
/// the end.
fn check(request: &TrainRequest<'_>) -> Result<(), TrainingError> {
    let TrainFile { models, training, .. } = request.file;
    request.steps_on.open(training.precision)?;
    let files = match models.start {
        train::TrainStart::Random => None,
        train::TrainStart::Draft => Some(ModelFiles::open(&request.options)?),
    };
    let reads_final = files.as_ref().is_some_and(|files| {
        files.draft.as_ref().is_some_and(|draft| draft.sees_final() && draft.hidden() == files.target.hidden)
    });
    if training.feature_weight > 0.0 && !reads_final {
        return Err(TrainingError::Configuration(
            "training.feature_weight is for heads that read the target's final state (EAGLE-1/2, MTP): EAGLE-3 and block \
             heads read captured layers; remove it"
                .into(),
        ));
    }
    let Some(files) = files else { return Ok(()) };
    let Some(draft) = &files.draft else {
        return Err(TrainingError::Configuration("there is no draft to start from".into()));
    };
    head::check(draft)?;
    for tensor in trained_tensors(draft, files.target.vocabulary) {
        files.draft_place(&tensor).map_err(|error| {
            TrainingError::Configuration(format!(
                "{error}. Trained values are written as float32, float16 or bfloat16: train the draft of the unquantised \
                 checkpoint, and quantise the trained head"
            ))
        })?;
    }
    Ok(())
}

fn note_texts(placements: &Placements, texts: &[Option<ReplayText>], watch: &mut TrainWatch<'_>) {
    let short = texts.iter().filter(|text| text.is_none()).count();
    if short > 0 {
        watch(TrainProgress::Note(format!("{short} prompts are skipped: their answers have fewer than 4 tokens")));
    }
    for (set, facts) in placements.facts(texts).iter().enumerate() {
        let repeated = match facts.repeated {
            0 => String::new(),
            count => format!(" ({count} repeated ones skipped)"),
        };
        watch(TrainProgress::Note(format!(
            "prompts {}: {}: {} for training ({} answer tokens), {} for choosing among checkpoints, {} for judging{repeated}",
            set + 1,
            facts.name,
            facts.training,
            facts.training_tokens,
            facts.choosing,
            facts.judging
        )));
    }
}

/// Everything that steps need, in the state of the newest checkpoint.
fn trainer<'a>(
    request: &'a TrainRequest<'a>,
    placements: &'a Placements,
    texts: &'a [Option<ReplayText>],
    work: TrainWork,
    engines: Engines,
) -> Result<Trainer<'a>, TrainingError> {
    let settings = &request.file.training;
    let compute = request.steps_on.open(settings.precision)?;
    let (dtype, device) = compute.tensors();
    // The weights that training begins with, also when it is resumed: a checkpoint has only what is
    // trained.
    let models = engines.models(&work.start())?;
    let draft = models.draft.clone().ok_or_else(|| TrainingError::Configuration("no draft to train".into()))?;
    let draft = head::for_tree(draft, request.file.shape());
    let target = models.target.tensors();
    let matrix = |tensor: &engine::spec::TensorSpec| {
        let values = Tensor::from_vec(models.target_values(tensor)?, tensor.shape.as_slice(), device)?;
        Ok::<_, TrainingError>(values.to_dtype(dtype)?)
    };
    let embedding = matrix(&target.embedding)?;
    let vocabulary = target.head.as_ref().map_or_else(|| Ok(embedding.clone()), matrix)?;
    let shared = SharedWeights { embedding, head: vocabulary };
    let kept = checkpoint::load(&work.checkpoint(), device)?;
    let values = |tensor: &engine::spec::TensorSpec| match &kept {
        Some(kept) if kept.trained.contains_key(&tensor.name) => Ok(kept.trained[&tensor.name].clone()),
        _ => Ok(models.draft_values(tensor)?),
    };
    let head = Head::new(&draft, &values, &shared, (dtype, device))?;
    if let Some(kept) = &kept {
        kept.check(&work.checkpoint(), head.trained())?;
    }
    // The mass outside of the draft's vocabulary takes a product over the whole one.
    let wants_mass = settings.loss == train::Loss::Acceptance || head::has_confidence(&draft);
    let teacher = Teacher::new(&shared.head, draft.tokens(), wants_mass)?;
    let adam = AdamSettings {
        beta1: settings.beta1,
        beta2: settings.beta2,
        weight_decay: settings.weight_decay,
        clip: settings.clip,
        ..AdamSettings::default()
    };
    let (progress, optimizer) = match kept {
        None => (checkpoint::SavedProgress::default(), AdamW::new(adam)),
        Some(kept) => (kept.progress.clone(), AdamW::resumed(adam, kept.progress.step, kept.moments)),
    };
    // An interrupted run leaves heads of steps that the checkpoint does not know.
    work.clean(progress.best)?;
    Ok(Trainer {
        request,
        placements,
        texts,
        objective: objective(settings, &draft),
        schedule: match settings.schedule {
            train::LearningRateSchedule::Cosine => RateSchedule::Cosine,
            train::LearningRateSchedule::Linear => RateSchedule::Linear,
            train::LearningRateSchedule::Constant => RateSchedule::Constant,
        },
        tensors: trained_tensors(&draft, models.target.vocabulary),
        states: PromptStates::new(texts, settings.states_mib, compute.clone()),
        models,
        draft,
        work,
        engines,
        head,
        teacher,
        optimizer,
        progress,
        compute,
    })
}

/// The loss of a draft. A recurrent one is unrolled; of a block, all rows that draft count.
fn objective(settings: &train::Training, draft: &DraftSpec) -> TrainObjective {
    let rows = match draft {
        DraftSpec::Block(spec) => Some(spec.block.given.unwrap_or(spec.block.rows)),
        _ => None,
    };
    let (depth, anchors) = match draft {
        DraftSpec::Block(spec) => (rows.map_or(0, |rows| spec.block.depth_of(rows)), Some(settings.anchors())),
        _ => (settings.unroll(), None),
    };
    TrainObjective {
        depth,
        anchors,
        decay: settings.decay(rows),
        loss: match settings.loss {
            train::Loss::Kl => ObjectiveLoss::Kl,
            train::Loss::CrossEntropy => ObjectiveLoss::CrossEntropy,
            train::Loss::Acceptance => ObjectiveLoss::Acceptance,
        },
        feature_weight: settings.feature_weight,
    }
}
