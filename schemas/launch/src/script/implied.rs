//! Variables that a branch sets: where a later condition finds the value of the branch, what the
//! branch was conditional on holds too.

use super::{
    super::condition::{Fact, Refined},
    Interpreter,
};

/// Maximum number of variables of which this is kept.
const MOST: usize = 64;

/// A value that a variable has only if a branch ran.
#[derive(Debug)]
pub(super) struct Implication {
    /// Its values without the branch, and in it.
    before: String,
    inside: String,
    /// When it was assigned, as in `ShellVariable::order`.
    order: usize,
    /// What holds in the branch, with the order of the variable that it is about.
    facts: Vec<(Fact, Option<usize>)>,
}

impl<'a> Interpreter<'a> {
    /// Notes an assignment that has just been made; `before` is the value that it replaced.
    pub(super) fn note_implication(&mut self, name: &'a str, before: Option<String>) {
        self.implied.remove(name);
        let (Some(before), Some(facts)) = (before, self.arms.last().map(|arms| arms.facts())) else { return };
        let Some(scalar) = self.scalars.get(name) else { return };
        let Some(inside) = scalar.value.known().filter(|inside| *inside != before) else { return };
        if facts.is_empty() || self.implied.len() >= MOST {
            return;
        }
        let (inside, order) = (inside.to_owned(), scalar.order);
        let facts = facts.into_iter().map(|fact| (self.order_of(&fact.variable.name), fact));
        let facts = facts.map(|(order, fact)| (fact, order)).collect();
        self.implied.insert(name, Implication { before, inside, order, facts });
    }

    /// What else holds where a fact does.
    pub(super) fn implied_by(&self, fact: &Fact) -> Vec<Fact> {
        let name = fact.variable.name.as_str();
        let Some(implied) = self.implied.get(name).filter(|implied| self.order_of(name) == Some(implied.order)) else {
            return Vec::new();
        };
        let excludes = |value: &str| fact.refine(Some(value)) != Refined::Same;
        if !excludes(&implied.before) || excludes(&implied.inside) {
            return Vec::new();
        }
        let current = implied.facts.iter().filter(|(fact, order)| self.order_of(&fact.variable.name) == *order);
        current.map(|(fact, _)| fact.clone()).collect()
    }
}
