//! `#[derive(Carry)]`: a struct is carried as its fields are.

use crate::errors::Errors;
use crate::parse::mentions;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Ident, Index, Member};

/// The implementation.
pub(crate) fn carry(item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => {
            errors.add(error);
            return errors.into_tokens();
        }
    };
    let Data::Struct(data) = &input.data else {
        let message = "only structs can be carried: which variant it is may not change in a kernel";
        errors.at(&input.ident, message);
        return errors.into_tokens();
    };
    let values = Ident::new("values", Span::mixed_site());
    let trait_ = quote! { ::tessera_kernel_dsl::Carry };
    let (mut flatten, mut rebuild, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
    for (i, field) in data.fields.iter().enumerate() {
        let (ty, span) = (&field.ty, field.ty.span());
        let member = match &field.ident {
            Some(name) => Member::Named(name.clone()),
            None => Member::Unnamed(Index::from(i)),
        };
        flatten.push(quote_spanned! {span=> #trait_::flatten(&self.#member, #values); });
        rebuild.push(quote_spanned! {span=> #member: #trait_::rebuild(&self.#member, #values) });
        if input.generics.type_params().any(|param| mentions(ty, &param.ident)) {
            bounds.push(quote_spanned! {span=> #ty: #trait_ });
        }
    }
    let name = &input.ident;
    let (generics, arguments, where_clause) = input.generics.split_for_impl();
    let known = where_clause.map(|clause| &clause.predicates).into_iter().flatten();
    quote! {
        impl #generics #trait_ for #name #arguments where #(#known,)* #(#bounds,)* {
            fn flatten(&self, #values: &mut ::std::vec::Vec<::tessera_kernel_dsl::ir::Value>) {
                let _ = &#values;
                #(#flatten)*
            }

            fn rebuild(
                &self,
                #values: &mut dyn ::core::iter::Iterator<Item = ::tessera_kernel_dsl::ir::Value>,
            ) -> Self {
                let _ = &#values;
                Self { #(#rebuild),* }
            }
        }
    }
}
