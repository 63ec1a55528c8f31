//! Elements of tiles, and what may be done with each.

use tessera_tile_ir as ir;

/// An element of a tile.
pub trait Elem: Copy + 'static {
    /// The element in the IR.
    const ELEM: ir::Elem;
}

/// An element that has arithmetic.
#[diagnostic::on_unimplemented(
    message = "`{Self}` tiles have no arithmetic: decode them first",
    label = "this tile holds codes or truths, not numbers",
    note = "`tile.decode()` gives the f32 values of stored codes"
)]
pub trait Arith: Elem {}

/// An integer element.
#[diagnostic::on_unimplemented(message = "`{Self}` tiles are not integers")]
pub trait Int: Arith {}

/// Codes, with or without scales: may be loaded, stored and decoded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` tiles are not coded: there is nothing to decode"
)]
pub trait Codes: Elem {}

/// Codes of a number format that stand alone.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a stored number format")]
pub trait Stored: Codes {
    /// The number format.
    const ELEMENT: ir::format::Element;
}

/// Codes and scales of a block format.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a block format")]
pub trait Packed: Codes {
    /// The block format.
    const FORMAT: &'static ir::format::Format;
    /// The block format that activations take to meet it in a scaled dot.
    type Activation: Packed;
}

macro_rules! elements {
    ($($rust:ty => $ir:ident: $($marker:ident)*;)*) => {$(
        impl Elem for $rust {
            const ELEM: ir::Elem = ir::Elem::$ir;
        }
        $(impl $marker for $rust {})*
    )*};
}

elements! {
    f32 => F32: Arith;
    i32 => I32: Arith Int;
    i64 => I64: Arith Int;
    u32 => U32: Arith Int;
    u64 => U64: Arith Int;
    bool => Bool: ;
}
