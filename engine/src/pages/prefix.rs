//! The prefix cache: pages that a later prompt with the same prefix can reuse.
//!
//! A page is identified by a hash of all tokens up to its end and of the next one. The next token
//! is included because the draft's row i depends on token i + 1 (SGLang's radix cache has bigram
//! keys under EAGLE for the same reason). Since the hash of a page includes the hash of the
//! previous page, the pages of all sequences form a tree. A page is kept at least as long as the
//! pages after it, so the longest cached prefix of a prompt is found by bisection.

use std::collections::{BTreeSet, HashMap};

use crate::backend::PageId;

/// The contents of a page: a hash of the tokens up to its end and of the token after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey([u8; 16]);

/// The keys of a sequence's full pages, as far as the token after each is known.
#[derive(Clone, Debug)]
pub struct PageKeys {
    page_size: usize,
    keys: Vec<PageKey>,
}

/// Which pages of a sequence may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// None: every prompt is prefilled from its start.
    Off,
    /// Only those of prompts, because the outputs' cache rows do not belong to their tokens
    /// (simulated acceptance).
    Prompts,
    /// Those of prompts and outputs.
    All,
}

impl Reuse {
    /// How much of the sequence has correct contents, with real or simulated acceptance.
    #[must_use]
    pub fn under_simulation(self, simulated: bool) -> Self {
        match (self, simulated) {
            (Self::Off, _) => Self::Off,
            (_, true) => Self::Prompts,
            (_, false) => Self::All,
        }
    }
}

/// Pages that sequences share, or that are kept for later sequences.
#[derive(Debug, Default)]
pub struct PrefixCache {
    pages: HashMap<PageKey, PageId>,
    nodes: HashMap<PageId, PrefixNode>,
    /// Number of pages without a user. All pages after such a page have no user either.
    idle: usize,
    /// Pages without a user and without pages after them, by the time of their last use.
    leaves: BTreeSet<(u64, PageId)>,
    clock: u64,
}

#[derive(Debug)]
struct PrefixNode {
    key: PageKey,
    parent: Option<PageId>,
    children: usize,
    users: usize,
    last_used: u64,
}

impl PageKeys {
    /// No keys yet, for pages of `page_size` tokens.
    pub fn new(page_size: usize) -> Self {
        Self { page_size, keys: Vec::new() }
    }

    /// Adds the keys of pages that have become full: `tokens` is the whole sequence so far.
    pub fn extend(&mut self, tokens: &[u32]) {
        let from = self.keys.len() * self.page_size;
        // Windows overlap by the token after the page.
        let windows = tokens.get(from..).unwrap_or_default().windows(self.page_size + 1).step_by(self.page_size);
        for window in windows {
            let mut hasher = blake3::Hasher::new();
            if let Some(PageKey(before)) = self.keys.last() {
                hasher.update(before);
            }
            for token in window {
                hasher.update(&token.to_le_bytes());
            }
            let mut key = [0; 16];
            key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
            self.keys.push(PageKey(key));
        }
    }

    /// Tokens per page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// All keys.
    pub fn all(&self) -> &[PageKey] {
        &self.keys
    }

    /// Drops the keys of pages that are not within the first `positions`.
    pub fn truncate(&mut self, positions: usize) {
        self.keys.truncate(positions / self.page_size);
    }

    /// The keys of the pages within the first `positions`.
    pub fn within(&self, positions: usize) -> &[PageKey] {
        &self.keys[..self.keys.len().min(positions / self.page_size)]
    }
}

impl PrefixCache {
    /// Number of pages without a user.
    pub fn idle(&self) -> usize {
        self.idle
    }

    /// Number of a sequence's leading pages that are in the cache without a user.
    pub fn idle_of(&self, keys: &[PageKey]) -> usize {
        let pages = keys.iter().map_while(|key| self.page(key));
        pages.filter(|page| self.nodes.get(page).is_some_and(|node| node.users == 0)).count()
    }

