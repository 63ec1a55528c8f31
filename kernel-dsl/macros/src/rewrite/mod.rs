//! Rewrites a body: operators, loops and branches become calls that record what the kernel does.
//!
//! The calls carry the span of the operator or keyword they stand for, so the place that a called
//! function sees is the author's token.

mod carried;
mod flow;
mod operators;
mod refuse;
mod scope;

pub(crate) use scope::Binding;

use crate::errors::Errors;
use scope::Scope;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, FnArg, Pat, Stmt};

/// Rewrites a body, in which these names are bound.
pub(crate) fn body(block: &mut Block, bound: Vec<Binding>, errors: &mut Errors) {
    let mut rewriter = Rewriter { scope: Scope::of(bound), errors };
    rewriter.visit_block_mut(block);
}

/// Rewrites an expression, in which these names are bound.
pub(crate) fn expr(expr: &mut Expr, bound: Vec<Binding>, errors: &mut Errors) {
    let mut rewriter = Rewriter { scope: Scope::of(bound), errors };
    rewriter.visit_expr_mut(expr);
}

/// What the parameters of a function bind.
pub(crate) fn parameters<'a>(inputs: impl IntoIterator<Item = &'a FnArg>) -> Vec<Binding> {
    let mut bound = Vec::new();
    for input in inputs {
        match input {
            FnArg::Typed(input) => scope::bind_param(&input.pat, &input.ty, &mut bound),
            FnArg::Receiver(receiver) => bound.push(Binding::receiver(receiver)),
        }
    }
    bound
}

struct Rewriter<'e> {
    scope: Scope,
    errors: &'e mut Errors,
}

impl Rewriter<'_> {
    /// Visits with the bindings of these patterns, which end afterwards.
    fn scoped<'a>(
        &mut self,
        pats: impl IntoIterator<Item = &'a Pat>,
        visit: impl FnOnce(&mut Self),
    ) {
        let mark = self.scope.mark();
        for pat in pats {
            self.scope.bind(pat);
        }
        visit(self);
        self.scope.end(mark);
    }
}

impl Rewriter<'_> {
    /// A closure may be called in any loop, and no loop would know what to carry.
    fn refuse_changes(&mut self, pats: &[Pat], body: &Expr) {
        for name in carried::changes(&self.scope, pats, [carried::Code::Expr(body)]).assigned {
            let message = format!(
                "a closure cannot change `{name}`, which is declared outside: return the new value"
            );
            self.errors.at(&name, message);
        }
    }
}

impl VisitMut for Rewriter<'_> {
    fn visit_block_mut(&mut self, block: &mut Block) {
        let mark = self.scope.mark();
        let count = block.stmts.len();
        for (i, stmt) in block.stmts.iter_mut().enumerate() {
            if let Stmt::Expr(expr, semi) = stmt
                && (semi.is_some() || i + 1 < count)
                && matches!(expr, Expr::If(_) | Expr::ForLoop(_))
            {
                // Its value is not used, so the statement needs none; the call does need its `;`.
                self.flow(expr, false);
                semi.get_or_insert_with(|| syn::Token![;](expr.span()));
            } else {
                self.visit_stmt_mut(stmt);
            }
        }
        self.scope.end(mark);
    }

    fn visit_stmt_mut(&mut self, stmt: &mut Stmt) {
        match stmt {
            Stmt::Local(local) => {
                refuse::local(local, self.errors);
                self.visit_pat_mut(&mut local.pat);
                if let Some(init) = &mut local.init {
                    self.visit_expr_mut(&mut init.expr);
                }
                self.scope.bind(&local.pat);
            }
            Stmt::Item(item) => refuse::item(item, self.errors),
            Stmt::Macro(call) => refuse::call_of_macro(&call.mac, self.errors),
            Stmt::Expr(..) => visit_mut::visit_stmt_mut(self, stmt),
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        if refuse::expr(expr, self.errors) {
            return;
        }
        match expr {
            Expr::If(_) | Expr::ForLoop(_) => self.flow(expr, true),
            Expr::Closure(closure) => {
                closure.inputs.iter_mut().for_each(|pat| self.visit_pat_mut(pat));
                let pats: Vec<Pat> = closure.inputs.iter().cloned().collect();
                self.refuse_changes(&pats, &closure.body);
                self.scoped(&pats, |this| this.visit_expr_mut(&mut closure.body));
            }
            Expr::Binary(_) => {
                visit_mut::visit_expr_mut(self, expr);
                operators::rewrite(expr);
            }
            Expr::MethodCall(call) => {
                visit_mut::visit_expr_method_call_mut(self, call);
                operators::mix_indices(call);
            }
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }

    fn visit_type_mut(&mut self, ty: &mut syn::Type) {
        refuse::ty(ty, self.errors);
        visit_mut::visit_type_mut(self, ty);
    }

    // What rustc evaluates stays as it is: lengths, `const` blocks and arguments.
    fn visit_expr_repeat_mut(&mut self, repeat: &mut syn::ExprRepeat) {
        self.visit_expr_mut(&mut repeat.expr);
    }

    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}

    fn visit_type_array_mut(&mut self, ty: &mut syn::TypeArray) {
        self.visit_type_mut(&mut ty.elem);
    }

    fn visit_generic_argument_mut(&mut self, argument: &mut syn::GenericArgument) {
        if let syn::GenericArgument::Type(ty) = argument {
            self.visit_type_mut(ty);
        }
    }
}
