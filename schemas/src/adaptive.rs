//! The file of SGLang's `--speculative-adaptive-config`.
//!
//! Since 0.5.13 its keys are the smallest running batch to which each slot applies, and settings
//! that hold for all slots which do not have their own. SGLang moves between the `candidate_steps`
//! of a slot depending on acceptance; with one candidate per slot nothing moves, and the file is a
//! table ([`read`]). Before, the file has one list of candidates for all batches. Keys that are
//! neither are ignored (SGLang 0.5.11 to 0.5.23 `speculative/adaptive_spec_params.py`).

use std::fmt;

use serde_json::{Map, Value, json};

use crate::{
    chain_tables::{AdaptiveForm, NoTable, sglang_adaptive_form},
    engines::NEWEST_SGLANG,
    text::shortened,
    tree::TreeShape,
    version::EngineVersion,
};

/// The key of a slot's candidates, and of the one list before slots.
const CANDIDATES: &str = "candidate_steps";
/// Settings of how SGLang moves between candidates. No effect with one candidate per slot.
const MOVES: [&str; 6] =
    ["ema_alpha", "update_interval", "warmup_batches", "down_hysteresis", "up_hysteresis", "ceiling_coeff"];
/// Maximum number of draft steps; larger numbers are assumed to be mistakes.
const MOST_STEPS: usize = 1024;
/// Maximum number of rounds of a warm-up or an interval.
const MOST_ROUNDS: usize = 1_000_000_000;

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveFile {
    /// Ascending by batch, never empty. A file with one list has one slot, from batch 1 on.
    pub slots: Vec<AdaptiveFileSlot>,
    /// Keys that SGLang ignores.
    pub ignored: Vec<IgnoredKey>,
}

/// A key that SGLang ignores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredKey {
    /// The slot that it is in; `None` outside of slots.
    pub batch: Option<usize>,
    /// The key.
    pub key: String,
}

impl fmt::Display for IgnoredKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            Some(batch) => write!(to, "`{}` in the slot from batch {batch} on", self.key),
            None => write!(to, "`{}`", self.key),
        }
    }
}

/// A slot, with the settings of the whole file where it has none of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveFileSlot {
    /// The smallest running batch.
    pub batch: usize,
    /// Candidates, ascending and each once; empty if a file with one list leaves them out.
    pub candidate_steps: Vec<usize>,
    /// How SGLang moves between them.
    pub moves: AdaptiveMoves,
}

/// How SGLang moves between candidates: what a file says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdaptiveMoves {
    /// Weight of the newest round in the average.
    pub ema_alpha: Option<f64>,
    /// Rounds between updates, at least 1.
    pub update_interval: Option<usize>,
    /// Rounds before the first interval.
    pub warmup_batches: Option<usize>,
    /// Added to the bound below which a slot moves down.
    pub down_hysteresis: Option<f64>,
    /// Added to the bound above which a slot moves up.
    pub up_hysteresis: Option<f64>,
    /// The steps may not exceed this many times the average, if it is above 0.
    pub ceiling_coeff: Option<f64>,
}

