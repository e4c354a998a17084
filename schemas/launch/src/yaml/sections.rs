//! Mappings in a larger file whose keys are an engine's arguments: recipes of srt-slurm,
//! configurations of trainers.

use std::{collections::HashMap, sync::Arc};

use schemas::{
    engines::Engine,
    finding::Finding,
    flags::{self, Lookup},
    text::{Located, Span},
};

use super::{
    config::ConfigReader,
    node::{Id, Map, YamlNode},
};
use crate::{
    Argument, Launch, Launcher, Setting, Syntax, Value,
    arguments::flag_names::FlagNames,
    command::Field,
    context::TextForm,
    detect::{RANKS, VerlSwitch, rollout_flags},
};

/// Keys under which srt-slurm keeps the arguments of its workers, by role.
const WORKERS: [(&str, Engine); 2] = [("sglang_config", Engine::Sglang), ("vllm_config", Engine::Vllm)];

/// Roles of workers.
const ROLES: [&str; 5] = ["agg", "aggregated", "decode", "prefill", "encode"];

/// Maximum number of launches per file.
const MOST: usize = 256;

/// Maximum number of nodes among which numbers of ranks are looked for.
const MOST_NODES: usize = 1 << 14;

/// Sections in which trainers keep arguments of SGLang, recognised even without an algorithm.
const OF_SGLANG: [&str; 5] = ["mtp", "sglang", "sglang_cfg", "sglang_config", "sglang_kwargs"];

/// The section in which Ray Serve keeps arguments of vLLM.
const OF_RAY: &str = "engine_kwargs";

impl<'a> ConfigReader<'a> {
    /// The launches of mappings below the top-level one.
    pub fn sections(&self) -> (Vec<Launch>, Vec<Finding>) {
        let (mut launches, mut findings) = (Vec::new(), Vec::new());
        let mut read: Vec<Id> = Vec::new();
        let rollouts = self.rollouts();
        for node in &self.tree.nodes {
            let YamlNode::Map(map) = node else { continue };
            if launches.len() >= MOST || !self.tree.spend(map.entries.len()) {
                break;
            }
            for (key, id) in &map.entries {
                let (Some(key), Some(section)) = (self.tree.scalar(*key), self.tree.map(*id)) else { continue };
                if read.contains(id) {
                    continue;
                }
                if let Some((_, engine)) = WORKERS.into_iter().find(|(name, _)| key.text.replace('-', "_") == *name) {
                    let roles = self.roles(section);
                    for (role, place, worker, id) in roles {
                        read.push(id);
                        let mut launch = self.launch(
                            worker,
                            engine,
                            Syntax::YamlConfig,
                            place,
                            TextForm::EngineConfig,
                            &mut findings,
                        );
                        launch.launcher = Launcher::Dynamo;
                        self.add_environment(map, role, &mut launch);
                        launches.push(launch);
                    }
                    if !read.is_empty() {
                        continue;
                    }
                }
                if let Some(engine) = self.engine_of_section(&key.text, section) {
                    read.push(*id);
                    // A trainer reads the section.
                    let form = if self.context.form == TextForm::Input { TextForm::Input } else { TextForm::OtherYaml };
                    let mut launch = self.launch(section, engine, Syntax::YamlOverrides, key.span, form, &mut findings);
                    launch.launcher = Launcher::Hydra;
                    if let Some(rollout) = rollouts.get(id) {
                        self.add_ranks(rollout, &mut launch);
                    }
                    if key.text == OF_RAY && engine == Engine::Vllm {
                        self.add_model_of_ray(map, &mut launch);
                    }
                    launches.push(launch);
                }
            }
        }
        (launches, findings)
    }

