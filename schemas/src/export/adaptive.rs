//! The file for SGLang's `--speculative-adaptive-config`.
//!
//! [`crate::adaptive`] describes its format. 0 steps mean no speculation.

use super::{ExportError, Exported, Tuning, schedule::Schedule};
use crate::{adaptive, version::EngineVersion};

/// The first version that is known to have the flag.
const FIRST: EngineVersion = EngineVersion::new(0, 5, 12).post(1);

/// The file; with a batch size, without the rows that apply to larger batches only.
pub fn file(tuning: &Tuning, batch_size: Option<usize>, version: EngineVersion) -> Result<Exported, ExportError> {
    if version < FIRST {
        return Err(ExportError::AdaptiveVersion(version));
    }
    if tuning.table.is_empty() {
        return Err(ExportError::EmptyTable);
    }
    let table = match batch_size.and_then(|batch| tuning.table.iter().position(|(largest, _)| *largest >= batch)) {
        Some(last) => &tuning.table[..=last],
        None => &tuning.table[..],
    };
    if let Some((_, tree)) = table.iter().find(|(_, shape)| shape.topk > 1) {
        return Err(ExportError::AdaptiveTree(*tree));
    }
    let schedule = Schedule::of_chains(table, None);
    let most = schedule.most();
    if most == 0 {
        return Err(ExportError::NothingToAdapt);
    }
    match tuning.launch.speculative_algorithm.as_deref() {
        Some("EAGLE" | "EAGLE3") => {}
        Some(other) => return Err(ExportError::AdaptiveAlgorithm(other.to_owned())),
        None => return Err(ExportError::AdaptiveAlgorithm("none".into())),
    }
    let text = adaptive::write(schedule.ranges.iter().map(|(first, _, steps)| (*first, *steps)));
    let running = batch_size.map_or_else(String::new, |batch| format!(" --max-running-requests {batch}"));
    let mut notes = vec![
        format!(
            "launch with --speculative-adaptive --speculative-adaptive-config FILE --speculative-num-steps {most} \
             --speculative-eagle-topk 1 --speculative-num-draft-tokens {}{running}",
            most + 1
        ),
        "written for SGLang 0.5.23; earlier versions use other keys in this file".into(),
    ];
    if let Some(batch) = batch_size {
        let left_out = tuning.table.len() - table.len();
        let largest = tuning.table.iter().map(|(largest, _)| *largest).max().unwrap_or_default();
        if left_out > 0 {
            notes.push(format!(
                "{left_out} of {} rows are left out: they apply above batch {batch}",
                tuning.table.len()
            ));
        } else if batch > largest {
            notes.push(format!("batch {batch} is outside the measured range (up to {largest})"));
        }
    }
    if table.iter().any(|(_, shape)| shape.is_off()) {
        notes.push("0 steps (no speculation) need SGLang 0.5.23; earlier versions refuse them".into());
    }
    Ok(Exported { text, notes })
}