/// Why a file is not read.
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
    /// It is not an object with one list.
    #[error("expected an object such as {{\"candidate_steps\": [1, 3, 7]}}")]
    FormOfOneList,
    /// A key is neither a batch size nor a setting.
    #[error("`{0}` is neither a batch size nor one of {MOVES:?}")]
    Key(String),
    /// A batch size has two slots.
    #[error("two slots are for batches from {0} on: keep one of them")]
    Twice(usize),
    /// A slot has no valid `candidate_steps`.
    #[error("the slot from batch {0} on: expected `candidate_steps` with numbers of steps up to {MOST_STEPS}")]
    Slot(usize),
    /// The one list is not valid.
    #[error("`candidate_steps`: expected a list of numbers of steps up to {MOST_STEPS}")]
    OneList,
    /// A setting has an impossible value.
    #[error("{at}: expected {expected}, found {found}")]
    Setting {
        /// The setting, after the slot that it is in.
        at: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The version does not read it.
    #[error(transparent)]
    Version(#[from] NoTable),
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
    let slot = |(batch, steps): (usize, usize)| (batch.to_string(), json!({ CANDIDATES: [steps] }));
    let slots: Map<String, Value> = slots.into_iter().map(slot).collect();
    serde_json::to_string_pretty(&Value::Object(slots)).unwrap_or_default() + "\n"
}

/// Reads a table of (largest running batch, chain), ascending and never empty. The last row also
/// applies to all larger batches, and batches below the first slot use its chain, as in SGLang.
///
/// # Errors
/// If the file is not a fixed table, or has other keys: they may be mistakes.
pub fn read(text: &str) -> Result<Vec<(usize, TreeShape)>, AdaptiveError> {
    let AdaptiveFile { slots, ignored } = parse(text, NEWEST_SGLANG)?;
    if let Some(ignored) = ignored.into_iter().find(|ignored| ignored.batch.is_none()) {
        return Err(AdaptiveError::Key(ignored.key));
    }
    let ends = slots.iter().skip(1).map(|slot| slot.batch.saturating_sub(1)).chain([usize::MAX]);
    let row = |(slot, end): (&AdaptiveFileSlot, usize)| match slot.candidate_steps.as_slice() {
        [0] => Ok((end, TreeShape::OFF)),
        [steps] => Ok((end, TreeShape::chain(*steps))),
        several => Err(AdaptiveError::Moves { batch: slot.batch, candidates: several.len() }),
    };
    slots.iter().zip(ends).map(row).collect()
}

/// Reads a file as a version of SGLang does.
///
/// # Errors
/// If that version refuses the file or has none, or a value in it is none that SGLang can use.
pub fn parse(text: &str, version: EngineVersion) -> Result<AdaptiveFile, AdaptiveError> {
    let form = sglang_adaptive_form(version)?;
    let file: Value = serde_json::from_str(text).map_err(|error| AdaptiveError::Json(error.to_string()))?;
    let zero_steps = match form {
        AdaptiveForm::OneList => return one_list(&file, version),
        AdaptiveForm::Slots { zero_steps } => zero_steps,
    };
    let keys = file.as_object().ok_or(AdaptiveError::Form)?;
    let of_all = moves(keys, None, AdaptiveMoves::default())?;
    let mut found = AdaptiveFile { slots: Vec::new(), ignored: Vec::new() };
    for (key, value) in keys {
        let Some(batch) = batch(key) else {
            // SGLang reads the candidates of slots only.
            if !MOVES.contains(&key.as_str()) {
                found.ignored.push(IgnoredKey { batch: None, key: shortened(key) });
            }
            continue;
        };
        let slot = value.as_object().ok_or(AdaptiveError::Slot(batch))?;
        let candidate_steps = slot.get(CANDIDATES).and_then(steps).ok_or(AdaptiveError::Slot(batch))?;
        if candidate_steps.contains(&0) && !zero_steps {
            return Err(NoTable::SglangZeroSteps(version).into());
        }
        let unread = slot.keys().filter(|key| *key != CANDIDATES && !MOVES.contains(&key.as_str()));
        found.ignored.extend(unread.map(|key| IgnoredKey { batch: Some(batch), key: shortened(key) }));
        found.slots.push(AdaptiveFileSlot { batch, candidate_steps, moves: moves(slot, Some(batch), of_all)? });
    }
    found.slots.sort_unstable_by_key(|slot| slot.batch);
    if let Some(pair) = found.slots.windows(2).find(|pair| pair[0].batch == pair[1].batch) {
        return Err(AdaptiveError::Twice(pair[0].batch));
    }
    match found.slots.is_empty() {
        true => Err(found.ignored.pop().map_or(AdaptiveError::Form, |ignored| AdaptiveError::Key(ignored.key))),
        false => Ok(found),
    }
}

/// A file with one list of candidates.
fn one_list(file: &Value, version: EngineVersion) -> Result<AdaptiveFile, AdaptiveError> {
    let keys = file.as_object().ok_or(AdaptiveError::FormOfOneList)?;
    let candidate_steps = match keys.get(CANDIDATES) {
        Some(value) => steps(value).ok_or(AdaptiveError::OneList)?,
        None => Vec::new(),
    };
    if candidate_steps.contains(&0) {
        return Err(NoTable::SglangZeroSteps(version).into());
    }
    let moves = AdaptiveMoves { ceiling_coeff: None, ..moves(keys, None, AdaptiveMoves::default())? };
    let is_read = |key: &str| key == CANDIDATES || (MOVES.contains(&key) && key != "ceiling_coeff");
    let ignored =
        keys.keys().filter(|key| !is_read(key)).map(|key| IgnoredKey { batch: None, key: shortened(key) }).collect();
    Ok(AdaptiveFile { slots: vec![AdaptiveFileSlot { batch: 1, candidate_steps, moves }], ignored })
}

/// The batch of a slot's key: digits only.
fn batch(key: &str) -> Option<usize> {
    key.bytes().all(|byte| byte.is_ascii_digit()).then(|| key.parse().ok()).flatten()
}

/// Candidates, ascending and each once; `None` if there is none, or one is not a number of steps.
fn steps(value: &Value) -> Option<Vec<usize>> {
    let number = |value: &Value| {
        let steps = value.as_u64().and_then(|steps| usize::try_from(steps).ok());
        steps.filter(|steps| *steps <= MOST_STEPS)
    };
    let mut steps: Vec<usize> = value.as_array()?.iter().map(number).collect::<Option<_>>()?;
    steps.sort_unstable();
    steps.dedup();
    (!steps.is_empty()).then_some(steps)
}

/// The settings of a slot, or of the file, over those of the whole file.
fn moves(
    keys: &Map<String, Value>,
    batch: Option<usize>,
    of_all: AdaptiveMoves,
) -> Result<AdaptiveMoves, AdaptiveError> {
    let wrong = |name: &str, expected: String, found: &Value| {
        let slot = batch.map_or_else(String::new, |batch| format!("the slot from batch {batch} on: "));
        AdaptiveError::Setting { at: format!("{slot}`{name}`"), expected, found: shortened(&found.to_string()) }
    };
    let number = |name: &str, of_all: Option<f64>| match keys.get(name) {
        Some(value) => value.as_f64().map(Some).ok_or_else(|| wrong(name, "a number".into(), value)),
        None => Ok(of_all),
    };
    let rounds = |name: &str, least: usize, of_all: Option<usize>| match keys.get(name) {
        Some(value) => {
            let rounds = value.as_u64().and_then(|rounds| usize::try_from(rounds).ok());
            let is_known = rounds.filter(|rounds| (least..=MOST_ROUNDS).contains(rounds));
            is_known
                .map(Some)
                .ok_or_else(|| wrong(name, format!("a number of rounds, {least} to {MOST_ROUNDS}"), value))
        }
        None => Ok(of_all),
    };
    Ok(AdaptiveMoves {
        ema_alpha: number("ema_alpha", of_all.ema_alpha)?,
        update_interval: rounds("update_interval", 1, of_all.update_interval)?,
        warmup_batches: rounds("warmup_batches", 0, of_all.warmup_batches)?,
        down_hysteresis: number("down_hysteresis", of_all.down_hysteresis)?,
        up_hysteresis: number("up_hysteresis", of_all.up_hysteresis)?,
        ceiling_coeff: number("ceiling_coeff", of_all.ceiling_coeff)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE_LIST: EngineVersion = EngineVersion::new(0, 5, 12);

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
            (r#"{"1": {"candidate_steps": [1]}, "eight": 1}"#, "`eight` is neither"),
            (r#"{"8": {"candidate_steps": [1]}, "08": {"candidate_steps": [3]}}"#, "two slots are for batches from 8"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(read(r#"{"ema_alpha": 0.2, "1": {"candidate_steps": [2], "warmup_batches": 3}}"#).is_ok());
    }

    #[test]
    fn slots_have_the_settings_of_the_file_or_their_own() {
        let text = r#"{"up_hysteresis": 0.5, "warmup_batches": 3, "why": "a try", "16": {"candidate_steps": [3, 0, 3]},
            "2": {"candidate_steps": [7, 1], "warmup_batches": 0, "ceiling_coeff": 2, "ema_alfa": 1}}"#;
        let found = parse(text, NEWEST_SGLANG).expect("a file");
        let of_all = AdaptiveMoves { up_hysteresis: Some(0.5), warmup_batches: Some(3), ..AdaptiveMoves::default() };
        let own = AdaptiveMoves { warmup_batches: Some(0), ceiling_coeff: Some(2.0), ..of_all };
        let slot = |batch, candidate_steps, moves| AdaptiveFileSlot { batch, candidate_steps, moves };
        assert_eq!(found.slots, [slot(2, vec![1, 7], own), slot(16, vec![0, 3], of_all)]);
        let ignored: Vec<String> = found.ignored.iter().map(ToString::to_string).collect();
        assert_eq!(ignored.len(), 2, "{ignored:?}");
        assert!(
            ignored.contains(&"`ema_alfa` in the slot from batch 2 on".into()) && ignored.contains(&"`why`".into())
        );
    }

    #[test]
    fn before_slots_a_file_is_one_list() {
        let text =
            r#"{"candidate_steps": [7, 2, 2], "ema_alpha": 1, "8": {"candidate_steps": [1]}, "ceiling_coeff": 3}"#;
        let found = parse(text, ONE_LIST).expect("a file");
        let moves = AdaptiveMoves { ema_alpha: Some(1.0), ..AdaptiveMoves::default() };
        assert_eq!(found.slots, [AdaptiveFileSlot { batch: 1, candidate_steps: vec![2, 7], moves }]);
        assert_eq!(found.ignored.len(), 2, "{:?}", found.ignored);
        assert!(parse("{}", ONE_LIST).expect("defaults").slots[0].candidate_steps.is_empty());
    }

    #[test]
    fn what_a_version_cannot_use_is_refused_with_place_and_remedy() {
        let old = |patch| EngineVersion::new(0, 5, patch);
        for (version, text, words) in [
            (old(10), "{}", "SGLang 0.5.10 does not adapt its steps"),
            (old(13), r#"{"1": {"candidate_steps": [0, 1]}}"#, "SGLang 0.5.13 refuses 0 steps"),
            (old(12), "[]", r#"such as {"candidate_steps": [1, 3, 7]}"#),
            (old(12), r#"{"candidate_steps": 3}"#, "`candidate_steps`: expected a list"),
            (old(23), r#"{"candidate_steps": [1]}"#, "`candidate_steps` is neither a batch size"),
            (
                old(23),
                r#"{"4": {"candidate_steps": [1], "update_interval": 0}}"#,
                "the slot from batch 4 on: `update_interval`: expected a number of rounds, 1 to",
            ),
            (old(23), r#"{"ema_alpha": "0.2"}"#, r#"`ema_alpha`: expected a number, found "0.2""#),
        ] {
            let error = parse(text, version).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}:,\"0-9a-z_ -]{0,60}") {
            let _ = read(&text);
            let _ = parse(&text, ONE_LIST);
        }
    }
}
