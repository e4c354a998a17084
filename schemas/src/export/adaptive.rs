//! The file behind SGLang's `--speculative-adaptive-config`.
//!
//! Its keys are the smallest batch sizes for which their steps hold; 0 steps are no speculation
//! (SGLang 0.5.23 `speculative/adaptive_spec_params.py`).

use serde_json::{Map, Value, json};

use super::{ExportError, Exported, Tuning};
use crate::version::EngineVersion;

/// The first version that is known to have the flag.
const FIRST: EngineVersion = EngineVersion::new(0, 5, 12).post(1);

pub fn file(tuning: &Tuning, version: EngineVersion) -> Result<Exported, ExportError> {
    if version < FIRST {
        return Err(ExportError::AdaptiveVersion(version));
    }
    if tuning.table.is_empty() {
        return Err(ExportError::EmptyTable);
    }
    if let Some((_, tree)) = tuning.table.iter().find(|(_, shape)| shape.topk > 1) {
        return Err(ExportError::AdaptiveTree(*tree));
    }
    let most = tuning.table.iter().map(|(_, shape)| shape.num_steps).max().unwrap_or(0);
    if most == 0 {
        return Err(ExportError::NothingToAdapt);
    }
    match tuning.launch.speculative_algorithm.as_deref() {
        Some("EAGLE" | "EAGLE3") => {}
        Some(other) => return Err(ExportError::AdaptiveAlgorithm(other.to_owned())),
        None => return Err(ExportError::AdaptiveAlgorithm("none".into())),
    }
    let mut slots = Map::new();
    let mut smallest = 1_usize;
    let mut previous = None;
    for (largest, shape) in &tuning.table {
        if previous != Some(shape.num_steps) {
            slots.insert(smallest.to_string(), json!({ "candidate_steps": [shape.num_steps] }));
            previous = Some(shape.num_steps);
        }
        smallest = largest.saturating_add(1);
    }
    let text = serde_json::to_string_pretty(&Value::Object(slots)).unwrap_or_default() + "\n";
    let mut notes = vec![
        format!(
            "launch with --speculative-adaptive --speculative-adaptive-config FILE --speculative-num-steps {most} --speculative-eagle-topk 1 --speculative-num-draft-tokens {}",
            most + 1
        ),
        "written for SGLang 0.5.23; earlier versions take other keys in this file".into(),
    ];
    if tuning.table.iter().any(|(_, shape)| shape.is_off()) {
        notes.push("0 steps (no speculation) need SGLang 0.5.23; earlier versions refuse them".into());
    }
    Ok(Exported { text, notes })
}
