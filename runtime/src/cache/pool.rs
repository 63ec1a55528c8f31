//! The pages of one pool and everything that may hold one.

use super::prefix::PrefixIndex;
use super::{CacheNamespace, PageId, PageTable, PageTag, PageTracker};
use std::collections::{BTreeMap, VecDeque};

/// Size of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    /// Pages.
    pub num_pages: u32,
    /// Tokens a page, at least one.
    pub page_size: usize,
}

impl PoolSize {
    /// Pages that hold `tokens`.
    pub fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_size)
    }
}

/// A remote writer's right to write pages: one transfer of one generation of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    /// Nonce of the transfer.
    pub transfer: u64,
    /// Generation of the process that writes.
    pub generation: u64,
}

/// Too few pages for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{needed} pages needed, {available} of {num_pages} are free or cached")]
#[expect(missing_docs, reason = "the message is the doc")]
pub struct OutOfPages {
    pub needed: usize,
    pub available: usize,
    pub num_pages: u32,
}

/// Pages by state; each page is in exactly one. Quarantine outranks a lease, a lease an owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the states")]
pub struct PageCounts {
    pub free: usize,
    pub owned: usize,
    pub leased: usize,
    pub cached: usize,
    pub quarantined: usize,
}

/// What is wrong with a pool's books. Always our own mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum AuditError {
    #[error("page {page:?}: {recorded} owners recorded, {actual} tables hold it")]
    Owners { page: PageId, recorded: u32, actual: u32 },
    #[error("page {page:?}: {recorded} writers recorded, {actual} leases hold it")]
    Writers { page: PageId, recorded: u32, actual: u32 },
    #[error("page {page:?} is in the free list {times} times, expected {expected}")]
    FreeList { page: PageId, times: u32, expected: u32 },
}

#[derive(Debug, Clone, Copy, Default)]
struct Page {
    owners: u32,
    writers: u32,
    is_quarantined: bool,
}

#[derive(Debug)]
struct Lease {
    pages: Vec<PageId>,
    is_revoked: bool,
}

/// The pages of one pool.
#[derive(Debug)]
pub struct PagePool<T: PageTracker> {
    size: PoolSize,
    pages: Vec<Page>,
    free: VecDeque<PageId>,
    prefixes: PrefixIndex,
    leases: BTreeMap<LeaseId, Lease>,
    tracker: T,
}

impl<T: PageTracker> PagePool<T> {
    /// A pool of free pages.
    ///
    /// # Panics
    /// If `page_size` is 0.
    pub fn new(size: PoolSize) -> Self {
        assert!(size.page_size > 0, "page_size is 0, expected at least 1");
        Self {
            size,
            pages: vec![Page::default(); size.num_pages as usize],
            free: (0..size.num_pages).map(PageId).collect(),
            prefixes: PrefixIndex::default(),
            leases: BTreeMap::new(),
            tracker: T::new(size.num_pages as usize),
        }
    }

    /// Size.
    pub fn size(&self) -> PoolSize {
        self.size
    }

    /// Pages that [`PagePool::allocate`] could give out now.
    pub fn available(&self) -> usize {
        let counts = self.counts();
        counts.free + counts.cached
    }

    /// Appends `count` pages of unknown content to a table, evicting cached ones if it must.
    ///
    /// # Errors
    /// [`OutOfPages`]; the table is as it was.
    pub fn allocate(&mut self, count: usize, table: &mut PageTable<T>) -> Result<(), OutOfPages> {
        let available = self.available();
        if count > available {
            let num_pages = self.size.num_pages;
            return Err(OutOfPages { needed: count, available, num_pages });
        }
        for _ in 0..count {
            if self.free.is_empty() {
                self.evict();
            }
            let page = self.free.pop_front().expect("available counts what eviction can free");
            self.pages[page.0 as usize].owners = 1;
            self.tracker.retag(page);
            self.append(page, table);
        }
        Ok(())
    }

    /// Starts a table with the cached pages of a prompt, all but at least its last token.
    pub fn share_prefix(&mut self, namespace: &CacheNamespace, prompt: &[u32]) -> PageTable<T> {
        let mut table = PageTable::default();
        let reusable = &prompt[..prompt.len().saturating_sub(1)];
        for page in self.prefixes.find(namespace, reusable, self.size.page_size) {
            self.pages[page.0 as usize].owners += 1;
            self.append(page, &mut table);
        }
        table
    }

    /// Lets later requests of the namespace share the full pages of `table`, which holds `tokens`.
    /// Never for a request that was aborted or failed.
    pub fn publish(&mut self, namespace: &CacheNamespace, tokens: &[u32], table: &PageTable<T>) {
        let full = tokens.len() / self.size.page_size;
        let sound = table.pages.iter().take(full).take_while(|page| {
            let state = self.pages[page.0 as usize];
            !state.is_quarantined && state.writers == 0
        });
        let sound = sound.count();
        self.prefixes.insert(namespace, tokens, (&table.pages[..sound], self.size.page_size));
    }

