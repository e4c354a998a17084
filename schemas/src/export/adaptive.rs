//! The file for SGLang's `--speculative-adaptive-config`, and the command that starts a server with
//! it.
//!
//! [`crate::adaptive`] describes the file, and [`crate::chain_tables`] which versions follow it.

use super::{ExportError, ExportRequest, ExportRow, Exported, Remarks, adaptive_table::table, sglang};
use crate::{adaptive, tree::TreeShape};

/// The name of the file in the command.
const FILE: &str = "adaptive.json";

/// The file; with a batch size, without the rows that apply to larger batches only.
pub fn file(request: ExportRequest<'_>) -> Result<Exported, ExportError> {
    let ExportRequest { tuning, form, batch_size, version, .. } = request;
    let schedule = table(request, version)?;
    let most = schedule.most();
    let text = adaptive::write(schedule.ranges.iter().map(|(first, _, steps)| (*first, *steps)));
    let row =
        ExportRow { shape: TreeShape::chain(most), notes: Vec::new(), ..ExportRow::from_tuning(tuning, batch_size)? };
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
