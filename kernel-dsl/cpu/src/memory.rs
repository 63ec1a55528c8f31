//! Reads and writes of views, and tiles computed into scratch memory.

use crate::class::Class;
use crate::generate::{Generator, Home, Tile};
use crate::nest::{Ix, Nest, place};
use crate::plan::index;
use crate::scalar::from_view;
use tessera_tile_ir::op::{Atomic, OpKind};
use tessera_tile_ir::{Loc, Op, Value, Window};

impl Generator<'_> {
    /// The row `r` of what an op loads: the name of a variable.
    fn loaded_row(&mut self, nest: &mut Nest, op: &Op, r: &Ix) -> String {
        let result = op.results[0];
        let key = (result, format!("row {}", r.text), String::new());
        if let Some(name) = nest.known.get(&key) {
            return name.clone();
        }
        let name = self.name("row");
        let row = match op.kind {
            OpKind::LoadRows(param) => {
                let index = self.scalar(nest, op.operands[0], &Ix::zero(), r);
                let col = self.indices(nest, &op.operands[1..]);
                let cols = self.rows_cols(result)[1];
                let view = self.param(param);
                format!("{view}.window([{index}, {col}], [1, {cols}]).row(0)")
            }
            _ => format!("{}.row({})", self.window(nest, op), r.text),
        };
        nest.push(r.level, format!("let {name} = {row};"));
        nest.known.insert(key, name.clone());
        name
    }

    /// The window that a load reads: the name of a variable.
    fn window(&mut self, nest: &mut Nest, op: &Op) -> String {
        let result = op.results[0];
        let key = (result, "window".to_owned(), String::new());
        if let Some(name) = nest.known.get(&key) {
            return name.clone();
        }
        let read = op.window().expect("the ops that are not asked for rows load windows");
        let name = self.name("window");
        let at = self.indices(nest, read.at);
        let ([rows, cols], view) = (self.rows_cols(result), self.view(nest, read));
        nest.push(0, format!("let {name} = {view}.window([{at}], [{rows}, {cols}]);"));
        nest.known.insert(key, name.clone());
        name
    }

    /// The view that a window is part of.
    pub(crate) fn view(&mut self, nest: &mut Nest, window: Window<'_>) -> String {
        let view = self.param(window.param);
        self.until(nest, view, window.end)
    }

    /// A view, or quantized rows, up to an end.
    pub(crate) fn until(&mut self, nest: &mut Nest, view: String, end: Option<Value>) -> String {
        match end {
            None => view,
            Some(end) => format!("{view}.until({})", self.indices(nest, &[end])),
        }
    }

    /// One element of what an op loads.
    pub(crate) fn load_scalar(&mut self, nest: &mut Nest, op: &Op, (r, c): (&Ix, &Ix)) -> String {
        let result = op.results[0];
        let class = self.class(result);
        if let Some(read) = op.window()
            && self.ty(result).shape.is_empty()
        {
            let (at, view) = (self.indices(nest, read.at), self.view(nest, read));
            return from_view(format!("{view}.get([{at}])"), class);
        }
        if let OpKind::LoadRows(param) = op.kind {
            // The row may differ from lane to lane, so no window can be kept for it.
            let index = self.scalar(nest, op.operands[0], &Ix::zero(), r);
            let col = self.indices(nest, &op.operands[1..]);
            let (view, cols) = (self.param(param), self.rows_cols(result)[1]);
            let row = format!("{view}.window([{index}, {col}], [1, {cols}])");
            return from_view(format!("{row}.get(0, {})", c.text), class);
        }
        let window = self.window(nest, op);
        from_view(format!("{window}.get({}, {})", r.text, c.text), class)
    }

    /// Sixteen elements of what an op loads.
    pub(crate) fn load_lanes(&mut self, nest: &mut Nest, op: &Op, (r, c): (&Ix, &Ix)) -> String {
        let row = self.loaded_row(nest, op, r);
        let elements = format!("{row}.lanes({})", c.text);
        match self.class(op.results[0]) {
            Class::F32 => format!("isa.load(&{elements})"),
            Class::I32 => format!("isa.load_i32(&{elements})"),
            Class::U32 => format!("isa.load_i32(&{elements}.map(u32::cast_signed))"),
            Class::Bool => format!("mask_of(isa, {elements})"),
            _ => format!("load_codes(isa, {elements})"),
        }
    }

    /// Computes a value into scratch memory, which becomes its home.
    pub(crate) fn keep(&mut self, value: Value) -> Tile {
        let tile = self.destination(value);
        self.compute(value, &tile);
        self.set_home(value, Home::Tile(tile.clone()));
        tile
    }

    /// A tile that holds a value, folded or not.
    pub(crate) fn kept(&mut self, value: Value) -> Tile {
        match self.tile(value) {
            Some(tile) => tile.clone(),
            None => {
                let tile = self.allocate(self.ty(value));
                self.compute(value, &tile);
                tile
            }
        }
    }

    /// Computes a value into a tile.
    pub(crate) fn compute(&mut self, value: Value, into: &Tile) {
        if self.tile(value) == Some(into) {
            return;
        }
        let shape = self.rows_cols(value);
        let lanes = into.class.in_lanes();
        let mut nest = Nest::by_rows(shape, lanes);
        self.compute_at(&mut nest, value, into, (0, 0));
        nest.write(&mut self.text);
    }

    /// Computes a value into a part of a tile that starts at a row and column.
    fn compute_at(
        &mut self,
        nest: &mut Nest,
        value: Value,
        into: &Tile,
        (row, col): (usize, usize),
    ) {
        let (r, c) = (nest.r.clone(), nest.c.clone());
        let at = place(&r.plus(row), &c.plus(col), into.stride);
        let name = &into.name;
        let statement = if !into.class.in_lanes() || !col.is_multiple_of(16) {
            let element = self.scalar(nest, value, &r, &c);
            match into.class {
                Class::Bool => format!("{name}[{at}] = u8::from({element});"),
                Class::U32 | Class::Code(_) => format!("{name}[{at}] = {element}.cast_signed();"),
                _ => format!("{name}[{at}] = {element};"),
            }
        } else {
            let x = self.lanes(nest, value, &r, &c);
            match into.class {
                Class::F32 => format!("isa.store({x}, lanes_mut({name}, {at}));"),
                Class::Bool => format!("store_mask(isa, {x}, lanes_mut({name}, {at}));"),
                _ => format!("isa.store_i32({x}, lanes_mut({name}, {at}));"),
            }
        };
        nest.push(2, statement);
    }

    /// Two tiles, one after the other along an axis.
    pub(crate) fn concat(&mut self, op: &Op, axis: usize) {
        let tile = self.allocate(self.ty(op.results[0]));
        let by_rows = axis + 1 < self.ty(op.results[0]).shape.len();
        let mut start = (0, 0);
        for &part in &op.operands {
            let shape = self.rows_cols(part);
            // A vector may spill over the end of its part only where nothing has been written yet.
            let lanes = tile.class.in_lanes() && start.1 % 16 == 0;
            let mut nest = Nest::by_rows(shape, lanes);
            self.compute_at(&mut nest, part, &tile, start);
            nest.write(&mut self.text);
            if by_rows {
                start.0 += shape[0];
            } else {
                start.1 += shape[1];
            }
        }
        self.set_home(op.results[0], Home::Tile(tile));
    }

    /// Writes the last operand to the window at those before.
    pub(crate) fn store(&mut self, op: &Op, to: Window<'_>) {
        let &value = op.operands.last().expect("a store has a value");
        let class = self.class(value);
        if self.ty(value).shape.is_empty() {
            let mut nest = Nest::flat();
            let (at, view) = (self.indices(&mut nest, to.at), self.view(&mut nest, to));
            let element = self.scalar(&mut nest, value, &Ix::zero(), &Ix::zero());
            nest.push(2, format!("{view}.put([{at}], {});", to_view(element, class)));
            nest.write(&mut self.text);
            return;
        }
        let [rows, cols] = self.rows_cols(value);
        let mut nest = Nest::by_rows([rows, cols], class.in_lanes());
        let (at, view) = (self.indices(&mut nest, to.at), self.view(&mut nest, to));
        let window = self.name("window");
        nest.push(0, format!("let {window} = {view}.window_mut([{at}], [{rows}, {cols}]);"));
        let (row, r) = (self.name("row"), nest.r.clone());
        nest.push(r.level, format!("let {row} = {window}.row({});", r.text));
        self.put(&mut nest, value, &row);
        nest.write(&mut self.text);
    }

    /// Writes each row of a tile to a row of its own.
    pub(crate) fn store_rows(&mut self, op: &Op, param: usize) {
        let [rows, cols] = self.rows_cols(op.operands[2]);
        let class = self.class(op.operands[2]);
        let mut nest = Nest::by_rows([rows, cols], class.in_lanes());
        let r = nest.r.clone();
        let index = self.scalar(&mut nest, op.operands[0], &Ix::zero(), &r);
        let col = self.indices(&mut nest, &op.operands[1..2]);
        let (view, row) = (self.param(param), self.name("row"));
        let window = format!("{view}.window_mut([{index}, {col}], [1, {cols}])");
        nest.push(r.level, format!("let {row} = {window}.row(0);"));
        self.put(&mut nest, op.operands[2], &row);
        nest.write(&mut self.text);
    }

    /// Writes the elements of the loops to a row of a window.
    fn put(&mut self, nest: &mut Nest, value: Value, row: &str) {
        let (class, r, c) = (self.class(value), nest.r.clone(), nest.c.clone());
        let at = &c.text;
        let statement = if class.in_lanes() {
            let x = self.lanes(nest, value, &r, &c);
            let array = match class {
                Class::F32 => format!("array(isa, {x})"),
                Class::I32 => format!("array_i32(isa, {x})"),
                Class::U32 => format!("array_i32(isa, {x}).map(i32::cast_unsigned)"),
                Class::Bool => format!("array_mask(isa, {x})"),
                _ => format!("store_codes(isa, {x})"),
            };
            format!("{row}.put_lanes({at}, {array});")
        } else {
            format!("{row}.put({at}, {});", self.scalar(nest, value, &r, &c))
        };
        nest.push(2, statement);
    }

    /// Writes single elements.
    pub(crate) fn scatter(&mut self, op: &Op, param: usize) {
        let (&value, at) = op.operands.split_last().expect("a scatter has a value");
        let mut nest = Nest::by_rows(self.rows_cols(value), false);
        let (r, c) = (nest.r.clone(), nest.c.clone());
        let indices: Vec<String> =
            at.iter().map(|&index| self.scalar(&mut nest, index, &r, &c)).collect();
        let element = self.scalar(&mut nest, value, &r, &c);
        let element = to_view(element, self.class(value));
        let (view, at) = (self.param(param), indices.join(", "));
        nest.push(2, format!("{view}.put([{at}], {element});"));
        nest.write(&mut self.text);
    }

    /// Updates one element.
    pub(crate) fn atomic(&mut self, op: &Op, param: usize, how: Atomic) {
        let (&value, at) = op.operands.split_last().expect("an atomic has a value");
        let mut nest = Nest::flat();
        let at = self.indices(&mut nest, at);
        let element = self.scalar(&mut nest, value, &Ix::zero(), &Ix::zero());
        let float = self.class(value) == Class::F32;
        let new = match how {
            Atomic::Add if float => "old + new".to_owned(),
            Atomic::Add => "old.wrapping_add(new)".to_owned(),
            Atomic::Min if float => "min(old, new)".to_owned(),
            Atomic::Max if float => "max(old, new)".to_owned(),
            Atomic::Min => "old.min(new)".to_owned(),
            Atomic::Max => "old.max(new)".to_owned(),
            Atomic::Or => "old | new".to_owned(),
        };
        nest.push(0, format!("let new = {element};"));
        nest.push(2, format!("{}.update([{at}], |old| {new});", self.param(param)));
        self.text.line("{");
        nest.write(&mut self.text);
        self.text.line("}");
    }

    /// Fails the launch where a condition is false.
    pub(crate) fn assert(&mut self, op: &Op, message: &str) {
        let failed = format!("return Err(AssertFailed {{ message: {message:?} }});");
        let condition = op.operands[0];
        if self.ty(condition).shape.is_empty() {
            let condition = self.scalar(&mut Nest::flat(), condition, &Ix::zero(), &Ix::zero());
            self.text.lines(&format!("if !{condition} {{\n{failed}\n}}"));
            return;
        }
        let [rows, cols] = self.rows_cols(condition);
        let mut nest = Nest::by_rows([rows, cols], true);
        let (r, c) = (nest.r.clone(), nest.c.clone());
        let x = self.lanes(&mut nest, condition, &r, &c);
        let bad = format!("!isa.mask_bits({x}) & first_bits({cols} - {})", c.text);
        for line in [format!("if {bad} != 0 {{"), failed, "}".to_owned()] {
            nest.push(2, line);
        }
        nest.write(&mut self.text);
    }

    /// The codec of stored codes, by the type that generated code gives it.
    pub(crate) fn codec(&mut self, codes: Value, _: Loc) -> String {
        let tessera_tile_ir::Elem::Stored(element) = self.ty(codes).elem else {
            unreachable!("value {} is not of stored codes", index(codes))
        };
        let name = crate::text::camel(element.name());
        self.codecs.insert(name.clone(), element);
        name
    }
}

/// A scalar as an element of a view.
fn to_view(element: String, class: Class) -> String {
    match class {
        Class::Code(_) => format!("from_code({element})"),
        _ => element,
    }
}
