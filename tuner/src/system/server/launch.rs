//! The command line of a server for a configuration.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use external::{
    api::ServerInfo,
    failure::{FailureClass, ServerFailure},
    process::ProcessLaunch,
};
use schemas::{
    drafting::{sglang_flags, vllm_method},
    flags::vllm,
    secrets,
    sweep::{SIMULATED_LENGTH, SweepFile, SystemKind, SystemSettings},
    version::EngineVersion,
};
use serde_json::json;

use super::{SystemError, adaptive, container::ContainerCommand};
use crate::{
    prediction::{acceptance, guide::AcceptanceTable},
    trials::configuration::{Configuration, Knobs},
};

/// SGLang's method of simulating acceptance that varies the length between rounds the least.
const SIMULATED_HOW: (&str, &str) = ("SGLANG_SIMULATE_ACC_METHOD", "match-expected");
/// vLLM's environment variable without which it neither reports its configuration nor clears its
/// cache.
const DEVELOPMENT: &str = "VLLM_SERVER_DEV_MODE";
/// SGLang's flag for capture sizes, since 0.5.14 and before.
const CAPTURE_FLAG: &str = "cuda-graph-bs-decode";
const OLD_CAPTURE_FLAG: &str = "cuda-graph-bs";
/// Rounds between two decode lines of SGLang's log. The default is 40, which short runs do not
/// reach.
const LOG_INTERVAL: usize = 10;
/// Flags of spectune's server, each with a value, that are refused if nothing is drafted.
const FLAGS_OF_DRAFTS: [&str; 2] = ["--speculative-second-source", "--simulate-accept-length"];
/// vLLM's flag that makes it report the rounds of a request.
const REQUEST_METRICS: &str = "per-request-spec-decode-metrics";
/// vLLM's flag for capture sizes, since 0.11.2 and before.
const VLLM_CAPTURE_FLAG: &str = "cudagraph-capture-sizes";
const OLD_VLLM_CAPTURE_FLAG: &str = "cuda-graph-sizes";
/// vLLM's flag for the attention backend, since 0.13, and the variable before.
const VLLM_ATTENTION_FLAG: &str = "attention-backend";
const VLLM_ATTENTION_VARIABLE: &str = "VLLM_ATTENTION_BACKEND";
/// Newer flags of vLLM, each with the newest version that does not have it, oldest first.
const NEWER_VLLM_FLAGS: [(&str, EngineVersion); 2] =
    [(VLLM_CAPTURE_FLAG, EngineVersion::new(0, 11, 0)), (VLLM_ATTENTION_FLAG, EngineVersion::new(0, 12, 0))];
/// vLLM's name of the method of all MTP layers, since 0.11, and the one that earlier versions take
/// and replace by that of the model.
const MTP_METHOD: &str = "mtp";
const OLD_MTP_METHOD: &str = "deepseek_mtp";
const FIRST_WITH_MTP: EngineVersion = EngineVersion::new(0, 11, 0);

/// A draft of several.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedDraft {
    /// The name in configurations.
    pub name: String,
    /// As [`LaunchPlan::draft`].
    pub draft: String,
    /// As [`LaunchPlan::algorithm`].
    pub algorithm: String,
}

/// What the command lines of a sweep have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchPlan {
    /// The engine.
    pub kind: SystemKind,
    /// Folder or id of the target.
    pub target: String,
    /// Folder or id of the draft; empty if it is part of the target.
    pub draft: String,
    /// SGLang's name of the algorithm.
    pub algorithm: String,
    /// The drafts of a sweep of several; empty for one.
    pub drafts: Vec<NamedDraft>,
    /// Type of weights and activations; `auto` is not passed on.
    pub dtype: String,
    /// Quantisation of weights while loading.
    pub quantization: Option<String>,
    /// Dtype of the KV cache.
    pub kv_cache_dtype: Option<String>,
    /// Longest sequence in tokens, if the sweep sets it.
    pub context_length: Option<usize>,
    /// Maximum number of running requests.
    pub max_running_requests: usize,
    /// Number of GPUs of a tensor-parallel group.
    pub tp_size: usize,
    /// Settings of `[engine]` that differ from the defaults.
    pub knobs: Knobs,
    /// Imported accept lengths, which servers simulate: times are real then, texts are not.
    pub acceptance: Option<AcceptanceTable>,
    /// The version; known once a server has answered.
    pub version: Option<EngineVersion>,
    /// Whether it is spectune's own server, which takes SGLang's flags; also known then.
    pub is_own: bool,
    /// The name of SGLang's flag for capture sizes.
    pub capture_flag: &'static str,
    /// Whether one start can run a different chain at each batch size, or why not; known once a
    /// server has answered.
    pub tables: Result<(), String>,
}

