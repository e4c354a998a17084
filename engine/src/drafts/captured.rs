//! The layers of the target that a head reads.

use schemas::model::CapturedList;

use super::DraftTarget;
use crate::{
    error::EngineError,
    families::{self, Config},
};

/// The layers before which the target's stream is captured, in the order of the features; `None` if
/// the head names none.
///
/// # Errors
/// When it names layers that do not exist, or others in another place.
pub fn captured(config: &Config<'_>, target: DraftTarget<'_>) -> Result<Option<Vec<usize>>, EngineError> {
    let lists = config.fields().captured_lists().map_err(|reason| config.malformed(reason))?;
    let mut found: Vec<(CapturedList, Vec<i64>)> = Vec::new();
    for list in lists {
        let entries = match list.entries() {
            Some(entries) => entries,
            None => by_family(config, &list, target)?,
        };
        found.push((list, entries));
    }
    let Some((CapturedList { name, ids, .. }, at)) = found.first() else { return Ok(None) };
    if let Some((other, _)) = found.iter().find(|(_, entries)| entries != at) {
        return Err(config.malformed(format!(
            "{name} and {} name different layers (an id of a layer's output is one less than that of an input, and \
             engines differ in which list they read): make them equal",
            other.name
        )));
    }
    let count = target.spec.layers.len();
    let place = |place: &i64| usize::try_from(*place).ok().filter(|place| *place <= count);
    let Some(places) = at.iter().map(place).collect::<Option<Vec<usize>>>() else {
        let less = at.iter().zip(ids).map(|(place, id)| place - id).max().unwrap_or_default();
        return Err(
            config.malformed(format!("{name} {ids:?}: expected ids of layers from 0 to {}", count as i64 - less))
        );
    };
    if !places.is_sorted_by(|one, next| one < next) {
        tracing::warn!(
            "{}: {name} is not in the order of the layers, or repeats one: the features are joined in the order of the \
             list, while vLLM and SGLang collect them in the order of the layers, each once",
            config.folder().path().display()
        );
    }
    Ok(Some(places))
}

fn by_family(config: &Config<'_>, list: &CapturedList, target: DraftTarget<'_>) -> Result<Vec<i64>, EngineError> {
    let ids: Option<Vec<usize>> = list.ids.iter().map(|id| usize::try_from(*id).ok()).collect();
    let name = &list.name;
    let ids = ids.ok_or_else(|| config.malformed(format!("{name} {:?}: expected ids of at least 0", list.ids)))?;
    let entries = families::family(target.folder)?.captured_ids.entries(&ids, target.spec.layers.len());
    Ok(entries.into_iter().map(|entry| i64::try_from(entry).unwrap_or(i64::MAX)).collect())
}

/// Refuses a projection of another number of features than layers are captured: the config names
/// other layers than the head was trained with.
///
/// # Errors
/// With both numbers.
pub fn check_features(config: &Config<'_>, name: &str, width: usize, layers: usize) -> Result<(), EngineError> {
    let Some([_, inputs]) = config.tensors.shape(&format!("{name}.weight")) else { return Ok(()) };
    if width == 0 || !inputs.is_multiple_of(width) || inputs / width == layers {
        return Ok(());
    }
    Err(config.malformed(format!(
        "{name}.weight takes {} features of width {width}, but config.json names {layers} layers (target_layer_ids in \
         it or in its dflash_config or eagle_config; a list that it lacks counts as the default): name those that the \
         head was trained with",
        inputs / width
    )))
}
