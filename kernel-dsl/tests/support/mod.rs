//! Formats of the tests, declared by hand, and lists of them in the form that kernels expect.

use tessera_kernel_dsl::ir::format::{Element, Format, ScaleTile, ScaleType, Tol};
use tessera_kernel_dsl::ir::{Elem as IrElem, Kernel, OpKind, Region};
use tessera_kernel_dsl::{Codes, Elem, Packed, Stored};

macro_rules! stored {
    ($($name:ident $element:ident;)*) => {$(
        /// Codes of a number.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name;
        impl Elem for $name {
            const ELEM: IrElem = IrElem::Stored(Element::$element);
        }
        impl Codes for $name {}
        impl Stored for $name {
            const ELEMENT: Element = Element::$element;
        }
    )*};
}

stored! { Bf16 Bf16; E4m3 F8E4M3; }

static PLAIN: Format = Format {
    name: "plain",
    element: Element::F32,
    scale_tile: None,
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.0, tensor: 0.0 },
    activation: None,
};

static FOURS: Format = Format {
    name: "fours",
    element: Element::I4,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::F32,
        rows: 1,
        cols: 32,
        ragged: false,
        divisor: 7.0,
        precision: ScaleType::F32,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.1, tensor: 0.1 },
    activation: Some(&PLAIN),
};

macro_rules! packed {
    ($($name:ident $format:ident;)*) => {$(
        /// Codes and scales.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name;
        impl Elem for $name {
            const ELEM: IrElem = IrElem::Packed(&$format);
        }
        impl Codes for $name {}
        impl Packed for $name {
            const FORMAT: &'static Format = &$format;
            type Activation = Plain;
        }
    )*};
}

packed! { Plain PLAIN; Fours FOURS; }

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
            OpKind::Load(p) | OpKind::Store(p) | OpKind::LoadRows(p) | OpKind::Scalar(p) => {
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
