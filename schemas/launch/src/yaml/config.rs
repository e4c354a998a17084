//! Mappings whose keys are flags: SGLang's and vLLM's `--config`, and the overrides of slime's
//! `--sglang-config`.

use std::collections::HashSet;

use saphyr_parser::ScalarStyle;
use schemas::{
    engines::Engine,
    finding::Finding,
    flags::{self, Arity, Key, Lookup, ValueKind},
    text::{Located, Source, Span},
};
use serde_json::{Map as JsonMap, Value as Json};

use super::{
    align::Scalar,
    node::{Id, Map, Tree, YamlNode},
    remap::{line_end, line_start},
};
use crate::{
    Argument, Insertion, Launch, Options, Setting, Syntax, Value,
    arguments::{flag_names, json_values::bad_json, unknown},
    context::{TextContext, TextForm},
    problems, vllm,
    writing::{Writing, WritingForm},
};

/// Flags of vLLM that SGLang does not have.
const OF_VLLM: [&str; 4] = ["speculative-config", "gpu-memory-utilization", "max-model-len", "max-num-seqs"];

/// Flags of vLLM whose names other programs have too.
const AS_OF_VLLM: [&str; 3] = ["spec-method", "spec-model", "spec-tokens"];

/// Flags of SGLang that no other program is likely to have.
const OF_SGLANG: [&str; 3] = ["model-path", "mem-fraction-static", "cuda-graph-max-bs"];

/// How deep a value is followed that becomes JSON.
const DEPTH: usize = 16;

pub(super) struct ConfigReader<'a> {
    pub source: &'a Source,
    pub tree: &'a Tree,
    pub context: &'a TextContext,
    pub options: &'a Options,
}

/// A key with its value.
pub(super) struct ConfigEntry<'a> {
    /// With dashes for underscores up to the first dot.
    flag: String,
    key: &'a Scalar,
    value: Id,
    /// The span of the value, or of its alias.
    place: Span,
    /// What goes with the entry.
    removal: Span,
}

impl<'a> ConfigReader<'a> {
    /// The launches of a document.
    pub fn read(&self, map: &'a Map) -> (Vec<Launch>, Vec<Finding>) {
        let mut findings = Vec::new();
        let launches = match self.engine(map) {
            Some(engine) => {
                let first = map.entries.first().and_then(|(key, _)| self.tree.scalar(*key));
                let anchor = first.map_or(Span::default(), |key| key.span);
                vec![self.launch(map, engine, Syntax::YamlConfig, anchor, TextForm::EngineConfig, &mut findings)]
            }
            None => self.groups(map, &mut findings),
        };
        (launches, findings)
    }

    /// The engine whose flags the keys are.
    fn engine(&self, map: &Map) -> Option<Engine> {
        if self.is_of_tensorrt(map) || self.is_of_shares(map) {
            return None;
        }
        let keys = map.entries.iter().filter_map(|(key, _)| self.tree.scalar(*key));
        let names: Vec<String> = keys.map(|key| key.text.replace('_', "-")).collect();
        let known = names.iter().filter(|name| matches!(flags::lookup(name, None), Lookup::Exact(_))).count();
        let has =
            |own: &[&str]| names.iter().any(|name| name.split('.').next().is_some_and(|name| own.contains(&name)));
        let known_to_vllm = names.iter().filter(|name| flags::vllm().spelling(name).is_some()).count();
        let vllm = has(&OF_VLLM) || (has(&AS_OF_VLLM) && known_to_vllm * 2 > names.len());
        let evident = names.iter().any(|name| {
            let known = || matches!(flags::lookup(name, None), Lookup::Exact(_));
            OF_SGLANG.contains(&name.as_str()) || (name.starts_with("speculative-") && known())
        });
        match self.options.engine {
            Some(Engine::Vllm) if vllm || known > 0 => Some(Engine::Vllm),
            Some(Engine::Spectune) if known * 2 > names.len() => Some(Engine::Spectune),
            Some(_) if known * 2 > names.len() => Some(Engine::Sglang),
            None if vllm => Some(Engine::Vllm),
            None if evident && known * 2 > names.len() => Some(Engine::Sglang),
            _ => None,
        }
    }