    /// verl's sections on the engine of a launch, by those that hold arguments of it.
    fn rollouts(&self) -> HashMap<Id, &'a Map> {
        let mut found = HashMap::new();
        let map_in = |map: &'a Map, key: &str| self.tree.get(map, key).and_then(|id| self.tree.map(id));
        let has_ranks = |map: &&'a Map| RANKS.iter().any(|key| self.tree.get(map, key).is_some());
        for node in self.tree.nodes.iter().take(MOST_NODES) {
            let YamlNode::Map(map) = node else { continue };
            let kwargs = Some(map).filter(has_ranks).and_then(|map| map_in(map, "engine_kwargs"));
            found.extend(kwargs.iter().flat_map(|kwargs| &kwargs.entries).map(|(_, section)| (*section, map)));
            if let Some(rollout) = map_in(map, "rollout").filter(has_ranks) {
                let of_mtp = [map_in(map, "model"), Some(rollout)].into_iter().flatten();
                found.extend(of_mtp.filter_map(|map| self.tree.get(map, "mtp")).map(|section| (section, rollout)));
            }
        }
        found
    }

    /// Adds the flags that verl gives the engine for its numbers of ranks and its limits.
    fn add_ranks(&self, rollout: &'a Map, launch: &mut Launch) {
        let switch = |(key, value): &(Id, Id)| {
            let (key, value) = (self.tree.scalar(*key)?, self.tree.scalar(*value)?);
            // A reference to another key is not known.
            let text = value.text.as_str().into();
            let given = if value.text.contains("${") { Value::Unknown(text) } else { Value::Known(text) };
            Some(VerlSwitch { name: key.text.clone(), place: key.span, given: Located::new(given, value.span) })
        };
        let written: Vec<VerlSwitch<'_>> = rollout.entries.iter().filter_map(switch).collect();
        let others: Vec<Field<'_>> = launch
            .arguments
            .iter()
            .map(|argument| Located::new(Value::Known(argument.flag.value.clone().into()), argument.flag.span))
            .collect();
        let mut fields = rollout_flags(&written, launch.engine, None, &others).into_iter().peekable();
        let names = FlagNames::for_engine(launch.engine, self.options.version);
        while let Some(flag) = fields.next() {
            let place = flag.span;
            let flag = flag.value.written().to_owned();
            let given = fields.next_if(|next| !next.value.written().starts_with("--"));
            let values: Vec<Located<Value>> =
                given.iter().map(|given| Located::new(given.value.to_value(), given.span)).collect();
            let key = names.meaning(&flag).0;
            let setting = || Setting { values: values.clone(), spelling: flag.clone(), ..Setting::unknown(place) };
            launch.settings.extend(key.map(|key| (key, setting())));
            let flag = Located::new(flag, place);
            launch.arguments.push(Argument { flag, key, values, span: place, in_branch: false });
        }
    }

    /// The mappings of workers, each with its role and the role's span.
    fn roles(&self, section: &'a Map) -> Vec<(&'a str, Span, &'a Map, Id)> {
        let role = |(key, id): &(Id, Id)| {
            let key = self.tree.scalar(*key)?;
            let worker = self.tree.map(*id).filter(|worker| !worker.entries.is_empty())?;
            ROLES.contains(&key.text.as_str()).then_some((key.text.as_str(), key.span, worker, *id))
        };
        section.entries.iter().filter_map(role).collect()
    }

    /// Adds the variables of a role's workers: `decode_environment`.
    fn add_environment(&self, backend: &Map, role: &str, launch: &mut Launch) {
        let Some(map) = self.tree.get(backend, &format!("{role}_environment")).and_then(|id| self.tree.map(id)) else {
            return;
        };
        let environment = Arc::make_mut(&mut launch.environment);
        for (name, value) in map.entries.iter().take(MOST) {
            if let (Some(name), Some(value)) = (self.tree.scalar(*name), self.tree.scalar(*value)) {
                let value = Located::new(Value::Known(value.text.clone()), value.span);
                environment.insert(name.text.clone(), value);
            }
        }
    }

    /// The engine whose arguments a section contains. The evidence is speculation: no other program
    /// has these names.
    fn engine_of_section(&self, name: &str, section: &Map) -> Option<Engine> {
        let given = |wanted: &str| {
            section.entries.iter().find_map(|(key, value)| {
                let key = self.tree.scalar(*key)?;
                (key.text.replace('-', "_") == wanted).then_some(*value)
            })
        };
        let is_text =
            |id: Id| self.tree.scalar(id).is_some_and(|scalar| !matches!(scalar.text.as_str(), "" | "null" | "~"));
        if given("speculative_algorithm").is_some_and(is_text) {
            return Some(Engine::Sglang);
        }
        if self.is_of_tensorrt(section) {
            return None;
        }
        if given("speculative_config").is_some_and(|id| self.tree.map(id).is_some_and(|map| self.says_how(map))) {
            return Some(Engine::Vllm);
        }
        let is_own = |(key, value): &(Id, Id)| {
            let name = self.tree.scalar(*key).map(|key| key.text.replace('_', "-"));
            let known = |name: String| {
                matches!(flags::lookup(&name, None), Lookup::Exact(_)) && name.starts_with("speculative-")
            };
            name.is_some_and(known) && is_text(*value)
        };
        (OF_SGLANG.contains(&name) && section.entries.iter().any(is_own)).then_some(Engine::Sglang)
    }

    /// Whether a speculative configuration is one of vLLM's.
    fn says_how(&self, map: &Map) -> bool {
        ["method", "model", "num_speculative_tokens"].iter().any(|key| self.tree.get(map, key).is_some())
    }

    /// Whether the keys are TensorRT-LLM's, which has its own `speculative_config`.
    pub(super) fn is_of_tensorrt(&self, map: &Map) -> bool {
        let speculation = self.tree.get(map, "speculative_config").and_then(|id| self.tree.map(id));
        speculation.is_some_and(|map| self.tree.get(map, "decoding_type").is_some())
    }
}
