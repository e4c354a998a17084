//! From shell text to the command lines that it runs, variables and arrays filled in as far as the text tells.

mod fences;
mod line;

use std::{borrow::Cow, cell::Cell, collections::HashMap, sync::Arc};

pub(super) use self::{
    fences::regions,
    line::{ArrayPlace, Field, Line, Script, Text},
};
use super::{
    Environment, detect,
    shell::{Array, Assignment, Command, Operator, Part, Parts, Reader, Statement, Trouble, Word},
};
use crate::text::{Located, Source, Span};

/// Longest list that `$(seq …)` is written out to.
const LONGEST_SEQUENCE: usize = 4096;

/// Most words that all expansions of a text may produce together, so that arrays of arrays cannot grow without bound.
const MOST_WORDS: usize = 1 << 18;

/// Most bytes of text that all expansions may produce together.
const MOST_BYTES: usize = 1 << 26;

/// Most launches of one text, and most constructs in it that do not close.
const MOST_LINES: usize = 1024;

/// Most exported variables: each launch gets a copy of them.
const MOST_EXPORTED: usize = 128;

/// How often a quoted command is looked into (`ssh host "bash -c '…'"`).
const NESTING: usize = 2;

/// Reads a whole text; of Markdown only the fenced blocks.
pub(super) fn read(source: &Source) -> Script<'_> {
    let mut interpreter = Interpreter::new(source);
    for span in regions(source) {
        interpreter.run(span, 0);
    }
    interpreter.finish()
}

/// What a variable holds.
#[derive(Clone, Debug)]
struct Scalar<'a> {
    /// Its whole text.
    value: Text<'a>,
    /// Its words, each at its place in the assignment, where the assignment is one quoted text.
    fields: Vec<Field<'a>>,
    /// Whether a command used it.
    used: bool,
    /// In what order it came.
    order: usize,
}

/// What an array holds.
#[derive(Clone, Debug)]
struct Elements<'a> {
    fields: Vec<Field<'a>>,
    place: ArrayPlace,
    used: bool,
    order: usize,
}

struct Interpreter<'a> {
    source: &'a Source,
    scalars: HashMap<Cow<'a, str>, Scalar<'a>>,
    /// Every array that was ever assigned; a name that is assigned twice without use keeps both.
    arrays: Vec<Elements<'a>>,
    /// Which of them a name means now; `None` where a block that may not have run assigned it.
    current: HashMap<&'a str, Option<usize>>,
    /// Shared by the launches that run in it.
    exported: Arc<Environment>,
    /// How many names were assigned before each open block.
    blocks: Vec<usize>,
    /// Names assigned in the open blocks.
    assigned: Vec<&'a str>,
    lines: Vec<Line<'a>>,
    troubles: Vec<Trouble>,
    words: usize,
    bytes: Cell<usize>,
    order: usize,
}

/// Where the words of a command came from.
#[derive(Default)]
struct Used<'a> {
    arrays: Vec<usize>,
    scalars: Vec<&'a str>,
}

impl<'a> Interpreter<'a> {
    fn new(source: &'a Source) -> Self {
        Self {
            source,
            scalars: HashMap::new(),
            arrays: Vec::new(),
            current: HashMap::new(),
            exported: Arc::default(),
            blocks: Vec::new(),
            assigned: Vec::new(),
            lines: Vec::new(),
            troubles: Vec::new(),
            words: 0,
            bytes: Cell::new(0),
            order: 0,
        }
    }

    fn run(&mut self, span: Span, nesting: usize) {
        let mut reader = Reader::new(self.source.text(), span);
        for statement in reader.by_ref() {
            match statement {
                Statement::BlockOpens => self.blocks.push(self.assigned.len()),
                Statement::BlockCloses => {
                    let before = self.blocks.pop().unwrap_or_default();
                    for name in self.assigned.split_off(before.min(self.assigned.len())) {
                        self.forget(name);
                    }
                }
                Statement::Array(array) => self.assign_array(array),
                Statement::Command(command) => self.command(&command, nesting),
            }
        }
        let room = MOST_LINES.saturating_sub(self.troubles.len());
        self.troubles.extend(reader.into_troubles().into_iter().take(room));
    }

