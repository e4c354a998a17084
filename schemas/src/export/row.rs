//! The row of the table that a launch with one fixed shape runs.

use std::fmt;

use super::{ExportError, ExportRequest, RowsDiffer, Tuning};
use crate::{launch_file::LaunchFile, tree::TreeShape, tuned::TunedVerdict};

/// The row of a launch.
pub struct ExportRow {
    pub shape: TreeShape,
    /// The batch size that the user gives.
    pub request: Option<usize>,
    /// The largest batch of the table.
    pub largest: Option<usize>,
    /// Whether speculation pays there, if known.
    pub verdict: Option<TunedVerdict>,
    pub notes: Vec<String>,
}

/// Adjacent rows with one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSpan {
    first: usize,
    last: usize,
    pub shape: TreeShape,
}

impl ExportRow {
    /// The row for the requested batch size, or the last one.
    pub fn from_tuning(tuning: &Tuning, batch_size: Option<usize>) -> Result<Self, ExportError> {
        let last = tuning.table.last().ok_or(ExportError::EmptyTable)?;
        let chosen =
            batch_size.and_then(|batch| tuning.table.iter().find(|(largest, _)| *largest >= batch)).unwrap_or(last);
        let shape = chosen.1;
        let others: Vec<String> =
            spans(tuning).iter().filter(|span| span.shape != shape).map(BatchSpan::to_string).collect();
        let mut notes = Vec::new();
        if !others.is_empty() {
            notes.push(format!("the other rows of the table are left out: {}", others.join("; ")));
        }
        let finite = tuning.table.iter().map(|(largest, _)| *largest).filter(|largest| *largest != usize::MAX).max();
        if let Some((request, largest)) = batch_size.zip(finite).filter(|(request, largest)| request > largest) {
            notes.push(format!(
                "batch {request} is outside the measured range (up to {largest}): the shape of the largest measured \
                 batch is used, which may not be the fastest there"
            ));
        }
        let verdict = tuning.verdicts.iter().find(|(largest, _)| *largest == chosen.0).map(|(_, verdict)| *verdict);
        Ok(Self { shape, request: batch_size, largest: finite, verdict, notes })
    }

    /// As [`from_tuning`](Self::from_tuning); without a batch size, all rows must have one shape.
    /// `runs` tells which shapes the form can run, and `whole` how the whole table can be exported.
    pub fn only(
        request: ExportRequest<'_>,
        runs: impl Fn(TreeShape) -> bool,
        whole: impl FnOnce() -> WholeTable,
    ) -> Result<Self, ExportError> {
        let ExportRequest { tuning, form, batch_size, given, .. } = request;
        let spans = spans(tuning);
        if batch_size.is_some() || spans.len() < 2 {
            return Self::from_tuning(tuning, batch_size);
        }
        let (rows, others): (Vec<BatchSpan>, Vec<BatchSpan>) = spans.into_iter().partition(|span| runs(span.shape));
        match others.first() {
            Some(other) if rows.is_empty() => Err(ExportError::Tree(other.shape)),
            _ => Err(ExportError::RowsDiffer(Box::new(RowsDiffer { form, given, rows, others, whole: whole() }))),
        }
    }

    /// Maximum number of running requests: the batch size that the user gives, else the launch's
    /// limit, else the table's largest batch.
    pub fn running(&self, launch: &LaunchFile) -> Option<i64> {
        let integer = |count: usize| i64::try_from(count).ok();
        self.request.and_then(integer).or(launch.max_running_requests).or(self.largest.and_then(integer))
    }

    /// The remark of a launch that does not speculate.
    pub fn off(&self) -> String {
        let why = match self.verdict {
            Some(TunedVerdict::DoesNotPay) => "no speculation was the best choice at this batch size",
            Some(TunedVerdict::NotKnown) => {
                "that is the table's row for this batch size, but whether speculation pays there is not known"
            }
            _ => "that is the table's row for this batch size",
        };
        format!("the launch does not speculate: {why}")
    }
}

/// The form that holds the whole table, and its version if it must be given; or why there is none.
pub type WholeTable = Result<(super::Form, Option<crate::version::EngineVersion>), String>;

/// The rows of a table, adjacent ones of one shape together.
fn spans(tuning: &Tuning) -> Vec<BatchSpan> {
    let mut spans: Vec<BatchSpan> = Vec::new();
    let mut first = 1;
    for (largest, shape) in &tuning.table {
        match spans.last_mut() {
            Some(span) if span.shape == *shape => span.last = *largest,
            _ => spans.push(BatchSpan { first, last: *largest, shape: *shape }),
        }
        first = largest.saturating_add(1);
    }
    spans
}

impl BatchSpan {
    /// The largest batch size of the rows, or their smallest if they have no end.
    pub fn batch_size(&self) -> usize {
        if self.last == usize::MAX { self.first } else { self.last }
    }
}

impl fmt::Display for BatchSpan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, shape } = self;
        if shape.is_off() { formatter.write_str("no speculation") } else { write!(formatter, "{shape}") }?;
        match (*first, *last) {
            (first, usize::MAX) => write!(formatter, " from batch {first}"),
            (first, last) if first == last => write!(formatter, " at batch {last}"),
            (first, last) => write!(formatter, " at batch {first} to {last}"),
        }
    }
}
