//! Barriers between accesses of memory that threads share.
//!
//! A thread may not read what another wrote, nor overwrite what another still reads, before both
//! have met. This pass follows the code in order, keeps which buffers were touched since the last
//! meeting, and puts a barrier before the first access that conflicts. Loops are followed twice,
//! so that the end of one turn is kept apart from the beginning of the next.

use crate::code::{Buffer, Effect, Node};
use std::collections::{BTreeMap, BTreeSet};

/// How a buffer was touched since all threads met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Touched {
    read: bool,
    /// The ops that wrote it.
    writers: BTreeSet<u32>,
}

type State = BTreeMap<Buffer, Touched>;

/// Inserts the barriers that the code needs and has not.
pub(crate) fn insert(nodes: &mut Vec<Node>) {
    follow(nodes, &mut State::new());
}

fn follow(nodes: &mut Vec<Node>, state: &mut State) {
    let mut at = 0;
    while at < nodes.len() {
        if needs_barrier(&nodes[at], state) {
            nodes.insert(at, Node::Barrier);
            state.clear();
            at += 1;
        }
        match &mut nodes[at] {
            Node::Barrier => state.clear(),
            Node::Inst(inst) => touch(inst.effect, state),
            Node::Loop { head, body, .. } => {
                // After the first turn every barrier between turns is in place; the second changes
                // nothing but the state. A loop may also end before its first turn.
                follow(head, state);
                let before = state.clone();
                for _ in 0..2 {
                    follow(body, state);
                    follow(head, state);
                }
                join(state, &before);
            }
            Node::If { yes, no, together: true, .. } => {
                let mut other = state.clone();
                follow(yes, state);
                follow(no, &mut other);
                join(state, &other);
            }
            Node::If { yes, no, together: false, .. } => {
                for node in yes.iter().chain(no.iter()) {
                    touch_all(node, state);
                }
            }
        }
        at += 1;
    }
}

fn touch(effect: Effect, state: &mut State) {
    match effect {
        Effect::None => {}
        Effect::Meet => state.clear(),
        Effect::Read(buffer) => state.entry(buffer).or_default().read = true,
        Effect::Write(buffer, writer) => {
            state.entry(buffer).or_default().writers.insert(writer);
        }
    }
}

fn touch_all(node: &Node, state: &mut State) {
    each_effect(node, &mut |effect| touch(effect, state));
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
        Node::Barrier => {}
    }
}

fn join(state: &mut State, other: &State) {
    for (buffer, touched) in other {
        let mine = state.entry(*buffer).or_default();
        mine.read |= touched.read;
        mine.writers.extend(&touched.writers);
    }
}

/// Whether a node conflicts with what was touched. What stands inside of loops and of branches that
/// all threads take together gets its barrier there.
fn needs_barrier(node: &Node, state: &State) -> bool {
    let conflicts = |effect| match effect {
        Effect::None | Effect::Meet => false,
        Effect::Read(buffer) => state.get(&buffer).is_some_and(|t| !t.writers.is_empty()),
        Effect::Write(buffer, writer) => state
            .get(&buffer)
            .is_some_and(|t| t.read || t.writers.iter().any(|other| *other != writer)),
    };
    match node {
        Node::Inst(inst) => conflicts(inst.effect),
        Node::If { together: false, .. } => {
            let mut any = false;
            each_effect(node, &mut |effect| any |= conflicts(effect));
            any
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Class, Inst, Reg};
    use tessera_tile_ir::Loc;

    const VIEW: Buffer = Buffer::View(0);

    fn inst(effect: Effect) -> Node {
        let loc = Loc { file: "test.rs", line: 1, column: 1 };
        Node::Inst(Inst { op: "op".into(), operands: Vec::new(), guard: None, effect, loc })
    }

    fn repeat(body: Vec<Node>) -> Node {
        Node::Loop { head: Vec::new(), go_on: Reg { class: Class::Pred, id: 0 }, body }
    }

    /// `b` for a barrier, `.` for an instruction, loops in parentheses.
    fn shape(nodes: &[Node]) -> String {
        let one = |node: &Node| match node {
            Node::Barrier => "b".to_owned(),
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
        let (read, write) = (Effect::Read(VIEW), Effect::Write(VIEW, 0));
        check(vec![inst(write), inst(read)], ".b.");
        check(vec![inst(read), inst(write)], ".b.");
        check(vec![inst(read), inst(read)], "..");
        check(vec![inst(write), inst(write)], "..");
        check(vec![inst(write), inst(Effect::Write(VIEW, 1))], ".b.");
        check(vec![inst(write), inst(Effect::Read(Buffer::Exchange))], "..");
    }

    #[test]
    fn turns_of_a_loop_are_kept_apart() {
        let (read, write) = (Effect::Read(VIEW), Effect::Write(VIEW, 0));
        check(vec![repeat(vec![inst(read), inst(write)])], "(b.b.)");
    }

    #[test]
    fn a_barrier_in_a_loop_that_may_not_run_is_no_barrier() {
        let (read, write) = (Effect::Read(VIEW), Effect::Write(VIEW, 0));
        let exchange = [Effect::Write(Buffer::Exchange, 0), Effect::Read(Buffer::Exchange)];
        let body = exchange.map(inst).to_vec();
        check(vec![inst(read), repeat(body), inst(write)], ".(b.b.)b.");
    }

    #[test]
    fn sides_of_a_branch_that_threads_take_apart_are_one() {
        let (read, write) = (Effect::Read(VIEW), Effect::Write(VIEW, 0));
        let condition = Reg { class: Class::Pred, id: 0 };
        let apart = Node::If { condition, yes: vec![inst(read)], no: Vec::new(), together: false };
        check(vec![inst(write), apart], ".b[.|]");
        let together =
            Node::If { condition, yes: vec![inst(read)], no: Vec::new(), together: true };
        check(vec![inst(write), together], ".[b.|]");
    }
}
