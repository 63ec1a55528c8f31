//! Graphs that can be launched: instantiation, update, and running one in a legal order.

use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::event::{Event, State};
use crate::graph::Graph;
use crate::handles::lock;
use crate::lane::Ticket;
use crate::settings::{Order, Planned, Site};
use crate::stream::Stream;
use crate::work::{Core, Step, Work};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A graph's nodes as they were when it was instantiated.
pub(crate) struct Plan {
    pub(crate) nodes: Vec<PlanNode>,
}

/// One of them; `after` are places in the plan.
#[derive(Clone)]
pub(crate) struct PlanNode {
    /// The handle of the node in the graph, by which it can be changed.
    pub(crate) origin: u64,
    pub(crate) step: Step,
    pub(crate) after: Vec<usize>,
    pub(crate) enabled: bool,
}

/// What `cuGraphInstantiate` makes.
pub(crate) struct GraphExec {
    pub(crate) flags: u64,
    plan: Mutex<Arc<Plan>>,
    /// A launch waits for the one before it.
    last: Mutex<Option<Ticket>>,
    runs: AtomicU64,
}

/// One launch of a plan.
pub(crate) struct Run {
    plan: Arc<Plan>,
    /// Which of the legal orders it takes.
    number: u64,
    /// Failures planned for its launches and copies, counted in order of the nodes.
    planned: BTreeMap<usize, Planned>,
}

/// Why an executable graph could not take another graph's place: a number of
/// `CUgraphExecUpdateResult`, and the node it is about.
pub(crate) struct Mismatch {
    pub(crate) result: u32,
    pub(crate) node: u64,
}

impl Plan {
    pub(crate) fn new(graph: &Graph) -> Outcome<Self> {
        let nodes = graph.nodes();
        let place = |handle: &u64| nodes.iter().position(|node| node.handle == *handle);
        let plan = nodes.iter().map(|node| {
            let after: Option<Vec<usize>> = node.after.iter().map(place).collect();
            let after = after.ok_or(Code::ERROR_INVALID_VALUE)?;
            Ok(PlanNode { origin: node.handle, step: node.step.clone(), after, enabled: true })
        });
        Ok(Self { nodes: plan.collect::<Outcome<_>>()? })
    }

    /// The places of the nodes in an order that every edge allows: as they were added, the last
    /// possible first, or drawn.
    fn order(&self, order: Order, number: u64) -> Vec<usize> {
        let mut done = vec![false; self.nodes.len()];
        let mut seed = match order {
            Order::Random(seed) => seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            Order::Earliest | Order::Latest => 0,
        };
        let mut places = Vec::with_capacity(done.len());
        loop {
            let ready = |(place, node): &(usize, &PlanNode)| {
                !done[*place] && node.after.iter().all(|before| done[*before])
            };
            let ready: Vec<usize> =
                self.nodes.iter().enumerate().filter(ready).map(|(place, _)| place).collect();
            let picked = match order {
                Order::Earliest => ready.first(),
                Order::Latest => ready.last(),
                Order::Random(_) => ready.get(draw(&mut seed, ready.len())),
            };
            let Some(picked) = picked else { return places };
            done[*picked] = true;
            places.push(*picked);
        }
    }

    fn visit(&self, visit: &mut impl FnMut(&Step)) {
        for node in &self.nodes {
            visit(&node.step);
            if let Step::Child(child) = &node.step {
                child.visit(visit);
            }
        }
    }
}

/// A number below `bound`, 0 if that is 0 (splitmix64).
fn draw(seed: &mut u64, bound: usize) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) % (bound.max(1) as u64)).unwrap_or(0)
}

impl Run {
    /// Runs the plan in the context of the stream that it was launched into.
    pub(crate) fn perform(&self, core: &Core) -> Outcome<u64> {
        let mut counted = 0;
        self.nodes(&self.plan, core, &mut counted)
    }

    fn nodes(&self, plan: &Plan, core: &Core, counted: &mut usize) -> Outcome<u64> {
        // Planned failures are counted in the nodes' own order, which does not depend on the seed.
        let mut firsts = Vec::new();
        for node in &plan.nodes {
            firsts.push(*counted);
            *counted += count(&node.step);
        }
        let mut cost_ns = 0;
        for place in plan.order(core.device.order, self.number) {
            let node = &plan.nodes[place];
            if !node.enabled {
                continue;
            }
            if let Step::Child(child) = &node.step {
                cost_ns += self.nodes(child, core, &mut firsts[place].clone())?;
                continue;
            }
            core.strike(self.planned.get(&firsts[place]).filter(|_| count(&node.step) > 0))?;
            cost_ns += core.step(&node.step)?;
        }
        Ok(cost_ns)
    }
}

/// How many launches and copies a step is.
fn count(step: &Step) -> usize {
    match step {
        Step::Kernel(_) | Step::Copy(_) => 1,
        Step::Child(plan) => plan.nodes.iter().map(|node| count(&node.step)).sum(),
        _ => 0,
    }
}

impl GraphExec {
    pub(crate) fn new(flags: u64, plan: Plan) -> Self {
        let (plan, last) = (Mutex::new(Arc::new(plan)), Mutex::new(None));
        Self { flags, plan, last, runs: AtomicU64::new(0) }
    }

