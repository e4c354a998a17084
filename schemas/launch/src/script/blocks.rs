//! Blocks, which may not run, or run several times: variables assigned in them are unknown after them.

use std::sync::Arc;

use super::{
    super::shell::Block,
    Interpreter, anything,
    control_flow::{Branch, DEEPEST},
};

impl<'a> Interpreter<'a> {
    pub(super) fn open(&mut self, block: Block) {
        if self.blocks.len() < DEEPEST {
            let of_function = block == Block::Function;
            self.gone.push(Branch { block: self.blocks_seen, turn: 0, of_function });
            self.blocks_seen = self.blocks_seen.saturating_add(1);
        }
        self.blocks.push(self.assigned.len());
    }

    pub(super) fn turn(&mut self) {
        let before = self.blocks.last().copied().unwrap_or_default();
        self.forget_since(before, self.blocks.len(), true);
        if self.blocks.len() == self.gone.len()
            && let Some(way) = self.gone.last_mut()
        {
            way.turn = way.turn.saturating_add(1);
        }
    }

    pub(super) fn close(&mut self) {
        let before = self.blocks.pop().unwrap_or_default();
        let of_function = self.blocks.len() < self.gone.len() && self.gone.last().is_some_and(|way| way.of_function);
        self.gone.truncate(self.blocks.len());
        let depth = self.blocks.len();
        // A function may not run at all.
        self.forget_since(before, depth + 1, !of_function);
        while let Some((_, name, value)) = self.pending.pop_if(|(block, _, _)| *block > depth) {
            // On the path that exports it, it has this value; on the others it is unset.
            if !of_function && !self.varied.contains(name) {
                Arc::make_mut(&mut self.exported).insert(name.to_owned(), value);
                self.assigned(name);
            }
        }
    }

    pub(super) fn assigned(&mut self, name: &'a str) {
        if !self.blocks.is_empty() {
            self.assigned.push(name);
        }
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
