//! What flags mean for a rule that looks drafts up in texts.

use launch::Launch;
use schemas::{
    drafting::{OWN_FLAGS, OwnFlag, SECOND_SOURCES},
    flags::Key,
    tree::{NodeSource, TreeShape},
};

use super::{count, no_sense};
use crate::{
    error::EngineError,
    options::EngineOptions,
    spec::{Occurrence, PromptLookup, SuffixRule, TextSpec, TrieMatch, TrieRule},
};

/// What is looked up beside the options' head, with the numbers of the flags.
///
/// # Errors
/// When there is no head, or a number is invalid.
pub fn second_source(launch: &Launch, options: &EngineOptions) -> Result<Option<TextSpec>, EngineError> {
    let Some(setting) = launch.setting(Key::SpeculativeSecondSource) else { return Ok(options.second_source) };
    let word = launch.text(Key::SpeculativeSecondSource).map(|word| word.value);
    let Some(mut rule) = word.and_then(TextSpec::second) else {
        return Err(no_sense(setting, &format!("{}, which find chains", SECOND_SOURCES.join(" or "))));
    };
    numbers(launch, &mut rule)?;
    if !rule.can_be_second() {
        return Err(EngineError::Configuration(
            "--prompt-lookup-match latest-filled fills missing drafts, which a second source has no use for: give \
             latest or earliest"
                .into(),
        ));
    }
    rule.check()?;
    Ok(Some(rule))
}

/// Reads the flags of a rule.
fn numbers(launch: &Launch, rule: &mut TextSpec) -> Result<(), EngineError> {
    let whole = |key: Key, to: &mut usize| count(launch, key).map(|number| *to = number.unwrap_or(*to));
    match rule {
        TextSpec::PromptLookup(rule) => numbers_of_look_ups(launch, rule)?,
        TextSpec::Suffix(rule) => {
            whole(Key::SuffixDecodingMaxTreeDepth, &mut rule.max_tree_depth)?;
            whole(Key::SuffixDecodingMaxCachedRequests, &mut rule.max_cached_requests)?;
            share(launch, Key::SuffixDecodingMaxSpecFactor, &mut rule.max_spec_factor)?;
            share(launch, Key::SuffixDecodingMinTokenProb, &mut rule.min_token_prob)?;
        }
        TextSpec::Trie(rule) => {
            whole(Key::SpeculativeNgramMaxTrieDepth, &mut rule.max_depth)?;
            whole(Key::SpeculativeNgramMinBfsBreadth, &mut rule.min_breadth)?;
            whole(Key::SpeculativeNgramCapacity, &mut rule.capacity)?;
            if let Some(setting) = launch.setting(Key::SpeculativeNgramMatchType) {
                rule.matching = match launch.text(Key::SpeculativeNgramMatchType).map(|word| word.value) {
                    Some("BFS") => TrieMatch::Bfs,
                    Some("PROB") => TrieMatch::Prob,
                    _ => return Err(no_sense(setting, "BFS or PROB")),
                };
            }
        }
    }
    Ok(())
}

/// Reads a number that need not be whole.
fn share(launch: &Launch, key: Key, to: &mut f32) -> Result<(), EngineError> {
    let Some(setting) = launch.setting(key) else { return Ok(()) };
    let number = launch.number(key).map(|number| number.value as f32);
    *to = number.ok_or_else(|| no_sense(setting, "a number"))?;
    Ok(())
}

/// Reads the flags of prompt lookup.
fn numbers_of_look_ups(launch: &Launch, rule: &mut PromptLookup) -> Result<(), EngineError> {
    let (min, max) = (run_length(launch, Key::PromptLookupMin)?, run_length(launch, Key::PromptLookupMax)?);
    // As in vLLM, one of the two alone is both.
    rule.min = min.or(max).unwrap_or(rule.min);
    rule.max = max.or(min).unwrap_or(rule.max);
    if let Some(setting) = launch.setting(Key::PromptLookupMatch) {
        rule.occurrence = match launch.text(Key::PromptLookupMatch).map(|word| word.value) {
            Some("earliest") => Occurrence::Earliest,
            Some("latest") => Occurrence::Latest,
            Some("latest-filled") => Occurrence::LatestFilled,
            _ => return Err(no_sense(setting, "earliest, latest or latest-filled")),
        };
    }
    Ok(())
}

