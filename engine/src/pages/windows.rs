//! Window pages of pages (see `backend::windows`): which a sequence still needs, and which are kept
//! for prefixes.
//!
//! A window page is in use as long as a sequence may see it. Then it is kept if its page is in the
//! prefix cache, until another page needs it. A prefix can be reused where the pages of the whole
//! window before its end have theirs: after the end of a sequence, of a prompt or of a reused
//! prefix that is likely, and anywhere else on its way it is possible. So of those two kinds the
//! one with more pages loses the one that was used least recently.

use std::collections::BTreeSet;

use crate::backend::{PageId, WindowChange, WindowPage, WindowPages};

/// All window pages of a device.
#[derive(Debug)]
pub struct WindowPool {
    pages: WindowPages,
    page_size: usize,
    free: Vec<WindowPage>,
    /// By page.
    held: Vec<Option<Held>>,
    /// Pages of the prefix cache whose window page no sequence uses, by the time of its last use:
    /// those that sequences have passed, and those before ends.
    idle: [BTreeSet<(u64, PageId)>; 2],
    /// What the device does not know yet.
    changes: Vec<WindowChange>,
    clock: u64,
}

/// The window page of a page.
#[derive(Clone, Copy, Debug)]
struct Held {
    window: WindowPage,
    users: usize,
    /// Whether a sequence or a reused prefix ended within a window after it.
    ends: bool,
    last_used: u64,
}

/// How a sequence leaves a window page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It has moved on.
    Passing,
    /// It ends within a window after it.
    Ending,
}

impl WindowPool {
    /// A pool for `count` pages, of which none has a window page.
    pub fn new(pages: WindowPages, count: usize, page_size: usize) -> Self {
        let without = |page: u32| WindowChange { page: PageId(page), to: None };
        Self {
            pages,
            page_size,
            free: (0..pages.count as u32).rev().map(WindowPage).collect(),
            held: vec![None; count],
            idle: Default::default(),
            // What a device begins with.
            changes: (0..pages.count.min(count) as u32).map(without).collect(),
            clock: 0,
        }
    }

    /// Index of the first page of a sequence that rows from a position on see.
    pub fn first_page(&self, position: usize) -> usize {
        self.pages.first_seen(position) / self.page_size
    }

    /// Number of leading pages of a sequence, at most `pages`, after which it can continue: the
    /// whole window before has window pages. `page` gives the page at an index.
    pub fn usable(&self, pages: usize, page: impl Fn(usize) -> Option<PageId>) -> usize {
        let has = |at: usize| page(at).is_some_and(|page| self.held[page.0 as usize].is_some());
        let mut end = pages;
        // From the far end of a window: the first page that has lost its window page excludes all
        // ends after it, so that of a long prefix without any a page per window is read.
        while let Some(lost) = (self.first_page(end * self.page_size)..end).find(|at| !has(*at)) {
            end = lost;
        }
        end
    }

    /// Gives a window page to a page that has none; returns whether there was one.
    pub fn give(&mut self, page: PageId) -> bool {
        if self.free.is_empty()
            && let Some((_, idle)) = self.oldest()
        {
            self.forget(idle);
        }
        let Some(window) = self.free.pop() else { return false };
        self.clock += 1;
        self.held[page.0 as usize] = Some(Held { window, users: 1, ends: false, last_used: self.clock });
        self.changes.push(WindowChange { page, to: Some(window) });
        true
    }

    /// The page that is the next to lose its window page.
    fn oldest(&self) -> Option<(u64, PageId)> {
        let [passed, ends] = &self.idle;
        if passed.len() >= ends.len() { passed.first().copied() } else { ends.first().copied() }
    }

    /// Adds a sequence that continues within a window after a page of the prefix cache.
    pub fn hold(&mut self, page: PageId) {
        let Some(held) = &mut self.held[page.0 as usize] else { return };
        self.idle[usize::from(held.ends)].remove(&(held.last_used, page));
        held.users += 1;
        held.ends = true;
    }

