//! Tests that sampled speculative output has the target's distribution: a chi-square test on a
//! small vocabulary, for any acceptance rule. The test proves its own power: rules with deliberate
//! faults must fail it.

use std::{collections::HashMap, sync::Arc};

use schemas::tree::TreeShape;

use super::choose;
use crate::{
    adjust::{Adjuster, Adjustments, Constraint, Follow, Grammar},
    random::uniform,
    request::SamplingParams,
    tree::{DraftTree, Expansion, walk},
};

/// Size of the vocabulary.
const VOCABULARY: usize = 5;
/// The prompt.
const PROMPT: [u32; 2] = [3, 1];
/// Length of the outputs whose joint distribution is tested.
const LENGTH: usize = 3;
/// Number of outputs drawn per test.
const OUTPUTS: u64 = 20_000;
/// Standard normal quantile of the test's significance level, one in a hundred thousand.
const QUANTILE: f64 = 4.26;

/// An acceptance rule: from a tree, the target's logits at each of its nodes, and the tokens up to
/// the root, to the tokens of a round: accepted drafts, then the bonus token.
type AcceptanceRule = fn(&DraftTree, &[Vec<f32>], &SamplingParams, &[u32]) -> Vec<u32>;

/// The engine's rule.
fn ours(tree: &DraftTree, logits: &[Vec<f32>], sampling: &SamplingParams, context: &[u32]) -> Vec<u32> {
    let mut adjuster = adjuster(sampling, context);
    let mut tokens = Vec::new();
    walk(tree, |node| {
        let token = choose(&adjuster.adjust(&logits[node]), sampling, context.len() + tree.nodes()[node].depth);
        adjuster.push(token);
        tokens.push(token);
        token
    });
    tokens
}

/// The adjustments after these tokens: the prompt, then output.
fn adjuster(sampling: &SamplingParams, context: &[u32]) -> Adjuster {
    let (prompt, output) = context.split_at(PROMPT.len());
    let mut adjuster = Adjuster::new(sampling.adjustments.clone(), prompt, &[]);
    output.iter().for_each(|token| adjuster.push(*token));
    adjuster
}

/// A grammar: no token comes twice in a row.
#[derive(Debug)]
struct NoRepeat;

#[derive(Debug, Default)]
struct Last(Option<u32>);

impl Constraint for NoRepeat {
    fn start(&self) -> Box<dyn Follow> {
        Box::<Last>::default()
    }
}

impl Follow for Last {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        if let Some(last) = self.0 {
            logits[last as usize] = f32::NEG_INFINITY;
        }
        Ok(())
    }

    fn push(&mut self, token: u32) {
        self.0 = Some(token);
    }
}

/// Possible faults in drawing against one child after the other.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// A child is accepted with its probability, not with its share of the remaining probability.
    no_renormalisation: bool,
    /// The bonus token may be a draft that was rejected.
    no_subtraction: bool,
    /// One random number serves a whole round.
    one_coin: bool,
    /// A child that is likely enough is accepted without a draw (SGLang's `threshold_single` below
    /// 1).
    threshold: Option<f64>,
}

/// SGLang's TreeSpeculativeSamplingTargetOnly: children are tried in order, each with its share of
/// the remaining probability; a rejected token cannot be the bonus token.
fn one_after_the_other(
    tree: &DraftTree,
    logits: &[Vec<f32>],
    sampling: &SamplingParams,
    context: &[u32],
    faults: Faults,
) -> Vec<u32> {
    let mut adjuster = adjuster(sampling, context);
    let mut tokens = Vec::new();
    let mut node = 0;
    loop {
        let depth = if faults.one_coin { 0 } else { tree.nodes()[node].depth };
        let mut draws = 0;
        let mut coin = || {
            draws += 1;
            uniform(sampling.seed ^ (draws << 40), context.len() + depth)
        };
        let target = filtered(&adjuster.adjust(&logits[node]), sampling);
        let mut left = target.clone();
        let children = (0..tree.nodes().len()).filter(|child| tree.nodes()[*child].parent == Some(node));
        let accepted = children.into_iter().find(|child| {
            let token = tree.nodes()[*child].token as usize;
            let total = if faults.no_renormalisation { 1.0 } else { left.iter().sum() };
            let accepted = coin() * total < left[token] || faults.threshold.is_some_and(|least| target[token] >= least);
            if !accepted {
                left[token] = 0.0;
            }
            accepted
        });
        match accepted {
            Some(child) => {
                adjuster.push(tree.nodes()[child].token);
                tokens.push(tree.nodes()[child].token);
                node = child;
            }
            None => {
                let from = if faults.no_subtraction { &target } else { &left };
                let mut rest = coin() * from.iter().sum::<f64>();
                let bonus = from.iter().position(|probability| {
                    rest -= probability;
                    rest < 0.0
                });
                tokens.push(bonus.unwrap_or_default() as u32);
                return tokens;
            }
        }
    }
}

