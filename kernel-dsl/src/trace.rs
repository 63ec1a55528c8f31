//! Runs a builder and collects what it records.

use crate::tile::Tile;
use std::cell::RefCell;
use tessera_tile_ir::{BuildError, Builder, Elem, Kernel, Loc, OpKind, Region, Type, Value};

thread_local! {
    static CURRENT: RefCell<Option<Builder>> = const { RefCell::new(None) };
}

/// Values of a variant's tuning constants, by name.
pub type Consts = Vec<(String, usize)>;

/// What a kernel is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the three targets")]
pub enum Target {
    Cpu,
    Sm90a,
    Sm100a,
}

/// What a kernel promises of its results; its cases check it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The same bits on every target.
    Exact,
    /// The bits that the model of the target's matrix units gives.
    Model,
    /// Within the tolerance of its case.
    Bounded,
}

/// A kernel as its macro registers it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name of the function.
    pub name: &'static str,
    /// Where it is declared.
    pub loc: Loc,
    /// What it can be built for.
    pub targets: &'static [Target],
    /// What it promises of its results.
    pub class: Class,
    /// Builds every variant for a target: one a combination of formats and constants.
    pub build: fn(Target) -> Vec<Result<Kernel, Vec<BuildError>>>,
}

/// Records one kernel: `describe` adds its parameters, `grid` yields its extents, `body` is one
/// program.
///
/// # Errors
/// The author's mistakes.
#[inline]
pub fn trace<P>(
    mut builder: Builder,
    describe: impl FnOnce(&mut Builder) -> P,
    grid: impl FnOnce(&P) -> Vec<Tile<i64>>,
    body: impl FnOnce(P),
) -> Result<Kernel, Vec<BuildError>> {
    let params = describe(&mut builder);
    let loc = begin(builder);
    let grid = turn(loc, &grid(&params));
    body(params);
    finish(loc, grid)
}

/// Begins the grid of a kernel.
fn begin(builder: Builder) -> Loc {
    let loc = builder.kernel().loc;
    CURRENT.with_borrow_mut(|current| {
        assert!(current.is_none(), "one kernel is built inside another");
        *current = Some(builder);
    });
    with(|b| b.open(loc, &[]));
    loc
}

/// Ends the grid and begins the program.
fn turn(loc: Loc, extents: &[Tile<i64>]) -> Region {
    let extents: Vec<Value> = extents.iter().map(|tile| tile.value()).collect();
    let grid = with(|b| b.close(loc, &extents));
    with(|b| b.open(loc, &[]));
    grid
}

fn finish(loc: Loc, grid: Region) -> Result<Kernel, Vec<BuildError>> {
    let body = with(|b| b.close(loc, &[]));
    let builder = CURRENT.with_borrow_mut(Option::take).expect("set by `begin`");
    builder.finish(grid, body)
}

/// Calls `f` with the kernel under construction.
///
/// # Panics
/// Outside of a builder.
pub(crate) fn with<R>(f: impl FnOnce(&mut Builder) -> R) -> R {
    CURRENT.with_borrow_mut(|current| {
        f(current.as_mut().expect("tiles exist only while a kernel is built"))
    })
}

/// Adds an op of one result.
#[inline]
pub(crate) fn push<T>(loc: Loc, kind: OpKind, operands: &[Value], ty: Type) -> Tile<T> {
    Tile::from_value(push_value(loc, kind, operands, ty))
}

fn push_value(loc: Loc, kind: OpKind, operands: &[Value], ty: Type) -> Value {
    with(|b| b.push(loc, kind, operands, &[ty]))[0]
}

/// Adds an op without a result.
pub(crate) fn effect(loc: Loc, kind: OpKind, operands: &[Value]) {
    with(|b| b.push(loc, kind, operands, &[]));
}

/// Notes a mistake of the author.
pub(crate) fn mistake(code: &'static str, loc: Loc, message: String, notes: Vec<String>) {
    with(|b| b.error(BuildError { code, message, loc, notes }));
}

/// The launch extent of that name.
#[track_caller]
pub fn dim(name: &str) -> Tile<i64> {
    let loc = Loc::caller();
    let index = with(|b| b.dim(name));
    push(loc, OpKind::Dim(index), &[], Type::scalar(Elem::I64))
}

/// Name of an element in the label of a variant.
pub fn format_name<T: crate::elem::Elem>() -> String {
    match T::ELEM {
        Elem::Stored(element) => element.name().to_owned(),
        Elem::Packed(format) => format.name.to_owned(),
        number => number.to_string(),
    }
}
