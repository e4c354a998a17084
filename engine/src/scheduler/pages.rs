//! Pages of the KV cache: who has which.

use crate::backend::PageId;

/// Pages that somebody holds. Cannot be copied, so what was given back cannot be used or given back again.
#[derive(Debug)]
pub struct Pages(Vec<PageId>);

/// The free pages.
#[derive(Debug)]
pub struct PageAllocator {
    free: Vec<PageId>,
}

impl Pages {
    /// Their numbers.
    pub fn ids(&self) -> &[PageId] {
        &self.0
    }
}

impl PageAllocator {
    /// All of `count` pages free.
    pub fn new(count: usize) -> Self {
        Self { free: (0..count as u32).rev().map(PageId).collect() }
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes pages, all or none.
    pub fn take(&mut self, count: usize) -> Option<Pages> {
        let rest = self.free.len().checked_sub(count)?;
        Some(Pages(self.free.split_off(rest)))
    }

    /// Takes pages back.
    pub fn give(&mut self, pages: Pages) {
        self.free.extend(pages.0);
    }
}
