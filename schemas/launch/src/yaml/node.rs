//! YAML as a tree with spans. The tree is an arena, and an alias is the id of its node: nothing is
//! copied, so a small text cannot grow into a large tree.

use std::cell::Cell;

use saphyr_parser::{Event, Parser, ScanError};
use schemas::text::Span;

use super::align::{Aligned, Scalar, align};

/// Maximum nesting depth of nodes. Manifests stay below twenty.
const DEPTH: usize = 128;

/// Maximum number of entries and bytes inspected per text: the node of an alias is inspected again
/// at each use.
const MOST_STEPS: usize = 1 << 24;

/// Maximum depth to which `<<` is followed.
const MERGES: usize = 8;

/// The index of a node of a [`Tree`].
pub(super) type Id = usize;

/// All documents of a text.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub nodes: Vec<YamlNode>,
    /// The root of each document.
    pub roots: Vec<Id>,
    steps: Cell<usize>,
}

#[derive(Debug)]
pub(super) enum YamlNode {
    Scalar(Scalar),
    List(List),
    Map(Map),
}

#[derive(Debug, Default)]
pub(super) struct List {
    pub items: Vec<Id>,
    /// Whether it is written in brackets.
    pub flow: bool,
    /// From the opening to the closing bracket, if it has them.
    pub span: Span,
}

#[derive(Debug, Default)]
pub(super) struct Map {
    pub entries: Vec<(Id, Id)>,
    /// Whether it is written in braces.
    pub flow: bool,
    /// From the opening to the closing brace, if it has them.
    pub span: Span,
}

/// Why a text is not readable YAML, and where.
#[derive(Debug)]
pub(super) struct YamlError {
    pub at: usize,
    pub message: String,
}

impl Tree {
    pub fn read(text: &str) -> Result<Self, YamlError> {
        let offsets = Offsets::new(text);
        let mut builder = TreeBuilder::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| broken(&error, &offsets))?;
            let span = Span::new(offsets.byte(span.start.index()), offsets.byte(span.end.index()));
            builder.take(event, span).map_err(|message| YamlError { at: span.start, message: message.into() })?;
        }
        Ok(builder.tree)
    }

    pub fn node(&self, id: Id) -> Option<&YamlNode> {
        self.nodes.get(id)
    }

    pub fn scalar(&self, id: Id) -> Option<&Scalar> {
        match self.node(id)? {
            YamlNode::Scalar(scalar) => Some(scalar),
            YamlNode::List(_) | YamlNode::Map(_) => None,
        }
    }

    pub fn map(&self, id: Id) -> Option<&Map> {
        match self.node(id)? {
            YamlNode::Map(map) => Some(map),
            YamlNode::Scalar(_) | YamlNode::List(_) => None,
        }
    }

    /// The items of a list; empty if the node is something else.
    pub fn items(&self, id: Id) -> &[Id] {
        match self.node(id) {
            Some(YamlNode::List(list)) => &list.items,
            _ => &[],
        }
    }

    /// The value of a key; merged mappings are searched last.
    pub fn get(&self, map: &Map, key: &str) -> Option<Id> {
        self.find(map, key, 0)
    }

    /// Counts work on nodes that may be inspected many times; false once the limit is reached.
    pub fn spend(&self, steps: usize) -> bool {
        let steps = self.steps.get().saturating_add(steps);
        self.steps.set(steps);
        steps <= MOST_STEPS
    }

    /// The place of each byte of a scalar, if it can be determined.
    pub fn align(&self, yaml: &str, scalar: &Scalar) -> Option<Aligned> {
        if self.spend(scalar.text.len() + 1) { align(yaml, scalar) } else { None }
    }

    fn find(&self, map: &Map, key: &str, depth: usize) -> Option<Id> {
        if !self.spend(map.entries.len()) || depth > MERGES {
            return None;
        }
        let named = |name: &str| {
            let is_it = |entry: &&(Id, Id)| self.scalar(entry.0).is_some_and(|scalar| scalar.text == name);
            map.entries.iter().rev().find(is_it).map(|(_, value)| *value)
        };
        named(key).or_else(|| {
            let merged = named("<<")?;
            match self.node(merged)? {
                YamlNode::Map(map) => self.find(map, key, depth + 1),
                YamlNode::List(list) => list.items.iter().find_map(|item| self.find(self.map(*item)?, key, depth + 1)),
                YamlNode::Scalar(_) => None,
            }
        })
    }
}

