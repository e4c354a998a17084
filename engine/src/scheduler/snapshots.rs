//! Where later sequences with the same beginning can continue, for models whose sequences have a
//! state beside their pages.
//!
//! A prefix of pages is reused only up to a position at which the state was kept. It is kept at the
//! last page boundary of each prompt, and where a prompt leaves the pages of earlier ones ahead of
//! any kept state, so that the next prompt with this beginning finds one there. A full store
//! forgets the state that was used least recently.

use std::collections::{BTreeMap, HashMap};

use crate::{backend::Snapshot, pages::prefix::PageKey};

/// The kept states, by the key of the last page that each has read.
#[derive(Debug, Default)]
pub struct Snapshots {
    free: Vec<Snapshot>,
    kept: HashMap<PageKey, KeptSnapshot>,
    /// Keys by the time of their last use.
    by_use: BTreeMap<u64, PageKey>,
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct KeptSnapshot {
    place: Snapshot,
    used: u64,
}

impl Snapshots {
    /// `count` free places.
    pub fn new(count: usize) -> Self {
        // Popped from the end, so that places are used in ascending order.
        Self { free: (0..count as u32).rev().map(Snapshot).collect(), ..Self::default() }
    }

    /// Number of kept states.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Number of leading pages after which a state is kept: as many as possible.
    pub fn find(&self, keys: &[PageKey]) -> usize {
        keys.iter().rposition(|key| self.kept.contains_key(key)).map_or(0, |page| page + 1)
    }

    /// The state after a page, if it is kept. Counts as a use.
    pub fn take(&mut self, key: &PageKey) -> Option<Snapshot> {
        let place = self.kept.get(key)?.place;
        self.used(*key, place);
        Some(place)
    }

    /// A place for the state after a page; `None` if it is kept already (which counts as a use), or
    /// there are no places.
    pub fn place(&mut self, key: &PageKey) -> Option<Snapshot> {
        if self.take(key).is_some() {
            return None;
        }
        let place = self.free.pop().or_else(|| {
            let (_, oldest) = self.by_use.pop_first()?;
            self.kept.remove(&oldest).map(|kept| kept.place)
        })?;
        self.used(*key, place);
        Some(place)
    }

    /// Forgets all states.
    pub fn clear(&mut self) {
        self.by_use.clear();
        self.free.extend(self.kept.drain().map(|(_, kept)| kept.place));
    }

    fn used(&mut self, key: PageKey, place: Snapshot) {
        self.clock += 1;
        if let Some(before) = self.kept.insert(key, KeptSnapshot { place, used: self.clock }) {
            self.by_use.remove(&before.used);
        }
        self.by_use.insert(self.clock, key);
    }

    /// Panics unless each of `total` places is free or in use once.
    #[cfg(test)]
    pub fn audit(&self, total: usize) {
        let mut places: Vec<Snapshot> =
            self.free.iter().copied().chain(self.kept.values().map(|kept| kept.place)).collect();
        places.sort_unstable();
        assert_eq!(places, (0..total as u32).map(Snapshot).collect::<Vec<_>>(), "a snapshot is lost or twice");
        assert_eq!(self.by_use.len(), self.kept.len());
        assert!(self.by_use.iter().all(|(used, key)| self.kept[key].used == *used));
    }
}
