//! Window pages: where the rows of layers with a window are (every second layer of gpt-oss).
//!
//! A page holds rows of all layers without a window. Its rows of the layers with one are in a
//! *window page*, from a pool that is much smaller: a page has a window page only as long as a
//! sequence may still see its positions, or the prefix cache keeps it. All layouts know pages
//! alone; a pass translates its rows for these layers once ([`WindowMap`]). So a window page
//! belongs to a page and not to a request: whoever shares the page shares it too.
//!
//! The scheduler gives a page its window page before the pass that writes it, and takes it away
//! when no later pass can see it. Passes run in the order in which they are launched, so those in
//! flight do not matter. The pool has room for all that can run at once ([`WindowNeeds::least`]),
//! so that admission depends on pages alone; what is left keeps the windows before positions at
//! which later prompts may continue (`scheduler::windows`).

use super::{Capacity, PageId, WindowChange, WindowPage, WindowPages};
use crate::error::EngineError;

/// Pages per further window page, beyond those that running requests need: they keep the windows of
/// prefixes that later requests may continue.
const PAGES_PER_KEPT: usize = 8;

/// Which window page each page has.
#[derive(Clone, Debug)]
pub struct WindowMap {
    window: usize,
    page_size: usize,
    of_page: Vec<Option<WindowPage>>,
    of_window: Vec<Option<PageId>>,
}

/// What determines how many window pages running requests need.
#[derive(Clone, Copy, Debug)]
pub struct WindowNeeds {
    /// The window.
    pub window: usize,
    /// Tokens per page.
    pub page_size: usize,
    /// Requests that can run.
    pub slots: usize,
    /// Positions after a sequence that rounds can fill.
    pub slack: usize,
    /// Maximum number of prompt tokens per pass.
    pub chunk: usize,
}

/// The pages that fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlan {
    /// Pages.
    pub pages: usize,
    /// Window pages; `None` if every page has its rows of all layers.
    pub windows: Option<WindowPages>,
}

/// Bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBytes {
    /// In the caches of layers without a window, and of the draft.
    pub page: u64,
    /// In the caches of layers with a window.
    pub window: u64,
}

impl PageBytes {
    /// In all caches.
    pub fn all(self) -> u64 {
        self.page + self.window
    }
}

impl WindowNeeds {
    /// Most window pages that a request holds between passes: those of the window before a page's
    /// first position, of the rest of that page, and of what rounds may fill.
    pub fn per_request(&self) -> usize {
        self.window.saturating_sub(1).div_ceil(self.page_size) + self.slack.div_ceil(self.page_size) + 1
    }

    /// Window pages that are enough for all that can run at once.
    pub fn least(&self) -> usize {
        self.slots * (self.per_request() + 1) + self.chunk.div_ceil(self.page_size)
    }
}

impl PagePlan {
    /// As many pages as fit into memory (`None`: unknown, so without limit), at most `most`, with
    /// `spare` pages of each kind that no request uses.
    pub fn within(
        memory: Option<u64>,
        most: usize,
        spare: usize,
        bytes: PageBytes,
        needs: Option<WindowNeeds>,
    ) -> Self {
        let windows = |pages: usize| match needs {
            // Never more than one for each page.
            Some(needs) => needs.least().saturating_add(pages / PAGES_PER_KEPT).min(pages),
            None => pages,
        };
        let fits = |pages: usize| {
            let of = |count: usize, bytes: u64| ((count + spare) as u64).saturating_mul(bytes);
            let needed = of(pages, bytes.page).saturating_add(of(windows(pages), bytes.window));
            memory.is_none_or(|memory| needed <= memory)
        };
        // Bisection, since the number of window pages grows with the number of pages.
        let (mut least, mut most) = (0, most);
        while least < most {
            let middle = most - (most - least) / 2;
            if fits(middle) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        let count = windows(least);
        // With a window page for each page nothing is saved, and pages stay as without windows.
        let windows = needs.filter(|_| count < least).map(|needs| WindowPages { window: needs.window, count });
        if let Some(WindowPages { window, count }) = windows {
            tracing::info!("layers with a window of {window} tokens have {count} pages, the others {least}");
        }
        Self { pages: least, windows }
    }
}

impl WindowMap {
    /// The map of a backend, if it has window pages. At first page i has window page i, as far as
    /// there are any.
    pub fn new(capacity: &Capacity) -> Option<Self> {
        let WindowPages { window, count } = capacity.windows?;
        let pages = 0..capacity.pages as u32;
        let windows = 0..count as u32;
        Some(Self {
            window,
            page_size: capacity.page_size,
            of_page: pages.map(|page| windows.contains(&page).then_some(WindowPage(page))).collect(),
            of_window: windows
                .map(|page| Some(PageId(page)).filter(|page| (page.0 as usize) < capacity.pages))
                .collect(),
        })
    }

    /// The window.
    pub fn window(&self) -> usize {
        self.window
    }

    /// The window page of a page that exists.
    pub fn window_page(&self, page: PageId) -> Option<WindowPage> {
        self.of_page.get(page.0 as usize).copied().flatten()
    }

