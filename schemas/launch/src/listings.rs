//! Listings of commands in texts that no one runs: lists of quoted words, as programs print them
//! and as TOML and JSON hold them (`['vllm', 'serve', 'm']`).

use schemas::text::{Source, Span};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    compose::Composed,
    context::{TextContext, TextForm},
    detect::{names_engine, starts_engine},
    document::Document,
    kind::TextKind,
};

/// Maximum number of listings per text.
const MOST: usize = 256;

/// Maximum number of words of one list.
const MOST_WORDS: usize = 1 << 12;

/// Maximum depth of tables that are searched.
const DEEPEST: usize = 16;

/// A word of a list, with its place between the quotes.
type ListedWord = (String, Span);

/// The commands that are listed in a text as quoted words in brackets.
pub(super) fn lists(source: &Source, context: &TextContext) -> Vec<Document> {
    let text = source.text();
    if !names_engine(text) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = text.get(at..).and_then(|rest| rest.find('[')) {
        at += offset + 1;
        let Some((words, end)) = list(text, at) else { continue };
        at = end;
        let texts: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
        if found.len() < MOST && starts_engine(&texts) {
            found.push(document(&words, context));
        }
    }
    found
}

/// The commands in the strings of TOML that is not spectune's, and those in its lists.
pub(super) fn in_toml(source: &Source, table: &DeTable<'_>, context: &TextContext) -> Vec<Document> {
    let context = context.inner(if context.form == TextForm::Input { TextForm::Input } else { TextForm::OtherYaml });
    let mut found = lists(source, &context);
    for (_, value) in table {
        strings(source, value, &context, 0, &mut found);
    }
    found
}

fn strings(
    source: &Source,
    value: &Spanned<DeValue<'_>>,
    context: &TextContext,
    depth: usize,
    found: &mut Vec<Document>,
) {
    if depth > DEEPEST || found.len() >= MOST {
        return;
    }
    match value.get_ref() {
        DeValue::String(text) => {
            let words: Vec<&str> = text.split_whitespace().collect();
            if starts_engine(&words) {
                let span = Span::new(value.span().start, value.span().end);
                // An escape makes the places of the words unknown.
                let inside = source.slice(span).find(text.as_ref());
                let place = inside.map_or(span, |at| Span::new(span.start + at, span.start + at + text.len()));
                let mut command = Composed::default();
                command.copy(text, place);
                found.push(composed(command, context));
            }
        }
        DeValue::Array(items) => items.iter().for_each(|item| strings(source, item, context, depth + 1, found)),
        DeValue::Table(table) => table.iter().for_each(|(_, item)| strings(source, item, context, depth + 1, found)),
        _ => {}
    }
}

fn document(words: &[ListedWord], context: &TextContext) -> Document {
    let mut command = Composed::default();
    words.iter().for_each(|(word, place)| command.word(word, *place));
    composed(command, context)
}

fn composed(command: Composed, context: &TextContext) -> Document {
    Document { is_composed: true, ..command.into_document(TextKind::Script, context.clone()) }
}

/// The words of a list that starts after an opening bracket, and the offset of its end; `None` if
/// it is not a list of quoted words.
fn list(text: &str, start: usize) -> Option<(Vec<ListedWord>, usize)> {
    let bytes = text.as_bytes();
    let blank = |at: usize| {
        let rest = bytes.get(at..).unwrap_or_default();
        at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
    };
    let mut words = Vec::new();
    let mut at = blank(start);
    loop {
        let quote = bytes.get(at).copied().filter(|byte| matches!(byte, b'"' | b'\''))?;
        let (word, end) = quoted(text, at + 1, quote)?;
        words.push((word, Span::new(at + 1, end)));
        at = blank(end + 1);
        if bytes.get(at) == Some(&b',') {
            at = blank(at + 1);
        } else if bytes.get(at) != Some(&b']') {
            return None;
        }
        if bytes.get(at) == Some(&b']') {
            return Some((words, at + 1));
        }
        if words.len() >= MOST_WORDS {
            return None;
        }
    }
}

/// A text up to its closing quote, with escapes resolved, and the offset of the quote.
fn quoted(text: &str, start: usize, quote: u8) -> Option<(String, usize)> {
    let mut word = String::new();
    let mut letters = text.get(start..)?.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => match letters.next()?.1 {
                'n' => word.push('\n'),
                't' => word.push('\t'),
                other => word.push(other),
            },
            '\n' => return None,
            letter if letter == char::from(quote) => return Some((word, start + at)),
            letter => word.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        list(text, 1).map(|(words, _)| words.into_iter().map(|(word, _)| word).collect()).unwrap_or_default()
    }

    #[test]
    fn lists_of_quoted_words_are_read_in_either_quotes() {
        assert_eq!(words("['vllm', \"serve\",\n 'a b', '{\"k\": 1}']"), ["vllm", "serve", "a b", "{\"k\": 1}"]);
        assert_eq!(words(r#"["a", "{\"k\": 1}",]"#), ["a", r#"{"k": 1}"#]);
        for other in ["[]", "['a' 'b']", "['a', b]", "['a", "['a\nb']", "[1, 2]"] {
            assert!(words(other).is_empty(), "{other}");
        }
    }
}
