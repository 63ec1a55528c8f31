//! Loops and branches: calls that get each body as a closure and carry what it changes.

use super::Rewriter;
use super::carried::{Changes, Code, changes};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{Expr, ExprForLoop, ExprIf, Ident, Pat};

impl Rewriter<'_> {
    /// Rewrites a `for` or an `if`, with its value if that may be used.
    pub(super) fn flow(&mut self, expr: &mut Expr, valued: bool) {
        let rewritten = match expr {
            Expr::ForLoop(each) => self.each(each),
            Expr::If(choice) => self.branch(choice, valued),
            _ => return,
        };
        *expr = Expr::Verbatim(rewritten);
    }

    fn each(&mut self, each: &mut ExprForLoop) -> TokenStream {
        if let Some(label) = &each.label {
            self.errors.at(label, "a loop of a kernel has no label: nothing could jump to it");
        }
        self.visit_expr_mut(&mut each.expr);
        let span = each.for_token.span();
        let found = changes(&self.scope, [&*each.pat], [Code::Block(&each.body)]);
        let carried = self.carried(found);
        // As a parameter of a closure, `A | B` would end at the bar.
        let pat = match &*each.pat {
            Pat::Or(pat) => quote! { (#pat) },
            pat => quote! { #pat },
        };
        let body = &mut each.body;
        self.scoped([&*each.pat], |this| this.visit_block_mut(body));
        let (range, tuples) = (&each.expr, Tuples::of(span, &carried));
        let Tuples { values, pattern, .. } = &tuples;
        let call = quote_spanned! {span=>
            ::tessera_kernel_dsl::Loop::each(#range, #values, |#pat, #pattern| { #body #values })
        };
        if carried.is_empty() {
            call
        } else {
            quote_spanned! {span=> #values = #call }
        }
    }

    fn branch(&mut self, choice: &mut ExprIf, valued: bool) -> TokenStream {
        if let Expr::Let(pattern) = &*choice.cond {
            let message = "`if let` is not part of the kernel language: `if` takes a truth";
            self.errors.at(pattern, message);
        } else {
            self.visit_expr_mut(&mut choice.cond);
        }
        let span = choice.if_token.span;
        let mut code = vec![Code::Block(&choice.then_branch)];
        code.extend(choice.else_branch.iter().map(|(_, other)| Code::Expr(other)));
        let found = changes(&self.scope, [], code);
        let carried = self.carried(found);
        self.visit_block_mut(&mut choice.then_branch);
        let valued = valued && choice.else_branch.is_some();
        let other = choice.else_branch.as_mut().map(|(_, other)| {
            match &mut **other {
                Expr::If(_) => self.flow(other, valued),
                other => self.visit_expr_mut(other),
            }
            &*other
        });
        let tuples = Tuples::of(span, &carried);
        let then = &choice.then_branch;
        let yes = tuples.closure(quote! { #then }, valued);
        let no = tuples.closure(quote! { #other }, valued);
        let (condition, values) = (&choice.cond, &tuples.values);
        let call = quote_spanned! {span=>
            ::tessera_kernel_dsl::Branch::branch(#condition, #values, #yes, #no)
        };
        let value = Ident::new("value", Span::mixed_site().located_at(span));
        let after = Ident::new("after", Span::mixed_site().located_at(span));
        match (carried.is_empty(), valued) {
            (true, true) => quote_spanned! {span=> #call.1 },
            (false, true) => quote_spanned! {span=>
                { let (#after, #value) = #call; #values = #after; #value }
            },
            (true, false) => quote_spanned! {span=> { #call; } },
            (false, false) => quote_spanned! {span=> #values = #call.0 },
        }
    }

    fn carried(&mut self, found: Changes) -> Vec<Ident> {
        for name in found.through_reference {
            let message = format!(
                "`{name}` is another function's variable, so a loop or branch here cannot change \
                 it: take it by value and return it"
            );
            self.errors.at(&name, message);
        }
        found.carried
    }
}

/// The carried variables, as a tuple and as the pattern of one.
struct Tuples {
    span: Span,
    values: TokenStream,
    pattern: TokenStream,
}

impl Tuples {
    fn of(span: Span, carried: &[Ident]) -> Self {
        Self {
            span,
            values: quote_spanned! {span=> (#(#carried,)*) },
            pattern: quote_spanned! {span=> (#(mut #carried,)*) },
        }
    }

    /// One side of a branch.
    fn closure(&self, body: TokenStream, valued: bool) -> TokenStream {
        let Self { span, values, pattern } = self;
        let span = *span;
        if !valued {
            let end = (!body.is_empty()).then(|| quote_spanned! {span=> ; });
            return quote_spanned! {span=> |#pattern| { #body #end (#values, ()) } };
        }
        let value = Ident::new("value", Span::mixed_site().located_at(span));
        quote_spanned! {span=> |#pattern| { let #value = #body; (#values, #value) } }
    }
}
