//! Dtypes of weights and caches.

pub(super) mod nr19_w4afp8_mtp;
pub(super) mod sd070_dtype_mismatch;
pub(super) mod sd071_dtype_missing_becomes_fp16;
pub(super) mod sd073_draft_inherits_quantization;
pub(super) mod sd074_quantized_mtp;
pub(super) mod sd075_moe_runner_inherit;
pub(super) mod sd076_fa3_e5m2;
pub(super) mod sd077_nvfp4_kv;

mod loaded;