/// The distribution that a token must have, computed directly from the definitions of the filters.
fn filtered(logits: &[f32], sampling: &SamplingParams) -> Vec<f64> {
    let mut probabilities: Vec<f64> =
        logits.iter().map(|logit| (f64::from(*logit) / f64::from(sampling.temperature)).exp()).collect();
    let normalise = |probabilities: &mut Vec<f64>| {
        let sum: f64 = probabilities.iter().sum();
        probabilities.iter_mut().for_each(|probability| *probability /= sum);
    };
    normalise(&mut probabilities);
    // All logits differ, so a token's rank is the number of tokens above it.
    let above = |probabilities: &[f64], token: usize| -> Vec<f64> {
        probabilities.iter().copied().filter(|other| *other > probabilities[token]).collect()
    };
    let mut keep = |kept: &dyn Fn(&[f64], usize) -> bool| {
        let before = probabilities.clone();
        for (token, probability) in probabilities.iter_mut().enumerate() {
            if !kept(&before, token) {
                *probability = 0.0;
            }
        }
        normalise(&mut probabilities);
    };
    if sampling.top_k > 0 {
        keep(&|all, token| above(all, token).len() < sampling.top_k);
    }
    keep(&|all, token| above(all, token).iter().sum::<f64>() < f64::from(sampling.top_p));
    keep(&|all, token| all[token] >= f64::from(sampling.min_p) * all.iter().copied().fold(0.0, f64::max));
    probabilities
}

/// Logits of a synthetic target after these tokens.
fn target(context: &[u32]) -> Vec<f32> {
    // They depend on two tokens, so that a wrong joint distribution shows even if each token's own
    // distribution is right.
    let recent = context.iter().rev().take(2).fold(1, |state, token| state * 31 + u64::from(*token));
    (0..VOCABULARY).map(|token| 4.0 * uniform(recent, token) as f32).collect()
}

/// Log-probabilities of a draft that is similar to the target but not the same; best first.
fn draft(context: &[u32], topk: usize) -> Vec<(u32, f32)> {
    let blurred = target(context).into_iter().enumerate().map(|(token, logit)| {
        let last = u64::from(context.last().copied().unwrap_or_default());
        (token as u32, logit - 5.0 + 2.0 * uniform(last + 77, token) as f32)
    });
    let mut proposals: Vec<(u32, f32)> = blurred.collect();
    proposals.sort_by(|a, b| b.1.total_cmp(&a.1));
    proposals.truncate(topk);
    proposals
}

fn grow(shape: TreeShape, context: &[u32]) -> DraftTree {
    let root = context[context.len() - 1];
    if shape.is_off() {
        return DraftTree::root(root);
    }
    let mut expansion = Expansion::new(shape, &draft(context, shape.topk));
    let mut ways = vec![context.to_vec()];
    for _ in 1..shape.num_steps {
        ways = expansion.beams().iter().map(|beam| [ways[beam.source].as_slice(), &[beam.token]].concat()).collect();
        let proposals: Vec<_> = ways.iter().map(|way| draft(way, shape.topk)).collect();
        expansion.expand(&proposals);
    }
    expansion.pool().tree(shape, root)
}

/// A tree with equal siblings, as from a token map that contains a token twice.
fn with_twins(context: &[u32]) -> DraftTree {
    let mut tree = DraftTree::root(context[context.len() - 1]);
    let best = draft(context, 2);
    for token in [best[0].0, best[1].0, best[0].0] {
        let child = tree.add(0, token);
        tree.add(child, best[1].0);
        tree.add(child, best[1].0);
    }
    tree
}

/// The result of drawing outputs.
struct DrawnOutputs {
    /// Number of occurrences of each output; outputs are numbers in the base of the vocabulary.
    counts: Vec<u64>,
    /// Accepted drafts over all rounds.
    accepted: u64,
    rounds: u64,
}

