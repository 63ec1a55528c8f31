//! Full pages by the tokens they and all pages before them hold.
//!
//! A tree of page-sized token runs under each namespace. Tokens are compared, never hashed, so
//! two prompts cannot collide.

use super::{CacheNamespace, PageId};
use std::collections::BTreeMap;

type Children = BTreeMap<Box<[u32]>, PageId>;

#[derive(Debug)]
struct Node {
    parent: Option<PageId>,
    namespace: CacheNamespace,
    tokens: Box<[u32]>,
    children: Children,
    last_use: u64,
}

/// The tree; a node is known by its page, as a page is in at most one place.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    roots: BTreeMap<CacheNamespace, Children>,
    nodes: BTreeMap<PageId, Node>,
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
            if let Some(node) = self.nodes.get_mut(&page) {
                node.last_use = self.uses;
            }
            found.push(page);
        }
        found
    }

    /// Adds `pages`, which hold `tokens`; stops at a run that another page already holds, so that
    /// whoever holds a page of the tree holds every page above it.
    pub(super) fn insert(
        &mut self,
        namespace: &CacheNamespace,
        tokens: &[u32],
        (pages, page_size): (&[PageId], usize),
    ) {
        let mut parent: Option<PageId> = None;
        self.uses += 1;
        for (run, &page) in tokens.chunks_exact(page_size).zip(pages) {
            let children = match parent {
                None => self.roots.entry(namespace.clone()).or_default(),
                Some(above) => match self.nodes.get_mut(&above) {
                    Some(node) => &mut node.children,
                    None => return,
                },
            };
            if *children.entry(run.into()).or_insert(page) != page {
                return;
            }
            self.nodes.entry(page).or_insert_with(|| Node {
                parent,
                namespace: namespace.clone(),
                tokens: run.into(),
                children: Children::new(),
                last_use: self.uses,
            });
            parent = Some(page);
        }
    }

    /// The leaf unused for longest among those that `may_go`.
    pub(super) fn oldest_leaf(&self, may_go: impl Fn(PageId) -> bool) -> Option<PageId> {
        self.nodes
            .iter()
            .filter(|(page, node)| node.children.is_empty() && may_go(**page))
            .min_by_key(|(_, node)| node.last_use)
            .map(|(page, _)| *page)
    }

    /// Takes out `page` and everything below it, which can no longer be reached.
    pub(super) fn remove(&mut self, page: PageId) -> Vec<PageId> {
        let mut removed = Vec::new();
        let mut pending = vec![page];
        while let Some(next) = pending.pop() {
            let Some(node) = self.nodes.remove(&next) else { continue };
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
