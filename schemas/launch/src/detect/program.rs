//! Programs that start an engine.

use schemas::engines::Engine;

use crate::{Launcher, command::Field};

/// Programs that are known by the end of a path whose beginning is a variable.
const AT_PATHS: [&str; 4] = ["launch_server.py", "sglang", "spectune", "vllm"];

/// An engine's program in a command line.
pub struct Program {
    pub engine: Engine,
    pub launcher: Launcher,
    /// Indices of the first and last word that name it.
    pub from: usize,
    pub last: usize,
}

/// The engine's program among some words.
pub fn program(texts: &[&str]) -> Option<Program> {
    for (at, text) in texts.iter().enumerate() {
        let next = texts.get(at + 1).copied().unwrap_or_default();
        let name = text.rsplit('/').next().unwrap_or_default();
        let found = match name {
            "-m" if is_command_of_vllm(next) => subcommand_engine(texts.get(at + 2..).unwrap_or_default(), at + 1),
            "-m" => module_engine(next).map(|(engine, launcher)| (engine, launcher, at + 1)),
            "launch_server.py" => Some((Engine::Sglang, Launcher::Own, at)),
            "api_server.py" if text.contains("vllm") => Some((Engine::Vllm, Launcher::Own, at)),
            "sglang" if next == "serve" => Some((Engine::Sglang, Launcher::Own, at + 1)),
            "vllm" if next == "serve" => Some((Engine::Vllm, Launcher::Own, at + 1)),
            "vllm" if next == "bench" && !is_client_benchmark(texts.get(at + 2)) => {
                // The name of the benchmark is a subcommand.
                let has_name = texts.get(at + 2).is_some_and(|name| !name.starts_with('-') && !name.is_empty());
                Some((Engine::Vllm, Launcher::Benchmark, at + 1 + usize::from(has_name)))
            }
            // Batches of a file, with flags of its own.
            "vllm" if next == "run-batch" => Some((Engine::Vllm, Launcher::Benchmark, at + 1)),
            "spectune" if matches!(next, "serve" | "generate" | "bench") => {
                Some((Engine::Spectune, Launcher::Own, at + 1))
            }
            _ => None,
        };
        if let Some((engine, launcher, last)) = found {
            // The module's own subcommand.
            let subcommand = matches!(texts.get(last + 1), Some(&"serve")) && name == "-m";
            let from = if name == "-m" { last } else { at };
            return Some(Program { engine, launcher, from, last: last + usize::from(subcommand) });
        }
    }
    None
}

/// The program at the end of a path that begins with a variable: `"$VENV/bin/vllm"`. A variable
/// alone is the program that its name contains: `$VLLM_BIN`.
pub fn at_unknown_path(written: &str) -> Option<&'static str> {
    let written = written.trim_matches('"');
    // A variable that holds the folder leaves the program's name readable.
    let is_path = |program: &str| written.strip_suffix(program).is_some_and(|folder| folder.ends_with('/'));
    let found = AT_PATHS.into_iter().find(|program| is_path(program));
    let name = variable(written).map(str::to_ascii_lowercase);
    let is_named = |program: &str| name.as_deref().is_some_and(|name| is_binary(name, program));
    found.or_else(|| ["sglang", "vllm"].into_iter().find(|program| is_named(program)))
}

/// Whether the name of a variable says that it holds a program.
fn is_binary(name: &str, program: &str) -> bool {
    let rest = name.strip_prefix(program);
    rest.is_some_and(|rest| matches!(rest, "" | "_bin" | "_binary" | "_cmd" | "_command" | "_exe" | "_executable"))
}

/// The name of a variable that is a whole word.
fn variable(written: &str) -> Option<&str> {
    let name = written.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    schemas::text::is_variable_name(name).then_some(name)
}

/// The index of `serve` after a variable that holds the program: `"$BIN" serve`.
pub fn variable_that_serves(words: &[Field<'_>]) -> Option<usize> {
    let is_served = |pair: &[Field<'_>]| match pair {
        [program, serve] => {
            program.value.known().is_none()
                && variable(program.value.written().trim_matches('"')).is_some()
                && serve.value.known() == Some("serve")
        }
        _ => false,
    };
    words.windows(2).position(is_served).map(|at| at + 1)
}

/// Whether some words start an engine, regardless of the flags.
pub fn starts_engine(texts: &[&str]) -> bool {
    program(texts).is_some()
}

/// The engine that a Python module starts.
fn module_engine(module: &str) -> Option<(Engine, Launcher)> {
    match () {
        () if takes_server_flags(module) && module.contains("bench") => Some((Engine::Sglang, Launcher::Benchmark)),
        () if takes_server_flags(module) => Some((Engine::Sglang, Launcher::Own)),
        () if is_server_of_vllm(module) => Some((Engine::Vllm, Launcher::Own)),
        () if is_component(module, "sglang") => Some((Engine::Sglang, Launcher::Dynamo)),
        () if is_component(module, "vllm") => Some((Engine::Vllm, Launcher::Dynamo)),
        () => None,
    }
}

/// Whether a module of vLLM is a server or its command: other entry points have flags of their own.
fn is_server_of_vllm(module: &str) -> bool {
    let name = module.strip_prefix("vllm.entrypoints.").map(|name| name.rsplit('.').next().unwrap_or(name));
    module == "vllm" || name.is_some_and(|name| name.ends_with("server") || matches!(name, "main" | "serve"))
}

/// Dynamo's workers: `dynamo.vllm`, `dynamo.sglang.decode_worker`.
fn is_component(module: &str, engine: &str) -> bool {
    let rest = module.strip_prefix("dynamo.").and_then(|rest| rest.strip_prefix(engine));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a module of SGLang reads the server's flags: a server, or a benchmark that runs one in
/// its own process. Clients and tests do not.
fn takes_server_flags(module: &str) -> bool {
    let of_sglang = module.strip_prefix("sglang.").is_some_and(|module| {
        let module = module.strip_prefix("benchmark.").or_else(|| module.strip_prefix("bench_")).unwrap_or(module);
        module.starts_with("launch_server")
            || module.starts_with("srt.server")
            || module.starts_with("srt.entrypoints")
            || ["one_batch", "offline_throughput", "latency"].iter().any(|bench| module.starts_with(bench))
            || module == "compile_deep_gemm"
    });
    of_sglang || module.starts_with("sglang_router.launch_server")
}

/// Whether a module is vLLM's command, which takes subcommands.
fn is_command_of_vllm(module: &str) -> bool {
    matches!(module, "vllm" | "vllm.entrypoints.cli.main")
}

/// What vLLM's command, named by the word at `at`, starts with the words after it; `None` if it
/// starts no engine.
fn subcommand_engine(rest: &[&str], at: usize) -> Option<(Engine, Launcher, usize)> {
    match *rest {
        ["bench", subcommand, ..] if is_client_benchmark(Some(&subcommand)) => None,
        ["bench", subcommand, ..] => {
            let has_name = !subcommand.starts_with('-') && !subcommand.is_empty();
            Some((Engine::Vllm, Launcher::Benchmark, at + 1 + usize::from(has_name)))
        }
        ["run-batch", ..] => Some((Engine::Vllm, Launcher::Benchmark, at + 1)),
        ["chat" | "collect-env" | "complete", ..] => None,
        _ => Some((Engine::Vllm, Launcher::Own, at)),
    }
}

/// `vllm bench serve` measures a server that is already running.
fn is_client_benchmark(subcommand: Option<&&str>) -> bool {
    matches!(subcommand, Some(&("serve" | "sweep" | "startup")))
}
