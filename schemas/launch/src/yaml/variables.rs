//! ContainerVariables of a container, and where a text refers to them.

use schemas::text::{Located, Span};

use super::{
    align::Aligned,
    align::Scalar,
    node::{Id, Map, Tree, YamlNode},
};
use crate::Value;

/// Maximum number of variables per container.
const MOST: usize = 256;

/// The variables that a container sets.
#[derive(Debug, Default)]
pub(super) struct ContainerVariables<'a> {
    pub list: Vec<YamlVariable<'a>>,
    /// Whether they belong to compose, which fills in `${NAME}` from elsewhere before they are set.
    pub of_compose: bool,
    /// Whether there may be others, in a file or another object.
    pub is_open: bool,
}

#[derive(Debug)]
pub(super) struct YamlVariable<'a> {
    pub name: &'a str,
    pub value: Located<Value>,
    /// The scalar that is the whole value, if there is one and it is known.
    pub scalar: Option<(&'a Scalar, Aligned)>,
}

impl<'a> ContainerVariables<'a> {
    /// The variables of `env` (a list of names with values) or `environment` (a mapping, or a list
    /// of `NAME=value`).
    pub fn from_container(yaml: &str, tree: &'a Tree, container: &Map) -> Self {
        let is_open = ["env_file", "envFrom"].iter().any(|key| tree.get(container, key).is_some());
        if let Some(list) = tree.get(container, "env") {
            let read = |item: &Id| {
                let map = tree.map(*item)?;
                let name = tree.scalar(tree.get(map, "name")?)?;
                Some(variable(yaml, tree, name, tree.get(map, "value")))
            };
            return Self {
                list: tree.items(list).iter().take(MOST).filter_map(read).collect(),
                of_compose: false,
                is_open,
            };
        }
        let Some(environment) = tree.get(container, "environment") else {
            return Self { is_open, ..Self::default() };
        };
        let list = match tree.node(environment) {
            Some(YamlNode::Map(map)) => {
                let entries = map.entries.iter().take(MOST);
                entries
                    .filter_map(|(key, value)| Some(variable(yaml, tree, tree.scalar(*key)?, Some(*value))))
                    .collect()
            }
            _ => tree
                .items(environment)
                .iter()
                .take(MOST)
                .filter_map(|item| assignment(yaml, tree, tree.scalar(*item)?))
                .collect(),
        };
        Self { list, of_compose: true, is_open }
    }

    pub fn get(&self, name: &str) -> Option<&YamlVariable<'a>> {
        self.list.iter().rev().find(|variable| variable.name == name)
    }
}

fn variable<'a>(yaml: &str, tree: &'a Tree, name: &'a Scalar, value: Option<Id>) -> YamlVariable<'a> {
    let scalar = value.and_then(|id| tree.scalar(id)).and_then(|scalar| Some((scalar, tree.align(yaml, scalar)?)));
    let place = scalar.as_ref().map_or(name.span, |(_, aligned)| aligned.outer);
    let known = scalar.filter(|(scalar, _)| is_constant(&scalar.text));
    let value = match &known {
        Some((scalar, _)) => Value::Known(scalar.text.clone()),
        None => Value::Unknown(format!("${}", name.text)),
    };
    YamlVariable { name: &name.text, value: Located::new(value, place), scalar: known }
}

/// `NAME=value` in one scalar.
fn assignment<'a>(yaml: &str, tree: &Tree, scalar: &'a Scalar) -> Option<YamlVariable<'a>> {
    let place = tree.align(yaml, scalar)?.outer;
    let (name, value) = scalar.text.split_once('=').unwrap_or((&scalar.text, "$"));
    let value = if is_constant(value) { Value::Known(value.to_owned()) } else { Value::Unknown(format!("${name}")) };
    Some(YamlVariable { name, value: Located::new(value, place), scalar: None })
}

fn is_constant(text: &str) -> bool {
    !text.contains('$') && !text.contains("{{")
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReferenceChunk<'a> {
    Text,
    /// `$(NAME)`, which Kubernetes fills in.
    Reference(&'a str),
    /// `$NAME`, `${…}` and `$$`, which a shell or compose fills in.
    Dollar,
    /// `{{ … }}`, which a template fills in.
    Template,
}

/// Splits a text at its references.
pub(super) fn chunks(text: &str) -> Vec<(Span, ReferenceChunk<'_>)> {
    let mut chunks = Vec::new();
    let (mut from, mut at) = (0, 0);
    // If one opener is not closed, later ones are not either.
    let mut hopeless = false;
    while let Some(next) = text.get(at..).and_then(|rest| rest.find(['$', '{'])) {
        at += next;
        let rest = text.get(at..).unwrap_or_default();
        let template = rest.starts_with("{{") || rest.starts_with("${{");
        let found = if template && !hopeless {
            let end = rest.find("}}");
            hopeless = end.is_none();
            end.map(|end| (end + 2, ReferenceChunk::Template))
        } else if rest.starts_with('$') {
            dollar(rest)
        } else {
            None
        };
        let Some((length, chunk)) = found else {
            at += 1;
            continue;
        };
        if from < at {
            chunks.push((Span::new(from, at), ReferenceChunk::Text));
        }
        chunks.push((Span::new(at, at + length), chunk));
        at += length;
        from = at;
    }
    if from < text.len() {
        chunks.push((Span::new(from, text.len()), ReferenceChunk::Text));
    }
    chunks
}

/// The length and kind of the reference at the start of a text.
fn dollar(text: &str) -> Option<(usize, ReferenceChunk<'_>)> {
    let rest = text.get(1..)?;
    let in_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.');
    if let Some(inside) = rest.strip_prefix('(') {
        let name = inside.get(..inside.find(|character| !in_name(character))?)?;
        let closes = inside.get(name.len()..)?.starts_with(')');
        return (closes && !name.is_empty()).then_some((name.len() + 3, ReferenceChunk::Reference(name)));
    }
    if rest.starts_with('{') {
        // Names and the defaults that people write are short.
        let end = rest.char_indices().take(256).find(|(_, character)| *character == '}')?.0;
        return Some((end + 2, ReferenceChunk::Dollar));
    }
    if rest.starts_with('$') {
        return Some((2, ReferenceChunk::Dollar));
    }
    let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    (length > 0).then_some((length + 1, ReferenceChunk::Dollar))
}
