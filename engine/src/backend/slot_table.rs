//! The slots of a backend, and which pages, window pages and places for states exist.

use super::{Capacity, PageId, Slot, Snapshot, WindowChange, windows::WindowMap};
use crate::error::EngineError;

/// The slots of a backend, with what it keeps of each open one.
#[derive(Debug)]
pub struct SlotTable<S> {
    slots: Vec<Option<S>>,
    capacity: Capacity,
    windows: Option<WindowMap>,
}

impl<S> SlotTable<S> {
    /// The slots of a capacity, none open.
    pub fn new(capacity: Capacity) -> Self {
        let windows = WindowMap::new(&capacity);
        Self { slots: (0..capacity.slots).map(|_| None).collect(), capacity, windows }
    }

    /// Checks that a slot can be opened on these pages, of which the first `cached` positions are
    /// filled.
    ///
    /// # Errors
    /// When the slot or a page does not exist, the slot is in use, or the pages hold fewer
    /// positions.
    pub fn check_open(&self, slot: Slot, pages: &[PageId], cached: usize) -> Result<(), EngineError> {
        self.check_free(slot)?;
        self.check_pages(pages)?;
        let (count, page_size) = (pages.len(), self.capacity.page_size);
        if cached > count * page_size {
            return Err(EngineError::Device(format!(
                "{count} pages of {page_size} tokens cannot hold {cached} positions"
            )));
        }
        Ok(())
    }

    /// Checks that pages exist.
    ///
    /// # Errors
    /// Naming the first that does not.
    pub fn check_pages(&self, pages: &[PageId]) -> Result<(), EngineError> {
        let count = self.capacity.pages;
        match pages.iter().find(|page| page.0 as usize >= count) {
            Some(page) => Err(EngineError::Device(format!("page {} does not exist, there are {count}", page.0))),
            None => Ok(()),
        }
    }

    /// Which window page each page has, if there are any.
    pub fn windows(&self) -> Option<&WindowMap> {
        self.windows.as_ref()
    }

    /// Changes the window pages of pages; without window pages there is nothing to change.
    ///
    /// # Errors
    /// When a page or window page does not exist, or a window page would belong to two pages.
    pub fn change_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        self.windows.as_mut().map_or(Ok(()), |windows| windows.change(changes))
    }

    fn check_free(&self, slot: Slot) -> Result<(), EngineError> {
        match self.slots.get(slot.0 as usize) {
            Some(None) => Ok(()),
            Some(Some(_)) => Err(EngineError::Device(format!("slot {} is in use", slot.0))),
            None => {
                let count = self.slots.len();
                Err(EngineError::Device(format!("slot {} does not exist, there are {count}", slot.0)))
            }
        }
    }

    /// Opens a slot.
    ///
    /// # Errors
    /// When it does not exist or is in use.
    pub fn open(&mut self, slot: Slot, state: S) -> Result<(), EngineError> {
        self.check_free(slot)?;
        self.slots[slot.0 as usize] = Some(state);
        Ok(())
    }

    /// Closes a slot.
    pub fn close(&mut self, slot: Slot) {
        if let Some(place) = self.slots.get_mut(slot.0 as usize) {
            *place = None;
        }
    }

    /// What is kept of a slot; `None` if it is not open.
    pub fn find(&self, slot: Slot) -> Option<&S> {
        self.slots.get(slot.0 as usize)?.as_ref()
    }

    /// As [`find`](Self::find), mutable.
    pub fn find_mut(&mut self, slot: Slot) -> Option<&mut S> {
        self.slots.get_mut(slot.0 as usize)?.as_mut()
    }

    /// What is kept of an open slot.
    ///
    /// # Errors
    /// When it is not open.
    pub fn get(&self, slot: Slot) -> Result<&S, EngineError> {
        self.find(slot).ok_or_else(|| not_open(slot))
    }

    /// As [`get`](Self::get), mutable.
    ///
    /// # Errors
    /// When it is not open.
    pub fn get_mut(&mut self, slot: Slot) -> Result<&mut S, EngineError> {
        self.find_mut(slot).ok_or_else(|| not_open(slot))
    }

    /// What is kept of several open slots.
    ///
    /// # Errors
    /// When one is not open.
    pub fn get_all(&self, slots: impl IntoIterator<Item = Slot>) -> Result<Vec<&S>, EngineError> {
        slots.into_iter().map(|slot| self.get(slot)).collect()
    }

    /// What is kept of each open slot.
    pub fn all_open(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().flatten()
    }

    /// The places of an open slot and of a snapshot among the states of sequences, which are those
    /// of all slots and then those of all snapshots.
    ///
    /// # Errors
    /// When the slot is not open or the snapshot does not exist.
    pub fn state_places(&self, slot: Slot, snapshot: Snapshot) -> Result<(usize, usize), EngineError> {
        self.get(slot)?;
        let count = self.capacity.snapshots.unwrap_or_default();
        if snapshot.0 as usize >= count {
            return Err(EngineError::Device(format!("snapshot {} does not exist, there are {count}", snapshot.0)));
        }
        Ok((slot.0 as usize, self.capacity.slots + snapshot.0 as usize))
    }
}

fn not_open(slot: Slot) -> EngineError {
    EngineError::Device(format!("slot {} is not open", slot.0))
}
