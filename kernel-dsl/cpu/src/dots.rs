//! Dot products: calls of micro-kernels.

use crate::class::Class;
use crate::generate::{Generator, Home, Tile};
use crate::nest::{Ix, Nest};
use crate::text::camel;
use tessera_tile_ir::format::Format;
use tessera_tile_ir::op::{Binary, Literal, OpKind};
use tessera_tile_ir::{Access, Elem, Kernel, Loc, Op, ParamKind, Region, Value, Window};

/// An operand of a dot in memory: text of the elements from its first on, and the distances of its
/// rows and columns.
struct Strided {
    data: String,
    row: String,
    col: String,
}

impl<'k> Generator<'k> {
    /// `a * b + acc` of f32 tiles.
    pub(crate) fn dot(&mut self, op: &Op) {
        let [a, b, acc] = [op.operands[0], op.operands[1], op.operands[2]];
        let ([m, k], [_, n]) = (self.rows_cols(a), self.rows_cols(b));
        let left = self.left(a);
        let right = self.right(b);
        let tile = self.destination(op.results[0]);
        self.compute(acc, &tile);
        self.text.line("dot(");
        self.text.line("isa,");
        let (data, row, col) = (&left.data, &left.row, &left.col);
        self.text.line(format!("Strided {{ data: {data}, row: {row}, col: {col} }},"));
        self.text
            .line(format!("Rows {{ data: {}, stride: {}, rows: {k} }},", right.data, right.row));
        self.text.line(format!("[{m}, {n}],"));
        self.text.line(format!("&mut Acc {{ data: {}, stride: {} }},", tile.name, tile.stride));
        self.text.line(");");
        self.set_home(op.results[0], Home::Tile(tile));
    }

    fn left(&mut self, value: Value) -> Strided {
        if let Some((_, op)) = self.plan.def(value)
            && matches!(op.kind, OpKind::Transpose)
            && self.plan.is_folded(value)
        {
            let Strided { data, row, col } = self.left(op.operands[0]);
            return Strided { data, row: col, col: row };
        }
        self.right(value)
    }

    /// An operand whose columns are next to each other.
    fn right(&mut self, value: Value) -> Strided {
        if let Some((_, op)) = self.plan.def(value)
            && self.plan.is_folded(value)
        {
            if let OpKind::Slice { axis, start } = op.kind {
                let inner = self.right(op.operands[0]);
                let by_rows = axis + 1 < self.ty(value).shape.len();
                let first =
                    if by_rows { format!("{start} * {}", inner.row) } else { start.to_string() };
                let data = if start == 0 {
                    inner.data
                } else {
                    format!("&{}[{first}..]", inner.data.trim_start_matches('&'))
                };
                return Strided { data, ..inner };
            }
            if let Some(read) = op.window()
                && self.class(value) == Class::F32
                && self.is_plain_view(read.param)
            {
                return self.in_place(value, read);
            }
        }
        let tile = self.kept(value);
        Strided {
            data: format!("&{}[..]", tile.name),
            row: tile.stride.to_string(),
            col: "1".to_owned(),
        }
    }

    fn is_plain_view(&self, param: usize) -> bool {
        let kind = &self.kernel.params[param].kind;
        matches!(kind, ParamKind::View { access: Access::Read, elem: Elem::F32, .. })
    }

    /// A window of a view where it is, or a copy with zeros where part of it is outside.
    fn in_place(&mut self, value: Value, read: Window<'_>) -> Strided {
        let [rows, cols] = self.rows_cols(value);
        let mut nest = Nest::flat();
        let (at, view) = (self.indices(&mut nest, read.at), self.view(&mut nest, read));
        nest.write(&mut self.text);
        let name = self.name("slab");
        let tile = self.allocate(self.ty(value));
        let slab = format!("{view}.slab([{at}], [{rows}, {cols}])");
        self.text.line(format!("let {name} = if let Some(slab) = {slab} {{"));
        self.text.line("slab");
        self.text.line("} else {");
        self.compute(value, &tile);
        self.text.line(format!("(&{}[..], {})", tile.name, tile.stride));
        self.text.line("};");
        Strided { data: format!("&{name}.0[..]"), row: format!("{name}.1"), col: "1".to_owned() }
    }