fn draw(grow: &dyn Fn(&[u32]) -> DraftTree, sampling: &SamplingParams, rule: AcceptanceRule) -> DrawnOutputs {
    // There are few contexts, and draft and target are functions of them.
    let mut verified: HashMap<Vec<u32>, (DraftTree, Vec<Vec<f32>>)> = HashMap::new();
    let mut drawn = DrawnOutputs { counts: vec![0; VOCABULARY.pow(LENGTH as u32)], accepted: 0, rounds: 0 };
    for seed in 0..OUTPUTS {
        let sampling = SamplingParams { seed, ..sampling.clone() };
        let mut context = PROMPT.to_vec();
        while context.len() < PROMPT.len() + LENGTH {
            let (tree, logits) = verified.entry(context.clone()).or_insert_with(|| {
                let tree = grow(&context);
                let behind = |node: usize| -> Vec<u32> {
                    let path = tree.path(node).into_iter().skip(1);
                    context.iter().copied().chain(path.map(|node| tree.nodes()[node].token)).collect()
                };
                let logits = (0..tree.nodes().len()).map(|node| target(&behind(node))).collect();
                (tree, logits)
            });
            let tokens = rule(tree, logits, &sampling, &context);
            drawn.rounds += 1;
            drawn.accepted += tokens.len() as u64 - 1;
            context.extend(tokens);
        }
        let output = &context[PROMPT.len()..PROMPT.len() + LENGTH];
        drawn.counts[output.iter().fold(0, |number, token| number * VOCABULARY + *token as usize)] += 1;
    }
    drawn
}

