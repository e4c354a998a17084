//! From shell text to the command lines that it runs, variables and arrays filled in as far as the text tells.

mod destination;
mod documents;
mod fences;
mod inside;
mod line;
mod surroundings;
mod ways;

use std::{borrow::Cow, cell::Cell, collections::HashMap, sync::Arc};

pub(super) use self::surroundings::of_image;
use self::surroundings::{Surroundings, of_requirement};
use self::ways::{Conditional, DEEPEST, Elements, Way, ways};
pub(super) use self::{
    destination::Kind,
    documents::{Document, UNKNOWN},
    fences::regions,
    line::{ArrayPlace, Field, Line, Script, Text},
};
use super::{
    Environment, detect,
    shell::{
        Array, Assignment, Block, Command, Hopeless, Opener, Operator, Part, Parts, Reader, Statement, Trouble, Word,
    },
};
use crate::{
    text::{Located, Source, Span},
    version::EngineVersion,
};

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

/// Reads a whole text; of Markdown only the fenced blocks.
pub(super) fn read(source: &Source) -> Script<'_> {
    let mut interpreter = Interpreter::new(source);
    for span in regions(source) {
        interpreter.run(Reader::new(source.text(), span), 0);
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

struct Interpreter<'a> {
    source: &'a Source,
    scalars: HashMap<Cow<'a, str>, Scalar<'a>>,
    /// Every array that was ever assigned; a name that is assigned twice without use keeps both.
    arrays: Vec<Elements<'a>>,
    /// Which of them a name means now.
    current: HashMap<&'a str, usize>,
    /// The version of the engine that is installed, where requirements name one.
    pinned: Option<Option<Located<EngineVersion>>>,
    /// Shared by the launches that run in it.
    exported: Arc<Environment>,
    /// How many names were assigned before each open block.
    blocks: Vec<usize>,
    /// The way that is gone in each open block, up to the deepest that is told from the one around it.
    gone: Vec<Way>,
    /// How many blocks there were.
    blocks_seen: u32,
    /// Names assigned in the open blocks.
    assigned: Vec<&'a str>,
    lines: Vec<Line<'a>>,
    troubles: Vec<Trouble>,
    documents: Vec<Document>,
    words: usize,
    bytes: Cell<usize>,
    order: usize,
}

/// Where the words of a command came from.
#[derive(Default)]
struct Used<'a> {
    arrays: Vec<usize>,
    scalars: Vec<&'a str>,
    /// Those that are not there on every way.
    conditional: Vec<Conditional>,
}

impl<'a> Interpreter<'a> {
    fn new(source: &'a Source) -> Self {
        Self {
            source,
            scalars: HashMap::new(),
            arrays: Vec::new(),
            current: HashMap::new(),
            pinned: None,
            exported: Arc::default(),
            blocks: Vec::new(),
            gone: Vec::new(),
            blocks_seen: 0,
            assigned: Vec::new(),
            lines: Vec::new(),
            troubles: Vec::new(),
            documents: Vec::new(),
            words: 0,
            bytes: Cell::new(0),
            order: 0,
        }
    }

    fn run(&mut self, mut reader: Reader<'a>, nesting: usize) {
        for statement in reader.by_ref() {
            match statement {
                Statement::BlockOpens(block) => self.open(block),
                Statement::BlockTurns => self.turn(),
                Statement::BlockCloses => self.close(),
                Statement::Array(array) => self.assign_array(array),
                Statement::Document(document) if nesting == 0 => self.document(&document),
                Statement::Document(_) => {}
                Statement::Command(command) => self.command(&command, nesting),
            }
        }
        let room = MOST_LINES.saturating_sub(self.troubles.len());
        self.troubles.extend(reader.into_troubles().into_iter().take(room));
    }

    fn open(&mut self, block: Block) {
        if self.blocks.len() < DEEPEST {
            let of_function = block == Block::Function;
            self.gone.push(Way { block: self.blocks_seen, turn: 0, of_function });
            self.blocks_seen = self.blocks_seen.saturating_add(1);
        }
        self.blocks.push(self.assigned.len());
    }

    fn turn(&mut self) {
        let before = self.blocks.last().copied().unwrap_or_default();
        self.forget_since(before);
        if self.blocks.len() == self.gone.len()
            && let Some(way) = self.gone.last_mut()
        {
            way.turn = way.turn.saturating_add(1);
        }
    }

    fn close(&mut self) {
        let before = self.blocks.pop().unwrap_or_default();
        self.gone.truncate(self.blocks.len());
        self.forget_since(before);
    }

