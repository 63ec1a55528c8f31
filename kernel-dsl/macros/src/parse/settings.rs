//! The arguments of `#[kernel(..)]`.

use super::text;
use crate::errors::Errors;
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, Ident, Path, Result, Token, parenthesized};

const SETTINGS: &str = "grid, formats, targets, variants, require and class";
const TARGETS: &str = "cpu, sm90a and sm100a";

/// What `#[kernel(..)]` says.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// Programs along each axis.
    pub(crate) grid: Vec<Expr>,
    /// For each type parameter, the macro that lists its formats.
    pub(crate) formats: Vec<(Ident, Path)>,
    /// Names of variants of `Target`.
    pub(crate) targets: Vec<Ident>,
    /// Lists of tuning constants.
    pub(crate) variants: Vec<Variants>,
    /// Conditions on the constants.
    pub(crate) require: Vec<Expr>,
    /// A variant of `Class`.
    pub(crate) class: Option<Ident>,
}

/// Tuning constants of some targets; the axes are crossed.
#[derive(Debug)]
pub(crate) struct Variants {
    /// Names of variants of `Target`; `None` for all that the kernel has.
    pub(crate) targets: Option<Vec<Ident>>,
    /// Where to point when the list lacks something.
    pub(crate) span: Span,
    /// The crossed lists.
    pub(crate) axes: Vec<Axis>,
}

/// `BM = [4, 8]` or `(BM, BN) = [(1, 64), (4, 32)]`.
#[derive(Debug)]
pub(crate) struct Axis {
    /// The constants that change together.
    pub(crate) names: Vec<Ident>,
    /// Their values, in the order of the names.
    pub(crate) values: Vec<Vec<Expr>>,
}

impl Settings {
    /// Reads the arguments; what cannot be read is noted and left out.
    pub(crate) fn parse(arguments: TokenStream, errors: &mut Errors) -> Self {
        let mut settings = Self::default();
        let mut seen: Vec<Ident> = Vec::new();
        let result = Parser::parse2(
            |input: ParseStream<'_>| {
                while !input.is_empty() {
                    let name = Ident::parse_any(input)?;
                    if seen.contains(&name) {
                        errors.at(&name, format!("`{name}` is set twice"));
                    }
                    if let Err(error) = settings.setting(&name, input, errors) {
                        errors.add(error);
                        skip(input)?;
                    }
                    seen.push(name);
                    if !input.is_empty() {
                        input.parse::<Token![,]>()?;
                    }
                }
                Ok(())
            },
            arguments,
        );
        if let Err(error) = result {
            errors.add(error);
        }
        if !seen.iter().any(|name| name == "grid") {
            let message = "a kernel needs `grid = (..)`: the number of programs along each axis";
            errors.add(syn::Error::new(Span::call_site(), message));
        }
        settings
    }

    fn setting(&mut self, name: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> Result<()> {
        match text(name).as_str() {
            "grid" => {
                input.parse::<Token![=]>()?;
                self.grid = match input.parse()? {
                    Expr::Tuple(tuple) => tuple.elems.into_iter().collect(),
                    Expr::Paren(paren) => vec![*paren.expr],
                    one => vec![one],
                };
                if !(1..=3).contains(&self.grid.len()) {
                    errors.at(name, "a grid has one to three axes");
                }
            }
            "formats" => {
                let list = inside(input, Punctuated::<Listed, Token![,]>::parse_terminated)?;
                self.formats = list.into_iter().map(|Listed(name, list)| (name, list)).collect();
            }
            "targets" => {
                let list = inside(input, idents)?;
                self.targets =
                    list.iter().filter_map(|name| target(name, errors)).flatten().collect();
            }
            "variants" => {
                self.variants = inside(input, |content| lists(content, errors))?;
            }
            "require" => {
                let list = inside(input, Punctuated::<Expr, Token![,]>::parse_terminated)?;
                self.require.extend(list);
            }
            "class" => {
                input.parse::<Token![=]>()?;
                self.class = class(&input.call(Ident::parse_any)?, errors);
            }
            _ => {
                let message = format!("`{name}` is no setting of a kernel: there are {SETTINGS}");
                return Err(syn::Error::new_spanned(name, message));
            }
        }
        Ok(())
    }
}

