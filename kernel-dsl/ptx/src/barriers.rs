//! Barriers between accesses of memory that threads share.
//!
//! A thread may not read what another wrote, nor overwrite what another still reads, before both
//! have met. This pass follows the code in order, keeps which buffers were touched since the last
//! meeting, and puts a barrier before the first access that conflicts. Loops are followed twice,
//! so that the end of one turn is kept apart from the beginning of the next.
//!
//! Instructions that read shared memory by the asynchronous proxy see what threads wrote before only
//! if each writer fenced its writes and all met thereafter; and a barrier does not end them: until
//! the wait for them nobody may write there.

use crate::code::{Buffer, Effect, Node, Share};
use std::collections::{BTreeMap, BTreeSet};

/// How a buffer was touched since all threads met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Touched {
    readers: BTreeSet<Share>,
    writers: BTreeSet<Share>,
}

/// Whether an access meets one of these.
fn meets(share: Share, others: &BTreeSet<Share>) -> bool {
    others.iter().any(|other| *other != share || share == Share::Unknown)
}

/// How shared memory was touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    touched: BTreeMap<Buffer, Touched>,
    /// What was written and not fenced since, whoever met.
    unfenced: BTreeSet<Buffer>,
    /// What instructions still read by the asynchronous proxy.
    fetched: BTreeSet<Buffer>,
}

impl State {
    /// All threads meet, having fenced what they wrote or not.
    fn meet(&mut self, fence: bool) {
        self.touched.clear();
        if fence {
            self.unfenced.clear();
        }
    }

    fn touch(&mut self, effect: Effect) {
        match effect {
            Effect::None | Effect::Fill | Effect::Refill => {}
            Effect::Open(ring) => {
                let touched = self.touched.entry(Buffer::Ring).or_default();
                touched.writers.insert(Share::Ring(ring));
            }
            Effect::Filled => _ = self.unfenced.insert(Buffer::Ring),
            Effect::Meet => self.meet(false),
            Effect::Read(buffer, share) => {
                self.touched.entry(buffer).or_default().readers.insert(share);
            }
            Effect::Write(buffer, share) => {
                self.touched.entry(buffer).or_default().writers.insert(share);
                self.unfenced.insert(buffer);
            }
            Effect::Fetch(buffer) => _ = self.fetched.insert(buffer),
            Effect::Fetched => {
                for buffer in std::mem::take(&mut self.fetched) {
                    self.touched.entry(buffer).or_default().readers.insert(Share::Unknown);
                }
            }
        }
    }

    fn join(&mut self, other: &Self) {
        for (buffer, touched) in &other.touched {
            let mine = self.touched.entry(*buffer).or_default();
            mine.readers.extend(&touched.readers);
            mine.writers.extend(&touched.writers);
        }
        self.unfenced.extend(&other.unfenced);
        self.fetched.extend(&other.fetched);
    }

    /// Whether threads must meet before an access.
    fn conflicts(&self, effect: Effect) -> bool {
        let touched = |buffer| self.touched.get(&buffer);
        match effect {
            Effect::None | Effect::Fill | Effect::Filled | Effect::Meet | Effect::Fetched => false,
            Effect::Open(ring) => self.conflicts(Effect::Write(Buffer::Ring, Share::Ring(ring))),
            Effect::Refill => self.unfenced.contains(&Buffer::Ring),
            Effect::Read(buffer, share) => {
                touched(buffer).is_some_and(|touched| meets(share, &touched.writers))
            }
            Effect::Write(buffer, share) => {
                assert!(!self.fetched.contains(&buffer), "{buffer:?} is written while it is read");
                touched(buffer).is_some_and(|touched| {
                    meets(share, &touched.writers) || meets(share, &touched.readers)
                })
            }
            Effect::Fetch(buffer) => {
                self.unfenced.contains(&buffer)
                    || touched(buffer).is_some_and(|touched| !touched.writers.is_empty())
            }
        }
    }
}

/// Inserts the barriers and fences that the code needs and has not.
pub(crate) fn insert(nodes: &mut Vec<Node>) {
    follow(nodes, &mut State::default(), true);
    // What was needed when it was put may not be any more, now that there are other barriers. Fences
    // then stay where nothing later would do.
    leave_out(nodes, |flags| (!flags.kept).then_some(flags.needed));
    leave_out(nodes, |flags| Some(flags.fence));
    prune(nodes);
}

/// What a barrier says of itself.
struct Flags<'n> {
    needed: &'n mut bool,
    fence: &'n mut bool,
    kept: bool,
}

