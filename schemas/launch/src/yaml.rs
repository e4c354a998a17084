//! Launches in YAML: manifests of containers, the files that engines take after `--config`, slime's
//! server groups.

mod align;
mod config;
mod container;
mod excerpt;
mod no_shell;
mod node;
mod remap;
mod runtime;
mod sections;
mod structure;
mod variables;

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
};

use align::Scalar;
use container::YamlContainer;
use excerpt::Excerpt;
use node::{Id, Tree, YamlError, YamlNode};
use remap::YamlOrigin;
use saphyr_parser::ScalarStyle;
use schemas::{
    finding::{Doubt, Finding},
    flags::Key,
    text::{Source, Span},
};

pub use runtime::{ContainerRun, container_of};

use self::structure::Structure;
use super::{
    Argument, Launch, Options,
    compose::Composed,
    context::{TextContext, TextForm},
    detect::{names_engine, starts_engine},
    document::{Document, ReadDocument, Surroundings},
    kind::{TextKind, is_script_name},
    problems, template,
};

/// Longest text that is read as YAML.
const LONGEST_YAML: usize = 4 << 20;

/// Most launches of one text.
const MOST_LAUNCHES: usize = 1024;

/// Reads a text that is YAML by its name.
pub(super) fn read(source: &Source, context: &TextContext, options: &Options) -> ReadDocument {
    if source.text().len() > LONGEST_YAML {
        return ReadDocument {
            reason: Some(problems::unread(source, "YAML of more than 4 MiB")),
            ..ReadDocument::default()
        };
    }
    match YamlReader::new(source, context, options) {
        Ok(reader) => reader.read(),
        // The output of a template is unknown, and so is what reads JSON that is not YAML.
        Err(broken) if source.text().contains("{{") || is_json(source) || closes_early(source.text(), &broken) => {
            ReadDocument::default()
        }
        Err(broken) => ReadDocument { reason: Some(invalid(source, &broken)), ..ReadDocument::default() },
    }
}

/// Reads a text without a known ending if its first line shows that it is YAML, and if there is a
/// launch in it.
pub(super) fn read_unnamed(source: &Source, context: &TextContext, options: &Options) -> Option<ReadDocument> {
    if source.text().len() > LONGEST_YAML || !begins_as_yaml(source) {
        return None;
    }
    let read = YamlReader::new(source, context, options).ok()?.read();
    (!read.launches.is_empty() || !read.documents.is_empty()).then_some(read)
}

/// The key of each value, or of the list that contains it.
fn keys(tree: &Tree) -> HashMap<Id, &str> {
    let mut keys: HashMap<Id, &str> = HashMap::new();
    for node in &tree.nodes {
        let YamlNode::Map(map) = node else { continue };
        for (key, value) in &map.entries {
            if let Some(key) = tree.scalar(*key) {
                keys.insert(*value, &key.text);
            }
        }
    }
    for (id, node) in tree.nodes.iter().enumerate() {
        let (YamlNode::List(list), Some(key)) = (node, keys.get(&id).copied()) else { continue };
        for item in &list.items {
            keys.entry(*item).or_insert(key);
        }
    }
    keys
}

/// Whether a text by itself is a command or flags, by how it begins.
fn is_command(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_name = first.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./~$={}\"'[]".contains(&byte));
    let is_path = first.contains(['/', '.', '=', '$']);
    let is_word = !first.bytes().any(|byte| byte.is_ascii_uppercase());
    is_name && (is_path || is_word) && !first.ends_with(['.', ':', ','])
}

/// Whether a text under this key is read by a shell, for which a line end ends a command.
fn is_run_by_shell(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_word = |word: &str| matches!(word, "run" | "shell" | "sh" | "bash" | "script" | "exec" | "steps");
    key.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_word) || matches!(key.as_str(), "command" | "args")
}

/// Whether several lines are one command to the program that splits them into words: the first one
/// starts an engine, the others are flags and their values, and no backslash says that a shell
/// reads them.
fn is_one_command(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return false };
    let words: Vec<&str> = first.split_whitespace().collect();
    if !starts_engine(&words) || first.contains(['|', ';', '&', '#']) || first.ends_with('\\') {
        return false;
    }
    let (mut open, mut awaits_value) = (is_open(first, false), false);
    let mut count = 0;
    for line in lines {
        let is_flag = line.starts_with('-');
        let is_value = open || (awaits_value && line.starts_with(['\'', '"', '{', '[', '$']));
        if line.ends_with('\\') || (!is_flag && !is_value) {
            return false;
        }
        open = is_open(line, open);
        awaits_value = is_flag && line.split_whitespace().count() == 1;
        count += 1;
    }
    count > 0 && !open
}

/// Whether a single quote is open at the end of a line.
fn is_open(line: &str, was_open: bool) -> bool {
    was_open != (line.matches('\'').count() % 2 == 1)
}

