//! Ops in order, loops and branches.

use crate::generate::{Generator, Home, Tile};
use crate::nest::{Ix, Nest};
use crate::plan::is_elementwise;
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Op, OpId, Region, Value};

impl Generator<'_> {
    /// Every op of a region but its end.
    pub(crate) fn region(&mut self, region: &Region) {
        for &id in &region.ops {
            let op = self.kernel.op(id);
            let folded = op.results.iter().any(|&result| self.plan.is_folded(result));
            if !folded && op.kind != OpKind::Yield {
                self.op(id, op);
            }
        }
    }

    /// What a region ends with.
    pub(crate) fn results(&self, region: &Region) -> Vec<Value> {
        region.ops.last().map_or_else(Vec::new, |&id| self.kernel.op(id).operands.clone())
    }

    fn op(&mut self, id: OpId, op: &Op) {
        if let [result] = op.results.as_slice()
            && matches!(self.ty(*result).elem, Elem::Packed(_))
        {
            // Codes and scales stay where they are until something reads them.
            return;
        }
        if let (
            OpKind::ProgramId(_) | OpKind::Dim(_) | OpKind::Scalar(_) | OpKind::Const(_),
            true,
        ) = (&op.kind, op.results.iter().all(|&v| self.ty(v).shape.is_empty()))
        {
            let text = self.scalar_op(&mut Nest::flat(), op, (&Ix::zero(), &Ix::zero()));
            self.set_home(op.results[0], Home::Scalar(text));
            return;
        }
        self.text.locate(op.loc);
        if let (Some(to), []) = (op.window(), op.results.as_slice()) {
            self.store(op, to);
            return;
        }
        match &op.kind {
            OpKind::StoreRows(param) => self.store_rows(op, *param),
            OpKind::Scatter(param) => self.scatter(op, *param),
            OpKind::Atomic(param, how) => self.atomic(op, *param, *how),
            OpKind::Assert(message) => self.assert(op, message),
            OpKind::Print(_) | OpKind::Yield => {}
            OpKind::For { step } => self.for_loop(id, op, *step),
            OpKind::If => self.branch(op),
            OpKind::Reduce { axis, combine } => self.reduce(op, *axis, *combine),
            OpKind::ArgMax(axis) => self.argmax(op, *axis),
            OpKind::Scan { axis, combine } => self.scan(op, *axis, *combine),
            OpKind::Concat(axis) => self.concat(op, *axis),
            OpKind::Dot => self.dot(op),
            OpKind::DotScaled => self.dot_scaled(op),
            OpKind::Decode if matches!(self.ty(op.operands[0]).elem, Elem::Packed(_)) => {
                self.decode_packed(op);
            }
            _ if self.ty(op.results[0]).shape.is_empty() => self.let_scalar(op),
            // Only the op itself is left to do: what it reads has a home, or is folded into it.
            _ => {
                self.keep(op.results[0]);
            }
        }
    }

    /// A scalar that gets a variable.
    fn let_scalar(&mut self, op: &Op) {
        let result = op.results[0];
        let mut nest = Nest::flat();
        let text = self.scalar_op(&mut nest, op, (&Ix::zero(), &Ix::zero()));
        let (name, ty) = (self.name("v"), self.class(result).scalar());
        nest.push(2, format!("let {name}: {ty} = {text};"));
        nest.write(&mut self.text);
        self.set_home(result, Home::Scalar(name));
    }

    fn text_of(&mut self, scalar: Value) -> String {
        self.scalar(&mut Nest::flat(), scalar, &Ix::zero(), &Ix::zero())
    }

    fn is_scalar(&self, value: Value) -> bool {
        self.ty(value).shape.is_empty()
    }

    fn for_loop(&mut self, id: OpId, op: &Op, step: usize) {
        if self.scaled_loop(op, step) {
            return;
        }
        let (start, end) = (self.text_of(op.operands[0]), self.text_of(op.operands[1]));
        let body = &op.regions[0];
        let results = self.results(body);
        for ((&before, &arg), &after) in
            op.operands[2..].iter().zip(&body.args[1..]).zip(&op.results)
        {
            let home = self.carry(id, before);
            self.set_home(arg, home.clone());
            self.set_home(after, home);
        }
        for (&arg, &result) in body.args[1..].iter().zip(&results) {
            if let Some(tile) = self.tile(arg).cloned()
                && self.may_overwrite(arg, result)
            {
                self.targets.insert(result, tile);
            }
        }
        let index = self.name("i");
        let by = if step == 1 { String::new() } else { format!(".step_by({step})") };
        let range =
            if by.is_empty() { format!("{start}..{end}") } else { format!("({start}..{end}){by}") };
        self.text.line(format!("for {index} in {range} {{"));
        self.set_home(body.args[0], Home::Scalar(index));
        self.region(body);
        let homes: Vec<Home> =
            body.args[1..].iter().filter_map(|&arg| self.home(arg).cloned()).collect();
        self.leave(&results, &homes);
        self.text.line("}");
    }

    /// The home of a carried value, with what it starts from.
    fn carry(&mut self, id: OpId, before: Value) -> Home {
        if self.is_scalar(before) {
            let (name, text) = (self.name("v"), self.text_of(before));
            let ty = self.class(before).scalar();
            self.text.line(format!("let mut {name}: {ty} = {text};"));
            return Home::Scalar(name);
        }
        let alone = self.plan.readers(before) == [id]
            && self.plan.region_of(before) == self.plan.place(id).map(|place| place.region);
        match self.tile(before) {
            Some(tile) if alone => Home::Tile(tile.clone()),
            _ => {
                let tile = self.allocate(self.ty(before));
                self.compute(before, &tile);
                Home::Tile(tile)
            }
        }
    }

    /// Whether the next value of a carried tile can be computed into the tile itself.
    fn may_overwrite(&self, arg: Value, result: Value) -> bool {
        let Some((id, op)) = self.plan.def(result) else { return false };
        let computes =
            matches!(op.kind, OpKind::Dot | OpKind::DotScaled) || is_elementwise(self.kernel, op);
        computes
            && !self.plan.is_folded(result)
            && self.plan.region_of(result) == self.plan.region_of(arg)
            && self.plan.readers(arg).iter().all(|&reader| reader == id)
            && self.reads_in_place(op, arg)
    }

    /// Whether an op reads a value only at the element that it computes.
    fn reads_in_place(&self, op: &Op, value: Value) -> bool {
        op.operands.iter().enumerate().all(|(place, &operand)| {
            let in_place = match op.kind {
                OpKind::Dot | OpKind::DotScaled => place == 2,
                _ => is_elementwise(self.kernel, op),
            };
            if operand == value {
                return in_place;
            }
            match self.plan.def(operand) {
                Some((_, inner)) if self.plan.is_folded(operand) => {
                    if in_place {
                        self.reads_in_place(inner, value)
                    } else {
                        !self.reads(inner, value)
                    }
                }
                _ => true,
            }
        })
    }

    /// Whether an op reads a value, directly or through folded ones.
    fn reads(&self, op: &Op, value: Value) -> bool {
        op.operands.iter().any(|&operand| {
            operand == value
                || self.plan.is_folded(operand)
                    && self.plan.def(operand).is_some_and(|(_, inner)| self.reads(inner, value))
        })
    }

    /// Tiles that computing a value reads, each with whether only at the element computed.
    fn sources(&self, value: Value, in_place: bool, found: &mut Vec<(Tile, bool)>) {
        if let Some(tile) = self.tile(value) {
            found.push((tile.clone(), in_place));
            return;
        }
        if let Some((_, op)) = self.plan.def(value) {
            let in_place = in_place && is_elementwise(self.kernel, op);
            op.operands.iter().for_each(|&operand| self.sources(operand, in_place, found));
        }
    }

    /// Moves the results of a region to where they are expected, all at once.
    fn leave(&mut self, results: &[Value], homes: &[Home]) {
        let mut last = Vec::new();
        let tiles: Vec<(Value, Tile)> = results
            .iter()
            .zip(homes)
            .filter_map(|(&value, home)| match home {
                Home::Tile(tile) if self.tile(value) != Some(tile) => Some((value, tile.clone())),
                _ => None,
            })
            .collect();
        for (i, (value, tile)) in tiles.iter().enumerate() {
            let mut own = Vec::new();
            self.sources(*value, true, &mut own);
            let mut later = Vec::new();
            tiles[i + 1..].iter().for_each(|(other, _)| self.sources(*other, true, &mut later));
            let own_moved = own.iter().any(|(source, in_place)| source == tile && !in_place);
            if own_moved || later.iter().any(|(source, _)| source == tile) {
                let kept = self.allocate(self.ty(*value));
                self.compute(*value, &kept);
                last.push((kept, tile.clone()));
            } else {
                self.compute(*value, tile);
            }
        }
        for (from, to) in last {
            self.text.line(format!("{}.copy_from_slice({});", to.name, from.name));
        }
        let scalars: Vec<(String, String)> = results
            .iter()
            .zip(homes)
            .filter_map(|(&value, home)| match home {
                Home::Scalar(name) => Some((name.clone(), self.text_of(value))),
                Home::Tile(_) => None,
            })
            .filter(|(to, from)| to != from)
            .collect();
        match scalars.as_slice() {
            [] => {}
            [(to, from)] => self.text.line(format!("{to} = {from};")),
            many => {
                let to: Vec<&str> = many.iter().map(|(to, _)| to.as_str()).collect();
                let from: Vec<&str> = many.iter().map(|(_, from)| from.as_str()).collect();
                self.text.line(format!("({}) = ({});", to.join(", "), from.join(", ")));
            }
        }
    }

    fn branch(&mut self, op: &Op) {
        let condition = self.text_of(op.operands[0]);
        let mut homes = Vec::new();
        for &result in &op.results {
            let home = if self.is_scalar(result) {
                let (name, ty) = (self.name("v"), self.class(result).scalar());
                self.text.line(format!("let {name}: {ty};"));
                Home::Scalar(name)
            } else {
                Home::Tile(self.allocate(self.ty(result)))
            };
            homes.push(home);
        }
        self.text.line(format!("if {condition} {{"));
        for (i, region) in op.regions.iter().enumerate() {
            if i == 1 {
                self.text.line("} else {");
            }
            self.region(region);
            let results = self.results(region);
            self.leave(&results, &homes);
        }
        self.text.line("}");
        for (&result, home) in op.results.iter().zip(homes) {
            self.set_home(result, home);
        }
    }
}
