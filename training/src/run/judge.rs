//! The final comparison of the chosen checkpoint with the previous head, on prompts that did not
//! choose the checkpoint.

use std::time::{Instant, SystemTime};

use engine::{checkpoint::Folder, timing::TimingPoint};
use schemas::{
    train::TrainStart,
    training_record::{AcceptFigures, FORMAT, HeadComparison, HeadVerdict, RecordedModel, TrainingRecord},
};

use super::{Finished, TrainProgress, TrainWatch, steps::Trainer};
use crate::{
    checkpoint,
    error::TrainingError,
    evaluation::{self, AcceptedTokens},
    folder,
    texts::TextRole,
};

/// Number of timed rounds.
const TIMED_ROUNDS: usize = 16;

/// Acceptance of both heads on some texts.
struct Both {
    before: Vec<AcceptedTokens>,
    after: Vec<AcceptedTokens>,
}

/// Compares, writes the head if it is better, and writes the record. `None` if the run was stopped.
pub fn judge(trainer: &mut Trainer<'_>, watch: &mut TrainWatch<'_>) -> Result<Option<Finished>, TrainingError> {
    let begin = Instant::now();
    let best = trainer.progress.best;
    let (judging, general) = (trainer.with_role(TextRole::Judging), trainer.with_role(TextRole::General));
    let start = trainer.work.start();
    let chosen = best.map_or_else(|| start.clone(), |step| trainer.work.head_at(step));
    let mut both = |texts: &[usize]| {
        let Some(before) = trainer.replay(&start, texts)? else { return Ok(None) };
        // Without a better checkpoint the head is the one it began with, whose replay is known.
        let after = if best.is_some() { trainer.replay(&chosen, texts)? } else { Some(before.clone()) };
        Ok::<_, TrainingError>(after.map(|after| Both { before, after }))
    };
    let Some(judged) = both(&judging)? else { return Ok(None) };
    let Some(of_general) = both(&general)? else { return Ok(None) };
    let mut comparisons: Vec<HeadComparison> =
        evaluation::compare("all", &judged.before, &judged.after).into_iter().collect();
    if trainer.placements.names.len() > 1 {
        for (number, name) in trainer.placements.names.iter().enumerate() {
            let of_set = |from: &[AcceptedTokens]| -> Vec<AcceptedTokens> {
                let texts = judging.iter().zip(from);
                let of_set = texts.filter(|(at, _)| trainer.placements.prompts[**at].set == number);
                of_set.map(|(_, accepted)| accepted.clone()).collect()
            };
            comparisons.extend(evaluation::compare(name, &of_set(&judged.before), &of_set(&judged.after)));
        }
    }
    let verdict = verdict(best, comparisons.first(), trainer.request.file.models.start);
    predict(trainer, &mut comparisons, watch);
    let head = verdict.better.then(|| trainer.work.head());
    // An interrupted run may have left one, which a worse head must not keep.
    folder::remove(&trainer.work.head())?;
    if let Some(head) = &head {
        write(trainer, &chosen, head)?;
    }
    trainer.progress.cost.evaluation_s += begin.elapsed().as_secs_f64();
    // Drift is measured against the head that will be used.
    let stays = if verdict.better { &judged.after } else { &judged.before };
    let record = TrainingRecord {
        format: FORMAT,
        spectune: env!("CARGO_PKG_VERSION").into(),
        finished: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64()),
        models: facts(trainer, head.as_deref())?,
        shape: trainer.request.file.tree.shape.clone(),
        from_scratch: trainer.request.file.models.start == TrainStart::Random,
        sets: trainer.placements.facts(trainer.texts),
        curve: trainer.progress.curve.clone(),
        evaluations: trainer.progress.evaluations.clone(),
        stopped: trainer.progress.stopped.clone().unwrap_or_default(),
        general: evaluation::compare("general", &of_general.before, &of_general.after),
        judged: comparisons,
        verdict,
        cost: trainer.progress.cost.clone(),
        baseline: stays.iter().map(|one| (one.counted.tokens, one.counted.rounds)).collect(),
    };
    folder::write_whole(&trainer.work.record(), record.text().as_bytes())?;
    Ok(Some(Finished { record, head }))
}

