//! Finds out what guides a search: which tree accepts what, and how long rounds take. Then the whole space is predicted,
//! and little of it must be measured.

mod by_batch;
mod captures;
mod context;
mod predictions;
mod rounds;
#[cfg(test)]
mod tests;

use std::{fs::File, io::Read, ops::ControlFlow, path::Path, sync::atomic::Ordering, time::Instant};

use engine::{
    ShapePolicy,
    replay::{Acceptance, ReplayText},
};
use schemas::tree::TreeShape;

use self::rounds::Timed;
use crate::{
    TunerError, acceptance,
    guide::{AcceptanceTable, Cost, FILE_NAME, FORMAT, Guide},
    record::Fingerprint,
    sweep::{Progress, SweepRequest, prepare::Ready},
    whole_file,
};

/// Largest guide that is read, in bytes.
const LARGEST: u64 = 256 << 20;
/// Texts that are replayed at most: acceptance is known well enough by then.
const MOST_TEXTS: usize = 256;

/// What each text of the workload accepts under each shape.
pub struct Replayed {
    /// The shapes.
    pub shapes: Vec<TreeShape>,
    /// `[text][shape]`.
    pub each: Vec<Vec<Acceptance>>,
    /// The texts, in the order of the workload's requests.
    pub texts: Vec<ReplayText>,
}

/// The guide of a sweep: the one that its folder holds, if it was made for the same sweep, else a new one. `None` when the
/// user wanted to stop.
///
/// # Errors
/// When the engine fails, or the guide cannot be written.
pub fn find(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    progress: &mut dyn Progress,
) -> Result<Option<Guide>, TunerError> {
    if request.resume
        && let Some(guide) = read(&request.out)?.filter(|guide| serves(guide, ready))
    {
        progress.note("predictions are there from before");
        return Ok(Some(guide));
    }
    let Some(guide) = make(request, ready, progress)? else { return Ok(None) };
    let text = serde_json::to_vec(&guide).map_err(|error| TunerError::Configuration(error.to_string()))?;
    whole_file::write(&request.out, FILE_NAME, &text)?;
    Ok(Some(guide))
}

/// The guide of a folder, if there is one.
///
/// # Errors
/// When it cannot be read or is of another format.
pub fn read(folder: &Path) -> Result<Option<Guide>, TunerError> {
    let path = folder.join(FILE_NAME);
    let mut text = String::new();
    match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened
            .and_then(|file| file.take(LARGEST).read_to_string(&mut text))
            .map_err(|source| TunerError::Read { path: path.clone(), source })?,
    };
    let malformed = |reason: String| TunerError::Malformed { path: path.clone(), reason };
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    if format != FORMAT {
        return Err(malformed(format!("it has format {format}, this program reads {FORMAT}")));
    }
    serde_json::from_str(&text).map(Some).map_err(|error| malformed(error.to_string()))
}

/// Whether a guide was made on this machine for all that races here.
fn serves(guide: &Guide, ready: &Ready) -> bool {
    let predicted = |load, configuration: &_| {
        guide.predictions.iter().any(|one| one.load == load && one.configuration == *configuration)
    };
    let unknown = |shape: &TreeShape| guide.acceptance.length(*shape).is_none();
    guide.fingerprint == ready.fingerprint
        && ready.race.loads.iter().all(|load| {
            let plain = ready.race.entrants.iter().map(|one| &one.configuration).filter(|one| one.is_plain());
            plain.into_iter().all(|one| predicted(*load, one) || unknown(&one.shape))
        })
}

fn make(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    progress: &mut dyn Progress,
) -> Result<Option<Guide>, TunerError> {
    let mut cost = Cost::default();
    let shapes = shapes(ready);
    let (acceptance, replayed) = match ready.imported.clone() {
        Some(table) => (table, None),
        None => {
            let begin = Instant::now();
            let texts = texts(ready, progress)?;
            cost.texts_s = begin.elapsed().as_secs_f64();
            let begin = Instant::now();
            let Some(replayed) = replay(request, ready, texts, &shapes, progress)? else { return Ok(None) };
            cost.replay_s = begin.elapsed().as_secs_f64();
            (acceptance::replayed(&replayed.texts, &shapes, &replayed.each), Some(replayed))
        }
    };
    note_missing(&acceptance, &shapes, progress);
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
    }))
}

/// Every tree that speculates.
fn shapes(ready: &Ready) -> Vec<TreeShape> {
    let all = ready.race.entrants.iter().flat_map(|one| one.configuration.shapes());
    let mut shapes: Vec<TreeShape> = all.filter(|shape| !shape.is_off()).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

fn note_missing(table: &AcceptanceTable, shapes: &[TreeShape], progress: &mut dyn Progress) {
    let missing: Vec<String> =
        shapes.iter().filter(|shape| table.length(**shape).is_none()).map(ToString::to_string).collect();
    if !missing.is_empty() {
        progress.note(&format!("no acceptance is known of {}: not predicted", missing.join(" ")));
    }
}

/// Runs the workload without speculation, for its texts.
fn texts(ready: &mut Ready, progress: &mut dyn Progress) -> Result<Vec<ReplayText>, TunerError> {
    let requests: Vec<_> = ready.workload.requests.iter().take(MOST_TEXTS).cloned().collect();
    progress.preparing("texts without speculation", requests.len());
    let engine = ready.engine()?;
    engine.set_policy(ShapePolicy::fixed(TreeShape::OFF))?;
    let completions = engine.run(requests.clone())?;
    progress.prepared(requests.len());
    Ok(requests.iter().zip(&completions).map(|(request, completion)| ReplayText::new(request, completion)).collect())
}

fn replay(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    texts: Vec<ReplayText>,
    shapes: &[TreeShape],
    progress: &mut dyn Progress,
) -> Result<Option<Replayed>, TunerError> {
    const STEPS: usize = 100;
    progress.preparing(&format!("acceptance of {} tree shapes, replayed", shapes.len()), STEPS);
    let interrupted = request.interrupted;
    let engine = ready.engine()?;
    let each = engine.replay(&texts, shapes, &mut |told| {
        progress.prepared(told.walked * STEPS / told.total.max(1));
        if interrupted.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(each.map(|each| Replayed { shapes: shapes.to_vec(), each, texts }))
}
