//! The pages of one pool and everything that may hold one.

use super::prefix::PrefixIndex;
use super::{CacheNamespace, PageId, PageTable, PageTag, PageTracker, tracking};
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
    #[error("page {page:?}: that it can be shared is recorded as {recorded}, and not in the index")]
    Shared { page: PageId, recorded: bool },
    #[error("{recorded:?} counted, {actual:?} found")]
    Counts { recorded: PageCounts, actual: PageCounts },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    Free,
    Owned,
    Leased,
    Cached,
    Quarantined,
}

#[derive(Debug, Clone, Copy, Default)]
struct Page {
    owners: u32,
    writers: u32,
    is_quarantined: bool,
    /// Is in the prefix index.
    is_shared: bool,
}

impl Page {
    fn state(self) -> PageState {
        match self {
            Self { is_quarantined: true, .. } => PageState::Quarantined,
            Self { writers: 1.., .. } => PageState::Leased,
            Self { owners: 1.., .. } => PageState::Owned,
            Self { is_shared: true, .. } => PageState::Cached,
            _ => PageState::Free,
        }
    }
}

impl PageCounts {
    fn of(&mut self, state: PageState) -> &mut usize {
        match state {
            PageState::Free => &mut self.free,
            PageState::Owned => &mut self.owned,
            PageState::Leased => &mut self.leased,
            PageState::Cached => &mut self.cached,
            PageState::Quarantined => &mut self.quarantined,
        }
    }
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
    /// Kept as pages change state, as schedulers ask for it several times in each step.
    counts: PageCounts,
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
            counts: PageCounts { free: size.num_pages as usize, ..PageCounts::default() },
            tracker: T::new(size.num_pages as usize),
        }
    }

    /// Size.
    pub fn size(&self) -> PoolSize {
        self.size
    }

    /// Pages that [`PagePool::allocate`] could give out now.
    pub fn available(&self) -> usize {
        self.counts.free + self.counts.cached
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
            self.change(page, |held| held.owners = 1);
            tracking! {
                self.tracker.retag(page);
            }
            self.append(page, table);
        }
        Ok(())
    }

    /// Starts a table with the cached pages of a prompt, all but at least its last token.
    pub fn share_prefix(&mut self, namespace: &CacheNamespace, prompt: &[u32]) -> PageTable<T> {
        let mut table = PageTable::default();
        let reusable = &prompt[..prompt.len().saturating_sub(1)];
        for page in self.prefixes.find(namespace, reusable, self.size.page_size) {
            self.change(page, |held| held.owners += 1);
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
        let pages = &table.pages[..sound.count()];
        for page in self.prefixes.insert(namespace, tokens, (pages, self.size.page_size)) {
            self.change(page, |held| held.is_shared = true);
        }
    }

    /// Gives a table's pages back; those still leased, shared or quarantined stay so.
    pub fn release(&mut self, table: PageTable<T>) {
        // Last first, so that the start of a prompt is the last to be evicted.
        for page in table.pages.into_iter().rev() {
            self.change(page, |held| held.owners -= 1);
        }
    }

    /// Lets a remote writer write the pages of a table.
    ///
    /// # Panics
    /// If the lease exists: transfer ids are never used twice.
    pub fn lease(&mut self, lease: LeaseId, table: &PageTable<T>) {
        for &page in &table.pages {
            self.change(page, |held| held.writers += 1);
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
            self.change(page, |held| held.writers -= 1);
        }
    }

    /// Keeps a page out of use until the process ends, with all cached pages that follow it.
    pub fn quarantine(&mut self, page: PageId) {
        if self.pages[page.0 as usize].is_quarantined {
            return;
        }
        self.free.retain(|free| *free != page);
        self.change(page, |held| held.is_quarantined = true);
        self.unshare(page);
    }

    /// Tags that changed since the last call, for the device's copy.
    pub fn drain_changes(&mut self, changes: &mut Vec<(PageId, PageTag)>) {
        tracking! {
            self.tracker.drain_changes(changes);
        }
    }

    /// Pages by state.
    pub fn counts(&self) -> PageCounts {
        self.counts
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
        let mut found = PageCounts::default();
        for (id, held) in (0..).map(PageId).zip(&self.pages) {
            let index = id.0 as usize;
            let (actual, writing, times) = (owners[index], writers[index], free[index]);
            let expected = u32::from(held.state() == PageState::Free);
            *found.of(held.state()) += 1;
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
            if held.is_shared != self.prefixes.contains(id) {
                return Err(AuditError::Shared { page: id, recorded: held.is_shared });
            }
        }
        if found != self.counts || found.cached != self.prefixes.num_idle() {
            return Err(AuditError::Counts { recorded: self.counts, actual: found });
        }
        Ok(found)
    }

    fn append(&self, page: PageId, table: &mut PageTable<T>) {
        table.pages.push(page);
        tracking! {
            self.tracker.record(&mut table.ledger, page);
        }
    }

    fn evict(&mut self) {
        if let Some(page) = self.prefixes.oldest_idle() {
            self.unshare(page);
        }
    }

    /// Takes a page and all that follow it out of the index.
    fn unshare(&mut self, page: PageId) {
        for unreachable in self.prefixes.remove(page) {
            self.change(unreachable, |held| held.is_shared = false);
        }
    }

    /// The only place where a page changes state, so that counts, the index and the free list
    /// follow. A page that becomes free gets a new tag: nobody who held it may read it again.
    fn change(&mut self, page: PageId, change: impl FnOnce(&mut Page)) {
        let held = &mut self.pages[page.0 as usize];
        let before = held.state();
        change(held);
        let after = held.state();
        if before == after {
            return;
        }
        *self.counts.of(before) -= 1;
        *self.counts.of(after) += 1;
        if before == PageState::Cached || after == PageState::Cached {
            self.prefixes.set_idle(page, after == PageState::Cached);
        }
        if after == PageState::Free {
            tracking! {
                self.tracker.retag(page);
            }
            self.free.push_back(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CacheSalt, NoopTracker};
    use super::*;

    fn namespace() -> CacheNamespace {
        let (salt, model_revision) = (CacheSalt::Tenant("t".into()), "m".into());
        CacheNamespace { salt, adapter: None, model_revision }
    }

    fn table(pool: &mut PagePool<NoopTracker>, count: usize) -> PageTable<NoopTracker> {
        let mut table = PageTable::default();
        pool.allocate(count, &mut table).unwrap();
        table
    }

    #[test]
    fn counters_follow_every_change_of_state() {
        let mut pool: PagePool<NoopTracker> =
            PagePool::new(PoolSize { num_pages: 8, page_size: 2 });
        let counts = |free, owned, leased, cached, quarantined| PageCounts {
            free,
            owned,
            leased,
            cached,
            quarantined,
        };
        let (first, second) = (table(&mut pool, 3), table(&mut pool, 2));
        assert_eq!(pool.counts(), counts(3, 5, 0, 0, 0));
        pool.publish(&namespace(), &[1, 2, 3, 4, 5, 6], &first);
        pool.release(first);
        assert_eq!((pool.counts(), pool.available()), (counts(3, 2, 0, 3, 0), 6));
        let lease = LeaseId { transfer: 1, generation: 1 };
        pool.lease(lease, &second);
        let leased = second.pages()[0];
        pool.release(second);
        assert_eq!(pool.counts(), counts(3, 0, 2, 3, 0));
        let shared = pool.share_prefix(&namespace(), &[1, 2, 3, 4, 5, 6]);
        assert_eq!(pool.counts(), counts(3, 2, 2, 1, 0));
        pool.quarantine(leased);
        pool.quarantine(shared.pages()[0]);
        // What followed the quarantined page cannot be reached any more.
        assert_eq!(pool.counts(), counts(4, 1, 1, 0, 2));
        pool.fence(lease);
        pool.release(shared);
        assert_eq!(pool.audit([].iter()), Ok(counts(6, 0, 0, 0, 2)));
    }

    #[test]
    fn the_longest_unused_end_of_a_prefix_goes_first() {
        let mut pool: PagePool<NoopTracker> =
            PagePool::new(PoolSize { num_pages: 4, page_size: 1 });
        for tokens in [[1, 2], [3, 4]] {
            let held = table(&mut pool, 2);
            pool.publish(&namespace(), &tokens, &held);
            pool.release(held);
        }
        // Used again, so the other prompt goes first, its end before its start.
        let used = pool.share_prefix(&namespace(), &[1, 2, 9]);
        pool.release(used);
        let mut found = Vec::new();
        let mut held = PageTable::default();
        for _ in 0..4 {
            pool.allocate(1, &mut held).unwrap();
            let lens = [[1, 2, 9], [3, 4, 9]].map(|prompt| {
                let shared = pool.share_prefix(&namespace(), &prompt);
                let len = shared.pages().len();
                pool.release(shared);
                len
            });
            found.push(lens);
        }
        // Each look also uses the shorter prefix again, the first prompt's before the second's.
        assert_eq!(found, [[2, 1], [1, 1], [0, 1], [0, 0]]);
    }

    #[test]
    fn a_longer_prompt_is_published_below_what_another_has() {
        let mut pool: PagePool<NoopTracker> =
            PagePool::new(PoolSize { num_pages: 8, page_size: 1 });
        let (short, long) = (table(&mut pool, 2), table(&mut pool, 3));
        pool.publish(&namespace(), &[1, 2], &short);
        pool.publish(&namespace(), &[1, 2, 3], &long);
        let want = [short.pages()[0], short.pages()[1], long.pages()[2]];
        let shared = pool.share_prefix(&namespace(), &[1, 2, 3, 4]);
        assert_eq!(shared.pages(), want);
        pool.release(shared);
        pool.release(short);
        // All but three pages can be had while the end of the long prompt is still held.
        assert_eq!(pool.available(), 5);
        let held = table(&mut pool, 5);
        assert_eq!(pool.share_prefix(&namespace(), &[1, 2, 3, 4]).pages(), []);
        assert_eq!(pool.audit([&held, &long].into_iter()).unwrap().owned, 8);
    }
}
