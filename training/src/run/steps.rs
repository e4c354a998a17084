//! Training steps, with checkpoints and evaluations.

use std::{collections::BTreeMap, ops::ControlFlow, sync::atomic::Ordering, time::Instant};

use engine::{
    ModelFiles, ReplayText,
    spec::{DraftSpec, TensorSpec},
};
use schemas::training_record::{CurvePoint, Evaluation};

use super::{TrainProgress, TrainRequest, TrainWatch, engines::Engines, work::TrainWork};
use crate::{
    batch::{TrainBatch, Window, windows},
    checkpoint,
    compute::Compute,
    cost::{self, TrainedRows},
    error::TrainingError,
    evaluation::{self, AcceptedTokens, EvaluationPass},
    folder,
    head::Head,
    objective::{StepFigures, TrainObjective},
    optimizer::{AdamW, RateSchedule},
    states::PromptStates,
    statistics::Random,
    teacher::Teacher,
    texts::{Placements, TextRole},
};

/// Number of batches whose texts are sorted by length together: texts of similar length fill a
/// batch best.
const SORTED_BATCHES: usize = 16;

/// What tells the seeds of anchors from those of epochs.
const ANCHORS: u64 = 0xa2c4;

/// A training run.
pub struct Trainer<'a> {
    pub request: &'a TrainRequest<'a>,
    pub placements: &'a Placements,
    pub texts: &'a [Option<ReplayText>],
    pub objective: TrainObjective,
    pub schedule: RateSchedule,
    /// The trained tensors.
    pub tensors: Vec<TensorSpec>,
    pub states: PromptStates<'a>,
    /// The target with the initial head.
    pub models: ModelFiles,
    /// The head, as the tree runs it.
    pub draft: DraftSpec,
    pub work: TrainWork,
    pub engines: Engines,
    pub head: Head,
    pub teacher: Teacher,
    pub optimizer: AdamW,
    pub progress: checkpoint::SavedProgress,
    pub compute: Compute,
}

/// Figures since the last point of the curve.
#[derive(Default)]
struct SinceLog {
    steps: Vec<StepFigures>,
    count: usize,
    gradient: f64,
    trained: TrainedRows,
    seconds: f64,
}

