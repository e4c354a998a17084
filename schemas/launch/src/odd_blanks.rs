//! Blanks, dashes and quotes as copied from web pages and word processors: blanks that look like a
//! space but join the words around them, dashes that start no flag, quotes that quote nothing.

use std::collections::BTreeMap;

use schemas::{
    diagnostic::{Edit, Fix, Safety},
    finding::Finding,
    text::{Source, Span, shortened},
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

/// Dashes other than the one of a keyboard, with their names.
const DASHES: [(char, &str); 6] = [
    ('\u{2010}', "a hyphen (U+2010)"),
    ('\u{2011}', "a no-break hyphen (U+2011)"),
    ('\u{2012}', "a figure dash (U+2012)"),
    ('\u{2013}', "an en dash (U+2013)"),
    ('\u{2014}', "an em dash (U+2014)"),
    ('\u{2212}', "a minus sign (U+2212)"),
];

/// Quotes other than those of a keyboard, with their names.
const QUOTES: [(char, &str); 5] = [
    ('\u{2018}', "a typographic quote (U+2018)"),
    ('\u{2019}', "a typographic quote (U+2019)"),
    ('\u{201c}', "a typographic quote (U+201C)"),
    ('\u{201d}', "a typographic quote (U+201D)"),
    ('\u{201e}', "a typographic quote (U+201E)"),
];

fn is_odd(letter: char) -> bool {
    name_in(&ODD, letter).is_some()
}

fn is_odd_dash(letter: char) -> bool {
    name_in(&DASHES, letter).is_some()
}

fn is_odd_quote(letter: char) -> bool {
    name_in(&QUOTES, letter).is_some()
}

/// The name of a character, if it is one of a list.
fn name_in(list: &[(char, &'static str)], letter: char) -> Option<&'static str> {
    list.iter().find(|(odd, _)| *odd == letter).map(|(_, name)| *name)
}

/// The name of the first such blank in a text.
fn named(text: &str) -> Option<&'static str> {
    text.chars().find_map(|letter| name_in(&ODD, letter))
}

/// The name of the first blank or quote in a text that JSON does not take.
fn named_in_json(text: &str) -> Option<&'static str> {
    text.chars().find_map(|letter| name_in(&ODD, letter).or_else(|| name_in(&QUOTES, letter)))
}

/// Reports words of launches with such characters, in place of other findings in them.
pub(super) fn report(source: &Source, parsed: &mut Parsed) {
    if !source.text().contains(|letter| is_odd(letter) || is_odd_dash(letter) || is_odd_quote(letter)) {
        return;
    }
    let mut joined: BTreeMap<Span, Finding> = BTreeMap::new();
    let mut launches: Vec<Span> = Vec::new();
    for launch in &mut parsed.launches {
        let found: Vec<Finding> = words(launch).filter_map(|(text, span)| look(source, text, span)).collect();
        let found: Vec<Finding> = found.into_iter().map(|one| doubted(launch, one)).collect();
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
        if let Some(name) = named_in_json(source.slice(found.span)).filter(|_| found.code == problems::JSON_SYNTAX.code)
        {
            found
                .notes
                .push(format!("{name} is in it, as copied from a web page; JSON takes plain spaces and quotes only"));
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

/// A finding in a launch, with the doubts about it.
fn doubted(launch: &Launch, mut finding: Finding) -> Finding {
    finding.doubts.extend(launch.doubts());
    finding
}

/// The problem of a word, if it has one.
fn look(source: &Source, text: &str, span: Span) -> Option<Finding> {
    joined(source, text, span).or_else(|| dashed(source, text, span)).or_else(|| quoted(source, text, span))
}

/// A flag, or a number, that starts with another dash.
fn dashed(source: &Source, text: &str, span: Span) -> Option<Finding> {
    let rest = text.trim_start_matches(|letter| letter == '-' || is_odd_dash(letter));
    let dashes = text.strip_suffix(rest)?;
    let name = dashes.chars().find_map(|letter| name_in(&DASHES, letter))?;
    let first = rest.chars().next().filter(char::is_ascii_alphanumeric)?;
    // A sentence goes on after a dash.
    if dashes.chars().count() > 2 {
        return None;
    }
    let plain = if first.is_ascii_digit() || rest.chars().nth(1).is_none() { "-" } else { "--" };
    let message = format!("`{}` starts with {name}, which starts no flag", shortened(text));
    let mut found = problems::ODD_BLANK.at(span, message, "not a hyphen");
    found.help = Some(format!("write `{plain}{}`; this one was probably copied from a text", shortened(rest)));
    if source.slice(span).starts_with(dashes) {
        let span = Span::new(span.start, span.start + dashes.len());
        let edits = vec![Edit { span, replacement: plain.into() }];
        found.fix = Some(Fix { description: "write plain dashes".into(), safety: Safety::Unsafe, edits });
    }
    Some(found)
}

/// A value in quotes that are part of it.
fn quoted(source: &Source, text: &str, span: Span) -> Option<Finding> {
    let name = text.chars().next().and_then(|first| name_in(&QUOTES, first))?;
    let inner = text.trim_matches(is_odd_quote);
    // Within other quotes they are meant.
    if source.slice(span) != text || inner.is_empty() {
        return None;
    }
    let message = format!("`{}` starts with {name}, which is part of the value", shortened(text));
    let mut found = problems::ODD_BLANK.at(span, message, "quotes nothing");
    found.help = Some("write plain quotes; these were probably copied from a text".into());
    if text.ends_with(is_odd_quote) && !inner.contains(is_odd_quote) {
        let edits = vec![Edit { span, replacement: format!("\"{inner}\"") }];
        found.fix = Some(Fix { description: "write plain quotes".into(), safety: Safety::Unsafe, edits });
    }
    Some(found)
}

/// A flag that is joined to its neighbours, or a value that starts or ends with such a blank.
fn joined(source: &Source, text: &str, span: Span) -> Option<Finding> {
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
