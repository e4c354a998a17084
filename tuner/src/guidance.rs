//! Computes what guides a search: acceptance by tree shape, and round times. They predict the whole
//! space, so only a small part of it is measured.

mod by_batch;
mod captures;
mod predictions;
mod rounds;
#[cfg(test)]
mod tests;
pub(crate) mod texts;

use std::{cell::RefCell, ops::ControlFlow, sync::atomic::Ordering, time::Instant};

use engine::replay::{KeepStates, ReplayProgress, ReplayText, ShapeAcceptance};
use schemas::tree::TreeShape;

use self::{rounds::Timed, texts::TargetTexts};
use crate::{
    TunerError,
    prediction::{
        acceptance,
        guide::{self, AcceptanceTable, FORMAT, Guide, GuideCost},
        text_drafts,
    },
    preparation::{Ready, context::SweepContext, request::SweepProgress},
    space::Candidate,
    trials::{configuration::Configuration, record::Fingerprint},
};

/// The file in the sweep's folder with the target's hidden states of the texts: see [`KeepStates`].
pub const STATES_FILE: &str = "states.bin";

/// The acceptance of each text of the workload under each shape.
pub struct Replayed {
    /// The shapes.
    pub shapes: Vec<TreeShape>,
    /// `[text][shape]`.
    pub each: Vec<Vec<ShapeAcceptance>>,
    /// The texts, in the order of the workload's requests.
    pub texts: Vec<ReplayText>,
}

impl Replayed {
    /// The accept length of a shape over the texts of these requests; `None` if it was not
    /// replayed, or had no round.
    fn length_over(&self, shape: TreeShape, requests: &[usize]) -> Option<f64> {
        let at = self.shapes.iter().position(|one| *one == shape)?;
        let mut texts: Vec<usize> = requests.iter().map(|request| request % self.each.len().max(1)).collect();
        texts.sort_unstable();
        texts.dedup();
        acceptance::length_over(texts.into_iter().filter_map(|text| self.each.get(text)?.get(at)))
    }
}

/// The guide of a sweep: the one in its folder, if it was made for the same sweep, else a new one.
/// `None` if the user stopped the sweep.
///
/// # Errors
/// When the engine fails, or the guide cannot be written.
pub fn find(context: &mut SweepContext<'_>) -> Result<Option<Guide>, TunerError> {
    if context.resume {
        let path = context.out.join(guide::FILE_NAME);
        let known = guide::read(context.out).map_err(|reason| TunerError::Malformed { path, reason })?;
        if let Some(guide) = known.filter(|guide| serves(guide, &context.ready)) {
            context.progress.note("predictions are loaded from an earlier run");
            return Ok(Some(guide));
        }
    }
    let Some(guide) = make_each(context)? else { return Ok(None) };
    guide::write(&guide, context.out)?;
    Ok(Some(guide))
}

/// Whether a guide has the fingerprint of this sweep and predicts all of its entrants.
fn serves(guide: &Guide, ready: &Ready) -> bool {
    let predicted = |load, configuration: &_| {
        guide.predictions.iter().any(|one| one.load == load && one.configuration == *configuration)
    };
    let unknown = |one: &Configuration| {
        guide.for_draft(&one.draft).is_none_or(|guide| guide.acceptance.length(one.shape).is_none())
    };
    guide.fingerprint == ready.fingerprint
        && ready.experiment.loads.iter().all(|load| {
            let plain = ready.experiment.entrants.iter().map(|one| &one.configuration).filter(|one| one.is_plain());
            plain.into_iter().all(|one| predicted(*load, one) || unknown(one))
        })
}

/// The guide of each draft, one loaded after the other. Nothing is predicted of a draft that looks
/// texts up.
fn make_each(context: &mut SweepContext<'_>) -> Result<Option<Guide>, TunerError> {
    let whole = context.ready.experiment.entrants.clone();
    let several = context.ready.inputs.file.has_several_drafts();
    let mut guides = Vec::new();
    for name in context.ready.draft_names() {
        if several && context.ready.looks_texts_up(&name) {
            continue;
        }
        if let Err(error) = context.ready.load_draft(&name) {
            context.progress.note(&format!("nothing is predicted of draft {name}, which cannot be loaded: {error}"));
            continue;
        }
        if several {
            context.progress.note(&format!("draft {name}"));
        }
        let is_own = |one: &&Candidate| one.configuration.is_off() || one.configuration.draft == name;
        context.ready.experiment.entrants = whole.iter().filter(is_own).cloned().collect();
        let made = make(context);
        context.ready.experiment.entrants.clone_from(&whole);
        let Some(guide) = made? else { return Ok(None) };
        guides.push(Guide { draft: name, ..guide });
    }
    Guide::together(guides).map(Some).ok_or_else(|| TunerError::Configuration("no draft can be predicted".into()))
}

