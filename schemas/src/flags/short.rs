//! The short names of vLLM's flags. SGLang has none.

/// Short names as written, with the long ones without dashes (`engine/arg_utils.py`,
/// `entrypoints/openai/cli_args.py`). `-O` is not among them: what it is short for depends on the
/// version.
const OF_VLLM: [(&str, &str); 21] = [
    ("-ac", "attention-config"),
    ("-asc", "api-server-count"),
    ("-cc", "compilation-config"),
    ("-dcp", "decode-context-parallel-size"),
    ("-dp", "data-parallel-size"),
    ("-dpa", "data-parallel-address"),
    ("-dpb", "data-parallel-backend"),
    ("-dpe", "data-parallel-external-lb"),
    ("-dph", "data-parallel-hybrid-lb"),
    ("-dpl", "data-parallel-size-local"),
    ("-dpn", "data-parallel-rank"),
    ("-dpp", "data-parallel-rpc-port"),
    ("-dpr", "data-parallel-start-rank"),
    ("-ep", "enable-expert-parallel"),
    ("-n", "nnodes"),
    ("-pcp", "prefill-context-parallel-size"),
    ("-pp", "pipeline-parallel-size"),
    ("-q", "quantization"),
    ("-r", "node-rank"),
    ("-sc", "speculative-config"),
    ("-tp", "tensor-parallel-size"),
];

/// The long name, without dashes, of a flag of vLLM that is written by its short one.
pub(crate) fn vllm_long_name(written: &str) -> Option<&'static str> {
    OF_VLLM.iter().find(|(short, _)| *short == written).map(|(_, long)| *long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::vllm;

    #[test]
    fn short_names_are_sorted_and_stand_for_registered_flags() {
        assert!(OF_VLLM.is_sorted());
        for (short, long) in OF_VLLM {
            assert!(vllm().spelling(long).is_some_and(|one| one.canonical == long), "{short}: {long}");
        }
    }
}
