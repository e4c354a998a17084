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

use engine::replay::{Acceptance, KeepStates, ReplayProgress, ReplayText};
use schemas::tree::TreeShape;

use self::{rounds::Timed, texts::Texts};
use crate::{
    TunerError,
    prediction::{
        acceptance,
        guide::{self, AcceptanceTable, FORMAT, Guide, GuideCost},
        text_drafts,
    },
    preparation::{
        Ready,
        request::{Progress, SweepRequest},
    },
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
    pub each: Vec<Vec<Acceptance>>,
    /// The texts, in the order of the workload's requests.
    pub texts: Vec<ReplayText>,
}

/// The guide of a sweep: the one in its folder, if it was made for the same sweep, else a new one.
/// `None` if the user stopped the sweep.
///
/// # Errors
/// When the engine fails, or the guide cannot be written.
pub fn find(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    progress: &mut dyn Progress,
) -> Result<Option<Guide>, TunerError> {
    if request.resume {
        let path = request.out.join(guide::FILE_NAME);
        let known = guide::read(&request.out).map_err(|reason| TunerError::Malformed { path, reason })?;
        if let Some(guide) = known.filter(|guide| serves(guide, ready)) {
            progress.note("predictions are loaded from an earlier run");
            return Ok(Some(guide));
        }
    }
    let Some(guide) = make_each(request, ready, progress)? else { return Ok(None) };
    guide::write(&guide, &request.out)?;
    Ok(Some(guide))
}

/// Whether a guide has the fingerprint of this sweep and predicts all of its entrants.
fn serves(guide: &Guide, ready: &Ready) -> bool {
    let predicted = |load, configuration: &_| {
        guide.predictions.iter().any(|one| one.load == load && one.configuration == *configuration)
    };
    let unknown = |one: &Configuration| {
        guide.of_draft(&one.draft).is_none_or(|guide| guide.acceptance.length(one.shape).is_none())
    };
    guide.fingerprint == ready.fingerprint
        && ready.experiment.loads.iter().all(|load| {
            let plain = ready.experiment.entrants.iter().map(|one| &one.configuration).filter(|one| one.is_plain());
            plain.into_iter().all(|one| predicted(*load, one) || unknown(one))
        })
}

/// The guide of each draft, one loaded after the other. Nothing is predicted of a draft that looks
/// texts up.
fn make_each(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    progress: &mut dyn Progress,
) -> Result<Option<Guide>, TunerError> {
    let whole = ready.experiment.entrants.clone();
    let several = request.file.has_several_drafts();
    let mut guides = Vec::new();
    for name in ready.draft_names() {
        if several && ready.looks_texts_up(&name) {
            continue;
        }
        if let Err(error) = ready.load_draft(&name) {
            progress.note(&format!("nothing is predicted of draft {name}, which cannot be loaded: {error}"));
            continue;
        }
        if several {
            progress.note(&format!("draft {name}"));
        }
        let is_own = |one: &&Candidate| one.configuration.is_off() || one.configuration.draft == name;
        ready.experiment.entrants = whole.iter().filter(is_own).cloned().collect();
        let made = make(request, ready, progress);
        ready.experiment.entrants.clone_from(&whole);
        let Some(guide) = made? else { return Ok(None) };
        guides.push(Guide { draft: name, ..guide });
    }
    Guide::together(guides).map(Some).ok_or_else(|| TunerError::Configuration("no draft can be predicted".into()))
}

fn make(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    progress: &mut dyn Progress,
) -> Result<Option<Guide>, TunerError> {
    let mut cost = GuideCost::default();
    let shapes = shapes(ready);
    let Some((acceptance, replayed)) = accepted(request, ready, &shapes, &mut cost, progress)? else { return Ok(None) };
    let begin = Instant::now();
    let Some(timed) = rounds::time(request, ready, &acceptance, progress)? else { return Ok(None) };
    cost.timing_s = begin.elapsed().as_secs_f64();
    let predictions = predictions::all(request, ready, &acceptance, replayed.as_ref(), &timed)?;
    let rounds_by_batch = by_batch::all(ready, &acceptance, &timed)?;
    let captures = captures::choose(request, ready, &predictions, &timed)?;
    let Timed { summary, .. } = timed;
    let fingerprint: Fingerprint = ready.fingerprint.clone();
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
pub fn acceptance(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    progress: &mut dyn Progress,
) -> Result<Option<AcceptanceTable>, TunerError> {
    let shapes = shapes(ready);
    let accepted = accepted(request, ready, &shapes, &mut GuideCost::default(), progress)?;
    Ok(accepted.map(|(table, _)| table))
}

/// The acceptance table, imported or replayed, with the replay.
fn accepted(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    shapes: &[TreeShape],
    cost: &mut GuideCost,
    progress: &mut dyn Progress,
) -> Result<Option<(AcceptanceTable, Option<Replayed>)>, TunerError> {
    let found = match ready.imported.clone() {
        Some(table) => (table, None),
        None => {
            let told = ready.has_texts;
            let Texts { texts, seconds } = texts::find(request, ready, progress)?;
            cost.texts_s = seconds;
            let begin = Instant::now();
            let Some(replayed) = replay(request, ready, texts, shapes, progress)? else { return Ok(None) };
            cost.replay_s = begin.elapsed().as_secs_f64();
            let mut table = acceptance::replayed(&replayed.texts, shapes, &replayed.each);
            table.text_drafts = text_drafts::rows(&replayed.texts)?;
            // The same for every draft.
            if !told {
                progress.note(&text_drafts::sentence(&table.text_drafts));
            }
            (table, Some(replayed))
        }
    };
    note_missing(&found.0, shapes, progress);
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

fn note_missing(table: &AcceptanceTable, shapes: &[TreeShape], progress: &mut dyn Progress) {
    let missing: Vec<String> =
        shapes.iter().filter(|shape| table.length(**shape).is_none()).map(ToString::to_string).collect();
    if !missing.is_empty() {
        progress.note(&format!("no acceptance is known for {}: not predicted", missing.join(" ")));
    }
}

fn replay(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    texts: Vec<ReplayText>,
    shapes: &[TreeShape],
    progress: &mut dyn Progress,
) -> Result<Option<Replayed>, TunerError> {
    const STEPS: usize = 100;
    progress.preparing(&format!("replayed acceptance of {} tree shapes", shapes.len()), STEPS);
    let progress = RefCell::new(progress);
    let mut told = |told: ReplayProgress| {
        progress.borrow_mut().prepared(told.walked * STEPS / told.total.max(1));
        if request.interrupted.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let engine = ready.engine()?;
    // They are of the layers that one draft reads, so several drafts would replace each other's.
    let keep_states = if request.file.has_several_drafts() { 0 } else { request.keep_states };
    let each = match keep_states {
        0 => engine.replay(&texts, shapes, &mut told)?,
        most_bytes => {
            let path = request.out.join(STATES_FILE);
            let mut note = |words: &str| progress.borrow_mut().note(words);
            engine.replay_keeping(&texts, shapes, KeepStates { path: &path, most_bytes, note: &mut note }, &mut told)?
        }
    };
    Ok(each.map(|each| Replayed { shapes: shapes.to_vec(), each, texts }))
}
