//! Programs that are not engines, although their flags look similar.

use crate::{
    command::Field,
    programs::{self, ProgramRole},
};

/// Whether a line runs a client, or an engine that is not checked.
pub fn is_client(texts: &[&str]) -> bool {
    let is = |text: &str| {
        let name = programs::base(text);
        let stem = name.strip_suffix(".py").unwrap_or(name);
        let package = text.split('.').next().unwrap_or_default();
        [stem, package]
            .iter()
            .any(|name| programs::has(name, ProgramRole::Client) || programs::has(name, ProgramRole::Engine))
    };
    let named = texts.iter().take_while(|text| !text.starts_with("--")).any(|text| is(text));
    let modules = texts.iter().zip(texts.iter().skip(1)).filter(|(flag, _)| **flag == "-m").map(|(_, module)| *module);
    let of_engine = |module: &str| {
        // Programs that start an engine were checked earlier.
        ["sglang.", "vllm.", "sglang_router.", "dynamo."].iter().any(|package| module.starts_with(package))
    };
    // A package of adapters may name the engine last: `smg_grpc_servicer.tokenspeed`.
    let adapts = |module: &str| module.rsplit('.').next().is_some_and(|last| programs::has(last, ProgramRole::Engine));
    let subcommands = texts.windows(2).any(|pair| {
        matches!(pair, [program, "bench" | "chat" | "complete" | "collect-env"] if program.ends_with("vllm"))
            || matches!(pair, [program, "generate" | "version"] if program.ends_with("sglang"))
    });
    named || subcommands || modules.into_iter().any(|module| of_engine(module) || is(module) || adapts(module))
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

/// Whether the program is a variable of unknown value, which may be the engine's own program.
pub fn is_unknown_program(before: &[Field<'_>]) -> bool {
    matches!(before, [program] if program.value.known().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_other_engines_are_no_launches() {
        for line in [
            "python3 -m sglang.bench_serving --model-path m",
            "python benchmarks/benchmark_serving.py --speculative-config x",
            "vllm bench serve --model m",
            "lmdeploy serve api_server m --speculative-algorithm eagle3",
            "trtllm-serve m --speculative_config x",
            "python -m fastdeploy.entrypoints.openai.api_server --speculative-config x",
            "sglang generate --model-path black-forest-labs/FLUX.1-dev",
            "python3 -m smg_grpc_servicer.tokenspeed --model m --speculative-algorithm MTP",
        ] {
            assert!(is_client(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
        assert!(!is_client(&["./serve.sh", "--speculative-algorithm", "EAGLE"]));
    }
}
