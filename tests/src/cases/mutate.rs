//! Wrong kernels, made from right ones: cases that let them pass test nothing.

use tessera_tile_ir::op::{Binary, Cmp, Literal, OpKind};
use tessera_tile_ir::{Kernel, Region};

/// A kernel with one op changed.
#[derive(Debug)]
pub struct Mutant {
    /// What was changed, and where its author wrote it.
    pub what: String,
    /// The kernel.
    pub kernel: Kernel,
}

/// One mutant for each op that can be got wrong: a mask dropped, a comparison off by one, a factor
/// left out, a sum turned round, a constant doubled, a loop cut short, an end of a view left out.
pub fn mutants(kernel: &Kernel) -> Vec<Mutant> {
    let mut live = Vec::new();
    ops_of(kernel, &kernel.body, &mut live);
    live.into_iter().filter_map(|index| mutant(kernel, index)).collect()
}

/// Indices of the ops of a region, those inside them included: others belong to the grid.
fn ops_of(kernel: &Kernel, region: &Region, found: &mut Vec<usize>) {
    for &id in &region.ops {
        found.push(id.0 as usize);
        kernel.op(id).regions.iter().for_each(|inner| ops_of(kernel, inner, found));
    }
}

fn mutant(kernel: &Kernel, index: usize) -> Option<Mutant> {
    let op = &kernel.ops[index];
    let mut changed = op.clone();
    let what = match &op.kind {
        OpKind::Select => {
            changed.operands[2] = op.operands[1];
            "mask dropped"
        }
        OpKind::Cmp(cmp) => {
            changed.kind = OpKind::Cmp(match cmp {
                Cmp::Lt => Cmp::Le,
                Cmp::Le => Cmp::Lt,
                Cmp::Gt => Cmp::Ge,
                Cmp::Ge => Cmp::Gt,
                Cmp::Eq => Cmp::Ne,
                Cmp::Ne => Cmp::Eq,
            });
            "comparison changed"
        }
        OpKind::Binary(Binary::Mul) if op.operands[0] != op.operands[1] => {
            changed.kind = OpKind::Binary(Binary::Max);
            "factor left out"
        }
        OpKind::Binary(Binary::Add) => {
            changed.kind = OpKind::Binary(Binary::Sub);
            "sum turned round"
        }
        OpKind::Const(Literal::Float(value)) if *value != 0.0 && value.is_finite() => {
            changed.kind = OpKind::Const(Literal::Float(value * 2.0));
            "constant doubled"
        }
        OpKind::For { .. } => {
            changed.operands[1] = op.operands[0];
            "loop cut short"
        }
        OpKind::LoadUntil(param) => {
            changed.kind = OpKind::Load(*param);
            changed.operands.pop();
            "end left out"
        }
        OpKind::StoreUntil(param) => {
            changed.kind = OpKind::Store(*param);
            changed.operands.remove(op.operands.len() - 2);
            "end left out"
        }
        _ => return None,
    };
    let mut mutated = kernel.clone();
    mutated.ops[index] = changed;
    Some(Mutant { what: format!("{what} at {}", op.loc), kernel: mutated })
}
