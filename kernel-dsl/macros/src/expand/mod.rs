//! What each macro writes in place of the author's item.

mod carry;
mod kernel;
mod variants;

pub(crate) use carry::carry;
pub(crate) use kernel::kernel;

use crate::errors::Errors;
use crate::rewrite;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ItemFn;

/// `#[tile_fn]`.
pub(crate) fn tile_fn(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    if !arguments.is_empty() {
        errors.at(&arguments, "`#[tile_fn]` takes no arguments");
    }
    let mut function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.add(error);
            return errors.into_tokens();
        }
    };
    let author = function.clone();
    if let Some(token) = &function.sig.asyncness {
        errors.at(token, "a function over tiles cannot be `async`");
    }
    if let Some(token) = &function.sig.constness {
        errors.at(token, "a function over tiles cannot be `const`: it records what a kernel does");
    }
    let bound = rewrite::parameters(&function.sig.inputs);
    rewrite::body(&mut function.block, bound, &mut errors);
    if !errors.is_empty() {
        // The signature stays, so that callers have no mistakes of their own.
        let (mut tokens, attrs, vis, sig) =
            (errors.into_tokens(), &author.attrs, &author.vis, &author.sig);
        quote! { #(#attrs)* #[allow(unused, reason = "its body has mistakes")] #vis #sig { ::core::panic!("not built") } }
            .to_tokens(&mut tokens);
        return tokens;
    }
    let allow = allow(function.sig.ident.span());
    quote! { #allow #[track_caller] #function }
}

/// Lints that are about rewritten code, not about the author's.
fn allow(span: Span) -> TokenStream {
    let attribute = quote_spanned! {span=>
        #[allow(
            non_snake_case,
            unused_assignments,
            unused_mut,
            unused_parens,
            unused_braces,
            clippy::blocks_in_conditions,
            clippy::double_parens,
            clippy::let_and_return,
            clippy::let_unit_value,
            clippy::needless_borrow,
            clippy::redundant_closure_call,
            clippy::unit_arg,
            clippy::unused_unit,
            reason = "operators, loops and branches are calls with closures here"
        )]
    };
    attribute
}
