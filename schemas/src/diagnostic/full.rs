//! Findings in the style of rustc: the message, the user's lines with the place marked, notes, and
//! help.

use annotate_snippets::{Annotation, AnnotationKind, Element, Group, Level, Origin, Patch, Renderer, Snippet};

use super::{Diagnostic, Findings, Safety, Severity};
use crate::{
    secrets::starred,
    text::{Source, Span},
};

/// Number of lines shown before and after a place.
const AROUND: usize = 1;

/// Maximum excerpt of a text, in bytes; a place that needs a longer one is given by line and column
/// only.
const EXCERPT: usize = 1 << 14;

pub(super) fn render(findings: &[Findings<'_>], colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut text = String::new();
    for Findings { source, diagnostics } in findings {
        for diagnostic in *diagnostics {
            text.push_str(&renderer.render(&groups(source, diagnostic)));
            text.push_str("\n\n");
        }
    }
    text
}

fn groups<'a>(source: &'a Source, diagnostic: &'a Diagnostic) -> Vec<Group<'a>> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Info => Level::INFO,
    };
    let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code);
    if !source.has_lines() {
        let mut elements: Vec<Element<'a>> = vec![Origin::path(source.name()).into()];
        elements.extend(flags(source, diagnostic).into_iter().map(|flag| Level::NOTE.message(flag).into()));
        elements.extend(remarks(diagnostic));
        return vec![title.elements(elements)];
    }
    let primary = source.clamp(diagnostic.span);
    let near = |span: &Span| span.start.abs_diff(primary.start) < EXCERPT && span.end.abs_diff(primary.end) < EXCERPT;
    let related: Vec<(Span, &str)> = diagnostic
        .related
        .iter()
        .map(|related| (source.clamp(related.span), related.label.as_str()))
        .filter(|(span, _)| near(span))
        .collect();
    let whole = related.iter().fold(primary, |whole, (span, _)| whole.join(*span));
    let around = source.lines_around(whole, AROUND);
    let (line, window) = if is_excerpt(around.1) { around } else { source.lines_around(whole, 0) };
    let annotation = |kind: AnnotationKind, span: Span, label: &'a str| -> Annotation<'a> {
        let range = span.start.saturating_sub(window.start)..span.end.saturating_sub(window.start);
        let annotation = kind.span(range);
        if label.is_empty() { annotation } else { annotation.label(label) }
    };
    let place: Element<'a> = if is_excerpt(window) {
        Snippet::source(starred(source.slice(window)))
            .path(source.name())
            .line_start(line)
            .annotation(annotation(AnnotationKind::Primary, primary, &diagnostic.label))
            .annotations(related.into_iter().map(|(span, label)| annotation(AnnotationKind::Context, span, label)))
            .into()
    } else {
        let position = source.position(primary.start);
        Origin::path(source.name()).line(position.line).char_column(position.column).into()
    };
    let mut elements = vec![place];
    elements.extend(remarks(diagnostic));
    let mut groups = vec![title.elements(elements)];
    groups.extend(patch(source, diagnostic));
    groups
}

/// The notes and the help.
fn remarks<'a>(diagnostic: &'a Diagnostic) -> impl Iterator<Item = Element<'a>> {
    let notes = diagnostic.notes.iter().map(|note| Level::NOTE.message(note.as_str()).into());
    notes.chain(diagnostic.help.iter().map(|help| Level::HELP.message(help.as_str()).into()))
}

/// The flags of a finding in a text whose lines cannot be seen, with what is said of each.
fn flags(source: &Source, diagnostic: &Diagnostic) -> Vec<String> {
    let related = diagnostic.related.iter().map(|related| (related.span, related.label.as_str()));
    let places = std::iter::once((diagnostic.span, diagnostic.label.as_str())).chain(related);
    let flag = |(span, label): (Span, &str)| {
        let flag = starred(source.flag_at(source.clamp(span))?);
        Some(if label.is_empty() { format!("`{flag}`") } else { format!("`{flag}`: {label}") })
    };
    places.filter_map(flag).collect()
}

/// Whether a part of the text is short enough to be shown.
fn is_excerpt(window: Span) -> bool {
    window.end - window.start <= EXCERPT
}

/// The fix as a diff of the user's lines.
fn patch<'a>(source: &'a Source, diagnostic: &'a Diagnostic) -> Option<Group<'a>> {
    let fix = diagnostic.fix.as_ref()?;
    let edits: Vec<(Span, &str)> =
        fix.edits.iter().map(|edit| (source.clamp(edit.span), edit.replacement.as_str())).collect();
    let whole = edits.iter().map(|(span, _)| *span).reduce(Span::join)?;
    let (line, window) = source.lines_around(whole, 0);
    // The removal of a last line includes its line end, so the excerpt must include it too.
    let window = Some(window.join(whole)).filter(|window| is_excerpt(*window))?;
    let patches = edits.into_iter().map(|(span, replacement)| {
        Patch::new(span.start.saturating_sub(window.start)..span.end.saturating_sub(window.start), replacement)
    });
    let snippet = Snippet::source(starred(source.slice(window))).path(source.name()).line_start(line).patches(patches);
    let how = match fix.safety {
        Safety::Safe => "safe fix",
        Safety::Unsafe => "unsafe fix",
    };
    Some(Level::HELP.secondary_title(format!("{how}: {}", fix.description)).element(snippet))
}
