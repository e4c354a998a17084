//! Passes as layers with window pages see them, and changes of these pages.

use std::collections::BTreeSet;

use kernels::{
    device::{DeviceError, Slice},
    launch::{CachePlanes, Moves, OwnRows, Sees, ViewPages},
};

use super::{
    CudaBackend,
    machine::{Machine, Pass},
    windows::{PLACES, TOGETHER},
};
use crate::{
    backend::{PageId, WindowChange},
    error::EngineError,
};

impl CudaBackend {
    /// Changes window pages, ordered after the work in flight.
    pub(super) fn send_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        self.slots.change_windows(changes)?;
        let (Some(windows), Some(map)) = (&self.machine.windows, self.slots.windows()) else { return Ok(()) };
        // Each page once, with its last place: threads of one launch write in no order.
        let pages: BTreeSet<PageId> = changes.iter().map(|change| change.page).collect();
        let words: Vec<i32> = pages
            .into_iter()
            .flat_map(|page| [page.0 as i32, map.window_page(page).map_or(-1, |window| window.0 as i32)])
            .collect();
        for words in words.chunks(2 * TOGETHER) {
            let staging = &mut self.window_staging;
            let (host, sent) = &mut staging.places[staging.sent % PLACES];
            if staging.sent >= PLACES {
                // The device may still be copying from this memory.
                sent.wait()?;
            }
            host.store(0, words);
            self.device.write_async(windows.changes.range(0..words.len() * 4), host, 0..words.len() * 4)?;
            self.device.record(sent)?;
            self.machine.kernels.change_windows(windows.map(), windows.changes.slice(), words.len() / 2)?;
            staging.sent += 1;
        }
        Ok(())
    }
}

impl Machine {
    /// Number of layers among the first `layers` whose caches have window pages.
    pub(super) fn windows_before(&self, layers: usize) -> usize {
        self.windows.as_ref().map_or(0, |_| self.target.spec.windows_before(layers))
    }

    /// The cache of a layer, if it has window pages.
    pub(super) fn window_cache(&self, at: usize) -> Option<Slice<'_>> {
        let windows = self.windows.as_ref()?;
        let spec = &self.target.spec;
        spec.layers.get(at)?.attention.window()?;
        let layer = spec.kv().planes * self.plane(spec.kv(), windows.rows);
        let before = spec.windows_before(at);
        Some(windows.cache.range(before * layer..(before + 1) * layer))
    }

    /// A pass as layers with window pages see it, if there are any. Launched once per pass, before
    /// its layers.
    pub(super) fn windowed<'a>(&'a self, pass: Pass<'a>) -> Result<Option<Pass<'a>>, DeviceError> {
        let (Some(windows), Some(to)) = (&self.windows, &pass.arrays.windowed) else { return Ok(None) };
        let to = to.rows(windows);
        let lists = match pass.sees {
            Sees::Positions => None,
            Sees::Own(own) => Some(own),
        };
        let (sequences, size) = (self.slots.sequences(&self.capacity), (windows.window, pass.rows));
        self.kernels.window_rows(to, (pass.arrays.pass(), lists), sequences, windows.map(), size)?;
        let sees = match pass.sees {
            Sees::Positions => Sees::Positions,
            Sees::Own(own) => Sees::Own(OwnRows { cache_rows: to.group_own, ..own }),
        };
        let pages = Some(ViewPages { at: to.table, width: self.slots.table_width });
        Ok(Some(Pass { sees, pages, windowed: Some(to), ..pass }))
    }

    /// Moves the rows of accepted nodes in the caches with window pages. The moves are translated
    /// in place, so this is their last use.
    pub(super) fn compact_windows(&self, moves: Moves<'_>, batch: usize, most: usize) -> Result<(), DeviceError> {
        let Some(windows) = &self.windows else { return Ok(()) };
        self.kernels.window_moves(moves, moves, windows.map(), batch * most)?;
        let (kv, layers) = (self.target.spec.kv(), self.target.layers.len());
        let caches = CachePlanes {
            at: windows.cache.slice(),
            planes: kv.planes * self.windows_before(layers),
            rows: windows.rows,
            row_bytes: kv.row_bytes(self.element_bytes()),
        };
        self.kernels.compact_cache(caches, moves, batch, most)
    }
}
