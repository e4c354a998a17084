//! The file for SGLang's `--speculative-adaptive-config`, and the command that starts a server with it.
//!
//! [`crate::adaptive`] describes the file, and [`crate::chain_tables`] which versions follow it.

use super::{Asked, ExportError, Exported, Form, Remarks, Row, row::WholeTable, schedule::Schedule, sglang};
use crate::{adaptive, chain_tables, tree::TreeShape, version::EngineVersion};

/// The name of the file in the command.
const FILE: &str = "adaptive.json";

/// The file; with a batch size, without the rows that apply to larger batches only.
pub fn file(asked: Asked<'_>) -> Result<Exported, ExportError> {
    let Asked { tuning, form, batch_size, version, .. } = asked;
    let schedule = table(asked, version)?;
    let most = schedule.most();
    let text = adaptive::write(schedule.ranges.iter().map(|(first, _, steps)| (*first, *steps)));
    let row = Row { shape: TreeShape::chain(most), notes: Vec::new(), ..Row::of(tuning, batch_size)? };
    let mut remarks = Remarks::default();
    if let Some(batch) = batch_size {
        let kept = tuning.table.iter().position(|(largest, _)| *largest >= batch).map(|last| last + 1);
        let left_out = kept.map_or(0, |kept| tuning.table.len() - kept);
        let largest = tuning.table.iter().map(|(largest, _)| *largest).max().unwrap_or_default();
        if left_out > 0 {
            let rows = tuning.table.len();
            remarks.notes.push(format!("{left_out} of {rows} rows are left out: they apply above batch {batch}"));
        } else if batch > largest {
            remarks.notes.push(format!("batch {batch} is outside the measured range (up to {largest})"));
        }
    }
    let ends: Vec<usize> = schedule.ranges.iter().map(|range| range.1).collect();
    let command = sglang::adaptive_command(&row, tuning, version, FILE, &ends, &mut remarks)?;
    remarks.general.push(format!("the command expects the file as {FILE} in the folder where it is run"));
    Ok(remarks.exported(text, Some(command), form.engine(), version))
}

/// How the whole table is exported for SGLang, for the message of a launch with one shape. `given` is the version to
/// name in the command.
pub fn whole(asked: Asked<'_>, given: Option<EngineVersion>) -> WholeTable {
    let all = Asked { form: Form::SglangAdaptive, batch_size: None, ..asked };
    table(all, asked.version).map(|_| (Form::SglangAdaptive, given)).map_err(|why| why.to_string())
}

/// The rows that apply up to the batch size, which must be chains.
fn table(asked: Asked<'_>, version: EngineVersion) -> Result<Schedule, ExportError> {
    let Asked { tuning, batch_size, .. } = asked;
    let table = match batch_size.and_then(|batch| tuning.table.iter().position(|(largest, _)| *largest >= batch)) {
        Some(last) => &tuning.table[..=last],
        None => &tuning.table[..],
    };
    if let Some((_, tree)) = table.iter().find(|(_, shape)| shape.topk > 1) {
        return Err(ExportError::AdaptiveTree(*tree));
    }
    let schedule = Schedule::of(table, None)?;
    if schedule.most() == 0 {
        return Err(ExportError::NothingToAdapt);
    }
    match tuning.launch.speculative_algorithm.as_deref() {
        Some("EAGLE" | "EAGLE3") => {}
        Some(other) => return Err(ExportError::AdaptiveAlgorithm(other.to_owned())),
        None => return Err(ExportError::AdaptiveAlgorithm("none".into())),
    }
    chain_tables::sglang_follows(version, schedule.has_off()).map_err(ExportError::AdaptiveVersion)?;
    Ok(schedule)
}