/// Whether a text that begins with a flag is a sentence about flags: a comma ends one of its words.
fn is_sentence(text: &str) -> bool {
    let is_plain = |word: &&str| !word.contains(['{', '}', '[', ']', '"', '\'', '=']);
    text.starts_with("--") && text.split_whitespace().filter(is_plain).any(|word| word.ends_with(','))
}

/// Whether the first line that says anything is a key, or an item of a list with one.
fn begins_as_yaml(source: &Source) -> bool {
    if is_script_name(source.name()) || source.name().ends_with(".txt") {
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

/// Whether the reader stopped at a bracket that closes further left than it opened, which other
/// readers take.
fn closes_early(text: &str, broken: &YamlError) -> bool {
    text.get(broken.at..).is_some_and(|rest| rest.trim_start().starts_with([']', '}']))
}

/// JSON is nearly YAML; JSON that is not valid YAML is not reported.
fn is_json(source: &Source) -> bool {
    source.name().ends_with(".json")
}

fn invalid(source: &Source, broken: &YamlError) -> Finding {
    let text = source.text();
    let at = broken.at.min(text.len());
    let width = text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    problems::YAML_SYNTAX.at(Span::new(at, at + width), broken.message.clone(), "here")
}

/// Reads one text.
struct YamlReader<'a> {
    /// The text, with the expressions of a template replaced.
    source: Source,
    tree: Rc<Tree>,
    context: &'a TextContext,
    options: &'a Options,
    /// What the text as a whole describes.
    structure: Structure,
    /// Whether expressions of a template decide what exists at all.
    is_template: bool,
    found: ReadDocument,
}

impl<'a> YamlReader<'a> {
    fn new(source: &Source, context: &'a TextContext, options: &'a Options) -> Result<Self, YamlError> {
        let values_filled = template::values_filled(source);
        let source = values_filled.as_ref().unwrap_or(source);
        let (tree, filled) = match Tree::read(source.text()) {
            Ok(tree) => (tree, None),
            Err(broken) => {
                let filled = template::filled(source).or_else(|| template::without_placeholder_lines(source));
                match filled.and_then(|filled| Some((Tree::read(filled.text()).ok()?, filled))) {
                    Some((tree, filled)) => (tree, Some(filled)),
                    None => return Err(broken),
                }
            }
        };
        Ok(Self {
            structure: Structure::detect(source.name(), &tree),
            is_template: filled.is_some(),
            source: filled.unwrap_or_else(|| source.clone()),
            tree: Rc::new(tree),
            context,
            options,
            found: ReadDocument::default(),
        })
    }

    fn read(mut self) -> ReadDocument {
        if !self.configs() {
            self.sections();
            self.containers();
        }
        for document in &mut self.found.documents {
            document.is_part |= self.is_template;
            document.context.fills_in = true;
        }
        self.found.launches.iter_mut().for_each(|launch| launch.is_part |= self.is_template);
        self.found
    }

    /// The context of the commands of a text that describes containers or tasks.
    fn context(&self) -> TextContext {
        match self.structure.form() {
            Some(form) => self.context.inner(form),
            None => self.context.inner(self.context.form),
        }
    }

    /// Reads the documents whose keys are flags; false if there are none.
    fn configs(&mut self) -> bool {
        let tree = Rc::clone(&self.tree);
        for root in &tree.roots {
            let Some(map) = tree.map(*root) else { continue };
            let (launches, findings) = self.config_reader(&tree).read(map);
            self.add(launches, findings);
        }
        !self.found.launches.is_empty()
    }

    /// Reads the mappings further down whose keys are flags.
    fn sections(&mut self) {
        let tree = Rc::clone(&self.tree);
        let (launches, findings) = self.config_reader(&tree).sections();
        self.add(launches, findings);
    }

    fn config_reader<'t>(&'t self, tree: &'t Tree) -> config::ConfigReader<'t> {
        config::ConfigReader { source: &self.source, tree, context: self.context, options: self.options }
    }

    fn containers(&mut self) {
        if !names_engine(self.source.text()) {
            return;
        }
        let tree = Rc::clone(&self.tree);
        let runner = self.structure.runner();
        let mut used: HashSet<Id> = HashSet::new();
        for node in &tree.nodes {
            let YamlNode::Map(map) = node else { continue };
            if self.is_full() {
                return;
            }
            for container in YamlContainer::lists_of(self.source.text(), &tree, map) {
                used.extend(&container.scalars);
                let is_part = container.is_part;
                self.found.documents.push(Document { is_part, ..self.container_document(container) });
            }
            let Some(container) = YamlContainer::from_map(self.source.text(), &tree, map, runner) else { continue };
            used.extend(&container.scalars);
            self.found.documents.push(self.container_document(container));
        }
        for (id, node) in tree.nodes.iter().enumerate() {
            let YamlNode::List(list) = node else { continue };
            if list.items.iter().any(|item| used.contains(item)) || self.is_full() {
                continue;
            }
            if let Some(container) = YamlContainer::from_list(self.source.text(), &tree, id) {
                used.extend(&container.scalars);
                self.found.documents.push(self.container_document(container));
            }
        }
        let is_block = |scalar: &Scalar| matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded);
        self.scripts(&used, is_block);
        // A line by itself may be a command too, as that of a step in a workflow, or the value of a
        // variable.
        if self.found.launches.is_empty() && self.found.documents.is_empty() {
            self.scripts(&used, |scalar| !is_block(scalar) && scalar.text.contains(' ') && is_command(&scalar.text));
        }
    }

    fn is_full(&self) -> bool {
        self.found.launches.len() + self.found.documents.len() >= MOST_LAUNCHES
    }

    /// The command of a container.
    fn container_document(&self, container: YamlContainer<'_>) -> Document {
        let YamlContainer { excerpt, variables, version, image, problems, .. } = container;
        let environment = variables.list.iter().map(|variable| (variable.name.to_owned(), variable.value.clone()));
        let surroundings = Surroundings {
            environment: Arc::new(environment.collect()),
            is_open: variables.is_open,
            image: image.map(str::to_owned),
        };
        Document { version, surroundings, findings: problems, ..self.excerpt(excerpt, self.context()) }
    }

    /// Reads the texts that do not belong to a container.
    fn scripts(&mut self, used: &HashSet<Id>, is_script: impl Fn(&Scalar) -> bool) {
        let tree = Rc::clone(&self.tree);
        let keys = keys(&tree);
        for (id, node) in tree.nodes.iter().enumerate() {
            let YamlNode::Scalar(scalar) = node else { continue };
            let key = keys.get(&id).copied().unwrap_or_default();
            if used.contains(&id) || !is_script(scalar) || self.is_full() {
                continue;
            }
            // KubeRay keeps the configuration of Ray Serve in a text.
            let of_ray = || (key == "serveConfigV2").then_some(TextKind::Yaml);
            if let Some(kind) = TextKind::from_name(key).filter(|kind| *kind != TextKind::Script).or_else(of_ray) {
                self.found.documents.extend(self.file(key, scalar, kind));
                continue;
            }
            if is_sentence(&scalar.text) {
                continue;
            }
            let Some(mut excerpt) = container::lone_script(self.source.text(), &tree, scalar) else { continue };
            let is_run = self.structure.form().is_none() || self.structure.runs(key);
            let mut context = if is_run { self.context() } else { self.context.inner(TextForm::OtherYaml) };
            // What a script assembles from several texts is complete in none of them, and how it
            // reads them is unknown.
            let is_part = scalar.text.trim_start().starts_with("--");
            if is_part {
                context = context.with(Doubt::OtherQuoting);
            }
            // Lines that a folded text keeps apart are one command to a program that splits it into
            // words.
            let is_folded = scalar.style == ScalarStyle::Folded;
            let is_one = !is_run_by_shell(key) && !self.structure.runs(key) && is_one_command(&scalar.text);
            if is_folded || is_one {
                context = context.with(Doubt::OtherSplitter);
            }
            if is_one {
                excerpt.text = excerpt.text.replace('\n', " ");
            }
            let document = Document { is_part, ..self.excerpt(excerpt, context) };
            self.found.documents.push(document);
        }
    }

    /// A file that a text holds, as a ConfigMap does.
    fn file(&self, name: &str, scalar: &Scalar, kind: TextKind) -> Option<Document> {
        let aligned = self.tree.align(self.source.text(), scalar)?;
        let mut file = Composed::default();
        for part in &aligned.parts {
            file.copy_whole(scalar.text.get(part.text.range()).unwrap_or_default(), part.place, aligned.outer.start);
        }
        Some(Document { file_name: Some(name.to_owned()), ..file.into_document(kind, self.context()) })
    }

    /// A command, each place in the YAML.
    fn excerpt(&self, excerpt: Excerpt, context: TextContext) -> Document {
        let text = excerpt.text.clone();
        let origin = YamlOrigin { tree: Rc::clone(&self.tree), excerpt };
        Document::new(TextKind::Script, text, Rc::new(origin), context)
    }

    fn add(&mut self, launches: Vec<Launch>, findings: Vec<Finding>) {
        if !self.is_full() {
            self.found.launches.extend(launches);
            self.found.findings.extend(findings);
        }
    }
}

/// Puts what a config file says into the launches that name it after `--config`. What the command
/// line gives wins. `config_files` are names of files in the text with the anchors of their
/// launches.
pub(super) fn join_configs(launches: &mut Vec<Launch>, config_files: &[(String, Span)]) {
    for (name, anchor) in config_files {
        let names_it = |launch: &Launch| {
            let path = launch.text(Key::Config).map(|path| path.value);
            path.and_then(|path| path.rsplit('/').next()) == Some(name.as_str())
        };
        if !launches.iter().any(names_it) {
            continue;
        }
        let Some(at) = launches.iter().position(|launch| launch.anchor == *anchor) else { continue };
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
