//! What a round must read from memory at least.

use schemas::model::ModelFacts;

use crate::{checkpoint::facts, options::EngineOptions};

/// Bytes of a value on the CPU, whatever the checkpoint holds.
const VALUE: u64 = 4;

/// Bytes that a round of a batch reads at `context` tokens a request: the weights of each pass once, however many rows
/// it has, and the caches of all requests once for each pass. Embeddings are looked up, not read, unless they are the
/// head too. `None` where a checkpoint's tensors cannot be read.
pub fn bytes_a_round(options: &EngineOptions, batch: usize, context: usize) -> Option<u64> {
    let shape = options.policy.shape(batch);
    let target = facts(&options.model_path).ok()?;
    let rows = (batch * context) as u64;
    let mut values = weights(&target, target_head(&target)?)? + rows * cache_row(&target)?;
    if let (Some(path), false) = (&options.draft_model_path, shape.is_off()) {
        let draft = facts(path).ok()?;
        // A head of its own, or the target's.
        let head = size(&draft, "lm_head.weight").or_else(|| target_head(&target))?;
        // The extension over the accepted tokens counts as a pass, and takes the place of the first step's.
        let pass = weights(&draft, head)? + rows * cache_row(&draft)?;
        values += pass * shape.num_steps as u64;
    }
    Some(values * VALUE)
}

/// Values of a pass: all floating-point tensors but embedding and head, and the head that is used.
fn weights(model: &ModelFacts, head: u64) -> Option<u64> {
    let tensors = &model.tensors.as_ref()?.0;
    let others = tensors.iter().filter(|(name, tensor)| {
        !name.ends_with("embed_tokens.weight") && !name.ends_with("lm_head.weight") && !is_table(&tensor.dtype)
    });
    Some(others.map(|(_, tensor)| values(&tensor.shape)).sum::<u64>() + head)
}

/// The target's own head; the embedding where the two are tied.
fn target_head(target: &ModelFacts) -> Option<u64> {
    let tied = target.config.tie_word_embeddings == Some(true);
    let head = if tied { None } else { size(target, "lm_head.weight") };
    head.or_else(|| size(target, "embed_tokens.weight"))
}

/// Integer and boolean tensors map tokens; a pass reads a few entries of them.
fn is_table(dtype: &str) -> bool {
    dtype.starts_with(['I', 'U']) || dtype == "BOOL"
}

/// Values in the caches for one position, keys and values of all layers.
fn cache_row(model: &ModelFacts) -> Option<u64> {
    let config = &model.config;
    let (layers, heads) = (config.num_hidden_layers?, config.key_value_heads()?);
    Some(2 * (layers * heads * config.head_dim()?) as u64)
}

fn size(model: &ModelFacts, suffix: &str) -> Option<u64> {
    let tensors = &model.tensors.as_ref()?.0;
    tensors.iter().find(|(name, _)| name.ends_with(suffix)).map(|(_, tensor)| values(&tensor.shape))
}

fn values(shape: &[usize]) -> u64 {
    shape.iter().map(|size| *size as u64).product()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ShapePolicy;

    #[test]
    fn a_round_reads_weights_once_a_pass_and_caches_of_all_requests() {
        fn check(head: &str, shape: &str, batch: usize, context: usize, expected: u64) {
            let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
            let options = EngineOptions {
                model_path: models.join("target"),
                draft_model_path: Some(models.join(head)),
                policy: ShapePolicy::fixed(shape.parse().expect("a shape")),
                ..EngineOptions::default()
            };
            assert_eq!(bytes_a_round(&options, batch, context), Some(4 * expected), "{head} {shape}");
        }
        // Attention: 128 → 128 + 64 + 64, back to 128; feed-forward: three of 128 × 384; two norms. Then the last norm
        // and the tied head.
        let layer = 128 * (128 + 64 + 64) + 128 * 128 + 3 * 128 * 384 + 2 * 128;
        let head = 2048 * 128;
        let target = 8 * layer + 128 + head;
        check("eagle3", "0,1,1", 1, 0, target);
        check("eagle3", "0,1,1", 3, 100, target + 3 * 100 * 8 * 128);
        // EAGLE-2: no norm at the input, fc from 256 with a bias, the target's head.
        let eagle2 = layer - 128 + 256 * 128 + 128 + head;
        check("eagle2", "3,1,4", 1, 0, target + 3 * eagle2);
        // EAGLE-3: queries, keys and values from twice the width, one more norm in the layer, one behind it, fc from
        // three layers, a head of 1024 tokens.
        let eagle3 = layer + 128 * (128 + 64 + 64) + 2 * 128 + 384 * 128 + 1024 * 128;
        check("eagle3", "1,8,9", 2, 10, target + 2 * 10 * 8 * 128 + eagle3 + 2 * 10 * 128);
    }
}