    /// A variable that was assigned in a block that may not have run can hold anything.
    fn forget(&mut self, name: &'a str) {
        if let Some(scalar) = self.scalars.get_mut(name) {
            scalar.value = anything(name);
            if scalar.fields.len() <= 1 {
                scalar.fields.clear();
            }
            scalar.used = true;
        }
        if let Some(current) = self.current.get_mut(name) {
            *current = None;
        }
        if self.exported.contains_key(name) {
            Arc::make_mut(&mut self.exported).remove(name);
        }
    }

    fn assigned(&mut self, name: &'a str) {
        if !self.blocks.is_empty() {
            self.assigned.push(name);
        }
    }

    fn assign_array(&mut self, array: Array<'a>) {
        let mut used = Used::default();
        let fields = self.expand_all(&array.words, &mut used);
        self.assigned(array.name);
        let known = self.current.get(array.name).copied().flatten();
        if array.append
            && let Some(elements) = known.and_then(|at| self.arrays.get_mut(at))
        {
            elements.fields.extend(fields);
            return;
        }
        self.order += 1;
        let place = ArrayPlace { name: array.name_span, span: array.span };
        self.current.insert(array.name, Some(self.arrays.len()));
        self.arrays.push(Elements { fields, place, used: false, order: self.order });
        // Words that went from one array into another are looked at there.
        self.mark(&used);
    }

    fn mark(&mut self, used: &Used<'_>) {
        for at in &used.arrays {
            if let Some(elements) = self.arrays.get_mut(*at) {
                elements.used = true;
            }
        }
        for name in &used.scalars {
            if let Some(scalar) = self.scalars.get_mut(*name) {
                scalar.used = true;
            }
        }
    }

