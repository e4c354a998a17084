//! Dense families: Llama, Mistral, Qwen2 (and 2.5), Qwen3. They differ in biases, in norms of
//! queries and keys, and in the meaning of a sliding window (see [`settings`](super::settings)).

use super::{CapturedIds, Config, Family, config::FamilyAttention};
use crate::{error::EngineError, spec::TargetSpec};

/// Llama 2 to 3.3, Mistral.
pub static LLAMA: Family = Family {
    architectures: &["LlamaForCausalLM", "MistralForCausalLM"],
    reads: &[],
    target: |config| read(config, FamilyAttention::PLAIN),
    mtp: None,
    captured_ids: CapturedIds::Outputs,
};

/// Qwen2, Qwen2.5.
pub static QWEN2: Family = Family {
    architectures: &["Qwen2ForCausalLM"],
    reads: &[],
    target: |config| read(config, FamilyAttention { qkv_bias: true, ..FamilyAttention::PLAIN }),
    mtp: None,
    captured_ids: CapturedIds::Outputs,
};

/// Qwen3, dense.
pub static QWEN3: Family = Family {
    architectures: &["Qwen3ForCausalLM"],
    reads: &[],
    target: |config| read(config, FamilyAttention { head_norms: Some(true), ..FamilyAttention::PLAIN }),
    mtp: None,
    captured_ids: CapturedIds::Outputs,
};

fn read(config: &Config<'_>, attention: FamilyAttention) -> Result<TargetSpec, EngineError> {
    config.target(|_, prefix| config.layer(prefix, attention, config.dense(prefix)?))
}
