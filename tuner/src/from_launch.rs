//! The sweep that a launch stands for: what the user starts, with its own speculation, with none,
//! and with others.
//!
//! The launch's file is never run. The sweep starts the command that the reader found in it, with
//! the environment that it exports; what the sweep sets itself is taken out of the command first.
//! [`Treated`] says of each flag what became of it.

mod arguments;
mod choose;
mod container;
mod missing;
mod program;
mod rewrite;
mod speculation;
mod start;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use engine::spec::TextSpec;
use launch::{Launch, Options, Parsed, Variables, parse};
use schemas::{
    engines::Engine,
    sweep::{
        Batch, Capture, EngineSettings, KnobLists, Objective, SIMULATED_LENGTH, Search, Space, StrategyName,
        SweepArrivals, SweepFile, SweepModels, SystemKind, SystemSettings, Until, Workload,
    },
    text::Source,
    tree::{NodeSource, TreeShape},
};

pub use choose::choose;
pub use container::{mount_models, on_host};
pub use rewrite::{Rewritten, rewrite};
pub use start::LaunchStart;

/// Seconds that a server may take to start: large models load for a quarter of an hour.
const LONGEST_START_S: f64 = 1_800.0;
/// Draft steps of chains and trees, and branches and verified nodes of trees, that are tried in
/// addition to the launch's own shape.
const STEPS: [usize; 5] = [1, 2, 3, 5, 7];
const BRANCHES: [usize; 1] = [4];
const NODES: [usize; 2] = [8, 16];
/// Chains of a block, as far as the block reaches, and of look-ups, which cost no pass of a draft.
const BLOCK_STEPS: [usize; 6] = [2, 3, 5, 7, 11, 15];
const LOOKUP_STEPS: [usize; 6] = [2, 3, 5, 8, 16, 24];
/// Verified rows and breadths of SGLang's trie.
const TRIE_ROWS: [usize; 4] = [4, 8, 12, 16];
const TRIE_BREADTHS: [usize; 2] = [1, 10];

/// What the user asks for.
#[derive(Clone, Debug)]
pub struct LaunchOverrides {
    /// The requests.
    pub workload: Workload,
    /// Numbers of requests that run together.
    pub concurrency: Vec<usize>,
    /// Borders between buckets of contexts, ascending; none for one bucket.
    pub contexts: Vec<usize>,
    /// Repeats of each configuration.
    pub repeats: usize,
    /// Time after which no further trial starts, in seconds.
    pub seconds: Option<f64>,
    /// When repeats end.
    pub until: Until,
    /// A draft in place of the launch's.
    pub draft: Option<LaunchDraft>,
    /// The words that start the engine, in place of the launch's program.
    pub command: Option<Vec<String>>,
    /// Commands that start and end what the engine does not run as one process here.
    pub start: Option<LaunchStart>,
    /// Whether a container's command is started without the container.
    pub local: bool,
    /// Whether the prefix cache stays as the launch has it.
    pub keep_prefix_cache: bool,
    /// The variables with which the launch was read, for those of its container.
    pub variables: Option<Arc<Variables>>,
}

/// A draft, and how it drafts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchDraft {
    /// Folder or id; empty if it is part of the target.
    pub path: String,
    /// SGLang's name of the algorithm.
    pub algorithm: String,
}

/// A launch as a sweep.
#[derive(Clone, Debug)]
pub struct LaunchSweep {
    /// What is measured.
    pub file: SweepFile,
    /// What became of each flag.
    pub treated: Vec<Treated>,
    /// The launch's own shape, if it speculates and its shape is known.
    pub own: Option<TreeShape>,
    /// The draft, as the launch or the user names it.
    pub draft: LaunchDraft,
}

/// A flag of the launch, and what is measured in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Treated {
    /// As the launch has it, with its values.
    pub launch: String,
    /// What is measured; the same text if nothing changed.
    pub measured: String,
    /// The reason for a difference, or empty.
    pub why: &'static str,
}

