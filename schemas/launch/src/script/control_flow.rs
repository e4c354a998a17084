//! The paths through a script, and the contents of arrays on each of them. An array is often
//! assembled in parts, some of them in branches that may not run. A command that uses such an array
//! yields one launch per path: the words that are present on it, and separately the words that may
//! be present.

use std::rc::Rc;

use schemas::text::Span;

use crate::command::{ArrayPlace, Field};

/// Maximum depth of blocks that are distinguished.
pub const DEEPEST: usize = 16;

/// Maximum number of parts of an array that are distinguished.
const MOST_PARTS: usize = 32;

/// Maximum number of paths for one command.
const MOST_PATHS: usize = 8;

/// One branch of a block, such as its `else` part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The id of the block.
    pub block: u32,
    /// The index of the branch, of which only one runs.
    pub turn: u32,
    /// Whether it is the body of a function, which may run after the code below it.
    pub of_function: bool,
}

impl Branch {
    fn excludes(self, other: Self) -> bool {
        self.block == other.block && self.turn != other.turn
    }
}

/// The condition under which words are part of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchCondition {
    /// The branches that must all run, starting with the outermost block.
    pub on: Vec<Branch>,
    /// The branches that must not run: the array gets other words there.
    pub not_on: Vec<Branch>,
}

impl BranchCondition {
    fn is_met(&self, gone: &[Branch]) -> bool {
        self.on.iter().all(|way| gone.contains(way)) && !self.not_on.iter().any(|way| gone.contains(way))
    }

    /// Whether it is met regardless of other branches.
    fn is_certain(&self, gone: &[Branch]) -> bool {
        let excluded = |way: &Branch| gone.iter().any(|other| way.excludes(*other));
        self.is_met(gone) && self.not_on.iter().all(excluded)
    }

    /// Whether it cannot be met if these branches run.
    fn is_lost(&self, gone: &[Branch]) -> bool {
        self.not_on.iter().any(|way| gone.contains(way))
            || self.on.iter().any(|way| gone.iter().any(|other| way.excludes(*other)))
    }

    fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.on.extend(other.on.iter().filter(|way| !self.on.contains(way)));
        both.not_on.extend(other.not_on.iter().filter(|way| !self.not_on.contains(way)));
        both
    }
}

/// Words of a list that are not present on every path.
#[derive(Clone, Debug)]
pub struct Conditional {
    pub from: usize,
    pub to: usize,
    pub condition: Rc<BranchCondition>,
}

impl Conditional {
    /// Words that are present if the first branches run; `None` if that is certain once the second
    /// ones run.
    pub fn on(on: &[Branch], gone: &[Branch], from: usize, to: usize) -> Option<Self> {
        let condition = BranchCondition { on: on.to_vec(), not_on: Vec::new() };
        (!condition.is_certain(gone)).then(|| Self { from, to, condition: Rc::new(condition) })
    }
}

/// A part of an array.
#[derive(Clone, Debug)]
struct ArrayPart<'a> {
    fields: Vec<Field<'a>>,
    condition: Rc<BranchCondition>,
    /// Whether it was appended to earlier contents.
    appended: bool,
}

/// The contents of an array.
#[derive(Clone, Debug, Default)]
pub struct Elements<'a> {
    pieces: Vec<ArrayPart<'a>>,
    /// Its assignments, without appending ones.
    pub places: Vec<ArrayPlace>,
    pub used: bool,
    pub order: usize,
}

impl<'a> Elements<'a> {
    /// Whether it contains words of a command, not a single value.
    pub fn is_list(&self) -> bool {
        let is_flag = |field: &Field<'a>| field.value.written().starts_with('-') && field.value.known().is_some();
        self.pieces.iter().any(|piece| piece.fields.len() > 1 || piece.fields.iter().any(is_flag))
    }

    /// Whether any of its words, on any path, is of a kind.
    pub fn holds(&self, is: impl Fn(&str) -> bool) -> bool {
        self.pieces.iter().flat_map(|piece| &piece.fields).any(|field| is(field.value.written()))
    }

    /// Removes and returns what functions append: they may still run after the array is reassigned.
    pub fn take_appended_by_functions(&mut self) -> Self {
        let later =
            |piece: &ArrayPart<'a>| piece.appended && piece.condition.on.first().is_some_and(|way| way.of_function);
        let (taken, rest) = std::mem::take(&mut self.pieces).into_iter().partition(later);
        self.pieces = rest;
        Self { pieces: taken, ..Self::default() }
    }

    /// Inserts words before all others.
    pub fn begin(&mut self, fields: Vec<Field<'a>>, conditional: &[Conditional], gone: &[Branch], appended: bool) {
        let mut first = Self::default();
        first.append(fields, conditional, gone);
        first.pieces.iter_mut().for_each(|piece| piece.appended = appended);
        first.pieces.append(&mut self.pieces);
        self.pieces = first.pieces;
    }

