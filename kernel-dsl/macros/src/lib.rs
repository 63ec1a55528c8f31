//! The attribute macros of the kernel language: a kernel's function in, a builder function out.
//!
//! Only names and syntax are known here: what is a tile, and whether a loop runs while the kernel
//! is built or while it runs, is left to rustc and to the traits of the facade. Every token that
//! is written for the author carries the span of a token of the author, so that errors of rustc
//! and of the build point there.

mod errors;
mod expand;
mod parse;
mod rewrite;

#[cfg(test)]
mod fuzz;

use proc_macro::TokenStream;

/// Turns a function over tiles into one that gives the kernel's registry entry.
///
/// `#[kernel(grid = (..), formats(W = list), targets(..), variants(..), require(..), class = ..)]`
/// on `fn name<W: Packed>(x: &In<f32, {[M, K]}>, .., y: &mut Out<f32, {[M, N]}>) { .. }`.
///
/// - `grid`: programs along each axis, in terms of dims and constants. Required.
/// - `formats`: for each type parameter, the macro that lists its formats: one that expands
///   `list! { |W| expression }` to `{ type W = Format; expression; }` for each of them.
/// - `targets`: of `cpu`, `sm90a` and `sm100a`; all if absent.
/// - `variants`: `cpu: BM = [4, 8]; gpu: (BM, BN) = [(16, 64)], WARPS = [4, 8]`, crossed.
/// - `require`: a condition on the constants; combinations that break it are not built.
/// - `class`: `exact`, `model` or `bounded` numerics; `bounded` if absent.
///
/// In the body views are `Copy` handles, dims are `i64` scalars, constants are `usize`. `for` over
/// `range(..)` is a loop of the kernel, over anything else it unrolls; `if` on a truth of the
/// kernel is a branch, on a `bool` it chooses while the kernel is built. Variables declared
/// `let mut` outside are carried through both. `&&` and `||` evaluate both sides.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel(arguments.into(), item.into()).into()
}

/// Turns a function over tiles into one that kernels call while they are built.
///
/// The body is rewritten as that of a kernel, the signature stays. Mistakes found when the kernel
/// is built are reported where the function is called, except inside its loops and branches.
#[proc_macro_attribute]
pub fn tile_fn(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::tile_fn(arguments.into(), item.into()).into()
}

/// Lets a struct of tiles be carried through loops and branches.
#[proc_macro_derive(Carry)]
pub fn carry(item: TokenStream) -> TokenStream {
    expand::carry(item.into()).into()
}
