//! Collects the author's mistakes, so that one run of rustc shows all of them.

use proc_macro2::TokenStream;
use quote::ToTokens;

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// Notes a mistake at these tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.add(syn::Error::new_spanned(tokens, message));
    }

    /// Notes a mistake.
    pub(crate) fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(known) => known.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Whether none was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The mistakes as `compile_error!` items.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.map(|error| error.into_compile_error()).unwrap_or_default()
    }
}
