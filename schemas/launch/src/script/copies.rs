//! Variables that are copies of others, `K=$N`: what a condition says of one holds for all of them.

use std::collections::HashMap;

use super::{
    super::shell::{Assignment, Operator, WordPart},
    Interpreter,
};

/// Maximum number of copies that are kept.
const MOST: usize = 64;

/// The copies of a script, by name.
pub(super) type Copies<'a> = HashMap<&'a str, CopyOf<'a>>;

/// A variable that had the value of another one when it was assigned.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyOf<'a> {
    source: &'a str,
    /// When both were assigned, as in `ShellVariable::order`. A later assignment ends it.
    source_order: Option<usize>,
    order: usize,
}

impl<'a> Interpreter<'a> {
    /// Notes an assignment that has just been made.
    pub(super) fn note_copy(&mut self, assignment: &Assignment<'a>) {
        self.copies.remove(assignment.name);
        let [WordPart::Variable { name: source, operator: Operator::Value, .. }] = assignment.value.parts.as_slice()
        else {
            return;
        };
        let source = *source;
        if assignment.append || source == assignment.name || self.copies.len() >= MOST {
            return;
        }
        let Some(order) = self.order_of(assignment.name) else { return };
        let copy = CopyOf { source, source_order: self.order_of(source), order };
        self.copies.insert(assignment.name, copy);
    }

    /// The other variables that have the value of this one: its copies, what it is a copy of, and
    /// the other copies of that.
    pub(super) fn same_as(&self, name: &str) -> Vec<&'a str> {
        let source =
            |name: &str| self.copies.get(name).filter(|copy| self.is_current(name, copy)).map(|copy| copy.source);
        let own = source(name);
        let root = own.unwrap_or(name);
        let copies = self.copies.keys().copied().filter(|copy| *copy != name && source(copy) == Some(root));
        let mut same: Vec<&'a str> = copies.chain(own).collect();
        same.sort_unstable();
        same
    }

    fn is_current(&self, name: &str, copy: &CopyOf<'_>) -> bool {
        self.order_of(name) == Some(copy.order) && self.order_of(copy.source) == copy.source_order
    }

    pub(super) fn order_of(&self, name: &str) -> Option<usize> {
        self.scalars.get(name).map(|scalar| scalar.order)
    }
}
