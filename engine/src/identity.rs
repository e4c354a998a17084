//! Hashes that identify the models of an engine.

use crate::quantization::Fp8Compute;

/// Name and hashes of the models of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name under which the target is served: the last part of its path.
    pub name: String,
    /// Hash of the target's files, and how weights are quantised at load time and activations at
    /// run time.
    pub target: String,
    /// The same for the draft, if there is one.
    pub draft: Option<String>,
    /// A note on the quantisation of the target's weights, if any: speculation is lossless with
    /// respect to these.
    pub quantised: Option<String>,
    /// How its layers in FP8 multiply, if it has any.
    pub fp8_compute: Option<Fp8Compute>,
    /// The format of the KV cache as `--kv-cache-dtype` names it, if it is not the type that the
    /// engine computes in: speculation is lossless with respect to this cache.
    pub kv_cache: Option<&'static str>,
}
