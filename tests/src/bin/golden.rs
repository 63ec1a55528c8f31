//! `cargo xtask golden DIR...`: prints how far a checkpoint's forward pass is from transformers'.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use tessera_runtime::model::Attention;
use tessera_tests::golden::{Recorded, Subject, max_relative_error};

/// Largest relative logit error of a pass that agrees.
const TOLERANCE: f32 = 2e-3;

fn main() -> Result<()> {
    let dirs: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if dirs.is_empty() {
        bail!("usage: cargo xtask golden DIR...");
    }
    println!("{:<28} {:>12} {:>12}  greedy ids", "golden", "expanded", "absorbed");
    let mut failed = Vec::new();
    for dir in &dirs {
        match check(dir).with_context(|| dir.display().to_string()) {
            Ok(true) => {}
            Ok(false) => failed.push(dir.display().to_string()),
            Err(error) => {
                println!("{error:#}");
                failed.push(dir.display().to_string());
            }
        }
    }
    if !failed.is_empty() {
        bail!("disagree with transformers: {}", failed.join(", "));
    }
    Ok(())
}

/// Prints one row; whether logits (within [`TOLERANCE`]) and greedy tokens agree.
fn check(dir: &Path) -> Result<bool> {
    let recorded = Recorded::read(dir)?;
    let subject = Subject::load(dir, "f32")?;
    let tokens = [recorded.input_ids.as_slice(), &recorded.greedy_ids].concat();
    let error = |attention| -> Result<f32> {
        let logits = subject.logits(attention, &tokens)?;
        max_relative_error(&logits, &recorded.logits, subject.vocab_size())
    };
    let (expanded, absorbed) = (error(Attention::Expanded)?, error(Attention::Absorbed)?);
    let count = recorded.greedy_ids.len();
    let greedy = subject.greedy(&recorded.input_ids, count, usize::MAX)?;
    let agree = greedy.iter().zip(&recorded.greedy_ids).take_while(|(a, b)| a == b).count();
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    println!("{name:<28} {expanded:>12.2e} {absorbed:>12.2e}  {agree} of {count}");
    Ok(expanded <= TOLERANCE && absorbed <= TOLERANCE && agree == count)
}