/// Takes a flag from every barrier that can do without.
fn leave_out(nodes: &mut Vec<Node>, flag: impl for<'n> Fn(Flags<'n>) -> Option<&'n mut bool>) {
    for number in 0.. {
        let Some(flags) = nth(nodes, &mut { number }) else { break };
        let Some(flag_there) = flag(flags) else { continue };
        *flag_there = false;
        if follow(nodes, &mut State::default(), false) > 0
            && let Some(flag_there) = nth(nodes, &mut { number }).and_then(&flag)
        {
            *flag_there = true;
        }
    }
}

/// The barrier with `number` others before it.
fn nth<'n>(nodes: &'n mut [Node], number: &mut usize) -> Option<Flags<'n>> {
    for node in nodes {
        match node {
            Node::Barrier { needed, fence, kept, .. } if *number == 0 => {
                return Some(Flags { needed, fence, kept: *kept });
            }
            Node::Barrier { .. } => *number -= 1,
            Node::Inst(_) => {}
            Node::Loop { head: first, body: second, .. }
            | Node::If { yes: first, no: second, .. } => {
                for list in [first, second] {
                    if let Some(found) = nth(list, number) {
                        return Some(found);
                    }
                }
            }
        }
    }
    None
}

fn prune(nodes: &mut Vec<Node>) {
    nodes.retain(|node| !matches!(node, Node::Barrier { needed: false, .. }));
    for node in nodes {
        if let Node::Loop { head: first, body: second, .. }
        | Node::If { yes: first, no: second, .. } = node
        {
            prune(first);
            prune(second);
        }
    }
}

/// Follows the code and gives the number of conflicts; with `insert`, each gets a barrier.
fn follow(nodes: &mut Vec<Node>, state: &mut State, insert: bool) -> usize {
    let mut conflicts = 0;
    let mut at = 0;
    while at < nodes.len() {
        if let Some(shared) = needs_barrier(&nodes[at], state) {
            conflicts += 1;
            if insert {
                nodes.insert(at, Node::Barrier { shared, needed: true, fence: true, kept: false });
            }
            state.meet(true);
            at += usize::from(insert);
        }
        match &mut nodes[at] {
            Node::Barrier { needed: true, fence, .. } => state.meet(*fence),
            Node::Barrier { .. } => {}
            Node::Inst(inst) => state.touch(inst.effect),
            Node::Loop { head, body, runs, .. } => {
                // After the first turn every barrier between turns is in place; the second changes
                // nothing but the state. A loop may also end before its first turn, if nobody
                // saw to it that it does not.
                conflicts += follow(head, state, insert);
                let before = state.clone();
                for _ in 0..2 {
                    conflicts += follow(body, state, insert);
                    conflicts += follow(head, state, insert);
                }
                if !*runs {
                    state.join(&before);
                }
            }
            Node::If { yes, no, together: true, .. } => {
                let mut other = state.clone();
                conflicts += follow(yes, state, insert);
                conflicts += follow(no, &mut other, insert);
                state.join(&other);
            }
            Node::If { yes, no, together: false, .. } => {
                for node in yes.iter().chain(no.iter()) {
                    each_effect(node, &mut |effect| state.touch(effect));
                }
            }
        }
        at += 1;
    }
    conflicts
}

fn each_effect(node: &Node, visit: &mut impl FnMut(Effect)) {
    match node {
        Node::Inst(inst) => visit(inst.effect),
        Node::Loop { head, body, .. } => {
            head.iter().chain(body).for_each(|node| each_effect(node, visit));
        }
        Node::If { yes, no, .. } => {
            yes.iter().chain(no).for_each(|node| each_effect(node, visit));
        }
        Node::Barrier { .. } => {}
    }
}