    /// Changes one node for the launches to come.
    pub(crate) fn change(
        &self,
        origin: u64,
        change: impl FnOnce(&mut PlanNode) -> Outcome,
    ) -> Outcome {
        let mut plan = lock(&self.plan);
        let mut nodes = plan.nodes.clone();
        let node = nodes.iter_mut().find(|node| node.origin == origin);
        change(node.ok_or(Code::ERROR_INVALID_VALUE)?)?;
        *plan = Arc::new(Plan { nodes });
        Ok(())
    }

    pub(crate) fn is_enabled(&self, origin: u64) -> Outcome<bool> {
        let plan = lock(&self.plan);
        let node = plan.nodes.iter().find(|node| node.origin == origin);
        node.map(|node| node.enabled).ok_or(Code::ERROR_INVALID_VALUE)
    }

    /// Takes over the steps of a graph with the same nodes and edges.
    pub(crate) fn update(&self, graph: &Graph) -> Result<(), Mismatch> {
        let error = |result, node| Mismatch { result, node };
        let new = Plan::new(graph).map_err(|_| error(1, 0))?;
        let mut plan = lock(&self.plan);
        if new.nodes.len() != plan.nodes.len() {
            return Err(error(2, 0));
        }
        let mut nodes = plan.nodes.clone();
        for (old, new) in nodes.iter_mut().zip(new.nodes) {
            if old.step.node_type() != new.step.node_type() {
                return Err(error(3, new.origin));
            }
            if old.after != new.after {
                return Err(error(2, new.origin));
            }
            old.step = new.step;
        }
        *plan = Arc::new(Plan { nodes });
        Ok(())
    }
}

impl Driver {
    pub(crate) fn instantiate(&self, graph: u64, flags: u64) -> Outcome<u64> {
        // Launches from the device are a kernel's business, which the emulator has not; the other
        // flags are about speed and about memory nodes.
        ensure(flags & !0xf == 0, Code::ERROR_INVALID_VALUE)?;
        let (auto_free, device_launch) = (1, 4);
        ensure(flags & device_launch == 0 || flags & auto_free == 0, Code::ERROR_INVALID_VALUE)?;
        ensure(flags & device_launch == 0, Code::ERROR_NOT_SUPPORTED)?;
        let plan = Plan::new(&*self.graph(graph)?)?;
        Ok(self.execs.insert(|_| GraphExec::new(flags, plan)).0)
    }

    /// Queues a launch of a graph; in a captured stream it becomes a node.
    pub(crate) fn launch_graph(&self, exec: &GraphExec, stream: &Arc<Stream>) -> Outcome {
        let plan = lock(&exec.plan).clone();
        if self.capture(stream, &Step::Child(plan.clone()))? {
            return Ok(());
        }
        let (mut waits, mut records) = (Vec::new(), Vec::<Arc<Event>>::new());
        let (mut planned, mut counted) = (BTreeMap::new(), 0);
        plan.visit(&mut |step| match step {
            Step::Wait(event) => waits.extend(event.ticket()),
            Step::Record(event) => records.push(event.clone()),
            Step::Kernel(_) | Step::Copy(_) => {
                let launch = matches!(step, Step::Kernel(_));
                let site = if launch { Site::Launch } else { Site::Copy };
                planned.extend(self.count(site).map(|plan| (counted, plan)));
                counted += 1;
            }
            Step::Fill(_) | Step::Host(_) | Step::Empty | Step::Child(_) => {}
        });
        let mut last = lock(&exec.last);
        waits.extend(last.take());
        let number = exec.runs.fetch_add(1, Ordering::Relaxed);
        let run = Run { plan, number, planned };
        let mut ticket = self.queue(stream, waits, Work::Graph(run));
        for event in records {
            let time = Arc::new(AtomicU64::new(0));
            ticket = self.queue(stream, Vec::new(), Work::Stamp(time.clone()));
            event.set(State::Recorded(ticket.clone(), time));
        }
        *last = Some(ticket);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(after: &[&[usize]]) -> Plan {
        let node = |after: &&[usize]| PlanNode {
            origin: 0,
            step: Step::Empty,
            after: after.to_vec(),
            enabled: true,
        };
        Plan { nodes: after.iter().map(node).collect() }
    }

    #[test]
    fn every_order_keeps_every_edge() {
        let plan = plan(&[&[], &[0], &[0], &[1, 2], &[]]);
        assert_eq!(plan.order(Order::Earliest, 0), [0, 1, 2, 3, 4]);
        assert_eq!(plan.order(Order::Latest, 0), [4, 0, 2, 1, 3]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let order = plan.order(Order::Random(seed), 3);
            let at = |place| order.iter().position(|p| *p == place);
            assert_eq!(order.len(), 5);
            assert!(at(0) < at(1) && at(0) < at(2) && at(1) < at(3) && at(2) < at(3), "{order:?}");
            assert_eq!(order, plan.order(Order::Random(seed), 3));
            seen.insert(order);
        }
        // 10 orders are legal: 5 places of the free node, 2 orders of the middle ones.
        assert_eq!(seen.len(), 10);
    }
}
