//! Launches in YAML: manifests of containers, the files that engines take behind `--config`, slime's server groups.

mod align;
mod config;
mod container;
mod excerpt;
mod node;
mod remap;
mod template;
mod variables;

use std::{collections::HashSet, sync::Arc};

use saphyr_parser::ScalarStyle;

use container::Container;
use excerpt::Excerpt;
use node::{Broken, Id, Node, Scalar, Tree};
use remap::Origin;

use super::{Launch, Options, Parsed, arguments, detect::names_engine, problems};
use crate::{
    diagnostic::Diagnostic,
    text::{Source, Span},
};

/// Longest text that is read as YAML.
const LONGEST_YAML: usize = 4 << 20;

/// Most launches of one text.
const MOST_LAUNCHES: usize = 1024;

/// Reads a text that is YAML by its name or by its first line. Nothing where it holds no launch: another reader may find
/// one. `depth` says in how many here-documents it stands.
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
                // What a template makes of its text is not known.
                None if text.contains("{{") => return Some(no_launch(source)),
                None => return Some(invalid(source, &broken)),
            }
        }
    };
    let mut reader =
        Reader { source: filled.as_ref().unwrap_or(source), tree: &tree, options, depth, found: Parsed::default() };
    let read = reader.configs();
    if !read {
        reader.containers();
    }
    let mut found = reader.found;
    // What stands between a template's braces decides what is there at all.
    found.launches.iter_mut().for_each(|launch| launch.is_part |= filled.is_some());
    found.launches.sort_by_key(|launch| launch.anchor);
    match found.launches.is_empty() {
        true => is_named(source).then(|| no_launch(source)),
        false => Some(found),
    }
}

fn no_launch(source: &Source) -> Parsed {
    Parsed { launches: Vec::new(), diagnostics: vec![arguments::no_launch(source)] }
}

/// Whether a text is read as YAML.
pub(super) fn is_yaml(source: &Source) -> bool {
    is_named(source) || parse(source, &Options::default(), 0).is_some()
}

fn is_named(source: &Source) -> bool {
    [".yaml", ".yml"].iter().any(|ending| source.name().ends_with(ending))
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

fn invalid(source: &Source, broken: &Broken) -> Parsed {
    let text = source.text();
    let at = broken.at.min(text.len());
    let width = text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    let diagnostic = problems::YAML_SYNTAX.at(Span::new(at, at + width), broken.message.clone(), "here");
    Parsed { launches: Vec::new(), diagnostics: vec![diagnostic] }
}

struct Reader<'a> {
    source: &'a Source,
    tree: &'a Tree,
    options: &'a Options,
    depth: usize,
    found: Parsed,
}

impl Reader<'_> {
    /// Reads the documents whose keys are flags; says whether there are any.
    fn configs(&mut self) -> bool {
        for root in &self.tree.roots {
            let Some(map) = self.tree.map(*root) else { continue };
            let config = config::Reader { source: self.source, tree: self.tree, options: self.options };
            let (launches, diagnostics) = config.read(map);
            self.found.launches.extend(launches);
            self.found.diagnostics.extend(diagnostics);
        }
        !self.found.launches.is_empty()
    }

    fn containers(&mut self) {
        if !names_engine(self.source.text()) {
            return;
        }
        let has_services = |root: &Id| self.tree.map(*root).and_then(|map| self.tree.get(map, "services")).is_some();
        let compose = self.tree.roots.iter().any(has_services);
        let yaml = self.source.text();
        let mut used: HashSet<Id> = HashSet::new();
        for node in &self.tree.nodes {
            let Node::Map(map) = node else { continue };
            if self.found.launches.len() >= MOST_LAUNCHES {
                return;
            }
            for container in Container::lists_of(yaml, self.tree, map) {
                used.extend(&container.scalars);
                let options = Options { engine: self.options.engine, ..*self.options };
                let (mut launches, diagnostics) = self.excerpt(container.excerpt, &options);
                launches.iter_mut().for_each(|launch| launch.is_part = true);
                self.add(launches, diagnostics);
            }
            let Some(container) = Container::of(yaml, self.tree, map, compose) else { continue };
            used.extend(&container.scalars);
            let options = Options {
                engine: self.options.engine.or(container.engine),
                version: self.options.version.or(container.version.map(|version| version.value)),
            };
            let (mut launches, diagnostics) = self.excerpt(container.excerpt, &options);
            for launch in &mut launches {
                launch.environment_is_open |= container.variables.is_open;
                launch.engine_version = launch.engine_version.or(container.version);
                for variable in &container.variables.list {
                    let own = launch.environment.get(variable.name).and_then(|own| own.value.known());
                    // The script may have set it anew.
                    if own.is_none_or(|own| Some(own) == variable.value.value.known()) {
                        Arc::make_mut(&mut launch.environment).insert(variable.name.to_owned(), variable.value.clone());
                    }
                }
            }
            self.add(launches, diagnostics);
        }
        let is_block = |scalar: &Scalar| matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded);
        self.scripts(&used, is_block);
        // A line by itself may be a command too, as that of a step in a workflow, or the value of a variable.
        if self.found.launches.is_empty() {
            self.scripts(&used, |scalar| !is_block(scalar) && scalar.text.contains(' '));
        }
    }

    /// Reads the texts that are no container's.
    fn scripts(&mut self, used: &HashSet<Id>, is_script: impl Fn(&Scalar) -> bool) {
        let yaml = self.source.text();
        for (id, node) in self.tree.nodes.iter().enumerate() {
            let Node::Scalar(scalar) = node else { continue };
            if used.contains(&id) || !is_script(scalar) {
                continue;
            }
            if let Some(excerpt) = container::lone_script(yaml, self.tree, scalar) {
                let (launches, diagnostics) = self.excerpt(excerpt, self.options);
                self.add(launches, diagnostics);
            }
        }
    }

    /// Reads a command as a shell does, each place in the YAML.
    fn excerpt(&self, mut excerpt: Excerpt, options: &Options) -> (Vec<Launch>, Vec<Diagnostic>) {
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
        (launches, parsed.diagnostics.into_iter().map(|found| origin.diagnostic(found)).collect())
    }

    fn add(&mut self, launches: Vec<Launch>, diagnostics: Vec<Diagnostic>) {
        if self.found.launches.len() < MOST_LAUNCHES {
            self.found.launches.extend(launches);
            self.found.diagnostics.extend(diagnostics);
        }
    }
}
