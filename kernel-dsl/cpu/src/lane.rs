//! Sixteen elements of a value as a variable of the instruction set's type.

use crate::class::Class;
use crate::generate::{Generator, Home};
use crate::nest::{Ix, Nest, place};
use crate::plan::{is_elementwise, needs_lanes};
use crate::scalar::math;
use tessera_tile_ir::op::{Binary, Cmp, Literal, OpKind, Unary};
use tessera_tile_ir::{Op, Value};

impl Generator<'_> {
    /// The elements at row `r` and sixteen columns from `c`: the name of a variable.
    pub(crate) fn lanes(&mut self, nest: &mut Nest, value: Value, r: &Ix, c: &Ix) -> String {
        let key = (value, r.text.clone(), c.text.clone());
        if let Some(name) = nest.known.get(&key) {
            return name.clone();
        }
        if self.home(value).is_none()
            && let Some((_, op)) = self.plan.def(value)
            && is_index_change(op)
        {
            let (source, source_r, source_c) = self.source(op, (r, c));
            if !source_r.lane {
                return self.lanes(nest, source, &source_r, &source_c);
            }
            // Each lane has a row of its own.
            let bridge = self.bridge(nest, value, (r, c));
            let name = self.name("x");
            nest.push(r.level.max(c.level), format!("let {name} = {bridge};"));
            nest.known.insert(key, name.clone());
            return name;
        }
        let level = r.level.max(c.level);
        let class = self.class(value);
        let is_scalar = matches!(self.home(value), Some(Home::Scalar(_)));
        let expression = if is_scalar || !c.lane && !r.lane {
            let element = self.scalar(nest, value, r, c);
            splat(&element, class)
        } else if !class.in_lanes() {
            self.bridge(nest, value, (r, c))
        } else if let Some(tile) = self.tile(value) {
            load_tile(&format!("lanes({}, {})", tile.name, place(r, c, tile.stride)), class)
        } else {
            match self.plan.def(value) {
                Some((_, op)) => self.lanes_op(nest, op, (r, c)),
                None => unreachable!("arguments of regions have homes"),
            }
        };
        let name = self.name("x");
        let level = if is_scalar { 0 } else { level };
        nest.push(level, format!("let {name} = {expression};"));
        nest.known.insert(key, name.clone());
        name
    }

    /// Sixteen elements computed one by one.
    fn bridge(&mut self, nest: &mut Nest, value: Value, (r, c): (&Ix, &Ix)) -> String {
        let class = self.class(value);
        let lane = c.lane();
        let mut element = self.scalar(nest, value, r, &lane);
        let cols = self.rows_cols(value)[1];
        if !cols.is_multiple_of(16) && element.contains('[') {
            // Lanes past the last column would read past the end of a tile.
            let zero = match class {
                Class::F32 => "0.0",
                Class::Bool => "false",
                _ => "0",
            };
            element = format!("if {} < {cols} {{ {element} }} else {{ {zero} }}", lane.text);
        }
        match class {
            Class::F32 => format!("from_fn(isa, |l| {element})"),
            Class::Bool => format!("from_fn_mask(isa, |l| {element})"),
            Class::I32 => format!("from_fn_i32(isa, |l| {element})"),
            _ => format!("from_fn_i32(isa, |l| ({element}).cast_signed())"),
        }
    }

    /// The result of an op as an expression over lanes.
    pub(crate) fn lanes_op(&mut self, nest: &mut Nest, op: &Op, at: (&Ix, &Ix)) -> String {
        let (r, c) = at;
        let result = op.results[0];
        let class = self.class(result);
        match &op.kind {
            OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_) => {
                return self.load_lanes(nest, op, at);
            }
            OpKind::Const(_) => return splat(&self.scalar_op(nest, op, at), class),
            _ => {}
        }
        let wide = op.operands.iter().any(|&v| !self.class(v).in_lanes());
        if wide || !is_elementwise(self.kernel, op) {
            return self.bridge(nest, result, at);
        }
        let from = op.operands.first().map_or(class, |&v| self.class(v));
        if let OpKind::Binary(shift @ (Binary::Shl | Binary::Shr)) = op.kind
            && let Some(by) = self.constant(op.operands[1])
            && (0..32).contains(&by)
        {
            let a = self.lanes(nest, op.operands[0], r, c);
            return match (shift, class) {
                (Binary::Shl, _) => format!("isa.shl::<{by}>({a})"),
                (_, Class::I32) => format!("isa.sra::<{by}>({a})"),
                _ => format!("isa.shr::<{by}>({a})"),
            };
        }
        let x: Vec<String> = op.operands.iter().map(|&v| self.lanes(nest, v, r, c)).collect();
        match op.kind {
            OpKind::Unary(unary) => lane_unary(unary, from, &x[0]),
            OpKind::Binary(binary) => lane_binary(binary, class, &x[0], &x[1]),
            OpKind::Cmp(cmp) => lane_cmp(cmp, from, &x[0], &x[1]),
            OpKind::Select => lane_select(class, &x),
            OpKind::Fma => format!("isa.fma({}, {}, {})", x[0], x[1], x[2]),
            OpKind::Cast(_) => lane_cast(from, class, &x[0]),
            OpKind::Bitcast(_) => match (from, class) {
                (Class::F32, Class::F32) => x[0].clone(),
                (Class::F32, _) => format!("isa.bits({})", x[0]),
                (_, Class::F32) => format!("isa.from_bits({})", x[0]),
                _ => x[0].clone(),
            },
            OpKind::Decode => {
                let codec = self.codec(op.operands[0], op.loc);
                format!("{codec}::decode(isa, {})", x[0])
            }
            _ => {
                let codec = self.codec(result, op.loc);
                format!("{codec}::encode(isa, {})", x[0])
            }
        }
    }

    /// The integer that every element of a value is, if the text says so.
    pub(crate) fn constant(&self, value: Value) -> Option<i64> {
        let (_, op) = self.plan.def(value)?;
        match op.kind {
            OpKind::Const(Literal::Int(value)) => Some(value),
            OpKind::Broadcast | OpKind::Reshape => self.constant(op.operands[0]),
            _ => None,
        }
    }
}

