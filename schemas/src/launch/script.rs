//! From shell text to the command lines that it runs, variables and arrays filled in as far as the text tells.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
};

use super::{
    Value, detect,
    shell::{self, Array, Assignment, Command, Operator, Part, Statement, Trouble, Word},
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

/// A word of a command line after expansion.
pub(super) type Field = Located<Value>;

/// A command line, or a list of words that a script names and that no command in it uses.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its words.
    pub words: Vec<Field>,
    /// The variable that holds the words, where no command uses it.
    pub variable: Option<String>,
    /// The arrays that went into it.
    pub arrays: Vec<ArrayPlace>,
    /// The environment it runs in, as far as the text sets it.
    pub environment: BTreeMap<String, Field>,
}

/// Where an array stands.
#[derive(Clone, Debug)]
pub(super) struct ArrayPlace {
    /// Its name.
    pub name: Span,
    /// The whole assignment.
    pub span: Span,
}

/// What a script says.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// Commands in order, then the variables that no command uses.
    pub lines: Vec<Line>,
    /// What did not close.
    pub troubles: Vec<Trouble>,
}

/// Reads a whole text; of Markdown only the fenced blocks.
pub(super) fn read(source: &Source) -> Script {
    let mut interpreter = Interpreter::new(source);
    for span in regions(source.text()) {
        interpreter.run(span, 0);
    }
    interpreter.finish()
}

/// The fenced blocks of a text that has any, otherwise all of it.
pub(super) fn regions(text: &str) -> Vec<Span> {
    let mut regions = Vec::new();
    let mut opened: Option<usize> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            opened = match opened {
                Some(start) => {
                    regions.push(Span::new(start, at));
                    None
                }
                None => Some(next),
            };
        }
        at = next;
    }
    if let Some(start) = opened {
        regions.push(Span::new(start, text.len()));
    }
    if regions.is_empty() { vec![Span::new(0, text.len())] } else { regions }
}

/// What a variable holds.
#[derive(Clone, Debug)]
struct Scalar {
    /// Its whole text.
    value: Value,
    /// Its words, each at its place in the assignment, where the assignment is one quoted text.
    fields: Vec<Field>,
    /// Whether a command used it.
    used: bool,
    /// In what order it came.
    order: usize,
}

/// What an array holds.
#[derive(Clone, Debug)]
struct Elements {
    fields: Vec<Field>,
    place: ArrayPlace,
    used: bool,
    order: usize,
}

struct Interpreter<'a> {
    source: &'a Source,
    scalars: HashMap<String, Scalar>,
    /// Every array that was ever assigned; a name that is assigned twice without use keeps both.
    arrays: Vec<(String, Elements)>,
    /// Which of them a name means now; `None` where a block that may not have run assigned it.
    current: HashMap<String, Option<usize>>,
    exported: BTreeMap<String, Field>,
    /// Names assigned in each open block.
    blocks: Vec<Vec<String>>,
    lines: Vec<Line>,
    troubles: Vec<Trouble>,
    words: usize,
    bytes: Cell<usize>,
    order: usize,
}

/// Where the words of a command came from.
#[derive(Default)]
struct Used {
    arrays: Vec<usize>,
    scalars: Vec<String>,
}

impl<'a> Interpreter<'a> {
    fn new(source: &'a Source) -> Self {
        Self {
            source,
            scalars: HashMap::new(),
            arrays: Vec::new(),
            current: HashMap::new(),
            exported: BTreeMap::new(),
            blocks: Vec::new(),
            lines: Vec::new(),
            troubles: Vec::new(),
            words: 0,
            bytes: Cell::new(0),
            order: 0,
        }
    }

    fn run(&mut self, span: Span, nesting: usize) {
        let (statements, troubles) = shell::read(self.source.text(), span);
        let room = MOST_LINES.saturating_sub(self.troubles.len());
        self.troubles.extend(troubles.into_iter().take(room));
        for statement in statements {
            match statement {
                Statement::BlockOpens => self.blocks.push(Vec::new()),
                Statement::BlockCloses => {
                    for name in self.blocks.pop().unwrap_or_default() {
                        self.forget(&name);
                    }
                }
                Statement::Array(array) => self.assign_array(array),
                Statement::Command(command) => self.command(command, nesting),
            }
        }
    }

    /// A variable that was assigned in a block that may not have run can hold anything.
    fn forget(&mut self, name: &str) {
        if let Some(scalar) = self.scalars.get_mut(name) {
            scalar.value = Value::Unknown(format!("${name}"));
            if scalar.fields.len() <= 1 {
                scalar.fields.clear();
            }
            scalar.used = true;
        }
        if let Some(current) = self.current.get_mut(name) {
            *current = None;
        }
        self.exported.remove(name);
    }

    fn assigned(&mut self, name: &str) {
        if let Some(block) = self.blocks.last_mut() {
            block.push(name.to_owned());
        }
    }

