//! Words to arguments, as argparse splits them.

use schemas::{
    finding::Finding,
    flags::{Arity, Key},
    text::{Located, Source, Span, shortened},
};

use super::super::{
    Argument, Engine, Value,
    command::{CommandText, Field},
    placeholder::{is_ellipsis, is_placeholder, opens_placeholder},
    problems,
};
use super::{
    flag_names::{FlagNames, is_flag},
    model_word::ModelWord,
};

/// Whether a word whose text is not known is the value of a flag that is: `--tp=$TP`.
fn names_flag(text: &str) -> bool {
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.split_once('=').is_some_and(|(flag, _)| flag.starts_with("--") && is_flag(flag) && flag.bytes().all(in_name))
}

/// A word that belongs to no flag.
fn without_flag(word: &Field<'_>, value: Located<Value>) -> Argument {
    Argument {
        flag: Located::new(word.value.written().to_owned(), word.span),
        key: None,
        values: vec![value],
        span: word.span,
        in_branch: false,
    }
}

/// Splits the words of a launch into arguments; what is amiss goes to `findings`.
pub(super) fn split(
    source: &Source,
    words: &[Field<'_>],
    names: FlagNames,
    findings: &mut Vec<Finding>,
) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    let mut words = words.iter().peekable();
    // The flag just before, if it has all its words already: what follows it belongs to nothing.
    let mut complete: Option<String> = None;
    let mut model = ModelWord::new(words.clone(), names);
    // An ellipsis after a list of values.
    let mut stands_for: Vec<Located<Value>> = Vec::new();
    while let Some(word) = words.next() {
        let text = match &word.value {
            CommandText::Known(text) => Some(text.as_ref()).filter(|text| is_flag(text)),
            CommandText::Unknown(text) => Some(text.as_ref()).filter(|text| names_flag(text)),
        };
        let Some(text) = text else {
            let value = value(word);
            findings.extend(model.look(&value, &mut complete, words.clone()));
            arguments.push(without_flag(word, value));
            continue;
        };
        model.is_before = false;
        let (spelling, inline) = match text.split_once('=') {
            Some((spelling, value)) => (spelling, Some(value)),
            None => (text, None),
        };
        let (key, arity) = names.meaning(spelling);
        let arity = arity.or_else(|| names.arity_in_vllm(spelling));
        let mut values = Vec::new();
        let mut flag_span = word.span;
        if let Some(value) = inline {
            (flag_span, values) = inline_value(source, word.span, spelling, value);
            if arity == Some(Arity::None) && names.callee.is_none() && word.value.known().is_some() {
                findings.push(value_of_switch(spelling, value, word.span));
            }
            if word.value.known().is_none() {
                values.iter_mut().for_each(|value| value.value = Value::Unknown(value.value.written().to_owned()));
            }
        } else {
            let most = match arity {
                Some(Arity::None) => 0,
                Some(Arity::One | Arity::Optional) => 1,
                Some(Arity::Several) | None => usize::MAX,
            };
            while values.len() < most {
                let is_value = |next: &&Field<'_>| next.value.known().is_none_or(|text| !is_flag(text));
                let Some(next) = words.next_if(is_value) else { break };
                values.push(value(next));
            }
            // What an ellipsis leaves out of a list is not known, and neither is the list. At its
            // end it may stand for flags.
            if most > 1
                && let Some(at) = values.iter().position(|value| is_ellipsis(value.value.written()))
            {
                let is_last = at + 1 == values.len();
                let left_out = values.split_off(if is_last { at } else { values.len() });
                if !is_last {
                    values.iter_mut().for_each(|value| value.value = Value::Unknown(value.value.written().to_owned()));
                }
                stands_for.extend(left_out);
            }
            if values.is_empty() && matches!(arity, Some(Arity::One | Arity::Several)) {
                findings.push(missing(spelling, word.span));
            }
        }
        // `[[ name ]]` of a template, `[your model]` and `{your model}` of a page are one value,
        // whatever blanks are in it.
        let opens = |text: &str| text.ends_with("[[") || opens_placeholder(text);
        let opens_template = values.last().is_some_and(|value| opens(value.value.written()));
        if opens_template {
            values.iter_mut().for_each(|value| value.value = Value::Unknown(value.value.written().to_owned()));
        }
        complete =
            (arity.is_some() && !opens_template && !is_in_pieces(names.engine, &values)).then(|| spelling.to_owned());
        let span = values.iter().filter(|value| value.span.start >= word.span.start).fold(word.span, |span, value| {
            // Words of a variable are elsewhere and would stretch the span over the whole text.
            if source.slice(Span::new(span.end, value.span.start)).trim_matches(BETWEEN).is_empty() {
                span.join(value.span)
            } else {
                span
            }
        });
        let flag = Located::new(spelling.to_owned(), flag_span);
        arguments.push(Argument { flag, key, values, span, in_branch: false });
        // As words of their own: a rule must not take the ellipsis for a value of the flag.
        arguments.extend(stands_for.drain(..).map(|value| Argument {
            flag: Located::new(value.value.written().to_owned(), value.span),
            key: None,
            span: value.span,
            values: vec![value],
            in_branch: false,
        }));
    }
    arguments
}

