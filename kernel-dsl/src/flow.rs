//! Loops and branches. `#[kernel]` turns `for` and `if` into these calls, with every outer
//! variable that the body may change carried through.

use crate::tile::{Index, Tile};
use crate::trace::{mistake, with};
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{self as ir, Loc, Type, Value};

/// Something a loop or branch may change: tiles, and tuples, arrays and structs of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot change inside a loop or branch of the kernel",
    note = "only tiles can; a struct of tiles derives `Carry`"
)]
pub trait Carry: Sized {
    /// Appends the values inside.
    fn flatten(&self, values: &mut Vec<Value>);
    /// The same thing with other values, taken in the order of `flatten`.
    fn rebuild(&self, values: &mut dyn Iterator<Item = Value>) -> Self;
}

impl<T> Carry for Tile<T> {
    fn flatten(&self, values: &mut Vec<Value>) {
        values.push(self.value());
    }

    fn rebuild(&self, values: &mut dyn Iterator<Item = Value>) -> Self {
        Self::from_value(values.next().expect("as many values as were flattened"))
    }
}

impl<C: Carry, const N: usize> Carry for [C; N] {
    fn flatten(&self, values: &mut Vec<Value>) {
        self.iter().for_each(|carry| carry.flatten(values));
    }

    fn rebuild(&self, values: &mut dyn Iterator<Item = Value>) -> Self {
        self.each_ref().map(|carry| carry.rebuild(values))
    }
}

macro_rules! carry_tuples {
    ($(($($name:ident)*))*) => {$(
        #[expect(clippy::allow_attributes, reason = "not every tuple is empty")]
        #[allow(non_snake_case, unused_variables, clippy::unused_unit, reason = "one rule for all")]
        impl<$($name: Carry),*> Carry for ($($name,)*) {
            fn flatten(&self, values: &mut Vec<Value>) {
                let ($($name,)*) = self;
                $($name.flatten(values);)*
            }

            fn rebuild(&self, values: &mut dyn Iterator<Item = Value>) -> Self {
                let ($($name,)*) = self;
                ($($name.rebuild(values),)*)
            }
        }
    )*};
}

carry_tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

// What calls an author's closure is `#[inline]` and little else: the compiler then puts it beside the
// kernel, and a change to one kernel does not compile the loops of all again.

/// What `for` runs over: [`range`] makes a loop of the kernel, everything else unrolls and may
/// change anything.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot loop over `{Self}`",
    note = "loop over `range(start, end, step)` in the kernel, or over `a..b` to unroll"
)]
pub trait Loop<C> {
    /// The loop variable.
    type Item;
    /// Runs `body` for each item, `carried` through all of them.
    #[track_caller]
    fn each(self, carried: C, body: impl FnMut(Self::Item, C) -> C) -> C;
}

/// A loop of the kernel, made by [`range`].
#[derive(Debug, Clone, Copy)]
pub struct TileRange {
    start: Tile<i64>,
    end: Tile<i64>,
    step: usize,
}

/// `start, start + step, ..` below `end`.
#[track_caller]
pub fn range(start: impl Into<Index>, end: impl Into<Index>, step: usize) -> TileRange {
    if step == 0 {
        mistake("K005", Loc::caller(), "a loop with a step of 0 never ends".to_owned(), vec![]);
    }
    TileRange { start: start.into().tile(), end: end.into().tile(), step }
}

impl<C: Carry> Loop<C> for TileRange {
    type Item = Tile<i64>;

    #[inline]
    #[track_caller]
    fn each(self, carried: C, mut body: impl FnMut(Tile<i64>, C) -> C) -> C {
        let loc = Loc::caller();
        let before = flat(&carried);
        let (types, inside) = open_loop(loc, &before);
        let index = Tile::from_value(inside[0]);
        let result = body(index, carried.rebuild(&mut inside[1..].iter().copied()));
        let after = self.close(loc, (&before, &types), &flat(&result));
        carried.rebuild(&mut after.into_iter())
    }
}

/// Types of what a loop carries, and the values inside of it: the loop variable first.
fn open_loop(loc: Loc, before: &[Value]) -> (Vec<Type>, Vec<Value>) {
    let types = types_of(before);
    let mut arguments = vec![Type::scalar(ir::Elem::I64)];
    arguments.extend(types.iter().cloned());
    let inside = with(|b| b.open(loc, &arguments));
    (types, inside)
}

impl TileRange {
    /// What the loop leaves, from what a run of its body does.
    fn close(self, loc: Loc, (before, types): (&[Value], &[Type]), result: &[Value]) -> Vec<Value> {
        let region = close(loc, result, types, |want, got| {
            format!("a carried tile is {want} and becomes {got}")
        });
        let mut operands = vec![self.start.value(), self.end.value()];
        operands.extend(before);
        let kind = (OpKind::For { step: self.step }, vec![region]);
        with(|b| b.push_with(loc, kind, &operands, types))
    }
}

