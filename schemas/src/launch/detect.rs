//! Which engine a command line starts, and where its arguments begin.

use super::{Engine, arguments::MOST_WORDS, script::Line};
use crate::{
    flags::{self, Lookup},
    text::Span,
};

/// What every text with a launch of its own holds.
const EVIDENT: [&str; 6] = ["sglang", "vllm", "spectune", "launch_server", "--speculative", "--model-path"];

/// A command line that starts an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detected {
    pub engine: Engine,
    /// The index of the first word that is an argument of the engine.
    pub first_argument: usize,
    /// The words that stand for the launch.
    pub anchor: Span,
    /// The array that holds the flags, where one does.
    pub array: Option<Span>,
}

/// Looks for an engine in a line; `told` is what the user says every launch is for.
pub(super) fn detect(line: &Line<'_>, told: Option<Engine>) -> Option<Detected> {
    let texts: Vec<&str> = line.words.iter().map(|word| word.value.known().unwrap_or_default()).collect();
    let program = program(&texts);
    let prefixed = texts.iter().position(|text| text.starts_with("--sglang-"));
    let (engine, first_argument, anchor_words) = match (program, prefixed) {
        (Some((engine, first, words)), _) => (engine, first, Some(words)),
        (None, Some(flag)) => {
            let script = texts.iter().take(flag).rposition(|text| text.ends_with(".py"));
            let first = script.map_or_else(|| first_flag(&texts), |script| script + 1);
            (Engine::Slime, first, script.map(|script| (script, script)))
        }
        (None, None) if is_client(&texts) => return None,
        (None, None) => {
            let first = first_flag(&texts);
            let flags = texts.iter().skip(first).take(MOST_WORDS).filter(|text| text.starts_with("--"));
            let (mut bare, mut evident) = (None, false);
            for flag in flags {
                bare = bare.or_else(|| engine_of_flag(flag));
                evident |=
                    ["--speculative-", "--speculative_config", "--model-path"].iter().any(|own| flag.starts_with(own));
            }
            // Flags alone are a launch; after a program that is not known, or in a variable, they are one only where
            // they can be nothing else.
            let alone = first == 0 && !line.is_variable && !texts.is_empty();
            let engine = told.or(bare).filter(|_| alone || evident)?;
            (engine, first, None)
        }
    };
    let engine = told.unwrap_or(engine);
    let first_word = line.words.get(first_argument);
    let significant = prefixed.and_then(|flag| line.words.get(flag)).or(first_word);
    let array = significant
        .and_then(|word| {
            line.arrays.iter().find(|array| array.span.start <= word.span.start && word.span.end <= array.span.end)
        })
        .filter(|_| program.is_none());
    let anchor = match (array, anchor_words) {
        (Some(array), _) => array.name,
        (None, Some((from, to))) => line.words.get(from)?.span.join(line.words.get(to)?.span),
        (None, None) => significant?.span,
    };
    Some(Detected { engine, first_argument, anchor, array: array.map(|array| array.span) })
}

/// Whether a text may hold the launch of an engine.
pub(super) fn names_engine(text: &str) -> bool {
    EVIDENT.iter().any(|name| text.contains(name))
}

/// The engine's program, the index of its first argument, and the first and last of the words that name it.
fn program(texts: &[&str]) -> Option<(Engine, usize, (usize, usize))> {
    for (at, text) in texts.iter().enumerate() {
        let next = texts.get(at + 1).copied().unwrap_or_default();
        let name = text.rsplit('/').next().unwrap_or_default();
        let found = match name {
            "-m" if takes_server_flags(next) => Some((Engine::Sglang, at + 1)),
            "-m" if next.starts_with("vllm.") => Some((Engine::Vllm, at + 1)),
            "launch_server.py" => Some((Engine::Sglang, at)),
            "sglang" if matches!(next, "serve" | "generate") => Some((Engine::Sglang, at + 1)),
            "vllm" if matches!(next, "serve" | "bench") => Some((Engine::Vllm, at + 1)),
            "spectune" if matches!(next, "serve" | "generate" | "bench") => Some((Engine::Spectune, at + 1)),
            _ => None,
        };
        if let Some((engine, last)) = found {
            let from = if name == "-m" { last } else { at };
            return Some((engine, last + 1, (from, last)));
        }
    }
    None
}

/// Whether a module of SGLang reads the server's flags: a server, or what times one in its own process. Clients do not, nor do tests.
fn takes_server_flags(module: &str) -> bool {
    let of_sglang = module.strip_prefix("sglang.").is_some_and(|module| {
        let module = module.strip_prefix("benchmark.").or_else(|| module.strip_prefix("bench_")).unwrap_or(module);
        module.starts_with("launch_server")
            || module.starts_with("srt.")
            || ["one_batch", "offline_throughput", "latency"].iter().any(|bench| module.starts_with(bench))
            || module == "compile_deep_gemm"
    });
    of_sglang || module.starts_with("sglang_router.launch_server")
}

/// Whether a line runs a module of SGLang that is no server.
fn is_client(texts: &[&str]) -> bool {
    let modules = texts.iter().zip(texts.iter().skip(1)).filter(|(flag, _)| **flag == "-m");
    modules.map(|(_, module)| *module).any(|module| module.starts_with("sglang.") && !takes_server_flags(module))
}

fn first_flag(texts: &[&str]) -> usize {
    texts.iter().position(|text| text.starts_with("--")).unwrap_or(texts.len())
}

/// The engine whose flag this is, where a flag tells.
fn engine_of_flag(flag: &str) -> Option<Engine> {
    let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
    match name {
        "speculative-config" | "speculative_config" | "gpu-memory-utilization" | "max-model-len" | "max-num-seqs" => {
            Some(Engine::Vllm)
        }
        _ => match flags::lookup(name, None) {
            Lookup::Exact(_) => Some(Engine::Sglang),
            Lookup::Abbreviation(_) if name.len() >= 5 => Some(Engine::Sglang),
            _ => None,
        },
    }
}