    /// Replaces all words if these branches run. Returns the words if there are no branches or too
    /// many parts.
    pub fn replace(
        &mut self,
        fields: Vec<Field<'a>>,
        conditional: &[Conditional],
        gone: &[Branch],
    ) -> Option<Vec<Field<'a>>> {
        let Some(innermost) = gone.last().filter(|_| self.pieces.len() < MOST_PARTS) else { return Some(fields) };
        self.pieces.retain_mut(|piece| {
            // A branch that assigns the name repeatedly replaces the same words.
            if !piece.condition.not_on.contains(innermost) {
                Rc::make_mut(&mut piece.condition).not_on.push(*innermost);
            }
            !piece.condition.on.contains(innermost)
        });
        let before = self.pieces.len();
        self.append(fields, conditional, gone);
        self.pieces.iter_mut().skip(before).for_each(|piece| piece.appended = false);
        None
    }

    /// Appends words if these branches run.
    pub fn append(&mut self, fields: Vec<Field<'a>>, conditional: &[Conditional], gone: &[Branch]) {
        let here = Rc::new(BranchCondition { on: gone.to_vec(), not_on: Vec::new() });
        let mut at = 0;
        let mut fields = fields.into_iter();
        for part in conditional {
            self.push(fields.by_ref().take(part.from.saturating_sub(at)).collect(), Rc::clone(&here));
            let count = part.to.saturating_sub(part.from.max(at));
            self.push(fields.by_ref().take(count).collect(), Rc::new(here.and(&part.condition)));
            at = part.to.max(at);
        }
        self.push(fields.collect(), here);
    }

    fn push(&mut self, fields: Vec<Field<'a>>, condition: Rc<BranchCondition>) {
        if fields.is_empty() {
            return;
        }
        // Beyond this number of parts the last ones are not distinguished.
        let full = self.pieces.len() > 2 * MOST_PARTS;
        match self.pieces.last_mut() {
            Some(last) if full || last.condition == condition => last.fields.extend(fields),
            _ => self.pieces.push(ArrayPart { fields, condition, appended: true }),
        }
    }

    /// Adds the words that are or may be present, if these branches run, to a list.
    pub fn expand(&self, gone: &[Branch], fields: &mut Vec<Field<'a>>, conditional: &mut Vec<Conditional>) {
        for piece in self.pieces.iter().filter(|piece| !piece.condition.is_lost(gone)) {
            let from = fields.len();
            fields.extend_from_slice(&piece.fields);
            if !piece.condition.is_certain(gone) {
                conditional.push(Conditional { from, to: fields.len(), condition: Rc::clone(&piece.condition) });
            }
        }
    }
}

/// The words of a command on one path.
pub struct OnPath<'a> {
    /// The branches that it goes through, beside those around the command.
    pub on: Vec<Branch>,
    pub words: Vec<Field<'a>>,
    /// Words that may also be present.
    pub perhaps: Vec<Field<'a>>,
    /// Spans of the words that are not present on every path.
    pub branches: Vec<Span>,
}

/// The words of a list on each path that affects it.
pub fn ways<'a>(words: Vec<Field<'a>>, conditional: &[Conditional], gone: &[Branch]) -> Vec<OnPath<'a>> {
    let mut longest: Vec<&[Branch]> = Vec::new();
    for part in conditional {
        let on = part.condition.on.as_slice();
        if longest.iter().any(|known| known.starts_with(on)) {
            continue;
        }
        longest.retain(|known| !on.starts_with(known));
        if longest.len() < MOST_PATHS {
            longest.push(on);
        }
    }
    if longest.is_empty() {
        return vec![OnPath { on: Vec::new(), words, perhaps: Vec::new(), branches: Vec::new() }];
    }
    // Words that a branch replaces are present on the paths without that branch.
    for part in conditional.iter().filter(|part| !part.condition.not_on.is_empty()) {
        let is_there = |way: &&[Branch]| part.condition.is_met(&[gone, way].concat());
        if longest.len() < MOST_PATHS && !longest.iter().any(is_there) {
            longest.push(part.condition.on.as_slice());
        }
    }
    let on_way = |more: &[Branch]| {
        let gone = [gone, more].concat();
        let (perhaps, branches) = (Vec::new(), Vec::new());
        let mut on_way = OnPath { on: more.to_vec(), words: Vec::with_capacity(words.len()), perhaps, branches };
        let mut at = 0;
        for part in conditional {
            on_way.words.extend_from_slice(words.get(at..part.from).unwrap_or_default());
            let those = words.get(part.from..part.to).unwrap_or_default();
            if part.condition.is_met(&gone) {
                on_way.words.extend_from_slice(those);
                on_way.branches.extend(those.iter().map(|word| word.span));
            } else if !part.condition.is_lost(&gone) {
                on_way.perhaps.extend_from_slice(those);
            }
            at = part.to;
        }
        on_way.words.extend_from_slice(words.get(at..).unwrap_or_default());
        on_way
    };
    longest.into_iter().map(on_way).collect()
}
