//! Temperatures for the confidence head of DSPARK, in the file that SGLang reads
//! (`--speculative-dspark-confidence-sts-path`).
//!
//! SGLang divides the head's log-odds of each draft of a block by that draft's temperature, and
//! takes the product of the probabilities up to a draft for the chance that it is accepted. The
//! temperatures are fitted from the first draft to the last (sequential temperature scaling): each
//! is the one with which the product up to its draft has the least expected calibration error,
//! given the temperatures before it. This is the method of SGLang's own fit (0.5.23,
//! `benchmark/dspark_sts_fit.py`), with the positions of a trace in place of recorded rounds.

use engine::replay::trace::Nodes;
use schemas::tree::TreeShape;

use crate::forecast::drafts::Drafts;

/// Equal parts of 0 to 1 in which predicted and observed acceptance are compared.
const BINS: usize = 15;
/// Tried temperatures: this many, in equal ratios from 1 / [`LARGEST`] to it.
const TRIED: usize = 41;
const LARGEST: f64 = 10.0;

/// Fitted temperatures, and how well they fit texts that they were not fitted to.
#[derive(Clone, Debug, PartialEq)]
pub struct Temperatures {
    /// One for each draft of a block.
    pub temperatures: Vec<f64>,
    /// Expected calibration error of the chance that each draft is accepted, without temperatures,
    /// on the texts that judge.
    pub before: Vec<f64>,
    /// The same with the temperatures.
    pub after: Vec<f64>,
    /// Number of positions to which they were fitted.
    pub fitted: usize,
    /// Number of positions on which they were judged.
    pub judged: usize,
}

/// The block at a position: the head's log-odds, and the number of drafts that the text takes.
struct PositionDrafts<'a> {
    log_odds: &'a [f32],
    accepted: usize,
}

impl Temperatures {
    /// Fits them to every second text of a trace, and judges them on the others. `chain` is the
    /// head's block.
    ///
    /// # Errors
    /// In words, when the trace has no confidences of this block, or only one text with a whole
    /// block.
    pub fn fit(drafts: &Drafts, chain: TreeShape) -> Result<Self, String> {
        let [fit, judge] = [0, 1].map(|first| blocks(drafts, chain, first));
        let (fit, judge) = (fit?, judge?);
        if fit.is_empty() || judge.is_empty() {
            return Err(format!(
                "temperatures are fitted to one half of the texts and judged on the other: trace at least two with more than \
                 {} new tokens each",
                chain.num_steps
            ));
        }
        let temperatures = fitted(&fit, chain.num_steps);
        Ok(Self {
            before: errors(&judge, &vec![1.0; chain.num_steps]),
            after: errors(&judge, &temperatures),
            temperatures,
            fitted: fit.len(),
            judged: judge.len(),
        })
    }

    /// Whether they calibrate better than none, on average over the drafts of a block.
    pub fn improves(&self) -> bool {
        self.after.iter().sum::<f64>() < self.before.iter().sum::<f64>()
    }

    /// The contents of SGLang's file. `dataset` says where the confidences come from.
    pub fn file(&self, dataset: &str) -> String {
        let file = serde_json::json!({
            "temperatures": self.temperatures,
            "dataset": dataset,
            "num_samples": self.fitted,
            "ece_before": self.before,
            "ece_after": self.after,
        });
        format!("{file}\n")
    }
}

/// The blocks of every second text, from the first or the second text on.
fn blocks(drafts: &Drafts, chain: TreeShape, first: usize) -> Result<Vec<PositionDrafts<'_>>, String> {
    let texts =
        drafts.positions(chain).ok_or_else(|| format!("the trace has no chain {chain}: trace the head's block"))?;
    let positions = texts.into_iter().skip(first).step_by(2).flatten();
    positions.map(|nodes| block(nodes, chain)).collect()
}

fn block(nodes: &Nodes, chain: TreeShape) -> Result<PositionDrafts<'_>, String> {
    let log_odds = nodes
        .confidence
        .get(..chain.num_steps)
        .ok_or("the trace has no confidences: the head has no confidence head, or an older version wrote the trace")?;
    Ok(PositionDrafts { log_odds, accepted: nodes.accepted(&nodes.kept(chain)) })
}

