//! The tokens of the target that a head with its own vocabulary proposes.

use std::collections::BTreeSet;

use crate::{checkpoint::Weights, error::EngineError, families::Config};

/// The target's tokens for the rows of a head: d2t holds offsets, so the target's token is the
/// draft's plus its entry. `None` if the rows are the target's tokens in their order. A map of all
/// tokens is optional, but is applied if it exists, as in vLLM.
///
/// # Errors
/// When the map is missing, names a token twice or one that does not exist, or contradicts `t2d`.
pub fn hot_tokens(
    config: &Config<'_>,
    weights: &Weights,
    rows: usize,
    vocabulary: usize,
) -> Result<Option<Vec<u32>>, EngineError> {
    let found = ["d2t", "model.d2t"].into_iter().find(|name| weights.shape(name).is_some());
    let whole = rows == vocabulary;
    if whole && found.is_none() {
        return Ok(None);
    }
    let offsets = weights.integers(found.unwrap_or("d2t"), rows)?;
    if whole && offsets.iter().all(|offset| *offset == 0) {
        return Ok(None);
    }
    let malformed = |reason: String| EngineError::Malformed { path: config.folder().path().to_owned(), reason };
    let (mut tokens, mut seen) = (Vec::with_capacity(rows), BTreeSet::new());
    for (draft, offset) in offsets.iter().enumerate() {
        // EAGLE-3 stores the distance from the draft's token to the target's, not the token.
        let token = (draft as i64).checked_add(*offset).filter(|token| (0..vocabulary as i64).contains(token));
        let token = token.map(|token| token as u32).ok_or_else(|| {
            malformed(format!("d2t[{draft}] = {offset} points outside the target's {vocabulary} tokens"))
        })?;
        if !seen.insert(token) {
            let reason = "another token of the draft too: each may stand for one token (d2t holds offsets, not tokens)";
            return Err(malformed(format!("d2t[{draft}] = {offset} points to token {token}, as {reason}")));
        }
        tokens.push(token);
    }
    check_marks(weights, &seen).map_err(malformed)?;
    Ok(Some(tokens))
}

/// Compares the tokens with those that `t2d` marks. A map that marks no token or all of them was
/// never set: training code creates it like this.
fn check_marks(weights: &Weights, tokens: &BTreeSet<u32>) -> Result<(), String> {
    let Some(marks) = ["t2d", "model.t2d"].into_iter().find_map(|name| weights.switches(name)) else { return Ok(()) };
    let marked = marks.iter().filter(|mark| **mark).count();
    if marked == 0 || marked == marks.len() {
        return Ok(());
    }
    let is_marked = |token: &u32| marks.get(*token as usize) == Some(&true);
    match tokens.iter().find(|token| !is_marked(token)) {
        Some(token) => Err(format!("d2t has token {token}, but t2d does not mark it: one of them is of another head")),
        None if marked != tokens.len() => {
            let count = tokens.len();
            Err(format!("t2d marks {marked} tokens, but d2t has {count}: one of them is of another head"))
        }
        None => Ok(()),
    }
}