/// The previous head wins ties.
fn verdict(best: Option<usize>, all: Option<&HeadComparison>, start: TrainStart) -> HeadVerdict {
    let before = if start == TrainStart::Random { "the random head" } else { "the previous head" };
    let keeps = |step, because: String| HeadVerdict { better: false, step, because };
    let Some(step) = best else {
        return keeps(0, format!("no checkpoint had a longer accept length than {before} on the choosing prompts"));
    };
    // Training is not started without them.
    let Some(HeadComparison { ratio, prompts, .. }) = all else {
        return keeps(step, "there is no judging prompt".into());
    };
    let percent = |ratio: f64| format!("{:+.1}%", (ratio - 1.0) * 100.0);
    let found = format!(
        "the accept length on the {prompts} judging prompts changes by {} ({} to {}, {:.0}% interval by \
         prompts)",
        percent(ratio.ratio),
        percent(ratio.low),
        percent(ratio.high),
        ratio.coverage * 100.0
    );
    if ratio.low > 1.0 {
        return HeadVerdict { better: true, step, because: found };
    }
    keeps(step, format!("{found}: it may be no better, and {before} wins ties"))
}

/// Writes the chosen head in its published format.
fn write(trainer: &Trainer<'_>, chosen: &std::path::Path, head: &std::path::Path) -> Result<(), TrainingError> {
    if !trainer.request.file.models.is_own_layer() {
        return folder::copy_head(chosen, head);
    }
    let of_chosen = trainer.engines.models(chosen)?;
    let values = |tensor: &engine::spec::TensorSpec| Ok((tensor.name.clone(), of_chosen.draft_values(tensor)?));
    let values: Result<folder::Trained, TrainingError> = trainer.tensors.iter().map(values).collect();
    let own = engine::ModelFiles::open(trainer.engines.options())?;
    folder::stitch(&own, &trainer.tensors, &values?, head)
}

/// Tokens per second at the batch size in the file, from accept lengths and the time of a round.
fn predict(trainer: &mut Trainer<'_>, comparisons: &mut [HeadComparison], watch: &mut TrainWatch<'_>) {
    let batch = trainer.request.file.tree.batch;
    if batch == 0 || comparisons.is_empty() {
        return;
    }
    let texts: Vec<usize> =
        trainer.texts.iter().flatten().map(|text| text.prompt_tokens + text.output_tokens() / 2).collect();
    // Halfway through the answer, as the average round of a text.
    let context = texts.iter().sum::<usize>() / texts.len().max(1);
    let point = TimingPoint::full(trainer.request.file.shape(), batch, context);
    let start = trainer.work.start();
    let timed = trainer.engines.with(&start).and_then(|engine| Ok(engine.time_rounds(&[point], TIMED_ROUNDS)?));
    match timed {
        Ok(times) => {
            let mut walls: Vec<f64> =
                times.iter().flat_map(|times| &times.wall).map(|wall| wall.as_secs_f64()).collect();
            walls.sort_by(f64::total_cmp);
            let Some(round) = walls.get(walls.len() / 2).copied().filter(|round| *round > 0.0) else { return };
            let tell = |figures: &mut AcceptFigures| {
                figures.predicted_tokens_per_s = figures.accept_length().map(|length| batch as f64 * length / round);
            };
            for comparison in comparisons {
                tell(&mut comparison.before);
                tell(&mut comparison.after);
            }
        }
        Err(error) => watch(TrainProgress::Note(format!(
            "rounds of batch {batch} could not be timed, so tokens per second are not predicted: {error}"
        ))),
    }
}

fn facts(trainer: &mut Trainer<'_>, head: Option<&std::path::Path>) -> Result<RecordedModel, TrainingError> {
    let own_layer = trainer.request.file.models.is_own_layer();
    let draft = trainer.request.options.draft_model_path.clone();
    let (target, device) = {
        let engine = trainer.engines.any()?;
        (engine.identity().clone(), engine.device())
    };
    let before = if own_layer {
        Some(target.target.clone())
    } else {
        draft.map(|path| Folder::open(&path)?.hash()).transpose()?
    };
    let parameters = checkpoint::values(trainer.head.trained())?.values().map(|values| values.len() as u64).sum();
    Ok(RecordedModel {
        name: target.name,
        target: target.target,
        before,
        after: head.map(|head| Folder::open(head)?.hash()).transpose()?,
        algorithm: trainer.request.file.models.algorithm.to_ascii_uppercase(),
        parameters,
        device: format!("{} ({}), steps: {}", device.device, device.name, trainer.compute.name()),
    })
}