/// Words of a command line without [`FLAGS_OF_DRAFTS`].
fn without_drafts(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if !FLAGS_OF_DRAFTS.contains(&name) {
            kept.push(word.clone());
        } else if name == word {
            // Its value goes with it.
            words.next();
        }
    }
    kept
}

impl LaunchPlan {
    /// The plan of a sweep file whose paths refer to a folder.
    pub fn from_file(file: &SweepFile, folder: &std::path::Path, max_running_requests: usize) -> Self {
        let defaults = schemas::sweep::EngineSettings::default();
        let engine = &file.engine;
        let model = |name: &str| {
            // A folder is relative to the sweep file's folder; anything else is a hub id, which the
            // engine looks up.
            let path = folder.join(name);
            let path = path.canonicalize().unwrap_or(path);
            if path.is_dir() { path.display().to_string() } else { name.to_owned() }
        };
        let draft = |file: &SweepFile| match file.models.draft.as_str() {
            "" => String::new(),
            name => model(name),
        };
        let each = file.each_draft();
        let drafts = each.iter().filter(|_| file.has_several_drafts()).map(|one| NamedDraft {
            name: one.name.clone(),
            draft: draft(&one.file),
            algorithm: one.file.models.algorithm.clone(),
        });
        let first = each.first().map_or(file, |one| &one.file);
        Self {
            kind: file.system.kind,
            target: model(&file.models.target),
            draft: draft(first),
            algorithm: first.models.algorithm.clone(),
            drafts: drafts.collect(),
            dtype: file.models.dtype.clone(),
            quantization: file.models.quantization.clone(),
            kv_cache_dtype: file.models.kv_cache_dtype.clone(),
            context_length: engine.context_length,
            max_running_requests,
            tp_size: engine.tp_size,
            knobs: Knobs {
                capture_sizes: Some(engine.capture_sizes.clone()).filter(|sizes| !sizes.is_empty()),
                // Defaults of spectune's own engine are not passed on: other engines have better
                // ones.
                mem_fraction_static: (engine.mem_fraction_static != defaults.mem_fraction_static)
                    .then_some(crate::trials::configuration::Real(engine.mem_fraction_static)),
                page_size: (engine.page_size != defaults.page_size).then_some(engine.page_size),
                chunked_prefill_size: (engine.chunked_prefill_size != defaults.chunked_prefill_size)
                    .then_some(engine.chunked_prefill_size),
                ..Knobs::default()
            },
            acceptance: None,
            version: None,
            is_own: false,
            capture_flag: CAPTURE_FLAG,
            tables: Err("the server's version is unknown before the first start".into()),
        }
    }