    /// Whether the values are shares of something: flags that take integers have fractions.
    fn is_of_shares(&self, map: &Map) -> bool {
        let is_share = |(key, value): &&(Id, Id)| {
            let (Some(key), Some(value)) = (self.tree.scalar(*key), self.tree.scalar(*value)) else { return false };
            let name = key.text.replace('_', "-");
            let of_integers = [flags::vllm(), flags::sglang()].iter().any(|engine| {
                let accepted = engine.spelling(&name).and_then(|spelling| engine.accepted(spelling.canonical));
                accepted.is_some_and(|accepted| accepted.kind == ValueKind::Integer)
            });
            of_integers && value.text.parse::<f64>().is_ok_and(|number| number.fract() != 0.0)
        };
        map.entries.iter().filter(is_share).nth(1).is_some()
    }

    /// slime's groups of servers: each with overrides is a launch, whose other flags are elsewhere.
    fn groups(&self, map: &'a Map, findings: &mut Vec<Finding>) -> Vec<Launch> {
        let get = |map: &Map, key: &str| self.tree.get(map, key);
        let mut launches = Vec::new();
        let models = get(map, "sglang").map_or(&[][..], |models| self.tree.items(models));
        for model in models.iter().filter_map(|id| self.tree.map(*id)) {
            let groups = get(model, "server_groups").map_or(&[][..], |groups| self.tree.items(groups));
            for group in groups.iter().filter_map(|id| self.tree.map(*id)) {
                let overrides = get(group, "overrides").and_then(|id| self.tree.map(id));
                let Some(overrides) = overrides.filter(|overrides| !overrides.entries.is_empty()) else { continue };
                let keys = group.entries.iter().filter_map(|(key, _)| self.tree.scalar(*key));
                let anchor =
                    keys.into_iter().find(|key| key.text == "overrides").map_or(Span::default(), |key| key.span);
                let form = TextForm::EngineConfig;
                let mut launch = self.launch(overrides, Engine::Sglang, Syntax::YamlOverrides, anchor, form, findings);
                for around in [group, model] {
                    self.add_model(around, &mut launch);
                }
                launches.push(launch);
            }
        }
        launches
    }

    /// The target, where a group or its model names one and the overrides do not.
    fn add_model(&self, map: &'a Map, launch: &mut Launch) {
        for entry in self.entries(map) {
            if entry.flag == "model-path" && !launch.has(Key::ModelPath) {
                self.add(&entry, launch);
            }
        }
    }

    /// The target of a deployment of Ray Serve, which `model_loading_config` next to the arguments
    /// names: a source, or the identifier where there is none. A source in a bucket is not read.
    pub(super) fn add_model_of_ray(&self, around: &'a Map, launch: &mut Launch) {
        let loading = self.tree.get(around, "model_loading_config").and_then(|id| self.tree.map(id));
        let Some(loading) = loading.filter(|_| !launch.has(Key::ModelPath)) else { return };
        let mut entries = self.entries(loading);
        let source = entries.iter().position(|entry| entry.flag == "model-source" && !self.is_null(entry.value));
        let named = source.or_else(|| entries.iter().position(|entry| entry.flag == "model-id"));
        let Some(entry) = named.map(|at| entries.swap_remove(at)) else { return };
        if self.tree.scalar(entry.value).is_some() {
            self.add(&ConfigEntry { flag: "model".into(), ..entry }, launch);
        }
    }

    fn is_null(&self, id: Id) -> bool {
        let scalar = self.tree.scalar(id).filter(|scalar| scalar.style == ScalarStyle::Plain);
        scalar.is_some_and(|scalar| json_scalar(scalar).is_null())
    }

