//! Expands words to the words that a command receives.

use schemas::text::{Located, Span};

use super::{
    super::{
        command::{CommandText, Field},
        shell::{self, Chunk, HereDocument, Operator, ShellWord, WordPart, WordParts, printed_document},
    },
    Interpreter, ShellVariable, Used, arithmetic,
    control_flow::{Branch, Conditional},
};

/// Maximum length of a list expanded from `$(seq …)`.
const LONGEST_SEQUENCE: usize = 4096;

/// Maximum total number of words from all expansions of a text, so that arrays of arrays cannot
/// grow without bound.
const MOST_WORDS: usize = 1 << 18;

/// Maximum total number of bytes from all expansions.
const MOST_BYTES: usize = 1 << 26;

impl<'a> Interpreter<'a> {
    pub(super) fn expand_all(&mut self, words: &[ShellWord<'a>], used: &mut Used<'a>) -> Vec<Field<'a>> {
        let mut fields = Vec::with_capacity(words.len());
        for word in words {
            if let WordParts::One(WordPart::Text(text)) = &word.parts {
                fields.push(Located::new(CommandText::Known(text.clone()), word.span));
                continue;
            }
            if self.words > MOST_WORDS || self.bytes.get() > MOST_BYTES {
                // The omitted words may contain anything.
                fields.push(self.unknown(word.span));
                break;
            }
            let before = fields.len();
            self.expand(word, used, &mut fields);
            let more = fields.get(before..).unwrap_or_default();
            self.words += more.len();
            // A word joined from its parts is counted when it is joined.
            if more.len() > 1 || matches!(word.parts.as_slice(), [WordPart::Elements(_)]) {
                let bytes: usize = more.iter().map(|field| field.value.written().len()).sum();
                self.bytes.set(self.bytes.get() + bytes);
            }
        }
        fields
    }

    /// Whether expansions are still within their limits.
    pub(super) fn has_room(&self) -> bool {
        self.words <= MOST_WORDS && self.bytes.get() <= MOST_BYTES
    }

