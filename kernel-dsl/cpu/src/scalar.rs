//! One element of a value as an expression.

use crate::class::{Class, literal};
use crate::generate::{Generator, Home};
use crate::nest::{Ix, Nest, place};
use crate::plan::needs_lanes;
use tessera_tile_ir::op::{Binary, Cmp, OpKind, Unary};
use tessera_tile_ir::{Op, Value};

impl Generator<'_> {
    /// The element at row `r` and column `c`.
    pub(crate) fn scalar(&mut self, nest: &mut Nest, value: Value, r: &Ix, c: &Ix) -> String {
        match self.home(value) {
            Some(Home::Scalar(name)) => name.clone(),
            Some(Home::Tile(tile)) => {
                let element = format!("{}[{}]", tile.name, place(r, c, tile.stride));
                match tile.class {
                    Class::Bool => format!("({element} != 0)"),
                    Class::U32 | Class::Code(_) => format!("{element}.cast_unsigned()"),
                    _ => element,
                }
            }
            None => match self.plan.def(value) {
                Some((_, op)) => self.scalar_op(nest, op, (r, c)),
                None => unreachable!("arguments of regions have homes"),
            },
        }
    }

    /// The element of an op's result.
    pub(crate) fn scalar_op(&mut self, nest: &mut Nest, op: &Op, at: (&Ix, &Ix)) -> String {
        let (r, c) = at;
        let result = op.results[0];
        let class = self.class(result);
        let x =
            |this: &mut Self, nest: &mut Nest, i: usize| this.scalar(nest, op.operands[i], r, c);
        match &op.kind {
            OpKind::ProgramId(axis) => format!("id[{axis}]"),
            OpKind::Dim(dim) => format!("self.dims[{dim}]"),
            OpKind::Scalar(param) => self.param(*param),
            OpKind::Const(value) => literal(*value, class),
            OpKind::Iota(_) => as_i64(c),
            OpKind::Broadcast | OpKind::Reshape | OpKind::Slice { .. } | OpKind::Transpose => {
                let (source, r, c) = self.source(op, at);
                self.scalar(nest, source, &r, &c)
            }
            OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_) => {
                self.load_scalar(nest, op, at)
            }
            OpKind::Gather(param) => {
                let indices: Vec<String> =
                    (0..op.operands.len()).map(|i| x(self, nest, i)).collect();
                let element = format!("{}.get([{}])", self.param(*param), indices.join(", "));
                from_view(element, class)
            }
            OpKind::Unary(unary) => {
                let a = x(self, nest, 0);
                scalar_unary(*unary, class, &a)
            }
            OpKind::Binary(binary) => {
                let (a, b) = (x(self, nest, 0), x(self, nest, 1));
                scalar_binary(*binary, class, &a, &b)
            }
            OpKind::Cmp(cmp) => {
                let (a, b) = (x(self, nest, 0), x(self, nest, 1));
                format!("({a} {} {b})", comparison(*cmp))
            }
            OpKind::Select => {
                let (m, a, b) = (x(self, nest, 0), x(self, nest, 1), x(self, nest, 2));
                format!("(if {m} {{ {a} }} else {{ {b} }})")
            }
            OpKind::Fma => {
                let (a, b, c) = (x(self, nest, 0), x(self, nest, 1), x(self, nest, 2));
                format!("f32::mul_add({a}, {b}, {c})")
            }
            OpKind::Cast(_) => {
                let a = x(self, nest, 0);
                if self.class(op.operands[0]) == class {
                    a
                } else {
                    format!("({a} as {})", class.scalar())
                }
            }
            OpKind::Bitcast(_) => {
                let a = x(self, nest, 0);
                bitcast(&a, self.class(op.operands[0]), class)
            }
            OpKind::Decode => {
                let a = x(self, nest, 0);
                let codec = self.codec(op.operands[0], op.loc);
                format!("decode_one::<{codec}, _>(isa, {a})")
            }
            OpKind::Encode(_) => {
                let a = x(self, nest, 0);
                let codec = self.codec(result, op.loc);
                format!("encode_one::<{codec}, _>(isa, {a})")
            }
            other => unreachable!("{other:?} keeps its result"),
        }
    }

    /// The operand behind an index change, and where in it the element is.
    pub(crate) fn source(&self, op: &Op, (r, c): (&Ix, &Ix)) -> (Value, Ix, Ix) {
        let source = op.operands[0];
        let ([rows, cols], [_, width]) = (self.rows_cols(source), self.rows_cols(op.results[0]));
        let (r, c) = match op.kind {
            OpKind::Broadcast => {
                let pick = |extent: usize, index: &Ix| {
                    if extent == 1 { Ix::zero() } else { index.clone() }
                };
                (pick(rows, r), pick(cols, c))
            }
            OpKind::Transpose => (c.clone(), r.clone()),
            OpKind::Slice { axis, start } => {
                let last = self.ty(source).shape.len() - 1;
                if axis == last { (r.clone(), c.plus(start)) } else { (r.plus(start), c.clone()) }
            }
            _ if self.rows_cols(source) == self.rows_cols(op.results[0]) => (r.clone(), c.clone()),
            _ => reshape([rows, cols], width, (r, c)),
        };
        (source, r, c)
    }
}

