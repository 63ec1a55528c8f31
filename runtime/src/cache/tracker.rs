//! Page tags, or the absence of them at no cost.

use super::{PageId, PageTag};
use std::fmt::Debug;

/// Wraps every statement that page tracking adds to a step, so that a build with
/// `--cfg tessera_untracked` has none of them: what [`NoopTracker`] is measured against
/// (`cargo xtask bench tracking`).
macro_rules! tracking {
    ($($statement:tt)*) => {
        #[cfg(not(tessera_untracked))]
        {
            $($statement)*
        }
    };
}
pub(crate) use tracking;

/// Follows pages as they change hands. Static dispatch only.
pub trait PageTracker {
    /// Whether there are tags to check at all.
    const KEEPS_TAGS: bool;
    /// What a request remembers of its pages, in the order of its table.
    type Ledger: Debug + Clone + Default + Send + Sync + 'static;

    /// Follows `num_pages` pages.
    fn new(num_pages: usize) -> Self;
    /// The page is given out or taken back.
    fn retag(&mut self, page: PageId);
    /// Appends the page's present tag to a ledger.
    fn record(&self, ledger: &mut Self::Ledger, page: PageId);
    /// Tags of a ledger; empty if none are kept.
    fn tags(ledger: &Self::Ledger) -> &[PageTag];
    /// Tags that changed since the last call, for the device's copy.
    fn drain_changes(&mut self, changes: &mut Vec<(PageId, PageTag)>);
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopTracker;

impl PageTracker for NoopTracker {
    const KEEPS_TAGS: bool = false;
    type Ledger = ();

    #[inline]
    fn new(_: usize) -> Self {
        Self
    }
    #[inline]
    fn retag(&mut self, _: PageId) {}
    #[inline]
    fn record(&self, (): &mut (), _: PageId) {}
    #[inline]
    fn tags((): &()) -> &[PageTag] {
        &[]
    }
    #[inline]
    fn drain_changes(&mut self, _: &mut Vec<(PageId, PageTag)>) {}
}

/// Keeps a tag for each page, from one counter, so no two hand-outs ever share a tag.
#[derive(Debug, Clone)]
pub struct TagTracker {
    tags: Vec<PageTag>,
    is_changed: Vec<bool>,
    changed: Vec<PageId>,
    last: u64,
}

impl PageTracker for TagTracker {
    const KEEPS_TAGS: bool = true;
    type Ledger = Vec<PageTag>;

    fn new(num_pages: usize) -> Self {
        let tags = vec![PageTag(0); num_pages];
        Self { tags, is_changed: vec![false; num_pages], changed: Vec::new(), last: 0 }
    }

    fn retag(&mut self, page: PageId) {
        let index = page.0 as usize;
        self.last += 1;
        self.tags[index] = PageTag(self.last);
        if !self.is_changed[index] {
            self.is_changed[index] = true;
            self.changed.push(page);
        }
    }

    fn record(&self, ledger: &mut Self::Ledger, page: PageId) {
        ledger.push(self.tags[page.0 as usize]);
    }

    fn tags(ledger: &Self::Ledger) -> &[PageTag] {
        ledger
    }

    fn drain_changes(&mut self, changes: &mut Vec<(PageId, PageTag)>) {
        for page in self.changed.drain(..) {
            self.is_changed[page.0 as usize] = false;
            changes.push((page, self.tags[page.0 as usize]));
        }
    }
}

/// A request's pages in order, and its ledger of their tags.
#[derive(Debug)]
pub struct PageTable<T: PageTracker> {
    pub(super) pages: Vec<PageId>,
    pub(super) ledger: T::Ledger,
}

impl<T: PageTracker> Default for PageTable<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), ledger: T::Ledger::default() }
    }
}

impl<T: PageTracker> PageTable<T> {
    /// Pages in order of position.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// What the holder remembers of its pages.
    pub fn ledger(&self) -> &T::Ledger {
        &self.ledger
    }

    /// Tags of [`PageTable::pages`] as they were given out; empty if none are kept.
    pub fn tags(&self) -> &[PageTag] {
        T::tags(&self.ledger)
    }
}