/// Whether the op only says which element of its operand is meant.
fn is_index_change(op: &Op) -> bool {
    matches!(
        op.kind,
        OpKind::Broadcast | OpKind::Reshape | OpKind::Slice { .. } | OpKind::Transpose
    )
}

/// One element in every lane.
pub(crate) fn splat(element: &str, class: Class) -> String {
    match class {
        Class::F32 => format!("isa.splat({element})"),
        Class::Bool => format!("splat_mask(isa, {element})"),
        Class::I32 => format!("isa.splat_i32({element})"),
        _ => format!("isa.splat_i32(({element}).cast_signed())"),
    }
}

fn load_tile(elements: &str, class: Class) -> String {
    match class {
        Class::F32 => format!("isa.load({elements})"),
        Class::Bool => format!("load_mask(isa, {elements})"),
        _ => format!("isa.load_i32({elements})"),
    }
}

fn lane_unary(unary: Unary, class: Class, a: &str) -> String {
    if needs_lanes(unary) {
        return format!("math::{}(isa, {a})", math(unary));
    }
    match (unary, class) {
        (Unary::Not, Class::Bool) => format!("isa.not_mask({a})"),
        (Unary::Not, _) => format!("isa.xor({a}, isa.splat_i32(-1))"),
        (Unary::IsNan, _) => format!("isa.not_mask(isa.eq({a}, {a}))"),
        (Unary::Neg, Class::F32) => format!("isa.neg({a})"),
        (Unary::Neg, _) => format!("isa.sub_i32(isa.splat_i32(0), {a})"),
        (Unary::Abs, Class::F32) => format!("isa.abs({a})"),
        (Unary::Abs, Class::U32) => a.to_owned(),
        (Unary::Abs, _) => format!("map_i32(isa, {a}, i32::wrapping_abs)"),
        (Unary::Sqrt, _) => format!("isa.sqrt({a})"),
        (Unary::Floor, _) => format!("isa.floor({a})"),
        _ => format!("isa.round({a})"),
    }
}