fn make(context: &mut SweepContext<'_>) -> Result<Option<Guide>, TunerError> {
    let mut cost = GuideCost::default();
    let shapes = shapes(&context.ready);
    let Some((acceptance, replayed)) = accepted(context, &shapes, &mut cost)? else { return Ok(None) };
    let begin = Instant::now();
    let Some(timed) = rounds::time(context, &acceptance)? else { return Ok(None) };
    cost.timing_s = begin.elapsed().as_secs_f64();
    let predictions = predictions::all(context, &acceptance, replayed.as_ref(), &timed)?;
    let rounds_by_batch = by_batch::all(&mut context.ready, &acceptance, replayed.as_ref(), &timed)?;
    let captures = captures::choose(&mut context.ready, &predictions, &timed)?;
    let Timed { summary, .. } = timed;
    let fingerprint: Fingerprint = context.ready.fingerprint.clone();
    let predictions = predictions.into_iter().map(|one| one.prediction).collect();
    Ok(Some(Guide {
        format: FORMAT,
        fingerprint,
        acceptance,
        round_times: summary,
        predictions,
        rounds_by_batch,
        captures,
        cost,
        draft: String::new(),
        others: Vec::new(),
    }))
}

/// The acceptance of every tree of the space, replayed by spectune's own engine unless a table is
/// imported. `None` if the user stopped the sweep.
///
/// # Errors
/// When the engine is not loaded, or a replay fails.
pub fn acceptance(context: &mut SweepContext<'_>) -> Result<Option<AcceptanceTable>, TunerError> {
    let shapes = shapes(&context.ready);
    let accepted = accepted(context, &shapes, &mut GuideCost::default())?;
    Ok(accepted.map(|(table, _)| table))
}

/// The acceptance table, imported or replayed, with the replay.
fn accepted(
    context: &mut SweepContext<'_>,
    shapes: &[TreeShape],
    cost: &mut GuideCost,
) -> Result<Option<(AcceptanceTable, Option<Replayed>)>, TunerError> {
    let found = match context.ready.imported.clone() {
        Some(table) => (table, None),
        None => {
            let reported = context.ready.has_texts;
            let TargetTexts { texts, seconds } = texts::find(context)?;
            cost.texts_s = seconds;
            let begin = Instant::now();
            // What a budget accepts depends on the other requests.
            let whole: Vec<TreeShape> = shapes.iter().copied().filter(|shape| shape.row_budget.is_none()).collect();
            let Some(replayed) = replay(context, texts, &whole)? else { return Ok(None) };
            cost.replay_s = begin.elapsed().as_secs_f64();
            let mut table = acceptance::replayed(&replayed.texts, &whole, &replayed.each);
            table.text_drafts = text_drafts::rows(&replayed.texts)?;
            // The same for every draft.
            if !reported {
                context.progress.note(&text_drafts::sentence(&table.text_drafts));
            }
            (table, Some(replayed))
        }
    };
    note_missing(&found.0, shapes, context.progress);
    Ok(Some(found))
}

/// Every tree of the space that speculates, sorted.
fn shapes(ready: &Ready) -> Vec<TreeShape> {
    let all = ready.experiment.entrants.iter().flat_map(|one| one.configuration.shapes());
    let mut shapes: Vec<TreeShape> = all.filter(|shape| !shape.is_off()).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

fn note_missing(table: &AcceptanceTable, shapes: &[TreeShape], progress: &mut dyn SweepProgress) {
    let missing: Vec<String> =
        shapes.iter().filter(|shape| table.length(**shape).is_none()).map(ToString::to_string).collect();
    if !missing.is_empty() {
        progress.note(&format!(
            "no acceptance is known for {}: not predicted, and left out of a guided search",
            missing.join(" ")
        ));
    }
}

fn replay(
    context: &mut SweepContext<'_>,
    texts: Vec<ReplayText>,
    shapes: &[TreeShape],
) -> Result<Option<Replayed>, TunerError> {
    const STEPS: usize = 100;
    let SweepContext { ready, out, keep_states, interrupted, progress, .. } = context;
    progress.preparing(&format!("replayed acceptance of {} tree shapes", shapes.len()), STEPS);
    let progress = RefCell::new(progress);
    let mut reported = |reported: ReplayProgress| {
        progress.borrow_mut().prepared(reported.walked * STEPS / reported.total.max(1));
        if interrupted.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // They are of the layers that one draft reads, so several drafts would replace each other's.
    let keep_states = if ready.inputs.file.has_several_drafts() { 0 } else { *keep_states };
    let engine = ready.engine()?;
    let each = match keep_states {
        0 => engine.replay(&texts, shapes, &mut reported)?,
        most_bytes => {
            let path = out.join(STATES_FILE);
            let mut note = |words: &str| progress.borrow_mut().note(words);
            engine.replay_keeping(
                &texts,
                shapes,
                KeepStates { path: &path, most_bytes, note: &mut note },
                &mut reported,
            )?
        }
    };
    Ok(each.map(|each| Replayed { shapes: shapes.to_vec(), each, texts }))
}