    fn assign(&mut self, assignment: &Assignment<'a>) -> Field<'a> {
        let mut used = Used::default();
        let value = self.text(&assignment.value.parts, assignment.value.span, &mut used);
        let fields = self.fields_of(&assignment.value);
        self.assigned(assignment.name);
        self.order += 1;
        match self.scalars.get_mut(assignment.name).filter(|_| assignment.append) {
            Some(old) => {
                match (&mut old.value, &value) {
                    (Text::Known(old), Text::Known(new)) if old.len() + new.len() <= self.source.text().len() => {
                        old.to_mut().push_str(new);
                    }
                    (old, _) => *old = anything(assignment.name),
                }
                old.fields.extend(fields);
            }
            None => {
                let scalar = Scalar { value: value.clone(), fields, used: false, order: self.order };
                self.scalars.insert(assignment.name.into(), scalar);
            }
        }
        Located::new(value, assignment.value.span)
    }

    /// The words of an assignment whose value is one quoted text, each at its own place.
    fn fields_of(&mut self, value: &Word<'a>) -> Vec<Field<'a>> {
        let Some(inside) = self.quoted_inside(value.span).filter(|_| value.parts.as_slice().len() == 1) else {
            return self.expand_all(std::slice::from_ref(value), &mut Used::default());
        };
        let mut fields = Vec::new();
        for statement in Reader::new(self.source.text(), inside) {
            if let Statement::Command(command) = statement {
                fields.extend(self.expand_all(&command.words, &mut Used::default()));
            }
        }
        fields
    }

    /// The inside of a word that is one quoted text with blanks in it.
    fn quoted_inside(&self, span: Span) -> Option<Span> {
        let text = self.source.slice(span);
        let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let inside = text.get(1..)?.strip_suffix(quote)?;
        inside.contains(char::is_whitespace).then(|| Span::new(span.start + 1, span.end - 1))
    }

    fn command(&mut self, command: &Command<'a>, nesting: usize) {
        let first = command.words.first().and_then(Word::text);
        let declares = matches!(first, Some("export" | "declare" | "local" | "readonly" | "typeset"));
        if command.words.is_empty() || declares {
            for assignment in &command.assignments {
                let field = self.assign(assignment);
                if first == Some("export") {
                    self.export(assignment.name, field);
                }
            }
            if first == Some("export") {
                self.export_by_name(command);
            }
            return;
        }
        if matches!(first, Some("for" | "select" | "read"))
            && let Some(name) = command.words.get(1).and_then(Word::name)
        {
            self.order += 1;
            let scalar = Scalar { value: anything(&name), fields: Vec::new(), used: true, order: self.order };
            self.scalars.insert(name, scalar);
            return;
        }
        // A command without a flag is no launch; what it names stays to be looked at by itself.
        if self.lines.len() >= MOST_LINES || !command.words.iter().any(may_hold_flag) {
            return;
        }
        let mut used = Used::default();
        let words = self.expand_all(&command.words, &mut used);
        if !words.iter().any(|word| has_flag(word.value.written())) {
            return;
        }
        let arrays = used.arrays.iter().filter_map(|at| Some(self.arrays.get(*at)?.place.clone())).collect();
        let mut line = Line { words, is_variable: false, arrays, environment: Arc::default() };
        if detect::detect(&line, None).is_some() {
            line.environment = self.environment(&command.assignments);
        } else {
            self.look_inside(command, nesting);
        }
        self.mark(&used);
        self.lines.push(line);
    }

    /// What is exported, with what stands in front of a command.
    fn environment(&self, own: &[Assignment<'a>]) -> Arc<Environment> {
        let mut environment = Arc::clone(&self.exported);
        for assignment in own {
            let value = self.text(&assignment.value.parts, assignment.value.span, &mut Used::default());
            let value = Located::new(value.to_value(), assignment.value.span);
            Arc::make_mut(&mut environment).insert(assignment.name.to_owned(), value);
        }
        environment
    }

    fn export(&mut self, name: &str, field: Field<'_>) {
        if self.exported.len() < MOST_EXPORTED {
            let value = Located::new(field.value.to_value(), field.span);
            Arc::make_mut(&mut self.exported).insert(name.to_owned(), value);
        }
    }

    /// `export NAME` of variables that have their values already.
    fn export_by_name(&mut self, command: &Command<'_>) {
        for word in command.words.iter().skip(1) {
            if let Some(name) = word.text()
                && let Some(scalar) = self.scalars.get(name)
            {
                let field = Located::new(scalar.value.clone(), word.span);
                self.export(name, field);
            }
        }
    }

    /// Commands inside a quoted word: `bash -c "…"`, `ssh host '…'`.
    fn look_inside(&mut self, command: &Command<'_>, nesting: usize) {
        if nesting >= NESTING {
            return;
        }
        for word in &command.words {
            let inside = self.quoted_inside(word.span);
            if let Some(inside) = inside.filter(|inside| names_an_engine(self.source.slice(*inside))) {
                self.run(inside, nesting + 1);
            }
        }
    }

    fn expand_all(&mut self, words: &[Word<'a>], used: &mut Used<'a>) -> Vec<Field<'a>> {
        let mut fields = Vec::with_capacity(words.len());
        for word in words {
            if let Parts::One(Part::Text(text)) = &word.parts {
                fields.push(Located::new(Text::Known(text.clone()), word.span));
                continue;
            }
            if self.words > MOST_WORDS || self.bytes.get() > MOST_BYTES {
                // What is left out may hold anything.
                fields.push(self.unknown(word.span));
                break;
            }
            let before = fields.len();
            self.expand(word, used, &mut fields);
            let more = fields.get(before..).unwrap_or_default();
            self.words += more.len();
            // A word that is joined of its parts is counted there.
            if more.len() > 1 || matches!(word.parts.as_slice(), [Part::Elements(_)]) {
                let bytes: usize = more.iter().map(|field| field.value.written().len()).sum();
                self.bytes.set(self.bytes.get() + bytes);
            }
        }
        fields
    }

    /// The fields that one word becomes.
    fn expand(&self, word: &Word<'a>, used: &mut Used<'a>, fields: &mut Vec<Field<'a>>) {
        let several = match word.parts.as_slice() {
            [Part::Variable { name, operator: Operator::Value, quoted: false, .. }] => {
                self.scalars.get(*name).filter(|scalar| scalar.fields.len() > 1).map(|scalar| (*name, scalar))
            }
            _ => None,
        };
        if let Some((name, scalar)) = several {
            used.scalars.push(name);
            fields.extend_from_slice(&scalar.fields);
            return;
        }
        match word.parts.as_slice() {
            [Part::Elements(name)] => match self.current.get(name).copied().flatten() {
                Some(at) => {
                    used.arrays.push(at);
                    let elements = self.arrays.get(at).map(|elements| elements.fields.as_slice());
                    fields.extend_from_slice(elements.unwrap_or_default());
                }
                None => fields.push(self.unknown(word.span)),
            },
            [Part::Sequence { first, step, last }] => match numbers(*first, *step, *last) {
                Some(numbers) => {
                    let known = |number: String| Located::new(Text::Known(number.into()), word.span);
                    fields.extend(numbers.into_iter().map(known));
                }
                None => fields.push(self.unknown(word.span)),
            },
            _ => {
                let value = self.text(&word.parts, word.span, used);
                fields.push(Located::new(value, word.span));
            }
        }
    }

    fn unknown(&self, span: Span) -> Field<'a> {
        Located::new(Text::Unknown(self.source.slice(span).into()), span)
    }

    /// The text of parts taken together, where it is known.
    fn text(&self, parts: &Parts<'a>, span: Span, used: &mut Used<'a>) -> Text<'a> {
        if let Parts::One(Part::Text(text)) = parts {
            return Text::Known(text.clone());
        }
        match self.join(parts.as_slice(), used) {
            Some(text) => Text::Known(text.into()),
            None => self.unknown(span).value,
        }
    }

    fn join(&self, parts: &[Part<'a>], used: &mut Used<'a>) -> Option<String> {
        let mut whole = String::new();
        for part in parts {
            match part {
                Part::Text(text) => whole.push_str(text),
                Part::Variable { name, operator, argument, .. } => {
                    let value = self.scalars.get(*name).map(|scalar| &scalar.value);
                    if value.is_some() {
                        used.scalars.push(name);
                    }
                    match (operator, value) {
                        (_, Some(Text::Unknown(_))) | (Operator::Value, None) => return None,
                        (Operator::Value, Some(Text::Known(text))) => whole.push_str(text),
                        (Operator::Default, Some(Text::Known(text))) if !text.is_empty() => whole.push_str(text),
                        (Operator::Default, _) => whole.push_str(&self.join(argument, used)?),
                        (Operator::Alternative, Some(Text::Known(text))) if !text.is_empty() => {
                            whole.push_str(&self.join(argument, used)?);
                        }
                        (Operator::Alternative, _) => {}
                    }
                }
                Part::Sequence { first, step, last } => whole.push_str(&numbers(*first, *step, *last)?.join(" ")),
                Part::Elements(_) | Part::Opaque => return None,
            }
            if self.bytes.get() + whole.len() > MOST_BYTES {
                return None;
            }
        }
        self.bytes.set(self.bytes.get() + whole.len());
        Some(whole)
    }

    fn finish(self) -> Script<'a> {
        let named = |fields: &[Field<'_>]| {
            fields.iter().any(|field| field.value.known().is_some_and(|text| text.starts_with('-')))
        };
        let line = |words, arrays| Line { words, is_variable: true, arrays, environment: Arc::clone(&self.exported) };
        let arrays = self.arrays.into_iter().filter(|elements| !elements.used && named(&elements.fields));
        let arrays = arrays.take(MOST_LINES);
        let mut rest: Vec<(usize, Line<'a>)> =
            arrays.map(|elements| (elements.order, line(elements.fields, vec![elements.place]))).collect();
        let scalars = self.scalars.into_values();
        let scalars = scalars.filter(|scalar| !scalar.used && scalar.fields.len() > 1 && named(&scalar.fields));
        rest.extend(scalars.take(MOST_LINES).map(|scalar| (scalar.order, line(scalar.fields, Vec::new()))));
        rest.sort_by_key(|(order, _)| *order);
        rest.truncate(MOST_LINES);
        let mut lines = self.lines;
        lines.extend(rest.into_iter().map(|(_, line)| line));
        Script { lines, troubles: self.troubles }
    }
}

/// What a variable holds of which nothing is known.
fn anything(name: &str) -> Text<'static> {
    Text::Unknown(format!("${name}").into())
}

/// Whether a word may hold a flag once it is expanded.
fn may_hold_flag(word: &Word<'_>) -> bool {
    word.text().is_none_or(has_flag)
}

/// Whether a word holds a flag, by itself or in a quoted command.
fn has_flag(text: &str) -> bool {
    text.as_bytes().windows(2).any(|pair| pair == b"--")
}

/// Whether a quoted text could hold the launch of an engine.
fn names_an_engine(text: &str) -> bool {
    ["sglang", "vllm", "spectune", "--speculative"].iter().any(|name| text.contains(name))
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
