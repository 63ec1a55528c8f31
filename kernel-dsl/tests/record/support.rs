//! Formats of the tests, and lists of them in the form that kernels expect.

use tessera_kernel_dsl::ir::{Kernel, OpKind, Region};
use tessera_kernel_dsl::{block_format, number_format};

number_format! { pub(crate) Bf16 = Element::Bf16 }
number_format! { pub(crate) E4m3 = Element::F8E4M3 }
number_format! { pub(crate) Number = Element::F32 }
number_format! { pub(crate) I4 = Element::I4 }

block_format! { pub(crate) Plain = "plain" {
    element = Number, scale = none, tol = (0.0, 0.0), activation = self,
} }
block_format! { pub(crate) Fours = "fours" {
    element = I4,
    scale = F32 per (1, 32), ragged = false,
    divisor = 7.0, precision = F32,
    zero_point = false, tensor_scale = false,
    tol = (0.1, 0.1),
    activation = Plain,
} }

/// The convention of `formats(..)`: each format in turn under the given name.
macro_rules! weight_formats {
    (|$name:ident| $body:expr) => {{
        type $name = $crate::support::Plain;
        $body;
    }
    {
        type $name = $crate::support::Fours;
        $body;
    }};
}
pub(crate) use weight_formats;

macro_rules! kv_formats {
    (|$name:ident| $body:expr) => {{
        type $name = $crate::support::Bf16;
        $body;
    }
    {
        type $name = $crate::support::E4m3;
        $body;
    }};
}
pub(crate) use kv_formats;

/// The ops of a region as text, regions inside in braces, after how many values they change.
pub(crate) fn outline(kernel: &Kernel, region: &Region) -> String {
    let ops = region.ops.iter().map(|&id| {
        let op = kernel.op(id);
        let name = match &op.kind {
            OpKind::Binary(op) => format!("{op:?}"),
            OpKind::Unary(op) => format!("{op:?}"),
            OpKind::Cmp(op) => format!("{op:?}"),
            OpKind::Const(literal) => format!("{literal:?}"),
            OpKind::Dim(dim) => kernel.dims[*dim].clone(),
            OpKind::Load(p)
            | OpKind::Store(p)
            | OpKind::LoadUntil(p)
            | OpKind::StoreUntil(p)
            | OpKind::LoadRows(p)
            | OpKind::Scalar(p) => {
                let kind = format!("{:?}", op.kind);
                let kind = kind.split('(').next().unwrap_or_default().to_owned();
                format!("{kind} {}", kernel.params[*p].name)
            }
            OpKind::For { step } => format!("For by {step} of {}", op.results.len()),
            OpKind::If => format!("If of {}", op.results.len()),
            OpKind::Quantize(format) => format!("Quantize {}", format.name),
            other => format!("{other:?}"),
        };
        let inside = op.regions.iter().map(|region| format!(" {{ {} }}", outline(kernel, region)));
        name + &inside.collect::<String>()
    });
    ops.collect::<Vec<_>>().join("; ")
}
