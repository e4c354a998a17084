//! Types of the weights.

pub(super) mod sd070_dtype_mismatch;
pub(super) mod sd071_dtype_missing_becomes_fp16;

mod loaded;
