//! The signature of a kernel: its formats, views and numbers.

use super::text;
use crate::errors::Errors;
use syn::spanned::Spanned;
use syn::{
    BinOp, Expr, FnArg, GenericArgument, GenericParam, Ident, Lit, Pat, PathArguments, ReturnType,
    Stmt, Type, TypePath,
};

const NUMBERS: [&str; 5] = ["f32", "i32", "i64", "u32", "u64"];
const PARAMS: &str = "a parameter is `&In<T, {[dims]}>`, `&mut Out<T, {[dims]}>`, \
                      `&mut InOut<T, {[dims]}>` or a number (f32, i32, i64, u32, u64)";

/// The parameters of a kernel.
#[derive(Debug)]
pub(crate) struct Signature {
    /// Parameters in order.
    pub(crate) params: Vec<Param>,
    /// Type parameters in order.
    pub(crate) formats: Vec<Ident>,
}

/// A parameter.
#[derive(Debug)]
pub(crate) struct Param {
    /// Its name.
    pub(crate) name: Ident,
    /// What it is.
    pub(crate) shape: Shape,
}

/// What a parameter is.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A view: the type without arguments, the element, the axes.
    View(TypePath, Box<Type>, Vec<Extent>),
    /// A number of that type.
    Number(Box<Type>),
}

/// A sum of names and numbers.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    /// Dims or constants.
    pub(crate) names: Vec<Ident>,
    /// The sum of the numbers.
    pub(crate) constant: usize,
}

impl Signature {
    /// Reads a signature; what cannot be read is noted and left out.
    pub(crate) fn parse(sig: &syn::Signature, errors: &mut Errors) -> Self {
        refuse_qualifiers(sig, errors);
        let mut formats = Vec::new();
        for generic in &sig.generics.params {
            match generic {
                GenericParam::Type(param) => formats.push(param.ident.clone()),
                other => errors.at(other, "a kernel's generics are formats, such as `W: Packed`"),
            }
        }
        let mut params: Vec<Param> = Vec::new();
        for input in &sig.inputs {
            match param(input, errors) {
                Ok(param) if params.iter().any(|known| known.name == param.name) => {
                    errors.at(&param.name, format!("two parameters are named `{}`", param.name));
                }
                Ok(param) => params.push(param),
                Err(error) => errors.add(error),
            }
        }
        Self { params, formats }
    }