/// How the servers of a launch are started.
#[derive(Debug)]
struct LaunchProgram {
    command: Vec<String>,
    env: BTreeMap<String, String>,
    treated: Vec<Treated>,
    /// The folder in which the command is started, if the launch names one.
    folder: Option<String>,
}

/// Reads the launches of a text with the words that are run.
pub fn read_to_run(source: &Source, variables: &Arc<Variables>) -> Parsed {
    parse(source, &Options { variables: Some(Arc::clone(variables)), ..Options::default() })
}

/// The variables of this process's environment, and the given ones.
pub fn variables(given: BTreeMap<String, String>) -> Arc<Variables> {
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Arc::new(Variables { environment: environment.collect(), fixed: given })
}

/// The sweep of a launch, as read by [`read_to_run`].
///
/// # Errors
/// With every reason why it cannot be measured so, each a sentence that says what to do.
pub fn sweep_of(source: &Source, launch: &Launch, wanted: &LaunchOverrides) -> Result<LaunchSweep, Vec<String>> {
    let mut wrong = choose::unfit(launch, wanted.start.is_some());
    let mut missing = missing::Missing::default();
    let program = program::launch_program(source, launch, wanted, &mut missing);
    let arguments = arguments::launch_arguments(launch, wanted, &mut missing);
    let speculation = speculation::launch_speculation(launch, wanted.draft.as_ref());
    wrong.extend(missing.reasons());
    wrong.extend(program.as_ref().err().cloned());
    wrong.extend(speculation.as_ref().err().cloned());
    let target = arguments.target.clone();
    if target.is_none() {
        wrong.push("the launch names no model".into());
    }
    wrong.extend(too_many(&arguments, &wanted.concurrency));
    let (Ok(program), Ok(speculation), Some(target)) = (program, speculation, target) else { return Err(wrong) };
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let space = space(launch.engine, &speculation);
    let program = LaunchProgram { env: with_inherited(program.env, wanted), ..program };
    let from_folder = |model: &str| in_folder(program.folder.as_deref(), model);
    let file = SweepFile {
        models: SweepModels {
            target: from_folder(&target),
            draft: match &wanted.draft {
                Some(draft) => draft.path.clone(),
                None => from_folder(&speculation.draft.path),
            },
            model_shape: None,
            num_layers: None,
            acceptance: None,
            algorithm: speculation.draft.algorithm.clone(),
            second_source: None,
            dtype: arguments.dtype.clone().unwrap_or_else(|| "auto".into()),
            quantization: None,
            fp8_compute: None,
            kv_cache_dtype: None,
        },
        drafts: Vec::new(),
        system: SystemSettings {
            kind: kind(launch.engine),
            command: program.command,
            extra_args: arguments.kept.clone(),
            env: program.env,
            speculative_config: speculation.keys,
            keep_prefix_cache: arguments.keeps_cache,
            address: wanted.start.as_ref().and_then(|start| start.address.clone()),
            start_timeout_s: LONGEST_START_S,
            ..SystemSettings::default()
        },
        engine: EngineSettings {
            context_length: arguments.context_length,
            max_running_requests: arguments.max_running_requests,
            capture_sizes: arguments.capture_sizes.clone(),
            ..EngineSettings::default()
        },
        workload: wanted.workload.clone(),
        batch: Batch { sizes: Some(wanted.concurrency.clone()), contexts: wanted.contexts.clone() },
        arrivals: SweepArrivals::default(),
        space,
        knobs: KnobLists::default(),
        capture: Capture::default(),
        search: Search {
            // Round times of servers are predicted by batch, not by context.
            strategy: if wanted.contexts.is_empty() { StrategyName::Guided } else { StrategyName::Grid },
            repeats: wanted.repeats,
            seconds: wanted.seconds,
            until: wanted.until,
            ..Search::default()
        },
        objective: Objective::default(),
    };
    let mut treated = program.treated;
    treated.extend(arguments.treated);
    treated.extend(arguments.max_running_requests.is_none().then(|| Treated {
        launch: "no limit of running requests".into(),
        measured: wanted.concurrency.iter().max().map_or_else(String::new, ToString::to_string),
        why: "as many as are measured together; a limit in the launch is kept",
    }));
    if file.system.simulates_acceptance() {
        treated.push(Treated {
            launch: "simulated acceptance".into(),
            measured: "as it is".into(),
            why: "accept lengths and speed-ups say nothing about text",
        });
    }
    Ok(LaunchSweep { file, treated, own: speculation.own, draft: speculation.draft })
}

