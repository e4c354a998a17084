//! The file of SGLang's `--speculative-adaptive-config`, if it is a fixed table of draft steps by
//! running batch.
//!
//! Its keys are the smallest running batch to which each slot applies. SGLang moves between the
//! `candidate_steps` of a slot depending on acceptance. With one candidate per slot nothing moves,
//! and the file is a table (SGLang 0.5.23 `speculative/adaptive_spec_params.py`).

use serde_json::{Map, Value, json};

use crate::tree::TreeShape;

/// Keys of the file other than slots: how SGLang moves between candidates. No effect with one
/// candidate per slot.
const MOVES: [&str; 6] =
    ["ema_alpha", "update_interval", "warmup_batches", "down_hysteresis", "up_hysteresis", "ceiling_coeff"];
/// Maximum number of draft steps; larger numbers are assumed to be mistakes.
const MOST_STEPS: usize = 1024;

/// Why a file is not a fixed table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdaptiveError {
    /// It is not JSON.
    #[error("it is no JSON: {0}")]
    Json(String),
    /// It is not an object of slots.
    #[error(
        "expected an object of slots, such as {{\"1\": {{\"candidate_steps\": [3]}}, \"9\": {{\"candidate_steps\": [1]}}}}"
    )]
    Form,
    /// A key is neither a batch size nor a setting.
    #[error("`{0}` is neither a batch size nor one of {MOVES:?}")]
    Key(String),
    /// A slot has no valid `candidate_steps`.
    #[error("the slot from batch {0} on: expected `candidate_steps` with numbers of steps up to {MOST_STEPS}")]
    Slot(usize),
    /// A slot has several candidates.
    #[error(
        "the slot from batch {batch} on has {candidates} candidate steps: only files with one candidate a slot are a table that is followed \
         as it is written"
    )]
    Moves {
        /// The slot's key.
        batch: usize,
        /// Number of candidates.
        candidates: usize,
    },
}

/// Writes a table of (smallest running batch, steps).
pub fn write(slots: impl IntoIterator<Item = (usize, usize)>) -> String {
    let slot = |(batch, steps): (usize, usize)| (batch.to_string(), json!({ "candidate_steps": [steps] }));
    let slots: Map<String, Value> = slots.into_iter().map(slot).collect();
    serde_json::to_string_pretty(&Value::Object(slots)).unwrap_or_default() + "\n"
}

/// Reads a table of (largest running batch, chain), ascending and never empty. The last row also
/// applies to all larger batches, and batches below the first slot use its chain, as in SGLang.
///
/// # Errors
/// If the file is not a fixed table.
pub fn read(text: &str) -> Result<Vec<(usize, TreeShape)>, AdaptiveError> {
    let file: Value = serde_json::from_str(text).map_err(|error| AdaptiveError::Json(error.to_string()))?;
    let mut slots: Vec<(usize, usize)> = Vec::new();
    for (key, slot) in file.as_object().ok_or(AdaptiveError::Form)? {
        match key.parse::<usize>() {
            Ok(batch) => slots.push((batch, steps(batch, slot)?)),
            Err(_) if MOVES.contains(&key.as_str()) => {}
            Err(_) => return Err(AdaptiveError::Key(key.clone())),
        }
    }
    slots.sort_unstable();
    let ends = slots.iter().skip(1).map(|(batch, _)| batch.saturating_sub(1)).chain([usize::MAX]);
    let chain = |steps: usize| if steps == 0 { TreeShape::OFF } else { TreeShape::chain(steps) };
    let table: Vec<_> = slots.iter().zip(ends).map(|((_, steps), end)| (end, chain(*steps))).collect();
    if table.is_empty() { Err(AdaptiveError::Form) } else { Ok(table) }
}

fn steps(batch: usize, slot: &Value) -> Result<usize, AdaptiveError> {
    let all = slot.get("candidate_steps").and_then(Value::as_array).ok_or(AdaptiveError::Slot(batch))?;
    match all.as_slice() {
        [one] => {
            let steps = one.as_u64().and_then(|steps| usize::try_from(steps).ok());
            steps.filter(|steps| *steps <= MOST_STEPS).ok_or(AdaptiveError::Slot(batch))
        }
        [] => Err(AdaptiveError::Slot(batch)),
        several => Err(AdaptiveError::Moves { batch, candidates: several.len() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_table_that_is_written_is_read() {
        let text = write([(1, 5), (9, 3), (33, 0)]);
        let expected = vec![(8, TreeShape::chain(5)), (32, TreeShape::chain(3)), (usize::MAX, TreeShape::OFF)];
        assert_eq!(read(&text), Ok(expected));
    }

    #[test]
    fn what_is_no_table_is_refused_with_the_reason() {
        for (text, words) in [
            ("", "no JSON"),
            ("[]", "an object of slots"),
            ("{}", "an object of slots"),
            (r#"{"8": {"candidate_steps": [1, 3]}}"#, "the slot from batch 8 on has 2 candidate steps"),
            (r#"{"8": {"candidate_steps": []}}"#, "expected `candidate_steps`"),
            (r#"{"8": {"candidate_steps": [-1]}}"#, "expected `candidate_steps`"),
            (r#"{"8": {"candidate_steps": [99999999]}}"#, "expected `candidate_steps`"),
            (r#"{"8": 3}"#, "expected `candidate_steps`"),
            (r#"{"eight": {"candidate_steps": [1]}}"#, "`eight` is neither"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(read(r#"{"ema_alpha": 0.2, "1": {"candidate_steps": [2], "warmup_batches": 3}}"#).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}:,\"0-9a-z_ -]{0,60}") {
            let _ = read(&text);
        }
    }
}
