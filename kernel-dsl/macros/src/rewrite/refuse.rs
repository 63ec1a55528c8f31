//! Syntax that is not part of the kernel language, and what to write in its place.

use crate::errors::Errors;
use syn::{Expr, Item, Local, Macro, Type};

/// Macros that run while the kernel is built and change nothing.
const MACROS: [&str; 6] = ["assert", "assert_eq", "assert_ne", "format", "vec", "concat"];

/// Refuses an expression. Gives whether nothing inside it can be read.
pub(super) fn expr(expr: &Expr, errors: &mut Errors) -> bool {
    let message = match expr {
        Expr::While(_) => {
            "`while` is not part of the kernel language: loop over `range(start, end, step)`"
        }
        Expr::Loop(_) => {
            "`loop` is not part of the kernel language: loop over `range(start, end, step)`"
        }
        Expr::Break(_) => {
            "a loop of a kernel runs to its end: `if` or `select` can skip the work, not `break`"
        }
        Expr::Continue(_) => {
            "a loop of a kernel runs each body to its end: put the rest into an `if`, not `continue`"
        }
        Expr::Return(_) => "a kernel runs to its end: put the rest into an `if`, not `return`",
        Expr::Match(_) => "`match` is not part of the kernel language: use `if` and `else`",
        Expr::Async(_) | Expr::Await(_) => "a kernel has no `async` and no `await`",
        Expr::Unsafe(_) => "a kernel has no `unsafe`: views check their bounds",
        Expr::Try(_) | Expr::TryBlock(_) => "a kernel has no `?`: nothing in it returns an error",
        Expr::Yield(_) => "a kernel has no `yield`",
        Expr::Let(_) => "`let` is not a condition in the kernel language: `if` takes a truth",
        Expr::RawAddr(_) => "a kernel has no raw pointers: read and write through views",
        Expr::Macro(call) => {
            call_of_macro(&call.mac, errors);
            return true;
        }
        Expr::Closure(closure) if closure.asyncness.is_some() => "a kernel has no `async`",
        Expr::Block(block) if block.label.is_some() => {
            "a block of a kernel has no label: nothing could jump to it"
        }
        Expr::Verbatim(_) => "this syntax is not part of the kernel language",
        _ => return false,
    };
    match expr {
        // Only the keyword: what is inside has mistakes of its own.
        Expr::While(inner) => errors.at(inner.while_token, message),
        Expr::Loop(inner) => errors.at(inner.loop_token, message),
        Expr::Match(inner) => errors.at(inner.match_token, message),
        Expr::Unsafe(inner) => errors.at(inner.unsafe_token, message),
        Expr::Async(inner) => errors.at(inner.async_token, message),
        Expr::Try(inner) => errors.at(inner.question_token, message),
        Expr::Block(inner) => errors.at(&inner.label, message),
        other => errors.at(other, message),
    }
    matches!(expr, Expr::Verbatim(_))
}

/// Refuses `let` without a value, and `let .. else`.
pub(super) fn local(local: &Local, errors: &mut Errors) {
    match &local.init {
        None => errors.at(local, "a variable of a kernel gets its value where it is declared"),
        Some(init) => {
            if let Some((token, _)) = &init.diverge {
                errors.at(token, "`let .. else` is not part of the kernel language: use `if`");
            }
        }
    }
}

/// Refuses items but `use` and `const`.
pub(super) fn item(item: &Item, errors: &mut Errors) {
    if !matches!(item, Item::Use(_) | Item::Const(_)) {
        let message = "only `use` and `const` may stand in a kernel: functions go outside, with \
                       `#[tile_fn]` if they work on tiles";
        errors.at(item, message);
    }
}

/// Refuses macros whose contents the kernel would need.
pub(super) fn call_of_macro(call: &Macro, errors: &mut Errors) {
    let known =
        call.path.segments.last().is_some_and(|last| MACROS.iter().any(|name| last.ident == name));
    if !known {
        let message = "a kernel cannot look into this macro: call a `#[tile_fn]` instead";
        errors.at(&call.path, message);
    }
}

/// Refuses types that a tile can never have.
pub(super) fn ty(ty: &Type, errors: &mut Errors) {
    match ty {
        Type::TraitObject(object) => {
            errors.at(object, "a kernel has no `dyn`: types are known when it is built");
        }
        Type::Ptr(pointer) => {
            errors.at(pointer, "a kernel has no raw pointers: read and write through views");
        }
        _ => {}
    }
}
