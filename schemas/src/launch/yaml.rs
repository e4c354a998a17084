//! Launches in YAML: manifests of containers, the files that engines take behind `--config`, slime's server groups.

mod align;
mod config;
mod container;
mod excerpt;
mod node;
mod remap;
mod variables;

use std::{collections::HashSet, sync::Arc};

use saphyr_parser::ScalarStyle;

use container::Container;
use excerpt::Excerpt;
use node::{Broken, Id, Node, Tree};
use remap::Origin;

use super::{Launch, Options, Parsed, arguments, problems};
use crate::{
    diagnostic::Diagnostic,
    text::{Source, Span},
};

/// Longest text that is read as YAML.
const LONGEST_YAML: usize = 4 << 20;

/// Most launches of one text.
const MOST_LAUNCHES: usize = 1024;

/// Reads a text that is YAML by its name or by its first line. Nothing where it holds no launch: another reader may find
/// one.
pub(super) fn parse(source: &Source, options: &Options) -> Option<Parsed> {
    let text = source.text();
    if text.len() > LONGEST_YAML || !(is_named(source) || begins_as_yaml(source)) {
        return None;
    }
    let tree = match Tree::read(text) {
        Ok(tree) => tree,
        // What a template makes of its text is not known, and a text without a name may be anything.
        Err(broken) => return (is_named(source) && !text.contains("{{")).then(|| invalid(source, &broken)),
    };
    let mut reader = Reader { source, tree: &tree, options, found: Parsed::default() };
    let read = reader.configs();
    if !read {
        reader.containers();
    }
    let mut found = reader.found;
    found.launches.sort_by_key(|launch| launch.anchor);
    (!found.launches.is_empty()).then_some(found)
}

/// Whether a text is read as YAML.
pub(super) fn is_yaml(source: &Source) -> bool {
    is_named(source) || parse(source, &Options::default()).is_some()
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
        if !container::is_evident(self.source.text()) {
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
            let Some(container) = Container::of(yaml, self.tree, map, compose) else { continue };
            used.extend(&container.scalars);
            let options = Options { engine: self.options.engine.or(container.engine), ..*self.options };
            let (mut launches, diagnostics) = self.excerpt(container.excerpt, &options);
            for launch in &mut launches {
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
        for (id, node) in self.tree.nodes.iter().enumerate() {
            let Node::Scalar(scalar) = node else { continue };
            let is_block = matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded);
            if !is_block || used.contains(&id) {
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
        let parsed = arguments::parse(&source, options);
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