/// Whether the first of a flag's values is JSON without quotes, which is another finding.
fn is_in_pieces(engine: Engine, values: &[Located<Value>]) -> bool {
    engine == Engine::Vllm && values.first().is_some_and(|value| value.value.written().starts_with(['{', '[']))
}

/// The word as a launch keeps it, a placeholder as one that is not known.
fn value(word: &Field<'_>) -> Located<Value> {
    match &word.value {
        CommandText::Known(text) if is_placeholder(text) => Located::new(Value::Unknown(text.to_string()), word.span),
        text => Located::new(text.to_value(), word.span),
    }
}

/// Separators between the words of one argument.
const BETWEEN: [char; 5] = [' ', '\t', '\r', '\n', '\\'];

/// The places of `--flag=value`, where the word is written plainly.
fn inline_value(source: &Source, word: Span, spelling: &str, value: &str) -> (Span, Vec<Located<Value>>) {
    let written = source.slice(word);
    // Quotes or escapes make the text longer than the word; then no part of it has a place of its
    // own.
    let plain = written.len() == spelling.len() + 1 + value.len() && written.starts_with(spelling);
    let split = word.start + spelling.len();
    let (flag, place) = if plain || written.starts_with(&format!("{spelling}=")) {
        (Span::new(word.start, split), Span::new(split + 1, word.end))
    } else {
        (word, word)
    };
    (flag, vec![Located::new(Value::Known(value.to_owned()), place)])
}

/// `vllm serve MODEL`: the first word without a flag, if no flag names the model. Where flags are
/// not known to take the words after them, only one in front of them all.
pub(super) fn positional_model(arguments: &mut [Argument], names: FlagNames) {
    if arguments.iter().any(|argument| argument.key == Some(Key::ModelPath)) {
        return;
    }
    let is_model = |argument: &&mut Argument| {
        argument.is_positional() && (argument.values.iter().all(|value| value.value.known().is_some()))
    };
    let first = match arguments.first_mut() {
        Some(first) if !is_flag(&first.flag.value) => Some(first),
        _ if names.is_command_line => arguments.iter_mut().find(is_model),
        _ => None,
    };
    if let Some(first) = first {
        first.key = Some(Key::ModelPath);
    }
}

fn missing(flag: &str, span: Span) -> Finding {
    problems::MISSING_VALUE.at(span, format!("`{flag}` has no value"), "a value must follow").by_words()
}

fn value_of_switch(flag: &str, value: &str, span: Span) -> Finding {
    let shown = shortened(value);
    let mut finding =
        problems::STRAY_VALUE.at(span, format!("`{flag}` takes no value, but got `{shown}`"), "a switch").by_words();
    finding.notes.push(format!("the parser says: `error: argument {flag}: ignored explicit argument '{shown}'`"));
    let is_off = ["false", "0", "no", "off"].iter().any(|word| value.eq_ignore_ascii_case(word));
    finding.help = Some(if is_off { format!("take `{flag}` out") } else { format!("write `{flag}`") });
    finding
}
