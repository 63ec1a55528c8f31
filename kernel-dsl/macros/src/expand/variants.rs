//! The function that builds every variant: loops over constants around loops over formats.

use crate::errors::Errors;
use crate::parse::{Settings, Signature, Variants, mentions, text};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Expr, Ident};

/// The targets of a kernel.
pub(super) fn targets(settings: &Settings) -> Vec<Ident> {
    if !settings.targets.is_empty() {
        return settings.targets.clone();
    }
    ["Cpu", "Sm90a", "Sm100a"].map(|name| Ident::new(name, Span::call_site())).to_vec()
}

/// The function, named `__build_every_variant`.
pub(super) fn every(
    settings: &Settings,
    signature: &Signature,
    constants: &[Ident],
    errors: &mut Errors,
) -> TokenStream {
    check_formats(settings, signature, errors);
    let built = local("built");
    let target = local("target");
    let described = local("described");
    let formats = &signature.formats;
    let generics = (!formats.is_empty()).then(|| quote! { ::<#(#formats),*> });
    let mut one = quote! {
        #built.push(__build_one_variant #generics (&#described, [#(#constants),*]))
    };
    for name in formats.iter().rev() {
        if let Some((_, list)) = settings.formats.iter().find(|(known, _)| known == name) {
            one = quote! { { #list! { |#name| #one } } };
        }
    }
    let all = targets(settings);
    let lists: Vec<TokenStream> = if settings.variants.is_empty() {
        let require = requirements(settings, &[]);
        vec![quote! {
            if ::core::matches!(#target, #(::tessera_kernel_dsl::Target::#all)|*) #require {
                let #described: ::tessera_kernel_dsl::Consts = ::std::vec::Vec::new();
                #one;
            }
        }]
    } else {
        let lists = settings.variants.iter();
        lists.map(|list| crossed(settings, list, &all, one.clone())).collect()
    };
    let result = quote! {
        ::core::result::Result<::tessera_kernel_dsl::ir::Kernel, ::std::vec::Vec<::tessera_kernel_dsl::ir::BuildError>>
    };
    quote! {
        #[allow(
            non_snake_case,
            unused_braces,
            unused_variables,
            clippy::single_element_loop,
            clippy::too_many_lines,
            clippy::vec_init_then_push,
            reason = "lists may have any length, and none has to use all constants"
        )]
        fn __build_every_variant(#target: ::tessera_kernel_dsl::Target) -> ::std::vec::Vec<#result> {
            let mut #built: ::std::vec::Vec<#result> = ::std::vec::Vec::new();
            #(#lists)*
            #built
        }
    }
}

/// One list, its axes crossed.
fn crossed(settings: &Settings, list: &Variants, all: &[Ident], one: TokenStream) -> TokenStream {
    let target = local("target");
    let described = local("described");
    let names: Vec<&Ident> = list.axes.iter().flat_map(|axis| &axis.names).collect();
    let texts = names.iter().map(|name| text(name));
    let require = requirements(settings, &names);
    let mut code = quote! {
        if true #require {
            let #described: ::tessera_kernel_dsl::Consts =
                ::std::vec![#((::std::string::ToString::to_string(#texts), #names)),*];
            #one;
        }
    };
    for axis in list.axes.iter().rev() {
        let (names, values) = (&axis.names, axis.values.iter().map(|value| tuple(value)));
        let (count, rows) = (axis.names.len(), local("rows"));
        code = quote! {
            let #rows: &[[usize; #count]] = &[#(#values),*];
            for &[#(#names),*] in #rows { #code }
        };
    }
    let targets = list.targets.as_deref().unwrap_or(all);
    let targets: Vec<&Ident> = targets.iter().filter(|target| all.contains(target)).collect();
    if targets.is_empty() {
        return TokenStream::new();
    }
    quote! {
        if ::core::matches!(#target, #(::tessera_kernel_dsl::Target::#targets)|*) { #code }
    }
}

fn tuple(values: &[Expr]) -> TokenStream {
    quote! { [#(#values),*] }
}

/// The conditions whose names are all among these, each after `&&`. One about constants that a
/// list does not have says nothing about it.
fn requirements(settings: &Settings, names: &[&Ident]) -> TokenStream {
    let mut every: Vec<&Ident> = Vec::new();
    for list in &settings.variants {
        every.extend(list.axes.iter().flat_map(|axis| &axis.names));
    }
    let mut code = TokenStream::new();
    for condition in &settings.require {
        let lacks = every.iter().any(|name| !names.contains(name) && mentions(condition, name));
        if !lacks {
            code.extend(quote! { && (#condition) });
        }
    }
    code
}

fn check_formats(settings: &Settings, signature: &Signature, errors: &mut Errors) {
    for name in &signature.formats {
        if !settings.formats.iter().any(|(known, _)| known == name) {
            let message = format!("`{name}` needs a list of its formats: `formats({name} = list)`");
            errors.at(name, message);
        }
    }
    for (name, _) in &settings.formats {
        if !signature.formats.contains(name) {
            errors.at(name, format!("the kernel has no type parameter `{name}`"));
        }
    }
}

/// A variable of the expansion, which the author's code cannot see.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
