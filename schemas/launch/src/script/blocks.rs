//! Blocks, which may not run, or run several times: variables assigned in them are unknown after
//! them, and their conditions say something of the values of variables in them.

use std::sync::Arc;

use super::{
    super::{
        command::CommandText,
        compose::Composed,
        condition::{Fact, LaunchCondition, Refined, TestedVariable},
        shell::{ShellBlock, ShellWord, SimpleCommand},
    },
    Interpreter, ShellVariable, anything,
    control_flow::{Branch, DEEPEST, Elements},
};
use crate::programs::{self, ProgramRole};

/// The branches of an open block.
#[derive(Debug)]
pub(super) struct Arms<'a> {
    block: ShellBlock,
    /// The condition of the current branch, given that no earlier one ran.
    condition: LaunchCondition,
    /// Whether the current branch has a condition of its own: `else` has none.
    is_decided: bool,
    /// Whether a command in the current branch ends the script or the function.
    is_ended: bool,
    /// The conditions of earlier branches, and whether they end the script.
    earlier: Vec<(LaunchCondition, bool)>,
    /// Whether an earlier branch, or the current one, runs with the values that the text gives.
    is_taken: bool,
    /// Whether it is the current one.
    is_current_taken: bool,
    /// Whether a branch that ends the script runs with these values.
    ends_script: bool,
    /// What is known of the result of a list of `&&` and `||` up to here, and whether `||` was the
    /// last sign.
    total: LaunchCondition,
    or: Option<bool>,
    /// The word of a `case`.
    subject: Option<ShellWord<'a>>,
    /// Values that a condition has refined.
    saved: Vec<Saved<'a>>,
}

/// A variable as it was before a condition refined it.
#[derive(Debug)]
struct Saved<'a> {
    name: String,
    /// Its value and its text; `None` if it had none.
    value: Option<(CommandText<'a>, Option<Composed>)>,
    order: usize,
}

/// Maximum number of branches of one block whose conditions are kept.
const MOST_BRANCHES: usize = 64;

/// Maximum number of values that one block refines.
const MOST_SAVED: usize = 256;

impl Arms<'_> {
    fn new(block: ShellBlock) -> Self {
        Self {
            block,
            condition: if block == ShellBlock::If { LaunchCondition::Unknown } else { LaunchCondition::Constant(true) },
            is_decided: false,
            is_ended: false,
            earlier: Vec::new(),
            is_taken: false,
            is_current_taken: false,
            ends_script: false,
            total: LaunchCondition::Unknown,
            or: None,
            subject: None,
            saved: Vec::new(),
        }
    }

    /// Whether they are those of a block of this kind.
    pub(super) fn is(&self, block: ShellBlock) -> bool {
        self.block == block
    }

    /// What holds in the current branch.
    pub(super) fn facts(&self) -> Vec<Fact> {
        if self.is_decided { self.condition.facts(true) } else { Vec::new() }
    }

    /// The result of the list, with that of its last command.
    fn result(&mut self, last: LaunchCondition) -> LaunchCondition {
        let before = std::mem::take(&mut self.total);
        match self.or {
            None => last,
            Some(false) => before.and(last),
            Some(true) => before.or(last),
        }
    }

    /// All branches, with the one that runs if none of the written ones does.
    fn branches(&mut self) -> Vec<(LaunchCondition, bool)> {
        let mut all = std::mem::take(&mut self.earlier);
        let is_certain = |(condition, _): &(LaunchCondition, bool)| *condition == LaunchCondition::Constant(true);
        let covers = all.iter().any(is_certain);
        if self.is_decided || (self.block == ShellBlock::If && !covers) {
            all.push((self.condition.clone(), self.is_ended));
        }
        if self.is_decided && !all.iter().any(is_certain) || self.block == ShellBlock::Case && all.is_empty() {
            all.push((LaunchCondition::Constant(true), false));
        }
        all
    }
}

