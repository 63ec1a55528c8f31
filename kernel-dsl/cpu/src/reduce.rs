//! Reductions, scans and the index of the largest, along either axis.

use crate::class::Class;
use crate::generate::{Generator, Home, Tile};
use crate::lane::lane_binary;
use crate::nest::{Nest, place};
use crate::scalar::scalar_binary;
use tessera_tile_ir::op::{Binary, Combine};
use tessera_tile_ir::{Op, Value};

fn binary(combine: Combine) -> Binary {
    match combine {
        Combine::Sum => Binary::Add,
        Combine::Min => Binary::Min,
        Combine::Max => Binary::Max,
        Combine::And => Binary::And,
        Combine::Or => Binary::Or,
        Combine::Xor => Binary::Xor,
    }
}

/// What changes nothing when combined.
fn identity(combine: Combine, class: Class) -> String {
    let ty = class.scalar();
    match (combine, class) {
        (Combine::And, Class::Bool) => "true".to_owned(),
        (_, Class::Bool) => "false".to_owned(),
        (Combine::Sum, Class::F32) => "0.0_f32".to_owned(),
        (Combine::Min, Class::F32) => "f32::INFINITY".to_owned(),
        (Combine::Max, Class::F32) => "f32::NEG_INFINITY".to_owned(),
        (Combine::Min, _) => format!("{ty}::MAX"),
        (Combine::Max, _) => format!("{ty}::MIN"),
        (Combine::And, _) => format!("!0_{ty}"),
        _ => format!("0_{ty}"),
    }
}

