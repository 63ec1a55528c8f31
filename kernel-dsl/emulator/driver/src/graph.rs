//! Graphs: nodes and what each comes after. A graph is only described here; `plan` runs one.

use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::handles::lock;
use crate::work::Step;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A graph under construction, or complete.
pub(crate) struct Graph {
    pub(crate) id: u64,
    nodes: Mutex<Vec<Node>>,
}

/// A node, as its graph holds it.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: u64,
    pub(crate) step: Step,
    pub(crate) after: Vec<u64>,
}

/// Where the node of a handle is.
pub(crate) struct NodePlace {
    pub(crate) graph: u64,
}

impl Graph {
    pub(crate) fn nodes(&self) -> Vec<Node> {
        lock(&self.nodes).clone()
    }

    /// These nodes, and all that come before one of them.
    pub(crate) fn reaching(&self, tips: &[u64]) -> BTreeSet<u64> {
        let nodes = lock(&self.nodes);
        let (mut found, mut open) = (BTreeSet::new(), tips.to_vec());
        while let Some(handle) = open.pop() {
            if found.insert(handle) {
                let node = nodes.iter().find(|node| node.handle == handle);
                open.extend(node.iter().flat_map(|node| &node.after));
            }
        }
        found
    }

    /// Each edge once: from, to.
    pub(crate) fn edges(&self) -> Vec<(u64, u64)> {
        let nodes = lock(&self.nodes);
        let edges =
            nodes.iter().flat_map(|node| node.after.iter().map(|from| (*from, node.handle)));
        edges.collect()
    }
}

impl Step {
    /// The number of the kind of node in `CUgraphNodeType`.
    pub(crate) fn node_type(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
        }
    }
}

impl Driver {
    pub(crate) fn new_graph(&self) -> Arc<Graph> {
        self.graphs.insert(|id| Graph { id, nodes: Mutex::default() }).1
    }

    /// Ends the life of a graph's handle and of those of its nodes.
    pub(crate) fn drop_graph(&self, graph: &Graph) {
        let _ = self.graphs.remove(graph.id);
        for node in graph.nodes() {
            let _ = self.nodes.remove(node.handle);
        }
    }

    /// Adds a node; `after` must name nodes of the same graph.
    pub(crate) fn add_node(&self, graph: &Graph, step: Step, mut after: Vec<u64>) -> u64 {
        after.sort_unstable();
        after.dedup();
        let (handle, _) = self.nodes.insert(|_| NodePlace { graph: graph.id });
        lock(&graph.nodes).push(Node { handle, step, after });
        handle
    }

    /// Adds a node that a program describes: what it comes after is checked.
    pub(crate) fn add_checked(&self, graph: &Graph, step: Step, after: Vec<u64>) -> Outcome<u64> {
        for node in &after {
            let place = self.nodes.find(*node).map_err(|_| Code::ERROR_INVALID_VALUE)?;
            ensure(place.graph == graph.id, Code::ERROR_INVALID_VALUE)?;
        }
        Ok(self.add_node(graph, step, after))
    }

    /// Adds edges between nodes of a graph. An edge that is there already, or that would close a
    /// circle, is an error.
    pub(crate) fn add_edges(&self, graph: &Graph, edges: &[(u64, u64)]) -> Outcome {
        for (from, to) in edges {
            let circle = graph.reaching(&[*from]).contains(to);
            ensure(!circle, Code::ERROR_INVALID_VALUE)?;
            let mut nodes = lock(&graph.nodes);
            let known = nodes.iter().any(|node| node.handle == *from);
            ensure(known, Code::ERROR_INVALID_VALUE)?;
            let target = nodes.iter_mut().find(|node| node.handle == *to);
            let target = target.ok_or(Code::ERROR_INVALID_VALUE)?;
            ensure(!target.after.contains(from), Code::ERROR_INVALID_VALUE)?;
            target.after.push(*from);
        }
        Ok(())
    }

    /// The node of a handle.
    pub(crate) fn node(&self, handle: u64) -> Outcome<(Arc<Graph>, Node)> {
        let place = self.nodes.find(handle).map_err(|_| Code::ERROR_INVALID_VALUE)?;
        let graph = self.graphs.find(place.graph).map_err(|_| Code::ERROR_INVALID_VALUE)?;
        let node = graph.nodes().into_iter().find(|node| node.handle == handle);
        Ok((graph, node.ok_or(Code::ERROR_INVALID_VALUE)?))
    }

    /// Gives a node another step of the same kind.
    pub(crate) fn set_step(&self, handle: u64, step: Step) -> Outcome {
        let (graph, node) = self.node(handle)?;
        ensure(node.step.node_type() == step.node_type(), Code::ERROR_INVALID_VALUE)?;
        let mut nodes = lock(&graph.nodes);
        let node = nodes.iter_mut().find(|node| node.handle == handle);
        node.ok_or(Code::ERROR_INVALID_VALUE)?.step = step;
        Ok(())
    }

    /// A copy of a graph, with nodes of its own in the same order.
    pub(crate) fn clone_graph(&self, original: &Graph) -> Arc<Graph> {
        let copy = self.new_graph();
        let mut renamed = std::collections::BTreeMap::new();
        let nodes = original.nodes();
        for node in &nodes {
            renamed.insert(node.handle, self.add_node(&copy, node.step.clone(), Vec::new()));
        }
        // Edges last: one may lead from a node to another that was added before it.
        for node in &nodes {
            let after = node.after.iter().filter_map(|from| renamed.get(from).copied()).collect();
            let mut copies = lock(&copy.nodes);
            let target = copies.iter_mut().find(|n| Some(&n.handle) == renamed.get(&node.handle));
            if let Some(target) = target {
                target.after = after;
            }
        }
        copy
    }
}