impl<'a> Interpreter<'a> {
    pub(super) fn open(&mut self, block: ShellBlock) {
        if self.blocks.len() < DEEPEST {
            let of_function = block == ShellBlock::Function;
            self.gone.push(Branch { block: self.blocks_seen, turn: 0, of_function });
            self.blocks_seen = self.blocks_seen.saturating_add(1);
        }
        self.blocks.push(self.assigned.len());
        self.arms.push(Arms::new(block));
    }

    pub(super) fn turn(&mut self) {
        self.restore();
        let before = self.blocks.last().copied().unwrap_or_default();
        self.forget_since(before, self.blocks.len(), true);
        if self.blocks.len() == self.gone.len()
            && let Some(way) = self.gone.last_mut()
        {
            way.turn = way.turn.saturating_add(1);
        }
        let Some(arms) = self.arms.last_mut().filter(|arms| arms.block != ShellBlock::List) else { return };
        let condition = std::mem::replace(&mut arms.condition, LaunchCondition::Constant(true));
        arms.ends_script |= arms.is_ended && std::mem::take(&mut arms.is_current_taken);
        let branch = (condition, std::mem::take(&mut arms.is_ended));
        match MOST_BRANCHES.saturating_sub(arms.earlier.len()) {
            0 => {}
            // What the rest of them say is not known.
            1 => arms.earlier.push((LaunchCondition::Unknown, false)),
            _ => arms.earlier.push(branch),
        }
        arms.is_decided = false;
        let (is_taken, earlier) = (arms.is_taken, arms.earlier.clone());
        earlier.iter().for_each(|(condition, _)| self.narrow(condition, false));
        if is_taken {
            self.mark_untaken();
        }
    }

    pub(super) fn close(&mut self) {
        self.restore();
        let arms = self.arms.pop();
        let before = self.blocks.pop().unwrap_or_default();
        let of_function = self.blocks.len() < self.gone.len() && self.gone.last().is_some_and(|way| way.of_function);
        self.gone.truncate(self.blocks.len());
        let depth = self.blocks.len();
        // A function may not run at all, and what a subshell exports ends with it.
        let keeps_exports = !of_function && !arms.as_ref().is_some_and(|arms| arms.is(ShellBlock::Subshell));
        self.forget_since(before, depth + 1, keeps_exports);
        while let Some((_, name, value)) = self.pending.pop_if(|(block, _, _)| *block > depth) {
            // On the path that exports it, it has this value; on the others it is unset.
            if keeps_exports && !self.varied.contains(name) {
                Arc::make_mut(&mut self.exported).insert(name.to_owned(), value);
                self.assigned(name);
            }
        }
        if let Some(arms) = arms {
            self.after(arms);
        }
    }

    /// What holds after a block, some of whose branches end the script.
    fn after(&mut self, mut arms: Arms<'a>) {
        let ends_script = arms.ends_script || (arms.is_ended && arms.is_current_taken);
        match arms.block {
            ShellBlock::List => {
                let condition = std::mem::take(&mut arms.condition);
                if arms.is_ended {
                    self.narrow(&condition, false);
                }
                let last = std::mem::take(&mut self.status);
                self.status = arms.result(last);
            }
            ShellBlock::Group => {
                if let Some(outer) = self.arms.last_mut() {
                    outer.is_ended |= arms.is_ended;
                }
                return;
            }
            ShellBlock::If | ShellBlock::Case => {
                self.status = LaunchCondition::Unknown;
                let branches = arms.branches();
                self.survive(&branches);
            }
            ShellBlock::Function | ShellBlock::Subshell | ShellBlock::While | ShellBlock::Until | ShellBlock::Other => {
                self.status = LaunchCondition::Unknown;
                return;
            }
        }
        if ends_script {
            self.mark_untaken();
        }
    }