    /// Removes a sequence from a page. `cached` is the page of the prefix cache with the same
    /// contents, if there is one: it may be another page, which then gets the window page if it has
    /// lost its own.
    pub fn leave(&mut self, page: PageId, cached: Option<PageId>, leaving: Leaving) {
        let Some(held) = &mut self.held[page.0 as usize] else { return };
        held.users -= 1;
        held.ends |= leaving == Leaving::Ending;
        if held.users > 0 {
            return;
        }
        let held = *held;
        self.free.push(held.window);
        self.held[page.0 as usize] = None;
        let keeper = cached.filter(|cached| self.held[cached.0 as usize].is_none());
        if keeper != Some(page) {
            self.changes.push(WindowChange { page, to: None });
        }
        let Some(keeper) = keeper else { return };
        self.clock += 1;
        let window = self.free.pop();
        self.held[keeper.0 as usize] = window.map(|window| Held { window, last_used: self.clock, ..held });
        self.idle[usize::from(held.ends)].insert((self.clock, keeper));
        if keeper != page {
            self.changes.push(WindowChange { page: keeper, to: window });
        }
    }

    /// Takes the window page of a page that no sequence uses, if it has one.
    pub fn forget(&mut self, page: PageId) {
        let Some(held) = self.held[page.0 as usize].take() else { return };
        self.idle[usize::from(held.ends)].remove(&(held.last_used, page));
        self.free.push(held.window);
        self.changes.push(WindowChange { page, to: None });
    }

    /// Number of window pages in use.
    pub fn used(&self) -> usize {
        self.pages.count - self.free.len() - self.kept()
    }

    /// Number of window pages that are kept for prefixes.
    pub fn kept(&self) -> usize {
        self.idle.iter().map(BTreeSet::len).sum()
    }

    /// Changes since the last call.
    pub fn take_changes(&mut self) -> Vec<WindowChange> {
        std::mem::take(&mut self.changes)
    }

    /// Panics unless every window page is in one place and the counts are right: `in_use` are the
    /// pages whose window pages sequences use, once for each sequence, and `cached` those of the
    /// prefix cache.
    #[cfg(test)]
    pub fn audit(&self, in_use: &[PageId], cached: &BTreeSet<PageId>) {
        let mut places: Vec<WindowPage> = self.free.clone();
        for (at, held) in self.held.iter().enumerate() {
            let page = PageId(at as u32);
            let users = in_use.iter().filter(|used| **used == page).count();
            let Some(held) = held else {
                assert_eq!(users, 0, "{page:?} has lost its window page");
                continue;
            };
            places.push(held.window);
            assert_eq!(held.users, users, "sequences that use the window page of {page:?}");
            assert!(users > 0 || cached.contains(&page), "the window page of {page:?} is of no use");
            let is_idle = self.idle[usize::from(held.ends)].contains(&(held.last_used, page));
            assert_eq!(is_idle, users == 0, "whether the window page of {page:?} can be taken");
        }
        places.sort_unstable();
        let all: Vec<WindowPage> = (0..self.pages.count as u32).map(WindowPage).collect();
        assert_eq!(places, all, "a window page is lost or in two places");
        assert_eq!(self.used() + self.kept() + self.free.len(), self.pages.count);
        assert_eq!(self.kept(), self.held.iter().flatten().filter(|held| held.users == 0).count());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_longest_prefix_with_its_window_is_found_with_few_reads(
            held in prop::collection::vec(prop::bool::weighted(0.8), 0..200), window in 1..40_usize, page_size in 1..5_usize,
        ) {
            let count = held.len();
            let mut pool = WindowPool::new(WindowPages { window, count: count.max(1) }, count, page_size);
            for (at, _) in held.iter().enumerate().filter(|(_, held)| **held) {
                prop_assert!(pool.give(PageId(at as u32)));
            }
            let reads = Cell::new(0);
            let found = pool.usable(count, |at| {
                reads.set(reads.get() + 1);
                Some(PageId(at as u32))
            });
            let has_window = |end: &usize| (pool.first_page(end * page_size)..*end).all(|at| held[at]);
            prop_assert_eq!(found, (0..=count).rev().find(has_window).expect("the empty prefix"));
            prop_assert!(reads.get() <= 2 * count, "{} reads of {count} pages", reads.get());
        }
    }

    #[test]
    fn of_a_prefix_without_windows_a_page_per_window_is_read() {
        let pool = WindowPool::new(WindowPages { window: 128, count: 1 }, 100_000, 1);
        let reads = Cell::new(0);
        let found = pool.usable(100_000, |at| {
            reads.set(reads.get() + 1);
            Some(PageId(at as u32))
        });
        assert_eq!(found, 0);
        assert!(reads.get() < 800, "{} reads", reads.get());
    }
}