/// A number of tokens that are looked up. It is checked here, where it is known which of the two
/// flags it comes from.
fn run_length(launch: &Launch, key: Key) -> Result<Option<usize>, EngineError> {
    let Some(setting) = launch.setting(key) else { return Ok(None) };
    let length = count(launch, key)?.filter(|length| (1..=TextSpec::LARGEST).contains(length));
    let expected = || no_sense(setting, &format!("a number from 1 to {}", TextSpec::LARGEST));
    length.map(Some).ok_or_else(expected)
}

/// The rule of the options' algorithm with the numbers of the flags; `None` if it is no such rule.
///
/// # Errors
/// When a flag is for another algorithm, or its value is invalid.
pub fn rule(launch: &Launch, options: &EngineOptions) -> Result<Option<TextSpec>, EngineError> {
    let mut found = options.text_draft();
    let algorithm = found.as_ref().map_or("", TextSpec::algorithm);
    // A block head may be given without its algorithm; the loader checks its flags.
    let of_texts = OWN_FLAGS.iter().filter(|flag| matches!(NodeSource::named(flag.algorithm), NodeSource::Text(_)));
    for OwnFlag { key, algorithm: of, .. } in of_texts {
        let is_second = options.second_source.is_some_and(|rule| rule.algorithm() == *of);
        if let Some(setting) = launch.setting(*key).filter(|_| algorithm != *of && !is_second) {
            return Err(EngineError::Configuration(format!(
                "{} is for --speculative-algorithm {of}: remove it, or give that algorithm",
                setting.spelling
            )));
        }
    }
    if let Some(rule) = &mut found {
        numbers(launch, rule)?;
        rule.check()?;
    }
    Ok(found)
}

/// The shape that the flags mean for a rule: N rows are verified at most. As in SGLang, the breadth
/// of a trie is not `--speculative-eagle-topk`, and its depth follows from the others.
///
/// # Errors
/// When the numbers are not a tree that the rule can fill.
pub fn shape(
    rule: TextSpec,
    launch: &Launch,
    [steps, topk, rows]: [Option<usize>; 3],
) -> Result<TreeShape, EngineError> {
    let default = rule.default_shape();
    let wrong = |error| EngineError::Configuration(format!("tree shape: {error}"));
    if let TextSpec::Trie(TrieRule { min_breadth, .. }) = rule {
        let breadth = count(launch, Key::SpeculativeNgramMaxBfsBreadth)?.unwrap_or(TrieRule::BREADTH);
        if breadth < min_breadth {
            return Err(EngineError::Configuration(format!(
                "--speculative-ngram-max-bfs-breadth {breadth} is below --speculative-ngram-min-bfs-breadth \
                 {min_breadth}: raise the one or lower the other"
            )));
        }
        let shape = rule.shape_with_rows(rows.unwrap_or(TrieRule::ROWS), breadth);
        for (given, runs, key) in
            [(steps, shape.num_steps, Key::SpeculativeNumSteps), (topk, shape.topk, Key::SpeculativeEagleTopk)]
        {
            if let Some(given) = given.filter(|given| *given != runs) {
                let spelling = launch.setting(key).map_or("", |setting| setting.spelling.as_str());
                tracing::warn!("{spelling} {given} has no effect with NGRAM, which runs {shape} as SGLang does");
            }
        }
        return rule.nodes().check(shape).map(|()| shape).map_err(wrong);
    }
    if let (TextSpec::Suffix(SuffixRule { max_tree_depth, .. }), None, Some(rows)) = (rule, steps, rows)
        && rows > max_tree_depth.saturating_add(1)
    {
        return Err(EngineError::Configuration(format!(
            "--speculative-num-draft-tokens {rows}: SUFFIX finds at most {max_tree_depth} drafts in a row: give at most {}, \
             or raise --suffix-decoding-max-tree-depth",
            max_tree_depth + 1
        )));
    }
    let rows = rows.or(steps.map(|steps| steps.saturating_add(1))).unwrap_or(default.num_draft_tokens);
    let steps = steps.unwrap_or(rows.saturating_sub(1));
    rule.nodes().shape(steps, topk.unwrap_or(1), rows).map_err(wrong)
}
