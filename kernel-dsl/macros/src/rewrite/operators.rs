//! Operators: comparisons, so that tiles compare to tiles of truths, and arithmetic, so that a
//! mistake points at the operator and not at the start of its left side.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Expr, ExprMethodCall, UnOp};

/// Rewrites a binary expression whose sides are rewritten already.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Binary(binary) = expr else {
        return;
    };
    let (left, right) = (&binary.left, &binary.right);
    let span = binary.op.span();
    if let Some(op) = without_assignment(&binary.op) {
        let value = call(&op, span, left, right);
        let place = bare(left);
        *expr = Expr::Verbatim(quote_spanned! {span=> #place = #value });
    } else if !(is_literal(left) && is_literal(right)) {
        *expr = Expr::Verbatim(call(&binary.op, span, left, right));
    }
}

/// Methods of views whose first argument is one index an axis.
const INDEXED: [&str; 5] = ["tile", "at", "store", "atomic_add", "atomic_min"];

/// Lets an array of indices mix tiles with numbers known now: `x.at([row, 0])`.
pub(super) fn mix_indices(call: &mut ExprMethodCall) {
    if !INDEXED.iter().any(|name| call.method == name) {
        return;
    }
    if let Some(Expr::Array(indices)) = call.args.first_mut() {
        for index in &mut indices.elems {
            let span = index.span();
            let from = quote_spanned! {span=> ::tessera_kernel_dsl::Index::from(#index) };
            *index = Expr::Verbatim(from);
        }
    }
}

/// The operator of a compound assignment.
pub(super) fn without_assignment(op: &BinOp) -> Option<BinOp> {
    let span = op.span();
    Some(match op {
        BinOp::AddAssign(_) => BinOp::Add(syn::Token![+](span)),
        BinOp::SubAssign(_) => BinOp::Sub(syn::Token![-](span)),
        BinOp::MulAssign(_) => BinOp::Mul(syn::Token![*](span)),
        BinOp::DivAssign(_) => BinOp::Div(syn::Token![/](span)),
        BinOp::RemAssign(_) => BinOp::Rem(syn::Token![%](span)),
        BinOp::BitXorAssign(_) => BinOp::BitXor(syn::Token![^](span)),
        BinOp::BitAndAssign(_) => BinOp::BitAnd(syn::Token![&](span)),
        BinOp::BitOrAssign(_) => BinOp::BitOr(syn::Token![|](span)),
        BinOp::ShlAssign(_) => BinOp::Shl(syn::Token![<<](span)),
        BinOp::ShrAssign(_) => BinOp::Shr(syn::Token![>>](span)),
        _ => return None,
    })
}

fn call(op: &BinOp, span: Span, left: &Expr, right: &Expr) -> TokenStream {
    // A literal has no type of its own on the left, but takes that of a tile on its left.
    let (function, left, right) = match (is_literal(left), reversed(op), function(op)) {
        (true, Some(function), _) => (function, right, left),
        (false, _, Some(function)) => (function, left, right),
        _ => return quote! { #left #op #right },
    };
    let (left, right) = (bare(left), bare(right));
    let function: TokenStream = function.into_iter().map(|token| spanned(token, span)).collect();
    // The block has the span of the operator, so that what rustc blames on the left is shown there.
    quote_spanned! {span=> #function({ #left }, #right) }
}

fn spanned(mut token: proc_macro2::TokenTree, span: Span) -> proc_macro2::TokenTree {
    token.set_span(span);
    token
}

/// The function that takes the sides in the other order. There is none for shifts: what is
/// shifted needs a type.
fn reversed(op: &BinOp) -> Option<TokenStream> {
    let span = op.span();
    let mirrored = match op {
        BinOp::Sub(_) => return Some(quote! { ::tessera_kernel_dsl::reversed::SubFrom::sub_from }),
        BinOp::Div(_) => return Some(quote! { ::tessera_kernel_dsl::reversed::DivInto::div_into }),
        BinOp::Rem(_) => return Some(quote! { ::tessera_kernel_dsl::reversed::RemInto::rem_into }),
        BinOp::Lt(_) => BinOp::Gt(syn::Token![>](span)),
        BinOp::Le(_) => BinOp::Ge(syn::Token![>=](span)),
        BinOp::Gt(_) => BinOp::Lt(syn::Token![<](span)),
        BinOp::Ge(_) => BinOp::Le(syn::Token![<=](span)),
        BinOp::Shl(_) | BinOp::Shr(_) => return None,
        same => *same,
    };
    function(&mirrored)
}

fn function(op: &BinOp) -> Option<TokenStream> {
    Some(match op {
        BinOp::Eq(_) => quote! { ::tessera_kernel_dsl::cmp::Equal::eq },
        BinOp::Ne(_) => quote! { ::tessera_kernel_dsl::cmp::NotEqual::ne },
        BinOp::Lt(_) => quote! { ::tessera_kernel_dsl::cmp::Less::lt },
        BinOp::Le(_) => quote! { ::tessera_kernel_dsl::cmp::LessEqual::le },
        BinOp::Gt(_) => quote! { ::tessera_kernel_dsl::cmp::Greater::gt },
        BinOp::Ge(_) => quote! { ::tessera_kernel_dsl::cmp::GreaterEqual::ge },
        BinOp::Add(_) => quote! { ::core::ops::Add::add },
        BinOp::Sub(_) => quote! { ::core::ops::Sub::sub },
        BinOp::Mul(_) => quote! { ::core::ops::Mul::mul },
        BinOp::Div(_) => quote! { ::core::ops::Div::div },
        BinOp::Rem(_) => quote! { ::core::ops::Rem::rem },
        BinOp::BitAnd(_) | BinOp::And(_) => quote! { ::core::ops::BitAnd::bitand },
        BinOp::BitOr(_) | BinOp::Or(_) => quote! { ::core::ops::BitOr::bitor },
        BinOp::BitXor(_) => quote! { ::core::ops::BitXor::bitxor },
        BinOp::Shl(_) => quote! { ::core::ops::Shl::shl },
        BinOp::Shr(_) => quote! { ::core::ops::Shr::shr },
        _ => return None,
    })
}

/// Without parentheses, which an argument does not need and rustc would warn of.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) if paren.attrs.is_empty() => bare(&paren.expr),
        _ => expr,
    }
}

/// Whether rustc must find the type elsewhere: then operators stay as they are, because a call
/// would not say that both sides have one type.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            syn::Lit::Int(int) => int.suffix().is_empty(),
            syn::Lit::Float(float) => float.suffix().is_empty(),
            _ => false,
        },
        Expr::Paren(paren) => is_literal(&paren.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && is_literal(&unary.expr),
        Expr::Binary(binary) => is_literal(&binary.left) && is_literal(&binary.right),
        _ => false,
    }
}