impl Generator<'_> {
    /// Whether an axis of a value is its rows.
    fn is_rows(&self, value: Value, axis: usize) -> bool {
        axis + 1 < self.ty(value).shape.len()
    }

    pub(crate) fn reduce(&mut self, op: &Op, axis: usize, combine: Combine) {
        let (source, tile) = (op.operands[0], self.destination(op.results[0]));
        let along_rows = self.is_rows(source, axis);
        let nest = match (along_rows, tile.class) {
            (true, Class::F32) => self.reduce_rows_lanes(source, combine, &tile),
            (false, Class::F32) => self.reduce_cols_lanes(source, combine, &tile),
            _ => self.reduce_scalars(source, along_rows, combine, &tile),
        };
        nest.write(&mut self.text);
        self.set_home(op.results[0], Home::Tile(tile));
    }

    fn reduce_rows_lanes(&mut self, source: Value, combine: Combine, tile: &Tile) -> Nest {
        let mut nest = Nest::by_cols(self.rows_cols(source), true);
        let (r, c, acc) = (nest.r.clone(), nest.c.clone(), self.name("acc"));
        let x = self.lanes(&mut nest, source, &r, &c);
        let start = identity(combine, Class::F32);
        nest.before.push(format!("let mut {acc} = isa.splat({start});"));
        let sum = lane_binary(binary(combine), Class::F32, &acc, &x);
        nest.push(2, format!("{acc} = {sum};"));
        let at = place(&crate::nest::Ix::zero(), &c, tile.stride);
        nest.after.push(format!("isa.store({acc}, lanes_mut({}, {at}));", tile.name));
        nest
    }

    fn reduce_cols_lanes(&mut self, source: Value, combine: Combine, tile: &Tile) -> Nest {
        let [rows, cols] = self.rows_cols(source);
        let mut nest = Nest::by_rows([rows, cols], true);
        let (r, c, acc) = (nest.r.clone(), nest.c.clone(), self.name("acc"));
        let mut x = self.lanes(&mut nest, source, &r, &c);
        let start = identity(combine, Class::F32);
        nest.before.push(format!("let mut {acc} = isa.splat({start});"));
        if !cols.is_multiple_of(16) {
            let whole = self.name("x");
            let inside = format!("first(isa, {cols} - {})", c.text);
            nest.push(2, format!("let {whole} = isa.select({inside}, {x}, isa.splat({start}));"));
            x = whole;
        }
        let sum = lane_binary(binary(combine), Class::F32, &acc, &x);
        nest.push(2, format!("{acc} = {sum};"));
        let total = match combine {
            Combine::Sum => format!("isa.sum({acc})"),
            Combine::Min => format!("fold(isa, {acc}, min)"),
            _ => format!("fold(isa, {acc}, max)"),
        };
        let at = place(&r, &crate::nest::Ix::zero(), tile.stride);
        nest.after.push(format!("{}[{at}] = {total};", tile.name));
        nest
    }

    fn reduce_scalars(
        &mut self,
        source: Value,
        along_rows: bool,
        combine: Combine,
        tile: &Tile,
    ) -> Nest {
        let shape = self.rows_cols(source);
        let mut nest =
            if along_rows { Nest::by_cols(shape, false) } else { Nest::by_rows(shape, false) };
        let (r, c, acc) = (nest.r.clone(), nest.c.clone(), self.name("acc"));
        let x = self.scalar(&mut nest, source, &r, &c);
        nest.before.push(format!("let mut {acc} = {};", identity(combine, tile.class)));
        let sum = scalar_binary(binary(combine), tile.class, &acc, &x);
        nest.push(2, format!("{acc} = {sum};"));
        let zero = crate::nest::Ix::zero();
        let at =
            if along_rows { place(&zero, &c, tile.stride) } else { place(&r, &zero, tile.stride) };
        nest.after.push(write_scalar(tile, &at, &acc));
        nest
    }

    pub(crate) fn argmax(&mut self, op: &Op, axis: usize) {
        let (source, tile) = (op.operands[0], self.destination(op.results[0]));
        let along_rows = self.is_rows(source, axis);
        let shape = self.rows_cols(source);
        let mut nest =
            if along_rows { Nest::by_cols(shape, false) } else { Nest::by_rows(shape, false) };
        let (r, c) = (nest.r.clone(), nest.c.clone());
        let element = self.scalar(&mut nest, source, &r, &c);
        let (best, at) = (self.name("best"), self.name("at"));
        let class = self.class(source);
        let (zero, along) = (crate::nest::Ix::zero(), if along_rows { &r } else { &c });
        nest.before.push(format!("let mut {at} = 0_i64;"));
        nest.before.push(format!("let mut {best} = {};", identity(Combine::Max, class)));
        let x = self.name("x");
        // The first element wins even where it is the identity: nothing is above it.
        let above = match class {
            Class::F32 => format!("{x} > {best} || {x}.is_nan() && !{best}.is_nan()"),
            _ => format!("{x} > {best}"),
        };
        for line in [
            format!("let {x} = {element};"),
            format!("if {above} {{"),
            format!("{best} = {x};"),
            format!("{at} = {} as i64;", along.text),
            "}".to_owned(),
        ] {
            nest.push(2, line);
        }
        let to =
            if along_rows { place(&zero, &c, tile.stride) } else { place(&r, &zero, tile.stride) };
        nest.after.push(format!("{}[{to}] = {at};", tile.name));
        nest.write(&mut self.text);
        self.set_home(op.results[0], Home::Tile(tile));
    }

    pub(crate) fn scan(&mut self, op: &Op, axis: usize, combine: Combine) {
        let (source, tile) = (op.operands[0], self.destination(op.results[0]));
        let shape = self.rows_cols(source);
        let along_rows = self.is_rows(source, axis);
        let mut nest =
            if along_rows { Nest::by_cols(shape, false) } else { Nest::by_rows(shape, false) };
        let (r, c, acc) = (nest.r.clone(), nest.c.clone(), self.name("acc"));
        let x = self.scalar(&mut nest, source, &r, &c);
        nest.before.push(format!("let mut {acc} = {};", identity(combine, tile.class)));
        let sum = scalar_binary(binary(combine), tile.class, &acc, &x);
        nest.push(2, format!("{acc} = {sum};"));
        nest.push(2, write_scalar(&tile, &place(&r, &c, tile.stride), &acc));
        nest.write(&mut self.text);
        self.set_home(op.results[0], Home::Tile(tile));
    }
}

/// Writes a scalar to a tile.
pub(crate) fn write_scalar(tile: &Tile, at: &str, value: &str) -> String {
    let name = &tile.name;
    match tile.class {
        Class::Bool => format!("{name}[{at}] = u8::from({value});"),
        Class::U32 | Class::Code(_) => format!("{name}[{at}] = ({value}).cast_signed();"),
        _ => format!("{name}[{at}] = {value};"),
    }
}