/// Element of a view as the scalar that code computes with.
pub(crate) fn from_view(element: String, class: Class) -> String {
    match class {
        Class::Code(_) => format!("code({element})"),
        _ => element,
    }
}

/// Row and column of the element of a `[rows, cols]` tile that is at row `r` and column `c` of the
/// same elements in rows of `width`.
fn reshape([rows, cols]: [usize; 2], width: usize, (r, c): (&Ix, &Ix)) -> (Ix, Ix) {
    let level = r.level.max(c.level);
    let linear = match (r.text.as_str(), c.text.as_str()) {
        (r, _) if width == 1 => r.to_owned(),
        ("0", c) => c.to_owned(),
        (r, "0") => format!("{r} * {width}"),
        (r, c) => format!("({r} * {width} + {c})"),
    };
    let ix = |text: String, lane: bool| Ix { text, level, lane };
    if rows == 1 {
        (Ix::zero(), ix(linear, c.lane && width != 1))
    } else if cols == 1 {
        (ix(linear, c.lane && width != 1), Ix::zero())
    } else {
        let lane = c.lane;
        (ix(format!("({linear} / {cols})"), lane), ix(format!("({linear} % {cols})"), lane))
    }
}

fn as_i64(c: &Ix) -> String {
    if c.text.chars().all(|d| d.is_ascii_digit()) {
        format!("{}_i64", c.text)
    } else {
        format!("({} as i64)", c.text)
    }
}

pub(crate) fn comparison(cmp: Cmp) -> &'static str {
    match cmp {
        Cmp::Eq => "==",
        Cmp::Ne => "!=",
        Cmp::Lt => "<",
        Cmp::Le => "<=",
        Cmp::Gt => ">",
        Cmp::Ge => ">=",
    }
}

/// Name of the function on lanes.
pub(crate) fn math(unary: Unary) -> &'static str {
    match unary {
        Unary::Exp => "exp",
        Unary::Exp2 => "exp2",
        Unary::Ln => "ln",
        Unary::Log2 => "log2",
        Unary::Sin => "sin",
        Unary::Cos => "cos",
        Unary::Rsqrt => "rsqrt",
        _ => "recip",
    }
}

fn scalar_unary(unary: Unary, class: Class, a: &str) -> String {
    if needs_lanes(unary) {
        return format!("one(isa, {a}, |x| math::{}(isa, x))", math(unary));
    }
    match unary {
        Unary::Neg if class == Class::F32 => format!("(-{a})"),
        Unary::Neg => format!("{a}.wrapping_neg()"),
        Unary::Abs if class == Class::F32 => format!("{a}.abs()"),
        Unary::Abs if matches!(class, Class::U32 | Class::U64) => a.to_owned(),
        Unary::Abs => format!("{a}.wrapping_abs()"),
        Unary::Sqrt => format!("{a}.sqrt()"),
        Unary::Floor => format!("{a}.floor()"),
        Unary::Round => format!("{a}.round_ties_even()"),
        Unary::IsNan => format!("{a}.is_nan()"),
        _ => format!("(!{a})"),
    }
}

/// An operation of two elements of one class.
pub(crate) fn scalar_binary(binary: Binary, class: Class, a: &str, b: &str) -> String {
    let float = class == Class::F32;
    let infix = |op: &str| format!("({a} {op} {b})");
    let method = |name: &str| format!("{a}.{name}({b})");
    let call = |name: &str| format!("{name}({a}, {b})");
    match binary {
        Binary::Add if float => infix("+"),
        Binary::Sub if float => infix("-"),
        Binary::Mul if float => infix("*"),
        Binary::Div if float => infix("/"),
        Binary::Rem if float => infix("%"),
        Binary::Add => method("wrapping_add"),
        Binary::Sub => method("wrapping_sub"),
        Binary::Mul => method("wrapping_mul"),
        Binary::Div => call("Int::div"),
        Binary::Rem => call("Int::rem"),
        Binary::Min if float => call("min"),
        Binary::Max if float => call("max"),
        Binary::Min => method("min"),
        Binary::Max => method("max"),
        Binary::And => infix("&"),
        Binary::Or => infix("|"),
        Binary::Xor => infix("^"),
        Binary::Shl => call("Int::shl"),
        Binary::Shr => call("Int::shr"),
    }
}

fn bitcast(a: &str, from: Class, to: Class) -> String {
    match (from, to) {
        (from, to) if from == to => a.to_owned(),
        (Class::F32, Class::I32) => format!("{a}.to_bits().cast_signed()"),
        (Class::F32, _) => format!("{a}.to_bits()"),
        (Class::I32, Class::F32) => format!("f32::from_bits({a}.cast_unsigned())"),
        (_, Class::F32) => format!("f32::from_bits({a})"),
        (Class::U32 | Class::U64, _) => format!("{a}.cast_signed()"),
        _ => format!("{a}.cast_unsigned()"),
    }
}