    pub(super) fn launch(
        &self,
        map: &'a Map,
        engine: Engine,
        syntax: Syntax,
        anchor: Span,
        form: TextForm,
        findings: &mut Vec<Finding>,
    ) -> Launch {
        let mut found = Vec::new();
        let entries = self.entries(map);
        let underscores = entries.iter().any(|entry| entry.key.text.contains('_'))
            || (syntax == Syntax::YamlOverrides && !entries.iter().any(|entry| entry.key.text.contains('-')));
        let writing = Writing { form: WritingForm::Config { underscores, brackets: true }, between: ", ".into() };
        let mut launch = Launch::empty(engine, syntax, anchor, self.insertion(map, &entries, writing));
        for entry in &entries {
            launch.span = launch.span.join(entry.key.span.join(entry.place));
            self.add(entry, &mut launch);
        }
        if engine == Engine::Vllm {
            launch.settings.extend(vllm::draft_setting(&launch.arguments));
            found.push(problems::vllm_unread(anchor));
            found.extend(vllm::bad_values(self.source, self.context, &launch.arguments, true));
        }
        found.extend(bad_json(self.source, self.context, &launch.arguments, engine, self.options.version));
        let mut names = Vec::new();
        unknown::report(&launch.arguments, engine, &self.context.forks, &mut names);
        found.extend(names.into_iter().map(|finding| as_keys(&launch, finding)));
        self.context.inner(form).mark(std::slice::from_mut(&mut launch), &mut found);
        findings.append(&mut found);
        launch
    }

    /// Adds an entry that is given; a switch that is off, or a key without a value, is not.
    fn add(&self, entry: &ConfigEntry<'_>, launch: &mut Launch) {
        let flag = format!("--{}", entry.flag);
        let (key, arity) = flag_names::FlagNames::for_engine(launch.engine, self.options.version).meaning(&flag);
        let Some(values) = self.values(entry, arity) else { return };
        let span = entry.key.span.join(entry.place);
        let setting = Setting {
            values: values.clone(),
            flag: entry.key.span,
            span,
            value: Some(entry.place),
            spelling: flag.clone(),
            removal: entry.removal,
            writing: self.writing(entry, launch),
        };
        launch.settings.extend(key.map(|key| (key, setting)));
        launch.arguments.push(Argument {
            flag: Located::new(flag, entry.key.span),
            key,
            values,
            span,
            in_branch: false,
        });
    }

    /// The words of a value.
    fn values(&self, entry: &ConfigEntry<'_>, arity: Option<Arity>) -> Option<Vec<Located<Value>>> {
        match self.tree.node(entry.value)? {
            YamlNode::Scalar(scalar) => {
                let plain = (scalar.style == ScalarStyle::Plain).then_some(scalar.text.as_str());
                let word = || vec![Located::new(word(&scalar.text), entry.place)];
                match plain {
                    Some("" | "~" | "null" | "Null" | "NULL") => None,
                    Some("true" | "True" | "TRUE") if !takes_values(arity) => Some(Vec::new()),
                    Some("false" | "False" | "FALSE") => None,
                    _ => Some(word()),
                }
            }
            YamlNode::List(list) => {
                let scalars = list.items.iter().filter_map(|item| self.tree.scalar(*item));
                Some(scalars.map(|scalar| Located::new(word(&scalar.text), self.scalar_place(scalar))).collect())
            }
            YamlNode::Map(_) => {
                let value = match self.json(entry.value, 0) {
                    Some(json) => Value::Known(json.to_string()),
                    None => Value::Unknown(self.source.slice(entry.place).to_owned()),
                };
                Some(vec![Located::new(value, entry.place)])
            }
        }
    }

