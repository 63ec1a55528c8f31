//! What the author wrote, checked as far as syntax goes.

mod settings;
mod signature;

pub(crate) use settings::{Settings, Variants};
pub(crate) use signature::{Extent, Param, Shape, Signature};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::Ident;
use syn::ext::IdentExt;

/// An identifier without `r#`.
pub(crate) fn text(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// Whether an identifier of that name occurs in the tokens.
pub(crate) fn mentions(tokens: &impl ToTokens, name: &Ident) -> bool {
    fn search(tokens: TokenStream, name: &Ident) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == *name,
            TokenTree::Group(group) => search(group.stream(), name),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        })
    }
    search(tokens.to_token_stream(), name)
}
