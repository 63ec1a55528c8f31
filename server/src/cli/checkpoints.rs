//! `tessera quantize` and `tessera inspect`.

use super::progress::LoadBar;
use super::{InspectArgs, QuantizeArgs};
use tessera_runtime::checkpoint::{self, WeightPolicy};

/// Writes a checkpoint again with other weights.
///
/// # Errors
/// Those of the loader and the writer.
pub fn quantize(args: &QuantizeArgs) -> anyhow::Result<()> {
    let policy = WeightPolicy::preset(&args.weights)?;
    let bar = LoadBar::new(&format!("quantizing to {}", args.weights));
    let show = &mut |progress: checkpoint::Progress<'_>| bar.show(&progress);
    let report = checkpoint::quantize(&args.model, &policy, &args.out, show)?;
    bar.finish();
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    for ignored in &report.ignored {
        eprintln!("left out: {ignored}");
    }
    println!("wrote {}", args.out.display());
    Ok(())
}

/// Prints what is in a checkpoint, or would be by its config.
///
/// # Errors
/// Those of the loader.
pub fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    let memory = args.memory.map(|size| size.0 as u64);
    print!("{}", checkpoint::inspect(&args.model, memory)?);
    Ok(())
}