    /// The plan of a configuration's draft: in a sweep of several, another draft is another start.
    pub fn for_draft(&self, configuration: &Configuration) -> Cow<'_, Self> {
        match self.drafts.iter().find(|one| one.name == configuration.draft) {
            Some(NamedDraft { draft, algorithm, .. }) => {
                let (draft, algorithm) = (draft.clone(), algorithm.clone());
                Cow::Owned(Self { draft, algorithm, drafts: Vec::new(), ..self.clone() })
            }
            None => Cow::Borrowed(self),
        }
    }

    /// Updates the plan from a server's description of itself.
    pub fn learn(&mut self, info: &ServerInfo) {
        self.version = info.version.as_deref().and_then(|text| text.parse().ok());
        self.is_own = info.is_spectune();
        self.tables = adaptive::serves_tables(self, info);
    }

    /// Switches to the older name of a flag that a start refused as unknown; returns whether
    /// another start may help.
    pub fn take_older_flag(&mut self, failure: &ServerFailure) -> bool {
        let refuses = |flag: &str| {
            failure.class == FailureClass::Configuration && failure.evidence.contains(&format!("--{flag}"))
        };
        if self.kind == SystemKind::Vllm {
            // All flags follow the version, which is not known before a server has answered.
            let is_unknown = self.version.is_none() && failure.evidence.contains("unrecognized arguments");
            let older = NEWER_VLLM_FLAGS.iter().find(|(flag, _)| is_unknown && refuses(flag));
            self.version = self.version.or(older.map(|(_, version)| *version));
            return older.is_some();
        }
        let may_help = refuses(CAPTURE_FLAG) && self.capture_flag == CAPTURE_FLAG;
        if may_help {
            self.capture_flag = OLD_CAPTURE_FLAG;
        }
        may_help
    }

    /// The accept length that the server of a configuration simulates: output tokens per round,
    /// bonus token included.
    ///
    /// # Errors
    /// When lengths are imported, but not for its tree.
    pub fn made_up(&self, configuration: &Configuration) -> Result<Option<f32>, SystemError> {
        let table = self.acceptance.as_ref().filter(|_| !configuration.shape.is_off());
        Ok(table.map(|table| acceptance::length_of(table, configuration)).transpose()?)
    }

    /// Checks whether the engine can run a configuration.
    ///
    /// # Errors
    /// When it cannot; with the reason.
    pub fn supports(&self, configuration: &Configuration) -> Result<(), SystemError> {
        if let Cow::Owned(plan) = self.for_draft(configuration) {
            return plan.supports(configuration);
        }
        let shape = configuration.shape;
        let refuse = |words: String| Err(SystemError::Unsupported(words));
        if let Some(shape) = configuration.shapes().find(|shape| shape.row_budget.is_some()) {
            return refuse(format!("only spectune's own engine verifies a budget of rows, as {shape} does"));
        }
        if !configuration.table.is_empty() {
            self.tables.clone().map_err(SystemError::Unsupported)?;
            adaptive::accepts(self, configuration).map_err(SystemError::Unsupported)?;
            if let Some(tree) = configuration.shapes().find(|shape| shape.topk > 1) {
                return refuse(format!("a server's table may contain only chains, but {tree} is a tree"));
            }
        }
        if self.kind == SystemKind::Vllm && shape.topk > 1 {
            return refuse(format!("vLLM drafts chains, not trees: {shape} has topk {}", shape.topk));
        }
        if self.kind == SystemKind::Vllm && !shape.is_off() && vllm_method(&self.algorithm).is_none() {
            return refuse(format!("vLLM has no counterpart of the algorithm {}", self.algorithm));
        }
        if self.kind != SystemKind::Vllm && !shape.is_off() && sglang_flags(&self.algorithm, shape).is_none() {
            return refuse(format!("SGLang does not draft {shape} with {}", self.algorithm));
        }
        Ok(())
    }

    /// The launch of a configuration's server.
    ///
    /// # Errors
    /// When the engine cannot run it.
    pub fn launch(
        &self,
        settings: &SystemSettings,
        configuration: &Configuration,
        served_name: &str,
        port: u16,
        log: PathBuf,
    ) -> Result<ProcessLaunch, SystemError> {
        if let Cow::Owned(plan) = self.for_draft(configuration) {
            return plan.launch(settings, configuration, served_name, port, log);
        }
        self.supports(configuration)?;
        let (program, first) = settings.command.split_first().ok_or_else(|| {
            SystemError::Unsupported("system.command is empty: it must be the command that starts a server".into())
        })?;
        let mut args = first.to_vec();
        let made_up = self.made_up(configuration)?;
        args.extend(match self.kind {
            SystemKind::Vllm => self.vllm(settings, configuration, made_up),
            SystemKind::Spectune | SystemKind::Sglang => self.sglang(settings, configuration, &log),
        });
        let flag = |name: &str, value: &str| [format!("--{name}"), value.to_owned()];
        args.extend(flag("served-model-name", served_name));
        // A server that is reached at another address has its own.
        if settings.address.is_none() {
            args.extend(flag("host", "127.0.0.1"));
            args.extend(flag("port", &port.to_string()));
        }
        // Last, so that they can replace any flag above: the last one wins.
        args.extend(match self.kind {
            SystemKind::Spectune if configuration.is_off() => without_drafts(&settings.extra_args),
            _ => settings.extra_args.clone(),
        });
        let mut env: Vec<(String, String)> =
            settings.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        if let (Some(length), SystemKind::Sglang | SystemKind::Spectune) = (made_up, self.kind) {
            env.extend([
                (SIMULATED_LENGTH.to_owned(), length.to_string()),
                (SIMULATED_HOW.0.to_owned(), SIMULATED_HOW.1.to_owned()),
            ]);
        }
        let by_variable = self.attention_by_variable(configuration);
        if let Some(backend) = by_variable.clone() {
            env.retain(|(name, _)| name != VLLM_ATTENTION_VARIABLE);
            env.push((VLLM_ATTENTION_VARIABLE.to_owned(), backend));
        }
        if self.kind == SystemKind::Vllm && !settings.env.contains_key(DEVELOPMENT) {
            env.push((DEVELOPMENT.to_owned(), "1".to_owned()));
        }
        let words: Vec<String> = std::iter::once(program.clone()).chain(args).collect();
        let launch = in_container(words, served_name, env, log)?;
        if by_variable.is_some() && launch.container.is_some() {
            return Err(SystemError::Unsupported(format!(
                "vLLM before 0.13 takes the attention backend from {VLLM_ATTENTION_VARIABLE} only, which does not reach into \
                 the container: leave out knobs.attention_backend, and set the variable in system.command (-e)"
            )));
        }
        Ok(launch)
    }

    /// `log` is the log of the start; the file of a table is next to it ([`table_file`]).
    fn sglang(&self, settings: &SystemSettings, configuration: &Configuration, log: &Path) -> Vec<String> {
        let mut flags = ServerFlags::default();
        flags.add("model-path", &self.target);
        let shape = adaptive::largest(configuration);
        if !configuration.is_off() {
            flags.add("speculative-algorithm", &self.algorithm);
            if !self.draft.is_empty() {
                flags.add("speculative-draft-model-path", &self.draft);
            }
            // What SGLang does not draft was refused before.
            for (key, number) in sglang_flags(&self.algorithm, shape).unwrap_or_default() {
                flags.add(self.version.map_or(key.flag().name, |version| key.name_in(version)), number);
            }
        }
        if !configuration.table.is_empty() {
            flags.0.push("--speculative-adaptive".into());
            flags.add("speculative-adaptive-config", table_file(log).display());
        }
        self.common(&mut flags, "context-length");
        flags.add_some("tp-size", (self.tp_size > 1).then_some(self.tp_size));
        let knobs = self.knobs(configuration);
        flags.add("max-running-requests", knobs.max_running_requests.unwrap_or(self.max_running_requests));
        flags.add_some("mem-fraction-static", knobs.mem_fraction_static.map(|share| share.0));
        flags.add_some("attention-backend", knobs.attention_backend);
        flags.add_some("page-size", knobs.page_size);
        flags.add_some("chunked-prefill-size", knobs.chunked_prefill_size);
        if let Some(sizes) = knobs.capture_sizes {
            flags.0.push(format!("--{}", self.capture_flag));
            flags.0.extend(sizes.iter().map(ToString::to_string));
        }
        // Otherwise repeats of a workload would find their own prompts in the cache.
        if !settings.keep_prefix_cache {
            flags.0.push("--disable-radix-cache".into());
        }
        // Counters of running and retracted requests.
        flags.0.push("--enable-metrics".into());
        // Only these lines show whether rounds run in graphs. At the first start of a sweep the
        // engine is not known yet.
        flags.add_some("decode-log-interval", (self.version.is_some() && !self.is_own).then_some(LOG_INTERVAL));
        flags.0
    }

    fn vllm(&self, settings: &SystemSettings, configuration: &Configuration, made_up: Option<f32>) -> Vec<String> {
        let mut flags = ServerFlags(vec![self.target.clone()]);
        if !configuration.is_off() {
            let mut speculation = json!({
                "method": self.vllm_method(),
                "num_speculative_tokens": adaptive::largest(configuration).num_steps,
            });
            if !configuration.table.is_empty() {
                let most = configuration.knobs.max_running_requests.unwrap_or(self.max_running_requests);
                speculation[adaptive::SCHEDULE] = adaptive::schedule(&configuration.table, most);
            }
            if !self.draft.is_empty() {
                speculation["model"] = json!(self.draft);
            }
            if let Some(length) = made_up {
                speculation["rejection_sample_method"] = json!("synthetic");
                speculation["synthetic_acceptance_length"] = json!(length);
            }
            // After the keys of the configuration, so that a sweep file can replace each of them.
            for (key, value) in &settings.speculative_config {
                speculation[key] = value.clone();
            }
            flags.add("speculative-config", speculation);
            let tells =
                |version: EngineVersion| vllm().spelling(REQUEST_METRICS)?.exists_in(version).then_some("summary");
            flags.add_some(REQUEST_METRICS, self.version.and_then(tells));
        }
        self.common(&mut flags, "max-model-len");
        flags.add_some("tensor-parallel-size", (self.tp_size > 1).then_some(self.tp_size));
        let knobs = self.knobs(configuration);
        flags.add("max-num-seqs", knobs.max_running_requests.unwrap_or(self.max_running_requests));
        flags.add_some("gpu-memory-utilization", knobs.mem_fraction_static.map(|share| share.0));
        flags.add_some(VLLM_ATTENTION_FLAG, knobs.attention_backend.filter(|_| self.vllm_has(VLLM_ATTENTION_FLAG)));
        flags.add_some("block-size", knobs.page_size);
        flags.add_some("max-num-batched-tokens", knobs.chunked_prefill_size);
        if let Some(sizes) = knobs.capture_sizes {
            let most = knobs.max_running_requests.unwrap_or(self.max_running_requests);
            let sizes = adaptive::capture_sizes(&sizes, configuration, most);
            let is_old = !self.vllm_has(VLLM_CAPTURE_FLAG);
            flags.0.push(format!("--{}", if is_old { OLD_VLLM_CAPTURE_FLAG } else { VLLM_CAPTURE_FLAG }));
            // A single value of the older flag means all sizes up to it.
            flags.0.extend((is_old && sizes.len() == 1 && sizes != [1]).then(|| "1".to_owned()));
            flags.0.extend(sizes.iter().map(ToString::to_string));
        }
        if !settings.keep_prefix_cache {
            flags.0.push("--no-enable-prefix-caching".into());
        }
        flags.0
    }

    /// Whether vLLM has a flag, as far as its version is known.
    fn vllm_has(&self, flag: &str) -> bool {
        self.version.is_none_or(|version| vllm().spelling(flag).is_some_and(|flag| flag.exists_in(version)))
    }

    /// The attention backend of a configuration, if vLLM takes it from a variable only.
    fn attention_by_variable(&self, configuration: &Configuration) -> Option<String> {
        let has_flag = self.kind != SystemKind::Vllm || self.vllm_has(VLLM_ATTENTION_FLAG);
        self.knobs(configuration).attention_backend.filter(|_| !has_flag)
    }

    /// vLLM's name of the method.
    fn vllm_method(&self) -> &'static str {
        match vllm_method(&self.algorithm).map(|method| method.name).unwrap_or_default() {
            MTP_METHOD if self.version.is_some_and(|version| version < FIRST_WITH_MTP) => OLD_MTP_METHOD,
            name => name,
        }
    }

    fn common(&self, flags: &mut ServerFlags, context_length: &str) {
        if self.dtype != "auto" {
            flags.add("dtype", &self.dtype);
        }
        flags.add_some("quantization", self.quantization.as_ref());
        flags.add_some("kv-cache-dtype", self.kv_cache_dtype.as_ref());
        flags.add_some(context_length, self.context_length);
    }

    /// The settings of a configuration: its overrides, else those of the sweep.
    fn knobs(&self, configuration: &Configuration) -> Knobs {
        let (own, sweep) = (&configuration.knobs, &self.knobs);
        Knobs {
            max_running_requests: own.max_running_requests.or(sweep.max_running_requests),
            mem_fraction_static: own.mem_fraction_static.or(sweep.mem_fraction_static),
            attention_backend: own.attention_backend.clone().or_else(|| sweep.attention_backend.clone()),
            page_size: own.page_size.or(sweep.page_size),
            chunked_prefill_size: own.chunked_prefill_size.or(sweep.chunked_prefill_size),
            capture_sizes: own.capture_sizes.clone().or_else(|| sweep.capture_sizes.clone()),
        }
    }
}

