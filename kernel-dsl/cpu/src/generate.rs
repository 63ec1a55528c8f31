//! The generator of one kernel: where each value lives, and what goes wrong.

use crate::class::{Arena, Class, footprint, stride};
use crate::nest::{Ix, Nest};
use crate::plan::{Plan, index};
use crate::text::Text;
use std::collections::{BTreeMap, BTreeSet};
use tessera_tile_ir::format::{Element, Format};
use tessera_tile_ir::{BuildError, Kernel, Loc, ParamKind, Type, Value};

/// Where a value lives.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// In a Rust variable.
    Scalar(String),
    /// In scratch memory.
    Tile(Tile),
}

/// A tile in scratch memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) name: String,
    pub(crate) class: Class,
    pub(crate) stride: usize,
}

/// Generates the body of one kernel.
#[derive(Debug)]
pub(crate) struct Generator<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) plan: Plan<'k>,
    pub(crate) text: Text,
    pub(crate) errors: Vec<BuildError>,
    /// Codecs that the body names, and what makes them.
    pub(crate) codecs: BTreeMap<String, Element>,
    /// Activations that are quantized before the launch, and the weights they meet: parameters.
    pub(crate) quantized: BTreeSet<(usize, usize)>,
    pub(crate) formats: BTreeMap<&'static str, &'static Format>,
    /// Tiles that values should be computed into, because a loop carries them there.
    pub(crate) targets: BTreeMap<Value, Tile>,
    homes: Vec<Option<Home>>,
    arenas: BTreeMap<Arena, Vec<(String, usize)>>,
    fresh: usize,
}

impl<'k> Generator<'k> {
    pub(crate) fn new(kernel: &'k Kernel) -> Self {
        Self {
            kernel,
            plan: Plan::new(kernel),
            text: Text::indented(2),
            errors: Vec::new(),
            codecs: BTreeMap::new(),
            quantized: BTreeSet::new(),
            formats: BTreeMap::new(),
            targets: BTreeMap::new(),
            homes: vec![None; kernel.values.len()],
            arenas: BTreeMap::new(),
            fresh: 0,
        }
    }

    pub(crate) fn ty(&self, value: Value) -> &'k Type {
        self.kernel.ty(value)
    }

    pub(crate) fn class(&self, value: Value) -> Class {
        Class::of(self.ty(value).elem)
    }

    pub(crate) fn rows_cols(&self, value: Value) -> [usize; 2] {
        self.ty(value).rows_cols()
    }

    pub(crate) fn home(&self, value: Value) -> Option<&Home> {
        self.homes[index(value)].as_ref()
    }

    pub(crate) fn set_home(&mut self, value: Value, home: Home) {
        self.homes[index(value)] = Some(home);
    }

    /// The tile that a value is kept in.
    pub(crate) fn tile(&self, value: Value) -> Option<&Tile> {
        match self.home(value) {
            Some(Home::Tile(tile)) => Some(tile),
            _ => None,
        }
    }

    /// A name that nothing else has.
    pub(crate) fn name(&mut self, prefix: &str) -> String {
        self.fresh += 1;
        format!("{prefix}{}", self.fresh)
    }

    /// Scratch memory for a tile of that type.
    pub(crate) fn allocate(&mut self, ty: &Type) -> Tile {
        let [_, cols] = ty.rows_cols();
        let class = Class::of(ty.elem);
        let name = self.name("t");
        let arena = self.arenas.entry(class.arena()).or_default();
        arena.push((name.clone(), footprint(ty)));
        Tile { name, class, stride: stride(cols) }
    }

    /// Where to compute a value.
    pub(crate) fn destination(&mut self, value: Value) -> Tile {
        match self.targets.remove(&value) {
            Some(tile) => tile,
            None => self.allocate(self.ty(value)),
        }
    }

    /// Lines that cut the scratch memory into this kernel's tiles.
    pub(crate) fn carving(&self) -> Text {
        let mut text = Text::indented(2);
        for (arena, tiles) in &self.arenas {
            let names: Vec<&str> = tiles.iter().map(|(name, _)| name.as_str()).collect();
            let lens: Vec<String> = tiles.iter().map(|(_, len)| len.to_string()).collect();
            let (names, lens) = (names.join(", "), lens.join(", "));
            let field = arena.field();
            text.line(format!("let [{names}] = carve(scratch.{field}.as_mut(), [{lens}]);"));
        }
        text
    }

    /// Elements of each type that the tiles take up.
    pub(crate) fn sizes(&self) -> String {
        let size = |arena: &Arena| {
            let tiles = self.arenas.get(arena);
            let total: usize = tiles.map_or(0, |tiles| tiles.iter().map(|(_, len)| len).sum());
            format!("{}: {total}", arena.field())
        };
        let fields: Vec<String> = Arena::ALL.iter().map(size).collect();
        format!("Sizes {{ {} }}", fields.join(", "))
    }

    /// Notes something that this target cannot do.
    pub(crate) fn refuse(&mut self, loc: Loc, what: impl Into<String>) {
        let message = format!("the CPU target has no {}", what.into());
        let code = "K080";
        self.errors.push(BuildError { code, message, loc, notes: Vec::new() });
    }

    /// The name of a parameter in generated code.
    pub(crate) fn param(&self, param: usize) -> String {
        format!("self.{}", field(&self.kernel.params[param].name))
    }

    /// Number of axes of a view.
    pub(crate) fn rank(&self, param: usize) -> usize {
        match &self.kernel.params[param].kind {
            ParamKind::View { dims, .. } => dims.len(),
            ParamKind::Scalar(_) => 0,
        }
    }

    /// Index operands as the elements of an array.
    pub(crate) fn indices(&mut self, nest: &mut Nest, operands: &[Value]) -> String {
        let zero = Ix::zero();
        let indices: Vec<String> =
            operands.iter().map(|&value| self.scalar(nest, value, &zero, &zero)).collect();
        indices.join(", ")
    }
}

/// A parameter's name, moved out of the way of keywords and of our own fields.
pub(crate) fn field(name: &str) -> String {
    match name {
        "dims" | "in" | "ref" | "type" | "use" | "mod" | "fn" | "move" | "self" | "match" => {
            format!("{name}_")
        }
        _ => name.to_owned(),
    }
}