    /// The concatenated text of the parts, if it is known.
    pub(super) fn text(&self, parts: &WordParts<'a>, span: Span, used: &mut Used<'a>) -> CommandText<'a> {
        if let WordParts::One(WordPart::Text(text)) = parts {
            return CommandText::Known(text.clone());
        }
        match self.join(parts.as_slice(), used) {
            Some(text) => CommandText::Known(text.into()),
            None => self.unknown(span).value,
        }
    }

    /// The fields that one word becomes.
    fn expand(&mut self, word: &ShellWord<'a>, used: &mut Used<'a>, fields: &mut Vec<Field<'a>>) {
        if let [WordPart::Variable { name, operator, argument, quoted: false }] = word.parts.as_slice() {
            match (operator, self.scalars.get(*name)) {
                (Operator::Value | Operator::Default, Some(scalar)) if scalar.words.is_list() => {
                    used.scalars.push(name);
                    let from = fields.len();
                    scalar.words.expand(&self.gone, fields, &mut used.conditional);
                    if self.is_inside {
                        fields.iter_mut().skip(from).for_each(unquote);
                    }
                    return;
                }
                (Operator::Default, None)
                | (Operator::Alternative, Some(ShellVariable { value: CommandText::Known(_), .. }))
                    if !argument.is_empty() && self.text(&word.parts, word.span, used).has_blanks() =>
                {
                    if let Some(inside) = self.argument_inside(word.span, name) {
                        fields.extend(self.words_of(inside));
                        return;
                    }
                }
                // It is unknown whether the caller sets it: flags in it are present on one path
                // only.
                (Operator::Alternative, None | Some(ShellVariable { value: CommandText::Unknown(_), .. }))
                    if !argument.is_empty() =>
                {
                    let inside = self.argument_inside(word.span, name);
                    let words = inside.map(|inside| self.words_of(inside)).unwrap_or_default();
                    if words.first().is_some_and(|word| word.value.written().starts_with('-')) {
                        let from = fields.len();
                        fields.extend(words);
                        let way = Branch { block: self.blocks_seen, turn: 0, of_function: false };
                        self.blocks_seen = self.blocks_seen.saturating_add(1);
                        used.conditional.extend(Conditional::on(&[way], &self.gone, from, fields.len()));
                        return;
                    }
                }
                _ => {}
            }
        }
        match word.parts.as_slice() {
            [WordPart::Elements(name)] => {
                match self.current.get(name).and_then(|at| Some((*at, self.arrays.get(*at)?))) {
                    Some((at, elements)) => {
                        used.arrays.push(at);
                        elements.expand(&self.gone, fields, &mut used.conditional);
                    }
                    None => fields.push(self.unknown(word.span)),
                }
            }
            [WordPart::Printed { body, is_verbatim, strips_tabs, quoted: false }] => {
                let split = self.split_document(&printed_document(*body, *is_verbatim, *strips_tabs), used);
                fields.extend(split.fields);
            }
            [WordPart::Sequence { first, step, last }] => match numbers(*first, *step, *last) {
                Some(numbers) => {
                    let known = |number: String| Located::new(CommandText::Known(number.into()), word.span);
                    fields.extend(numbers.into_iter().map(known));
                }
                None => fields.push(self.unknown(word.span)),
            },
            parts => {
                let bare = parts.iter().any(|part| matches!(part, WordPart::Variable { quoted: false, .. }));
                let value = self.text(&word.parts, word.span, used);
                match value.known().filter(|_| bare) {
                    // An empty expansion yields no word.
                    Some("") => {}
                    Some(text) if text.contains(char::is_whitespace) && self.given.is_some() => {
                        let word = |part: &str| Located::new(CommandText::Known(part.to_owned().into()), word.span);
                        fields.extend(text.split_whitespace().map(word));
                    }
                    // The shell splits it into several words, which have no separate spans.
                    Some(text) if text.contains(char::is_whitespace) => fields.push(self.unknown(word.span)),
                    _ => fields.push(Located::new(value, word.span)),
                }
            }
        }
    }

    /// The span of `argument` in `${NAME:-argument}`.
    fn argument_inside(&self, word: Span, name: &str) -> Option<Span> {
        let tail = self.source.slice(word).strip_prefix("${")?.strip_prefix(name)?;
        let argument = tail.strip_prefix(':').unwrap_or(tail).strip_prefix(['-', '=', '+'])?.strip_suffix('}')?;
        Some(Span::new(word.end - 1 - argument.len(), word.end - 1))
    }

    fn unknown(&self, span: Span) -> Field<'a> {
        Located::new(CommandText::Unknown(self.source.slice(span).into()), span)
    }

    fn join(&self, parts: &[WordPart<'a>], used: &mut Used<'a>) -> Option<String> {
        let mut whole = String::new();
        for part in parts {
            match part {
                WordPart::Text(text) => whole.push_str(text),
                WordPart::Variable { name, operator, argument, .. } => {
                    let value = self.scalars.get(*name).map(|scalar| &scalar.value);
                    if value.is_some() {
                        used.scalars.push(name);
                    }
                    match (operator, value) {
                        (_, Some(CommandText::Unknown(_))) | (Operator::Value, None) => return None,
                        (Operator::Value, Some(CommandText::Known(text))) => whole.push_str(text),
                        (Operator::Default, Some(CommandText::Known(text))) if !text.is_empty() => whole.push_str(text),
                        // The caller is expected to set it.
                        (Operator::Default, None) if argument.is_empty() => return None,
                        (Operator::Default, _) => whole.push_str(&self.join(argument, used)?),
                        (Operator::Alternative, Some(CommandText::Known(text))) if !text.is_empty() => {
                            whole.push_str(&self.join(argument, used)?);
                        }
                        (Operator::Alternative, _) => {}
                    }
                }
                WordPart::Sequence { first, step, last } => whole.push_str(&numbers(*first, *step, *last)?.join(" ")),
                WordPart::Printed { body, is_verbatim, strips_tabs, .. } => {
                    whole.push_str(&self.printed(&printed_document(*body, *is_verbatim, *strips_tabs), used)?);
                }
                WordPart::Arithmetic(inside) => {
                    let expression = *inside;
                    let mut value_of = |name: &'a str| {
                        let scalar = self.scalars.get(name)?;
                        used.scalars.push(name);
                        scalar.value.known()?.trim().parse().ok()
                    };
                    whole.push_str(&arithmetic::value(expression, &mut value_of)?.to_string());
                }
                WordPart::Elements(_) | WordPart::Opaque => return None,
            }
            if self.bytes.get() + whole.len() > MOST_BYTES {
                return None;
            }
        }
        self.bytes.set(self.bytes.get() + whole.len());
        Some(whole)
    }
}

impl<'a> Interpreter<'a> {
    /// What `cat` prints of a here-document, without the line ends at its end.
    fn printed(&self, document: &HereDocument<'a>, used: &mut Used<'a>) -> Option<String> {
        let mut whole = String::new();
        for chunk in shell::chunks(self.source.text(), document) {
            match chunk {
                Chunk::Text(span) => whole.push_str(self.source.slice(span)),
                Chunk::Continuation(_) => {}
                Chunk::Expansion(WordPart::Printed { .. }, _) => return None,
                Chunk::Expansion(part, _) => whole.push_str(&self.join(std::slice::from_ref(&part), used)?),
            }
        }
        whole.truncate(whole.trim_end_matches('\n').len());
        Some(whole)
    }
}

/// Takes away the quotes around a word, which a second shell reads.
fn unquote(field: &mut Field<'_>) {
    let Some(text) = field.value.known() else { return };
    for quote in ['\'', '"'] {
        let inside = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        if let Some(inside) = inside.filter(|inside| !inside.contains(quote)) {
            field.value = CommandText::Known(inside.to_owned().into());
            return;
        }
    }
}

fn numbers(first: i64, step: i64, last: i64) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    let mut number = first;
    while if step > 0 { number <= last } else { number >= last } {
        if numbers.len() >= LONGEST_SEQUENCE {
            return None;
        }
        numbers.push(number.to_string());
        number = number.checked_add(step)?;
    }
    Some(numbers)
}