/// A launch of these words. If they run a container, it gets a name by which it is ended.
fn in_container(
    words: Vec<String>,
    name: &str,
    env: Vec<(String, String)>,
    log: PathBuf,
) -> Result<ProcessLaunch, SystemError> {
    let parsed = ContainerCommand::parse(&words, name);
    if let Some(reason) = parsed.as_ref().and_then(ContainerCommand::refusal) {
        return Err(SystemError::Unsupported(reason));
    }
    let (words, container) = match parsed {
        Some(parsed) => (parsed.words, Some(parsed.container)),
        None => (words, None),
    };
    let mut words = words.into_iter();
    Ok(ProcessLaunch { program: words.next().unwrap_or_default(), args: words.collect(), env, log, container })
}

/// Path of the file with a start's table.
pub fn table_file(log: &Path) -> PathBuf {
    log.with_extension("json")
}

/// A launch as a shell command on one line, with secret values hidden.
pub fn words(launch: &ProcessLaunch) -> String {
    // What is hidden needs no quotes.
    let quoted = |word: &str| if word == secrets::HIDDEN { word.to_owned() } else { schemas::quoting::quoted(word) };
    let shown = |(name, value): &(String, String)| format!("{name}={}", quoted(secrets::masked_value(name, value)));
    let command = [std::slice::from_ref(&launch.program), &launch.args].concat();
    let command = secrets::masked_words(&command).into_iter().map(|word| quoted(&word));
    launch.env.iter().map(shown).chain(command).collect::<Vec<_>>().join(" ")
}