    fn json(&self, id: Id, depth: usize) -> Option<Json> {
        if depth > DEPTH || !self.tree.spend(1) {
            return None;
        }
        match self.tree.node(id)? {
            YamlNode::Scalar(scalar) => self.tree.spend(scalar.text.len()).then(|| json_scalar(scalar)),
            YamlNode::List(list) => list.items.iter().map(|item| self.json(*item, depth + 1)).collect(),
            YamlNode::Map(map) => {
                let entry = |(key, value): &(Id, Id)| {
                    Some((self.tree.scalar(*key)?.text.clone(), self.json(*value, depth + 1)?))
                };
                Some(Json::Object(map.entries.iter().map(entry).collect::<Option<JsonMap<_, _>>>()?))
            }
        }
    }

    /// The entries of a mapping, with those merged into it that it does not have itself.
    fn entries(&self, map: &'a Map) -> Vec<ConfigEntry<'a>> {
        let mut entries = self.own_entries(map);
        let mut given: HashSet<String> = entries.iter().map(|entry| entry.flag.clone()).collect();
        let merged = map.entries.iter().filter(|(key, _)| self.tree.scalar(*key).is_some_and(|key| key.text == "<<"));
        for map in merged.filter_map(|(_, value)| self.tree.map(*value)) {
            if self.tree.spend(map.entries.len()) {
                let more = self.own_entries(map).into_iter();
                entries.extend(more.filter(|entry| given.insert(entry.flag.clone())));
            }
        }
        entries
    }

    fn own_entries(&self, map: &'a Map) -> Vec<ConfigEntry<'a>> {
        let yaml = self.source.text();
        let places: Vec<(&'a Scalar, Id, Span)> = map
            .entries
            .iter()
            .filter_map(|(key, value)| {
                let name = self.tree.scalar(*key)?;
                Some((name, *value, self.value_place(name, *key, *value)))
            })
            .collect();
        let removal = |at: usize, key: &Scalar, place: Span| {
            let whole = key.span.join(place);
            if map.flow {
                let before = at.checked_sub(1).and_then(|before| places.get(before));
                return match (places.get(at + 1), before) {
                    (Some((next, _, _)), _) => Span::new(whole.start, next.span.start),
                    (None, Some((key, _, place))) => Span::new(key.span.join(*place).end, whole.end),
                    (None, None) => whole,
                };
            }
            let start = line_start(yaml, whole.start);
            if yaml.get(start..whole.start).is_some_and(|before| before.trim().is_empty()) {
                return Span::new(start, (line_end(yaml, whole.end) + 1).min(yaml.len()));
            }
            // After the dash of a list nothing can go without what follows it.
            Span::new(whole.start, whole.start)
        };
        let entry = |(at, (key, value, place)): (usize, &(&'a Scalar, Id, Span))| ConfigEntry {
            flag: flag_of(&key.text),
            key,
            value: *value,
            place: *place,
            removal: removal(at, key, *place),
        };
        places.iter().enumerate().map(entry).filter(|entry| entry.flag != "<<").collect()
    }

    /// The place of a key's value; of an alias the rest of the line.
    fn value_place(&self, name: &Scalar, key: Id, value: Id) -> Span {
        if value > key {
            return self.place(value, 0).unwrap_or(name.span);
        }
        let yaml = self.source.text();
        let rest = yaml.get(name.span.end..line_end(yaml, name.span.end)).unwrap_or_default();
        let value = rest.trim_start_matches([':', ' ']);
        let start = name.span.end + rest.len() - value.len();
        let length = value.find([' ', ',', '}', '\r']).unwrap_or(value.len());
        Span::new(start, start + length)
    }

    /// From the first to the last character of a node.
    fn place(&self, id: Id, depth: usize) -> Option<Span> {
        let both = |first: Id, last: Id| {
            // An alias has a different span than its node.
            let ends = [first, last].into_iter().filter(|child| *child > id);
            let places = ends.filter_map(|child| self.place(child, depth + 1));
            places.reduce(Span::join)
        };
        if depth > 2 * DEPTH {
            return None;
        }
        match self.tree.node(id)? {
            YamlNode::Scalar(scalar) => Some(self.scalar_place(scalar)),
            YamlNode::List(list) if list.flow => Some(list.span),
            YamlNode::List(list) => both(*list.items.first()?, *list.items.last()?),
            YamlNode::Map(map) if map.flow => Some(map.span),
            YamlNode::Map(map) => both(map.entries.first()?.0, map.entries.last()?.1),
        }
    }

    fn scalar_place(&self, scalar: &Scalar) -> Span {
        self.tree.align(self.source.text(), scalar).map_or(scalar.span, |aligned| aligned.outer)
    }

    /// How another value is written in the place of an entry's.
    fn writing(&self, entry: &ConfigEntry<'_>, launch: &Launch) -> Writing {
        let WritingForm::Config { underscores, .. } = launch.insertion.writing.form else { return Writing::toml() };
        match self.tree.node(entry.value) {
            Some(YamlNode::List(list)) if !list.flow => {
                let yaml = self.source.text();
                let before = yaml.get(line_start(yaml, entry.place.start)..entry.place.start).unwrap_or_default();
                let between = format!("\n{}", before.trim_end_matches(|character| character != '-').to_owned() + " ");
                Writing { form: WritingForm::Config { underscores, brackets: false }, between }
            }
            _ => Writing { form: WritingForm::Config { underscores, brackets: true }, between: ", ".into() },
        }
    }

    /// After the last entry.
    fn insertion(&self, map: &Map, entries: &[ConfigEntry<'_>], writing: Writing) -> Insertion {
        let yaml = self.source.text();
        let own = entries.iter().take(map.entries.len());
        let Some(last) = own.max_by_key(|entry| entry.place.end) else {
            return Insertion { at: map.span.end, before: String::new(), after: String::new(), writing };
        };
        let end = last.key.span.join(last.place).end;
        if map.flow {
            return Insertion { at: end, before: ", ".into(), after: String::new(), writing };
        }
        let start = line_start(yaml, last.key.span.start);
        let indentation = yaml.get(start..last.key.span.start).unwrap_or_default().chars().count();
        let before = format!("\n{}", " ".repeat(indentation));
        Insertion { at: line_end(yaml, end), before, after: String::new(), writing }
    }
}

/// The flag of a key, without leading dashes: a dot is followed by the key of a value.
fn flag_of(key: &str) -> String {
    match key.split_once('.') {
        Some((flag, inside)) => format!("{}.{inside}", flag.replace('_', "-")),
        None => key.replace('_', "-"),
    }
}

fn takes_values(arity: Option<Arity>) -> bool {
    matches!(arity, Some(Arity::One | Arity::Several))
}

/// A text, which a template may fill in.
fn word(text: &str) -> Value {
    if text.contains("{{") || text.contains("${") {
        return Value::Unknown(text.to_owned());
    }
    Value::Known(text.to_owned())
}

fn json_scalar(scalar: &Scalar) -> Json {
    let text = scalar.text.as_str();
    if scalar.style != ScalarStyle::Plain {
        return Json::from(text);
    }
    match text {
        "" | "~" | "null" => Json::Null,
        "true" | "True" => Json::Bool(true),
        "false" | "False" => Json::Bool(false),
        _ => text
            .parse::<i64>()
            .map(Json::from)
            .or_else(|_| text.parse::<f64>().map(Json::from))
            .unwrap_or_else(|_| Json::from(text)),
    }
}

/// A finding about a flag, in the words of a file with keys.
fn as_keys(launch: &Launch, mut finding: Finding) -> Finding {
    let Some(edit) = finding.fix.as_mut().and_then(|fix| fix.edits.first_mut()) else { return finding };
    edit.replacement = launch.as_written(&edit.replacement);
    finding.help = Some(format!("write `{}`", edit.replacement));
    finding
}
