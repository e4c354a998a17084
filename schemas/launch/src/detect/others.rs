//! Programs that are not engines, although their flags look similar.

use crate::script::Field;

/// Programs and modules that are clients of a server, or evaluate its answers.
const CLIENTS: &[&str] = &[
    "aiperf",
    "bench_serving",
    "benchmark_serving",
    "curl",
    "evalscope",
    "genai-perf",
    "guidellm",
    "lighteval",
    "lm_eval",
    "perf_analyzer",
];

/// Other engines and trainers with flags for speculation.
const OTHERS: &[&str] = &[
    "fastdeploy",
    "huggingfaceserver",
    "ktransformers",
    "llama-cli",
    "llama-server",
    "llama-speculative",
    "lmdeploy",
    "mindie",
    "mlx_lm",
    "mlx_vlm",
    "optimum-cli",
    "rtp_llm",
    "sgl_jax",
    "specforge",
    "tensorrt_llm",
    "text-generation-launcher",
    "tokenspeed",
    "trl",
    "trtllm-bench",
    "trtllm-eval",
    "trtllm-serve",
    "ts",
    "xllm",
];

/// Flags that only SGLang's server for diffusion models has, without dashes.
const OF_DIFFUSION: &[&str] = &[
    "cfg-parallel-size",
    "decoder-urls",
    "denoiser-urls",
    "disagg-role",
    "dit-cpu-offload",
    "dit-layerwise-offload",
    "enable-cfg-parallel",
    "encoder-urls",
    "image-encoder-cpu-offload",
    "num-gpus",
    "num-inference-steps",
    "performance-mode",
    "ring-degree",
    "sp-degree",
    "text-encoder-cpu-offload",
    "ulysses-degree",
    "use-fsdp-inference",
    "vae-cpu-offload",
];

/// Whether a line runs a client, or an engine that is not checked.
pub fn is_client(texts: &[&str]) -> bool {
    let is = |list: &[&str], text: &str| {
        let name = text.rsplit('/').next().unwrap_or_default();
        let stem = name.strip_suffix(".py").unwrap_or(name);
        list.iter().any(|known| stem == *known || text.split('.').next() == Some(known))
    };
    let named =
        texts.iter().take_while(|text| !text.starts_with("--")).any(|text| is(CLIENTS, text) || is(OTHERS, text));
    let modules = texts.iter().zip(texts.iter().skip(1)).filter(|(flag, _)| **flag == "-m").map(|(_, module)| *module);
    let of_engine = |module: &str| {
        // Programs that start an engine were checked earlier.
        ["sglang.", "vllm.", "sglang_router.", "dynamo."].iter().any(|package| module.starts_with(package))
    };
    let subcommands = texts.windows(2).any(|pair| {
        matches!(pair, [program, "bench" | "chat" | "complete" | "run-batch" | "collect-env"] if program.ends_with("vllm"))
            || matches!(pair, [program, "generate" | "version"] if program.ends_with("sglang"))
    });
    named
        || subcommands
        || modules.into_iter().any(|module| of_engine(module) || is(CLIENTS, module) || is(OTHERS, module))
}

/// Parts of the names of images of other engines.
const OTHER_IMAGES: [&str; 12] = [
    "aphrodite",
    "huggingfaceserver",
    "litellm",
    "llama.cpp",
    "lmdeploy",
    "ollama",
    "tensorrt",
    "text-embeddings-inference",
    "text-generation-inference",
    "tgi",
    "tritonserver",
    "xinference",
];

/// Whether an image contains another engine, judging by its name.
pub fn is_image(image: &str) -> bool {
    let name = image.rsplit('/').next().and_then(|name| name.split([':', '@']).next()).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    OTHER_IMAGES.iter().any(|other| name == *other || (other.len() > 3 && name.contains(other)))
}