/// Flags of a command line.
#[derive(Default)]
struct ServerFlags(Vec<String>);

impl ServerFlags {
    fn add(&mut self, name: &str, value: impl ToString) {
        self.0.extend([format!("--{name}"), value.to_string()]);
    }

    fn add_some(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::tree::TreeShape;

    use super::*;
    use crate::{
        prediction::guide::{AcceptanceRow, AcceptanceSource},
        trials::configuration::TableRow,
    };

    fn plan(kind: SystemKind) -> LaunchPlan {
        LaunchPlan {
            drafts: Vec::new(),
            kind,
            target: "/m/target".into(),
            draft: "/m/draft".into(),
            algorithm: "EAGLE3".into(),
            dtype: "bfloat16".into(),
            quantization: None,
            kv_cache_dtype: None,
            context_length: Some(2048),
            max_running_requests: 8,
            tp_size: 1,
            knobs: Knobs { page_size: Some(16), capture_sizes: Some(vec![1, 8]), ..Knobs::default() },
            acceptance: None,
            version: None,
            is_own: false,
            capture_flag: CAPTURE_FLAG,
            tables: Ok(()),
        }
    }

    fn line(kind: SystemKind, shape: &str) -> Result<String, String> {
        let settings = SystemSettings {
            kind,
            command: vec!["run".into(), "server".into()],
            extra_args: vec!["--tp-size".into(), "2".into()],
            env: [("A".to_owned(), "b c".to_owned())].into(),
            ..SystemSettings::default()
        };
        let configuration = Configuration::from_shape(shape.parse().expect("a shape"));
        let launch = plan(kind).launch(&settings, &configuration, "name", 7, "log".into());
        launch.map(|launch| words(&launch)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_configuration_is_started_with_its_own_draft() {
        let text = "[models]\ntarget = 'org/t'\n[workload]\nprompts = 'p'\n[system]\nkind = 'sglang'\n\
                    command = ['serve']\n[[drafts]]\nname = 'head'\npath = 'org/h'\nalgorithm = 'EAGLE3'\n\
                    [[drafts]]\nname = 'own'\nalgorithm = 'NEXTN'\n";
        let file = SweepFile::read(&schemas::text::Source::new("sweep.toml", text)).expect("a sweep");
        let plan = LaunchPlan::from_file(&file, Path::new("/nowhere"), 8);
        let line = |draft: &str, shape| {
            let configuration = Configuration { draft: draft.into(), ..Configuration::from_shape(shape) };
            let launch = plan.launch(&file.system, &configuration, "name", 7, "log".into()).expect("a launch");
            words(&launch)
        };
        let chain = TreeShape::chain(2);
        let (head, own, none) = (line("head", chain), line("own", chain), line("", TreeShape::OFF));
        let of_head = "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/h ";
        assert!(head.contains(of_head) && !own.contains("org/h"), "{head}\n{own}");
        assert!(own.contains("--speculative-algorithm NEXTN "), "{own}");
        assert!(!none.contains("--speculative"), "{none}");
    }

    #[test]
    fn flags_of_drafts_are_left_out_of_a_start_without_speculation() {
        let settings = SystemSettings {
            kind: SystemKind::Spectune,
            command: vec!["run".into()],
            extra_args: ["--speculative-second-source", "SUFFIX", "--simulate-accept-length=2", "--tp-size", "2"]
                .map(str::to_owned)
                .into(),
            ..SystemSettings::default()
        };
        let line = |shape| {
            let configuration = Configuration::from_shape(shape);
            let launch = plan(SystemKind::Spectune).launch(&settings, &configuration, "name", 7, "log".into());
            words(&launch.expect("a launch"))
        };
        let (chain, off) = (line(TreeShape::chain(2)), line(TreeShape::OFF));
        assert!(
            chain.ends_with("--speculative-second-source SUFFIX --simulate-accept-length=2 --tp-size 2"),
            "{chain}"
        );
        assert!(off.ends_with("--port 7 --tp-size 2"), "{off}");
    }

    #[test]
    fn a_configuration_becomes_the_flags_of_its_engine() {
        let end = "--served-model-name name --host 127.0.0.1 --port 7 --tp-size 2";
        let sglang = "--dtype bfloat16 --context-length 2048 --max-running-requests 8 --page-size 16 \
                      --cuda-graph-bs-decode 1 8 --disable-radix-cache --enable-metrics";
        let tree = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /m/draft --speculative-num-steps 5 \
                    --speculative-eagle-topk 4 --speculative-num-draft-tokens 8";
        let start = "A='b c' run server";
        let development = "A='b c' VLLM_SERVER_DEV_MODE=1 run server";
        for (shape, expected) in [
            ("0,1,1", format!("{start} --model-path /m/target {sglang} {end}")),
            ("5,4,8", format!("{start} --model-path /m/target {tree} {sglang} {end}")),
        ] {
            assert_eq!(line(SystemKind::Sglang, shape), Ok(expected));
        }
        // vLLM's capture sizes count tokens.
        let vllm = |sizes: &str| {
            format!(
                "--dtype bfloat16 --max-model-len 2048 --max-num-seqs 8 --block-size 16 --cudagraph-capture-sizes \
                 {sizes} --no-enable-prefix-caching"
            )
        };
        let chain =
            "--speculative-config '{\"method\":\"eagle3\",\"num_speculative_tokens\":3,\"model\":\"/m/draft\"}'";
        for (shape, expected) in [
            ("0,1,1", format!("{development} /m/target {} {end}", vllm("1 8"))),
            ("3,1,4", format!("{development} /m/target {chain} {} {end}", vllm("4 32"))),
        ] {
            assert_eq!(line(SystemKind::Vllm, shape), Ok(expected));
        }
        assert!(line(SystemKind::Vllm, "5,4,8").is_err_and(|words| words.contains("chains, not trees")));
    }

    #[test]
    fn a_table_of_chains_becomes_a_file_or_a_schedule() {
        let row = |(batch, steps)| TableRow::for_any_context(batch, TreeShape::chain(steps));
        let table: Vec<TableRow> = [(1, 5), (8, 2)].map(row).into();
        let configuration = Configuration { table, ..Configuration::from_shape(TreeShape::chain(2)) };
        let settings = SystemSettings { command: vec!["run".into()], ..SystemSettings::default() };
        let line = |plan: LaunchPlan| {
            let launch = plan.launch(&settings, &configuration, "name", 7, "/out/servers/004.log".into());
            launch.map(|launch| words(&launch)).map_err(|error| error.to_string())
        };
        let sglang = line(plan(SystemKind::Sglang)).expect("a launch");
        let flags = "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 \
                     --speculative-adaptive --speculative-adaptive-config /out/servers/004.json";
        assert!(sglang.contains(flags), "{sglang}");
        let known = LaunchPlan { version: Some(EngineVersion::new(0, 33, 0)), ..plan(SystemKind::Vllm) };
        let vllm = line(known).expect("a launch");
        let schedule = r#""num_speculative_tokens":5,"num_speculative_tokens_per_batch_size":[[1,1,5],[2,8,2]]"#;
        assert!(vllm.contains(schedule) && vllm.contains("--per-request-spec-decode-metrics summary"), "{vllm}");
        let refused = LaunchPlan { tables: Err("too old".into()), ..plan(SystemKind::Sglang) };
        assert_eq!(line(refused), Err("too old".into()));
    }

    #[test]
    fn flags_follow_the_version_that_answers_or_refuses_them() {
        let configuration = Configuration::from_shape(TreeShape::chain(2));
        let settings = SystemSettings { command: vec!["run".into()], ..SystemSettings::default() };
        let line = |plan: &LaunchPlan| {
            words(&plan.launch(&settings, &configuration, "name", 7, "log".into()).expect("a launch"))
        };
        let mut plan = plan(SystemKind::Sglang);
        assert!(!line(&plan).contains("decode-log-interval"));
        let info = |version: &str, engine: &str| ServerInfo {
            version: Some(version.into()),
            resolved: Some(json!({ "engine": engine })),
            ..ServerInfo::default()
        };
        plan.learn(&info("0.5.16", "sglang"));
        assert!(line(&plan).contains("--enable-metrics --decode-log-interval 10"));
        plan.learn(&info("0.1.0", "spectune"));
        assert!(!line(&plan).contains("decode-log-interval"));
        let failure =
            |class, evidence: &str| ServerFailure { class, evidence: evidence.into(), log_tail: String::new() };
        let words = "launch_server.py: error: unrecognized arguments: --cuda-graph-bs-decode 1 8";
        assert!(!plan.take_older_flag(&failure(FailureClass::OutOfMemoryAtCapture, words)));
        assert!(!plan.take_older_flag(&failure(FailureClass::Configuration, "unrecognized arguments: --x")));
        assert!(plan.take_older_flag(&failure(FailureClass::Configuration, words)));
        assert!(line(&plan).contains("--cuda-graph-bs 1 8"));
        assert!(!plan.take_older_flag(&failure(FailureClass::Configuration, words)));
    }

    #[test]
    fn flags_of_vllm_follow_its_version() {
        let settings = SystemSettings { command: vec!["run".into()], ..SystemSettings::default() };
        let with = |version: Option<EngineVersion>| {
            let knobs = Knobs {
                capture_sizes: Some(vec![1, 8]),
                attention_backend: Some("FLASH_ATTN".into()),
                ..Knobs::default()
            };
            LaunchPlan { version, knobs, algorithm: "NEXTN".into(), draft: String::new(), ..plan(SystemKind::Vllm) }
        };
        let line = |plan: &LaunchPlan, shape: &str| {
            let configuration = Configuration::from_shape(shape.parse().expect("a shape"));
            words(&plan.launch(&settings, &configuration, "name", 7, "log".into()).expect("a launch"))
        };
        let newest = line(&with(None), "3,1,4");
        for part in [r#""method":"mtp""#, "--attention-backend FLASH_ATTN", "--cudagraph-capture-sizes 4 32"] {
            assert!(newest.contains(part), "{part}: {newest}");
        }
        assert_eq!(line(&with(Some(EngineVersion::new(0, 13, 0))), "3,1,4"), newest);
        let middle = line(&with(Some(EngineVersion::new(0, 12, 0))), "3,1,4");
        assert!(middle.starts_with("VLLM_ATTENTION_BACKEND=FLASH_ATTN ") && !middle.contains("--attention-backend"));
        let contained = SystemSettings {
            command: ["docker", "run", "--network", "host", "vllm/vllm-openai:v0.12.0"].map(str::to_owned).into(),
            ..SystemSettings::default()
        };
        let off = Configuration::from_shape(TreeShape::OFF);
        let in_container = |plan: LaunchPlan| plan.launch(&contained, &off, "name", 7, "log".into()).is_ok();
        assert!(in_container(with(None)) && !in_container(with(Some(EngineVersion::new(0, 12, 0)))));
        assert!(middle.contains("--cudagraph-capture-sizes 4 32") && middle.contains(r#""method":"mtp""#), "{middle}");
        let old = line(&with(Some(EngineVersion::new(0, 10, 2))), "3,1,4");
        assert!(old.contains("--cuda-graph-sizes 4 32") && old.contains(r#""method":"deepseek_mtp""#), "{old}");
        let mut one = with(Some(EngineVersion::new(0, 11, 0)));
        one.knobs.capture_sizes = Some(vec![8]);
        // A single 8 would mean 1, 2, 4 and 8.
        assert!(line(&one, "0,1,1").contains("--cuda-graph-sizes 1 8 --no"), "{}", line(&one, "0,1,1"));
        let failure = |words: &str| ServerFailure {
            class: FailureClass::Configuration,
            evidence: format!("vllm: error: unrecognized arguments: {words}"),
            log_tail: String::new(),
        };
        let mut unknown = with(None);
        assert!(!unknown.take_older_flag(&failure("--x")));
        let evidence = "vllm: error: argument --attention-backend: invalid choice: 'x'".to_owned();
        assert!(!unknown.take_older_flag(&ServerFailure { evidence, ..failure("") }));
        assert!(unknown.take_older_flag(&failure("--attention-backend FLASH_ATTN --cudagraph-capture-sizes 1 8")));
        assert!(line(&unknown, "0,1,1").contains("--cuda-graph-sizes 1 8"));
        assert!(!unknown.take_older_flag(&failure("--cudagraph-capture-sizes 1 8")), "its version is known");
        let mut unknown = with(None);
        assert!(unknown.take_older_flag(&failure("--attention-backend FLASH_ATTN")));
        assert_eq!(line(&unknown, "3,1,4"), middle);
    }

    #[test]
    fn imported_lengths_are_made_up_by_the_server() {
        let shape: TreeShape = "3,1,4".parse().expect("a shape");
        let row = AcceptanceRow { shape, accept_length: 2.5, interval: None, histogram: vec![] };
        let source = AcceptanceSource::Imported { source: "elsewhere".into() };
        let launch = |kind, shape: &str| {
            let acceptance =
                Some(AcceptanceTable { source: source.clone(), rows: vec![row.clone()], text_drafts: Vec::new() });
            let settings = SystemSettings { kind, command: vec!["run".into()], ..SystemSettings::default() };
            let configuration = Configuration::from_shape(shape.parse().expect("a shape"));
            let plan = LaunchPlan { acceptance, ..plan(kind) };
            plan.launch(&settings, &configuration, "name", 7, "log".into()).map(|launch| words(&launch))
        };
        let sglang = launch(SystemKind::Sglang, "3,1,4").expect("a launch");
        assert!(
            sglang.starts_with("SGLANG_SIMULATE_ACC_LEN=2.5 SGLANG_SIMULATE_ACC_METHOD=match-expected run"),
            "{sglang}"
        );
        let vllm = launch(SystemKind::Vllm, "3,1,4").expect("a launch");
        assert!(vllm.contains(r#""rejection_sample_method":"synthetic","synthetic_acceptance_length":2.5"#), "{vllm}");
        assert!(!launch(SystemKind::Sglang, "0,1,1").expect("a launch").contains("SIMULATE"));
        assert!(launch(SystemKind::Sglang, "5,1,6").is_err(), "the table has no such row");
    }
}
