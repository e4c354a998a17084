//! The flags that a diagnosis gives advice about.

/// The names of the flags that the advice is about.
pub struct Flags {
    /// Limit of running requests.
    pub max_running: &'static str,
    /// Share of the memory for weights and KV cache.
    pub memory: &'static str,
    /// Largest batch with a CUDA graph.
    pub graphs: &'static str,
    /// Depth of the drafts.
    pub drafts: &'static str,
    /// What turns speculation on.
    pub speculation: &'static str,
    /// Tokens of prompts between rounds.
    pub prefill: &'static str,
}

/// Those of SGLang.
pub const SGLANG: Flags = Flags {
    max_running: "--max-running-requests",
    memory: "--mem-fraction-static",
    graphs: "--cuda-graph-max-bs",
    drafts: "--speculative-num-steps",
    speculation: "--speculative-algorithm",
    prefill: "--chunked-prefill-size",
};

/// Those of vLLM.
pub const VLLM: Flags = Flags {
    max_running: "--max-num-seqs",
    memory: "--gpu-memory-utilization",
    graphs: "--max-cudagraph-capture-size",
    drafts: "num_speculative_tokens",
    speculation: "--speculative-config",
    prefill: "--max-num-batched-tokens",
};
