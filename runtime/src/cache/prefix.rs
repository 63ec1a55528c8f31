//! Full pages by the tokens they and all pages before them hold.
//!
//! A tree of page-sized token runs under each namespace. Tokens are compared, never hashed, so
//! two prompts cannot collide.

use super::{CacheNamespace, PageId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

type Children = BTreeMap<Box<[u32]>, PageId>;

#[derive(Debug)]
struct Node {
    parent: Option<PageId>,
    namespace: CacheNamespace,
    tokens: Box<[u32]>,
    children: Children,
    depth: u32,
    last_use: u64,
    is_idle: bool,
}

/// Order of eviction. A use of a page is a use of all above it, so whatever is below a page comes
/// before it.
type Age = (u64, Reverse<u32>, PageId);

impl Node {
    fn age(&self, page: PageId) -> Age {
        (self.last_use, Reverse(self.depth), page)
    }
}

/// The tree; a node is known by its page, as a page is in at most one place.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    roots: BTreeMap<CacheNamespace, Children>,
    nodes: BTreeMap<PageId, Node>,
    /// Pages that nobody holds.
    idle: BTreeSet<Age>,
    uses: u64,
}

impl PrefixIndex {
    pub(super) fn contains(&self, page: PageId) -> bool {
        self.nodes.contains_key(&page)
    }

    /// Pages holding the longest known run of `tokens`, which are whole pages.
    pub(super) fn find(
        &mut self,
        namespace: &CacheNamespace,
        tokens: &[u32],
        page_size: usize,
    ) -> Vec<PageId> {
        let mut found: Vec<PageId> = Vec::new();
        self.uses += 1;
        for run in tokens.chunks_exact(page_size) {
            let children = match found.last() {
                None => self.roots.get(namespace),
                Some(page) => self.nodes.get(page).map(|node| &node.children),
            };
            let Some(&page) = children.and_then(|children| children.get(run)) else { break };
            self.touch(page);
            found.push(page);
        }
        found
    }

    /// Adds `pages`, which hold `tokens`, and says which it took: a run that another page already
    /// holds keeps that page, and what follows goes below it.
    pub(super) fn insert(
        &mut self,
        namespace: &CacheNamespace,
        tokens: &[u32],
        (pages, page_size): (&[PageId], usize),
    ) -> Vec<PageId> {
        let mut taken = Vec::new();
        let mut parent: Option<PageId> = None;
        self.uses += 1;
        for (depth, (run, &page)) in (0..).zip(tokens.chunks_exact(page_size).zip(pages)) {
            let children = match parent {
                None => self.roots.entry(namespace.clone()).or_default(),
                Some(above) => match self.nodes.get_mut(&above) {
                    Some(node) => &mut node.children,
                    None => return taken,
                },
            };
            let holder = *children.entry(run.into()).or_insert(page);
            if holder == page && !self.nodes.contains_key(&page) {
                let (namespace, tokens, children) =
                    (namespace.clone(), run.into(), Children::new());
                let (last_use, is_idle) = (self.uses, false);
                let node = Node { parent, namespace, tokens, children, depth, last_use, is_idle };
                self.nodes.insert(page, node);
                taken.push(page);
            }
            self.touch(holder);
            parent = Some(holder);
        }
        taken
    }

    /// Notes whether a page of the tree is held by nobody. Other pages are no error.
    pub(super) fn set_idle(&mut self, page: PageId, is_idle: bool) {
        let Some(node) = self.nodes.get_mut(&page) else { return };
        node.is_idle = is_idle;
        if is_idle {
            self.idle.insert(node.age(page));
        } else {
            self.idle.remove(&node.age(page));
        }
    }

    /// Pages of the tree that nobody holds.
    pub(super) fn num_idle(&self) -> usize {
        self.idle.len()
    }

    /// The page unused for longest among those that nobody holds; below it are only held ones.
    pub(super) fn oldest_idle(&self) -> Option<PageId> {
        self.idle.first().map(|(_, _, page)| *page)
    }

    fn touch(&mut self, page: PageId) {
        let Some(node) = self.nodes.get_mut(&page) else { return };
        let old = node.age(page);
        node.last_use = self.uses;
        if node.is_idle {
            self.idle.remove(&old);
            self.idle.insert(node.age(page));
        }
    }

    /// Takes out `page` and everything below it, which can no longer be reached.
    pub(super) fn remove(&mut self, page: PageId) -> Vec<PageId> {
        let mut removed = Vec::new();
        let mut pending = vec![page];
        while let Some(next) = pending.pop() {
            let Some(node) = self.nodes.remove(&next) else { continue };
            self.idle.remove(&node.age(next));
            pending.extend(node.children.values());
            removed.push(next);
            if next == page {
                self.unlink(&node);
            }
        }
        removed
    }

    fn unlink(&mut self, node: &Node) {
        if let Some(parent) = node.parent {
            if let Some(above) = self.nodes.get_mut(&parent) {
                above.children.remove(&node.tokens);
            }
        } else if let Some(children) = self.roots.get_mut(&node.namespace) {
            children.remove(&node.tokens);
            if children.is_empty() {
                self.roots.remove(&node.namespace);
            }
        }
    }
}
