//! Blanks that shells do not split words at, as copied from web pages: they look like a space but
//! join the words around them.

use std::collections::BTreeMap;

use schemas::{
    diagnostic::{Edit, Fix, Safety},
    finding::Finding,
    text::{Source, Span},
};

use super::{Launch, Parsed, problems};

/// Such characters, with their names.
const ODD: [(char, &str); 8] = [
    ('\u{a0}', "a no-break space (U+00A0)"),
    ('\u{2002}', "an en space (U+2002)"),
    ('\u{2003}', "an em space (U+2003)"),
    ('\u{2007}', "a figure space (U+2007)"),
    ('\u{200b}', "a zero-width space (U+200B)"),
    ('\u{202f}', "a narrow no-break space (U+202F)"),
    ('\u{3000}', "an ideographic space (U+3000)"),
    ('\u{feff}', "a byte order mark (U+FEFF)"),
];

fn is_odd(letter: char) -> bool {
    ODD.iter().any(|(odd, _)| *odd == letter)
}

/// The name of the first such character in a text.
fn named(text: &str) -> Option<&'static str> {
    text.chars().find_map(|letter| ODD.iter().find(|(odd, _)| *odd == letter)).map(|(_, name)| *name)
}

/// Reports words of launches that are joined by such blanks, in place of other findings in them.
pub(super) fn report(source: &Source, parsed: &mut Parsed) {
    if !source.text().contains(is_odd) {
        return;
    }
    let mut joined: BTreeMap<Span, Finding> = BTreeMap::new();
    let mut launches: Vec<Span> = Vec::new();
    for launch in &mut parsed.launches {
        let found: Vec<Finding> = words(launch).filter_map(|(text, span)| look(source, text, span)).collect();
        if !found.is_empty() {
            // It is unknown which flags the words were meant to be.
            launch.is_part = true;
            launches.push(launch.span);
        }
        joined.extend(found.into_iter().map(|one| (one.span, one)));
    }
    // The values of an unrecognised flag seem to belong to no flag.
    let follows = |found: &Finding| {
        let is_about_values = [problems::STRAY_VALUE.code, problems::MISSING_VALUE.code].contains(&found.code);
        is_about_values
            && launches.iter().any(|launch| launch.start <= found.span.start && found.span.end <= launch.end)
    };
    parsed.findings.retain(|found| !joined.contains_key(&found.span) && !follows(found));
    for found in &mut parsed.findings {
        if let Some(name) = named(source.slice(found.span)).filter(|_| found.code == problems::JSON_SYNTAX.code) {
            found.notes.push(format!("{name} is in it, as copied from a web page; JSON takes plain spaces only"));
        }
    }
    parsed.findings.extend(joined.into_values());
}

/// The words of a launch with known text.
fn words(launch: &Launch) -> impl Iterator<Item = (&str, Span)> {
    launch.arguments.iter().flat_map(|argument| {
        let flag = Some((argument.flag.value.as_str(), argument.flag.span));
        let values = argument.values.iter().filter_map(|value| Some((value.value.known()?, value.span)));
        flag.into_iter().chain(values)
    })
}

/// The problem of a word: a flag is joined to its neighbours, or a value starts or ends with such a
/// blank.
fn look(source: &Source, text: &str, span: Span) -> Option<Finding> {
    let name = named(text)?;
    let trimmed = text.trim_matches(is_odd);
    let joins_flag = trimmed.starts_with('-') || text.split(is_odd).skip(1).any(|part| part.starts_with("--"));
    // Python's number parsing accepts any blanks around a number.
    let is_around = trimmed.len() < text.len() && trimmed.parse::<f64>().is_err();
    if !(joins_flag || is_around) {
        return None;
    }
    let shown: String = text.chars().map(|letter| if is_odd(letter) { '·' } else { letter }).take(60).collect();
    let message = format!("`{shown}` is one word: the `·` in it is {name}, at which no shell splits");
    let mut found = problems::ODD_BLANK.at(span, message, "not a space");
    found.help = Some("write a plain space; this one was probably copied from a web page".into());
    let written = source.slice(span);
    if written.contains(is_odd) {
        let edits = vec![Edit { span, replacement: written.replace(is_odd, " ") }];
        found.fix = Some(Fix { description: "write plain spaces".into(), safety: Safety::Safe, edits });
    }
    Some(found)
}