pub(crate) fn lane_binary(binary: Binary, class: Class, a: &str, b: &str) -> String {
    let name = match binary {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::Min => "min",
        Binary::Max => "max",
        Binary::And => "and",
        Binary::Or => "or",
        Binary::Xor => "xor",
        Binary::Rem | Binary::Shl | Binary::Shr => "",
    };
    match (binary, class) {
        (Binary::And | Binary::Or, Class::Bool) => format!("isa.{name}_mask({a}, {b})"),
        (_, Class::Bool) => {
            format!("isa.mask_from_bits(isa.mask_bits({a}) ^ isa.mask_bits({b}))")
        }
        (Binary::And | Binary::Or | Binary::Xor, _) => format!("isa.{name}({a}, {b})"),
        (Binary::Rem, Class::F32) => {
            format!("from_fn(isa, |l| array(isa, {a})[l] % array(isa, {b})[l])")
        }
        (_, Class::F32) => format!("isa.{name}({a}, {b})"),
        (Binary::Add | Binary::Sub | Binary::Mul, _) => format!("isa.{name}_i32({a}, {b})"),
        (Binary::Min | Binary::Max, Class::I32) => format!("isa.{name}_i32({a}, {b})"),
        (_, Class::I32) => {
            let each = crate::scalar::scalar_binary(binary, class, "a", "b");
            format!("zip_i32(isa, {a}, {b}, |a, b| {each})")
        }
        _ => {
            let (x, y) = ("a.cast_unsigned()", "b.cast_unsigned()");
            let each = crate::scalar::scalar_binary(binary, class, x, y);
            format!("zip_i32(isa, {a}, {b}, |a, b| {each}.cast_signed())")
        }
    }
}

fn lane_cmp(cmp: Cmp, class: Class, a: &str, b: &str) -> String {
    if class == Class::Bool {
        let differ = format!("isa.mask_from_bits(isa.mask_bits({a}) ^ isa.mask_bits({b}))");
        return match cmp {
            Cmp::Eq => format!("isa.not_mask({differ})"),
            Cmp::Ne => differ,
            // False is below true.
            Cmp::Lt => format!("isa.and_mask(isa.not_mask({a}), {b})"),
            Cmp::Gt => format!("isa.and_mask({a}, isa.not_mask({b}))"),
            Cmp::Le => format!("isa.or_mask(isa.not_mask({a}), {b})"),
            Cmp::Ge => format!("isa.or_mask({a}, isa.not_mask({b}))"),
        };
    }
    if class == Class::F32 {
        return match cmp {
            Cmp::Eq => format!("isa.eq({a}, {b})"),
            Cmp::Ne => format!("isa.not_mask(isa.eq({a}, {b}))"),
            Cmp::Lt => format!("isa.lt({a}, {b})"),
            Cmp::Le => format!("isa.le({a}, {b})"),
            Cmp::Gt => format!("isa.lt({b}, {a})"),
            Cmp::Ge => format!("isa.le({b}, {a})"),
        };
    }
    // Unsigned integers compare as signed ones once the highest bit is turned over.
    let turn = |x: &str| match class {
        Class::I32 => x.to_owned(),
        _ => format!("isa.xor({x}, isa.splat_i32(i32::MIN))"),
    };
    match cmp {
        Cmp::Eq => format!("isa.eq_i32({a}, {b})"),
        Cmp::Ne => format!("isa.not_mask(isa.eq_i32({a}, {b}))"),
        Cmp::Lt => format!("isa.lt_i32({}, {})", turn(a), turn(b)),
        Cmp::Gt => format!("isa.lt_i32({}, {})", turn(b), turn(a)),
        Cmp::Le => format!("isa.not_mask(isa.lt_i32({}, {}))", turn(b), turn(a)),
        Cmp::Ge => format!("isa.not_mask(isa.lt_i32({}, {}))", turn(a), turn(b)),
    }
}

fn lane_select(class: Class, x: &[String]) -> String {
    let (m, a, b) = (&x[0], &x[1], &x[2]);
    match class {
        Class::F32 => format!("isa.select({m}, {a}, {b})"),
        Class::Bool => {
            format!("isa.or_mask(isa.and_mask({m}, {a}), isa.and_mask(isa.not_mask({m}), {b}))")
        }
        _ => format!("isa.select_i32({m}, {a}, {b})"),
    }
}

fn lane_cast(from: Class, to: Class, a: &str) -> String {
    match (from, to) {
        (Class::F32, Class::I32) => format!("to_i32(isa, {a})"),
        (Class::F32, Class::U32) => format!("to_u32(isa, {a})"),
        (Class::I32, Class::F32) => format!("isa.to_f32({a})"),
        (Class::U32, Class::F32) => format!("u32_to_f32(isa, {a})"),
        _ => a.to_owned(),
    }
}
