//! Texts inside texts: here-documents, Markdown blocks, scripts in YAML, ConfigMap files, arguments of `eval`.
//!
//! Each is parsed according to its kind, and every span maps back to the enclosing text.

use schemas::text::{Source, Span};

use super::{
    Options, Parsed, arguments, comments, dockerfile, embedded::Document, file, kind::Kind, origin::Origin, python,
    script, template, unit, yaml,
};

/// Maximum nesting of texts that is parsed.
pub(super) const DEEPEST: usize = 3;

/// Parses a text of a kind. `depth` is the number of enclosing texts.
pub(super) fn parse(source: &Source, kind: Kind, options: &Options, depth: usize) -> Parsed {
    // A template of YAML may itself be valid YAML: the YAML reader tries that first.
    if kind == Kind::Yaml || !Kind::is_template(source.name()) {
        return parse_as(source, kind, options, depth);
    }
    match template::filled(source) {
        Some(filled) => parse_as(&filled, kind, options, depth),
        // It is unknown which of its lines are rendered.
        None if template::opens(source.text()) => {
            Parsed { launches: Vec::new(), findings: vec![arguments::no_launch(source)] }
        }
        None => parse_as(source, kind, options, depth),
    }
}

fn parse_as(source: &Source, kind: Kind, options: &Options, depth: usize) -> Parsed {
    match kind {
        Kind::Toml => file::parse(source, options),
        Kind::Yaml | Kind::Script => {
            yaml::parse(source, options, depth).unwrap_or_else(|| arguments::parse(source, options, depth))
        }
        Kind::Python => python::parse(source, options, depth),
        Kind::Dockerfile => dockerfile::parse(source, options, depth),
        Kind::Unit => unit::parse(source, options, depth),
        Kind::Unread(format) => arguments::unread(source, format),
    }
}

/// Parses a document. `depth` is that of the enclosing text.
pub(super) fn read(document: &Document, around: &Source, options: &Options, depth: usize) -> Parsed {
    let version = document.version.filter(|stated| options.engine.is_none_or(|engine| stated.is_of(engine)));
    let inner = Options {
        engine: options.engine,
        version: options.version.or(version.map(|stated| stated.version.value)),
        variables: options.variables.as_ref().map(|outer| document.surroundings.variables(outer)),
    };
    let source = source_of(document);
    let parsed = match document.kind {
        Kind::Script => arguments::parse(&source, &inner, depth + 1),
        kind => parse(&source, kind, &inner, depth + 1),
    };
    // Problems in a text without a launch are not reported.
    if parsed.launches.is_empty() {
        return Parsed::default();
    }
    Origin { around, document }.back(parsed)
}

/// The comments in the documents of a script that is itself nested in `depth` documents.
pub(super) fn comments_in(around: &Source, depth: usize) -> Vec<Span> {
    let text = around.text();
    if depth >= DEEPEST || !["<<", "```", "~~~"].iter().any(|opener| text.contains(opener)) {
        return Vec::new();
    }
    let of_document = |document: Document| {
        let found = comments::within(&source_of(&document), depth + 1);
        found.into_iter().map(move |span| document.pieces.place(span))
    };
    script::read(around, None).documents.into_iter().flat_map(of_document).collect()
}

/// The document as a separate text.
fn source_of(document: &Document) -> Source {
    let name = match document.kind {
        Kind::Script => "document.sh",
        Kind::Yaml => "document.yaml",
        Kind::Python => "document.py",
        Kind::Dockerfile => "Dockerfile",
        Kind::Unit => "document.service",
        Kind::Toml | Kind::Unread(_) => "document",
    };
    Source::new(name, document.text.as_str())
}
