//! What becomes of each argument of a launch.

use launch::{Argument, Launch, Syntax};
use schemas::{engines::Engine, flags::Key, quoting::quoted, secrets};

use super::{LaunchOverrides, Treated, missing::Missing, speculation};

const VARIED: (&str, &str) = ("varied", "what the sweep tries");
const OWN_ADDRESS: (&str, &str) =
    ("127.0.0.1 and a free port", "the measured server is reached from this machine only");
const NO_KEY: (&str, &str) = ("none", OWN_ADDRESS.1);
const NO_LOG: (&str, &str) = ("left out", "its requests are not the users'");
const OWN_NAME: (&str, &str) = ("a name for each start", "so that no other server is measured by mistake");
const SET_BY_SWEEP: (&str, &str) = ("set by the sweep", "its figures come from there");
const WHOLE_TREES: (&str, &str) = ("left out", "servers are measured with whole trees");
const BY_START: (&str, &str) = ("left out", "the start command sets it");
const CACHE_ON: (&str, &str) = ("flushed before every trial", "so that repeats do not find their own prompts in it");
const PER_CHAIN: (&str, &str) = ("the same batch sizes", "they count tokens, which depend on the chain");
const CACHE_OFF: (&str, &str) = ("off", "otherwise repeats find their own prompts in the cache");

/// The arguments of a launch, taken apart.
#[derive(Debug, Default)]
pub struct LaunchArguments {
    /// Words that every start gets.
    pub kept: Vec<String>,
    /// What became of the flags.
    pub treated: Vec<Treated>,
    /// Folder or id of the model.
    pub target: Option<String>,
    /// Type of weights and activations.
    pub dtype: Option<String>,
    /// Longest sequence in tokens.
    pub context_length: Option<usize>,
    /// Most requests that run together.
    pub max_running_requests: Option<usize>,
    /// Whether the prefix cache is on while it is measured.
    pub keeps_cache: bool,
    /// Batch sizes with a CUDA graph, if the launch lists them.
    pub capture_sizes: Vec<usize>,
}

/// Takes the arguments of a launch apart.
pub fn launch_arguments(launch: &Launch, wanted: &LaunchOverrides, missing: &mut Missing) -> LaunchArguments {
    let mut found = LaunchArguments::default();
    let mut caches = true;
    let verified = speculation::launch_speculation(launch, None)
        .ok()
        .and_then(|own| own.own)
        .map_or(1, |own| own.num_draft_tokens);
    for argument in &launch.arguments {
        let Some(name) = name(argument, launch.engine) else { continue };
        // Values of flags that are left out need not be known.
        let shown = shown(argument);
        let by_start = (wanted.start.is_some() && is_of_several(&name)).then_some(BY_START);
        if let Some((measured, why)) =
            by_start.or_else(|| argument.key.and_then(set_by_the_sweep)).or_else(|| replaced(&name, launch.engine))
        {
            caches &= !(argument.key == Some(Key::DisableRadixCache) || name == "no-enable-prefix-caching");
            // What the launch runs now cannot be measured without it.
            if (measured, why) == VARIED && wanted.draft.is_none() && !argument.in_branch {
                argument.values.iter().for_each(|value| _ = missing.word(&value.value));
            }
            // Named once, below.
            if name != "enable-prefix-caching" {
                found.treated.push(Treated { launch: shown, measured: measured.into(), why });
            }
            continue;
        }
        if is_of_the_script(argument) {
            found.treated.push(Treated {
                launch: shown,
                measured: "left out".into(),
                why: "the script is measured without arguments",
            });
            continue;
        }
        let values: Vec<Option<String>> = argument.values.iter().map(|value| missing.word(&value.value)).collect();
        let Some(values) = values.into_iter().collect::<Option<Vec<String>>>() else { continue };
        if argument.in_branch {
            found.treated.push(Treated {
                launch: shown,
                measured: "left out".into(),
                why: "only one branch of the script adds it",
            });
            continue;
        }
        match (argument.key, name.as_str()) {
            (Some(Key::ModelPath), _) => found.target = values.into_iter().next(),
            (Some(Key::Dtype), _) => found.dtype = values.into_iter().next(),
            (Some(Key::ContextLength), _) if count(&values).is_some() => found.context_length = count(&values),
            // A single value of the older flag means all sizes up to it.
            (_, "cudagraph-capture-sizes" | "cuda-graph-sizes")
                if (name == "cudagraph-capture-sizes" || values.len() > 1)
                    && per_request(&values, verified).is_some() =>
            {
                found.capture_sizes = per_request(&values, verified).unwrap_or_default();
                found.treated.push(Treated { launch: shown, measured: PER_CHAIN.0.into(), why: PER_CHAIN.1 });
            }
            (Some(Key::CudaGraphBs), _) if per_request(&values, 1).is_some() => {
                found.capture_sizes = per_request(&values, 1).unwrap_or_default();
            }
            (_, "rollout-num-gpus-per-engine") => {
                found.kept.extend(["--tp-size".to_owned()].into_iter().chain(values));
            }
            (key, name)
                if (key == Some(Key::MaxRunningRequests) || name == "max-num-seqs") && count(&values).is_some() =>
            {
                found.max_running_requests = count(&values);
            }
            (_, name) => {
                // The keys of TOML have no dashes.
                if !argument.is_positional() || launch.syntax == Syntax::Toml {
                    found.kept.push(format!("--{name}"));
                }
                found.kept.extend(values);
            }
        }
    }
    if caches {
        found.keeps_cache = wanted.keep_prefix_cache;
        let (measured, why) = if wanted.keep_prefix_cache { CACHE_ON } else { CACHE_OFF };
        found.treated.push(Treated { launch: "prefix cache on".into(), measured: measured.into(), why });
    }
    found
}