    fn forget_since(&mut self, before: usize) {
        for name in self.assigned.split_off(before.min(self.assigned.len())) {
            self.forget(name);
        }
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
        if self.exported.contains_key(name)
            && let Some(variable) = Arc::make_mut(&mut self.exported).get_mut(name)
        {
            variable.value = anything(name).to_value();
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
        let known = self.current.get(array.name).copied();
        let place = ArrayPlace { name: array.name_span, span: array.span };
        let old = known.and_then(|at| self.arrays.get_mut(at));
        let mut elements = match old {
            Some(old) if array.append => {
                old.append(fields, &used.conditional, &self.gone);
                self.mark(&used);
                return;
            }
            Some(old) if !self.gone.is_empty() => {
                if old.replace(fields.clone(), &used.conditional, &self.gone) {
                    old.places.push(place);
                    self.mark(&used);
                    return;
                }
                Elements::default()
            }
            Some(old) => old.take_appended_by_functions(),
            None => Elements::default(),
        };
        self.order += 1;
        elements.begin(fields, &used.conditional, &self.gone, array.append);
        elements.places = vec![place];
        elements.order = self.order;
        self.current.insert(array.name, self.arrays.len());
        self.arrays.push(elements);
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
        match self.quoted_inside(value.span) {
            Some(inside) => self.words_of(inside),
            None => self.expand_all(std::slice::from_ref(value), &mut Used::default()),
        }
    }

    /// The words of a part of the text, each at its own place.
    fn words_of(&mut self, inside: Span) -> Vec<Field<'a>> {
        let mut fields = Vec::new();
        for statement in Reader::new(self.source.text(), inside) {
            if let Statement::Command(command) = statement {
                fields.extend(self.expand_all(&command.words, &mut Used::default()));
            }
        }
        fields
    }

    /// The inside of a word that is one quoted text and nothing else.
    fn quoted_inside(&self, span: Span) -> Option<Span> {
        let inside = Span::new(span.start + 1, span.end.saturating_sub(1));
        let text = self.source.slice(span).as_bytes();
        let closes = match text.first()? {
            b'"' => Hopeless::default().end_of(Opener::Double, text, 1)? == text.len(),
            b'\'' => Hopeless::default().end_of_single(text, 1)? + 1 == text.len(),
            _ => false,
        };
        closes.then_some(inside)
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
        self.note_requirement(command);
        // A command without a flag is no launch; what it names stays to be looked at by itself.
        if self.lines.len() >= MOST_LINES || !command.words.iter().any(may_hold_flag) {
            return;
        }
        let mut used = Used::default();
        let words = match first {
            Some("eval") => self.evaluated(&command.words, &mut used),
            _ => self.expand_all(&command.words, &mut used),
        };
        if !words.iter().any(|word| has_flag(word.value.written())) {
            return;
        }
        if first.is_some_and(inside::only_talks) {
            self.mark(&used);
            return;
        }
        let arrays: Vec<ArrayPlace> = used
            .arrays
            .iter()
            .filter_map(|at| self.arrays.get(*at))
            .flat_map(|elements| &elements.places)
            .cloned()
            .collect();
        self.mark(&used);
        let mut looked_inside = false;
        for way in ways(words, &used.conditional, &self.gone) {
            let mut line = Line { words: way.words, perhaps: way.perhaps, arrays: arrays.clone(), ..Line::default() };
            if let Some(detected) = detect::detect(&line, None) {
                let before = line.words.get(..detected.first_argument).unwrap_or_default();
                let mut surroundings = self.surroundings(&command.assignments);
                surroundings.add(before);
                let image = |word: &Field<'a>| Some(Located::new(of_image(word.value.known()?)?, word.span));
                line.version = before.iter().find_map(image).or(self.pinned.flatten());
                line.surroundings = surroundings;
            } else if !std::mem::replace(&mut looked_inside, true) {
                self.look_inside(command, nesting);
            }
            self.lines.push(line);
        }
    }

