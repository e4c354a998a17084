//! The time of a step as a sum of costs, for rounds that verify any number of rows.
//!
//! A fitted [`RoundModel`](crate::prediction::latency::RoundModel) knows rounds of tree shapes. A
//! budget verifies a number of rows that is no shape's, so its time is a sum: the target's pass
//! over the rows, the draft's passes, a cost for each request, and one for each token in the cache.

use schemas::{model::DraftKind, sweep::LARGEST as MOST_ROWS, tree::TreeShape};
use serde::{Deserialize, Serialize};

/// Version of the file's format.
pub const FORMAT: u32 = 1;
/// Largest file in bytes.
const LARGEST: usize = 1 << 20;

/// Costs in ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepCosts {
    /// [`FORMAT`].
    pub format: u32,
    /// Where the figures come from, in words.
    pub source: String,
    /// `[rows, ms]`, ascending: the target's pass over this many rows. Interpolated between the
    /// points, and continued beyond the last one with the slope of the last two.
    pub verify_ms: Vec<[f64; 2]>,
    /// For each request of a round.
    pub request_ms: f64,
    /// For each million tokens in the cache of all requests, in the target's pass.
    pub context_ms: f64,
    /// The draft.
    pub draft: DraftCosts,
    /// A step that only prefills.
    pub prefill_step_ms: f64,
    /// For each prompt token.
    pub prefill_token_ms: f64,
}

/// Costs of the draft in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftCosts {
    /// A pass.
    pub pass_ms: f64,
    /// For each row of a pass.
    pub row_ms: f64,
    /// For each million tokens in the cache of all requests, in each pass.
    pub context_ms: f64,
    /// For each prompt token that it reads besides the target.
    #[serde(default)]
    pub prefill_token_ms: f64,
    /// Rows of a request in the one pass of a block head; missing for a draft that runs a pass for
    /// each step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    /// The kind of draft whose passes these are; missing where only `block` tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<DraftKind>,
}

impl StepCosts {
    /// A named machine with its source in words; `None` if there is none of this name. See
    /// [`NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        let (_, source, draft) = NAMES.into_iter().find(|(known, ..)| *known == name)?;
        Some(Self {
            format: FORMAT,
            source: source.into(),
            verify_ms: LLAMA_8B_H200.to_vec(),
            request_ms: 0.024,
            context_ms: 33.6,
            draft,
            prefill_step_ms: 3.6,
            prefill_token_ms: 0.027,
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it has another format, or a number in it is impossible; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LARGEST {
            return Err(format!("it is larger than {LARGEST} bytes"));
        }
        let costs: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        costs.check()?;
        Ok(costs)
    }

    /// Whether all numbers are possible.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("format {}, but this program reads {FORMAT}", self.format));
        }
        let rising = self.verify_ms.windows(2).all(|pair| pair[0][0] < pair[1][0]);
        let times = self.verify_ms.iter().all(|[rows, ms]| *rows > 0.0 && *ms > 0.0 && (rows + ms).is_finite());
        if self.verify_ms.is_empty() || !rising || !times {
            return Err("verify_ms: expected [rows, ms] above 0, with ascending rows".into());
        }
        let draft = self.draft;
        for (name, value) in [
            ("request_ms", self.request_ms),
            ("context_ms", self.context_ms),
            ("draft.pass_ms", draft.pass_ms),
            ("draft.row_ms", draft.row_ms),
            ("draft.context_ms", draft.context_ms),
            ("draft.prefill_token_ms", draft.prefill_token_ms),
            ("prefill_step_ms", self.prefill_step_ms),
            ("prefill_token_ms", self.prefill_token_ms),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(format!("{name} is {value}: expected a number of at least 0"));
            }
        }
        if draft.block.is_some_and(|block| !(1..=MOST_ROWS).contains(&block)) {
            return Err(format!("draft.block: expected 1 to {MOST_ROWS} rows"));
        }
        match (draft.kind, draft.block) {
            (Some(DraftKind::Block), None) => Err("draft.block is missing: a block head has rows of a request".into()),
            (Some(kind), Some(_)) if kind != DraftKind::Block => {
                Err(format!("draft.block: {} runs a pass for each step; remove it, or change draft.kind", kind.words()))
            }
            _ => Ok(()),
        }
    }

    /// The target's pass over this many rows, in ms, without the costs of requests and contexts.
    pub fn verify(&self, rows: f64) -> f64 {
        let points = &self.verify_ms;
        let after = points.partition_point(|[at, _]| *at < rows).min(points.len() - 1);
        let (Some([x0, y0]), [x1, y1]) = (after.checked_sub(1).map(|at| points[at]), points[after]) else {
            return points[0][1];
        };
        y0 + (rows - x0) * (y1 - y0) / (x1 - x0)
    }

    /// The draft's part of a round, in ms: of a shape's passes for a batch at a mean context.
    pub fn draft(&self, shape: TreeShape, batch: usize, context: f64) -> f64 {
        if shape.is_off() {
            return 0.0;
        }
        let (passes, rows) = match self.draft.block {
            Some(block) => (1, batch * block),
            None => (shape.num_steps, batch * shape.topk),
        };
        let cached = batch as f64 * context / 1e6;
        passes as f64 * (self.draft.pass_ms + self.draft.row_ms * rows as f64 + self.draft.context_ms * cached)
    }

    /// A round, in ms: `rows` verified rows of all requests together, and `prefilled` prompt tokens
    /// in the same pass.
    pub fn round(&self, shape: TreeShape, batch: usize, rows: usize, context: f64, prefilled: usize) -> f64 {
        let cached = batch as f64 * context / 1e6;
        let prompt = prefilled as f64 * self.prompt_token(!shape.is_off());
        self.verify(rows as f64)
            + prompt
            + self.request_ms * batch as f64
            + self.context_ms * cached
            + self.draft(shape, batch, context)
    }

    /// A round of a shape, in ms.
    pub fn shape(&self, shape: TreeShape, batch: usize, context: f64) -> f64 {
        self.round(shape, batch, shape.verified_rows(batch), context, 0)
    }

    /// A step that only prefills, in ms; `speculates` is whether the draft reads prompts too.
    pub fn prefill(&self, tokens: usize, speculates: bool) -> f64 {
        self.prefill_step_ms + self.prompt_token(speculates) * tokens as f64
    }

    /// A prompt token, in ms.
    fn prompt_token(&self, speculates: bool) -> f64 {
        self.prefill_token_ms + if speculates { self.draft.prefill_token_ms } else { 0.0 }
    }
}

