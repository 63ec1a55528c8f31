//! `#[kernel]`: the function becomes a builder, and a function that gives the registry entry.

use super::{allow, variants};
use crate::errors::Errors;
use crate::parse::{Extent, Param, Settings, Shape, Signature, mentions, text};
use crate::rewrite::{self, Binding};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Block, Expr, Ident, ItemFn};

/// `#[kernel(..)]`.
pub(crate) fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let settings = Settings::parse(arguments, &mut errors);
    let function: ItemFn = match syn::parse2(item) {
        Ok(function) => function,
        Err(error) => {
            errors.add(error);
            return errors.into_tokens();
        }
    };
    let signature = Signature::parse(&function.sig, &mut errors);
    let kernel = Kernel { settings, signature, function };
    let mut body = (*kernel.function.block).clone();
    let constants = kernel.constants(&mut errors);
    let bound = kernel.bound();
    let mut grid = kernel.settings.grid.clone();
    for axis in &mut grid {
        rewrite::expr(axis, bound.clone(), &mut errors);
    }
    rewrite::body(&mut body, bound, &mut errors);
    let every = variants::every(&kernel.settings, &kernel.signature, &constants, &mut errors);
    if !errors.is_empty() {
        let mut tokens = errors.into_tokens();
        kernel.entry(None).to_tokens(&mut tokens);
        return tokens;
    }
    let one = kernel.one(&constants, &grid, &body);
    kernel.entry(Some(quote! { #one #every }))
}

struct Kernel {
    settings: Settings,
    signature: Signature,
    function: ItemFn,
}

impl Kernel {
    /// The constants that the body, the grid or a view needs.
    fn constants(&self, errors: &mut Errors) -> Vec<Ident> {
        let lists = &self.settings.variants;
        let mut known: Vec<&Ident> = Vec::new();
        for name in lists.iter().flat_map(|list| &list.axes).flat_map(|axis| &axis.names) {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        let used = known.into_iter().filter(|name| {
            let views = self.signature.axis_names().contains(name);
            views
                || self.settings.grid.iter().any(|axis| mentions(axis, name))
                || mentions(&self.function.block, name)
        });
        let used: Vec<Ident> = used.cloned().collect();
        for list in lists.iter().filter(|list| list.targets.as_ref().is_none_or(|t| !t.is_empty()))
        {
            for name in &used {
                if !list.axes.iter().any(|axis| axis.names.contains(name)) {
                    let message =
                        format!("the kernel needs `{name}`, which this list does not set");
                    errors.add(syn::Error::new(list.span, message));
                }
            }
        }
        used
    }

    /// The dims of the views: names that are no constants.
    fn dims(&self) -> Vec<&Ident> {
        let names = self.signature.axis_names().into_iter();
        names.filter(|name| !self.is_constant(name)).collect()
    }

    fn is_constant(&self, name: &Ident) -> bool {
        let mut axes = self.settings.variants.iter().flat_map(|list| &list.axes);
        axes.any(|axis| axis.names.contains(name))
    }

    fn bound(&self) -> Vec<Binding> {
        let params = self.signature.params.iter().map(|param| &param.name);
        params.chain(self.dims()).map(|name| Binding::fixed(name.clone())).collect()
    }

    /// The entry, which builds nothing where the kernel has mistakes.
    fn entry(&self, builders: Option<TokenStream>) -> TokenStream {
        let (attrs, vis, name) =
            (&self.function.attrs, &self.function.vis, &self.function.sig.ident);
        let span = name.span();
        let text = text(name);
        let targets = variants::targets(&self.settings);
        let class = self.settings.class.clone().unwrap_or_else(|| Ident::new("Bounded", span));
        let build = match builders {
            Some(_) => quote_spanned! {span=> __build_every_variant },
            None => quote_spanned! {span=> |_| ::std::vec::Vec::new() },
        };
        let dsl = quote_spanned! {span=> ::tessera_kernel_dsl };
        quote_spanned! {span=>
            #(#attrs)*
            #vis fn #name() -> #dsl::Entry {
                #builders
                #dsl::Entry {
                    name: #text,
                    loc: #dsl::ir::Loc::caller(),
                    targets: &[#(#dsl::Target::#targets),*],
                    class: #dsl::Class::#class,
                    build: #build,
                }
            }
        }
    }

    /// The function that builds one variant.
    fn one(&self, constants: &[Ident], grid: &[Expr], body: &Block) -> TokenStream {
        let sig = &self.function.sig;
        let span = sig.ident.span();
        let (generics, where_clause) = (&sig.generics, &sig.generics.where_clause);
        let name = text(&sig.ident);
        let formats = &self.signature.formats;
        let params: Vec<&Ident> = self.signature.params.iter().map(|param| &param.name).collect();
        let declared = self.signature.params.iter().map(|param| self.declare(param));
        let numbers = self.signature.params.iter().filter_map(|param| match &param.shape {
            Shape::Number(ty) if mentions(&self.function.block, &param.name) => {
                let (name, span) = (&param.name, param.name.span());
                Some(quote_spanned! {span=>
                    let #name = ::tessera_kernel_dsl::scalar_value::<#ty>(#name);
                })
            }
            _ => None,
        });
        let extents = grid.iter().map(|axis| {
            let span = axis.span();
            quote_spanned! {span=> ::tessera_kernel_dsl::Index::from(#axis).tile() }
        });
        let grid_dims = self.used_dims(&quote! { #(#grid)* });
        let body_dims = self.used_dims(body);
        let count = constants.len();
        let allow = allow(span);
        let local = Span::mixed_site().located_at(span);
        let (described, builder) = (Ident::new("described", local), Ident::new("builder", local));
        let dsl = quote_spanned! {span=> ::tessera_kernel_dsl };
        quote_spanned! {span=>
            #allow
            fn __build_one_variant #generics (
                #described: &[(::std::string::String, usize)],
                [#(#constants),*]: [usize; #count],
            ) -> ::core::result::Result<#dsl::ir::Kernel, ::std::vec::Vec<#dsl::ir::BuildError>>
            #where_clause
            {
                let mut #builder = #dsl::ir::Builder::new(#name, #dsl::ir::Loc::caller());
                #builder.describe(
                    ::std::vec![#(#dsl::format_name::<#formats>()),*],
                    #described.to_vec(),
                );
                #dsl::trace(
                    #builder,
                    |#builder| { let _ = &#builder; (#(#declared,)*) },
                    |_| { #(#grid_dims)* ::std::vec![#(#extents),*] },
                    |(#(#params,)*)| { #(#numbers)* #(#body_dims)* #body },
                )
            }
        }
    }

    fn declare(&self, param: &Param) -> TokenStream {
        let span = param.name.span();
        let builder =
            Ident::new("builder", Span::mixed_site().located_at(self.function.sig.ident.span()));
        let name = text(&param.name);
        match &param.shape {
            Shape::View(path, elem, axes) => {
                let axes = axes.iter().map(|axis| self.axis(axis, span));
                quote_spanned! {span=> #path::<#elem>::declare(#builder, #name, &[#(#axes),*]) }
            }
            Shape::Number(ty) => {
                quote_spanned! {span=> ::tessera_kernel_dsl::scalar::<#ty>(#builder, #name) }
            }
        }
    }

    fn axis(&self, axis: &Extent, span: Span) -> TokenStream {
        let (constants, dims): (Vec<&Ident>, Vec<&Ident>) =
            axis.names.iter().partition(|name| self.is_constant(name));
        let dims = dims.into_iter().map(text);
        let constant = axis.constant;
        quote_spanned! {span=> (&[#(#dims),*], #constant #(+ #constants)*) }
    }

    fn used_dims(&self, code: &impl ToTokens) -> Vec<TokenStream> {
        let dims = self.dims().into_iter().filter(|dim| mentions(code, dim));
        dims.map(|dim| {
            let (span, name) = (dim.span(), text(dim));
            quote_spanned! {span=> let #dim = ::tessera_kernel_dsl::dim(#name); }
        })
        .collect()
    }
}
