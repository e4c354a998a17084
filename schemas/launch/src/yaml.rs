//! Launches in YAML: manifests of containers, the files that engines take after `--config`, slime's server groups.

mod align;
mod config;
mod container;
mod excerpt;
mod no_shell;
mod node;
mod remap;
mod sections;
mod variables;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use align::Scalar;
use container::Container;
use excerpt::Excerpt;
use node::{Broken, Id, Map, Node, Tree};
use remap::Origin;
use saphyr_parser::ScalarStyle;
use schemas::{
    finding::{Doubt, Finding},
    flags::Key,
    text::{Source, Span},
};

use super::{
    Argument, Launch, Options, Parsed, Syntax, arguments, compose::Composed, detect::names_engine, documents,
    entry_point::Runner, kind::Kind, problems, template,
};

/// Longest text that is read as YAML.
const LONGEST_YAML: usize = 4 << 20;

/// Most launches of one text.
const MOST_LAUNCHES: usize = 1024;

/// Reads a text that is YAML by its name or by its first line. Nothing where it holds no launch: another reader may find
/// one. `depth` is the number of enclosing here-documents.
pub(super) fn parse(source: &Source, options: &Options, depth: usize) -> Option<Parsed> {
    let text = source.text();
    if text.len() > LONGEST_YAML || !(is_named(source) || begins_as_yaml(source)) {
        return None;
    }
    let (tree, filled) = match Tree::read(text) {
        Ok(tree) => (tree, None),
        Err(broken) => {
            match template::filled(source).and_then(|filled| Some((Tree::read(filled.text()).ok()?, filled))) {
                Some((tree, filled)) => (tree, Some(filled)),
                // A text without a name may be anything.
                None if !is_named(source) => return None,
                // The output of a template is not known.
                None if text.contains("{{") || is_json(source) || closes_early(text, &broken) => {
                    return Some(no_launch(source));
                }
                None => return Some(invalid(source, &broken)),
            }
        }
    };
    let mut reader = Reader {
        source: filled.as_ref().unwrap_or(source),
        tree: &tree,
        options,
        depth,
        found: Parsed::default(),
        config_files: Vec::new(),
    };
    let read = reader.configs();
    if !read {
        reader.sections();
        reader.containers();
    }
    reader.join_configs();
    let mut found = reader.found;
    // The expressions in a template's braces decide what exists at all.
    found.launches.iter_mut().for_each(|launch| launch.is_part |= filled.is_some());
    found.launches.sort_by_key(|launch| launch.anchor);
    match found.launches.is_empty() {
        true => is_named(source).then(|| no_launch(source)),
        false => Some(found),
    }
}

fn no_launch(source: &Source) -> Parsed {
    Parsed { launches: Vec::new(), findings: vec![arguments::no_launch(source)] }
}

/// The key of each value, or of the list that contains it.
fn keys(tree: &Tree) -> HashMap<Id, &str> {
    let mut keys: HashMap<Id, &str> = HashMap::new();
    for node in &tree.nodes {
        let Node::Map(map) = node else { continue };
        for (key, value) in &map.entries {
            if let Some(key) = tree.scalar(*key) {
                keys.insert(*value, &key.text);
            }
        }
    }
    for (id, node) in tree.nodes.iter().enumerate() {
        let (Node::List(list), Some(key)) = (node, keys.get(&id).copied()) else { continue };
        for item in &list.items {
            keys.entry(*item).or_insert(key);
        }
    }
    keys
}

/// Keys of texts for a reader.
const PROSE_KEYS: [&str; 26] = [
    "answer",
    "changelog",
    "changes",
    "comment",
    "comments",
    "completion",
    "description",
    "descriptions",
    "detail",
    "details",
    "doc",
    "docs",
    "help",
    "instruction",
    "label",
    "message",
    "note",
    "notes",
    "prompt",
    "question",
    "reason",
    "release_notes",
    "response",
    "summary",
    "text",
    "title",
];