fn broken(error: &ScanError, offsets: &Offsets) -> YamlError {
    YamlError { at: offsets.byte(error.marker().index()), message: error.info().to_owned() }
}

/// A collection that is not closed yet.
struct OpenNode {
    id: Id,
    /// The key that waits for its value.
    key: Option<Id>,
}

#[derive(Default)]
struct TreeBuilder {
    tree: Tree,
    open: Vec<OpenNode>,
    /// The node of each anchor; the parser counts anchors from one.
    anchors: Vec<(usize, Id)>,
}

impl TreeBuilder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let id = self.push(YamlNode::Scalar(Scalar { text: text.as_ref().to_owned(), style, span }), anchor);
                self.attach(id);
            }
            Event::SequenceStart(anchor, _) => {
                let flow = span.end > span.start;
                self.begin(YamlNode::List(List { flow, span, ..List::default() }), anchor)?;
            }
            Event::MappingStart(anchor, _) => {
                let flow = span.end > span.start;
                self.begin(YamlNode::Map(Map { flow, span, ..Map::default() }), anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => {
                let place = self.anchors.binary_search_by_key(&anchor, |(number, _)| *number);
                let known = place.ok().and_then(|at| self.anchors.get(at)).map(|(_, id)| *id);
                self.attach(known.ok_or("an alias without an anchor")?);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn push(&mut self, node: YamlNode, anchor: usize) -> Id {
        let id = self.tree.nodes.len();
        self.tree.nodes.push(node);
        // Anchor numbers only increase.
        if self.anchors.last().map_or(0, |(number, _)| *number) < anchor {
            self.anchors.push((anchor, id));
        }
        id
    }

    fn begin(&mut self, node: YamlNode, anchor: usize) -> Result<(), &'static str> {
        if self.open.len() >= DEPTH {
            return Err("nested too deep");
        }
        let id = self.push(node, anchor);
        self.attach(id);
        self.open.push(OpenNode { id, key: None });
        Ok(())
    }

    fn end(&mut self, span: Span) {
        let Some(open) = self.open.pop() else { return };
        match self.tree.nodes.get_mut(open.id) {
            Some(YamlNode::List(list)) if list.flow => list.span = list.span.join(span),
            Some(YamlNode::Map(map)) if map.flow => map.span = map.span.join(span),
            _ => {}
        }
    }

    /// Attaches a node to its parent in the text.
    fn attach(&mut self, id: Id) {
        let Some(open) = self.open.last_mut() else {
            self.tree.roots.push(id);
            return;
        };
        match self.tree.nodes.get_mut(open.id) {
            Some(YamlNode::List(list)) => list.items.push(id),
            Some(YamlNode::Map(map)) => match open.key.take() {
                Some(key) => map.entries.push((key, id)),
                None => open.key = Some(id),
            },
            Some(YamlNode::Scalar(_)) | None => {}
        }
    }
}

/// The byte offset of each character, since the parser counts characters.
struct Offsets {
    /// `None` if every character is one byte.
    bytes: Option<Vec<usize>>,
    length: usize,
}

impl Offsets {
    fn new(text: &str) -> Self {
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { bytes, length: text.len() }
    }

    fn byte(&self, character: usize) -> usize {
        match &self.bytes {
            Some(bytes) => bytes.get(character).copied().unwrap_or(self.length),
            None => character.min(self.length),
        }
    }
}