/// The target's pass of Llama-3.1-8B in bfloat16 on an H200, as this engine ran it.
const LLAMA_8B_H200: [[f64; 2]; 7] =
    [[1.0, 3.62], [32.0, 3.97], [64.0, 4.27], [128.0, 5.0], [256.0, 7.4], [512.0, 12.9], [1024.0, 25.2]];

/// Named machines: name, source, and the draft's costs. The pass over rows and the cost of a
/// request are measured; costs of contexts, prefill (the draft's too: 0.6, 0.25 and 1.95 GFLOP a
/// token) and of the block head are counted from bytes and operations.
pub const NAMES: [(&str, &str, DraftCosts); 3] = [
    (
        "llama-3.1-8b-eagle3-h200",
        "Llama-3.1-8B with an EAGLE-3 head on an H200: passes measured with spectune, contexts (131 kB of KV a token at \
         3.9 TB/s) and prefill (16 GFLOP a token at 600 TFLOP/s) computed",
        DraftCosts {
            pass_ms: 0.2,
            row_ms: 0.0011,
            context_ms: 1.05,
            prefill_token_ms: 0.001,
            block: None,
            kind: Some(DraftKind::Eagle3),
        },
    ),
    (
        "llama-3.1-8b-block8-h200",
        "Llama-3.1-8B with a block head of 8 rows on an H200: the target's pass measured with spectune, the draft's \
         computed from its bytes (2.1 GB of layers and 1.24 GB of LM head at 4.3 TB/s)",
        DraftCosts {
            pass_ms: 0.78,
            row_ms: 0.0011,
            context_ms: 5.25,
            prefill_token_ms: 0.0004,
            block: Some(8),
            kind: Some(DraftKind::Block),
        },
    ),
    (
        "llama-3.1-8b-llama-3.2-1b-h200",
        "Llama-3.1-8B with Llama-3.2-1B as its draft on an H200: the draft's passes from rounds of 3,1,4 at batch 1 and 8 \
         measured with spectune, its contexts (33 kB of KV a token at 3.9 TB/s) computed",
        DraftCosts {
            pass_ms: 0.73,
            row_ms: 0.016,
            context_ms: 8.4,
            prefill_token_ms: 0.0033,
            block: None,
            kind: Some(DraftKind::Standalone),
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_model_as_the_draft_costs_what_its_measured_rounds_took() {
        let costs = StepCosts::named("llama-3.1-8b-llama-3.2-1b-h200").expect("a name");
        for (batch, measured) in [(1, 5.90), (8, 6.90)] {
            let found = costs.shape(TreeShape::chain(3), batch, 544.0);
            assert!((found / measured - 1.0_f64).abs() < 0.03, "batch {batch}: {found} ms, measured {measured} ms");
        }
    }

    #[test]
    fn rows_are_interpolated_and_a_round_is_the_sum_of_its_parts() {
        let costs = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name");
        assert_eq!(costs.check(), Ok(()));
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one}, expected {other}");
        close(costs.verify(0.5), 3.62);
        close(costs.verify(48.0), 4.12);
        close(costs.verify(2048.0), 25.2 + 1024.0 * 12.3 / 512.0);
        let shape = TreeShape::chain(3);
        let draft = 3.0 * (0.2 + 0.0011 * 8.0 + 1.05 * 0.008);
        close(costs.shape(shape, 8, 1000.0), 3.97 + 8.0 * 0.024 + 33.6 * 0.008 + draft);
        close(costs.shape(TreeShape::OFF, 1, 0.0), 3.62 + 0.024);
        close(costs.round(TreeShape::OFF, 1, 1, 0.0, 100) - costs.round(TreeShape::OFF, 1, 1, 0.0, 0), 2.7);
        let block = StepCosts::named("llama-3.1-8b-block8-h200").expect("a name");
        close(block.draft(TreeShape::chain(7), 2, 0.0), block.draft(TreeShape::chain(1), 2, 0.0));
        let wrong = StepCosts { verify_ms: vec![[2.0, 1.0], [1.0, 2.0]], ..costs };
        assert!(wrong.check().expect_err("rows fall").contains("verify_ms"));
        for (kind, rows, expected) in
            [(DraftKind::Block, None, "draft.block is missing"), (DraftKind::Eagle3, Some(8), "an EAGLE-3 head runs")]
        {
            let draft = DraftCosts { kind: Some(kind), block: rows, ..block.draft };
            let found = StepCosts { draft, ..block.clone() }.check().expect_err(expected);
            assert!(found.contains(expected), "{found}");
        }
        let nothing = StepCosts { draft: DraftCosts { block: Some(0), ..block.draft }, ..block.clone() };
        assert!(nothing.check().is_err());
        assert_eq!(StepCosts::named("a"), None);
    }
}