impl Trainer<'_> {
    /// Runs steps until training ends. `Break` means that it was interrupted.
    pub fn train(&mut self, watch: &mut TrainWatch<'_>) -> Result<ControlFlow<()>, TrainingError> {
        let request = self.request;
        let settings = &request.file.training;
        let warm_up = (settings.warm_up * settings.steps as f64).ceil() as usize;
        let mut since = SinceLog::default();
        let (mut number, mut batches) = (0, self.epoch(0));
        if batches.is_empty() {
            return Err(TrainingError::Configuration(
                "no prompt has an answer to train on: all are shorter than 4 tokens; raise answers.output_length, or set \
                 answers.ignore_eos"
                    .into(),
            ));
        }
        while self.progress.stopped.is_none() {
            let step = self.progress.step;
            let ends = step >= settings.steps;
            let due = ends || step.is_multiple_of(request.file.stop.evaluate_every);
            // A run that was stopped during an evaluation repeats it.
            if due && self.progress.evaluations.last().is_none_or(|last| last.step != step) {
                if self.evaluate(watch)?.is_break() {
                    return self.leave(&mut since, watch);
                }
                if ends && self.progress.stopped.is_none() {
                    // Only after the last evaluation, which may be the best one.
                    self.progress.stopped = Some(format!("all {step} steps are done"));
                }
                self.save()?;
                self.work.clean(self.progress.best)?;
                continue;
            }
            if request.interrupted.load(Ordering::Relaxed) {
                return self.leave(&mut since, watch);
            }
            // Every epoch has the same number of batches.
            let wanted = step / batches.len();
            if wanted != number {
                (number, batches) = (wanted, self.epoch(wanted));
            }
            let learning_rate = settings.learning_rate * self.schedule.factor(step, warm_up, settings.steps);
            let begin = Instant::now();
            let outcome = self.step(&batches[step % batches.len()], learning_rate)?;
            since.add(outcome, begin.elapsed().as_secs_f64());
            self.progress.step += 1;
            let step = self.progress.step;
            let keeps = step.is_multiple_of(settings.checkpoint_every);
            if keeps || step >= settings.steps || step.is_multiple_of(request.file.stop.evaluate_every) {
                self.point(&mut since, watch)?;
            }
            if keeps {
                self.save()?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Saves the state after an interruption.
    fn leave(&mut self, since: &mut SinceLog, watch: &mut TrainWatch<'_>) -> Result<ControlFlow<()>, TrainingError> {
        self.point(since, watch)?;
        self.save()?;
        Ok(ControlFlow::Break(()))
    }

    /// One step of the optimiser.
    fn step(&mut self, pieces: &[(usize, Window)], learning_rate: f64) -> Result<StepOutcome, TrainingError> {
        let engine = self.engines.any()?;
        let before = self.states.seconds;
        let known: Result<Vec<_>, _> = pieces.iter().map(|(text, _)| self.states.known(engine, *text)).collect();
        let known = known?;
        self.progress.cost.states_s += self.states.seconds - before;
        let windows: Vec<_> = known.iter().zip(pieces).map(|(known, (_, window))| (known, *window)).collect();
        // From the number of the step, so that a resumed run draws what the interrupted one would
        // have.
        let seed = seed_of(self.request.file.training.seed ^ ANCHORS, self.progress.step);
        let batch = TrainBatch::new(&windows, self.objective.plan(seed), &self.teacher)?;
        let unrolled = self.objective.run(&self.head, &batch)?;
        let gradients = unrolled.total.backward()?;
        let gradient = self.optimizer.step(self.head.trained(), &gradients, learning_rate)?;
        let loss = unrolled.total.to_scalar::<f32>()?;
        // Before the checkpoint is saved, which could not be continued from.
        if !gradient.is_finite() || !loss.is_finite() {
            return Err(TrainingError::NotFinite { step: self.progress.step });
        }
        Ok(StepOutcome {
            steps: unrolled.steps,
            gradient,
            trained: TrainedRows {
                rows: batch.real as u64,
                anchors: batch.anchors as u64,
                depth: self.objective.depth,
            },
            states_s: self.states.seconds - before,
        })
    }

    /// The batches of an epoch: a function of the seed and the epoch's number.
    fn epoch(&self, number: usize) -> Vec<Vec<(usize, Window)>> {
        let settings = &self.request.file.training;
        let trains = |at: &usize| self.placements.prompts[*at].role == TextRole::Training;
        let pieces: Vec<(usize, Window)> = (0..self.texts.len())
            .filter(trains)
            .flat_map(|at| {
                let (tokens, prompt_tokens) = self.states.size(at);
                windows(tokens, prompt_tokens, settings.window).into_iter().map(move |window| (at, window))
            })
            .collect();
        let mut random = Random::new(seed_of(settings.seed, number));
        let order = random.permutation(pieces.len());
        let mut batches = Vec::new();
        // Sorted by length within a stretch: batches with little padding, in an order that is still
        // random.
        for stretch in order.chunks(SORTED_BATCHES * settings.batch_size) {
            let mut stretch: Vec<_> = stretch.iter().map(|at| pieces[*at]).collect();
            stretch.sort_by_key(|(at, window)| (window.rows, *at, window.start));
            let parts: Vec<_> = stretch.chunks(settings.batch_size).map(<[_]>::to_vec).collect();
            let order = random.permutation(parts.len());
            batches.extend(order.into_iter().map(|at| parts[at].clone()));
        }
        batches
    }

    /// Writes the current head, replays it on the choosing prompts, and keeps it if it is the best.
    fn evaluate(&mut self, watch: &mut TrainWatch<'_>) -> Result<ControlFlow<()>, TrainingError> {
        let (begin, step) = (Instant::now(), self.progress.step);
        let head = if step == 0 { self.work.start() } else { self.work.head_at(step) };
        if step > 0 {
            let values = checkpoint::values(self.head.trained())?;
            folder::write_head(&self.models, &self.tensors, &values, &head)?;
        }
        let (choosing, general) = (self.with_role(TextRole::Choosing), self.with_role(TextRole::General));
        let Some(accepted) = self.replay(&head, &choosing)? else { return Ok(ControlFlow::Break(())) };
        let Some(of_general) = self.replay(&head, &general)? else { return Ok(ControlFlow::Break(())) };
        let accept_length = evaluation::length_of(&accepted, |_| true).unwrap_or_default();
        let mut by_set = BTreeMap::new();
        for (number, name) in self.placements.names.iter().enumerate() {
            let of_set = |at: usize| self.placements.prompts[choosing[at]].set == number;
            by_set.extend(evaluation::length_of(&accepted, of_set).map(|length| (name.clone(), length)));
        }
        let evaluation = Evaluation {
            step,
            accept_length,
            by_set,
            loss: self.loss(&choosing)?.unwrap_or_default(),
            general_loss: self.loss(&general)?,
            general_accept_length: evaluation::length_of(&of_general, |_| true),
        };
        let best_so_far = self.progress.evaluations.iter().map(|one| one.accept_length).fold(0.0, f64::max);
        // The first evaluation is that of the head as it began, which every checkpoint has to beat.
        let best = step > 0 && accept_length > best_so_far;
        if best {
            self.progress.best = Some(step);
        }
        let settings = &self.request.file.stop;
        let since = (step - self.progress.best.unwrap_or_default()) / settings.evaluate_every.max(1);
        if since >= settings.patience {
            self.progress.stopped = Some(format!(
                "{since} evaluation{} without a longer accept length, the best at step {}",
                if since == 1 { "" } else { "s" },
                self.progress.best.unwrap_or_default()
            ));
        }
        watch(TrainProgress::Evaluated { evaluation: &evaluation, best });
        self.progress.evaluations.push(evaluation);
        self.progress.cost.evaluation_s += begin.elapsed().as_secs_f64();
        Ok(ControlFlow::Continue(()))
    }

    /// The texts of a role, by index.
    pub fn with_role(&self, role: TextRole) -> Vec<usize> {
        let prompts = self.placements.prompts.iter().enumerate();
        let of_role = prompts.filter(|(at, placed)| placed.role == role && self.texts[*at].is_some());
        of_role.map(|(at, _)| at).collect()
    }

    /// Acceptance of the head of a folder along texts; `None` if the run was stopped.
    pub fn replay(
        &mut self,
        head: &std::path::Path,
        texts: &[usize],
    ) -> Result<Option<Vec<AcceptedTokens>>, TrainingError> {
        let texts: Vec<ReplayText> = texts.iter().filter_map(|at| self.texts[*at].clone()).collect();
        let interrupted = self.request.interrupted;
        let mut stop = || interrupted.load(Ordering::Relaxed);
        evaluation::replay(self.engines.with(head)?, &texts, self.request.file.shape(), &mut stop)
    }

    fn loss(&mut self, texts: &[usize]) -> Result<Option<f64>, TrainingError> {
        let settings = &self.request.file.training;
        let pass = EvaluationPass {
            head: &self.head,
            teacher: &self.teacher,
            objective: self.objective,
            window: settings.window,
            batch_size: settings.batch_size,
            seed: settings.seed,
        };
        pass.loss(self.engines.any()?, &mut self.states, texts)
    }

    /// Ends a section of the curve.
    fn point(&mut self, since: &mut SinceLog, watch: &mut TrainWatch<'_>) -> Result<(), TrainingError> {
        let SinceLog { steps, count, gradient, trained, seconds } = std::mem::take(since);
        if count == 0 {
            return Ok(());
        }
        let settings = &self.request.file.training;
        let warm_up = (settings.warm_up * settings.steps as f64).ceil() as usize;
        let last = self.progress.step.saturating_sub(1);
        let point = CurvePoint {
            step: self.progress.step,
            loss: steps.iter().map(StepFigures::mean_loss).collect(),
            agreement: steps.iter().map(StepFigures::agreement).collect(),
            learning_rate: settings.learning_rate * self.schedule.factor(last, warm_up, settings.steps),
            gradient: gradient / count as f64,
            rows_per_s: trained.rows as f64 / seconds.max(1e-9),
        };
        watch(TrainProgress::Steps { steps: settings.steps, point: &point });
        self.progress.curve.push(point);
        self.progress.cost.rows += trained.rows;
        self.progress.cost.training_s += seconds;
        self.progress.cost.flops += cost::flops(&self.draft, &self.models.target, trained);
        Ok(())
    }

    fn save(&self) -> Result<(), TrainingError> {
        checkpoint::save(&self.work.checkpoint(), &self.progress, self.head.trained(), &self.optimizer)
    }
}

/// The result of a step.
struct StepOutcome {
    steps: Vec<StepFigures>,
    gradient: f64,
    trained: TrainedRows,
    /// Seconds of the step in which the engine computed states.
    states_s: f64,
}

/// A seed for each number, such as that of an epoch or of a step.
fn seed_of(seed: u64, number: usize) -> u64 {
    seed.wrapping_mul(0x1_0000_0001).wrapping_add(number as u64)
}

impl SinceLog {
    fn add(&mut self, outcome: StepOutcome, seconds: f64) {
        self.steps.resize(outcome.steps.len(), StepFigures::default());
        self.steps.iter_mut().zip(outcome.steps).for_each(|(sum, step)| sum.add(step));
        self.count += 1;
        self.gradient += outcome.gradient;
        self.trained.add(outcome.trained);
        // The target's states have a cost of their own, and are kept for later epochs.
        self.seconds += seconds - outcome.states_s;
    }
}