fn is_prose_key(key: &str) -> bool {
    PROSE_KEYS.contains(&key.to_ascii_lowercase().as_str())
}

/// Whether a text by itself is a command or flags, by how it begins.
fn is_command(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_name = first.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./~$={}\"'[]".contains(&byte));
    let is_path = first.contains(['/', '.', '=', '$']);
    let is_word = !first.bytes().any(|byte| byte.is_ascii_uppercase());
    is_name && (is_path || is_word) && !first.ends_with(['.', ':', ','])
}

/// Whether a text is read as YAML.
pub(super) fn is_yaml(source: &Source) -> bool {
    is_named(source) || parse(source, &Options::default(), 0).is_some()
}

fn is_named(source: &Source) -> bool {
    Kind::of_name(source.name()) == Some(Kind::Yaml)
}

/// Whether the first line that says anything is a key, or an item of a list with one.
fn begins_as_yaml(source: &Source) -> bool {
    if [".sh", ".bash", ".zsh", ".md", ".txt", ".toml"].iter().any(|ending| source.name().ends_with(ending)) {
        return false;
    }
    let says = |line: &&str| !line.is_empty() && !line.starts_with(['#', '%']) && !line.starts_with("---");
    let line = source.text().trim_start_matches('\u{feff}').lines().map(str::trim).find(says);
    line.and_then(|line| line.strip_prefix("- ").unwrap_or(line).split_once(':')).is_some_and(|(key, value)| {
        let key = key.trim_matches(['"', '\'', ' ']);
        let in_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        !key.is_empty() && key.bytes().all(in_key) && (value.is_empty() || value.starts_with(' '))
    })
}

/// Whether the reader stopped at a bracket that closes further left than it opened, which other readers take.
fn closes_early(text: &str, broken: &Broken) -> bool {
    text.get(broken.at..).is_some_and(|rest| rest.trim_start().starts_with([']', '}']))
}

/// JSON is nearly YAML; JSON that is not valid YAML is not reported.
fn is_json(source: &Source) -> bool {
    source.name().ends_with(".json")
}

fn invalid(source: &Source, broken: &Broken) -> Parsed {
    let text = source.text();
    let at = broken.at.min(text.len());
    let width = text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    let finding = problems::YAML_SYNTAX.at(Span::new(at, at + width), broken.message.clone(), "here");
    Parsed { launches: Vec::new(), findings: vec![finding] }
}

struct Reader<'a> {
    source: &'a Source,
    tree: &'a Tree,
    options: &'a Options,
    depth: usize,
    found: Parsed,
    /// The config files in the text: their names, and where they begin.
    config_files: Vec<(String, Span)>,
}