/// Whether a node conflicts with what was touched, and if so, whether in shared memory. What stands
/// inside of loops and of branches that all threads take together gets its barrier there.
fn needs_barrier(node: &Node, state: &State) -> Option<bool> {
    match node {
        Node::Inst(_) | Node::If { together: false, .. } => {
            let mut found = None;
            each_effect(node, &mut |effect| {
                if state.conflicts(effect) {
                    found = Some(found == Some(true) || effect.is_shared());
                }
            });
            found
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Class, Inst, Reg};
    use tessera_tile_ir::Loc;

    const VIEW: Buffer = Buffer::View(0);
    const READ: Effect = Effect::Read(VIEW, Share::Unknown);
    const WRITE: Effect = Effect::Write(VIEW, Share::Op(0));

    fn inst(effect: Effect) -> Node {
        let loc = Loc { file: "test.rs", line: 1, column: 1 };
        Node::Inst(Inst {
            op: "op".into(),
            operands: Vec::new(),
            guard: None,
            effect,
            loc,
            remark: None,
        })
    }

    fn repeat(body: Vec<Node>) -> Node {
        Node::Loop { head: Vec::new(), go_on: Reg { class: Class::Pred, id: 0 }, body, runs: false }
    }

    /// `b` for a barrier, `f` for one with a fence, `.` for an instruction, loops in parentheses.
    fn shape(nodes: &[Node]) -> String {
        let one = |node: &Node| match node {
            Node::Barrier { fence: true, .. } => "f".to_owned(),
            Node::Barrier { .. } => "b".to_owned(),
            Node::Inst(_) => ".".to_owned(),
            Node::Loop { body, .. } => format!("({})", shape(body)),
            Node::If { yes, no, .. } => format!("[{}|{}]", shape(yes), shape(no)),
        };
        nodes.iter().map(one).collect()
    }

    fn check(mut nodes: Vec<Node>, expect: &str) {
        insert(&mut nodes);
        assert_eq!(shape(&nodes), expect);
    }

    #[test]
    fn what_conflicts_is_kept_apart() {
        let (read, write) = (READ, WRITE);
        check(vec![inst(write), inst(read)], ".b.");
        check(vec![inst(read), inst(write)], ".b.");
        check(vec![inst(read), inst(read)], "..");
        check(vec![inst(write), inst(write)], "..");
        check(vec![inst(write), inst(Effect::Write(VIEW, Share::Op(1)))], ".b.");
        check(vec![inst(write), inst(Effect::Read(Buffer::Exchange, Share::Unknown))], "..");
    }

    #[test]
    fn what_one_thread_touches_needs_no_barrier() {
        let rule = |number| {
            [Effect::Read(VIEW, Share::Rule(number)), Effect::Write(VIEW, Share::Rule(number))]
        };
        let [read, write] = rule(0);
        check(vec![repeat(vec![inst(read), inst(write)])], "(..)");
        check(vec![inst(write), inst(rule(1)[0])], ".b.");
        check(vec![inst(write), inst(READ)], ".b.");
    }

    #[test]
    fn turns_of_a_loop_are_kept_apart() {
        let (read, write) = (READ, WRITE);
        check(vec![repeat(vec![inst(read), inst(write)])], "(b.b.)");
    }

    #[test]
    fn a_barrier_in_a_loop_that_may_not_run_is_no_barrier() {
        let (read, write) = (READ, WRITE);
        let exchange = [
            Effect::Write(Buffer::Exchange, Share::Op(0)),
            Effect::Read(Buffer::Exchange, Share::Unknown),
        ];
        let body = exchange.map(inst).to_vec();
        check(vec![inst(read), repeat(body), inst(write)], ".(b.b.)b.");
    }

    #[test]
    fn sides_of_a_branch_that_threads_take_apart_are_one() {
        let (read, write) = (READ, WRITE);
        let condition = Reg { class: Class::Pred, id: 0 };
        let apart = Node::If { condition, yes: vec![inst(read)], no: Vec::new(), together: false };
        check(vec![inst(write), apart], ".b[.|]");
        let together =
            Node::If { condition, yes: vec![inst(read)], no: Vec::new(), together: true };
        check(vec![inst(write), together], ".[b.|]");
    }

    const TILE: Buffer = Buffer::Stage(0);

    #[test]
    fn what_the_other_proxy_reads_is_fenced() {
        let write = Effect::Write(TILE, Share::Op(0));
        let fetch = Effect::Fetch(TILE);
        check(vec![inst(write), inst(fetch), inst(fetch)], ".f..");
        // The barrier that others need does for both.
        let exchange = [
            Effect::Write(Buffer::Exchange, Share::Op(0)),
            Effect::Read(Buffer::Exchange, Share::Unknown),
        ];
        let [put, take] = exchange.map(inst);
        check(vec![inst(write), put.clone(), take.clone(), inst(fetch)], "..f..");
        // One before the write does not.
        check(vec![put, take, inst(write), inst(fetch)], ".b..f.");
    }

    #[test]
    fn what_the_other_proxy_read_is_written_after_the_wait() {
        let write = Effect::Write(TILE, Share::Op(0));
        let turn = || [write, Effect::Fetch(TILE), Effect::Fetched].map(inst).to_vec();
        check([turn(), turn()].concat(), ".f..b.f..");
        check(vec![repeat(turn())], "(b.f..)");
    }

    #[test]
    #[should_panic(expected = "is written while it is read")]
    fn nothing_is_written_while_it_is_fetched() {
        let write = Effect::Write(TILE, Share::Op(0));
        check([write, Effect::Fetch(TILE), write].map(inst).to_vec(), "");
    }
}
