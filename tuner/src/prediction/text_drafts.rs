//! What drafts from texts would accept on the texts of a sweep. No model has to run for it, so it
//! is always reported beside what the sweep asks for.

use std::collections::BTreeMap;

use engine::{
    KnownText, TextAcceptance, TextHistory,
    replay::ReplayText,
    replay_texts,
    spec::{PromptLookup, SuffixRule, TextSpec, TrieRule},
};
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use crate::TunerError;

/// A rule with its engine's defaults, on the texts of a sweep. Accept lengths are output tokens /
/// rounds, with first and bonus tokens, and depend on what could be looked up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextDraftRow {
    /// The name for `--speculative-algorithm`.
    pub algorithm: String,
    /// The largest tree of a round.
    pub shape: TreeShape,
    /// Each request looks up its own tokens only.
    pub own_request: f64,
    /// And the outputs of the requests before it, in the workload's order.
    pub cold: f64,
    /// And the outputs of all requests, each of which ran once before.
    pub warm: f64,
    /// The rounds of the cold figure, by their rows and accepted drafts.
    pub rounds: Vec<TextRounds>,
}

/// Rounds of the same size and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRounds {
    /// Rows that the target verifies, the root included.
    pub rows: usize,
    /// Accepted drafts.
    pub accepted: usize,
    /// Number of rounds.
    pub rounds: u64,
}

/// The rules that are reported.
const RULES: [TextSpec; 3] = [
    TextSpec::PromptLookup(PromptLookup::DEFAULT),
    TextSpec::Suffix(SuffixRule::DEFAULT),
    TextSpec::Trie(TrieRule::DEFAULT),
];

/// All rules on some texts, in the order of the workload; none if no text needs a round.
///
/// # Errors
/// When a text has no prompt or no output.
pub fn rows(texts: &[ReplayText]) -> Result<Vec<TextDraftRow>, TunerError> {
    let texts: Vec<KnownText<'_>> = texts.iter().map(KnownText::from).collect();
    let rows = RULES.into_iter().map(|rule| row(rule, &texts)).collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().flatten().collect())
}

fn row(rule: TextSpec, texts: &[KnownText<'_>]) -> Result<Option<TextDraftRow>, TunerError> {
    let shape = rule.default_shape();
    // In the order of the requests, as a server that has just started would meet them.
    let cold = replay_texts(rule, shape, texts, TextHistory::Cold)?;
    let other = |history| match rule {
        // It keeps nothing of other requests.
        TextSpec::PromptLookup(_) => Ok(length(&cold)),
        _ => replay_texts(rule, shape, texts, history).map(|found| length(&found)),
    };
    let (own_request, warm) = (other(TextHistory::OwnRequest)?, other(TextHistory::Warm)?);
    let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (key, count) in cold.iter().flat_map(|one| &one.rounds) {
        *counts.entry(*key).or_default() += count;
    }
    let rounds = counts.into_iter().map(|((rows, accepted), rounds)| TextRounds { rows, accepted, rounds }).collect();
    let (Some(own_request), Some(cold), Some(warm)) = (own_request, length(&cold), warm) else { return Ok(None) };
    Ok(Some(TextDraftRow { algorithm: rule.algorithm().to_owned(), shape, own_request, cold, warm, rounds }))
}

/// The accept length over all texts.
fn length(each: &[TextAcceptance]) -> Option<f64> {
    let sum = |of: fn(&TextAcceptance) -> usize| each.iter().map(of).sum::<usize>();
    let (tokens, rounds) = (sum(|one| one.acceptance.output_tokens), sum(|one| one.acceptance.rounds));
    (rounds > 0).then(|| tokens as f64 / rounds as f64)
}

/// The figures in a sentence.
pub fn sentence(rows: &[TextDraftRow]) -> String {
    let one =
        |row: &TextDraftRow| format!("{} {:.2} / {:.2} / {:.2}", row.algorithm, row.own_request, row.cold, row.warm);
    let all: Vec<String> = rows.iter().map(one).collect();
    format!("drafts from texts would accept, by replay (own request / cold, in order / warm): {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use engine::SamplingParams;

    use super::*;

    #[test]
    fn every_rule_is_reported_with_what_it_could_look_up() {
        let text = |prompt: &[u32], output: &[u32]| ReplayText {
            tokens: [prompt, output].concat(),
            prompt_tokens: prompt.len(),
            sampling: SamplingParams::default(),
        };
        let output: Vec<u32> = (10..60).collect();
        let rows = rows(&[text(&[1], &output), text(&[2], &output)]).expect("figures");
        assert_eq!(
            rows.iter().map(|row| row.algorithm.as_str()).collect::<Vec<_>>(),
            ["PROMPT_LOOKUP", "SUFFIX", "NGRAM"]
        );
        for row in &rows {
            let tokens: u64 = row.rounds.iter().map(|one| one.rounds * (one.accepted as u64 + 1)).sum();
            // The last round of a text may be cut.
            assert!((2 * 49..=2 * 50).contains(&tokens), "{}: {tokens}", row.algorithm);
            let shared = row.algorithm != "PROMPT_LOOKUP";
            assert_eq!((row.cold > row.own_request, row.warm > row.cold), (shared, shared), "{row:?}");
        }
        assert!(sentence(&rows).contains("PROMPT_LOOKUP 1.02 / 1.02 / 1.02"), "{}", sentence(&rows));
        assert_eq!(super::rows(&[text(&[1], &[2])]).expect("no rounds"), []);
    }
}
