//! Which variables of the surrounding code a loop or branch may change.

use super::scope::{Kind, Scope};
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprClosure, ExprForLoop, ExprIf, Ident, Local, Pat, UnOp};

/// What the bodies of a loop or branch change outside.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Variables to carry, each once, with the span of its first change.
    pub(super) carried: Vec<Ident>,
    /// Those of them that surely change: method calls may only read.
    pub(super) assigned: Vec<Ident>,
    /// Changes through a `&mut`, which cannot be carried.
    pub(super) through_reference: Vec<Ident>,
}

/// Finds the changes that code makes to `outer`: assignments, `&mut`, and method calls, each of
/// which might take its receiver by `&mut`.
pub(super) fn changes<'a>(
    outer: &Scope,
    pats: impl IntoIterator<Item = &'a Pat>,
    code: impl IntoIterator<Item = Code<'a>>,
) -> Changes {
    let mut finder = Finder { outer, inner: Scope::default(), changes: Changes::default() };
    for pat in pats {
        finder.inner.bind(pat);
    }
    for part in code {
        match part {
            Code::Block(block) => finder.visit_block(block),
            Code::Expr(expr) => finder.visit_expr(expr),
        }
    }
    finder.changes
}

/// A part of a loop or branch.
pub(super) enum Code<'a> {
    Block(&'a Block),
    Expr(&'a Expr),
}

struct Finder<'a> {
    outer: &'a Scope,
    inner: Scope,
    changes: Changes,
}

impl Finder<'_> {
    fn change(&mut self, place: &Expr, surely: bool) {
        let Some(name) = base(place) else {
            return;
        };
        if self.inner.kind(name).is_some() {
            return;
        }
        let found = match self.outer.kind(name) {
            Some(Kind::Mutable) => &mut self.changes.carried,
            Some(Kind::Reference) => &mut self.changes.through_reference,
            Some(Kind::Fixed) | None => return,
        };
        if !found.contains(name) {
            found.push(name.clone());
        }
        if surely && !self.changes.assigned.contains(name) {
            self.changes.assigned.push(name.clone());
        }
    }

    /// The places that an assignment changes: one, or those of a pattern.
    fn assigned(&mut self, left: &Expr) {
        match left {
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|part| self.assigned(part)),
            Expr::Array(array) => array.elems.iter().for_each(|part| self.assigned(part)),
            Expr::Struct(parts) => parts.fields.iter().for_each(|part| self.assigned(&part.expr)),
            Expr::Call(call) => call.args.iter().for_each(|part| self.assigned(part)),
            place => self.change(place, true),
        }
    }

    fn scoped(&mut self, visit: impl FnOnce(&mut Self)) {
        let mark = self.inner.mark();
        visit(self);
        self.inner.end(mark);
    }
}

/// The variable that a place is a part of.
fn base(place: &Expr) -> Option<&Ident> {
    match place {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Field(field) => base(&field.base),
        Expr::Index(index) => base(&index.expr),
        Expr::Paren(paren) => base(&paren.expr),
        Expr::Group(group) => base(&group.expr),
        Expr::MethodCall(call) => base(&call.receiver),
        Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)) => base(&unary.expr),
        Expr::Reference(reference) => base(&reference.expr),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_block(&mut self, block: &'ast Block) {
        self.scoped(|this| visit::visit_block(this, block));
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let Some(init) = &local.init {
            self.visit_expr(&init.expr);
        }
        self.inner.bind(&local.pat);
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        self.scoped(|this| {
            closure.inputs.iter().for_each(|pat| this.inner.bind(pat));
            this.visit_expr(&closure.body);
        });
    }

    fn visit_expr_for_loop(&mut self, each: &'ast ExprForLoop) {
        self.visit_expr(&each.expr);
        self.scoped(|this| {
            this.inner.bind(&each.pat);
            this.visit_block(&each.body);
        });
    }

    fn visit_expr_if(&mut self, choice: &'ast ExprIf) {
        visit::visit_expr_if(self, choice);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Assign(assign) => self.assigned(&assign.left),
            Expr::Binary(binary) if is_compound(&binary.op) => self.change(&binary.left, true),
            Expr::Reference(reference) if reference.mutability.is_some() => {
                self.change(&reference.expr, true);
            }
            Expr::MethodCall(call) => self.change(&call.receiver, false),
            // A `&mut` that is handed on: what it points at may change there.
            Expr::Path(path) => {
                if let Some(name) = path.path.get_ident()
                    && self.outer.kind(name) == Some(Kind::Reference)
                {
                    self.change(expr, false);
                }
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

fn is_compound(op: &BinOp) -> bool {
    super::operators::without_assignment(op).is_some()
}