    fn assign_array(&mut self, array: Array) {
        let mut used = Used::default();
        let fields = self.expand_all(&array.words, &mut used);
        self.assigned(&array.name);
        let known = self.current.get(&array.name).copied().flatten();
        if array.append
            && let Some((_, elements)) = known.and_then(|at| self.arrays.get_mut(at))
        {
            elements.fields.extend(fields);
            return;
        }
        self.order += 1;
        let place = ArrayPlace { name: array.name_span, span: array.span };
        self.current.insert(array.name.clone(), Some(self.arrays.len()));
        self.arrays.push((array.name, Elements { fields, place, used: false, order: self.order }));
        // Words that went from one array into another are looked at there.
        self.mark(&used);
    }

    fn mark(&mut self, used: &Used) {
        for at in &used.arrays {
            if let Some((_, elements)) = self.arrays.get_mut(*at) {
                elements.used = true;
            }
        }
        for name in &used.scalars {
            if let Some(scalar) = self.scalars.get_mut(name) {
                scalar.used = true;
            }
        }
    }

    fn assign(&mut self, assignment: &Assignment) -> Option<Field> {
        let mut used = Used::default();
        let value = self.text(&assignment.value.parts, assignment.value.span, &mut used);
        let fields = self.fields_of(&assignment.value);
        self.assigned(&assignment.name);
        self.order += 1;
        match self.scalars.get_mut(&assignment.name).filter(|_| assignment.append) {
            Some(old) => {
                match (&mut old.value, &value) {
                    (Value::Known(old), Value::Known(new)) if old.len() + new.len() <= self.source.text().len() => {
                        old.push_str(new);
                    }
                    (old, _) => *old = Value::Unknown(format!("${}", assignment.name)),
                }
                old.fields.extend(fields);
            }
            None => {
                let scalar = Scalar { value: value.clone(), fields, used: false, order: self.order };
                self.scalars.insert(assignment.name.clone(), scalar);
            }
        }
        Some(Located::new(value, assignment.value.span))
    }