/// Adds the variable that simulates acceptance if the servers would inherit it, so that it is known
/// what they do.
fn with_inherited(mut env: BTreeMap<String, String>, wanted: &LaunchOverrides) -> BTreeMap<String, String> {
    let inherited = wanted.variables.as_ref().and_then(|variables| variables.environment.get(SIMULATED_LENGTH));
    if let Some(length) = inherited {
        env.entry(SIMULATED_LENGTH.to_owned()).or_insert_with(|| length.clone());
    }
    env
}

/// A model as it is found from here: a launch names folders relative to the one that it starts in.
fn in_folder(folder: Option<&str>, model: &str) -> String {
    let is_relative = !model.is_empty() && Path::new(model).is_relative();
    match folder.map(|folder| Path::new(folder).join(model)).filter(|place| is_relative && place.is_dir()) {
        Some(place) => place.display().to_string(),
        None => model.to_owned(),
    }
}

fn kind(engine: Engine) -> SystemKind {
    match engine {
        Engine::Vllm => SystemKind::Vllm,
        // spectune's server speaks SGLang's API.
        Engine::Sglang | Engine::Slime | Engine::Spectune => SystemKind::Sglang,
    }
}

/// The launch's own shape, and those around what engines use with such a draft.
fn space(engine: Engine, speculation: &speculation::LaunchSpeculation) -> Space {
    let nodes = speculation::nodes(&speculation.draft);
    let shapes: Vec<TreeShape> = match nodes {
        NodeSource::Beams => {
            let trees = STEPS.iter().flat_map(|steps| BRANCHES.map(|topk| (*steps, topk)));
            let trees = trees.flat_map(|(steps, topk)| NODES.map(|nodes| TreeShape::new(steps, topk, nodes)));
            let trees = trees.filter_map(Result::ok).filter(|_| engine != Engine::Vllm);
            STEPS.map(TreeShape::chain).into_iter().chain(trees).collect()
        }
        NodeSource::Block(_) => BLOCK_STEPS.map(TreeShape::chain).to_vec(),
        NodeSource::Text(text) if text.branches => {
            let rule = TextSpec::named(&speculation.draft.algorithm);
            let each = TRIE_ROWS.iter().flat_map(|rows| TRIE_BREADTHS.map(|breadth| (*rows, breadth)));
            each.filter_map(|(rows, breadth)| Some(rule?.shape_with_rows(rows, breadth))).collect()
        }
        NodeSource::Text(_) => LOOKUP_STEPS.map(TreeShape::chain).to_vec(),
    };
    let shapes = shapes.iter().filter(|shape| nodes.check(**shape).is_ok());
    Space {
        shapes: shapes.map(ToString::to_string).collect(),
        current: speculation.own.map(|own| own.to_string()),
        ..Space::default()
    }
}

/// A concurrency above what the launch lets run.
fn too_many(arguments: &arguments::LaunchArguments, concurrency: &[usize]) -> Option<String> {
    let (most, limit) = (concurrency.iter().max()?, arguments.max_running_requests?);
    (*most > limit).then(|| {
        format!(
            "the launch runs at most {limit} requests together, but --concurrency asks for {most}: lower \
             --concurrency, or raise the limit in the launch"
        )
    })
}