/// Whether a flag says how several servers or nodes find each other.
fn is_of_several(name: &str) -> bool {
    const EXACT: [&str; 7] =
        ["nnodes", "node-rank", "dist-init-addr", "master-addr", "master-port", "headless", "kv-transfer-config"];
    EXACT.contains(&name)
        || ["disaggregation-", "data-parallel-address", "data-parallel-rpc"].iter().any(|start| name.starts_with(start))
}

/// Batch sizes of capture sizes that count the tokens which each request verifies; `None` if one is
/// no multiple, or no number.
fn per_request(values: &[String], verified: usize) -> Option<Vec<usize>> {
    let size = |value: &String| {
        value.parse().ok().filter(|tokens: &usize| tokens.is_multiple_of(verified)).map(|tokens| tokens / verified)
    };
    values.iter().map(size).collect()
}

/// Whether an argument is all that the script itself is given.
fn is_of_the_script(argument: &Argument) -> bool {
    argument.is_positional() && matches!(argument.flag.value.trim_matches('"'), "$@" | "$*" | "${@}" | "${*}")
}

/// The name of an argument for the engine's own server, without dashes; `None` if it is another
/// program's.
fn name(argument: &Argument, engine: Engine) -> Option<String> {
    let written = argument.flag.value.as_str();
    // Its short names are not those of flags with two dashes.
    if engine == Engine::Vllm
        && let Some(name) = engine.flag_name(written)
    {
        return Some(name.into_owned());
    }
    let written = written.trim_start_matches('-').replace('_', "-");
    if engine != Engine::Slime {
        return Some(written);
    }
    match written.strip_prefix("sglang-") {
        // The router in front of slime's servers takes these.
        Some(name) if name.starts_with("router-") => None,
        Some(name) => Some(name.to_owned()),
        None if argument.key == Some(Key::ModelPath) || written == "rollout-num-gpus-per-engine" => Some(written),
        None => None,
    }
}

/// What is measured in place of a flag, by its meaning: flags are abbreviated and have aliases.
fn set_by_the_sweep(key: Key) -> Option<(&'static str, &'static str)> {
    match key {
        Key::SpeculativeAlgorithm
        | Key::SpeculativeDraftModelPath
        | Key::SpeculativeNumSteps
        | Key::SpeculativeEagleTopk
        | Key::SpeculativeNumDraftTokens
        | Key::SpeculativeDflashBlockSize
        | Key::SpeculativeDsparkBlockSize
        | Key::SpeculativeNgramMaxBfsBreadth
        | Key::SpeculativeAdaptive
        | Key::SpeculativeAdaptiveConfig => Some(VARIED),
        Key::SpeculativeRowBudget => Some(WHOLE_TREES),
        Key::DisableRadixCache => Some(CACHE_OFF),
        _ => None,
    }
}

/// The same for flags that spectune has no meaning for.
fn replaced(name: &str, engine: Engine) -> Option<(&'static str, &'static str)> {
    match name {
        "log-requests" if engine == Engine::Spectune => Some(NO_LOG),
        "api-key" | "admin-api-key" => Some(NO_KEY),
        "host" | "port" | "uds" | "root-path" | "nccl-port" | "dist-init-addr" => Some(OWN_ADDRESS),
        "served-model-name" => Some(OWN_NAME),
        "no-enable-prefix-caching" | "enable-prefix-caching" => Some(CACHE_OFF),
        "enable-metrics" | "decode-log-interval" => Some(SET_BY_SWEEP),
        "speculative-config" | "speculative-model" | "num-speculative-tokens" => Some(VARIED),
        _ if name.starts_with("ssl-") => Some(OWN_ADDRESS),
        // vLLM's keys of the configuration as flags of their own.
        _ if name.starts_with("speculative-config.") => Some(VARIED),
        _ => None,
    }
}

/// An argument as the launch has it, with secrets hidden.
fn shown(argument: &Argument) -> String {
    let words = std::iter::once(argument.flag.value.clone()).filter(|_| !argument.is_positional());
    let words: Vec<String> =
        words.chain(argument.values.iter().map(|value| value.value.written().to_owned())).collect();
    let quoted = |word: &String| if word == secrets::HIDDEN { word.clone() } else { quoted(word) };
    secrets::masked_words(&words).iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn count(values: &[String]) -> Option<usize> {
    values.first()?.parse().ok()
}
