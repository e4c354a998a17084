//! Ownership of the pages of the KV cache. A page is free, held by a request, or kept in the prefix
//! cache. Where layers with a window have pages of their own, a page of a sequence also has a
//! window page as long as the sequence may see it ([`WindowPool`]).

pub mod prefix;
mod windows;

use std::ops::Range;

pub use self::windows::WindowPool;
use self::{
    prefix::{PageKey, PrefixCache},
    windows::Leaving,
};
use crate::backend::{Capacity, PageId, WindowChange};

/// All pages of a device.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<PageId>,
    cache: PrefixCache,
    page_size: usize,
    windows: Option<WindowPool>,
}

/// The pages of one sequence, in the order of its positions: first the ones that it shares through
/// the prefix cache, then its own. It is not `Clone`, so released pages cannot be used or released
/// again.
#[derive(Debug)]
pub struct PageTable {
    ids: Vec<PageId>,
    shared: usize,
    /// Indices of the pages whose window pages it uses.
    windows: Range<usize>,
    /// Indices of the pages in the window before the end of its prompt, where others may continue.
    prompt_end: Range<usize>,
}

impl PageTable {
    /// The pages in order.
    pub fn ids(&self) -> &[PageId] {
        &self.ids
    }

    /// Indices of the pages whose window pages it uses; none without window pages.
    #[cfg(test)]
    pub fn windows(&self) -> Range<usize> {
        self.windows.clone()
    }
}

impl PagePool {
    /// A pool of the free pages of a device.
    pub fn new(capacity: &Capacity) -> Self {
        let Capacity { pages, page_size, windows, .. } = *capacity;
        Self {
            // Reversed, since pages are taken from the end.
            free: (0..pages as u32).rev().map(PageId).collect(),
            cache: PrefixCache::default(),
            page_size,
            windows: windows.map(|windows| WindowPool::new(windows, pages, page_size)),
        }
    }

    /// Number of free pages without cached contents.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Number of evictable pages of the prefix cache: they are reused when the free pages run out.
    pub fn kept(&self) -> usize {
        self.cache.idle()
    }

    /// The window pages, if there are any.
    pub fn windows(&self) -> Option<&WindowPool> {
        self.windows.as_ref()
    }

    /// Changes of window pages since the last call.
    pub fn take_window_changes(&mut self) -> Vec<WindowChange> {
        self.windows.as_mut().map(WindowPool::take_changes).unwrap_or_default()
    }

    /// Number of a sequence's leading pages in the cache.
    pub fn find(&self, keys: &[PageKey]) -> usize {
        self.cache.find(keys)
    }

    /// The same, but no more than those after which layers with a window can continue.
    pub fn find_usable(&self, keys: &[PageKey]) -> usize {
        let found = self.find(keys);
        let page = |at: usize| self.cache.page(&keys[at]);
        self.windows.as_ref().map_or(found, |windows| windows.usable(found, page))
    }

    /// `count` pages for a sequence, all or none, and how many of them already hold the contents of
    /// `keys`, which must be [usable](Self::find_usable).
    pub fn open(&mut self, keys: &[PageKey], count: usize) -> Option<(PageTable, usize)> {
        // Held before others are evicted, so that these are not.
        let mut ids = self.cache.hold(keys);
        let shared = ids.len();
        let Some(own) = self.take(count.saturating_sub(shared)) else {
            self.cache.release(&ids);
            return None;
        };
        let mut windows = 0..0;
        if let Some(pool) = &mut self.windows {
            windows = pool.first_page(shared * self.page_size)..shared;
            ids[windows.clone()].iter().for_each(|page| pool.hold(*page));
        }
        ids.extend(own);
        Some((PageTable { ids, shared, windows, prompt_end: 0..0 }, shared))
    }

    /// Number of pages that are free or evictable, without those that hold the contents of `keys`.
    pub fn available(&self, keys: &[PageKey]) -> usize {
        // Pages of the prefix itself are about to be held, so they cannot be evicted for the rest.
        self.free.len() + self.cache.idle() - self.cache.idle_of(keys)
    }

    /// Adds `count` pages to a sequence, all or none; returns whether there were enough.
    pub fn extend(&mut self, table: &mut PageTable, count: usize) -> bool {
        let Some(taken) = self.take(count) else { return false };
        table.ids.extend(taken);
        true
    }

    /// Makes sure that the pages of a sequence have window pages for passes that write some
    /// positions and see the window before them, and leaves those further back. `keys` are those of
    /// the pages that hold their contents. Returns whether there were enough window pages; if not,
    /// the sequence keeps what it has got.
    pub fn cover(&mut self, table: &mut PageTable, keys: &[PageKey], positions: Range<usize>) -> bool {
        let Some(pool) = &mut self.windows else { return true };
        let end = positions.end.div_ceil(self.page_size).min(table.ids.len());
        if end <= table.windows.end {
            return true;
        }
        // From a page's start, where a later sequence may continue.
        let start = pool.first_page(positions.start / self.page_size * self.page_size);
        self.leave_before(table, keys, start);
        let Some(pool) = &mut self.windows else { return true };
        for at in table.windows.end..end {
            if !pool.give(table.ids[at]) {
                return false;
            }
            table.windows.end = at + 1;
        }
        true
    }

