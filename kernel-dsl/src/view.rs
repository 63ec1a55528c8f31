//! Views: the arrays a kernel reads and writes, bounded and strided.
//!
//! Reads outside a view give zero, writes outside are dropped.

use crate::elem::{Arith, Elem};
use crate::tile::{Index, Operand, Tile};
use crate::trace::{effect, mistake, push, with};
use std::marker::PhantomData;
use tessera_tile_ir::kernel::Extent;
use tessera_tile_ir::op::{Atomic, OpKind};
use tessera_tile_ir::{self as ir, Access, Builder, Loc, Param, ParamKind, Type, Value};

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident $access:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T> {
            param: usize,
            elem: PhantomData<T>,
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T: Elem> $name<T> {
            /// Declares the parameter. Each axis is a sum of dims and a constant.
            #[track_caller]
            pub fn declare(b: &mut Builder, name: &str, axes: &[(&[&str], usize)]) -> Self {
                let extent = |(dims, constant): &(&[&str], usize)| Extent {
                    dims: dims.iter().map(|dim| b.dim(dim)).collect(),
                    constant: *constant,
                };
                let dims = axes.iter().map(extent).collect();
                let kind = ParamKind::View { elem: T::ELEM, access: Access::$access, dims };
                let param = Param { name: name.to_owned(), kind, loc: Loc::caller() };
                Self { param: b.param(param), elem: PhantomData }
            }
        }
    )*};
}

views! {
    /// An array the kernel reads.
    In Read;
    /// An array the kernel writes.
    Out Write;
    /// An array the kernel reads and writes in place.
    InOut ReadWrite;
}

/// A view that ends early on its first axis, see `until`.
#[derive(Debug, Clone, Copy)]
pub struct Until<V> {
    view: V,
    end: Tile<i64>,
}

macro_rules! until {
    ($name:ident) => {
        impl<T: Elem> $name<T> {
            /// The view as it is if its first axis ends at `end`, or at 0 if `end` is negative:
            /// what is read from there on is zero, what is written there is dropped. An `end` past
            /// the view changes nothing.
            #[track_caller]
            pub fn until(self, end: impl Into<Index>) -> Until<Self> {
                if let ir::Elem::Packed(format) = T::ELEM {
                    let name = with(|b| b.kernel().params[self.param].name.clone());
                    let message = format!("`{name}` holds {}: it cannot end early", format.name);
                    mistake("K017", Loc::caller(), message, vec![]);
                }
                Until { view: self, end: end.into().tile() }
            }
        }
    };
}

until!(In);
until!(Out);
until!(InOut);

macro_rules! reads {
    ($name:ident) => {
        impl<T: Elem> $name<T> {
            /// The window of that shape that starts at `at`.
            #[track_caller]
            pub fn tile<const S: usize>(self, at: impl At, shape: [usize; S]) -> Tile<T> {
                let loc = Loc::caller();
                let at = window(loc, self.param, at.indices(), &shape);
                push(loc, OpKind::Load(self.param), &at, Type::tile(T::ELEM, &shape))
            }

            /// One element.
            #[track_caller]
            pub fn at(self, at: impl At) -> Tile<T> {
                let loc = Loc::caller();
                let at = indices(loc, self.param, at.indices());
                push(loc, OpKind::Load(self.param), &at, Type::scalar(T::ELEM))
            }

            /// `cols` elements from column `col` of each of the rows `rows`, `i64[r]`.
            #[track_caller]
            pub fn rows(self, rows: Tile<i64>, col: impl Into<Index>, cols: usize) -> Tile<T> {
                let loc = Loc::caller();
                let count = row_count(loc, rows);
                let operands = [rows.value(), col.into().tile().value()];
                let ty = Type::tile(T::ELEM, &[count, cols]);
                push(loc, OpKind::LoadRows(self.param), &operands, ty)
            }

            /// Single elements, one index tile an axis.
            #[track_caller]
            pub fn gather<const R: usize>(self, at: [Tile<i64>; R]) -> Tile<T> {
                let loc = Loc::caller();
                check_rank(loc, self.param, R);
                let values = at.map(|tile| tile.value());
                let (operands, mut ty) = crate::ops::unify(loc, "gather", &values, ir::Elem::I64);
                ty.elem = T::ELEM;
                push(loc, OpKind::Gather(self.param), &operands, ty)
            }
        }

        impl<T: Elem> Until<$name<T>> {
            /// The window of that shape that starts at `at`.
            #[track_caller]
            pub fn tile<const S: usize>(self, at: impl At, shape: [usize; S]) -> Tile<T> {
                let (loc, param) = (Loc::caller(), self.view.param);
                let mut operands = window(loc, param, at.indices(), &shape);
                operands.push(self.end.value());
                push(loc, OpKind::LoadUntil(param), &operands, Type::tile(T::ELEM, &shape))
            }
        }
    };
}

