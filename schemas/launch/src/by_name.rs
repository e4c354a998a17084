//! Arguments by the engine's name for their flag.

use schemas::flags::{self, Lookup};

use super::{Argument, Engine, Launch};

impl Launch {
    /// The last argument of a flag of SGLang, by its name without dashes; its older names and
    /// abbreviations count.
    pub fn sglang_argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().rfind(|argument| argument.is_sglang(self.engine, name))
    }

    /// The last argument of a flag of vLLM, by its name without dashes; its short name and
    /// abbreviations count.
    pub fn vllm_argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().rfind(|argument| argument.may_be_vllm(name))
    }
}

impl Argument {
    /// Whether it is a flag of SGLang, which slime writes with a prefix, by its name without
    /// dashes.
    pub fn is_sglang(&self, engine: Engine, name: &str) -> bool {
        let prefix = if engine == Engine::Slime { "--sglang-" } else { "--" };
        let Some(written) = self.flag.value.strip_prefix(prefix) else { return false };
        match flags::lookup(written, None) {
            Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => {
                spelling.canonical == name || spelling.name == name
            }
            Lookup::Ambiguous(_) | Lookup::Unknown => false,
        }
    }

    /// Whether it is a flag of vLLM by its whole name, given without dashes, or its short one.
    pub fn is_vllm(&self, name: &str) -> bool {
        let written = self.flag.value.as_str();
        vllm_long_name(written) == Some(name)
            || written.strip_prefix("--").is_some_and(|written| written.replace('_', "-") == name)
    }

    /// The same, or by an abbreviation.
    fn may_be_vllm(&self, name: &str) -> bool {
        let written = self.flag.value.as_str();
        if let Some(long) = vllm_long_name(written) {
            return long == name;
        }
        let found = written.strip_prefix("--").map(|own| flags::vllm().lookup(&own.replace('_', "-"), None));
        matches!(found, Some(Lookup::Exact(one) | Lookup::Abbreviation(one)) if one.canonical == name)
    }
}

/// The name without dashes of a flag of vLLM that is given by its short name
/// (`engine/arg_utils.py`).
pub fn vllm_long_name(written: &str) -> Option<&'static str> {
    const SHORT: [(&str, &str); 19] = [
        ("-ac", "attention-config"),
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
        ("-tp", "tensor-parallel-size"),
    ];
    SHORT.iter().find(|(short, _)| *short == written).map(|(_, long)| *long)
}
