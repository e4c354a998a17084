//! Texts inside a script, and the environment of its commands.

use std::sync::Arc;

use super::{
    Environment,
    evidence::Stated,
    kind::Kind,
    span_map::{MappedPart, SpanMap},
};
use crate::text::{Source, Span};

/// Placeholder in a document for what the enclosing script fills in with an unknown value; no script assigns it.
pub const UNKNOWN: &str = "$__outer__";

/// A here-document that holds a script or YAML.
#[derive(Clone, Debug)]
pub struct Document {
    pub kind: Kind,
    /// Its text, expanded as far as the enclosing script is known.
    pub text: String,
    /// Where its text comes from.
    pub pieces: SpanMap<()>,
    /// What the script around it says of the environment: what it exports may be there or not.
    pub surroundings: Surroundings,
    /// The engine's version, where an image or a requirement names it.
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

/// The environment of a command, and whether it may hold more than is in sight.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub environment: Arc<Environment>,
    pub is_open: bool,
    /// The image that the command runs in, where it names one.
    pub image: Option<String>,
}