macro_rules! writes {
    ($name:ident) => {
        impl<T: Elem> $name<T> {
            /// Writes a tile to the window that starts at `at`.
            #[track_caller]
            pub fn store(self, at: impl At, tile: impl Operand<T>) {
                let loc = Loc::caller();
                let mut operands = indices(loc, self.param, at.indices());
                operands.push(tile.operand(loc).value());
                effect(loc, OpKind::Store(self.param), &operands);
            }

            /// Writes row `i` of the tile to row `rows[i]`, from column `col`.
            #[track_caller]
            pub fn store_rows(self, rows: Tile<i64>, col: impl Into<Index>, tile: Tile<T>) {
                let loc = Loc::caller();
                if row_count(loc, rows) != tile.ty().rows_cols()[0] {
                    let message = format!("{} row indices for {}", rows.ty(), tile.ty());
                    mistake("K001", loc, message, vec![]);
                }
                let operands = [rows.value(), col.into().tile().value(), tile.value()];
                effect(loc, OpKind::StoreRows(self.param), &operands);
            }

            /// Writes single elements, one index tile an axis.
            #[track_caller]
            pub fn scatter<const R: usize>(self, at: [Tile<i64>; R], tile: impl Operand<T>) {
                let loc = Loc::caller();
                check_rank(loc, self.param, R);
                let values = at.map(|tile| tile.value());
                let (mut operands, ty) = crate::ops::unify(loc, "scatter", &values, ir::Elem::I64);
                let tile = crate::ops::broadcast_to(loc, tile.operand(loc).value(), &ty.shape);
                operands.push(tile);
                effect(loc, OpKind::Scatter(self.param), &operands);
            }
        }

        impl<T: Elem> Until<$name<T>> {
            /// Writes a tile to the window that starts at `at`.
            #[track_caller]
            pub fn store(self, at: impl At, tile: impl Operand<T>) {
                let (loc, param) = (Loc::caller(), self.view.param);
                let mut operands = indices(loc, param, at.indices());
                operands.extend([self.end.value(), tile.operand(loc).value()]);
                effect(loc, OpKind::StoreUntil(param), &operands);
            }
        }

        impl<T: Arith> $name<T> {
            /// Adds to one element, atomically.
            #[track_caller]
            pub fn atomic_add(self, at: impl At, value: impl Operand<T>) {
                let loc = Loc::caller();
                let mut operands = indices(loc, self.param, at.indices());
                operands.push(value.operand(loc).value());
                effect(loc, OpKind::Atomic(self.param, Atomic::Add), &operands);
            }

            /// Lowers one element to `value`, atomically.
            #[track_caller]
            pub fn atomic_min(self, at: impl At, value: impl Operand<T>) {
                let loc = Loc::caller();
                let mut operands = indices(loc, self.param, at.indices());
                operands.push(value.operand(loc).value());
                effect(loc, OpKind::Atomic(self.param, Atomic::Min), &operands);
            }
        }
    };
}

reads!(In);
reads!(InOut);
writes!(Out);
writes!(InOut);

/// Where in a view: one index an axis, as an array, or as a tuple where some are known now and
/// some are not.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no place in a view",
    note = "write one index an axis: `[row, col]`, or `(row, 0)` if only some are tiles"
)]
pub trait At {
    /// The indices in order.
    fn indices(self) -> Vec<Index>;
}

impl<I: Into<Index>, const R: usize> At for [I; R] {
    fn indices(self) -> Vec<Index> {
        self.into_iter().map(Into::into).collect()
    }
}

macro_rules! at_tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Into<Index>),*> At for ($($name,)*) {
            #[expect(non_snake_case, reason = "variables named after their types")]
            fn indices(self) -> Vec<Index> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        }
    )*};
}

at_tuples! { (A B) (A B C) (A B C D) }

/// Declares a scalar parameter.
#[track_caller]
pub fn scalar<T: Arith>(b: &mut Builder, name: &str) -> usize {
    let kind = ParamKind::Scalar(T::ELEM);
    b.param(Param { name: name.to_owned(), kind, loc: Loc::caller() })
}

/// The value of a scalar parameter.
#[track_caller]
pub fn scalar_value<T: Arith>(param: usize) -> Tile<T> {
    push(Loc::caller(), OpKind::Scalar(param), &[], Type::scalar(T::ELEM))
}

/// Where a window of that shape starts.
fn window(loc: Loc, param: usize, at: Vec<Index>, shape: &[usize]) -> Vec<Value> {
    let at = indices(loc, param, at);
    if !shape.is_empty() && shape.len() > at.len() {
        let message = format!("a window of shape {shape:?} into {} axes", at.len());
        mistake("K008", loc, message, vec![]);
    }
    at
}

fn indices(loc: Loc, param: usize, at: Vec<Index>) -> Vec<Value> {
    check_rank(loc, param, at.len());
    at.into_iter().map(|index| index.tile().value()).collect()
}

fn check_rank(loc: Loc, param: usize, got: usize) {
    let (name, want) = with(|b| {
        let param = &b.kernel().params[param];
        let rank = match &param.kind {
            ParamKind::View { dims, .. } => dims.len(),
            ParamKind::Scalar(_) => 0,
        };
        (param.name.clone(), rank)
    });
    if got != want {
        mistake("K008", loc, format!("`{name}` has {want} axes, not {got}"), vec![]);
    }
}

fn row_count(loc: Loc, rows: Tile<i64>) -> usize {
    let ty = rows.ty();
    match *ty.shape.as_slice() {
        [count] => count,
        _ => {
            mistake("K003", loc, format!("row indices are a vector, not {ty}"), vec![]);
            ty.len()
        }
    }
}