    /// A scaled dot on its own: the columns of its operands.
    pub(crate) fn dot_scaled(&mut self, op: &Op) {
        let columns = |this: &mut Self| {
            let (_, w) = this.plan.def(op.operands[1])?;
            let &first = w.operands.last()?;
            let width = this.rows_cols(op.operands[1])[1];
            let first = this.scalar(&mut Nest::flat(), first, &Ix::zero(), &Ix::zero());
            Some([first.clone(), format!("{first} + {width}")])
        };
        let Some(columns) = columns(self) else {
            self.refuse(op.loc, "scaled dot of this operand");
            return;
        };
        let tile = self.destination(op.results[0]);
        self.compute(op.operands[2], &tile);
        self.scaled_call(op, &columns, &tile);
        self.set_home(op.results[0], Home::Tile(tile));
    }

    /// A loop that only adds scaled dots along `k`: one call for all of its rounds.
    pub(crate) fn scaled_loop(&mut self, op: &Op, step: usize) -> bool {
        let body = &op.regions[0];
        let Some(dot) = self.scaled_body(body) else { return false };
        let Elem::Packed(format) = self.ty(dot.operands[1]).elem else { return false };
        let group = format.activation().scale_tile.map_or(1, |tile| tile.cols);
        let width = self.rows_cols(dot.operands[1])[1];
        if width != step || !step.is_multiple_of(group) || !self.is_multiple(op.operands[0], group)
        {
            return false;
        }
        for &id in &body.ops {
            let inner = self.kernel.op(id);
            let scalar = inner.results.iter().all(|&v| self.ty(v).shape.is_empty());
            if scalar && inner.kind != OpKind::Yield {
                self.region(&Region { args: Vec::new(), ops: vec![id] });
            }
        }
        let text = |this: &mut Self, v| this.scalar(&mut Nest::flat(), v, &Ix::zero(), &Ix::zero());
        let (start, end) = (text(self, op.operands[0]), text(self, op.operands[1]));
        let tile = self.destination(op.results[0]);
        self.compute(op.operands[2], &tile);
        let last = format!("whole_steps({start}, {end}, {step})");
        self.scaled_call(dot, &[start, last], &tile);
        self.set_home(op.results[0], Home::Tile(tile));
        true
    }