    /// The words of an assignment whose value is one quoted text, each at its own place.
    fn fields_of(&mut self, value: &Word) -> Vec<Field> {
        let Some(inside) = self.quoted_inside(value.span).filter(|_| value.parts.len() == 1) else {
            return self.expand_all(std::slice::from_ref(value), &mut Used::default());
        };
        let (statements, _) = shell::read(self.source.text(), inside);
        let mut fields = Vec::new();
        for statement in statements {
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

    fn command(&mut self, command: Command, nesting: usize) {
        let first = command.words.first().and_then(Word::text).map(str::to_owned);
        let mut own = BTreeMap::new();
        let declares = matches!(first.as_deref(), Some("export" | "declare" | "local" | "readonly" | "typeset"));
        let alone = command.words.is_empty() || declares;
        for assignment in &command.assignments {
            if alone {
                let Some(field) = self.assign(assignment) else { continue };
                if first.as_deref() == Some("export") && self.exported.len() < MOST_EXPORTED {
                    self.exported.insert(assignment.name.clone(), field);
                }
            } else {
                let value = self.text(&assignment.value.parts, assignment.value.span, &mut Used::default());
                own.insert(assignment.name.clone(), Located::new(value, assignment.value.span));
            }
        }
        if alone {
            self.export_by_name(&command, first.as_deref());
            return;
        }
        if matches!(first.as_deref(), Some("for" | "select" | "read"))
            && let Some(name) = command.words.get(1).and_then(Word::text)
        {
            let value = Value::Unknown(format!("${name}"));
            self.order += 1;
            let scalar = Scalar { value, fields: Vec::new(), used: true, order: self.order };
            self.scalars.insert(name.to_owned(), scalar);
            return;
        }
        let mut used = Used::default();
        let words = self.expand_all(&command.words, &mut used);
        // A command without a flag is no launch; what it names stays to be looked at by itself.
        if self.lines.len() >= MOST_LINES || !words.iter().any(has_flag) {
            return;
        }
        let arrays = used.arrays.iter().filter_map(|at| Some(self.arrays.get(*at)?.1.place.clone())).collect();
        let mut line = Line { words, variable: None, arrays, environment: BTreeMap::new() };
        if detect::detect(&line, None).is_some() {
            line.environment.clone_from(&self.exported);
            line.environment.extend(own);
        } else {
            self.look_inside(&command, nesting);
        }
        self.mark(&used);
        self.lines.push(line);
    }

    /// `export NAME` of a variable that has its value already.
    fn export_by_name(&mut self, command: &Command, first: Option<&str>) {
        if first != Some("export") {
            return;
        }
        for word in command.words.iter().skip(1) {
            if let Some(name) = word.text()
                && let Some(scalar) = self.scalars.get(name)
                && self.exported.len() < MOST_EXPORTED
            {
                self.exported.insert(name.to_owned(), Located::new(scalar.value.clone(), word.span));
            }
        }
    }

    /// Commands inside a quoted word: `bash -c "…"`, `ssh host '…'`.
    fn look_inside(&mut self, command: &Command, nesting: usize) {
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

    fn expand_all(&mut self, words: &[Word], used: &mut Used) -> Vec<Field> {
        let mut fields = Vec::new();
        for word in words {
            if self.words > MOST_WORDS || self.bytes.get() > MOST_BYTES {
                // What is left out may hold anything.
                fields.push(self.unknown(word.span));
                break;
            }
            let more = self.expand(word, used);
            self.words += more.len();
            // A word that is joined of its parts is counted there.
            if more.len() > 1 || matches!(word.parts.as_slice(), [Part::Elements(_)]) {
                let bytes: usize = more.iter().map(|field| field.value.written().len()).sum();
                self.bytes.set(self.bytes.get() + bytes);
            }
            fields.extend(more);
        }
        fields
    }

    /// The fields that one word becomes.
    fn expand(&self, word: &Word, used: &mut Used) -> Vec<Field> {
        match word.parts.as_slice() {
            [Part::Elements(name)] => match self.current.get(name).copied().flatten() {
                Some(at) => {
                    used.arrays.push(at);
                    self.arrays.get(at).map(|(_, elements)| elements.fields.clone()).unwrap_or_default()
                }
                None => vec![self.unknown(word.span)],
            },
            [Part::Sequence { first, step, last }] => match numbers(*first, *step, *last) {
                Some(numbers) => {
                    numbers.into_iter().map(|number| Located::new(Value::Known(number), word.span)).collect()
                }
                None => vec![self.unknown(word.span)],
            },
            [Part::Variable { name, operator: Operator::Value, quoted: false, .. }]
                if self.scalars.get(name).is_some_and(|scalar| scalar.fields.len() > 1) =>
            {
                used.scalars.push(name.clone());
                self.scalars.get(name).map(|scalar| scalar.fields.clone()).unwrap_or_default()
            }
            parts => {
                let value = self.text(parts, word.span, used);
                vec![Located::new(value, word.span)]
            }
        }
    }

    fn unknown(&self, span: Span) -> Field {
        Located::new(Value::Unknown(self.source.slice(span).to_owned()), span)
    }

    /// The text of parts taken together, where it is known.
    fn text(&self, parts: &[Part], span: Span, used: &mut Used) -> Value {
        match self.join(parts, used) {
            Some(text) => Value::Known(text),
            None => Value::Unknown(self.source.slice(span).to_owned()),
        }
    }

    fn join(&self, parts: &[Part], used: &mut Used) -> Option<String> {
        let mut whole = String::new();
        for part in parts {
            match part {
                Part::Text(text) => whole.push_str(text),
                Part::Variable { name, operator, argument, .. } => {
                    let value = self.scalars.get(name).map(|scalar| &scalar.value);
                    if value.is_some() {
                        used.scalars.push(name.clone());
                    }
                    match (operator, value) {
                        (_, Some(Value::Unknown(_))) | (Operator::Value, None) => return None,
                        (Operator::Value, Some(Value::Known(text))) => whole.push_str(text),
                        (Operator::Default, Some(Value::Known(text))) if !text.is_empty() => whole.push_str(text),
                        (Operator::Default, _) => whole.push_str(&self.join(argument, used)?),
                        (Operator::Alternative, Some(Value::Known(text))) if !text.is_empty() => {
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

    fn finish(self) -> Script {
        let mut rest: Vec<(usize, Line)> = Vec::new();
        let named =
            |fields: &[Field]| fields.iter().any(|field| field.value.known().is_some_and(|text| text.starts_with('-')));
        let arrays = self.arrays.into_iter().filter(|(_, elements)| !elements.used && named(&elements.fields));
        for (name, elements) in arrays.take(MOST_LINES) {
            let line = Line {
                words: elements.fields,
                variable: Some(name),
                arrays: vec![elements.place],
                environment: self.exported.clone(),
            };
            rest.push((elements.order, line));
        }
        let scalars = self.scalars.into_iter();
        let scalars = scalars.filter(|(_, scalar)| !scalar.used && scalar.fields.len() > 1 && named(&scalar.fields));
        for (name, scalar) in scalars.take(MOST_LINES) {
            let line = Line {
                words: scalar.fields,
                variable: Some(name),
                arrays: Vec::new(),
                environment: self.exported.clone(),
            };
            rest.push((scalar.order, line));
        }
        rest.sort_by_key(|(order, _)| *order);
        rest.truncate(MOST_LINES);
        let mut lines = self.lines;
        lines.extend(rest.into_iter().map(|(_, line)| line));
        Script { lines, troubles: self.troubles }
    }
}

/// Whether a word holds a flag, by itself or in a quoted command.
fn has_flag(word: &Field) -> bool {
    word.value.written().contains("--")
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