/// Temperatures for the first `depth` drafts of a block.
fn fitted(blocks: &[PositionDrafts<'_>], depth: usize) -> Vec<f64> {
    let mut temperatures = Vec::with_capacity(depth);
    let mut survival = vec![1.0; blocks.len()];
    for at in 0..depth {
        let with = |temperature: f64| error(blocks, &surviving(&survival, blocks, at, temperature), at);
        // Where nothing is better, the head's own estimate stays.
        let (mut best, mut least) = (1.0, with(1.0));
        for tried in tried() {
            let found = with(tried);
            if found < least {
                (best, least) = (tried, found);
            }
        }
        survival = surviving(&survival, blocks, at, best);
        temperatures.push(best);
    }
    temperatures
}

fn tried() -> impl Iterator<Item = f64> {
    let step = 2.0 * LARGEST.ln() / (TRIED - 1) as f64;
    (0..TRIED).map(move |at| (at as f64 * step - LARGEST.ln()).exp())
}

/// The calibration error at each draft of a block.
fn errors(blocks: &[PositionDrafts<'_>], temperatures: &[f64]) -> Vec<f64> {
    let mut survival = vec![1.0; blocks.len()];
    let mut errors = Vec::with_capacity(temperatures.len());
    for (at, temperature) in temperatures.iter().enumerate() {
        survival = surviving(&survival, blocks, at, *temperature);
        errors.push(error(blocks, &survival, at));
    }
    errors
}

/// The chance that the draft at a depth is accepted, from that of the draft before it.
fn surviving(before: &[f64], blocks: &[PositionDrafts<'_>], at: usize, temperature: f64) -> Vec<f64> {
    let chance = |block: &PositionDrafts<'_>| 1.0 / (1.0 + (-f64::from(block.log_odds[at]) / temperature).exp());
    before.iter().zip(blocks).map(|(before, block)| before * chance(block)).collect()
}

/// Expected calibration error: the mean distance between predicted and observed acceptance of the
/// draft at a depth, over blocks with about the same prediction.
fn error(blocks: &[PositionDrafts<'_>], survival: &[f64], at: usize) -> f64 {
    let mut bins = [0.0; BINS];
    for (block, chance) in blocks.iter().zip(survival) {
        let observed = f64::from(u8::from(block.accepted > at));
        // A chance of 1 belongs to the last part.
        bins[((chance * BINS as f64) as usize).min(BINS - 1)] += chance - observed;
    }
    // The sum of a part's differences is its number of blocks times the distance of its two means.
    bins.iter().map(|sum: &f64| sum.abs()).sum::<f64>() / blocks.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use engine::replay::trace::{FORMAT, PositionTrace, ROOT, TextTrace};

    use super::*;

    /// Texts of chains of two drafts. The head states log-odds of `stated` times those by which
    /// each draft is accepted.
    fn drafts(texts: usize, stated: [f32; 2]) -> Drafts {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u64 << 24) as f32
        };
        let mut position = || {
            let log_odds = [0, 1].map(|_| 4.0 * random() - 2.0);
            let accepted = log_odds.iter().take_while(|odds| random() < 1.0 / (1.0 + (-**odds).exp())).count();
            Nodes {
                score: vec![-0.1, -0.2],
                parent: vec![ROOT, 0],
                rank: vec![0; 2],
                depth: vec![1, 2],
                chance: vec![None; 2],
                on_text: (0..accepted as u16).collect(),
                confidence: log_odds.iter().zip(stated).map(|(odds, times)| odds * times).collect(),
            }
        };
        let mut text = || TextTrace {
            prompt_tokens: 3,
            output_tokens: 1001,
            sampled: false,
            positions: (0..1000).map(|_| position()).collect(),
        };
        let trace = PositionTrace {
            format: FORMAT,
            source: "DSPARK".into(),
            limit: TreeShape::chain(2),
            largest: vec![TreeShape::chain(2)],
            texts: (0..texts).map(|_| text()).collect(),
        };
        Drafts::traced(vec![trace]).expect("a trace")
    }

    #[test]
    fn temperatures_undo_what_a_head_exaggerates_and_hold_on_other_texts() {
        let chain = TreeShape::chain(2);
        let found = Temperatures::fit(&drafts(8, [3.0, 0.5]), chain).expect("confidences");
        // The last position of a text has no whole block.
        assert_eq!((found.fitted, found.judged), (4 * 999, 4 * 999));
        let near = |found: f64, expected: f64| assert!((found / expected).ln().abs() < 0.25, "{found}, not {expected}");
        near(found.temperatures[0], 3.0);
        near(found.temperatures[1], 0.5);
        assert!(found.improves() && found.before[0] > 0.1, "{found:?}");
        assert!(found.after.iter().all(|error| *error < 0.04), "{found:?}");
        let sound = Temperatures::fit(&drafts(8, [1.0, 1.0]), chain).expect("confidences");
        assert!(sound.before.iter().all(|error| *error < 0.04), "{sound:?}");
        sound.temperatures.iter().for_each(|temperature| near(*temperature, 1.0));
    }

    #[test]
    fn the_file_has_what_sglang_reads() {
        let found = Temperatures {
            temperatures: vec![1.5, 0.75],
            before: vec![0.2, 0.1],
            after: vec![0.1, 0.05],
            fitted: 10,
            judged: 9,
        };
        let file: serde_json::Value = serde_json::from_str(&found.file("trace.jsonl")).expect("JSON");
        let expected = serde_json::json!({
            "temperatures": [1.5, 0.75], "dataset": "trace.jsonl", "num_samples": 10, "ece_before": [0.2, 0.1],
            "ece_after": [0.1, 0.05],
        });
        assert_eq!(file, expected);
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        let refused = |drafts: &Drafts, steps: usize, words: &str| {
            let error = Temperatures::fit(drafts, TreeShape::chain(steps)).expect_err(words);
            assert!(error.contains(words), "{error}");
        };
        refused(&drafts(1, [1.0, 1.0]), 2, "at least two");
        refused(&drafts(2, [1.0, 1.0]), 3, "no chain 3,1,4");
        let golden = Drafts::golden(&[1.5, 1.8]).expect("lengths");
        refused(&golden, 2, "no chain 2,1,3");
    }

    #[test]
    fn tried_temperatures_reach_from_a_tenth_to_ten_around_one() {
        let all: Vec<f64> = tried().collect();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
        assert_eq!(all.len(), TRIED);
        [(0, 0.1), (20, 1.0), (40, 10.0)].into_iter().for_each(|(at, expected)| near(all[at], expected));
    }
}