    /// Of the branches of a block, one of those ran that do not end the script.
    fn survive(&mut self, branches: &[(LaunchCondition, bool)]) {
        let alive = branches.iter().filter(|(_, is_ended)| !is_ended).count();
        if alive == branches.len() {
            return;
        }
        if alive == 0 {
            if let Some(outer) = self.arms.last_mut() {
                outer.is_ended = true;
            }
            return;
        }
        for (condition, is_ended) in branches {
            match is_ended {
                true => self.narrow(condition, false),
                // Beyond the first of several it is not known which ran.
                false => {
                    if alive == 1 {
                        self.narrow(condition, true);
                    }
                    return;
                }
            }
        }
    }

    /// `then` or `do`: the commands since the branch began are its condition.
    pub(super) fn then(&mut self) {
        let status = std::mem::take(&mut self.status);
        let Some(arms) = self.arms.last_mut().filter(|arms| !arms.is_decided) else { return };
        let condition = match arms.block {
            ShellBlock::If | ShellBlock::While => status,
            ShellBlock::Until => status.negated(),
            _ => return,
        };
        self.decide(condition);
    }

    /// `&&` or `||`, and what must be so for the next command of the list to run.
    pub(super) fn and_or(&mut self, or: bool) {
        let last = std::mem::take(&mut self.status);
        self.restore();
        let Some(arms) = self.arms.last_mut().filter(|arms| arms.block == ShellBlock::List) else { return };
        let total = arms.result(last);
        arms.total = total.clone();
        arms.or = Some(or);
        self.decide(if or { total.negated() } else { total });
    }

    pub(super) fn subject(&mut self, word: ShellWord<'a>) {
        if let Some(arms) = self.arms.last_mut() {
            arms.subject = Some(word);
        }
    }