macro_rules! unrolled {
    ($(($($generic:tt)*) $known:ty => $item:ty;)*) => {$(
        impl<C, $($generic)*> Loop<C> for $known {
            type Item = $item;

            #[inline]
            fn each(self, carried: C, mut body: impl FnMut($item, C) -> C) -> C {
                self.into_iter().fold(carried, |carried, item| body(item, carried))
            }
        }
    )*};
}

unrolled! {
    () std::ops::Range<usize> => usize;
    () std::ops::RangeInclusive<usize> => usize;
    () std::iter::Rev<std::ops::Range<usize>> => usize;
    () std::iter::StepBy<std::ops::Range<usize>> => usize;
    (T, const N: usize) [T; N] => T;
    (T) Vec<T> => T;
}

/// What `if` decides by: a `bool` known now, which may change anything, or a scalar of the kernel.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot branch on `{Self}`",
    note = "branch on one truth of the kernel or on a build-time bool; `select` chooses by element"
)]
pub trait Branch<C, R> {
    /// Runs one of two bodies, `carried` through it.
    #[track_caller]
    fn branch(
        self,
        carried: C,
        yes: impl FnOnce(C) -> (C, R),
        no: impl FnOnce(C) -> (C, R),
    ) -> (C, R);
}

impl<C, R> Branch<C, R> for bool {
    #[inline]
    fn branch(
        self,
        carried: C,
        yes: impl FnOnce(C) -> (C, R),
        no: impl FnOnce(C) -> (C, R),
    ) -> (C, R) {
        if self { yes(carried) } else { no(carried) }
    }
}

impl<C: Carry, R: Carry> Branch<C, R> for Tile<bool> {
    #[inline]
    #[track_caller]
    fn branch(
        self,
        carried: C,
        yes: impl FnOnce(C) -> (C, R),
        no: impl FnOnce(C) -> (C, R),
    ) -> (C, R) {
        let loc = Loc::caller();
        open_branch(loc, self);
        let before = flat(&carried);
        let result = yes(carried.rebuild(&mut before.iter().copied()));
        let (yes, types) = turn(loc, &flat(&result));
        let other = no(carried.rebuild(&mut before.iter().copied()));
        let after = close_branch(loc, (self, yes), &flat(&other), &types);
        result.rebuild(&mut after.into_iter())
    }
}

/// Begins the first side.
fn open_branch(loc: Loc, condition: Tile<bool>) {
    let ty = condition.ty();
    if ty.len() != 1 {
        let notes = vec!["`select` chooses by element".to_owned()];
        mistake("K006", loc, format!("a branch takes one truth, not {ty}"), notes);
    }
    with(|b| b.open(loc, &[]));
}

/// Ends the first side and begins the other, which must leave the same types.
fn turn(loc: Loc, values: &[Value]) -> (ir::Region, Vec<Type>) {
    let types = types_of(values);
    let yes = with(|b| b.close(loc, values));
    with(|b| b.open(loc, &[]));
    (yes, types)
}

/// What the branch leaves.
fn close_branch(
    loc: Loc,
    (condition, yes): (Tile<bool>, ir::Region),
    other: &[Value],
    types: &[Type],
) -> Vec<Value> {
    let no = close(loc, other, types, |yes, no| {
        format!("one side of a branch leaves {yes}, the other {no}")
    });
    let kind = (OpKind::If, vec![yes, no]);
    with(|b| b.push_with(loc, kind, &[condition.value()], types))
}

/// The values of what a loop or branch carries.
fn flat(carried: &impl Carry) -> Vec<Value> {
    let mut values = Vec::new();
    carried.flatten(&mut values);
    values
}

fn types_of(values: &[Value]) -> Vec<Type> {
    with(|b| values.iter().map(|&value| b.ty(value).clone()).collect())
}

/// Closes a region whose results must have `types`; `differ` words the mistake.
fn close(
    loc: Loc,
    values: &[Value],
    types: &[Type],
    differ: impl Fn(&Type, &Type) -> String,
) -> ir::Region {
    for (value, want) in values.iter().zip(types) {
        let got = with(|b| b.kernel().values[value.0 as usize].clone());
        if got.ty != *want {
            let notes = vec![
                format!("{} made at {}", got.ty, got.loc),
                "a loop or branch must leave a variable with one type".to_owned(),
            ];
            mistake("K007", loc, differ(want, &got.ty), notes);
        }
    }
    with(|b| b.close(loc, values))
}
