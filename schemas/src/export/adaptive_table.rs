//! The part of a table that SGLang's adaptive file can hold.

use super::{ExportError, ExportRequest, Form, row::WholeTable, schedule::ExportSchedule};
use crate::{chain_tables, version::EngineVersion};

/// How the whole table is exported for SGLang, for the message of a launch with one shape. `given`
/// is the version to name in the command.
pub fn whole(request: ExportRequest<'_>, given: Option<EngineVersion>) -> WholeTable {
    let all = ExportRequest { form: Form::SglangAdaptive, batch_size: None, ..request };
    table(all, request.version).map(|_| (Form::SglangAdaptive, given)).map_err(|why| why.to_string())
}

/// The rows that apply up to the batch size, which must be chains.
///
/// # Errors
/// When the version does not follow such a file, or the rows are not chains of an algorithm that it
/// supports.
pub fn table(request: ExportRequest<'_>, version: EngineVersion) -> Result<ExportSchedule, ExportError> {
    let ExportRequest { tuning, batch_size, .. } = request;
    let table = match batch_size.and_then(|batch| tuning.table.iter().position(|(largest, _)| *largest >= batch)) {
        Some(last) => &tuning.table[..=last],
        None => &tuning.table[..],
    };
    if let Some((_, tree)) = table.iter().find(|(_, shape)| shape.topk > 1) {
        return Err(ExportError::AdaptiveTree(*tree));
    }
    let schedule = ExportSchedule::from_table(table, None)?;
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