    /// The names in the axes of all views, each once, in order.
    pub(crate) fn axis_names(&self) -> Vec<&Ident> {
        let mut names: Vec<&Ident> = Vec::new();
        for param in &self.params {
            if let Shape::View(_, _, axes) = &param.shape {
                for name in axes.iter().flat_map(|axis| &axis.names) {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
        }
        names
    }
}

fn refuse_qualifiers(sig: &syn::Signature, errors: &mut Errors) {
    let mut refuse = |tokens: Option<&dyn quote::ToTokens>, what: &str| {
        if let Some(tokens) = tokens {
            errors.at(tokens, format!("a kernel is a plain function, not {what}"));
        }
    };
    refuse(sig.constness.as_ref().map(|token| token as _), "`const`");
    refuse(sig.asyncness.as_ref().map(|token| token as _), "`async`");
    refuse(sig.unsafety.as_ref().map(|token| token as _), "`unsafe`");
    refuse(sig.abi.as_ref().map(|token| token as _), "`extern`");
    refuse(sig.variadic.as_ref().map(|token| token as _), "variadic");
    if let ReturnType::Type(_, ty) = &sig.output {
        errors.at(ty, "a kernel returns nothing: it stores to an `Out`");
    }
}

fn param(input: &FnArg, _errors: &mut Errors) -> syn::Result<Param> {
    let input = match input {
        FnArg::Typed(input) => input,
        FnArg::Receiver(_) => {
            return Err(syn::Error::new(input.span(), "a kernel has no `self`"));
        }
    };
    let name = match &*input.pat {
        Pat::Ident(pat) if pat.subpat.is_none() && pat.by_ref.is_none() => {
            if pat.mutability.is_some() {
                let message = "a kernel's parameter does not change: `let mut` another variable";
                return Err(syn::Error::new_spanned(pat, message));
            }
            pat.ident.clone()
        }
        other => return Err(syn::Error::new(other.span(), "a kernel's parameter is a plain name")),
    };
    let shape = match &*input.ty {
        Type::Reference(reference) => view(reference)?,
        Type::Path(path) if NUMBERS.iter().any(|number| path.path.is_ident(number)) => {
            Shape::Number(input.ty.clone())
        }
        other => return Err(syn::Error::new_spanned(other, PARAMS)),
    };
    Ok(Param { name, shape })
}

fn view(reference: &syn::TypeReference) -> syn::Result<Shape> {
    let refuse = || syn::Error::new_spanned(reference, PARAMS);
    let Type::Path(path) = &*reference.elem else {
        return Err(refuse());
    };
    let mut path = path.clone();
    let last = path.path.segments.last_mut().ok_or_else(refuse)?;
    let kind = text(&last.ident);
    let mutable = match kind.as_str() {
        "In" => false,
        "Out" | "InOut" => true,
        _ => return Err(refuse()),
    };
    if mutable != reference.mutability.is_some() {
        let amper = if mutable { "&mut " } else { "&" };
        let message = format!("`{kind}` is taken as `{amper}{kind}<..>`");
        return Err(syn::Error::new_spanned(reference, message));
    }
    let PathArguments::AngleBracketed(args) = std::mem::take(&mut last.arguments) else {
        return Err(refuse());
    };
    let args: Vec<GenericArgument> = args.args.into_iter().collect();
    let [GenericArgument::Type(elem), GenericArgument::Const(dims)] = args.as_slice() else {
        return Err(refuse());
    };
    if let Type::TraitObject(object) = elem {
        return Err(syn::Error::new_spanned(object, "an element is one type, not `dyn`"));
    }
    Ok(Shape::View(path, Box::new(elem.clone()), axes(dims)?))
}

/// `{[M, DC + DR, 3]}`.
fn axes(dims: &Expr) -> syn::Result<Vec<Extent>> {
    let message = "the dims of a view are written `{[M, K]}`: names, numbers and sums of them";
    let refuse = || syn::Error::new_spanned(dims, message);
    let Expr::Block(block) = dims else {
        return Err(refuse());
    };
    let [Stmt::Expr(Expr::Array(array), None)] = block.block.stmts.as_slice() else {
        return Err(refuse());
    };
    let mut axes = Vec::new();
    for axis in &array.elems {
        let mut extent = Extent::default();
        sum(axis, &mut extent)?;
        axes.push(extent);
    }
    Ok(axes)
}

fn sum(expr: &Expr, extent: &mut Extent) -> syn::Result<()> {
    let message = "an axis is a name, a number or a sum of them";
    match expr {
        Expr::Binary(binary) if matches!(binary.op, BinOp::Add(_)) => {
            sum(&binary.left, extent)?;
            sum(&binary.right, extent)
        }
        Expr::Paren(paren) => sum(&paren.expr, extent),
        Expr::Path(path) => {
            let name =
                path.path.get_ident().ok_or_else(|| syn::Error::new_spanned(expr, message))?;
            extent.names.push(name.clone());
            Ok(())
        }
        Expr::Lit(lit) => {
            let Lit::Int(int) = &lit.lit else {
                return Err(syn::Error::new_spanned(expr, message));
            };
            let total = extent.constant.checked_add(int.base10_parse()?);
            extent.constant =
                total.ok_or_else(|| syn::Error::new_spanned(expr, "this axis is too long"))?;
            Ok(())
        }
        other => Err(syn::Error::new_spanned(other, message)),
    }
}