    /// The page with this key.
    pub fn page(&self, key: &PageKey) -> Option<PageId> {
        self.pages.get(key).copied()
    }

    /// Number of a sequence's leading pages in the cache.
    pub fn find(&self, keys: &[PageKey]) -> usize {
        keys.partition_point(|key| self.pages.contains_key(key))
    }

    /// Adds a user to the cached leading pages of a sequence.
    pub fn hold(&mut self, keys: &[PageKey]) -> Vec<PageId> {
        let pages: Vec<PageId> = keys.iter().map_while(|key| self.page(key)).collect();
        for page in &pages {
            let Some(node) = self.nodes.get_mut(page) else { continue };
            if node.users == 0 {
                self.idle -= 1;
                // No leaf if pages come after it; nothing is removed then.
                self.leaves.remove(&(node.last_used, *page));
            }
            node.users += 1;
        }
        pages
    }

    /// Removes a user from a sequence's leading pages.
    pub fn release(&mut self, pages: &[PageId]) {
        self.clock += 1;
        for page in pages {
            let Some(node) = self.nodes.get_mut(page) else { continue };
            node.users -= 1;
            node.last_used = self.clock;
            if node.users == 0 {
                self.idle += 1;
                if node.children == 0 {
                    self.leaves.insert((node.last_used, *page));
                }
            }
        }
    }

    /// Adds a page after its parent, which must have at least as many users.
    pub fn insert(&mut self, key: PageKey, parent: Option<PageId>, page: PageId, users: usize) {
        self.clock += 1;
        if let Some((parent, node)) = parent.and_then(|parent| Some((parent, self.nodes.get_mut(&parent)?))) {
            if node.users == 0 && node.children == 0 {
                self.leaves.remove(&(node.last_used, parent));
            }
            node.children += 1;
        }
        if users == 0 {
            self.idle += 1;
            self.leaves.insert((self.clock, page));
        }
        self.pages.insert(key, page);
        self.nodes.insert(page, PrefixNode { key, parent, children: 0, users, last_used: self.clock });
    }

    /// Evicts the least recently used page without a user and without pages after it.
    pub fn evict(&mut self) -> Option<PageId> {
        let (_, page) = self.leaves.pop_first()?;
        let node = self.nodes.remove(&page)?;
        self.pages.remove(&node.key);
        self.idle -= 1;
        if let Some((parent, node)) = node.parent.and_then(|parent| Some((parent, self.nodes.get_mut(&parent)?))) {
            node.children -= 1;
            // The last page after it is gone, so it is the next to go.
            if node.users == 0 && node.children == 0 {
                self.leaves.insert((node.last_used, parent));
            }
        }
        Some(page)
    }

    /// All pages; panics unless their records are consistent with the given uses and with each
    /// other.
    #[cfg(test)]
    pub fn audit(&self, uses: &[&[PageId]]) -> Vec<PageId> {
        let users = |page: &PageId| uses.iter().filter(|pages| pages.contains(page)).count();
        for (page, node) in &self.nodes {
            assert_eq!(node.users, users(page), "users of {page:?}");
            assert_eq!(self.pages.get(&node.key), Some(page));
            let children = self.nodes.values().filter(|child| child.parent == Some(*page)).count();
            assert_eq!(node.children, children, "pages behind {page:?}");
            let is_leaf = node.users == 0 && node.children == 0;
            assert_eq!(self.leaves.contains(&(node.last_used, *page)), is_leaf);
            if let Some(parent) = &node.parent {
                assert!(self.nodes[parent].users >= node.users, "{page:?} outlives the page before it");
            }
        }
        let is_leaf = |node: &&PrefixNode| node.users == 0 && node.children == 0;
        assert_eq!(self.leaves.len(), self.nodes.values().filter(is_leaf).count());
        assert_eq!(self.idle, self.nodes.values().filter(|node| node.users == 0).count());
        assert_eq!(self.pages.len(), self.nodes.len());
        self.nodes.keys().copied().collect()
    }
}
