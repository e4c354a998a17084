//! Texts inside a script, and the environment of its commands.

use std::sync::Arc;

use schemas::text::{Source, Span};

use super::{
    Environment, Variables,
    evidence::Stated,
    kind::Kind,
    span_map::{MappedPart, SpanMap},
};

/// Placeholder in a document for an unknown value that the enclosing script fills in; no script assigns this variable.
pub const UNKNOWN: &str = "$__outer__";

/// A here-document that contains a script or YAML.
#[derive(Clone, Debug)]
pub struct Document {
    pub kind: Kind,
    /// Its text, expanded as far as the enclosing script is known.
    pub text: String,
    /// Maps its text back to the source.
    pub pieces: SpanMap<()>,
    /// The environment, as far as the enclosing script sets it: its exports may or may not be present.
    pub surroundings: Surroundings,
    /// The engine's version, if an image or a requirement names it.
    pub version: Option<Stated>,
}

impl Document {
    /// A verbatim part of a text.
    pub fn part_of(source: &Source, span: Span, kind: Kind) -> Self {
        let text = source.slice(span).to_owned();
        let mut pieces = SpanMap::default();
        pieces.push(MappedPart { text: Span::new(0, text.len()), place: span, whole: span.start, with: () });
        Self { kind, text, pieces, surroundings: Surroundings::default(), version: None }
    }
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
    /// The variables of a command: those of its environment whose value is known, and those around it.
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