    pub(super) fn patterns(&mut self, patterns: &[ShellWord<'a>]) {
        let Some(subject) = self.arms.last().and_then(|arms| arms.subject.as_ref()) else { return };
        let condition = Self::pattern_condition(subject, patterns);
        self.decide(condition);
    }

    /// Begins a branch with this condition.
    fn decide(&mut self, condition: LaunchCondition) {
        let outcome = condition.outcome(&|variable| self.value_of(variable));
        let Some(arms) = self.arms.last_mut() else { return };
        arms.is_decided = true;
        arms.condition = condition.clone();
        let is_untaken = arms.is_taken || outcome == Some(false);
        arms.is_current_taken = outcome == Some(true) && !arms.is_taken;
        arms.is_taken |= arms.is_current_taken && arms.block != ShellBlock::List;
        if is_untaken {
            self.mark_untaken();
        }
        self.narrow(&condition, true);
    }

    /// Notes that the current branch does not run with the values that the text gives.
    fn mark_untaken(&mut self) {
        match self.gone.last().filter(|_| self.gone.len() == self.blocks.len()) {
            Some(branch) => _ = self.untaken.insert((branch.block, branch.turn)),
            None => self.is_untaken |= self.blocks.is_empty(),
        }
    }

    /// Whether the current place, or branches inside it, do not run with the values that the text
    /// gives.
    pub(super) fn is_untaken(&self, more: &[Branch]) -> bool {
        let is = |branch: &Branch| self.untaken.contains(&(branch.block, branch.turn));
        self.is_untaken || self.gone.iter().chain(more).any(is)
    }

    /// Notes a command that ends the script, the function or the round of a loop.
    pub(super) fn note_end(&mut self, command: &SimpleCommand<'a>) {
        let ends = match command.words.first().and_then(ShellWord::text) {
            Some("exit" | "return" | "continue" | "break") => true,
            // Without words it only redirects.
            Some("exec") => command.words.len() > 1,
            Some(program) => programs::has(program, ProgramRole::Ender),
            None => false,
        };
        if !ends {
            return;
        }
        if let Some(arms) = self.arms.last_mut() {
            arms.is_ended = true;
        }
    }

    /// Takes what a condition says of variables into account, up to the end of the branch.
    fn narrow(&mut self, condition: &LaunchCondition, holds: bool) {
        let facts = condition.facts(holds);
        let implied = facts.iter().flat_map(|fact| self.implied_by(fact)).collect::<Vec<_>>();
        for fact in facts.into_iter().chain(implied) {
            let name = fact.variable.name.as_str();
            if self.given.is_some_and(|given| given.fixed.contains_key(name)) {
                continue;
            }
            for copy in self.same_as(name) {
                let variable = TestedVariable { name: copy.to_owned(), default: fact.variable.default.clone() };
                self.narrow_one(&fact, &variable);
            }
            self.narrow_one(&fact, &fact.variable);
        }
    }

    /// Takes what a fact says of a variable that has the value of the fact's own.
    fn narrow_one(&mut self, fact: &Fact, variable: &TestedVariable) {
        let name = variable.name.as_str();
        // A variable that nothing in the text sets is empty, unless something else sets it.
        let value = match self.scalars.get(name) {
            Some(_) => self.value_of(variable),
            None => Some(variable.default.clone().unwrap_or_default()),
        };
        match fact.refine(value.as_deref()) {
            Refined::Same => {}
            Refined::Is(text) => self.refine(name, CommandText::Known(text.into())),
            Refined::Another => self.refine(name, anything(name)),
        }
    }

    fn refine(&mut self, name: &str, value: CommandText<'a>) {
        let old = self.scalars.get(name).map(|scalar| (scalar.value.clone(), scalar.literal.clone()));
        let order = self.scalars.get(name).map_or(self.order, |scalar| scalar.order);
        if let Some(arms) = self.arms.last_mut() {
            if arms.saved.len() >= MOST_SAVED {
                return;
            }
            arms.saved.push(Saved { name: name.to_owned(), value: old, order });
        }
        match self.scalars.get_mut(name) {
            Some(scalar) => (scalar.value, scalar.literal) = (value, None),
            None => {
                let words = Elements::default();
                let scalar = ShellVariable { value, words, literal: None, used: true, order };
                self.scalars.insert(name.to_owned().into(), scalar);
            }
        }
    }

    /// Gives variables the values that they had before the conditions of the current branch, unless
    /// they were assigned.
    fn restore(&mut self) {
        let Some(arms) = self.arms.last_mut() else { return };
        for Saved { name, value, order } in std::mem::take(&mut arms.saved).into_iter().rev() {
            let Some(scalar) = self.scalars.get_mut(name.as_str()).filter(|scalar| scalar.order == order) else {
                continue;
            };
            match value {
                Some((value, literal)) => (scalar.value, scalar.literal) = (value, literal),
                None => _ = self.scalars.remove(name.as_str()),
            }
        }
    }

    pub(super) fn assigned(&mut self, name: &'a str) {
        if !self.blocks.is_empty() {
            self.assigned.push(name);
        }
    }

    /// Notes an assignment that the innermost blocks, as many as given, are not around.
    pub(super) fn assigned_outside(&mut self, name: &'a str, inner: usize) {
        if self.blocks.len() <= inner {
            return;
        }
        let first = self.blocks.len() - inner;
        let at = self.blocks.get(first).copied().unwrap_or(self.assigned.len());
        self.assigned.insert(at.min(self.assigned.len()), name);
        self.blocks.iter_mut().skip(first).for_each(|before| *before += 1);
    }

    fn forget_since(&mut self, before: usize, depth: usize, keeps_exports: bool) {
        for name in self.assigned.split_off(before.min(self.assigned.len())) {
            self.forget(name, depth, keeps_exports);
        }
    }

    /// Makes a variable unknown that was assigned in a block that may not have run.
    fn forget(&mut self, name: &'a str, depth: usize, keeps_exports: bool) {
        if let Some(scalar) = self.scalars.get_mut(name) {
            scalar.value = anything(name);
            scalar.literal = None;
            scalar.used = true;
        }
        if self.exported.contains_key(name)
            && let Some(variable) = Arc::make_mut(&mut self.exported).get_mut(name)
        {
            if keeps_exports && self.pending.len() < MOST_PENDING {
                self.pending.push((depth, name, variable.clone()));
            }
            variable.value = anything(name).to_value();
        }
    }
}

/// Maximum number of remembered exports of ended branches.
const MOST_PENDING: usize = 512;