    /// Makes changes, in their order.
    ///
    /// # Errors
    /// When a page or window page does not exist, or a window page would have two pages. Changes
    /// before that are made.
    pub fn change(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        let pages = self.of_page.len();
        for WindowChange { page, to } in changes {
            let Some(place) = self.of_page.get_mut(page.0 as usize) else {
                return Err(EngineError::Device(format!("page {} does not exist, there are {pages}", page.0)));
            };
            // First of all, since another page may take it in the same call.
            if let Some(before) = place.take() {
                self.of_window[before.0 as usize] = None;
            }
            let Some(window) = to else { continue };
            let windows = self.of_window.len();
            let Some(owner) = self.of_window.get_mut(window.0 as usize) else {
                return Err(EngineError::Device(format!(
                    "window page {} does not exist, there are {windows}",
                    window.0
                )));
            };
            if let Some(other) = owner.replace(*page) {
                // Restored, so that the table is as before the refused change.
                *owner = Some(other);
                return Err(EngineError::Device(format!("window page {} is that of page {}", window.0, other.0)));
            }
            *place = Some(*window);
        }
        Ok(())
    }

    /// The row of layers with a window for a row of the others.
    ///
    /// # Errors
    /// When its page has no window page.
    pub fn row(&self, row: u32) -> Result<u32, EngineError> {
        let page_size = self.page_size as u32;
        let page = PageId(row / page_size);
        let window = self.window_page(page).ok_or_else(|| {
            EngineError::Device(format!("page {} has no window page, but layers with a window use it", page.0))
        })?;
        Ok(window.0 * page_size + row % page_size)
    }

    /// [`row`](Self::row) for each row.
    ///
    /// # Errors
    /// The same.
    pub fn rows(&self, rows: &[u32]) -> Result<Vec<u32>, EngineError> {
        rows.iter().map(|row| self.row(*row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::published;

    const SPARE: usize = 2;
    const NEEDS: WindowNeeds = WindowNeeds { window: 128, page_size: 16, slots: 4, slack: 16, chunk: 2048 };
    const BYTES: PageBytes = PageBytes { page: 3000, window: 1000 };

    #[test]
    fn a_plan_with_windows_fills_memory_with_more_pages_than_one_without() {
        let memory = 40_000_000;
        let with = PagePlan::within(Some(memory), usize::MAX / 2, 1, BYTES, Some(NEEDS));
        let without = PagePlan::within(Some(memory), usize::MAX / 2, 1, BYTES, None);
        assert_eq!(without, PagePlan { pages: 9_999, windows: None });
        let windows = with.windows.expect("fewer window pages than pages");
        assert_eq!(windows.count, NEEDS.least() + with.pages / PAGES_PER_KEPT);
        let bytes = |pages: usize| (pages as u64 + 1) * 3000 + (pages as u64 / 8 + NEEDS.least() as u64 + 1) * 1000;
        assert!(bytes(with.pages) <= memory && bytes(with.pages + 1) > memory, "{with:?}");
        assert!(with.pages > without.pages * 5 / 4, "{with:?}");
    }

    #[test]
    fn gpt_oss_keeps_three_quarters_more_tokens_in_the_same_memory() {
        let target = published("gpt-oss-20b").expect("a shape").target(None).expect("all layers");
        let window = target.windowed_cache(2).expect("every second layer").row;
        let bytes = PageBytes { page: target.cache_row(2) - window, window };
        let window = target.window().expect("every second layer");
        let needs = WindowNeeds { window, page_size: 1, slots: 64, slack: 12, chunk: 8192 };
        let plan = |needs| PagePlan::within(Some(40 << 30), usize::MAX / 2, SPARE, bytes, needs);
        let (before, after) = (plan(None), plan(Some(needs)));
        assert_eq!((before.pages, after.pages), (873_811, 1_538_139));
        assert_eq!(
            after.windows,
            Some(WindowPages { window: 128, count: 64 * 141 + 8192 + after.pages / PAGES_PER_KEPT })
        );
    }

    #[test]
    fn few_pages_have_rows_of_all_layers() {
        let least = NEEDS.least();
        for most in [1, least / 2, least] {
            assert_eq!(PagePlan::within(None, most, 1, BYTES, Some(NEEDS)), PagePlan { pages: most, windows: None });
        }
        assert!(PagePlan::within(None, least + least / 4, 1, BYTES, Some(NEEDS)).windows.is_some());
        assert_eq!(PagePlan::within(Some(3999), 100, 1, BYTES, Some(NEEDS)).pages, 0);
    }

    #[test]
    fn a_window_page_belongs_to_one_page_and_a_row_without_one_is_an_error() {
        let windows = Some(WindowPages { window: 5, count: 2 });
        let capacity = Capacity { pages: 3, page_size: 4, windows, ..Capacity::NONE };
        let mut map = WindowMap::new(&capacity).expect("window pages");
        assert_eq!(map.rows(&[0, 7]).expect("pages 0 and 1"), [0, 7]);
        let refused = |result: Result<_, EngineError>| result.map(|_| ()).expect_err("refused").to_string();
        assert!(refused(map.row(8)).contains("page 2 has no window page"));
        let change = |page: u32, to: Option<u32>| WindowChange { page: PageId(page), to: to.map(WindowPage) };
        assert!(refused(map.change(&[change(2, Some(1))]).map(|()| 0)).contains("window page 1 is that of page 1"));
        map.change(&[change(1, None), change(2, Some(1))]).expect("it is free now");
        assert_eq!(map.row(9).expect("page 2"), 5);
        assert!(refused(map.row(4)).contains("page 1"));
        assert!(refused(map.change(&[change(3, None)]).map(|()| 0)).contains("page 3 does not exist"));
        assert!(refused(map.change(&[change(0, Some(2))]).map(|()| 0)).contains("window page 2 does not exist"));
    }
}
