//! The exported functions, with CUDA's names and signatures, and everything unsafe there is.
//!
//! An exported function only translates: arguments in, results out, a code back. No panic crosses
//! the boundary; it becomes `CUDA_ERROR_UNKNOWN` with its message on the error output.

mod context;
mod copy;
mod device;
mod entry_points;
mod event;
mod function;
mod graph;
mod graph_node;
#[expect(unsafe_code, reason = "memory and functions of the program that queued work uses")]
pub(crate) mod host;
mod launch;
mod layout;
mod memory;
mod module;
#[expect(unsafe_code, reason = "pointers that the program passes are read and written")]
mod pointers;
mod pool;
#[cfg(test)]
mod signatures;
mod stream;
mod tensor;
mod unsupported;

use crate::code::{Code, Outcome, log};
use crate::driver::{Driver, driver};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs an exported function's body. The panic hook has printed the message and the place.
fn guard(name: &'static str, body: impl FnOnce() -> Outcome) -> Code {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    outcome.map_or_else(
        |_| {
            log(format_args!("{name} panicked; this is a mistake of the stand-in driver"));
            Code::ERROR_UNKNOWN
        },
        Code::from,
    )
}

/// Runs the body of an exported function that needs the driver: it must be initialized, and a
/// stream's host function must not call it.
fn call(name: &'static str, body: impl FnOnce(&'static Driver) -> Outcome) -> Code {
    guard(name, || {
        if host::in_host_fn() {
            log(format_args!("{name} called by a host function of a stream"));
            return Err(Code::ERROR_NOT_PERMITTED);
        }
        let driver = driver()?;
        driver.calls.tick();
        body(driver)
    })
}

/// Says why an exported function is not supported.
fn unsupported(name: &'static str, why: &str) -> Outcome {
    log(format_args!("{name}: {why}"));
    Err(Code::ERROR_NOT_SUPPORTED)
}
