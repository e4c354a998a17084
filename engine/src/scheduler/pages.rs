//! Ownership of the pages of the KV cache. A page is free, held by a request, or kept in the prefix
//! cache.

use super::prefix::{PageKey, PrefixCache};
use crate::backend::PageId;

/// All pages of a device.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<PageId>,
    cache: PrefixCache,
}

/// The pages of one sequence, in the order of its positions: first the ones that it shares through
/// the prefix cache, then its own. It is not `Clone`, so released pages cannot be used or released
/// again.
#[derive(Debug)]
pub struct PageTable {
    ids: Vec<PageId>,
    shared: usize,
}

impl PageTable {
    /// The pages in order.
    pub fn ids(&self) -> &[PageId] {
        &self.ids
    }
}

impl PagePool {
    /// A pool of `count` free pages.
    pub fn new(count: usize) -> Self {
        Self { free: (0..count as u32).rev().map(PageId).collect(), cache: PrefixCache::default() }
    }

    /// Number of free pages without cached contents.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Number of evictable pages of the prefix cache: they are reused when the free pages run out.
    pub fn kept(&self) -> usize {
        self.cache.idle()
    }

    /// Number of a sequence's leading pages in the cache.
    pub fn find(&self, keys: &[PageKey]) -> usize {
        self.cache.find(keys)
    }

    /// `count` pages for a sequence, all or none, and how many of them already hold the contents of
    /// `keys`.
    pub fn open(&mut self, keys: &[PageKey], count: usize) -> Option<(PageTable, usize)> {
        // Held before others are evicted, so that these are not.
        let mut ids = self.cache.hold(keys);
        let shared = ids.len();
        let Some(own) = self.take(count.saturating_sub(shared)) else {
            self.cache.release(&ids);
            return None;
        };
        ids.extend(own);
        Some((PageTable { ids, shared }, shared))
    }

    /// Number of pages that are free or evictable, without those that hold the contents of `keys`.
    pub fn available(&self, keys: &[PageKey]) -> usize {
        self.free.len() + self.cache.idle() - self.cache.idle_of(keys)
    }

    /// Adds `count` pages to a sequence, all or none; returns whether there were enough.
    pub fn extend(&mut self, table: &mut PageTable, count: usize) -> bool {
        let Some(taken) = self.take(count) else { return false };
        table.ids.extend(taken);
        true
    }

    /// `count` pages, evicted from the cache if need be; all or none.
    fn take(&mut self, count: usize) -> Option<Vec<PageId>> {
        if self.free.len() + self.cache.idle() < count {
            return None;
        }
        while self.free.len() < count {
            self.free.push(self.cache.evict()?);
        }
        Some(self.free.split_off(self.free.len() - count))
    }

    /// Shares the leading pages of a sequence, which hold the contents of `keys`. It stops at a
    /// page whose contents another sequence has already added: this sequence keeps its own copy
    /// unshared.
    pub fn share(&mut self, table: &mut PageTable, keys: &[PageKey]) {
        while let (Some(key), Some(page)) = (keys.get(table.shared), table.ids.get(table.shared)) {
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
        let mut keys = keys.iter().skip(shared.len());
        for page in own {
            let Some(key) = keys.next() else {
                self.free.push(*page);
                continue;
            };
            if let Some(other) = self.cache.page(key) {
                self.free.push(*page);
                parent = Some(other);
            } else {
                self.cache.insert(*key, parent, *page, 0);
                parent = Some(*page);
            }
        }
        self.cache.release(shared);
    }

    /// Drops all evictable pages.
    pub fn clear(&mut self) {
        self.free.extend(std::iter::from_fn(|| self.cache.evict()));
    }

    /// Panics unless every page is in exactly one place and the counts are right.
    #[cfg(test)]
    pub fn audit<'a>(&self, tables: impl Iterator<Item = &'a PageTable>, total: usize) {
        let mut seen: Vec<PageId> = self.free.clone();
        let mut held: Vec<&[PageId]> = Vec::new();
        for table in tables {
            let (shared, own) = table.ids.split_at(table.shared);
            seen.extend(own);
            held.push(shared);
        }
        seen.extend(self.cache.audit(&held));
        seen.sort_unstable();
        let all: Vec<PageId> = (0..total as u32).map(PageId).collect();
        assert_eq!(seen, all, "a page is lost or in two places");
    }
}