impl Reader<'_> {
    /// Reads the documents whose keys are flags; says whether there are any.
    fn configs(&mut self) -> bool {
        for root in &self.tree.roots {
            let Some(map) = self.tree.map(*root) else { continue };
            let config = config::Reader { source: self.source, tree: self.tree, options: self.options };
            let (launches, findings) = config.read(map);
            self.add(launches, findings);
        }
        !self.found.launches.is_empty()
    }

    /// Reads the mappings further down whose keys are flags.
    fn sections(&mut self) {
        let config = config::Reader { source: self.source, tree: self.tree, options: self.options };
        let (launches, findings) = config.sections();
        self.add(launches, findings);
    }

    fn containers(&mut self) {
        if !names_engine(self.source.text()) {
            return;
        }
        let runner = self.runner();
        let yaml = self.source.text();
        let mut used: HashSet<Id> = HashSet::new();
        for node in &self.tree.nodes {
            let Node::Map(map) = node else { continue };
            if self.found.launches.len() >= MOST_LAUNCHES {
                return;
            }
            for container in Container::lists_of(yaml, self.tree, map) {
                used.extend(&container.scalars);
                let (mut launches, findings) = self.excerpt(container.excerpt, self.options);
                launches.iter_mut().for_each(|launch| launch.is_part |= container.is_part);
                self.add(launches, findings);
            }
            let Some(container) = Container::of(yaml, self.tree, map, runner) else { continue };
            used.extend(&container.scalars);
            let version = container.version.map(|stated| stated.version.value);
            let options = Options { version: self.options.version.or(version), ..self.options.clone() };
            let (mut launches, mut findings) = self.excerpt(container.excerpt, &options);
            // A program may add the value to a text of JSON.
            let missing = findings.iter_mut().filter(|one| one.code == problems::MISSING_VALUE.code);
            missing.filter(|_| is_json(self.source)).for_each(|one| _ = one.doubts.insert(Doubt::SetElsewhere));
            for launch in &mut launches {
                launch.environment_is_open |= container.variables.is_open;
                launch.image = launch.image.take().or_else(|| container.image.map(str::to_owned));
                let stated = container.version.filter(|stated| stated.is_of(launch.engine));
                launch.engine_version = launch.engine_version.or(stated.map(|stated| stated.version));
                for variable in &container.variables.list {
                    let own = launch.environment.get(variable.name).and_then(|own| own.value.known());
                    // The script may have set it anew.
                    if own.is_none_or(|own| Some(own) == variable.value.value.known()) {
                        Arc::make_mut(&mut launch.environment).insert(variable.name.to_owned(), variable.value.clone());
                    }
                }
            }
            if !launches.is_empty() {
                findings.extend(container.problems);
            }
            self.add(launches, findings);
        }
        let is_block = |scalar: &Scalar| matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded);
        self.scripts(&used, is_block);
        // A line by itself may be a command too, as that of a step in a workflow, or the value of a variable.
        if self.found.launches.is_empty() {
            self.scripts(&used, |scalar| !is_block(scalar) && scalar.text.contains(' ') && is_command(&scalar.text));
        }
    }

    /// What runs the containers of the text.
    fn runner(&self) -> Runner {
        const KINDS: [&str; 7] = ["CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"];
        let roots = || self.tree.roots.iter().filter_map(|root| self.tree.map(*root));
        let is_workload = |map: &Map| {
            let kind = self.tree.get(map, "kind").and_then(|kind| self.tree.scalar(kind));
            kind.is_some_and(|kind| KINDS.contains(&kind.text.as_str()))
        };
        // Akash's manifests have services too, whose `command` replaces the entry point.
        let is_compose =
            |map: &Map| self.tree.get(map, "services").is_some() && self.tree.get(map, "deployment").is_none();
        match () {
            () if roots().any(is_compose) => Runner::Compose,
            () if roots().any(is_workload) => Runner::Kubernetes,
            () => Runner::Other,
        }
    }

    /// Reads the texts that do not belong to a container.
    fn scripts(&mut self, used: &HashSet<Id>, is_script: impl Fn(&Scalar) -> bool) {
        let yaml = self.source.text();
        let tree = self.tree;
        let keys = keys(tree);
        for (id, node) in tree.nodes.iter().enumerate() {
            let Node::Scalar(scalar) = node else { continue };
            let key = keys.get(&id).copied().unwrap_or_default();
            if used.contains(&id) || !is_script(scalar) || is_prose_key(key) {
                continue;
            }
            if let Some(kind) = Kind::of_name(key).filter(|kind| *kind != Kind::Script) {
                self.file(key, scalar, kind);
                continue;
            }
            if let Some(excerpt) = container::lone_script(yaml, self.tree, scalar) {
                let (mut launches, mut findings) = self.excerpt(excerpt, self.options);
                // What a script assembles from several texts is complete in none of them, and how it splits them is not known.
                let is_part = scalar.text.trim_start().starts_with("--");
                // What runs a text of JSON, and how it splits it, is not known either.
                let is_shown = is_json(self.source);
                for launch in &mut launches {
                    (launch.is_part, launch.is_shown) = (launch.is_part | is_part, launch.is_shown | is_shown);
                }
                findings.retain(|one| !is_part || one.code != problems::JSON_SYNTAX.code);
                // Lines that a folded text keeps apart are one command to a program that splits it into words.
                let is_folded = scalar.style == ScalarStyle::Folded;
                for broken in findings.iter_mut().filter(|one| is_folded && one.depends.lines) {
                    broken.doubts.insert(Doubt::OtherSplitter);
                }
                self.add(launches, findings);
            }
        }
    }

    /// Reads a file that a text holds, as a ConfigMap does.
    fn file(&mut self, name: &str, scalar: &Scalar, kind: Kind) {
        if self.depth >= documents::DEEPEST {
            return;
        }
        let Some(aligned) = self.tree.align(self.source.text(), scalar) else { return };
        let mut file = Composed::default();
        for part in &aligned.parts {
            file.copy_whole(scalar.text.get(part.text.range()).unwrap_or_default(), part.place, aligned.outer.start);
        }
        let found = documents::read(&file.into_document(kind), self.source, self.options, self.depth);
        if let [config] = found.launches.as_slice()
            && config.syntax == Syntax::YamlConfig
        {
            self.config_files.push((name.to_owned(), config.anchor));
        }
        self.add(found.launches, found.findings);
    }

    /// Puts what a file says into the launches that name it after `--config`. What the command line gives wins.
    fn join_configs(&mut self) {
        for (name, anchor) in std::mem::take(&mut self.config_files) {
            let names_it = |launch: &Launch| {
                let path = launch.text(Key::Config).map(|path| path.value);
                path.and_then(|path| path.rsplit('/').next()) == Some(name.as_str())
            };
            let launches = &mut self.found.launches;
            if !launches.iter().any(names_it) {
                continue;
            }
            let Some(at) = launches.iter().position(|launch| launch.anchor == anchor) else { continue };
            let config = launches.remove(at);
            for launch in launches.iter_mut().filter(|launch| names_it(launch) && launch.engine == config.engine) {
                launch.settings.remove(&Key::Config);
                for (key, setting) in &config.settings {
                    launch.settings.entry(*key).or_insert_with(|| setting.clone());
                }
                let given: HashSet<Key> = launch.arguments.iter().filter_map(|argument| argument.key).collect();
                let is_new = |argument: &&Argument| argument.key.is_none_or(|key| !given.contains(&key));
                launch.arguments.extend(config.arguments.iter().filter(is_new).cloned());
            }
        }
    }

    /// Reads a command as a shell does, each place in the YAML.
    fn excerpt(&self, mut excerpt: Excerpt, options: &Options) -> (Vec<Launch>, Vec<Finding>) {
        let source = Source::new(self.source.name(), std::mem::take(&mut excerpt.text));
        let parsed = arguments::parse(&source, options, self.depth);
        if parsed.launches.is_empty() {
            return (Vec::new(), Vec::new());
        }
        excerpt.text = source.text().to_owned();
        let origin = Origin { yaml: self.source.text(), tree: self.tree, excerpt: &excerpt };
        // What a variable holds is part of the launch of the command, where there is one.
        let of_command = |launch: &Launch| launch.anchor.start >= excerpt.command;
        let has_command = parsed.launches.iter().any(of_command);
        let launches = parsed.launches.into_iter().filter(|launch| !has_command || of_command(launch));
        let launches = launches.map(|launch| origin.launch(launch)).collect();
        (launches, parsed.findings.into_iter().map(|found| origin.finding(found)).collect())
    }

    fn add(&mut self, launches: Vec<Launch>, findings: Vec<Finding>) {
        if self.found.launches.len() < MOST_LAUNCHES {
            self.found.launches.extend(launches);
            self.found.findings.extend(findings);
        }
    }
}