/// Chi-square statistic against the target's joint distribution, as a standard normal quantile
/// (Wilson and Hilferty 1931); infinite if an impossible output occurred.
fn distance(drawn: &DrawnOutputs, sampling: &SamplingParams) -> f64 {
    let mut expected = vec![(PROMPT.to_vec(), 1.0)];
    for _ in 0..LENGTH {
        expected = expected
            .into_iter()
            .flat_map(|(context, probability): (Vec<u32>, f64)| {
                let logits = adjuster(sampling, &context).adjust(&target(&context));
                let next = filtered(&logits, sampling).into_iter().enumerate();
                let extend = |(token, share): (usize, f64)| {
                    ([context.as_slice(), &[token as u32]].concat(), probability * share)
                };
                next.map(extend).collect::<Vec<_>>()
            })
            .collect();
    }
    let (mut cells, mut statistic) = (0.0, 0.0);
    // Outputs that are too rare for the approximation are counted together.
    let mut rare = (0.0, 0.0);
    let mut cell = |expected: f64, count: f64| {
        cells += 1.0;
        statistic += (count - expected).powi(2) / expected;
    };
    for ((_, probability), count) in expected.iter().zip(&drawn.counts) {
        let (expected, count) = (probability * OUTPUTS as f64, *count as f64);
        if *probability == 0.0 && count > 0.0 {
            return f64::INFINITY;
        }
        if expected < 10.0 {
            rare = (rare.0 + expected, rare.1 + count);
        } else {
            cell(expected, count);
        }
    }
    if rare.0 >= 10.0 {
        cell(rare.0, rare.1);
    }
    let freedom: f64 = cells - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

fn samplings() -> Vec<SamplingParams> {
    let plain = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let adjusted = adjustments().into_iter().map(|adjustments| SamplingParams { adjustments, ..plain.clone() });
    unadjusted().into_iter().chain(adjusted).collect()
}

fn adjustments() -> Vec<Adjustments> {
    let none = Adjustments::default();
    vec![
        Adjustments { presence_penalty: 1.5, frequency_penalty: 0.5, bias: vec![(2, 1.0)], ..none.clone() },
        Adjustments { repetition_penalty: 1.8, ..none.clone() },
        Adjustments { grammar: Some(Grammar(Arc::new(NoRepeat))), ..none },
    ]
}

fn unadjusted() -> Vec<SamplingParams> {
    let plain = |temperature| SamplingParams { temperature, ..SamplingParams::default() };
    vec![
        plain(0.7),
        plain(1.0),
        SamplingParams { top_k: 3, ..plain(1.0) },
        SamplingParams { top_p: 0.8, ..plain(0.7) },
        SamplingParams { min_p: 0.2, ..plain(1.0) },
        SamplingParams { top_k: 4, top_p: 0.9, min_p: 0.1, ..plain(1.3) },
    ]
}

fn shapes() -> Vec<TreeShape> {
    ["0,1,1", "1,1,2", "3,1,4", "1,4,5", "2,2,6", "3,3,12", "4,2,8"]
        .iter()
        .map(|shape| shape.parse().expect("a shape"))
        .collect()
}

/// The largest distance of a rule over all trees and parameters.
fn worst(rule: AcceptanceRule) -> f64 {
    let mut worst = f64::NEG_INFINITY;
    for sampling in samplings() {
        for shape in shapes() {
            let drawn = draw(&|context| grow(shape, context), &sampling, rule);
            worst = worst.max(distance(&drawn, &sampling));
        }
        let drawn = draw(&with_twins, &sampling, rule);
        worst = worst.max(distance(&drawn, &sampling));
    }
    worst
}

#[test]
fn output_has_the_target_distribution_for_every_tree() {
    let worst = worst(ours);
    assert!(worst < QUANTILE, "{worst} standard deviations");
}

#[test]
fn drawing_against_one_child_after_the_other_gives_the_same_distribution_and_acceptance() {
    let sequential: AcceptanceRule =
        |tree, logits, sampling, context| one_after_the_other(tree, logits, sampling, context, Faults::default());
    let worst = worst(sequential);
    assert!(worst < QUANTILE, "{worst} standard deviations");
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let shape = TreeShape::new(3, 3, 12).expect("a shape");
    let [ours, theirs] = [ours, sequential].map(|rule| {
        let drawn = draw(&|context| grow(shape, context), &sampling, rule);
        drawn.accepted as f64 / drawn.rounds as f64
    });
    // At most 3 drafts in each of some 30 000 rounds: a standard error below 0.01.
    assert!(ours > 1.0 && (ours - theirs).abs() < 0.04, "{ours} and {theirs} drafts per round");
}

#[test]
fn every_broken_rule_is_found_out() {
    fn check(name: &str, shape: &str, rule: AcceptanceRule) {
        let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
        let shape = shape.parse().expect("a shape");
        let drawn = draw(&|context| grow(shape, context), &sampling, rule);
        let distance = distance(&drawn, &sampling);
        assert!(distance > 2.0 * QUANTILE, "{name} with {shape} passes at {distance} standard deviations");
    }
    check("no renormalisation", "1,4,5", |tree, logits, sampling, context| {
        let faults = Faults { no_renormalisation: true, ..Faults::default() };
        one_after_the_other(tree, logits, sampling, context, faults)
    });
    for shape in ["1,1,2", "3,1,4", "2,2,6"] {
        check("no subtraction", shape, |tree, logits, sampling, context| {
            let faults = Faults { no_subtraction: true, ..Faults::default() };
            one_after_the_other(tree, logits, sampling, context, faults)
        });
        check("a threshold below 1", shape, |tree, logits, sampling, context| {
            let faults = Faults { threshold: Some(0.4), ..Faults::default() };
            one_after_the_other(tree, logits, sampling, context, faults)
        });
    }
    check("one coin per round", "3,1,4", |tree, logits, sampling, context| {
        let faults = Faults { one_coin: true, ..Faults::default() };
        one_after_the_other(tree, logits, sampling, context, faults)
    });
    check("one position for all", "3,1,4", |tree, logits, sampling, _| ours(tree, logits, sampling, &PROMPT));
    check("the temperature left out", "2,2,6", |tree, logits, sampling, context| {
        ours(tree, logits, &SamplingParams { temperature: 0.7, ..sampling.clone() }, context)
    });
    for adjustments in adjustments() {
        let rule: AcceptanceRule = |tree, logits, sampling, context| {
            let adjust = |logits: &Vec<f32>| adjuster(sampling, context).adjust(logits);
            let adjusted: Vec<Vec<f32>> = logits.iter().map(adjust).collect();
            ours(tree, &adjusted, &SamplingParams { adjustments: Adjustments::default(), ..sampling.clone() }, context)
        };
        let sampling = SamplingParams { temperature: 1.0, adjustments, ..SamplingParams::default() };
        let drawn = draw(&|context| grow("3,1,4".parse().expect("a shape"), context), &sampling, rule);
        let distance = distance(&drawn, &sampling);
        assert!(distance > 2.0 * QUANTILE, "adjustments of the round's beginning: {distance} standard deviations");
    }
    check("greedy drafts", "3,1,4", |tree, logits, sampling, context| {
        let mut tokens = Vec::new();
        walk(tree, |node| {
            let depth = tree.nodes()[node].depth;
            let sampling = SamplingParams { temperature: if depth == 0 { 0.0 } else { 1.0 }, ..sampling.clone() };
            tokens.push(choose(&logits[node], &sampling, context.len() + depth));
            tokens[tokens.len() - 1]
        });
        tokens
    });
}