    /// Leaves the window pages that no pass from a position on sees.
    pub fn leave_windows(&mut self, table: &mut PageTable, keys: &[PageKey], position: usize) {
        if let Some(pool) = &self.windows {
            let start = pool.first_page(position / self.page_size * self.page_size);
            self.leave_before(table, keys, start);
        }
    }

    /// Says that the prompt of a sequence has this many tokens: the window before the last of them
    /// is worth keeping.
    pub fn end_prompt(&self, table: &mut PageTable, tokens: usize) {
        if let Some(pool) = &self.windows {
            let end = tokens.saturating_sub(1) / self.page_size;
            table.prompt_end = pool.first_page(end * self.page_size)..end;
        }
    }

    /// Leaves the window pages before the page at an index.
    fn leave_before(&mut self, table: &mut PageTable, keys: &[PageKey], start: usize) {
        let Some(pool) = &mut self.windows else { return };
        for at in table.windows.start..start.min(table.windows.end) {
            let page = table.ids[at];
            // Another sequence may have filled a page with the same contents, which then keeps the
            // window.
            let cached = if at < table.shared { Some(page) } else { keys.get(at).and_then(|key| self.cache.page(key)) };
            let leaving = if table.prompt_end.contains(&at) { Leaving::Ending } else { Leaving::Passing };
            pool.leave(page, cached, leaving);
            table.windows.start = at + 1;
        }
    }

    /// `count` pages, evicted from the cache if need be; all or none.
    fn take(&mut self, count: usize) -> Option<Vec<PageId>> {
        if self.free.len() + self.cache.idle() < count {
            return None;
        }
        while self.free.len() < count {
            let page = self.evict()?;
            self.free.push(page);
        }
        Some(self.free.split_off(self.free.len() - count))
    }

    fn evict(&mut self) -> Option<PageId> {
        let page = self.cache.evict()?;
        if let Some(pool) = &mut self.windows {
            pool.forget(page);
        }
        Some(page)
    }

    /// Shares the leading pages of a sequence, which hold the contents of `keys`. It stops at a
    /// page whose contents another sequence has already added: this sequence keeps its own copy
    /// unshared.
    pub fn share(&mut self, table: &mut PageTable, keys: &[PageKey]) {
        while let (Some(key), Some(page)) = (keys.get(table.shared), table.ids.get(table.shared)) {
            // Another sequence has filled it first. Later pages would have a parent that is not in
            // the cache.
            if self.cache.page(key).is_some() {
                break;
            }
            let parent = table.shared.checked_sub(1).map(|at| table.ids[at]);
            self.cache.insert(*key, parent, *page, 1);
            table.shared += 1;
        }
    }

    /// Releases the pages of a sequence. Its leading ones, which hold the contents of `keys`, stay
    /// in the cache.
    pub fn close(&mut self, table: PageTable, keys: &[PageKey]) {
        let (shared, own) = table.ids.split_at(table.shared);
        let mut parent = shared.last().copied();
        // The page of the cache with the contents of each own page.
        let mut keepers = vec![None; own.len()];
        for ((page, key), keeper) in own.iter().zip(keys.iter().skip(shared.len())).zip(&mut keepers) {
            parent = match self.cache.page(key) {
                Some(other) => Some(other),
                None => {
                    self.cache.insert(*key, parent, *page, 0);
                    Some(*page)
                }
            };
            *keeper = parent;
        }
        if let Some(pool) = &mut self.windows {
            let keepers = shared.iter().copied().map(Some).chain(keepers.iter().copied());
            let in_use = table.ids.iter().zip(keepers).take(table.windows.end).skip(table.windows.start);
            in_use.for_each(|(page, keeper)| pool.leave(*page, keeper, Leaving::Ending));
        }
        // Pages without a full key, and copies of pages that the cache already has.
        let unkept = own.iter().zip(&keepers).filter(|(page, keeper)| **keeper != Some(**page));
        self.free.extend(unkept.map(|(page, _)| *page));
        // Last: until here the cached parents of inserted pages must not be evicted.
        self.cache.release(shared);
    }

    /// Drops all evictable pages.
    pub fn clear(&mut self) {
        let evicted = std::iter::from_fn(|| self.evict()).collect::<Vec<_>>();
        self.free.extend(evicted);
    }

    /// Panics unless every page and window page is in exactly one place and the counts are right.
    #[cfg(test)]
    pub fn audit<'a>(&self, tables: impl Iterator<Item = &'a PageTable>, total: usize) {
        let mut seen: Vec<PageId> = self.free.clone();
        let mut held: Vec<&[PageId]> = Vec::new();
        let mut in_use: Vec<PageId> = Vec::new();
        for table in tables {
            let (shared, own) = table.ids.split_at(table.shared);
            seen.extend(own);
            held.push(shared);
            in_use.extend(&table.ids[table.windows.clone()]);
        }
        let cached = self.cache.audit(&held);
        if let Some(windows) = &self.windows {
            windows.audit(&in_use, &cached.iter().copied().collect());
        }
        seen.extend(cached);
        seen.sort_unstable();
        let all: Vec<PageId> = (0..total as u32).map(PageId).collect();
        assert_eq!(seen, all, "a page is lost or in two places");
    }
}