    /// Gives a table's pages back; those still leased, shared or quarantined stay so.
    pub fn release(&mut self, table: PageTable<T>) {
        // Last first, so that the start of a prompt is the last to be evicted.
        for page in table.pages.into_iter().rev() {
            self.pages[page.0 as usize].owners -= 1;
            self.free_if_unheld(page);
        }
    }

    /// Lets a remote writer write the pages of a table.
    ///
    /// # Panics
    /// If the lease exists: transfer ids are never used twice.
    pub fn lease(&mut self, lease: LeaseId, table: &PageTable<T>) {
        for page in &table.pages {
            self.pages[page.0 as usize].writers += 1;
        }
        let held = Lease { pages: table.pages.clone(), is_revoked: false };
        let old = self.leases.insert(lease, held);
        assert!(old.is_none(), "{lease:?} was given twice");
    }

    /// Whether a write under `lease` may reach `page`.
    pub fn may_write(&self, lease: LeaseId, page: PageId) -> bool {
        self.leases.get(&lease).is_some_and(|held| !held.is_revoked && held.pages.contains(&page))
    }

    /// Forbids further writes. The pages stay leased until the writer is known to be quiet.
    pub fn revoke(&mut self, lease: LeaseId) {
        if let Some(held) = self.leases.get_mut(&lease) {
            held.is_revoked = true;
        }
    }

    /// The writer has proved that it writes no more. Unknown leases are no error.
    pub fn fence(&mut self, lease: LeaseId) {
        let Some(held) = self.leases.remove(&lease) else { return };
        for page in held.pages {
            self.pages[page.0 as usize].writers -= 1;
            self.free_if_unheld(page);
        }
    }

    /// Keeps a page out of use until the process ends, with all cached pages that follow it.
    pub fn quarantine(&mut self, page: PageId) {
        let index = page.0 as usize;
        if self.pages[index].is_quarantined {
            return;
        }
        self.free.retain(|free| *free != page);
        self.pages[index].is_quarantined = true;
        for unreachable in self.prefixes.remove(page) {
            self.free_if_unheld(unreachable);
        }
    }

    /// Tags that changed since the last call, for the device's copy.
    pub fn drain_changes(&mut self, changes: &mut Vec<(PageId, PageTag)>) {
        self.tracker.drain_changes(changes);
    }

    /// Pages by state.
    pub fn counts(&self) -> PageCounts {
        let mut counts = PageCounts::default();
        for (id, page) in (0..).map(PageId).zip(&self.pages) {
            *(if page.is_quarantined {
                &mut counts.quarantined
            } else if page.writers > 0 {
                &mut counts.leased
            } else if page.owners > 0 {
                &mut counts.owned
            } else if self.prefixes.contains(id) {
                &mut counts.cached
            } else {
                &mut counts.free
            }) += 1;
        }
        counts
    }

    /// Compares the books with every table and lease there is.
    ///
    /// # Errors
    /// [`AuditError`], the first difference.
    pub fn audit<'a>(
        &self,
        tables: impl Iterator<Item = &'a PageTable<T>>,
    ) -> Result<PageCounts, AuditError>
    where
        T: 'a,
    {
        let mut owners = vec![0; self.pages.len()];
        let mut writers = vec![0; self.pages.len()];
        let mut free = vec![0; self.pages.len()];
        tables.flat_map(|table| &table.pages).for_each(|page| owners[page.0 as usize] += 1);
        let leased = self.leases.values().flat_map(|lease| &lease.pages);
        leased.for_each(|page| writers[page.0 as usize] += 1);
        self.free.iter().for_each(|page| free[page.0 as usize] += 1);
        for (id, held) in (0..).map(PageId).zip(&self.pages) {
            let index = id.0 as usize;
            let (actual, writing, times) = (owners[index], writers[index], free[index]);
            let expected = u32::from(self.is_unheld(id));
            if held.owners != actual {
                return Err(AuditError::Owners { page: id, recorded: held.owners, actual });
            }
            if held.writers != writing {
                let recorded = held.writers;
                return Err(AuditError::Writers { page: id, recorded, actual: writing });
            }
            if times != expected {
                return Err(AuditError::FreeList { page: id, times, expected });
            }
        }
        Ok(self.counts())
    }

    fn append(&self, page: PageId, table: &mut PageTable<T>) {
        table.pages.push(page);
        self.tracker.record(&mut table.ledger, page);
    }

    fn evict(&mut self) {
        let unheld = |page: PageId| {
            let held = self.pages[page.0 as usize];
            held.owners == 0 && held.writers == 0 && !held.is_quarantined
        };
        if let Some(page) = self.prefixes.oldest_leaf(unheld) {
            for evicted in self.prefixes.remove(page) {
                self.free_if_unheld(evicted);
            }
        }
    }

    fn is_unheld(&self, page: PageId) -> bool {
        let held = self.pages[page.0 as usize];
        held.owners == 0
            && held.writers == 0
            && !held.is_quarantined
            && !self.prefixes.contains(page)
    }

    fn free_if_unheld(&mut self, page: PageId) {
        if self.is_unheld(page) {
            self.tracker.retag(page);
            self.free.push_back(page);
        }
    }
}