struct Listed(Ident, Path);

impl syn::parse::Parse for Listed {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Self(name, input.call(Path::parse_mod_style)?))
    }
}

/// Reads what stands in parentheses; after a mistake, the rest of it is not looked at.
fn inside<T>(input: ParseStream<'_>, read: impl FnOnce(ParseStream<'_>) -> Result<T>) -> Result<T> {
    let content;
    parenthesized!(content in input);
    let result = read(&content);
    if result.is_err() {
        content.parse::<TokenStream>()?;
    }
    result
}

fn idents(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let list = Punctuated::<Ident, Token![,]>::parse_terminated(input)?;
    Ok(list.into_iter().collect())
}

/// Skips to the comma after a setting that cannot be read.
fn skip(input: ParseStream<'_>) -> Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn target(name: &Ident, errors: &mut Errors) -> Option<Vec<Ident>> {
    let known: &[&str] = match text(name).as_str() {
        "cpu" => &["Cpu"],
        "gpu" => &["Sm90a", "Sm100a"],
        "sm90a" => &["Sm90a"],
        "sm100a" => &["Sm100a"],
        _ => {
            errors.at(
                name,
                format!(
                    "`{name}` is no target: there are {TARGETS}, the latter two together `gpu`"
                ),
            );
            return None;
        }
    };
    Some(known.iter().map(|known| Ident::new(known, name.span())).collect())
}

fn class(name: &Ident, errors: &mut Errors) -> Option<Ident> {
    let known = match text(name).as_str() {
        "exact" => "Exact",
        "model" => "Model",
        "bounded" => "Bounded",
        _ => {
            errors.at(name, format!("`{name}` is no class: there are exact, model and bounded"));
            return None;
        }
    };
    Some(Ident::new(known, name.span()))
}

/// Lists of constants, separated by `;`.
fn lists(input: ParseStream<'_>, errors: &mut Errors) -> Result<Vec<Variants>> {
    let mut lists = Vec::new();
    while !input.is_empty() {
        match variants(input, errors) {
            Ok(list) => lists.push(list),
            Err(error) => {
                errors.add(error);
                while !input.is_empty() && !input.peek(Token![;]) {
                    input.parse::<TokenTree>()?;
                }
            }
        }
        if !input.is_empty() {
            input.parse::<Token![;]>()?;
        }
    }
    Ok(lists)
}

fn variants(input: ParseStream<'_>, errors: &mut Errors) -> Result<Variants> {
    let span = input.span();
    let mut targets = None;
    if input.peek(Ident) && input.peek2(Token![:]) {
        let name: Ident = input.parse()?;
        input.parse::<Token![:]>()?;
        targets = Some(target(&name, errors).unwrap_or_default());
    }
    let mut axes = Vec::new();
    while !input.is_empty() && !input.peek(Token![;]) {
        axes.push(axis(input, errors)?);
        if !input.is_empty() && !input.peek(Token![;]) {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(Variants { targets, span, axes })
}

fn axis(input: ParseStream<'_>, errors: &mut Errors) -> Result<Axis> {
    let names: Vec<Ident> =
        if input.peek(syn::token::Paren) { inside(input, idents)? } else { vec![input.parse()?] };
    input.parse::<Token![=]>()?;
    let list: syn::ExprArray = match input.parse()? {
        Expr::Array(list) => list,
        other => {
            let message = "the values of a constant are a list, such as `[4, 8]`";
            return Err(syn::Error::new_spanned(other, message));
        }
    };
    let mut values = Vec::new();
    for value in list.elems {
        match value {
            Expr::Tuple(tuple) if tuple.elems.len() == names.len() => {
                values.push(tuple.elems.into_iter().collect());
            }
            one if names.len() == 1 && !matches!(one, Expr::Tuple(_)) => values.push(vec![one]),
            other => {
                let message = format!("{} constants need as many values here", names.len());
                errors.add(syn::Error::new(other.span(), message));
            }
        }
    }
    Ok(Axis { names, values })
}
