//! A text inside another: a here-document, a block of Markdown, the script of a container, a
//! command that Python assembles.

use std::{fmt, rc::Rc, sync::Arc};

use schemas::{
    engines::Engine,
    finding::Finding,
    text::{Source, Span},
};

use super::{Environment, Launch, Parsed, Variables, context::TextContext, evidence::StatedVersion, kind::TextKind};

/// Placeholder in a document for an unknown value that the enclosing script fills in; no script
/// assigns this variable.
pub const UNKNOWN: &str = "$__outer__";

/// A text inside another, to be read by the reader of its kind.
#[derive(Clone, Debug)]
pub struct Document {
    pub kind: TextKind,
    /// Its text, expanded as far as the enclosing text is known.
    pub text: String,
    /// Maps its text back to the enclosing one.
    pub origin: Rc<dyn TextOrigin>,
    pub context: TextContext,
    /// The environment, as far as the enclosing text sets it: its exports may or may not be
    /// present.
    pub surroundings: Surroundings,
    /// The engine's version, if an image or a requirement names it.
    pub version: Option<StatedVersion>,
    /// The engine whose flags the text is, if an image starts it.
    pub engine: Option<Engine>,
    /// Whether a launch in it may have more flags elsewhere.
    pub is_part: bool,
    /// Whether its words are assembled in another language, so that there is no place for an edit.
    pub is_composed: bool,
    /// Its name, if it is a file in another, as in a ConfigMap.
    pub file_name: Option<String>,
    /// Findings about the enclosing text that count if there is a launch in this one.
    pub findings: Vec<Finding>,
}

/// Maps spans, launches and findings of a document back to the enclosing text.
pub trait TextOrigin: fmt::Debug {
    /// The place of a part of the document.
    fn place(&self, span: Span) -> Span;

    /// What was found in the document, with all spans in the enclosing text.
    fn back(&self, outer: &Source, document: &Document, parsed: Parsed) -> Parsed;
}

impl Document {
    /// A document in the context of the enclosing text.
    pub fn new(kind: TextKind, text: String, origin: Rc<dyn TextOrigin>, context: TextContext) -> Self {
        Self {
            kind,
            text,
            origin,
            context,
            surroundings: Surroundings::default(),
            version: None,
            engine: None,
            is_part: false,
            is_composed: false,
            file_name: None,
            findings: Vec::new(),
        }
    }

    /// Adds what the enclosing text says of a launch in the document to what the document says.
    pub fn surround(&self, launch: &mut Launch) {
        let surroundings = &self.surroundings;
        if !surroundings.environment.is_empty() {
            let environment = Arc::make_mut(&mut launch.environment);
            for (name, variable) in surroundings.environment.iter() {
                // The inner text comes first: it is set later.
                environment.entry(name.clone()).or_insert_with(|| variable.clone());
            }
        }
        launch.environment_is_open |= surroundings.is_open;
        launch.image = launch.image.take().or_else(|| surroundings.image.clone());
        let stated = self.version.filter(|stated| stated.is_of(launch.engine)).map(|stated| stated.version);
        launch.engine_version = launch.engine_version.or(stated);
    }

    /// The document as a separate text.
    pub fn source(&self) -> Source {
        Source::new("", self.text.as_str())
    }
}

/// What a reader finds in one text.
#[derive(Debug, Default)]
pub struct ReadDocument {
    /// The launches in the text itself.
    pub launches: Vec<Launch>,
    /// What is wrong with them.
    pub findings: Vec<Finding>,
    /// Constructs that are not read to their end: of no interest away from a launch.
    pub troubles: Vec<Finding>,
    /// The texts in it.
    pub documents: Vec<Document>,
    /// Why there is no launch, if the reader knows it.
    pub reason: Option<Finding>,
}

/// The environment of a command, and whether it may contain more variables than are visible.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub environment: Arc<Environment>,
    pub is_open: bool,
    /// The image that the command runs in, if it names one.
    pub image: Option<String>,
}

impl Surroundings {
    /// The variables of a command: those of its environment whose value is known, and those around
    /// it.
    pub fn variables(&self, outer: &Arc<Variables>) -> Arc<Variables> {
        let mut all = Arc::clone(outer);
        for (name, value) in self.environment.iter() {
            if let Some(value) = value.value.known().filter(|value| !value.contains(UNKNOWN)) {
                Arc::make_mut(&mut all).environment.insert(name.clone(), value.to_owned());
            }
        }
        all
    }
}