    /// The scaled dot that is all a loop does, if the loop is like that.
    fn scaled_body(&self, body: &Region) -> Option<&'k Op> {
        let [index, acc] = body.args[..] else { return None };
        let results = self.results(body);
        let [result] = results[..] else { return None };
        let (_, dot) = self.plan.def(result)?;
        if dot.kind != OpKind::DotScaled || dot.operands[2] != acc {
            return None;
        }
        let (_, quantize) = self.plan.def(dot.operands[0])?;
        if !matches!(quantize.kind, OpKind::Quantize(_)) {
            return None;
        }
        let (_, x) = self.plan.def(quantize.operands[0])?;
        let (_, w) = self.plan.def(dot.operands[1])?;
        let reads = [x.window()?, w.window()?];
        let along = reads.iter().all(|read| {
            read.end != Some(index)
                && read
                    .at
                    .split_last()
                    .is_some_and(|(k, others)| *k == index && !others.contains(&index))
        });
        let own = |op: &Op| {
            let known = [x, w, quantize, dot];
            known.iter().any(|known| std::ptr::eq(*known, op)) || op.kind == OpKind::Yield
        };
        let others = body.ops.iter().map(|&id| self.kernel.op(id)).filter(|op| !own(op));
        let hoists = others.into_iter().all(|op| {
            op.regions.is_empty()
                && op.results.iter().all(|&v| self.ty(v).shape.is_empty())
                && !op.results.is_empty()
                && !op.operands.contains(&index)
        });
        (along && hoists).then_some(dot)
    }

    /// Whether a scalar is a multiple of `by` whatever the launch.
    fn is_multiple(&self, value: Value, by: usize) -> bool {
        let Some((_, op)) = self.plan.def(value) else { return false };
        let Ok(by_i64) = i64::try_from(by) else { return false };
        match op.kind {
            OpKind::Const(Literal::Int(value)) => value % by_i64 == 0,
            OpKind::Binary(Binary::Mul) => op.operands.iter().any(|&v| self.is_multiple(v, by)),
            OpKind::Binary(Binary::Add | Binary::Sub | Binary::Min | Binary::Max) => {
                op.operands.iter().all(|&v| self.is_multiple(v, by))
            }
            _ => by == 1,
        }
    }

    /// The call of the micro-kernel for some columns.
    fn scaled_call(&mut self, dot: &Op, columns: &[String; 2], tile: &Tile) {
        let Some(call) = self.scaled_operands(dot) else { return };
        let Elem::Packed(format) = self.ty(dot.operands[1]).elem else { return };
        let [m, n] = self.rows_cols(dot.results[0]);
        self.formats.insert(format.name, format);
        self.text.line(format!("{}(", scaled_function(format)));
        self.text.line("isa,");
        self.text.line(format!("{},", call.x));
        self.text.line(format!("{},", call.w));
        self.text.line("ScaledBlock {");
        self.text.line(format!("rows: ({}, {m}),", call.x_row));
        self.text.line(format!("weights: ({}, {n}),", call.w_row));
        self.text.line(format!("cols: ({}, {}),", columns[0], columns[1]));
        self.text.line("},");
        self.text.line(format!("&mut Acc {{ data: {}, stride: {} }},", tile.name, tile.stride));
        self.text.line(");");
    }

    fn scaled_operands(&mut self, dot: &Op) -> Option<Call> {
        let loc = dot.loc;
        let quantize =
            self.loaded(dot.operands[0]).filter(|op| matches!(op.kind, OpKind::Quantize(_)));
        let x = quantize.and_then(|op| self.loaded(op.operands[0]));
        let w = self.loaded(dot.operands[1]);
        let (Some(x), Some(w)) = (x, w) else {
            self.refuse(loc, "scaled dot of anything but loaded tiles");
            return None;
        };
        let (Some(x), Some(w)) = (x.window(), w.window()) else {
            self.refuse(loc, "scaled dot of gathered rows: load neighbours");
            return None;
        };
        let Elem::Packed(format) = self.ty(dot.operands[1]).elem else { return None };
        if self.rank(x.param) != 2 || !self.is_plain_view(x.param) {
            self.refuse(loc, "scaled dot with activations that are not an `In<f32>` of two axes");
            return None;
        }
        let w_at = w.at;
        if !self.is_multiple(w_at[w_at.len() - 2], 16) {
            self.refuse(loc, "scaled dot whose weight rows may start off a multiple of 16");
            return None;
        }
        let mut nest = Nest::flat();
        let x_row = self.indices(&mut nest, &x.at[..1]);
        let w_row = self.indices(&mut nest, &w_at[w_at.len() - 2..w_at.len() - 1]);
        let weights = match w_at.len() {
            3 => {
                let expert = self.indices(&mut nest, &w_at[..1]);
                format!("{}.expert({expert})", self.param(w.param))
            }
            _ => format!("{}.matrix()", self.param(w.param)),
        };
        let x = if is_integer(format) {
            let met = (x.param, w.param);
            self.quantized.insert(met);
            let rows = format!("self.{}", quantized_field(self.kernel, met));
            self.until(&mut nest, rows, x.end)
        } else {
            format!("&{}", self.view(&mut nest, x))
        };
        Some(Call { x, w: weights, x_row, w_row })
    }

    fn loaded(&self, value: Value) -> Option<&'k Op> {
        self.plan.def(value).map(|(_, op)| op)
    }

    /// Weights as f32.
    pub(crate) fn decode_packed(&mut self, op: &Op) {
        let Some((_, load)) = self.plan.def(op.operands[0]) else { return };
        let OpKind::Load(param) = load.kind else {
            self.decode_rows(op, load);
            return;
        };
        let tile = self.destination(op.results[0]);
        let [rows, cols] = self.rows_cols(op.results[0]);
        let at = load.operands.clone();
        let w = self.weights(op.loc, param, &at);
        let mut nest = Nest::flat();
        let (row, col) = (
            self.indices(&mut nest, &at[at.len().saturating_sub(2)..at.len() - 1]),
            self.indices(&mut nest, &at[at.len() - 1..]),
        );
        let (name, stride) = (&tile.name, tile.stride);
        self.text.line(format!(
            "decode_block(isa, {w}, [({row}, {rows}), ({col}, {cols})], {name}, {stride});"
        ));
        self.set_home(op.results[0], Home::Tile(tile));
    }

    /// Rows of weights as f32, each from a place of its own.
    fn decode_rows(&mut self, op: &Op, load: &Op) {
        let OpKind::LoadRows(param) = load.kind else {
            self.refuse(op.loc, "decoding of anything but loaded weights");
            return;
        };
        let tile = self.destination(op.results[0]);
        let [rows, cols] = self.rows_cols(op.results[0]);
        let mut nest = Nest::by_rows([rows, 1], false);
        let r = nest.r.clone();
        let row = self.scalar(&mut nest, load.operands[0], &Ix::zero(), &r);
        let col = self.indices(&mut nest, &load.operands[1..]);
        let (w, name, stride) = (self.param(param), &tile.name, tile.stride);
        nest.push(2, format!(
            "decode_block(isa, {w}.matrix(), [({row}, 1), ({col}, {cols})], &mut {name}[{} * {stride}..], {stride});",
            r.text
        ));
        nest.write(&mut self.text);
        self.set_home(op.results[0], Home::Tile(tile));
    }

    fn weights(&mut self, loc: Loc, param: usize, at: &[Value]) -> String {
        let w = self.param(param);
        match at.len() {
            2 => format!("{w}.matrix()"),
            3 => {
                let expert = self.indices(&mut Nest::flat(), &at[..1]);
                format!("{w}.expert({expert})")
            }
            _ => {
                self.refuse(loc, "weights of other than two or three axes");
                w
            }
        }
    }
}

struct Call {
    x: String,
    w: String,
    x_row: String,
    w_row: String,
}

/// Whether activations meet the format as integers.
pub(crate) fn is_integer(format: &Format) -> bool {
    format.element.bits() == 4
}

/// The field of a parameter's rows, quantized to meet some weights.
pub(crate) fn quantized_field(kernel: &Kernel, (x, w): (usize, usize)) -> String {
    format!("{}_for_{}", kernel.params[x].name, kernel.params[w].name)
}

/// The generated function that calls the micro-kernel of the weights' format: one for all formats
/// that activations meet alike, so that a kernel has one body for them.
pub(crate) fn scaled_function(format: &Format) -> &'static str {
    if is_integer(format) { "scaled_integers" } else { "scaled_floats" }
}

/// The type that reads a format's codes.
pub(crate) fn codes_name(format: &Format) -> String {
    let name = camel(format.element.name());
    if is_integer(format) { format!("{name}Integers") } else { name }
}

/// The type that reads a format's scales.
pub(crate) fn scale_name(format: &Format) -> String {
    format.scale_tile.map_or_else(|| "NoScale".to_owned(), |tile| format!("Scale{:?}", tile.scale))
}
