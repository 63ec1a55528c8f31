//! Whether a run of a case is as it should be: the f64 evaluator's word against the executor's.

use super::{Built, Case, differences};
use anyhow::Result;
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::evaluate;

/// Runs a case by `run`, which changes written arrays in place, and says why its results are not as
/// they should be. What was written comes back, or nothing where the case is one that must fail and
/// does, with its message.
///
/// # Errors
/// The first thing that is wrong.
pub fn judge(
    kernel: &Kernel,
    case: &Case,
    run: impl FnOnce(&mut Built) -> Result<()>,
) -> Result<Option<Built>, String> {
    let built = || Built::new(kernel, case).map_err(|error| format!("{error:#}"));
    let (mut truth, mut got) = (built()?, built()?);
    match (run(&mut got), &case.fails) {
        (Ok(()), None) => {}
        (Err(error), Some(message)) if error.to_string().contains(message) => return Ok(None),
        (Err(error), _) => return Err(format!("{error:#}")),
        (Ok(()), Some(message)) => return Err(format!("does not fail with `{message}`")),
    }
    evaluate(kernel, &mut truth.args).map_err(|error| error.to_string())?;
    let found = differences(kernel, &got.args, &truth.args, case.tolerance);
    match found.first() {
        None => Ok(Some(got)),
        Some(first) => Err(format!("{} elements differ: {first}", found.len())),
    }
}
