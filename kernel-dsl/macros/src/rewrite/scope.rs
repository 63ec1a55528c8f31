//! Which names are bound where, and whether they may change.

use syn::visit::{self, Visit};
use syn::{Ident, Pat, PatIdent, Receiver, Type};

/// A name in scope.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    /// The name.
    pub(crate) name: Ident,
    /// Whether it may change.
    pub(crate) kind: Kind,
}

/// How a name may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not at all.
    Fixed,
    /// It was declared `mut`: loops and branches carry it.
    Mutable,
    /// It is a `&mut` of something declared elsewhere, which no loop or branch can carry.
    Reference,
}

impl Binding {
    /// A name that does not change.
    pub(crate) fn fixed(name: Ident) -> Self {
        Self { name, kind: Kind::Fixed }
    }

    /// `self`.
    pub(crate) fn receiver(receiver: &Receiver) -> Self {
        // `mut self` cannot be carried either: no closure has a parameter of that name.
        let changes = receiver.mutability.is_some();
        let kind = if changes { Kind::Reference } else { Kind::Fixed };
        Self { name: Ident::from(receiver.self_token), kind }
    }
}

/// Appends what a parameter binds.
pub(crate) fn bind_param(pat: &Pat, ty: &Type, bound: &mut Vec<Binding>) {
    let first = bound.len();
    bind(pat, bound);
    if is_mutable_reference(ty) {
        for binding in &mut bound[first..] {
            binding.kind = Kind::Reference;
        }
    }
}

/// Views are handles, so a `&mut` of one changes nothing that could be carried.
fn is_mutable_reference(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else {
        return false;
    };
    let is_view = match &*reference.elem {
        Type::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "Out" || last.ident == "InOut"),
        _ => false,
    };
    reference.mutability.is_some() && !is_view
}

/// Appends what a pattern binds.
pub(crate) fn bind(pat: &Pat, bound: &mut Vec<Binding>) {
    struct Names<'a>(&'a mut Vec<Binding>);
    impl<'ast> Visit<'ast> for Names<'_> {
        fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
            let mutable = pat.mutability.is_some() && pat.by_ref.is_none();
            let kind = if mutable { Kind::Mutable } else { Kind::Fixed };
            self.0.push(Binding { name: pat.ident.clone(), kind });
            visit::visit_pat_ident(self, pat);
        }
    }
    Names(bound).visit_pat(pat);
}

/// The names in scope, innermost last.
#[derive(Debug, Default)]
pub(crate) struct Scope(Vec<Binding>);

impl Scope {
    /// A scope of these names.
    pub(crate) fn of(bound: Vec<Binding>) -> Self {
        Self(bound)
    }

    /// Where to come back to.
    pub(crate) fn mark(&self) -> usize {
        self.0.len()
    }

    /// Ends the bindings made since the mark.
    pub(crate) fn end(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    /// Binds the names of a pattern.
    pub(crate) fn bind(&mut self, pat: &Pat) {
        bind(pat, &mut self.0);
    }

    /// What a name is, if it is bound here.
    pub(crate) fn kind(&self, name: &Ident) -> Option<Kind> {
        self.0.iter().rev().find(|binding| binding.name == *name).map(|binding| binding.kind)
    }
}