    /// `eval "$COMMAND"` takes a variable's words as if it had no quotes.
    fn evaluated(&mut self, words: &[Word<'a>], used: &mut Used<'a>) -> Vec<Field<'a>> {
        let bare = |word: &Word<'a>| match word.parts.as_slice() {
            [Part::Variable { name, operator: Operator::Value, .. }] => {
                let part = Part::Variable { name, operator: Operator::Value, argument: Vec::new(), quoted: false };
                Word { parts: Parts::One(part), span: word.span }
            }
            _ => word.clone(),
        };
        let words: Vec<Word<'a>> = words.iter().map(bare).collect();
        self.expand_all(&words, used)
    }

    /// What is exported, with what stands in front of a command.
    fn surroundings(&self, own: &[Assignment<'a>]) -> Surroundings {
        let mut environment = Arc::clone(&self.exported);
        for assignment in own {
            let value = self.text(&assignment.value.parts, assignment.value.span, &mut Used::default());
            let value = Located::new(value.to_value(), assignment.value.span);
            Arc::make_mut(&mut environment).insert(assignment.name.to_owned(), value);
        }
        Surroundings { environment, is_open: false }
    }

    /// The version that a `pip install` pins. Where two are named, none is known.
    fn note_requirement(&mut self, command: &Command<'_>) {
        for word in &command.words {
            if let Some(version) = word.text().and_then(of_requirement) {
                let found = Located::new(version, word.span);
                let agrees = |known: &Located<EngineVersion>| known.value == version;
                self.pinned = match self.pinned {
                    None => Some(Some(found)),
                    Some(known) => Some(known.filter(agrees)),
                };
            }
        }
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
    fn expand(&mut self, word: &Word<'a>, used: &mut Used<'a>, fields: &mut Vec<Field<'a>>) {
        if let [Part::Variable { name, operator, argument, quoted: false }] = word.parts.as_slice() {
            match (operator, self.scalars.get(*name)) {
                (Operator::Value | Operator::Default, Some(scalar)) if scalar.fields.len() > 1 => {
                    used.scalars.push(name);
                    fields.extend_from_slice(&scalar.fields);
                    return;
                }
                (Operator::Default, None) | (Operator::Alternative, Some(Scalar { value: Text::Known(_), .. }))
                    if !argument.is_empty() && self.text(&word.parts, word.span, used).has_blanks() =>
                {
                    if let Some(inside) = self.argument_inside(word.span, name) {
                        fields.extend(self.words_of(inside));
                        return;
                    }
                }
                _ => {}
            }
        }
        match word.parts.as_slice() {
            [Part::Elements(name)] => match self.current.get(name).and_then(|at| Some((*at, self.arrays.get(*at)?))) {
                Some((at, elements)) => {
                    used.arrays.push(at);
                    elements.expand(&self.gone, fields, &mut used.conditional);
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
            parts => {
                let bare = parts.iter().any(|part| matches!(part, Part::Variable { quoted: false, .. }));
                let value = self.text(&word.parts, word.span, used);
                match value.known().filter(|_| bare) {
                    // A shell takes it for no word at all.
                    Some("") => {}
                    // A shell takes it for several words, which have no place of their own.
                    Some(text) if text.contains(char::is_whitespace) => fields.push(self.unknown(word.span)),
                    _ => fields.push(Located::new(value, word.span)),
                }
            }
        }
    }

    /// The place of `argument` in `${NAME:-argument}`.
    fn argument_inside(&self, word: Span, name: &str) -> Option<Span> {
        let tail = self.source.slice(word).strip_prefix("${")?.strip_prefix(name)?;
        let argument = tail.strip_prefix(':').unwrap_or(tail).strip_prefix(['-', '=', '+'])?.strip_suffix('}')?;
        Some(Span::new(word.end - 1 - argument.len(), word.end - 1))
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
                        // It is there for the caller to set.
                        (Operator::Default, None) if argument.is_empty() => return None,
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
        let (exported, pinned) = (&self.exported, self.pinned.flatten());
        let line = |words, perhaps, arrays| Line {
            words,
            perhaps,
            is_variable: true,
            arrays,
            surroundings: Surroundings { environment: Arc::clone(exported), is_open: false },
            version: pinned,
        };
        let lines_of = |elements: Elements<'a>| {
            let (mut words, mut conditional) = (Vec::new(), Vec::new());
            elements.expand(&[], &mut words, &mut conditional);
            let (order, places) = (elements.order, elements.places);
            let on_ways = ways(words, &conditional, &[]).into_iter().filter(move |way| named(&way.words));
            on_ways.map(move |way| (order, line(way.words, way.perhaps, places.clone())))
        };
        let arrays = self.arrays.into_iter().filter(|elements| !elements.used);
        let mut rest: Vec<(usize, Line<'a>)> = arrays.flat_map(lines_of).take(MOST_LINES).collect();
        let scalars = self.scalars.into_values();
        let scalars = scalars.filter(|scalar| !scalar.used && scalar.fields.len() > 1 && named(&scalar.fields));
        let scalars =
            scalars.take(MOST_LINES).map(|scalar| (scalar.order, line(scalar.fields, Vec::new(), Vec::new())));
        rest.extend(scalars);
        rest.sort_by_key(|(order, _)| *order);
        rest.truncate(MOST_LINES);
        let mut lines = self.lines;
        lines.extend(rest.into_iter().map(|(_, line)| line));
        Script { lines, documents: self.documents, troubles: self.troubles }
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

/// Whether a word holds a flag, by itself or in a quoted command. vLLM's short one for speculation may stand alone.
fn has_flag(text: &str) -> bool {
    text.as_bytes().windows(2).any(|pair| pair == b"--")
        || text.strip_prefix("-sc").is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '=']))
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