/// Whether words are the list of flags that a parser prints (`--dtype DTYPE, --max-len MAX_LEN`), or come from a table
/// or a sentence.
pub fn is_listing(words: &[&str]) -> bool {
    let ends = |word: &&str| word.ends_with([',', ']']) && !word.contains(['{', '[', '"']);
    let is_name = |word: &str| {
        let name = word.trim_matches(['[', ']', ',']);
        name.len() > 1 && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    // Flags without any value are a list of names.
    let are_names = words.len() > 1 && words.iter().all(|word| word.starts_with("--") && !word.contains('='));
    are_names || words.iter().any(|word| (ends(word) && is_name(word)) || matches!(*word, "|" | "←" | "→"))
}

/// Whether the server serves a diffusion model, which has other flags.
pub fn is_diffusion(flags: &[&str]) -> bool {
    let name = |flag: &&str| {
        flag.strip_prefix("--").and_then(|name| name.split('=').next()).map(|name| name.replace('_', "-"))
    };
    flags.iter().filter_map(name).any(|name| OF_DIFFUSION.contains(&name.as_str()))
}

/// Whether a program other than slime and miles forwards `--sglang-` flags: SpecForge, which trains drafts.
pub fn takes_prefixed_flags(texts: &[&str]) -> bool {
    let of_trainer = ["--target-model-path", "--draft-model-config", "--target-model-backend", "--draft-config-path"];
    texts.iter().any(|text| of_trainer.iter().any(|own| text.starts_with(own)))
}

/// Whether the words before the flags can be a program that passes its flags on to an engine.
pub fn may_be_wrapper(before: &[Field<'_>]) -> bool {
    let Some(first) = before.first() else { return false };
    let Some(program) = first.value.known() else { return true };
    let is_assignment = program.contains('=');
    let in_program = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./~+".contains(&byte);
    let is_program = program.bytes().all(in_program) && !program.ends_with(['.', ':']);
    let is_path = program.contains('/') || program.contains('.');
    // A capitalised word starts a sentence, unless it is a path.
    let reads_as_program = is_path || !program.bytes().any(|byte| byte.is_ascii_uppercase());
    // Commands have few operands before their first flag; sentences have many words.
    let few =
        before.iter().filter(|word| word.value.known().is_none_or(|text| !text.contains(['/', '.', '=', '-']))).count()
            <= 3;
    is_assignment || (is_program && reads_as_program && few)
}

/// Whether the words before a program are the start of a sentence.
pub fn is_sentence(before: &[&str]) -> bool {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphabetic() || b"'-".contains(&byte));
    let begins = |text: &str| {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_uppercase())
            && bytes.next().is_none_or(|byte| byte.is_ascii_lowercase())
    };
    let name = |text: &&str| text.trim_end_matches([',', ':', '.']).to_owned();
    let ends = |text: &&str| text.ends_with([',', ':', '.']) && is_word(&name(text)) && name(text).len() > 1;
    before.first().is_some_and(|first| is_word(first) && begins(first)) || before.iter().any(ends)
}

/// Whether the program is a variable of unknown value, which may be the engine's own program.
pub fn is_unknown_program(before: &[Field<'_>]) -> bool {
    matches!(before, [program] if program.value.known().is_none())
}

/// Whether words are prose: they have punctuation that a command would not have.
pub fn is_prose(words: &[&str]) -> bool {
    words.iter().any(|word| {
        let is_json = word.contains(['{', '[']);
        !is_json
            && (word.ends_with([',', ';', ':', ')'])
                || word.starts_with('(')
                || (word.ends_with('.') && !word.contains("..")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        for list in [CLIENTS, OTHERS, OF_DIFFUSION, &OTHER_IMAGES] {
            assert!(list.is_sorted(), "{list:?}");
        }
    }

    #[test]
    fn clients_and_other_engines_are_told_apart() {
        for line in [
            "python3 -m sglang.bench_serving --model-path m",
            "python benchmarks/benchmark_serving.py --speculative-config x",
            "vllm bench serve --model m",
            "lmdeploy serve api_server m --speculative-algorithm eagle3",
            "trtllm-serve m --speculative_config x",
            "python -m fastdeploy.entrypoints.openai.api_server --speculative-config x",
            "sglang generate --model-path black-forest-labs/FLUX.1-dev",
        ] {
            assert!(is_client(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
        for (before, expected) in
            [("Run it with", true), ("see also:", true), ("nohup python3 -m", false), ("docker run -v /a:/b", false)]
        {
            assert_eq!(is_sentence(&before.split(' ').collect::<Vec<_>>()), expected, "{before}");
        }
        assert!(!is_client(&["./serve.sh", "--speculative-algorithm", "EAGLE"]));
        for (image, expected) in [
            ("ghcr.io/huggingface/text-generation-inference:2.0", true),
            ("ghcr.io/huggingface/tgi", true),
            ("lmsysorg/sglang:v0.5.9", false),
            ("me/tgi-bench", false),
        ] {
            assert_eq!(is_image(image), expected, "{image}");
        }
        for (flags, expected) in [
            ("--dtype DTYPE, --max-model-len MAX_MODEL_LEN", true),
            ("--dtype DTYPE --max-model-len N", false),
            ("--random-seed Random seed | text", true),
            ("--lora-modules [A, B]", false),
        ] {
            assert_eq!(is_listing(&flags.split(' ').collect::<Vec<_>>()), expected, "{flags}");
        }
    }
}
